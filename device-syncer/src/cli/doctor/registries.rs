//! The registries that the accepted state names: whether they let in this device, which fetches archives and charts, and the
//! engine, which pulls images with its own authorities and its own proxy.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use repo_artifacts::Reference;
use repo_model::margo::ProfileType;
use repo_model::report::CAPABILITIES;
use repo_model::{Digest, IntoMap};

use super::{Check, Row};
use crate::config::{Home, Settings};
use crate::decision::component::Component;
use crate::home;
use crate::runtimes::{DeviceRuntimes, compose};
use crate::state::loaded;

/// Where the engine looks for authorities, by `host[:port]` of a registry.
const CERTIFICATES: &str = "/etc/docker/certs.d";

/// A check for each registry and each who asks it: one that hangs holds up no other.
pub(super) fn checks(home: &Home) -> Vec<Check> {
    // What is wrong with the home has its own row.
    let Ok((device, reconciler, _)) = home::read_only(home.clone()) else { return Vec::new() };
    let (device_state, Some(desired)) = loaded::peek(&home.repository()) else { return Vec::new() };
    let mirrors = device.settings.mirrors(&device.from_fleet(Some(&desired)));
    reconciler.runtimes.follow_mirrors(&mirrors);
    let wanted = reconciler.resolve(&device, &desired, device_state.status.get(CAPABILITIES));
    let inputs: Vec<_> =
        wanted.into_iter().flat_map(|one| one.components).filter_map(|component| component.input.ok()).collect();
    let runtimes = &reconciler.runtimes;
    let sources = sources(&inputs).into_iter().flat_map(|(host, input)| of_source(&host, &input, runtimes));
    let own = Arc::new(OwnWay::of(&device.settings));
    let images = images(&inputs).into_iter();
    sources.chain(images.flat_map(|(host, (name, lock))| of_image(&host, &name, lock, (runtimes, &own)))).collect()
}

/// How this device itself reaches registries. Of that the engine is told the accounts alone.
struct OwnWay {
    /// Files with the certificate authorities that the settings name.
    authorities: Vec<PathBuf>,
    /// The hosts for which device.yaml has an account, which the engine is told.
    accounts: BTreeSet<String>,
    has_proxy: bool,
}

impl OwnWay {
    fn of(settings: &Settings) -> Self {
        Self {
            authorities: settings.registries.ca.clone(),
            accounts: settings.registries.accounts.keys().cloned().collect(),
            has_proxy: settings.host.proxy.is_some(),
        }
    }

