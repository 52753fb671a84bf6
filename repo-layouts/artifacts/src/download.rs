//! Archives by URL (Margo's pre-draft, *packageLocation*): what an address means now, and the bytes behind it.
//!
//! Such an archive has no manifest; its lock has the archive's own digest in both places.

use std::collections::BTreeSet;

use repo_http::{Credential, HttpError, Problem, Request, Url};
use repo_model::Digest;
use repo_model::envelope::Lock;
use repo_model::error_chain;

use crate::reference::Kind;
use crate::{Archive, Limits, RegistryError, Settings};

/// Compressed answers would hide the bytes that the digest is of.
const AS_IT_IS: &[(&str, &str)] = &[("Accept-Encoding", "identity")];

/// What the address means now. Only a compose archive is locked, whatever else answers there.
pub(crate) fn resolve(settings: &Settings, url: &Url) -> Result<Lock, RegistryError> {
    let bytes = download(settings, url, Kind::Compose.name(), settings.max_layer)?;
    Archive::read(&bytes, &Limits::default()).map_err(|error| RegistryError::Invalid {
        artifact: url.to_string(),
        kind: Kind::Compose.name(),
        reason: error_chain(&error),
    })?;
    let digest = Digest::of(&bytes);
    Ok(Lock { manifest: digest, content: digest })
}

/// The archive's bytes, verified where there is a lock.
pub(crate) fn pull(settings: &Settings, url: &Url, lock: Option<&Lock>) -> Result<Vec<u8>, RegistryError> {
    let bytes = download(settings, url, Kind::Compose.name(), settings.max_layer)?;
    same(url, "archive", lock, &bytes)?;
    Ok(bytes)
}

/// Whether these are the locked bytes, if any are.
pub(crate) fn same(url: &Url, part: &'static str, lock: Option<&Lock>, bytes: &[u8]) -> Result<(), RegistryError> {
    let found = Digest::of(bytes);
    match lock {
        Some(lock) if lock.content != found => Err(RegistryError::Changed {
            artifact: url.to_string(),
            part,
            locked: lock.content.to_string(),
            found: found.to_string(),
        }),
        _ => Ok(()),
    }
}

/// What is at the address, up to `limit` bytes. `kind` is what it should be, for messages.
pub(crate) fn download(
    settings: &Settings,
    url: &Url,
    kind: &'static str,
    limit: usize,
) -> Result<Vec<u8>, RegistryError> {
    let unavailable = |source: repo_http::Cause| RegistryError::Unavailable { artifact: url.to_string(), source };
    let agent = settings.agent(BTreeSet::new()).map_err(unavailable)?;
    let account = settings.accounts.get(url.authority()).map(|account| account.get()).transpose();
    let credential = account.map_err(|error| unavailable(error.into()))?.unwrap_or(Credential::None);
    let request = Request { headers: AS_IT_IS, credential: &credential, ..Request::get(url) };
    let answer = agent.send_anywhere(&request).and_then(|response| response.body.bytes(limit as u64));
    answer.map_err(|error| failed(url, kind, error))
}

