//! Makes actual equal desired: observes, plans and applies, with what may not be tried yet.

use jiff::Timestamp;
use repo_model::desired::Desired;
use repo_model::error_chain;
use repo_model::margo::DeviceCapabilities;
use repo_model::report::{CAPABILITIES, ConditionType, Reason};

use crate::config::Device;
use crate::decision::backoff;
use crate::decision::conditions::{self, condition};
use crate::decision::deployment::DesiredDeployment;
use crate::decision::desired::{DeviceValues, resolve};
use crate::decision::device_state::DeviceState;
use crate::decision::observation::Observation;
use crate::decision::plan::Plan;
use crate::decision::status::Report;
use crate::host::status_push::StatusPush;
use crate::reconcile::accept::PassInput;
use crate::reconcile::apply::{Actor, Done};
use crate::reconcile::restores::Restores;
use crate::reconcile::retries::Retries;
use crate::reconcile::{device_files, lost};
use crate::runtimes::DeviceRuntimes;
use crate::runtimes::capabilities::Probe;
use crate::state::record::record;
use crate::state::store::{Store, StoreError};

/// What to do about a missing sandbox.
const UNCONFINED: &str = "the kernel has no Landlock and this program isn't root, so `docker compose config` reads \
    applications' files with this program's rights: run it as root, or on a kernel with Landlock (Linux 5.13, `lsm=landlock,…`)";

/// What runs components, and what may not be tried yet. Lives as long as the process.
#[derive(Debug)]
pub struct Reconciler {
    pub runtimes: DeviceRuntimes,
    /// When failed steps may be tried again.
    pub retries: Retries,
    /// How often what was applied had to be restored.
    restores: Restores,
    /// What this device has and can run.
    probe: Probe,
}

impl Reconciler {
    /// Nothing was tried yet.
    pub fn new(runtimes: DeviceRuntimes) -> Self {
        Self { runtimes, retries: Retries::default(), restores: Restores::default(), probe: Probe::default() }
    }

    /// Observes, plans and applies. Returns what became of the plan, and what was observed when all was done.
    pub(super) fn reconcile(
        &mut self,
        device: &Device,
        store: &mut Store,
        pass: &mut PassInput,
        status_push: &StatusPush,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(Done, Observation), StoreError> {
        let mut report = Report::read(&pass.next.status);
        report_capabilities(&mut self.probe, &self.runtimes, device, &mut pass.next);
        let mut wanted = pass.desired.as_ref().map(|desired| self.resolve(device, desired, &pass.next));
        if let Some(wanted) = &wanted {
            pass.next.keep_only(wanted);
            pass.next.note_suspended(wanted, is_suspended(pass.desired.as_ref()));
        }
        if pass.is_adopted {
            report.forget_removed();
        }
        let observation = self.runtimes.observe();
        if let Some(wanted) = &mut wanted {
            pass.next.recover_images(wanted, &observation.found);
            pass.next.with_images(wanted);
        }
        pass.conditions.extend(conditions::unreachable(&observation, &conditions::all(&pass.next.status)));
        if self.runtimes.is_unconfined() {
            pass.conditions.push(condition(
                ConditionType::SandboxUnavailable,
                Reason::NoLandlockAndNotRoot,
                UNCONFINED,
            ));
        }
        conditions::write(&mut pass.next, device.instance, &pass.conditions);
        let (identity, next) = (device.identity(), pass.next.clone());
        let Some(wanted) = wanted else {
            let acted = lost::restore_applied(&next, &observation.found, &self.runtimes, &mut self.restores, cancel);
            record(store, next, &report, &identity, Timestamp::now())?;
            return Ok((Done { acted, up_to_date: false }, self.observe_after(acted, observation)));
        };
        let plan = make_plan(Some(&wanted), pass.desired.as_ref(), next.waiting.is_some(), &next, &observation);
        let mut actor = Actor {
            store,
            runtimes: &self.runtimes,
            identity: &identity,
            retries: &mut self.retries,
            restores: &mut self.restores,
            boot_id: &device.boot_id,
            now: &Timestamp::now,
            cancel,
            push: &|store| status_push.push(store),
            next,
            report,
        };
        let done = actor.apply_plan(&plan, &wanted)?;
        if done.acted && done.up_to_date {
            self.prune_cache(&wanted);
        }
        Ok((done, self.observe_after(done.acted, observation)))
    }

    fn observe_after(&self, acted: bool, before: Observation) -> Observation {
        if acted { self.runtimes.observe() } else { before }
    }

    /// What the accepted state wants on this device, which has what `device_state` says that it reports.
    pub(super) fn resolve(
        &self,
        device: &Device,
        desired: &Desired,
        device_state: &DeviceState,
    ) -> Vec<DesiredDeployment> {
        let read = |name: &str| device_files::read(&device.settings.device_files, name);
        let reported = device_state.status.get(CAPABILITIES);
        let capabilities = reported.and_then(|bytes| DeviceCapabilities::read(CAPABILITIES, bytes).ok());
        let types = &self.runtimes.types();
        let capabilities = capabilities.as_ref();
        let values = DeviceValues { types, capabilities, read: &read, hmac_key: &device.hmac_key };
        resolve(desired, &values)
    }

    /// Lets everything be tried at once, because a person asked for it.
    pub(super) fn forget_back_off(&mut self) {
        self.retries.clear();
        self.restores.clear();
    }

    /// Backs off what a killed syncer left open more than once during this boot.
    pub(super) fn resume_retries(&mut self, device: &Device, device_state: &DeviceState) {
        for (project, attempt) in &device_state.attempts {
            if attempt.boot_id == device.boot_id && attempt.open > 1 {
                self.retries.resume(project, attempt.open - 1, backoff::jitter(Timestamp::now()));
            }
        }
    }

    /// Keeps the archives of what is wanted or runs, and no others.
    fn prune_cache(&self, wanted: &[DesiredDeployment]) {
        let inputs = wanted.iter().flat_map(|wanted| &wanted.components).filter_map(|one| one.input.as_ref().ok());
        let keep = inputs.filter_map(|input| input.lock).map(|lock| lock.content).collect();
        if let Err(error) = self.runtimes.prune_cache(&keep) {
            tracing::warn!(error = error_chain(&error), "can't prune the cache");
        }
    }
}

/// The plan of a pass, by what the operator and the fleet let this device do.
pub(super) fn make_plan(
    wanted: Option<&[DesiredDeployment]>,
    desired: Option<&Desired>,
    is_unlisted: bool,
    device_state: &DeviceState,
    observation: &Observation,
) -> Plan {
    let plan = Plan::make(wanted, device_state, &observation.found, &observation.unreachable_types());
    plan.held_back(is_suspended(desired), is_unlisted, device_state)
}

/// Puts what this device has and can run into its `status`, where it isn't known yet. What was reported before stays while
/// the runtimes don't answer.
pub(super) fn report_capabilities(
    probe: &mut Probe,
    runtimes: &DeviceRuntimes,
    device: &Device,
    next: &mut DeviceState,
) {
    let (types, versions) = (runtimes.types(), || runtimes.versions());
    let disk = if probe.is_due() { runtimes.data_root() } else { None };
    let disk = disk.unwrap_or_else(|| device.home.root().to_owned());
    if let Some(bytes) = probe.document(&device.join.device, &device.settings.capabilities, &disk, &types, versions) {
        next.status.insert(CAPABILITIES.to_owned(), bytes.to_vec());
    }
}

/// Whether the operator told this device to leave everything as it is.
fn is_suspended(desired: Option<&Desired>) -> bool {
    desired.is_some_and(|desired| desired.envelope.policy.suspended)
}
