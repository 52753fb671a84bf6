//! Work that is done by runtimes which only write down what they are told.

mod any_order;
mod failure;
mod removal;
mod restart;
mod restore;
mod turns;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use proptest::prelude::*;
use repo_git::SigningKey;
use repo_git::repo::Repo;
use repo_model::message::Message;
use repo_model::windows::Opening;
use repo_model::{ComponentName, DeploymentId, ErrorCode, Trailer};
use tempfile::TempDir;

use super::*;
use crate::config::Home;
use crate::decision::closed::fetched_before;
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
use crate::runtimes::{LockedImage, Source};
use crate::state::loaded;
use crate::state::store::Store;
use crate::state::view::View;
use crate::testing::{any_wanted, component, fleet, id, input_digest, observed, project, wanted};
use turns::Turns;

/// Runtimes that run nothing. What they are told, and what was durable then, is in `log`.
struct FakeRuntimes {
    clone: PathBuf,
    log: Mutex<Vec<String>>,
    /// What the next calls about a project come to, by `verb project`; the rest succeed.
    failures: Mutex<BTreeMap<String, Vec<RuntimeError>>>,
    running: Mutex<BTreeMap<String, Observed>>,
    /// What there is of each compose project.
    containers: Mutex<Vec<Started>>,
    /// The next apply finds everything removed when it ends.
    clears: Mutex<Option<Shared>>,
    turns: Turns,
}

impl FakeRuntimes {
    fn take(&self, verb: &str, project: &str) -> Result<(), RuntimeError> {
        self.turns.hand_over();
        match self.failures.lock().unwrap().get_mut(&format!("{verb} {project}")).filter(|left| !left.is_empty()) {
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
        self.log.lock().unwrap().push(format!("{verb} {name} ({state}{attempt})"));
    }

    fn log(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock().unwrap())
    }
}

impl Runtimes for FakeRuntimes {
    type Ready = Component;

    fn prefetch(&self, component: &Component, from: Source, _: &dyn Fn() -> bool) -> Result<Component, RuntimeError> {
        let what = if from == Source::Here { "find" } else { "prefetch" };
        self.take(what, &component.project).map(|()| component.clone())
    }

    fn first_use(&self, ready: &Component) -> BTreeMap<String, LockedImage> {
        let locked = LockedImage { image: "hello".to_owned(), digest: ready.input_digest };
        [("s".to_owned(), locked)].into()
    }

    fn apply(&self, ready: &Component, _: &Cancel<'_>) -> Result<(), RuntimeError> {
        self.note("apply", ready.deployment, &ready.component);
        let outcome = self.take("apply", &ready.project);
        if let Some(state) = self.clears.lock().unwrap().take() {
            state.lock().removals_are_left = false;
        }
        let digest = outcome.is_ok().then_some(ready.input_digest);
        let (deployment, name) = (ready.deployment_name.as_str(), ready.component.as_str());
        let made = Observed { kind: ready.profile_type(), ..observed(deployment, name, digest, Condition::Running) };
        self.running.lock().unwrap().insert(ready.project.clone(), made);
        outcome
    }

    fn restore(&self, component: &Component, _: &Cancel<'_>) -> Result<(), RuntimeError> {
        self.note("restore", component.deployment, &component.component);
        self.take("restore", &component.project)?;
        let mut running = self.running.lock().unwrap();
        running.get_mut(&component.project).expect("it was applied").condition = Condition::Running;
        Ok(())
    }

    fn containers(&self, component: &Component) -> Result<Vec<Started>, RuntimeError> {
        self.take("containers", &component.project)?;
        Ok(self.containers.lock().unwrap().clone())
    }

    fn restart(&self, component: &Component, left: &[String], _: &dyn Fn() -> bool) -> Result<(), RuntimeError> {
        let (device_state, _) = loaded::peek(&self.clone);
        let durable: Vec<_> = device_state.restarts[&component.project].left.keys().cloned().collect();
        self.note(&format!("restart {left:?}, durable {durable:?} of"), component.deployment, &component.component);
        self.take("restart", &component.project)
    }

    fn remove(&self, kind: ProfileType, project: &str, _: Duration, _: &dyn Fn() -> bool) -> Result<(), RuntimeError> {
        let found = self.running.lock().unwrap().get(project).cloned();
        if let Some(found) = found.filter(|found| found.kind == kind) {
            self.note("remove", found.deployment.unwrap(), &found.component.unwrap());
        }
        self.take("remove", project)?;
        self.running.lock().unwrap().remove(project);
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
    /// Runtimes that don't answer.
    unreachable: BTreeSet<ProfileType>,
    /// How many jobs are at work at once.
    at_once: usize,
    told: usize,
}

impl Bench {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let home = Home::new(dir.path());
        let store = Store::open(&home, &"press-01".parse().unwrap(), SigningKey::from_seed(&[7; 32])).unwrap();
        let runtimes = FakeRuntimes {
            clone: home.repository(),
            log: Mutex::default(),
            failures: Mutex::default(),
            running: Mutex::default(),
            containers: Mutex::default(),
            clears: Mutex::default(),
            turns: Turns::default(),
        };
        let identity = Identity { fleet: fleet(), device: "press-01".parse().unwrap() };
        let state = Shared::new(store, identity, "first boot".to_owned());
        let (cancelled, gates, unreachable) = (Cell::new(false), Gates::default(), BTreeSet::new());
        Self { _dir: dir, state, runtimes, cancelled, gates, unreachable, at_once: 1, told: 0 }
    }

