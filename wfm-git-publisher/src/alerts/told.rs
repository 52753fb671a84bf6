//! What one receiver was told of what fires, and what it still has to be told. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use repo_model::Digest;
use serde::{Deserialize, Serialize};

use super::rules::{Alert, Firing};
use crate::config::AlertKind;

/// So many of one kind at one look are told one by one. Of more of them, those of one device are one event; and if they are of more
/// devices than this, such as all behind one line, all of them are.
const ONE_BY_ONE: usize = 20;

/// So many of one kind of one device are told one by one, and so many events about what is told at once before it has to wait.
const OF_ONE_DEVICE: usize = 5;

/// After so long one more event may tell of a device what is told at once.
const PACE: SignedDuration = SignedDuration::from_mins(10);

/// What a receiver knows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// What fires or fired, by its key.
    pub alerts: BTreeMap<String, Known>,
    /// By status, kind and device: when as many events as ever may be told again of what is told at once. Each that is told puts it
    /// off by [`PACE`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    paces: BTreeMap<String, Timestamp>,
}

/// An alert as a receiver knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Known {
    #[serde(flatten)]
    pub alert: Alert,
    /// When it was seen first.
    pub since: Timestamp,
    /// Whether the receiver was told that it fires.
    pub told: bool,
}

/// Whether something begins or is over, in the words of Prometheus' Alertmanager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Firing,
    Resolved,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Firing => "firing",
            Self::Resolved => "resolved",
        })
    }
}

/// What a receiver is told at once: one alert, or many of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub status: Status,
    pub kind: AlertKind,
    /// At least one, with what makes each the same.
    pub alerts: Vec<(String, Known)>,
    /// The moment of the look, from which the pace of what is told at once is counted.
    at: Timestamp,
}

impl Event {
    /// The same event, sent again, has the same id.
    pub fn id(&self) -> String {
        let each = self.alerts.iter().map(|(key, known)| format!("\n{} {key}", known.since));
        id(&format!("{}{}", self.status, each.collect::<String>()))
    }

    /// The device that all of it is about, as a path; `None` if it is about more than one thing.
    pub(super) fn place(&self) -> Option<String> {
        let places: BTreeSet<_> = self.alerts.iter().map(|(_, known)| known.alert.place()).collect();
        places.first().filter(|_| places.len() == 1).cloned()
    }

    /// What it is about: each thing of one device; of many devices each device with more than one thing is named once.
    pub(super) fn subjects(&self) -> Vec<String> {
        let all = self.alerts.iter().map(|(_, known)| &known.alert);
        if self.place().is_some() {
            return all.map(|alert| alert.subject.clone()).collect();
        }
        let mut places = BTreeMap::<_, Vec<_>>::new();
        all.for_each(|alert| places.entry(alert.place()).or_default().push(&alert.subject));
        let named = places.into_iter().map(|(place, subjects)| match subjects[..] {
            [one] => one.clone(),
            _ => place,
        });
        named.collect()
    }
}

/// The id of an event that tells this: 128 bits of its digest, in hex.
pub(super) fn id(told: &str) -> String {
    Digest::of(told.as_bytes()).hex()[..32].to_owned()
}

/// What a receiver wants to hear of.
#[derive(Debug, Clone, Copy)]
pub struct Wants<'a> {
    /// Empty: all kinds.
    pub only: &'a BTreeSet<AlertKind>,
    /// For how long something has to be so before it is told; what was decided, and security events, are told at once.
    pub after: Duration,
}

impl Told {
    /// The same with each alert as it is called now.
    pub(super) fn renamed(self) -> Self {
        let named = self.alerts.into_values().map(|known| Known { alert: known.alert.renamed(), ..known });
        Self { alerts: named.map(|known| (known.alert.key(), known)).collect(), paces: self.paces }
    }

    /// Takes over what fires now. `is_first`: this receiver was never told anything, so what was over before is none of its business.
    pub fn take(&mut self, firing: &Firing, wants: Wants<'_>, is_first: bool, now: Timestamp) {
        let wanted = |kind: AlertKind| wants.only.is_empty() || wants.only.contains(&kind);
        for (key, alert) in firing.iter().filter(|(_, alert)| wanted(alert.alert)) {
            let told = is_first && alert.alert.is_over();
            let known = Known { alert: alert.clone(), since: now, told };
            self.alerts.entry(key.clone()).or_insert(known).alert.clone_from(alert);
        }
        // What was never told needn't be told to be over.
        self.alerts.retain(|key, known| firing.contains_key(key) || known.told && !known.alert.alert.is_over());
        // Later than that it was put off by a clock that was ahead.
        let latest = PACE.saturating_mul(OF_ONE_DEVICE as i32);
        self.paces.retain(|_, free| (SignedDuration::ZERO..=latest).contains(&free.duration_since(now)));
    }

