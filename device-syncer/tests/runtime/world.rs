//! One runtime on its own directories, with applications of its own, on the fake or on the real engine.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use device_syncer::artifacts::Cache;
use device_syncer::config::policy::SitePolicy;
use device_syncer::decision::component::{Component, Kind};
use device_syncer::decision::observation::{Condition, Observed};
use device_syncer::runtimes::{
    Cancel, ComposeRuntime, ComposeSettings, Lasting, Runtime, RuntimeError, SandboxSettings, Source,
};
use repo_artifacts::{Lock, pack};
use repo_model::{DeploymentId, Digest, FleetId};
use repo_testkit::fake_docker::FakeDocker;

pub(crate) const IMAGE: &str = "margo-test/busybox:1";

/// A health check that is passed a second after the start, for services whose health isn't what a test is about: without
/// one, a container has started well only after ten seconds. The next one takes its time, because the engine starts three
/// programs for each; what is in /dev/shm goes with a stop.
pub(crate) const CHECK: &str =
    "healthcheck: {test: [CMD, sh, -c, 'mkdir /dev/shm/well || exec sleep 1000'], interval: 1s, timeout: 1h}";

pub(crate) struct World {
    dir: tempfile::TempDir,
    pub(crate) fake: Option<FakeDocker>,
    pub(crate) settings: ComposeSettings,
    pub(crate) runtime: ComposeRuntime,
    pub(crate) component: Component,
    made: Vec<(&'static str, String)>,
}

fn runtime(settings: &ComposeSettings) -> ComposeRuntime {
    let lasting = Lasting::new(&settings.cache_dir);
    ComposeRuntime::new(settings.clone(), lasting.into()).unwrap()
}

impl World {
    pub(crate) fn fake() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let fake = FakeDocker::new(dir.path().join("docker"));
        let environment = BTreeMap::from([("DOCKER_HOST".into(), fake.host().into())]);
        Self::new(dir, repo_testkit::program("fake-docker"), environment, Some(fake))
    }

    /// On the engine that the environment names.
    pub(crate) fn docker() -> Self {
        let environment = ["DOCKER_HOST", "DOCKER_CONFIG"].map(|name| (name.into(), needed(name).into())).into();
        Self::new(tempfile::tempdir().unwrap(), "docker".into(), environment, None)
    }

    fn new(
        dir: tempfile::TempDir,
        docker: PathBuf,
        environment: BTreeMap<std::ffi::OsString, std::ffi::OsString>,
        fake: Option<FakeDocker>,
    ) -> Self {
        let deployment = DeploymentId::from(unique());
        let component = "app".parse().unwrap();
        let settings = ComposeSettings {
            docker,
            compose: None,
            path: std::env::var("PATH").unwrap(),
            home: dir.path().join("home"),
            environment,
            projects_dir: dir.path().join("projects"),
            cache_dir: dir.path().join("cache"),
            fleet: FleetId::from(unique()),
            device: "line-2/press-04".parse().unwrap(),
            boot_id: "boot 1".to_owned(),
            policy: SitePolicy::default(),
            registry: repo_artifacts::Settings::default(),
            sandbox: SandboxSettings { program: repo_testkit::program("device-syncer"), user: 60917 },
            stop_timeout: Duration::from_secs(2),
            pull_timeout: Duration::from_secs(60),
        };
        let component = Component {
            deployment,
            deployment_name: "test".parse().unwrap(),
            project: deployment.runtime_name(&component),
            component,
            repository: "oci://registry.invalid/app".to_owned(),
            revision: "1.0.0".to_owned(),
            lock: None,
            images: Default::default(),
            kind: Kind::Compose { parameters: BTreeMap::new(), secrets: BTreeSet::new() },
            input_digest: Digest::of(b"1"),
            fleet_digest: Digest::of(b"1"),
            wait: true,
            timeout: Duration::from_secs(60),
        };
        let runtime = runtime(&settings);
        Self { dir, fake, settings, runtime, component, made: Vec::new() }
    }

    /// The parameters, and the names of those that are secret.
    fn given(&mut self) -> (&mut BTreeMap<String, String>, &mut BTreeSet<String>) {
        match &mut self.component.kind {
            Kind::Compose { parameters, secrets } => (parameters, secrets),
            Kind::Helm { .. } => panic!("it is a compose component"),
        }
    }

    pub(crate) fn secret(&mut self, name: &str) {
        self.given().1.insert(name.to_owned());
    }

    /// The runtime anew, after a change of `settings`.
    pub(crate) fn restart(&mut self) {
        self.runtime = runtime(&self.settings);
    }

