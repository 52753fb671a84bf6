//! The own keys: read for each session, and gone from memory after it was opened.

use std::path::Path;

use zeroize::Zeroizing;

use super::host_keys::describe;
use super::{Identity, Problem, files};
use crate::sign::openssh::KeyFile;

/// The longest key file that is read; an RSA key of 16384 bits has 13 KB.
const LONGEST: u64 = 64 << 10;

/// A private key that can be used.
pub(super) struct Key {
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
        let file = KeyFile::parse(&text).ok_or_else(|| {
            fail(format!(
                "it holds no key in OpenSSH's format; `ssh-keygen -p -f '{}'` converts others",
                path.display()
            ))
        })?;
        let passphrase = match (file.is_encrypted, passphrase) {
            (false, _) => None,
            (true, None) => return Err(fail("it needs a passphrase, and none is set".to_owned())),
            (true, Some(source)) => {
                let passphrase = source.read().map_err(|error| fail(format!("its passphrase: {error}")))?;
                Some(Zeroizing::new(passphrase))
            }
        };
        Ok(Some(Key { text, passphrase, name: describe(&file.public) }))
    }
}

fn text_of(path: &Path) -> Result<Zeroizing<String>, String> {
    let bytes = files::read(path, 0o077, LONGEST)?.ok_or("there is no such file")?;
    std::str::from_utf8(&bytes).map(|text| Zeroizing::new(text.to_owned())).map_err(|_| "it isn't text".to_owned())
}
