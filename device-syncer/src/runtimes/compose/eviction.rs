//! Eviction of images that nothing needs any more from the engine's store, which is the only place where images are kept.
//!
//! What this device put there is noted beside the cache; an image that isn't noted is a stranger's, whatever its name, and
//! is never touched. A name goes when no input needs it that is wanted, runs or ran well before: after a day, or at once
//! where a fetch needs its room. One name at a time, never forced, and never while something else is fetched.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use repo_git::durable;
use repo_model::{Digest, IntoSet, json, sort_few};
use serde::{Deserialize, Serialize};

use super::ComposeRuntime;
use super::images::OURS;
use super::project::{Marker, Project};
use crate::decision::component::Component;
use crate::decision::kept::Kept;
use crate::runtimes::client::{Call, QUERY};
use crate::runtimes::{Redactor, RuntimeError, files_failed};

/// How long an image stays that nothing needs: who goes back to what ran yesterday finds it.
const STAYS: SignedDuration = SignedDuration::from_hours(24);

/// The images that this device put into the engine's store (`images.json` beside the cache). Written only when something of
/// it changes; if it is lost, what it named stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Inventory {
    /// What was fetched, by input digest.
    inputs: BTreeMap<Digest, Fetched>,
    /// Names that no input needs, with the moment when that was noted. Also those under which an image is being pulled,
    /// until it has got a name of ours.
    unneeded: BTreeMap<String, Timestamp>,
}

/// The images of one input.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Fetched {
    /// The compose project that they are of.
    project: String,
    /// Their names in the engine, all of them ours.
    images: BTreeSet<String>,
}

impl Inventory {
    fn read(file: &Path) -> Self {
        match fs::read(file).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?)) {
            Ok(inventory) => inventory,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::default(),
            Err(error) => {
                tracing::warn!(%error, file = %file.display(), "can't be read, so the images that it named stay");
                Self::default()
            }
        }
    }

    /// An input needs an image of this name.
    fn fetched(&mut self, input: Digest, project: &str, name: &str) {
        if name.starts_with(OURS) {
            let fetched = self.inputs.entry(input).or_default();
            project.clone_into(&mut fetched.project);
            fetched.images.insert(name.to_owned());
            self.unneeded.remove(name);
        }
    }

    /// Forgets inputs that are neither kept nor applied, and notes what of their images nothing else needs. A clock that is
    /// behind says nothing of when that was: their day begins when it is right again.
    fn settle(&mut self, kept: &Kept, applied: &[(String, Marker)], now: Timestamp) {
        for (project, marker) in applied {
            marker.images.values().for_each(|name| self.fetched(marker.input_digest, project, name));
        }
        let applied = applied.iter().map(|(_, marker)| marker.input_digest).into_set();
        let mut gone = BTreeSet::new();
        self.inputs.retain(|input, fetched| {
            let stays =
                kept.inputs.contains(input) || kept.unknown.contains(&fetched.project) || applied.contains(input);
            if !stays {
                gone.append(&mut fetched.images);
            }
            stays
        });
        let needed = self.inputs.values().flat_map(|fetched| &fetched.images).into_set();
        for name in gone.into_iter().filter(|name| !needed.contains(name)) {
            self.unneeded.entry(name).or_insert(if kept.clock_is_behind { Timestamp::MAX } else { now });
        }
        // A moment that is still to come was noted by a wrong clock, where it isn't this one that is wrong.
        if !kept.clock_is_behind {
            self.unneeded.values_mut().for_each(|since| *since = (*since).min(now));
        }
    }

    /// Names whose time is over, those first that weren't needed for longest; all, where their room is needed.
    fn due(&self, now: Timestamp, room: Room) -> Vec<String> {
        let is_due = |since: Timestamp| room == Room::Needed || now.duration_since(since) >= STAYS;
        let mut due: Vec<_> = self.unneeded.iter().filter(|(_, since)| is_due(**since)).collect();
        sort_few(&mut due, |(_, a), (_, b)| a.cmp(b));
        due.into_iter().map(|(name, _)| name.clone()).collect()
    }
}

/// Why images are evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    /// A fetch needs their room.
    Needed,
    /// Their time is over.
    NotNeeded,
}

/// What is known of images beyond what the engine knows.
#[derive(Debug)]
pub(super) struct ImageStore {
    file: PathBuf,
    /// Read when it is first asked for.
    inventory: Mutex<Option<Inventory>>,
    /// What the newest pass keeps; nothing goes before there was one.
    kept: Mutex<Option<Kept>>,
    /// How many fetch images now. Locked for as long as images are evicted.
    fetches: Mutex<usize>,
}

