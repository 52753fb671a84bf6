//! Applications that want what none may have, on real Compose: each is refused by name, and its neighbour runs.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use repo_testkit::faults::listening::{Listening, forward, kept};
use repo_testkit::git;
use serde_json::Value;

use crate::docker::{CHECK, Real, client, docker, variable};
use crate::world::{App, command, finish, kill, push, script, until};

/// Keys of a service that the compose specification has and our list hasn't, with values that compose takes.
const SERVICE: &[(&str, &str)] = &[
    ("annotations", "{a: b}"),
    ("blkio_config", "{weight: 300}"),
    ("build", "."),
    ("cgroup_parent", "/mine"),
    ("container_name", "mine"),
    ("cpu_count", "1"),
    ("cpu_percent", "10"),
    ("cpu_rt_period", "1000"),
    ("cpu_rt_runtime", "1000"),
    ("credential_spec", "{file: spec.json}"),
    ("develop", "{watch: [{path: ., action: rebuild}]}"),
    ("device_cgroup_rules", "['c 1:3 mr']"),
    ("external_links", "[other]"),
    ("gpus", "all"),
    ("isolation", "default"),
    ("mac_address", "'02:42:ac:11:65:43'"),
    ("mem_swappiness", "10"),
    ("oom_kill_disable", "true"),
    ("oom_score_adj", "100"),
    ("post_start", "[{command: [id]}]"),
    ("pre_stop", "[{command: [id]}]"),
    ("provider", "{type: compose-helper, options: {a: b}}"),
    ("pull_policy", "always"),
    ("runtime", "runc"),
    ("scale", "2"),
    ("storage_opt", "{size: 1G}"),
    ("use_api_socket", "true"),
    ("volumes_from", "['container:other']"),
    // Allowed only where the site says so.
    ("privileged", "true"),
    ("pid", "host"),
    ("ipc", "host"),
    ("uts", "host"),
    ("userns_mode", "host"),
    ("cgroup", "host"),
    ("network_mode", "host"),
    ("cap_add", "[SYS_ADMIN]"),
    ("devices", "['/dev/kmsg:/dev/kmsg']"),
    ("security_opt", "['apparmor:unconfined']"),
    ("ports", "['18080:80']"),
    ("volumes", "['/:/host']"),
];

/// Whole files; the word is in the refusal. Nothing is left of the first three once compose has resolved the file, so
/// they are looked for before.
const FILES: &[(&str, &str)] = &[
    ("env_file", "SERVICES    env_file: /etc/shadow\n"),
    ("label_file", "SERVICES    label_file: ../../../etc/passwd\n"),
    ("extends", "SERVICES    extends: {file: '/etc/compose.yaml', service: web}\n"),
    ("include", "include: ['https://git.invalid/x.git']\nSERVICES"),
    ("include", "include: [/etc/compose.yaml]\nSERVICES"),
    ("models", "SERVICES    models: [m]\nmodels: {m: {model: ai/small}}\n"),
    ("driver_opts", "SERVICESnetworks: {default: {driver_opts: {a: b}}}\n"),
    ("external", "SERVICESnetworks: {default: {external: true, name: theirs}}\n"),
    (
        "driver_opts",
        "SERVICES    volumes: ['data:/data']\nvolumes: {data: {driver_opts: {type: none, o: bind, device: /}}}\n",
    ),
    ("external", "SERVICES    volumes: ['data:/data']\nvolumes: {data: {external: true, name: theirs}}\n"),
    ("environment", "SERVICES    secrets: [s]\nsecrets: {s: {environment: HOME}}\n"),
    ("device-syncer", "SERVICES    labels: {device-syncer.device: other}\n"),
    ("com.docker", "SERVICES    labels: {com.docker.compose.project: other}\n"),
    // A container could lead these to the root of the host.
    (
        "service `web` may write",
        "SERVICES    volumes: ['./data:/data']\n  other: {image: margo-test/busybox:1, volumes: ['./data/sub:/host:ro']}\n",
    ),
    ("side by side", "SERVICES    volumes: ['.:/application', './conf:/conf:ro']\n"),
];

