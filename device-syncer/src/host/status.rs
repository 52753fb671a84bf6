//! The branch `status` at the host: this device goes on from its own, and replaces what nobody else may write there.

use std::time::Instant;

use jiff::Timestamp;
use repo_git::repo::TreeLimits;
use repo_git::{Commit, CommitId, FetchError, PushUpdate, ReadError};
use repo_model::branch::epoch_branch;
use repo_model::desired::Desired;
use repo_model::message::{Epoch, Message};
use repo_model::report::{ConditionType, Reason};
use repo_model::{Branch, ErrorCode, IntoSet, KeyText, Trailer, error_chain};
use uuid::Uuid;

use crate::config::Device;
use crate::decision::conditions::{self, condition};
use crate::decision::device_state::Accepted;
use crate::host::client::{HostClient, Pushed};
use crate::host::fetch::{self, History};
use crate::host::push_size::PushSize;
use crate::host::refs::RemoteRefs;
use crate::host::verify::key_text;
use crate::state::shared::Shared;
use crate::state::store::{Onto, StoreError};
use crate::state::view::View;

/// `status` can't be made to go on.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What this device reported before can't be fetched into the clone.
    #[error("can't fetch this device's `status`")]
    Fetch(#[source] FetchError),
}

/// What to do about the tip of `status` on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Theirs {
    /// It stands where it was left, or nowhere.
    Known,
    /// An allowed key signed it, and it isn't in our history: our commits go on top of it.
    Ours(CommitId),
    /// A key signed it that was allowed then, and isn't any more: this device on its disk before. Ours begin the next epoch, or
    /// go on top of it where the host keeps none.
    Before(CommitId),
    /// It is the end of the epoch before ours, which is kept: ours takes its place.
    Ended,
    /// No allowed key signed it: it is replaced.
    Foreign(CommitId),
}

/// What became of the end of an epoch at the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// The next epoch may begin.
    Before(Epoch<CommitId>),
    /// The host takes no branch `status-<n>`: `status` goes on in the epoch that there is.
    Refused,
    NotNow,
}

/// How much of `status` the host knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    All,
    /// It took some, and takes more at once.
    PartForNow,
    Part,
}

/// The local `status`, and the one at the host.
#[derive(Debug)]
pub struct StatusBranch<'a> {
    /// The way to the other one.
    pub host: &'a mut HostClient,
    /// The clone with the local one. What is at work goes on to add to it.
    pub state: &'a Shared,
    pub device: &'a Device,
}

