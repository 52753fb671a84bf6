//! Which key a host may have, and whether it has it.

use std::path::{Path, PathBuf};

use base64ct::{Base64Unpadded, Encoding};

use super::known_hosts::{self, Marker, algorithm_of, decode};
use super::{HostKeys, Problem, SettingsError, files};
use crate::sign::openssh::fingerprint_of;

/// The most bytes of a file with known hosts.
const LONGEST_FILE: u64 = 4 << 20;

/// Which keys of a host the settings allow: as keys, as fingerprints, and in files of known hosts.
#[derive(Debug)]
pub(super) struct Expected {
    keys: Vec<Vec<u8>>,
    fingerprints: Vec<String>,
    files: Vec<PathBuf>,
}

/// What is known of one host now.
#[derive(Debug, Default)]
pub(super) struct Known {
    keys: Vec<Vec<u8>>,
    fingerprints: Vec<String>,
    revoked: Vec<(Vec<u8>, PathBuf)>,
}

impl Expected {
    pub(super) fn new(settings: &HostKeys) -> Result<Self, SettingsError> {
        let key = |line: &String| {
            let mut words = line.split_ascii_whitespace();
            let key = words.next().zip(words.next()).and_then(|(algorithm, blob)| decode(algorithm, blob));
            key.ok_or_else(|| SettingsError::HostKey { line: line.chars().take(100).collect() })
        };
        let fingerprint = |text: &String| {
            let is_one = text.strip_prefix("SHA256:").map(|hash| hash.trim_end_matches('='));
            let is_one = is_one.filter(|hash| Base64Unpadded::decode_vec(hash).is_ok_and(|bytes| bytes.len() == 32));
            is_one.map(|hash| format!("SHA256:{hash}")).ok_or_else(|| SettingsError::Fingerprint { text: text.clone() })
        };
        let expected = Self {
            keys: settings.keys.iter().map(key).collect::<Result<_, _>>()?,
            fingerprints: settings.fingerprints.iter().map(fingerprint).collect::<Result<_, _>>()?,
            files: settings.known_hosts.clone(),
        };
        let is_empty = expected.keys.is_empty() && expected.fingerprints.is_empty() && expected.files.is_empty();
        if is_empty { Err(SettingsError::NoHostKey) } else { Ok(expected) }
    }

    /// What is known of this host (`name` or `[name]:port`); the files are read now.
    pub(super) fn of(&self, host: &str) -> Result<Known, Problem> {
        let mut known = Known { keys: self.keys.clone(), fingerprints: self.fingerprints.clone(), revoked: Vec::new() };
        for file in &self.files {
            let bytes = files::read(file, 0o022, LONGEST_FILE);
            let bytes = bytes.map_err(|why| Problem::KnownHosts { file: file.clone(), why })?.unwrap_or_default();
            known.add(&String::from_utf8_lossy(&bytes), host, file);
        }
        Ok(known)
    }
}

impl Known {
    /// What a file with known hosts says of this one.
    fn add(&mut self, text: &str, host: &str, file: &Path) {
        for line in known_hosts::lines(text).filter(|line| line.is_about(host)) {
            match line.marker {
                Marker::Host => self.keys.push(line.key),
                Marker::Revoked => self.revoked.push((line.key, file.to_owned())),
                Marker::Authority => {}
            }
        }
    }

    /// The algorithms of the known keys, in order; empty where only fingerprints are known.
    pub(super) fn algorithms(&self) -> Vec<&str> {
        let mut found: Vec<&str> = Vec::new();
        for algorithm in self.keys.iter().filter_map(|key| algorithm_of(key)) {
            if !found.contains(&algorithm) {
                found.push(algorithm);
            }
        }
        found
    }

    /// Whether the key could be that of another algorithm, which a fingerprint doesn't tell.
    pub(super) fn has_fingerprints(&self) -> bool {
        !self.fingerprints.is_empty()
    }

    /// Whether the host may have this key.
    pub(super) fn judge(&self, key: &[u8]) -> Result<(), Problem> {
        let found = describe(key);
        if let Some((_, file)) = self.revoked.iter().find(|(revoked, _)| revoked == key) {
            return Err(Problem::HostKeyRevoked { found, file: file.clone() });
        }
        if self.keys.iter().any(|known| known == key) || self.fingerprints.contains(&fingerprint_of(key)) {
            return Ok(());
        }
        let known: Vec<_> =
            self.keys.iter().map(|key| describe(key)).chain(self.fingerprints.iter().cloned()).collect();
        if known.is_empty() {
            return Err(Problem::HostKeyUnknown { found });
        }
        Err(Problem::HostKeyChanged { found, known: known.join(", ") })
    }
}

/// A public key for messages: its algorithm and its fingerprint.
pub(super) fn describe(key: &[u8]) -> String {
    format!("{} {}", algorithm_of(key).unwrap_or("of an unknown kind"), fingerprint_of(key))
}

/// A file with known hosts: a key is believed exactly if a line about this host has it and none revokes it.
#[cfg(feature = "fuzz")]
pub(in crate::remote) fn fuzz(text: &str, host: &str) {
    let mut known = Known::default();
    known.add(text, host, Path::new("known_hosts"));
    for line in known_hosts::lines(text) {
        let has =
            |marker| known_hosts::lines(text).any(|l| l.marker == marker && l.key == line.key && l.is_about(host));
        assert_eq!(known.judge(&line.key).is_ok(), has(Marker::Host) && !has(Marker::Revoked));
    }
}
