//! Asks each runtime what it runs, in a thread of its own, so that one that hangs delays neither what is newer nor the other one.
//!
//! A pass waits for the answers. Where something else waits for it, it goes on without those that take longer than a few seconds:
//! nothing is known of such a runtime, and nothing of its kind begins, just as if it couldn't be reached. Its question isn't
//! given up, but answered beside the passes that follow: so no host that moves all the time keeps a slow runtime from being
//! observed. Nothing of its kind has begun meanwhile but what was at work when it was asked, which is therefore taken for
//! being at work still.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use repo_model::margo::ProfileType;
use repo_model::{IntoMap, error_chain};
use tokio::sync::Notify;

use crate::decision::failure::Failure;
use crate::decision::observation::{Observation, Observed};
use crate::reconcile::jobs::AtWork;
use crate::runtimes::{Asked, DeviceRuntimes, Facts, RuntimeError};

/// For so long an answer is waited for, whatever else waits.
const SHORT: Duration = Duration::from_secs(3);

/// How long questions that are given up may take to end: their processes have 10 seconds.
const END: Duration = Duration::from_secs(12);

/// What is asked of the runtimes, and what they said last.
#[derive(Debug)]
pub struct Observer {
    open: BTreeMap<ProfileType, Question>,
    /// How many questions were asked since the program began, which numbers them.
    asked: u64,
    /// What each answered last, or why it couldn't; nothing of one that never did.
    last: BTreeMap<ProfileType, Answer>,
    facts: BTreeMap<ProfileType, Facts>,
    tell: Sender<Said>,
    said: Receiver<Said>,
    /// Runtimes that others took the place of: jobs may be at work with them.
    before: Vec<Weak<DeviceRuntimes>>,
    /// Notified of an answer that no pass waits for.
    answered: Arc<Notify>,
    /// The newest pass used an answer to what was asked before it.
    is_behind: bool,
}

type Answer = Result<Vec<Observed>, Failure>;

/// What a runtime is being asked.
#[derive(Debug)]
struct Question {
    number: u64,
    began: Instant,
    /// What was at work before that.
    at_work: AtWork,
    /// What is answered isn't used: it was asked by other rules.
    is_outdated: bool,
    /// Whether a pass went on without its answer.
    is_left: Arc<Mutex<bool>>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
enum Said {
    /// By a runtime; nothing where its thread broke.
    Answer { kind: ProfileType, number: u64, asked: Option<Asked> },
    /// Something waits for the pass that is under way.
    Hurry,
}

/// What a pass goes on with.
#[derive(Debug)]
pub(super) struct Answers {
    /// What a plan is made from.
    pub(super) now: Observation,
    /// The same, with what those said last that haven't answered yet.
    pub(super) shown: Observation,
    /// What was at work since before that.
    pub(super) at_work: AtWork,
    /// Something waits for this pass by now.
    pub(super) is_waited_for: bool,
}

/// Says to the pass that is under way that something waits for it.
#[derive(Debug, Clone)]
pub struct Hurry(Sender<Said>);

impl Hurry {
    pub(super) fn say(&self) {
        // A program that ends hears nobody.
        _ = self.0.send(Said::Hurry);
    }
}

impl Default for Observer {
    fn default() -> Self {
        let ((tell, said), answered) = (channel(), Arc::default());
        let (open, last, facts) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { open, asked: 0, last, facts, tell, said, before: Vec::new(), answered, is_behind: false }
    }
}

impl Observer {
    /// Notified of answers that no pass waits for.
    pub(super) fn answered(&self) -> Arc<Notify> {
        Arc::clone(&self.answered)
    }

    pub(super) fn hurry(&self) -> Hurry {
        Hurry(self.tell.clone())
    }

    /// Whether another pass is due, because the newest one saw less than happened before it.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// What is asked at this moment was asked by rules that don't count any more.
    pub(super) fn ask_anew(&mut self) {
        self.open.values_mut().for_each(|question| question.is_outdated = true);
    }

    /// Forgets what is asked of runtimes that others take the place of.
    pub(super) fn follow_others(&mut self, before: &Arc<DeviceRuntimes>) {
        self.before.retain(|one| one.strong_count() > 0);
        self.before.push(Arc::downgrade(before));
        (self.open, self.last) = (BTreeMap::new(), BTreeMap::new());
    }

    /// Ends all questions to those: no job asks any by them.
    pub(super) fn end_before(&mut self) {
        self.before.drain(..).filter_map(|one| one.upgrade()).for_each(|one| one.end_questions());
    }

    /// Ends all open questions, and waits for that, for [`END`] at most.
    pub(super) fn end(&mut self, runtimes: &DeviceRuntimes) {
        self.end_before();
        runtimes.end_questions();
        let until = Instant::now() + END;
        while !self.open.is_empty() && Instant::now() < until {
            self.hear(Some(until));
        }
    }

    /// The versions of tools and what they talk to, and where the engine has its images, once all of these runtimes have told.
    pub(super) fn facts(&self, types: &BTreeSet<ProfileType>) -> Option<(BTreeMap<String, String>, Option<PathBuf>)> {
        let all: Vec<_> = types.iter().map(|kind| self.facts.get(kind)).collect::<Option<_>>()?;
        let versions = all.iter().flat_map(|facts| facts.versions.clone()).into_map();
        Some((versions, all.iter().find_map(|facts| facts.data_root.clone())))
    }

