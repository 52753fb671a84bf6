//! One device and its host, on the stand-in for docker or on the real one.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use repo_testkit::cluster::Cluster;
use repo_testkit::fake_docker::FakeDocker;
use repo_testkit::hand::Hand;
use repo_testkit::{comes_within, git, invariants, program};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::output;

pub(crate) use repo_testkit::application::{App, push};
pub(crate) use repo_testkit::{registry, text};

/// The id of the device in these tests.
pub(crate) const DEVICE: &str = "press-01";

/// A device, its host, and what runs its containers.
pub(crate) struct World {
    dir: TempDir,
    home: PathBuf,
    pub(crate) hand: Hand,
    pub(crate) fake: FakeDocker,
    pub(crate) app: App,
    told: Cell<usize>,
}

/// What a command of the syncer came to.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl World {
    /// A device that has joined, and a repository that knows nothing of it yet.
    pub(crate) fn joined() -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let hand = Hand::make(dir.path().join("hand"), DEVICE);
        let fake = FakeDocker::new(dir.path().join("docker"));
        let app = push(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/apps/hello"), "hello", "1.0.0");
        let home = dir.path().join("home");
        let world = Self { dir, home, hand, fake, app, told: Cell::new(0) };
        world.init(&world.home());
        world.settings("");
        world
    }

    /// A device that may report, with nothing published yet.
    pub(crate) fn enrolled() -> Self {
        let world = Self::joined();
        world.hand.enroll(&world.key());
        world
    }

    /// A device on which `greeter` runs as published with serial 1.
    pub(crate) fn running() -> Self {
        let world = Self::enrolled();
        world.hand.want("greeter", &world.app, "hello");
        world.hand.publish();
        world.once().good();
        world.told();
        world
    }

    /// A device that gave up an update of `greeter`, and goes on failing.
    pub(crate) fn failed() -> Self {
        let world = Self::running();
        world.fake.set("fail-up", "no such option");
        world.hand.want("greeter", &world.app, "servus");
        world.hand.publish();
        world.once().ended(1);
        assert_eq!(world.states("greeter"), ["hello failed compose-failed"]);
        world
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.home.clone()
    }

    /// Makes another home, and uses that from now on.
    pub(crate) fn move_home(&mut self, home: PathBuf) {
        self.home = home;
        self.init(&self.home);
        self.settings("");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn clone(&self) -> PathBuf {
        self.home().join("repository.git")
    }

    /// The device's enrolment line, without its id.
    pub(crate) fn key(&self) -> String {
        let line = self.init(&self.home());
        line.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
    }

    /// Makes a home, and gives the line that enrols it.
    pub(crate) fn init(&self, home: &Path) -> String {
        let join = self.hand.path("join.json");
        syncer(home, &["init", "--join", &join.display().to_string()]).good().stdout
    }

    /// Writes the device's settings: the stand-in for docker, and more lines of YAML.
    pub(crate) fn settings(&self, more: &str) {
        let docker = format!("{{program: {}, host: \"{}\"}}", program("fake-docker").display(), self.fake.host());
        self.settings_of(&self.home(), &docker, more);
    }

    pub(crate) fn settings_of(&self, home: &Path, docker: &str, more: &str) {
        let boot_id = self.path("boot-id");
        if !boot_id.exists() {
            fs::write(&boot_id, "first boot").expect("written");
        }
        // Nobody keeps the clock of the machine of the tests.
        let clock = if more.contains("clock:") { "" } else { "clock: {rtc: true}\n" };
        let text = format!(
            "docker: {docker}\nregistries: {{plainHttp: [\"{}\"]}}\nbootIdFile: {}\n{clock}{more}",
            registry(),
            boot_id.display()
        );
        fs::write(home.join("device.yaml"), text).expect("written");
    }

    /// Adds lines to the settings as they are.
    pub(crate) fn add_settings(&self, lines: &str) {
        let file = self.home().join("device.yaml");
        let settings = fs::read_to_string(&file).expect("read");
        fs::write(&file, settings + lines).expect("written");
    }

    /// Adds mirrors of a registry to the settings as they are.
    pub(crate) fn add_mirrors(&self, of: &str, mirrors: &[&str], only: bool) {
        let file = self.home().join("device.yaml");
        let settings = fs::read_to_string(&file).expect("read");
        let mirrors = json!({of: mirrors}).to_string();
        let with =
            settings.replace("registries: {", &format!("registries: {{mirrors: {mirrors}, mirrorsOnly: {only}, "));
        assert_ne!(with, settings);
        fs::write(&file, with).expect("written");
    }

    /// Writes each wrong value into `device.yaml` as `settings` places it; each of these commands ends with 1 and says the words
    /// beside the value.
    pub(crate) fn assert_mistakes(
        &self,
        commands: &[&str],
        settings: impl Fn(&str) -> String,
        mistakes: &[(&str, &str)],
    ) {
        for (value, words) in mistakes {
            self.settings(&settings(value));
            commands.iter().for_each(|command| _ = self.syncer(&[command]).ended(1).says(&[words]));
        }
    }

    pub(crate) fn once(&self) -> Run {
        self.syncer(&["once"])
    }

    pub(crate) fn syncer(&self, args: &[&str]) -> Run {
        syncer(&self.home(), args)
    }

    /// The State trailers of each commit on the host's `status` since this was last asked, ids replaced by names.
    pub(crate) fn told(&self) -> Vec<String> {
        let mut told = self.history(&self.hand.repository());
        told.drain(..self.told.replace(told.len()).min(told.len()));
        told
    }

    /// The State trailers of each commit on a repository's `status`, oldest first.
    pub(crate) fn history(&self, repository: &Path) -> Vec<String> {
        if git::tip(repository, "status").is_none() {
            return Vec::new();
        }
        let format = "--format=%(trailers:key=State,valueonly,separator=;)%x00";
        let log = git::git(repository, &["log", "--reverse", format, "status"]);
        let names: Vec<_> = ["greeter", "other", "third"]
            .map(|name| (self.hand.deployment_id(name).to_string(), name))
            .into_iter()
            .collect();
        log.split_terminator('\0')
            .map(|states| {
                let states = states.trim_start_matches('\n').replace(';', "; ");
                names.iter().fold(states, |text, (id, name)| text.replace(id.as_str(), name))
            })
            .collect()
    }

    /// The subject of the newest commit on the host's `status`.
    pub(crate) fn subject(&self) -> String {
        git::git(&self.hand.repository(), &["log", "-1", "--format=%s", "status"])
    }

    /// The syncer's report on the host's `status`.
    pub(crate) fn report(&self) -> Value {
        let bytes = git::show(&self.hand.repository(), "status", "syncer.json").expect("it has reported");
        serde_json::from_slice(&bytes).expect("JSON")
    }

    /// The conditions on the host's `status`, as `Type Reason`.
    pub(crate) fn conditions(&self) -> Vec<String> {
        let report = self.report();
        let text = |one: &Value| format!("{} {}", one["type"].as_str().unwrap(), one["reason"].as_str().unwrap());
        report["conditions"].as_array().expect("a list").iter().map(text).collect()
    }

    /// The state and code of each component of a deployment on the host's `status`.
    pub(crate) fn states(&self, name: &str) -> Vec<String> {
        let path = format!("deployments/{}.json", self.hand.deployment_id(name));
        let Some(bytes) = git::show(&self.hand.repository(), "status", &path) else { return Vec::new() };
        let document: Value = serde_json::from_slice(&bytes).expect("JSON");
        let text = |one: &Value| {
            let code = one["error"]["code"].as_str().map(|code| format!(" {code}")).unwrap_or_default();
            format!("{} {}{code}", one["name"].as_str().unwrap(), one["state"].as_str().unwrap())
        };
        document["components"].as_array().expect("a list").iter().map(text).collect()
    }

    /// The words that go with a component's code.
    pub(crate) fn message(&self, name: &str) -> String {
        let path = format!("deployments/{}.json", self.hand.deployment_id(name));
        let bytes = git::show(&self.hand.repository(), "status", &path).expect("it has reported");
        let document: Value = serde_json::from_slice(&bytes).expect("JSON");
        document["components"][0]["error"]["message"].as_str().unwrap_or_default().to_owned()
    }

    /// What runs on the stand-in: name, start and environment of each container.
    pub(crate) fn containers(&self) -> Vec<String> {
        let bytes = fs::read(self.fake.dir().join("state.json")).unwrap_or_default();
        let state: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let all = state["containers"].as_object().into_iter().flatten();
        all.map(|(id, one)| format!("{id} {} {} {}", one["name"], one["started_at"], one["service"]["environment"]))
            .collect()
    }

    /// Stops everything on the stand-in, as a person would.
    pub(crate) fn stop_all(&self) {
        let bytes = fs::read(self.fake.dir().join("state.json")).expect("something runs");
        let state: Value = serde_json::from_slice(&bytes).expect("JSON");
        let ids = state["containers"].as_object().into_iter().flatten().map(|(id, _)| id);
        let mut docker = Command::new(program("fake-docker"));
        text(docker.env("DOCKER_HOST", self.fake.host()).arg("kill").args(ids).output().expect("it runs"));
    }

    /// The greetings of all containers on the stand-in.
    pub(crate) fn greetings(&self) -> Vec<String> {
        let bytes = fs::read(self.fake.dir().join("state.json")).unwrap_or_default();
        let state: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let all = state["containers"].as_object().into_iter().flatten();
        all.map(|(_, one)| one["service"]["environment"]["GREETING"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// What the runtime calls the component `hello` of a deployment.
    pub(crate) fn project(&self, name: &str) -> String {
        self.hand.deployment_id(name).runtime_name(&"hello".parse().unwrap())
    }

    /// What the next pass must not change when there is nothing to do.
    pub(crate) fn marks(&self) -> (Vec<Option<String>>, Vec<String>, Vec<String>) {
        let branches = ["desired", "status"].map(|branch| git::tip(&self.hand.repository(), branch));
        let state = git::try_git(&self.clone(), &["rev-parse", "-q", "--verify", "refs/syncer/state"]);
        let state = Some(String::from_utf8_lossy(&state.stdout).into_owned());
        (branches.into_iter().chain([state]).collect(), self.fake.calls(), self.containers())
    }

    /// The invariants, by stock git. `converged`: the device has nothing left to do or to tell.
    pub(crate) fn assert_whole(&self, converged: bool) {
        self.assert_whole_at(None, converged);
    }

    /// The same, with the device's releases.
    pub(crate) fn assert_whole_at(&self, cluster: Option<&Cluster>, converged: bool) {
        let (host, home) = (self.hand.repository(), self.home());
        let world = invariants::World {
            host: Some(&host),
            device: Some(&home),
            runtime: Some(self.fake.dir()),
            cluster,
            converged,
            ..Default::default()
        };
        world.assert_whole("after the test");
    }

    /// A pass that finds nothing to do and does nothing.
    pub(crate) fn assert_idle(&self) {
        let before = self.marks();
        self.once().good();
        assert_eq!(self.marks(), before);
        self.assert_whole(true);
    }

    /// A pass that must refuse what the host shows: what runs keeps running, and `status` says why: the reason of the
    /// condition is the code in PascalCase.
    pub(crate) fn assert_refused(&self, code: &str, words: &[&str]) -> Run {
        let reason = &pascal_case(code);
        let (calls, containers) = (self.fake.calls(), self.containers());
        let run = self.once();
        assert_eq!(run.code, 1, "{run:?}");
        for word in words.iter().chain([&reason.as_str()]) {
            assert!(run.stderr.contains(word), "{word} in {}", run.stderr);
        }
        assert_eq!((self.fake.calls(), self.containers()), (calls, containers), "what runs is left alone");
        assert_eq!(self.conditions(), [format!("Stalled {reason}")]);
        assert_eq!(self.subject(), format!("Stalled: {reason} (serial {})", self.report()["adopted"]["serial"]));
        let plan = self.syncer(&["plan"]);
        assert_eq!(plan.code, 1, "{plan:?}");
        assert!(plan.stdout.contains(reason), "{plan:?}");
        self.assert_quiet();
        run
    }

    /// One more pass says nothing that wasn't said.
    pub(crate) fn assert_quiet(&self) {
        let before = self.marks();
        self.once();
        assert_eq!(self.marks(), before);
    }

    /// The next good commit is adopted, and everything is well again.
    pub(crate) fn assert_cured(&self) {
        let greeting = format!("cured by {}", self.hand.serial() + 1);
        self.hand.want("greeter", &self.app, &greeting);
        self.hand.publish();
        let run = self.once().good();
        assert_eq!(self.greetings(), [greeting], "{run:?}");
        assert_eq!(self.report()["adopted"]["serial"], self.hand.serial());
        assert!(!self.conditions().iter().any(|one| one.starts_with("Stalled")), "{:?}", self.conditions());
    }

    /// Another boot, as after a power cut.
    pub(crate) fn reboot(&self, boot: &str) {
        fs::write(self.path("boot-id"), boot).expect("written");
    }
}

impl Run {
    /// It must have ended well.
    pub(crate) fn good(self) -> Self {
        self.ended(0)
    }

    /// It must have ended with this exit code.
    pub(crate) fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}\n{}", self.stdout, self.stderr);
        self
    }

    /// Standard error must have these words.
    pub(crate) fn says(self, words: &[&str]) -> Self {
        for word in words {
            assert!(self.stderr.contains(word), "{word} in {}", self.stderr);
        }
        self
    }
}

/// `serial-rollback` as the reason of a condition: `SerialRollback`.
fn pascal_case(code: &str) -> String {
    let word = |word: &str| word[..1].to_uppercase() + &word[1..];
    code.split('-').map(word).collect()
}

/// A command of the syncer, not yet run.
pub(crate) fn command(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_device-syncer"));
    command.arg("--home").arg(home).args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Makes a program of these lines of shell.
pub(crate) fn script(path: &Path, lines: &str) {
    fs::write(path, format!("#!/bin/sh\n{lines}\n")).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set");
}

/// Runs a command of the syncer to its end.
pub(crate) fn syncer(home: &Path, args: &[&str]) -> Run {
    let run = finish(command(home, args).spawn().expect("the syncer starts"));
    output::is_as_described(args, &run);
    run
}

pub(crate) fn finish(child: Child) -> Run {
    let output = child.wait_with_output().expect("the syncer ends");
    Run {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Waits for something that must come; a minute is for machines under load.
pub(crate) fn until(what: &str, so: impl Fn() -> bool) {
    assert!(comes_within(Duration::from_secs(60), so), "{what}");
}

/// Kills a process, and waits until it is gone.
pub(crate) fn kill(child: &mut Child) {
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}
