//! `device add`, `device enroll`, `device list`; what waits to be enrolled is in `pending`.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use repo_git::durable::FileError;
use repo_model::DeviceId;
use serde_json::json;
use wfm_git_host::accounts::Store;

use super::app::devices::{AppsArgs, run_apps};
use super::label::{LabelArgs, run as run_label};
use super::{
    OutputArgs, Place, Progress, account, ask, device_show, label, meant, pending, replace, restart, retire, table,
};
use crate::config::Config;
use crate::error::{Failure, USER};
use crate::fleet::{self, Device, Fleet, Retired};
use crate::operator::deploy::Target;
use crate::operator::{AddError, AddedOne, Lines, Over, Reach, add, add_many, enroll, rejoin};
use crate::repos::Remotes;

/// The devices of the fleet
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Add(AddArgs),
    Enroll(EnrollArgs),
    Join(JoinArgs),
    Replace(replace::ReplaceArgs),
    Retire(retire::RetireArgs),
    List(ListArgs),
    Show(device_show::ShowArgs),
    Label(LabelArgs),
    Apps(AppsArgs),
    Logs(ask::LogsArgs),
    Diagnostics(ask::DiagnosticsArgs),
    Retry(ask::RetryArgs),
    Sync(ask::SyncArgs),
    Restart(restart::DeviceArgs),
    Answers(ask::AnswersArgs),
    Pending(pending::PendingArgs),
    Approve(pending::ApproveArgs),
    Reject(pending::RejectArgs),
}

/// Puts a device into the fleet and writes its join file
///
/// Writes devices/<ID>.yaml and commits it, unless the device is in the fleet already; makes its repository; writes the
/// join file, which `device-syncer init --join FILE` reads on the device. Take the file there in a trusted way, and keep
/// it to yourself: it is what the device believes from then on, and where publisher.yaml has `serve:` it holds the secret
/// of the device's account on the host. Over SSH, and with a certificate, it holds no secret: the device makes a key of its own.
///
///   wfm-git-publisher device add press-03 --label site=graz --label line=2
///   wfm-git-publisher device add press-03 --over ssh
///   wfm-git-publisher device add press-03 --credentials certificate
///   wfm-git-publisher device add press-03 --out /media/usb/press-03.json
///
/// Many devices come from one list, with one commit: CSV whose first line names the columns (`id,site,line`; all but `id`
/// are labels), or JSON (`[{"id": "press-07", "labels": {"site": "graz"}}]`). Whatever is wrong in it is told before anything
/// is written. --out is a folder then.
///
///   wfm-git-publisher device add --from devices.csv --out /media/usb/join
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct AddArgs {
    /// The device's id: letters, digits and `. _ ~ -`, in parts divided by `/`
    #[arg(required_unless_present = "from")]
    id: Option<DeviceId>,

    /// A list of devices with their labels, as CSV or JSON
    #[arg(long, value_name = "FILE", conflicts_with_all = ["id", "labels"])]
    from: Option<PathBuf>,

    /// A label; may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,

    #[command(flatten)]
    file: FileArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// Where a join file goes, and how long what is in it is valid.
#[derive(Debug, clap::Args)]
struct FileArgs {
    /// Where the join file goes; by default into the publisher's home
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// How the device talks with this host; over HTTPS unless it is said. Another host's `remote.url` says it
    #[arg(long, value_name = "TRANSPORT")]
    over: Option<Transport>,

    /// What the device shows this host over HTTPS; a secret unless it is said
    #[arg(long, value_name = "KIND")]
    credentials: Option<Credentials>,

    /// How long the secret of the device's account is valid, like 90d or 12h, or `never`; the device renews it in time
    #[arg(long, value_name = "TIME", default_value = "90d", value_parser = account::ttl)]
    ttl: account::Ttl,
}

/// How a device talks with the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Transport {
    /// With a secret, which is in the join file
    Https,
    /// With a key of the device's own; needs `serve: ssh:` in publisher.yaml
    Ssh,
}

