//! `history`.

use jiff::{SignedDuration, Timestamp};
use repo_model::DeviceId;
use repo_model::report::{ClosedGate, Condition};
use repo_model::roster::roster_path;
use serde_json::json;

use super::account::ttl;
use super::{OutputArgs, Place, read_fleet, table};
use crate::audit::finding::EPOCH_ARCHIVED;
use crate::audit::{
    self, Adoption, Archives, Change, Checkpoint, Event, Level, Options, Record, Start, Transition, What,
};
use crate::error::{Failure, USER};
use crate::repos::{Control, DeviceRepo};
use crate::status::fetch;

/// Shows what became of a device: what was published for it, and what it said, the newest first
///
/// Each line is of one signed commit of the device's repository, so that `git show` there says the same. What an audit would not
/// believe isn't shown, and told on standard error. Times are by the clocks of who signed: the publisher's on `desired`, the
/// device's own on `status`.
///
///   wfm-git-publisher history press-01
///   wfm-git-publisher history press-01 --since 2d -n 1000
///   wfm-git-publisher history press-01 --output json
///
/// Exit code 0 if all of its history can be believed, 1 if an audit finds something wrong in it.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The device, by its id such as `press-01`
    device: DeviceId,

    /// From a moment on (2026-11-23T06:00:00Z), or for so long back (12h, 2d)
    #[arg(long, value_name = "WHEN", value_parser = moment)]
    since: Option<Timestamp>,

    /// The most lines
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20)]
    limit: usize,

    /// Ask no remote host: show what was fetched from it before
    #[arg(long)]
    cached: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// What a person means by `--since`.
pub(super) fn moment(text: &str) -> Result<Timestamp, String> {
    let back = || Timestamp::now().checked_sub(SignedDuration::try_from(ttl(text).ok()?.0?).ok()?).ok();
    let found = text.parse().ok().or_else(back);
    found.ok_or_else(|| "expected a moment such as 2026-11-23T06:00:00Z, or so long back as 12h or 2d".to_owned())
}

pub(super) fn run(place: &Place, args: &Args) -> Result<u8, Failure> {
    if !args.cached {
        fetch_reports(place, &args.device)?;
    }
    let (record, is_good) = record(place, &args.device)?;
    let mut events = record.timeline();
    events.retain(|event| args.since.is_none_or(|since| event.time >= since));
    let shown: Vec<_> = events.iter().rev().take(args.limit).collect();
    args.output.print(
        &text(&shown, &record, events.len()),
        || json!({ "device": args.device, "good": is_good, "older": events.len() - shown.len(), "events": shown }),
    );
    Ok(if is_good { 0 } else { USER })
}

/// Fetches what the device said at another host, where devices talk to one; what can't be fetched is told.
fn fetch_reports(place: &Place, device: &DeviceId) -> Result<(), Failure> {
    let Some(remotes) = place.remotes()? else { return Ok(()) };
    let source = place.published_source()?;
    let fleet = read_fleet(&source, source.resolve("HEAD")?)?;
    let fetched = fetch(&place.home()?, &remotes, &fleet, std::iter::once(device.clone()), &|_, _| ())?;
    for error in fetched.values().filter_map(|result| result.as_ref().err()) {
        eprint!("{}", Failure::of(error).hint("what was fetched before is shown; --cached asks nobody"));
    }
    Ok(())
}

/// What the commits of its repository say that an audit believes, and whether it finds nothing wrong.
fn record(place: &Place, device: &DeviceId) -> Result<(Record, bool), Failure> {
    let home = place.home()?;
    let (ledger, rosters) = Control::read(&home)?;
    if DeviceRepo::open(&home, rosters.fleet(), device)?.is_none() {
        let failure = Failure::missing(format!("nothing was ever published for a device `{device}`"));
        return Err(failure.hint("`device list` lists the devices of the fleet"));
    }
    let path = roster_path(1);
    let start = Start::of(&path, rosters.files.get(&path).map_or(&[][..], Vec::as_slice))?;
    let before = Checkpoint::new(start.digest);
    let archives = Archives::noted(ledger.archived);
    let (start, now) = (&start, Timestamp::now());
    let options = Options { start, before: &before, archives: Some(&archives), now, threads: 1, keeps_records: true };
    let place = audit::Place { path: home.device(device), is_found: false };
    let mut audit = audit::audit(vec![place], options, &|_, _| {});
    for one in audit.findings.iter().filter(|one| one.found.kind.level == Level::Error) {
        let found = &one.found;
        eprint!("{}", Failure::new(format!("{}: {}", found.kind.code, found.message)).hint(found.kind.advice));
    }
    if let Some(one) = audit.findings.iter().find(|one| *one.found.kind == EPOCH_ARCHIVED) {
        eprintln!("note: older history is {}: `archive list` names the file", one.found.message);
    }
    Ok((audit.records.remove(device).unwrap_or_default(), !audit.has_errors()))
}

fn text(shown: &[&Event<'_>], record: &Record, all: usize) -> String {
    let row = |event: &&Event<'_>| {
        let commit = event.commit.to_string()[..12].to_owned();
        [format!("{:.0}", event.time), event.branch.to_string(), commit, said(&event.what, record)]
    };
    let head = ["WHEN", "BRANCH", "COMMIT", "WHAT"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(shown.iter().map(row)).collect();
    let older = all - shown.len();
    let more = if older > 0 { format!("and {older} older: -n COUNT shows more\n") } else { String::new() };
    table(&rows) + &more
}

/// An event in words.
pub(super) fn said(what: &What<'_>, record: &Record) -> String {
    let condition = |one: &Condition| format!("{}: {}", one.kind, one.reason);
    let gate = |one: &ClosedGate| {
        let of = one.deployment.map_or_else(|| "everything".to_owned(), |id| record.name(id));
        format!("{of}: {}", one.code)
    };
    match what {
        What::Published(change) => published(change),
        What::Accepted(Adoption { serial, .. }) => format!("accepted serial {serial}"),
        What::Transition(Transition { deployment, from, to, code, .. }) => {
            let code = code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default();
            format!("{deployment}: {from} > {to}{code}")
        }
        What::Condition(one) => format!("{}: {}", condition(one), one.message),
        What::ConditionCleared(one) => format!("{} cleared", condition(one)),
        What::GateClosed(one) => {
            let by = one.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
            format!("{}, gate closed{by}: {}", gate(one), one.text)
        }
        What::GateOpened(one) => format!("{}, gate opened", gate(one)),
    }
}

fn published(change: &Change) -> String {
    let fleet = change.fleet_commit.as_ref().map(|commit| commit.chars().take(12).collect::<String>());
    let key = change.operator_key.as_ref();
    let parts = [
        fleet.map(|commit| format!("fleet commit {commit}")),
        key.map(|key| format!("by {} ({key})", change.author)),
        change.cause.as_ref().map(|cause| format!("because {cause}")),
        change.retired.then(|| "the device is retired".to_owned()),
    ];
    let waves = change.rollouts.iter().map(|one| format!("rollout {} wave {}", one.rollout, one.wave));
    let parts: Vec<_> = parts.into_iter().flatten().chain(waves).collect();
    format!("published {}; {}", change.subject, parts.join(", "))
}
