//! An SSH key of an account: which ones there may be, and how people are shown one.

use base64ct::{Base64, Encoding};
use jiff::Timestamp;
use repo_git::sign::openssh;
use repo_model::KeyText;
use serde::{Deserialize, Serialize};

use super::moment::whole;

/// The kinds of keys that may be used. A certificate is none: nobody here vouches for keys but the account's own file.
const ALGORITHMS: [&str; 7] = [
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
];

/// The longest key as text: more than RSA with 8192 bits needs.
const MAX_CHARS: usize = 2000;

/// A key that lets an account in over SSH.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SshKey {
    /// `<algorithm> <base64>`, exactly as sshd shows the key that a client offers.
    pub key: KeyText,
    /// The device's status key that it was enrolled with: when the fleet drops that one, this one ends, too. Absent for
    /// people's keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enrolled_with: Option<KeyText>,
    /// When it was added, in whole seconds.
    pub created: Timestamp,
    /// When it ended although the fleet lists it still: it isn't let in again until somebody enrols it anew. Absent while it
    /// counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
}

/// What becomes of an SSH key of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It lets in.
    Counts,
    /// It lets nobody in, and stays in the account's file as one that ended.
    Ends,
    /// It leaves the account's file.
    Goes,
}

/// The key is none that an account can come with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no SSH key that can be used here: expected the line of a `.pub` file with Ed25519, ECDSA or RSA, and no certificate"
)]
pub struct InvalidSshKey(String);

impl SshKey {
    /// A key that is added now.
    pub fn new(key: KeyText, enrolled_with: Option<KeyText>, now: Timestamp) -> Result<Self, InvalidSshKey> {
        Self::check(&key)?;
        Ok(Self { key, enrolled_with, created: whole(now), ended: None })
    }

    /// What a fate makes of it.
    pub(super) fn with(self, fate: Fate, now: Timestamp) -> Option<Self> {
        match fate {
            Fate::Counts => Some(Self { ended: None, ..self }),
            Fate::Ends => Some(Self { ended: self.ended.or(Some(whole(now))), ..self }),
            Fate::Goes => None,
        }
    }

    /// Refuses what sshd would never show in these very letters.
    pub(super) fn check(key: &KeyText) -> Result<(), InvalidSshKey> {
        let good = blob(key).is_some_and(|(algorithm, blob)| {
            let length = u32::try_from(algorithm.len()).unwrap_or(u32::MAX).to_be_bytes();
            let head = [&length, algorithm.as_bytes()].concat();
            ALGORITHMS.contains(&algorithm) && blob.len() > head.len() && blob.starts_with(&head)
        });
        if good { Ok(()) } else { Err(InvalidSshKey(key.as_str().chars().take(100).collect())) }
    }

    /// As `ssh-keygen -l` shows it: `SHA256:…`.
    pub fn fingerprint(&self) -> String {
        openssh::fingerprint(&self.key)
    }
}

/// The algorithm, and the key's bytes.
fn blob(key: &KeyText) -> Option<(&str, Vec<u8>)> {
    let (algorithm, base64) = key.as_str().split_once(' ').filter(|_| key.as_str().len() <= MAX_CHARS)?;
    Some((algorithm, Base64::decode_vec(base64).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFBoJ26H+iu9VvXP9i5op7UchDMbBcu959aAaBDBMHlE";

    fn key(text: &str) -> KeyText {
        text.parse().unwrap()
    }

    #[test]
    fn a_key_is_shown_as_ssh_keygen_does() {
        let one = SshKey::new(key(KEY), None, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(one.fingerprint(), "SHA256:0oeBWoDVX578d9nAFO1fXTKqa+7vwasgJL84Tp3GhzM");
    }

    #[test]
    fn what_sshd_would_not_show_in_these_letters_is_refused() {
        for bad in [
            KEY.replace("ssh-ed25519", "ssh-rsa"),
            KEY.replace("ssh-ed25519", "ssh-ed25519-cert-v01@openssh.com"),
            KEY.replace("ssh-ed25519", "ssh-dss"),
            format!("{KEY}="),
            KEY[..KEY.len() - 1].to_owned(),
            "ssh-ed25519 AAAA".to_owned(),
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5".to_owned(),
            format!("ssh-rsa AAAAB3NzaC1yc2EA{}", "A".repeat(3000)),
        ] {
            assert!(SshKey::new(key(&bad), None, Timestamp::UNIX_EPOCH).is_err(), "{bad}");
        }
    }
}
