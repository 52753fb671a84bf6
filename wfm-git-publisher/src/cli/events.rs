//! `events`.

use jiff::Timestamp;
use repo_model::{DeviceId, text};
use serde_json::{Value, json};

use super::history::{moment, said};
use super::status::Asked;
use super::{
    Output, Place, Progress, pause, print, print_json, print_json_line, print_unknown, read_fleet, table, threads,
};
use crate::error::{Failure, USER};
use crate::fleet::counted;
use crate::operator::deploy::Target;
use crate::status::{DeviceNews, Follower, News, RolloutEvent, RolloutStep};

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
/// With --follow and --output json each line is one JSON object. Exit code 0, or 1 if one of the devices isn't in the fleet.
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

/// One thing that happened.
struct Line {
    time: Timestamp,
    /// When, to what, by which commit, and what it is.
    cells: [String; 4],
    json: Value,
}

pub(super) fn run(place: &Place, args: &Args) -> Result<u8, Failure> {
    let Args { devices, selector, cached, .. } = args;
    let asked = Asked { devices, selector: selector.as_ref(), rev: "HEAD", cached: *cached };
    let (source, asks) = (place.published_source()?, asked.filter()?);
    let mut commit = source.resolve(asked.rev)?;
    let mut fleet = read_fleet(&source, commit)?;
    let unknown = print_unknown(devices, fleet.devices.keys());
    let mut follower = Follower::new(place.home()?, args.since);
    let mut head = vec![["WHEN", "DEVICE", "COMMIT", "WHAT"].map(str::to_owned)];
    loop {
        let progress = Progress::start("reading what happened");
        let unreachable = asked.fetch(place, &fleet, &|device| asks(&fleet, device), &progress)?;
        let meant = fleet.devices.values().filter(|device| asks(&fleet, &device.id));
        let meant = meant.map(|device| (device.id.clone(), device.status_keys.clone())).collect();
        let now = Timestamp::now();
        let news = follower.look(meant, threads(), now)?;
        drop(progress);
        for (device, doubt) in unreachable.iter().filter(|_| !head.is_empty()) {
            eprintln!("warning: {device}: {}", text::line(&doubt.message));
        }
        args.show(&mut head, &news, now);
        if !args.follow {
            return Ok(if unknown { USER } else { 0 });
        }
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
    /// Prints what is new, below the head of the table if it wasn't printed yet.
    fn show(&self, head: &mut Vec<[String; 4]>, news: &News, now: Timestamp) {
        let is_of_all = self.devices.is_empty() && self.selector.is_none();
        let rollouts = news.rollouts.iter().filter(|_| is_of_all).map(of_rollout);
        let mut lines: Vec<_> = news.devices.iter().flat_map(|one| of_device(one, now)).chain(rollouts).collect();
        lines.sort_by_key(|line| line.time);
        match self.output {
            Output::Json if self.follow => lines.iter().for_each(|line| print_json_line(&line.json)),
            Output::Json => {
                print_json(&json!({ "events": lines.into_iter().map(|line| line.json).collect::<Vec<_>>() }));
            }
            Output::Text => {
                let rows: Vec<_> = head.drain(..).chain(lines.into_iter().map(|line| line.cells)).collect();
                print(&table(&rows));
            }
        }
        head.clear();
    }
}

/// Everything new of a device.
fn of_device(news: &DeviceNews, now: Timestamp) -> Vec<Line> {
    let DeviceNews { device, recent, doubts } = news;
    let events = recent.events().map(|event| {
        let mut json = json!(event);
        json["device"] = json!(device);
        let commit = event.commit.to_string()[..12].to_owned();
        let cells = [shown(event.time), device.to_string(), commit, said(&event.what, &recent.record)];
        Line { time: event.time, cells, json }
    });
    let doubts = doubts.iter().map(|doubt| Line {
        time: now,
        cells: [shown(now), device.to_string(), "-".to_owned(), format!("doubtful: {doubt}")],
        json: json!({ "device": device, "time": now, "event": "doubtful", "what": doubt }),
    });
    events.chain(doubts).collect()
}

fn of_rollout(event: &RolloutEvent) -> Line {
    let cells = [
        shown(event.time),
        "-".to_owned(),
        "-".to_owned(),
        format!("rollout {}: {}", event.rollout, step(&event.what)),
    ];
    Line { time: event.time, cells, json: json!(event) }
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

fn shown(time: Timestamp) -> String {
    format!("{time:.0}")
}
