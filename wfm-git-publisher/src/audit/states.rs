//! What a device told of each component, as its transitions lead to it.

use std::collections::{BTreeMap, BTreeSet};

use repo_model::DeploymentId;
use repo_model::margo::{DeploymentStatus, State};

/// What stands for no state at all.
const NONE: &str = "none";

/// `<deploymentId>/<component or *>` → the state that was told last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct States(BTreeMap<String, &'static str>);

impl States {
    /// What the documents of a tree say.
    pub(super) fn of(deployments: &BTreeMap<DeploymentId, DeploymentStatus>) -> Self {
        let states = deployments.iter().flat_map(|(id, document)| {
            let whole = (format!("{id}/*"), document.status.state.as_str());
            let parts = document.components.iter().map(move |one| (format!("{id}/{}", one.name), one.state.as_str()));
            std::iter::once(whole).chain(parts)
        });
        Self(states.collect())
    }

    /// What was before these values of the trailer `State`, which led to what the documents of a tree say.
    pub(super) fn before<'t>(
        deployments: &BTreeMap<DeploymentId, DeploymentStatus>,
        transitions: impl Iterator<Item = &'t str>,
    ) -> Self {
        let mut states = Self::of(deployments);
        for transition in transitions.collect::<Vec<_>>().into_iter().rev() {
            let [what, from, ..] = transition.split(' ').collect::<Vec<_>>()[..] else { continue };
            match State::parse(from) {
                Some(state) => _ = states.0.insert(what.to_owned(), state.as_str()),
                None => _ = states.0.remove(what),
            }
        }
        states
    }

    /// Takes the value of a trailer `State`. The error is why it can't be so.
    pub(super) fn follow(&mut self, transition: &str) -> Result<(), String> {
        let words: Vec<_> = transition.split(' ').collect();
        let [what, from, ">", to, ..] = words[..] else { return Err(format!("`{transition}` is no transition")) };
        let state = |text: &str| State::parse(text).map(State::as_str);
        let Some(next) = state(to).filter(|_| from == NONE || state(from).is_some()) else {
            return Err(format!("`{transition}` is no transition between two states"));
        };
        let before = self.0.insert(what.to_owned(), next).unwrap_or(NONE);
        // What was removed is forgotten at the next adoption, and may come again from nothing.
        let follows = before == from || (before == State::Removed.as_str() && from == NONE);
        match (follows, from == to) {
            (_, true) => Err(format!("`{transition}` leads nowhere")),
            (false, _) => Err(format!("`{transition}`, and what was told before is {before}")),
            _ => Ok(()),
        }
    }

    /// Compares what was told with the documents of the tree, which count from then on.
    pub(super) fn settle(&mut self, deployments: &BTreeMap<DeploymentId, DeploymentStatus>) -> Vec<String> {
        let told = std::mem::replace(self, Self::of(deployments));
        let all: BTreeSet<_> = told.0.keys().chain(self.0.keys()).collect();
        let wrong = all.into_iter().filter_map(|what| {
            let (said, is) = (told.0.get(what).copied(), self.0.get(what).copied());
            let is_forgotten = is.is_none() && said == Some(State::Removed.as_str());
            (said != is && !is_forgotten).then(|| {
                let (said, is) = (said.unwrap_or(NONE), is.unwrap_or(NONE));
                format!("{what} is {is} in the tree, and the transitions lead to {said}")
            })
        });
        wrong.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "5d3f7d5e-7a3a-5c3a-9a57-1c1f6a3f9f10";

    fn documents(state: &str) -> BTreeMap<DeploymentId, DeploymentStatus> {
        let text = format!(
            r#"{{"deploymentId":"{ID}","status":{{"state":"{state}"}},"components":[{{"name":"c","state":"{state}"}}]}}"#
        );
        let document = DeploymentStatus::read("deployments/x.json", text.as_bytes()).unwrap();
        BTreeMap::from([(document.deployment_id, document)])
    }

    #[test]
    fn what_was_before_some_transitions_is_known_from_what_they_led_to() {
        let led = ["none > pending", "pending > installed"].map(|step| format!("{ID}/c {step}"));
        let mut states = States::before(&documents("installed"), led.iter().map(String::as_str));
        assert_eq!(states.0.keys().collect::<Vec<_>>(), [&format!("{ID}/*")]);
        led.iter().for_each(|step| states.follow(step).unwrap());
        assert_eq!(states.settle(&documents("installed")), Vec::<String>::new());
    }

    #[test]
    fn transitions_follow_each_other_and_lead_to_the_tree() {
        let mut states = States::default();
        for step in ["none > pending queued", "pending > installing", "installing > installed"] {
            for what in ["*", "c"] {
                states.follow(&format!("{ID}/{what} {step}")).unwrap();
            }
        }
        assert_eq!(states.settle(&documents("installed")), Vec::<String>::new());
        for bad in ["pending > installed", "none > installed", "installed > installed", "installed > gone", "x"] {
            assert!(states.clone().follow(&format!("{ID}/c {bad}")).is_err(), "{bad}");
        }
        // A tree that says something else is found once, and counts from then on.
        assert_eq!(states.settle(&documents("failed")).len(), 2);
        assert_eq!(states.settle(&documents("failed")).len(), 0);
        assert_eq!(states.settle(&BTreeMap::new()).len(), 2, "what isn't removed doesn't vanish");
        for what in ["*", "c"] {
            states.follow(&format!("{ID}/{what} none > removed")).unwrap();
        }
        assert_eq!(states.settle(&BTreeMap::new()).len(), 0);
    }
}
