//! `doctor`, `logs` and `diagnostics`: what is wrong is found, named with what to do, and nothing is changed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use repo_model::Digest;
use repo_testkit::faults::connect_proxy::ConnectProxy;
use repo_testkit::faults::scripted_host::{Host, Reply, answer};
use repo_testkit::foreign_host::Options;
use repo_testkit::pki::{Authority, Validity};
use repo_testkit::private_engine::PrivateEngine;
use repo_testkit::program;
use serde_json::{Value, json};

use crate::docker::{Real, client, docker};
use crate::full::Tmpfs;
use crate::https::{SECRET, abroad, join};
use crate::world::{Run, World, command, finish, kill, registry, script, until};

const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const CONFIG: &str = "application/vnd.docker.container.image.v1+json";

/// What `doctor` says: by check, the result and what was found with what to do.
fn doctor(world: &World) -> (i32, BTreeMap<String, (String, String)>) {
    rows(world.syncer(&["doctor", "--output", "json"]))
}

fn rows(run: Run) -> (i32, BTreeMap<String, (String, String)>) {
    let all: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}"));
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let row = |row: &Value| {
        let said = format!("{} | {}", text(row, "found"), text(row, "todo"));
        (text(row, "check"), (text(row, "result"), said))
    };
    let rows: BTreeMap<_, _> = all["checks"].as_array().unwrap().iter().map(row).collect();
    let worst = |word: &str| rows.values().any(|(result, _)| result == word);
    let expected = if worst("failed") {
        1
    } else if worst("warning") {
        4
    } else {
        0
    };
    assert_eq!(run.code, expected, "the exit code says the worst: {rows:?}");
    (run.code, rows)
}

fn assert_row(rows: &BTreeMap<String, (String, String)>, check: &str, result: &str, words: &[&str]) {
    let (found, said) = rows.get(check).unwrap_or_else(|| panic!("{check} in {rows:?}"));
    assert_eq!(found, result, "{check}: {said}");
    words.iter().for_each(|word| assert!(said.contains(word), "{word} in {check}: {said}"));
}

/// Every file below a directory, with its inode and its change.
fn files(directory: &Path) -> Vec<(PathBuf, u64, i64, i64)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let (path, found) = (entry.path(), entry.metadata().unwrap());
        if found.is_dir() {
            all.extend(files(&path));
        }
        all.push((path, found.ino(), found.ctime(), found.ctime_nsec()));
    }
    all.sort();
    all
}

#[test]
fn doctor_finds_a_device_that_is_well_beside_a_syncer_and_without_one_and_writes_nothing() {
    let world = World::running();
    let before = files(&world.home());
    let (_, rows) = doctor(&world);
    assert_eq!(files(&world.home()), before);
    for check in ["device", "settings", "secrets", "host: repository", "docker", "compose"] {
        assert_row(&rows, check, "ok", &[]);
    }
    assert_row(&rows, "device", "ok", &["press-01", env!("CARGO_PKG_VERSION")]);
    assert_row(&rows, "syncer", "warning", &["not at work", "systemctl start device-syncer"]);
    assert_row(&rows, &format!("registry: {}", registry()), "ok", &[]);
    let table = world.syncer(&["doctor"]).stdout;
    assert!(table.contains("\nhost: repository") && table.contains("\nsyncer "), "{table}");

    let tip = world.hand.tip("heartbeat");
    let mut running = command(&world.home(), &["run"]).spawn().unwrap();
    until("it works", || world.hand.tip("heartbeat") != tip);
    assert_row(&doctor(&world).1, "syncer", "ok", &["at work"]);
    kill(&mut running);
}

