//! Makes actual equal desired: observes, plans, and begins the jobs that apply.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use repo_model::desired::Desired;
use repo_model::margo::status::State;
use repo_model::margo::{DeviceCapabilities, ProfileType};
use repo_model::report::{CAPABILITIES, ClosedGate, ConditionType, Reason};
use repo_model::windows::Spread;
use repo_model::{IntoMap, IntoSet, error_chain};

use crate::config::{Device, Home, Settings, known_zone};
use crate::decision::approval::{Approvals, FleetAsks, SiteWords};
use crate::decision::ask::Asked;
use crate::decision::closed::{closed, fetched_before};
use crate::decision::conditions::{self, condition};
use crate::decision::deployment::DesiredDeployment;
use crate::decision::desired::{DeviceValues, resolve};
use crate::decision::device_state::DeviceState;
use crate::decision::drift;
use crate::decision::fetched::AllFetched;
use crate::decision::gates::{Gates, RemovalLimit};
use crate::decision::hold::Clocks;
use crate::decision::hook::HookEnd;
use crate::decision::kept::Kept;
use crate::decision::observation::Observation;
use crate::decision::plan::Plan;
use crate::decision::restarting::{self, RequestOver};
use crate::decision::status::{Report, Reported};
use crate::decision::windows::{AllWindows, Doubt, KernelClock};
use crate::reconcile::accept::PassInput;
use crate::reconcile::begun::Begun;
use crate::reconcile::choose::choose;
use crate::reconcile::hooks::{HookView, Hooks};
use crate::reconcile::jobs::{AtWork, Bounds, Jobs};
use crate::reconcile::observer::{Answers, Observer};
use crate::reconcile::outcome::Done;
use crate::reconcile::{device_files, encrypted, kernel_clock, lost};
use crate::runtimes::DeviceRuntimes;
use crate::runtimes::capabilities::Probe;
use crate::state::hold::Holds;
use crate::state::shared::{Shared, Transaction};
use crate::state::store::StoreError;
use crate::state::{approvals, approved_removals, restart_requests, site};

/// What to do about a missing sandbox.
const UNCONFINED: &str = "the kernel has no Landlock and this program isn't root, so `docker compose config` reads \
    applications' files with this program's rights: run it as root, or on a kernel with Landlock (Linux 5.13, `lsm=landlock,…`)";

/// What runs components, and what is at work. Lives as long as the process.
#[derive(Debug)]
pub struct Reconciler {
    pub runtimes: Arc<DeviceRuntimes>,
    pub jobs: Jobs,
    /// What the site has asked before a change.
    pub(super) hooks: Hooks,
    /// What asks the runtimes.
    pub(super) observer: Observer,
    /// What asks them of sets that failed.
    pub(super) begun: Begun,
    /// What this device has and can run.
    probe: Probe,
    /// Whether it was found out what the device went down with before this boot.
    is_blamed: bool,
    /// Whether the cache was pruned since the program began, which may have been cut off before.
    is_pruned: bool,
    holds: Holds,
    /// The gates that the newest pass found closed.
    gates: Gates,
}

impl Reconciler {
    /// Nothing is at work yet.
    pub fn new(runtimes: DeviceRuntimes, bounds: Bounds) -> Self {
        let (probe, holds, gates) = (Probe::default(), Holds::default(), Gates::default());
        let (runtimes, jobs, hooks) = (Arc::new(runtimes), Jobs::new(bounds), Hooks::default());
        let observer = Observer::default();
        let begun = Begun::new(observer.answered());
        Self { runtimes, jobs, hooks, observer, begun, probe, is_blamed: false, is_pruned: false, holds, gates }
    }

    /// The same, with what the site has asked before a change.
    pub fn with_hook(mut self, settings: &Settings, home: &Home) -> Self {
        let (stop, ended) = (self.jobs.stop(), self.jobs.ended());
        self.hooks = Hooks::new(home, stop, ended);
        self.hooks.follow(settings);
        self.jobs.ask(self.hooks.clone());
        self
    }

