//! `device replace`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use repo_model::DeviceId;
use repo_model::enrolment::Code;

use super::pending::tell;
use super::{OutputArgs, Place, account, enroll};
use crate::error::Failure;
use crate::operator::{Word, approve_device};

/// Lets new hardware, or a new disk, take the place of a device
///
/// The new machine shows the code: `device-syncer enroll --from FILE` on it. Its key takes the place of the old ones in the
/// device's file, which is committed; what let the old machine in, its secret and its SSH keys, ends at once. Id, labels, serial and
/// what the fleet wants stay. What the old machine said stays, too, on `status-1` and so on, and `audit` accepts it. What
/// the old machine runs goes on there until somebody switches it off or ends it.
///
///   wfm-git-publisher device replace press-02 7M2V-D8RC
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct ReplaceArgs {
    /// The device, by its id such as `press-01`
    id: DeviceId,

    /// What the new machine shows; case and dashes don't count
    code: Code,

    /// How long the secret of the new machine's account is valid, like 90d or 12h, or `never`; the device renews it in time
    #[arg(long, value_name = "TIME", default_value = "90d", value_parser = account::ttl)]
    ttl: account::Ttl,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(place: &Place, args: ReplaceArgs) -> Result<u8, Failure> {
    let (home, serve) = (place.home()?, enroll::serve(place)?);
    let ReplaceArgs { id, code, ttl, output } = args;
    let word = Word { code, device: id, labels: BTreeMap::new(), ttl: ttl.0, replace: true };
    let done = approve_device(&place.work_tree()?, &home, &serve, &word, Timestamp::now())?;
    let said = if done.was_there { "was replaced before by" } else { "is replaced by" };
    tell(
        place,
        &word.device,
        &done,
        (said, "the old machine reaches this host no more; what it runs goes on there\n"),
        output,
    )
}