fn failed(url: &Url, kind: &'static str, error: HttpError) -> RegistryError {
    let artifact = url.to_string();
    match error.problem {
        Problem::Status { status: 404 | 410, .. } => RegistryError::NotFound { artifact },
        Problem::TooLarge { limit } => {
            RegistryError::Invalid { artifact, kind, reason: format!("it has more than {limit} bytes") }
        }
        _ => RegistryError::Unavailable { artifact, source: error.into() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reference, Registry};
    use repo_http::Credentials;
    use repo_testkit::faults::scripted_host::{Host, Reply, answer};

    fn archive() -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        #[allow(clippy::disallowed_methods, reason = "a test's own file")]
        std::fs::write(dir.path().join("compose.yaml"), "services: {web: {image: hello}}\n").unwrap();
        crate::pack(dir.path(), "hello").unwrap()
    }

    fn host(bytes: Vec<u8>) -> Host {
        Host::start(move |asked| match asked.head.split(' ').nth(1).unwrap_or_default() {
            "/hello.tar.gz" => Reply::Keep(answer("200 OK", &["Content-Type: application/gzip"], &bytes)),
            "/moved.tar.gz" => Reply::Keep(answer("302 Found", &["Location: /hello.tar.gz"], b"")),
            "/portal.tar.gz" => Reply::Keep(answer("200 OK", &["Content-Type: text/html"], b"<html>log in</html>")),
            "/cut.tar.gz" => Reply::End(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\nhalf".to_vec()),
            "/private.tar.gz" if asked.head.contains("Basic bGluZTpzM2NyZXQ=") => {
                Reply::Keep(answer("200 OK", &[], &bytes))
            }
            "/private.tar.gz" => Reply::Keep(answer("401 Unauthorized", &[], b"")),
            _ => Reply::Keep(answer("404 Not Found", &[], b"")),
        })
    }

    fn registry(host: &Host) -> Registry {
        let extra_roots = vec![host.authority.certificate().as_bytes().to_vec()];
        Registry::new(Settings { extra_roots, ..Settings::default() })
    }

    fn reference(host: &Host, path: &str) -> Reference {
        Reference::parse(&host.url(path), "").unwrap()
    }

    #[test]
    fn an_archive_by_url_is_locked_by_its_digest_and_refused_with_other_bytes() {
        let bytes = archive();
        let host = host(bytes.clone());
        let registry = registry(&host);
        for path in ["/hello.tar.gz", "/moved.tar.gz"] {
            let lock = registry.resolve(&reference(&host, path)).unwrap();
            assert_eq!((lock.manifest, lock.content), (Digest::of(&bytes), Digest::of(&bytes)));
            assert_eq!(registry.pull(&reference(&host, path), Some(&lock)).unwrap(), bytes);
        }
        let other = Lock { manifest: Digest::of(b"other"), content: Digest::of(b"other") };
        let changed = registry.pull(&reference(&host, "/hello.tar.gz"), Some(&other));
        assert!(matches!(changed, Err(RegistryError::Changed { part: "archive", .. })), "{changed:?}");
    }

    #[test]
    fn whatever_else_answers_is_never_locked_and_has_its_name() {
        let host = host(archive());
        let registry = registry(&host);
        let resolve = |path: &str| registry.resolve(&reference(&host, path)).unwrap_err();
        assert!(matches!(resolve("/portal.tar.gz"), RegistryError::Invalid { .. }));
        assert!(matches!(resolve("/nothing.tar.gz"), RegistryError::NotFound { .. }));
        assert!(matches!(resolve("/cut.tar.gz"), RegistryError::Unavailable { .. }));
        assert!(matches!(resolve("/private.tar.gz"), RegistryError::Unavailable { .. }));
        let stranger = Registry::new(Settings::default()).resolve(&reference(&host, "/hello.tar.gz"));
        assert!(matches!(stranger, Err(RegistryError::Unavailable { .. })), "{stranger:?}");
        let extra_roots = vec![host.authority.certificate().as_bytes().to_vec()];
        let small = Registry::new(Settings { extra_roots, max_layer: 10, ..Settings::default() });
        let large = small.pull(&reference(&host, "/hello.tar.gz"), None);
        assert!(matches!(large, Err(RegistryError::Invalid { .. })), "{large:?}");
    }

    #[test]
    fn an_account_is_shown_to_its_host_only() {
        let bytes = archive();
        let host = host(bytes.clone());
        let account = |host: String| {
            let credential = Credential::Basic { user: "line".to_owned(), secret: "s3cret".to_owned() };
            [(host, Credentials::of(move || Ok(credential.clone())))].into()
        };
        let pull = |accounts| {
            let extra_roots = vec![host.authority.certificate().as_bytes().to_vec()];
            let registry = Registry::new(Settings { extra_roots, accounts, ..Settings::default() });
            registry.pull(&reference(&host, "/private.tar.gz"), None)
        };
        assert_eq!(pull(account(host.address().to_string())).unwrap(), bytes);
        let error = pull(account("elsewhere.example".to_owned())).unwrap_err();
        assert!(!format!("{error:?}").contains("s3cret"));
    }
}
