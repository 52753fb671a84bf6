//! Makes a prepared project run, and removes one.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use repo_model::{IntoMap, IntoSet};

use super::containers::{self, missing, overall, removed_after_its_end};
use super::docker::options;
use super::observe::finished;
use super::project::{Marker, Project, Stage};
use super::stopping::Stopping;
use super::{ComposeRuntime, Prepared, files, labels, ownership};
use crate::decision::observation::{Condition, ServiceState};
use crate::runtimes::client::{Call, QUERY};
use crate::runtimes::command::{CommandError, Output, last_lines};
use crate::runtimes::{Cancel, Redactor, RuntimeError};

/// How often `cancel` is asked while health is waited for.
const TICK: Duration = Duration::from_millis(200);
/// The longest time between two observations of the containers while health is waited for.
const SLOWEST_TICK: Duration = Duration::from_secs(2);
/// How often containers that somebody removes are made anew within one apply.
const RESTORES: u32 = 5;

impl ComposeRuntime {
    /// Ownership, mounts, marker, files, `up`, marker, health, marker. Where what ran before may take long to stop, that happens
    /// before the component's time begins, and has a bound of its own. Where `up` has returned for this input already, only
    /// what doesn't run is started, and the wait for health goes on: a whole `up` would run again what came to its end.
    pub(super) fn apply_project(&self, prepared: &Prepared, cancel: &Cancel<'_>) -> Result<(), RuntimeError> {
        let component = &prepared.component;
        let project = Project::new(&self.settings.projects_dir, &component.project);
        if let Some((marker, resolved)) = project.started(component)? {
            let (started, prepared) = (Instant::now(), Prepared::anew(component, &marker, resolved));
            let _claim = self.put_back(&prepared, &project, &marker, cancel)?;
            return self.complete(&prepared, &project, marker, started, cancel);
        }
        let previous = project.marker()?;
        let is_there = self.check_ownership(prepared, previous.as_ref())?;
        let (in_the_way, _claim) = self.check_neighbours(prepared)?;
        self.check_links(prepared, false)?;
        let inventory = files::inventory(&prepared.archive);
        let old = previous.map(|marker| marker.inventory).unwrap_or_default();
        let mut marker = marker(prepared, Stage::Applying);
        // Both: after a cut between here and the end, whatever is on the disk is still known as ours.
        marker.inventory = inventory.union(&old).cloned().into_set();
        project.mark(&marker)?;
        self.end(&in_the_way, prepared, cancel.changing)?;
        let gone = old.difference(&inventory).cloned().into_set();
        project.fill(&prepared.archive, &gone, &prepared.resolved.encode())?;
        self.check_links(prepared, true)?;
        if is_there && self.replace(prepared, &project, cancel.changing)? {
            // Stopping may have taken minutes.
            self.check_links(prepared, true)?;
        }
        let started = Instant::now();
        self.up(prepared, &project, started, cancel.changing)?;
        let marker = Marker { started: true, boot: Some(self.settings.boot_id.clone()), inventory, ..marker };
        if component.wait {
            project.mark(&marker)?;
        }
        self.complete(prepared, &project, marker, started, cancel)
    }

    /// What is left once everything was started: health, and the marker that says that all is applied.
    fn complete(
        &self,
        prepared: &Prepared,
        project: &Project,
        mut marker: Marker,
        started: Instant,
        cancel: &Cancel<'_>,
    ) -> Result<(), RuntimeError> {
        marker.boot = Some(self.settings.boot_id.clone());
        let services = if prepared.component.wait {
            (cancel.waits)(true);
            let services = self.wait_for_health(prepared, project, &mut marker, started, cancel);
            (cancel.waits)(false);
            services?
        } else {
            self.services(prepared)?
        };
        project.mark(&Marker { stage: Stage::Applied, started: false, finished: finished(&services), ..marker })
    }

    /// Returns whether any container of the project is there.
    pub(super) fn check_ownership(&self, prepared: &Prepared, marker: Option<&Marker>) -> Result<bool, RuntimeError> {
        let (component, resolved) = (&prepared.component, &prepared.resolved);
        let services = resolved.services();
        let is_there = ownership::check_containers(&self.engine, &self.owner, &component.project, services)?;
        ownership::check_objects(&self.engine, resolved, &component.project, is_there || marker.is_some())?;
        Ok(is_there)
    }