    /// Observes, plans, and begins what can begin; without runtimes that don't answer soon where something waits for this pass.
    /// Returns what became of the plan so far, and what was observed.
    pub(super) fn reconcile(
        &mut self,
        device: &Device,
        state: &Shared,
        pass: &PassInput,
        is_waited_for: bool,
    ) -> Result<(Done, Observation), StoreError> {
        if !self.is_blamed {
            blame(state)?;
            self.is_blamed = true;
        }
        let acted = self.jobs.reap()?;
        // What ends from here on was at work when it was observed.
        let at_work = self.jobs.at_work();
        let from_fleet = device.from_fleet(pass.desired.as_deref());
        let is_other_policy = self.runtimes.follow_fleet(from_fleet.clone());
        self.runtimes.follow_mirrors(&device.settings.mirrors(&from_fleet));
        // While nobody knows what is wanted, what was ignored before still is.
        let ignores = |desired| self.runtimes.ignore_drift(drift::ignored(desired));
        if pass.desired.as_deref().is_some_and(ignores) || is_other_policy {
            self.observer.ask_anew();
        }
        let answers = self.observer.observe(&self.runtimes, at_work, self.probe.is_due(), is_waited_for);
        let Answers { now: observation, shown, at_work, .. } = answers;
        if let Err(error) = self.runtimes.note_ended(&observation, |project| at_work.works_on(project)) {
            tracing::warn!(
                error = error_chain(&error),
                "what has come to its end isn't noted, and would be started again after a boot"
            );
        }
        let types = self.runtimes.types();
        let capabilities = capabilities(&mut self.probe, device, &types, || self.observer.facts(&types));
        let reported = capabilities.as_ref().or(pass.next.status.get(CAPABILITIES));
        let mut wanted = pass.desired.as_deref().map(|desired| self.resolve(device, desired, reported));
        let hook = self.hooks.view();
        self.gates = gates(
            &mut self.holds,
            device,
            (&pass.next, pass.desired.as_deref()),
            pass.next.waiting.is_some(),
            pass.clock_is_behind,
        );
        self.gates.hook.clone_from(&hook.gate);
        self.gates.fetched = known_fetched(state, wanted.as_deref().unwrap_or_default());
        let down = wanted.iter().flatten().map(|one| one.id).filter(|id| self.gates.is_down(Some(*id)));
        state.lock().down = down.into_set();
        let failed = wanted.as_ref().map(|wanted| self.failed_sets(state, wanted, &observation)).unwrap_or_default();
        let is_unconfined = self.runtimes.is_unconfined();
        let mut change = state.begin();
        let boot_id = change.state.boot_id.clone();
        let is_down = self.gates.is_down(None);
        if change.state.watches {
            // Where it is known to be down, nothing takes it down.
            if is_down { change.next.unwatch() } else { change.next.watch(&boot_id) }
        }
        change.next.believe(&pass.next);
        self.gates.know(|| change.next.names());
        change.next.note_whole(&observation, &boot_id, |project| at_work.changes(project));
        change.next.status.extend(capabilities.iter().map(|bytes| (CAPABILITIES.to_owned(), bytes.clone())));
        if let Some(wanted) = &mut wanted {
            change.next.note_policy_of_fleet(from_fleet.into_iter().map(|(key, value)| (key.name().to_owned(), value)));
            change.next.forget_sets(wanted);
            change.note_sets(wanted, failed, &observation, pass.desired.as_deref());
            self.put_last_good(device, reported, &mut change.next, wanted);
            change.next.keep_only(wanted);
            if change.next.asked.is_none() {
                change.next.asked = pass.desired.as_deref().map(Asked::first);
            }
            change.next.note_policy(wanted, is_suspended(pass.desired.as_deref()));
            change.next.recover_images(wanted, &observation.found);
            change.next.with_images(wanted);
        }
        if pass.is_adopted {
            change.report.forget_removed();
            change.state.retries.clear();
        }
        let (reported, before) = conditions::reported(&change.next.status);
        let mut conditions = pass.conditions.clone();
        if !pass.is_adopted {
            // The host's side may have added one since the pass began.
            conditions.extend(conditions::events(&change.next.status));
        }
        conditions.extend(hook.conditions.iter().cloned());
        let unreachable = conditions::unreachable(&shown, &reported);
        conditions.extend(unreachable.filter(|one| !is_down || reported.contains(one)));
        conditions.extend(conditions::violations(&shown));
        if self.gates.refuses_restarts {
            conditions.extend(restarting::refused(wanted.as_deref().unwrap_or_default(), &change.next));
        }
        if is_unconfined {
            conditions.push(condition(ConditionType::SandboxUnavailable, Reason::NoLandlockAndNotRoot, UNCONFINED));
        }
        let asked = restart_requests::read(&device.home);
        let over = match &mut wanted {
            Some(wanted) => restarting::ask(&asked, wanted, &change.next, &self.gates, Timestamp::now()),
            None => Vec::new(),
        };
        let unreachable = observation.unreachable_types();
        let mut plan = Plan::make(wanted.as_deref(), &change.next, &observation.found, &unreachable, &self.gates);
        self.explain_unknown(&mut plan);
        // Before anything of it goes.
        change.next.note_removed(&plan.unseen, &clocks(&device.settings, &device.boot_id, pass.clock_is_behind));
        let keys = &device.settings.gates.keys;
        let seen =
            if keys.is_empty() { None } else { site::read(&device.home).ok().and_then(|known| known.seen(keys)) };
        if !keys.is_empty() {
            site::begin(&device.home, plan.changes.values());
        }
        if self.gates.removals.as_ref().is_some_and(|limit| plan.has_removed(&limit.approved)) {
            approved_removals::forget(&device.home);
        }
        let (works, is_left) = match &wanted {
            None => (lost::restores(&change, &observation.found, &self.gates, &at_work), true),
            Some(wanted) => {
                change.note_removals(&plan);
                change.announce(&plan, wanted, &at_work);
                let works = choose(&plan, wanted, &mut change, &at_work);
                (works, plan.has_removals() || !wanted.iter().all(|one| change.is_installed(one)))
            }
        };
        let closed = self.gates_to_tell(&plan, before, &mut change);
        conditions::write(&mut change.next, device.instance, &conditions, closed, seen);
        if let Some(wanted) = &wanted {
            self.end_for_hook(&plan, hook, wanted, &change, &at_work);
        }
        change.commit()?;
        take_back(&device.home, &over);
        if let Some(wanted) = &wanted {
            // What it was adopted from is durable, and no step begins before the lock is free.
            self.jobs.cancel_outdated(wanted);
            self.jobs.halt(&plan);
        }
        self.hooks.plan(plan.hook_asks(), |id| plan.is_unseen(id));
        let clock_is_behind = pass.clock_is_behind;
        let kept = wanted.as_ref().map(|wanted| Kept { clock_is_behind, ..Kept::of(wanted, &change.next) });
        if let Some(kept) = &kept {
            self.runtimes.keep(kept.clone());
        }
        self.jobs.begin(works, &change.next, &self.runtimes, state);
        drop(change);
        let at_work = self.jobs.is_any();
        let done = Done { at_work, acted, up_to_date: !at_work && !is_left };
        if let Some(kept) = kept.filter(|_| unreachable.is_empty()) {
            self.let_go(&kept, &done);
        }
        Ok((done, shown))
    }

