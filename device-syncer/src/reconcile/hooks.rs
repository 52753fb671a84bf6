//! Asks the site's hook whether a change may be made now, and tells it the end of what it let through.
//!
//! A job asks it in its own thread, when all is fetched and before the first effect. What it said no to is asked again every
//! 30 seconds in a thread beside the loop, so that no job begins for that.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use repo_model::report::{Condition, ConditionType, Reason};
use repo_model::{DeploymentId, Digest, IntoMap, error_chain, json};
use tokio::sync::Notify;

use crate::config::{Home, Hook, Settings};
use crate::decision::conditions::condition;
use crate::decision::failure::STEADY;
use crate::decision::hook::{HookAsk, HookEnd, HookGate, Phase, words};
use crate::runtimes::Redactor;
use crate::runtimes::command::{self, Spec, last_lines};
use crate::state::opened::{self, Opened, OpenedChange};

/// How long an answer counts, and how often the same is asked at most.
const AGAIN: Duration = Duration::from_secs(30);

/// How many hooks run beside the loop at once.
const AT_ONCE: usize = 4;

/// The most that a hook may write, in bytes.
const OUTPUT: usize = 64 << 10;

/// How much of what it wrote to standard error is shown, in bytes.
const REASON: usize = 400;

/// The site's hook, for the loop and for each job; it lets everything through where the site has none.
#[derive(Debug, Clone, Default)]
pub struct Hooks(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    /// With the `PATH` that is all of its environment; by the newest settings.
    hook: Mutex<Option<(Hook, String)>>,
    home: Home,
    /// Set at the end of the program.
    stop: Arc<AtomicBool>,
    /// Notified of each answer, as of the end of a job: a pass begins.
    answered: Arc<Notify>,
    known: Mutex<Known>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Known {
    /// All that it has to allow, by the newest plan.
    asks: BTreeMap<DeploymentId, HookAsk>,
    answers: BTreeMap<DeploymentId, Answer>,
    /// What it let through and wasn't told the end of.
    opened: Opened,
    /// When it was last told the end of something and failed; absent once it has heard it.
    end_failed: BTreeMap<DeploymentId, Instant>,
    /// Why it gave no answer, or couldn't be told.
    failures: BTreeMap<(DeploymentId, Reason), String>,
    /// What a thread asks it, or tells it, at this moment.
    at_work: BTreeSet<DeploymentId>,
}

#[derive(Debug, Clone)]
struct Answer {
    set: Digest,
    at: Instant,
    /// Why not, and since when it says just that; `None` is a yes.
    no: Option<(String, Instant)>,
}

/// What was known of it when a pass began.
#[derive(Debug, Default)]
pub(super) struct HookView {
    pub(super) gate: Option<HookGate>,
    pub(super) opened: Opened,
    pub(super) conditions: Vec<Condition>,
}

impl Hooks {
    /// What this home's hook was asked and told so far.
    pub fn new(home: &Home, stop: Arc<AtomicBool>, answered: Arc<Notify>) -> Self {
        let known = Mutex::new(Known { opened: opened::read(home), ..Known::default() });
        let (hook, home, threads) = (Mutex::default(), home.clone(), Mutex::default());
        Self(Some(Arc::new(Inner { hook, home, stop, answered, known, threads })))
    }

    /// Asks by these settings from now on.
    pub fn follow(&self, settings: &Settings) {
        let Some(inner) = &self.0 else { return };
        let hook = settings.gates.hook.clone().map(|hook| (hook, settings.path.clone()));
        *inner.hook.lock().unwrap_or_else(PoisonError::into_inner) = hook;
    }

    /// With a shell that runs this as the site's hook.
    #[cfg(test)]
    pub(super) fn of_shell(home: &Home, line: &str) -> Self {
        let hooks = Self::new(home, Arc::default(), Arc::default());
        let (args, timeout) = (vec!["-c".to_owned(), line.to_owned()], Duration::from_secs(60));
        let hook = Hook { program: "/bin/sh".into(), args, timeout };
        let path = std::env::var("PATH").unwrap_or_default();
        *hooks.0.as_ref().unwrap().hook.lock().unwrap() = Some((hook, path));
        hooks
    }

    /// All of it, where the site has a hook.
    fn inner(&self) -> Option<&Arc<Inner>> {
        self.0.as_ref().filter(|inner| inner.hook().is_some())
    }

    /// What is known of it now.
    pub(super) fn view(&self) -> HookView {
        let Some(inner) = self.inner() else { return HookView::default() };
        let known = inner.known();
        let no = |(id, answer): (&DeploymentId, &Answer)| Some((*id, (answer.set, answer.no.as_ref()?.0.clone())));
        let gate = Some(HookGate { closed: known.answers.iter().filter_map(no).into_map() });
        let failed = |((_, reason), text): (&(DeploymentId, Reason), &String)| {
            condition(ConditionType::HookFailed, *reason, text)
        };
        HookView { gate, opened: known.opened.clone(), conditions: known.failures.iter().map(failed).collect() }
    }

    /// Takes over what it has to allow, and asks again what it said no to. Of what is unseen, it has to allow what it had to before:
    /// a job may be about to do it.
    pub(super) fn plan(&self, mut asks: BTreeMap<DeploymentId, HookAsk>, is_unseen: impl Fn(DeploymentId) -> bool) {
        let Some(inner) = self.inner() else { return };
        let mut known = inner.known();
        for (id, ask) in std::mem::take(&mut known.asks) {
            if is_unseen(id) {
                asks.entry(id).or_insert(ask);
            }
        }
        known.answers.retain(|id, answer| asks.get(id).is_some_and(|ask| ask.set == answer.set));
        known.failures.retain(|(id, reason), _| *reason == Reason::NotTold || asks.contains_key(id));
        known.asks = asks;
        let again: Vec<_> = known.due(Instant::now()).filter_map(|id| known.asks.get(&id).cloned()).collect();
        drop(known);
        for ask in again {
            inner.beside(ask.deployment_id, move |inner| _ = inner.ask(&ask, &|| false));
        }
    }

    /// How long until something is asked or told again.
    pub(super) fn due(&self) -> Option<Duration> {
        let known = self.inner()?.known();
        let asked = known.answers.values().filter(|answer| answer.no.is_some()).map(|answer| answer.at);
        asked.chain(known.end_failed.values().copied()).map(|at| AGAIN.saturating_sub(at.elapsed())).min()
    }

    /// Whether a job may go on to its first effect on this deployment. Asks, unless it has an answer that still counts.
    pub(super) fn may_change(&self, deployment: DeploymentId, cancel: &dyn Fn() -> bool) -> bool {
        let Some(inner) = self.inner() else { return true };
        let ask = inner.known().asks.get(&deployment).cloned();
        ask.is_none_or(|ask| inner.ask(&ask, cancel))
    }

    /// Tells it the end of what it let through, beside the loop, until it has heard that.
    pub(super) fn end(&self, of: OpenedChange, end: HookEnd) {
        let Some(inner) = self.inner() else { return };
        let id = end.deployment_id;
        let is_due = inner.known().end_failed.get(&id).is_none_or(|at| at.elapsed() >= AGAIN);
        if is_due {
            inner.beside(id, move |inner| inner.report_end(&of, &end));
        }
    }

    /// Waits for what is being asked and told.
    pub(super) fn join(&self) {
        let Some(inner) = &self.0 else { return };
        let threads = std::mem::take(&mut *inner.threads.lock().unwrap_or_else(PoisonError::into_inner));
        threads.into_iter().for_each(|thread| _ = thread.join());
    }
}

impl Known {
    /// What it said no to so long ago that it is asked again.
    fn due(&self, now: Instant) -> impl Iterator<Item = DeploymentId> {
        let is_due = move |answer: &Answer| answer.no.is_some() && now.duration_since(answer.at) >= AGAIN;
        self.answers.iter().filter(move |(_, answer)| is_due(answer)).map(|(id, _)| *id)
    }

    /// Keeps the words of a no for a while.
    fn answer(&mut self, ask: &HookAsk, no: Option<String>) {
        let (id, now) = (ask.deployment_id, Instant::now());
        let before = self.answers.get(&id).filter(|before| before.set == ask.set).and_then(|before| before.no.clone());
        let no = no.map(|words| match before {
            Some((before, since)) if before == words || since.elapsed() < STEADY => (before, since),
            _ => (words, now),
        });
        self.answers.insert(id, Answer { set: ask.set, at: now, no });
    }
}

impl Inner {
    fn hook(&self) -> Option<(Hook, String)> {
        self.hook.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something in a thread of its own, one thing of a deployment at a time, if there is room for it.
    fn beside(self: &Arc<Self>, id: DeploymentId, work: impl FnOnce(&Self) + Send + 'static) {
        {
            let mut known = self.known();
            if known.at_work.len() >= AT_ONCE || !known.at_work.insert(id) {
                return;
            }
        }
        let inner = Arc::clone(self);
        let thread = thread::spawn(move || {
            work(&inner);
            inner.known().at_work.remove(&id);
            inner.answered.notify_one();
        });
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
    }

    /// Whether this may be done now. What is let through is durable before that is used.
    fn ask(&self, ask: &HookAsk, cancel: &dyn Fn() -> bool) -> bool {
        let id = ask.deployment_id;
        if let Some(answer) = self.known().answers.get(&id)
            && answer.set == ask.set
            && answer.at.elapsed() < AGAIN
        {
            return answer.no.is_none();
        }
        let is_stopped = || cancel() || self.stop.load(Ordering::Relaxed);
        let result = self.run(&Phase::Ask(ask), &is_stopped);
        if is_stopped() {
            return false;
        }
        let mut known = self.known();
        let (mut no, mut failure) = match result {
            Ok(no) => (no, None),
            Err(error) => (Some("it gave no answer".to_owned()), Some(error)),
        };
        if no.is_none() {
            let change = OpenedChange { deployment: ask.deployment.clone(), set: ask.set };
            known.opened.insert(id, change);
            if let Err(error) = opened::write(&self.home, &known.opened) {
                known.opened.remove(&id);
                no = Some("its yes can't be noted".to_owned());
                failure = Some(format!("can't note what it let through: {error}"));
            }
        }
        let is_yes = no.is_none();
        tracing::info!(
            deployment = ask.deployment,
            is_yes,
            reason = no.as_deref().or(failure.as_deref()),
            "the site's hook was asked"
        );
        known.fail((id, Reason::NoAnswer), &ask.deployment, failure);
        known.answer(ask, no);
        is_yes
    }

    /// Tells the end of this, and forgets it once that was heard.
    fn report_end(&self, of: &OpenedChange, end: &HookEnd) {
        let id = end.deployment_id;
        let is_stopped = || self.stop.load(Ordering::Relaxed);
        let result = self.run(&Phase::Done(end), &is_stopped);
        if result.is_err() && is_stopped() {
            return;
        }
        let mut known = self.known();
        let failure = match result {
            Ok(None) => None,
            Ok(Some(no)) => Some(format!("it was told the end, and ended with 1: {no}")),
            Err(error) => Some(format!("it couldn't be told the end: {error}")),
        };
        if failure.is_none() {
            known.end_failed.remove(&id);
            known.answers.remove(&id);
            if known.opened.get(&id) == Some(of) {
                known.opened.remove(&id);
            }
            if let Err(error) = opened::write(&self.home, &known.opened) {
                tracing::warn!(%error, "what the site's hook was told can't be noted, so it is told again after a restart");
            }
        } else {
            known.end_failed.insert(id, Instant::now());
        }
        known.fail((id, Reason::NotTold), &of.deployment, failure);
    }

    /// `None`: it ended with 0. A text: it ended with 1. Anything else is an error.
    fn run(&self, phase: &Phase<'_>, cancel: &dyn Fn() -> bool) -> Result<Option<String>, String> {
        // What was to be asked when the site had one may be done.
        let Some((hook, path)) = self.hook() else { return Ok(None) };
        let spec = Spec {
            program: hook.program,
            args: hook.args.iter().map(OsString::from).collect(),
            env: vec![("PATH".into(), path.into())],
            timeout: hook.timeout,
            stdout_limit: OUTPUT,
            redactor: Redactor::default(),
        };
        let output = command::run_with_input(&spec, json::to_bytes(phase), cancel);
        let output = output.map_err(|error| error_chain(&error))?;
        match output.status.code() {
            Some(0) => Ok(None),
            Some(1) => Ok(Some(words(&output.stdout))),
            _ => Err(format!("`{spec}` ended with {}: {}", output.status, last_lines(&output.stderr, REASON))),
        }
    }
}

impl Known {
    fn fail(&mut self, of: (DeploymentId, Reason), deployment: &str, failure: Option<String>) {
        match failure {
            None => _ = self.failures.remove(&of),
            Some(text) => {
                tracing::warn!(deployment, reason = text, "the site's hook failed");
                self.failures.insert(of, format!("deployment `{deployment}`: {text}"));
            }
        }
    }
}
