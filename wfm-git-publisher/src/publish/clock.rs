//! Whether this machine's clock can be right, by what the publisher wrote and by what its devices report.
//!
//! A publisher with a wrong clock proves freshness that no device believes, and gives out accounts that are over too
//! early. What speaks for a clock, or against it, is what devices signed: a device vouches for it by a report of about
//! now, and speaks against it by one from the future, or by one that is older than the commit that it answers to. One
//! device may lie, or have a wrong clock itself: it takes most of them, and two at least, to stop a publisher whose own
//! ledger agrees with its clock.

use jiff::Timestamp;
use repo_model::DeviceId;

use super::error::ClockError;
use super::pass::Pass;
use super::up_to_date::UpToDateIndex;
use crate::fleet::Fleet;
use crate::repos::{Control, DeviceRepo, Home, Ledger, ReportedTime, Rosters};

/// How far clocks may be apart, in seconds.
const SKEW: i64 = repo_model::clock::SKEW.as_secs();

/// How long nothing may have been written or heard before somebody has to say that it is this late, in seconds.
const SILENCE: i64 = 30 * 24 * 60 * 60;

/// No right clock was before 2020, in seconds since 1970.
const BEGIN: i64 = 1_577_836_800;

/// How many devices are asked where nothing speaks against the clock: each costs two signatures.
const SAMPLE: usize = 16;

/// What is known of the time beside the clock.
#[derive(Debug, Default)]
struct Evidence {
    vouching: usize,
    against: usize,
    of: usize,
}

impl Evidence {
    fn of(reported: Vec<ReportedTime>, now: i64) -> Self {
        let mut evidence = Self::default();
        for ReportedTime { time, answers } in reported {
            // A device at 1970 knows that it doesn't know.
            if time < BEGIN {
                continue;
            }
            let is_older_than_what_it_answers = answers.is_some_and(|at| time < at - SKEW && at <= now + SKEW);
            evidence.of += 1;
            if time > now + SKEW || is_older_than_what_it_answers {
                evidence.against += 1;
            } else if time >= now - SKEW {
                evidence.vouching += 1;
            }
        }
        evidence
    }
}

/// Whether it can be this late by when this publisher last worked; only where that is doubtful devices are asked.
fn judge_by_ledger(
    now: Timestamp,
    worked: Option<Timestamp>,
    reported: impl FnOnce() -> Vec<ReportedTime>,
) -> Result<(), ClockError> {
    let can_be = |worked: &Timestamp| (-SKEW..=SILENCE).contains(&(now.as_second() - worked.as_second()));
    let Some(worked) = worked.filter(|worked| !can_be(worked)) else { return Ok(()) };
    let Evidence { vouching, against, of } = Evidence::of(reported(), now.as_second());
    if vouching > against { Ok(()) } else { Err(ClockError::Ledger { now, worked, vouching, of }) }
}

/// Whether it can be this late by what devices report.
fn judge_by_devices(now: Timestamp, reported: Vec<ReportedTime>) -> Result<(), ClockError> {
    let Evidence { against, of, .. } = Evidence::of(reported, now.as_second());
    if against >= 2 && against * 2 > of { Err(ClockError::Devices { now, against, of }) } else { Ok(()) }
}

/// Whether a pass can begin at this moment. What an earlier clock wrote that was ahead is corrected by one that is
/// believed.
pub(super) fn check_ledger(pass: &Pass<'_>, control: &mut Control) -> Result<(), ClockError> {
    if !pass.allowed.clock {
        let worked = worked(pass.home, control.ledger());
        judge_by_ledger(pass.now, worked, || reported(pass.home, pass.rosters, pass.fleet, usize::MAX))?;
    }
    control.put_back(pass.now, SKEW);
    Ok(())
}

/// Whether anything may be written.
pub(super) fn check_devices(pass: &Pass<'_>) -> Result<(), ClockError> {
    if pass.allowed.clock {
        Ok(())
    } else {
        judge_by_devices(pass.now, reported(pass.home, pass.rosters, pass.fleet, SAMPLE))
    }
}

