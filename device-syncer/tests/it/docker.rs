//! The same on real Docker: what only an engine can show.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use repo_testkit::engine::{self, Engine};
use repo_testkit::faults::power::Volume;
use repo_testkit::{git, terminate};
use serde_json::Value;

use crate::world::{App, World, command, finish, push, script, text, until};

/// A health check that is passed a second after the start, for services whose health isn't what a test is about: without
/// one, a container has started well only after ten seconds. The next one takes its time, because the engine starts three
/// programs for each; what is in /dev/shm goes with a stop.
pub(crate) const CHECK: &str =
    "healthcheck: {test: [CMD, sh, -c, 'mkdir /dev/shm/well || exec sleep 1000'], interval: 1s, timeout: 1h}";

/// A service that counts in `/data/runs` how often it ran to its end: a migration, of which nobody wants a second one.
pub(crate) const MIGRATION: &str = "  migrate:
    image: margo-test/busybox:1
    network_mode: none
    command: [sh, -c, 'echo >> /data/runs']
    volumes: ['data:/data']
    restart: 'no'
";

/// A device on the real engine. Everything that it made there is removed in the end, and nothing else.
pub(crate) struct Real(World);

impl Deref for Real {
    type Target = World;

    fn deref(&self) -> &World {
        &self.0
    }
}

pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is set: run the tests by `./justw test`"))
}

/// The docker client of these tests.
pub(crate) fn client() -> PathBuf {
    let path = variable("PATH");
    std::env::split_paths(&path)
        .map(|directory| directory.join("docker"))
        .find(|path| path.exists())
        .expect("docker is on the PATH")
}

pub(crate) fn docker(args: &[&str]) -> String {
    text(Command::new(client()).args(args).output().expect("docker runs"))
}

fn id_and_start(container: &Value) -> String {
    format!("{} {}", engine::text(container, "/Id"), engine::text(container, "/State/StartedAt"))
}

impl Real {
    pub(crate) fn enrolled() -> Self {
        let real = Self(World::enrolled());
        real.use_program(&client());
        real
    }

    pub(crate) fn use_program(&self, program: &Path) {
        self.use_docker(program, "");
    }

    /// The same, with more settings of docker.
    pub(crate) fn use_docker(&self, program: &Path, more: &str) {
        self.use_engine(program, &variable("DOCKER_HOST"), more);
    }

    /// The same, with an engine that is said to be elsewhere.
    pub(crate) fn use_engine(&self, program: &Path, host: &str, more: &str) {
        let config = variable("DOCKER_CONFIG");
        let docker = format!("{{program: {}, host: \"{host}\", config: \"{config}\"{more}}}", program.display());
        self.settings_of(&self.home(), &docker, "");
    }

    /// Wants an application of this one file and publishes that.
    pub(crate) fn want(&self, name: &str, compose: &str) {
        let directory = self.path("application");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("compose.yaml"), compose).unwrap();
        // Tests that run at the same time have one registry.
        let fleet = self.hand.fleet();
        let app: App = push(&directory, &format!("{name}-{fleet}"), "1.0.0");
        self.hand.want("greeter", &app, "hello");
    }

    pub(crate) fn label(&self) -> String {
        format!("label=device-syncer.fleet={}", self.hand.fleet())
    }

    /// Our containers, as the engine shows each.
    pub(crate) fn containers(&self) -> Vec<Value> {
        Engine::of_the_tests().containers(&[&format!("device-syncer.fleet={}", self.hand.fleet())])
    }

    /// Id and start of each of our containers, and whether it runs.
    pub(crate) fn running(&self) -> Vec<String> {
        let line = |one: &Value| format!("{} {}", id_and_start(one), one["State"]["Running"]);
        self.containers().iter().map(line).collect()
    }

    /// Id and start of the containers of one service.
    pub(crate) fn of_service(&self, service: &str) -> Vec<String> {
        let found = self.containers();
        let is_of_it = |one: &&Value| one["Config"]["Labels"]["com.docker.compose.service"] == service;
        found.iter().filter(is_of_it).map(id_and_start).collect()
    }

    /// The environment of our only container, as the engine has it and as a process in it sees it.
    fn environment(&self) -> (Vec<String>, Vec<String>) {
        let id = docker(&["ps", "--quiet", "--filter", &self.label()]);
        let known: Vec<String> =
            serde_json::from_str(&docker(&["inspect", "--format", "{{json .Config.Env}}", &id])).unwrap();
        let seen = docker(&["exec", &id, "env", "-0"]);
        (known, seen.split_terminator('\0').map(str::to_owned).collect())
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        let projects = fs::read_dir(self.home().join("projects")).into_iter().flatten().flatten();
        for project in projects.map(|entry| entry.file_name().to_string_lossy().into_owned()) {
            let of_project = format!("label=com.docker.compose.project={project}");
            for (list, remove) in [
                (&["ps", "--all", "--quiet"][..], &["rm", "--force", "--volumes"][..]),
                (&["network", "ls", "--quiet"], &["network", "rm"]),
                (&["volume", "ls", "--quiet"], &["volume", "rm"]),
            ] {
                let listed = Command::new(client()).args(list).args(["--filter", &of_project]).output();
                let listed = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
                for id in listed.unwrap_or_default().lines() {
                    let _ = Command::new(client()).args(remove).arg(id).output();
                }
            }
        }
    }
}

