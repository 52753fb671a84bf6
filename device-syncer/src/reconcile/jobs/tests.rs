//! Jobs in threads of their own, with runtimes that hang for as long as a test wants.

mod gates;
mod put_back;

use std::collections::BTreeMap;

use repo_git::SigningKey;
use repo_model::Trailer;
use repo_model::margo::ProfileType;
use repo_model::windows::{Opening, Overrun};
use tempfile::TempDir;

use super::*;
use crate::config::Home;
use crate::decision::component::Component;
use crate::decision::gates::Gates;
use crate::decision::hold::Hold;
use crate::decision::message::Identity;
use crate::decision::observation::{Condition, Observed};
use crate::decision::restart::Started;
use crate::decision::status::Report;
use crate::decision::windows::Openings;
use crate::reconcile::choose::choose;
use crate::runtimes::{RuntimeError, Source};
use crate::state::shared::Again;
use crate::state::store::Store;
use crate::testing::{fleet, project, wanted};

/// What hangs, and what is done: by project.
#[derive(Debug, Default)]
struct Hanging {
    hang: Mutex<BTreeSet<String>>,
    /// Also what is cancelled goes on.
    deaf: AtomicBool,
    /// What hangs looks about only when it is woken.
    asleep: AtomicBool,
    /// What was applied and doesn't run.
    stopped: Mutex<BTreeSet<String>>,
    /// What waited for health isn't healthy in the end.
    is_unhealthy: AtomicBool,
    begun: Mutex<Vec<String>>,
    at_once: Mutex<(usize, usize)>,
}

impl Hanging {
    fn work(&self, verb: &str, project: &str, cancel: &dyn Fn() -> bool) -> Result<(), RuntimeError> {
        self.begun.lock().unwrap().push(format!("{verb} {project}"));
        {
            let mut at_once = self.at_once.lock().unwrap();
            at_once.0 += 1;
            at_once.1 = at_once.1.max(at_once.0);
        }
        // Long enough that another one begins beside it.
        thread::sleep(Duration::from_millis(30));
        let mut result = Ok(());
        while self.hang.lock().unwrap().contains(&format!("{verb} {project}")) && result.is_ok() {
            thread::park_timeout(if self.asleep.load(Ordering::Relaxed) { HOUR } else { Duration::from_millis(5) });
            if cancel() && !self.deaf.load(Ordering::Relaxed) {
                result = Err(RuntimeError::Cancelled);
            }
        }
        self.at_once.lock().unwrap().0 -= 1;
        result
    }
}

impl Runtimes for Hanging {
    type Ready = Component;

    fn prefetch(
        &self,
        component: &Component,
        from: Source,
        cancel: &dyn Fn() -> bool,
    ) -> Result<Component, RuntimeError> {
        let what = if from == Source::Here { "find" } else { "fetch" };
        self.work(what, &component.project, cancel).map(|()| component.clone())
    }

    fn apply(&self, ready: &Component, cancel: &Cancel<'_>) -> Result<(), RuntimeError> {
        self.work("apply", &ready.project, cancel.changing)?;
        if self.hang.lock().unwrap().contains(&format!("wait {}", ready.project)) {
            (cancel.waits)(true);
            let waited = self.work("wait", &ready.project, cancel.waiting);
            (cancel.waits)(false);
            waited?;
            if self.is_unhealthy.load(Ordering::Relaxed) {
                let (project, service, state) = (ready.project.clone(), "web".to_owned(), "unhealthy".to_owned());
                return Err(RuntimeError::HealthTimeout { project, service, state, seconds: 1, log: String::new() });
            }
        }
        Ok(())
    }

    fn restore(&self, component: &Component, cancel: &Cancel<'_>) -> Result<(), RuntimeError> {
        self.work("restore", &component.project, cancel.halted)?;
        self.stopped.lock().unwrap().remove(&component.project);
        Ok(())
    }

