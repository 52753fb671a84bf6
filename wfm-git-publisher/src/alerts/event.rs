//! What a receiver gets: a CloudEvent in JSON.

use jiff::Timestamp;
use repo_model::FleetId;
use serde_json::{Value, json};

use super::told::{Event, id};

/// So many subjects of an event about many are named; `count` says how many there are.
const NAMED: usize = 1000;

/// The event as a CloudEvent (1.0, in its JSON format); `time` is that of this look.
pub(super) fn cloud_event(event: &Event, fleet: FleetId, time: Timestamp) -> Value {
    let (place, subjects) = (event.place(), event.subjects());
    let subject = match &event.alerts[..] {
        [(_, one)] => one.alert.subject.clone(),
        _ => place.clone().unwrap_or_else(|| "devices".to_owned()),
    };
    let mut data = match &event.alerts[..] {
        [(_, one)] => json!({ "message": one.alert.message, "since": one.since, "device": one.alert.device,
            "deployment": one.alert.deployment, "rollout": one.alert.rollout }),
        many => {
            let since = many.iter().map(|(_, one)| one.since).min();
            let message = format!("{} {} at once", subjects.len(), event.kind);
            let device = many.first().and_then(|(_, one)| one.alert.device.as_ref()).filter(|_| place.is_some());
            json!({ "message": message, "since": since, "device": device, "subjects": &subjects[..subjects.len().min(NAMED)] })
        }
    };
    data["alert"] = json!(event.kind);
    data["status"] = json!(event.status);
    data["count"] = json!(subjects.len());
    of(&event.id(), &format!("wfm.alert.{}", event.status), &subject, (fleet, time), data)
}

/// An event that says nothing but that it came.
pub(super) fn test_event(fleet: FleetId, receiver: &str, time: Timestamp) -> Value {
    let data = json!({ "status": "test", "message": format!("a test of the receiver {receiver}") });
    of(&id(&format!("test {receiver} {time}")), "wfm.alert.test", "test", (fleet, time), data)
}

fn of(id: &str, kind: &str, subject: &str, (fleet, time): (FleetId, Timestamp), data: Value) -> Value {
    json!({ "specversion": "1.0", "id": id, "source": format!("urn:uuid:{fleet}"), "type": kind, "subject": subject,
        "time": time, "datacontenttype": "application/json", "data": data })
}
