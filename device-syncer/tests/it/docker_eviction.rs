//! Images that nothing needs any more leave the engine's store, and no others: on real Docker.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use jiff::{SignedDuration, Timestamp};
use repo_testkit::engine::Engine;
use repo_testkit::faults::listening::{Listening, forward, kept};
use serde_json::{Value, json};

use crate::docker::{CHECK, Real, client, docker, variable};
use crate::docker_images::{Image, app, images, lock};
use crate::full::Tmpfs;
use crate::rollback::stabilise;
use crate::world::{registry, script};

/// The name under which a content of an image runs.
fn ours(image: &Image, content: usize) -> String {
    let path = image.name.strip_prefix(&format!("{}/", registry())).unwrap().strip_suffix(":1").unwrap();
    format!("device-syncer.invalid/{path}:{}", image.digest(content).strip_prefix("sha256:").unwrap())
}

/// Whether the engine has an image of this name or id.
fn has(name: &str) -> bool {
    Engine::of_the_tests().has_image(name)
}

/// Wants another version of the application, with this image.
fn want(real: &Real, version: &str, image: &Image) {
    app(real, version, &image.name);
    lock(real, image, 0);
    real.hand.publish();
}

fn inventory(real: &Real) -> PathBuf {
    real.home().join("cache/images.json")
}

/// The names that no input needs.
fn unneeded(real: &Real) -> Vec<String> {
    let known: Value = serde_json::from_slice(&fs::read(inventory(real)).unwrap()).unwrap();
    known["unneeded"].as_object().unwrap().keys().cloned().collect()
}

/// Lets hours pass since images were needed.
fn hours_pass(real: &Real, hours: i64) {
    let mut known: Value = serde_json::from_slice(&fs::read(inventory(real)).unwrap()).unwrap();
    for since in known["unneeded"].as_object_mut().unwrap().values_mut() {
        let then: Timestamp = since.as_str().unwrap().parse().unwrap();
        *since = (then - SignedDuration::from_hours(hours)).to_string().into();
    }
    fs::write(inventory(real), known.to_string()).unwrap();
}

#[test]
fn docker_an_image_that_nothing_needs_goes_after_a_day_that_restarts_do_not_begin_anew() {
    let real = Real::enrolled();
    let [old, new] = ["evicted-old", "evicted-new"].map(Image::new);
    want(&real, "evicted-1", &old);
    real.once().good();
    assert_eq!((images(&real), unneeded(&real)), (vec![old.id(0).to_owned()], Vec::new()));
    want(&real, "evicted-2", &new);
    real.once().good();
    assert_eq!(unneeded(&real), [ours(&old, 0)]);
    let (noted, running) = (fs::metadata(inventory(&real)).unwrap().modified().unwrap(), real.running());
    real.once().good();
    assert_eq!(fs::metadata(inventory(&real)).unwrap().modified().unwrap(), noted, "noted once, not by each pass");

    hours_pass(&real, 23);
    real.once().good();
    assert!(has(old.id(0)), "not yet");
    hours_pass(&real, 1);
    real.once().good();
    assert!(!has(&ours(&old, 0)) && !has(old.id(0)), "no name of it is left behind");
    assert!(has(&ours(&new, 0)));
    assert_eq!(real.running(), running, "what runs isn't touched");
    assert_eq!(unneeded(&real), Vec::<String>::new());
    real.assert_idle();

    want(&real, "evicted-1", &old);
    real.once().good();
    assert_eq!(images(&real), [old.id(0)], "who wants it again fetches it again");
}

