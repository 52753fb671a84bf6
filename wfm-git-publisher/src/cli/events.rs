//! `events`.

use jiff::Timestamp;
use repo_model::{DeviceId, Digest, text};
use serde::Deserialize;
use serde_json::{Value, json};

use super::history::{moment, said};
use super::status::Asked;
use super::{
    Output, Place, Progress, asked, more_rows, pause, print, print_json, print_json_line, print_unknown, questions,
    read_fleet, table, threads, usable_fleet,
};
use crate::error::{Failure, USER};
use crate::fleet::counted;
use crate::operator::Answer;
use crate::operator::deploy::Target;
use crate::status::{DeviceNews, Follower, News, RolloutEvent, RolloutStep, Usable};

/// Shows what happens in the fleet, the oldest first: what is published, what devices say of it, and how rollouts go
///
/// Each line is of a signed commit, as in `history`, which has one device in full: what was published, accepted and installed or
/// failed, conditions and gates that came and went, security events among them. Waves, stops and ends of rollouts are from
/// control.git, and shown where neither devices nor labels are named. With --follow it goes on, and reads only what moved; a report
/// that isn't signed by the device's key is a line `doubtful` then. Times are by the clocks of who signed.
///
///   wfm-git-publisher events --since 2h
///   wfm-git-publisher events press-01 -l site=graz --since 2026-11-26T18:00:00Z
///   wfm-git-publisher events --since 1d --output json
///   wfm-git-publisher events --follow
///
/// With --follow and --output json each line is one JSON object. Without --follow the JSON has a `cursor`, which counts for ten
/// minutes: `--after CURSOR` shows what came since, once. Exit code 0, or 1 if one of the devices isn't in the fleet.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Only of these devices, by id; all of the fleet where none is named
    devices: Vec<DeviceId>,

    /// Only of devices with these labels, as site=graz,line in (1,2),!spare
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<Target>,

    /// From a moment on (2026-11-23T06:00:00Z), or for so long back (12h, 2d)
    #[arg(long, value_name = "WHEN", value_parser = moment, default_value = "1h")]
    since: Timestamp,

    /// What came since an answer in JSON, by the cursor of that, in the place of --since
    #[arg(long, value_name = "CURSOR")]
    after: Option<Digest>,

    /// Go on, and show what happens
    #[arg(short = 'f', long)]
    follow: bool,

    /// Ask no remote host: show what was fetched from it before
    #[arg(long)]
    cached: bool,

    /// Prints for people, or for programs
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

const HEAD: [&str; 4] = ["WHEN", "DEVICE", "COMMIT", "WHAT"];

pub(super) fn run(place: &Place, args: &Args) -> Result<u8, Failure> {
    let Args { devices, selector, cached, .. } = args;
    let asked = Asked { devices, selector: selector.as_ref(), rev: "HEAD", cached: *cached };
    let mut follower = match &args.after {
        Some(cursor) => Follower::after(place.home()?, cursor).ok_or_else(|| lost(cursor))?,
        None => Follower::new(place.home()?, args.since),
    };
    let (source, asks) = (place.published_source()?, asked.filter()?);
    let mut commit = source.resolve(asked.rev)?;
    let Usable { mut fleet, .. } = usable_fleet(&place.home()?, &source, commit, None)?;
    let unknown = print_unknown(devices, fleet.devices.keys());
    let mut is_first = true;
    loop {
        let progress = Progress::start("reading what happened");
        let unreachable = asked.fetch(place, &fleet, &|device| asks(&fleet, device), &progress)?;
        let meant = fleet.devices.values().filter(|device| asks(&fleet, &device.id));
        let meant = meant.map(|device| (device.id.clone(), device.status_keys.clone())).collect();
        let now = Timestamp::now();
        let news = follower.look(meant, threads(), now)?;
        drop(progress);
        for (device, doubt) in unreachable.iter().filter(|_| is_first) {
            eprintln!("warning: {device}: {}", text::line(&doubt.message));
        }
        let events = args.events(&news, now);
        match args.output {
            Output::Json if !args.follow => print_json(&json!({ "events": events, "cursor": follower.cursor() })),
            form => print_events(&events, form, is_first),
        }
        if !args.follow {
            return Ok(if unknown { USER } else { 0 });
        }
        is_first = false;
        pause(place, *cached)?;
        let newest = source.resolve(asked.rev)?;
        if newest != commit {
            // Of a fleet that is broken the devices of before are followed.
            fleet = read_fleet(&source, newest).unwrap_or(fleet);
            commit = newest;
        }
    }
}