    /// Where containers may take longer to stop than the device's bound: stops and makes anew what changed, stops what is
    /// gone, and starts nothing yet. A whole `up` does the same, but then nobody could tell a container that doesn't stop
    /// from one that isn't healthy. Returns whether that was needed.
    fn replace(&self, prepared: &Prepared, project: &Project, cancel: &dyn Fn() -> bool) -> Result<bool, RuntimeError> {
        let (component, bound) = (&prepared.component, self.settings.stop_timeout);
        let stopping = Stopping::update((&self.docker, &self.engine), &component.project, bound, &prepared.resolved);
        if !stopping.may_exceed()? {
            return Ok(false);
        }
        let cancel = || {
            stopping.kill_overdue();
            cancel()
        };
        let args = self.up_args(prepared, project, "--no-start");
        let timeout = stopping.at_most() + component.timeout.max(QUERY);
        let output = self.compose().run(Call {
            args,
            timeout,
            redactor: &prepared.redactor,
            parameters: &[],
            cancel: &cancel,
        })?;
        if output.status.success() { Ok(true) } else { Err(self.compose_failed(prepared, &output)) }
    }

    /// Arguments of an `up` that makes the project's containers as its document says.
    fn up_args(&self, prepared: &Prepared, project: &Project, how: &str) -> Vec<OsString> {
        let (resolved, directory) = (project.resolved(), project.files());
        let mut args = options(&prepared.component.project, Some((&resolved, &directory, Path::new("/dev/null"))));
        let verb = ["up", how, "--remove-orphans", "--no-build", "--pull", "never", "--quiet-pull"];
        args.extend(verb.map(OsString::from));
        args
    }

    pub(super) fn compose_failed(&self, prepared: &Prepared, output: &Output) -> RuntimeError {
        let project = prepared.component.project.clone();
        self.docker.failure(output, |reason| RuntimeError::ComposeFailed { project, reason })
    }

    fn up(
        &self,
        prepared: &Prepared,
        project: &Project,
        started: Instant,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), RuntimeError> {
        let args = self.up_args(prepared, project, "--detach");
        let timeout = prepared.component.timeout.saturating_sub(started.elapsed());
        let call = Call { args, timeout, redactor: &prepared.redactor, parameters: &[], cancel };
        let output = match self.compose().run(call) {
            // `up` itself waits for the health of a service that others depend on.
            Err(RuntimeError::RuntimeUnavailable { source: Some(CommandError::TimedOut { .. }), .. }) => {
                return Err(self.health_timeout(prepared, started)?);
            }
            output => output?,
        };
        if output.status.success() {
            return Ok(());
        }
        if output.stderr.contains("dependency failed to start") {
            return Err(self.health_timeout(prepared, started)?);
        }
        Err(self.compose_failed(prepared, &output))
    }

    /// Returns how the services are in the end. What has only just started when the time is over is given the seconds by
    /// which it is known to stay up. Containers that somebody removes meanwhile are made anew, but for those of services that
    /// came to their end, which the marker says, and not while it is held or suspended; whoever removes them again and again isn't
    /// fought for ever.
    fn wait_for_health(
        &self,
        prepared: &Prepared,
        project: &Project,
        marker: &mut Marker,
        started: Instant,
        cancel: &Cancel<'_>,
    ) -> Result<BTreeMap<String, ServiceState>, RuntimeError> {
        let (mut interval, mut restored) = (TICK, 0);
        loop {
            let mut services = self.services(prepared)?;
            let known = marker.finished.len();
            marker.finished.extend(finished(&services));
            let ended = &marker.finished;
            for (_, state) in services.iter_mut().filter(|(name, state)| is_missing(state) && ended.contains(*name)) {
                *state = removed_after_its_end();
            }
            if overall(&services) == Condition::Running {
                return Ok(services);
            }
            if ended.len() > known {
                project.mark(marker)?;
            }
            let gone = services.iter().filter(|(_, state)| is_missing(state)).map(|(name, _)| name.clone()).into_set();
            if !gone.is_empty() && restored < RESTORES && !(cancel.halted)() {
                restored += 1;
                tracing::warn!(project = prepared.component.project, ?gone, "putting back what was removed meanwhile");
                (cancel.waits)(false);
                self.start(prepared, project, &gone, cancel.changing)?;
                (cancel.waits)(true);
                continue;
            }
            if started.elapsed() >= prepared.component.timeout && !only_has_to_stay(&services) {
                return Err(self.health_timeout(prepared, started)?);
            }
            let next = Instant::now() + interval;
            while Instant::now() < next {
                if (cancel.waiting)() {
                    return Err(RuntimeError::Cancelled);
                }
                // Whoever wants it to end wakes this thread.
                thread::park_timeout(TICK);
            }
            interval = (interval * 2).min(SLOWEST_TICK);
        }
    }

