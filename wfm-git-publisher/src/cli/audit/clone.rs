//! `audit clone`.

use std::path::PathBuf;

use repo_http::Source;
use repo_model::Digest;
use serde_json::json;

use crate::audit::clone::{
    ALLOWED_SIGNERS, CloneError, Copied, FLEET, Host, Outcome, ROSTER, clone, clone_fleet, keep,
};
use crate::cli::{OutputArgs, Progress, table};
use crate::error::{Failure, USER};

/// Clones all device repositories from the host, with an auditor's account, or fetches what is new
///
/// The host says which there are; it is not believed in anything else: the audit proves what is cloned from roster.json,
/// which is written beside the clones once and never replaced, and whose digest you have confirmed by somebody who has it from
/// elsewhere. allowed_signers, for stock Git, is the publisher's file. The fleet repository, where the host has it, becomes
/// `fleet`, for `audit report --fleet-clone`. A repository that can't be fetched holds up no other
/// one; a branch that doesn't go on from where it stood is said to be rewritten. Exit code 0 if all are as the host has them and
/// none is rewritten, 1 if not.
///
/// Over SSH this machine's own `ssh` is used, with all that you configured for it; the host has to be known to it.
///
///   wfm-git-publisher audit clone https://wfm.example clones --secret-file secret --ca-file ca.pem
///   wfm-git-publisher audit clones --roster clones/roster.json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The host, without a path: https://name[:port] or ssh://user@name[:port]
    #[arg(value_name = "URL")]
    url: String,

    /// Where the clones go; those that are there already are fetched into
    #[arg(value_name = "DIR")]
    into: PathBuf,

    /// Over HTTPS, a file with the account's secret, readable by its owner only
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,

    /// The certificate authorities that are trusted, in PEM, instead of the public ones
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,

    /// Over SSH, the private key of the account; by default those that your ssh finds
    #[arg(long, value_name = "FILE", conflicts_with_all = ["secret_file", "ca_file"])]
    identity_file: Option<PathBuf>,

    /// Over SSH, the program and its first arguments, by default `ssh`; may be repeated, a word each
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    ssh_command: Vec<String>,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(args: &Args) -> Result<u8, Failure> {
    let host = host(args)?;
    let index = host.index().map_err(|error| failure(&error))?;
    keep(&index, &args.into).map_err(|error| failure(&error))?;
    let (roster, progress) = (Digest::of(index.roster.as_bytes()), Progress::start("cloning repositories"));
    let show = |done, all| progress.show("cloning", "repositories", done, all);
    let copied = clone(&host, index.devices, &args.into, &show);
    let fleet = index.fleet.then(|| clone_fleet(&host, &args.into));
    drop(progress);
    let is_good = copied.iter().all(|one| one.error.is_none() && one.rewritten.is_empty())
        && fleet.as_ref().is_none_or(Result::is_ok);
    let of_fleet = match &fleet {
        None => String::new(),
        Some(Ok(outcome)) => {
            format!("The fleet repository, for `audit report --fleet-clone`, is {}.\n", outcome.as_str())
        }
        Some(Err(error)) => format!("The fleet repository is as it was before: {}\n", repo_model::text::line(error)),
    };
    args.output.print(&(page(args, roster, &copied) + &of_fleet), || {
        json!({
            "roster": roster,
            "rosterFile": args.into.join(ROSTER),
            "allowedSigners": args.into.join(ALLOWED_SIGNERS),
            "repositories": copied,
            "fleet": fleet.as_ref().map(|fleet| json!({
                "directory": args.into.join(FLEET),
                "outcome": fleet.as_ref().map_or(Outcome::Failed, |outcome| *outcome),
                "error": fleet.as_ref().err(),
            })),
        })
    });
    Ok(if is_good { 0 } else { USER })
}

fn host(args: &Args) -> Result<Host, Failure> {
    if args.url.starts_with("ssh://") {
        if args.secret_file.is_some() || args.ca_file.is_some() {
            return Err(Failure::new("over SSH an account has a key: --identity-file, or what your ssh finds"));
        }
        let command = if args.ssh_command.is_empty() { vec!["ssh".to_owned()] } else { args.ssh_command.clone() };
        return Ok(Host::over_ssh(&args.url, command, args.identity_file.clone())?);
    }
    let secret = args.secret_file.clone().ok_or_else(|| {
        Failure::new("over HTTPS an account has a secret").hint("name the file that has it: --secret-file FILE")
    })?;
    Ok(Host::new(&args.url, args.ca_file.as_deref(), Source::File(secret))?)
}

fn failure(error: &CloneError) -> Failure {
    let failure = Failure::of(error);
    match error {
        CloneError::Index(http) if http.status() == Some(404) => {
            failure.hint("the account has to be an auditor's or an operator's, and the host wfm-git-publisher 0.3 or newer; \
                 else clone each repository by: git clone --mirror")
        }
        CloneError::IndexOverSsh(_) => failure.hint(
            "the account has to be an auditor's or an operator's, and the host wfm-git-publisher 0.3 or newer; try it by hand: \
             ssh USER@HOST wfm-audit",
        ),
        CloneError::Roster { .. } => failure.hint(
            "find out which of them is the fleet's, by somebody who has its digest from elsewhere; never audit by the other one",
        ),
        CloneError::Layout(_) => failure.hint("use a newer wfm-git-publisher"),
        _ => failure,
    }
}

fn page(args: &Args, roster: Digest, copied: &[Copied]) -> String {
    let row = |one: &Copied| {
        let rewritten = one.rewritten.iter().map(|branch| format!("{branch} is rewritten"));
        let what = rewritten.chain(one.error.clone()).collect::<Vec<_>>().join(", ");
        [one.device.to_string(), one.repository.clone(), one.outcome.as_str().to_owned(), what]
    };
    let head = ["DEVICE", "REPOSITORY", "OUTCOME", "WHAT"].map(str::to_owned);
    let table = table(&std::iter::once(head).chain(copied.iter().map(row)).collect::<Vec<_>>());
    let failed = copied.iter().filter(|one| one.outcome == Outcome::Failed).count();
    let failed = if failed == 0 { String::new() } else { format!(", {failed} failed") };
    let into = args.into.display();
    format!(
        "{table}\n{} repositories{failed}. Have the digest of the first roster confirmed, {roster}, and then:\n  \
         wfm-git-publisher audit {into} --roster {into}/{ROSTER}\n",
        copied.len()
    )
}
