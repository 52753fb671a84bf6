//! `rollout pause`, `approve`, `resume` and `promote`.

use std::collections::BTreeSet;

use repo_model::DeviceId;
use serde_json::json;

use super::super::{OutputArgs, Place, asked, questions, read_fleet};
use super::show::unknown;
use crate::error::Failure;
use crate::fleet::{Promoted, RolloutWords};
use crate::operator::{FleetHost, RolloutSaid, RolloutWord, say};
use crate::repos::Home;
use crate::rollout::{Phase, Record, RolloutState};
use crate::status::{RolloutStatus, approval, rollouts};

/// Releases nothing more of a rollout
///
/// Writes `paused: true` into rollouts/NUMBER.yaml, comments stay, and commits that. Who has the change keeps it: a `git
/// revert` of the change takes it back. --end goes on with it.
///
///   wfm-git-publisher rollout pause 12
///   wfm-git-publisher rollout pause 12 --end
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct PauseArgs {
    /// The number of the rollout, as `rollout list` shows it
    number: u32,

    /// The rollout goes on
    #[arg(long)]
    end: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// Agrees to the next wave of a rollout that needs it
///
/// For a policy that has `approve` among its waves. Writes `approved` into rollouts/NUMBER.yaml, and commits that: up to the wave
/// that it waits for, or will.
///
///   wfm-git-publisher rollout approve 12
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct ApproveArgs {
    /// The number of the rollout, as `rollout list` shows it
    number: u32,

    /// The waves up to this one; by default up to the next one that needs it
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    wave: Option<u32>,

    #[command(flatten)]
    output: OutputArgs,
}

/// Lifts the stop of a rollout; what failed until then is accepted
///
/// Writes `resumed` with the stop's number into rollouts/NUMBER.yaml, and commits that. It lifts this stop and no later one.
///
///   wfm-git-publisher rollout resume 12
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct ResumeArgs {
    /// The number of the rollout, as `rollout list` shows it
    number: u32,

    /// The number of the stop; by default the one that isn't lifted
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    stop: Option<u32>,

    #[command(flatten)]
    output: OutputArgs,
}

/// Releases the rest of a rollout now, or some devices, in spite of waves and failures
///
/// Writes `promoted` into rollouts/NUMBER.yaml, and commits that. A `disruptionBudget` still counts.
///
///   wfm-git-publisher rollout promote 12 press-01
///   wfm-git-publisher rollout promote 12
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct PromoteArgs {
    /// The number of the rollout, as `rollout list` shows it
    number: u32,

    /// Only these devices, by id; all the rest where none is named
    devices: Vec<DeviceId>,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn pause(place: &Place, args: &PauseArgs) -> Result<u8, Failure> {
    let rollout = open(place, args.number)?;
    let (then, what) = match args.end {
        true => ("it goes on with the next publish", "it goes on"),
        false => ("nothing more of it is released", ""),
    };
    write(place, args.number, rollout.as_ref(), &RolloutWord::Paused(!args.end), (then, what), args.output)
}

pub(super) fn approve(place: &Place, args: &ApproveArgs) -> Result<u8, Failure> {
    let rollout = open(place, args.number)?;
    let next = || {
        let open = rollout.as_ref().ok_or_else(|| nowhere("--wave"))?;
        open.approval(place)?.ok_or_else(|| needs_none(args.number))
    };
    let wave = args.wave.map_or_else(next, Ok)?;
    let what = format!("wave {wave} comes");
    let then = format!("{what} once the ones before are well");
    write(place, args.number, rollout.as_ref(), &RolloutWord::Approved(wave), (&then, &what), args.output)
}

pub(super) fn resume(place: &Place, args: &ResumeArgs) -> Result<u8, Failure> {
    let rollout = open(place, args.number)?;
    let open = || {
        let open = rollout.as_ref().ok_or_else(|| nowhere("--stop"))?;
        open.state().open_stop().ok_or_else(|| Failure::new(format!("rollout {} isn't stopped", args.number)))
    };
    let stop = args.stop.map_or_else(open, Ok)?;
    let then = format!("stop {stop} is lifted with the next publish, and what failed until then is accepted");
    let what = format!("stop {stop} is lifted");
    write(place, args.number, rollout.as_ref(), &RolloutWord::Resumed(stop), (&then, &what), args.output)
}

pub(super) fn promote(place: &Place, args: &PromoteArgs) -> Result<u8, Failure> {
    let rollout = open(place, args.number)?;
    let devices: BTreeSet<_> = args.devices.iter().cloned().collect();
    let strangers = |open: &Open| devices.iter().find(|device| !open.has(device)).cloned();
    if let Some(stranger) = rollout.as_ref().and_then(strangers) {
        return Err(Failure::new(format!("`{stranger}` is no device of rollout {}", args.number)));
    }
    let word = if devices.is_empty() { RolloutWord::PromotedAll } else { RolloutWord::Promoted(devices) };
    let (then, what) = ("they are released with the next publish", "they are released");
    write(place, args.number, rollout.as_ref(), &word, (then, what), args.output)
}

/// What is known of a rollout that didn't end.
enum Open {
    /// By what is remembered here.
    Here(Record),
    /// By what its host answers.
    There(RolloutStatus),
}

impl Open {
    fn state(&self) -> &RolloutState {
        match self {
            Self::Here(record) => &record.state,
            Self::There(status) => &status.state,
        }
    }

    fn has(&self, device: &DeviceId) -> bool {
        match self {
            Self::Here(record) => record.members.contains_key(device),
            Self::There(status) => status.devices.contains_key(device),
        }
    }

    /// The wave that a person has to agree to next; `None` if no `approve` is ahead.
    fn approval(&self, place: &Place) -> Result<Option<u32>, Failure> {
        match self {
            Self::Here(record) => {
                let source = place.published_source()?;
                let fleet = read_fleet(&source, source.resolve("HEAD")?)?;
                Ok(approval(&place.home()?, &fleet, record))
            }
            Self::There(status) => Ok(status.approval),
        }
    }
}

/// The rollout, which must not have ended. `None` where the publisher's home isn't here and no host is asked, so that nobody can tell.
fn open(place: &Place, number: u32) -> Result<Option<Open>, Failure> {
    let home: Home = place.home()?;
    if home.check_ledger().is_err() {
        let Some(host) = FleetHost::of_clone(&place.root()?)? else {
            eprintln!("note: the publisher's home isn't here, so nobody checks whether there is a rollout {number}");
            return Ok(None);
        };
        let said = asked::ask(&host, &questions::rollout(number))?;
        eprintln!("note: asked {}", host.url());
        let status: RolloutStatus = asked::read(&said)?;
        if let Some(failure) = ended(&status.state) {
            return Err(failure);
        }
        return Ok(Some(Open::There(status)));
    }
    let mut all = rollouts(&home)?;
    match all.open.remove(&number) {
        Some(record) => Ok(Some(Open::Here(record))),
        None => Err(all.ended.get(&number).and_then(ended).unwrap_or_else(|| unknown(number))),
    }
}

/// Why nothing more is said of a rollout that ended.
fn ended(state: &RolloutState) -> Option<Failure> {
    let number = state.rollout;
    match state.state {
        Phase::Running | Phase::Stopped => None,
        Phase::Superseded => Some(
            Failure::new(format!("another rollout came in the place of {number}"))
                .hint("`rollout list` lists those that are remembered"),
        ),
        Phase::Done => Some(Failure::new(format!("rollout {number} is done"))),
    }
}

fn nowhere(option: &str) -> Failure {
    Failure::new(format!("the publisher's home isn't here: say the number with {option}"))
}

fn needs_none(number: u32) -> Failure {
    let failure = Failure::new(format!("no wave of rollout {number} that is to come needs anybody's word"));
    failure.hint(format!(
        "`rollout show {number}` says what it waits for; --wave agrees to the waves up to one all the same"
    ))
}

/// What keeps a word from what it is for, and the command that ends that.
fn in_its_way(
    number: u32,
    open: Option<&Open>,
    word: &RolloutWord,
    words: &RolloutWords,
) -> Option<(&'static str, String)> {
    let is_lifted = |stop: &u32| words.resumed == *stop || words.promoted == Promoted::All;
    let stop = open.and_then(|open| open.state().open_stop()).filter(|stop| !is_lifted(stop));
    match word {
        RolloutWord::Paused(true) => None,
        RolloutWord::Paused(false) | RolloutWord::Approved(_) if !words.paused => {
            stop.map(|_| ("stopped", format!("resume {number}")))
        }
        _ => words.paused.then(|| ("paused", format!("pause {number} --end"))),
    }
}

/// Writes a person's word. `then`: what happens then; `what`: the same without when, for where something else is in its way.
fn write(
    place: &Place,
    number: u32,
    open: Option<&Open>,
    word: &RolloutWord,
    (then, what): (&str, &str),
    output: OutputArgs,
) -> Result<u8, Failure> {
    let RolloutSaid { file, was_there, words } = say(&place.work_tree()?, number, word)?;
    let said = if was_there { "says so already" } else { "says so now" };
    let then = in_its_way(number, open, word, &words)
        .map_or_else(|| then.to_owned(), |(how, end)| format!("it is {how}: {what} only after `rollout {end}`"));
    let text = format!("{file} {said}: {then}\n{}", place.next_push()?);
    output.print(&text, || {
        json!({
            "rollout": number,
            "file": file,
            "wasThere": was_there,
            "words": words,
        })
    });
    Ok(0)
}
