//! Work that is done by runtimes which only write down what they are told, one after the other.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;
use repo_git::SigningKey;
use repo_git::repo::Repo;
use repo_model::message::Message;
use repo_model::windows::Opening;
use repo_model::{ComponentName, DeploymentId, ErrorCode};
use tempfile::TempDir;

use super::*;
use crate::config::Home;
use crate::decision::component::Kind;
use crate::decision::gates::Gates;
use crate::decision::hold::{Hold, HoldByPerson};
use crate::decision::message::Identity;
use crate::decision::observation::{Condition, Observed};
use crate::decision::plan::Plan;
use crate::decision::restart::{RestartsAsked, Started};
use crate::decision::status::Report;
use crate::decision::windows::Openings;
use crate::reconcile::choose::choose;
use crate::reconcile::jobs::AtWork;
use crate::reconcile::outcome::Done;
use crate::runtimes::LockedImage;
use crate::state::loaded;
use crate::state::store::Store;
use crate::state::view::View;
use crate::testing::{any_wanted, component, fleet, id, input_digest, observed, project, wanted};

/// Runtimes that run nothing. What they are told, and what was durable then, is in `log`.
struct FakeRuntimes {
    clone: PathBuf,
    log: RefCell<Vec<String>>,
    /// What the next calls about a project come to, by `verb project`; the rest succeed.
    failures: RefCell<BTreeMap<String, Vec<RuntimeError>>>,
    running: RefCell<BTreeMap<String, Observed>>,
    /// What there is of each compose project.
    containers: RefCell<Vec<Started>>,
    /// The next apply finds everything removed when it ends.
    clears: Cell<Option<Shared>>,
}

impl FakeRuntimes {
    fn take(&self, verb: &str, project: &str) -> Result<(), RuntimeError> {
        match self.failures.borrow_mut().get_mut(&format!("{verb} {project}")).filter(|left| !left.is_empty()) {
            Some(left) => Err(left.remove(0)),
            None => Ok(()),
        }
    }

    /// A word with what the clone on the disk says of a component.
    fn note(&self, verb: &str, id: DeploymentId, name: &ComponentName) {
        let (device_state, _) = loaded::peek(&self.clone);
        let report = Report::read(&device_state.status);
        let state = report.get(id, name).map_or("none".to_owned(), |one| one.state.to_string());
        let attempt = device_state.attempts.get(&id.runtime_name(name)).map_or(0, |attempt| attempt.open);
        let attempt = if attempt > 0 { format!(", attempt {attempt}") } else { String::new() };
        self.log.borrow_mut().push(format!("{verb} {name} ({state}{attempt})"));
    }

    fn log(&self) -> Vec<String> {
        self.log.take()
    }
}

impl Runtimes for FakeRuntimes {
    type Ready = Component;

    fn prefetch(&self, component: &Component, _: &dyn Fn() -> bool) -> Result<Component, RuntimeError> {
        self.take("prefetch", &component.project).map(|()| component.clone())
    }

    fn find(&self, component: &Component, _: &dyn Fn() -> bool) -> Result<Component, RuntimeError> {
        self.take("find", &component.project).map(|()| component.clone())
    }

    fn first_use(&self, ready: &Component) -> BTreeMap<String, LockedImage> {
        let locked = LockedImage { image: "hello".to_owned(), digest: ready.input_digest };
        [("s".to_owned(), locked)].into()
    }

    fn apply(&self, ready: &Component, _: &Cancel<'_>) -> Result<(), RuntimeError> {
        self.note("apply", ready.deployment, &ready.component);
        let outcome = self.take("apply", &ready.project);
        if let Some(state) = self.clears.take() {
            state.lock().removals_are_left = false;
        }
        let digest = outcome.is_ok().then_some(ready.input_digest);
        let (deployment, name) = (ready.deployment_name.as_str(), ready.component.as_str());
        let made = Observed { kind: ready.profile_type(), ..observed(deployment, name, digest, Condition::Running) };
        self.running.borrow_mut().insert(ready.project.clone(), made);
        outcome
    }

    fn restore(&self, component: &Component, _: &dyn Fn() -> bool) -> Result<(), RuntimeError> {
        self.note("restore", component.deployment, &component.component);
        self.take("restore", &component.project)?;
        let mut running = self.running.borrow_mut();
        running.get_mut(&component.project).expect("it was applied").condition = Condition::Running;
        Ok(())
    }

    fn containers(&self, component: &Component) -> Result<Vec<Started>, RuntimeError> {
        self.take("containers", &component.project)?;
        Ok(self.containers.borrow().clone())
    }

    fn restart(&self, component: &Component, left: &[String], _: &dyn Fn() -> bool) -> Result<(), RuntimeError> {
        let (device_state, _) = loaded::peek(&self.clone);
        let durable: Vec<_> = device_state.restarts[&component.project].left.keys().cloned().collect();
        self.note(&format!("restart {left:?}, durable {durable:?} of"), component.deployment, &component.component);
        self.take("restart", &component.project)
    }

    fn remove(&self, kind: ProfileType, project: &str, _: Duration, _: &dyn Fn() -> bool) -> Result<(), RuntimeError> {
        let found = self.running.borrow().get(project).cloned();
        if let Some(found) = found.filter(|found| found.kind == kind) {
            self.note("remove", found.deployment.unwrap(), &found.component.unwrap());
        }
        self.take("remove", project)?;
        self.running.borrow_mut().remove(project);
        Ok(())
    }
}

/// A device with a real clone and fake runtimes.
struct Bench {
    _dir: TempDir,
    state: Shared,
    runtimes: FakeRuntimes,
    cancelled: Cell<bool>,
    gates: Gates,
    told: usize,
}

