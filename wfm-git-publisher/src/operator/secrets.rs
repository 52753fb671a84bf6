//! Secrets: values that are encrypted to the keys of the devices that need them, one file for each, as one commit.

use std::collections::BTreeSet;
use std::path::Path;

use repo_git::age::{self, AgeError};
use repo_git::durable::{self, FileError};
use repo_model::DeviceId;
use repo_model::problem::Problems;

use super::deploy::link_in;
use crate::fleet::{self, Device, Fleet, NotReadable, counted, is_secret_name, keys_of, secret_path};
use crate::repos::{GitError, SourceError, StockGit, work_tree};

/// A value that somebody gives to a secret.
#[derive(Clone, Copy)]
pub struct GivenSecret<'a> {
    pub name: &'a str,
    /// What only the devices shall read.
    pub clear: &'a [u8],
    /// Whom it is for; whoever needs it if it is empty.
    pub devices: &'a [DeviceId],
    /// Whether it takes the place of the values that there are.
    pub replaces: bool,
}

impl std::fmt::Debug for GivenSecret<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GivenSecret").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What became of a value for one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretGiven {
    /// It is encrypted to the device's key.
    Encrypted,
    /// The device can read a value that it had before, which stays.
    Kept,
    /// The device has no key yet.
    NotEnrolled,
}

/// A secret can't be given.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("cannot read the fleet")]
    Source(#[from] SourceError),
    /// `fleet.yaml` can't be used.
    #[error("the fleet can't be used")]
    Fleet(Problems),
    #[error("`{0}` can't be a secret's name: 1 to 100 letters, digits and `. _ -`, the first a letter or digit")]
    Name(String),
    #[error("there is no device `{0}` in the fleet that can be used")]
    NoDevice(DeviceId),
    #[error("no deployment needs the secret `{0}` on any device")]
    Unused(String),
    #[error("there is no secret `{0}` in the fleet")]
    NoSecret(String),
    /// Who put it there decides where it leads.
    #[error("`{0}` is a link, and nothing is written through it")]
    Link(String),
    /// No device could use it. Nothing of the value is said.
    #[error("the value {0}")]
    Value(&'static str),
    #[error("the value can't be encrypted")]
    Encrypt(#[from] AgeError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot commit the secret's files")]
    Git(#[from] GitError),
}

impl SecretError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unused(name) => Some(format!(
                "write `{{valueFrom: {{encrypted: {name}}}}}` for the parameter first, or name devices with --device"
            )),
            Self::NoSecret(name) => Some(format!("`secret set {name}` gives a new one its value")),
            Self::NoDevice(_) => Some("`device list` shows those that are committed".to_owned()),
            _ => None,
        }
    }
}

/// Encrypts a value to the devices that need it: nothing is written unless that can be done for all of them. The same again
/// completes what was cut off.
pub fn set_secret(root: &Path, given: &GivenSecret<'_>) -> Result<Vec<(DeviceId, SecretGiven)>, SecretError> {
    let GivenSecret { name, clear, replaces, .. } = *given;
    if !is_secret_name(name) {
        return Err(SecretError::Name(name.chars().take(100).collect()));
    }
    check(clear)?;
    let reading = fleet::read(&work_tree(root)?);
    let fleet = reading.fleet.ok_or(SecretError::Fleet(reading.problems))?;
    let (mut done, mut texts) = (Vec::new(), Vec::new());
    for device in meant(&fleet, given)? {
        let became = match fleet.secrets.of(name, device) {
            Err(NotReadable::NotEnrolled) => SecretGiven::NotEnrolled,
            Ok(_) if !replaces => SecretGiven::Kept,
            _ => {
                let keys: Vec<_> = keys_of(device).collect();
                texts.push((secret_path(name, &device.id), age::encrypt(&keys, clear)?));
                SecretGiven::Encrypted
            }
        };
        done.push((device.id.clone(), became));
    }
    if let Some(link) = texts.iter().find_map(|(path, _)| link_in(root, path)) {
        return Err(SecretError::Link(link.to_owned()));
    }
    for (path, text) in &texts {
        let path = root.join(path);
        let failed = FileError::write(&path);
        durable::create_dir_all(path.parent().unwrap_or(root), 0o755).map_err(failed)?;
        durable::replace_file(&path, text.as_bytes(), 0o644).map_err(failed)?;
    }
    commit(root, name, if texts.is_empty() { done.len() } else { texts.len() })?;
    Ok(done)
}

/// What no device could use.
fn check(clear: &[u8]) -> Result<(), SecretError> {
    match std::str::from_utf8(clear) {
        Ok("") => Err(SecretError::Value("is empty")),
        Ok(text) if text.contains('\0') => Err(SecretError::Value("holds a NUL character")),
        Ok(_) => Ok(()),
        Err(_) => Err(SecretError::Value("is not UTF-8: encode it, as in base64")),
    }
}

/// The devices that are named, else those that need it, and where values are replaced those that have one.
fn meant<'a>(fleet: &'a Fleet, given: &GivenSecret<'_>) -> Result<Vec<&'a Device>, SecretError> {
    let GivenSecret { name, devices, replaces, .. } = *given;
    if replaces && fleet.secrets.devices(name).next().is_none() {
        return Err(SecretError::NoSecret(name.to_owned()));
    }
    if !devices.is_empty() {
        let devices: BTreeSet<_> = devices.iter().collect();
        let find = |id: &DeviceId| fleet.device(id).ok_or_else(|| SecretError::NoDevice(id.clone()));
        return devices.into_iter().map(find).collect();
    }
    let mut ids = fleet.used_secrets().remove(name).unwrap_or_default();
    if replaces {
        ids.extend(fleet.secrets.devices(name));
    }
    if ids.is_empty() {
        return Err(SecretError::Unused(name.to_owned()));
    }
    Ok(ids.into_iter().filter_map(|id| fleet.device(id)).collect())
}

/// Commits what isn't yet of the secret's age files, and nothing else that lies beside them.
fn commit(root: &Path, name: &str, devices: usize) -> Result<(), SecretError> {
    let (git, files) = (StockGit::new(root), format!(":(glob)secrets/{name}/**/*.age"));
    if git.is_dirty(&files)? {
        git.commit(&[&files], &format!("secret {name} for {}", counted(devices)))?;
    }
    Ok(())
}