    /// What the receiver has to be told now.
    pub fn due(&self, firing: &Firing, wants: Wants<'_>, now: Timestamp) -> Vec<Event> {
        let lasted = |known: &Known| {
            let so = now.duration_since(known.since);
            !known.alert.alert.has_to_last() || Duration::try_from(so).is_ok_and(|so| so >= wants.after)
        };
        let mut all = BTreeMap::<(Status, AlertKind), BTreeMap<String, Vec<_>>>::new();
        for (key, known) in &self.alerts {
            let status = match firing.contains_key(key) {
                true if !known.told && lasted(known) => Status::Firing,
                false => Status::Resolved,
                true => continue,
            };
            if self.room(status, &known.alert, now) > 0 {
                let places = all.entry((status, known.alert.alert)).or_default();
                places.entry(known.alert.place()).or_default().push((key.clone(), known.clone()));
            }
        }
        let events = all.into_iter().flat_map(|((status, kind), places)| {
            let count: usize = places.values().map(Vec::len).sum();
            let each: Vec<Vec<_>> = if places.len() > ONE_BY_ONE {
                vec![places.into_values().flatten().collect()]
            } else {
                places.into_values().flat_map(|alerts| self.parted(status, alerts, count, now)).collect()
            };
            each.into_iter().map(move |alerts| Event { status, kind, alerts, at: now })
        });
        events.collect()
    }

    /// What is told together of what there is of one device, or of one thing. `count`: how many there are of this kind in all.
    fn parted(
        &self,
        status: Status,
        alerts: Vec<(String, Known)>,
        count: usize,
        now: Timestamp,
    ) -> Vec<Vec<(String, Known)>> {
        let room = alerts.first().map_or(0, |(_, known)| self.room(status, &known.alert, now));
        if count > ONE_BY_ONE || alerts.len() > room {
            vec![alerts]
        } else {
            alerts.into_iter().map(|one| vec![one]).collect()
        }
    }

    /// How many events may tell this of its device now. What has to last comes ever so rarely by itself.
    fn room(&self, status: Status, alert: &Alert, now: Timestamp) -> usize {
        let free = pace(status, alert).and_then(|pace| self.paces.get(&pace));
        let mut wait = free.map_or(SignedDuration::ZERO, |free| free.duration_since(now));
        let mut room = OF_ONE_DEVICE;
        while room > 0 && wait.is_positive() {
            (room, wait) = (room - 1, wait - PACE);
        }
        room
    }

    /// The receiver was told.
    pub fn note(&mut self, event: &Event) {
        let paces: BTreeSet<_> =
            event.alerts.iter().filter_map(|(_, known)| pace(event.status, &known.alert)).collect();
        for pace in paces {
            let free = self.paces.entry(pace).or_insert(event.at);
            *free = (*free).max(event.at) + PACE;
        }
        for (key, _) in &event.alerts {
            match event.status {
                Status::Firing => self.alerts.get_mut(key).into_iter().for_each(|known| known.told = true),
                Status::Resolved => _ = self.alerts.remove(key),
            }
        }
    }
}