impl Bench {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let home = Home::new(dir.path());
        let store = Store::open(&home, &"press-01".parse().unwrap(), SigningKey::from_seed(&[7; 32])).unwrap();
        let runtimes = FakeRuntimes {
            clone: home.repository(),
            log: RefCell::default(),
            failures: RefCell::default(),
            running: RefCell::default(),
            containers: RefCell::default(),
            clears: Cell::default(),
        };
        let identity = Identity { fleet: fleet(), device: "press-01".parse().unwrap() };
        let state = Shared::new(store, identity, "first boot".to_owned());
        Self { _dir: dir, state, runtimes, cancelled: Cell::new(false), gates: Gates::default(), told: 0 }
    }

    fn fail(&self, verb: &str, (deployment, name): (&str, &str), errors: Vec<RuntimeError>) {
        let key = format!("{verb} {}", project(deployment, name));
        self.runtimes.failures.borrow_mut().insert(key, errors);
    }

    fn view(&self) -> View {
        self.state.view()
    }

    fn boot(&self, id: &str) {
        self.state.lock().boot_id = id.to_owned();
    }

    /// Changes what is kept, as nobody does but a crash.
    fn tamper(&self, change: impl FnOnce(&mut DeviceState)) {
        change(&mut self.state.lock().store.device_state);
    }

    /// Passes as `reconcile` makes them, with one job after the other, until nothing more can begin that wasn't tried.
    fn pass(&self, wanted: &[DesiredDeployment]) -> Done {
        let (mut tried, mut acted) = (BTreeSet::new(), false);
        loop {
            let found: Vec<_> = self.runtimes.running.borrow().values().cloned().collect();
            let at_work = AtWork::after(tried.clone());
            let mut change = self.state.begin();
            let boot_id = change.state.boot_id.clone();
            change.next.blame(&boot_id);
            change.next.keep_only(wanted);
            let gates = Gates { fetched: change.state.fetched.clone().unwrap_or_default(), ..self.gates.clone() };
            let plan = Plan::make(Some(wanted), &change.next, &found, &BTreeSet::new(), &gates);
            change.note_removals(&plan);
            change.announce(&plan, wanted, &at_work);
            let works = choose(&plan, wanted, &mut change, &at_work);
            change.commit().unwrap();
            let up_to_date = !plan.has_removals() && wanted.iter().all(|one| change.is_installed(one));
            drop(change);
            let Some(work) = works.first().filter(|_| !self.cancelled.get()) else {
                return Done { at_work: false, acted, up_to_date };
            };
            tried.extend(work.projects().into_iter().map(str::to_owned));
            let cancel = || self.cancelled.get();
            acted |= Job {
                runtimes: &self.runtimes,
                state: &self.state,
                cancel: Cancel::whatever(&cancel),
                halt: &cancel,
                may_fetch: &|| true,
                may_change: &|_| true,
            }
            .run(work)
            .unwrap();
        }
    }

    /// A pass once every back-off has run out.
    fn later(&mut self, wanted: &[DesiredDeployment]) -> Done {
        self.state.lock().retries.clear();
        self.pass(wanted)
    }

    /// The commits on `status` since this was last asked, each with its transitions, ids replaced by names.
    fn told(&mut self) -> Vec<String> {
        let view = self.view();
        let repo: &Repo = &view.repo;
        let all = view.status.map_or(Vec::new(), |tip| repo.history(tip, None, 1000).unwrap());
        let new = &all[..all.len() - self.told];
        self.told = all.len();
        let names: Vec<_> = ["a", "b", "c"].into_iter().map(|name| (id(name).to_string(), name)).collect();
        let text = |commit: &repo_git::CommitId| {
            let message = Message::parse(&repo.commit(*commit).unwrap().message);
            let states = message.all("State").collect::<Vec<_>>().join("; ");
            names.iter().fold(states, |text, (id, name)| text.replace(id.as_str(), name))
        };
        new.iter().rev().map(text).collect()
    }

    /// Forgets what was told and done so far.
    fn listen_anew(&mut self) {
        self.told();
        self.runtimes.log();
    }

    fn state(&self, deployment: &str, name: &str) -> String {
        let report = Report::read(&self.view().device_state.status);
        let found = report.get(id(deployment), &component(name)).cloned();
        found.map_or("none".to_owned(), |one| {
            let code = one.failure.map(|failure| format!(" {}", failure.code)).unwrap_or_default();
            format!("{}{code}", one.state)
        })
    }
}

fn transient() -> RuntimeError {
    RuntimeError::RuntimeUnavailable { tool: "docker", reason: "gone".to_owned(), source: None }
}

fn permanent() -> RuntimeError {
    RuntimeError::ComposeFailed { project: "p".to_owned(), reason: "bad".to_owned() }
}

fn unhealthy(log: &str) -> RuntimeError {
    let (project, service, state) = ("p".to_owned(), "s".to_owned(), "unhealthy".to_owned());
    RuntimeError::HealthTimeout { project, service, state, seconds: 1, log: log.to_owned() }
}

#[test]
fn a_new_deployment_is_queued_then_installing_then_installed() {
    let mut bench = Bench::new();
    assert_eq!(bench.pass(&[wanted("a", &[("x", "1")])]), Done { at_work: false, acted: true, up_to_date: true });
    assert_eq!(
        bench.told(),
        [
            "a/* none > pending queued; a/x none > pending queued",
            "a/* pending > installing; a/x pending > installing",
            "a/* installing > installed; a/x installing > installed",
        ]
    );
}

#[test]
fn the_pass_after_does_nothing_and_says_nothing() {
    let mut bench = Bench::new();
    let desired = [wanted("a", &[("x", "1"), ("y", "1")]), wanted("b", &[("x", "1")])];
    bench.pass(&desired);
    let before = bench.view().repo.reference(crate::decision::device_state::STATE).unwrap();
    bench.listen_anew();
    assert_eq!(bench.pass(&desired), Done { at_work: false, acted: false, up_to_date: true });
    assert_eq!((bench.told(), bench.runtimes.log()), (vec![], vec![]));
    assert_eq!(bench.view().repo.reference(crate::decision::device_state::STATE).unwrap(), before);
}

#[test]
fn when_one_component_is_done_the_next_is_marked_installing_in_the_same_commit() {
    let mut bench = Bench::new();
    bench.pass(&[wanted("a", &[("x", "1"), ("y", "1")])]);
    assert_eq!(
        bench.told()[1..],
        [
            "a/* pending > installing; a/x pending > installing",
            "a/x installing > installed; a/y pending > installing",
            "a/* installing > installed; a/y installing > installed",
        ]
    );
}

#[test]
fn attempt_and_state_are_durable_before_each_effect() {
    let bench = Bench::new();
    bench.pass(&[wanted("a", &[("x", "1"), ("y", "1")])]);
    bench.pass(&[wanted("a", &[("y", "2")])]);
    assert_eq!(
        bench.runtimes.log(),
        [
            "apply x (installing, attempt 1)",
            "apply y (installing, attempt 1)",
            "remove x (removing)",
            "apply y (installing, attempt 1)",
        ]
    );
    assert_eq!(bench.view().device_state.attempts.len(), 0);
}

