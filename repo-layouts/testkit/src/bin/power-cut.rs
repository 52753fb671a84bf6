//! `power-cut [MOUNT_POINT] PID` shuts a file system down and kills a process.
//!
//! The mount point may come from `SYNC_CUT_VOLUME` instead; with neither, only the process dies.

use std::error::Error;
use std::path::PathBuf;

use repo_testkit::faults::power::{VOLUME_VARIABLE, kill, shut_down};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (volume, pid) = match arguments.as_slice() {
        [pid] => (std::env::var_os(VOLUME_VARIABLE).map(PathBuf::from), pid),
        [volume, pid] => (Some(PathBuf::from(volume)), pid),
        _ => return Err("usage: power-cut [MOUNT_POINT] PID".into()),
    };
    if let Some(volume) = volume {
        shut_down(&volume)?;
    }
    Ok(kill(pid.parse()?)?)
}
