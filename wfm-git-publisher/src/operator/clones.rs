//! A publisher's home made of clones of the devices' repositories, where the machine is lost and no backup may be used: what
//! `audit` accepts, and nothing else. It has neither a key nor a ledger as yet.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use repo_git::durable::{self, FileError};
use repo_model::DeviceId;

use crate::audit::{Checkpoint, Finding, Level, Options, PlaceError, Start, audit, places};
use crate::config;
use crate::repos::{DeviceRepoError, Home, HomeError, copy_repository};

/// The most findings that are told one by one.
const MAX_TOLD: usize = 20;

/// No home is made.
#[derive(Debug, thiserror::Error)]
pub enum ClonesError {
    #[error(transparent)]
    Places(#[from] PlaceError),
    #[error("`{}` exists, and nothing is restored over it", path.display())]
    Exists { path: PathBuf },
    /// What nobody can prove isn't gone on from.
    #[error("the audit doesn't accept these clones{}", told(findings))]
    Refused { findings: Vec<Finding> },
    /// Nobody can say whose it is.
    #[error("`{repository}` is of no device, as far as it can be believed")]
    Nobodys { repository: String },
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot make the publisher's home")]
    Home(#[from] HomeError),
    #[error("cannot copy the repository of device {device}")]
    Copy {
        device: DeviceId,
        #[source]
        source: Box<DeviceRepoError>,
    },
}

impl ClonesError {
    /// What to do about it.
    pub(crate) fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Refused { .. } => {
                "clone them anew, fetch archived epochs into them, or use an older clone; without the repository of one device that device goes on from what \
                 it says itself, once a publish has made it a new one"
            }
            Self::Nobodys { .. } => "move it out of the directory",
            _ => return None,
        };
        Some(text.to_owned())
    }
}

fn told(findings: &[Finding]) -> String {
    let line = |one: &Finding| format!("\n{}: {}: {}", one.repository, one.found.kind.code, one.found.message);
    findings.iter().take(MAX_TOLD).map(line).collect()
}

/// Makes a home of the clones in a directory, with the devices that they are of. Nothing is there before all of them were
/// audited, from this roster on, copied and synced.
pub fn restore_clones(
    home: &Home,
    directory: &Path,
    start: &Start,
    now: Timestamp,
) -> Result<Vec<DeviceId>, ClonesError> {
    let root = home.root();
    if root.exists() {
        return Err(ClonesError::Exists { path: root.to_owned() });
    }
    let before = Checkpoint::new(start.digest);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    // What was archived has to be fetched into them.
    let options = Options { start, before: &before, archives: None, now, threads, keeps_records: false };
    let audited = audit(places(&[directory.to_owned()])?, options, &|_, _| {});
    let (findings, repositories) = (audited.findings, audited.repositories);
    let findings: Vec<_> = findings.into_iter().filter(|one| one.found.kind.level == Level::Error).collect();
    if !findings.is_empty() {
        return Err(ClonesError::Refused { findings });
    }
    let name = root.file_name().unwrap_or_default().to_string_lossy();
    let temp = root.with_file_name(format!("{}{name}", durable::TEMP_PREFIX));
    let failed = FileError::write(&temp);
    durable::remove_dir_all(&temp).map_err(failed)?;
    let new = Home::at(&temp);
    new.create()?;
    let mut devices = Vec::new();
    for row in repositories {
        let device = row.device.ok_or(ClonesError::Nobodys { repository: row.repository.clone() })?;
        let copied = copy_repository(Path::new(&row.repository), &new.device(&device));
        copied.map_err(|source| ClonesError::Copy { device: device.clone(), source: Box::new(source) })?;
        devices.push(device);
    }
    new.write(&new.config_schema(), config::SCHEMA.as_bytes(), 0o644)?;
    new.write(&new.config(), config::SAMPLE.as_bytes(), 0o600)?;
    durable::sync_tree(&temp).map_err(failed)?;
    durable::rename(&temp, root).map_err(FileError::write(root))?;
    Ok(devices)
}
