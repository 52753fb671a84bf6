//! `trace`.

use jiff::Timestamp;
use repo_git::{Commit, Person};
use repo_model::{DeviceId, text};
use serde_json::json;

use super::audit::{agreed_by, agreement_json};
use super::grouped::grouped;
use super::status::{Asked, shown_age};
use super::{OutputArgs, Place, Progress, table, threads};
use crate::error::{Failure, USER};
use crate::fleet::counted;
use crate::operator::deploy::Target;
use crate::repos::Agreement;
use crate::status::{Arrival, DeviceTrace, Moment, RolloutTrace, Trace, TraceSummary, WaveTrace, trace};

/// Shows what became of a commit of the fleet: by which rollouts, on which devices, and when
///
/// Each device is followed from the commit to the first state on its `desired` that contains it, which may be of a later commit, and from
/// there to what it verifiably said: that it accepted it, and that what came with it is installed, or failed. PUBLISHED is by the
/// publisher's clock; ACCEPTED, and DONE, when all was installed or something failed last, are by the device's own.
///
///   wfm-git-publisher trace
///   wfm-git-publisher trace HEAD -l site=graz
///   wfm-git-publisher trace HEAD --failed --output json
///
/// STATE is one of: unchanged (nothing of it is for the device), installed, accepted (and not done), published (the device didn't say
/// that it accepted it), held-back (by a rollout), pending (not published there), not-publishable, failed, unreadable, not-enrolled. A
/// line below sums up all devices that were asked for. Devices that are retired aren't followed.
///
/// Exit code 0 if it can be shown, whatever it shows; with --exit-code 1 unless every device that the commit is for has installed it
/// and is heard, and 1 if no device has the labels, or one that is named isn't in service.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The commit of the fleet
    #[arg(default_value = "HEAD")]
    commit: String,

    /// Only these devices, by id; may be given again
    #[arg(long = "device", value_name = "ID")]
    devices: Vec<DeviceId>,

    /// Only devices with these labels, as site=graz,line in (1,2),!spare
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<Target>,

    /// Only devices on which somebody has to look at it: failed, not-publishable, unreadable, or doubtful
    #[arg(long)]
    failed: bool,

    /// Exit with 1 unless every device that it is for has installed it, and is heard
    #[arg(long)]
    exit_code: bool,

    /// Ask no remote host: show what was fetched from it before
    #[arg(long)]
    cached: bool,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(place: &Place, args: &Args) -> Result<u8, Failure> {
    let (home, source) = (place.home()?, place.seen_source(&args.commit)?);
    let commit = source.commit(source.resolve(&args.commit)?)?;
    let Args { devices, selector, cached, .. } = args;
    let asked = Asked { devices, selector: selector.as_ref(), rev: "HEAD", cached: *cached };
    let seen = asked.see(place)?;
    let unknown = super::print_unknown(devices, seen.all.iter().map(|status| &status.device));
    let out_of_service = super::print_out_of_service(devices, selector.as_ref(), &seen.all);
    let progress = Progress::start("following the commit to the devices");
    let traced = trace((&home, &source), commit.id, &seen.fleet, &seen.all, threads(), Timestamp::now())?;
    drop(progress);
    let summary = TraceSummary::of(traced.devices.iter());
    let shown: Vec<_> = traced.devices.iter().filter(|one| !args.failed || one.is_failed()).collect();
    args.output.print(&page(&commit, &traced, &shown, &summary), || {
        json!({
            "commit": {
                "id": commit.id,
                "author": commit.author.name,
                "email": commit.author.email,
                "time": at(commit.commit_time),
                "subject": subject(&commit),
                "key": key(&commit),
            },
            "agreement": traced.agreement.as_ref().map(agreement_json),
            "rollouts": traced.rollouts,
            "summary": summary,
            "devices": shown,
        })
    });
    Ok(if unknown || args.exit_code && (out_of_service || !summary.is_done()) { USER } else { 0 })
}

