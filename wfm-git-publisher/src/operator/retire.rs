//! A device is taken out of service: its file says so, as one commit, and where it is to be cut off at once, it is.

use std::path::Path;

use jiff::Timestamp;
use repo_model::DeviceId;
use wfm_git_host::accounts::{AccountError, Store};

use super::device_file::{Changed, DeviceFile, DeviceFileError, Edit};
use super::edit;
use crate::fleet::{Device, Retired};

/// A device whose file says that it is retired.
#[derive(Debug)]
pub struct RetiredDevice {
    /// The path of the device's file in the fleet repository.
    pub file: String,
    /// Whether it said so already.
    pub was_there: bool,
    /// Whether no account here lets it in any more.
    pub is_cut_off: bool,
}

/// A device can't be retired.
#[derive(Debug, thiserror::Error)]
pub enum RetireError {
    #[error(transparent)]
    File(#[from] DeviceFileError),
    /// Its file in the fleet says that it is retired.
    #[error("cannot end the device's account")]
    Account(#[from] AccountError),
}

/// Writes how the device is retired into its file and commits that. If accounts are given, its own ends at once; otherwise
/// a publish ends it in its time. The same again completes what was cut off.
pub fn retire(
    root: &Path,
    at_once: Option<&Store>,
    device: &DeviceId,
    how: Retired,
    now: Timestamp,
) -> Result<RetiredDevice, RetireError> {
    let edit = Edit {
        key: "retired",
        text: &|text| edit::set_word(text, "retired", how.as_str()),
        meaning: &|before| Device { retired: Some(how), ..before },
        message: &format!("{device}: retire\n\nRetired: {device} {how}\n"),
    };
    let Changed { file, was_there } = DeviceFile::open(root, device)?.change(&edit)?;
    at_once.map_or(Ok(false), |accounts| accounts.retire(device, now))?;
    Ok(RetiredDevice { file, was_there, is_cut_off: at_once.is_some() })
}
