//! What the device says in Git: Margo's DeploymentStatus documents as data, and the transitions between two of them.

use std::collections::BTreeMap;

use repo_model::margo::Header;
use repo_model::margo::status::{ComponentStatus, DeploymentStatus, State, Status, StatusError};
use repo_model::{ComponentName, DeploymentId, DeviceId, FileTree, IntoMap, IntoSet, sort_few};

use crate::decision::deployment::DesiredDeployment;
use crate::decision::failure::Failure;
use crate::decision::gates;
use crate::decision::plan::{Plan, Removal};

/// What `status` reports of all deployments.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    pub deployments: BTreeMap<DeploymentId, Reported>,
}

/// One deployment's document on `status`, as data.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reported {
    /// `metadata.name`, the source of the deployment's own error.
    pub title: String,
    pub components: Vec<ReportedComponent>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ReportedComponent {
    pub name: ComponentName,
    pub state: State,
    /// The error of `failed`, or the reason of another state.
    pub failure: Option<Failure>,
}

impl ReportedComponent {
    /// Whether it was to wait for a gate when this was reported.
    pub fn waits_at_a_gate(&self) -> bool {
        self.failure.as_ref().is_some_and(gates::is_why)
    }
}

impl Report {
    /// Reads the documents of a `status` tree. One that can't be read counts as absent.
    pub fn read(tree: &FileTree) -> Self {
        let documents = tree.iter().filter(|(path, _)| path.starts_with("deployments/"));
        let deployments =
            documents.filter_map(|(path, bytes)| DeploymentStatus::read(path, bytes).ok()).map(|document| {
                let title = document.status.error.and_then(|error| error.source).unwrap_or_default();
                let components = document.components.into_iter().map(read_component).collect();
                (document.deployment_id, Reported { title, components })
            });
        Self { deployments: deployments.into_map() }
    }

    /// Writes the documents into a `status` tree. Each gives the newest manifest version that the device adopted, also
    /// where its states are the same (Margo 1.0.0-rc.3, *Deployment Status*), and never a lower one than before: a device
    /// that lost its clone has adopted nothing for a while.
    pub fn write(&self, tree: &mut FileTree, device: &DeviceId, adopted: u64) {
        let before = std::mem::take(tree);
        let path = |id: &DeploymentId| format!("deployments/{id}.json");
        for (id, reported) in &self.deployments {
            let known = before.get(&path(id)).and_then(|bytes| DeploymentStatus::read(&path(id), bytes).ok());
            let known = known.and_then(|document| document.adopted_manifest_version).unwrap_or(0);
            tree.insert(path(id), reported.document(*id, device, adopted.max(known)).to_bytes());
        }
        tree.extend(before.into_iter().filter(|(path, _)| !path.starts_with("deployments/")));
    }

    /// Sets the state of a component; the first one of a deployment adds it.
    pub fn set(&mut self, id: DeploymentId, name: &ComponentName, state: State, failure: Option<Failure>) {
        let components = &mut self.deployments.entry(id).or_default().components;
        match components.iter_mut().find(|component| component.name == *name) {
            Some(component) => (component.state, component.failure) = (state, failure),
            None => components.push(ReportedComponent { name: name.clone(), state, failure }),
        }
    }

    /// Sets the state of a component that failed for now, or waits. The words of the first failure stay for as long as
    /// state and code do: what is tried again and again grows no history. What waits at a gate is reported as it is:
    /// who holds it, and until when a window is closed.
    pub fn explain(&mut self, id: DeploymentId, name: &ComponentName, state: State, failure: Failure) {
        let known = self.get(id, name).is_some_and(|now| {
            let is_said = |before: &Failure| before.code == failure.code && !gates::is_why(&failure);
            now.state == state && now.failure.as_ref().is_some_and(is_said)
        });
        if !known {
            self.set(id, name, state, Some(failure));
        }
    }

