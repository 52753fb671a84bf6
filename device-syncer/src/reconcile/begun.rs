//! Asks the runtimes, beside the passes, what of a set that failed runs only once and has begun.
//!
//! What a runtime says decides, for good, whether the last good set is put back. One that doesn't answer decides nothing: it is asked
//! again, ever more rarely, and what failed says so meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use repo_model::{DeploymentId, Digest};
use tokio::sync::Notify;

use crate::decision::deployment::DesiredDeployment;

/// For so long a pass waits for the answers.
const SHORT: Duration = Duration::from_secs(3);

/// How soon a runtime is asked again that didn't answer; twice as long each time, up to [`RARELY`].
const AGAIN: Duration = Duration::from_secs(30);
const RARELY: Duration = Duration::from_secs(300);

/// How long questions may take to end at the end of the program: their processes have 10 seconds.
const END: Duration = Duration::from_secs(12);

/// What of a set has begun that runs only once, or why nobody knows that now.
pub(super) type Answer = Result<BTreeSet<String>, String>;

/// What is asked of sets that failed.
#[derive(Debug)]
pub(super) struct Begun {
    questions: BTreeMap<DeploymentId, Question>,
    /// Notified of an answer, which makes a pass begin.
    answered: Arc<Notify>,
    /// A pass waits so long at most: [`SHORT`], or to the end.
    waits: Duration,
}

#[derive(Debug)]
struct Question {
    set: Digest,
    /// Of a question that is open.
    answer: Option<Receiver<Answer>>,
    /// Why there was none the first time; it stays so that it is told once.
    unknown: Option<String>,
    tries: u32,
    asked: Instant,
}

impl Question {
    fn again(&self) -> Instant {
        self.asked + AGAIN.saturating_mul(1 << self.tries.saturating_sub(1).min(8)).min(RARELY)
    }
}

impl Begun {
    pub(super) fn new(answered: Arc<Notify>) -> Self {
        Self { questions: BTreeMap::new(), answered, waits: SHORT }
    }

    /// Passes wait for all answers from now on: they are of a program that ends then.
    pub(super) fn wait_for_all(&mut self) {
        self.waits = Duration::MAX;
    }

    /// Asks about these sets, and about no others any more. Returns what is known by now.
    pub(super) fn ask(
        &mut self,
        sets: &[&DesiredDeployment],
        ask: impl Fn(&DesiredDeployment) -> Answer + Clone + Send + 'static,
        now: Instant,
    ) -> BTreeMap<DeploymentId, BTreeSet<String>> {
        self.questions.retain(|id, question| sets.iter().any(|one| one.id == *id && one.set() == question.set));
        for one in sets {
            let set = one.set();
            let new = || Question { set, answer: None, unknown: None, tries: 0, asked: now };
            let question = self.questions.entry(one.id).or_insert_with(new);
            if question.answer.is_some() || question.tries > 0 && now < question.again() {
                continue;
            }
            let (tell, answer) = channel();
            let (one, ask, answered) = ((*one).clone(), ask.clone(), Arc::clone(&self.answered));
            let span = tracing::Span::current();
            thread::spawn(move || {
                let _span = span.entered();
                // A program that ends hears nobody.
                _ = tell.send(ask(&one));
                drop(tell);
                answered.notify_one();
            });
            (question.answer, question.asked) = (Some(answer), now);
            question.tries += 1;
        }
        let until = Instant::now().checked_add(self.waits);
        let mut known = BTreeMap::new();
        for (id, question) in &mut self.questions {
            let Some(answer) = &question.answer else { continue };
            let said = match until {
                None => answer.recv().map_err(RecvTimeoutError::from),
                Some(until) => answer.recv_timeout(until.saturating_duration_since(Instant::now())),
            };
            match said {
                Err(RecvTimeoutError::Timeout) => continue,
                Ok(Ok(begun)) => drop(known.insert(*id, begun)),
                Ok(Err(why)) => question.unknown = question.unknown.take().or(Some(why)),
                Err(RecvTimeoutError::Disconnected) => {}
            }
            question.answer = None;
        }
        self.questions.retain(|id, _| !known.contains_key(id));
        known
    }

