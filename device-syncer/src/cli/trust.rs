//! `trust`.

use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use jiff::Timestamp;
use repo_git::sign::openssh::fingerprint;
use repo_model::roster::{Publisher, RosterSteps, Trust};
use repo_model::{Digest, error_chain, text};
use serde::Serialize;

use super::show::json;
use super::{OutputArgs, must_be};
use crate::config::Home;
use crate::error::CliError;
use crate::home;
use crate::reconcile::rosters;

/// Prints whose signatures this device believes, and where its host is; or follows the rosters of a file first.
///
/// The rosters come by themselves with what the publisher publishes. By a file they come to a device that its host keeps from them,
/// or that can't believe its host any more: `wfm-git-publisher trust export` writes it. Each roster has to be signed by the roots
/// of the one before, from the one on that this device believes; so the file may come by any way. What counts from then on is
/// kept for good. End the syncer before, and start it again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  device-syncer trust\n  systemctl stop device-syncer\n  \
                        device-syncer trust /media/usb/rosters.json\n  systemctl start device-syncer")]
pub(super) struct Args {
    /// The file with the rosters.
    file: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

/// The newest roster that counts here, as `trust` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    version: u64,
    sha256: Digest,
    /// Whether it came with the file.
    is_new: bool,
    publishers: Vec<Publisher>,
    /// Of this device's repository, by join file, roster or `set-host`, whichever has the last word.
    url: String,
}

pub(super) fn run(home: &Home, args: &Args) -> Result<ExitCode, CliError> {
    must_be(home)?;
    let (newest, is_new) = match &args.file {
        None => (home::newest_roster(home)?, false),
        Some(path) => {
            let steps = read(path)?;
            let (mut syncer, _locks) = home::open(home.clone())?;
            rosters::believe(&mut syncer, &steps)
                .map_err(|error| CliError::Input(format!("`{}`: {}", path.display(), error_chain(&error))))?
        }
    };
    let Trust { roster, digest } = newest;
    let (url, _) = home::host_of(home)?;
    let shown = Shown { version: roster.version, sha256: digest, is_new, publishers: roster.publishers, url };
    args.output.print(|| table(&shown, args.file.is_some(), Timestamp::now()), || json(&shown))?;
    Ok(ExitCode::SUCCESS)
}

/// A file of rosters, of which nothing is believed yet.
fn read(path: &Path) -> Result<RosterSteps, CliError> {
    let failed = |source| CliError::Io { doing: format!("can't read `{}`", path.display()), source };
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(RosterSteps::MAX as u64 + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() > RosterSteps::MAX {
        return Err(CliError::Input(format!("`{}` has more than 1 MiB, and is no file of rosters", path.display())));
    }
    repo_model::json::read(&bytes).map_err(|error| {
        let made = "`wfm-git-publisher trust export` writes one";
        CliError::Input(format!("`{}` holds no rosters: {error}: {made}", path.display()))
    })
}

fn table(shown: &Shown, from_file: bool, now: Timestamp) -> String {
    let news = match (from_file, shown.is_new) {
        (true, true) => ", which counts from now on",
        (true, false) => "; the file has no newer one",
        (false, _) => "",
    };
    let mut text = format!("roster {} ({}){news}\n", shown.version, shown.sha256);
    for Publisher { key, not_after } in &shown.publishers {
        let end = match not_after {
            None => "for ever".to_owned(),
            Some(end) if *end <= now => format!("ended {end:.0}"),
            Some(end) => format!("until {end:.0}"),
        };
        let _ = writeln!(text, "  publisher {} {end}", fingerprint(key));
    }
    let _ = writeln!(text, "the host: {}", text::cell(&shown.url));
    text
}
