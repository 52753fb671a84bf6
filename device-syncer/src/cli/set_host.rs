//! `set-host`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use jiff::Timestamp;
use repo_model::text;
use serde::Serialize;

use super::show::json;
use super::{OutputArgs, must_be};
use crate::config::Home;
use crate::decision::conditions;
use crate::error::CliError;
use crate::home;
use crate::reconcile::preview::believed_at_host;
use crate::state::moved::{self, Moved};

/// Moves this device to another host by hand, once that shows a state that this device believes.
///
/// For a host that got another name or another machine, where no join file can be brought. The device keeps its identity, its
/// keys, what it accepted and what runs. Nothing changes unless the new host shows the device's own repository, signed by who
/// may sign it, and nothing older than what was accepted. End the syncer before, and start it again. A newer join file has
/// the last word.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  systemctl stop device-syncer\n  \
                        device-syncer set-host https://git2.plant.example/devices/press-01.git --ca new-ca.pem\n  \
                        systemctl start device-syncer\n\nBack to what the join file says: device-syncer set-host --back")]
pub(super) struct Args {
    /// Where the device's repository is now: `https://…`, `ssh://…`, or an absolute path.
    #[arg(required_unless_present = "back")]
    url: Option<String>,
    /// PEM of the authority that the new host's certificate must chain to, where that isn't the one of before.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Goes back to the host that the join file names.
    #[arg(long, conflicts_with_all = ["url", "ca"])]
    back: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// Whom the device follows from its next start on, for programs.
#[derive(Debug, Serialize)]
struct Followed<'a> {
    url: &'a str,
    /// That of the state that it shows.
    serial: u64,
}

pub(super) fn run(home: &Home, args: &Args) -> Result<ExitCode, CliError> {
    must_be(home)?;
    let from = moved::by_roster(home, &home::joined(home)?).url;
    let ca = args.ca.as_deref().map(read).transpose()?;
    let moved = args.url.clone().map(|url| Moved { from, url, ca, since: Timestamp::now() });
    let (syncer, _locks) = home::open_at(home.clone(), Some(moved.clone()))?;
    let url = text::cell(syncer.host.url());
    let serial = believed_at_host(&syncer).map_err(|why| {
        let why = conditions::text(&why);
        CliError::Input(format!("`{url}` isn't followed, and nothing was changed: {why}"))
    })?;
    let failed = |source| CliError::Io { doing: "can't keep where the host is".to_owned(), source };
    moved::write(&home.moved(), moved.as_ref()).map_err(failed)?;
    let text = || format!("serial {serial} at `{url}` is believed; this device follows it from its next start on\n");
    args.output.print(text, || json(&Followed { url: syncer.host.url(), serial }))?;
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> Result<String, CliError> {
    fs::read_to_string(path)
        .map_err(|source| CliError::Io { doing: format!("can't read `{}`", path.display()), source })
}
