//! `audit report`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use jiff::Timestamp;
use repo_git::CommitId;
use repo_model::margo::State;
use repo_model::message::Wave;
use repo_model::report::Condition;
use repo_model::{DeviceId, text};
use serde_json::{Value, json};

use super::super::escaped;
use super::super::grouped::named;
use super::Scope;
use crate::audit::{Audit, Change, Decided, Level, Record, Transition, UNPROVEN, decisions};
use crate::error::{Failure, USER};
use crate::fleet::AllowedOnDevice;
use crate::repos::{Agreement, FleetRepo, LetPass, Signature};

/// Tells what happened: who changed what, what ran since when, and what went wrong
///
/// From device repositories alone, and only from commits in which an audit finds nothing that speaks against believing them. It
/// answers when a device ran a version: *What ran* has each, from when the device said that it was installed to when it said
/// something else; *Rollouts* has which wave released what, to whom and when. Times are those of the signers' clocks. Exit code 0 if the audit finds nothing wrong, 1 if it does; the
/// report is there all the same.
///
/// With --fleet-clone, a clone of the fleet repository with its tags, it says who agreed to each commit that was published: who
/// signed the commits since the one before, who approved it by a tag, and whether those did whom signers.yaml names; and who let
/// pass what guards held (`allow`), and why. Which commit was published is the publisher's word. Exit code 1 also if something was
/// published that isn't agreed to.
///
/// With --control it says what was decided about rollouts, and why: by the publisher's ledger, as far as keys signed it that signed
/// what was published. Exit code 1 also if somebody else signed a decision.
///
///   wfm-git-publisher audit report ../my-fleet.wfm/devices --roster roster.json
///   wfm-git-publisher audit report ../my-fleet.wfm/devices --roster roster.json --device press-01
///   wfm-git-publisher audit report ../my-fleet.wfm/devices --roster roster.json --fleet-clone .
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    #[command(flatten)]
    scope: Scope,

    /// A clone of the fleet repository: also who agreed to what was published, and who let what pass
    #[arg(long, value_name = "DIR")]
    fleet_clone: Option<PathBuf>,

    /// The form: for people who read text, or a page, or for programs
    #[arg(long, value_enum, default_value_t)]
    output: Form,
}

/// The form of a report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Form {
    #[default]
    #[value(alias = "text")]
    Markdown,
    Html,
    Json,
}

pub(super) fn run(args: &Args) -> Result<u8, Failure> {
    let (audit, start, records) = args.scope.read()?;
    let fleet = args.fleet_clone.as_ref().map(|fleet| FleetSays::read(fleet, &records)).transpose()?;
    let is_agreed = fleet.iter().flat_map(|fleet| &fleet.agreed).all(|(_, one)| one.covered != Some(false));
    let decided =
        args.scope.ledger.control.as_ref().map(|control| decided(control, &args.scope, &audit)).transpose()?;
    let is_decided = decided.iter().flatten().all(|one| one.doubt.is_none());
    let sections = || sections(&args.scope, &audit, &records, fleet.as_ref(), decided.as_deref());
    match args.output {
        Form::Json => super::super::print_json(&json!({
            "roster": start.digest,
            "from": args.scope.from,
            "to": args.scope.to,
            "good": !audit.has_errors(),
            "devices": records.iter().map(|(device, record)| json!({ "device": device, "record": record })).collect::<Vec<_>>(),
            "agreements": fleet.as_ref().map(|fleet| fleet.agreed.iter().map(as_json).collect::<Vec<_>>()),
            "letPass": fleet.as_ref().map(|fleet| &fleet.let_pass),
            "decisions": decided,
            "findings": audit.findings,
            "unproven": UNPROVEN,
        })),
        Form::Markdown => super::super::print(&markdown(&sections())),
        Form::Html => super::super::print(&html(&sections())),
    }
    Ok(if audit.has_errors() || !is_agreed || !is_decided { USER } else { 0 })
}

