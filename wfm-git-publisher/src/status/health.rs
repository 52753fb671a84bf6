//! How a device, or a deployment on it, is in one word. Whoever hasn't said that all is well isn't counted as well.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use repo_model::ErrorCode;
use repo_model::margo::{DeploymentStatus, ReportedCode, State};
use repo_model::report::{ConditionType, CurrentComponent, CurrentDeployment, Drift, Health as Observed};
use serde::{Deserialize, Serialize, Serializer};

use super::{DeviceStatus, Membership};
use crate::fleet::counted;
use crate::words::words;

words! {
    /// How it is: the worst of what is known, in this order, the best first.
    #[derive(Default)]
    Health {
        Ready "ready", "All that is desired is installed, and runs well by the newest heartbeat.";
        Updating "updating", "It doesn't have all of the newest desired state yet.";
        Waiting "waiting", "A change waits for its time, for somebody at the site, or for another deployment.";
        Held ErrorCode::Held.as_str(), "Its site holds it as it is.";
        Suspended ErrorCode::Suspended.as_str(), "The fleet says that it stays as it is.";
        NotPublishable "not-publishable", "The last `publish` could not publish something for it.";
        Degraded "degraded", "Something that is installed doesn't run well: it ended, was changed, or can't be observed.";
        CrashLooping "crash-looping", "Something that is installed ends, and is started again, again and again.";
        Failed "failed", "A component failed, or the device can't go on without somebody.";
        Offline "offline", "It said nothing for longer than it may: for `offlineAfter` of the fleet's rollouts, and for three reports at least.";
        #[default]
        Unknown "unknown", "It never said anything that is believed.";
        Doubtful "doubtful", "What it says, or what is here of it, can't be believed or read.";
    }
}

impl Health {
    /// Whether somebody has to look at it, although it is heard.
    pub fn is_failed(self) -> bool {
        matches!(self, Self::Failed | Self::CrashLooping | Self::Degraded | Self::NotPublishable | Self::Doubtful)
    }

    /// Whether what is shown of it may be old, or nothing is.
    pub fn is_stale(self) -> bool {
        matches!(self, Self::Offline | Self::Unknown)
    }
}

/// How many there are of each, the worst first.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(bound(deserialize = "T: Ord + Deserialize<'de>"))]
pub struct Counts<T: Ord = Health>(BTreeMap<T, usize>);

impl<T: Ord> Default for Counts<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Ord> FromIterator<T> for Counts<T> {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Self {
        let mut counts = Self::default();
        all.into_iter().for_each(|one| counts.add(one));
        counts
    }
}

impl<T: Ord> Counts<T> {
    pub fn add(&mut self, one: T) {
        *self.0.entry(one).or_default() += 1;
    }

    pub fn of(&self, one: &T) -> usize {
        self.0.get(one).copied().unwrap_or_default()
    }

    pub fn total(&self) -> usize {
        self.0.values().sum()
    }
}

impl<T: Ord + fmt::Display> fmt::Display for Counts<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.0.iter().rev().map(|(one, count)| format!("{count} {one}")).collect();
        f.write_str(&words.join(", "))
    }
}

impl<T: Ord + Serialize> Serialize for Counts<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().rev())
    }
}

/// How many there are that no health is told of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Apart {
    pub not_enrolled: usize,
    /// How many are retired, or were in the fleet once.
    pub retired: usize,
}

impl Apart {
    pub fn add(&mut self, membership: Membership) {
        match membership {
            Membership::Enrolled => {}
            Membership::NotEnrolled => self.not_enrolled += 1,
            Membership::Retired | Membership::Gone => self.retired += 1,
        }
    }
}

impl FromIterator<Membership> for Apart {
    fn from_iter<I: IntoIterator<Item = Membership>>(all: I) -> Self {
        let mut apart = Self::default();
        all.into_iter().for_each(|one| apart.add(one));
        apart
    }
}

impl fmt::Display for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [(self.not_enrolled, "not enrolled"), (self.retired, "retired or gone")];
        let all: Vec<_> =
            all.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
        f.write_str(&all.join("; "))
    }
}

/// All devices in one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// How many are enrolled.
    devices: usize,
    health: Counts,
    #[serde(flatten)]
    apart: Apart,
    /// For how many of those that are enrolled a rollout holds a change back.
    held_back: usize,
}