#[test]
fn a_deployment_made_by_hand_runs_changes_and_goes() {
    let real = Real::enrolled();
    real.hand.want("greeter", &real.app, "\"hi there\"");
    real.hand.publish();
    real.once().good();
    assert!(real.environment().1.contains(&"GREETING=hi there".to_owned()));
    let port = docker(&["ps", "--quiet", "--filter", &real.label()]);
    assert_eq!(docker(&["exec", &port, "wget", "-q", "-O", "-", "http://127.0.0.1:8080/"]), "hi there");
    real.hand.want("greeter", &real.app, "servus");
    real.hand.publish();
    real.once().good();
    assert!(real.environment().0.contains(&"GREETING=servus".to_owned()));
    real.hand.drop("greeter");
    real.hand.publish();
    real.once().good();
    assert_eq!(real.running(), Vec::<String>::new());
    let states = real.told().join("; ");
    for once in
        ["greeter/hello none > pending queued", "greeter/* removing > removed", "greeter/hello removing > removed"]
    {
        assert_eq!(states.matches(once).count(), 1, "{once} in {states}");
    }
    real.assert_idle();
}

#[test]
fn values_arrive_in_the_container_exactly_as_they_are_written() {
    let real = Real::enrolled();
    let values = [
        "1.10",
        "no",
        "0x1F",
        "1e3",
        "~",
        "null",
        " spaces ",
        "",
        "$x",
        "${x}",
        "$$",
        "$(id)",
        "`id`",
        "a\"b",
        "a'b",
        "\\n",
        "a\\",
        "two\nlines\n",
        "tab\tbed",
        "# no comment",
        "a: b",
        "- a",
        "{}",
        "[a]",
        "!tag",
        "&a",
        "*a",
        "%",
        "@",
        "=",
        "a=b=c",
        "Grüße",
        "日本語",
        "🦀",
        "a\u{301}",
        "e\u{feff}d",
    ];
    let environment: String = (0..values.len()).map(|n| format!("      V{n}: \"${{V{n}}}\"\n")).collect();
    let compose = format!(
        "services:\n  web:\n    image: margo-test/busybox:1\n    command: [sleep, \"100000\"]\n    {CHECK}\n    environment:\n{environment}"
    );
    real.want("values", &compose);
    real.hand.edit("greeter", |text| {
        let begin = text.find("  parameters:").unwrap();
        let parameter = |(n, value): (usize, &&str)| {
            let value = serde_json::to_string(value).unwrap();
            format!("    v{n}:\n      value: {value}\n      targets: [{{pointer: V{n}, components: [hello]}}]\n")
        };
        format!("{}  parameters:\n{}", &text[..begin], values.iter().enumerate().map(parameter).collect::<String>())
    });
    real.hand.publish();
    real.once().good();
    let (known, seen) = real.environment();
    for (n, value) in values.iter().enumerate() {
        let expected = format!("V{n}={value}");
        assert!(known.contains(&expected), "{expected:?} in {known:?}");
        assert!(seen.contains(&expected), "{expected:?} in {seen:?}");
    }
    real.assert_idle();
}