    fn containers(&self, _: &Component) -> Result<Vec<Started>, RuntimeError> {
        Ok(Vec::new())
    }

    fn restart(&self, component: &Component, _: &[String], cancel: &dyn Fn() -> bool) -> Result<(), RuntimeError> {
        self.work("restart", &component.project, cancel)
    }

    fn remove(
        &self,
        _: ProfileType,
        project: &str,
        _: Duration,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), RuntimeError> {
        self.work("remove", project, cancel)
    }
}

/// A device whose jobs can be made older.
struct Bench {
    _dir: TempDir,
    state: Shared,
    runtimes: Arc<Hanging>,
    jobs: Jobs,
    gates: Gates,
    /// Runtimes that don't answer.
    unreachable: BTreeSet<ProfileType>,
}

impl Bench {
    fn new(hang: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        let home = Home::new(dir.path());
        let store = Store::open(&home, &"press-01".parse().unwrap(), SigningKey::from_seed(&[7; 32])).unwrap();
        let identity = Identity { fleet: fleet(), device: "press-01".parse().unwrap() };
        let runtimes = Arc::new(Hanging::default());
        let patience = Patience { outdated: Duration::ZERO, outdated_once: Duration::ZERO, program: Duration::ZERO };
        let jobs = Jobs { patience, ..Jobs::new(Bounds { young: 2, all: 6 }) };
        let bench = Self {
            _dir: dir,
            state: Shared::new(store, identity, "boot".to_owned()),
            runtimes,
            jobs,
            gates: Gates::default(),
            unreachable: BTreeSet::new(),
        };
        bench.hang(hang);
        bench
    }

    /// Begins what can begin, as a pass does. What was applied counts as running.
    fn pass(&mut self, wanted: &[DesiredDeployment]) {
        self.jobs.reap().unwrap();
        let at_work = self.jobs.at_work();
        let mut change = self.state.begin();
        let boot_id = change.state.boot_id.clone();
        change.next.blame(&boot_id);
        let installed: BTreeMap<_, _> = change.next.deployments.clone();
        let found: Vec<_> = installed
            .values()
            .flat_map(|applied| applied.inputs.components.iter().map(move |one| (applied, one)))
            .map(|(applied, one)| {
                let is_stopped = self.runtimes.stopped.lock().unwrap().contains(&one.project);
                let condition = if is_stopped { Condition::Stopped("exited".to_owned()) } else { Condition::Running };
                let name = applied.inputs.id.as_str();
                let found = crate::testing::observed(name, one.name.as_str(), one.input_digest, condition);
                Observed { kind: one.kind, ..found }
            })
            .collect();
        let gates = Gates { fetched: change.state.fetched.clone().unwrap_or_default(), ..self.gates.clone() };
        let plan = Plan::make(Some(wanted), &change.next, &found, &self.unreachable, &gates);
        change.note_removals(&plan);
        change.announce(&plan, wanted, &at_work);
        let works = choose(&plan, wanted, &mut change, &at_work);
        change.commit().unwrap();
        self.jobs.cancel_outdated(wanted);
        self.jobs.halt(&plan);
        self.jobs.hooks.plan(plan.hook_asks(), |id| plan.is_unseen(id));
        let device_state = change.next.clone();
        drop(change);
        self.jobs.begin(works, &device_state, &self.runtimes, &self.state);
    }

    /// Passes until nothing more ends.
    fn settle(&mut self, wanted: &[DesiredDeployment]) {
        self.pass(wanted);
        while self.jobs.wait(Duration::from_millis(500)) {
            self.pass(wanted);
        }
    }

    /// Passes until nothing is at work; nothing may hang.
    fn finish(&mut self, wanted: &[DesiredDeployment]) {
        self.pass(wanted);
        while self.jobs.is_any() {
            self.jobs.wait(HOUR);
            self.pass(wanted);
        }
    }

    /// All that is at work has been so for more than two minutes.
    fn grow_old(&mut self) {
        for job in &mut self.jobs.running {
            job.began = job.began.checked_sub(YOUNG).unwrap();
        }
    }

