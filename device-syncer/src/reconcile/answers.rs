//! Answers what the fleet asks for, beside the passes: one thing at a time, in a thread and a process of its own, within bounds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use jiff::Timestamp;
use repo_model::ask::{Answer, Ask, MAX_BYTES, MAX_REASON, Outcome};
use repo_model::{ComponentName, error_chain, text};
use serde::Deserialize;
use tokio::sync::Notify;

use crate::config::Home;
use crate::decision::ask::{Task, Undone};
use crate::runtimes::Redactor;
use crate::runtimes::command::{self, Spec, last_lines};
use crate::state::answers::{self, Known, Stamps};
use crate::state::requests::Requests;

/// The hidden command of this program that collects what an answer has.
pub const SUBCOMMAND: &str = "collect-answer";

/// What it has of the answer's bytes: the rest is for what else stands there.
pub const CONTENT: usize = MAX_BYTES - (8 << 10);

/// How long it may take; then it is ended with all that it began.
const TIME: Duration = Duration::from_secs(60);

/// What the fleet asked for and is being answered.
#[derive(Debug)]
pub(super) struct Answers {
    home: Home,
    /// Set at the end of the program.
    stop: Arc<AtomicBool>,
    /// Notified of each answer, as of the end of a job: a pass begins.
    answered: Arc<Notify>,
    /// The number that this process began last: none is begun twice, so that what can't be kept isn't collected for ever.
    begun: u64,
    job: Option<Job>,
    known: Known,
}

#[derive(Debug)]
struct Job {
    thread: JoinHandle<()>,
    /// Set before the pass begins that is to see its answer.
    is_over: Arc<AtomicBool>,
}

/// What [`SUBCOMMAND`] prints.
#[derive(Debug, Default, Deserialize)]
struct Collected {
    logs: Option<BTreeMap<ComponentName, Vec<String>>>,
    diagnostics: Option<serde_json::Value>,
}

impl Answers {
    pub(super) fn new(home: &Home, stop: Arc<AtomicBool>, answered: Arc<Notify>) -> Self {
        Self { home: home.clone(), stop, answered, begun: 0, job: None, known: Known::default() }
    }

    /// Whether this number can be begun now.
    pub(super) fn may_begin(&self, number: u64) -> bool {
        self.job.is_none() && self.begun != number
    }

    /// Takes note of an answer that is there. Returns whether there is one since this was asked last.
    pub(super) fn reap(&mut self) -> bool {
        let is_over = |job: &mut Job| job.is_over.load(Ordering::Acquire) || job.thread.is_finished();
        self.job.take_if(is_over).is_some()
    }

    /// Whether one is being made.
    pub(super) fn is_at_work(&self) -> bool {
        self.job.is_some()
    }

    /// Removes old answers, while none is being made. Returns those that stand.
    pub(super) fn forget_old(&mut self, now: Timestamp) -> Stamps {
        self.known.forget_old(&self.home, now)
    }

    /// Answers it. What it asks for is noted as begun.
    pub(super) fn begin(&mut self, ask: Ask, task: Result<Task, Undone>, path: String) {
        self.begun = ask.number;
        let (home, stop, answered) = (self.home.clone(), Arc::clone(&self.stop), Arc::clone(&self.answered));
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let made = task.and_then(|task| done(&home, &task, &path, &|| stop.load(Ordering::Relaxed)));
            // The next start answers what the end of this program cut off.
            if !stop.load(Ordering::Relaxed) || made.is_ok() {
                keep(&home, answer(ask, made));
            }
            over.store(true, Ordering::Release);
            answered.notify_one();
        });
        self.job = Some(Job { thread, is_over });
    }

    /// Waits for the one that is being made; at the end of the program it ends at once. Returns whether there was one.
    pub(super) fn join(&mut self) -> bool {
        self.job.take().is_some_and(|job| job.thread.join().is_ok())
    }
}

fn keep(home: &Home, answer: Answer) {
    let Answer { number, what, outcome, reason, .. } = &answer;
    tracing::info!(number, what, outcome, reason, "answered what the fleet asked for");
    if let Err(error) = answers::write(home, &answer) {
        tracing::error!(number, error = error_chain(&error), "can't keep the answer to what the fleet asked for");
    }
}

fn answer(Ask { number, what, deployment }: Ask, made: Result<Collected, Undone>) -> Answer {
    let (outcome, reason, Collected { logs, diagnostics }) = match made {
        Ok(collected) => (Outcome::Done, None, collected),
        Err(Undone::Refused(reason)) => (Outcome::Refused, Some(reason), Collected::default()),
        Err(Undone::Failed(reason)) => (Outcome::Failed, Some(reason), Collected::default()),
    };
    let reason = reason.map(|reason| text::line(&reason).chars().take(MAX_REASON).collect());
    let (time, outcome) = (Timestamp::now(), outcome.to_string());
    Answer { number, what: text::line(&what), deployment, time, outcome, reason, logs, diagnostics }
}

/// Does it, and returns what the answer has beyond that.
fn done(home: &Home, task: &Task, path: &str, stop: &dyn Fn() -> bool) -> Result<Collected, Undone> {
    let words = match task {
        // It was done with the note that it is.
        Task::Retry(_) => return Ok(Collected::default()),
        Task::Sync => {
            let failed = |error| Undone::Failed(format!("can't leave the request: {}", error_chain(&error)));
            return Requests::ask_sync(home).map(|()| Collected::default()).map_err(failed);
        }
        Task::Logs(name) => vec![name.to_string()],
        Task::Diagnostics => Vec::new(),
    };
    let first = ["--home".into(), home.root().as_os_str().to_owned(), SUBCOMMAND.into()];
    let spec = Spec {
        program: "/proc/self/exe".into(),
        args: first.into_iter().chain(words.into_iter().map(Into::into)).collect(),
        env: std::env::vars_os().filter(|(name, _)| name != "PATH").chain([("PATH".into(), path.into())]).collect(),
        timeout: TIME,
        stdout_limit: CONTENT,
        redactor: Redactor::default(),
    };
    let failed = |reason: &str| {
        let lines = last_lines(reason, MAX_REASON);
        Undone::Failed(lines.lines().map(str::trim).collect::<Vec<_>>().join(" "))
    };
    let output = command::run(&spec, stop).map_err(|error| failed(&error_chain(&error)))?;
    if !output.status.success() {
        return Err(failed(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(&error.to_string()))
}
