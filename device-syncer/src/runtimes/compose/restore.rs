//! Restores what was applied and doesn't run: by service, from the document that was applied.
//!
//! A whole `up` would run each one-shot service again that has come to its end, a database's migration for one, and to
//! resolve the archive anew could need what is away: its registry, or a file of the device.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

use repo_artifacts::Archive;
use repo_model::IntoSet;

use super::containers::with_labels;
use super::docker::options;
use super::mounts::Claim;
use super::observe::observed;
use super::project::{Marker, Project};
use super::resolved::Resolved;
use super::{ComposeRuntime, Prepared, labels};
use crate::decision::component::Component;
use crate::decision::observation::{Condition, Observed, ServiceState};
use crate::runtimes::client::{Call, Client};
use crate::runtimes::{Cancel, Redactor, RuntimeError, Source};

impl ComposeRuntime {
    /// The services of this input that run to their end, if any of it was begun.
    pub fn begun_once(&self, component: &Component) -> Result<BTreeSet<String>, RuntimeError> {
        Project::new(&self.settings.projects_dir, &component.project).run_to_their_end(component.input_digest)
    }

    /// Makes those services of what was applied run again that have no container, or whose container ended or is paused
    /// and nothing starts it. What shares a namespace with one of them is made anew, because it has lost that.
    ///
    /// Checks what an apply checks right before it starts something: ownership, mounts, and images, which are fetched if
    /// they are gone. Doesn't wait for health. Touches nothing else.
    pub fn restore(&self, component: &Component, cancel: &Cancel<'_>) -> Result<(), RuntimeError> {
        let project = Project::new(&self.settings.projects_dir, &component.project);
        let (marker, resolved) = project.applied(component)?;
        self.put_back(&Prepared::anew(component, &marker, resolved), &project, &marker, cancel).map(drop)
    }

    /// The same of what was started already, by what it was made of. Returns the claim to its mounts.
    pub(super) fn put_back<'a>(
        &'a self,
        prepared: &'a Prepared,
        project: &Project,
        marker: &Marker,
        cancel: &Cancel<'_>,
    ) -> Result<Claim<'a>, RuntimeError> {
        let name = &prepared.component.project;
        self.check_ownership(prepared, Some(marker))?;
        let (in_the_way, claim) = self.check_neighbours(prepared)?;
        self.end(&in_the_way, prepared, cancel.changing)?;
        let label = format!("{}={name}", labels::PROJECT);
        let found = observed(name.clone(), Some(marker), &with_labels(&self.engine, &[label])?, &self.settings.boot_id);
        let gone = Gone::of(&found, &prepared.resolved);
        self.have_images(prepared, &gone.services, &|| (cancel.halted)() || (cancel.changing)())?;
        // To fetch them may have taken hours.
        if (cancel.halted)() {
            return Err(RuntimeError::Cancelled);
        }
        let cancel = cancel.changing;
        self.end(&gone.stranded, prepared, cancel)?;
        self.check_links(prepared, true)?;
        self.unpause(prepared, &gone.paused, cancel)?;
        self.start(prepared, project, &gone.services, cancel)?;
        // What comes to its end from here on does so during this boot.
        let ended = marker.ended.difference(&gone.services).cloned().into_set();
        let boot = marker.boot.as_ref().map(|_| self.settings.boot_id.clone());
        let next = Marker { ended, boot, ..marker.clone() };
        if next != *marker {
            project.mark(&next)?;
        }
        Ok(claim)
    }

    /// The images under the names that they have in the document; those that somebody removed are fetched again.
    fn have_images(
        &self,
        prepared: &Prepared,
        services: &BTreeSet<String>,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), RuntimeError> {
        let names = prepared.resolved.images_by_service();
        for name in names.iter().filter(|(service, _)| services.contains(*service)).map(|(_, name)| name) {
            if !self.has_image(name)? {
                // Only the archive knows where they come from.
                let mut anew = self.prepare(&prepared.component, Source::Anywhere, cancel)?;
                return self.fetch_images(&mut anew, Source::Anywhere, cancel);
            }
        }
        Ok(())
    }

    fn unpause(&self, prepared: &Prepared, ids: &[String], cancel: &dyn Fn() -> bool) -> Result<(), RuntimeError> {
        if ids.is_empty() {
            return Ok(());
        }
        self.change(
            &self.docker,
            prepared,
            ["unpause"].into_iter().chain(ids.iter().map(String::as_str)).map(OsString::from),
            cancel,
        )
    }

    /// `up` of these services and no others: makes what is missing, starts what has stopped, and leaves what runs.
    pub(super) fn start(
        &self,
        prepared: &Prepared,
        project: &Project,
        services: &BTreeSet<String>,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), RuntimeError> {
        if services.is_empty() {
            return Ok(());
        }
        let (document, directory) = (project.resolved(), project.files());
        let args = options(&prepared.component.project, Some((&document, &directory, Path::new("/dev/null"))));
        let verb = ["up", "--detach", "--no-deps", "--no-recreate", "--no-build", "--pull", "never", "--quiet-pull"];
        let words = verb.into_iter().chain(services.iter().map(String::as_str)).map(OsString::from);
        self.change(&self.compose(), prepared, args.into_iter().chain(words), cancel)
    }

    fn change(
        &self,
        client: &Client,
        prepared: &Prepared,
        args: impl Iterator<Item = OsString>,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), RuntimeError> {
        let (args, timeout) = (args.collect(), prepared.component.timeout);
        let call = Call { args, timeout, redactor: &prepared.redactor, parameters: &[], cancel };
        let output = client.run(call)?;
        if output.status.success() { Ok(()) } else { Err(self.compose_failed(prepared, &output)) }
    }
}