#[test]
fn doctor_names_what_is_wrong_on_the_device_and_what_to_do() {
    let world = World::running();
    world.fake.set("unavailable", "");
    fs::set_permissions(world.home().join("hmac.key"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::rename(world.hand.repository(), world.path("away.git")).unwrap();
    let (code, rows) = doctor(&world);
    assert_eq!(code, 1);
    assert_row(&rows, "docker", "failed", &["can't be used", "is the engine running"]);
    assert_row(&rows, "secrets", "failed", &["hmac.key` has mode 644", "chmod go-rwx"]);
    assert_row(&rows, "host: repository", "failed", &["HostUnreachable"]);
    world.settings("repot: 5m\n");
    let (_, rows) = doctor(&world);
    assert_row(&rows, "settings", "failed", &["repot", "device.yaml:5:1"]);
    assert_row(&rows, "device", "ok", &["press-01"]);
    fs::remove_dir_all(world.home()).unwrap();
    world.syncer(&["doctor"]).ended(1).says(&["is not a device's home"]);
}

#[test]
fn doctor_says_where_room_is_short_for_the_home_and_for_images() {
    let mut world = World::joined();
    let (docker, tool) = (world.path("docker.sh"), program("fake-docker"));
    for (options, result, words) in [
        ("32m", "failed", " MiB free in"),
        ("256m", "warning", " MiB free in"),
        ("1g,nr_inodes=200", "warning", ", and hardly a file more (0)"),
        ("1g", "ok", " MiB free in"),
    ] {
        let disk = Tmpfs::new(world.path("disk"), options);
        world.move_home(disk.path().join("home"));
        let images = disk.path().display();
        script(&docker, &format!("[ \"$1\" != info ] || exec echo '{images}'\nexec {} \"$@\"", tool.display()));
        let settings = format!("{{program: {}, host: \"{}\"}}", docker.display(), world.fake.host());
        world.settings_of(&world.home(), &settings, "");
        if options.contains("nr_inodes") {
            (0..).take_while(|number| fs::write(disk.path().join(format!("{number}")), "").is_ok()).count();
        }
        let (_, rows) = doctor(&world);
        let todo = if result == "ok" { "" } else { "make room: what runs keeps running" };
        for check in ["room: home", "room: images"] {
            assert_row(&rows, check, result, &[words, todo]);
        }
    }
}

#[test]
fn a_check_that_hangs_is_said_after_ten_seconds_and_holds_up_no_other() {
    let world = World::running();
    let hangs = world.path("hangs");
    script(&hangs, "exec sleep 30");
    let docker = format!("{{program: {}, host: \"{}\"}}", hangs.display(), world.fake.host());
    world.settings_of(&world.home(), &docker, "");
    let began = Instant::now();
    let (_, rows) = doctor(&world);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    for check in ["docker", "compose"] {
        assert_row(&rows, check, "failed", &["no answer within 10 s"]);
    }
    assert_row(&rows, &format!("registry: {}", registry()), "ok", &[]);
    assert_row(&rows, "host: repository", "ok", &["`desired` is at "]);
    assert_row(&rows, "secrets", "ok", &[]);
}

#[test]
fn doctor_goes_the_way_to_a_host_over_https_and_says_where_it_ends() {
    let account = Some(("press-01".to_owned(), SECRET.to_owned()));
    let (world, mut host, _proxy) = abroad(Options { account, ..Options::default() });
    let (_, rows) = doctor(&world);
    for check in ["host: name", "host: connection", "host: trust", "host: credentials", "host: repository"] {
        assert_row(&rows, check, "ok", &[]);
    }
    assert_row(&rows, "host: account", "ok", &["no end that is known"]);
    host.set(|options| options.account = Some(("press-01".to_owned(), "an0ther".to_owned())));
    let (_, rows) = doctor(&world);
    assert_row(&rows, "host: trust", "ok", &[]);
    assert_row(&rows, "host: credentials", "failed", &["Unauthorized", "device join"]);
    assert!(!rows.contains_key("host: repository"), "it wasn't reached: {rows:?}");
    assert!(!format!("{rows:?}").contains(SECRET));

    let url: Value = serde_json::from_slice(&fs::read(world.home().join("join.json")).unwrap()).unwrap();
    let stranger = repo_testkit::pki::Authority::new("stranger");
    join(&world, url["url"].as_str().unwrap(), stranger.certificate(), true);
    let (_, rows) = doctor(&world);
    assert_row(&rows, "host: connection", "ok", &[]);
    assert_row(&rows, "host: trust", "failed", &["CertificateUnknownAuthority", "host.ca"]);
    join(&world, "https://nowhere.invalid/press-01.git", stranger.certificate(), true);
    assert_row(&doctor(&world).1, "host: name", "failed", &["NameUnknown", "resolv.conf"]);
}

#[test]
fn doctor_warns_of_a_compose_that_is_too_old() {
    let world = World::running();
    let (old, tool) = (world.path("docker.sh"), program("fake-docker"));
    let answers = "case \"$*\" in *'compose version --short'*) exec echo 2.19.1 ;; esac";
    script(&old, &format!("{answers}\nexec {} \"$@\"", tool.display()));
    let docker = format!("{{program: {}, host: \"{}\"}}", old.display(), world.fake.host());
    world.settings_of(&world.home(), &docker, "");
    assert_row(&doctor(&world).1, "compose", "warning", &["2.19.1", "install Docker Compose 2.20 or later"]);
}

#[test]
fn doctor_says_of_an_account_that_it_ends_soon_and_that_it_ended() {
    let account = Some(("press-01".to_owned(), SECRET.to_owned()));
    let (world, _host, _proxy) = abroad(Options { account, ..Options::default() });
    world.once().good();
    let path = world.home().join("account.json");
    let ends = |seconds: i64, result: &str, words: &[&str]| {
        let mut kept: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let ends = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
        kept["current"]["expires"] = ends.to_string().into();
        fs::write(&path, kept.to_string()).unwrap();
        assert_row(&doctor(&world).1, "host: account", result, words);
    };
    ends(30 * 86_400, "ok", &["and is renewed before"]);
    ends(3 * 86_400, "warning", &["it ends on ", "wasn't renewed", "see that the syncer runs"]);
    ends(-60, "failed", &["it ended on ", "device join"]);
}

/// An application that prints, on real Docker.
fn printing() -> Real {
    let real = Real::enrolled();
    fs::write(real.home().join("device-files/token"), "hunter2hunter2\n").unwrap();
    let compose = "services:\n  web:\n    image: margo-test/busybox:1\n    \
                   command: [sh, -c, 'printf \"one \\033[2J\\ntoken hunter2hunter2\\n\"; sleep 1; while :; do date +tick-%s; sleep 1; done']\n    \
                   healthcheck: {test: [CMD, 'true'], interval: 1s}\n    stop_grace_period: 0s\n";
    real.want("greeter", compose);
    real.hand.publish();
    real.once().good();
    real
}

#[test]
fn logs_shows_what_containers_print_without_secrets_and_follows_until_nobody_reads() {
    let real = printing();
    let shown = || real.syncer(&["logs", "greeter"]).good().stdout;
    until("it printed", || shown().contains("tick-"));
    let logs = shown();
    assert!(logs.starts_with("hello  web-1  | 2"), "{logs}");
    assert!(logs.contains(r"one \u{1b}[2J") && !logs.contains('\u{1b}'), "{logs}");
    assert!(logs.contains("token ***") && !logs.contains("hunter2"), "{logs}");
    let last =
        real.syncer(&["logs", "greeter", "--component", "hello", "--tail", "1", "--output", "json"]).good().stdout;
    assert_eq!(last.lines().count(), 1, "{last}");
    let line: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(line["component"], "hello");
    real.syncer(&["logs", "greeter", "--component", "nope"]).ended(1).says(&["has no component `nope`; it has hello"]);
    real.syncer(&["logs", "nobody"]).ended(1).says(&["no deployment `nobody` runs here"]);

    let mut following = command(&real.home(), &["logs", "greeter", "--follow", "--tail", "0"]).spawn().unwrap();
    let out = following.stdout.take().unwrap();
    let mut ticks = std::io::BufRead::lines(std::io::BufReader::new(out)).map(Result::unwrap);
    assert!(ticks.by_ref().take(2).all(|line| line.contains("tick-")));
    drop(ticks);
    assert_eq!(finish(following).code, 0);
}

#[test]
fn diagnostics_is_one_bounded_document_without_secrets() {
    let real = printing();
    let name = format!("{}/doctor/{}:1", registry(), real.hand.fleet());
    docker(&["tag", "margo-test/busybox:1", &name]);
    docker(&["push", "--quiet", &name]);
    let pushed = docker(&["image", "inspect", "--format", "{{join .RepoDigests \"\\n\"}}", &name]);
    let repository = name.strip_suffix(":1").unwrap();
    let digest = pushed.lines().find_map(|line| line.strip_prefix(repository)?.strip_prefix('@')).unwrap();
    docker(&["image", "rm", &name]);
    real.hand.describe("greeter", |described| {
        described["locks"]["hello"]["images"] = json!({name.as_str(): digest, "127.0.0.1:1/nothing:1": digest});
    });
    real.hand.publish();
    real.once();
    let out = real.path("diagnostics.json");
    let said = real.syncer(&["diagnostics", "--out", &out.display().to_string()]).good().stdout;
    assert!(said.contains(" KiB in `"), "{said}");
    let bytes = fs::read(&out).unwrap();
    assert_eq!(fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(bytes.len() <= 256 << 10);
    let text = String::from_utf8(bytes).unwrap();
    assert!(!text.contains("hunter2") && !text.contains("GREETING"), "{text}");
    let all: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(all["status"]["device"], "press-01");
    assert!(
        all["logs"]["greeter/hello"].as_array().unwrap().iter().any(|line| line.as_str().unwrap().contains("tick-"))
    );
    assert!(all["history"][0]["to"].is_string() && all["plan"]["deployments"].is_array(), "{all}");
    let rows: BTreeMap<_, _> =
        all["doctor"].as_array().unwrap().iter().map(|row| (row["check"].as_str().unwrap(), row)).collect();
    assert_eq!(rows[&*format!("engine: {}", registry())]["result"], "ok", "{rows:?}");
    assert_eq!(rows["engine: 127.0.0.1:1"]["result"], "failed", "{rows:?}");
    let images = docker(&["info", "--format", "{{.DockerRootDir}}"]);
    assert!(rows["room: images"]["found"].as_str().unwrap().ends_with(&format!(" MiB free in `{images}`")), "{rows:?}");
}

/// The registry of an image, at a name that leads nowhere but by the proxy, with a certificate of its own authority.
#[test]
fn doctor_tells_an_engine_that_lacks_the_proxy_or_the_authority_of_a_registry_from_one_that_has_them() {
    const REGISTRY: &str = "registry.plant.invalid";
    let manifest = format!(
        r#"{{"schemaVersion":2,"mediaType":"{MANIFEST}","config":{{"mediaType":"{CONFIG}","digest":"{}","size":2}},"layers":[]}}"#,
        Digest::of(b"{}")
    );
    let (digest, image) = (Digest::of(manifest.as_bytes()), format!("{REGISTRY}/line/hello"));
    let authority = Authority::new("the plant's authority");
    let identity = authority.server(&[REGISTRY], Validity::Now);
    let has_it = format!("Content-Type: {MANIFEST}");
    let host = Host::with(authority, identity, false, move |asked| {
        let path = asked.head.split(' ').nth(1).unwrap_or_default();
        Reply::Keep(match path {
            "/v2/" => answer("200 OK", &[], b""),
            path if path.contains("/manifests/") => answer("200 OK", &[&has_it], manifest.as_bytes()),
            _ => answer("404 Not Found", &[], b""),
        })
    });
    let proxy = ConnectProxy::leading_to(host.address());
    let world = World::enrolled();
    world.hand.want("greeter", &world.app, "hello");
    world.hand.describe("greeter", |described| {
        described["locks"]["hello"]["images"] = json!({format!("{image}:1"): digest.to_string()});
    });
    world.hand.publish();
    world.once();
    let ca = world.home().join("plant-ca.pem");
    fs::write(&ca, host.authority.certificate()).unwrap();
    let doctor = |engine: &PrivateEngine| {
        let docker = format!("{{program: {}, host: \"{}\"}}", client().display(), engine.host());
        world.settings_of(&world.home(), &docker, &format!("host: {{proxy: {{url: \"{}\"}}}}\n", proxy.url()));
        let file = world.home().join("device.yaml");
        let settings = fs::read_to_string(&file).unwrap();
        fs::write(&file, settings.replace("registries: {", "registries: {ca: [plant-ca.pem], ")).unwrap();
        let doctor = command(&world.home(), &["doctor", "--output", "json"]);
        let output = engine.beside(&doctor).output().unwrap();
        let [stdout, stderr] = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap());
        rows(Run { code: output.status.code().unwrap(), stdout, stderr }).1
    };
    let check = format!("engine: {REGISTRY}");

    let without = PrivateEngine::start(&world.path("without"), None);
    let lacked = ["the engine has no proxy", "set HTTPS_PROXY in the unit of dockerd"];
    assert_row(&doctor(&without), &check, "failed", &lacked);
    assert_eq!(proxy.asked(), Vec::<String>::new());
    drop(without);

    let engine = PrivateEngine::start(&world.path("with"), Some(&proxy.url()));
    let directory = format!("/etc/docker/certs.d/{REGISTRY}");
    let lacked = format!("the engine has no authority for it: copy `{}` to `{directory}/ca.crt`", ca.display());
    assert_row(&doctor(&engine), &check, "failed", &["x509", &lacked]);
    let known = engine.settings().join("certs.d").join(REGISTRY);
    fs::create_dir_all(&known).unwrap();
    fs::copy(&ca, known.join("ca.crt")).unwrap();
    assert_row(&doctor(&engine), &check, "ok", &[&format!("the engine may pull `{image}@{digest}`")]);

    drop(host);
    let rows = doctor(&engine);
    assert_row(&rows, &check, "failed", &["look whether it runs, and at name, route and proxy"]);
    assert!(!format!("{rows:?}").contains("has no proxy"), "{rows:?}");
}

#[test]
fn docker_doctor_tells_of_whom_the_engine_keeps_all_that_is_printed() {
    let real = Real::enrolled();
    let want = |name: &str, logging: &str| {
        let compose = format!(
            "services:
  web:
    image: margo-test/busybox:1
    network_mode: none
    command: [sleep, infinity]
    environment: {{GREETING: '${{GREETING}}'}}
    logging: {{driver: {logging}}}
"
        );
        real.want(name, &compose);
        real.hand.publish();
        real.once().good();
    };
    want("kept-1", "json-file");
    let project = real.project("greeter");
    assert_row(&doctor(&real).1, "logs", "warning", &[&format!("what `{project}/web` prints"), "daemon.json"]);
    for (name, logging) in [("kept-2", "json-file, options: {max-size: 1m}"), ("kept-3", "local")] {
        want(name, logging);
        let rows = doctor(&real).1;
        assert!(!rows.contains_key("logs"), "{rows:?}");
    }
}
