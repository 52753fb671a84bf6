//! Restarts containers of what was applied, each as it is.

use std::time::Instant;

use super::containers::with_labels;
use super::project::Project;
use super::{ComposeRuntime, labels, stopping};
use crate::decision::component::Component;
use crate::decision::restart::Started;
use crate::runtimes::{Redactor, RuntimeError};

impl ComposeRuntime {
    /// The containers of this input, those that others wait for before these; none of services that run to their end, because
    /// a migration that is cut off or run twice can do harm.
    pub fn containers(&self, component: &Component) -> Result<Vec<Started>, RuntimeError> {
        let project = Project::new(&self.settings.projects_dir, &component.project);
        let (_, document) = project.applied(component)?;
        let label = format!("{}={}", labels::PROJECT, component.project);
        let found = with_labels(&self.engine, &[label])?;
        let mut all = Vec::new();
        for service in document.in_order() {
            let of_service =
                found.iter().filter(|one| one.service() == service && one.deployment() == Some(component.deployment));
            all.extend(of_service.map(|one| {
                let state = one.state();
                let runs = matches!(state.state.as_str(), "running" | "restarting");
                Started { container: state.container, at: state.started_at, runs }
            }));
        }
        Ok(all)
    }

    /// Restarts these, one after the other. Each may take its own time to stop, and all together the device's
    /// (`docker.stopTimeout`); one that is gone by now is none. Cancelled between two of them.
    pub fn restart(
        &self,
        component: &Component,
        containers: &[String],
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), RuntimeError> {
        let ids: Vec<&str> = containers.iter().map(String::as_str).collect();
        let periods = stopping::periods(&self.engine, &ids)?;
        let began = Instant::now();
        for id in containers {
            if cancel() {
                return Err(RuntimeError::Cancelled);
            }
            let left = self.settings.stop_timeout.saturating_sub(began.elapsed()).as_secs();
            let Some(period) = periods.get(id) else { continue };
            if let Err(reason) = self.engine.restart(id, (*period).min(left))? {
                let reason = Redactor::of(component).clean(&reason);
                return Err(RuntimeError::ComposeFailed { project: component.project.clone(), reason });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::runtimes::compose::resolved::Resolved;

    #[test]
    fn what_others_wait_for_or_live_in_goes_before_them_and_a_circle_ends() {
        let document = json!({"services": {
            "a-proxy": {"network_mode": "service:web"}, "b-probe": {"pid": "service:a-proxy"},
            "web": {"depends_on": {"zz-db": {"condition": "service_healthy"}}}, "zz-db": {},
            "c": {"depends_on": {"d": {}}}, "d": {"depends_on": {"c": {}}}, "e": {"depends_on": {"not-there": {}}},
        }});
        let resolved = Resolved::parse(document.to_string().as_bytes()).unwrap();
        assert_eq!(resolved.in_order(), ["e", "zz-db", "web", "a-proxy", "b-probe", "c", "d"]);
    }
}