/// Who agreed to each commit of the fleet that was published, in the order and at the time in which any device got it first. Of
/// the first one it isn't known what was published before.
fn agreements(fleet: &Path, records: &[(DeviceId, Record)]) -> Result<Vec<(Timestamp, Agreement)>, Failure> {
    let source = FleetRepo::open(fleet)?;
    // Two of one second are told apart by their serials.
    let mut first: BTreeMap<CommitId, (Timestamp, u64)> = BTreeMap::new();
    for (_, change) in all(records, |record| &record.changes) {
        let Some(commit) = change.fleet_commit.as_ref().and_then(|id| id.parse().ok()) else { continue };
        let published = (change.time, change.serial);
        let known = first.entry(commit).or_insert(published);
        *known = published.min(*known);
    }
    let mut order: Vec<_> = first.into_iter().map(|(commit, published)| (published, commit)).collect();
    order.sort();
    let (mut before, mut agreed) = (None, Vec::new());
    for ((time, _), commit) in order {
        agreed.push((time, source.agreement(before, commit, time)?));
        before = Some(commit);
    }
    Ok(agreed)
}

/// What a clone of the fleet repository says of the commits that were published.
struct FleetSays {
    agreed: Vec<(Timestamp, Agreement)>,
    let_pass: Vec<LetPass>,
}

impl FleetSays {
    fn read(fleet: &Path, records: &[(DeviceId, Record)]) -> Result<Self, Failure> {
        let (source, agreed) = (FleetRepo::open(fleet)?, agreements(fleet, records)?);
        let (mut before, mut let_pass) = (None, Vec::new());
        for (time, Agreement { commit, .. }) in agreed.iter().filter(|(_, one)| source.has(one.commit)) {
            let_pass.extend(source.let_pass(before, *commit, *time)?);
            before = Some(*commit);
        }
        Ok(Self { agreed, let_pass })
    }
}

/// A row for each device.
fn let_pass_rows(one: &LetPass) -> Vec<[String; 6]> {
    let row = |(device, allowed): (&DeviceId, &AllowedOnDevice)| {
        let names: Vec<_> = allowed.deployments.iter().map(ToString::to_string).collect();
        let what = format!("{} on {device}, after serial {}", names.join(", "), allowed.serial);
        let (key, why) = (or_dash(one.key.clone()), or_dash(one.allowance.reason.clone()));
        [at(one.published), short(one.commit), one.author.clone(), key, what, why]
    };
    one.allowance.devices.iter().map(row).collect()
}

/// What was decided about rollouts in the time that is asked about. Decisions are of the whole fleet, whichever devices are.
fn decided(control: &Path, scope: &Scope, audit: &Audit) -> Result<Vec<Decided>, Failure> {
    let mut decided = decisions(control, &audit.publishers)
        .map_err(|error| Failure::of(&error).about(control.display().to_string()))?;
    let (from, to) = (scope.from.unwrap_or(Timestamp::MIN), scope.to.unwrap_or(Timestamp::MAX));
    decided.retain(|one| (from..to).contains(&one.time));
    Ok(decided)
}

fn covered(one: &Agreement) -> &'static str {
    match one.covered {
        Some(true) => "yes",
        Some(false) => "no",
        None => "not known",
    }
}

fn who(one: &Signature) -> String {
    one.person.clone().unwrap_or_else(|| "nobody in signers.yaml".to_owned())
}

fn as_json((time, one): &(Timestamp, Agreement)) -> Value {
    let mut value = agreement_json(one);
    value["time"] = json!(time);
    value
}

/// Who agreed to a commit of the fleet, for programs.
pub(in crate::cli) fn agreement_json(one: &Agreement) -> Value {
    let signature = |one: &Signature| {
        json!({
            "commit": one.commit.to_string(), "person": one.person, "key": one.key.fingerprint(),
            "by": if one.is_approval { "tag" } else { "commit" },
        })
    };
    json!({
        "fleetCommit": one.commit.to_string(),
        "covered": one.covered,
        "missing": one.missing,
        "signatures": one.signatures.iter().map(signature).collect::<Vec<_>>(),
    })
}

/// What somebody did to agree, and to which commit.
fn did(one: &Signature) -> String {
    format!("{} {}", if one.is_approval { "approved" } else { "signed" }, short(one.commit))
}