    /// From now on what is to end may take so long to come to its end by itself.
    fn be_patient(&mut self, patience: Duration) {
        self.jobs.patience = Patience { outdated: patience, outdated_once: patience, program: patience };
    }

    /// What is at work, by deployment.
    fn at_work(&self) -> Vec<String> {
        self.jobs.running.iter().filter(|job| !job.is_over()).map(|job| job.work.name()).collect()
    }

    fn state(&self, name: &str) -> String {
        self.state_of(name, "x")
    }

    fn state_of(&self, name: &str, component: &str) -> String {
        let report = Report::read(&self.state.view().device_state.status);
        let found = report.get(crate::testing::id(name), &component.parse().unwrap()).cloned();
        found.map_or("none".to_owned(), |one| one.state.to_string())
    }

    fn hang(&self, what: &[&str]) {
        let mut hang = self.runtimes.hang.lock().unwrap();
        for one in what {
            let (verb, name) = one.split_once(' ').unwrap();
            hang.insert(format!("{verb} {}", project(name, "x")));
        }
    }

    /// How often this was begun of a component.
    fn begun(&self, verb: &str, (name, component): (&str, &str)) -> usize {
        let of = format!("{verb} {}", project(name, component));
        self.runtimes.begun.lock().unwrap().iter().filter(|one| **one == of).count()
    }

    fn release(&self) {
        self.runtimes.hang.lock().unwrap().clear();
    }
}

fn all(names: &[&str]) -> Vec<DesiredDeployment> {
    names.iter().map(|name| wanted(name, &[("x", "1")])).collect()
}

#[test]
fn what_is_fetched_ahead_goes_on_after_its_windows_as_is_said_and_ends_at_once_for_a_person() {
    let gates = |fetch, overrun| {
        let openings = Openings { apply: Opening::NeverOpens, fetch: Some(fetch), overrun, ..Openings::default() };
        Gates { openings, ..Gates::default() }
    };
    let (open, shut) = (Opening::Open(None), Opening::NeverOpens);
    let two = [wanted("a", &[("x", "1"), ("y", "1")])];
    for (then, fetched) in [
        (gates(shut, Overrun::Deployment), ["fetch x", "fetch y"].as_slice()),
        (gates(shut, Overrun::Component), &["fetch x"]),
        (Gates { is_suspended: true, ..gates(open, Overrun::Deployment) }, &["fetch x"]),
    ] {
        let mut bench = Bench::new(&["fetch a"]);
        bench.gates = gates(open, Overrun::Deployment);
        bench.settle(&two);
        assert_eq!(bench.at_work(), ["a"], "beside a window that is closed");
        let is_by_person = then.is_suspended;
        bench.gates = then;
        bench.settle(&two);
        assert_eq!(bench.at_work().is_empty(), is_by_person, "what is being fetched ends at once");
        bench.release();
        bench.settle(&two);
        let begun = bench.runtimes.begun.lock().unwrap().clone();
        let of = |name: &str| format!("fetch {}", project("a", name));
        let expected: Vec<_> = fetched.iter().map(|one| of(one.split_once(' ').unwrap().1)).collect();
        assert_eq!(begun, expected);
    }
}

#[test]
fn a_retry_while_it_is_at_work_begins_anew_with_counting_and_not_with_blame() {
    for again in [Again::All, Again::Of(Box::new(all(&["a"]).remove(0)))] {
        let mut bench = Bench::new(&["wait a"]);
        bench.settle(&all(&["a"]));
        let mut change = bench.state.begin();
        let attempt = change.next.attempts.get_mut(&project("a", "x")).unwrap();
        (attempt.timeouts, attempt.lost) = (2, 2);
        change.put_back(&again);
        change.commit().unwrap();
        drop(change);
        let attempt = || bench.state.view().device_state.attempts[&project("a", "x")].clone();
        assert_eq!((attempt().open, attempt().lost), (1, 0), "a crash now would be blamed on it");
        bench.runtimes.is_unhealthy.store(true, Ordering::Relaxed);
        bench.release();
        while !bench.jobs.running.iter().all(Running::is_over) {
            bench.jobs.wait(Duration::from_millis(100));
        }
        assert_eq!((attempt().open, attempt().timeouts), (0, 1));
        assert_eq!(bench.state("a"), "installing");
        bench.jobs.end().unwrap();
    }
}