#[test]
fn nothing_is_touched_when_nothing_changed() {
    let real = Real::enrolled();
    real.hand.want("greeter", &real.app, "hello");
    real.hand.publish();
    real.once().good();
    let (before, status) = (real.running(), real.hand.tip("status"));
    assert_eq!(before.len(), 1);
    // Of many passes on real Docker tells the fleet's test of this name.
    for _ in 0..3 {
        real.once().good();
    }
    assert_eq!((real.running(), real.hand.tip("status")), (before.clone(), status.clone()));
    fs::remove_dir_all(real.clone()).unwrap();
    real.once().good();
    fs::remove_dir_all(real.home().join("cache")).unwrap();
    real.once().good();
    assert_eq!((real.running(), real.hand.tip("status")), (before.clone(), status));
    // Other bytes with the same meaning.
    real.hand.edit("greeter", |text| text.replace("value: hello", "value: \"hello\""));
    real.hand.publish();
    real.once().good();
    assert_eq!(real.running(), before);
    real.assert_idle();
}

#[test]
fn a_look_at_what_runs_starts_no_process() {
    let real = Real::enrolled();
    let (program, calls, log) = (real.path("docker.sh"), real.path("calls"), real.path("run.log"));
    script(&program, &format!("echo \"$*\" >>{}\nexec {} \"$@\"", calls.display(), client().display()));
    real.use_program(&program);
    real.hand.want("greeter", &real.app, "hello");
    real.hand.publish();
    real.once().good();
    let mut run = command(&real.home(), &["run"]);
    let syncer = run.env("DEVICE_SYNCER_LOG", "debug").stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    let passes = || fs::read_to_string(&log).unwrap().matches("a pass begins").count();
    until("it is at rest", || passes() >= 3);
    fs::write(&calls, "").unwrap();
    // Each fourth is made in full.
    until("it looks again and again", || passes() >= 12);
    assert_eq!(fs::read_to_string(&calls).unwrap(), "");
    docker(&["rm", "--force", engine::text(&real.containers()[0], "/Id")]);
    until("it puts back what is gone by docker", || fs::read_to_string(&calls).unwrap().contains("compose"));
    terminate(&syncer);
    finish(syncer).good();
}

#[test]
fn a_container_that_was_taken_away_comes_back() {
    let real = Real::enrolled();
    real.hand.want("greeter", &real.app, "hello");
    real.hand.publish();
    real.once().good();
    real.told();
    let id = docker(&["ps", "--quiet", "--filter", &real.label()]);
    docker(&["rm", "--force", &id]);
    let plan = real.syncer(&["plan"]).ended(3).stdout;
    assert_eq!(plan, "+ greeter/hello: put back: service `web` has no container\n");
    real.once().good();
    assert_eq!(real.running().len(), 1);
    assert_eq!(
        real.told(),
        [
            "greeter/* installed > installing; greeter/hello installed > installing",
            "greeter/* installing > installed; greeter/hello installing > installed",
        ]
    );
    real.assert_idle();
}

/// A docker client that kills whoever called it, once, after `up` has done its work.
fn killing_client(real: &Real) -> PathBuf {
    let (program, mark) = (real.path("docker-that-kills"), real.path("killed"));
    let lines = format!(
        "{} \"$@\"\nresult=$?\ncase \" $* \" in *' up '*) [ -e {mark} ] || {{ : >{mark}; kill -9 $PPID; }};; esac\nexit $result",
        client().display(),
        mark = mark.display()
    );
    script(&program, &lines);
    program
}

#[test]
fn killed_between_up_and_the_status_commit_no_transition_is_told_twice() {
    let real = Real::enrolled();
    real.use_program(&killing_client(&real));
    real.hand.want("greeter", &real.app, "hello");
    real.hand.publish();
    let killed = real.once();
    assert_eq!(killed.code, -1, "it was killed: {killed:?}");
    let before = real.running();
    assert_eq!(before.len(), 1, "and `up` had done its work");
    real.once().good();
    assert_eq!(real.running(), before, "its container is the same");
    assert_eq!(
        real.told(),
        [
            "greeter/* none > pending queued; greeter/hello none > pending queued",
            "greeter/* pending > installing; greeter/hello pending > installing",
            "greeter/* installing > installed; greeter/hello installing > installed",
        ]
    );
    real.assert_idle();
}