#[test]
fn removals_come_first_in_reverse_order_and_each_is_told_once() {
    let mut bench = Bench::new();
    bench.pass(&[wanted("a", &[("x", "1"), ("y", "1")]), wanted("b", &[("x", "1")])]);
    bench.listen_anew();
    let done = bench.pass(&[wanted("c", &[("z", "1")])]);
    assert_eq!(done, Done { at_work: false, acted: true, up_to_date: true });
    let log = bench.runtimes.log();
    let expected = ["remove x (removing)", "remove y (removing)", "remove x (removing)"];
    assert_eq!(log, [&expected[..], &["apply z (installing, attempt 1)"]].concat());
    let told = bench.told().join("; ");
    for (transition, times) in [
        ("a/* installed > removing", 1),
        ("a/* removing > removed", 1),
        ("a/x removing > removed", 1),
        ("b/* removing > removed", 1),
    ] {
        assert_eq!(told.matches(transition).count(), times, "{transition} in {told}");
    }
    assert!(!told.contains("removed > removing"), "{told}");
}

#[test]
fn a_component_that_left_goes_before_its_neighbour_changes_and_is_no_longer_listed() {
    let mut bench = Bench::new();
    bench.pass(&[wanted("a", &[("x", "1"), ("y", "1")])]);
    bench.told();
    bench.pass(&[wanted("a", &[("x", "1")])]);
    let told =
        ["a/* installed > removing; a/y installed > removing", "a/* removing > installed; a/y removing > removed"];
    assert_eq!(bench.told(), told);
    assert_eq!(bench.state("a", "y"), "none");
}

#[test]
fn what_never_came_onto_the_device_is_told_as_removed_too() {
    let mut bench = Bench::new();
    bench.pass(&[wanted("a", &[("x", "!policy-denied")])]);
    bench.told();
    assert_eq!(bench.pass(&[]), Done { at_work: false, acted: false, up_to_date: true });
    assert_eq!(bench.told(), ["a/* failed > removed; a/x failed > removed"]);
}

#[test]
fn a_component_that_failed_holds_those_behind_it_and_no_other_deployment() {
    let bench = Bench::new();
    bench.fail("apply", ("a", "x"), vec![permanent()]);
    let desired = [wanted("a", &[("x", "1"), ("y", "1")]), wanted("b", &[("x", "1")])];
    assert_eq!(bench.pass(&desired), Done { at_work: false, acted: true, up_to_date: false });
    let states = [bench.state("a", "x"), bench.state("a", "y"), bench.state("b", "x")];
    assert_eq!(states, ["failed compose-failed", "pending waiting-dependency", "installed"]);
}

#[test]
fn what_one_deployment_fails_with_another_may_try() {
    let bench = Bench::new();
    let (mut one, mut other) = (wanted("a", &[("x", "1")]), wanted("b", &[("x", "1")]));
    for wanted in [&mut one, &mut other] {
        wanted.components[0].input.as_mut().unwrap().input_digest = Digest::of(b"the same");
    }
    bench.fail("apply", ("a", "x"), vec![permanent()]);
    bench.pass(&[one, other]);
    assert_eq!([bench.state("a", "x"), bench.state("b", "x")], ["failed compose-failed", "installed"]);
}

#[test]
fn an_input_that_cannot_run_here_holds_those_behind_it_and_no_other_deployment() {
    let bench = Bench::new();
    bench.pass(&[wanted("a", &[("x", "!capability-missing"), ("y", "1")]), wanted("b", &[("x", "1")])]);
    let states = [bench.state("a", "x"), bench.state("a", "y"), bench.state("b", "x")];
    assert_eq!(states, ["failed capability-missing", "pending waiting-dependency", "installed"]);
}

#[test]
fn nothing_of_a_deployment_changes_before_all_of_it_is_fetched() {
    let mut bench = Bench::new();
    let both = [wanted("a", &[("x", "1"), ("y", "1")]), wanted("b", &[("x", "1")])];
    bench.fail("prefetch", ("a", "y"), vec![transient()]);
    bench.pass(&both);
    let states = [bench.state("a", "x"), bench.state("a", "y"), bench.state("b", "x")];
    assert_eq!(states, ["pending waiting-dependency", "pending runtime-unavailable", "installed"]);
    let log = bench.runtimes.log();
    assert!(!log.iter().any(|line| line.starts_with("apply a")), "{log:?}");
    assert!(bench.later(&both).up_to_date);
    bench.runtimes.log();
    // What can't be fetched at all is final, and holds what would have come before it, too.
    let next = [wanted("a", &[("x", "2"), ("y", "2")]), wanted("b", &[("x", "1")])];
    bench.fail("prefetch", ("a", "y"), vec![permanent()]);
    bench.pass(&next);
    assert_eq!(bench.state("a", "y"), "failed compose-failed");
    let log = bench.runtimes.log();
    assert!(!log.iter().any(|line| line.starts_with("apply")), "{log:?}");
}

