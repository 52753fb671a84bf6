//! `status`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use repo_model::report::{ClosedGate, Doubt, SeenList};
use repo_model::site::SiteWord;
use repo_model::{DeviceId, Digest, ErrorCode, error_chain};
use serde_json::json;
use wfm_git_host::ca;

use super::{Output, Place};
use crate::error::{Failure, USER};
use crate::fleet;
use crate::plan::Blocked;
use crate::publish::{Findings, check_clock};
use crate::status::{DeviceStatus, Membership, SiteStatus, UNREACHABLE, fetch, read};

/// Shows what runs where, as far as signatures prove it
///
/// Per device and deployment: what is desired, what the device sees running, Margo's state, the reason, and how old the
/// news is. Only reports signed by a key that the device's verified desired state allows are believed; others, and
/// whatever a signed report says that can't be so, are shown as doubts with a word and the reason. With a remote host in
/// publisher.yaml the reports are fetched from there; what can't be fetched is a doubt, too, and what was fetched before
/// is shown. Where persons of a site are asked, what waits for them stands by the name that a word for it needs, and what
/// they said from elsewhere, as far as the device believes it. What the last publish could not publish stands below, with its code, since when, and what to do. Exit code 0
/// if it can be shown, whatever it shows.
///
///   wfm-git-publisher status
///   wfm-git-publisher status press-01 --output json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Only these devices, by id; all of the fleet where none is named
    devices: Vec<DeviceId>,

    /// Prints for people, or for programs
    #[arg(long, value_enum, default_value_t)]
    output: Output,

    /// The commit of the fleet
    #[arg(long, default_value = "HEAD")]
    rev: String,

    /// Ask no remote host: show what was fetched from it before
    #[arg(long)]
    cached: bool,
}

/// When the operator's own certificate ends; what ends soon is told.
fn certificate(place: &Place) -> Result<Option<Timestamp>, Failure> {
    let Some(path) = place.config()?.serve.and_then(|serve| serve.certificate) else { return Ok(None) };
    let expires = ca::file_expires(&path);
    if let Some(expires) = expires.filter(|expires| *expires < Timestamp::now() + ca::SOON) {
        eprintln!("warning: the host's certificate `{}` ends at {expires}; replace it before that", path.display());
    }
    Ok(expires)
}

pub(super) fn run(place: &Place, args: &Args) -> Result<u8, Failure> {
    let source = place.published_source()?;
    let commit = source.resolve(&args.rev)?;
    place.note_hosted(&args.rev, commit)?;
    let reading = fleet::read(&source.files(commit)?);
    let Some(fleet) = reading.fleet else {
        return Err(Failure::new("the fleet can't be used").problems(&reading.problems));
    };
    let home = place.home()?;
    let asked = |device: &DeviceId| args.devices.is_empty() || args.devices.contains(device);
    let fetched = match place.remotes()?.filter(|_| !args.cached) {
        Some(remotes) => fetch(&home, &remotes, &fleet, fleet.devices.keys().filter(|id| asked(id)).cloned())?,
        None => BTreeMap::new(),
    };
    let now = Timestamp::now();
    let mut all = read(&home, &fleet, now)?;
    all.retain(|status| asked(&status.device));
    for status in &mut all {
        let error = fetched.get(&status.device).and_then(|result| result.as_ref().err());
        status.doubts.extend(error.map(|error| Doubt::new(UNREACHABLE, error_chain(error))));
    }
    let findings = Findings::read(&home);
    let certificate = certificate(place)?;
    let key_ends = super::remind(&home, now)?;
    let clock = check_clock(&home, &fleet, now)?;
    if let Some(error) = &clock {
        eprint!("{}", Failure::of(error));
    }
    match args.output {
        Output::Json => super::print_json(&json!({
            "fleet": fleet.settings.id,
            "commit": commit,
            "name": fleet.settings.name,
            "certificateExpires": certificate,
            "publisherKeyEnds": key_ends,
            "clock": clock.map(|error| error.to_string()),
            "blocked": findings.of_all().collect::<Vec<_>>(),
            "devices": all,
        })),
        Output::Text => super::print(&(table(&all) + &blocked_table(&findings, &all))),
    }
    let unknown = super::print_unknown(&args.devices, all.iter().map(|status| &status.device));
    Ok(if unknown { USER } else { 0 })
}

/// The most conditions and doubts of a device that are shown.
const MAX_REMARKS: usize = 20;

/// The most deployments of a device that are shown although it shall not have them.
const MAX_GONE: usize = 20;

const HEAD: [&str; 7] = ["DEVICE", "DEPLOYMENT", "DESIRED", "ACTUAL", "STATE", "AGE", "REASON"];

fn table(all: &[DeviceStatus]) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    for status in all {
        rows.extend(device_rows(status));
    }
    super::table(&rows)
}

