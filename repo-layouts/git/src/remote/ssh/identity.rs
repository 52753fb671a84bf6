//! The own keys: read for each session, and gone from memory after it was opened.

use std::path::Path;

use base64ct::{Base64, Encoding};
use zeroize::Zeroizing;

use super::host_keys::describe;
use super::{Identity, Problem, files};

/// The longest key file that is read; an RSA key of 16384 bits has 13 KB.
const LONGEST: u64 = 64 << 10;

/// A private key that can be used.
pub(super) struct Key {
    /// The file's text.
    pub(super) text: Zeroizing<String>,
    pub(super) passphrase: Option<Zeroizing<String>>,
    /// Its kind and fingerprint.
    pub(super) name: String,
}

impl Identity {
    /// Reads the key of a file. `None` for an agent.
    pub(super) fn read(&self) -> Result<Option<Key>, Problem> {
        let Self::KeyFile { path, passphrase } = self else { return Ok(None) };
        let fail = |why: String| Problem::KeyUnreadable { file: path.clone(), why };
        let text = text_of(path).map_err(&fail)?;
        let parts = parse(&text).ok_or_else(|| {
            fail(format!(
                "it holds no key in OpenSSH's format; `ssh-keygen -p -f '{}'` converts others",
                path.display()
            ))
        })?;
        let passphrase = match (parts.is_encrypted, passphrase) {
            (false, _) => None,
            (true, None) => return Err(fail("it needs a passphrase, and none is set".to_owned())),
            (true, Some(source)) => {
                let passphrase = source.read().map_err(|error| fail(format!("its passphrase: {error}")))?;
                Some(Zeroizing::new(passphrase))
            }
        };
        Ok(Some(Key { text, passphrase, name: describe(&parts.public) }))
    }
}

fn text_of(path: &Path) -> Result<Zeroizing<String>, String> {
    let bytes = files::read(path, 0o077, LONGEST)?.ok_or("there is no such file")?;
    std::str::from_utf8(&bytes).map(|text| Zeroizing::new(text.to_owned())).map_err(|_| "it isn't text".to_owned())
}

/// What stands in the open in a private key's file.
struct Parts {
    is_encrypted: bool,
    /// The public key in SSH's encoding.
    public: Vec<u8>,
}

/// Reads the beginning of OpenSSH's format (its *PROTOCOL.key*).
fn parse(text: &str) -> Option<Parts> {
    let body = text.trim().strip_prefix("-----BEGIN OPENSSH PRIVATE KEY-----")?;
    let body = body.strip_suffix("-----END OPENSSH PRIVATE KEY-----")?;
    let body: Zeroizing<String> = Zeroizing::new(body.split_ascii_whitespace().collect());
    let bytes = Zeroizing::new(Base64::decode_vec(&body).ok()?);
    let rest = bytes.strip_prefix(b"openssh-key-v1\0")?;
    let (cipher, rest) = string(rest)?;
    let (_kdf, rest) = string(rest)?;
    let (_options, rest) = string(rest)?;
    let rest = rest.strip_prefix(&1u32.to_be_bytes())?;
    let (public, _) = string(rest)?;
    Some(Parts { is_encrypted: cipher != b"none", public: public.to_owned() })
}

/// A string of SSH's encoding, and what follows it.
fn string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_public_half_stands_in_the_open() {
        let dir = tempfile::tempdir().expect("a directory");
        for (kind, passphrase) in [("ed25519", ""), ("ecdsa", ""), ("rsa", "secret"), ("ed25519", "secret")] {
            let path = dir.path().join(format!("{kind}{passphrase}"));
            let mut command = Command::new("ssh-keygen");
            command.args(["-q", "-t", kind, "-N", passphrase, "-C", "x", "-f"]).arg(&path);
            assert!(command.status().expect("ssh-keygen is installed").success());
            let parts = parse(&std::fs::read_to_string(&path).expect("written")).expect("a key");
            assert_eq!(parts.is_encrypted, !passphrase.is_empty());
            let listed = Command::new("ssh-keygen").arg("-lf").arg(&path).output().expect("ssh-keygen is installed");
            let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
            let name = describe(&parts.public);
            assert!(listed.contains(name.split(' ').nth(1).expect("two words")), "{listed} {name}");
        }
        assert!(parse("").is_none() && parse("-----BEGIN OPENSSH PRIVATE KEY-----").is_none());
    }
}