    /// Takes back what is newly said of gates: what is still in the state of `before`, and waits at one now or did then, says
    /// what it said. Returns whether that is anything.
    pub fn takes_back_gates(&mut self, before: &Self) -> bool {
        let mut is_any = false;
        for (id, now) in &mut self.deployments {
            for one in &mut now.components {
                let old = before.get(*id, &one.name).filter(|old| old.state == one.state && old.failure != one.failure);
                if let Some(old) = old.filter(|old| old.waits_at_a_gate() || one.waits_at_a_gate()) {
                    one.failure.clone_from(&old.failure);
                    is_any = true;
                }
            }
        }
        is_any
    }

    /// The state of a component, if it has one.
    pub fn get(&self, id: DeploymentId, name: &ComponentName) -> Option<&ReportedComponent> {
        self.deployments.get(&id)?.components.iter().find(|component| component.name == *name)
    }

    /// Drops a component of which nothing is left from a deployment that stays.
    pub fn drop_component(&mut self, id: DeploymentId, name: &ComponentName) {
        if let Some(reported) = self.deployments.get_mut(&id) {
            reported.components.retain(|component| component.name != *name);
        }
    }

    /// What is neither wanted nor being removed never came onto the device: a component of a deployment that stays is
    /// dropped, anything else is removed.
    pub fn forget_unknown(&mut self, plan: &Plan) {
        let held = plan.held.iter().map(|held| &held.removal);
        let removals = plan.removals.iter().chain(held).filter_map(Removal::component).into_set();
        for (id, reported) in &mut self.deployments {
            match plan.deployments.iter().find(|planned| planned.id == *id) {
                Some(planned) => reported.components.retain(|one| {
                    removals.contains(&(*id, &one.name)) || planned.components.iter().any(|it| it.name == one.name)
                }),
                None => reported
                    .components
                    .iter_mut()
                    .filter(|one| !removals.contains(&(*id, &one.name)))
                    .for_each(|one| (one.state, one.failure) = (State::Removed, None)),
            }
        }
    }

    /// Forgets what was removed long enough ago to have been reported.
    pub fn forget_removed(&mut self) {
        self.deployments.retain(|_, reported| reported.overall() != State::Removed);
    }

    /// Puts a deployment's components into the document's order; those it no longer has stay behind them.
    pub fn arrange(&mut self, wanted: &DesiredDeployment) {
        let reported = self.deployments.entry(wanted.id).or_default();
        reported.title.clone_from(&wanted.title);
        let place = |one: &ReportedComponent| {
            let place = wanted.components.iter().position(|component| component.name == one.name);
            place.unwrap_or(usize::MAX)
        };
        sort_few(&mut reported.components, |a, b| place(a).cmp(&place(b)));
    }

    /// Each transition from `before` to this, as the value of a `State` trailer.
    pub fn transitions(&self, before: &Self) -> Vec<Transition> {
        let mut all = Vec::new();
        for (id, now) in &self.deployments {
            let old = before.deployments.get(id);
            let overall = (old.map(Reported::overall), now.overall());
            all.extend(Transition::between(*id, "*", overall, now.overall_failure().as_ref()));
            for component in &now.components {
                let old = before.get(*id, &component.name).map(|component| component.state);
                let states = (old, component.state);
                all.extend(Transition::between(*id, component.name.as_str(), states, component.failure.as_ref()));
            }
            for gone in old.iter().flat_map(|old| &old.components).filter(|gone| self.get(*id, &gone.name).is_none()) {
                all.extend(Transition::between(*id, gone.name.as_str(), (Some(gone.state), State::Removed), None));
            }
        }
        all
    }

    /// `<component> <state> <code>` of each component that is in the state of before, and says another reason for it.
    pub fn reasons(&self, before: &Self) -> Vec<String> {
        let all = self.deployments.iter().flat_map(|(id, now)| now.components.iter().map(move |one| (*id, one)));
        let changed = all.filter_map(|(id, now)| {
            let (old, failure) = (before.get(id, &now.name)?, now.failure.as_ref()?);
            let is_new = old.state == now.state && old.failure.as_ref() != Some(failure);
            is_new.then(|| format!("{} {} {}", now.name, now.state, failure.code))
        });
        changed.collect()
    }
}

