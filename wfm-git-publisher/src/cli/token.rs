//! `token create`, `token list`, `token revoke`.

use std::path::PathBuf;

use clap::Subcommand;
use jiff::{SignedDuration, Timestamp};
use repo_git::durable::FileError;
use repo_git::sign::openssh;
use serde_json::json;
use wfm_git_host::enrolment::Claims;

use super::{OutputArgs, Place, account, enroll, label, table};
use crate::error::{Failure, USER};
use crate::fleet::{self, Token};
use crate::operator::{NewToken, counts, create_token, revoke_token, waiting_with};

/// Batch tokens, by which many devices enrol without a code
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Create(CreateArgs),
    List(ListArgs),
    Revoke(RevokeArgs),
}

/// Makes a token for a batch of devices, and the enrolment file that they are given
///
/// Commits tokens/<NAME>.yaml with the token's public key; the private one is only in the enrolment file. It counts from the
/// next `publish` on. A device that runs `device-syncer enroll --from FILE` with it waits for `device approve --token NAME`,
/// which takes in all that wait as one commit. Whoever has the file can let devices of their own wait, as many as it is for
/// and until it ends: keep it to yourself, and end it when it isn't needed any more. Run it again if it was cut off.
///
/// With --auto a fleet that is hosted here takes its devices in while `run` is at work, without a person: then whoever has the
/// file gets devices into the fleet, as many and as what the token says. Name the serial numbers (--serials), and give it
/// hours. Where more wait than it has places, two are the same, or signers.yaml wants somebody to agree, a person decides.
///
///   wfm-git-publisher token create graz --count 50 --for 7d --id 'graz-{serial}' --out graz.json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct CreateArgs {
    /// The token's name: lower-case letters, digits and `- _`
    name: String,

    /// For how many devices
    #[arg(long, value_name = "N")]
    count: u32,

    /// For how long, like 8h or 7d; 366d at most
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    time: SignedDuration,

    /// A label of its devices; may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,

    /// The devices' ids, with {serial} where the serial number goes; where a device has none, its MAC address or key does
    #[arg(long, value_name = "TEMPLATE")]
    id: String,

    /// A file with the serial numbers that count, one a line; without it any does
    #[arg(long, value_name = "FILE")]
    serials: Option<PathBuf>,

    /// Take its devices in without a person; only for a fleet that is hosted here
    #[arg(long)]
    auto: bool,

    /// Where the enrolment file goes: a secret
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    #[command(flatten)]
    output: OutputArgs,
}

/// Lists the tokens of the fleet
///
///   wfm-git-publisher token list
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct ListArgs {
    #[command(flatten)]
    output: OutputArgs,
}

/// Ends a token
///
/// Removes its file and commits that; at this host it counts no more from now on. Devices that came by it stay, and what
/// waits by it can't be approved any more.
///
///   wfm-git-publisher token revoke graz
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct RevokeArgs {
    /// The token's name
    name: String,

    #[command(flatten)]
    output: OutputArgs,
}

fn time(text: &str) -> Result<SignedDuration, String> {
    let time = account::ttl(text)?.0.and_then(|time| SignedDuration::try_from(time).ok());
    time.filter(|time| *time <= SignedDuration::from_hours(366 * 24)).ok_or_else(|| "366d at most".to_owned())
}

pub(super) fn run(place: &Place, command: Command) -> Result<u8, Failure> {
    match command {
        Command::Create(args) => create(place, args),
        Command::List(args) => list(place, &args),
        Command::Revoke(args) => revoke(place, &args),
    }
}

