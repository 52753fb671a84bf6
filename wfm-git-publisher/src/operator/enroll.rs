//! Enrolment: a device's public key goes into its file in the fleet repository.

use std::fs;
use std::path::{Path, PathBuf};

use repo_git::{KeyError, PublicKey, durable};
use repo_model::problem::Problems;
use repo_model::{DeviceId, KeyText};

use super::edit;
use crate::fleet::{self, Content, Device, SourceFile};
use crate::repos::{GitError, Home, HomeError, SourceError, StockGit, key_text, work_tree};

/// What `device enroll` noted and committed.
#[derive(Debug)]
pub struct Enrolled {
    /// The path of the device's file in the fleet repository.
    pub file: String,
    /// `SHA256:…`, as `ssh-keygen -l` shows it.
    pub fingerprint: String,
    /// Whether the key was there already.
    pub was_there: bool,
}

/// A device can't be enrolled.
#[derive(Debug, thiserror::Error)]
pub enum EnrollError {
    /// The fleet can't be read.
    #[error("cannot read the fleet")]
    Source(#[from] SourceError),
    /// The line isn't a key.
    #[error("the line is not the one that `device-syncer init` prints")]
    Key(#[source] KeyError),
    /// There is no such device.
    #[error("there is no device `{0}` in the fleet")]
    NoDevice(DeviceId),
    /// Its file is broken.
    #[error("the file of `{device}` can't be read")]
    Device { device: DeviceId, problems: Problems },
    /// It has another key.
    #[error("`{device}` is enrolled with another key")]
    OtherKey { device: DeviceId },
    /// It is another device's key.
    #[error("that is the key of `{owner}`, in `{file}`")]
    Taken { owner: DeviceId, file: String },
    /// Its file has changes that aren't committed.
    #[error("`{file}` has changes that are not committed")]
    Dirty { file: String },
    /// Its file is written in a way that can't be edited.
    #[error("`{file}` can't be edited without changing more than its keys")]
    Edit { file: String },
    /// Its file can't be read or written.
    #[error("cannot change `{}`", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// It can't be committed.
    #[error("cannot commit the device's file")]
    Git(#[from] GitError),
    /// `allowed_signers` can't be written.
    #[error("cannot add the key to `allowed_signers`")]
    Signers(#[source] HomeError),
}

/// Puts the key of the line into the device's file and commits that. Another key is replaced only if `replace` says so.
pub fn enroll(root: &Path, home: &Home, device: &DeviceId, line: &str, replace: bool) -> Result<Enrolled, EnrollError> {
    let public: PublicKey = line.trim().parse().map_err(EnrollError::Key)?;
    let key = key_text(public).ok_or_else(|| EnrollError::NoDevice(device.clone()))?;
    let files = work_tree(root)?;
    let found = fleet::device_files(&files).into_iter().find(|(id, _)| id == device);
    let (_, file) = found.ok_or_else(|| EnrollError::NoDevice(device.clone()))?;
    let path = root.join(&file);
    let failed = |source| EnrollError::File { path: path.clone(), source };
    let text = fs::read_to_string(&path).map_err(failed)?;
    let before = read(device, &file, &text)?;
    let fingerprint = public.fingerprint();
    let git = StockGit::new(root);
    let message = format!("{device}: enroll {fingerprint}");
    if before.status_keys == [key.clone()] {
        if git.is_dirty(&file)? {
            // An enrolment that was cut off before its commit is completed; other changes are the operator's.
            if !is_only_enrolled(&git, (&file, &text), device, &key)? {
                return Err(EnrollError::Dirty { file });
            }
            git.commit(&[&file], &message)?;
        }
        add_signer(home, device, &key)?;
        return Ok(Enrolled { file, fingerprint, was_there: true });
    }
    if before.is_enrolled() && !replace {
        return Err(EnrollError::OtherKey { device: device.clone() });
    }
    if let Some((owner, file)) = owner(&files, device, &key) {
        return Err(EnrollError::Taken { owner, file });
    }
    if git.is_dirty(&file)? {
        return Err(EnrollError::Dirty { file });
    }
    let edited = with_key(&file, &text, &before, &key)?;
    durable::replace_file(&path, edited.as_bytes(), 0o644).map_err(failed)?;
    git.commit(&[&file], &message)?;
    add_signer(home, device, &key)?;
    Ok(Enrolled { file, fingerprint, was_there: false })
}

/// The other device that has the key, and its file.
fn owner(files: &[SourceFile], device: &DeviceId, key: &KeyText) -> Option<(DeviceId, String)> {
    let names = |file: &&SourceFile| match &file.content {
        Content::Plain(bytes) => String::from_utf8_lossy(bytes).contains(key.as_str()),
        Content::Refused(..) => false,
    };
    let mut others = files.iter().filter(names).filter_map(|file| fleet::read_device(file).ok());
    let other = others.find(|other| other.id != *device && other.status_keys.contains(key))?;
    Some((other.id, other.file))
}

/// Whether the file is the committed one with the key, and nothing else.
fn is_only_enrolled(
    git: &StockGit,
    (file, text): (&str, &str),
    device: &DeviceId,
    key: &KeyText,
) -> Result<bool, EnrollError> {
    let Ok(committed) = git.run(&["show", &format!("HEAD:{file}")]) else { return Ok(false) };
    let before = read(device, file, &committed)?;
    Ok(with_key(file, &committed, &before, key).is_ok_and(|enrolled| enrolled == text))
}

fn read(device: &DeviceId, file: &str, text: &str) -> Result<Device, EnrollError> {
    let read = fleet::read_device(&SourceFile::plain(file, text));
    read.map_err(|problems| EnrollError::Device { device: device.clone(), problems })
}

/// The text with the key, which must mean the same in all else.
fn with_key(file: &str, text: &str, before: &Device, key: &KeyText) -> Result<String, EnrollError> {
    let failed = || EnrollError::Edit { file: file.to_owned() };
    let edited = edit::set_list(text, "statusKeys", &[key.to_string()]).ok_or_else(failed)?;
    let after = fleet::read_device(&SourceFile::plain(file, edited.as_str())).map_err(|_| failed())?;
    let expected = Device { status_keys: vec![key.clone()], ..before.clone() };
    if after == expected { Ok(edited) } else { Err(failed()) }
}

/// Lets `git log --show-signature` name the device. The old lines stay: they verify what was signed before.
fn add_signer(home: &Home, device: &DeviceId, key: &KeyText) -> Result<(), EnrollError> {
    let path = home.allowed_signers();
    let line = format!("{device} namespaces=\"git\" {key}\n");
    let text = fs::read_to_string(&path).unwrap_or_default();
    if text.contains(&line) {
        return Ok(());
    }
    home.write(&path, format!("{text}{line}").as_bytes(), 0o644).map_err(EnrollError::Signers)
}
