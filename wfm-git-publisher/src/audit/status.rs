//! Judges `status`, commit by commit from the oldest on: who signed it, what it says, and whether that follows from what was
//! said before.

use std::collections::BTreeMap;
use std::rc::Rc;

use repo_git::CommitId;
use repo_model::message::Epoch;
use repo_model::report::doubt::DESIRED_UNKNOWN;
use repo_model::report::{Adopted, CAPABILITIES, IMAGES, SYNCER, Status};
use repo_model::{DeploymentId, DeviceId, FleetId, KeyText, Trailer};
use uuid::Uuid;

use super::commit::Told;
use super::desired::Published;
use super::finding::{
    ADOPTED_MISMATCH_FOUND, ADOPTED_REFUSED, FOREIGN_FILE, Found, HISTORY_FORKED_FOUND, INSTALLATION_NEW, STATE_LOST,
    TRANSITION_IMPOSSIBLE, WENT_BACK_FOUND,
};
use super::states::States;

/// What a commit of `status` answers.
#[derive(Debug, Clone)]
pub(super) enum Answers {
    /// A believed commit, with its place in the history of `desired`.
    Published(usize, Rc<Published>),
    /// One that is in the history and refused.
    Refused(usize),
    /// One that the host lost, and that a later one continues.
    Lost,
    /// None, or one that nobody knows.
    Unknown,
}

impl Answers {
    pub(super) fn published(&self) -> Option<&Published> {
        match self {
            Self::Published(_, published) => Some(published),
            _ => None,
        }
    }

    fn place(&self) -> Option<usize> {
        match self {
            Self::Published(place, _) | Self::Refused(place) => Some(*place),
            _ => None,
        }
    }
}

/// Where the judge stands.
#[derive(Debug, Default)]
pub(super) struct StatusJudge {
    states: States,
    /// The manifest version that was told of each deployment last.
    versions: BTreeMap<DeploymentId, u64>,
    signer: Option<KeyText>,
    /// The newest place in the history of `desired` that was named.
    pub(super) newest: Option<usize>,
    /// The highest serial, and who told of it, in order.
    pub(super) instances: (u64, Vec<Uuid>),
    /// The newest believed commit: when, by the device's clock, and what it says that it adopted.
    pub(super) last: Option<(i64, Option<Adopted>)>,
}

impl StatusJudge {
    /// Goes on behind a commit that was judged before, from what its own tree says.
    pub(super) fn after(
        told: &Told<'_>,
        device: &DeviceId,
        newest: Option<usize>,
        instances: (u64, Vec<Uuid>),
    ) -> Self {
        let Ok(status) = Status::read(device, &told.message, told.files, None) else { return Self::default() };
        Self {
            states: States::of(&status.deployments),
            versions: versions(&status),
            signer: told.signer.clone().ok(),
            newest,
            instances,
            last: Some((told.time, status.syncer.adopted)),
        }
    }

    /// Judges the next commit; what it says is given if it is believed. `keys` may sign it: those of the commit that it is judged by.
    pub(super) fn judge(
        &mut self,
        told: &Told<'_>,
        (fleet, device): (FleetId, &DeviceId),
        keys: &[KeyText],
        answers: &Answers,
    ) -> (Option<Status>, Vec<Found>) {
        let mut found = told.common(fleet, device);
        let signer = match told.signed_by(keys, "this device") {
            Ok(signer) => signer,
            Err(wrong) => {
                found.push(wrong);
                return (None, found);
            }
        };
        let named = answers.published().map(|published| &published.named);
        let status = match Status::read(device, &told.message, told.files, named) {
            Ok(status) => status,
            Err(doubt) => {
                found.push(Found::doubt(told.branch, told.id, &doubt));
                return (None, found);
            }
        };
        if self.signer.as_ref() != Some(signer) {
            // With another key it is a new disk, where nothing is at first; but an installation may get a new key, and goes on.
            let is_beginning = told.parents == 0 && Epoch::<CommitId>::of(&told.message).is_none();
            if is_beginning || self.instances.1.last() != Some(&status.syncer.instance) {
                (self.states, self.versions) = Default::default();
            }
            self.signer = Some(signer.clone());
        }
        let is_told = matches!(answers, Answers::Refused(_) | Answers::Lost);
        let doubts = status.doubts.iter().filter(|doubt| !(is_told && doubt.code == DESIRED_UNKNOWN));
        found.extend(doubts.map(|doubt| Found::doubt(told.branch, told.id, doubt)));
        if matches!(answers, Answers::Refused(_)) {
            let text = "it answers a commit of `desired` that is itself found to be wrong";
            found.push(told.found(&ADOPTED_REFUSED, text));
        }
        if matches!(answers, Answers::Lost) {
            found.push(
                told.found(&STATE_LOST, "it answers a state that isn't here any more, and that a later one continues"),
            );
        }
        if self.last.is_none() && Epoch::<CommitId>::of(&told.message).is_some() {
            // What came before isn't here; this commit says once more what it led to.
            let states = States::before(&status.deployments, told.message.all(Trailer::State));
            (self.states, self.versions) = (states, versions(&status));
        }
        found.extend(self.order(told, answers));
        found.extend(self.installation(told, status.syncer.instance));
        found.extend(self.transitions(told, &status));
        found.extend(self.manifest_versions(told, &status));
        let known = |path: &str| [SYNCER, CAPABILITIES, IMAGES].contains(&path) || path.starts_with("deployments/");
        let foreign = told.files.keys().filter(|path| !known(path));
        found.extend(foreign.map(|path| told.found(&FOREIGN_FILE, format!("`{path}` is no file of this branch"))));
        self.last = Some((told.time, status.adopted().cloned()));
        (Some(status), found)
    }

