//! The registries that the accepted state names: whether they let in this device, which fetches archives and charts, and the
//! engine, which pulls images with its own authorities and its own proxy.

use std::collections::BTreeMap;
use std::sync::Arc;

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
    let (sources, images) = (sources(&inputs), images(&inputs));
    let runtimes = || Arc::clone(&reconciler.runtimes);
    let source = |(host, input): (String, Component)| -> Check {
        let (check, runtimes) = (format!("registry: {host}"), runtimes());
        (check.clone(), Box::new(move || ask_for_source(&check, &input, &runtimes).into_iter().collect()))
    };
    let image = |(host, name): (String, String)| -> Check {
        let (check, runtimes) = (format!("engine: {host}"), runtimes());
        (check.clone(), Box::new(move || ask_for_image(&check, &host, &name, &runtimes).into_iter().collect()))
    };
    sources.into_iter().map(source).chain(images.into_iter().map(image)).collect()
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

/// One image of each registry.
fn images(inputs: &[Component]) -> BTreeMap<String, String> {
    let names = inputs.iter().flat_map(|input| input.images.published.keys());
    names.map(|name| (host_of(name).to_owned(), name.clone())).collect()
}

fn ask_for_source(check: &str, input: &Component, runtimes: &DeviceRuntimes) -> Option<Row> {
    let (_, asked) = match input.profile_type() {
        ProfileType::Compose => runtimes.compose.as_ref()?.ask_for_archive(input)?,
        _ => runtimes.helm.as_ref()?.ask_for_chart(input)?,
    };
    Some(match asked {
        Ok(()) => Row::ok(check, "it has what this device fetches there"),
        Err(error) => Row::failed(check, error.clone(), todo(&error, "`registries` in device.yaml")),
    })
}

fn ask_for_image(check: &str, host: &str, name: &str, runtimes: &DeviceRuntimes) -> Option<Row> {
    Some(match runtimes.compose.as_ref()?.ask_for_image(name)? {
        Ok(()) => Row::ok(check, format!("the engine may pull `{name}`")),
        // Its accounts are in docker's configuration, which the engine itself doesn't read.
        Err(error) if is_refused(&error) => Row::ok(check, "the engine reaches it; it wants an account"),
        Err(error) => {
            let place = format!("the engine's own settings (`/etc/docker/certs.d/{host}/ca.crt`, its proxy)");
            Row::failed(check, error.clone(), todo(&error, &place))
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