/// Why nothing would be published at this moment, if the clock is why.
pub fn check_clock(
    home: &Home,
    fleet: &Fleet,
    ledger: &Ledger,
    rosters: &Rosters,
    now: Timestamp,
) -> Option<ClockError> {
    let by_ledger = judge_by_ledger(now, worked(home, ledger), || reported(home, rosters, fleet, usize::MAX));
    by_ledger.and_then(|()| judge_by_devices(now, reported(home, rosters, fleet, SAMPLE))).err()
}

/// When this publisher last gave anything out, or proved that something is fresh.
fn worked(home: &Home, ledger: &Ledger) -> Option<Timestamp> {
    ledger.newest().max(UpToDateIndex::last_proof(home))
}

/// The times that devices verifiably report: at most so many, spread over the fleet.
fn reported(home: &Home, rosters: &Rosters, fleet: &Fleet, most: usize) -> Vec<ReportedTime> {
    let enrolled: Vec<_> = fleet.devices.values().filter(|device| device.is_enrolled()).collect();
    let step = enrolled.len().div_ceil(most).max(1);
    let of = |id: &DeviceId, keys| {
        let repo = DeviceRepo::open(home, rosters.fleet(), id).ok()??;
        repo.reported_time(keys, &rosters.publishers)
    };
    enrolled.into_iter().step_by(step).filter_map(|device| of(&device.id, &device.status_keys)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 60 * 60;
    const NOW: i64 = 1_795_000_000;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// What is said of a clock by a publisher that last worked so many days from now, and by devices that report another
    /// day each, in answer to a commit of a third one.
    fn verdict(worked: Option<i64>, reported: &[(i64, i64)]) -> Option<&'static str> {
        let reported: Vec<_> = reported
            .iter()
            .map(|(time, answers)| ReportedTime { time: NOW + time * DAY, answers: Some(NOW + answers * DAY) })
            .collect();
        let by_ledger = judge_by_ledger(at(NOW), worked.map(|day| at(NOW + day * DAY)), || reported.clone());
        match by_ledger.and_then(|()| judge_by_devices(at(NOW), reported)) {
            Ok(()) => None,
            Err(ClockError::Ledger { .. }) => Some("ledger"),
            Err(ClockError::Devices { .. }) => Some("devices"),
        }
    }

    #[test]
    fn a_clock_is_judged_by_what_the_publisher_wrote_and_by_most_of_the_devices() {
        const AGES: i64 = -9_000;
        for (worked, reported, expected) in [
            // Nothing to compare with, or all as ever.
            (None, &[][..], None),
            (Some(0), &[(0, 0), (-7, -7)], None),
            // A weekend and a holiday, in which the devices were off, too.
            (Some(-3), &[(-3, -3), (-4, -4)], None),
            (Some(-29), &[(-29, -30)], None),
            // Later than anybody knows of, until a device says that it is this late.
            (Some(-400), &[(-400, -400), (-401, -401)], Some("ledger")),
            (Some(-400), &[], Some("ledger")),
            (Some(-400), &[(0, -400), (-400, -400)], None),
            // It was set back, or it was ahead before and the devices say that it is right now.
            (Some(400), &[(400, 400)], Some("ledger")),
            (Some(400), &[], Some("ledger")),
            (Some(400), &[(0, 400), (0, 400), (-9, -9)], None),
            (Some(400), &[(0, 400), (400, 400)], Some("ledger")),
            // Devices answer commits of today with reports of last year.
            (Some(0), &[(-400, 0), (-400, 0)], Some("devices")),
            (Some(0), &[(5, 0), (5, 0), (0, 0)], Some("devices")),
            // One device alone may lie, or be wrong; one at 1970 says nothing.
            (Some(0), &[(-400, 0)], None),
            (Some(0), &[(4000, 0), (0, 0), (-1, -1)], None),
            (Some(0), &[(AGES, 0), (AGES, 0)], None),
        ] {
            assert_eq!(verdict(worked, reported), expected, "{worked:?} {reported:?}");
        }
    }
}
