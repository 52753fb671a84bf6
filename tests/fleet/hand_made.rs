//! One device and its hand-made repository, on the stand-in for docker.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use repo_testkit::application::{App, push};
use repo_testkit::device::{Device, Marks, fake_docker, reboot};
use repo_testkit::fake_docker::FakeDocker;
use repo_testkit::hand::Hand;
use repo_testkit::{comes_within, copy, git, syncer, terminate, text};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::site::registry_name;

const ID: &str = "press-01";

const ONLY: &str = "only";

const SECOND: &str = "second";

/// The host's side of one device: a repository made by hand, and an application in the registry.
pub(crate) struct HandMade {
    dir: TempDir,
    hand: Hand,
    app: App,
}

impl HandMade {
    /// A repository with serial 1 for a device whose home template is made, too.
    pub(crate) fn new() -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let app = push_application(&dir);
        let hand = Hand::make(dir.path().join("host"), ID);
        let made = Self { dir, hand, app };
        let join = made.hand.path("join.json").display().to_string();
        let line = text(syncer(&made.template(), &["init", "--join", &join]).output().expect("the syncer runs"));
        made.hand.enroll(&line.split_whitespace().take(2).collect::<Vec<_>>().join(" "));
        made.greet("one");
        made
    }

    /// The device repository on the host.
    pub(crate) fn host(&self) -> PathBuf {
        self.hand.repository()
    }

    fn template(&self) -> PathBuf {
        self.dir.path().join("template")
    }

    /// Publishes the next serial, with this greeting.
    pub(crate) fn greet(&self, greeting: &str) {
        self.hand.want(ONLY, &self.app, greeting);
        self.hand.publish();
    }

    /// The same, with a second deployment of it.
    pub(crate) fn greet_twice(&self, greeting: &str) {
        self.hand.want(SECOND, &self.app, greeting);
        self.greet(greeting);
    }

    /// Publishes the next serial, with this greeting in two components; where one of them fails, both are put back.
    pub(crate) fn greet_as_two(&self, greeting: &str) {
        self.greet_as_two_with(greeting, &json!({"onFailure": "last-good", "stabiliseSeconds": 1}));
    }

    /// The same, with this policy.
    pub(crate) fn greet_as_two_with(&self, greeting: &str, policy: &Value) {
        self.hand.want(ONLY, &self.app, greeting);
        self.hand.edit(ONLY, |document| {
            let component =
                &document[document.find("      - name: hello").unwrap()..document.find("  parameters:").unwrap()];
            let both = format!("{component}{}", component.replace("name: hello", "name: other"));
            document.replace(component, &both).replace("[hello]", "[hello, other]")
        });
        self.hand.describe(ONLY, |described| {
            described["locks"]["other"] = described["locks"]["hello"].clone();
            described["policy"].clone_from(policy);
        });
        self.hand.publish();
    }

    /// The device on `root` goes down while so many components are on trial.
    pub(crate) fn go_down_on_trial(&self, root: &Path, components: usize) {
        reboot(root);
        let boot = std::fs::read_to_string(root.join("boot-id")).expect("a boot id");
        let mut running = Device::at(ID, root).command(&["run"]).spawn().expect("the syncer runs");
        let is_watched = |one: &&Value| one["onTrial"] == true && one["open"] == 1 && one["bootId"] == *boot.trim();
        let all_are = || self.attempts(root).values().filter(is_watched).count() == components;
        assert!(comes_within(Duration::from_secs(60), all_are), "they are on trial: {:?}", self.attempts(root));
        running.kill().expect("it is killed");
        running.wait().expect("it ends");
    }

    /// Lets the device on `root` run until what it runs has run well for long enough.
    pub(crate) fn stabilise(&self, root: &Path) {
        let device = Device::at(ID, root);
        let set = format!("deployments/{}/last-good/set.json", self.hand.deployment_id(ONLY));
        let mut running = device.command(&["run"]).spawn().expect("the syncer runs");
        let is_there = || git::show(&device.clone_dir(), "refs/syncer/state", &set).is_some();
        assert!(comes_within(Duration::from_secs(60), is_there), "it ran well");
        terminate(&running);
        running.wait().expect("it ends");
    }

    /// The next start of the second component on `root` fails.
    pub(crate) fn let_the_other_fail(&self, root: &Path) {
        let project = self.hand.deployment_id(ONLY).runtime_name(&"other".parse().expect("a name"));
        FakeDocker::new(Device::at(ID, root).docker_dir()).set(&format!("fail-up-{project}"), "the port is taken");
    }

    /// How often the host was told that something came to this state.
    pub(crate) fn told(&self, state: &str) -> usize {
        let states = git::git(&self.host(), &["log", "--format=%(trailers:key=State,valueonly)", "status"]);
        states.lines().filter(|line| line.ends_with(&format!("> {state}"))).count()
    }

    /// Why each component failed, by the host's `status`.
    pub(crate) fn codes(&self) -> Vec<String> {
        let path = format!("deployments/{}.json", self.hand.deployment_id(ONLY));
        let bytes = git::show(&self.host(), "status", &path).expect("it has reported");
        let document: Value = serde_json::from_slice(&bytes).expect("JSON");
        let components = document["components"].as_array().expect("a list").iter();
        components.map(|one| one["error"]["code"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// What a pass of the device on `root` changes if it does anything.
    pub(crate) fn marks(&self, root: &Path) -> Marks {
        Device::at(ID, root).marks()
    }

    /// Publishes the next serial, with nothing in it.
    pub(crate) fn empty(&self) {
        self.hand.drop(ONLY);
        self.hand.publish();
    }

    /// Remembers the host and the device on `root` as they are, for [`HandMade::restore`].
    pub(crate) fn keep(&self, root: &Path) {
        for (from, name) in
            [(self.dir.path().join("host"), "host"), (root.join("home"), "home"), (root.join("docker"), "docker")]
        {
            copy(&from, &self.dir.path().join("kept").join(name));
        }
    }

    /// Puts host and device back as they were kept; false if nothing was.
    pub(crate) fn restore(&self, root: &Path) -> bool {
        let kept = self.dir.path().join("kept");
        if !kept.exists() {
            return false;
        }
        copy(&kept.join("host"), &self.dir.path().join("host"));
        copy(&kept.join("home"), &root.join("home"));
        copy(&kept.join("docker"), &root.join("docker"));
        true
    }

    /// Puts a fresh device onto `root`.
    pub(crate) fn begin(&self, root: &Path) {
        copy(&self.template(), &root.join("home"));
        let (docker, boot_id) = (fake_docker(&root.join("docker")), root.join("boot-id"));
        let settings = format!("docker: {docker}\npoll: 1s\nlimits: {{packs: 2}}\nbootIdFile: {}\n", boot_id.display());
        std::fs::write(root.join("home/device.yaml"), settings).expect("written");
        reboot(root);
    }

    /// One pass of the device on `root`, not yet run.
    pub(crate) fn once(&self, root: &Path) -> Command {
        Device::at(ID, root).once()
    }

    /// What must hold on `root` and on the host.
    pub(crate) fn assert_whole(&self, root: &Path, converged: bool, when: &str) {
        Device::at(ID, root).assert_whole_with(&self.host(), converged, when);
    }

    /// What the device on `root` has begun to apply and isn't done with, by project.
    pub(crate) fn attempts(&self, root: &Path) -> BTreeMap<String, Value> {
        let bytes = git::show(&Device::at(ID, root).clone_dir(), "refs/syncer/state", "attempt.json");
        bytes.map(|bytes| serde_json::from_slice(&bytes).expect("JSON")).unwrap_or_default()
    }

    /// A pass of a device that went down while these were open, before anything is tried again: one alone is blamed, of
    /// several each will be tried alone, and nothing else is either.
    pub(crate) fn assert_blamed(&self, root: &Path, open: &BTreeSet<String>, when: &str) {
        let docker = FakeDocker::new(Device::at(ID, root).docker_dir());
        docker.set("unavailable", "");
        self.once(root).output().expect("the syncer runs");
        docker.unset("unavailable");
        let is_lost = |one: &Value| one["lost"] != 0;
        let is_suspect = |one: &Value| one["suspect"] == true;
        let blamed = self.attempts(root);
        let of = |is: &dyn Fn(&Value) -> bool| blamed.iter().filter(|(_, one)| is(one)).map(|(name, _)| name).collect();
        let (lost, suspects): (Vec<_>, Vec<_>) = (of(&is_lost), of(&is_suspect));
        let expected: [Vec<_>; 2] =
            if open.len() == 1 { [open.iter().collect(), vec![]] } else { [vec![], open.iter().collect()] };
        assert_eq!([lost, suspects], expected, "{when}: {blamed:?}");
    }

    /// The greetings of all containers that have one.
    pub(crate) fn greetings(&self, root: &Path) -> Vec<String> {
        let environments = Device::at(ID, root).environments().into_iter();
        let greeting = |one: String| Some(serde_json::from_str::<Value>(&one).ok()?["GREETING"].as_str()?.to_owned());
        environments.filter_map(greeting).collect()
    }

    /// Passes until all is as wanted, at most three; then one more, which must do nothing.
    pub(crate) fn assert_converges(&self, root: &Path, when: &str) {
        Device::at(ID, root).assert_converges_with(&self.host(), when);
    }
}

fn push_application(dir: &TempDir) -> App {
    let source = dir.path().join("application");
    std::fs::create_dir(&source).expect("made");
    let compose = "services:\n  one:\n    image: margo-test/busybox:1\n    environment: {GREETING: \"${GREETING}\"}\n  \
                   two:\n    image: margo-test/busybox:1\n    volumes: [\"./two.conf:/two.conf:ro\"]\n";
    std::fs::write(source.join("compose.yaml"), compose).expect("written");
    std::fs::write(source.join("two.conf"), "two\n").expect("written");
    push(&source, &registry_name(dir.path()), "1.0.0")
}
