//! `archive`.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use repo_model::DeviceId;
use serde_json::{Value, json};

use super::{OutputArgs, Place, Progress, table};
use crate::error::{Failure, USER};
use crate::operator::{Archiving, DeviceArchived, archive};
use crate::parallel;
use crate::repos::{Archived, Control};

/// Takes old epochs of devices' histories off the host, each into a file that `git bundle verify` and `git clone` read
///
/// Where a device's `status` began anew, after 10,000 commits or with another key, its repository keeps the end of what was
/// before as `status-1`, `status-2` and so on. Those go, but for the newest ones. Each file is written, synced and read back, and
/// its digest is noted in control.git by a signed commit, before anything leaves the repository. Cut off anywhere, the same
/// again completes it. What is there already has to be the same, and nothing is archived of a device in whose repository an audit
/// finds something wrong.
///
/// Keep the files as you keep backups, in which they aren't. `audit --control --archives` reads them.
///
///   wfm-git-publisher archive --to /media/usb
///   wfm-git-publisher archive press-01 --keep 3 --to /media/usb
///   wfm-git-publisher archive list
///
/// Exit code 0 if all that is old is archived, 1 if something of a device isn't; of the others it is all the same.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// Only these devices
    #[arg(value_name = "DEVICE")]
    devices: Vec<DeviceId>,

    /// How many epochs of each device stay, of those that ended; the last one always does
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    keep: u32,

    /// The directory of the archives; it is made, and read by its owner only
    #[arg(long, value_name = "DIR", required = true)]
    to: Option<PathBuf>,

    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Lists what is archived: which epoch, where it was written, and its digest
    ///
    ///   wfm-git-publisher archive list
    ///   wfm-git-publisher archive list --output json
    #[command(verbatim_doc_comment)]
    List(OutputArgs),
}

pub(super) fn run(place: &Place, args: &Args) -> Result<u8, Failure> {
    match (&args.command, &args.to) {
        (Some(Command::List(output)), _) => list(place, *output),
        (None, Some(to)) => write(place, args, &std::path::absolute(to)?),
        (None, None) => Err(Failure::new("name the directory of the archives: --to DIR")),
    }
}

fn write(place: &Place, args: &Args, to: &Path) -> Result<u8, Failure> {
    let home = place.home()?;
    if place.remotes()?.is_some() {
        let failure = Failure::new("devices of this fleet talk to another host, which keeps their history");
        return Err(failure.hint("whoever runs that host archives there: docs/archives.md"));
    }
    let keep = usize::try_from(args.keep).unwrap_or(usize::MAX);
    let what = Archiving { devices: &args.devices, keep, to, now: Timestamp::now(), threads: parallel::cores() };
    let progress = Progress::start("archiving");
    let done = archive(&home, &what, &|done, all| progress.show("archiving from", "repositories", done, all))?;
    drop(progress);
    let failed: Vec<_> = done.iter().filter_map(|one| Some((one, one.error.as_ref()?))).collect();
    for (one, error) in &failed {
        eprint!("{}", Failure::new((*error).clone()).about(format!("device `{}`", one.device)));
    }
    let archived: Vec<_> = done.iter().flat_map(|one| &one.archived).collect();
    let text = if archived.is_empty() { "nothing is old enough\n".to_owned() } else { page(&archived) };
    args.output.print(&text, || json!({ "devices": done.iter().map(device_json).collect::<Vec<_>>() }));
    Ok(if failed.is_empty() { 0 } else { USER })
}

fn device_json(one: &DeviceArchived) -> Value {
    json!({ "device": one.device, "archived": one.archived, "error": one.error })
}

fn list(place: &Place, output: OutputArgs) -> Result<u8, Failure> {
    let (ledger, _) = Control::read(&place.home()?)?;
    let archived: Vec<_> = ledger.archived.values().collect();
    let text = if archived.is_empty() { "nothing is archived\n".to_owned() } else { page(&archived) };
    output.print(&text, || json!({ "archived": archived }));
    Ok(0)
}

fn page(archived: &[&Archived]) -> String {
    let row = |one: &&Archived| {
        let (epoch, commits, bytes) = (one.epoch.to_string(), one.commits.to_string(), one.bytes.to_string());
        let time = format!("{:.0}", one.time);
        [one.device.to_string(), epoch, commits, bytes, time, one.file.clone(), one.digest.to_string()]
    };
    let head = ["DEVICE", "EPOCH", "COMMITS", "BYTES", "ARCHIVED", "FILE", "DIGEST"].map(str::to_owned);
    table(&std::iter::once(head).chain(archived.iter().map(row)).collect::<Vec<_>>())
}