#[test]
fn docker_what_ran_well_before_stays_for_as_long_as_it_may_be_put_back_without_its_registry() {
    let real = Real::enrolled();
    let [good, trial, bad] = ["kept-good", "kept-trial", "kept-bad"].map(Image::new);
    let want = |version: &str, image: &Image, command: &str, stabilise: u32| {
        let compose = format!("services: {{web: {{image: \"{}\", command: {command}, {CHECK}}}}}\n", image.name);
        real.want(version, &compose);
        real.hand.edit("greeter", |text| text[..text.find("  parameters:").unwrap()].to_owned());
        lock(&real, image, 0);
        let policy = json!({"onFailure": "last-good", "stabiliseSeconds": stabilise});
        real.hand.describe("greeter", |envelope| envelope["policy"] = policy);
        real.hand.publish();
    };
    want("kept-1", &good, "[sleep, infinity]", 1);
    stabilise(&real);
    want("kept-2", &trial, "[sleep, infinity]", 3600);
    real.once().good();
    good.delete(0);
    for _ in 0..2 {
        hours_pass(&real, 25);
        real.once().good();
    }
    assert_eq!(images(&real), [trial.id(0)]);
    assert!(has(&ours(&good, 0)), "it doesn't run, and is of the last good set");
    want("kept-3", &bad, "[/no/such/program]", 3600);
    real.once().ended(1);
    real.once().ended(1);
    assert_eq!(real.states("greeter"), ["hello failed rolled-back"]);
    assert_eq!(images(&real), [good.id(0)]);
    assert_eq!(unneeded(&real), [ours(&bad, 0), ours(&trial, 0)], "neither ran well");
}

#[test]
fn docker_what_a_stranger_named_or_uses_stays() {
    let real = Real::enrolled();
    let [tagged, used, new] = ["stays-tagged", "stays-used", "stays-new"].map(Image::new);
    let unique = tagged.name.rsplit_once('/').unwrap().1.replace(":1", "");
    let (their_name, like_ours) =
        (format!("strangers/{unique}:1"), format!("device-syncer.invalid/strangers/{unique}:1"));
    want(&real, "stays-1", &tagged);
    real.once().good();
    docker(&["tag", tagged.id(0), &their_name]);
    docker(&["tag", "margo-test/busybox:1", &like_ours]);
    docker(&["pull", "--quiet", &used.name]);
    want(&real, "stays-2", &used);
    real.once().good();
    let container = docker(&["create", &ours(&used, 0), "true"]);
    want(&real, "stays-3", &new);
    real.once().good();
    hours_pass(&real, 25);
    real.once().good();
    assert!(!has(&ours(&tagged, 0)), "our name of it is gone");
    assert!(has(&their_name) && has(tagged.id(0)), "theirs isn't");
    assert!(has(&like_ours), "a name like ours that this device never gave");
    assert!(has(&ours(&used, 0)), "a stranger's container is made of it");
    docker(&["rm", &container]);
    hours_pass(&real, 25);
    real.once().good();
    assert!(!has(&ours(&used, 0)), "nobody uses it any more");
    assert!(has(&used.name), "somebody had pulled it before this device wanted it");
    docker(&["image", "rm", &their_name, &like_ours]);
}

#[test]
fn docker_a_tag_that_was_pulled_to_be_locked_goes_a_day_later_and_its_image_stays() {
    let (real, image) = (Real::enrolled(), Image::new("tag"));
    app(&real, "tag-evicted", &image.name);
    real.hand.publish();
    real.once().good();
    assert!(has(&image.name), "what waits after its fetch isn't pulled again");
    assert_eq!(unneeded(&real), [image.name.as_str()]);
    hours_pass(&real, 24);
    real.once().good();
    assert!(!has(&image.name) && has(&ours(&image, 0)));
    assert_eq!((images(&real), unneeded(&real)), (vec![image.id(0).to_owned()], Vec::new()));
}

