//! `backup`, `restore`.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::json;

use super::{OutputArgs, Place, Progress};
use crate::error::Failure;
use crate::operator::restore_clones;
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
/// Without a backup, or where its key is stolen, --clones makes a home of bare clones of the devices' repositories, as
/// `audit clone` makes them, if the audit finds nothing wrong in them from that first roster on. It has neither key nor
/// accounts nor ledger: docs/drills/emergency.md says how it goes on.
///
///   wfm-git-publisher --home my-fleet.new.wfm restore /media/usb/my-fleet.tar
///   wfm-git-publisher --home my-fleet.other.wfm restore --clones clones --roster clones/roster.json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct RestoreArgs {
    /// The archive that `backup` wrote
    #[arg(required_unless_present = "clones", conflicts_with = "clones")]
    file: Option<PathBuf>,

    /// A directory with bare clones of the devices' repositories, in place of an archive
    #[arg(long, value_name = "DIR", requires = "roster")]
    clones: Option<PathBuf>,

    /// The first roster of the fleet, by which the clones are audited: its file, or sha256:…
    #[arg(long, value_name = "FILE|DIGEST", requires = "clones")]
    roster: Option<String>,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(place: &Place, BackupArgs { file, output }: &BackupArgs) -> Result<u8, Failure> {
    let home = place.home()?;
    home.check_ledger()?;
    let file = std::path::absolute(file)?;
    let progress = Progress::start("backing up");
    let BackedUp { fleet, repositories, files, bytes, warnings } = back_up(&home, &file, Timestamp::now())?;
    drop(progress);
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

pub(super) fn run_restore(
    place: &Place,
    RestoreArgs { file, clones, roster, output }: &RestoreArgs,
) -> Result<u8, Failure> {
    let home = match &place.home {
        Some(home) => Home::at(std::path::absolute(home)?),
        None => Home::beside(&std::path::absolute(&place.fleet)?),
    };
    match (file, clones, roster) {
        (Some(file), ..) => from_archive(&home, file, output),
        (None, Some(clones), Some(roster)) => from_clones(&home, clones, roster, output),
        _ => Err(Failure::new("name an archive, or --clones with --roster")),
    }
}

fn from_archive(home: &Home, file: &Path, output: &OutputArgs) -> Result<u8, Failure> {
    let progress = Progress::start("restoring");
    let Restored { contents, devices, warnings } = restore(file, home)?;
    drop(progress);
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

fn from_clones(home: &Home, clones: &Path, roster: &str, output: &OutputArgs) -> Result<u8, Failure> {
    let start = super::audit::start(roster)?;
    let progress = Progress::start("auditing the clones");
    let devices = restore_clones(home, clones, &start, Timestamp::now())?;
    drop(progress);
    let text = format!(
        "{0}: a home with the repositories of {1} devices, and without a key. The settings of before belong in {0}/{2}\n\
         Next: wfm-git-publisher --home {0} trust propose --new-publisher --drop-publisher KEY\n",
        home.root().display(),
        devices.len(),
        "publisher.yaml",
    );
    output.print(&text, || json!({ "home": home.root(), "roster": start.digest, "devices": devices }));
    Ok(0)
}

fn listed(warnings: &[String]) -> String {
    warnings.iter().map(|warning| format!("warning: {}\n", repo_model::text::line(warning))).collect()
}