#[test]
fn what_changes_need_is_fetched_ahead_and_the_change_is_made_with_that_when_its_window_opens() {
    let (open, shut) = (Opening::Open(None), Opening::NeverOpens);
    let gates = |apply, fetch| {
        let openings = Openings { apply, fetch: Some(fetch), ..Openings::default() };
        Gates { openings, ..Gates::default() }
    };
    let not_here = || RuntimeError::NotHere { what: "image `hello`".to_owned() };
    let (mut bench, all) = (Bench::new(), [wanted("a", &[("x", "1"), ("y", "1")])]);
    // Changes may be made, and nothing be fetched: the first one isn't here.
    bench.gates = gates(open, shut);
    bench.fail("find", ("a", "x"), vec![not_here()]);
    bench.pass(&all);
    bench.pass(&all);
    assert_eq!(["x", "y"].map(|name| bench.state("a", name)), ["pending waiting-window", "pending waiting-dependency"]);
    bench.gates = gates(shut, shut);
    bench.pass(&all);
    assert_eq!(bench.state("a", "x"), "pending waiting-window");
    assert!(bench.view().device_state.images.is_empty());
    // One of them can't be fetched at once; it is tried again.
    bench.gates = gates(shut, open);
    bench.fail("prefetch", ("a", "y"), vec![transient()]);
    bench.later(&all);
    let known = |name| bench.state.lock().fetched.as_ref().unwrap().get(&input_digest("a", name, "1")).cloned();
    assert_eq!(known("x"), Some(Fetched::Here));
    assert!(matches!(known("y"), Some(Fetched::Failed(_))), "{:?}", known("y"));
    let report = Report::read(&bench.view().device_state.status);
    let why = report.get(id("a"), &component("y")).unwrap().failure.clone().unwrap();
    assert!(why.code == "waiting-window" && why.message.contains("what it needs isn't here yet"), "{why:?}");
    let locked = bench.view().device_state.images.clone();
    assert_eq!(locked.len(), 1, "what the image meant is durable before the change");
    bench.later(&all);
    // What is here is applied while nothing may be fetched.
    bench.fail("prefetch", ("a", "x"), vec![permanent()]);
    bench.gates = gates(open, shut);
    assert_eq!(bench.runtimes.log(), Vec::<String>::new());
    bench.pass(&all);
    assert_eq!(["x", "y"].map(|name| bench.state("a", name)), ["installed", "installed"]);
}

#[test]
fn what_cannot_be_fetched_now_waits_and_nothing_of_it_is_touched() {
    let mut bench = Bench::new();
    bench.pass(&[wanted("a", &[("x", "1")])]);
    bench.listen_anew();
    let in_other_words =
        RuntimeError::RuntimeUnavailable { tool: "docker", reason: "read udp :49282".to_owned(), source: None };
    bench.fail("prefetch", ("a", "x"), vec![transient(), in_other_words]);
    let desired = [wanted("a", &[("x", "2")])];
    bench.pass(&desired);
    assert_eq!(bench.state("a", "x"), "pending runtime-unavailable");
    bench.pass(&desired);
    bench.later(&desired);
    assert_eq!(bench.told(), ["a/* installed > pending queued; a/x installed > pending queued", ""]);
    assert_eq!(bench.runtimes.log(), Vec::<String>::new());
    bench.later(&desired);
    assert_eq!(bench.state("a", "x"), "installed");
}

#[test]
fn a_failure_for_now_is_tried_again_without_a_word_until_it_succeeds() {
    let mut bench = Bench::new();
    bench.fail("apply", ("a", "x"), vec![transient(), transient(), transient()]);
    let desired = [wanted("a", &[("x", "1")])];
    bench.pass(&desired);
    assert_eq!((bench.state("a", "x").as_str(), bench.told().len()), ("installing runtime-unavailable", 3));
    bench.pass(&desired);
    assert_eq!(bench.runtimes.log().len(), 1, "it is not tried before its time");
    bench.later(&desired);
    bench.later(&desired);
    assert_eq!((bench.runtimes.log().len(), bench.told().len()), (2, 0));
    bench.later(&desired);
    assert_eq!(bench.told(), ["a/* installing > installed; a/x installing > installed"]);
}

#[test]
fn a_failure_of_this_input_is_final_until_the_input_changes_or_a_person_asks() {
    let mut bench = Bench::new();
    bench.fail("apply", ("a", "x"), vec![permanent(), permanent()]);
    let desired = [wanted("a", &[("x", "1")])];
    bench.pass(&desired);
    bench.later(&desired);
    assert_eq!((bench.runtimes.log().len(), bench.state("a", "x").as_str()), (1, "failed compose-failed"));
    bench.tamper(|state| state.forget_failures(&desired[0]));
    bench.later(&desired);
    assert_eq!((bench.runtimes.log().len(), bench.state("a", "x").as_str()), (1, "failed compose-failed"));
    bench.later(&[wanted("a", &[("x", "2")])]);
    assert_eq!((bench.runtimes.log().len(), bench.state("a", "x").as_str()), (1, "installed"));
}

#[test]
fn health_that_takes_too_long_is_waited_for_three_times() {
    let mut bench = Bench::new();
    bench.fail("apply", ("a", "x"), vec![unhealthy("1"), unhealthy("2"), unhealthy("3"), unhealthy("4")]);
    let desired = [wanted("a", &[("x", "1")])];
    for expected in ["installing health-timeout", "installing health-timeout", "failed health-timeout"] {
        bench.later(&desired);
        assert_eq!(bench.state("a", "x"), expected);
    }
    bench.later(&desired);
    assert_eq!(bench.runtimes.log().len(), 3);
    let told = ["a/* installing > failed health-timeout; a/x installing > failed health-timeout"];
    assert_eq!(bench.told()[3..], told, "the second failure with the same code is no commit");
}

#[test]
fn a_new_input_starts_with_a_clean_slate() {
    let mut bench = Bench::new();
    bench.fail("apply", ("a", "x"), vec![unhealthy("1"), unhealthy("2"), unhealthy("3"), unhealthy("4")]);
    bench.later(&[wanted("a", &[("x", "1")])]);
    bench.later(&[wanted("a", &[("x", "1")])]);
    bench.told();
    bench.later(&[wanted("a", &[("x", "2")])]);
    assert_eq!(
        bench.told()[..2],
        [
            "a/* installing > pending queued; a/x installing > pending queued",
            "a/* pending > installing; a/x pending > installing"
        ]
    );
    assert_eq!(bench.state("a", "x"), "installing health-timeout");
}

/// The device went down during the apply: nothing after the first effect was told.
fn lost_during_apply(bench: &mut Bench, desired: &[DesiredDeployment]) {
    bench.fail("apply", ("a", "x"), vec![RuntimeError::Cancelled]);
    bench.later(desired);
    bench.tamper(|state| {
        if let Some(attempt) = state.attempts.get_mut(&project("a", "x")) {
            attempt.open = 1;
        }
    });
}

#[test]
fn an_input_that_takes_the_device_down_three_times_is_given_up() {
    let mut bench = Bench::new();
    let desired = [wanted("a", &[("x", "1")]), wanted("b", &[("x", "1")])];
    for boot in ["one", "two", "three"] {
        bench.boot(boot);
        lost_during_apply(&mut bench, &desired);
        assert_eq!(bench.state("a", "x"), "installing");
    }
    assert_eq!(bench.runtimes.log().iter().filter(|line| line.starts_with("apply x (installing")).count(), 4);
    bench.told();
    bench.boot("four");
    bench.later(&desired);
    assert_eq!(bench.told(), ["a/* installing > failed crash-loop; a/x installing > failed crash-loop"]);
    assert_eq!((bench.runtimes.log(), bench.state("b", "x").as_str()), (vec![], "installed"));
}

