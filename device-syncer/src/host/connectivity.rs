//! Why the host can't be reached, or takes nothing of what it is told: kept beside the clone for `status`, because it can't be
//! reported.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use repo_git::{RemoteError, durable};
use repo_model::report::{Condition, ConditionType};
use repo_model::{answer, error_chain, text};

use crate::decision::conditions;
use crate::state::local_condition::{self, LocalCondition};

/// The type of a failure that may pass by itself; one that needs a person is `Stalled`.
pub const UNREACHABLE: &str = "Unreachable";

/// The reason of a failure that is a person's word: the device is retired, and its account ended with that.
pub const RETIRED: &str = "Retired";

/// The reason of a host that is reached, and refuses what this device has to tell.
pub const REFUSED: &str = "StatusRefused";

/// How long a host is left alone that says that this device is retired.
const RETIRED_AGAIN: Duration = Duration::from_secs(answer::RETIRED_AGAIN);

/// What a failure to talk with the host is called.
pub fn condition(error: &RemoteError) -> Condition {
    if error.reason() == RETIRED {
        let text =
            "the host says that this device is retired, and is asked once a day from now on; what runs here goes on";
        return conditions::condition(ConditionType::Waiting.as_str(), RETIRED, text);
    }
    let kind = if error.needs_a_person() { ConditionType::Stalled.as_str() } else { UNREACHABLE };
    conditions::condition(kind, error.reason(), error_chain(error))
}

/// How talking with the host went.
#[derive(Debug)]
pub struct Connectivity {
    path: PathBuf,
    /// What the last pass that is over met; the file has its kind and reason.
    known: Option<LocalCondition>,
    /// The last failure of this pass; `None` while there was none.
    met: Option<LocalCondition>,
    retry_after: Option<Duration>,
}

impl Connectivity {
    /// Reads what an earlier process met last.
    pub fn open(path: PathBuf) -> Self {
        let known = local_condition::read(&path);
        Self { path, known, met: None, retry_after: None }
    }

    /// Notes a failure, and logs it: as a warning the first time, as debugging for as long as it stays the same kind
    /// and reason.
    pub fn failed(&mut self, error: &RemoteError, doing: &str, now: Timestamp) {
        let condition = condition(error);
        let retired = (condition.reason == RETIRED).then_some(RETIRED_AGAIN);
        self.retry_after = self.retry_after.max(error.retry_after()).max(retired);
        self.note(condition, doing, now);
    }

    /// The same of a host that refuses `status` by these words.
    pub fn refused(&mut self, said: &str, now: Timestamp) {
        let text = format!("the host takes nothing of what this device has to tell: {}", text::line(said));
        self.note(conditions::condition(ConditionType::Stalled.as_str(), REFUSED, text), "can't push `status`", now);
    }

    fn note(&mut self, Condition { kind, reason, message }: Condition, doing: &str, now: Timestamp) {
        let is_known = self.known.as_ref().is_some_and(|known| known.kind == kind && known.reason == reason);
        if is_known {
            tracing::debug!(kind, reason, error = message, "{doing}");
        } else {
            tracing::warn!(kind, reason, error = message, "{doing}");
        }
        let since = self.known.as_ref().filter(|_| is_known).map_or(now, |known| known.since);
        self.met = Some(LocalCondition { kind, reason, message, since });
    }

    /// A pass begins: it has met nothing yet, and the host hasn't asked to be left alone.
    pub fn begin(&mut self) {
        (self.met, self.retry_after) = (None, None);
    }

    /// A pass is over: what it met is what `status` shows from now on. Written only if its kind or reason changed.
    pub fn end(&mut self) {
        let name =
            |trouble: &Option<LocalCondition>| trouble.as_ref().map(|one| (one.kind.clone(), one.reason.clone()));
        if name(&self.known) != name(&self.met) {
            let written = match &self.met {
                Some(trouble) => durable::replace_file(&self.path, &repo_model::json::to_bytes(trouble), 0o600),
                None => durable::remove_file(&self.path).map(drop),
            };
            match (&self.met, written) {
                (_, Err(error)) => tracing::warn!(%error, "can't keep why the host can't be reached"),
                (None, Ok(())) if self.known.as_ref().is_some_and(|known| known.reason == REFUSED) => {
                    tracing::info!("the host takes `status` again");
                }
                (None, Ok(())) => tracing::info!("the host is reached again"),
                (Some(_), Ok(())) => {}
            }
        }
        self.known.clone_from(&self.met);
    }

    /// Why the host wasn't reached in the last pass that is over; `None` if it was.
    pub fn problem(&self) -> Option<&LocalCondition> {
        self.known.as_ref()
    }

    /// How long the host is to be left alone, by what it said in the last pass.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}