    /// What the engine lacks that this device has, as far as that can be told: it is asked `has_proxy` only where that matters.
    fn lacked(
        &self,
        error: &str,
        host: &str,
        certificates: &Path,
        has_proxy: impl Fn() -> Option<bool>,
    ) -> Option<String> {
        let directory = certificates.join(host);
        let has_authority = || {
            let files = fs::read_dir(&directory).into_iter().flatten().flatten();
            files.map(|file| file.path()).any(|path| path.extension().is_some_and(|ending| ending == "crt"))
        };
        if is_about_trust(error) {
            let known = self.authorities.first().filter(|_| !has_authority())?;
            let (known, directory) = (known.display(), directory.display());
            return Some(format!("the engine has no authority for it: copy `{known}` to `{directory}/ca.crt`"));
        }
        let lacks_proxy = self.has_proxy && !is_refused(error) && has_proxy() == Some(false);
        let todo = "the engine has no proxy, and `host.proxy` in device.yaml names one: set HTTPS_PROXY in the unit of dockerd";
        lacks_proxy.then(|| todo.to_owned())
    }
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
fn of_image(
    registry: &str,
    name: &str,
    lock: Digest,
    (runtimes, own): (&Arc<DeviceRuntimes>, &Arc<OwnWay>),
) -> Vec<Check> {
    let names = runtimes.compose.as_ref().map(|compose| compose.names_of(name, lock)).unwrap_or_default();
    let count = names.len();
    let check = |name: String| -> Check {
        let (runtimes, own) = (Arc::clone(runtimes), Arc::clone(own));
        let host = host_of(&name).to_owned();
        let place = Place::new("engine", registry, &host, count > 1);
        let check = place.check.clone();
        let ask = move || ask_for_image(&place, &host, &name, (&runtimes, &own)).into_iter().collect();
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
    images.map(|(name, lock)| (host_of(name).to_owned(), (name.clone(), *lock))).into_map()
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

fn ask_for_image(place: &Place, host: &str, name: &str, (runtimes, own): (&DeviceRuntimes, &OwnWay)) -> Option<Row> {
    let compose = runtimes.compose.as_ref()?;
    let has_account = own.accounts.contains(host);
    Some(match compose.ask_for_image(name)? {
        Ok(()) => Row::ok(&place.check, format!("the engine may pull `{name}`")),
        // Its accounts are in docker's configuration, which the engine itself doesn't read.
        Err(error) if is_refused(&error) && !has_account => {
            Row::ok(&place.check, "the engine reaches it; it wants an account")
        }
        Err(error) => {
            let settings = match is_refused(&error) {
                true => format!("`registries.accounts.{host}` in device.yaml isn't one that counts there"),
                false => format!("the engine's own settings (`/etc/docker/certs.d/{host}/ca.crt`, its proxy)"),
            };
            let lacked = own.lacked(&error, host, Path::new(CERTIFICATES), || compose.engine_has_proxy());
            place.failed(error.clone(), lacked.unwrap_or_else(|| todo(&error, &settings)))
        }
    })
}

/// Whether an error is about whom the host's certificate is from.
fn is_about_trust(error: &str) -> bool {
    let lower = error.to_lowercase();
    lower.contains("certificate") || lower.contains("x509")
}

fn is_refused(error: &str) -> bool {
    ["401", "403"].iter().any(|status| error.contains(status)) || compose::is_refused(error)
}

/// What to do about an answer of a registry, in these settings.
fn todo(error: &str, settings: &str) -> String {
    let lower = error.to_lowercase();
    let what = match () {
        () if is_about_trust(error) => "name its authority",
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

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a test's own files")]
    fn what_the_engine_lacks_and_this_device_has_is_named_with_where_it_goes() {
        let certificates = tempfile::tempdir().unwrap();
        let own = OwnWay { authorities: vec!["/home/plant-ca.pem".into()], accounts: BTreeSet::new(), has_proxy: true };
        let lacked = |own: &OwnWay, error: &str, has_proxy| {
            own.lacked(error, "mirror.plant.local:5000", certificates.path(), || has_proxy)
        };
        let untrusted = "x509: certificate signed by unknown authority";
        let told = lacked(&own, untrusted, Some(false)).unwrap();
        assert!(
            told.contains("copy `/home/plant-ca.pem` to `") && told.contains("/mirror.plant.local:5000/ca.crt`"),
            "{told}"
        );
        let told = lacked(&own, "dial tcp: i/o timeout", Some(false)).unwrap();
        assert!(told.contains("no proxy") && told.contains("HTTPS_PROXY"), "{told}");
        let bare = OwnWay { authorities: Vec::new(), accounts: BTreeSet::new(), has_proxy: false };
        for (own, error, has_proxy) in [
            (&bare, untrusted, Some(false)),
            (&bare, "i/o timeout", Some(false)),
            (&own, "i/o timeout", Some(true)),
            (&own, "i/o timeout", None),
            (&own, "401 Unauthorized", Some(false)),
        ] {
            assert_eq!(lacked(own, error, has_proxy), None, "{error}");
        }
        let directory = certificates.path().join("mirror.plant.local:5000");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("ca.crt"), "").unwrap();
        assert_eq!(lacked(&own, untrusted, None), None, "it has one, and that is another one");
    }
}