    /// Why it isn't known of some whether the last good set is put back.
    pub(super) fn unknown(&self) -> impl Iterator<Item = (DeploymentId, &str)> {
        self.questions.iter().filter_map(|(id, question)| Some((*id, question.unknown.as_deref()?)))
    }

    /// How long until something is asked again; not what could be asked already.
    pub(super) fn due(&self, now: Instant) -> Option<Duration> {
        let waiting = self.questions.values().filter(|question| question.answer.is_none());
        waiting.filter_map(|question| question.again().checked_duration_since(now)).filter(|due| !due.is_zero()).min()
    }

    /// Waits until all questions have ended, which somebody else has ended.
    pub(super) fn end(&mut self) {
        let until = Instant::now() + END;
        for question in std::mem::take(&mut self.questions).into_values() {
            if let Some(answer) = question.answer {
                _ = answer.recv_timeout(until.saturating_duration_since(Instant::now()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::testing::{id, wanted};

    #[test]
    fn a_runtime_that_does_not_answer_decides_nothing_and_is_asked_again_ever_more_rarely() {
        let (set, begin) = (wanted("a", &[("x", "1")]), Instant::now());
        let mut begun = Begun::new(Arc::default());
        begun.wait_for_all();
        let asked = Arc::new(Mutex::new(0));
        let no = {
            let asked = Arc::clone(&asked);
            move |_: &DesiredDeployment| {
                *asked.lock().unwrap() += 1;
                Err(format!("no answer {}", asked.lock().unwrap()))
            }
        };
        let mut times = Vec::new();
        for second in 0..1000 {
            let (now, before) = (begin + Duration::from_secs(second), *asked.lock().unwrap());
            assert_eq!(begun.ask(&[&set], no.clone(), now), BTreeMap::new());
            if *asked.lock().unwrap() > before {
                times.push(second);
            }
        }
        assert_eq!(times, [0, 30, 90, 210, 450, 750]);
        assert_eq!(begun.unknown().collect::<Vec<_>>(), [(id("a"), "no answer 1")], "told once");
        assert_eq!(begun.due(begin + Duration::from_secs(1000)), Some(Duration::from_secs(50)));
        let yes = |_: &DesiredDeployment| Ok(BTreeSet::from(["migrate".to_owned()]));
        let late = begin + Duration::from_secs(1050);
        assert_eq!(begun.ask(&[&set], yes, late), [(id("a"), ["migrate".to_owned()].into())].into());
        assert_eq!((begun.unknown().count(), begun.due(late)), (0, None));
    }

    #[test]
    fn a_pass_goes_on_without_an_answer_and_takes_it_when_it_comes_unless_another_set_is_wanted_by_then() {
        let (first, second) = (wanted("a", &[("x", "1")]), wanted("a", &[("x", "2")]));
        let answered = Arc::<Notify>::default();
        let mut begun = Begun { waits: Duration::ZERO, ..Begun::new(Arc::clone(&answered)) };
        let (go, wait) = channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        let slow = move |_: &DesiredDeployment| {
            _ = wait.lock().unwrap().recv();
            Ok(BTreeSet::new())
        };
        let now = Instant::now();
        assert_eq!(begun.ask(&[&first], slow.clone(), now), BTreeMap::new());
        assert_eq!((begun.unknown().count(), begun.due(now)), (0, None), "it is being asked");
        assert_eq!(begun.ask(&[&second], slow.clone(), now), BTreeMap::new(), "the other one counts no more");
        drop(go);
        begun.wait_for_all();
        assert_eq!(begun.ask(&[&second], slow, now), [(id("a"), BTreeSet::new())].into());
        assert_eq!(begun.ask(&[], |_| Ok(BTreeSet::new()), now), BTreeMap::new());
    }
}
