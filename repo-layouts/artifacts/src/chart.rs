//! Helm charts: where one is, and what its archive says about it. Nothing is extracted.

mod crds;
mod reference;
pub(crate) mod repository;

use std::collections::BTreeSet;
use std::io::Read;

use repo_model::IntoSet;
use repo_model::margo::helm_values;
use repo_model::margo::parameter::Part;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use reference::{ChartReference, Entry};

use crate::archive::{checked_path, inflate};
use crate::{ArchiveError, Limits, yaml};

/// What is needed to know of a chart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    pub name: String,
    pub version: String,
    /// Its `values.yaml`; an empty mapping without one.
    pub values: Value,
    subcharts: BTreeSet<String>,
}

/// Why a chart is refused.
#[derive(Debug, thiserror::Error)]
pub enum ChartError {
    #[error("can't read the archive")]
    Archive(#[from] ArchiveError),
    /// No `Chart.yaml` in its top-level directory.
    #[error("there is no file `Chart.yaml` in the top-level directory")]
    NoChart,
    #[error("can't read `{file}`")]
    File {
        file: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A chart for other charts.
    #[error("it is a library chart, which can't be installed")]
    Library,
}

impl Chart {
    /// Reads the exact bytes of a `.tgz`.
    pub fn read(gzip: &[u8]) -> Result<Self, ChartError> {
        let mut files = Files::read(gzip)?;
        let about = document("Chart.yaml", &files.chart.take().ok_or(ChartError::NoChart)?)?;
        let (Some(name), Some(version)) = (word(&about["name"]), word(&about["version"])) else {
            return Err(failed("Chart.yaml", "it has no `name` or no `version`"));
        };
        if about["type"] == "library" {
            return Err(ChartError::Library);
        }
        let values = files.values.take().map_or(Ok(Value::Null), |text| document("values.yaml", &text))?;
        let values = match values {
            Value::Null => Value::Object(serde_json::Map::new()),
            values @ Value::Object(_) => values,
            _ => return Err(failed("values.yaml", "it isn't a mapping")),
        };
        let declared = about["dependencies"].as_array().into_iter().flatten();
        let declared = declared.filter_map(|one| word(&one["alias"]).or_else(|| word(&one["name"])));
        let subcharts = files.subcharts.into_iter().chain(declared).into_set();
        Ok(Self { name, version, values, subcharts })
    }

    /// Whether the chart's values know this path. What belongs to its subcharts, or to `global`, is theirs to know.
    pub fn declares(&self, path: &[Part]) -> bool {
        match path.first() {
            Some(Part::Key(key)) if key == "global" || self.subcharts.contains(key) => true,
            _ => helm_values::declares(&self.values, path),
        }
    }
}

/// What Helm, which asks for text here, makes of a value; nothing of one that is empty.
fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn document(file: &'static str, text: &[u8]) -> Result<Value, ChartError> {
    serde_yaml::from_slice(text).map_err(|error| failed(file, yaml::problem(file, &error)))
}

/// The files that are looked at, and the folders of subcharts.
#[derive(Default)]
struct Files {
    chart: Option<Vec<u8>>,
    values: Option<Vec<u8>>,
    subcharts: BTreeSet<String>,
}

impl Files {
    fn read(gzip: &[u8]) -> Result<Self, ArchiveError> {
        let limits = Limits::default();
        let tar = inflate(gzip, &limits)?;
        let mut files = Self::default();
        for (count, entry) in tar::Archive::new(&*tar).entries()?.enumerate() {
            if count == limits.entries {
                return Err(ArchiveError::TooBig { what: "entries", limit: limits.entries });
            }
            files.add(entry?)?;
        }
        Ok(files)
    }

    fn add(&mut self, mut entry: tar::Entry<'_, &[u8]>) -> Result<(), ArchiveError> {
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let Some(path) = checked_path(&name)? else { return Ok(()) };
        let slot = match path.split('/').collect::<Vec<_>>()[..] {
            [_, "Chart.yaml"] => &mut self.chart,
            [_, "values.yaml"] => &mut self.values,
            [_, "charts", subchart, _, ..] => {
                self.subcharts.insert(subchart.to_owned());
                return Ok(());
            }
            _ => return Ok(()),
        };
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        match slot.replace(bytes) {
            Some(_) => Err(ArchiveError::Entry { path: name, rule: "is in the archive twice" }),
            None => Ok(()),
        }
    }
}

fn failed(file: &'static str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ChartError {
    ChartError::File { file, source: source.into() }
}

#[cfg(test)]
mod tests;
