//! Commit messages: a templated subject, an optional body, and trailers in a fixed order.

mod trailer;

use std::fmt;

use serde::Serialize;

pub use trailer::Trailer;

use crate::{Branch, DeploymentId, DeviceId, Digest, FleetId};

/// The largest subject and body together, in bytes; trailers are not counted.
pub const MAX_TEXT: usize = 1024;

/// A commit message of the contract.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    subject: String,
    body: Vec<String>,
    trailers: Vec<(String, String)>,
}

impl Message {
    /// Starts a message; control characters in `subject` become spaces.
    pub fn new(subject: impl AsRef<str>) -> Self {
        Self { subject: clean(subject.as_ref(), 200), ..Self::default() }
    }

    /// Adds a line to the body.
    pub fn line(mut self, line: impl AsRef<str>) -> Self {
        let left =
            MAX_TEXT.saturating_sub(self.subject.len() + self.body.iter().map(|line| line.len() + 1).sum::<usize>());
        let line = clean(line.as_ref(), left.saturating_sub(2));
        if !line.is_empty() {
            self.body.push(line);
        }
        self
    }

    /// Adds a trailer; its value becomes one line of 1000 bytes at most.
    pub fn trailer(mut self, key: impl AsRef<str>, value: impl fmt::Display) -> Self {
        self.trailers.push((key.as_ref().to_owned(), clean(&value.to_string(), 1000)));
        self
    }

    /// Adds the trailers with which every commit of a device repository says where it belongs: `Kind`, `Fleet`, `Device`.
    pub fn identity(self, branch: Branch, fleet: FleetId, device: &DeviceId) -> Self {
        self.trailer(Trailer::Kind, branch).trailer(Trailer::Fleet, fleet).trailer(Trailer::Device, device)
    }

    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// All trailers in order.
    pub fn trailers(&self) -> &[(String, String)] {
        &self.trailers
    }

    /// The value of a trailer that stands exactly once; `None` if it is missing or repeated.
    pub fn get(&self, key: impl AsRef<str>) -> Option<&str> {
        let key = key.as_ref();
        let mut values = self.trailers.iter().filter(|(name, _)| name == key);
        let (_, value) = values.next()?;
        values.next().is_none().then_some(value)
    }

    /// The same as a number; `None` also if it is none.
    pub fn number(&self, key: impl AsRef<str>) -> Option<u64> {
        self.get(key)?.parse().ok()
    }

    /// All values of a trailer.
    pub fn all<'a>(&'a self, key: impl AsRef<str> + 'a) -> impl Iterator<Item = &'a str> {
        self.trailers.iter().filter(move |(name, _)| name == key.as_ref()).map(|(_, value)| value.as_str())
    }

    /// What it says on `desired` of each deployment that it changes; what isn't in the form of the contract is left out.
    pub fn deployment_changes(&self) -> impl Iterator<Item = DeploymentChange<'_>> {
        self.all(Trailer::Deployment).filter_map(DeploymentChange::parse)
    }

    /// The waves that released something of a commit of `desired`; likewise.
    pub fn waves(&self) -> impl Iterator<Item = Wave> {
        self.all(Trailer::Rollout).filter_map(Wave::parse)
    }

    /// What a commit of `status` says that changed; likewise.
    pub fn transitions(&self) -> impl Iterator<Item = Transition<'_>> {
        self.all(Trailer::State).filter_map(Transition::parse)
    }

    /// The first of the trailers `Kind`, `Fleet` and `Device` that doesn't stand once with the value of this branch of this
    /// device, and that value. `None` if the commit belongs there.
    pub fn wrong_identity(
        &self,
        branch: impl AsRef<str>,
        fleet: FleetId,
        device: &DeviceId,
    ) -> Option<(Trailer, String)> {
        let expected = [
            (Trailer::Kind, branch.as_ref().to_owned()),
            (Trailer::Fleet, fleet.to_string()),
            (Trailer::Device, device.to_string()),
        ];
        expected.into_iter().find(|(key, value)| self.get(key) != Some(value))
    }

    /// Reads a message. Trailers are the last paragraph, if each of its lines reads `Key: value` and it is not the
    /// first paragraph.
    pub fn parse(text: &str) -> Self {
        let text = text.trim_end_matches('\n');
        let (head, last) = text.rsplit_once("\n\n").unwrap_or((text, ""));
        let trailers: Option<Vec<_>> = last.lines().map(trailer_line).collect();
        let (head, trailers) = match trailers {
            Some(trailers) => (head, trailers),
            None => (text, Vec::new()),
        };
        let mut lines = head.lines();
        let subject = lines.next().unwrap_or_default().to_owned();
        Self { subject, body: lines.filter(|line| !line.is_empty()).map(str::to_owned).collect(), trailers }
    }
}

