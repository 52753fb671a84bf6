//! What a roster tells devices of their host.

use repo_http::{Agent, Settings, Url};
use repo_model::roster::{DEVICE, RosterHost};
use repo_model::{KeyText, SshUrl, error_chain};

use super::error::TrustError;

/// What is to be another, key by key.
#[derive(Debug, Clone, Default)]
pub struct HostChanges {
    /// The URL of a device's repository, with `{device}` in the place of its id.
    pub url: Option<String>,
    /// PEM texts in place of those of before; none: as before.
    pub authorities: Vec<String>,
    /// The host's public keys over SSH in place of those of before; none: as before.
    pub keys: Vec<KeyText>,
    /// Whether devices shall go by their join files again.
    pub nothing: bool,
}

impl HostChanges {
    /// What the next version says, after one that said this.
    pub(super) fn of(&self, before: Option<&RosterHost>) -> Result<Option<RosterHost>, TrustError> {
        let Self { url, authorities, keys, nothing } = self;
        url.as_deref().map_or(Ok(()), check_url)?;
        check_authorities(authorities)?;
        let mut host = before.filter(|_| !nothing).cloned().unwrap_or_default();
        if url.is_some() {
            host.url.clone_from(url);
        }
        if !authorities.is_empty() {
            host.ca = Some(authorities.iter().map(|pem| format!("{}\n", pem.trim_end())).collect());
        }
        if !keys.is_empty() {
            host.host_keys.clone_from(keys);
        }
        Ok(Some(host).filter(|host| *host != RosterHost::default()))
    }
}

/// A device that is told a host which it can't use goes on by its join file, but nobody wants to find that out there.
fn check_url(url: &str) -> Result<(), TrustError> {
    let failed = |problem: String| TrustError::Host { what: "address", problem };
    if url.matches(DEVICE).count() != 1 {
        return Err(failed(format!("`{url}` must hold `{DEVICE}` once, in the place of a device's id")));
    }
    let one = url.replace(DEVICE, "press-01");
    let is_ssh = one.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("ssh://"));
    let read = if is_ssh {
        SshUrl::parse(&one).map(drop).map_err(|error| error_chain(&error))
    } else {
        Url::parse(&one).map(drop).map_err(|error| error_chain(&error))
    };
    read.map_err(|problem| failed(format!("`{url}`: {problem}")))
}

fn check_authorities(authorities: &[String]) -> Result<(), TrustError> {
    if authorities.is_empty() {
        return Ok(());
    }
    let settings = Settings { authorities: authorities.to_vec(), ..Settings::default() };
    let made = Agent::new(&settings).map(drop);
    made.map_err(|error| TrustError::Host { what: "authority", problem: error_chain(&error) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_named_changes_and_nothing_is_told_that_no_device_could_use() {
        let url = |text: &str| HostChanges { url: Some(text.to_owned()), ..HostChanges::default() };
        let before = RosterHost {
            url: Some("https://old/{device}.git".to_owned()),
            ca: Some("as it was".to_owned()),
            host_keys: vec!["ssh-ed25519 AAAA".parse().unwrap()],
        };
        let after = url("https://new:8443/devices/{device}.git").of(Some(&before)).unwrap().unwrap();
        let expected = RosterHost { url: Some("https://new:8443/devices/{device}.git".to_owned()), ..before.clone() };
        assert_eq!(after, expected);
        assert_eq!(HostChanges::default().of(Some(&before)).unwrap().as_ref(), Some(&before));
        assert_eq!(HostChanges::default().of(None).unwrap(), None);
        let nothing = HostChanges { nothing: true, ..HostChanges::default() };
        assert_eq!(nothing.of(Some(&before)).unwrap(), None);
        url("ssh://wfm@new:2222/devices/{device}.git").of(None).unwrap();
        for bad in [
            "https://new/devices.git",
            "http://new/{device}.git",
            "ssh://new/{device}.git",
            "{device}",
            "/{device}/{device}",
        ] {
            assert!(matches!(url(bad).of(None), Err(TrustError::Host { what: "address", .. })), "{bad}");
        }
        for bad in ["", "no PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            let changes = HostChanges { authorities: vec![bad.to_owned()], ..HostChanges::default() };
            assert!(matches!(changes.of(None), Err(TrustError::Host { what: "authority", .. })), "{bad}");
        }
    }
}