#[test]
fn with_less_than_a_gib_of_memory_three_are_at_work_at_most_and_else_six() {
    let all = |young, memory| Bounds::new(young, memory).all;
    assert_eq!([all(2, (1 << 30) - 1), all(2, 1 << 30), all(2, 16 << 30)], [3, 6, 6]);
    assert_eq!((Bounds::new(2, 1 << 30).young, all(8, 1 << 29)), (2, 8), "as many as the settings let begin");
}

/// As `docs/behaviour.md` has them.
#[test]
fn two_minutes_are_waited_for_what_is_changed_and_ten_once_a_hook_began_and_one_at_the_end_of_the_program() {
    let Patience { outdated, outdated_once, program } = PATIENCE;
    assert_eq!([YOUNG, outdated, outdated_once, program].map(|time| time.as_secs()), [120, 120, 600, 60]);
}

#[test]
fn five_that_hang_for_longer_than_two_minutes_hold_nobody_back() {
    let hang = ["fetch a", "apply b", "apply c", "apply d", "fetch e"];
    let (mut bench, wanted) = (Bench::new(&hang), all(&["a", "b", "c", "d", "e", "f", "g"]));
    for _ in 0..3 {
        bench.settle(&wanted);
        bench.grow_old();
    }
    bench.settle(&wanted);
    assert_eq!(["f", "g"].map(|name| bench.state(name)), ["installed", "installed"]);
    assert_eq!(bench.jobs.old().len(), 5);
    assert!(bench.runtimes.at_once.lock().unwrap().1 <= 6);
    bench.release();
    bench.settle(&wanted);
    assert!(wanted.iter().all(|one| bench.state(one.name.as_str()) == "installed"));
    assert!(!bench.jobs.is_any());
}

#[test]
fn what_only_waits_for_health_counts_for_nothing_but_blame() {
    let waits = ["a", "b", "c", "d", "e", "f"];
    let mut bench = Bench::new(&waits.map(|name| format!("wait {name}")).each_ref().map(String::as_str));
    bench.hang(&["apply g", "apply h"]);
    let nine = all(&["a", "b", "c", "d", "e", "f", "g", "h", "i"]);
    bench.settle(&nine);
    assert_eq!(bench.at_work(), ["a", "b", "c", "d", "e", "f", "g", "h"]);
    assert_eq!(bench.state("i"), "pending");
    assert_eq!(bench.jobs.at_work().turn(), "waits for its turn after `g`, `h`");
    let attempts = bench.state.view().device_state.attempts;
    assert_eq!(attempts.values().filter(|attempt| attempt.open == 1).count(), 8, "{attempts:?}");
    bench.release();
    bench.settle(&nine);
    assert!(nine.iter().all(|one| bench.state(one.name.as_str()) == "installed"));

    // The device went down with all of them.
    let mut next = Bench::new(&["wait a"]);
    let mut change = next.state.begin();
    change.next.attempts = attempts;
    change.next.attempts.values_mut().for_each(|attempt| attempt.boot_id = "before".to_owned());
    change.commit().unwrap();
    drop(change);
    next.settle(&nine);
    assert_eq!(
        (next.at_work(), next.jobs.at_work().turn()),
        (vec!["a".to_owned()], "waits for its turn after `a`".to_owned())
    );
    next.release();
    next.settle(&nine);
    assert!(nine.iter().all(|one| next.state(one.name.as_str()) == "installed"));
}