impl Summary {
    pub fn of(all: &[DeviceStatus]) -> Self {
        let are = |membership| all.iter().filter(move |status| status.membership == membership);
        let health: Counts = are(Membership::Enrolled).map(|status| status.health).collect();
        Self {
            devices: health.total(),
            health,
            apart: all.iter().map(|status| status.membership).collect(),
            held_back: are(Membership::Enrolled).filter(|status| !status.held_by.is_empty()).count(),
        }
    }

    /// For how many devices a rollout holds a change back.
    pub fn held_back(&self) -> usize {
        self.held_back
    }

    /// Whether every device that is enrolled is ready, and there is one.
    pub fn is_ready(&self) -> bool {
        self.devices > 0 && self.health.of(&Health::Ready) == self.devices
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&counted(self.devices))?;
        if self.devices > 0 {
            write!(f, ": {}", self.health)?;
        }
        let apart = self.apart.to_string();
        if apart.is_empty() { Ok(()) } else { write!(f, "; {apart}") }
    }
}

/// How a device is by all that is shown of it, and `suspended` of the fleet; what it was found to be before is one part of
/// that. What is said of the device as a whole counts for its deployments, too.
pub(super) fn judge(status: &mut DeviceStatus, is_suspended: bool) {
    status.words = words(status, is_suspended);
    let around = status.words.last().copied().unwrap_or(Health::Ready);
    let itself = if status.adopted_serial == status.desired_serial { Health::Ready } else { Health::Updating };
    status.deployments.iter_mut().for_each(|row| row.health = row.health.max(around));
    status.health = status.deployments.iter().map(|row| row.health).fold(itself.max(around), Health::max);
}

/// What is said of the device as a whole, or of what isn't one of its deployments.
fn words(status: &DeviceStatus, is_suspended: bool) -> BTreeSet<Health> {
    let has = |kind: ConditionType| status.conditions.iter().any(|one| one.kind == kind.as_str());
    let gates = status.gates.iter().filter(|gate| gate.deployment.is_none());
    let gates = gates.map(|gate| if gate.code == ErrorCode::Held.as_str() { Health::Held } else { Health::Waiting });
    let all = [
        (!status.doubts.is_empty(), Health::Doubtful),
        (status.heard_age.is_none(), Health::Unknown),
        (has(ConditionType::Stalled), Health::Failed),
        (has(ConditionType::RuntimeUnavailable) || has(ConditionType::Stale), Health::Degraded),
        (has(ConditionType::Waiting) || has(ConditionType::HookFailed), Health::Waiting),
        (!status.blocked.is_empty(), Health::NotPublishable),
        (is_suspended, Health::Suspended),
    ];
    let all = all.into_iter().filter_map(|(is, health)| is.then_some(health));
    all.chain(gates).chain([status.health]).collect()
}

/// What a change waits with for its time, for somebody or for another deployment.
const WAITING: [ErrorCode; 5] = [
    ErrorCode::WaitingWindow,
    ErrorCode::WaitingDowntime,
    ErrorCode::WaitingApproval,
    ErrorCode::WaitingPolicy,
    ErrorCode::WaitingDependency,
];

/// How a deployment is by what its device says of it: in its status, and of what it sees running.
pub(super) fn of_deployment(
    reported: Option<&DeploymentStatus>,
    running: Option<&CurrentDeployment>,
    is_desired: bool,
    is_newest: bool,
) -> Health {
    let Some(status) = reported.map(|reported| &reported.status) else {
        return if is_desired { Health::Updating } else { Health::Ready };
    };
    let code = status.error.as_ref().map(|error| &error.code);
    match (status.state, code) {
        (State::Failed, _) => Health::Failed,
        (State::Pending | State::Removing, Some(ReportedCode::Known(code))) => match code {
            ErrorCode::Held => Health::Held,
            ErrorCode::Suspended => Health::Suspended,
            code if WAITING.contains(code) => Health::Waiting,
            _ => Health::Updating,
        },
        (State::Installed, _) if is_desired => match running.map(runs) {
            Some(Health::Ready) if !is_newest => Health::Updating,
            Some(health) => health,
            None => Health::Updating,
        },
        (State::Removed, _) if !is_desired => Health::Ready,
        _ => Health::Updating,
    }
}

