//! What fires: what of the fleet needs somebody, by what devices verifiably say and the publisher found. Pure.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use repo_model::report::{Condition, ConditionType, Reason};
use repo_model::{DeviceId, ErrorCode};
use serde::{Deserialize, Serialize};
use wfm_git_host::accounts::{Account, Role};

use crate::config::AlertKind;
use crate::plan::{Blocked, Code};
use crate::repos::Rollouts;
use crate::rollout::Phase;
use crate::status::{DeviceStatus, Health, Membership};

/// What stands before the code in the subject of what can't be published.
const BLOCKED: &str = "/not-publishable/";

/// What stands in the subject of a security event in the place of a reason that the contract hasn't.
const OTHER: &str = "other";

/// How long before it the end of a key or a certificate fires.
const SOON: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Something that needs somebody for as long as it is so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Alert {
    /// What it is.
    pub alert: AlertKind,
    /// What it is about, as a path: `devices/press-07/deployments/hello`. With `alert` it makes it the same one.
    pub subject: String,
    /// Absent where it isn't about one device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceId>,
    /// The deployment's name; absent where it isn't about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<String>,
    /// The rollout's number; absent where it isn't about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<u32>,
    /// For people, on one line; it may quote a device's words, which are made harmless.
    pub message: String,
}

/// Alerts by what makes each the same one from look to look.
pub type Firing = BTreeMap<String, Alert>;

impl Alert {
    /// What makes it the same one.
    pub fn key(&self) -> String {
        format!("{} {}", self.alert, self.subject)
    }

    /// The device that it is about, as a path; what it is about itself, where that is no device.
    pub(super) fn place(&self) -> String {
        self.device.as_ref().map_or_else(|| self.subject.clone(), |device| format!("devices/{device}"))
    }

    /// The same as it is called now: in older versions the subject of what can't be published hadn't its code, with which the message
    /// begins.
    pub(super) fn renamed(self) -> Self {
        let is_old = self.alert == AlertKind::NotPublishable && !self.subject.contains(BLOCKED);
        let said = self.message.split(':').next().filter(|_| is_old);
        match said.filter(|said| Code::TABLE.iter().any(|(code, _)| code.as_str() == *said)) {
            Some(code) => Self { subject: format!("{}{BLOCKED}{code}", self.subject), ..self },
            None => self,
        }
    }

    fn new(alert: AlertKind, subject: impl Into<String>, message: &str) -> Self {
        let message = repo_model::text::line(message);
        Self { alert, subject: subject.into(), device: None, deployment: None, rollout: None, message }
    }

    fn of_device(alert: AlertKind, device: &DeviceId, message: &str) -> Self {
        Self { device: Some(device.clone()), ..Self::new(alert, format!("devices/{device}"), message) }
    }

    fn of_deployment(alert: AlertKind, device: &DeviceId, deployment: &str, message: &str) -> Self {
        let subject = format!("devices/{device}/deployments/{deployment}");
        let deployment = Some(deployment.to_owned());
        Self { subject, deployment, ..Self::of_device(alert, device, message) }
    }

    fn of_rollout(alert: AlertKind, number: u32, message: &str) -> Self {
        Self { rollout: Some(number), ..Self::new(alert, format!("rollouts/{number}"), message) }
    }
}

/// All that is looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Looked<'a> {
    pub(super) devices: &'a [DeviceStatus],
    /// What can't be published for any device.
    pub(super) blocked: &'a [Blocked],
    pub(super) rollouts: &'a Rollouts,
    pub(super) ends: &'a [Ending],
    pub(super) now: Timestamp,
}

/// A credential that ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ending {
    /// What makes it the same one, below `credentials/`.
    pub(super) name: String,
    /// What it is, for people.
    pub(super) what: String,
    pub(super) end: Timestamp,
}

impl Ending {
    /// The secret with which a person or a program comes to the host, if it ends and was given for longer than such an end is told ahead.
    /// Devices renew their own.
    pub(super) fn of(account: &Account) -> Option<Self> {
        let secret = account.secrets.last().filter(|_| account.role != Role::Device && account.revoked.is_none())?;
        let (name, end) = (&account.name, secret.expires?);
        let is_long = end.duration_since(secret.created) > SOON;
        let what = format!("the secret of the account {name} ({})", account.role.as_str());
        is_long.then(|| Self { name: format!("accounts/{name}"), what, end })
    }
}