    /// What the runtimes run while nothing is at work; `None` where something is, or where they are to be asked for more.
    pub(super) fn observe_at_rest(&mut self) -> Option<Answers> {
        let is_at_rest = !self.jobs.is_any() && !self.probe.is_due();
        is_at_rest.then(|| self.observer.observe(&self.runtimes, AtWork::default(), false, false))
    }

    /// What the accepted state wants on this device, which has what it reports in `capabilities`, if anything is known of that.
    pub fn resolve(
        &self,
        device: &Device,
        desired: &Desired,
        capabilities: Option<&Vec<u8>>,
    ) -> Vec<DesiredDeployment> {
        self.with_values(device, capabilities, |values| resolve(desired, values))
    }

    /// With what only this device knows.
    pub(super) fn with_values<T>(
        &self,
        device: &Device,
        capabilities: Option<&Vec<u8>>,
        make: impl FnOnce(&DeviceValues<'_>) -> T,
    ) -> T {
        let read = |name: &str| device_files::read(&device.settings.device_files, name);
        let keys = LazyCell::new(|| encrypted::Keys::read(&device.home));
        let decrypt = |armor: &str| keys.decrypt(armor);
        let capabilities = capabilities.and_then(|bytes| DeviceCapabilities::read(CAPABILITIES, bytes).ok());
        let types = &self.runtimes.types();
        let capabilities = capabilities.as_ref();
        let (hmac_key, admission) = (&device.hmac_key, &device.settings.policy.admission());
        let max_timeout = device.settings.max_timeout;
        make(&DeviceValues { types, capabilities, read: &read, decrypt: &decrypt, hmac_key, admission, max_timeout })
    }

    /// How long until a gate opens by itself.
    pub(super) fn gate_opens(&self) -> Option<Duration> {
        // What is past has been seen by the newest pass, or waits for the next regular one.
        let opens = self.gates.open_next().map(|at| at.duration_since(Timestamp::now()));
        let opens = opens.filter(|wait| wait.is_positive()).and_then(|wait| Duration::try_from(wait).ok());
        opens.into_iter().chain(self.hooks.due()).min()
    }

    /// The gates that are closed. Where they were told anew too often of late, they and their words stay as they were `before`.
    fn gates_to_tell(&self, plan: &Plan, before: Vec<ClosedGate>, change: &mut Transaction<'_>) -> Vec<ClosedGate> {
        let closed = closed(plan, &self.gates, &before, Timestamp::now());
        let mut report = change.report.clone();
        let is_anew = report.takes_back_gates(change.report_before()) || closed != before;
        if !is_anew || change.state.gates_told.lets(Instant::now()) {
            return closed;
        }
        change.report = report;
        before
    }

    /// Tells the site's hook the end of what it let through, where nothing of that is left to do.
    fn end_for_hook(
        &self,
        plan: &Plan,
        hook: HookView,
        wanted: &[DesiredDeployment],
        change: &Transaction<'_>,
        at_work: &AtWork,
    ) {
        for (id, of) in hook.opened {
            let may_be_put_back = wanted.iter().any(|one| one.id == id && change.next.may_be_put_back(one));
            if !may_be_put_back && plan.is_over(id, |project| at_work.works_on(project)) {
                let reported = change.report.deployments.get(&id);
                let state = reported.map_or(State::Removed, Reported::overall);
                let code = reported.and_then(Reported::overall_failure).map(|failure| failure.code);
                let end = HookEnd { deployment: of.deployment.clone(), deployment_id: id, set: of.set, state, code };
                self.hooks.end(of, end);
            }
        }
    }

    /// Lets go what is neither wanted, nor runs or ran well before: images when their time is over, archives and charts as soon
    /// as something was done, unless some may be needed again that nobody knows. Only while nothing is at work.
    fn let_go(&mut self, kept: &Kept, done: &Done) {
        if done.at_work {
            return;
        }
        if let Err(error) = self.runtimes.evict_images() {
            tracing::warn!(error = error_chain(&error), "can't evict images");
        }
        if (done.up_to_date || !kept.lacks_contents) && (done.acted || !self.is_pruned) {
            if let Err(error) = self.runtimes.prune_cache(&kept.contents) {
                tracing::warn!(error = error_chain(&error), "can't prune the cache");
            }
            self.is_pruned = true;
        }
    }
}

/// Blames what the device went down with, before anything is decided of it.
fn blame(state: &Shared) -> Result<(), StoreError> {
    let mut change = state.begin();
    let (boot_id, watches) = (change.state.boot_id.clone(), change.state.watches);
    change.next.blame(&boot_id);
    if watches {
        change.next.watch(&boot_id);
    }
    change.commit_attempts()
}

/// What the operator, the fleet and the site let this device do now.
pub(super) fn gates(
    holds: &mut Holds,
    device: &Device,
    (device_state, desired): (&DeviceState, Option<&Desired>),
    is_unlisted: bool,
    clock_is_behind: bool,
) -> Gates {
    let (site, now) = (&device.settings.gates, Timestamp::now());
    let clocks = clocks(&device.settings, &device.boot_id, clock_is_behind);
    let recent = device_state.recently_removed(&clocks);
    let holds = holds.read(&device.home, site.hold.as_deref(), &clocks);
    let spread = Spread::of(&device.join.device);
    let windows = AllWindows::new(site.windows.clone(), desired, known_zone);
    let clock = clock_doubt(&device.settings, clock_is_behind);
    let openings = windows.of_device().at(now, clock.as_ref(), spread);
    let own_openings = windows.of_deployments().map(|(id, own)| (id, own.at(now, clock.as_ref(), spread))).into_map();
    let removals =
        site.removals.map(|share| RemovalLimit { share, approved: approved_removals::read(&device.home), recent });
    let approvals = approvals_of(device, desired, now, clock_is_behind);
    let (is_suspended, drift) = (is_suspended(desired), site.drift);
    let refuses_restarts = !device.settings.remote.restart;
    let windows = Gates { openings, own_openings, ..Gates::default() };
    Gates { is_suspended, is_unlisted, holds, drift, removals, approvals, refuses_restarts, ..windows }
}

/// What is known of what is wanted; of anything else it is forgotten.
fn known_fetched(state: &Shared, all: &[DesiredDeployment]) -> AllFetched {
    let inputs = all.iter().flat_map(|one| &one.components);
    let digests = inputs.filter_map(|one| Some(one.input.as_ref().ok()?.input_digest)).into_set();
    let state = &mut *state.lock();
    let reported = || fetched_before(&Report::read(&state.store.device_state.status), all, Timestamp::now());
    let fetched = state.fetched.get_or_insert_with(reported);
    fetched.retain(|digest, _| digests.contains(digest));
    fetched.clone()
}

/// Why no window is kept by this device's clock, if it is so.
pub fn clock_doubt(settings: &Settings, is_behind: bool) -> Option<Doubt> {
    let kernel = if settings.trusts_clock { KernelClock::Synchronised } else { kernel_clock::ask() };
    Doubt::of_clock(is_behind, kernel)
}

/// The clocks by which holds end.
pub fn clocks(settings: &Settings, boot_id: &str, clock_is_behind: bool) -> Clocks {
    let boot = kernel_clock::since_boot().map(|at| (boot_id.to_owned(), at));
    let is_vouched_for = clock_doubt(settings, clock_is_behind).is_none();
    Clocks { now: Timestamp::now(), is_vouched_for, boot }
}

/// For whose changes this device asks a person, as site and fleet want it, and what persons said. The names under which deployments
/// are known here aren't in it yet.
pub(crate) fn approvals_of(
    device: &Device,
    desired: Option<&Desired>,
    now: Timestamp,
    clock_is_behind: bool,
) -> Option<Approvals> {
    let (asked_for, fleet_asks) = (device.settings.gates.approval.clone(), FleetAsks::of(desired));
    let is_limited = device.settings.gates.removals.is_some();
    if asked_for.is_none() && !fleet_asks.is_any() && !is_limited {
        return None;
    }
    let (words, site) = (approvals::read(&device.home), site_words(device, now, clock_is_behind));
    let (asked_for, names) = (asked_for.unwrap_or_default(), Default::default());
    Some(Approvals { asked_for, names, fleet_asks, words, site })
}

/// What counts of what persons of the site said from elsewhere.
fn site_words(device: &Device, now: Timestamp, clock_is_behind: bool) -> Result<SiteWords, String> {
    let keys = &device.settings.gates.keys;
    if keys.is_empty() {
        return Ok(SiteWords::default());
    }
    let known = site::read(&device.home).map_err(|error| error_chain(&error))?;
    Ok(known.words(keys, now, clock_is_behind))
}

/// What this device has and can run, as `status` has it; `None` while the runtimes don't answer, so that what was reported
/// before stays.
pub(super) fn capabilities(
    probe: &mut Probe,
    device: &Device,
    types: &BTreeSet<ProfileType>,
    facts: impl FnOnce() -> Option<(BTreeMap<String, String>, Option<PathBuf>)>,
) -> Option<Vec<u8>> {
    let facts = || {
        let (versions, data_root) = facts()?;
        Some((versions, data_root.unwrap_or_else(|| device.home.root().to_owned())))
    };
    let document = probe.document(&device.join.device, &device.settings.capabilities, types, facts);
    document.map(<[u8]>::to_vec)
}

/// Takes back what persons at the device asked to be restarted, where that is over.
fn take_back(home: &Home, over: &[RequestOver]) {
    for RequestOver { deployment, refused, .. } in over {
        if let Some(reason) = refused {
            tracing::warn!(%deployment, reason, "not restarted, though a person asked for it");
        }
    }
    if !over.is_empty()
        && let Err(error) = restart_requests::take_back(home, over)
    {
        tracing::warn!(error = error_chain(&error), "can't take back what was asked to be restarted");
    }
}

/// Whether the operator told this device to leave everything as it is.
fn is_suspended(desired: Option<&Desired>) -> bool {
    desired.is_some_and(|desired| desired.envelope.policy.suspended)
}
