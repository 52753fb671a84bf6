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
            let mut found = observed(name, marker, &containers);
            found.violation = found.input_digest.and_then(|input| self.violation(&found.project, input));
            // Without its document nothing can be restored: it counts as half made.
            let is_lost = found.condition.is_drift() && Project::new(projects_dir, &found.project).document().is_none();
            if is_lost { Observed { input_digest: None, ..found } } else { found }
        };
        Ok(found.into_iter().map(observed).collect())
    }
}

impl ComposeRuntime {
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

pub(super) fn observed(project: String, marker: Option<&Marker>, containers: &[Container]) -> Observed {
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