#[test]
fn a_syncer_that_is_killed_again_and_again_within_one_boot_gives_nothing_up() {
    let mut bench = Bench::new();
    let desired = [wanted("a", &[("x", "1")])];
    for _ in 0..10 {
        lost_during_apply(&mut bench, &desired);
    }
    let attempt = bench.view().device_state.attempts.values().next().unwrap().clone();
    assert_eq!((attempt.lost, attempt.open), (0, 1));
    bench.later(&desired);
    assert_eq!(bench.state("a", "x"), "installed");
}

#[test]
fn what_is_cancelled_goes_on_later_and_is_not_told_twice() {
    let mut bench = Bench::new();
    bench.fail("apply", ("a", "x"), vec![RuntimeError::Cancelled]);
    let desired = [wanted("a", &[("x", "1"), ("y", "1")])];
    assert_eq!(bench.pass(&desired), Done { at_work: false, acted: true, up_to_date: false });
    assert_eq!(bench.state("a", "x"), "installing");
    assert_eq!(bench.view().device_state.attempts.values().map(|attempt| attempt.open).collect::<Vec<_>>(), [0]);
    bench.pass(&desired);
    let told = bench.told().join("; ");
    assert_eq!(told.matches("a/x pending > installing").count(), 1, "{told}");
    assert_eq!(bench.state("a", "y"), "installed");
}

#[test]
fn once_the_end_is_asked_for_nothing_more_is_begun() {
    let mut bench = Bench::new();
    bench.pass(&[wanted("a", &[("x", "1")])]);
    bench.listen_anew();
    bench.cancelled.set(true);
    let desired = [wanted("b", &[("x", "1"), ("y", "1")])];
    assert_eq!(bench.pass(&desired), Done { at_work: false, acted: false, up_to_date: false });
    assert_eq!(bench.runtimes.log(), Vec::<String>::new());
    assert_eq!([bench.state("b", "x"), bench.state("b", "y")], ["pending queued", "pending queued"]);
    bench.cancelled.set(false);
    assert_eq!(bench.pass(&desired), Done { at_work: false, acted: true, up_to_date: true });
}

/// The same deployment, by helm.
fn by_helm(mut wanted: DesiredDeployment) -> DesiredDeployment {
    for component in &mut wanted.components {
        let input = component.input.as_mut().unwrap();
        let (namespace, values) = ("default".to_owned(), Default::default());
        input.kind = Kind::Helm { namespace, values, secrets: Vec::new() };
        input.input_digest = Digest::of(format!("helm {}", input.input_digest).as_bytes());
    }
    wanted
}

#[test]
fn a_component_that_changes_its_type_ends_with_a_status_of_its_own_before_it_begins_anew() {
    let mut bench = Bench::new();
    let (compose, helm) = ([wanted("a", &[("x", "1")])], [by_helm(wanted("a", &[("x", "1")]))]);
    bench.pass(&compose);
    bench.listen_anew();
    bench.fail("prefetch", ("a", "x"), vec![transient()]);
    bench.pass(&helm);
    assert_eq!(bench.runtimes.log(), [""; 0], "what can't be had changes nothing");
    bench.told();
    bench.fail("remove", ("a", "x"), vec![transient()]);
    bench.later(&helm);
    assert_eq!(bench.state("a", "x"), "removing runtime-unavailable");
    bench.later(&helm);
    assert_eq!(bench.runtimes.log(), ["remove x (removing)", "remove x (removing)", "apply x (installing, attempt 1)"]);
    let told: Vec<_> = bench.told().into_iter().filter(|said| !said.is_empty()).collect();
    let of_x = |said: &String| said.split("; ").find(|one| one.starts_with("a/x")).map(str::to_owned);
    let transitions =
        ["a/x pending > removing", "a/x removing > removed", "a/x removed > installing", "a/x installing > installed"];
    assert_eq!(told.iter().filter_map(of_x).collect::<Vec<_>>(), transitions);
    assert_eq!(bench.view().device_state.applied_kind(&project("a", "x")), Some(ProfileType::Helm));
    bench.pass(&helm);
    assert_eq!(bench.runtimes.log(), [""; 0]);
}

#[test]
fn a_removal_that_fails_is_told_once_and_tried_again() {
    let mut bench = Bench::new();
    bench.pass(&[wanted("a", &[("x", "1")])]);
    bench.told();
    let error = || RuntimeError::RemovalFailed { project: "p".to_owned(), reason: "busy".to_owned() };
    bench.fail("remove", ("a", "x"), vec![error(), error()]);
    assert_eq!(bench.pass(&[]), Done { at_work: false, acted: true, up_to_date: false });
    bench.pass(&[]);
    bench.later(&[]);
    assert_eq!(bench.state("a", "x"), "removing removal-failed");
    assert_eq!(bench.told(), ["a/* installed > removing; a/x installed > removing", ""]);
    assert_eq!(bench.later(&[]), Done { at_work: false, acted: true, up_to_date: true });
    assert_eq!(bench.told(), ["a/* removing > removed; a/x removing > removed"]);
}

fn stays() -> RuntimeError {
    RuntimeError::RemovalFailed { project: "p".to_owned(), reason: "busy".to_owned() }
}

