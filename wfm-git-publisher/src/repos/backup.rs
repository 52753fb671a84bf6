//! A backup of the publisher's home, made while it is at work, and what it is restored from.
//!
//! One tar archive: every file of the home in the order in which it may be read without a lock on all of it, and last a list
//! of them with their digests ([`Contents`]), so that an archive that was cut off or changed isn't taken for a whole one.
//! A repository is read under its writer's lock, one after the other, for as long as reading it takes; everything else of
//! a home is replaced file by file, so each is whole. What was written between two of them is what a device says or
//! a tip shows after a restore: publishing is level-triggered, and goes on from there.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use repo_git::durable::{self, FileError};
use repo_git::{Repo, RepoLock};
use repo_model::{Digest, FleetId, error_chain, json};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::control::Control;
use super::control_error::ControlError;
use super::device::DeviceRepo;
use super::home::Home;

/// The last file of a backup, which isn't one of the home.
const CONTENTS: &str = "backup.json";

/// The ledger's repository, which comes first.
const LEDGER: &str = "control.git";

/// The layout that is written, and the newest that is read.
const LAYOUT: u64 = 1;

/// How long a repository is waited for that somebody writes.
const WAIT: Duration = Duration::from_secs(60);

/// The largest list of files, in bytes: that of some 10,000 devices has 20 MB.
const MAX_CONTENTS: u64 = 1 << 30;

/// What is in a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    pub layout: u64,
    pub fleet: FleetId,
    /// When it was begun.
    pub created: Timestamp,
    /// Every file with the SHA-256 of its bytes.
    pub files: BTreeMap<String, Digest>,
}

/// A backup that was made.
#[derive(Debug)]
pub struct BackedUp {
    pub fleet: FleetId,
    pub repositories: usize,
    pub files: usize,
    /// Of the archive.
    pub bytes: u64,
    /// What is in it that isn't as it should be.
    pub warnings: Vec<String>,
}

/// A home that was made of a backup.
#[derive(Debug)]
pub struct Restored {
    pub contents: Contents,
    pub devices: usize,
    /// What of it can't be believed or read; the next `publish` mends what can be.
    pub warnings: Vec<String>,
}

/// Nothing was backed up, or nothing restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error(transparent)]
    File(#[from] FileError),
    /// Which fleet it is isn't known.
    #[error("cannot use the publisher's ledger")]
    Control(#[from] ControlError),
    /// There is something that a home would be put over.
    #[error("`{}` exists, and nothing is restored over it", path.display())]
    Exists { path: PathBuf },
    /// The archive isn't one of ours, or not a whole one.
    #[error("`{}` is not a whole backup: {problem}", file.display())]
    NotWhole { file: PathBuf, problem: String },
}

/// What of a home isn't backed up: what can be made anew, what only counts while a process runs, what was handed out, and the
/// root key, which is to be kept elsewhere.
fn is_left_out(path: &Path) -> bool {
    const LEFT_OUT: [&str; 4] = ["index", "join", "lock", "keys/root"];
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_temporary =
        name.starts_with(durable::TEMP_PREFIX) || name.starts_with("tmp_") || name.starts_with("incoming-");
    let is_lock = name.ends_with(".lock") || name == "writer.group";
    LEFT_OUT.iter().any(|one| path == Path::new(one)) || is_temporary || is_lock
}

/// Backs up a home into a new archive, or in the place of an older one, as one step at the end.
pub fn back_up(home: &Home, file: &Path, now: Timestamp) -> Result<BackedUp, BackupError> {
    let fleet = Control::read_rosters(home)?.fleet();
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let temp = file.with_file_name(format!("{}{name}", durable::TEMP_PREFIX));
    let failed = FileError::write(&temp);
    durable::remove_file(&temp).map_err(failed)?;
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temp).map_err(failed)?;
    let result = write_all(home, opened, (fleet, now), &temp).and_then(|backed_up| {
        durable::sync_file(&temp).map_err(failed)?;
        durable::rename(&temp, file).map_err(FileError::write(file))?;
        Ok(backed_up)
    });
    if result.is_err() {
        // What is left of it is no backup, and secret.
        _ = durable::remove_file(&temp);
    }
    result
}

