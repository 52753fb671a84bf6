//! What a private key in OpenSSH's format says of itself in clear: its public half, whatever the algorithm.
//!
//! OpenSSH `PROTOCOL.key`: base64 of a magic, three strings on how it is encrypted, the number of keys, and the public key.

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD};
use repo_model::{Digest, KeyText};

const BEGIN: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";
const END: &str = "-----END OPENSSH PRIVATE KEY-----";
const MAGIC: &[u8] = b"openssh-key-v1\0";

/// The file holds no key in OpenSSH's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is no private key in OpenSSH's format: `ssh-keygen -p -f FILE` writes one anew in it")]
pub struct Unreadable;

/// The public half of a private key.
pub(super) fn public_half(bytes: &[u8]) -> Result<KeyText, Unreadable> {
    let text = std::str::from_utf8(bytes).map_err(|_| Unreadable)?;
    let inside = text.trim().strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(END)).ok_or(Unreadable)?;
    let base64: String = inside.split_ascii_whitespace().collect();
    let bytes = BASE64_STANDARD.decode(base64).map_err(|_| Unreadable)?;
    let rest = bytes.strip_prefix(MAGIC).ok_or(Unreadable)?;
    // Cipher, derivation of its key, and that one's options.
    let rest = (0..3).try_fold(rest, |rest, _| Some(string(rest)?.1)).ok_or(Unreadable)?;
    let (public, _) = rest.strip_prefix(&1u32.to_be_bytes()).and_then(string).ok_or(Unreadable)?;
    let (algorithm, _) = string(public).ok_or(Unreadable)?;
    let algorithm = std::str::from_utf8(algorithm).map_err(|_| Unreadable)?;
    format!("{algorithm} {}", BASE64_STANDARD.encode(public)).parse().map_err(|_| Unreadable)
}

/// As `ssh-keygen -l` shows a key: `SHA256:…`.
pub fn fingerprint(key: &KeyText) -> String {
    let blob = key.as_str().split_once(' ').and_then(|(_, base64)| BASE64_STANDARD.decode(base64).ok());
    let digest = Digest::of(&blob.unwrap_or_default());
    format!("SHA256:{}", BASE64_STANDARD_NO_PAD.encode(digest.as_bytes()))
}

/// A string behind its length, and what follows it.
fn string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_be_bytes(*length).try_into().ok()?)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A key as `ssh-keygen` makes it: its private and public text, and what `-l` says of it.
    fn made(arguments: &[&str], passphrase: &str) -> (Vec<u8>, String, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key").display().to_string();
        let keygen = |arguments: &[&str]| {
            let done = Command::new("ssh-keygen").args(arguments).output().expect("ssh-keygen, see .ci/setup");
            assert!(done.status.success(), "{done:?}");
            String::from_utf8(done.stdout).unwrap()
        };
        keygen(&[&["-q", "-N", passphrase, "-C", "a comment", "-f", &path], arguments].concat());
        let public = std::fs::read_to_string(format!("{path}.pub")).unwrap();
        (std::fs::read(&path).unwrap(), public, keygen(&["-l", "-f", &path]))
    }

    #[test]
    fn the_public_half_is_in_the_private_one_whatever_its_algorithm_and_passphrase() {
        let kinds: [&[&str]; 3] = [&["-t", "ed25519"], &["-t", "ecdsa", "-b", "384"], &["-t", "rsa", "-b", "2048"]];
        for (kind, passphrase) in kinds.into_iter().flat_map(|kind| [(kind, ""), (kind, "long enough")]) {
            let (private, public, listed) = made(kind, passphrase);
            let key = public_half(&private).unwrap();
            assert_eq!(key, public.parse::<KeyText>().unwrap(), "{kind:?}");
            assert_eq!(listed.split(' ').nth(1), Some(fingerprint(&key).as_str()));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let (private, public, _) = made(&["-t", "ed25519"], "");
        let (pem, ..) = made(&["-t", "rsa", "-b", "2048", "-m", "PEM"], "");
        let text = String::from_utf8(private.clone()).unwrap();
        let cut = text.replace(text.lines().nth(2).unwrap(), "");
        for bad in [b"".as_slice(), public.as_bytes(), &pem, &private[1..], cut.as_bytes(), b"\xff"] {
            assert_eq!(public_half(bad), Err(Unreadable), "{:?}", String::from_utf8_lossy(bad));
        }
    }
}