    /// Gives the component an archive with these files, already in the cache, and a new input digest.
    pub(crate) fn archive(&mut self, files: &[(&str, &str)]) {
        let app = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = app.path().join(path);
            repo_git::durable::create_dir_all(path.parent().unwrap(), 0o755).unwrap();
            repo_git::durable::replace_file(&path, text.as_bytes(), 0o644).unwrap();
        }
        self.cached(pack(app.path(), "app").unwrap());
    }

    /// Gives the component one of `fixtures/apps`.
    pub(crate) fn app(&mut self, name: &str) {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/apps").join(name);
        self.cached(pack(&dir, name).unwrap());
    }

    fn cached(&mut self, archive: Vec<u8>) {
        let content = Cache::new(&self.settings.cache_dir).put(&archive).unwrap();
        self.component.lock = Some(Lock { manifest: content, content });
        self.changed();
    }

    /// Sets a parameter, which changes the input digest.
    pub(crate) fn parameter(&mut self, name: &str, value: &str) {
        self.given().0.insert(name.to_owned(), value.to_owned());
        self.changed();
    }

    fn changed(&mut self) {
        let lock = self.component.lock;
        let text = format!("{lock:?} {:?}", self.given().0);
        self.component.input_digest = Digest::of(text.as_bytes());
    }

    pub(crate) fn prefetch_and_apply(&self) -> Result<(), RuntimeError> {
        self.prefetch_and_apply_until(&|| false)
    }

    pub(crate) fn prefetch_and_apply_until(&self, cancel: &dyn Fn() -> bool) -> Result<(), RuntimeError> {
        let prepared = self.runtime.prefetch(&self.component, Source::Anywhere, &|| false)?;
        self.runtime.apply(&prepared, &Cancel::whatever(cancel))
    }

    /// What is observed of the component's project.
    pub(crate) fn observed(&self) -> Option<Observed> {
        self.runtime.observe().unwrap().into_iter().find(|found| found.project == self.component.project)
    }

    /// It runs well, or does so within a minute.
    pub(crate) fn assert_well(&self) {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let found = self.observed().expect("it is there");
            if found.condition == Condition::Running {
                return assert_eq!(found.input_digest, Some(self.component.input_digest));
            }
            assert!(Instant::now() < end && found.condition == Condition::Starting, "{found:?}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Container id and start time of each service.
    pub(crate) fn identities(&self) -> BTreeMap<String, (String, String)> {
        let services = self.observed().map(|found| found.services).unwrap_or_default();
        services.into_iter().map(|(name, state)| (name, (state.container, state.started_at))).collect()
    }

    /// What the engine itself says.
    pub(crate) fn ask(&self, args: &[&str]) -> String {
        let mut command = Command::new(&self.settings.docker);
        let output = command.args(args).envs(&self.settings.environment).output().unwrap();
        assert!(output.status.success(), "docker {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Makes something that isn't ours; it is removed in the end.
    pub(crate) fn make(&mut self, kind: &'static str, name: &str, labels: &[&str]) {
        let mut args = match kind {
            "container" => vec!["create", "--name", name],
            kind => vec![kind, "create"],
        };
        labels.iter().for_each(|label| args.extend(["--label", label]));
        args.push(if kind == "container" { IMAGE } else { name });
        self.ask(&args);
        self.will_remove(kind, name);
    }

    /// Remembers what has to go in the end.
    pub(crate) fn will_remove(&mut self, kind: &'static str, name: &str) {
        self.made.push((kind, name.to_owned()));
    }

    pub(crate) fn project_dir(&self) -> PathBuf {
        self.settings.projects_dir.join(&self.component.project)
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Names of everything that the engine has for this project.
    pub(crate) fn left(&self, kind: &str) -> String {
        let filter =
            |all: String| all.lines().filter(|line| line.contains(&self.component.project)).collect::<String>();
        match kind {
            "container" => filter(self.ask(&["ps", "--all", "--no-trunc", "--format", "{{.Names}}"])),
            kind => filter(self.ask(&[kind, "ls", "--format", "{{.Name}}"])),
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.fake.is_some() {
            return;
        }
        for (kind, name) in &self.made {
            let args: &[&str] = if *kind == "container" { &["rm", "--force", name] } else { &[kind, "rm", name] };
            self.quietly(args);
        }
        // Whatever a failed test left; nothing else has this project's name.
        self.quietly(&[
            "compose",
            "-p",
            &self.component.project,
            "down",
            "--volumes",
            "--remove-orphans",
            "--timeout",
            "1",
        ]);
        self.quietly(&["volume", "rm", &format!("{}_data", self.component.project)]);
    }
}

impl World {
    fn quietly(&self, args: &[&str]) {
        let mut command = Command::new(&self.settings.docker);
        let _ = command.args(args).envs(&self.settings.environment).current_dir("/").output();
    }
}

pub(crate) fn needed(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run the tests with `just test`"))
}

fn unique() -> uuid::Uuid {
    uuid::Uuid::new_v4()
}