/// Who agreed, and how.
pub(in crate::cli) fn agreed_by(one: &Signature) -> String {
    format!("{} {}", who(one), did(one))
}

/// A row for each signature, and one where there is none.
fn agreed_rows((time, one): &(Timestamp, Agreement)) -> Vec<[String; 6]> {
    let row =
        |who: String, key: String, how: String| [at(*time), short(one.commit), covered(one).to_owned(), who, key, how];
    let signed = |signature: &Signature| row(who(signature), signature.key.fingerprint(), did(signature));
    let missing = one.missing.iter().map(|why| row("-".to_owned(), "-".to_owned(), why.clone()));
    let rows: Vec<_> = one.signatures.iter().map(signed).chain(missing).collect();
    if rows.is_empty() { vec![row("-".to_owned(), "-".to_owned(), "no signature".to_owned())] } else { rows }
}

/// A table of the report; without rows there is nothing to tell.
struct Section {
    title: &'static str,
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Section {
    fn new<const N: usize>(
        title: &'static str,
        head: [&'static str; N],
        rows: impl IntoIterator<Item = [String; N]>,
    ) -> Self {
        Self { title, head: head.to_vec(), rows: rows.into_iter().map(Vec::from).collect() }
    }
}

/// All that is listed of one kind, with the device that it is of.
fn all<'r, T: 'r>(
    records: &'r [(DeviceId, Record)],
    of: impl Fn(&'r Record) -> &'r [T],
) -> impl Iterator<Item = (&'r DeviceId, &'r T)> {
    let of = records.iter().map(move |(device, record)| (device, of(record)));
    of.flat_map(|(device, listed)| listed.iter().map(move |one| (device, one)))
}

fn at(time: Timestamp) -> String {
    format!("{time:.0}")
}

fn or_dash(text: Option<String>) -> String {
    text.filter(|text| !text.is_empty()).unwrap_or_else(|| "-".to_owned())
}

fn short(id: impl std::fmt::Display) -> String {
    id.to_string().chars().take(12).collect()
}

fn sections(
    scope: &Scope,
    audit: &Audit,
    records: &[(DeviceId, Record)],
    fleet: Option<&FleetSays>,
    decided: Option<&[Decided]>,
) -> Vec<Section> {
    let wrong = audit.findings.iter().filter(|one| one.found.kind.level == Level::Error).count();
    let about = [
        ["from".to_owned(), or_dash(scope.from.map(at))],
        ["to".to_owned(), or_dash(scope.to.map(at))],
        ["devices".to_owned(), records.len().to_string()],
        [
            "audit".to_owned(),
            if wrong == 0 { "nothing is wrong".to_owned() } else { format!("{wrong} findings, see below") },
        ],
    ];
    let runs = all(records, |record| &record.runs).map(|(device, one)| {
        let until = or_dash(one.until.map(at));
        [device.to_string(), one.deployment.clone(), one.versions.clone(), at(one.since), until, one.serial.to_string()]
    });
    // A component's own step says more than that of the whole.
    let is_trouble =
        |one: &&Transition| one.component != "*" && (one.code.is_some() || one.to == State::Failed.as_str());
    let trouble = all(records, |record| &record.transitions).filter(|(_, one)| is_trouble(one)).map(|(device, one)| {
        let what = format!("{} of {} is {}", one.component, one.deployment, one.to);
        [at(one.time), device.to_string(), what, or_dash(one.code.clone()), short(one.commit)]
    });
    let conditions = all(records, |record| &record.conditions).map(|(device, seen)| {
        let Condition { kind, reason, message } = &seen.what;
        [at(seen.time), device.to_string(), format!("{kind}: {reason}"), message.clone(), short(seen.commit)]
    });
    let gates = all(records, |record| &record.gates).map(|(device, seen)| {
        let by = seen.what.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        let of = seen.what.deployment.map_or_else(|| "everything".to_owned(), |id| id.to_string());
        let what = format!("{of}: {}{by}", seen.what.code);
        [at(seen.time), device.to_string(), what, seen.what.text.clone(), short(seen.commit)]
    });
    let findings = audit.findings.iter().map(|one| {
        let found = &one.found;
        let device = one.device.as_ref().map_or_else(|| one.repository.clone(), ToString::to_string);
        let commit = or_dash(found.commit.map(short));
        [found.kind.code.to_owned(), device, or_dash(found.branch.clone()), found.message.clone(), commit]
    });
    let changed = ["WHEN", "DEVICE", "SERIAL", "WHO", "OPERATOR'S KEY", "FLEET COMMIT", "WHAT"];
    let happened = ["WHEN", "DEVICE", "WHAT", "WHY", "COMMIT"];
    let changes = all(records, |record| &record.changes).map(|(device, one)| change(device, one));
    let rollouts = waves(records).into_iter().map(
        |(Wave { rollout, wave }, Released { first, last, devices, deployments, commits })| {
            let named = named(&devices.iter().collect::<Vec<_>>());
            let words = |all: BTreeSet<String>| or_dash(Some(all.into_iter().collect::<Vec<_>>().join(", ")));
            let (count, what, commits) = (devices.len().to_string(), words(deployments), words(commits));
            [rollout.to_string(), wave.to_string(), at(first), at(last), count, named, what, commits]
        },
    );
    let unproven = UNPROVEN.iter().map(|text| [(*text).to_owned()]);
    let head = ["WHEN", "FLEET COMMIT", "AGREED", "WHO", "KEY", "HOW"];
    let agreed = fleet.map(|fleet| Section::new("Who agreed", head, fleet.agreed.iter().flat_map(agreed_rows)));
    let head = ["WHEN", "FLEET COMMIT", "WHO", "OPERATOR'S KEY", "WHAT", "WHY"];
    let let_pass =
        fleet.map(|fleet| Section::new("What guards let pass", head, fleet.let_pass.iter().flat_map(let_pass_rows)));
    let decision = |one: &Decided| {
        let why = one.doubt.as_ref().map(|doubt| format!("NOT BELIEVED, {doubt}: {}", one.reason));
        let fleet = or_dash(one.fleet_commit.as_ref().map(short));
        let (rollout, why) = (one.rollout.to_string(), why.unwrap_or_else(|| one.reason.clone()));
        [at(one.time), rollout, one.decision.clone(), why, fleet, short(one.commit)]
    };
    let head = ["WHEN", "ROLLOUT", "DECISION", "WHY", "FLEET COMMIT", "COMMIT"];
    let decided = decided.map(|all| Section::new("Decisions about rollouts", head, all.iter().map(decision)));
    let first =
        vec![Section::new("About this report", ["", ""], about), Section::new("Who changed what", changed, changes)];
    let rest = vec![
        Section::new(
            "Rollouts",
            ["ROLLOUT", "WAVE", "FROM", "UNTIL", "DEVICES", "WHICH", "WHAT", "FLEET COMMIT"],
            rollouts,
        ),
        Section::new("What ran", ["DEVICE", "DEPLOYMENT", "VERSION", "SINCE", "UNTIL", "SERIAL"], runs),
        Section::new("Failures, waits and drift", happened, trouble),
        Section::new("Conditions and security events", happened, conditions),
        Section::new("Holds and other gates", happened, gates),
        Section::new("Findings of the audit", ["CODE", "DEVICE", "BRANCH", "WHAT", "COMMIT"], findings),
        Section::new("What this can't prove", [""], unproven),
    ];
    first.into_iter().chain(agreed).chain(let_pass).chain(decided).chain(rest).collect()
}

/// What a wave released.
struct Released {
    /// When its first and its last device got it.
    first: Timestamp,
    last: Timestamp,
    devices: BTreeSet<DeviceId>,
    deployments: BTreeSet<String>,
    /// The commits of the fleet that mean it.
    commits: BTreeSet<String>,
}

/// What each wave of each rollout released, by what the devices got.
fn waves(records: &[(DeviceId, Record)]) -> BTreeMap<Wave, Released> {
    let mut waves = BTreeMap::new();
    for (device, change) in all(records, |record| &record.changes) {
        for wave in &change.rollouts {
            let new = || Released {
                first: change.time,
                last: change.time,
                devices: BTreeSet::new(),
                deployments: BTreeSet::new(),
                commits: BTreeSet::new(),
            };
            let released = waves.entry(*wave).or_insert_with(new);
            (released.first, released.last) = (released.first.min(change.time), released.last.max(change.time));
            released.devices.insert(device.clone());
            let words = change.deployments.iter().map(|(kind, name, versions)| format!("{kind} {name} {versions}"));
            released.deployments.extend(words.map(|words| words.trim().to_owned()));
            released.commits.extend(change.fleet_commit.as_ref().map(short));
        }
    }
    waves
}

fn change(device: &DeviceId, one: &Change) -> [String; 7] {
    let words =
        one.deployments.iter().map(|(kind, name, versions)| format!("{kind} {name} {versions}").trim().to_owned());
    let rest = one.cause.iter().cloned().chain(one.continues.iter().map(|what| format!("continues {what}")));
    let rest = rest.chain(one.retired.then(|| "the device is retired".to_owned()));
    let what = or_dash(Some(words.chain(rest).collect::<Vec<_>>().join(", ")));
    let (commit, key) = (or_dash(one.fleet_commit.as_ref().map(short)), or_dash(one.operator_key.clone()));
    [at(one.time), device.to_string(), one.serial.to_string(), one.author.clone(), key, commit, what]
}

/// Whatever strangers wrote in a cell stays in it, and means nothing to who renders it.
fn markdown(sections: &[Section]) -> String {
    let cell = |cell: &String| {
        let special = |c: char| c.is_ascii_punctuation() && "\\`*_{}[]<>#|!&~".contains(c);
        text::cell(cell).chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect::<String>()
    };
    let mut page = "# Audit report\n".to_owned();
    for Section { title, head, rows } in sections {
        let _ = write!(page, "\n## {title}\n\n");
        if rows.is_empty() {
            page.push_str("Nothing.\n");
            continue;
        }
        let _ = writeln!(page, "| {} |\n|{}", head.join(" | "), "---|".repeat(head.len()));
        for row in rows {
            let _ = writeln!(page, "| {} |", row.iter().map(cell).collect::<Vec<_>>().join(" | "));
        }
    }
    page
}

fn html(sections: &[Section]) -> String {
    let escaped = |cell: &str| escaped(&text::cell(cell));
    let mut page =
        "<!DOCTYPE html>\n<meta charset=\"utf-8\">\n<title>Audit report</title>\n<h1>Audit report</h1>\n".to_owned();
    for Section { title, head, rows } in sections {
        let _ = writeln!(page, "<h2>{}</h2>", escaped(title));
        if rows.is_empty() {
            page.push_str("<p>Nothing.</p>\n");
            continue;
        }
        let line = |tag: &str, cells: &mut dyn Iterator<Item = String>| {
            format!("<tr>{}</tr>\n", cells.map(|cell| format!("<{tag}>{cell}</{tag}>")).collect::<String>())
        };
        page.push_str("<table>\n");
        page.push_str(&line("th", &mut head.iter().map(|cell| escaped(cell))));
        rows.iter().for_each(|row| page.push_str(&line("td", &mut row.iter().map(|cell| escaped(cell)))));
        page.push_str("</table>\n");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_strangers_wrote_stays_in_its_cell_in_each_form() {
        let hostile = "a | b\n## <script>alert('x')</script> [l](javascript:x) \u{1b}[2J".to_owned();
        let sections = [Section::new("T", ["X"], [[hostile]])];
        let (text, page) = (markdown(&sections), html(&sections));
        assert_eq!(text.lines().filter(|line| line.starts_with("| a ")).count(), 1, "{text}");
        assert!(text.contains("a \\| b") && !text.contains("\n## \\<") && text.contains("\\<script\\>"), "{text}");
        assert!(!page.contains("<script") && page.contains("&lt;script&gt;alert(&#39;x&#39;)"), "{page}");
        assert!(!text.contains('\u{1b}') && !page.contains('\u{1b}'));
    }
}