    /// Every service of the project as it is now.
    fn services(&self, prepared: &Prepared) -> Result<BTreeMap<String, ServiceState>, RuntimeError> {
        let label = format!("{}={}", labels::PROJECT, prepared.component.project);
        let found = containers::with_labels(&self.engine, &[label])?;
        let mut services: BTreeMap<_, _> =
            prepared.resolved.services().into_iter().map(|name| (name, missing())).into_map();
        services.extend(found.iter().map(|container| (container.service().to_owned(), container.state())));
        Ok(services)
    }

    /// Names the worst service, with the end of its log.
    fn health_timeout(&self, prepared: &Prepared, started: Instant) -> Result<RuntimeError, RuntimeError> {
        let services = self.services(prepared)?;
        let bad = |state: &&ServiceState| {
            use Condition::{CrashLooping, Degraded, Missing, Stopped};
            matches!(state.condition, Degraded(_) | CrashLooping(_) | Stopped(_) | Missing)
        };
        // What was never started waits for another one.
        let worst = services.iter().find(|(_, state)| bad(state) && state.state != "created");
        let worst = worst.or_else(|| services.iter().find(|(_, state)| bad(state)));
        let worst = worst.or_else(|| services.iter().find(|(_, state)| state.condition != Condition::Running));
        let Some((service, state)) = worst.or(services.iter().next()) else {
            return Ok(RuntimeError::ComposeFailed {
                project: prepared.component.project.clone(),
                reason: "it has no containers".to_owned(),
            });
        };
        let how = match &state.condition {
            Condition::Degraded(how)
            | Condition::CrashLooping(how)
            | Condition::Stopped(how)
            | Condition::Unknown(how) => how.clone(),
            _ => state.health.clone().unwrap_or_else(|| state.state.clone()),
        };
        Ok(RuntimeError::HealthTimeout {
            project: prepared.component.project.clone(),
            service: service.clone(),
            state: how,
            seconds: started.elapsed().as_secs(),
            log: self.log(&state.container, &prepared.redactor),
        })
    }

    /// The last lines of a container's log, without secrets; nothing if there are none to be had.
    fn log(&self, container: &str, redactor: &Redactor) -> String {
        if container.is_empty() {
            return String::new();
        }
        let output = self.docker.try_ask(&["logs", "--tail", "20", container]);
        let text = output.map(|output| format!("{}{}", String::from_utf8_lossy(&output.stdout), output.stderr));
        last_lines(&redactor.clean(&text.unwrap_or_default()), 1024)
    }

    /// `down`, then our files. Without a project of that name nothing happens. `timeout` is for all but the stopping.
    pub(super) fn remove_project(
        &self,
        name: &str,
        timeout: Duration,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), RuntimeError> {
        let project = Project::new(&self.settings.projects_dir, name);
        let marker = project.marker()?;
        ownership::check_containers(&self.engine, &self.owner, name, [])?;
        if let Some(marker) = &marker {
            project.mark(&Marker { stage: Stage::Removing, started: false, ..marker.clone() })?;
        }
        let mut args = options(name, None);
        args.extend(["down", "--remove-orphans"].map(OsString::from));
        let stopping = Stopping::removal((&self.docker, &self.engine), name, self.settings.stop_timeout);
        let cancel = || {
            stopping.kill_overdue();
            cancel()
        };
        let timeout = stopping.at_most() + timeout;
        let call = Call { args, timeout, redactor: &Redactor::default(), parameters: &[], cancel: &cancel };
        let output = self.compose().run(call)?;
        if !output.status.success() {
            let project = name.to_owned();
            return Err(self.docker.failure(&output, |reason| RuntimeError::RemovalFailed { project, reason }));
        }
        project.clear(marker.as_ref())
    }
}

fn is_missing(state: &ServiceState) -> bool {
    state.condition == Condition::Missing
}

/// Whether all runs, and only hasn't done so for long yet.
fn only_has_to_stay(services: &BTreeMap<String, ServiceState>) -> bool {
    services.values().all(|state| match state.condition {
        Condition::Running => true,
        Condition::Starting => state.health.is_none(),
        _ => false,
    })
}

fn marker(prepared: &Prepared, stage: Stage) -> Marker {
    Marker {
        layout: 1,
        stage,
        started: false,
        input_digest: prepared.component.input_digest,
        content_digest: prepared.content,
        deployment: prepared.component.deployment,
        component: prepared.component.component.clone(),
        services: prepared.resolved.services(),
        images: prepared.resolved.images_by_service(),
        finished: BTreeSet::new(),
        ended: BTreeSet::new(),
        boot: None,
        inventory: files::inventory(&prepared.archive),
    }
}
