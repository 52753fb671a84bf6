//! `allowed_signers` of the home, by which stock Git names who signed.

use std::fs;
use std::io;

use repo_git::durable::FileError;

use crate::repos::{Home, HomeError};

/// Adds the lines that aren't there yet. The old ones stay: they verify what was signed before.
pub(super) fn allow(home: &Home, lines: impl IntoIterator<Item = String>) -> Result<(), HomeError> {
    let path = home.allowed_signers();
    let mut text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        text => text.map_err(FileError::read(&path))?,
    };
    let before = text.len();
    for line in lines {
        if !text.lines().any(|known| known == line) {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text = text + &line + "\n";
        }
    }
    if text.len() > before { home.write(&path, text.as_bytes(), 0o644) } else { Ok(()) }
}
