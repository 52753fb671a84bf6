//! `publish`.

use std::fmt::Write;
use std::time::Duration;

use jiff::Timestamp;
use repo_model::{DeviceId, error_chain};
use serde_json::{Value, json};

use super::{OutputArgs, Place, RegistryArgs};
use crate::error::{Failure, USER};
use crate::plan::{Allowed, GONE, GONE_HINT};
use crate::publish::{self, DeviceError, Done, Outcome, Publisher, RolloutProgress};
use crate::status::shut_out;

/// Publishes the fleet at a commit: one signed commit for each device whose desired state changes
///
/// What means the same makes no commit. A device or deployment with a problem is left as it is, and never stops the
/// others; then the exit code is 1. Tags of archives are looked up in their registries once, and mean the same for the
/// whole fleet from then on.
///
/// With a remote host in publisher.yaml everything is published here first and pushed there then; what can't be pushed
/// is told for each device, and the exit code is 1. A `desired` that someone else wrote is told, and never overwritten
/// without --reclaim.
///
///   wfm-git-publisher publish
///   wfm-git-publisher publish press-01
///   wfm-git-publisher publish --rev v12
///   wfm-git-publisher publish --reclaim press-01
///
/// An archive by URL with a `keyLocation` is published only with the vendor's signature beside it. The key is remembered
/// from its first time on; another one needs a person.
///
/// More removals than the guards of fleet.yaml allow, and a deployment whose id changed, need a person: see `plan`, and `allow`. Those
/// stay as they were published, and everything else goes on. A person is needed, too, for a clock that is before what this
/// publisher wrote, or 30 days after it, unless devices report the same time.
///
/// Where the fleet or a deployment has a `rollout`, a change goes to a few devices first, and each publish is a look at what
/// they report: it releases what may go on, and says what it waits for. With --wait it looks again and again until no rollout
/// is left (exit code 0) or one has stopped (1).
///
///   wfm-git-publisher publish --wait
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Only these devices, by id; all of the fleet where none is named
    devices: Vec<DeviceId>,

    /// The commit of the fleet
    #[arg(long, default_value = "HEAD")]
    rev: String,

    /// Remove as much as the fleet says, whatever its guards are
    #[arg(long)]
    allow_removals: bool,

    /// Let deployments take the place of others of the same application; their data is not carried
    #[arg(long)]
    allow_replace: bool,

    /// Believe a vendor's key that is another one than before
    #[arg(long)]
    allow_new_key: bool,

    /// Publish although this machine's clock seems wrong: you have looked, and it is right
    #[arg(long)]
    clock_is_right: bool,

    /// Put a new commit on the last state that was ours, in place of what someone else wrote to `desired`, and believe
    /// what the device says that it adopted; only this device is published
    #[arg(long, value_name = "DEVICE", conflicts_with = "devices")]
    reclaim: Option<DeviceId>,

    /// Look again until no rollout is left, or one has stopped
    #[arg(long, conflicts_with_all = ["devices", "reclaim"])]
    wait: bool,

    #[command(flatten)]
    registry: RegistryArgs,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(place: &Place, args: Args) -> Result<u8, Failure> {
    let rev = args.rev.clone();
    super::with_committed(place, &rev, || run_committed(place, args))
}

fn run_committed(place: &Place, args: Args) -> Result<u8, Failure> {
    let (home, source) = (place.home()?, place.published_source()?);
    let (registries, remotes) = (place.registries(&args.registry)?, place.remotes()?);
    let devices: Vec<_> = args.devices.iter().chain(&args.reclaim).cloned().collect();
    let allowed = Allowed {
        removals: args.allow_removals,
        replacements: args.allow_replace,
        new_keys: args.allow_new_key,
        clock: args.clock_is_right,
    };
    let look = || {
        super::with_options(&registries, remotes.as_ref(), &devices, allowed, |mut options| {
            options.reclaim.extend(args.reclaim.clone());
            if let Some(outcome) = publish::unchanged(&home, &source, &args.rev, &options) {
                return Ok(outcome);
            }
            Publisher::open(&home, Timestamp::now())?.publish(&source, &args.rev, &options)
        })
    };
    let mut outcome = look()?;
    let mut told = String::new();
    while args.wait && goes_on(&outcome) {
        let is_news = outcome.rollouts.as_ref().is_some_and(|rollouts| !rollouts.decided.is_empty());
        let waiting = outcome.rollouts.as_ref().map(RolloutProgress::waiting_text).unwrap_or_default();
        match args.output.is_json() {
            false if is_news => super::print(&summary(&outcome)),
            is_json if waiting != told => tell_waiting(&outcome, is_json),
            _ => {}
        }
        told = waiting;
        std::thread::sleep(LOOK);
        outcome = look()?;
    }
    place.note_hosted(&args.rev, outcome.commit)?;
    let text = summary(&outcome);
    args.output.print(&text, || outcome_json(&outcome));
    for device in &outcome.returned {
        if let Some(words) = shut_out(&home, device) {
            eprintln!("warning: {device}: {words}");
        }
    }
    let unknown = super::print_unknown(&devices, outcome.devices.keys());
    let is_stopped = args.wait && outcome.rollouts.as_ref().is_some_and(RolloutProgress::is_stopped);
    Ok(if outcome.is_complete() && !unknown && !is_stopped { 0 } else { USER })
}