#[test]
fn two_at_most_begin_at_once_and_each_transition_is_told_once_and_in_order() {
    let (mut bench, wanted) = (Bench::new(&[]), all(&["a", "b", "c", "d", "e"]));
    bench.settle(&wanted);
    assert_eq!(bench.runtimes.at_once.lock().unwrap().1, 2);
    let view = bench.state.view();
    let history = view.repo.history(view.status.unwrap(), None, 1000).unwrap();
    let mut told: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for commit in history.iter().rev() {
        let message = repo_model::message::Message::parse(&view.repo.commit(*commit).unwrap().message);
        for state in message.all(Trailer::State) {
            let (what, states) = state.split_once(' ').unwrap();
            told.entry(what.to_owned()).or_default().push(states.to_owned());
        }
    }
    assert_eq!(told.len(), 10);
    let each = ["none > pending queued", "pending > installing", "installing > installed"];
    assert!(told.values().all(|states| states == &each), "{told:?}");
}

#[test]
fn what_is_outdated_ends_its_neighbour_goes_on_and_the_newer_one_is_applied() {
    let (mut bench, old) = (Bench::new(&["apply a", "apply b"]), all(&["a", "b"]));
    bench.settle(&old);
    let newer = vec![wanted("a", &[("x", "2")]), wanted("b", &[("x", "1")])];
    bench.runtimes.hang.lock().unwrap().remove(&format!("apply {}", project("b", "x")));
    bench.settle(&newer);
    assert_eq!(bench.state("b"), "installed");
    bench.release();
    bench.settle(&newer);
    assert_eq!(bench.state("a"), "installed");
    let applied = bench.state.view().device_state.applied_digest(&project("a", "x"));
    assert_eq!(applied, Some(crate::testing::input_digest("a", "x", "2")));
    let begun = bench.runtimes.begun.lock().unwrap().clone();
    assert_eq!(begun.iter().filter(|one| **one == format!("apply {}", project("b", "x"))).count(), 1, "{begun:?}");
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn what_changes_something_comes_to_its_end_though_it_is_outdated_and_what_fetches_or_waits_ends_at_once() {
    let (mut bench, old) = (Bench::new(&["fetch a", "wait b", "apply c"]), all(&["a", "b", "c"]));
    bench.be_patient(HOUR);
    bench.jobs.bounds.young = 3;
    bench.settle(&old);
    assert_eq!(bench.at_work(), ["a", "b", "c"]);
    let newer: Vec<_> = ["a", "b", "c"].iter().map(|name| wanted(name, &[("x", "2")])).collect();
    bench.runtimes.hang.lock().unwrap().retain(|one| one.starts_with("apply"));
    bench.settle(&newer);
    assert_eq!(["a", "b", "c"].map(|name| bench.state(name)), ["installed", "installed", "installing"]);
    assert_eq!(bench.at_work(), ["c"]);
    bench.release();
    bench.settle(&newer);
    let applied = |name: &str| bench.state.view().device_state.applied_digest(&project(name, "x"));
    assert_eq!(applied("c"), Some(crate::testing::input_digest("c", "x", "2")));
    let begun = bench.runtimes.begun.lock().unwrap().clone();
    assert_eq!(begun.iter().filter(|one| **one == format!("apply {}", project("c", "x"))).count(), 2, "{begun:?}");
}

#[test]
fn who_waits_is_woken_when_something_else_is_wanted() {
    let (mut bench, old) = (Bench::new(&["wait a"]), all(&["a"]));
    bench.runtimes.asleep.store(true, Ordering::Relaxed);
    bench.settle(&old);
    assert_eq!(bench.at_work(), ["a"]);
    bench.release();
    bench.settle(&[wanted("a", &[("x", "2")])]);
    assert_eq!((bench.at_work(), bench.state("a")), (vec![], "installed".to_owned()));
}

#[test]
fn what_was_tried_once_is_tried_once_more_when_that_begins_anew() {
    let (mut bench, project) = (Bench::new(&[]), project("a", "x"));
    bench.jobs.try_each_once();
    bench.settle(&all(&["a"]));
    assert!(bench.jobs.at_work().was_tried(&project));
    bench.jobs.try_each_once();
    assert!(!bench.jobs.at_work().was_tried(&project));
}

#[test]
fn a_removal_comes_to_its_end_though_what_goes_is_wanted_again() {
    let (mut bench, wanted) = (Bench::new(&["remove a"]), all(&["a"]));
    bench.be_patient(HOUR);
    bench.settle(&wanted);
    bench.settle(&[]);
    bench.settle(&wanted);
    assert_eq!((bench.at_work(), bench.state("a")), (vec!["a".to_owned()], "removing".to_owned()));
    bench.release();
    bench.settle(&wanted);
    assert_eq!(bench.state("a"), "installed");
    assert_eq!(bench.runtimes.begun.lock().unwrap().len(), 5, "fetch, apply, remove, fetch, apply");
}

#[test]
fn what_changes_something_is_ended_in_the_end() {
    let (mut bench, old) = (Bench::new(&["apply a"]), all(&["a"]));
    bench.be_patient(Duration::from_millis(700));
    bench.settle(&old);
    let began = Instant::now();
    bench.pass(&[]);
    while bench.jobs.is_any() {
        bench.jobs.wait(Duration::from_secs(5));
        bench.pass(&[]);
    }
    assert!(began.elapsed() >= Duration::from_millis(700));
    assert_eq!(bench.state("a"), "removed");
}

/// A person's word that what is at work of this is ended now, or of all where it is `None`.
fn now(name: Option<&str>) -> HoldByPerson {
    let (deployment, since) = (name.map(|name| name.parse().unwrap()), "2026-11-23T15:00:00Z".parse().unwrap());
    let (id, by, why) = (name.map(crate::testing::id), "j.doe".to_owned(), "x".to_owned());
    HoldByPerson { deployment, id, by, why, since, until: None, now: true }
}

#[test]
fn what_a_person_holds_now_ends_now_but_for_what_only_waits() {
    let mut bench = Bench::new(&["fetch a", "apply b", "wait c", "apply d"]);
    bench.be_patient(HOUR);
    bench.jobs.bounds.young = 6;
    let all = all(&["a", "b", "c", "d"]);
    bench.settle(&all);
    assert_eq!(bench.at_work(), ["a", "b", "c", "d"]);
    for (held, left) in [(Some("b"), &["a", "c", "d"][..]), (Some("c"), &["a", "c", "d"]), (None, &["c"])] {
        bench.jobs.end_now(&[now(held)]);
        let began = Instant::now();
        while bench.at_work() != left && began.elapsed() < Duration::from_secs(10) {
            bench.jobs.wait(Duration::from_millis(20));
        }
        assert_eq!(bench.at_work(), left, "{held:?}");
    }
    thread::sleep(Duration::from_millis(300));
    assert_eq!(bench.at_work(), ["c"]);
    bench.release();
    while bench.jobs.is_any() {
        bench.jobs.wait(HOUR);
        bench.jobs.reap().unwrap();
    }
    assert_eq!(["b", "c"].map(|name| bench.state(name)), ["installing", "installed"]);
    // What goes is ended as well, of the one that is held.
    bench.hang(&["remove c"]);
    bench.settle(&[]);
    assert_eq!(bench.at_work(), ["c"]);
    bench.jobs.end_now(&[now(Some("c"))]);
    bench.jobs.wait(HOUR);
    assert_eq!((bench.at_work(), bench.state("c")), (vec![], "removing".to_owned()));
}

#[test]
fn at_the_end_of_the_program_what_changes_something_has_a_while_and_the_rest_ends_at_once() {
    let (mut bench, wanted) = (Bench::new(&["fetch a", "apply b", "wait c"]), all(&["a", "b", "c"]));
    bench.be_patient(Duration::from_secs(2));
    bench.jobs.bounds.young = 6;
    bench.settle(&wanted);
    assert_eq!(bench.at_work(), ["a", "b", "c"]);
    let began = Instant::now();
    bench.jobs.stop.store(true, Ordering::Relaxed);
    while bench.at_work().len() > 1 {
        bench.jobs.wait(Duration::from_millis(20));
    }
    assert!(began.elapsed() < Duration::from_secs(1) && bench.at_work() == ["b"]);
    bench.jobs.end().unwrap();
    assert!(began.elapsed() >= Duration::from_secs(2));
}

#[test]
fn what_ends_although_it_is_outdated_is_told_as_it_is_and_then_removed() {
    let (mut bench, old) = (Bench::new(&["apply a"]), all(&["a"]));
    bench.runtimes.deaf.store(true, Ordering::Relaxed);
    bench.settle(&old);
    bench.settle(&[]);
    assert_eq!(bench.state("a"), "installing", "nothing else begins with it");
    bench.release();
    bench.settle(&[]);
    assert_eq!(bench.state("a"), "removed");
}

#[test]
fn what_was_open_together_when_the_device_went_down_is_tried_alone() {
    let (mut bench, wanted) = (Bench::new(&["apply a", "apply b"]), all(&["a", "b", "c"]));
    bench.settle(&wanted);
    assert_eq!(bench.jobs.running.len(), 2);
    // The power goes: of this process only what is durable is left.
    let attempts = bench.state.view().device_state.attempts;
    assert!(attempts.values().all(|attempt| attempt.open == 1), "{attempts:?}");
    let mut next = Bench::new(&["apply a", "apply b"]);
    let mut change = next.state.begin();
    change.next.attempts = attempts;
    change.next.attempts.values_mut().for_each(|attempt| attempt.boot_id = "before".to_owned());
    change.commit().unwrap();
    drop(change);
    next.settle(&wanted);
    assert_eq!(next.jobs.running.len(), 1, "alone");
    next.release();
    next.settle(&wanted);
    assert!(wanted.iter().all(|one| next.state(one.name.as_str()) == "installed"));
    bench.release();
    bench.jobs.end().unwrap();
}

/// The device goes down with all that is open.
fn go_down(bench: &Bench, boot: &str) {
    let mut change = bench.state.begin();
    boot.clone_into(&mut change.state.boot_id);
    change.next.blame(boot);
    change.next.watch(boot);
    change.commit().unwrap();
}

#[test]
fn what_is_on_trial_when_the_device_goes_down_again_and_again_is_tried_one_after_the_other() {
    let (mut bench, wanted) = (Bench::new(&[]), all(&["a", "b"]));
    bench.state.lock().watches = true;
    bench.finish(&wanted);
    assert_eq!(["a", "b"].map(|name| bench.state(name)), ["installed", "installed"]);
    for boot in ["1", "2"] {
        go_down(&bench, boot);
        bench.finish(&wanted);
    }
    let begun = |bench: &Bench| std::mem::take(&mut *bench.runtimes.begun.lock().unwrap());
    let applied = ["fetch a", "apply a", "fetch b", "apply b"].map(|what| {
        let (verb, name) = what.split_once(' ').unwrap();
        format!("{verb} {}", project(name, "x"))
    });
    assert_eq!(
        begun(&bench).into_iter().collect::<BTreeSet<_>>(),
        applied.into_iter().collect(),
        "nothing more was done"
    );
    go_down(&bench, "3");
    bench.finish(&wanted);
    let done = begun(&bench);
    let of =
        |verb: &str, name: &str| done.iter().filter(|one| **one == format!("{verb} {}", project(name, "x"))).count();
    assert_eq!([of("remove", "a"), of("remove", "b")], [1, 1], "{done:?}");
    let last_removal = done.iter().rposition(|one| one.starts_with("remove")).unwrap();
    let first_apply = done.iter().position(|one| one.starts_with("apply")).unwrap();
    assert!(last_removal < first_apply, "{done:?}");
    let alone = if of("apply", "a") == 1 { "a" } else { "b" };
    let other = if alone == "a" { "b" } else { "a" };
    assert_eq!([of("apply", alone), of("apply", other)], [1, 0], "nothing is applied beside it: {done:?}");
    assert_eq!([alone, other].map(|name| bench.state(name)), ["installed", "pending"]);
    // It is the one.
    for boot in ["4", "5", "6"] {
        go_down(&bench, boot);
        bench.finish(&wanted);
    }
    assert_eq!([alone, other].map(|name| bench.state(name)), ["failed", "installed"]);
    // The other one isn't, and is blamed for nothing once it has run for long enough.
    let attempts = bench.state.view().device_state.attempts;
    assert_eq!(attempts.values().map(|one| (one.on_trial, one.lost)).collect::<Vec<_>>(), [(true, 0)]);
}

#[test]
fn a_removal_is_tried_once_before_anything_is_applied_and_what_depends_on_another_goes_first() {
    let mut bench = Bench::new(&[]);
    let dependent = DesiredDeployment { depends_on: vec!["a".parse().unwrap()], ..wanted("b", &[("x", "1")]) };
    bench.settle(&[wanted("a", &[("x", "1")]), dependent]);
    bench.runtimes.begun.lock().unwrap().clear();
    bench.settle(&all(&["c"]));
    let expected = [("remove", "b"), ("remove", "a"), ("fetch", "c"), ("apply", "c")];
    let expected = expected.map(|(verb, name)| format!("{verb} {}", project(name, "x")));
    assert_eq!(*bench.runtimes.begun.lock().unwrap(), expected);
}

#[test]
fn at_the_end_what_is_at_work_is_stopped_and_waited_for() {
    let (mut bench, wanted) = (Bench::new(&["fetch a", "apply b"]), all(&["a", "b"]));
    bench.settle(&wanted);
    let began = Instant::now();
    bench.jobs.end().unwrap();
    assert!(!bench.jobs.is_any() && began.elapsed() < Duration::from_secs(10));
    bench.pass(&wanted);
    assert!(!bench.jobs.is_any(), "nothing begins any more");
}

#[test]
fn what_is_at_work_says_of_nothing_that_it_is_installed_that_is_not_wanted_any_more() {
    let old = [wanted("a", &[("x", "1"), ("y", "1")])];
    let halfway = || {
        let mut bench = Bench::new(&[]);
        bench.be_patient(HOUR);
        bench.runtimes.hang.lock().unwrap().insert(format!("apply {}", project("a", "y")));
        bench.settle(&old);
        assert_eq!([bench.state_of("a", "x"), bench.state_of("a", "y")], ["installed", "installing"]);
        bench
    };
    let mut bench = halfway();
    bench.settle(&[wanted("a", &[("x", "2"), ("y", "1")])]);
    assert_eq!([bench.state_of("a", "x"), bench.state_of("a", "y")], ["pending", "installing"]);
    bench.settle(&[wanted("a", &[("x", "1"), ("y", "2")])]);
    bench.release();
    while bench.at_work() == ["a"] {
        bench.jobs.wait(HOUR);
    }
    assert_eq!(bench.state_of("a", "y"), "installing", "what was applied isn't wanted any more");
    bench.settle(&[wanted("a", &[("x", "1"), ("y", "2")])]);
    assert_eq!(["x", "y"].map(|name| bench.state_of("a", name)), ["installed", "installed"]);
    assert_eq!(["x", "y"].map(|name| bench.begun("apply", ("a", name))), [1, 2]);

    let mut bench = halfway();
    bench.settle(&[]);
    assert_eq!([bench.state_of("a", "x"), bench.state_of("a", "y")], ["removing", "installing"]);
    bench.release();
    bench.settle(&[]);
    assert_eq!(bench.state_of("a", "y"), "removed");
}