impl Looked<'_> {
    /// What fires.
    pub(super) fn firing(&self) -> Firing {
        let enrolled = self.devices.iter().filter(|one| one.membership == Membership::Enrolled);
        let devices = enrolled.flat_map(|status| of_device(status, self.now));
        let blocked = self.blocked.iter().filter(|one| one.code.is_error()).map(|one| of_blocked("fleet", one));
        let open = self.rollouts.open.values().map(|record| &record.state);
        let stopped = open.filter(|state| state.state == Phase::Stopped).map(|state| {
            let why = state.stops.last().map_or("", |stop| &stop.reason);
            Alert::of_rollout(AlertKind::RolloutStopped, state.rollout, &format!("the rollout stopped: {why}"))
        });
        let done = self.rollouts.ended.values().filter(|state| state.state == Phase::Done);
        let done = done.map(|state| {
            let left = state.end.as_ref().map_or(0, |end| end.left.len());
            let how = if left == 0 { "every device has the change" } else { "some devices don't have the change" };
            Alert::of_rollout(AlertKind::RolloutFinished, state.rollout, &format!("the rollout is done: {how}"))
        });
        let soon = self.ends.iter().filter(|one| one.end.duration_since(self.now) < SOON);
        let ends = soon.map(|Ending { name, what, end }| {
            let subject = format!("credentials/{name}");
            Alert::new(AlertKind::CredentialEnds, subject, &format!("{what} ends at {end:.0}"))
        });
        let all = devices.chain(blocked).chain(stopped).chain(done).chain(ends);
        all.map(|alert| (alert.key(), alert)).collect()
    }
}

fn of_device(status: &DeviceStatus, now: Timestamp) -> Vec<Alert> {
    let device = &status.device;
    let (mut all, mut unknown) = (Vec::new(), Vec::new());
    for condition in &status.conditions {
        let text = format!("{}: {}", condition.reason, condition.message);
        match ConditionType::parse(&condition.kind) {
            Some(ConditionType::Stalled) => all.push(Alert::of_device(AlertKind::DeviceStalled, device, &text)),
            Some(ConditionType::Stale) => all.push(Alert::of_device(AlertKind::DeviceStale, device, &text)),
            Some(ConditionType::RuntimeUnavailable) => {
                all.push(Alert::of_device(AlertKind::RuntimeUnreachable, device, &text));
            }
            Some(
                ConditionType::SecurityEvent
                | ConditionType::SiteRefused
                | ConditionType::PolicyViolated
                | ConditionType::CloneDamaged,
            ) => match is_known(condition) {
                true => all.push(security(device, &condition.reason, &text)),
                false => unknown.push(text),
            },
            _ => {}
        }
    }
    all.extend(and_more(&unknown).map(|text| security(device, OTHER, &text)));
    all.extend(status.doubts.iter().map(|doubt| security(device, &doubt.code, &doubt.message)));
    if status.words.contains(&Health::Offline) {
        let heard = now.saturating_sub(SignedDuration::from_secs(status.heard_age.unwrap_or_default()));
        let text = heard.map_or_else(|_| String::new(), |heard| format!("nothing was heard of it since {heard:.0}"));
        all.push(Alert::of_device(AlertKind::DeviceOffline, device, &text));
    }
    if let Some(first) = status.never_heard_since {
        let text = format!("it never said anything since something was published for it first, at {first:.0}");
        all.push(Alert::of_device(AlertKind::DeviceOffline, device, &text));
    }
    let publishable = status.blocked.iter().filter(|one| one.code.is_error());
    all.extend(publishable.map(|one| of_blocked(&format!("devices/{device}"), one)));
    let mut unknown = BTreeMap::<_, Vec<_>>::new();
    for row in &status.deployments {
        let kind = match row.own_health {
            Health::Failed => AlertKind::DeploymentFailed,
            Health::CrashLooping => AlertKind::DeploymentCrashLooping,
            Health::Degraded => AlertKind::DeploymentDegraded,
            _ => continue,
        };
        let how = row.reason.as_deref().or(row.actual.as_deref()).unwrap_or_default();
        match row.is_known() {
            true => all.push(Alert::of_deployment(kind, device, &row.deployment, how)),
            false => unknown.entry(kind).or_default().push(format!("{}: {how}", row.deployment)),
        }
    }
    let unknown = unknown.iter().filter_map(|(kind, texts)| {
        let subject = format!("devices/{device}/deployments");
        Some(Alert { subject, ..Alert::of_device(*kind, device, &and_more(texts)?) })
    });
    all.extend(unknown);
    all
}

/// Whether the contract has this reason. Whatever else a device writes there makes one alert, or it would make as many as it likes.
fn is_known(condition: &Condition) -> bool {
    let mut of_its_own = Reason::TABLE.iter().filter(|(kind, _)| kind.as_str() == condition.kind);
    of_its_own.any(|(_, reason)| reason.as_str() == condition.reason)
        || ErrorCode::TABLE.iter().any(|(code, _)| code.pascal_case() == condition.reason)
}

