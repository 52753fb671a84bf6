//! Which bytes the images of services are, and the names that they have on this device (`repo-layouts/README.md`,
//! *Images*).
//!
//! An image is locked by its publisher, by the digest in its name, or by this device when it is first used. It runs under
//! a name of ours, which says the digest: no tag in a registry moves it, and an image that has a name isn't taken by
//! `docker image prune`. What runs keeps its name until its input changes, because another name means another container.

use std::ffi::OsString;
use std::time::Duration;

use repo_artifacts::ImageReference;
use repo_http::Credential;
use repo_model::{Digest, error_chain};

use super::engine::{Image, Pull, PullError};
use super::project::Project;
use super::{ComposeRuntime, Prepared};
use crate::runtimes::client::{Call, QUERY};
use crate::runtimes::command::CommandError;
use crate::runtimes::{LockedImage, RuntimeError, Source};

/// The registry in our names, which is nowhere (RFC 6761).
pub(super) const OURS: &str = "device-syncer.invalid/";
/// A repository of ours is cut to so many characters: the engine takes 255 for the whole name.
const LONGEST: usize = 200;

/// An image that a service wants.
struct WantedImage<'a> {
    /// As the compose file names it, its variables filled.
    reference: ImageReference,
    text: &'a str,
    /// The name under which it runs for this input already.
    kept: Option<&'a str>,
    /// Absent if it is locked now.
    lock: Option<Digest>,
    /// It was locked just now, for another service of the same component.
    is_learned: bool,
}

impl ComposeRuntime {
    /// Fetches the images that aren't here, and puts the names under which they run into the document.
    pub(super) fn fetch_images(
        &self,
        prepared: &mut Prepared,
        from: Source,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), RuntimeError> {
        let project = Project::new(&self.settings.projects_dir, &prepared.component.project);
        let kept = project.images(prepared.component.input_digest)?;
        let _fetching = self.lasting.images.begin_fetch();
        for (service, text) in prepared.resolved.images_by_service() {
            let kept = kept.get(&service).map(String::as_str);
            let wanted = WantedImage::new(prepared, &service, &text, kept)?;
            let fetched = match self.fetch_image(prepared, &wanted, from, cancel) {
                Err(RuntimeError::DiskFull { .. }) if self.make_room()? => {
                    self.fetch_image(prepared, &wanted, from, cancel)
                }
                fetched => fetched,
            };
            let (name, learned) = fetched?;
            self.lasting.images.note_fetched(&prepared.component, &name)?;
            if let Some(digest) = learned {
                let image = prepared.redactor.clean(&text);
                prepared.first_use.insert(service.clone(), LockedImage { image, digest });
            }
            prepared.resolved.set_image(&service, name);
        }
        Ok(())
    }

