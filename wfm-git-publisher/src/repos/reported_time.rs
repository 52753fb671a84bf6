//! What a device verifiably says of the time.

use std::collections::BTreeSet;

use jiff::Timestamp;
use repo_model::KeyText;

use super::device::DeviceRepo;

/// The newest moment that a device reported, by its own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportedTime {
    /// When it reported last, by its own clock, in seconds since 1970.
    pub time: i64,
    /// When the commit was made that it had then, by the publisher's clock; absent if that isn't the tip.
    pub answers: Option<i64>,
}

impl DeviceRepo {
    /// What its newest reports say of the time; `None` if there are none that can be believed.
    pub fn reported_time(&self, enrolled: &[KeyText], publishers: &BTreeSet<KeyText>) -> Option<ReportedTime> {
        let tip = self.desired(publishers).ok()?;
        let reports = self.reports(tip.as_ref(), enrolled, publishers, Timestamp::UNIX_EPOCH);
        let status = reports.status.verified()?;
        let beat = reports.heartbeat.verified().map(|heartbeat| heartbeat.state.time.as_second());
        let adopted = status.report.adopted().map(|adopted| adopted.envelope);
        let has = tip.filter(|tip| adopted == Some(tip.desired.envelope_digest));
        let answers = has.and_then(|tip| Some(self.repo.commit(tip.commit).ok()?.commit_time));
        Some(ReportedTime { time: beat.map_or(status.time, |beat| beat.max(status.time)), answers })
    }
}
