//! `trust switch`.

use serde_json::json;

use super::super::{OutputArgs, Place};
use crate::error::Failure;
use crate::operator::trust::switch_authority;

/// Has this home's host show certificates of its other authority
///
/// The newest roster has to name it (`trust propose --new-authority`). A device that doesn't have that roster yet asks the host for
/// it, and follows it: but a device of a version before 0.3 can't, and is cut off until somebody brings it a join file. So wait
/// until `status` shows that all have it. A host that runs shows the new certificate within seconds. Said again, it goes back.
/// Exit code 0.
///
///   wfm-git-publisher trust switch
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct SwitchArgs {
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(place: &Place, args: &SwitchArgs) -> Result<u8, Failure> {
    let home = place.home()?;
    let version = switch_authority(&home)?;
    let text = format!(
        "the host shows certificates of {} from now on, which roster {version} names\n\
         Once all works: wfm-git-publisher trust propose --only-authority\n",
        home.ca().join("ca.pem").display()
    );
    args.output.print(&text, || json!({ "authority": home.ca().join("ca.pem"), "version": version }));
    Ok(0)
}
