//! How what runs of a component is, in the words of the heartbeat.

use std::fmt;

use repo_model::desired::Desired;
use repo_model::margo::State;
use repo_model::report::{Drift, Health};

use crate::decision::device_state::DeviceState;
use crate::decision::failure::shown;
use crate::decision::observation::{Condition, Observation, Observed};
use crate::decision::status::Report;

/// How what runs of a component is, and whether that is what was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComponentHealth {
    pub health: Health,
    pub drift: Drift,
    /// Why it is neither healthy nor starting, in a few words; a chart's objects may have a part in them.
    pub reason: Option<String>,
    /// Whether it is degraded because something of it restarts again and again.
    pub is_crash_looping: bool,
}

impl ComponentHealth {
    /// Of a component that can't be observed.
    pub const UNKNOWN: Self = Self::new(Health::Unknown, Drift::Unknown);

    const fn new(health: Health, drift: Drift) -> Self {
        Self { health, drift, reason: None, is_crash_looping: false }
    }

    /// How the project or release of this name is.
    pub fn of(project: &str, observation: &Observation, device_state: &DeviceState) -> Self {
        let found = observation.found.iter().find(|found| found.project == project);
        let unreachable = device_state.applied_kind(project).and_then(|kind| observation.unreachable.get(&kind));
        match (found, unreachable) {
            (Some(found), _) => Self::of_found(found),
            (None, Some(error)) => Self { reason: Some(shown(&error.message)), ..Self::UNKNOWN },
            (None, None) if device_state.applied_digest(project).is_some() => {
                let reason = Some("nothing of it is there".to_owned());
                Self { reason, ..Self::new(Health::Missing, Drift::Missing) }
            }
            (None, None) => Self::new(Health::Missing, Drift::None),
        }
    }

    fn of_found(found: &Observed) -> Self {
        let (health, drift) = match &found.condition {
            Condition::Running => (Health::Healthy, Drift::None),
            Condition::Starting => (Health::Starting, Drift::None),
            Condition::Degraded(_) | Condition::CrashLooping(_) => (Health::Degraded, Drift::None),
            Condition::Stopped(_) => (Health::Degraded, Drift::Stopped),
            Condition::Edited(_) => (Health::Degraded, Drift::Changed),
            Condition::Missing => (Health::Missing, Drift::Missing),
            Condition::Unknown(_) => (Health::Unknown, Drift::Unknown),
        };
        let is_crash_looping = matches!(found.condition, Condition::CrashLooping(_));
        Self { health, drift, reason: found.trouble().map(|text| shown(&text)), is_crash_looping }
    }

    /// Whether it runs well, or may soon.
    pub fn is_good(&self) -> bool {
        matches!(self.health, Health::Healthy | Health::Starting)
    }
}

/// A component that isn't installed, or doesn't run well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotReady {
    /// `deployment/component`, by the operator's id.
    pub name: String,
    /// Its state if it isn't installed, else its health.
    pub how: String,
    /// A code with its words, or the health's reason; empty if nothing is known.
    pub why: String,
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, how, why } = self;
        let colon = if why.is_empty() { "" } else { ": " };
        write!(f, "{name}: {how}{colon}{why}")
    }
}

/// Every component that isn't as wanted.
pub fn not_ready(observation: &Observation, device_state: &DeviceState, desired: Option<&Desired>) -> Vec<NotReady> {
    let mut all = Vec::new();
    for (id, reported) in Report::read(&device_state.status).deployments {
        for component in reported.components.into_iter().filter(|one| one.state != State::Removed) {
            let name = format!("{}/{}", device_state.name_of(id, desired), component.name);
            let health = ComponentHealth::of(&id.runtime_name(&component.name), observation, device_state);
            if component.state != State::Installed {
                let why = component.failure.map(|failure| format!("{}: {}", failure.code, failure.message));
                all.push(NotReady { name, how: component.state.to_string(), why: why.unwrap_or_default() });
            } else if !health.is_good() {
                all.push(NotReady { name, how: health.health.to_string(), why: health.reason.unwrap_or_default() });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use repo_model::margo::ProfileType;

    use repo_model::ErrorCode;

    use super::*;
    use crate::decision::device_state::AppliedComponent;
    use crate::decision::failure::Failure;
    use crate::testing::{component, input_digest, observed, project, wanted};

    #[test]
    fn every_condition_has_its_words_and_what_is_not_well_its_reason() {
        let text = |words: &str| words.to_owned();
        let of = |found: Option<Condition>, applied: bool, unreachable: bool| {
            let mut device_state = DeviceState::default();
            if applied {
                let (name, input_digest) = (component("x"), Some(input_digest("a", "x", "1")));
                let (project, kind) = (project("a", "x"), ProfileType::Compose);
                device_state.note(&wanted("a", &[]), AppliedComponent { name, project, kind, input_digest });
            }
            let error = Failure::new(ErrorCode::RuntimeUnavailable, "docker can't be used: gone");
            let unreachable = unreachable.then_some((ProfileType::Compose, error));
            let found = found.map(|condition| observed("a", "x", None, condition));
            let observation = Observation {
                found: found.into_iter().collect(),
                unreachable: BTreeMap::from_iter(unreachable),
                ..Observation::default()
            };
            let ComponentHealth { health, drift, reason, is_crash_looping } =
                ComponentHealth::of(&project("a", "x"), &observation, &device_state);
            let crash_looping = if is_crash_looping { "crash-looping " } else { "" };
            format!("{health} {drift} {crash_looping}{}", reason.unwrap_or_default())
        };
        for (condition, expected) in [
            (Condition::Running, "healthy none "),
            (Condition::Starting, "starting none "),
            (Condition::Degraded(text("unhealthy")), "degraded none unhealthy"),
            (Condition::CrashLooping(text("restarting")), "degraded none crash-looping restarting"),
            (Condition::Stopped(text("exited with 3")), "degraded stopped exited with 3"),
            (Condition::Edited(text("replicas")), "degraded changed replicas"),
            (Condition::Missing, "missing missing something of it is missing"),
            (Condition::Unknown(text("it hangs")), "unknown unknown it hangs"),
        ] {
            assert_eq!(of(Some(condition), true, false), expected);
        }
        assert_eq!(of(None, true, false), "missing missing nothing of it is there");
        assert_eq!(of(None, false, false), "missing none ");
        assert_eq!(of(None, true, true), "unknown unknown docker can't be used: gone");
        assert_eq!(of(None, false, true), "missing none ", "nobody put anything there");
    }
}