/// What can't be published, one line for each.
fn blocked_table(findings: &Findings, all: &[DeviceStatus]) -> String {
    let blocked: Vec<_> = findings.of_all().chain(all.iter().flat_map(|status| &status.blocked)).collect();
    if blocked.is_empty() {
        return String::new();
    }
    let dash = || "-".to_owned();
    let row = |one: &&Blocked| {
        let why = one.hint.as_ref().map_or_else(|| one.message.clone(), |hint| format!("{}; {hint}", one.message));
        [
            one.device.as_ref().map_or_else(|| "(all)".to_owned(), ToString::to_string),
            one.deployment.as_ref().map_or_else(dash, ToString::to_string),
            one.code.to_string(),
            one.since.map_or_else(dash, |since| format!("{since:.0}")),
            why,
        ]
    };
    let head = ["DEVICE", "DEPLOYMENT", "CODE", "SINCE", "REASON"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(blocked.iter().map(row)).collect();
    format!("\nNot published:\n{}", super::table(&rows))
}

fn device_rows(status: &DeviceStatus) -> Vec<[String; 7]> {
    let dash = || "-".to_owned();
    let device = status.device.to_string();
    let (wanted, gone): (Vec<_>, Vec<_>) = status.deployments.iter().partition(|row| row.desired.is_some());
    let shown = wanted.iter().chain(gone.iter().take(MAX_GONE)).map(|row| {
        [
            device.clone(),
            row.deployment.clone(),
            row.desired.clone().unwrap_or_else(|| "(gone)".to_owned()),
            row.actual.clone().unwrap_or_else(dash),
            row.state.clone().unwrap_or_else(dash),
            row.age.map_or_else(dash, shown_age),
            row.reason.clone().unwrap_or_default(),
        ]
    });
    let mut rows: Vec<_> = shown.collect();
    let remark = |text: String| [device.clone(), dash(), dash(), dash(), dash(), dash(), text];
    match status.membership {
        Membership::NotEnrolled => rows.push(remark("not enrolled".to_owned())),
        Membership::Retired | Membership::Gone => {}
        Membership::Enrolled if status.desired_serial.is_none() && status.doubts.is_empty() => {
            rows.push(remark("nothing published yet".to_owned()));
        }
        Membership::Enrolled if rows.is_empty() => rows.push(remark(String::new())),
        Membership::Enrolled => {}
    }
    rows.extend(status.remarks.iter().cloned().map(&remark));
    let conditions = status.conditions.iter().map(|one| format!("{} {}: {}", one.kind, one.reason, one.message));
    let holds = status.gates.iter().filter(|gate| gate.code == ErrorCode::Held.as_str()).map(|gate| hold(gate, status));
    let asked = status.gates.iter().filter_map(|gate| Some(asked(gate, gate.set?, status)));
    let site = status.site.iter().flat_map(site);
    let doubts = status.doubts.iter().map(|doubt| format!("doubtful: {doubt}"));
    let hidden =
        gone.len().checked_sub(MAX_GONE + 1).map(|more| format!("{} more that are gone, see --output json", more + 1));
    // What a device says at length hides no doubt about it.
    let mut rest = hidden.into_iter().chain(doubts).chain(holds).chain(asked).chain(site).chain(conditions);
    rows.extend(rest.by_ref().take(MAX_REMARKS).map(&remark));
    let more = rest.count();
    if more > 0 {
        rows.push(remark(format!("and {more} more, see --output json")));
    }
    rows
}

/// What a person of the site is asked for, by the name that a word for it needs.
fn asked(gate: &ClosedGate, set: Digest, status: &DeviceStatus) -> String {
    let row = status.deployments.iter().find(|row| Some(row.deployment_id) == gate.deployment);
    let by = gate.by.as_ref().map(|by| format!("; rejected by {by}")).unwrap_or_default();
    format!("{} waits for approval of {set}{by}", row.map_or("?", |row| &row.deployment))
}

/// What persons of the site said from elsewhere, a line for each word.
fn site(SiteStatus { seen, approvals, rejected }: &SiteStatus) -> Vec<String> {
    let SeenList { serial, expires, key, .. } = seen;
    let words = |what: &str, words: &Option<Vec<SiteWord>>| {
        let line = |one: &SiteWord| format!("its site {what} {} by {}: {}", one.set, one.by, one.why);
        words.iter().flatten().map(line).collect::<Vec<_>>()
    };
    let list = format!("its site's list is {serial}, with the key of {key}, until {expires:.0}");
    [vec![list], words("approves", approvals), words("rejects", rejected)].concat()
}

/// What the site holds. What else changes wait for is the reason of their deployments.
fn hold(gate: &ClosedGate, status: &DeviceStatus) -> String {
    let named = |id| status.deployments.iter().find(|row| row.deployment_id == id).map(|row| row.deployment.clone());
    let of = gate.deployment.map_or("everything".to_owned(), |id| named(id).unwrap_or_else(|| id.to_string()));
    let by = gate.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    let until = gate.until.map(|until| format!(" until {until:.0}")).unwrap_or_default();
    format!("{of} is held{by} since {:.0}{until}: {}", gate.since, gate.text)
}

/// An age in its largest unit.
fn shown_age(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}
