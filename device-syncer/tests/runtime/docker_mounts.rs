//! Containers that try to lead mounts elsewhere, or the syncer that writes beside them: real Docker and real links.
#![allow(clippy::disallowed_methods, reason = "the tests' own files")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use device_syncer::config::policy::HostPath;
use device_syncer::decision::component::Component;
use device_syncer::runtimes::{Cancel, Runtime, RuntimeError, Source};

use crate::world::World;

/// A service that goes on for ever, with these lines.
fn service(name: &str, lines: &str) -> String {
    format!("  {name}: {{image: 'margo-test/busybox:1', command: [sleep, '100000'], {lines}}}\n")
}

fn binds(name: &str, volumes: &str) -> String {
    service(name, &format!("volumes: [{volumes}]"))
}

/// A service that runs this script.
fn script(name: &str, script: &str, lines: &str) -> String {
    let command = serde_json::json!(["sh", "-c", script.replace('$', "$$")]);
    format!("  {name}: {{image: 'margo-test/busybox:1', command: {command}, {lines}}}\n")
}

fn project(services: &[String]) -> String {
    format!("services:\n{}", services.concat())
}

/// A device whose site lets applications write in a directory, which is given.
fn world() -> (World, PathBuf) {
    let mut world = World::docker();
    world.component.wait = false;
    let site = world.path().join("site");
    fs::create_dir_all(&site).unwrap();
    world.settings.policy.host_paths = vec![HostPath { path: site.clone(), writable: true }];
    world.restart();
    (world, site)
}

/// Another component of the same device; what `services` it has go in the end.
fn another(world: &mut World, name: &str, services: &[&str]) -> Component {
    let component: repo_model::ComponentName = name.parse().unwrap();
    let project = world.component.deployment.runtime_name(&component);
    services.iter().for_each(|service| world.will_remove("container", &format!("{project}-{service}-1")));
    world.will_remove("network", &format!("{project}_default"));
    Component { component, project, ..world.component.clone() }
}

fn refused(result: Result<(), RuntimeError>, words: &[&str]) {
    let error = result.expect_err("it is refused");
    assert_eq!((error.code().as_str(), error.is_transient()), ("policy-denied", false), "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "{word} in {error}");
    }
}

#[test]
fn a_container_that_plants_a_link_under_another_ones_mount_never_reaches_the_host() {
    let (mut world, site) = world();
    let (mark, site) = (world.path().join("mark").display().to_string(), site.display().to_string());
    fs::write(&mark, "the host's own").unwrap();
    let plants = |volume: &str, target: &str| {
        let plant = format!("rm -rf /data/sub; ln -s {target} /data/sub; exec sleep 100000");
        script("a", &plant, &format!("volumes: ['{volume}:/data']"))
    };
    let steals = |volumes: &str, more: &str| {
        let steal = format!("cat /host{mark} /host | grep -q host && touch /proof/stolen; sleep 1; exit 1");
        script("b", &steal, &format!("restart: always, volumes: ['./proof:/proof'{volumes}]{more}"))
    };
    let stolen = world.project_dir().join("files/proof/stolen");
    for (text, place) in [
        (project(&[plants("./data", "/"), steals(", './data/sub:/host'", "")]), "data/sub/file"),
        (project(&[plants(&site, "/"), steals(&format!(", '{site}/sub:/host:ro'"), "")]), "data/sub/file"),
        (
            project(&[plants("./data", &mark), steals("", ", configs: [{source: c, target: /host}]")])
                + "configs: {c: {file: ./data/sub}}\n",
            "data/sub",
        ),
        (
            project(&[plants("./data", &mark), steals("", ", secrets: [{source: s, target: /host}]")])
                + "secrets: {s: {file: ./data/sub}}\n",
            "data/sub",
        ),
    ] {
        world.archive(&[("compose.yaml", &text), (place, "a file")]);
        let result = world.prefetch_and_apply();
        let end = Instant::now() + Duration::from_secs(if result.is_ok() { 20 } else { 0 });
        while !stolen.exists() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(!stolen.exists(), "it reached the host: {text}");
        refused(result, &["service `a`", "side by side"]);
        assert_eq!(world.left("container"), "", "nothing was started");
    }
}