/// A docker client after whose every `up` the box goes down: it notes that and kills whoever called it.
fn bomb(real: &Real) -> (PathBuf, PathBuf) {
    let (program, ups) = (real.path("docker-that-takes-the-box-down"), real.path("ups"));
    let lines = format!(
        "{} \"$@\"\nresult=$?\ncase \" $* \" in *' up '*) echo up >>{}; kill -9 $PPID;; esac\nexit $result",
        client().display(),
        ups.display()
    );
    script(&program, &lines);
    (program, ups)
}

#[test]
fn an_application_that_takes_the_box_down_ends_as_failed_though_all_that_was_not_synced_is_lost_each_time() {
    // Dropped last: what cleans up behind `real` reads its home, which lies there.
    let volume = Volume::new(64).expect("a file system: this needs root");
    let real = Real::enrolled();
    text(Command::new("mv").arg(real.home()).arg(volume.path().join("home")).output().unwrap());
    std::os::unix::fs::symlink(volume.path().join("home"), real.home()).unwrap();
    let (program, ups) = bomb(&real);
    real.use_program(&program);
    text(Command::new("sync").arg("--file-system").arg(volume.path()).output().unwrap());
    real.hand.want("greeter", &real.app, "bomb");
    real.hand.publish();
    for boot in ["one", "two", "three"] {
        real.reboot(boot);
        assert_eq!(real.once().code, -1, "it was killed");
        volume.cut().unwrap();
        volume.reboot().unwrap();
        docker(&["kill", &docker(&["ps", "--quiet", "--filter", &real.label()])]);
    }
    real.reboot("four");
    real.once().ended(1);
    real.once().ended(1);
    assert_eq!(fs::read_to_string(ups).unwrap().lines().count(), 3, "it is not tried again");
    assert_eq!(
        real.told(),
        [
            "greeter/* none > pending queued; greeter/hello none > pending queued",
            "greeter/* pending > installing; greeter/hello pending > installing",
            "greeter/* installing > failed crash-loop; greeter/hello installing > failed crash-loop",
        ]
    );
    git::git(&real.clone(), &["fsck", "--strict"]);
    real.use_program(&client());
    real.hand.want("greeter", &real.app, "harmless");
    real.hand.publish();
    real.once().good();
    real.assert_idle();
}

/// Looks for a secret wherever it must not be.
struct Search<'a> {
    canary: &'a str,
    found: Vec<String>,
}

impl Search<'_> {
    fn text(&mut self, place: &str, text: &str) {
        if text.contains(self.canary) {
            self.found.push(place.to_owned());
        }
    }

    /// Every object of a repository, reachable or not, and every file beside them.
    fn repository(&mut self, repository: &Path) {
        let all = git::git(repository, &["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"]);
        let names: Vec<_> = all.lines().map(str::to_owned).collect();
        for (name, object) in names.iter().zip(git::objects(repository, &names)) {
            self.text(name, &String::from_utf8_lossy(&object.unwrap()));
        }
        let refs = git::refs(repository).into_iter().map(|(name, id)| format!("{name} {id}")).collect::<String>();
        self.text("refs", &refs);
    }

    /// The arguments of every process there is.
    fn processes(&mut self) {
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let arguments = fs::read(process.path().join("cmdline")).unwrap_or_default();
            self.text("arguments of a process", &String::from_utf8_lossy(&arguments));
        }
    }
}