impl StatusBranch<'_> {
    /// A device that knows nothing of its `status`, because it is new or its clone was lost, goes on from the host's if
    /// its own key signed that, so that no transition is reported twice. Returns false if that can't be found out now.
    pub fn resume(&mut self, refs: Option<&RemoteRefs>) -> Result<bool, StatusError> {
        if self.tip().is_some() {
            return Ok(true);
        }
        let Some(refs) = refs else { return Ok(false) };
        let Some(tip) = refs.status else { return Ok(true) };
        let view = self.state.view();
        match fetch::fetch(self.host.remote(), &view, &[tip], History::Since(None), &self.device.settings.limits) {
            Ok(()) => {}
            Err(FetchError::Remote(error)) => {
                self.host.connectivity.failed(&error, "the host's `status` can't be fetched", Timestamp::now());
                return Ok(false);
            }
            Err(error @ (FetchError::Store { .. } | FetchError::Read(_))) => return Err(StatusError::Fetch(error)),
            Err(error) => {
                tracing::warn!(error = error_chain(&error), "the host's `status` is not ours");
                return Ok(true);
            }
        }
        if signer(&view, tip).is_some_and(|key| key == self.device.key.get()) {
            tracing::warn!(%tip, "going on from the `status` that the host has");
            let other = instance_of(&view, tip).filter(|other| *other != self.device.instance);
            _ = self.replant(Onto::Tip(tip))?;
            if let Some(other) = other {
                self.report_fork(tip, Some(other))?;
            }
        }
        Ok(true)
    }

    /// Pushes what the host doesn't know, and notes in `refs` where it stands then. Nothing is pushed before a `desired` was
    /// believed.
    pub fn push(&mut self, refs: &mut RemoteRefs, desired: &Desired) -> Result<Told, StatusError> {
        if self.tip() == refs.status && !self.begin_epoch(refs)? {
            return Ok(Told::All);
        }
        if !self.host.may_push_status() {
            return Ok(Told::Part);
        }
        let view = self.state.view();
        let mut theirs =
            match refs.status.map_or(Ok(Theirs::Known), |tip| self.judge_theirs(&view, (&*refs, tip), desired)) {
                Ok(theirs) => theirs,
                Err(error) => {
                    tracing::warn!(error = error_chain(&error), "the host's `status` can't be read");
                    return Ok(Told::Part);
                }
            };
        if view.is_suspect() {
            // Whose commits they are can't be known from a history that can't be read.
            return Ok(Told::Part);
        }
        match theirs {
            Theirs::Known | Theirs::Ended => {}
            Theirs::Ours(tip) => {
                let moved = self.replant(Onto::Tip(tip))?;
                let made_by = instance_of(&view, tip);
                // What a damaged clone lost of this installation's own history is no fork.
                if view.device_state.damaged.is_none() || made_by != Some(self.device.instance) {
                    self.report_fork(tip, made_by)?;
                }
                let Some(moved) = moved else {
                    // What is told of an older state waits for the next one, so that `status` never goes backwards.
                    tracing::debug!(onto = %tip, "another installation has told of a newer state");
                    return Ok(Told::Part);
                };
                tracing::warn!(onto = %tip, commits = moved, "going on from a `status` that was moved elsewhere");
            }
            Theirs::Before(tip) => {
                let onto = match self.tip().map_or(Kept::Refused, |_| self.keep(refs, &view, tip)) {
                    Kept::Before(epoch) => {
                        theirs = Theirs::Ended;
                        Onto::Epoch(epoch)
                    }
                    Kept::Refused => Onto::Tip(tip),
                    Kept::NotNow => return Ok(Told::Part),
                };
                let Some(moved) = self.replant(onto)? else { return Ok(Told::Part) };
                tracing::warn!(?onto, commits = moved, "going on from what this device said with its key before");
            }
            Theirs::Foreign(tip) => {
                self.report_event(
                    Reason::StatusReplaced,
                    format!("{tip} on `status`, which no allowed key signed, is replaced"),
                )?;
            }
        }
        self.push_parts(&view, refs, theirs, &desired.envelope.device.status_keys)
    }

    /// Pushes what the host doesn't have, oldest first, in as many parts as it takes, for about as long as one request may take.
    fn push_parts(
        &mut self,
        view: &View,
        refs: &mut RemoteRefs,
        mut theirs: Theirs,
        allowed: &[KeyText],
    ) -> Result<Told, StatusError> {
        let until = Instant::now() + self.device.settings.host.timeouts.total;
        'line: loop {
            let Some(line) = readable(self.line_after(view, refs.status)) else { return Ok(Told::Part) };
            let mut rest = &line[..];
            while !rest.is_empty() {
                let Some(part) = readable(self.host.push_size.part(&view.repo, refs.status, rest, allowed)) else {
                    return Ok(Told::Part);
                };
                let (expected, new) = (refs.status, part[part.len() - 1]);
                let force = matches!(theirs, Theirs::Foreign(_) | Theirs::Ended);
                let update = PushUpdate { branch: Branch::Status.to_string(), expected, new, force };
                match self.host.push(&view.repo, &update) {
                    Pushed::Done => {
                        (refs.status, theirs, rest) = (Some(new), Theirs::Known, &rest[part.len()..]);
                        self.host.status_is_taken();
                        self.host.push_size.arrived();
                        if !rest.is_empty() && Instant::now() >= until {
                            tracing::info!(
                                commits = rest.len(),
                                "the host was told a part of what it doesn't know yet"
                            );
                            return Ok(Told::PartForNow);
                        }
                    }
                    Pushed::Refused if self.is_lost_there(refs, theirs)? => {
                        let moved = self.replant(Onto::Nothing)?;
                        tracing::warn!(commits = moved, "the host lost `status`; what is here of it is told anew");
                        continue 'line;
                    }
                    Pushed::Refused if self.host.push_size.failed(part.len()) => {}
                    Pushed::Refused => match (theirs, refs.status) {
                        // A host that replaces nothing has one epoch.
                        (Theirs::Ended, Some(end)) => {
                            self.host.epoch_is_refused();
                            let limits = &self.device.settings.limits;
                            if let Err(error) =
                                fetch::fetch(self.host.remote(), view, &[end], History::Since(None), limits)
                            {
                                tracing::warn!(error = error_chain(&error), "the host's `status` can't be read");
                                return Ok(Told::Part);
                            }
                            let moved = self.replant(Onto::Tip(end))?;
                            tracing::warn!(onto = %end, commits = moved, "the host lets no epoch of `status` begin");
                            theirs = Theirs::Known;
                            continue 'line;
                        }
                        _ => {
                            self.host.status_is_refused();
                            return Ok(Told::Part);
                        }
                    },
                    Pushed::BrokeOff => {
                        self.host.push_size.failed(part.len());
                        return Ok(Told::Part);
                    }
                    Pushed::NotNow => return Ok(Told::Part),
                }
            }
            self.host.push_size = PushSize::default();
            return Ok(Told::All);
        }
    }

    /// What the local one has and the host's doesn't, oldest first.
    fn line_after(&self, view: &View, known: Option<CommitId>) -> Result<Vec<CommitId>, ReadError> {
        let Some(tip) = self.tip().filter(|tip| Some(*tip) != known) else { return Ok(Vec::new()) };
        let mut line = view.repo.history(tip, known, usize::MAX)?;
        line.reverse();
        Ok(line)
    }

    /// Whether the host lacks what all of this builds on, which isn't here either.
    fn is_lost_there(&self, refs: &RemoteRefs, theirs: Theirs) -> Result<bool, StoreError> {
        let begins_anew = refs.status.is_none() || matches!(theirs, Theirs::Foreign(_));
        Ok(begins_anew && !self.state.lock().store.has_whole_status()?)
    }

    /// The tip of the local one; `None` before this device reported anything.
    fn tip(&self) -> Option<CommitId> {
        self.state.lock().store.status_tip()
    }

    /// Begins a new epoch of `status` where this one has as many commits as it may have, the host has them all, and keeps its
    /// end. Its first commit says what the last one said. Returns whether one began.
    fn begin_epoch(&mut self, refs: &mut RemoteRefs) -> Result<bool, StatusError> {
        let Some(tip) = refs.status.filter(|_| self.state.lock().store.is_epoch_full()) else { return Ok(false) };
        let Kept::Before(epoch) = self.keep(refs, &self.state.view(), tip) else { return Ok(false) };
        self.replant(Onto::Epoch(epoch))?;
        tracing::info!(number = epoch.number, end = %tip, "an epoch of `status` begins");
        Ok(true)
    }

    /// Has the host keep where its `status` stands as the end of an epoch, unless it does.
    fn keep(&mut self, refs: &mut RemoteRefs, view: &View, tip: CommitId) -> Kept {
        let after = |number: u32| Kept::Before(Epoch { number: number.saturating_add(1), previous: tip });
        if let Some((number, _)) = refs.epochs.last_key_value().filter(|(_, end)| **end == tip) {
            return after(*number);
        }
        if !self.host.may_end_epoch() {
            return Kept::Refused;
        }
        let number = refs.epochs.last_key_value().map_or(1, |(newest, _)| newest.saturating_add(1));
        let update = PushUpdate { branch: epoch_branch(number), expected: None, new: tip, force: false };
        match self.host.push(&view.repo, &update) {
            Pushed::Done => {
                refs.epochs.insert(number, tip);
                after(number)
            }
            Pushed::Refused => {
                self.host.epoch_is_refused();
                Kept::Refused
            }
            Pushed::BrokeOff | Pushed::NotNow => Kept::NotNow,
        }
    }

    fn replant(&self, onto: Onto) -> Result<Option<usize>, StoreError> {
        self.state.lock().store.replant(onto, Timestamp::now().as_second())
    }

    fn judge_theirs(
        &self,
        view: &View,
        (refs, tip): (&RemoteRefs, CommitId),
        desired: &Desired,
    ) -> Result<Theirs, FetchError> {
        let ours = view.status;
        // Which epoch ours is, only its oldest commit says: all of them are walked for that.
        if refs.epochs.values().any(|end| *end == tip) {
            let begun = self.state.lock().store.epoch()?.filter(|epoch| epoch.previous == tip);
            if begun.is_some_and(|epoch| refs.epochs.get(&(epoch.number - 1)) == Some(&tip)) {
                return Ok(Theirs::Ended);
            }
        }
        if ours.is_some_and(|ours| view.descends(ours, tip)) {
            return Ok(Theirs::Known);
        }
        match fetch::fetch(self.host.remote(), view, &[tip], History::Since(ours), &self.device.settings.limits) {
            // A device's own tip alone is never that large.
            Err(error) if error.is_too_much() => return Ok(Theirs::Foreign(tip)),
            result => result?,
        }
        let allowed: &[KeyText] = &desired.envelope.device.status_keys;
        Ok(match signer(view, tip) {
            Some(key) if allowed.contains(&key) || key == self.device.key.get() => Theirs::Ours(tip),
            Some(key) if self.was_ours(view, tip, &key)? => Theirs::Before(tip),
            _ => Theirs::Foreign(tip),
        })
    }

    /// Whether a tip of `status` is what this device said with another key, before this installation said anything there:
    /// the commit of `desired` that it names allowed that key. Whoever still has the key can't go on from what we said.
    fn was_ours(&self, view: &View, tip: CommitId, key: &KeyText) -> Result<bool, FetchError> {
        let named =
            |commit: Commit| Message::parse(&commit.message).get(Trailer::DesiredCommit)?.parse::<CommitId>().ok();
        let accepted = view.device_state.accepted.as_ref().and_then(Accepted::id);
        let (Some(named), Some(accepted)) = (view.repo.commit(tip).ok().and_then(named), accepted) else {
            return Ok(false);
        };
        if self.state.lock().store.has_reported_before(tip)? {
            return Ok(false);
        }
        // The clone may end at the accepted commit, which names its parent all the same.
        if view.repo.commit(named).is_err() || !view.descends(accepted, named) {
            match fetch::fetch_history(self.host.remote(), view, accepted, &self.device.settings.limits) {
                Err(error @ (FetchError::Remote(_) | FetchError::Store { .. })) => return Err(error),
                Err(error) => tracing::warn!(error = error_chain(&error), "the history of `desired` can't be had"),
                Ok(()) => {}
            }
        }
        // What the accepted commit descends from is the publisher's, too.
        let files = view.repo.files(named, &TreeLimits::default());
        let allowed = files.ok().and_then(|files| repo_model::desired::read(&files).ok());
        let allowed = allowed.is_some_and(|desired| desired.envelope.device.status_keys.contains(key));
        Ok(allowed && view.descends(accepted, named))
    }

    /// Says that somebody else speaks in this device's name.
    fn report_fork(&mut self, tip: CommitId, other: Option<Uuid>) -> Result<(), StatusError> {
        let installations = other.into_iter().chain([self.device.instance]);
        let names = installations.map(|instance| instance.to_string()).into_set();
        let names = names.into_iter().collect::<Vec<_>>().join(" and ");
        let text = match other {
            Some(other) if other == self.device.instance => {
                format!("installation {names} is there twice, or was put back: it made {tip} elsewhere")
            }
            _ => format!("installations {names} use the same identity"),
        };
        self.report_event(ErrorCode::HistoryForked, text)
    }

    /// Reports a security event on `status`, until the next adoption.
    fn report_event(&mut self, reason: impl Into<String>, message: String) -> Result<(), StatusError> {
        let mut change = self.state.begin();
        let (mut all, gates) = conditions::reported(&change.next.status);
        all.push(condition(ConditionType::SecurityEvent, reason, message));
        let site = conditions::report(&change.next.status).and_then(|report| report.site);
        conditions::write(&mut change.next, self.device.instance, &all, gates, site);
        change.commit()?;
        Ok(())
    }
}

/// What was read of the clone; nothing can be pushed of what can't be.
fn readable<T>(read: Result<T, ReadError>) -> Option<T> {
    read.inspect_err(|error| tracing::warn!(error = error_chain(error), "can't push `status`")).ok()
}

fn signer(view: &View, commit: CommitId) -> Option<KeyText> {
    Some(key_text(&view.repo.commit(commit).ok()?.signer().ok()?))
}

/// The installation that made a `status` commit, by its own word.
fn instance_of(view: &View, tip: CommitId) -> Option<Uuid> {
    Some(conditions::report(&view.repo.files(tip, &TreeLimits::default()).ok()?)?.instance)
}
