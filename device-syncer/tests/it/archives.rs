//! Archives that break a rule, pushed by somebody who doesn't care: each is refused by name, nothing of it is written,
//! and its neighbour runs.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use repo_artifacts::{Reference, Registry, Settings};
use repo_testkit::comes_within;
use repo_testkit::faults::lossy_link::LossyLink;
use repo_testkit::ports::free_port;
use serde_json::json;

use crate::world::{App, World, command, registry, text, until};

/// Pushes these bytes as the layer of a compose archive.
fn push_layer(name: &str, layer: Vec<u8>) -> App {
    push_layer_to(&registry(), name, layer)
}

fn push_layer_to(host: &str, name: &str, layer: Vec<u8>) -> App {
    let repository = format!("oci://{host}/syncer-it/archives/{name}");
    let settings = Settings { plain_http: BTreeSet::from([host.to_owned()]), ..Settings::default() };
    let reference = Reference::parse(&repository, "1.0.0").unwrap();
    let lock = Registry::new(settings).push(&reference, layer).unwrap();
    let (manifest, content) = (lock.manifest.to_string(), lock.content.to_string());
    App { repository, revision: "1.0.0".to_owned(), manifest, content }
}

/// What stock tar makes of a directory that a script fills.
fn tar(world: &World, script: &str) -> Vec<u8> {
    let (directory, file) = (world.path("tree"), world.path("tree.tar.gz"));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(directory.join("app")).unwrap();
    let service = "services: {web: {image: margo-test/busybox:1}}\n";
    fs::write(directory.join("app/compose.yaml"), service).unwrap();
    let script = format!("set -e; out={}; {script}", file.display());
    text(Command::new("bash").args(["-c", &script]).current_dir(&directory).output().unwrap());
    fs::read(file).unwrap()
}

/// Name, how it is made, and words of the refusal.
const BAD: &[(&str, &str, &[&str])] = &[
    ("parent", "echo x >app/f; tar -czPf $out --transform 's,app/f,app/../../evil-parent,' app", &["evil-parent"]),
    ("absolute", "echo x >app/f; tar -czPf $out --transform 's,app/f,/tmp/evil-absolute,' app", &["evil-absolute"]),
    ("symlink", "ln -s ../../../../etc/passwd app/link; tar -czf $out app", &["app/link"]),
    ("absolute-symlink", "ln -s /etc/passwd app/link; tar -czf $out app", &["app/link"]),
    ("symlinked-directory", "ln -s /tmp app/link; tar -czf $out app", &["app/link"]),
    ("endless-symlink", "ln -s b app/a; ln -s a app/b; tar -czf $out app", &["app/"]),
    (
        "hard-link",
        "echo x >app/a; ln app/a app/b; tar -czPf $out --transform 's,^app/[ab]$,../../etc/passwd,RSh' app",
        &["app/"],
    ),
    ("device", "mknod app/null c 1 3; tar -czf $out app", &["app/null"]),
    ("pipe", "mkfifo app/pipe; tar -czf $out app", &["app/pipe"]),
    ("two-directories", "mkdir more; echo x >more/f; tar -czf $out app more", &["one top-level directory", "more"]),
    ("no-directory", "cp app/compose.yaml .; tar -czf $out compose.yaml", &["compose.yaml"]),
    ("no-compose", "mv app/compose.yaml app/compose.yml; tar -czf $out app", &["`compose.yaml`"]),
    ("no-archive", "echo hello >$out", &["tar+gzip"]),
    ("torn", "tar -czf whole app; head -c 100 whole >$out", &["tar+gzip"]),
    ("bomb", "head -c 500M /dev/zero >app/zeros; tar -cf - app | gzip -1 >$out", &["more than"]),
    ("many", "mkdir app/d; (cd app/d; seq 5000 | xargs touch); tar -czf $out app", &["more than 4096"]),
];

#[test]
fn an_archive_that_breaks_a_rule_is_refused_by_name_and_its_neighbour_runs() {
    let world = World::enrolled();
    for (name, script, _) in BAD {
        let app = push_layer(name, tar(&world, script));
        world.hand.want(name, &app, "hello");
    }
    world.hand.want("other", &world.app, "neighbour");
    world.hand.publish();
    world.once().ended(1);
    for (name, _, words) in BAD {
        assert_eq!(world.states(name), ["hello failed artifact-invalid"], "{name}");
        let message = world.message(name);
        assert!(words.iter().all(|word| message.contains(word)), "{name}: {words:?} in {message}");
    }
    assert_eq!(world.states("other"), ["hello installed"]);
    assert_eq!(world.greetings(), ["neighbour"]);
    for evil in ["/tmp/evil-absolute", "/tmp/evil-parent"] {
        assert!(!Path::new(evil).exists());
    }
    let below = text(Command::new("find").arg(world.home()).args(["-name", "evil-*"]).output().unwrap());
    assert_eq!(below, "");
    world.assert_quiet();
}

/// A registry of its own, which ends with this.
struct OwnRegistry(Child);

impl OwnRegistry {
    fn start(mut command: Command) -> Self {
        let server = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Self(server.expect("docker-registry: run the tests by `./justw test`"))
    }
}

impl Drop for OwnRegistry {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Each fifth packet gets lost on the way to the registry.
#[test]
fn an_archive_comes_over_a_link_that_loses_packets_as_it_was_published() {
    let (world, link, host) = (World::enrolled(), LossyLink::losing(20), format!("127.0.0.1:{}", free_port()));
    let (config, settings) = (world.path("registry.yml"), world.home().join("device.yaml"));
    let storage = json!({"filesystem": {"rootdirectory": world.path("registry")}});
    let of = json!({"version": 0.1, "storage": storage, "http": {"addr": host, "secret": "only-on-loopback"}});
    fs::write(&config, of.to_string()).unwrap();
    fs::write(&settings, fs::read_to_string(&settings).unwrap().replace(&registry(), &host)).unwrap();
    let mut serve = Command::new("docker-registry");
    serve.arg("serve").arg(&config);

    // Bytes that don't get fewer when they are packed: some thirty packets.
    let layer = tar(&world, "head -c 40K /dev/urandom >app/data; tar -czf $out app");
    let published = fs::read(world.path("tree/app/data")).unwrap();
    let inside = link.inside(&serve);
    let outside = OwnRegistry::start(serve);
    until("the registry answers", || TcpStream::connect(&host).is_ok());
    let app = push_layer_to(&host, "lossy", layer);
    drop(outside);
    let _inside = OwnRegistry::start(inside);
    world.hand.want("greeter", &app, "hello");
    world.hand.publish();
    // A connection may take longer to come about than one is waited for.
    let once = || link.inside(&command(&world.home(), &["once"])).output().unwrap();
    assert!(comes_within(Duration::from_secs(300), || once().status.success()), "it is installed");
    assert_eq!(world.states("greeter"), ["hello installed"]);
    assert!(
        fs::read(world.home().join("projects").join(world.project("greeter")).join("files/data")).unwrap() == published
    );
    assert!(link.lost() > 0, "no packet got lost");
}
