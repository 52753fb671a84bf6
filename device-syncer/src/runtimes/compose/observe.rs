//! What is ours now: containers by their labels, and projects by their markers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;

use repo_model::margo::ProfileType;
use repo_model::{Digest, IntoMap, IntoSet};

use super::containers::{Container, missing, overall, removed_after_its_end, with_labels_as_known};
use super::project::{Marker, Project, Stage};
use super::{ComposeRuntime, ComposeSettings, privileges};
use crate::decision::observation::{Condition, Observed, ServiceState};
use crate::runtimes::RuntimeError;

impl ComposeRuntime {
    /// One request that lists, and one for each container of ours that may have changed since the last observation.
    pub(super) fn observe_projects(&self) -> Result<Vec<Observed>, RuntimeError> {
        let ComposeSettings { projects_dir, .. } = &self.settings;
        let mut projects = self.projects.lock().unwrap_or_else(PoisonError::into_inner);
        let projects = projects.list(projects_dir)?.iter();
        let mut found: BTreeMap<String, (Option<&Marker>, Vec<Container>)> =
            projects.map(|(name, marker)| (name.clone(), (Some(marker), Vec::new()))).into_map();
        let labels = self.owner.common().map(|(name, value)| format!("{name}={value}"));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let containers = with_labels_as_known(&self.engine, &labels, &mut known)?;
        drop(known);
        for container in containers {
            found.entry(container.project().to_owned()).or_default().1.push(container);
        }
        let observed = |(name, (marker, containers)): (String, (Option<&Marker>, Vec<Container>))| {
            let mut found = observed(name, marker, &containers, &self.settings.boot_id);
            found.violation = found.input_digest.and_then(|input| self.violation(&found.project, input));
            // Without its document nothing can be restored: it counts as half made.
            let is_lost = found.condition.is_drift() && Project::new(projects_dir, &found.project).document().is_none();
            if is_lost { Observed { input_digest: None, ..found } } else { found }
        };
        Ok(found.into_iter().map(observed).collect())
    }
}

impl ComposeRuntime {
    /// Notes which services of what is applied have come to their end, by what was observed, so that a later boot tells them from what
    /// ran when the device went down. Nothing may be at work on what this says is not.
    pub fn note_ended(&self, found: &[Observed], is_at_work: impl Fn(&str) -> bool) -> Result<(), RuntimeError> {
        let (dir, boot) = (&self.settings.projects_dir, &self.settings.boot_id);
        // Whoever observes at this moment may wait for an engine that hangs; a later pass notes it.
        let Ok(mut projects) = self.projects.try_lock() else { return Ok(()) };
        let known: BTreeMap<_, _> = projects.list(dir)?.iter().map(|(name, marker)| (name, marker)).into_map();
        let is_new = |one: &&Observed| {
            let marker = known.get(&one.project).filter(|marker| is_of(marker, one));
            marker.is_some_and(|marker| with_ended(marker, &one.services, boot).is_some())
        };
        let of_compose = found.iter().filter(|one| one.kind == ProfileType::Compose && !is_at_work(&one.project));
        for one in of_compose.filter(is_new) {
            let project = Project::new(dir, &one.project);
            // What is known is without the inventory.
            let marker = project.marker()?.filter(|marker| is_of(marker, one));
            if let Some(marker) = marker.and_then(|marker| with_ended(&marker, &one.services, boot)) {
                project.mark(&marker)?;
            }
        }
        Ok(())
    }

    /// What of an applied project the site's policy doesn't admit any more. Its document is judged once for each input,
    /// and anew when the fleet says something else; another policy of the site's makes another runtime.
    fn violation(&self, project: &str, input: Digest) -> Option<String> {
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, found)) = judged.get(project).filter(|(of, _)| *of == input) {
            return found.clone();
        }
        let place = Project::new(&self.settings.projects_dir, project);
        let reasons = privileges::denied_as_applied(&place.document()?, &self.policy(), project, &place.files());
        let found = (!reasons.is_empty()).then(|| reasons.join("; "));
        judged.insert(project.to_owned(), (input, found.clone()));
        found
    }
}

/// Services whose containers ended well, and aren't started again; also where somebody removed them since.
pub(super) fn finished(services: &BTreeMap<String, ServiceState>) -> BTreeSet<String> {
    let ended = |state: &ServiceState| state.state != "running" && state.condition == Condition::Running;
    services.iter().filter(|(_, state)| ended(state)).map(|(service, _)| service.clone()).into_set()
}

/// Whether this marker is of what was observed, all of which is applied.
fn is_of(marker: &Marker, found: &Observed) -> bool {
    marker.stage == Stage::Applied && Some(marker.input_digest) == found.input_digest
}

/// The marker with the services that are at their end during this boot; `None` where it says so, or where something that went down
/// with the device isn't back yet.
fn with_ended(marker: &Marker, services: &BTreeMap<String, ServiceState>, boot: &str) -> Option<Marker> {
    let went_down =
        |(name, state): (&String, &ServiceState)| state.condition.is_drift() && marker.went_down(name, boot);
    if services.iter().any(went_down) {
        return None;
    }
    let ended = finished(services).difference(&marker.finished).cloned().into_set();
    let boot = Some(boot.to_owned());
    (ended != marker.ended || boot != marker.boot).then(|| Marker { ended, boot, ..marker.clone() })
}

pub(super) fn observed(project: String, marker: Option<&Marker>, containers: &[Container], boot: &str) -> Observed {
    let complete = marker.filter(|marker| marker.stage == Stage::Applied);
    let expected = |marker: &Marker| {
        let state = |service: &String| {
            let is_finished = marker.stage != Stage::Removing && marker.finished.contains(service);
            (service.clone(), if is_finished { removed_after_its_end() } else { missing() })
        };
        marker.services.iter().map(state).into_map()
    };
    let mut services: BTreeMap<_, _> = marker.map(expected).unwrap_or_default();
    services.extend(containers.iter().map(|container| (container.service().to_owned(), container.state())));
    for (name, state) in &mut services {
        let is_at_its_end = state.state == "exited" && state.condition == Condition::Running;
        if is_at_its_end && marker.is_some_and(|marker| marker.went_down(name, boot)) {
            state.condition = Condition::Stopped("exited with 0 when the device went down".to_owned());
        }
    }
    Observed {
        kind: ProfileType::Compose,
        project,
        input_digest: complete.map(|marker| marker.input_digest),
        condition: overall(&services),
        violation: None,
        deployment: marker.map(|it| it.deployment).or_else(|| containers.iter().find_map(Container::deployment)),
        component: marker.map(|it| it.component.clone()).or_else(|| containers.iter().find_map(Container::component)),
        services,
    }
}
