//! Credentials, and where they come from: a file that only its owner can read, the environment, or systemd.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustix::fs::OFlags;

/// The longest secret that is read, in bytes.
const LONGEST: u64 = 64 << 10;

/// What is sent in `Authorization`. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    None,
    /// A user and a password.
    Basic {
        user: String,
        /// The password, or a token in its place.
        secret: String,
    },
    Bearer(String),
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(***)")
    }
}

impl Credential {
    /// The value of `Authorization`, if there is to be one.
    pub(crate) fn header(&self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Basic { user, secret } => {
                Some(format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{secret}"))))
            }
            Self::Bearer(token) => Some(format!("Bearer {token}")),
        }
    }
}

/// Who asks a host: found out anew for each request, so that a changed secret counts at once.
#[derive(Clone)]
pub struct Credentials(Arc<dyn Fn() -> Result<Credential, CredentialError> + Send + Sync>);

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(***)")
    }
}

impl Credentials {
    /// Asks as nobody in particular: no `Authorization`.
    pub fn none() -> Self {
        Self::of(|| Ok(Credential::None))
    }

    /// Asks as whoever `find` says, for each request anew.
    pub fn of(find: impl Fn() -> Result<Credential, CredentialError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(find))
    }

    /// This user with the secret that `source` has.
    pub fn basic(user: String, source: Source) -> Self {
        Self::of(move || Ok(Credential::Basic { user: user.clone(), secret: source.read()? }))
    }

    /// The token that `source` has.
    pub fn bearer(source: Source) -> Self {
        Self::of(move || Ok(Credential::Bearer(source.read()?)))
    }

    /// Reads who it is at this moment.
    pub fn get(&self) -> Result<Credential, CredentialError> {
        self.0()
    }
}

/// Where a secret comes from. It is read again whenever it is needed, so a change counts at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file that nobody but its owner may read or write.
    File(PathBuf),
    Environment(String),
    /// A file of this name in `$CREDENTIALS_DIRECTORY` (systemd, *LoadCredential*).
    Systemd(String),
}

/// A secret can't be had. Its text is never repeated.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The file can't be read.
    #[error("can't read the credential `{}`", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Others can read or change the file.
    #[error("`{}` has mode {mode:03o}: a credential's file must be its owner's alone (chmod 600)", path.display())]
    Open { path: PathBuf, mode: u32 },
    #[error("the environment variable `{0}` isn't set, or isn't text")]
    Unset(String),
    /// The program wasn't started with systemd's credentials.
    #[error("there is no credential `{0}`: `$CREDENTIALS_DIRECTORY` isn't set")]
    NoDirectory(String),
    /// It can't be sent in a header.
    #[error("the credential in {0} is empty, too long, or not one line of printable text")]
    Unusable(String),
}

impl Source {
    /// The secret, without the newline at its end.
    pub fn read(&self) -> Result<String, CredentialError> {
        let (secret, place) = match self {
            Self::File(path) => (read(path, true)?, format!("`{}`", path.display())),
            Self::Environment(name) => {
                let value = std::env::var(name).map_err(|_| CredentialError::Unset(name.clone()))?;
                (value, format!("`${name}`"))
            }
            Self::Systemd(name) => {
                let directory = std::env::var_os("CREDENTIALS_DIRECTORY");
                let directory = directory.ok_or_else(|| CredentialError::NoDirectory(name.clone()))?;
                let path = PathBuf::from(directory).join(name);
                // systemd keeps others out by the directory, and may give a group the right to read.
                (read(&path, false)?, format!("`{}`", path.display()))
            }
        };
        let secret = secret.strip_suffix('\n').unwrap_or(&secret).to_owned();
        let is_usable = !secret.is_empty() && secret.bytes().all(|c| c == b' ' || c.is_ascii_graphic());
        if is_usable { Ok(secret) } else { Err(CredentialError::Unusable(place)) }
    }
}

fn read(path: &Path, private: bool) -> Result<String, CredentialError> {
    let mut text = String::new();
    let read = open(path, private)?.take(LONGEST).read_to_string(&mut text);
    read.map_err(|source| CredentialError::Read { path: path.to_owned(), source })?;
    Ok(text)
}

/// The bytes of a file that nobody but its owner may read or write.
pub fn read_private(path: &Path) -> Result<Vec<u8>, CredentialError> {
    let mut bytes = Vec::new();
    let read = open(path, true)?.read_to_end(&mut bytes);
    read.map_err(|source| CredentialError::Read { path: path.to_owned(), source })?;
    Ok(bytes)
}

/// Opens a file, and nothing else: whoever can put a pipe in its place doesn't have its reader wait for ever.
fn open(path: &Path, private: bool) -> Result<File, CredentialError> {
    let fail = |source| CredentialError::Read { path: path.to_owned(), source };
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(fail)?;
    let found = file.metadata().map_err(fail)?;
    if !found.is_file() {
        return Err(fail(io::Error::other("it is no file")));
    }
    let mode = found.permissions().mode() & 0o777;
    if private && mode & 0o077 != 0 {
        return Err(CredentialError::Open { path: path.to_owned(), mode });
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[allow(clippy::disallowed_methods, reason = "a test's own file")]
    fn file(mode: u32, text: &str) -> (tempfile::TempDir, Source) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        (dir, Source::File(path))
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        for mode in [0o644, 0o640, 0o660, 0o602] {
            let (_dir, source) = file(mode, "s3cret\n");
            let error = source.read().unwrap_err();
            assert!(matches!(error, CredentialError::Open { mode: found, .. } if found == mode), "{error}");
            assert!(!error.to_string().contains("s3cret"));
        }
    }

    #[test]
    fn a_pipe_in_place_of_the_file_holds_nobody_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).unwrap();
        for error in [read_private(&path).unwrap_err(), Source::File(path).read().unwrap_err()] {
            assert!(matches!(error, CredentialError::Read { .. }), "{error}");
        }
    }

    #[test]
    fn a_secret_is_one_line() {
        assert_eq!(file(0o400, "s3cret\n").1.read().unwrap(), "s3cret");
        for text in ["", "\n", "a\nb", "a\r\n", "ü"] {
            assert!(matches!(file(0o600, text).1.read(), Err(CredentialError::Unusable(_))), "{text:?}");
        }
    }

    #[test]
    fn what_is_not_set_is_named() {
        let unset = Source::Environment("REPO_HTTP_TEST_UNSET".to_owned()).read();
        assert!(unset.unwrap_err().to_string().contains("REPO_HTTP_TEST_UNSET"));
    }

    #[test]
    fn nothing_prints_a_secret() {
        let basic = Credential::Basic { user: "u".to_owned(), secret: "s3cret".to_owned() };
        assert_eq!(format!("{basic:?}"), "Credential(***)");
        assert_eq!(basic.header().unwrap(), "Basic dTpzM2NyZXQ=");
    }
}
