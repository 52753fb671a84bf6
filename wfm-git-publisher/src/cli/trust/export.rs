//! `trust export`.

use std::path::PathBuf;

use repo_git::durable;
use repo_model::roster::RosterSteps;
use serde_json::json;

use super::super::{OutputArgs, Place};
use crate::error::Failure;
use crate::repos::Control;

/// Writes all rosters with their signatures into a file, for devices that can't get them from their host
///
/// Bring it to the device on a stick, and say there `device-syncer trust FILE`. The device follows it from the roster that it
/// believes: each version proves itself by the signatures of the roots before. So it is nothing secret, and who changes it
/// on the way gets nothing believed. It is what the host answers to `GET /trust`. After a publisher's key was stolen this ends it
/// at a device that the thief's host keeps from the new roster. Exit code 0 once it is written.
///
///   wfm-git-publisher trust export --out rosters.json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct ExportArgs {
    /// The file; one that is there is replaced
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    /// Only what follows this version, which all these devices have
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u64,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(place: &Place, args: &ExportArgs) -> Result<u8, Failure> {
    let rosters = Control::known_rosters(&place.home()?)?;
    let newest = rosters.newest.roster.version;
    let steps = RosterSteps { rosters: rosters.after(args.from) };
    if steps.rosters.is_empty() {
        let hint = format!("there are 1 to {newest}");
        return Err(Failure::new(format!("there is no roster after {}", args.from)).hint(hint));
    }
    let (bytes, path) = (repo_model::json::to_bytes(&steps), args.out.display());
    if bytes.len() > RosterSteps::MAX {
        let problem =
            format!("{} rosters have {} bytes, and no device reads more than 1 MiB", steps.rosters.len(), bytes.len());
        return Err(Failure::new(problem).hint("leave out those that all devices have: --from N"));
    }
    durable::replace_file(&args.out, &bytes, 0o644)
        .map_err(|error| Failure::new(format!("cannot write `{path}`: {error}")))?;
    let text = format!("rosters up to {newest}: {path}\nAt the device: device-syncer trust {path}\n");
    args.output.print(&text, || json!({ "file": args.out, "version": newest }));
    Ok(0)
}