fn write_all(
    home: &Home,
    opened: File,
    (fleet, created): (FleetId, Timestamp),
    temp: &Path,
) -> Result<BackedUp, BackupError> {
    let contents = Contents { layout: LAYOUT, fleet, created, files: BTreeMap::new() };
    let archive = tar::Builder::new(BufWriter::new(opened));
    let mut writer = Writer { home: home.root(), archive, temp, contents, repositories: 0, warnings: Vec::new() };
    // A ledger that is older than what devices have learns from their tips.
    writer.add(Path::new(LEDGER))?;
    writer.add(Path::new(""))?;
    let Writer { mut archive, contents, repositories, warnings, .. } = writer;
    let failed = FileError::write(temp);
    let list = json::to_bytes(&contents);
    archive.append_data(&mut header(list.len() as u64, 0o600), CONTENTS, &*list).map_err(failed)?;
    let mut file = archive.into_inner().map_err(failed)?;
    file.flush().map_err(failed)?;
    let bytes = file.get_ref().metadata().map_err(failed)?.len();
    Ok(BackedUp { fleet, repositories, files: contents.files.len(), bytes, warnings })
}

fn header(size: u64, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(mode);
    header
}

struct Writer<'a> {
    home: &'a Path,
    archive: tar::Builder<BufWriter<File>>,
    temp: &'a Path,
    contents: Contents,
    repositories: usize,
    warnings: Vec<String>,
}

impl Writer<'_> {
    /// Adds a directory with all that is in it, but what is there already.
    fn add(&mut self, directory: &Path) -> Result<(), BackupError> {
        let path = self.home.join(directory);
        let is_repository = path.join("HEAD").is_file() && path.join("objects").is_dir();
        let _lock = if is_repository { self.lock(&path) } else { None };
        if is_repository {
            self.repositories += 1;
        }
        if !directory.as_os_str().is_empty() {
            let mut header = header(0, 0o700);
            header.set_entry_type(tar::EntryType::Directory);
            let added = self.archive.append_data(&mut header, directory, io::empty());
            added.map_err(FileError::write(self.temp))?;
        }
        let failed = FileError::read(&path);
        let entries = fs::read_dir(&path).and_then(Iterator::collect::<io::Result<Vec<_>>>).map_err(failed)?;
        let mut names: Vec<_> = entries.into_iter().map(|entry| entry.file_name()).collect();
        names.sort();
        for name in names {
            let below = directory.join(name);
            if is_left_out(&below) || below == Path::new(LEDGER) {
                continue;
            }
            match fs::symlink_metadata(self.home.join(&below)) {
                Ok(meta) if meta.is_dir() => self.add(&below)?,
                Ok(meta) if meta.is_file() => self.add_file(&below)?,
                Ok(meta) if meta.is_symlink() => {
                    self.warnings.push(format!("`{}` is a link, and left out", below.display()));
                }
                // Sockets, and what went meanwhile.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(FileError::read(&self.home.join(below))(error).into()),
            }
        }
        Ok(())
    }

    /// The lock of a repository's writer. A repository that can't be opened is backed up as it is: it is better than none.
    fn lock(&mut self, path: &Path) -> Option<RepoLock> {
        let locked = Repo::open_briefly(path).map_err(|error| error_chain(&error));
        let locked = locked.and_then(|repo| repo.try_lock(WAIT).map_err(|error| error_chain(&error)));
        let warn = |error: &String| {
            self.warnings.push(format!("`{}` was backed up without its lock: {error}", path.display()));
        };
        locked.inspect_err(warn).ok()
    }

    fn add_file(&mut self, below: &Path) -> Result<(), BackupError> {
        let path = self.home.join(below);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file.map_err(FileError::read(&path))?,
        };
        let meta = file.metadata().map_err(FileError::read(&path))?;
        let mut reader = Hashing { from: file.take(meta.len()), sum: Sha256::new() };
        let mut header = header(meta.len(), meta.mode() & 0o700);
        self.archive.append_data(&mut header, below, &mut reader).map_err(FileError::write(self.temp))?;
        self.contents.files.insert(name_of(below), Digest::from_bytes(reader.sum.finalize().into()));
        Ok(())
    }
}

/// Bytes, and their sum.
struct Hashing<R> {
    from: R,
    sum: Sha256,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.sum.update(&buffer[..read]);
        Ok(read)
    }
}