#[test]
fn of_two_that_are_applied_at_once_one_is_refused_where_the_other_could_lead_its_mount_elsewhere() {
    for round in 0..4 {
        let (mut world, site) = world();
        let mount = |path: &str| format!("'{}/{path}:/data'", site.display());
        let mut prepared = Vec::new();
        for (name, path) in [("outer", "shared"), ("inner", "shared/sub")] {
            let component = another(&mut world, name, &["a"]);
            world.component = component;
            world.archive(&[("compose.yaml", &project(&[binds("a", &mount(path))]))]);
            prepared.push(world.runtime.prefetch(&world.component, Source::Anywhere, &|| false).unwrap());
        }
        let at_once = std::sync::Barrier::new(2);
        let results: Vec<_> = std::thread::scope(|scope| {
            let apply = |one| {
                let (at_once, runtime) = (&at_once, &world.runtime);
                scope.spawn(move || {
                    at_once.wait();
                    runtime.apply(one, &Cancel::whatever(&|| false))
                })
            };
            let threads: Vec<_> = prepared.iter().map(apply).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{round}: {results:?}");
        refused(results.into_iter().find(Result::is_err).unwrap(), &["could put a link to anything of the host"]);
    }
}

#[test]
fn what_containers_of_other_projects_may_write_is_no_place_for_a_mount_below_it() {
    let (mut world, site) = world();
    let at = |path: &str| format!("'{}/{path}", site.display());
    let mut other = another(&mut world, "other", &["owner"]);
    std::mem::swap(&mut world.component, &mut other);
    let owner = [binds("owner", &format!("{}:/data', {}:/deep'", at("shared"), at("above/deep")))];
    world.archive(&[("compose.yaml", &project(&owner))]);
    world.prefetch_and_apply().unwrap();
    let (neighbour, owns) = (world.identities(), world.component.project.clone());
    std::mem::swap(&mut world.component, &mut other);
    let try_to = |world: &mut World, volume: &str| {
        world.archive(&[("compose.yaml", &project(&[binds("a", volume)]))]);
        world.prefetch_and_apply()
    };
    let names = format!("service `owner` of `{owns}`");
    refused(try_to(&mut world, &format!("{}:/x:ro'", at("shared/sub"))), &[&names, "service `a`", "retry test"]);
    refused(try_to(&mut world, &format!("{}:/x'", at("above"))), &[&names, "service `a`", "retry test"]);
    let stranger = format!("stranger-{}", world.component.project);
    let volume = format!("{}:/x", site.join("strange").display());
    world.ask(&["create", "--name", &stranger, "--volume", &volume, crate::world::IMAGE]);
    world.will_remove("container", &stranger);
    refused(try_to(&mut world, &format!("{}:/x'", at("strange/sub"))), &[&format!("container `{stranger}`")]);
    // One that docker can't inspect is read from its list.
    let (id, docker) = (
        world.ask(&["ps", "--all", "--quiet", "--filter", &format!("name={stranger}")]),
        world.settings.docker.clone(),
    );
    let damaged = world.path().join("docker-that-cannot-inspect");
    let text = format!(
        "#!/bin/sh\ncase \"$*\" in inspect*{}*) echo damaged >&2; exit 1;; esac\nexec {} \"$@\"\n",
        id.trim(),
        docker.display()
    );
    fs::write(&damaged, text).unwrap();
    fs::set_permissions(&damaged, fs::Permissions::from_mode(0o755)).unwrap();
    world.settings.docker = damaged;
    world.restart();
    refused(try_to(&mut world, &format!("{}:/x'", at("strange/sub"))), &[&format!("container `{stranger}`")]);
    world.settings.docker = docker;
    world.restart();
    // A volume of the site's that shows a directory.
    fs::create_dir_all(site.join("shown")).unwrap();
    let (volume, device) = (format!("shown-{owns}"), format!("device={}", site.join("shown").display()));
    world.ask(&["volume", "create", "--opt", "type=none", "--opt", "o=bind", "--opt", &device, &volume]);
    world.will_remove("volume", &volume);
    refused(try_to(&mut world, &format!("{}:/x'", at("shown/sub"))), &[&format!("volume `{volume}`")]);
    // A link that somebody left there.
    symlink("/", site.join("left")).unwrap();
    refused(try_to(&mut world, &format!("{}:/x'", at("left"))), &["link", &site.join("left").display().to_string()]);
    refused(try_to(&mut world, &format!("{}:/x'", at("left/etc"))), &["link"]);
    // The same directory for both, and one beside it.
    try_to(&mut world, &format!("{}:/x', {}:/y:ro'", at("shared"), at("above/beside"))).unwrap();
    std::mem::swap(&mut world.component, &mut other);
    assert_eq!(world.identities(), neighbour, "the neighbour was left alone");
    // Its containers are gone for a while, and will come back.
    world.ask(&["rm", "--force", &neighbour["owner"].0]);
    std::mem::swap(&mut world.component, &mut other);
    refused(try_to(&mut world, &format!("{}:/x'", at("above"))), &[&names]);
}

#[test]
fn an_older_version_that_planted_a_link_or_still_does_cannot_lead_the_next_one_elsewhere() {
    let (mut world, _) = world();
    let mark = world.path().join("mark");
    fs::write(&mark, "the host's own").unwrap();
    let link = world.project_dir().join("files/data/sub");
    let old = |what: &str| project(&[script("a", what, "volumes: ['./data:/data']")]);
    let new = project(&[binds("b", "'./data/sub:/host'")]);
    world.archive(&[("compose.yaml", &old("ln -s / /data/sub; exec sleep 100000"))]);
    world.prefetch_and_apply().unwrap();
    until(|| link.is_symlink());
    let before = world.identities();
    world.archive(&[("compose.yaml", &new)]);
    refused(world.prefetch_and_apply(), &["link", "`./data/sub`", "service `b`"]);
    assert_eq!(world.identities()["a"], before["a"], "what runs keeps running");
    fs::remove_file(&link).unwrap();
    world.prefetch_and_apply().unwrap();
    let there =
        |world: &World| world.identities().into_iter().filter(|(_, (id, _))| !id.is_empty()).collect::<Vec<_>>();
    assert_eq!(there(&world).iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["b"], "the old one ended");

    // And one that does it again and again, while the next one is made.
    let races = "while :; do rm -rf /data/sub; ln -s / /data/sub; rm -f /data/sub; mkdir /data/sub; done";
    for round in 0..2 {
        world.archive(&[("compose.yaml", &old(&format!("{races} # {round}")))]);
        world.prefetch_and_apply().unwrap();
        world.archive(&[("compose.yaml", &new)]);
        match world.prefetch_and_apply() {
            Ok(()) => {
                let found = world.ask(&["exec", &world.identities()["b"].0, "ls", "/host"]);
                assert_eq!(found, "", "it sees nothing of the host");
            }
            result => refused(result, &["link"]),
        }
        if link.is_symlink() {
            fs::remove_file(&link).unwrap();
        }
    }
}

#[test]
fn whatever_a_container_puts_in_the_place_of_our_files_neither_holds_us_up_nor_leads_us_out() {
    let (mut world, _) = world();
    let (outside, files) = (world.path().join("outside"), world.project_dir().join("files"));
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("a.conf"), "outside").unwrap();
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o700)).unwrap();
    let untouched = || {
        let names: Vec<_> = fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["a.conf"]);
        assert_eq!(fs::read_to_string(outside.join("a.conf")).unwrap(), "outside");
        assert_eq!(fs::metadata(&outside).unwrap().permissions().mode() & 0o777, 0o700);
    };
    let version = |world: &mut World, does: &str, text: &str| {
        let compose = project(&[script("a", does, "volumes: ['./conf:/conf']")]);
        let conf = ["conf/a.conf", "conf/b.conf", "conf/c.conf", "conf/deep/a.conf", "conf/er/a.conf"];
        let files: Vec<_> = conf.iter().map(|path| (*path, text)).collect();
        world.archive(&[[("compose.yaml", compose.as_str())].as_slice(), &files].concat());
    };
    // Links to what is outside are as the host names it: a container knows that, or guesses it.
    let hostile = format!(
        "cd /conf; rm -rf *; mkfifo a.conf deep; mknod b.conf c 1 5; truncate -s 1099511627776 c.conf; ln -s {} er",
        outside.display()
    );
    version(&mut world, &format!("{hostile}; exec sleep 100000"), "1");
    world.prefetch_and_apply().unwrap();
    until(|| files.join("conf/er").is_symlink());
    for text in ["2", "3"] {
        version(&mut world, "exec sleep 100000", text);
        world.restart();
        in_time(&files, || world.prefetch_and_apply().unwrap());
        for path in ["a.conf", "b.conf", "c.conf", "deep/a.conf", "er/a.conf"] {
            assert_eq!(fs::read_to_string(files.join("conf").join(path)).unwrap(), text, "{path}");
        }
        untouched();
    }

    // Again and again, in every place at once, while one version follows the other.
    let places = ["a.conf", "b.conf", "deep", "er"];
    let races: String = places
        .iter()
        .map(|place| {
            format!(
                "(while :; do rm -rf {place}; ln -s {0} {place}; rm -rf {place}; mkfifo {place}; rm -rf {place}; \
                 mkdir {place}; ln -s {0}/a.conf {place}/a.conf; done) & ",
                outside.display()
            )
        })
        .collect();
    for round in 0..4 {
        version(&mut world, &format!("cd /conf; {races} wait"), &format!("race {round}"));
        let result = in_time(&files, || world.prefetch_and_apply());
        untouched();
        // What it puts in our way is its own loss, and said.
        if let Err(error) = result {
            assert!(["runtime-unavailable", "policy-denied"].contains(&error.code().as_str()), "{error}");
        }
    }
    in_time(&files, || world.runtime.remove(&world.component.project, Duration::from_secs(60), &|| false).unwrap());
    untouched();
}

fn until(so: impl Fn() -> bool) {
    assert!(repo_testkit::comes_within(Duration::from_secs(60), so), "it never comes");
}

/// Does some work that must end. What waits for a FIFO below `files` is let go after two minutes, and the test fails.
fn in_time<T: Send>(files: &Path, work: impl FnOnce() -> T + Send) -> T {
    let (tell, told) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || tell.send(work()));
        match told.recv_timeout(Duration::from_secs(120)) {
            Ok(done) => done,
            Err(RecvTimeoutError::Disconnected) => panic!("it failed"),
            Err(RecvTimeoutError::Timeout) => {
                while let Err(RecvTimeoutError::Timeout) = told.recv_timeout(Duration::from_millis(100)) {
                    let _ = fs::File::options().read(true).write(true).open(files.join("conf/a.conf"));
                }
                panic!("it waits for a FIFO")
            }
        }
    })
}
