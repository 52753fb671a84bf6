//! A namespace of the tests' Kubernetes, and what helm and the API say of it.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;

/// The variable with the program of Helm 4.
pub const HELM_4: &str = "MARGO_TEST_HELM4";
/// The variable with the program of Helm 3.
pub const HELM_3: &str = "MARGO_TEST_HELM3";

/// A namespace that goes when this is dropped.
#[derive(Debug)]
pub struct Cluster {
    helm: PathBuf,
    kubeconfig: String,
    namespace: String,
    home: TempDir,
}

/// One revision of a release, as `helm history` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Revision {
    /// Counted from 1.
    pub revision: u32,
    /// `deployed` and the like.
    pub status: String,
    /// What was said of it when it was made.
    pub description: String,
}

/// One revision of a release, as helm keeps it at the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Where it is kept.
    pub namespace: String,
    pub release: String,
    /// Counted from 1.
    pub revision: u32,
    /// `deployed` and the like.
    pub status: String,
    /// The id of the deployment that it belongs to.
    pub deployment: String,
}

impl Cluster {
    /// The namespace, which the first release in it makes, with the helm that a variable names.
    ///
    /// # Panics
    /// If the tests' Kubernetes isn't there.
    pub fn new(helm: &str, namespace: String) -> Self {
        let home = TempDir::new().expect("a temporary directory");
        Self { helm: variable(helm).into(), kubeconfig: variable("MARGO_TEST_KUBECONFIG"), namespace, home }
    }

    /// The program that is asked.
    pub fn program(&self) -> &Path {
        &self.helm
    }

    /// How the API is reached.
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// Where everything of this test is.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// What `device.yaml` says under `helm`, with this program.
    pub fn settings(&self, program: &Path) -> String {
        format!("{{program: {}, kubeconfig: {}, context: margo-test}}", program.display(), self.kubeconfig)
    }

    /// Helm in this namespace.
    pub fn helm(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.helm);
        command.args(args).args(["--kubeconfig", &self.kubeconfig, "--namespace", &self.namespace]);
        command.env("HOME", self.home.path());
        command
    }

    /// `kubectl`, in no namespace but what the arguments say.
    pub fn kubectl<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(variable("MARGO_TEST_KUBERNETES"));
        command.arg("kubectl").arg(format!("--kubeconfig={}", self.kubeconfig)).args(args);
        command
    }

    /// All revisions of a release, oldest first; none if there is no such release.
    pub fn history(&self, release: &str) -> Vec<Revision> {
        self.ask(&["history", release])
    }

    /// The values that a release was given; nothing if there is no such release.
    pub fn values(&self, release: &str) -> Value {
        self.ask(&["get", "values", release])
    }

    fn ask<T: for<'a> Deserialize<'a> + Default>(&self, args: &[&str]) -> T {
        let output = self.helm(&[args, &["--output", "json"]].concat()).output().expect("helm runs");
        if output.status.success() {
            return serde_json::from_slice(&output.stdout).expect("JSON");
        }
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("release: not found"), "helm {args:?}: {said}");
        T::default()
    }

    /// The names of all objects of a kind in the namespace, as `kind/name`.
    pub fn objects(&self, kind: &str) -> Vec<String> {
        let output = self.kubectl(["get", kind, "--output", "name", "--namespace", &self.namespace]).output();
        let output = output.expect("kubectl runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }

    /// What helm keeps of a device's releases in all namespaces.
    ///
    /// # Panics
    /// If the API doesn't answer.
    pub fn records(&self, fleet: &str, device: &str) -> Vec<Record> {
        let selector = format!("owner=helm,device-syncer.fleet={fleet},device-syncer.device={device}");
        let args = ["get", "secrets", "--all-namespaces", "--selector", &selector, "--output", "json"];
        let output = self.kubectl(args).output().expect("kubectl runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let secrets: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        secrets["items"].as_array().into_iter().flatten().map(record).collect()
    }
}

fn record(secret: &Value) -> Record {
    let metadata = &secret["metadata"];
    let label = |name: &str| metadata["labels"][name].as_str().unwrap_or_default().to_owned();
    Record {
        namespace: metadata["namespace"].as_str().unwrap_or_default().to_owned(),
        release: label("name"),
        revision: label("version").parse().unwrap_or(0),
        status: label("status"),
        deployment: label("device-syncer.deployment"),
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.revision, self.status)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let args = ["delete", "namespace", &self.namespace, "--ignore-not-found", "--wait=false"];
        let _ = self.kubectl(args).output();
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run the tests by `./justw test`"))
}
