//! `secret set`, `secret rotate`, `secret list`.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Read};

use clap::Subcommand;
use repo_git::age::MAX_CLEAR;
use repo_model::DeviceId;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde_json::json;

use super::{OutputArgs, Place, read_fleet, table};
use crate::error::Failure;
use crate::fleet::{Fleet, NotReadable, counted};
use crate::operator::{GivenSecret, SecretGiven, set_secret};

/// Values that only the devices which need them can read
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Set(SetArgs),
    Rotate(RotateArgs),
    List(ListArgs),
}

/// Gives a secret its value on the devices that can't read it yet
///
/// Reads the value from standard input, one final line end left out, or asks for it on a terminal and doesn't show it. Encrypts it
/// to the key of each device whose deployments have {valueFrom: {encrypted: NAME}} for a parameter, and commits
/// secrets/NAME/DEVICE.age. Only that device can read it, and nobody here: keep the value where you will find it again, for devices
/// that come later or get a new key. Whoever can read it already keeps the value; another one for all is `secret rotate`.
///
///   wfm-git-publisher secret set hello-token --device press-01 < token.txt
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct SetArgs {
    #[command(flatten)]
    value: ValueArgs,
}

/// Gives a secret another value on all devices that need it
///
/// As `secret set`, but in the place of the values that there are; also for devices that have one and don't need it. The old value
/// stays in the history of the fleet, encrypted, for whoever has a device's key: let what it opens be closed to it.
///
///   wfm-git-publisher secret rotate hello-token < token.txt
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct RotateArgs {
    #[command(flatten)]
    value: ValueArgs,
}

#[derive(Debug, clap::Args)]
struct ValueArgs {
    /// The secret's name, as {valueFrom: {encrypted: NAME}} has it
    name: String,

    /// Only for this device, whether it needs it or not; may be repeated
    #[arg(long = "device", value_name = "ID")]
    devices: Vec<DeviceId>,

    #[command(flatten)]
    output: OutputArgs,
}

/// Lists secrets, who can read them, and who needs them and can't
///
/// A device can't read a secret that was given before it came (missing), or before it got another key (other-key); its deployments
/// stay there as they are until `secret set` gives the value again.
///
///   wfm-git-publisher secret list
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct ListArgs {
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(place: &Place, command: Command) -> Result<u8, Failure> {
    match command {
        Command::Set(args) => set(place, &args.value, false),
        Command::Rotate(args) => set(place, &args.value, true),
        Command::List(args) => list(place, &args),
    }
}

fn set(place: &Place, args: &ValueArgs, replaces: bool) -> Result<u8, Failure> {
    let root = place.work_tree()?;
    let clear = value(&args.name)?;
    let given = GivenSecret { name: &args.name, clear: &clear, devices: &args.devices, replaces };
    let done = set_secret(&root, &given)?;
    let said = |(device, became): &(DeviceId, SecretGiven)| match became {
        SecretGiven::Encrypted => format!("{device} can read it\n"),
        SecretGiven::Kept => format!("{device} can read the value that it had, which stays\n"),
        SecretGiven::NotEnrolled => format!("{device} isn't enrolled yet: say it again when it is\n"),
    };
    let text = done.iter().map(said).collect::<String>() + place.next_push()?;
    args.output.print(&text, || {
        let of = |wanted: SecretGiven| -> Vec<_> {
            done.iter().filter(|(_, became)| *became == wanted).map(|(device, _)| device).collect()
        };
        json!({
            "secret": args.name, "encrypted": of(SecretGiven::Encrypted), "kept": of(SecretGiven::Kept),
            "notEnrolled": of(SecretGiven::NotEnrolled),
        })
    });
    Ok(0)
}

/// The value, as a person types it or a program gives it.
fn value(name: &str) -> Result<Vec<u8>, Failure> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return typed(name);
    }
    let mut bytes = Vec::new();
    // One more than fits, so that it is refused and not cut.
    stdin.lock().take(MAX_CLEAR as u64 + 2).read_to_end(&mut bytes)?;
    bytes.pop_if(|last| *last == b'\n');
    Ok(bytes)
}