    /// The name that runs, and the digest if it is locked now.
    fn fetch_image(
        &self,
        prepared: &Prepared,
        wanted: &WantedImage<'_>,
        from: Source,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(String, Option<Digest>), RuntimeError> {
        match (wanted.kept, wanted.lock) {
            (Some(kept), Some(_)) if self.engine.image(kept)?.is_some() => Ok((kept.to_owned(), None)),
            (_, Some(lock)) => {
                let name = self.fetch_locked(prepared, wanted, lock, from, cancel)?;
                Ok((name, wanted.is_learned.then_some(lock)))
            }
            (kept, None) => {
                let source = kept.unwrap_or(wanted.text);
                let is_here = self.engine.image(source)?.is_some();
                if !is_here && from == Source::Here {
                    return Err(wanted.not_here(prepared));
                }
                if !is_here && self.registry.mirrors_stand_for(&wanted.reference) {
                    let lock = self.meaning(prepared, wanted)?;
                    return Ok((self.fetch_locked(prepared, wanted, lock, from, cancel)?, Some(lock)));
                }
                if !is_here {
                    let _room = self.reserve_room(prepared, source)?;
                    self.pull(prepared, source, cancel)?;
                }
                let present = self.engine.image(source)?.ok_or_else(|| wanted.vanished(prepared))?;
                let digest = wanted.digest_of(&present).ok_or_else(|| wanted.vanished(prepared))?;
                let name = kept.map_or_else(|| wanted.name(digest), str::to_owned);
                // A tag stays for its day: until the lock is durable, the image is found by it.
                let pulled = if is_here { None } else { kept };
                self.name(prepared, &present.id, &name, pulled)?;
                Ok((name, Some(digest)))
            }
        }
    }

    /// Has the image with exactly these bytes under the name that it runs under, which this gives.
    fn fetch_locked(
        &self,
        prepared: &Prepared,
        wanted: &WantedImage<'_>,
        lock: Digest,
        from: Source,
        cancel: &dyn Fn() -> bool,
    ) -> Result<String, RuntimeError> {
        let (id, pulled) = self.locked(prepared, wanted, lock, from, cancel)?;
        let name = wanted.kept.map_or_else(|| wanted.name(lock), str::to_owned);
        self.name(prepared, &id, &name, pulled.as_deref())?;
        Ok(name)
    }

    /// The id of the image with exactly these bytes, which is pulled if it isn't here under any name that is known; then also
    /// the name under which it was.
    fn locked(
        &self,
        prepared: &Prepared,
        wanted: &WantedImage<'_>,
        lock: Digest,
        from: Source,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(String, Option<String>), RuntimeError> {
        let pinned = |name: String| format!("{name}@{lock}");
        let ours = wanted.name(lock);
        let names = self.registry.names_of(&wanted.reference).into_iter().map(pinned);
        for name in
            [ours.clone(), wanted.text.to_owned(), pinned(wanted.reference.name().to_owned())].into_iter().chain(names)
        {
            let found = self.engine.image(&name)?;
            if let Some(found) = found.filter(|found| is(found, lock) || name == ours) {
                return Ok((found.id, None));
            }
        }
        if from == Source::Here {
            return Err(wanted.not_here(prepared));
        }
        let _room = self.reserve_room(prepared, &pinned(wanted.reference.name().to_owned()))?;
        let pulled = self.pull_locked(prepared, wanted, lock, cancel)?;
        if let Some(found) = self.engine.image(&pulled)? {
            return Ok((found.id, Some(pulled)));
        }
        // Another fetch has pulled it at the same time, and given it our name.
        let found = self.engine.image(&ours)?.ok_or_else(|| wanted.vanished(prepared))?;
        Ok((found.id, None))
    }

    /// Pulls the image from the first place that has it: the mirrors of its registry, and that itself. Returns the name under
    /// which the engine has it then. Whatever goes wrong at a mirror is passed over: it may look like anything.
    fn pull_locked(
        &self,
        prepared: &Prepared,
        wanted: &WantedImage<'_>,
        lock: Digest,
        cancel: &dyn Fn() -> bool,
    ) -> Result<String, RuntimeError> {
        let (own, mut tried) = (wanted.reference.name(), Vec::new());
        for place in self.registry.names_of(&wanted.reference) {
            let name = format!("{place}@{lock}");
            match self.pull(prepared, &name, cancel) {
                Ok(()) => return Ok(name),
                Err(RuntimeError::Cancelled) => return Err(RuntimeError::Cancelled),
                Err(error) if place == own && tried.is_empty() => {
                    return Err(self.changed(prepared, wanted, lock, &error).unwrap_or(error));
                }
                Err(error) => {
                    let error = error_chain(&error);
                    if place != own {
                        tracing::warn!(image = wanted.reference.name(), error, "a mirror is passed over");
                    }
                    tried.push(error);
                }
            }
        }
        Err(wanted.unavailable(prepared, tried.join("; ")))
    }

    /// What its tag means, where mirrors say that in their registry's place.
    fn meaning(&self, prepared: &Prepared, wanted: &WantedImage<'_>) -> Result<Digest, RuntimeError> {
        let unavailable = |error| wanted.unavailable(prepared, prepared.redactor.clean(&error_chain(&error)));
        self.registry.resolve_image(&wanted.reference).map_err(unavailable)
    }

    /// A registry that has the name with other bytes, and the locked ones no more, will not get better by itself.
    fn changed(
        &self,
        prepared: &Prepared,
        wanted: &WantedImage<'_>,
        lock: Digest,
        error: &RuntimeError,
    ) -> Option<RuntimeError> {
        let RuntimeError::ArtifactUnavailable { reason, .. } = error else { return None };
        if wanted.reference.digest().is_some() || !["not found", "unknown"].iter().any(|word| reason.contains(word)) {
            return None;
        }
        let found = self.registry.resolve_image(&wanted.reference).ok().filter(|found| *found != lock)?;
        let reason = format!("its name means {found} now, and {lock}, which is locked, is no longer there");
        Some(RuntimeError::ArtifactDigestChanged { what: wanted.what(prepared), reason })
    }

    /// Whether the engine has an image of this name.
    pub(super) fn has_image(&self, name: &str) -> Result<bool, RuntimeError> {
        Ok(self.engine.image(name)?.is_some())
    }

    fn pull(&self, prepared: &Prepared, name: &str, cancel: &dyn Fn() -> bool) -> Result<(), RuntimeError> {
        self.lasting.images.note_pull(name)?;
        if let Some(pulled) = self.pull_as_account(prepared, name, cancel) {
            return pulled;
        }
        let (args, limit) = (["pull", "--quiet", "--", name].map(OsString::from).into(), self.settings.pull_timeout);
        match self.on_image(prepared, name, args, limit, cancel) {
            Err(RuntimeError::RuntimeUnavailable { source: Some(CommandError::TimedOut { .. }), .. }) => {
                Err(self.took_too_long(prepared, name))
            }
            pulled => pulled,
        }
    }

    /// How long a pull takes depends on image and link, and on nothing that the application says of itself.
    fn took_too_long(&self, prepared: &Prepared, name: &str) -> RuntimeError {
        let seconds = self.settings.pull_timeout.as_secs();
        unavailable(
            prepared,
            name,
            format!("it took longer than {seconds} s, which is `docker.pullTimeout` of device.yaml"),
        )
    }

    /// Pulls it in the name of the account that `device.yaml` has for its registry; `None` without one, or where the engine
    /// isn't this machine's: there docker has to know the account itself.
    fn pull_as_account(
        &self,
        prepared: &Prepared,
        name: &str,
        cancel: &dyn Fn() -> bool,
    ) -> Option<Result<(), RuntimeError>> {
        let image = ImageReference::parse(name).ok()?;
        let account = match self.registry.account(image.host()) {
            Ok(Credential::None) => return None,
            Ok(account) => account,
            Err(error) => return Some(Err(unavailable(prepared, name, error_chain(&error)))),
        };
        let limit = self.settings.pull_timeout;
        let pulled = self.engine.pull(&Pull { image: &image, account: &account, limit, cancel })?;
        Some(pulled.map_err(|error| match error {
            PullError::Cancelled => RuntimeError::Cancelled,
            PullError::TookTooLong => self.took_too_long(prepared, name),
            PullError::Failed(said) => self.docker.failure_said(&said, |reason| {
                let account = format!("; its account is `registries.accounts.{}` of device.yaml", image.host());
                let hint = if is_refused(&reason) { account.as_str() } else { "" };
                unavailable(prepared, name, format!("{reason}{hint}"))
            }),
        }))
    }

    /// Gives the image the name that it runs under, and takes the one away under which it was pulled for that.
    fn name(&self, prepared: &Prepared, id: &str, name: &str, pulled: Option<&str>) -> Result<(), RuntimeError> {
        // A name with a digest is the image's as soon as it is pulled.
        if !name.contains('@') {
            self.tag(prepared, id, name)?;
        }
        match pulled {
            Some(pulled) if pulled == name => self.lasting.images.forget(&[name.to_owned()]),
            Some(pulled) => self.unname_pulled(pulled),
            None => Ok(()),
        }
    }

    /// Gives the image a name, unless it has it.
    fn tag(&self, prepared: &Prepared, id: &str, name: &str) -> Result<(), RuntimeError> {
        if self.engine.image(name)?.is_some_and(|found| found.id == id) {
            return Ok(());
        }
        self.on_image(prepared, name, ["tag", id, name].map(OsString::from).into(), QUERY, &|| false)
    }

    fn on_image(
        &self,
        prepared: &Prepared,
        name: &str,
        args: Vec<OsString>,
        timeout: Duration,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), RuntimeError> {
        let output = self.docker.run(Call { args, timeout, redactor: &prepared.redactor, parameters: &[], cancel })?;
        if output.status.success() {
            return Ok(());
        }
        Err(self.docker.failure(&output, |reason| {
            let account = "; an account for it goes under `registries.accounts` of device.yaml";
            let hint = if is_refused(&reason) { account } else { "" };
            unavailable(prepared, name, format!("{reason}{hint}"))
        }))
    }
}

fn unavailable(prepared: &Prepared, name: &str, reason: String) -> RuntimeError {
    let what = format!("image `{}`", prepared.redactor.clean(name));
    RuntimeError::ArtifactUnavailable { what, reason: prepared.redactor.clean(&reason), source: None }
}

/// Whether a registry says that it is about who asks, in the words of engines and registries.
pub fn is_refused(reason: &str) -> bool {
    let words = ["unauthorized", "denied", "no basic auth", "authentication required"];
    words.iter().any(|word| reason.to_lowercase().contains(word))
}

impl<'a> WantedImage<'a> {
    fn new(prepared: &Prepared, service: &str, text: &'a str, kept: Option<&'a str>) -> Result<Self, RuntimeError> {
        let invalid = |reason: String| RuntimeError::ArtifactInvalid { what: format!("service `{service}`"), reason };
        let reference =
            ImageReference::parse(text).map_err(|error| invalid(prepared.redactor.clean(&error.to_string())))?;
        if text.starts_with(OURS) {
            return Err(invalid(format!("names of images don't begin with `{OURS}`")));
        }
        let locks = &prepared.component.images;
        let published = || locks.published.get(text).copied();
        let first_use = || locks.first_use.get(service).copied();
        let lock = kept.and_then(locked_by).or(reference.digest()).or_else(published).or_else(first_use);
        let beside = || prepared.first_use.values().find(|one| one.image == text).map(|one| one.digest);
        let learned = if lock.is_none() && kept.is_none() { beside() } else { None };
        Ok(Self { reference, text, kept, lock: lock.or(learned), is_learned: learned.is_some() })
    }

    /// The name under which these bytes run.
    fn name(&self, lock: Digest) -> String {
        let path = Some(self.reference.path()).filter(|path| path.len() <= LONGEST).unwrap_or("image");
        format!("{OURS}{path}:{}", lock.hex())
    }

    /// What an image is locked by: the digest that it was pulled as, or its id if it never was.
    fn digest_of(&self, present: &Image) -> Option<Digest> {
        let same =
            |pulled: &ImageReference| (pulled.host(), pulled.path()) == (self.reference.host(), self.reference.path());
        let mut pulled = present.pulled().iter().filter_map(|pulled| ImageReference::parse(pulled).ok());
        pulled.find(same).and_then(|pulled| pulled.digest()).or_else(|| present.id.parse().ok())
    }

    fn what(&self, prepared: &Prepared) -> String {
        format!("image `{}`", prepared.redactor.clean(self.text))
    }

    fn not_here(&self, prepared: &Prepared) -> RuntimeError {
        RuntimeError::NotHere { what: self.what(prepared) }
    }

    fn vanished(&self, prepared: &Prepared) -> RuntimeError {
        self.unavailable(prepared, "the engine doesn't have it, although it was just fetched".to_owned())
    }

    fn unavailable(&self, prepared: &Prepared, reason: String) -> RuntimeError {
        RuntimeError::ArtifactUnavailable { what: self.what(prepared), reason, source: None }
    }
}

/// Whether an image has these bytes.
fn is(image: &Image, lock: Digest) -> bool {
    let lock = lock.to_string();
    image.id == lock || image.pulled().iter().any(|pulled| pulled.split_once('@').is_some_and(|(_, it)| it == lock))
}

/// The digest in a name of ours.
fn locked_by(name: &str) -> Option<Digest> {
    let (_, hex) = name.strip_prefix(OURS)?.rsplit_once(':')?;
    format!("sha256:{hex}").parse().ok()
}