/// Images are fetched for as long as this lives.
pub(super) struct Fetching<'a>(&'a ImageStore);

impl Drop for Fetching<'_> {
    fn drop(&mut self) {
        *lock(&self.0.fetches) -= 1;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ImageStore {
    /// Nothing is read yet.
    pub(super) fn new(cache_dir: &Path) -> Self {
        let file = cache_dir.join("images.json");
        Self { file, inventory: Mutex::default(), kept: Mutex::default(), fetches: Mutex::default() }
    }

    /// Waits while images are evicted; until the result is dropped, only this fetch may evict any.
    pub(super) fn begin_fetch(&self) -> Fetching<'_> {
        *lock(&self.fetches) += 1;
        Fetching(self)
    }

    /// An input needs an image of this name, which the engine has.
    pub(super) fn note_fetched(&self, component: &Component, name: &str) -> Result<(), RuntimeError> {
        self.change(|inventory| inventory.fetched(component.input_digest, &component.project, name))
    }

    /// An image is about to be pulled under a name that the engine doesn't have: if that is cut off, it isn't taken for a
    /// stranger's.
    pub(super) fn note_pull(&self, name: &str) -> Result<(), RuntimeError> {
        self.change(|inventory| _ = inventory.unneeded.insert(name.to_owned(), Timestamp::now()))
    }

    /// The engine doesn't have an image under these names any more.
    pub(super) fn forget(&self, names: &[String]) -> Result<(), RuntimeError> {
        self.change(|inventory| inventory.unneeded.retain(|name, _| !names.contains(name)))
    }

    /// Changes the inventory, durably.
    fn change<T>(&self, change: impl FnOnce(&mut Inventory) -> T) -> Result<T, RuntimeError> {
        let mut known = lock(&self.inventory);
        let before = known.get_or_insert_with(|| Inventory::read(&self.file));
        let mut after = before.clone();
        let result = change(&mut after);
        if after != *before {
            let written = durable::replace_file(&self.file, &json::to_bytes(&after), 0o600);
            written.map_err(files_failed("write", &self.file))?;
            *before = after;
        }
        Ok(result)
    }
}

impl ComposeRuntime {
    /// From now on no image of these is evicted.
    pub fn keep(&self, kept: Kept) {
        *lock(&self.lasting.images.kept) = Some(kept);
    }

    /// Evicts the images that nothing has needed for a day, unless something is fetched.
    pub fn evict_images(&self) -> Result<(), RuntimeError> {
        match self.lasting.images.fetches.try_lock() {
            Ok(fetches) if *fetches == 0 => self.evict(Room::NotNeeded).map(drop),
            _ => Ok(()),
        }
    }

    /// Evicts all images that nothing needs, for a fetch that is at work; not while there is another one. Returns whether any
    /// went.
    pub(super) fn make_room(&self) -> Result<bool, RuntimeError> {
        let fetches = lock(&self.lasting.images.fetches);
        if *fetches == 1 { self.evict(Room::Needed) } else { Ok(false) }
    }

