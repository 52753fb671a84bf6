//! `signers init`.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::json;

use super::{OutputArgs, Place};
use crate::error::Failure;
use crate::operator::{FirstSigner, init_signers};

/// Who has to agree to changes of the fleet
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Init(InitArgs),
}

/// Makes signers.yaml with you as the one who has to agree to everything, and commits it
///
/// From the next `publish` on nothing is published that isn't signed: by a signature on a commit (`git commit -S`), or by
/// `approve`. Add people and rules to the file then, and keep a second person or a second key, so that a lost key doesn't
/// lock the fleet.
///
///   wfm-git-publisher signers init --name anna --key ~/.ssh/id_ed25519.pub
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct InitArgs {
    /// What the file calls you; by default `user.name` of Git
    #[arg(long)]
    name: Option<String>,

    /// The file of your public key (Ed25519); by default `user.signingKey` of Git
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(place: &Place, command: &Command) -> Result<u8, Failure> {
    let Command::Init(InitArgs { name, key, output }) = command;
    let first = init_signers(&place.work_tree()?, name.as_deref(), key.as_deref())?;
    let FirstSigner { file, person, key } = &first;
    let next = place.next_push()?;
    let text = format!("{file}: {person} ({key}) has to agree to everything from the next `publish` on\n{next}");
    output.print(&text, || json!(first));
    Ok(0)
}
