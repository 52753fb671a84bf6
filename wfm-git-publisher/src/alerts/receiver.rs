//! One receiver: tells it what it doesn't know yet, and keeps what it was told beside the publisher's other state.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use repo_git::durable::{self, FileError};
use repo_http::HttpError;
use repo_model::{FleetId, error_chain};
use serde_json::Value;
use tracing::{error, info, warn};

use super::event::cloud_event;
use super::rules::Firing;
use super::told::{Event, Told, Wants};
use super::webhook::{Sender, WebhookError};
use crate::config;
use crate::program::{self, ProgramError};

/// The wait after a failure: the first, and the longest.
const AGAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(900));

/// A receiver can't be told.
#[derive(Debug, thiserror::Error)]
pub enum TellError {
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    #[error("the receiver's command")]
    Program(#[from] ProgramError),
    /// What it was told can't be read or kept.
    #[error(transparent)]
    File(#[from] FileError),
}

impl TellError {
    /// How long the receiver asks to be left alone.
    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Webhook(WebhookError::Http(error)) => HttpError::retry_after(error),
            _ => None,
        }
    }

    /// Whether the receiver is there, and refuses this event; else it is away, and so for every other event, too.
    fn is_of_event(&self) -> bool {
        match self {
            Self::Webhook(WebhookError::Http(error)) => {
                let is_of_all = |status| matches!(status, 401 | 403 | 404 | 407 | 408 | 410 | 429 | 502..=504);
                error.retry_after().is_none() && error.status().is_some_and(|status| !is_of_all(status))
            }
            Self::Program(error) => matches!(error, ProgramError::Failed { .. }),
            Self::Webhook(_) | Self::File(_) => false,
        }
    }
}

/// What a receiver didn't take, and until when that waits.
#[derive(Debug, Default)]
struct Missed {
    /// The ids of what it didn't take.
    events: BTreeSet<String>,
    /// Whether it was away at last, so that what is new waits, too.
    is_away: bool,
    /// How often it didn't take something, one round after the other.
    failures: u32,
    /// When all of it is tried again; absent where nothing waits.
    again: Option<Instant>,
}

impl Missed {
    /// Whether all is told now, what it didn't take included.
    fn begins(&mut self) -> bool {
        self.again = self.again.filter(|again| Instant::now() < *again);
        self.again.is_none()
    }

    /// What of these is told now: what it didn't take comes last, so that it is in the way of nothing else.
    fn next(&mut self, mut events: Vec<(String, Event)>) -> Vec<(String, Event)> {
        self.events.retain(|id| events.iter().any(|(known, _)| known == id));
        if self.again.is_some() {
            events.retain(|(id, _)| !self.is_away && !self.events.contains(id));
        } else if events.iter().all(|(id, _)| self.events.contains(id)) {
            self.events.clear();
        }
        events.sort_by_key(|(id, _)| self.events.contains(id));
        events
    }

    /// Waits for longer than the time before, and as long as the receiver asks for.
    fn wait(&mut self, error: &TellError) {
        let wait = AGAIN.0.saturating_mul(1 << self.failures.min(8)).min(AGAIN.1);
        self.again = Some(Instant::now() + error.retry_after().map_or(wait, |asked| asked.max(wait)));
        self.failures += 1;
    }
}

/// What fired at a look.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) fleet: FleetId,
    pub(super) firing: Firing,
}

/// Who is told, and what it was told so far.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) name: String,
    pub(super) settings: config::Receiver,
    /// The file that keeps what it was told.
    pub(super) file: PathBuf,
}

