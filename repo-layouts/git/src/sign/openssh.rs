//! Keys as OpenSSH writes them, whatever their algorithm: what people are shown of one, and what a private key's file says of
//! itself in clear.

use base64ct::{Base64, Base64Unpadded, Encoding};
use repo_model::{Digest, KeyText};
use zeroize::Zeroizing;

const BEGIN: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";
const END: &str = "-----END OPENSSH PRIVATE KEY-----";
const MAGIC: &[u8] = b"openssh-key-v1\0";

/// As `ssh-keygen -l` shows a key in SSH's encoding: `SHA256:` and 43 letters.
pub fn fingerprint_of(key: &[u8]) -> String {
    format!("SHA256:{}", Base64Unpadded::encode_string(Digest::of(key).as_bytes()))
}

/// The same of a key's line. One that isn't in base64 is shown as it stands, at most 100 characters of it.
pub fn fingerprint(key: &KeyText) -> String {
    let base64 = key.as_str().split_once(' ').and_then(|(_, base64)| Base64::decode_vec(base64).ok());
    base64.map_or_else(|| key.as_str().chars().take(100).collect(), |key| fingerprint_of(&key))
}

/// What stands in clear in the file of a private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFile {
    /// Whether it takes a passphrase to use it.
    pub is_encrypted: bool,
    /// Its public half in SSH's encoding.
    pub public: Vec<u8>,
}

impl KeyFile {
    /// Reads the beginning of the format (OpenSSH's `PROTOCOL.key`): a magic, three strings on how the key is encrypted, the
    /// number of keys, and the public key. `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let inside = text.trim().strip_prefix(BEGIN)?.strip_suffix(END)?;
        let inside: Zeroizing<String> = Zeroizing::new(inside.split_ascii_whitespace().collect());
        let bytes = Zeroizing::new(Base64::decode_vec(&inside).ok()?);
        let (cipher, rest) = string(bytes.strip_prefix(MAGIC)?)?;
        let (_derivation, rest) = string(rest)?;
        let (_options, rest) = string(rest)?;
        let (public, _) = string(rest.strip_prefix(&1u32.to_be_bytes())?)?;
        Some(Self { is_encrypted: cipher != b"none", public: public.to_owned() })
    }

    /// Its public half as a line.
    pub fn public_line(&self) -> Option<KeyText> {
        let algorithm = std::str::from_utf8(string(&self.public)?.0).ok()?;
        format!("{algorithm} {}", Base64::encode_string(&self.public)).parse().ok()
    }
}

/// A string of SSH's encoding, and what follows it.
fn string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_be_bytes(*length).try_into().ok()?)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A key as `ssh-keygen` makes it: its private and public text, and what `-l` says of it.
    fn made(arguments: &[&str], passphrase: &str) -> (String, String, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key").display().to_string();
        let keygen = |arguments: &[&str]| {
            let done = Command::new("ssh-keygen").args(arguments).output().expect("ssh-keygen, see .ci/setup");
            assert!(done.status.success(), "{done:?}");
            String::from_utf8(done.stdout).unwrap()
        };
        keygen(&[&["-q", "-N", passphrase, "-C", "a comment", "-f", &path], arguments].concat());
        let text = |path: &str| std::fs::read_to_string(path).unwrap();
        (text(&path), text(&format!("{path}.pub")), keygen(&["-l", "-f", &path]))
    }

    #[test]
    fn the_public_half_is_in_the_private_one_whatever_its_algorithm_and_passphrase() {
        let kinds: [&[&str]; 3] = [&["-t", "ed25519"], &["-t", "ecdsa", "-b", "384"], &["-t", "rsa", "-b", "2048"]];
        for (kind, passphrase) in kinds.into_iter().flat_map(|kind| [(kind, ""), (kind, "long enough")]) {
            let (private, public, listed) = made(kind, passphrase);
            let file = KeyFile::parse(&private).unwrap();
            assert_eq!(file.is_encrypted, !passphrase.is_empty());
            let key = file.public_line().unwrap();
            assert_eq!(key, public.parse::<KeyText>().unwrap(), "{kind:?}");
            assert_eq!(listed.split(' ').nth(1), Some(fingerprint(&key).as_str()));
        }
    }

    #[test]
    fn anything_else_is_no_key_file() {
        let (private, public, _) = made(&["-t", "ed25519"], "");
        let (pem, ..) = made(&["-t", "rsa", "-b", "2048", "-m", "PEM"], "");
        let cut = private.replace(private.lines().nth(2).unwrap(), "");
        for bad in ["", BEGIN, &public, &pem, &private[1..], &cut] {
            assert_eq!(KeyFile::parse(bad).and_then(|file| file.public_line()), None, "{bad}");
        }
        let odd: KeyText = "ssh-ed25519 AAAA=".parse().unwrap();
        assert_eq!(fingerprint(&odd), "ssh-ed25519 AAAA=");
    }
}