/// Under what it is counted how often this is told; `None` for what isn't of a device, or has to last.
fn pace(status: Status, alert: &Alert) -> Option<String> {
    let device = alert.device.as_ref().filter(|_| !alert.alert.has_to_last())?;
    Some(format!("{status} {} {device}", alert.alert))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn alert(kind: AlertKind, subject: &str) -> (String, Alert) {
        let alert = Alert {
            alert: kind,
            subject: subject.to_owned(),
            device: None,
            deployment: None,
            rollout: None,
            message: "it is so".to_owned(),
        };
        (alert.key(), alert)
    }

    /// A receiver that looks at these moments, is told all that is due, and what that was.
    fn told(told: &mut Told, firing: &Firing, after: u64, second: i64) -> Vec<String> {
        let (now, only) = (Timestamp::from_second(NOW + second).expect("a moment"), BTreeSet::new());
        let wants = Wants { only: &only, after: Duration::from_secs(after) };
        told.take(firing, wants, false, now);
        let due = told.due(firing, wants, now);
        due.iter().for_each(|event| told.note(event));
        due.iter().map(|event| format!("{} {} {}", event.status, event.kind, event.alerts.len())).collect()
    }

    #[test]
    fn what_fires_is_told_once_and_once_more_when_it_is_over() {
        let (mut known, failed) = (Told::default(), Firing::from([alert(AlertKind::DeploymentFailed, "devices/a")]));
        assert_eq!(told(&mut known, &failed, 0, 0), ["firing deployment-failed 1"]);
        assert_eq!(told(&mut known, &failed, 0, 60), [""; 0]);
        assert_eq!(told(&mut known, &Firing::new(), 0, 120), ["resolved deployment-failed 1"]);
        assert_eq!(known, Told::default());
    }

    #[test]
    fn what_does_not_last_is_told_to_nobody() {
        let (mut known, failed) = (Told::default(), Firing::from([alert(AlertKind::DeploymentFailed, "devices/a")]));
        assert_eq!(told(&mut known, &failed, 120, 0), [""; 0]);
        assert_eq!(told(&mut known, &Firing::new(), 120, 60), [""; 0]);
        assert_eq!(told(&mut known, &failed, 120, 90), [""; 0], "the time begins anew");
        assert_eq!(told(&mut known, &failed, 120, 210), ["firing deployment-failed 1"]);
        // A decision doesn't have to last.
        let stopped = Firing::from([alert(AlertKind::RolloutStopped, "rollouts/1")]);
        assert_eq!(told(&mut known, &stopped, 120, 220), ["firing rollout-stopped 1", "resolved deployment-failed 1"]);
    }

    #[test]
    fn the_end_of_a_rollout_is_told_once_and_an_old_one_to_no_new_receiver() {
        let done = Firing::from([alert(AlertKind::RolloutFinished, "rollouts/1")]);
        let mut known = Told::default();
        assert_eq!(told(&mut known, &done, 120, 0), ["firing rollout-finished 1"]);
        assert_eq!(told(&mut known, &Firing::new(), 120, 60), [""; 0], "it goes out of mind, and isn't resolved");
        assert_eq!(known, Told::default());
        let (only, now) = (BTreeSet::new(), Timestamp::from_second(NOW).expect("a moment"));
        let wants = Wants { only: &only, after: Duration::ZERO };
        known.take(&done, wants, true, now);
        assert_eq!(known.due(&done, wants, now), []);
    }

    #[test]
    fn many_at_once_are_one_event_and_the_same_event_has_the_same_id() {
        let many: Firing = (0..21).map(|n| alert(AlertKind::DeviceOffline, &format!("devices/press-{n:02}"))).collect();
        let (mut known, only, now) = (Told::default(), BTreeSet::new(), Timestamp::from_second(NOW).expect("a moment"));
        let wants = Wants { only: &only, after: Duration::ZERO };
        known.take(&many, wants, false, now);
        let (one, again) = (known.due(&many, wants, now), known.due(&many, wants, now));
        assert_eq!((one.len(), one[0].alerts.len()), (1, 21));
        assert_eq!(one[0].id(), again[0].id());
        assert_eq!(told(&mut known, &many, 0, 60), ["firing device-offline 21"]);
        let few: Firing = many.into_iter().take(19).collect();
        assert_eq!(told(&mut known, &few, 0, 120), ["resolved device-offline 1"; 2]);
    }

    /// A security event that a device causes, which is told at once.
    fn security(device: &str, reason: &str) -> (String, Alert) {
        let (_, alert) = alert(AlertKind::SecurityEvent, &format!("devices/{device}/security/{reason}"));
        let alert = Alert { device: Some(device.parse().expect("an id")), ..alert };
        (alert.key(), alert)
    }

    #[test]
    fn a_device_that_says_much_hides_no_other_one() {
        let lies = (0..1000).map(|n| security("press-01", &format!("Made{n:03}")));
        let all: Firing = lies.chain([security("zeta-01", "HistoryContinued")]).collect();
        let (mut known, only, now) = (Told::default(), BTreeSet::new(), Timestamp::from_second(NOW).expect("a moment"));
        let wants = Wants { only: &only, after: Duration::ZERO };
        known.take(&all, wants, false, now);
        let due = known.due(&all, wants, now);
        let about: Vec<_> = due.iter().map(|event| (event.alerts.len(), event.subjects())).collect();
        assert_eq!((about.len(), about[0].0, about[0].1.len()), (2, 1000, 1000), "{about:?}");
        assert_eq!(due[0].place().as_deref(), Some("devices/press-01"));
        assert_eq!(about[1], (1, vec!["devices/zeta-01/security/HistoryContinued".to_owned()]));
        // Of more than 20 devices each is named, and none of them twice.
        let others = (0..20).map(|n| security(&format!("press-{n:02}"), "HistoryContinued"));
        let all: Firing = all.into_iter().chain(others).collect();
        let mut known = Told::default();
        known.take(&all, wants, false, now);
        let due = known.due(&all, wants, now);
        let subjects = due[0].subjects();
        assert_eq!((due.len(), due[0].alerts.len(), subjects.len()), (1, 1021, 21), "{subjects:?}");
        assert!(subjects.contains(&"devices/press-01".to_owned()), "{subjects:?}");
        assert!(subjects.contains(&"devices/zeta-01/security/HistoryContinued".to_owned()), "{subjects:?}");
    }

    #[test]
    fn a_device_that_says_something_else_at_each_look_is_told_of_ever_more_rarely() {
        let (mut known, mut calls, mut zeta) = (Told::default(), BTreeMap::<_, usize>::new(), Vec::new());
        for look in 0..600 {
            let lies = (0..look % 8).map(|n| security("press-01", &format!("Made{look}-{n}")));
            let mut now: Firing = lies.collect();
            now.extend((look >= 300).then(|| security("zeta-01", "HistoryContinued")));
            let all = told(&mut known, &now, 120, look * 6);
            all.iter().for_each(|event| {
                *calls.entry(event.split(' ').next().unwrap_or_default().to_owned()).or_default() += 1;
            });
            zeta.extend(
                known.alerts.values().find(|known| known.alert.subject.contains("zeta") && known.told).map(|_| look),
            );
        }
        // Five, and one each ten minutes; one of those that fired was the other device's.
        assert_eq!(calls, BTreeMap::from([("firing".to_owned(), 10 + 1), ("resolved".to_owned(), 10)]));
        assert_eq!(zeta.first(), Some(&300), "another device's is told at once");
        let mut ahead = known.clone();
        assert_eq!(told(&mut known, &Firing::new(), 120, 7200), ["resolved security-event 1"]);
        assert_eq!(told(&mut known, &Firing::new(), 120, 20_000), [""; 0]);
        assert_eq!(known, Told::default());
        // What a clock that was ahead put off isn't put off until then.
        let lie = Firing::from([security("press-01", "Made")]);
        let all = told(&mut ahead, &lie, 120, -1_000_000);
        assert_eq!(all, ["firing security-event 1", "resolved security-event 1"]);
    }

    #[test]
    fn what_the_version_before_told_by_another_name_is_not_told_again() {
        let (mut known, code) = (Told::default(), "fleet-invalid");
        let so = |subject: &str| {
            let (_, alert) = alert(AlertKind::NotPublishable, subject);
            let alert = Alert { message: format!("{code}: it is so"), ..alert };
            Firing::from([(alert.key(), alert)])
        };
        assert_eq!(told(&mut known, &so("fleet"), 0, 0), ["firing not-publishable 1"]);
        let (mut known, now) = (known.renamed(), so(&format!("fleet/not-publishable/{code}")));
        assert_eq!(told(&mut known, &now, 0, 60), [""; 0]);
        assert_eq!(told(&mut known, &Firing::new(), 0, 120), ["resolved not-publishable 1"]);
    }

    #[test]
    fn who_wants_one_kind_hears_of_no_other() {
        let all = Firing::from([
            alert(AlertKind::DeploymentFailed, "devices/a"),
            alert(AlertKind::DeviceOffline, "devices/a"),
        ]);
        let (mut known, now) = (Told::default(), Timestamp::from_second(NOW).expect("a moment"));
        let only = BTreeSet::from([AlertKind::DeviceOffline]);
        let wants = Wants { only: &only, after: Duration::ZERO };
        known.take(&all, wants, false, now);
        let due = known.due(&all, wants, now);
        assert_eq!(due.iter().map(|event| event.kind).collect::<Vec<_>>(), [AlertKind::DeviceOffline]);
    }
}