/// A value of the trailer `Deployment`: what a commit of `desired` does to a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeploymentChange<'a> {
    /// `add`, `change` or `remove`.
    pub word: &'a str,
    /// What operators call it.
    pub name: &'a str,
    pub id: DeploymentId,
    /// The commit of the fleet that it is from.
    pub fleet_commit: &'a str,
}

impl<'a> DeploymentChange<'a> {
    fn parse(value: &'a str) -> Option<Self> {
        let [word, name, id, fleet_commit] = value.split(' ').collect::<Vec<_>>()[..] else { return None };
        Some(Self { word, name, id: id.parse().ok()?, fleet_commit })
    }
}

/// A value of the trailer `Rollout`: a wave of a rollout, by the publisher's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Wave {
    pub rollout: u32,
    /// From 1; the last one is everybody whom no other wave names.
    pub wave: u32,
}

impl Wave {
    fn parse(value: &str) -> Option<Self> {
        let (rollout, wave) = value.split_once(' ')?;
        Some(Self { rollout: rollout.parse().ok()?, wave: wave.parse().ok()? })
    }
}

/// A value of the trailer `State`: a change of a state on `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition<'a> {
    pub deployment: DeploymentId,
    /// `*` is the deployment as a whole.
    pub component: &'a str,
    pub from: &'a str,
    pub to: &'a str,
    /// Why, as an error code.
    pub code: Option<&'a str>,
}

impl<'a> Transition<'a> {
    /// Reads the value of a trailer; one of another form is none.
    pub fn parse(value: &'a str) -> Option<Self> {
        let words: Vec<_> = value.split(' ').collect();
        let [what, from, ">", to, ref rest @ ..] = words[..] else { return None };
        let (id, component) = what.split_once('/')?;
        Some(Self { deployment: id.parse().ok()?, component, from, to, code: rest.first().copied() })
    }

    /// Whether it is of the deployment as a whole.
    pub fn is_whole(&self) -> bool {
        self.component == "*"
    }
}

/// The value of the trailer `Continues`: what a device adopted that a state made after a restore goes on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Continues {
    /// The digest of the adopted `envelope.json`.
    pub envelope: Digest,
    pub serial: u64,
}

impl fmt::Display for Continues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.envelope, self.serial)
    }
}

/// The trailers `Epoch` and `Previous`, which begin an epoch of `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Epoch<C> {
    /// From 2: the first one has no such trailers.
    pub number: u32,
    /// The commit with which the one before ended.
    pub previous: C,
}

impl<C: std::str::FromStr + fmt::Display> Epoch<C> {
    /// The epoch that a message begins; `None` if it begins none.
    pub fn of(message: &Message) -> Option<Self> {
        let number = message.get(Trailer::Epoch)?.parse().ok().filter(|number| *number > 1)?;
        Some(Self { number, previous: message.get(Trailer::Previous)?.parse().ok()? })
    }

    /// The message as one that begins this epoch.
    pub fn begin(&self, message: &Message) -> Message {
        let state = |key: &str| Trailer::State == key;
        let (states, about): (Vec<_>, Vec<_>) =
            Self::without(message).trailers.into_iter().partition(|(key, _)| state(key));
        let mut begun = Message { trailers: about, ..message.clone() }
            .trailer(Trailer::Epoch, self.number)
            .trailer(Trailer::Previous, &self.previous);
        begun.trailers.extend(states);
        begun
    }

    /// The message as one that begins no epoch.
    pub fn without(message: &Message) -> Message {
        let begins = |key: &str| Trailer::Epoch == key || Trailer::Previous == key;
        let trailers = message.trailers.iter().filter(|(key, _)| !begins(key)).cloned().collect();
        Message { trailers, ..message.clone() }
    }
}

fn trailer_line(line: &str) -> Option<(String, String)> {
    let (key, value) = line.split_once(": ")?;
    let is_key = !key.is_empty() && key.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
    is_key.then(|| (key.to_owned(), value.to_owned()))
}

/// One line without control characters, at most `max` bytes.
fn clean(text: &str, max: usize) -> String {
    let mut line = String::with_capacity(text.len().min(max));
    for c in text.trim().chars() {
        let c = if c.is_control() || is_bidi(c) { ' ' } else { c };
        if line.len() + c.len_utf8() > max {
            break;
        }
        line.push(c);
    }
    line
}

