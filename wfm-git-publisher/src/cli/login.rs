//! `login` and `logout`.

use std::path::PathBuf;

use repo_http::Source;
use serde_json::json;
use wfm_git_host::accounts::AccountName;

use super::{OutputArgs, Place};
use crate::error::Failure;
use crate::operator::FleetHost;

/// Logs a clone of a hosted fleet in to its host, so that commands ask there what the publisher's home knows
///
/// For operators' and auditors' accounts. `status`, `plan`, `explain`, `why-not`, `trace`, `history`, `device show`, `deployment show` and
/// `rollout` then work in the clone as beside the publisher's home. The credential is git's own: its helper keeps it, and asks for it
/// where it has none, and pushes use the same. A certificate in git's settings (http.sslCert) takes its place. --ca-file becomes git's
/// setting http.sslCAInfo for this host.
///
///   wfm-git-publisher login https://wfm.example --user olga --secret-file olga.secret --ca-file ca.pem
///   wfm-git-publisher status
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct LoginArgs {
    /// The host, as https://name[:port]; by default where the clone comes from
    url: Option<String>,

    /// The account, with --secret-file; by default git's helper knows both, or asks for them
    #[arg(long, value_name = "NAME", requires = "secret_file")]
    user: Option<AccountName>,

    /// A file with the account's secret, readable by its owner only
    #[arg(long, value_name = "FILE", requires = "user")]
    secret_file: Option<PathBuf>,

    /// The certificate authorities that are trusted, in PEM, instead of the public ones
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,

    #[command(flatten)]
    output: OutputArgs,
}

/// Has git's helper forget the account at the host of a clone, and the clone ask there no more
///
///   wfm-git-publisher logout
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct LogoutArgs {
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn login(place: &Place, args: &LoginArgs) -> Result<u8, Failure> {
    let host = FleetHost::at(&place.work_tree()?, args.url.as_deref())?;
    let secret = args.secret_file.clone().map(|file| Source::File(file).read()).transpose()?;
    let authorities = args.ca_file.as_ref().map(std::path::absolute).transpose()?;
    let account = host.login(args.user.as_ref().zip(secret), authorities.as_deref())?;
    if !account.is_kept {
        eprintln!(
            "note: git has no helper that keeps the secret, so it asks each time: git config credential.helper store, or another \
             one (git help credentials)"
        );
    }
    let ends = account.expires.map(|expires| format!("; its secret ends at {expires:.0}")).unwrap_or_default();
    let text = format!("Logged in at {} as {} ({}){ends}.\n", host.url(), account.user, account.role);
    args.output.print(&text, || {
        json!({
            "host": host.url(),
            "user": account.user,
            "role": account.role,
            "expires": account.expires,
            "kept": account.is_kept,
        })
    });
    Ok(0)
}

pub(super) fn logout(place: &Place, args: &LogoutArgs) -> Result<u8, Failure> {
    let root = place.work_tree()?;
    let Some(host) = FleetHost::of_clone(&root)? else {
        args.output.print("Nobody was logged in.\n", || json!({ "host": null }));
        return Ok(0);
    };
    host.logout()?;
    args.output.print(&format!("Logged out at {}.\n", host.url()), || json!({ "host": host.url() }));
    Ok(0)
}
