//! What lies in `crds/` of a chart and of its subcharts. Helm makes it before anything else, whatever it is, and no
//! rendering shows it; `helm show crds` of Helm 3 runs the files into each other.

use std::io::Read;

use super::{Chart, ChartError};
use crate::archive::{checked_path, inflate};
use crate::{ArchiveError, Limits};

/// How deep archives of charts may lie in each other.
const DEPTH: usize = 4;
/// The most archives of subcharts.
const ARCHIVES: usize = 100;
/// The most bytes of all texts.
const BYTES: usize = 32 << 20;

impl Chart {
    /// The texts, file by file, of the exact bytes of a `.tgz`: also of subcharts that values switch off.
    pub fn crds(gzip: &[u8]) -> Result<Vec<String>, ChartError> {
        let mut found = Found::default();
        found.read(gzip, 0)?;
        Ok(found.texts)
    }
}

#[derive(Default)]
struct Found {
    texts: Vec<String>,
    bytes: usize,
    archives: usize,
}

/// What a file is to helm.
enum What {
    Crd,
    /// The archive of a subchart.
    Archive,
    Other,
}

impl Found {
    fn read(&mut self, gzip: &[u8], depth: usize) -> Result<(), ArchiveError> {
        self.archives += 1;
        if self.archives > ARCHIVES || depth > DEPTH {
            return Err(ArchiveError::TooBig { what: "archives of subcharts", limit: ARCHIVES });
        }
        let limits = Limits::default();
        let tar = inflate(gzip, &limits)?;
        for (count, entry) in tar::Archive::new(&*tar).entries()?.enumerate() {
            if count == limits.entries {
                return Err(ArchiveError::TooBig { what: "entries", limit: limits.entries });
            }
            let mut entry = entry?;
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            if name.contains('\\') {
                return Err(ArchiveError::Entry { path: name, rule: "has a backslash, which helm takes for a slash" });
            }
            let Some(path) = checked_path(&name)? else { continue };
            let what = what(&path);
            if matches!(what, What::Other) {
                continue;
            }
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            match what {
                What::Archive => self.read(&bytes, depth + 1)?,
                _ => self.add(name, bytes)?,
            }
        }
        Ok(())
    }

    fn add(&mut self, path: String, bytes: Vec<u8>) -> Result<(), ArchiveError> {
        self.bytes += bytes.len();
        if self.bytes > BYTES {
            return Err(ArchiveError::TooBig { what: "bytes in `crds`", limit: BYTES });
        }
        let text = String::from_utf8(bytes).map_err(|_| ArchiveError::Entry { path, rule: "is not UTF-8" })?;
        self.texts.push(text);
        Ok(())
    }
}

/// By its path, whose first part is the chart's directory, whatever that is called, also `.`, which isn't in the path.
fn what(path: &str) -> What {
    let parts: Vec<&str> = path.split('/').collect();
    match below(path, parts.get(1..).unwrap_or_default()) {
        What::Other => below(path, &parts),
        what => what,
    }
}

fn below(path: &str, mut rest: &[&str]) -> What {
    let ending = path.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase()).unwrap_or_default();
    loop {
        match rest {
            ["charts", _] if ending == "tgz" => return What::Archive,
            ["charts", _, below @ ..] if !below.is_empty() => rest = below,
            ["crds", _, ..] if ["yaml", "yml", "json"].contains(&ending.as_str()) => return What::Crd,
            _ => return What::Other,
        }
    }
}