/// What a device shows over HTTPS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Credentials {
    /// The secret of its account, which is in the join file
    Secret,
    /// A TLS certificate with a key of the device's own; not through a proxy that ends TLS
    Certificate,
}

/// Writes a device's join file anew: because it was lost, or because the device is to join again
///
/// A device changes between HTTPS and SSH, and between a secret and a certificate, in the same way. Over HTTPS the file has a new secret. One in a join file that was never used ends now; the one that the device uses
/// ends when it uses the new one, or now with --at-once, which is right if it may have leaked.
///
///   wfm-git-publisher device join press-03 --out /media/usb/press-03.json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct JoinArgs {
    /// The device, by its id such as `press-01`
    id: DeviceId,

    /// End the secret that the device uses now
    #[arg(long)]
    at_once: bool,

    #[command(flatten)]
    file: FileArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// Writes a device's public keys into its file, so that its reports are believed
///
/// LINE is what `device-syncer init` printed on the device; `-` reads it from standard input. The key goes into
/// `statusKeys` of the device's file, comments stay, and that is committed. Over SSH there is a second line, which `-` takes
/// as well: the key with which the device asks the host. It goes into `sshKeys` of the file and, where this publisher is
/// the host, into the device's account, and is replaced with the first. With a certificate the second line has the digest of its
/// key, which goes into the device's account alone. The next `publish` gives the device its first desired state.
///
///   wfm-git-publisher device enroll press-03 'ssh-ed25519 AAAA… press-03'
///   ssh press-03 sudo device-syncer init --join - < press-03.json > press-03.line
///   wfm-git-publisher device enroll press-03 - < press-03.line
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct EnrollArgs {
    /// The device, by its id such as `press-01`
    id: DeviceId,

    /// The line with its public key, or `-`
    line: String,

    /// The line with its SSH key, where LINE isn't `-`
    #[arg(long, value_name = "LINE")]
    ssh_key: Option<String>,

    /// Replace the keys that are there: for a new disk, or after a key was lost
    #[arg(long)]
    replace: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// Lists the devices of the fleet
///
///   wfm-git-publisher device list
///   wfm-git-publisher device list -l site=graz
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct ListArgs {
    /// Only devices with these labels, as site=graz,line in (1,2),!spare
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<Target>,

    /// The commit of the fleet
    #[arg(long, default_value = "HEAD")]
    rev: String,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(place: &Place, command: Command) -> Result<u8, Failure> {
    match command {
        Command::Add(args) => run_add(place, args),
        Command::Enroll(args) => run_enroll(place, &args),
        Command::Join(args) => run_join(place, args),
        Command::Replace(args) => replace::run(place, args),
        Command::Retire(args) => retire::run(place, &args),
        Command::List(args) => run_list(place, &args),
        Command::Show(args) => device_show::run(place, &args),
        Command::Label(args) => run_label(place, &args),
        Command::Apps(args) => run_apps(place, &args),
        Command::Logs(args) => ask::run_logs(place, &args),
        Command::Diagnostics(args) => ask::run_diagnostics(place, &args),
        Command::Retry(args) => ask::run_retry(place, &args),
        Command::Sync(args) => ask::run_sync(place, &args),
        Command::Restart(args) => restart::run_device(place, &args),
        Command::Answers(args) => ask::run_answers(place, &args),
        Command::Pending(args) => pending::run(place, &args),
        Command::Approve(args) => pending::run_approve(place, args),
        Command::Reject(args) => pending::run_reject(place, &args),
    }
}

fn run_add(place: &Place, args: AddArgs) -> Result<u8, Failure> {
    let labels: BTreeMap<_, _> = args.labels.into_iter().collect();
    let out = args.file.out.as_ref().map(std::path::absolute).transpose()?;
    let config = place.config()?;
    let remotes = place.remotes()?;
    let reach = reach(&config, remotes.as_ref(), &args.file, false)?;
    let Some(id) = args.id else {
        let list = args.from.unwrap_or_default();
        return run_add_many(place, &list, reach, out.as_deref(), args.output);
    };
    let added = add(&place.work_tree()?, &place.home()?, &id, &labels, reach, out)?;
    let said = if added.was_there { "is in the fleet already" } else { "is in the fleet now" };
    let text = format!(
        "{} {said}: {}\njoin file: {}\n\nOn the device: device-syncer init --join FILE\n\
         Then here:     wfm-git-publisher device enroll {} 'what it prints'\n{}",
        id,
        added.file,
        added.join.display(),
        id,
        place.next_push()?,
    );
    let json = || json!({ "device": id, "file": added.file, "joinFile": added.join, "wasThere": added.was_there });
    args.output.print(&text, json);
    Ok(0)
}

/// The devices of a list; where the list is wrong, nothing is written.
fn run_add_many(
    place: &Place,
    list: &Path,
    reach: Reach<'_>,
    out: Option<&Path>,
    output: OutputArgs,
) -> Result<u8, Failure> {
    let bytes = std::fs::read(list).map_err(FileError::read(list))?;
    let listed = fleet::read_device_list(&list.display().to_string(), &bytes).map_err(AddError::List)?;
    let progress = Progress::start("adding devices");
    let show = |done, all| progress.show("writing", "join files", done, all);
    let added = add_many(&place.work_tree()?, &place.home()?, &listed, reach, out, &show)?;
    drop(progress);
    let row = |one: &AddedOne| {
        let said = if one.was_there { "was there" } else { "new" };
        [one.device.to_string(), said.to_owned(), one.file.clone(), one.join.display().to_string()]
    };
    let rows = std::iter::once(["DEVICE", "IN THE FLEET", "FILE", "JOIN FILE"].map(str::to_owned));
    let rows: Vec<_> = rows.chain(added.iter().map(row)).collect();
    let text = format!(
        "{}\nOn each device: device-syncer init --join FILE\n\
         Then here:      wfm-git-publisher device enroll ID 'what it prints'\n{}",
        table(&rows),
        place.next_push()?,
    );
    output.print(&text, || {
        let shown = |one: &AddedOne| {
            json!({ "device": one.device, "file": one.file, "joinFile": one.join, "wasThere": one.was_there })
        };
        json!({ "devices": added.iter().map(shown).collect::<Vec<_>>() })
    });
    Ok(0)
}

fn run_join(place: &Place, args: JoinArgs) -> Result<u8, Failure> {
    let out = args.file.out.as_ref().map(std::path::absolute).transpose()?;
    let config = place.config()?;
    let remotes = place.remotes()?;
    let reach = reach(&config, remotes.as_ref(), &args.file, args.at_once)?;
    let join = rejoin(&place.work_tree()?, &place.home()?, &args.id, reach, out)?;
    let json = || json!({ "device": args.id, "joinFile": join });
    args.output.print(&format!("join file: {}\n", join.display()), json);
    Ok(0)
}

/// Elsewhere if devices talk to another host, as it is asked for if this publisher is one.
fn reach<'a>(
    config: &'a Config,
    remotes: Option<&'a Remotes>,
    file: &FileArgs,
    at_once: bool,
) -> Result<Reach<'a>, Failure> {
    let over = match (file.over, file.credentials) {
        (Some(Transport::Ssh), Some(_)) => {
            return Err(Failure::new("--credentials is for HTTPS: over SSH a key says who asks"));
        }
        (Some(Transport::Ssh), None) => Over::Ssh,
        (_, Some(Credentials::Certificate)) => Over::Certificate,
        _ => Over::Https { ttl: file.ttl.0, at_once },
    };
    if at_once && !matches!(over, Over::Https { .. }) {
        return Err(Failure::new("--at-once is about a secret, and with a certificate or over SSH there is none")
            .hint("end a device's key with `device enroll --replace`, or all it has with `account revoke`"));
    }
    match (remotes, &config.serve) {
        (Some(_), _) if file.over.is_some() || file.credentials.is_some() => {
            Err(Failure::new("--over and --credentials are for this host, and devices talk to another")
                .hint("`remote: url:` in publisher.yaml says how they do"))
        }
        (Some(remotes), _) => Ok(Reach::Elsewhere(remotes)),
        (None, Some(serve)) => Ok(Reach::Host { serve, over }),
        (None, None) if matches!(over, Over::Certificate) => Err(Failure::new("this publisher is no host")
            .hint("write `serve:` with `names:` into publisher.yaml in the publisher's home")),
        (None, None) if matches!(over, Over::Ssh) => Err(Failure::new(
            "this publisher is no host that is reached over SSH",
        )
        .hint("write `serve:` with `names:` and `ssh: {listen: …}` into publisher.yaml in the publisher's home")),
        (None, None) => Ok(Reach::Path),
    }
}