impl Reported {
    /// The most severe state of the components; `removed` if there are none.
    pub fn overall(&self) -> State {
        match self.components.as_slice() {
            [] => State::Removed,
            components => State::overall(components.iter().map(|component| component.state)),
        }
    }

    /// The failure of the first component in the overall state that has one.
    pub fn overall_failure(&self) -> Option<Failure> {
        let overall = self.overall();
        self.components
            .iter()
            .find(|component| component.state == overall && component.failure.is_some())?
            .failure
            .clone()
    }

    fn document(&self, id: DeploymentId, device: &DeviceId, manifest_version: u64) -> DeploymentStatus {
        let component = |component: &ReportedComponent| ComponentStatus {
            name: component.name.clone(),
            state: component.state,
            error: component.failure.as_ref().map(|failure| error(failure, component.name.as_str())),
        };
        let failure = self.overall_failure();
        DeploymentStatus {
            deployment_id: id,
            device_id: Some(device.clone()),
            header: Header::default(),
            adopted_manifest_version: Some(manifest_version),
            status: Status { state: self.overall(), error: failure.map(|failure| error(&failure, &self.title)) },
            components: self.components.iter().map(component).collect(),
        }
    }
}

fn error(failure: &Failure, source: &str) -> StatusError {
    StatusError { code: failure.code.clone().into(), source: Some(source.to_owned()), message: failure.message.clone() }
}

fn read_component(component: ComponentStatus) -> ReportedComponent {
    let failure = component.error.map(|error| Failure::new(error.code.to_string(), error.message));
    ReportedComponent { name: component.name, state: component.state, failure }
}

/// One change of state, as a commit of `status` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// The value of the `State` trailer.
    pub trailer: String,
    /// For the subject of the commit.
    pub summary: String,
}