    /// Asks each runtime, but those that haven't answered yet, what it runs, and for its facts if they are wanted, too. Waits
    /// for all answers, or for no longer than [`SHORT`] where something waits for this pass.
    pub(super) fn observe(
        &mut self,
        runtimes: &Arc<DeviceRuntimes>,
        mut at_work: AtWork,
        wants_facts: bool,
        mut is_waited_for: bool,
    ) -> Answers {
        let types = runtimes.types();
        let before = self.asked;
        if wants_facts {
            self.facts.clear();
        }
        for kind in types.iter().filter(|kind| !self.open.contains_key(kind)).copied().collect::<Vec<_>>() {
            self.ask(runtimes, kind, at_work.clone(), wants_facts);
        }
        self.is_behind = false;
        let (mut fresh, mut is_left) = (BTreeSet::new(), false);
        while let Some(newest) = self.open.values().map(|question| question.began).max() {
            match self.hear(is_waited_for.then(|| newest + SHORT)) {
                Heard::Answer(kind, question) if question.is_outdated => {
                    self.ask(runtimes, kind, at_work.clone(), wants_facts);
                }
                Heard::Answer(kind, question) => {
                    fresh.insert(kind);
                    if question.number < before {
                        self.is_behind = true;
                        at_work.extend(&question.at_work);
                    }
                }
                Heard::Hurry => is_waited_for = true,
                Heard::Nothing if is_left => break,
                // Whoever answers from here on says so; what came just before is there by now.
                Heard::Nothing => {
                    let set =
                        |question: &Question| *question.is_left.lock().unwrap_or_else(PoisonError::into_inner) = true;
                    self.open.values().for_each(set);
                    is_left = true;
                }
            }
        }
        let (mut now, mut shown) = (Observation::default(), Observation::default());
        for kind in types {
            let none = || Err(failure(&DeviceRuntimes::unanswered(kind)));
            let last = self.last.get(&kind);
            if fresh.contains(&kind) {
                now.add(kind, last.cloned().unwrap_or_else(none));
            } else {
                now.add(kind, none());
                now.unanswered.insert(kind);
            }
            if last.is_none() {
                shown.unanswered.insert(kind);
            }
            shown.add(kind, last.cloned().unwrap_or_else(none));
        }
        Answers { now, shown, at_work, is_waited_for }
    }

    fn ask(&mut self, runtimes: &Arc<DeviceRuntimes>, kind: ProfileType, at_work: AtWork, wants_facts: bool) {
        let number = self.asked;
        self.asked += 1;
        let is_left = Arc::<Mutex<bool>>::default();
        let (tell, answered) = (self.tell.clone(), Arc::clone(&self.answered));
        let telling = Telling { kind, number, asked: None, tell, is_left: Arc::clone(&is_left), answered };
        let runtimes = Arc::clone(runtimes);
        let span = tracing::Span::current();
        let thread = std::thread::spawn(move || {
            let (_span, mut telling) = (span.entered(), telling);
            telling.asked = Some(runtimes.ask(kind, wants_facts));
        });
        let question = Question { number, began: Instant::now(), at_work, is_outdated: false, is_left, thread };
        self.open.insert(kind, question);
    }

    /// The next thing that is said, until this moment at the longest.
    fn hear(&mut self, until: Option<Instant>) -> Heard {
        loop {
            let said = match until {
                // A sender is kept here.
                None => self.said.recv().map_err(RecvTimeoutError::from),
                Some(until) => self.said.recv_timeout(until.saturating_duration_since(Instant::now())),
            };
            let (kind, number, asked) = match said {
                Ok(Said::Answer { kind, number, asked }) => (kind, number, asked),
                Ok(Said::Hurry) => return Heard::Hurry,
                Err(_) => return Heard::Nothing,
            };
            // Of runtimes that were there before, or it isn't the newest one.
            let Some(question) = self.open.remove(&kind) else { continue };
            if question.number != number {
                self.open.insert(kind, question);
                continue;
            }
            let Some(Asked { found, facts }) = asked else {
                match question.thread.join() {
                    Err(panic) => std::panic::resume_unwind(panic),
                    Ok(()) => continue,
                }
            };
            self.last.insert(kind, found.map_err(|error| failure(&error)));
            self.facts.extend(facts.map(|facts| (kind, facts)));
            return Heard::Answer(kind, question);
        }
    }
}

enum Heard {
    Answer(ProfileType, Question),
    Hurry,
    Nothing,
}

/// Says what was answered when it is dropped, also by a panic.
struct Telling {
    kind: ProfileType,
    number: u64,
    asked: Option<Asked>,
    tell: Sender<Said>,
    is_left: Arc<Mutex<bool>>,
    answered: Arc<Notify>,
}

impl Drop for Telling {
    fn drop(&mut self) {
        // A pass that goes on meanwhile either hears it, or has said before that it doesn't wait.
        let is_left = self.is_left.lock().unwrap_or_else(PoisonError::into_inner);
        // A program that ends hears nobody.
        _ = self.tell.send(Said::Answer { kind: self.kind, number: self.number, asked: self.asked.take() });
        if *is_left {
            self.answered.notify_one();
        }
    }
}

fn failure(error: &RuntimeError) -> Failure {
    Failure::new(error.code(), error_chain(error))
}