    /// One after the other. What the engine refuses to take away, because it is in use, stays for another day.
    fn evict(&self, room: Room) -> Result<bool, RuntimeError> {
        let Some(kept) = lock(&self.lasting.images.kept).clone() else { return Ok(false) };
        let (applied, now) = (Project::list(&self.settings.projects_dir)?, Timestamp::now());
        let due = self.lasting.images.change(|inventory| {
            inventory.settle(&kept, &applied, now);
            inventory.due(now, room)
        })?;
        if due.is_empty() {
            return Ok(false);
        }
        let in_use: BTreeSet<String> = self.engine.list(&[])?.into_iter().map(|container| container.image).into_set();
        let (mut gone, mut stays, mut result) = (Vec::new(), Vec::new(), Ok(()));
        for name in due {
            let removed = if in_use.contains(&name) { Ok(false) } else { self.unname(&name) };
            match removed {
                Ok(true) => gone.push(name),
                Ok(false) => stays.push(name),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        gone.iter().for_each(|name| tracing::info!(image = name, "evicted: nothing needs it any more"));
        stays.iter().for_each(|name| tracing::info!(image = name, "nothing needs it here, and it is in use: it stays"));
        self.lasting.images.change(|inventory| {
            inventory.unneeded.retain(|name, _| !gone.contains(name));
            inventory.unneeded.extend(stays.into_iter().map(|name| (name, now)));
        })?;
        result.map(|()| !gone.is_empty())
    }

    /// Takes away a name under which an image was pulled, now that it has got one of ours.
    pub(super) fn unname_pulled(&self, name: &str) -> Result<(), RuntimeError> {
        if self.unname(name)? { self.lasting.images.forget(&[name.to_owned()]) } else { Ok(()) }
    }

    /// Takes a name away in the engine; its image goes with the last one. Returns false if the engine refuses.
    fn unname(&self, name: &str) -> Result<bool, RuntimeError> {
        let args = ["image", "rm", "--no-prune", "--", name].map(OsString::from).into();
        let call = Call { args, timeout: QUERY, redactor: &Redactor::default(), parameters: &[], cancel: &|| false };
        let output = self.docker.run(call)?;
        if output.status.success() || super::engine::vanished(&output.stderr) {
            return Ok(true);
        }
        match self.docker.failure(&output, |reason| RuntimeError::DiskFull { reason }) {
            error @ RuntimeError::RuntimeUnavailable { .. } => Err(error),
            _ => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hour: i64) -> Timestamp {
        Timestamp::from_second(hour * 3600).unwrap()
    }

    fn digest(text: &str) -> Digest {
        Digest::of(text.as_bytes())
    }

    fn name(text: &str) -> String {
        format!("{OURS}{text}:{}", digest(text).hex())
    }

    fn kept(inputs: &[&str]) -> Kept {
        Kept { inputs: inputs.iter().map(|input| digest(input)).collect(), ..Kept::default() }
    }

    /// Three inputs of one project, of which each shares an image with the next.
    fn inventory() -> Inventory {
        let mut inventory = Inventory::default();
        for (input, images) in [("1", ["a", "b"]), ("2", ["b", "c"]), ("3", ["c", "d"])] {
            images.iter().for_each(|image| inventory.fetched(digest(input), "p", &name(image)));
        }
        inventory
    }

    #[test]
    fn an_image_goes_a_day_after_no_input_needs_it_any_more() {
        let mut all = inventory();
        all.settle(&kept(&["1", "2", "3"]), &[], at(0));
        assert_eq!(all, inventory(), "all of it is needed");
        all.settle(&kept(&["2", "3"]), &[], at(1));
        assert_eq!(all.unneeded, [(name("a"), at(1))].into(), "the other one is shared");
        all.settle(&kept(&["3"]), &[], at(20));
        assert_eq!(all.due(at(24), Room::NotNeeded), Vec::<String>::new());
        assert_eq!(all.due(at(25), Room::NotNeeded), [name("a")]);
        assert_eq!(all.due(at(44), Room::NotNeeded), [name("a"), name("b")]);
        assert_eq!(all.due(at(20), Room::Needed), [name("a"), name("b")], "the oldest first");
        all.fetched(digest("1"), "p", &name("a"));
        assert_eq!(all.due(at(99), Room::NotNeeded), [name("b")], "it is needed again");
    }

    #[test]
    fn what_can_not_be_known_now_keeps_its_images_and_a_wrong_clock_only_makes_them_wait() {
        let mut all = inventory();
        all.settle(&Kept { unknown: ["p".to_owned()].into(), ..Kept::default() }, &[], at(0));
        assert_eq!(all, inventory());
        all.settle(&kept(&[]), &[], at(1000));
        all.settle(&kept(&[]), &[], at(10));
        assert_eq!(all.due(at(33), Room::NotNeeded), Vec::<String>::new());
        assert_eq!(all.due(at(34), Room::NotNeeded).len(), 4);
    }

    #[test]
    fn a_device_that_boots_in_1970_evicts_nothing_before_its_day_when_the_clock_is_set() {
        let mut all = inventory();
        all.settle(&kept(&["2", "3"]), &[], at(1000));
        let in_1970 = Kept { clock_is_behind: true, ..kept(&["3"]) };
        all.settle(&in_1970, &[], at(10));
        assert_eq!(all.due(at(40), Room::NotNeeded), Vec::<String>::new());
        all.settle(&kept(&["3"]), &[], at(1001));
        assert_eq!(all.due(at(1001), Room::NotNeeded), Vec::<String>::new());
        assert_eq!(all.due(at(1024), Room::NotNeeded), [name("a")]);
        assert_eq!(all.due(at(1025), Room::NotNeeded), [name("a"), name("b")]);
    }

    #[test]
    fn a_strangers_name_is_never_noted_and_a_file_that_can_not_be_read_names_nothing() {
        let mut all = Inventory::default();
        all.fetched(digest("1"), "p", "registry.example/a:1");
        assert_eq!(all, Inventory::default());
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("images.json");
        assert_eq!(Inventory::read(&file), Inventory::default());
        durable::replace_file(&file, b"half", 0o600).unwrap();
        assert_eq!(Inventory::read(&file), Inventory::default());
        durable::replace_file(&file, &json::to_bytes(&inventory()), 0o600).unwrap();
        assert_eq!(Inventory::read(&file), inventory());
    }
}