/// Says what rollouts wait for; what is printed for programs is one document, so that they hear of it on standard error.
fn tell_waiting(outcome: &Outcome, is_json: bool) {
    let text = outcome.rollouts.as_ref().map(RolloutProgress::to_text).unwrap_or_default();
    if is_json { eprint!("{text}") } else { super::print(&text) }
}

/// How long `--wait` waits between two looks; one that finds nothing new reads no repository.
const LOOK: Duration = Duration::from_secs(2);

/// Whether a rollout goes on without a person's word that it isn't stopped any more.
fn goes_on(outcome: &Outcome) -> bool {
    outcome.rollouts.as_ref().is_some_and(|rollouts| !rollouts.unfinished.is_empty() && !rollouts.is_stopped())
}

/// What a pass did, for programs.
fn outcome_json(outcome: &Outcome) -> Value {
    let device = |(device, result): (&DeviceId, &Result<Done, DeviceError>)| match result {
        Ok(Done::Published { serial, commit, .. }) => {
            json!({ "device": device, "state": "published", "serial": serial, "commit": commit })
        }
        Ok(Done::Unchanged { .. } | Done::Renewed { .. }) => json!({ "device": device, "state": "unchanged" }),
        Ok(Done::NotEnrolled) => json!({ "device": device, "state": "not-enrolled" }),
        Ok(Done::Retired) => json!({ "device": device, "state": "retired" }),
        Ok(Done::Stopped) => json!({ "device": device, "state": "stopped" }),
        Err(error) => json!({ "device": device, "state": "failed", "error": error_chain(error) }),
    };
    let unpushed = outcome.remote.iter().filter_map(|(device, result)| Some((device, result.as_ref().err()?)));
    let unpushed = unpushed.map(|(device, error)| json!({ "device": device, "error": error_chain(error) }));
    let left = outcome.left.iter().map(|(device, account)| json!({ "device": device, "endedAccount": account }));
    json!({
        "commit": outcome.commit,
        "problems": super::problems_json(&outcome.problems),
        "devices": outcome.devices.iter().map(device).collect::<Vec<_>>(),
        "blocked": outcome.blocked.values().flatten().collect::<Vec<_>>(),
        "notPushed": unpushed.collect::<Vec<_>>(),
        "left": left.collect::<Vec<_>>(),
        "retired": outcome.retired,
        "rollouts": outcome.rollouts.as_ref().map(RolloutProgress::to_json),
    })
}

/// What a pass did, for people; errors go to standard error.
fn summary(outcome: &Outcome) -> String {
    super::print_problems(&outcome.problems, &format!("the fleet at {}", &outcome.commit.to_string()[..12]));
    super::print_unidentified(&outcome.unidentified);
    for error in &outcome.unresolved {
        eprint!("{}", Failure::of(error));
    }
    let mut text = String::new();
    for (device, result) in &outcome.devices {
        match result {
            Ok(Done::Published { serial, commit, .. }) => {
                let _ = writeln!(text, "{device}: serial {serial} ({})", &commit.to_string()[..12]);
            }
            Ok(_) => {}
            Err(error) => eprint!("{}", device_failure(device, error)),
        }
    }
    for device in &outcome.retired {
        let _ = writeln!(text, "{device}: retired: it is cut off from this host, and nothing more is published for it");
    }
    for (device, account) in &outcome.left {
        let account = account.iter().map(|name| format!("; its account `{name}` is ended")).collect::<String>();
        let _ = writeln!(text, "{device}: {GONE}{account}\n    {GONE_HINT}");
    }
    for (device, error) in &outcome.accounts {
        eprint!("{}", Failure::of(error).about(format!("the account of device `{device}`, which is to end")));
    }
    for (device, error) in outcome.remote.iter().filter_map(|(device, result)| Some((device, result.as_ref().err()?))) {
        eprint!("{}", Failure::of(error).about(format!("device `{device}`")));
    }
    text.extend(outcome.rollouts.as_ref().map(RolloutProgress::to_text));
    let count = |test: fn(&Done) -> bool| outcome.devices.values().flatten().filter(|done| test(done)).count();
    let unchanged = count(|done| matches!(done, Done::Unchanged { .. } | Done::Renewed { .. }));
    let waiting = count(|done| *done == Done::NotEnrolled);
    let retired = count(|done| *done == Done::Retired);
    let failed = outcome.devices.values().filter(|result| result.is_err()).count();
    let _ = write!(text, "{} published, {unchanged} unchanged", outcome.published());
    for (count, what) in [(waiting, "not enrolled"), (retired, "retired"), (failed, "failed")] {
        if count > 0 {
            let _ = write!(text, ", {count} {what}");
        }
    }
    if !outcome.remote.is_empty() {
        let unpushed = outcome.remote.values().filter(|result| result.is_err()).count();
        let _ = write!(text, "; {} pushed to the remote host", outcome.pushed());
        if unpushed > 0 {
            let _ = write!(text, ", {unpushed} not as they are here");
        }
    }
    text + "\n"
}

/// One device's error, with the device in front.
pub(super) fn device_failure(device: &DeviceId, error: &DeviceError) -> Failure {
    Failure::of(error).about(format!("device `{device}`"))
}
