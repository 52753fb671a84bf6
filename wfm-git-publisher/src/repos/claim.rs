//! Which of a device's claims the publisher acts on: the more commits they made lately, the longer it backs off.
//!
//! What a device says that it adopted and isn't known here is either lost here or made up, and nobody can tell which; and
//! its capabilities may change for a reason. Both make new commits, so a device that lies could have them made for ever.
//! The commits themselves, which the publisher signed, say how often that was so: nothing else has to be remembered, and
//! nothing is lost with `control.git`. They also say how far the device's word led its numbers on. That has an end, well
//! before an honest device that knows nothing of it would refuse what follows.

use std::collections::BTreeSet;

use repo_git::CommitId;
use repo_model::envelope::MAX_JUMP;
use repo_model::message::Message;
use repo_model::report::Adopted;
use repo_model::{KeyText, Trailer};

use super::device::{DeviceRepo, DeviceRepoError, Tip};

/// The `Cause` of commits that only the device's capabilities made.
pub const BY_CAPABILITIES: &str = "the device's capabilities changed";

/// How many times in a day it is acted on without waiting.
const FREE: usize = 3;

/// Seconds until it is acted on again after those; twice as many after each further time in a day.
const FIRST: i64 = 5 * 60;

/// What is longer ago, in seconds, doesn't count; nor does a commit that far in the future, after the clock was wrong.
const DAY: i64 = 24 * 60 * 60;

/// The most commits that are read.
const MAX_BACK: usize = 1000;

/// How far what a device says may lead its serial, or its `manifestVersion`, beyond what is published, in all. A device takes
/// a jump of [`MAX_JUMP`]: so what somebody makes up in its name leads it nowhere, and what was lost since any backup is
/// gone on from.
pub const MAX_LEAD: u64 = MAX_JUMP / 2;

/// What a device says that it adopted, as far as it is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// It was published, or is continued already.
    Known,
    /// It was lost here, or is made up; it is continued.
    Unknown,
    /// It was lost here: its commit is, by a publisher's signature, no making of the device's. It is continued.
    Proven,
    /// The same, too soon after others: it is not believed before this moment, in Unix seconds.
    Doubted(i64),
    /// The same, and it would lead too far: it is not believed, unless a person says so.
    TooFar,
}

impl DeviceRepo {
    /// Judges what the device says that it adopted.
    pub fn claim(
        &self,
        tip: &Tip,
        adopted: &Adopted,
        publishers: &BTreeSet<KeyText>,
        now: i64,
    ) -> Result<Claim, DeviceRepoError> {
        if self.knows(tip.commit, adopted)? {
            return Ok(Claim::Known);
        }
        if self.has_published(adopted, publishers) {
            return Ok(Claim::Proven);
        }
        if self.leads_too_far(tip, adopted)? {
            return Ok(Claim::TooFar);
        }
        Ok(self.backs_off_until(tip.commit, now)?.map_or(Claim::Unknown, Claim::Doubted))
    }

    /// Whether the commit is here although no branch has it any more, signed by a key of the fleet's publishers, be it a
    /// stolen one.
    fn has_published(&self, adopted: &Adopted, publishers: &BTreeSet<KeyText>) -> bool {
        let found = adopted.commit.parse().ok().and_then(|commit| self.desired_at(commit, publishers).ok());
        found.is_some_and(|found| {
            let envelope = &found.desired.envelope;
            (envelope.serial, envelope.manifest_version, found.desired.envelope_digest)
                == (adopted.serial, adopted.manifest_version, adopted.envelope)
        })
    }

    fn leads_too_far(&self, tip: &Tip, adopted: &Adopted) -> Result<bool, DeviceRepoError> {
        let known = &tip.desired.envelope;
        let serials = adopted.serial.saturating_sub(known.serial);
        let versions = adopted.manifest_version.saturating_sub(known.manifest_version);
        let far = serials.max(versions);
        if far == 0 || far > MAX_LEAD {
            return Ok(far > MAX_LEAD);
        }
        let lead = self.lead(tip.commit)?;
        Ok(lead.serial.saturating_add(serials).max(lead.manifest_version.saturating_add(versions)) > MAX_LEAD)
    }

    /// From when on the device's word makes a commit again, in Unix seconds; absent if it does now.
    pub fn backs_off_until(&self, tip: CommitId, now: i64) -> Result<Option<i64>, DeviceRepoError> {
        let (mut acted_on, mut next) = (Vec::new(), Some(tip));
        for _ in 0..MAX_BACK {
            let Some(id) = next else { break };
            let commit = self.repo.commit(id)?;
            if now.abs_diff(commit.commit_time) > DAY.unsigned_abs() {
                break;
            }
            let message = Message::parse(&commit.message);
            if message.all(Trailer::Continues).next().is_some() || message.get(Trailer::Cause) == Some(BY_CAPABILITIES)
            {
                acted_on.push(commit.commit_time);
            }
            next = self.parent(id)?;
        }
        Ok(backs_off_until(&acted_on).filter(|from| now < *from))
    }
}

/// From when on the claims of a device are acted on again that were acted on at these moments of the last day.
fn backs_off_until(acted_on: &[i64]) -> Option<i64> {
    let newest = acted_on.iter().max()?;
    let times = u32::try_from(acted_on.len().checked_sub(FREE)?).unwrap_or(u32::MAX);
    Some(newest + FIRST.saturating_mul(2_i64.saturating_pow(times)).min(DAY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_devices_claim_is_acted_on_at_once_a_few_times_and_then_ever_more_rarely() {
        assert_eq!(backs_off_until(&[]), None);
        let (mut now, mut acted_on) = (0, Vec::new());
        for _ in 0..12 * 60 * 24 {
            acted_on.retain(|then| now - then <= DAY);
            if backs_off_until(&acted_on).is_none_or(|from| from <= now) {
                acted_on.push(now);
            }
            now += 5;
        }
        assert!((8..=14).contains(&acted_on.len()), "{} times in a day", acted_on.len());
        assert_eq!(backs_off_until(&[20, 10]), None);
        assert_eq!(backs_off_until(&[30, 20, 10]), Some(30 + FIRST));
        assert_eq!(backs_off_until(&[30, 20, 20, 10]), Some(30 + 2 * FIRST));
        assert_eq!(backs_off_until(&[7; 100]), Some(7 + DAY));
    }
}