impl Transition {
    fn between(
        id: DeploymentId,
        what: &str,
        (from, to): (Option<State>, State),
        failure: Option<&Failure>,
    ) -> Option<Self> {
        if from == Some(to) {
            return None;
        }
        let from = from.map_or("none".to_owned(), |state| state.to_string());
        let code = failure.map(|failure| format!(" {}", failure.code)).unwrap_or_default();
        Some(Self { trailer: format!("{id}/{what} {from} > {to}{code}"), summary: format!("{what} {to}{code}") })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::decision::device_state::DeviceState;
    use crate::decision::gates::Gates;
    use crate::testing::{component, id, wanted};

    fn device() -> DeviceId {
        "press-01".parse().unwrap()
    }

    fn report(states: &[(&str, State, Option<&str>)]) -> Report {
        let mut report = Report::default();
        for (name, state, code) in states {
            report.set(id("a"), &component(name), *state, code.map(|code| Failure::new(code, "because")));
        }
        report
    }

    fn trailers(before: &Report, now: &Report) -> Vec<String> {
        let id = format!("{}/", id("a"));
        now.transitions(before).into_iter().map(|one| one.trailer.replace(&id, "")).collect()
    }

    #[test]
    fn each_change_of_state_is_one_trailer_and_nothing_else_is() {
        use State::{Failed, Installed, Installing, Pending, Removed, Removing};
        let none: &[(&str, State, Option<&str>)] = &[];
        for (before, now, expected) in [
            (none, &[("x", Pending, Some("queued"))][..], vec!["* none > pending queued", "x none > pending queued"]),
            (
                &[("x", Installing, None)],
                &[("x", Installed, None)],
                vec!["* installing > installed", "x installing > installed"],
            ),
            (&[("x", Installed, None)], &[("x", Installed, None)], vec![]),
            (&[("x", Pending, Some("queued"))], &[("x", Pending, Some("artifact-unavailable"))], vec![]),
            (
                &[("x", Installing, None), ("y", Pending, Some("queued"))],
                &[("x", Installed, None), ("y", Installing, None)],
                vec!["x installing > installed", "y pending > installing"],
            ),
            (
                &[("x", Installed, None), ("y", Installing, None)],
                &[("x", Installed, None), ("y", Failed, Some("compose-failed"))],
                vec!["* installing > failed compose-failed", "y installing > failed compose-failed"],
            ),
            (
                &[("x", Installed, None), ("y", Removing, None)],
                &[("x", Installed, None)],
                vec!["* removing > installed", "y removing > removed"],
            ),
            (&[("x", Removing, None)], &[("x", Removed, None)], vec!["* removing > removed", "x removing > removed"]),
        ] {
            assert_eq!(trailers(&report(before), &report(now)), expected, "{before:?} > {now:?}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut tree = FileTree::new();
        let mut report = report(&[("x", State::Failed, Some("compose-failed")), ("y", State::Installed, None)]);
        report.arrange(&wanted("a", &[("x", "1"), ("y", "1")]));
        report.write(&mut tree, &device(), 7);
        assert_eq!(Report::read(&tree), report);
        assert_eq!(tree.len(), 1);
    }

    #[test]
    fn every_document_gives_the_newest_manifest_that_was_adopted() {
        let mut tree = FileTree::new();
        let installed = report(&[("x", State::Installed, None)]);
        let versions = |tree: &FileTree| {
            let read = |(path, bytes): (&String, &Vec<u8>)| DeploymentStatus::read(path, bytes).unwrap();
            tree.iter().map(read).map(|document| document.adopted_manifest_version).collect::<Vec<_>>()
        };
        installed.write(&mut tree, &device(), 7);
        let before = tree.clone();
        installed.write(&mut tree, &device(), 7);
        assert_eq!(tree, before);
        installed.write(&mut tree, &device(), 8);
        assert_eq!(versions(&tree), [Some(8)], "though nothing else changed");
        report(&[("x", State::Failed, Some("compose-failed"))]).write(&mut tree, &device(), 0);
        assert_eq!(versions(&tree), [Some(8)], "though nothing is adopted, because the clone was lost");
        Report::default().write(&mut tree, &device(), 9);
        assert_eq!(tree, FileTree::new());
    }

    #[test]
    fn other_files_of_the_tree_are_left_alone() {
        let mut tree = FileTree::from([("syncer.json".to_owned(), b"{}".to_vec())]);
        report(&[("x", State::Installed, None)]).write(&mut tree, &device(), 1);
        Report::default().write(&mut tree, &device(), 1);
        assert_eq!(tree, FileTree::from([("syncer.json".to_owned(), b"{}".to_vec())]));
    }

    #[test]
    fn the_words_of_the_first_failure_stay_while_state_and_code_do() {
        let mut now = report(&[("x", State::Installing, Some("health-timeout"))]);
        let explain = |now: &mut Report, code: &str| {
            now.explain(id("a"), &component("x"), State::Installing, Failure::new(code, "other words"));
            now.get(id("a"), &component("x")).unwrap().failure.clone().unwrap()
        };
        assert_eq!(explain(&mut now, "health-timeout").message, "because");
        assert_eq!(explain(&mut now, "disk-full").message, "other words");
    }

    #[test]
    fn what_never_came_onto_the_device_is_forgotten_when_it_is_no_longer_wanted() {
        let mut now = report(&[("x", State::Pending, Some("queued")), ("y", State::Installed, None)]);
        let plan = |components: &[(&str, &str)]| {
            let wanted = [wanted("a", components)];
            let wanted = if components.is_empty() { &wanted[..0] } else { &wanted[..] };
            Plan::make(Some(wanted), &DeviceState::default(), &[], &BTreeSet::new(), &Gates::default())
        };
        now.forget_unknown(&plan(&[("y", "1")]));
        assert_eq!(now, report(&[("y", State::Installed, None)]));
        now.forget_unknown(&plan(&[]));
        assert_eq!(now, report(&[("y", State::Removed, None)]));
    }
}
