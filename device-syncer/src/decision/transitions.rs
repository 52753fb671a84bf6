//! Transitions as commits of `status` name them, read again.

use repo_model::margo::State;
use repo_model::message::Transition;
use repo_model::{ComponentName, DeploymentId};

/// One change of state that this device reported: the value of a `State` trailer (`repo-layouts/README.md`, *Branch
/// `status`*).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedTransition {
    pub deployment: DeploymentId,
    /// Absent where it is about the deployment as a whole.
    pub component: Option<ComponentName>,
    /// Absent where nothing was reported of it before.
    pub from: Option<State>,
    pub to: State,
    /// The code of the failure, or of what it waits for.
    pub code: Option<String>,
}

impl ReportedTransition {
    /// Reads the value of a trailer; one that a newer syncer may write in another form is none.
    pub fn parse(trailer: &str) -> Option<Self> {
        let said = Transition::parse(trailer)?;
        Some(Self {
            deployment: said.deployment,
            component: if said.is_whole() { None } else { Some(said.component.parse().ok()?) },
            from: if said.from == "none" { None } else { Some(State::parse(said.from)?) },
            to: State::parse(said.to)?,
            code: said.code.map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::failure::Failure;
    use crate::decision::status::Report;
    use crate::testing::{component, id};

    #[test]
    fn every_transition_that_is_told_is_read_again() {
        let (mut before, mut now) = (Report::default(), Report::default());
        before.set(id("a"), &component("x"), State::Installing, None);
        now.set(id("a"), &component("x"), State::Failed, Some(Failure::new("compose-failed", "because")));
        now.set(id("b"), &component("y"), State::Installed, None);
        let transitions: Vec<_> =
            now.transitions(&before).iter().map(|one| ReportedTransition::parse(&one.trailer)).collect();
        let of = |name: &str, part: Option<&str>, from, to, code: Option<&str>| {
            let (deployment, component) = (id(name), part.map(component));
            Some(ReportedTransition { deployment, component, from, to, code: code.map(str::to_owned) })
        };
        let failed = (Some(State::Installing), State::Failed, Some("compose-failed"));
        for expected in [
            of("a", None, failed.0, failed.1, failed.2),
            of("a", Some("x"), failed.0, failed.1, failed.2),
            of("b", None, None, State::Installed, None),
            of("b", Some("y"), None, State::Installed, None),
        ] {
            assert!(transitions.contains(&expected), "{expected:?} in {transitions:?}");
        }
        assert_eq!(transitions.len(), 4);
    }

    #[test]
    fn what_has_another_form_is_none() {
        let id = id("a");
        for text in ["", "x", "x/y none > installed", &format!("{id}/x none > asleep"), &format!("{id} none > failed")]
        {
            assert_eq!(ReportedTransition::parse(text), None, "{text}");
        }
    }
}
