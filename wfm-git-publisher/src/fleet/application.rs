//! Application packages: found by what their `margo.yaml` says they are, which their path must repeat.

use repo_model::ApplicationId;
use repo_model::margo::ApplicationDescription;
use repo_model::problem::{Problem, Problems};

use super::file::SourceFile;

/// A package in the fleet.
#[derive(Debug, Clone, PartialEq)]
pub struct Application {
    /// Where its `margo.yaml` lies.
    pub file: String,
    /// What it says.
    pub description: ApplicationDescription,
}

impl Application {
    /// What deployments call it.
    pub fn key(&self) -> (ApplicationId, String) {
        (self.description.id.clone(), self.description.version.clone())
    }

    /// Reads a package's `margo.yaml`. A broken one breaks the deployments that name it, and nothing else.
    pub(super) fn read(file: &SourceFile, problems: &mut Problems) -> Option<Self> {
        let before = problems.errors().count();
        let bytes = file.bytes(problems)?;
        let description = match ApplicationDescription::read(&file.path, bytes) {
            Ok((description, warnings)) => {
                problems.extend(warnings);
                description
            }
            Err(found) => {
                problems.extend(found);
                return None;
            }
        };
        let expected = format!("applications/{}/{}/margo.yaml", description.id, description.version);
        if file.path != expected {
            let problem = Problem::error(&file.path, format!("describes {} {}", description.id, description.version));
            problems.push(problem.hint(format!("move it to {expected}, or correct its id and version")));
        }
        (problems.errors().count() == before).then(|| Self { file: file.path.clone(), description })
    }
}
