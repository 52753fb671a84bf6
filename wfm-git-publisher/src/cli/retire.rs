//! `device retire`.

use jiff::Timestamp;
use repo_model::DeviceId;
use serde_json::json;
use wfm_git_host::accounts::Store;

use super::{OutputArgs, Place};
use crate::error::Failure;
use crate::fleet::Retired;
use crate::operator::retire;

/// Takes a device out of service
///
/// Writes `retired` into the device's file, comments stay, and commits that. The next `publish` then has the device remove
/// what it runs, whatever the guards say of that. Once it verifiably says that nothing is left, `publish` ends its account
/// and its SSH keys on this host, and publishes nothing more for it: the host tells it that it is retired, and it asks once
/// a day. Its repository stays, and `audit` accepts it. To take it into service again, take `retired` out of its file.
///
///   wfm-git-publisher device retire press-03
///
/// One that is broken never says that nothing is left, and a thief's never will: cut it off at once. What shall run on, as
/// when a machine is sold with it, is kept.
///
///   wfm-git-publisher device retire press-03 --now
///   wfm-git-publisher device retire press-03 --keep-workloads
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct RetireArgs {
    /// The device, by its id such as `press-01`
    id: DeviceId,

    /// Only cut it off with the next publish: what it runs runs on
    #[arg(long)]
    keep_workloads: bool,

    /// Cut it off now, whatever it runs and says
    #[arg(long)]
    now: bool,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(place: &Place, args: &RetireArgs) -> Result<u8, Failure> {
    let how = match (args.keep_workloads, args.now) {
        (true, _) => Retired::KeepWorkloads,
        (false, true) => Retired::Now,
        (false, false) => Retired::WhenEmpty,
    };
    let home = place.home()?;
    let accounts = (args.now && place.config()?.serve.is_some()).then(|| Store::new(home.accounts()));
    let done = retire(&place.work_tree()?, accounts.as_ref(), &args.id, how, Timestamp::now())?;
    let said = if done.was_there { "is retired already" } else { "is retired" };
    let then = match how {
        _ if done.is_cut_off => "it is cut off from this host now",
        Retired::WhenEmpty => {
            "what it runs goes with the next publish, and it is cut off once it says that nothing is left"
        }
        Retired::KeepWorkloads => "it is cut off with the next publish, and what it runs runs on",
        Retired::Now => "it gets nothing that shall run with the next publish",
    };
    let text = format!("{} {said} ({}): {then}\n{}", args.id, done.file, place.next_push()?);
    args.output.print(&text, || {
        json!({
            "device": args.id,
            "file": done.file,
            "retired": how.as_str(),
            "cutOff": done.is_cut_off,
            "wasThere": done.was_there,
        })
    });
    Ok(0)
}