/// Asks for it twice, and shows nothing of it.
fn typed(name: &str) -> Result<Vec<u8>, Failure> {
    let stdin = io::stdin();
    let before = tcgetattr(&stdin).map_err(io::Error::from)?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    hidden.local_modes.insert(LocalModes::ECHONL);
    tcsetattr(&stdin, OptionalActions::Flush, &hidden).map_err(io::Error::from)?;
    let ask = |prompt: &str| -> io::Result<String> {
        eprint!("{prompt}");
        let mut line = String::new();
        stdin.read_line(&mut line)?;
        Ok(line.strip_suffix('\n').map(str::to_owned).unwrap_or(line))
    };
    let both = ask(&format!("value of {name}: ")).and_then(|one| Ok((one, ask("once more: ")?)));
    tcsetattr(&stdin, OptionalActions::Flush, &before).map_err(io::Error::from)?;
    match both? {
        (one, other) if one == other => Ok(one.into_bytes()),
        _ => Err(Failure::new("these are two different values, and nothing was written")),
    }
}

/// How it stands with one secret.
#[derive(Default)]
struct Stand<'a> {
    readable: Vec<&'a DeviceId>,
    /// Who needs it and can't read it, and why.
    unreadable: Vec<(&'a DeviceId, NotReadable)>,
    /// Who has a value and doesn't need it, also if the fleet doesn't know it.
    unneeded: Vec<&'a DeviceId>,
}

impl<'a> Stand<'a> {
    fn of(fleet: &'a Fleet, name: &str, needed: &BTreeSet<&'a DeviceId>) -> Self {
        let mut stand = Self::default();
        for device in needed.iter().filter_map(|id| fleet.devices.get(*id)) {
            match fleet.secrets.of(name, device) {
                Ok(_) => stand.readable.push(&device.id),
                Err(why) => stand.unreadable.push((&device.id, why)),
            }
        }
        stand.unneeded = fleet.secrets.devices(name).filter(|id| !needed.contains(id)).collect();
        stand
    }
}

/// The most devices that are named in a row.
const MAX_NAMED: usize = 5;

fn list(place: &Place, args: &ListArgs) -> Result<u8, Failure> {
    let source = place.source()?;
    let fleet = read_fleet(&source, source.resolve("HEAD")?)?;
    let (used, none) = (fleet.used_secrets(), BTreeSet::new());
    let names: BTreeSet<_> = fleet.secrets.names().map(String::as_str).chain(used.keys().copied()).collect();
    let stands: Vec<_> =
        names.into_iter().map(|name| (name, Stand::of(&fleet, name, used.get(name).unwrap_or(&none)))).collect();
    let row = |(name, stand): &(&str, Stand<'_>)| {
        let unreadable = stand.unreadable.iter().map(|(device, why)| format!("{device} ({})", why.as_str()));
        let needed = stand.readable.len() + stand.unreadable.len();
        let readable = format!("{} of {needed}", stand.readable.len());
        let unneeded = stand.unneeded.iter().map(ToString::to_string);
        [(*name).to_owned(), readable, some(unreadable.collect()), some(unneeded.collect())]
    };
    let head = ["SECRET", "CAN READ IT", "CAN'T READ IT", "DON'T NEED IT"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(stands.iter().map(row)).collect();
    let text = if stands.is_empty() { "the fleet has no secrets\n".to_owned() } else { table(&rows) };
    args.output.print(&text, || {
        let shown = |(name, stand): &(&str, Stand<'_>)| {
            let unreadable =
                |(device, why): &(&DeviceId, NotReadable)| json!({ "device": device, "why": why.as_str() });
            json!({
                "secret": name, "readable": stand.readable, "unneeded": stand.unneeded,
                "unreadable": stand.unreadable.iter().map(unreadable).collect::<Vec<_>>(),
            })
        };
        json!({ "secrets": stands.iter().map(shown).collect::<Vec<_>>() })
    });
    Ok(0)
}

/// The first of many, and how many more there are.
fn some(all: Vec<String>) -> String {
    let rest = all.len().saturating_sub(MAX_NAMED);
    let named = all.into_iter().take(MAX_NAMED).collect::<Vec<_>>().join(", ");
    if rest == 0 { named } else { format!("{named}, and {} more", counted(rest)) }
}