impl Args {
    /// What is new, the oldest first.
    fn events(&self, news: &News, now: Timestamp) -> Vec<Value> {
        let is_of_all = self.devices.is_empty() && self.selector.is_none();
        let rollouts = news.rollouts.iter().filter(|_| is_of_all).map(of_rollout);
        let mut events: Vec<_> = news.devices.iter().flat_map(|one| of_device(one, now)).chain(rollouts).collect();
        events.sort_by_key(|(time, _)| *time);
        events.into_iter().map(|(_, event)| event).collect()
    }
}

fn lost(cursor: &Digest) -> Failure {
    let failure = Failure::missing(format!("where {cursor} stood isn't known any more"));
    failure.hint("a cursor counts for ten minutes: begin anew, with `--since`")
}

/// What a host answers.
#[derive(Deserialize)]
struct Answered {
    events: Vec<Value>,
    cursor: Option<Digest>,
}

/// Prints what a host answers, and asks for what came since.
pub(super) fn follower(first: &str, form: Output) -> impl FnMut(&Answer) -> Result<asked::Next, Failure> {
    let mut is_first = true;
    move |answer| {
        let Answered { events, cursor } = asked::read(answer)?;
        print_events(&events, form, is_first);
        is_first = false;
        let cursor = cursor.ok_or_else(|| Failure::new("the host can't keep where this stands"))?;
        Ok(asked::Next::Continue(questions::after(first, &cursor)))
    }
}

/// Prints events, a line each; the first ones below the head of the table.
fn print_events(events: &[Value], form: Output, is_first: bool) {
    match form {
        Output::Json => events.iter().for_each(print_json_line),
        Output::Text => {
            let rows: Vec<_> = std::iter::once(HEAD.map(str::to_owned)).chain(events.iter().map(cells)).collect();
            print(&if is_first { table(&rows) } else { more_rows(&rows) });
        }
    }
}

/// When, to what, by which commit, and what it is.
fn cells(event: &Value) -> [String; 4] {
    let text = |key: &str| event[key].as_str().unwrap_or("-");
    let when = text("time").parse::<Timestamp>().map_or_else(|_| text("time").to_owned(), |time| format!("{time:.0}"));
    [when, text("device").to_owned(), text("commit").chars().take(12).collect(), text("message").to_owned()]
}

/// Everything new of a device.
fn of_device(news: &DeviceNews, now: Timestamp) -> Vec<(Timestamp, Value)> {
    let DeviceNews { device, recent, doubts } = news;
    let events = recent.events().map(|event| {
        let mut json = json!(event);
        (json["device"], json["message"]) = (json!(device), json!(said(&event.what, &recent.record)));
        (event.time, json)
    });
    let doubts = doubts.iter().map(|doubt| {
        let message = format!("doubtful: {doubt}");
        (now, json!({ "device": device, "time": now, "event": "doubtful", "what": doubt, "message": message }))
    });
    events.chain(doubts).collect()
}

fn of_rollout(event: &RolloutEvent) -> (Timestamp, Value) {
    let mut json = json!(event);
    json["message"] = json!(format!("rollout {}: {}", event.rollout, step(&event.what)));
    (event.time, json)
}

/// What happened to a rollout, in words.
fn step(what: &RolloutStep) -> String {
    match what {
        RolloutStep::WaveReleased { wave, devices } => format!("wave {wave} released to {}", counted(*devices)),
        RolloutStep::RolloutStopped { stop, reason, .. } => format!("stop {stop}: {reason}"),
        RolloutStep::RolloutResumed { stop } => format!("stop {stop} lifted"),
        RolloutStep::RolloutEnded { state, .. } => state.as_str().to_owned(),
    }
}
