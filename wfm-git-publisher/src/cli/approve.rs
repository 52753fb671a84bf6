//! `approve`.

use std::path::PathBuf;

use jiff::Timestamp;
use serde_json::json;

use super::{OutputArgs, Place};
use crate::error::Failure;
use crate::operator::{Approved, Approving, approve};

/// Says with your own key that a commit of the fleet may be published
///
/// Makes a tag `approve/…` on the commit, which stock Git signs with your SSH key (Ed25519), and pushes it where your
/// branch goes. Who has to agree to what is in signers.yaml, as it was last published; `plan` tells what is missing. Look at
/// what it changes first: `git diff`, and `plan --rev`. Said again it is only pushed again.
///
///   wfm-git-publisher approve --key ~/.ssh/id_ed25519
///   wfm-git-publisher approve HEAD --no-push --output json   (with the key that your Git signs with)
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The commit
    #[arg(default_value = "HEAD")]
    rev: String,

    /// The file of your key, private or `.pub` with the private half in your agent; by default `user.signingKey` of Git
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,

    /// What is published now, where the commit doesn't go on from it: something is taken back, and you agree to that
    #[arg(long, value_name = "REV")]
    instead_of: Option<String>,

    /// Leave the tag here; it counts once it is where the fleet is published from
    #[arg(long)]
    no_push: bool,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(place: &Place, args: &Args) -> Result<u8, Failure> {
    let Args { rev, key, instead_of, no_push, output } = args;
    let approving = Approving { rev, instead_of: instead_of.as_deref(), key: key.as_deref(), push: !no_push };
    let approved = approve(&place.root()?, &approving, Timestamp::now())?;
    if approved.person.is_none() {
        eprintln!("warning: signers.yaml of that commit lists no such key now: {}", approved.key);
    }
    output.print(&told(&approved), || json!(approved));
    Ok(0)
}

fn told(approved: &Approved) -> String {
    let Approved { commit, subject, tag, key, person, pushed, .. } = approved;
    let person = person.as_ref().map(|person| format!(" ({person})")).unwrap_or_default();
    let pushed = match pushed {
        Some(remote) => format!("pushed to {remote}"),
        None => "not pushed".to_owned(),
    };
    format!("{}: approved: {subject}\n  {tag}, signed by {key}{person}, {pushed}\n", &commit.to_string()[..12])
}
