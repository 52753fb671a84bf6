//! How much the engine keeps of what containers print.

use std::collections::{BTreeMap, BTreeSet};

use repo_model::IntoSet;
use serde::Deserialize;

use super::ComposeRuntime;
use super::engine::Details;
use crate::runtimes::RuntimeError;

/// The driver that keeps everything where it isn't told otherwise; `local` keeps five files of 20 MB.
const UNBOUNDED: &str = "json-file";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Logging {
    host_config: HostConfig,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HostConfig {
    log_config: LogConfig,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct LogConfig {
    r#type: String,
    config: Option<BTreeMap<String, String>>,
}

impl Details for Logging {
    const TEMPLATE: &str = r#"{"Id":{{json .ID}},"HostConfig":{"LogConfig":{{json .HostConfig.LogConfig}}}}"#;
}

impl LogConfig {
    fn is_bounded(&self) -> bool {
        self.r#type != UNBOUNDED || self.config.as_ref().is_some_and(|config| config.contains_key("max-size"))
    }
}

impl ComposeRuntime {
    /// The services of this device, as `project/service`, of which the engine keeps all that they print, without end.
    pub fn unbounded_logs(&self) -> Result<BTreeSet<String>, RuntimeError> {
        let listed = self.engine.list(&self.owner.common().map(|(name, value)| format!("{name}={value}")))?;
        let ids: Vec<&str> = listed.iter().map(|one| &*one.id).collect();
        let found = self.engine.inspect::<Logging>(&ids)?;
        let is_unbounded =
            |id: &str| matches!(found.get(id), Some(Ok(logging)) if !logging.host_config.log_config.is_bounded());
        let unbounded = listed.iter().filter(|one| is_unbounded(&one.id)).map(|one| one.labels());
        Ok(unbounded.map(|labels| format!("{}/{}", labels.project, labels.service)).into_set())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_engines_is_bounded_by_its_size_alone() {
        for (config, bounded) in [
            (r#"{"Type": "json-file", "Config": {}}"#, false),
            (r#"{"Type": "json-file", "Config": null}"#, false),
            (r#"{"Type": "json-file", "Config": {"max-file": "3"}}"#, false),
            (r#"{"Type": "json-file", "Config": {"max-size": "10m"}}"#, true),
            (r#"{"Type": "local", "Config": {}}"#, true),
            (r#"{"Type": "journald", "Config": null}"#, true),
        ] {
            assert_eq!(serde_json::from_str::<LogConfig>(config).unwrap().is_bounded(), bounded, "{config}");
        }
    }
}
