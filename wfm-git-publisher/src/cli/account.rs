//! `account add`, `account list`, `account paths`, `account rotate`, `account revoke`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Subcommand;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use jiff::Timestamp;
use repo_git::durable;
use repo_model::{DeviceId, Digest, KeyText, error_chain};
use serde_json::json;
use wfm_git_host::accounts::{Account, AccountError, AccountName, InvalidSshKey, Issued, Role, SshKey, Store};

use super::{Output, OutputArgs, Place};
use crate::error::{Failure, USER};
use crate::fleet::PathPattern;

/// Who may use the host
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Add(AddArgs),
    List(ListArgs),
    Paths(PathsArgs),
    Rotate(RotateArgs),
    Revoke(RevokeArgs),
}

/// Makes an account and shows its secret, once
///
/// Git asks for both: the user is NAME, the password is the secret. An auditor reads every repository, an operator also
/// pushes to the fleet repository. A person of a site reads the repositories of the site's devices and pushes `site` there,
/// by which changes are approved from elsewhere. A device's account is made by `device add`; here it is made anew after it
/// was revoked.
///
/// With --path an operator's pushes may change these paths of the hosted fleet repository and nothing else. That says who
/// edits which files, not which devices these reach: a deployment's selectors may mean devices of other sites, and a device's
/// labels say what it gets. `plan` shows who is reached; signers.yaml can have others agree.
///
///   wfm-git-publisher account add audit --role auditor
///   wfm-git-publisher account add olga --role operator --ttl 30d --secret-file olga.secret
///   wfm-git-publisher account add olga --role operator --ssh-key "$(cat ~/.ssh/id_ed25519.pub)"
///   wfm-git-publisher account add audit --role auditor --certificate "$(cat audit.pin)"
///   wfm-git-publisher account add gerda --role operator --path devices/graz
///   wfm-git-publisher account add j.doe --role site --device press-01 --device press-02
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct AddArgs {
    /// The account's name: small letters, digits and `. _ -`
    name: AccountName,

    /// What it may do
    #[arg(long, value_parser = role())]
    role: Role,

    /// The device that a device's account is for; of a site, each of its devices
    #[arg(long, value_name = "ID", required_if_eq_any([("role", "device"), ("role", "site")]))]
    device: Vec<DeviceId>,

    /// A path of the fleet repository that an operator may change, as signers.yaml has them; may be repeated
    #[arg(long, value_name = "PATTERN")]
    path: Vec<PathPattern>,

    /// How long the secret is valid, like 90d or 12h, or `never`
    #[arg(long, value_name = "TIME", default_value = "90d", value_parser = ttl)]
    ttl: Ttl,

    /// Make no secret: the account comes over SSH with this key, the line of its `.pub` file. For one that is there
    /// already, add the key to it; may be repeated
    #[arg(long, value_name = "LINE", conflicts_with_all = ["ttl", "secret_file"])]
    ssh_key: Vec<KeyText>,

    /// Make no secret: over HTTPS the account comes with the TLS certificate that has this key, the SHA-256 of its
    /// SubjectPublicKeyInfo. For an account that is there already, in the place of its secret or certificate
    #[arg(long, value_name = "DIGEST", conflicts_with_all = ["ttl", "secret_file"])]
    certificate: Option<Digest>,

    #[command(flatten)]
    show: ShowArgs,
}

/// Where a new secret goes.
#[derive(Debug, clap::Args)]
struct ShowArgs {
    /// Write the secret to this file, readable by its owner only, instead of showing it
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,

