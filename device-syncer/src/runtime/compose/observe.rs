//! What is ours now: containers by their labels, and projects by their markers.

use std::collections::BTreeMap;

use repo_model::margo::ProfileType;

use super::containers::{Container, missing, overall, with_labels};
use super::project::{Marker, Project, Stage};
use super::{ComposeRuntime, ComposeSettings};
use crate::runtime::{Observed, RuntimeError};

impl ComposeRuntime {
    /// One call that lists, and one that inspects many containers.
    pub(super) fn look(&self) -> Result<Vec<Observed>, RuntimeError> {
        let ComposeSettings { projects_dir, .. } = &self.settings;
        let mut found: BTreeMap<String, (Option<Marker>, Vec<Container>)> =
            Project::list(projects_dir)?.into_iter().map(|(name, marker)| (name, (Some(marker), Vec::new()))).collect();
        let filters = self.owner.common().map(|(name, value)| format!("label={name}={value}"));
        for container in with_labels(&self.docker, &filters)? {
            found.entry(container.project().to_owned()).or_default().1.push(container);
        }
        Ok(found.into_iter().map(|(name, (marker, containers))| observed(name, marker, &containers)).collect())
    }
}

fn observed(project: String, marker: Option<Marker>, containers: &[Container]) -> Observed {
    let expected = marker.iter().flat_map(|marker| marker.services.iter().cloned());
    let mut services: BTreeMap<_, _> = expected.map(|service| (service, missing())).collect();
    services.extend(containers.iter().map(|container| (container.service().to_owned(), container.state())));
    let complete = marker.as_ref().filter(|marker| marker.stage == Stage::Applied);
    Observed {
        kind: ProfileType::Compose,
        project,
        input_digest: complete.map(|marker| marker.input_digest),
        condition: overall(&services),
        deployment: marker
            .as_ref()
            .map(|it| it.deployment)
            .or_else(|| containers.iter().find_map(Container::deployment)),
        component: marker.map(|it| it.component).or_else(|| containers.iter().find_map(Container::component)),
        services,
    }
}