impl Receiver {
    /// Tells it whatever each look finds, until nobody looks any more. A receiver that doesn't take something gets it again
    /// later, and holds nobody else up.
    pub(super) fn follow(&self, looks: &mpsc::Receiver<Arc<Look>>) {
        let (mut newest, mut missed, mut logged) = (None::<Arc<Look>>, Missed::default(), String::new());
        loop {
            let heard = match missed.again {
                Some(again) => looks.recv_timeout(again.saturating_duration_since(Instant::now())),
                None => looks.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match heard {
                Ok(look) => newest = Some(looks.try_iter().last().unwrap_or(look)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let Some(look) = &newest else { continue };
            let (begins, was_away) = (missed.begins(), missed.is_away);
            match self.tell(look, &mut missed, Timestamp::now()) {
                Ok(()) if begins => (missed, logged) = (Missed::default(), String::new()),
                Ok(()) => {}
                Err(error) => {
                    if begins || missed.is_away && !was_away {
                        missed.wait(&error);
                    }
                    let text = error_chain(&error);
                    if text != logged {
                        error!(receiver = self.name, error = text, "an alert isn't delivered; it is tried again");
                        logged = text;
                    }
                }
            }
        }
    }

    /// Tells it what it has to hear, as far as that doesn't wait. What it took is noted at once, so a crash repeats one event at most. What
    /// it refuses keeps nothing else from it; one that is away gets one event a round, and another one in the next.
    fn tell(&self, look: &Look, missed: &mut Missed, now: Timestamp) -> Result<(), TellError> {
        let before = self.read()?;
        let (is_first, mut told) = (before.is_none(), before.unwrap_or_default());
        let known = told.clone();
        let wants = Wants { only: &self.settings.only, after: self.settings.after };
        told.take(&look.firing, wants, is_first, now);
        if is_first || told != known {
            self.write(&told)?;
        }
        let events = told.due(&look.firing, wants, now);
        let events = missed.next(events.into_iter().map(|event| (event.id(), event)).collect());
        if events.is_empty() {
            return Ok(());
        }
        let mut refused = None;
        let courier = Courier::new(&self.settings).inspect_err(|_| missed.is_away = true)?;
        for (id, event) in events {
            if let Err(error) = courier.deliver(&cloud_event(&event, look.fleet, now), Timestamp::now()) {
                missed.events.insert(id);
                missed.is_away = !error.is_of_event();
                if missed.is_away {
                    return Err(error);
                }
                refused.get_or_insert(error);
                continue;
            }
            info!(receiver = self.name, status = %event.status, alert = %event.kind, count = event.alerts.len(), "told");
            told.note(&event);
            self.write(&told)?;
        }
        refused.map_or(Ok(()), Err)
    }

    /// What it was told; `None` if that isn't known. Then it hears of all that fires.
    pub(super) fn read(&self) -> Result<Option<Told>, FileError> {
        match fs::read(&self.file) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)
                .map(Told::renamed)
                .inspect_err(|error| {
                    let (file, error) = (self.file.display(), error.to_string());
                    warn!(%file, error, "what was told can't be read; all that fires is told again");
                })
                .ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(FileError::read(&self.file)(error)),
        }
    }

    fn write(&self, told: &Told) -> Result<(), FileError> {
        let text = serde_json::to_vec_pretty(told).map_err(io::Error::from);
        text.and_then(|text| durable::replace_file(&self.file, &text, 0o600)).map_err(FileError::write(&self.file))
    }
}

/// Brings events to a receiver.
pub(super) enum Courier<'a> {
    Webhook(Box<Sender>),
    Command(&'a config::Command),
}

impl<'a> Courier<'a> {
    pub(super) fn new(settings: &'a config::Receiver) -> Result<Self, TellError> {
        Ok(match &settings.to {
            config::To::Webhook(webhook) => Self::Webhook(Box::new(Sender::new(webhook)?)),
            config::To::Command(command) => Self::Command(command),
        })
    }

    pub(super) fn deliver(&self, event: &Value, now: Timestamp) -> Result<(), TellError> {
        match self {
            Self::Webhook(sender) => sender.send(event, now)?,
            Self::Command(command) => {
                program::run(&command.command, command.timeout, [], event.to_string().into_bytes())?;
            }
        }
        Ok(())
    }
}