#[test]
fn while_anything_is_left_to_remove_no_failure_to_apply_is_final() {
    let mut bench = Bench::new();
    bench.pass(&[wanted("a", &[("x", "1")])]);
    bench.told();
    let next = [wanted("b", &[("y", "1")])];
    bench.fail("remove", ("a", "x"), (0..6).map(|_| stays()).collect());
    // As many as would be final three times over, of each kind.
    let failures = [permanent(), unhealthy("1"), unhealthy("2"), unhealthy("3"), permanent(), unhealthy("4")];
    bench.fail("apply", ("b", "y"), failures.into());
    let mut first = None;
    for _ in 0..6 {
        assert!(!bench.later(&next).up_to_date);
        assert!(bench.state("b", "y").starts_with("installing "), "{}", bench.state("b", "y"));
        first.get_or_insert(bench.told());
    }
    let report = Report::read(&bench.view().device_state.status);
    let why = report.get(id("b"), &component("y")).and_then(|now| now.failure.clone()).unwrap().message;
    assert!(why.starts_with("tried again until all is removed"), "{why}");
    let told = first.unwrap().join("; ");
    assert_eq!(told.matches("a/x installed > removing").count(), 1, "{told}");
    assert_eq!(told.matches("b/y pending > installing").count(), 1, "{told}");
    assert_eq!(bench.told().join(""), "", "nothing of it is a transition");
    // Once it has gone, what failed is tried at once, and not when its back-off is over; now its failures count.
    bench.fail("apply", ("b", "y"), vec![permanent()]);
    bench.later(&next);
    assert_eq!([bench.state("a", "x"), bench.state("b", "y")], ["removed", "failed compose-failed"]);
}

#[test]
fn what_began_while_something_was_left_to_remove_is_tried_again_once_it_has_gone() {
    let mut bench = Bench::new();
    bench.pass(&[wanted("a", &[("x", "1")])]);
    let next = [wanted("b", &[("y", "1")])];
    // Fails because of what is there, and says so when that has gone.
    bench.fail("remove", ("a", "x"), vec![stays()]);
    bench.fail("apply", ("b", "y"), vec![permanent()]);
    bench.runtimes.clears.set(Some(bench.state.clone()));
    bench.later(&next);
    assert!(bench.state("b", "y").starts_with("installing "), "{}", bench.state("b", "y"));
    assert!(bench.later(&next).up_to_date);
}

#[test]
fn what_a_closed_gate_keeps_from_being_removed_is_left_to_remove_too() {
    let mut bench = Bench::new();
    bench.pass(&[wanted("a", &[("x", "1")])]);
    let next = [wanted("b", &[("y", "1")])];
    bench.gates.holds = vec![held("a")];
    bench.fail("apply", ("b", "y"), vec![permanent(), permanent()]);
    for _ in 0..2 {
        bench.later(&next);
        assert_eq!([bench.state("a", "x"), bench.state("b", "y")], ["removing held", "installing compose-failed"]);
    }
    bench.gates.holds.clear();
    assert!(bench.pass(&next).up_to_date, "without waiting for the back-off");
}

fn held(name: &str) -> Hold {
    let (deployment, since) = (Some(name.parse().unwrap()), "2026-11-23T15:00:00Z".parse().unwrap());
    let (by, why) = ("j.doe".to_owned(), "x".to_owned());
    Hold::Person(HoldByPerson { deployment, id: Some(id(name)), by, why, since, until: None, now: false })
}

#[test]
fn what_a_killed_syncer_could_not_say_any_more_is_said_by_the_next() {
    let mut bench = Bench::new();
    let desired = [wanted("a", &[("x", "1")])];
    lost_during_apply(&mut bench, &desired);
    let whole = observed("a", "x", Some(input_digest("a", "x", "1")), Condition::Running);
    bench.runtimes.running.borrow_mut().insert(project("a", "x"), whole);
    bench.listen_anew();
    assert_eq!(bench.pass(&desired), Done { at_work: false, acted: false, up_to_date: true });
    assert_eq!(bench.told(), ["a/* installing > installed; a/x installing > installed"]);
    assert_eq!(bench.view().device_state.applied_digest(&project("a", "x")), Some(input_digest("a", "x", "1")));
}

#[test]
fn a_runtime_that_lost_a_part_gets_it_back() {
    let mut bench = Bench::new();
    let desired = [wanted("a", &[("x", "1")])];
    bench.pass(&desired);
    bench.told();
    bench.runtimes.running.borrow_mut().clear();
    bench.pass(&desired);
    assert_eq!(
        bench.told(),
        [
            "a/* installed > pending queued; a/x installed > pending queued",
            "a/* pending > installing; a/x pending > installing",
            "a/* installing > installed; a/x installing > installed",
        ]
    );
}

const RESTORING: &str = "a/* installed > installing; a/x installed > installing";
const RESTORED: &str = "a/* installing > installed; a/x installing > installed";

/// A device on which `x` of `a` was applied and stopped since.
fn stopped() -> (Bench, [DesiredDeployment; 1]) {
    let (mut bench, desired) = (Bench::new(), [wanted("a", &[("x", "1")])]);
    bench.pass(&desired);
    stop(&bench);
    bench.listen_anew();
    (bench, desired)
}

fn stop(bench: &Bench) {
    let mut running = bench.runtimes.running.borrow_mut();
    running.get_mut(&project("a", "x")).unwrap().condition = Condition::Stopped("exited with 3".to_owned());
}

#[test]
fn what_was_applied_and_stopped_is_put_back_before_anything_else_and_that_is_told() {
    let (mut bench, desired) = stopped();
    let and_more = [&desired[..], &[wanted("b", &[("y", "1")])]].concat();
    assert_eq!(bench.pass(&and_more), Done { at_work: false, acted: true, up_to_date: true });
    assert_eq!(bench.runtimes.log(), ["restore x (installing, attempt 1)", "apply y (installing, attempt 1)"]);
    let told = ["b/* none > pending queued; b/y none > pending queued", RESTORING, RESTORED];
    assert_eq!(bench.told()[..3], told);
    assert_eq!((bench.state("a", "x"), bench.view().device_state.attempts.len()), ("installed".to_owned(), 0));
    assert_eq!(bench.pass(&and_more), Done { at_work: false, acted: false, up_to_date: true });
}

#[test]
fn what_stops_again_and_again_is_put_back_with_a_back_off_and_not_called_installed_meanwhile() {
    let (mut bench, desired) = stopped();
    bench.pass(&desired);
    stop(&bench);
    bench.listen_anew();
    assert_eq!(bench.later(&desired), Done { at_work: false, acted: false, up_to_date: true }, "not so soon");
    for _ in 0..3 {
        bench.state.lock().restores.later(Duration::from_secs(300));
        assert!(bench.pass(&desired).acted);
        assert_eq!(bench.state("a", "x"), "installing health-timeout");
        assert!(!bench.later(&desired).up_to_date, "it runs, but not for long yet");
        stop(&bench);
        assert!(!bench.later(&desired).acted);
    }
    assert_eq!(bench.runtimes.log().len(), 3);
    assert_eq!(bench.told(), [RESTORING, ""], "state and reason, once");
    bench.state.lock().restores.later(Duration::from_secs(300));
    bench.pass(&desired);
    bench.state.lock().restores.later(Duration::from_secs(300));
    assert_eq!(bench.pass(&desired), Done { at_work: false, acted: false, up_to_date: true });
    assert_eq!(bench.state("a", "x"), "installed");
}