fn create(place: &Place, args: CreateArgs) -> Result<u8, Failure> {
    let (home, serve, now) = (place.home()?, enroll::serve(place)?, Timestamp::now());
    let until = now.checked_add(args.time).map_err(|_| Failure::new("that is longer than time lasts"))?;
    let serials = match &args.serials {
        None => Vec::new(),
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(FileError::read(path))?;
            let lines = text.trim_start_matches('\u{feff}').lines().map(str::trim).filter(|line| !line.is_empty());
            let serials: Vec<_> = lines.map(str::to_owned).collect();
            if serials.is_empty() {
                return Err(Failure::new(format!("`{}` has no serial number", path.display())));
            }
            serials
        }
    };
    let out = std::path::absolute(&args.out)?;
    let CreateArgs { name, count, id, auto, .. } = args;
    let new = NewToken { name, count, until, labels: args.labels.into_iter().collect(), id, serials, auto, out };
    let made = create_token(&place.work_tree()?, &home, &serve, &new, now)?;
    let Token { name, count, until, file, .. } = &made.token;
    let said = if made.was_there { "was made before" } else { "is made" };
    let text = format!(
        "the token {name} {said}, for {count} devices until {until:.0}: {file}\nenrolment file, a secret: {}\n\n\
         Then here:      {}wfm-git-publisher publish\n\
         On each device: device-syncer enroll --from FILE\n\
         Then here:      {}\n",
        new.out.display(),
        if place.next_push()?.is_empty() { "" } else { "git push, or " },
        if made.token.auto {
            "nothing: `run` takes them in, and `device pending` shows whom it doesn't".to_owned()
        } else {
            format!("wfm-git-publisher device pending, and device approve --token {name}")
        },
    );
    args.output.print(
        &text,
        || json!({ "token": name, "file": file, "enrolmentFile": new.out, "until": until, "wasThere": made.was_there }),
    );
    Ok(0)
}

fn list(place: &Place, args: &ListArgs) -> Result<u8, Failure> {
    let (home, now) = (place.home()?, Timestamp::now());
    let source = place.source()?;
    let files = source.files(source.resolve("HEAD")?)?;
    let (tokens, problems) = fleet::read_tokens(&files);
    super::print_problems(&problems, "the fleet");
    let (waiting, _) = Claims::new(home.enrolments()).list(now)?;
    let devices: Vec<_> = files.iter().filter_map(|file| fleet::read_device(file).ok()).collect();
    let of = |token: &Token| {
        let has = |device: &&fleet::Device| device.enrolled_by.as_ref().is_some_and(|by| by.token == token.name);
        (devices.iter().filter(has).count(), waiting_with(waiting.clone(), &token.name).len())
    };
    let row = |token: &Token| {
        let (used, waits) = of(token);
        let until = if counts(token, now) { format!("{:.0}", token.until) } else { "ended".to_owned() };
        let used = format!("{used} of {}", token.count);
        let by = if token.auto { "the host" } else { "a person" }.to_owned();
        [token.name.clone(), used, waits.to_string(), until, by, token.id.clone(), openssh::fingerprint(&token.key)]
    };
    let head = ["TOKEN", "DEVICES", "WAIT", "UNTIL", "TAKEN IN BY", "ID", "KEY"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(tokens.values().map(row)).collect();
    let text = if tokens.is_empty() { "the fleet has no tokens\n".to_owned() } else { table(&rows) };
    args.output.print(&text, || {
        let shown = |token: &Token| {
            let (used, waits) = of(token);
            json!({
                "token": token.name, "file": token.file, "count": token.count, "devices": used, "waiting": waits,
                "until": token.until, "ended": !counts(token, now), "id": token.id, "labels": token.labels, "auto": token.auto,
                "fingerprint": openssh::fingerprint(&token.key),
            })
        };
        json!({ "tokens": tokens.values().map(shown).collect::<Vec<_>>() })
    });
    Ok(if problems.has_errors() { USER } else { 0 })
}

fn revoke(place: &Place, args: &RevokeArgs) -> Result<u8, Failure> {
    let home = place.home()?;
    home.check()?;
    let file = revoke_token(&place.work_tree()?, &home, &args.name)?;
    let text = format!("the token {} has ended: {file} is gone\n{}", args.name, place.next_push()?);
    args.output.print(&text, || json!({ "token": args.name, "file": file }));
    Ok(0)
}