#[test]
fn a_secret_reaches_its_container_and_no_repository_log_or_argument() {
    let canary = format!("canary-{}", fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap().trim());
    let real = Real::enrolled();
    // It says its secret and never becomes healthy, so that the end of its log goes into the status.
    real.want(
        "leaky",
        "services:\n  web:\n    image: margo-test/busybox:1\n    environment: {SECRET: \"${SECRET}\"}\n    \
         command: [sh, -c, 'echo \"my secret is $$SECRET\"; exec sleep 100000']\n    \
         healthcheck: {test: [CMD, \"false\"], interval: 1s, retries: 1}\n",
    );
    real.hand.edit("greeter", |text| {
        let begin = text.find("  parameters:").unwrap();
        text[..begin].replace("timeout: 1m", "timeout: 20s")
    });
    real.hand.describe("greeter", |described| {
        described["valuesFrom"] = serde_json::json!({
            "secret": {"deviceFile": "secret", "targets": [{"pointer": "SECRET", "components": ["hello"]}]},
        });
    });
    fs::write(real.home().join("device-files/secret"), &canary).unwrap();
    real.hand.publish();
    let mut search = Search { canary: &canary, found: Vec::new() };
    let syncer = command(&real.home(), &["once"]).env("DEVICE_SYNCER_LOG", "trace").spawn().unwrap();
    let done = AtomicBool::new(false);
    let run = std::thread::scope(|scope| {
        let watched = scope.spawn(|| {
            let mut search = Search { canary: &canary, found: Vec::new() };
            while !done.load(Ordering::Relaxed) {
                search.processes();
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            search.found
        });
        let run = finish(syncer);
        done.store(true, Ordering::Relaxed);
        search.found.extend(watched.join().unwrap());
        run
    });
    assert_eq!(real.states("greeter"), ["hello installing health-timeout"], "{run:?}");
    assert!(real.message("greeter").contains("my secret is "), "{}", real.message("greeter"));
    assert!(real.environment().1.contains(&format!("SECRET={canary}")));
    search.text("log", &run.stderr);
    search.text("output", &run.stdout);
    search.text("status", &real.syncer(&["status", "--output", "json"]).stdout);
    search.text("plan", &real.syncer(&["plan", "--output", "json"]).stdout);
    for repository in [real.hand.repository(), real.clone()] {
        search.repository(&repository);
    }
    assert_eq!(search.found, Vec::<String>::new());

    // And it would have been found: one leak of each kind is planted.
    let planted = real.path("planted.git");
    git::git(Path::new("/"), &["init", "-q", "--bare", &planted.display().to_string()]);
    let leak = real.path("leak");
    fs::write(&leak, format!("x{canary}x")).unwrap();
    git::git(&planted, &["hash-object", "-w", &leak.display().to_string()]);
    search.repository(&planted);
    let mut process = Command::new("sh").args(["-c", "read x", &canary]).stdin(Stdio::piped()).spawn().unwrap();
    // The kernel shows the arguments of a new program a moment after it has begun.
    for _ in 0..1000 {
        if search.found.len() == 1 {
            search.processes();
        }
    }
    process.kill().unwrap();
    process.wait().unwrap();
    search.text("log", &format!("ERROR {canary}"));
    assert_eq!(search.found.len(), 3, "{:?}", search.found);
}

#[test]
fn a_deployment_that_leaves_is_removed_and_its_volume_is_kept() {
    let real = Real::enrolled();
    real.want(
        "keeper",
        &format!(
            "services:\n  web:\n    image: margo-test/busybox:1\n    command: [sleep, \"100000\"]\n    {CHECK}\n    \
             volumes: [\"data:/data\"]\nvolumes: {{data: {{}}}}\n"
        ),
    );
    real.hand.edit("greeter", |text| text[..text.find("  parameters:").unwrap()].to_owned());
    real.hand.publish();
    real.once().good();
    let project = fs::read_dir(real.home().join("projects")).unwrap().next().unwrap().unwrap().file_name();
    let of_project = format!("label=com.docker.compose.project={}", project.to_string_lossy());
    let volumes = || docker(&["volume", "ls", "--quiet", "--filter", &of_project]);
    let volume = volumes();
    assert!(!volume.is_empty());
    real.hand.drop("greeter");
    real.hand.publish();
    real.once().good();
    assert_eq!((real.running(), volumes()), (Vec::new(), volume.clone()));
    docker(&["volume", "rm", &volume]);
    real.assert_idle();
}

#[test]
fn an_image_that_is_not_there_is_told_and_its_neighbour_runs() {
    let real = Real::enrolled();
    real.want("imageless", "services: {web: {image: \"127.0.0.1:1/nothing/here:1\"}}\n");
    real.hand.edit("greeter", |text| text[..text.find("  parameters:").unwrap()].to_owned());
    real.hand.want("other", &real.app, "neighbour");
    real.hand.publish();
    real.once().ended(1);
    assert_eq!(real.states("greeter"), ["hello pending artifact-unavailable"]);
    assert!(real.message("greeter").contains("nothing/here"), "{}", real.message("greeter"));
    assert_eq!(real.states("other"), ["hello installed"]);
    let _: Value = real.report();
}