fn container(id: &str, at: &str, runs: bool) -> Started {
    Started { container: id.to_owned(), at: at.to_owned(), runs }
}

/// The same, of which the fleet wants this restart.
fn at_restart(number: u64, wanted: &DesiredDeployment) -> [DesiredDeployment; 1] {
    [DesiredDeployment { restarts: RestartsAsked { number, here: None }, ..wanted.clone() }]
}

#[test]
fn a_restart_of_the_fleet_is_done_once_and_told_and_what_is_left_is_durable_before_it_is_done() {
    let mut bench = Bench::new();
    let one = wanted("a", &[("x", "1")]);
    bench.pass(&at_restart(3, &one));
    *bench.runtimes.containers.borrow_mut() = vec![container("db", "t1", true), container("migrate", "t1", false)];
    bench.listen_anew();
    assert!(!bench.pass(&at_restart(3, &one)).acted, "it was installed at 3");
    assert_eq!(bench.pass(&at_restart(4, &one)), Done { at_work: false, acted: true, up_to_date: true });
    assert_eq!(bench.runtimes.log(), ["restart [\"db\"], durable [\"db\"] of x (installing)"]);
    let told = [
        "a/* installed > installing restart-requested; a/x installed > installing restart-requested",
        "a/* installing > installed; a/x installing > installed",
    ];
    assert_eq!(bench.told(), told);
    for number in [4, 2] {
        assert_eq!(bench.pass(&at_restart(number, &one)), Done { at_work: false, acted: false, up_to_date: true });
    }
    assert_eq!((bench.told(), bench.runtimes.log()), (vec![], vec![]));
}

#[test]
fn a_restart_that_fails_or_is_cut_off_goes_on_with_what_is_left() {
    let mut bench = Bench::new();
    let one = wanted("a", &[("x", "1")]);
    bench.pass(&at_restart(0, &one));
    *bench.runtimes.containers.borrow_mut() = vec![container("db", "t1", true), container("web", "t1", true)];
    bench.listen_anew();
    bench.fail("restart", ("a", "x"), vec![transient(), RuntimeError::Cancelled]);
    assert!(!bench.pass(&at_restart(1, &one)).up_to_date);
    assert_eq!(bench.state("a", "x"), "installing runtime-unavailable");
    assert!(!bench.pass(&at_restart(1, &one)).acted, "it backs off");
    *bench.runtimes.containers.borrow_mut() = vec![container("db", "t2", true), container("web", "t1", true)];
    // What was cut off goes on, whatever the fleet says meanwhile.
    assert_eq!(bench.later(&at_restart(0, &one)), Done { at_work: false, acted: true, up_to_date: true });
    let both = "restart [\"db\", \"web\"], durable [\"db\", \"web\"] of x (installing)";
    let rest = "restart [\"web\"], durable [\"web\"] of x (installing)";
    assert_eq!(bench.runtimes.log(), [both, rest, rest]);
    assert_eq!(bench.state("a", "x"), "installed");
}

#[test]
fn what_cannot_be_put_back_now_is_never_given_up_and_holds_what_depends_on_it() {
    let (mut bench, desired) = stopped();
    let dependent = DesiredDeployment { depends_on: vec!["a".parse().unwrap()], ..wanted("b", &[("y", "1")]) };
    let both = [&desired[..], &[dependent]].concat();
    for (error, state, waits) in [
        (transient as fn() -> RuntimeError, "installing runtime-unavailable", "pending waiting-dependency"),
        (permanent as fn() -> RuntimeError, "failed compose-failed", "pending dependency-failed"),
    ] {
        bench.fail("restore", ("a", "x"), (0..5).map(|_| error()).collect());
        for _ in 0..5 {
            assert!(!bench.later(&both).up_to_date);
            let states = [bench.state("a", "x"), bench.state("b", "y")];
            assert_eq!(states, [state, waits]);
            assert!(!bench.pass(&both).acted, "it backs off");
        }
    }
    let told = bench.told().join("; ");
    for once in ["a/x installed > installing", "a/x installing > failed compose-failed"] {
        assert_eq!(told.matches(once).count(), 1, "{once} in {told}");
    }
    assert_eq!(told.matches("a/x").count(), 2, "{told}");
    assert_eq!(bench.later(&both), Done { at_work: false, acted: true, up_to_date: true });
    assert_eq!(bench.state("a", "x"), "installed");
}

#[test]
fn what_takes_the_device_down_whenever_it_is_put_back_is_given_up() {
    let (bench, desired) = stopped();
    for boot in ["one", "two", "three"] {
        bench.boot(boot);
        let input = desired[0].components[0].input.as_ref().unwrap();
        let mut change = bench.state.begin();
        change.next.blame(boot);
        change.next.attempts.entry(input.project.clone()).or_insert(Attempt::new(input.input_digest)).begin(boot);
        change.commit().unwrap();
    }
    bench.boot("four");
    bench.pass(&desired);
    assert_eq!(bench.state("a", "x"), "failed crash-loop");
    assert_eq!(bench.runtimes.log(), Vec::<String>::new());
}

#[test]
fn a_deployment_waits_until_what_it_depends_on_is_installed() {
    let mut bench = Bench::new();
    let dependent =
        |version| DesiredDeployment { depends_on: vec!["a".parse().unwrap()], ..wanted("b", &[("y", version)]) };
    bench.fail("apply", ("a", "x"), vec![permanent()]);
    assert!(!bench.pass(&[wanted("a", &[("x", "1")]), dependent("1")]).up_to_date);
    assert!(!bench.runtimes.log().iter().any(|line| line.starts_with("apply b")), "{:?}", bench.runtimes.log());
    let report = Report::read(&bench.view().device_state.status);
    let waits = report.get(id("b"), &component("y")).and_then(|now| now.failure.clone()).unwrap();
    assert_eq!(waits, Failure::new(ErrorCode::DependencyFailed, "waits for deployment `a`, which failed"));
    assert!(bench.pass(&[wanted("a", &[("x", "2")]), dependent("1")]).up_to_date);
    // A dependency that can't come takes nothing away from what runs already.
    bench.fail("apply", ("a", "x"), vec![permanent()]);
    bench.told();
    bench.pass(&[wanted("a", &[("x", "3")]), dependent("1")]);
    assert!(!bench.told().join("\n").contains("b/"), "what runs waits for nothing");
}