    /// Prints for people, or for programs
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Lists the accounts: what they may do, and when their secrets end
///
///   wfm-git-publisher account list
///   wfm-git-publisher account list --output json | jq '.accounts[] | select(.state == "expired")'
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct ListArgs {
    /// Prints for people, or for programs
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Says which paths of the fleet repository an operator's pushes may change
///
/// In the patterns `*` is any part of one name and `**` any number of names; a directory's name is all that is below it. A
/// push is refused if any of its commits changes another path, also one that a later commit takes back, and if a merge brings or
/// throws away what others did elsewhere. A running host goes by it within a second.
///
///   wfm-git-publisher account paths olga --path devices/graz --path 'deployments/graz-*.yaml'
///   wfm-git-publisher account paths olga --all
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct PathsArgs {
    /// The account, by its name in `account list`
    name: AccountName,

    /// A path that it may change, in place of those of before; may be repeated
    #[arg(long, value_name = "PATTERN", required_unless_present = "all")]
    path: Vec<PathPattern>,

    /// It may change everything
    #[arg(long, conflicts_with = "path")]
    all: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// Gives an account a new secret and shows it, once
///
/// The old one stays valid until the new one is used for the first time, so that nobody is locked out; with --at-once it
/// ends now, which is right if it may have leaked. One that was made before and never used ends now, too. A device renews
/// its own secret by itself; for one that lost it, use `device join`.
///
///   wfm-git-publisher account rotate olga
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct RotateArgs {
    /// The account, by its name in `account list`
    name: AccountName,

    /// End the old secret now
    #[arg(long)]
    at_once: bool,

    /// How long the new secret is valid, like 90d or 12h, or `never`; by default as long as the old one
    #[arg(long, value_name = "TIME", value_parser = ttl)]
    ttl: Option<Ttl>,

    #[command(flatten)]
    show: ShowArgs,
}

/// Ends an account: a running host shuts it out within a second, its running requests included
///
///   wfm-git-publisher account revoke press-03
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct RevokeArgs {
    /// The account, by its name in `account list`
    name: AccountName,

    #[command(flatten)]
    output: OutputArgs,
}

/// Reads a role by its name.
fn role() -> impl TypedValueParser<Value = Role> {
    let about = |role| match role {
        Role::Device => "Reads its own repository and writes its `status` and `heartbeat`",
        Role::Site => "Reads the repositories of its devices and writes their `site`",
        Role::Auditor => "Reads everything",
        Role::Operator => "Reads everything and pushes to the fleet repository",
    };
    let value = |role: Role| PossibleValue::new(role.as_str()).help(about(role));
    let parser = PossibleValuesParser::new(Role::ALL.map(value));
    parser.try_map(|name| Role::ALL.into_iter().find(|role| role.as_str() == name).ok_or("no such role"))
}

/// How long a secret is valid; `None` for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ttl(pub(super) Option<Duration>);

/// Reads how long a secret is valid: from one second, for tests, to ten years.
pub(super) fn ttl(text: &str) -> Result<Ttl, String> {
    if text == "never" {
        return Ok(Ttl(None));
    }
    let units = [('d', 86_400), ('h', 3600), ('m', 60), ('s', 1)];
    let seconds =
        units.iter().find_map(|(unit, seconds)| text.strip_suffix(*unit)?.parse::<u64>().ok()?.checked_mul(*seconds));
    match seconds {
        Some(seconds) if (1..=3650 * 86_400).contains(&seconds) => Ok(Ttl(Some(Duration::from_secs(seconds)))),
        Some(_) => Err("out of range: 1s to 3650d, or `never`".to_owned()),
        None => Err("expected a number with a unit, like 90d or 12h, or `never`".to_owned()),
    }
}

pub(super) fn run(place: &Place, command: Command) -> Result<u8, Failure> {
    let home = place.home()?;
    home.check()?;
    let (store, now) = (Store::new(home.accounts()), Timestamp::now());
    match command {
        Command::Add(args) => {
            check_device(&args)?;
            if !args.ssh_key.is_empty() || args.certificate.is_some() {
                return add_keys(&store, args, now);
            }
            let AddArgs { name, role, device, path, ttl, show: to, .. } = args;
            let issued = match role {
                Role::Site => store.add_for_site(&name, device, ttl.0, now)?,
                Role::Operator => store.add_operator(&name, texts(&path), ttl.0, now)?,
                _ => store.add(&name, role, device.into_iter().next(), ttl.0, now)?,
            };
            show(&issued, &to)
        }
        Command::List(args) => run_list(&store, &args, now),
        Command::Paths(args) => {
            let paths = texts(&args.path);
            store.bind(&args.name, paths.clone())?;
            let may = if paths.is_empty() { "everything".to_owned() } else { format!("only {}", paths.join(", ")) };
            let json = || json!({ "account": args.name, "paths": paths });
            args.output.print(&format!("{} may change {may}\n", args.name), json);
            Ok(0)
        }
        Command::Rotate(args) => {
            let issued = store.rotate(&args.name, args.ttl.map(|ttl| ttl.0), args.at_once, now)?;
            show(&issued, &args.show)
        }
        Command::Revoke(args) => {
            let was_valid = store.revoke(&args.name, now)?;
            let said = if was_valid { "is revoked" } else { "was revoked before" };
            let json = || json!({ "account": args.name, "wasRevoked": !was_valid });
            args.output.print(&format!("{} {said}\n", args.name), json);
            Ok(0)
        }
    }
}

/// Lets an account in with a certificate and SSH keys, and makes it if there is none.
fn add_keys(store: &Store, args: AddArgs, now: Timestamp) -> Result<u8, Failure> {
    let keys: Vec<_> =
        args.ssh_key.into_iter().map(|key| SshKey::new(key, None, now)).collect::<Result<_, InvalidSshKey>>()?;
    match store.read(&args.name)? {
        Some(account) if account.revoked.is_none() => {
            let devices: Vec<_> = account.device.iter().chain(&account.devices).collect();
            let is_same = account.role == args.role && devices.into_iter().eq(&args.device);
            if !is_same || !args.path.is_empty() && account.paths != texts(&args.path) {
                return Err(AccountError::Exists(args.name).into());
            }
        }
        _ if args.role == Role::Site => store.add_for_site_without_secret(&args.name, args.device)?,
        _ if args.role == Role::Operator => store.add_operator_without_secret(&args.name, texts(&args.path))?,
        _ => store.add_without_secret(&args.name, args.role, args.device.into_iter().next())?,
    }
    let (mut text, mut shown) = (String::new(), Vec::new());
    for key in keys {
        let fingerprint = key.fingerprint();
        store.add_ssh_key(&args.name, key)?;
        text += &format!("{} comes over SSH, with {fingerprint}\n", args.name);
        shown.push(fingerprint);
    }
    if let Some(key) = args.certificate {
        store.take_certificate(&args.name, key, now)?;
        text += &format!("{} comes over HTTPS, with the certificate {key}\n", args.name);
    }
    match args.show.output {
        Output::Text => super::print(&text),
        Output::Json => {
            super::print_json(&json!({ "user": args.name, "sshKeys": shown, "certificate": args.certificate }))
        }
    }
    Ok(0)
}

/// Patterns as accounts keep them.
fn texts(paths: &[PathPattern]) -> Vec<String> {
    paths.iter().map(ToString::to_string).collect()
}

fn check_device(args: &AddArgs) -> Result<(), Failure> {
    if !args.path.is_empty() && args.role != Role::Operator {
        return Err(Failure::new("only an operator's account has --path"));
    }
    let device = match (args.role, args.device.as_slice()) {
        (Role::Site, _) | (Role::Auditor | Role::Operator, []) => return Ok(()),
        (Role::Device, [device]) => device,
        (Role::Device, _) => return Err(Failure::new("an account of a device has one --device")),
        (Role::Auditor | Role::Operator, _) => {
            return Err(Failure::new("only accounts of a device or a site have --device"));
        }
    };
    let name = AccountName::of(device);
    if args.name == name {
        return Ok(());
    }
    Err(Failure::new(format!("the account of device `{device}` is called `{name}`")))
}

/// Shows a secret, or writes it where only its owner can read it. Nothing else ever has it.
fn show(issued: &Issued, args: &ShowArgs) -> Result<u8, Failure> {
    let shown = match &args.secret_file {
        Some(path) => {
            write(path, issued)?;
            None
        }
        None => Some(issued.secret.reveal()),
    };
    let expires = issued.expires.map_or_else(|| "never".to_owned(), |expires| expires.to_string());
    match (args.output, shown) {
        (Output::Json, shown) => {
            let file = args.secret_file.as_ref().map(|path| path.display().to_string());
            super::print_json(&json!({
                "user": issued.name,
                "secret": shown,
                "secretFile": file,
                "expires": issued.expires,
                "endedUnused": issued.unused,
            }));
        }
        (Output::Text, Some(secret)) => {
            eprintln!("{}: this is its secret, and it isn't shown again; it expires: {expires}", issued.name);
            super::print(&format!("{secret}\n"));
        }
        (Output::Text, None) => {
            eprintln!("{}: its secret is written; it expires: {expires}", issued.name);
        }
    }
    if let (Output::Text, Some(made)) = (args.output, issued.unused) {
        eprintln!("note: the secret that was made at {made} was never used, and has ended");
    }
    Ok(0)
}

fn write(path: &Path, issued: &Issued) -> Result<(), Failure> {
    let line = format!("{}\n", issued.secret.reveal());
    let written = durable::replace_file(path, line.as_bytes(), 0o600);
    written.map_err(|error| {
        let failure = Failure::new(format!("cannot write `{}`: {error}", path.display()));
        failure.hint(format!("nobody has the secret; get another one: account rotate {}", issued.name))
    })
}

/// In which state an account is at this moment, for lists.
pub(super) fn state(account: &Account, now: Timestamp) -> &'static str {
    match account.secrets.last() {
        _ if account.revoked.is_some() => "revoked",
        None if account.certificate.is_some() => "certificate",
        None if account.valid_ssh_keys().next().is_none() => "nothing lets it in",
        None => "SSH key only",
        _ if account.secrets.iter().all(|record| record.is_expired(now)) => "expired",
        Some(record) if record.confirmed.is_some() => "in use",
        Some(_) if account.secrets.len() > 1 => "renewing",
        _ => "not used yet",
    }
}

fn run_list(store: &Store, args: &ListArgs, now: Timestamp) -> Result<u8, Failure> {
    let listing = store.list()?;
    let accounts = listing.accounts.values();
    match args.output {
        Output::Text => {
            let head = ["ACCOUNT", "ROLE", "STATE", "EXPIRES", "DEVICE", "PATHS"].map(str::to_owned);
            let rows: Vec<_> = std::iter::once(head).chain(accounts.map(|account| row(account, now))).collect();
            super::print(&super::table(&rows));
        }
        Output::Json => super::print_json(&json!({
            "accounts": accounts.map(|account| shown(account, now)).collect::<Vec<_>>(),
            "broken": listing.broken.iter().map(|error| error_chain(error)).collect::<Vec<_>>(),
        })),
    }
    listing.broken.iter().for_each(|error: &AccountError| eprint!("{}", Failure::of(error)));
    Ok(if listing.broken.is_empty() { 0 } else { USER })
}

fn row(account: &Account, now: Timestamp) -> [String; 6] {
    let expires = account.secrets.last().and_then(|record| record.expires);
    [
        account.name.to_string(),
        account.role.to_string(),
        state(account, now).to_owned(),
        expires.map_or_else(|| "never".to_owned(), |expires| expires.to_string()),
        devices(account),
        if account.paths.is_empty() { "-".to_owned() } else { account.paths.join(", ") },
    ]
}

/// The devices that it is for.
fn devices(account: &Account) -> String {
    let all: Vec<_> = account.device.iter().chain(&account.devices).map(ToString::to_string).collect();
    if all.is_empty() { "-".to_owned() } else { all.join(", ") }
}

/// An account without the digests of its secrets, which are nobody's business.
fn shown(account: &Account, now: Timestamp) -> serde_json::Value {
    let secret = |record: &wfm_git_host::accounts::Record| json!({ "created": record.created, "expires": record.expires, "confirmed": record.confirmed });
    let ssh_key =
        |key: &SshKey| json!({ "fingerprint": key.fingerprint(), "created": key.created, "ended": key.ended });
    json!({
        "name": account.name,
        "role": account.role,
        "device": account.device,
        "devices": account.devices,
        "paths": account.paths,
        "state": state(account, now),
        "revoked": account.revoked,
        "secrets": account.secrets.iter().map(secret).collect::<Vec<_>>(),
        "certificate": account.certificate.as_ref().map(|one| json!({ "key": one.sha256, "created": one.created })),
        "sshKeys": account.ssh_keys.iter().map(ssh_key).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secrets_life_is_a_number_with_a_unit() {
        let days = |days: u64| Ok(Ttl(Some(Duration::from_secs(days * 86_400))));
        assert_eq!(ttl("90d"), days(90));
        assert_eq!(ttl("48h"), days(2));
        assert_eq!(ttl("1440m"), days(1));
        assert_eq!(ttl("never"), Ok(Ttl(None)));
        for bad in ["", "90", "d", "-1d", "1w", "0s", "3651d", "99999999999999999999d", "18446744073709551615d"] {
            ttl(bad).unwrap_err();
        }
    }
}
