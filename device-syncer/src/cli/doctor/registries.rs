//! The registries that the accepted state names: whether they let in this device, which fetches archives and charts, and the
//! engine, which pulls images with its own authorities and its own proxy.

use std::collections::BTreeMap;
use std::sync::Arc;

use repo_artifacts::Reference;
use repo_model::Digest;
use repo_model::margo::ProfileType;
use repo_model::report::CAPABILITIES;

use super::{Check, Row};
use crate::config::Home;
use crate::decision::component::Component;
use crate::home;
use crate::runtimes::DeviceRuntimes;
use crate::state::loaded;

/// A check for each registry and each who asks it: one that hangs holds up no other.
pub(super) fn checks(home: &Home) -> Vec<Check> {
    // What is wrong with the home has its own row.
    let Ok((device, reconciler, _)) = home::read_only(home.clone()) else { return Vec::new() };
    let (device_state, Some(desired)) = loaded::peek(&home.repository()) else { return Vec::new() };
    let wanted = reconciler.resolve(&device, &desired, device_state.status.get(CAPABILITIES));
    let inputs: Vec<_> =
        wanted.into_iter().flat_map(|one| one.components).filter_map(|component| component.input.ok()).collect();
    let runtimes = &reconciler.runtimes;
    let sources = sources(&inputs).into_iter().flat_map(|(host, input)| of_source(&host, &input, runtimes));
    let images = images(&inputs).into_iter().flat_map(|(host, (name, lock))| of_image(&host, &name, lock, runtimes));
    sources.chain(images).collect()
}

/// Where something is asked for.
struct Place {
    check: String,
    /// Where this one fails, another one may do.
    is_one_of_several: bool,
}

impl Place {
    fn new(who: &str, registry: &str, host: &str, is_one_of_several: bool) -> Self {
        let check = match host == registry {
            true => format!("{who}: {host}"),
            false => format!("{who}: {host}, mirror of {registry}"),
        };
        Self { check, is_one_of_several: is_one_of_several && host != registry }
    }

    fn failed(&self, error: String, todo: String) -> Row {
        match self.is_one_of_several {
            true => Row::warning(&self.check, error, todo),
            false => Row::failed(&self.check, error, todo),
        }
    }
}

/// A check for each place where an archive or chart is asked for.
fn of_source(registry: &str, input: &Component, runtimes: &Arc<DeviceRuntimes>) -> Vec<Check> {
    let places = match input.profile_type() {
        ProfileType::Compose => runtimes.compose.as_ref().map(|compose| compose.places_of(input)),
        _ => runtimes.helm.as_ref().map(|helm| helm.places_of(input)),
    };
    let places = places.unwrap_or_default();
    let count = places.len();
    let check = |at: Reference| -> Check {
        let (input, runtimes) = (input.clone(), Arc::clone(runtimes));
        let place = Place::new("registry", registry, at.host(), count > 1);
        (place.check.clone(), Box::new(move || ask_for_source(&place, &at, &input, &runtimes).into_iter().collect()))
    };
    places.into_iter().map(check).collect()
}

/// A check for each place where an image is pulled from.
fn of_image(registry: &str, name: &str, lock: Digest, runtimes: &Arc<DeviceRuntimes>) -> Vec<Check> {
    let names = runtimes.compose.as_ref().map(|compose| compose.names_of(name, lock)).unwrap_or_default();
    let count = names.len();
    let check = |name: String| -> Check {
        let runtimes = Arc::clone(runtimes);
        let host = host_of(&name).to_owned();
        let place = Place::new("engine", registry, &host, count > 1);
        let check = place.check.clone();
        let ask = move || ask_for_image(&place, &host, &name, &runtimes).into_iter().collect();
        (check, Box::new(ask))
    };
    names.into_iter().map(check).collect()
}

/// The host in the name of an image, as docker reads it.
fn host_of(image: &str) -> &str {
    let first = image.split_once('/').map(|(first, _)| first);
    first.filter(|first| first.contains(['.', ':']) || *first == "localhost").unwrap_or("docker.io")
}

/// One archive or chart of each registry.
fn sources(inputs: &[Component]) -> BTreeMap<String, Component> {
    let mut one_of_each = BTreeMap::new();
    for input in inputs {
        if let Some(rest) = input.repository.strip_prefix("oci://") {
            one_of_each.entry(host_of(rest).to_owned()).or_insert_with(|| input.clone());
        }
    }
    one_of_each
}

/// One image of each registry, with its digest.
fn images(inputs: &[Component]) -> BTreeMap<String, (String, Digest)> {
    let images = inputs.iter().flat_map(|input| &input.images.published);
    images.map(|(name, lock)| (host_of(name).to_owned(), (name.clone(), *lock))).collect()
}

fn ask_for_source(place: &Place, at: &Reference, input: &Component, runtimes: &DeviceRuntimes) -> Option<Row> {
    let asked = match input.profile_type() {
        ProfileType::Compose => runtimes.compose.as_ref()?.ask_at(at, input),
        _ => runtimes.helm.as_ref()?.ask_at(at, input),
    };
    Some(match asked {
        Ok(()) => Row::ok(&place.check, "it has what this device fetches there"),
        Err(error) => place.failed(error.clone(), todo(&error, "`registries` in device.yaml")),
    })
}

fn ask_for_image(place: &Place, host: &str, name: &str, runtimes: &DeviceRuntimes) -> Option<Row> {
    Some(match runtimes.compose.as_ref()?.ask_for_image(name)? {
        Ok(()) => Row::ok(&place.check, format!("the engine may pull `{name}`")),
        // Its accounts are in docker's configuration, which the engine itself doesn't read.
        Err(error) if is_refused(&error) => Row::ok(&place.check, "the engine reaches it; it wants an account"),
        Err(error) => {
            let settings = format!("the engine's own settings (`/etc/docker/certs.d/{host}/ca.crt`, its proxy)");
            place.failed(error.clone(), todo(&error, &settings))
        }
    })
}

fn is_refused(error: &str) -> bool {
    ["401", "403", "unauthorized", "denied", "no basic auth"].iter().any(|word| error.to_lowercase().contains(word))
}

/// What to do about an answer of a registry, in these settings.
fn todo(error: &str, settings: &str) -> String {
    let lower = error.to_lowercase();
    let what = match () {
        () if lower.contains("certificate") || lower.contains("x509") => "name its authority",
        () if is_refused(error) => "give it an account",
        () if lower.contains("http response to https") => "say that it speaks plain HTTP",
        () => "look whether it runs, and at name, route and proxy",
    };
    format!("{what}: {settings}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_of_an_image_is_read_as_docker_does() {
        for (image, host) in [
            ("nginx", "docker.io"),
            ("library/nginx:1", "docker.io"),
            ("registry.example/a/b:1", "registry.example"),
            ("localhost/a", "localhost"),
            ("127.0.0.1:5000/a", "127.0.0.1:5000"),
        ] {
            assert_eq!(host_of(image), host);
        }
        assert!(todo("x509: unknown authority", "S").starts_with("name its authority: S"));
        assert!(todo("401 Unauthorized", "S").starts_with("give it an account"));
    }
}