#[test]
fn what_is_suspended_is_told_once_and_goes_on_when_it_is_not() {
    let mut bench = Bench::new();
    bench.pass(&[wanted("a", &[("x", "1")])]);
    bench.told();
    let suspended = DesiredDeployment { suspended: true, ..wanted("a", &[("x", "2")]) };
    for _ in 0..2 {
        assert!(!bench.pass(std::slice::from_ref(&suspended)).acted);
    }
    assert_eq!(bench.told(), ["a/* installed > pending suspended; a/x installed > pending suspended"]);
    assert!(bench.pass(&[wanted("a", &[("x", "2")])]).up_to_date);
}

#[test]
fn every_commit_says_who_speaks_of_what() {
    let bench = Bench::new();
    bench.pass(&[wanted("a", &[("x", "1")])]);
    let tip = bench.view().status.unwrap();
    let commit = bench.view().repo.commit(tip).unwrap();
    let message = Message::parse(&commit.message);
    assert_eq!(message.subject(), "x installed (serial 0)");
    let keys: Vec<_> = message.trailers().iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["Kind", "Fleet", "Device", "Serial", "State", "State"]);
    assert!(commit.signer().is_ok());
    let once: BTreeSet<_> = keys.iter().collect();
    assert_eq!(once.len(), 5);
}

/// What goes wrong during one pass.
#[derive(Debug, Clone)]
enum LocalCondition {
    None,
    /// One verb fails for one component.
    Fails(&'static str, &'static str, &'static str, u8),
    /// The end is asked for before anything is begun.
    Cancelled,
    /// The device went down, and what it had begun is open.
    Reboot,
}

fn any_trouble() -> impl Strategy<Value = LocalCondition> {
    let verb = prop::sample::select(vec!["prefetch", "apply", "remove"]);
    let (deployment, name) = (prop::sample::select(vec!["a", "b", "c"]), prop::sample::select(vec!["x", "y", "z"]));
    prop_oneof![
        1 => Just(LocalCondition::None),
        4 => (verb, deployment, name, 0..4_u8).prop_map(|(verb, a, x, kind)| LocalCondition::Fails(verb, a, x, kind)),
        1 => Just(LocalCondition::Cancelled),
        1 => Just(LocalCondition::Reboot),
    ]
}

impl Bench {
    fn suffer(&mut self, trouble: &LocalCondition, boot: usize) {
        self.cancelled.set(matches!(trouble, LocalCondition::Cancelled));
        match trouble {
            LocalCondition::Fails(verb, deployment, name, kind) => {
                let error = [transient(), permanent(), unhealthy("x"), RuntimeError::Cancelled];
                self.fail(verb, (deployment, name), error.into_iter().skip((*kind).into()).take(1).collect());
            }
            LocalCondition::Reboot => self.boot(&format!("boot {boot}")),
            _ => {}
        }
    }

    /// Every transition begins where the one before of the same thing ended.
    fn assert_continuous(&self) {
        let view = self.view();
        let repo = &view.repo;
        let history = view.status.map_or(Vec::new(), |tip| repo.history(tip, None, 1000).unwrap());
        let mut states: BTreeMap<String, String> = BTreeMap::new();
        for commit in history.iter().rev() {
            let message = Message::parse(&repo.commit(*commit).unwrap().message);
            for state in message.all("State") {
                let words: Vec<_> = state.split(' ').collect();
                let before = states.insert(words[0].to_owned(), words[3].to_owned());
                let before = before.unwrap_or_else(|| "none".to_owned());
                assert_ne!(words[1], words[3], "{state}");
                assert!(before == words[1] || before == "removed" && words[1] == "none", "{state} after {before}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_goes_wrong_it_converges_once_nothing_does_and_each_step_is_told_once(
        passes in prop::collection::vec((any_wanted(), any_trouble()), 1..6),
    ) {
        let mut bench = Bench::new();
        for (n, (desired, trouble)) in passes.iter().enumerate() {
            bench.suffer(trouble, n);
            bench.later(desired);
            bench.assert_continuous();
        }
        let (last, _) = passes.last().unwrap();
        bench.cancelled.set(false);
        bench.runtimes.failures.borrow_mut().clear();
        last.iter().for_each(|wanted| bench.tamper(|state| state.forget_failures(wanted)));
        let able = last.iter().all(|wanted| wanted.components.iter().all(|component| component.input.is_ok()));
        prop_assert_eq!(bench.later(last).up_to_date, able);
        bench.assert_continuous();
        bench.listen_anew();
        let before = bench.view().repo.reference(crate::decision::device_state::STATE).unwrap();
        prop_assert!(!bench.later(last).acted);
        prop_assert_eq!((bench.told(), bench.runtimes.log()), (vec![], vec![]));
        prop_assert_eq!(bench.view().repo.reference(crate::decision::device_state::STATE).unwrap(), before);
    }

    #[test]
    fn nothing_is_given_up_by_an_apply_while_anything_is_left_to_remove(
        passes in prop::collection::vec((any_wanted(), any::<[u8; 9]>()), 1..8),
    ) {
        let mut bench = Bench::new();
        for (desired, failures) in &passes {
            let all = ["a", "b", "c"].into_iter().flat_map(|one| ["x", "y", "z"].map(|part| (one, part)));
            for (of, bits) in all.zip(failures) {
                bench.fail("remove", of, if bits & 1 == 0 { vec![stays()] } else { vec![] });
                bench.fail("apply", of, [transient(), permanent(), unhealthy("x")].into_iter().skip(usize::from(bits >> 6)).collect());
            }
            let before = bench.view().device_state.failed_inputs;
            bench.later(desired);
            let is_left = bench.state.lock().removals_are_left;
            let after = bench.view().device_state.failed_inputs;
            let given_up: Vec<_> = after.iter().filter(|(project, now)| before.get(*project) != Some(*now)).collect();
            prop_assert!(!is_left || given_up.is_empty(), "{given_up:?}");
        }
    }
}