impl Prepared {
    /// Of what the containers that are there were made of.
    pub(super) fn anew(component: &Component, marker: &Marker, resolved: Resolved) -> Self {
        Self {
            component: component.clone(),
            content: marker.content_digest,
            // Its files were written before anything of it was started.
            archive: Archive::default(),
            resolved,
            redactor: Redactor::of(component),
            first_use: Default::default(),
        }
    }
}

/// What of a project is to be restored.
#[derive(Debug, Default, PartialEq)]
struct Gone {
    /// Services without a container, or with one that ended.
    services: BTreeSet<String>,
    /// The ids of containers that somebody paused.
    paused: Vec<String>,
    /// The ids of containers that run in a namespace of one of `services`, where they have no network any more. They are
    /// among `services`, too.
    stranded: Vec<String>,
}

impl Gone {
    fn of(found: &Observed, resolved: &Resolved) -> Self {
        let mut gone = Self::default();
        for (service, state) in &found.services {
            match (&state.condition, state.state.as_str()) {
                (Condition::Stopped(_), "paused") => gone.paused.push(state.container.clone()),
                (Condition::Stopped(_) | Condition::Missing, _) => drop(gone.services.insert(service.clone())),
                _ => {}
            }
        }
        let runs = |state: &ServiceState| matches!(state.state.as_str(), "running" | "restarting");
        // Each round finds those that live in the namespaces of what the one before found.
        loop {
            let stranded = found.services.iter().filter(|(service, state)| {
                let lives_with = resolved.lives_with(service);
                runs(state) && !gone.services.contains(*service) && !lives_with.is_disjoint(&gone.services)
            });
            let stranded: Vec<_> =
                stranded.map(|(service, state)| (service.clone(), state.container.clone())).collect();
            if stranded.is_empty() {
                return gone;
            }
            for (service, container) in stranded {
                gone.services.insert(service);
                gone.stranded.push(container);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use repo_model::margo::ProfileType;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_does_not_run_is_put_back_and_what_lives_in_its_namespaces() {
        let document = json!({"services": {
            "web": {}, "migrate": {}, "db": {}, "looping": {}, "frozen": {},
            "proxy": {"network_mode": "service:web"}, "probe": {"pid": "service:proxy"},
            "done": {"network_mode": "service:web"}, "other": {"network_mode": "service:db"},
        }});
        let resolved = Resolved::parse(document.to_string().as_bytes()).unwrap();
        let state = |service: &str, state: &str, condition| {
            let container = if state == "missing" { String::new() } else { format!("id of {service}") };
            let (image, health, started_at, state) = (String::new(), None, String::new(), state.to_owned());
            (service.to_owned(), ServiceState { container, image, state, health, started_at, condition })
        };
        let stopped = || Condition::Stopped("exited with 137".to_owned());
        let services = BTreeMap::from([
            state("web", "exited", stopped()),
            state("migrate", "exited", Condition::Running),
            state("db", "running", Condition::Running),
            state("looping", "restarting", Condition::CrashLooping("restarting".to_owned())),
            state("frozen", "paused", Condition::Stopped("paused".to_owned())),
            state("proxy", "running", Condition::Running),
            state("probe", "running", Condition::Starting),
            state("done", "exited", Condition::Running),
            state("other", "running", Condition::Running),
            state("lost", "missing", Condition::Missing),
        ]);
        let found = Observed {
            kind: ProfileType::Compose,
            project: "p".to_owned(),
            deployment: None,
            component: None,
            input_digest: None,
            condition: stopped(),
            violation: None,
            services,
        };
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let expected = Gone {
            services: names(&["web", "lost", "proxy", "probe"]).into_iter().collect(),
            paused: names(&["id of frozen"]),
            stranded: names(&["id of proxy", "id of probe"]),
        };
        assert_eq!(Gone::of(&found, &resolved), expected);
    }
}
