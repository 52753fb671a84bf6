//! `backup`, `restore`.

use std::path::PathBuf;

use jiff::Timestamp;
use serde_json::json;

use super::{OutputArgs, Place};
use crate::error::Failure;
use crate::repos::{BackedUp, Home, Restored, back_up, restore};

/// Backs up the publisher's home into one archive, while it is at work
///
/// In it are the ledger, the devices' repositories with all that they reported, the hosted fleet repository, accounts,
/// certificates and settings, and the publisher's key: keep it as you keep that. The root key is never in it. Each
/// repository is locked for as long as reading it takes, and no longer. FILE is replaced only by a whole one.
///
///   wfm-git-publisher backup /media/usb/my-fleet.tar
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct BackupArgs {
    /// The archive; it is readable by its owner only
    file: PathBuf,

    #[command(flatten)]
    output: OutputArgs,
}

/// Makes a publisher's home of a backup, on this machine or another one
///
/// Nothing may be at the home's place, and nothing is there before all of the archive was compared with its list of digests.
/// What was published after the backup is gone on from: devices say what they have. What they reported since they push
/// again, and those whose account changed since come back by their key. Work goes on with `run`, at the address that
/// publisher.yaml has.
///
///   wfm-git-publisher --home my-fleet.new.wfm restore /media/usb/my-fleet.tar
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct RestoreArgs {
    /// The archive that `backup` wrote
    file: PathBuf,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(place: &Place, BackupArgs { file, output }: &BackupArgs) -> Result<u8, Failure> {
    let home = place.home()?;
    home.check_ledger()?;
    let file = std::path::absolute(file)?;
    let BackedUp { fleet, repositories, files, bytes, warnings } = back_up(&home, &file, Timestamp::now())?;
    let size = bytes.div_ceil(1_000_000);
    let text = format!(
        "{}: {repositories} repositories, {files} files, {size} MB. It holds the publisher's key\n{}",
        file.display(),
        listed(&warnings)
    );
    output.print(&text, || {
        json!({ "file": file, "fleet": fleet, "repositories": repositories, "files": files, "bytes": bytes,
            "warnings": warnings })
    });
    Ok(0)
}

pub(super) fn run_restore(place: &Place, RestoreArgs { file, output }: &RestoreArgs) -> Result<u8, Failure> {
    let home = match &place.home {
        Some(home) => Home::at(std::path::absolute(home)?),
        None => Home::beside(&std::path::absolute(&place.fleet)?),
    };
    let Restored { contents, devices, warnings } = restore(file, &home)?;
    let text = format!(
        "{}: the home of fleet {} as it was at {:.0}, with {devices} devices\n{}Next: wfm-git-publisher --home {} run\n",
        home.root().display(),
        contents.fleet,
        contents.created,
        listed(&warnings),
        home.root().display()
    );
    output.print(&text, || {
        json!({ "home": home.root(), "fleet": contents.fleet, "created": contents.created, "devices": devices,
            "files": contents.files.len(), "warnings": warnings })
    });
    Ok(0)
}

fn listed(warnings: &[String]) -> String {
    warnings.iter().map(|warning| format!("warning: {}\n", repo_model::text::line(warning))).collect()
}