fn run_enroll(place: &Place, args: &EnrollArgs) -> Result<u8, Failure> {
    let mut text = args.line.clone();
    if text == "-" {
        text.clear();
        std::io::stdin().lock().take(32_768).read_to_string(&mut text)?;
    }
    let two = || Failure::new("there is more than one line of a kind").hint("give those of one device, by hand");
    let mut lines = Lines::find(&text).ok_or_else(two)?;
    match &args.ssh_key {
        Some(_) if lines.ssh.is_some() => return Err(two()),
        Some(line) => lines.ssh = Some(line.trim().to_owned()),
        None => {}
    }
    let home = place.home()?;
    let accounts = place.config()?.serve.is_some().then(|| Store::new(home.accounts()));
    let enrolled = enroll(&place.work_tree()?, &home, accounts.as_ref(), &args.id, &lines, args.replace)?;
    let said = if enrolled.was_there { "is enrolled already with" } else { "is enrolled with" };
    let over: String = enrolled.ssh_fingerprint.iter().map(|key| format!(", over SSH with {key}")).collect();
    let by: String = enrolled.certificate.iter().map(|key| format!(", and comes with the certificate {key}")).collect();
    let next = place.next_push()?;
    let text = format!("{} {said} {}{over}{by} ({})\n{next}", args.id, enrolled.fingerprint, enrolled.file);
    args.output.print(&text, || {
        json!({
            "device": args.id,
            "file": enrolled.file,
            "fingerprint": enrolled.fingerprint,
            "sshFingerprint": enrolled.ssh_fingerprint,
            "certificate": enrolled.certificate,
            "wasThere": enrolled.was_there,
        })
    });
    Ok(0)
}