    fn fail(&self, verb: &str, (deployment, name): (&str, &str), errors: Vec<RuntimeError>) {
        let key = format!("{verb} {}", project(deployment, name));
        self.runtimes.failures.lock().unwrap().insert(key, errors);
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

    /// Passes as `reconcile` makes them, each after the jobs of the one before, until nothing more can begin that wasn't tried.
    fn pass(&self, wanted: &[DesiredDeployment]) -> Done {
        let (mut tried, mut acted) = (BTreeSet::new(), false);
        loop {
            let found: Vec<_> = self.runtimes.running.lock().unwrap().values().cloned().collect();
            let at_work = AtWork::after(tried.clone());
            let mut change = self.state.begin();
            let boot_id = change.state.boot_id.clone();
            change.next.blame(&boot_id);
            change.next.keep_only(wanted);
            let gates = Gates { fetched: change.state.fetched.clone().unwrap_or_default(), ..self.gates.clone() };
            let plan = Plan::make(Some(wanted), &change.next, &found, &self.unreachable, &gates);
            change.note_removals(&plan);
            change.announce(&plan, wanted, &at_work);
            let works = choose(&plan, wanted, &mut change, &at_work);
            change.commit().unwrap();
            let up_to_date = !plan.has_removals() && wanted.iter().all(|one| change.is_installed(one));
            let works = self.begin(works, &change.next);
            drop(change);
            if works.is_empty() {
                return Done { at_work: false, acted, up_to_date };
            }
            tried.extend(works.iter().flat_map(Work::tries).map(str::to_owned));
            let (runtimes, state, cancel) = (&self.runtimes, &self.state, || false);
            acted |= runtimes.turns.run(&works, |work| {
                let cancel = Cancel::whatever(&cancel);
                Job {
                    runtimes,
                    state,
                    cancel,
                    halt: &|| false,
                    is_outdated: &|| false,
                    may_fetch: &|| true,
                    may_change: &|_| true,
                    done: &|_| (),
                }
                .run(work)
                .unwrap()
            });
        }
    }

    /// What begins of this; what may have taken the device down does so alone.
    fn begin(&self, works: Vec<Work>, device_state: &DeviceState) -> Vec<Work> {
        let is_suspect = works.iter().take(self.at_once).any(|work| work.is_suspect(device_state));
        let most = if self.cancelled.get() {
            0
        } else if is_suspect {
            1
        } else {
            self.at_once
        };
        works.into_iter().take(most).collect()
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
            let states = message.all(Trailer::State).collect::<Vec<_>>().join("; ");
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
    let state = bench.state.clone();
    let known = |name| state.lock().fetched.as_ref().unwrap().get(&input_digest("a", name, "1")).cloned();
    assert_eq!(known("x"), Some(Fetched::Here));
    assert!(matches!(known("y"), Some(Fetched::Failed { .. })), "{:?}", known("y"));
    let report = Report::read(&bench.view().device_state.status);
    let why = report.get(id("a"), &component("y")).unwrap().failure.clone().unwrap();
    assert!(why.code == "waiting-window" && why.message.contains("what it needs isn't here yet"), "{why:?}");
    // Other words of the same don't stand on `status` at once, and a syncer that begins anew says the same.
    bench.fail("prefetch", ("a", "y"), vec![permanent()]);
    bench.told();
    bench.later(&all);
    bench.state.lock().fetched =
        Some(fetched_before(&Report::read(&bench.view().device_state.status), &all, Timestamp::now()));
    bench.pass(&all);
    assert_eq!(bench.told(), Vec::<String>::new());
    assert!(matches!(known("y"), Some(Fetched::Failed { reason, .. }) if reason.contains("gone")));
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
fn from_the_adoption_on_nothing_is_installed_but_what_is_wanted_now() {
    let mut bench = Bench::new();
    let (compose, helm) = ([wanted("a", &[("x", "1")])], [by_helm(wanted("a", &[("x", "1")]))]);
    bench.pass(&compose);
    bench.told();
    // Its type changes, and what shall come isn't begun yet.
    bench.cancelled.set(true);
    bench.pass(&helm);
    bench.pass(&helm);
    assert_eq!(bench.told(), ["a/* installed > pending queued; a/x installed > pending queued"]);
    bench.pass(&compose);
    assert_eq!(bench.told(), ["a/* pending > installed; a/x pending > installed"], "it runs still");
    // Nobody knows what runs.
    bench.unreachable = [ProfileType::Compose].into();
    bench.pass(&compose);
    assert_eq!(bench.told(), [""; 0], "what was applied is what is wanted");
    bench.pass(&[wanted("a", &[("x", "2")])]);
    bench.pass(&[wanted("a", &[("x", "2")])]);
    let waits = "a/* installed > pending runtime-unavailable; a/x installed > pending runtime-unavailable";
    assert_eq!(bench.told(), [waits]);
    bench.unreachable.clear();
    bench.cancelled.set(false);
    assert!(bench.pass(&[wanted("a", &[("x", "2")])]).up_to_date);
    assert_eq!(bench.state("a", "x"), "installed");
}

fn stays() -> RuntimeError {
    RuntimeError::RemovalFailed { project: "p".to_owned(), reason: "busy".to_owned() }
}

#[test]
fn what_a_killed_syncer_could_not_say_any_more_is_said_by_the_next() {
    let mut bench = Bench::new();
    let desired = [wanted("a", &[("x", "1")])];
    lost_during_apply(&mut bench, &desired);
    let whole = observed("a", "x", Some(input_digest("a", "x", "1")), Condition::Running);
    bench.runtimes.running.lock().unwrap().insert(project("a", "x"), whole);
    bench.listen_anew();
    assert_eq!(bench.pass(&desired), Done { at_work: false, acted: false, up_to_date: true });
    assert_eq!(bench.told(), ["a/* installing > installed; a/x installing > installed"]);
    assert_eq!(bench.view().device_state.applied_digest(&project("a", "x")), Some(input_digest("a", "x", "1")));
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