    /// The commit that is named never goes backwards.
    fn order(&mut self, told: &Told<'_>, answers: &Answers) -> Option<Found> {
        let place = answers.place()?;
        let newest = self.newest.replace(self.newest.map_or(place, |newest| newest.max(place)));
        newest.filter(|newest| place < *newest).map(|_| {
            let serial = told.message.get(Trailer::Serial).unwrap_or("?");
            told.found(
                &WENT_BACK_FOUND,
                format!("it goes back to serial {serial}, and an older commit names a newer state"),
            )
        })
    }

    /// Of one state one installation tells, or one after the other.
    fn installation(&mut self, told: &Told<'_>, instance: Uuid) -> Option<Found> {
        let serial = told.message.number(Trailer::Serial).unwrap_or(0);
        let (highest, instances) = &mut self.instances;
        if serial > *highest {
            // The last one goes on; what was before that is over.
            *highest = serial;
            *instances = instances.pop().into_iter().collect();
        }
        if instances.last() == Some(&instance) {
            return None;
        }
        let (is_first, was_there) = (instances.is_empty(), instances.contains(&instance));
        instances.push(instance);
        match (is_first, was_there) {
            (true, _) => None,
            (_, true) => {
                let text = format!("installation {instance} tells again of serial {serial}, after another one did");
                Some(told.found(&HISTORY_FORKED_FOUND, text))
            }
            _ => Some(told.found(&INSTALLATION_NEW, format!("installation {instance} goes on from serial {serial}"))),
        }
    }

    fn transitions(&mut self, told: &Told<'_>, status: &Status) -> Vec<Found> {
        let followed = told.message.all(Trailer::State).filter_map(|one| self.states.follow(one).err());
        let wrong: Vec<_> = followed.collect();
        let settled = self.states.settle(&status.deployments);
        wrong.into_iter().chain(settled).map(|text| told.found(&TRANSITION_IMPOSSIBLE, text)).collect()
    }

    /// Each document gives the newest manifest that was adopted, and none a lower one than before.
    fn manifest_versions(&mut self, told: &Told<'_>, status: &Status) -> Vec<Found> {
        let now = versions(status);
        let before = std::mem::replace(&mut self.versions, now);
        let adopted = status.syncer.adopted.as_ref().map_or(0, |adopted| adopted.manifest_version);
        let wrong = self.versions.iter().filter_map(|(id, version)| {
            let least = before.get(id).copied().unwrap_or(0);
            if *version < least {
                let text = format!("deployment {id} gives manifest version {version}, after {least}");
                return Some(told.found(&WENT_BACK_FOUND, text));
            }
            (*version > adopted.max(least)).then(|| {
                let text = format!("deployment {id} gives manifest version {version}, and {adopted} is adopted");
                told.found(&ADOPTED_MISMATCH_FOUND, text)
            })
        });
        wrong.collect()
    }
}

fn versions(status: &Status) -> BTreeMap<DeploymentId, u64> {
    let told = status.deployments.iter();
    told.filter_map(|(id, document)| Some((*id, document.adopted_manifest_version?))).collect()
}
