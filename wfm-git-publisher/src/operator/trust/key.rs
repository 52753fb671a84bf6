//! Keys as a person names them: by their text, by a file, or by their fingerprint.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use repo_git::PublicKey;
use repo_git::durable::FileError;
use repo_git::sign::openssh::{KeyFile, fingerprint};
use repo_model::KeyText;

use super::error::TrustError;
use crate::repos::key_text;

/// A key's file has about 400 bytes.
const MAX_FILE: u64 = 16 << 10;

/// The key of a line, or of a file with a public or a private key. Only `ssh-ed25519` counts in a roster.
pub(super) fn named(name: &str) -> Result<KeyText, TrustError> {
    if name.starts_with("SHA256:") {
        return Err(TrustError::Fingerprint(name.to_owned()));
    }
    let path = Path::new(name);
    let text = if path.is_file() { in_file(path)? } else { name.to_owned() };
    let read = text.parse::<PublicKey>();
    let key = read.map_err(|source| TrustError::NotAKey { name: name.chars().take(100).collect(), source })?;
    key_text(key).ok_or_else(|| TrustError::Fingerprint(key.fingerprint()))
}

/// The one of these keys that is named so.
pub(super) fn among<'a>(
    name: &str,
    keys: impl Iterator<Item = &'a KeyText>,
    role: &'static str,
    version: u64,
) -> Result<KeyText, TrustError> {
    let is_it: Box<dyn Fn(&&KeyText) -> bool> = if name.starts_with("SHA256:") {
        Box::new(|key| fingerprint(key) == name)
    } else {
        let named = named(name)?;
        Box::new(move |key| **key == named)
    };
    let missing = || TrustError::NotListed { role, key: name.to_owned(), version };
    keys.into_iter().find(is_it).cloned().ok_or_else(missing)
}

fn in_file(path: &Path) -> Result<String, TrustError> {
    let failed = FileError::read(path);
    let mut text = String::new();
    File::open(path).and_then(|file| file.take(MAX_FILE).read_to_string(&mut text)).map_err(failed)?;
    Ok(KeyFile::parse(&text).and_then(|file| file.public_line()).map_or(text, |key| key.to_string()))
}