fn run_list(place: &Place, args: &ListArgs) -> Result<u8, Failure> {
    let source = place.source()?;
    let reading = fleet::read(&source.files(source.resolve(&args.rev)?)?);
    super::print_problems(&reading.problems, "the fleet");
    let is_meant = meant(args.selector.as_ref())?;
    let devices = reading.fleet.iter().flat_map(Fleet::all_devices);
    let devices: Vec<_> = devices.filter(|device| is_meant(device)).collect();
    let row = |device: &&Device| {
        let labels: Vec<_> = device.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let enrolled = match device.retired {
            Some(_) => "retired",
            None if device.is_enrolled() => "enrolled",
            None => "not enrolled",
        };
        [device.id.to_string(), enrolled.to_owned(), labels.join(",")]
    };
    let head = ["DEVICE", "STATE", "LABELS"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(devices.iter().map(row)).collect();
    args.output.print(&super::table(&rows), || {
        let shown = |device: &&Device| {
            let retired = device.retired.map(Retired::as_str);
            json!({
                "device": device.id,
                "file": device.file,
                "enrolled": device.is_enrolled(),
                "retired": retired,
                "labels": device.labels,
            })
        };
        json!({ "devices": devices.iter().map(shown).collect::<Vec<_>>() })
    });
    Ok(if reading.problems.has_errors() { USER } else { 0 })
}