/// The first of these, and how many more there are; `None` if there is none.
fn and_more(texts: &[String]) -> Option<String> {
    let (first, more) = texts.split_first()?;
    Some(if more.is_empty() { first.clone() } else { format!("{first} (and {} more)", more.len()) })
}

/// The code is a part of the subject: a second event doesn't hide behind the first.
fn security(device: &DeviceId, code: &str, text: &str) -> Alert {
    let subject = format!("devices/{device}/security/{}", repo_model::text::line(code));
    Alert { subject, ..Alert::of_device(AlertKind::SecurityEvent, device, text) }
}

/// The code is a part of the subject here, too.
fn of_blocked(place: &str, blocked: &Blocked) -> Alert {
    let deployment = blocked.deployment.as_ref().map(ToString::to_string);
    let below = deployment.as_ref().map(|name| format!("/deployments/{name}")).unwrap_or_default();
    let code = blocked.code.as_str();
    let subject = format!("{place}{below}{BLOCKED}{code}");
    let alert = Alert::new(AlertKind::NotPublishable, subject, &format!("{code}: {}", blocked.message));
    Alert { device: blocked.device.clone(), deployment, ..alert }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use repo_model::Digest;
    use repo_model::report::Doubt;
    use serde_json::json;
    use wfm_git_host::accounts::Record;

    use super::*;
    use crate::status::DeploymentRow;

    fn status(words: &[Health]) -> DeviceStatus {
        DeviceStatus {
            device: "press-01".parse().expect("an id"),
            health: Health::Ready,
            words: words.iter().copied().collect::<BTreeSet<_>>(),
            never_heard_since: None,
            membership: Membership::Enrolled,
            desired_serial: Some(1),
            adopted_serial: Some(1),
            conditions: Vec::new(),
            gates: Vec::new(),
            site: None,
            doubts: Vec::new(),
            remarks: Vec::new(),
            blocked: Vec::new(),
            held_by: Vec::new(),
            heartbeat_age: Some(60),
            heard_age: Some(7200),
            deployments: Vec::new(),
        }
    }

    fn failed(reason: &str) -> DeploymentRow {
        DeploymentRow {
            deployment: "hello".to_owned(),
            deployment_id: "8f14e45f-ceea-467f-9a5c-1d2c3b4a5968".parse().expect("a UUID"),
            health: Health::Failed,
            own_health: Health::Failed,
            application: None,
            version: None,
            desired: None,
            actual: None,
            state: None,
            reason: Some(reason.to_owned()),
            restarts: None,
            age: None,
        }
    }

    fn firing(devices: &[DeviceStatus]) -> Firing {
        let now = "2027-03-10T12:00:00Z".parse().expect("a moment");
        Looked { devices, blocked: &[], rollouts: &Rollouts::default(), ends: &[], now }.firing()
    }

    #[test]
    fn a_silent_device_keeps_what_it_said_last() {
        let silent = DeviceStatus { deployments: vec![failed("apply-failed")], ..status(&[Health::Offline]) };
        let all = firing(&[silent]);
        let keys: Vec<_> = all.keys().map(String::as_str).collect();
        assert_eq!(keys, ["deployment-failed devices/press-01/deployments/hello", "device-offline devices/press-01"]);
        // The same at each look, or it would be kept anew each time.
        assert_eq!(
            all["device-offline devices/press-01"].message,
            "nothing was heard of it since 2027-03-10T10:00:00Z"
        );
    }

    #[test]
    fn each_reason_why_something_is_not_published_is_an_alert_of_its_own() {
        let device: DeviceId = "press-01".parse().expect("an id");
        let blocked = |code| Blocked::new(code, "it is so").on(&device);
        let codes = [Code::SyncerTooOld, Code::RemovalsGuarded];
        let all = firing(&[DeviceStatus { blocked: codes.map(blocked).into(), ..status(&[Health::NotPublishable]) }]);
        let keys = codes.map(|code| format!("not-publishable devices/press-01/not-publishable/{}", code.as_str()));
        assert_eq!(all.keys().cloned().collect::<BTreeSet<_>>(), keys.into());
        // What was told by the version before is known by its new name.
        for alert in all.into_values() {
            let before = Alert { subject: "devices/press-01".to_owned(), ..alert.clone() };
            assert_eq!((before.renamed(), alert.clone().renamed()), (alert.clone(), alert));
        }
        let other = Alert {
            alert: AlertKind::DeviceStalled,
            ..Alert::new(AlertKind::DeviceStalled, "devices/a", "fleet-invalid: x")
        };
        assert_eq!(other.clone().renamed(), other);
    }

    #[test]
    fn what_a_device_writes_is_one_harmless_line() {
        let doubt = |code: &'static str| Doubt::new(code, "two\nlines \u{1b}[2J");
        let lies = DeviceStatus {
            doubts: vec![doubt("one"), doubt("another")],
            deployments: vec![failed("x\ny\u{202e}")],
            ..status(&[Health::Ready])
        };
        let all = firing(&[lies]);
        assert_eq!(all.len(), 3, "{all:?}");
        for alert in all.values() {
            let is_harmless = |text: &str| !text.chars().any(|c| c.is_control() || c == '\u{202e}');
            assert!(is_harmless(&alert.message) && is_harmless(&alert.subject), "{alert:?}");
        }
    }

    #[test]
    fn a_device_makes_no_more_alerts_than_the_contract_has_reasons_and_the_fleet_deployments() {
        let condition = |kind: &str, reason: &str| Condition {
            kind: kind.to_owned(),
            reason: reason.to_owned(),
            message: "it is so".to_owned(),
        };
        let made_up = |n: u32| condition("SecurityEvent", &format!("Made{n}"));
        let real = ["HistoryContinued", "HistoryForked"].map(|reason| condition("SecurityEvent", reason));
        let row = |n: u128| DeploymentRow {
            deployment: uuid::Uuid::from_u128(n).to_string(),
            deployment_id: uuid::Uuid::from_u128(n).to_string().parse().expect("a UUID"),
            ..failed("apply-failed")
        };
        let lies = DeviceStatus {
            conditions: (0..1000)
                .map(made_up)
                .chain(real)
                .chain([condition("SiteRefused", "HistoryAccepted")])
                .collect(),
            deployments: (0..1000).map(row).chain([failed("apply-failed")]).collect(),
            ..status(&[Health::Ready])
        };
        let all = firing(&[lies]);
        let told: Vec<_> = all.iter().map(|(key, alert)| format!("{key}: {}", alert.message)).collect();
        assert_eq!(
            told,
            [
                "deployment-failed devices/press-01/deployments: 00000000-0000-0000-0000-000000000000: apply-failed (and 999 more)",
                "deployment-failed devices/press-01/deployments/hello: apply-failed",
                "security-event devices/press-01/security/HistoryContinued: HistoryContinued: it is so",
                "security-event devices/press-01/security/HistoryForked: HistoryForked: it is so",
                "security-event devices/press-01/security/other: Made0: it is so (and 1000 more)",
            ]
        );
    }

    #[test]
    fn a_key_that_ends_soon_fires_and_whoever_is_not_enrolled_does_not() {
        let gone = DeviceStatus { membership: Membership::Gone, ..status(&[Health::Offline]) };
        assert_eq!(firing(&[gone]), Firing::new());
        let now: Timestamp = "2027-03-10T12:00:00Z".parse().expect("a moment");
        let ends = |days: i64| {
            let (name, what) = ("publisher-key".to_owned(), "the publisher's key".to_owned());
            [Ending { name, what, end: now + SignedDuration::from_hours(24 * days) }]
        };
        let keys = |ends: &[Ending]| {
            Looked { devices: &[], blocked: &[], rollouts: &Rollouts::default(), ends, now }
                .firing()
                .into_keys()
                .collect::<Vec<_>>()
        };
        assert_eq!(keys(&ends(29)), ["credential-ends credentials/publisher-key"]);
        assert_eq!(keys(&ends(31)), [""; 0]);
    }

    #[test]
    fn the_secret_of_a_person_fires_before_it_ends_and_one_for_a_short_time_or_of_a_device_does_not() {
        let now: Timestamp = "2027-03-10T12:00:00Z".parse().expect("a moment");
        let account = |role: Role, days: u64| {
            let ttl = Some(Duration::from_secs(days * 24 * 3600));
            let secret = json!(Record::new(Digest::of(b"it"), ttl, now));
            let file = json!({"layout": 1, "name": "desk", "role": role, "secrets": [secret]});
            serde_json::from_value::<Account>(file).expect("an account")
        };
        let desk = Ending::of(&account(Role::Auditor, 90)).expect("it ends");
        assert_eq!(desk.name, "accounts/desk");
        assert_eq!(desk.what, "the secret of the account desk (auditor)");
        assert_eq!(desk.end, now + SignedDuration::from_hours(24 * 90));
        assert_eq!(Ending::of(&account(Role::Operator, 30)), None);
        assert_eq!(Ending::of(&account(Role::Device, 90)), None);
        let revoked = Account { revoked: Some(now), ..account(Role::Operator, 90) };
        assert_eq!(Ending::of(&revoked), None);
    }
}
