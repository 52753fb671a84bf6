//! The images of compose components: what their names are on a device, and who locks them.

use std::collections::BTreeSet;

use repo_artifacts::{ImageReference, Images, Variables};
use repo_model::margo::{Component, ProfileType};
use repo_model::{DeviceId, Digest};

use super::documents::Written;
use super::{Artifact, ArtifactKind, Facts, Locks, Work, artifacts};
use crate::fleet::{Deployment, Device, Fleet, ImageSettings};

/// The names that images have with a document's parameters.
pub(super) struct Named<'a> {
    pub(super) settings: &'a ImageSettings,
    pub(super) written: &'a Written<'a>,
}

impl Named<'_> {
    /// The images of a component that are locked here.
    pub(super) fn of(&self, component: &Component, content: Digest, written: &Images) -> Vec<Artifact> {
        to_lock(self.settings, content, written, &self.variables(component))
    }

    fn variables(&self, component: &Component) -> Variables {
        let Written { document, values_from, .. } = self.written;
        let mut variables = Variables::new();
        for parameter in document.parameters.values() {
            for target in parameter.targets.iter().filter(|target| target.components.contains(&component.name)) {
                let name = target.place(ProfileType::Compose).to_owned();
                variables.insert(name, Some(parameter.value.text()));
            }
        }
        let targets = values_from.values().flat_map(|from| &from.targets);
        for target in targets.filter(|target| target.components.contains(&component.name)) {
            variables.insert(target.place(ProfileType::Compose).to_owned(), None);
        }
        variables
    }
}

/// What is left out is locked by the device, or refused there: a name that nobody else knows or that is none, and an
/// image of a registry that the fleet leaves to it. A digest in a name is its lock.
fn to_lock(settings: &ImageSettings, content: Digest, written: &Images, variables: &Variables) -> Vec<Artifact> {
    let is_ours = |name: &String| {
        ImageReference::parse(name)
            .is_ok_and(|image| image.digest().is_none() && !settings.is_locked_by_devices(image.host()))
    };
    written.names(variables).iter().filter(|name| is_ours(name)).map(|name| Artifact::image(content, name)).collect()
}

/// Whether the images of a deployment are known, whichever device it is for.
pub(crate) fn are_known(fleet: &Fleet, deployment: &Deployment, locks: &Locks) -> bool {
    let settings = &fleet.settings.images;
    artifacts(deployment).filter(is_archive).all(|archive| {
        let known = locks.get(&archive).and_then(|lock| Some((lock.content, locks.images(lock.content)?)));
        known.is_some_and(|(content, written)| {
            let mut images = to_lock(settings, content, written, &Variables::new()).into_iter();
            written.are_constant() && images.all(|image| locks.contains_key(&image))
        })
    })
}

fn is_archive(artifact: &Artifact) -> bool {
    matches!(artifact.kind, ArtifactKind::Archive | ArtifactKind::SignedArchive(_))
}

/// What has to be found out about images, as far as it is known which archives devices get.
pub(super) fn unresolved<'a>(
    fleet: &Fleet,
    enrolled: &[&Device],
    facts: &dyn Fn(&DeviceId) -> Option<Facts<'a>>,
    locks: &Locks,
) -> BTreeSet<Artifact> {
    let mut needed = BTreeSet::new();
    for deployment in fleet.deployments.values().filter(|one| !are_known(fleet, one, locks)) {
        for device in enrolled.iter().filter(|device| deployment.is_for(device)) {
            let Some(facts) = facts(&device.id) else { continue };
            let rendered = Work::new(fleet, device, deployment.on(device), facts, locks).render(None);
            let unresolved = rendered.into_iter().flat_map(|rendered| rendered.unresolved);
            needed.extend(unresolved.filter(Artifact::is_about_images));
        }
    }
    needed
}