/// A path as the list has it.
fn name_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Makes a home of a backup. Nothing is there before all of it was read, compared with its list, and synced.
pub fn restore(file: &Path, home: &Home) -> Result<Restored, BackupError> {
    let root = home.root();
    if root.exists() {
        return Err(BackupError::Exists { path: root.to_owned() });
    }
    let name = root.file_name().unwrap_or_default().to_string_lossy();
    let temp = root.with_file_name(format!("{}{name}", durable::TEMP_PREFIX));
    let failed = FileError::write(&temp);
    durable::remove_dir_all(&temp).map_err(failed)?;
    let restored = unpack(file, &temp).and_then(|contents| {
        durable::create_dir_all(&temp.join("index"), 0o700).map_err(failed)?;
        durable::create_dir_all(&temp.join("join"), 0o700).map_err(failed)?;
        durable::sync_tree(&temp).map_err(failed)?;
        durable::rename(&temp, root).map_err(FileError::write(root))?;
        Ok(contents)
    });
    if restored.is_err() {
        _ = durable::remove_dir_all(&temp);
    }
    let contents = restored?;
    let (devices, warnings) = look_at(home)?;
    Ok(Restored { contents, devices, warnings })
}

fn unpack(file: &Path, into: &Path) -> Result<Contents, BackupError> {
    let not_whole = |problem: String| BackupError::NotWhole { file: file.to_owned(), problem };
    let broken = |error: io::Error| not_whole(error.to_string());
    durable::create_dir_all(into, 0o700).map_err(FileError::write(into))?;
    let mut archive = tar::Archive::new(File::open(file).map_err(FileError::read(file))?);
    let (mut found, mut contents) = (BTreeMap::new(), None);
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        let path = entry.path().map_err(broken)?.into_owned();
        if contents.is_some() || !path.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(not_whole(format!("`{}` doesn't belong in it", path.display())));
        }
        if path == Path::new(CONTENTS) {
            let mut list = Vec::new();
            entry.take(MAX_CONTENTS).read_to_end(&mut list).map_err(broken)?;
            contents = Some(serde_json::from_slice::<Contents>(&list).map_err(|error| not_whole(error.to_string()))?);
            continue;
        }
        let target = into.join(&path);
        match entry.header().entry_type() {
            tar::EntryType::Directory => {
                durable::create_dir_all(&target, 0o700).map_err(FileError::write(&target))?;
            }
            tar::EntryType::Regular => {
                let failed = FileError::write(&target);
                let mode = entry.header().mode().unwrap_or(0o600) & 0o700;
                let opened = OpenOptions::new().write(true).create_new(true).mode(mode | 0o600).open(&target);
                let mut reader = Hashing { from: &mut entry, sum: Sha256::new() };
                let mut to = opened.map_err(failed)?;
                io::copy(&mut reader, &mut to).map_err(broken)?;
                found.insert(name_of(&path), Digest::from_bytes(reader.sum.finalize().into()));
            }
            _ => return Err(not_whole(format!("`{}` is neither a file nor a directory", path.display()))),
        }
    }
    let contents = contents.ok_or_else(|| not_whole(format!("it ends before `{CONTENTS}`")))?;
    if contents.layout != LAYOUT {
        let problem =
            format!("its layout is {}, and {LAYOUT} is known here: a newer version wrote it", contents.layout);
        return Err(not_whole(problem));
    }
    let differs = |(path, digest): &(&String, &Digest)| found.get(*path) != Some(digest);
    match contents.files.iter().find(differs) {
        Some((path, _)) => Err(not_whole(format!("`{path}` is missing, or isn't what was backed up"))),
        None if found.len() != contents.files.len() => {
            Err(not_whole("it has files that aren't in its list".to_owned()))
        }
        None => Ok(contents),
    }
}

/// How many devices a home has repositories of, and what of them and of the ledger isn't as it should be.
fn look_at(home: &Home) -> Result<(usize, Vec<String>), BackupError> {
    let mut warnings = Vec::new();
    let (ledger, rosters) = match Control::read(home) {
        Ok(read) => read,
        Err(error) => return Ok((0, vec![format!("the ledger can't be used: {}", error_chain(&error))])),
    };
    let mut devices = 0;
    for device in ledger.devices() {
        match DeviceRepo::open(home, rosters.fleet(), device) {
            Ok(Some(repo)) => {
                devices += 1;
                if let Err(error) = repo.desired(&rosters.publishers) {
                    warnings.push(format!("{device}: {}", error_chain(&error)));
                }
            }
            Ok(None) => {}
            Err(error) => warnings.push(format!("{device}: {}", error_chain(&error))),
        }
    }
    Ok((devices, warnings))
}