/// Characters that reorder what a terminal shows.
fn is_bidi(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.subject)?;
        if !self.body.is_empty() {
            writeln!(f)?;
        }
        for line in &self.body {
            writeln!(f, "{line}")?;
        }
        if !self.trailers.is_empty() {
            writeln!(f)?;
        }
        for (key, value) in &self.trailers {
            writeln!(f, "{key}: {value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let message =
            Message::new("digitron: installed").line("one").trailer("Kind", "status").trailer(Trailer::Serial, 7);
        assert_eq!(message.to_string(), "digitron: installed\n\none\n\nKind: status\nSerial: 7\n");
        assert_eq!(Message::parse(&message.to_string()), message);
    }

    #[test]
    fn text_can_not_pose_as_a_trailer() {
        let message = Message::new("x\n\nKind: desired").line("Serial: 9\n\nSerial: 8").trailer("Serial", "1\nKind: x");
        let read = Message::parse(&message.to_string());
        assert_eq!(read.trailers(), [("Serial".to_owned(), "1 Kind: x".to_owned())]);
    }

    #[test]
    fn a_repeated_trailer_is_not_one() {
        let message = Message::parse("s\n\nSerial: 1\nSerial: 2\n");
        assert_eq!(message.get(Trailer::Serial), None);
        assert_eq!(message.all("Serial").count(), 2);
    }

    #[test]
    fn a_commit_belongs_to_one_branch_of_one_device() {
        let (fleet, device) = (FleetId::from(uuid::Uuid::nil()), "press-01".parse::<DeviceId>().unwrap());
        let message = Message::new("x").identity(Branch::Status, fleet, &device);
        assert!(message.to_string().ends_with(&format!("\n\nKind: status\nFleet: {fleet}\nDevice: press-01\n")));
        assert_eq!(message.wrong_identity(Branch::Status, fleet, &device), None);
        let foreign = |message: &Message| message.wrong_identity(Branch::Heartbeat, fleet, &device);
        assert_eq!(foreign(&message), Some((Trailer::Kind, "heartbeat".to_owned())));
        let twice = message.trailer(Trailer::Device, &device);
        assert_eq!(twice.wrong_identity("status", fleet, &device), Some((Trailer::Device, "press-01".to_owned())));
    }

    #[test]
    fn trailers_say_what_changes_what_released_it_and_what_came_of_it() {
        let id = "8f14e45f-ceea-467f-9a5c-1d2c3b4a5968";
        let message = Message::new("x")
            .trailer(Trailer::Deployment, format!("change hello {id} 4be1"))
            .trailer(Trailer::Deployment, format!("change hello {id}"))
            .trailer(Trailer::Rollout, "12 2")
            .trailer(Trailer::Rollout, "12")
            .trailer(Trailer::State, format!("{id}/* installing > failed compose-failed"))
            .trailer(Trailer::State, format!("{id}/web none > pending"))
            .trailer(Trailer::State, format!("{id}/web pending"));
        let changes: Vec<_> = message.deployment_changes().map(|one| (one.word, one.name, one.fleet_commit)).collect();
        assert_eq!(changes, [("change", "hello", "4be1")]);
        assert_eq!(message.waves().collect::<Vec<_>>(), [Wave { rollout: 12, wave: 2 }]);
        let steps: Vec<_> = message.transitions().map(|one| (one.is_whole(), one.from, one.to, one.code)).collect();
        assert_eq!(steps, [(true, "installing", "failed", Some("compose-failed")), (false, "none", "pending", None)]);
    }

    #[test]
    fn an_epoch_begins_with_two_trailers_before_what_changed() {
        let message =
            Message::new("x installed (serial 4)").trailer(Trailer::Serial, 4).trailer(Trailer::State, "a/b c > d");
        assert_eq!(Epoch::<String>::of(&message), None);
        let epoch = Epoch { number: 2, previous: "4b825dc".to_owned() };
        let begun = epoch.begin(&message);
        assert_eq!(
            begun.to_string(),
            "x installed (serial 4)\n\nSerial: 4\nEpoch: 2\nPrevious: 4b825dc\nState: a/b c > d\n"
        );
        assert_eq!((Epoch::of(&begun), Epoch::<String>::without(&begun)), (Some(epoch.clone()), message));
        assert_eq!(epoch.begin(&begun), begun);
        for wrong in [
            "Epoch: 1\nPrevious: a",
            "Epoch: 2",
            "Previous: a",
            "Epoch: 2\nEpoch: 2\nPrevious: a",
            "Epoch: x\nPrevious: a",
        ] {
            assert_eq!(Epoch::<String>::of(&Message::parse(&format!("s\n\n{wrong}\n"))), None, "{wrong}");
        }
    }

    #[test]
    fn text_is_bounded() {
        let message = (0..100).fold(Message::new("s".repeat(5000)), |m, _| m.line("y".repeat(100)));
        assert!(message.to_string().len() <= MAX_TEXT + 2, "{}", message.to_string().len());
    }
}