/// The engine, which seems to keep its images here.
fn keeping_images_at(real: &Real, program: &Path, place: &Path) -> Listening {
    let host = variable("DOCKER_HOST");
    let (socket, place) = (PathBuf::from(host.strip_prefix("unix://").unwrap()), place.display().to_string());
    let engine = Listening::start(move |head: &str, stream: &mut UnixStream| match head.contains("/info ") {
        true => {
            let info = json!({"DockerRootDir": place}).to_string();
            stream.write_all(kept("200 OK", &[], &info).as_bytes()).is_ok()
        }
        false => forward(head, stream, &socket),
    });
    real.use_engine(program, &format!("unix://{}", engine.path().display()), "");
    engine
}

#[test]
fn docker_where_a_fetch_lacks_room_what_nothing_needs_goes_first_and_nothing_else() {
    let real = Real::enrolled();
    let [old, now, next] = ["room-old", "room-now", "room-next"].map(Image::new);
    want(&real, "room-1", &old);
    real.once().good();
    want(&real, "room-2", &now);
    real.once().good();
    assert_eq!(unneeded(&real), [ours(&old, 0)]);
    // Room for an image and what stays free, but for the ballast, which goes with an image.
    let disk = Tmpfs::new(real.path("disk"), "560m");
    let ballast = real.path("disk/ballast");
    text_of(Command::new("fallocate").args(["-l", "100M"]).arg(&ballast));
    let program = real.path("evicting-docker");
    let lines = format!(
        "[ \"$1 $2 $5\" = \"image rm {}\" ] && rm -f '{}'\nexec {} \"$@\"",
        ours(&old, 0),
        ballast.display(),
        client().display()
    );
    script(&program, &lines);
    let _engine = keeping_images_at(&real, &program, &real.path("disk"));
    want(&real, "room-3", &next);
    real.once().good();
    assert_eq!(images(&real), [next.id(0)]);
    assert!(!has(old.id(0)), "its day wasn't over");
    assert!(has(now.id(0)), "it ran until then");

    // Where nothing can go, nothing is fetched.
    text_of(Command::new("fallocate").args(["-l", "100M"]).arg(&ballast));
    let more = Image::new("room-more");
    want(&real, "room-4", &more);
    let running = real.running();
    fs::write(inventory(&real), "{}").unwrap();
    real.once().ended(1);
    assert_eq!(real.states("greeter"), ["hello pending disk-full"]);
    assert_eq!(real.running(), running);
    drop(disk);
}

fn text_of(command: &mut Command) {
    crate::world::text(command.output().unwrap());
}

#[test]
fn docker_an_image_that_somebody_removed_is_missed_only_by_what_has_to_be_started() {
    let real = Real::enrolled();
    let [lost, kept] = ["lost", "not-lost"].map(Image::new);
    let service = |image: &Image| format!("{{image: \"{}\", command: [sleep, \"100000\"], {CHECK}}}", image.name);
    real.want("lost-image", &format!("services: {{web: {}, other: {}}}\n", service(&lost), service(&kept)));
    real.hand.edit("greeter", |text| text[..text.find("  parameters:").unwrap()].to_owned());
    real.hand.describe("greeter", |described| {
        let images = json!({lost.name.as_str(): lost.digest(0), kept.name.as_str(): kept.digest(0)});
        described["locks"]["hello"]["images"] = images;
    });
    real.hand.publish();
    real.once().good();
    let (running, manifest) = (real.running(), lost.manifest(0));
    docker(&["image", "rm", "--force", &ours(&lost, 0)]);
    lost.delete(0);
    real.once().good();
    assert_eq!(real.running(), running, "what runs needs no name");

    let other = real.of_service("other");
    docker(&["rm", "--force", &real.of_service("web")[0][..64]]);
    lost.leave_engine();
    real.once().ended(1);
    assert_eq!(real.states("greeter"), ["hello installing artifact-unavailable"]);
    assert!(real.message("greeter").contains(lost.repository()), "{}", real.message("greeter"));
    assert_eq!(real.of_service("other"), other, "its neighbour runs on");
    lost.put(&manifest);
    real.once().good();
    assert_eq!((real.of_service("web").len(), real.of_service("other")), (1, other));
}