fn at(seconds: i64) -> Option<Timestamp> {
    Timestamp::from_second(seconds).ok()
}

fn subject(commit: &Commit) -> &str {
    commit.message.lines().next().unwrap_or_default()
}

/// The key that signed it, whoever's that is.
fn key(commit: &Commit) -> Option<String> {
    commit.signer().ok().map(|key| key.fingerprint())
}

fn page(commit: &Commit, traced: &Trace, shown: &[&DeviceTrace], summary: &TraceSummary) -> String {
    let time = at(commit.commit_time).map(|time| format!(" at {time:.0}")).unwrap_or_default();
    let key = key(commit).map_or_else(|| "not signed".to_owned(), |key| format!("signed with {key}"));
    let Person { name, email } = &commit.author;
    let mut text = format!("Commit {}: {}\n", commit.id, text::line(subject(commit)));
    text += &format!("By {}{time}, {key}\n", text::line(&format!("{name} <{email}>")));
    text.extend(traced.agreement.iter().map(|one| text::line(&agreed(one)) + "\n"));
    text.extend(traced.rollouts.iter().map(rollout));
    let (there, elsewhere): (Vec<_>, Vec<_>) =
        shown.iter().copied().partition(|one: &&DeviceTrace| one.published.is_some());
    let rows: Vec<_> = there.iter().filter_map(|one| Some(row(one, one.published.as_ref()?, commit))).collect();
    if !rows.is_empty() {
        let head = ["DEVICE", "STATE", "SERIAL", "PUBLISHED", "ACCEPTED", "DONE", "HEARD", "WHY"].map(str::to_owned);
        text += &format!("\n{}", table(&std::iter::once(head).chain(rows).collect::<Vec<_>>()));
    }
    let groups = grouped(elsewhere.iter().map(|one| (one.state, one.why.as_deref().unwrap_or_default(), &one.device)));
    if !groups.is_empty() {
        text += &format!("\n{groups}");
    }
    format!("{text}\n{summary}\n")
}

fn agreed(one: &Agreement) -> String {
    let covered = match (one.covered, &one.missing) {
        (Some(true), _) => "yes",
        (_, Some(missing)) => missing,
        (_, None) => "not known",
    };
    let by: Vec<_> = one.signatures.iter().map(agreed_by).collect();
    let by = if by.is_empty() { String::new() } else { format!("; {}", by.join(", ")) };
    format!("Agreed: {covered}{by}")
}

fn rollout(one: &RolloutTrace) -> String {
    let state = one.state.map(|state| format!(" ({})", state.as_str())).unwrap_or_default();
    let wave = |wave: &WaveTrace| {
        let last = if wave.last == wave.first { String::new() } else { format!(" to {:.0}", wave.last) };
        format!("wave {} with {} at {:.0}{last}", wave.wave, counted(wave.devices), wave.first)
    };
    let held = (one.held_back > 0).then(|| format!("{} held back", counted(one.held_back)));
    let parts: Vec<_> = one.waves.iter().map(wave).chain(held).collect();
    format!("Rollout {}{state}: {}\n", one.rollout, parts.join(", "))
}

/// A device that has the commit in its `desired`.
fn row(one: &DeviceTrace, published: &Arrival, commit: &Commit) -> [String; 8] {
    let dash = || "-".to_owned();
    let moment = |moment: Option<Moment>| moment.map_or_else(dash, |moment| format!("{:.0}", moment.time));
    let serial = published.serial.map_or_else(dash, |serial| serial.to_string());
    let of = match published.fleet_commit == commit.id {
        true => String::new(),
        false => format!(" of {}", &published.fleet_commit.to_string()[..12]),
    };
    [
        one.device.to_string(),
        one.state.to_string(),
        serial + &of,
        moment(Some(published.moment)),
        moment(one.accepted),
        moment(one.installed.or(one.failed)),
        one.heard_age.map_or_else(|| "never".to_owned(), shown_age),
        one.why.clone().unwrap_or_default(),
    ]
}