#[test]
fn what_no_application_may_have_is_refused_by_name_and_its_neighbour_runs() {
    let real = Real::enrolled();
    let services = "services:\n  web:\n    image: margo-test/busybox:1\n";
    // All wishes of a file are in its refusal, so one file has some of them, as many as fit into a message.
    let some = |keys: &[(&str, &str)]| {
        let lines: String = keys.iter().map(|(key, value)| format!("    {key}: {value}\n")).collect();
        (keys.iter().map(|(key, _)| format!("services.web.{key}")).collect::<Vec<_>>(), format!("{services}{lines}"))
    };
    let keys = SERVICE.chunks(9).map(some);
    let files = FILES.iter().map(|(word, text)| (vec![(*word).to_owned()], text.replace("SERVICES", services)));
    let directory = real.path("application");
    fs::create_dir_all(&directory).unwrap();
    let mut refused = Vec::new();
    for (at, (words, compose)) in keys.chain(files).enumerate() {
        let name = format!("bad-{at}");
        fs::write(directory.join("compose.yaml"), &compose).unwrap();
        real.hand.want(&name, &push(&directory, &format!("hostile/{name}"), "1.0.0"), "hello");
        refused.push((name, words, compose));
    }
    real.hand.want("other", &real.app, "neighbour");
    real.hand.publish();
    real.once().ended(1);
    let codes = ["policy-denied", "artifact-invalid"].map(|code| [format!("hello failed {code}")]);
    let mut wrong = Vec::new();
    for (name, words, compose) in refused {
        let (states, message) = (real.states(&name), real.message(&name));
        if !codes.iter().any(|expected| states == expected) || !words.iter().all(|word| message.contains(word)) {
            wrong.push(format!("{words:?}: {states:?} {message}\n{compose}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(real.states("other"), ["hello installed"]);
    assert_eq!(real.running().len(), 1, "nothing but the neighbour");
}

#[test]
fn a_line_that_only_compose_sees_brings_no_file_of_the_device_into_a_message_or_a_container() {
    let real = Real::enrolled();
    let canary = format!("canary-{}", fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap().trim());
    // Compose quotes a line that isn't a variable's, and a line that is one goes into the container.
    let texts = [format!("{{\"secret\": \"{canary}\"}}\n"), format!("SECRET={canary}\n")];
    let files = [real.home().join("status.key.bak"), real.path("root-only")];
    for (file, text) in files.iter().zip(texts) {
        fs::write(file, text).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let directory = real.path("application");
    fs::create_dir_all(&directory).unwrap();
    let characters = [('\r', "U+000D"), ('\u{85}', "U+0085"), ('\u{2028}', "U+2028"), ('\u{2029}', "U+2029")];
    let all = characters.into_iter().flat_map(|(c, word)| files.iter().map(move |file| (c, word, file)));
    let mut bad = Vec::new();
    for (at, (c, word, file)) in all.enumerate() {
        let name = format!("line-{at}");
        let compose = format!(
            "services:\n  web:\n    image: margo-test/busybox:1 # {c}    env_file: {}\n    command: [sleep, '1000']\n",
            file.display()
        );
        fs::write(directory.join("compose.yaml"), compose).unwrap();
        real.hand.want(&name, &push(&directory, &format!("hostile/{name}"), "1.0.0"), "hello");
        bad.push((name, word));
    }
    real.hand.want("other", &real.app, "neighbour");
    real.hand.publish();
    let run = finish(command(&real.home(), &["once"]).env("DEVICE_SYNCER_LOG", "trace").spawn().unwrap()).ended(1);
    let history = git::git(&real.hand.repository(), &["log", "-p", "status"]);
    let status = real.syncer(&["status", "--output", "json"]).stdout;
    for (place, text) in [("log", &run.stderr), ("history", &history), ("status", &status)] {
        assert!(!text.contains(&canary), "the secret is in the {place}");
    }
    for (name, word) in bad {
        assert_eq!(real.states(&name), ["hello failed artifact-invalid"]);
        let message = real.message(&name);
        assert!(message.contains("compose.yaml:3: ") && message.contains(word), "{message}");
    }
    assert_eq!(real.states("other"), ["hello installed"]);
    assert_eq!(real.running().len(), 1, "nothing but the neighbour");
}

#[test]
fn a_fifo_in_the_place_of_an_applications_file_holds_up_neither_it_nor_its_neighbour_also_after_a_restart() {
    let real = Real::enrolled();
    let directory = real.path("application");
    fs::create_dir_all(directory.join("conf")).unwrap();
    let want = |version: &str, does: &str| {
        let compose = format!(
            "services:\n  web: {{image: 'margo-test/busybox:1', volumes: ['./conf:/conf'], {CHECK}, \
             command: [sh, -c, '{does}; exec sleep 100000']}}\n"
        );
        fs::write(directory.join("compose.yaml"), compose).unwrap();
        fs::write(directory.join("conf/app.conf"), version).unwrap();
        real.hand.want("greeter", &push(&directory, "hostile/fifo", version), "hello");
        real.hand.want("other", &real.app, version);
        real.hand.publish();
    };
    want("1.0.0", "rm /conf/app.conf; mkfifo /conf/app.conf");
    real.once().good();
    let projects = fs::read_dir(real.home().join("projects")).unwrap();
    let mut confs = projects.map(|project| project.unwrap().path().join("files/conf/app.conf"));
    let conf = confs.find(|path| path.parent().unwrap().exists()).expect("its directory is there");
    until("it makes a FIFO", || fs::symlink_metadata(&conf).is_ok_and(|found| found.file_type().is_fifo()));
    want("2.0.0", "true");
    // The second is the one after a restart.
    for _ in 0..2 {
        let mut syncer = command(&real.home(), &["once"]).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(120);
        while syncer.try_wait().unwrap().is_none() {
            if Instant::now() > end {
                kill(&mut syncer);
                panic!("it waits for ever");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        finish(syncer).good();
    }
    assert_eq!(fs::read_to_string(&conf).unwrap(), "2.0.0");
    assert_eq!([real.states("greeter"), real.states("other")], [["hello installed"], ["hello installed"]]);
}

/// Packs and pushes an application of these files.
fn application(real: &Real, name: &str, revision: &str, files: &[(&str, &str)]) -> App {
    let directory = real.path(&format!("{name}-{revision}"));
    fs::create_dir_all(&directory).unwrap();
    files.iter().for_each(|(path, text)| fs::write(directory.join(path), text).unwrap());
    push(&directory, &format!("hostile/{name}"), revision)
}

/// A container that was made without us; it goes with the test.
struct Container(String);

impl Drop for Container {
    fn drop(&mut self) {
        docker(&["rm", "--force", &self.0]);
    }
}

/// A compose project that was made without us; it goes with the test.
struct Project(&'static str);

impl Drop for Project {
    fn drop(&mut self) {
        let down = ["compose", "-p", self.0, "down", "--volumes", "--timeout", "1"];
        let _ = Command::new(client()).args(down).current_dir("/").output();
    }
}

#[test]
fn labels_that_swell_are_refused_and_those_that_are_there_blind_nobody() {
    let real = Real::enrolled();
    // Each line is sixteen times the one before it.
    let names = ["A", "B", "C", "D", "E", "F"];
    let grow = |pair: &[&str]| format!("{}={}\n", pair[1], format!("${{{}}}", pair[0]).repeat(16));
    let env = format!("A={}\n{}", "x".repeat(64), names.windows(2).map(grow).collect::<String>());
    let compose = |name| format!("services: {{web: {{image: 'margo-test/busybox:1', labels: {{l: '${{{name}}}'}}}}}}");
    for (deployment, swollen) in [("greeter", "D"), ("third", "F")] {
        let files = [("compose.yaml", &*compose(swollen)), (".env", &*env)];
        real.hand.want(deployment, &application(&real, &format!("swollen-{deployment}"), "1.0.0", &files), "hello");
    }
    real.hand.want("other", &real.app, "neighbour");
    real.hand.publish();
    real.once().ended(1);
    for (deployment, words) in
        [("greeter", "the labels of `services.web`"), ("third", "the resolved document has more")]
    {
        assert_eq!(real.states(deployment), ["hello failed artifact-invalid"]);
        assert!(real.message(deployment).contains(words), "{}", real.message(deployment));
    }
    assert_eq!(real.states("other"), ["hello installed"]);
    real.hand.drop("greeter");
    real.hand.drop("third");
    real.hand.publish();
    real.once().good();
    let neighbour = real.running();

    // What an earlier version let through is still there, 42 MB in all; then somebody else's.
    let label = |name| {
        docker(&["inspect", "--format", &format!("{{{{index .Config.Labels \"{name}\"}}}}"), &neighbour[0][..64]])
    };
    let ours =
        ["device-syncer.fleet", "device-syncer.device"].map(|name| format!("{name}: '{}', ", label(name))).concat();
    let swollen = |name: &'static str, labels: &str| {
        let service = |n| format!("  s{n}: {{image: 'margo-test/busybox:1', labels: {{{labels}l: *swollen}}}}\n");
        let services = (0..6).map(service).collect::<String>();
        let text = format!("x-swollen: &swollen '{}'\nservices:\n{services}", "x".repeat(7 << 20));
        let file = real.path("swollen.yaml");
        fs::write(&file, text).unwrap();
        docker(&["compose", "-p", name, "-f", &file.display().to_string(), "up", "--detach"]);
        Project(name)
    };
    let project = swollen("hello-b10a7ed0b10a7ed0", &ours);
    assert_eq!(real.running().len(), 7);
    real.once().good();
    assert_eq!(real.running(), neighbour, "they are removed like anything that nobody wants");
    assert_eq!(real.conditions(), Vec::<String>::new());
    drop(project);
    let _theirs = swollen("swollen-and-not-ours", "");
    real.hand.want("other", &real.app, "changed");
    real.hand.publish();
    real.once().good();
    assert_ne!(real.running(), neighbour, "what is changed isn't held up by a stranger's");
    assert_eq!(real.states("other"), ["hello installed"]);
}

#[test]
fn a_container_that_docker_cannot_show_is_told_and_hides_no_neighbour() {
    let real = Real::enrolled();
    real.hand.want("greeter", &real.app, "hello");
    real.hand.publish();
    real.once().good();
    let bad = real.running()[0][..64].to_owned();
    let theirs = Container(docker(&["create", "margo-test/busybox:1"]));
    real.hand.want("other", &real.app, "neighbour");
    real.hand.publish();
    real.once().good();
    let before = real.running();
    let hidden = [bad.clone(), theirs.0.trim().to_owned()].map(|id| format!("/containers/{id}/json "));
    let host = variable("DOCKER_HOST");
    let socket = Path::new(host.strip_prefix("unix://").unwrap()).to_owned();
    let engine = Listening::start(move |head, stream| {
        if hidden.iter().any(|hidden| head.contains(hidden)) {
            let damaged = kept("500 Internal Server Error", &[], r#"{"message": "damaged"}"#);
            return stream.write_all(damaged.as_bytes()).is_ok();
        }
        forward(head, stream, &socket)
    });
    // What compose itself can't read isn't what this is about.
    let program = real.path("docker-of-the-real-engine");
    script(&program, &format!("DOCKER_HOST={host} exec {} \"$@\"", client().display()));
    real.use_engine(&program, &format!("unix://{}", engine.path().display()), "");
    real.once().ended(1).says(&["ProjectUnreadable", "damaged"]);
    assert_eq!(real.conditions(), ["RuntimeUnavailable ProjectUnreadable"]);
    let health = |name: &str| {
        let bytes = git::show(&real.hand.repository(), "heartbeat", "current-state.json").unwrap();
        let state: Value = serde_json::from_slice(&bytes).unwrap();
        let component = &state["deployments"][real.hand.deployment_id(name).to_string()]["components"]["hello"];
        ["state", "health", "drift"].map(|key| component[key].as_str().unwrap().to_owned())
    };
    assert_eq!(health("greeter"), ["installed", "unknown", "unknown"]);
    assert_eq!(health("other"), ["installed", "healthy", "none"]);
    assert_eq!(real.running(), before, "nothing is touched");
    // The neighbour can be changed meanwhile, another one can come, and the culprits are still there.
    real.hand.want("other", &real.app, "changed");
    real.hand.want("third", &real.app, "new");
    real.hand.publish();
    real.once().ended(1);
    assert_eq!([real.states("other"), real.states("third")], [["hello installed"], ["hello installed"]]);
    let now = real.running();
    let kept: Vec<_> = now.iter().filter(|container| before.contains(container)).collect();
    assert_eq!((now.len(), kept.len()), (3, 1), "only the unreadable one is left as it was: {before:?} {now:?}");
    for name in ["greeter", "third"] {
        real.hand.drop(name);
    }
    real.hand.publish();
    // What can't be shown can be removed, and all is well after that.
    real.once().good();
    assert_eq!(real.running().len(), 1);
    assert_eq!(
        (real.states("greeter"), real.states("other")),
        (vec!["hello removed".to_owned()], vec!["hello installed".to_owned()])
    );
    real.once().good();
    assert_eq!(real.conditions(), Vec::<String>::new());
}

#[test]
fn an_application_that_refuses_to_stop_is_changed_and_removed_all_the_same() {
    let real = Real::enrolled();
    real.use_docker(&client(), ", stopTimeout: 2s");
    let service = |more: &str| {
        format!(
            "{{image: 'margo-test/busybox:1', command: [sh, -c, 'trap \"\" TERM; while :; do sleep 1; done'], \
             stop_signal: SIGTERM, stop_grace_period: 8760h, restart: always, {CHECK}{more}}}"
        )
    };
    // Of these each would stop after the one that depends on it.
    let changed = service(", environment: {GREETING: '${GREETING}'}");
    let restarts = service(", depends_on: {changed: {condition: service_started, restart: true}}");
    let chained = service(", environment: {GREETING: '${GREETING}'}, depends_on: [restarts]");
    let kept = service("");
    let services =
        format!("services:\n  changed: {changed}\n  restarts: {restarts}\n  chained: {chained}\n  kept: {kept}\n");
    let first = format!("{services}  gone: {}\n", service(""));
    real.hand.want("other", &real.app, "neighbour");
    real.hand.want("greeter", &application(&real, "stubborn", "1.0.0", &[("compose.yaml", &first)]), "hello");
    real.hand.publish();
    real.once().good();
    let names = ["changed", "restarts", "chained", "kept", "gone"];
    let (before, neighbour) = (names.map(|name| real.of_service(name)), real.of_service("web"));
    real.hand.want("greeter", &application(&real, "stubborn", "2.0.0", &[("compose.yaml", &services)]), "servus");
    real.hand.publish();
    real.once().good();
    let after = names.map(|name| real.of_service(name));
    let is_kept: Vec<_> = before.iter().zip(&after).map(|(before, after)| before == after).collect();
    assert_eq!(is_kept, [false, false, false, true, false], "only what had to stop was killed: {before:?} {after:?}");
    assert_eq!(after.each_ref().map(Vec::len), [1, 1, 1, 1, 0]);
    assert_eq!(real.states("greeter"), ["hello installed"]);
    docker(&["pause", &after[0][0][..64]]);
    real.hand.drop("greeter");
    real.hand.publish();
    real.once().good();
    assert_eq!((real.running().len(), real.of_service("web")), (1, neighbour), "the neighbour never noticed");
    assert!(real.told().join("; ").contains("greeter/hello removing > removed"));
    real.assert_idle();
}

/// Becomes the program that follows, with a kernel that doesn't know Landlock (its system calls answer `ENOSYS`).
const WITHOUT_LANDLOCK: &str = "
import ctypes, os, struct, sys
step = lambda code, yes, no, value: struct.pack('HBBI', code, yes, no, value)
load, if_equal, give = 0x20, 0x15, 0x06
steps = step(load, 0, 0, 0) + step(if_equal, 0, 1, 444) + step(give, 0, 0, 0x50026) + step(give, 0, 0, 0x7fff0000)
steps = ctypes.create_string_buffer(steps, len(steps))
program = ctypes.create_string_buffer(struct.pack('@HP', 4, ctypes.addressof(steps)))
libc = ctypes.CDLL(None, use_errno=True)
for call in [(38, 1, 0, 0, 0), (22, 2, ctypes.byref(program), 0, 0)]:
    if libc.prctl(*call) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1], sys.argv[1:])
";

#[test]
fn a_device_that_can_have_no_sandbox_runs_what_it_shall_and_says_so_on_status() {
    let real = Real::enrolled();
    real.hand.want("greeter", &real.app, "hello");
    real.hand.publish();
    // Root without the right to become somebody else.
    let (mut bare, once) = (Command::new("setpriv"), command(&real.home(), &["once"]));
    bare.args(["--bounding-set=-setuid,-setgid", "python3", "-c", WITHOUT_LANDLOCK]);
    bare.arg(once.get_program()).args(once.get_args()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(bare.spawn().unwrap()).good();
    assert_eq!(real.conditions(), ["SandboxUnavailable NoLandlockAndNotRoot"]);
    assert_eq!(real.states("greeter"), ["hello installed"]);
    // Once the kernel has it, the condition goes.
    real.once().good();
    assert_eq!(real.conditions(), Vec::<String>::new());
}