/// How what a device sees running is.
fn runs(running: &CurrentDeployment) -> Health {
    let of = |one: &CurrentComponent| match (Observed::parse(&one.health), Drift::parse(&one.drift)) {
        (Some(Observed::Healthy), Some(Drift::None)) => Health::Ready,
        (Some(Observed::Starting), Some(Drift::None)) => Health::Updating,
        _ if one.crash_looping => Health::CrashLooping,
        // Words of a newer syncer, too.
        _ => Health::Degraded,
    };
    running.components.values().map(of).max().unwrap_or(Health::Updating)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(document: &str, running: Option<(&str, &str)>, is_desired: bool, is_newest: bool) -> Health {
        let id = "8f14e45f-ceea-467f-9a5c-1d2c3b4a5968";
        let document = format!(
            r#"{{"deploymentId":"{id}","deviceId":"d","status":{{{document}}},"components":[{{"name":"web",{document}}}]}}"#
        );
        let running = running.map(|(health, drift)| {
            let (health, crash_looping) = match health {
                "crash-looping" => ("degraded", r#","crashLooping":true"#),
                health => (health, ""),
            };
            let component =
                format!(r#"{{"state":"installed","health":"{health}","drift":"{drift}"{crash_looping},"attempts":0}}"#);
            serde_json::from_str(&format!(r#"{{"components":{{"web":{component}}}}}"#)).expect("what runs")
        });
        let reported = DeploymentStatus::read("x", document.as_bytes()).expect("a status");
        of_deployment(Some(&reported), running.as_ref(), is_desired, is_newest)
    }

    #[test]
    fn a_deployment_is_ready_only_where_all_says_so() {
        let installed = r#""state":"installed""#;
        let well = Some(("healthy", "none"));
        assert_eq!(of(installed, well, true, true), Health::Ready);
        for (running, newest, health) in [
            (well, false, Health::Updating),
            (None, true, Health::Updating),
            (Some(("starting", "none")), true, Health::Updating),
            (Some(("degraded", "none")), true, Health::Degraded),
            (Some(("healthy", "changed")), true, Health::Degraded),
            (Some(("unknown", "unknown")), true, Health::Degraded),
            (Some(("a newer word", "none")), true, Health::Degraded),
            (Some(("degraded", "none")), false, Health::Degraded),
            (Some(("crash-looping", "none")), true, Health::CrashLooping),
        ] {
            assert_eq!(of(installed, running, true, newest), health, "{running:?} {newest}");
        }
        assert_eq!(of_deployment(None, None, true, true), Health::Updating, "it said nothing of it");
    }

    #[test]
    fn what_waits_says_for_whom_and_what_goes_is_ready_once_it_is_gone() {
        for (code, health) in [
            ("held", Health::Held),
            ("suspended", Health::Suspended),
            ("waiting-window", Health::Waiting),
            ("waiting-approval", Health::Waiting),
            ("artifact-unavailable", Health::Updating),
            ("a-newer-code", Health::Updating),
        ] {
            let document = |state: &str| format!(r#""state":"{state}","error":{{"code":"{code}","message":"x"}}"#);
            assert_eq!(of(&document("pending"), None, true, true), health, "{code}");
            assert_eq!(of(&document("removing"), None, false, true), health, "{code}");
            assert_eq!(of(&document("failed"), None, true, false), Health::Failed, "{code}");
        }
        for (state, health) in
            [("removed", Health::Ready), ("removing", Health::Updating), ("installed", Health::Updating)]
        {
            assert_eq!(of(&format!(r#""state":"{state}""#), None, false, true), health, "{state}");
        }
        assert_eq!(of_deployment(None, None, false, true), Health::Ready, "nobody wants it, and nobody has it");
    }

    #[test]
    fn counts_begin_with_the_worst() {
        let counts: Counts = [Health::Ready, Health::Failed, Health::Ready, Health::Offline].into_iter().collect();
        assert_eq!((counts.to_string().as_str(), counts.total()), ("1 offline, 1 failed, 2 ready", 4));
        assert_eq!(serde_json::to_string(&counts).expect("JSON"), r#"{"offline":1,"failed":1,"ready":2}"#);
    }
}
