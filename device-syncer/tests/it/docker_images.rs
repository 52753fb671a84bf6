//! Images that move: in the registry, and out of the engine.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::Command;

use repo_model::Digest;
use repo_testkit::engine;
use repo_testkit::faults::fault_proxy::{Fault, FaultProxy};
use serde_json::{Value, json};

use crate::docker::{CHECK, Real, client, docker};
use crate::world::{registry, text, until};

const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// An image with two contents of its own, which no other test has: whatever is done to it concerns nobody else.
#[derive(Clone)]
pub(crate) struct Image {
    pub(crate) name: String,
    /// Ids, and digests in the registry, of its two contents.
    contents: Vec<(String, String)>,
}

impl Image {
    pub(crate) fn new(name: &str) -> Self {
        Self::with_bytes(name, 64)
    }

    /// The same, with so many bytes in a layer of its own upon what all have.
    fn with_bytes(name: &str, bytes: u64) -> Self {
        let unique = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap().trim().to_owned();
        let name = format!("{}/images/{name}-{unique}:1", registry());
        let mut image = Self { name, contents: Vec::new() };
        for content in ["one", "two"] {
            let container = docker(&["create", "margo-test/busybox:1"]);
            let mut own = tempfile::NamedTempFile::new().unwrap();
            std::io::copy(&mut fs::File::open("/dev/urandom").unwrap().take(bytes), own.as_file_mut()).unwrap();
            docker(&["cp", "--quiet", own.path().to_str().unwrap(), &format!("{container}:/own")]);
            let label = format!("LABEL images={unique} content={content}");
            let id = docker(&["commit", "--change", &label, &container]);
            docker(&["rm", &container]);
            docker(&["tag", &id, &image.name]);
            docker(&["push", "--quiet", &image.name]);
            let digests = docker(&["image", "inspect", "--format", "{{join .RepoDigests \"\\n\"}}", &id]);
            let digest = digests.rsplit('@').next().unwrap().to_owned();
            image.contents.push((id, digest));
        }
        image.mean(0);
        image
    }

    pub(crate) fn repository(&self) -> &str {
        self.name.strip_suffix(":1").unwrap()
    }

    pub(crate) fn id(&self, content: usize) -> &str {
        &self.contents[content].0
    }

    pub(crate) fn digest(&self, content: usize) -> &str {
        &self.contents[content].1
    }

    /// Where the registry has a manifest of it.
    fn manifest_url(&self, reference: &str) -> String {
        format!("http://{}/v2/{}/manifests/{reference}", registry(), self.repository().split_once('/').unwrap().1)
    }

    pub(crate) fn manifest(&self, content: usize) -> Vec<u8> {
        curl(&["-H", &format!("Accept: {MANIFEST}"), &self.manifest_url(self.digest(content))])
    }

    /// Lets the tag mean this manifest in the registry; the engine keeps neither content, unless one runs.
    pub(crate) fn put(&self, manifest: &[u8]) {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), manifest).unwrap();
        let (header, data) = (format!("Content-Type: {MANIFEST}"), format!("@{}", file.path().display()));
        curl(&["-X", "PUT", "-H", &header, "--data-binary", &data, &self.manifest_url("1")]);
        self.removed();
    }

    /// Moves the tag.
    pub(crate) fn mean(&self, content: usize) {
        self.put(&self.manifest(content));
    }

    /// Takes a content out of the registry, which says so itself.
    pub(crate) fn delete(&self, content: usize) {
        let url = self.manifest_url(self.digest(content));
        curl(&["-X", "DELETE", &url]);
        until("the registry has it no more", || {
            let answer =
                Command::new("curl").args(["--silent", "--head", "--write-out", "%{http_code}", &url]).output();
            String::from_utf8_lossy(&answer.expect("curl").stdout).ends_with("404")
        });
    }

    /// As somebody does who makes room: the engine itself says that it has neither content any more.
    pub(crate) fn leave_engine(&self) {
        until("the engine has it no more", || self.removed());
    }

    /// Removes both as far as that is possible; whether the engine has neither.
    fn removed(&self) -> bool {
        let image = |args: &[&str]| Command::new(client()).arg("image").args(args).output().expect("docker runs");
        for (id, _) in &self.contents {
            let removal = image(&["rm", "--force", id]);
            let said = String::from_utf8_lossy(&removal.stderr).into_owned();
            if !removal.status.success() && !said.contains("No such image") {
                eprintln!("{id}: {said}");
            }
        }
        self.contents.iter().all(|(id, _)| !image(&["inspect", id]).status.success())
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        self.removed();
    }
}

/// The exact bytes that an address answers with.
fn curl(args: &[&str]) -> Vec<u8> {
    let output = Command::new("curl").args(["--silent", "--show-error", "--fail"]).args(args).output().expect("curl");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// An application of one service with this image.
pub(crate) fn app(real: &Real, name: &str, image: &str) {
    let compose = format!("services: {{web: {{image: \"{image}\", command: [sleep, \"100000\"], {CHECK}}}}}\n");
    real.want(name, &compose);
    real.hand.edit("greeter", |text| text[..text.find("  parameters:").unwrap()].to_owned());
}

/// Says in the envelope what the image is.
pub(crate) fn lock(real: &Real, image: &Image, content: usize) {
    real.hand.describe("greeter", |described| {
        described["locks"]["hello"]["images"] = json!({image.name.as_str(): image.digest(content)});
    });
}

/// The image that each of our containers runs.
pub(crate) fn images(real: &Real) -> Vec<String> {
    real.containers().iter().map(|one| engine::text(one, "/Image").to_owned()).collect()
}

pub(crate) fn lose_containers(real: &Real) {
    for container in real.containers() {
        docker(&["rm", "--force", engine::text(&container, "/Id")]);
    }
}

/// What `status` says of images that this device locked.
pub(crate) fn locked_here(real: &Real) -> Option<Value> {
    let found = repo_testkit::git::show(&real.hand.repository(), "status", "images.json")?;
    Some(serde_json::from_slice(&found).unwrap())
}

#[test]
fn docker_what_was_published_runs_wherever_the_tag_moved() {
    let (real, image) = (Real::enrolled(), Image::new("published"));
    app(&real, "published-image", &image.name);
    lock(&real, &image, 0);
    real.hand.publish();
    image.mean(1);
    real.once().good();
    assert_eq!(images(&real), [image.id(0)], "the tag moved before the device ever pulled it");
    assert_eq!(locked_here(&real), None, "the publisher locked it");

    // Whoever cleans up takes what has no name.
    lose_containers(&real);
    let label = docker(&["image", "inspect", "--format", "{{.Config.Labels.images}}", image.id(0)]);
    docker(&["image", "prune", "--force", "--filter", &format!("label=images={label}")]);
    docker(&["image", "inspect", "--format", "{{.Id}}", image.id(0)]);
    real.once().good();
    assert_eq!(images(&real), [image.id(0)], "from the engine");

    lose_containers(&real);
    image.leave_engine();
    real.once().good();
    assert_eq!(images(&real), [image.id(0)], "from the registry");
    real.assert_idle();

    lock(&real, &image, 1);
    real.hand.publish();
    let before = real.running();
    real.once().good();
    assert_eq!(real.running(), before, "a lock is no part of the input");
}

#[test]
fn docker_what_nobody_locked_is_locked_at_first_use_and_said_on_status() {
    let (real, image) = (Real::enrolled(), Image::new("first"));
    app(&real, "first-use-image", &image.name);
    real.hand.publish();
    real.once().good();
    assert_eq!(images(&real), [image.id(0)]);
    let id = real.hand.deployment_id("greeter").to_string();
    let expected = json!({id: {"hello": {"web": {"image": image.name, "digest": image.digest(0)}}}});
    assert_eq!(locked_here(&real), Some(expected.clone()));

    image.mean(1);
    lose_containers(&real);
    image.leave_engine();
    real.once().good();
    assert_eq!(images(&real), [image.id(0)], "the tag means something else now");
    assert_eq!(locked_here(&real), Some(expected));
    real.assert_idle();

    lose_containers(&real);
    image.leave_engine();
    image.delete(0);
    let run = real.once().ended(1);
    assert_eq!(real.states("greeter"), ["hello failed artifact-digest-changed"], "{run:?}");
    assert!(real.message("greeter").contains(image.digest(1)), "{}", real.message("greeter"));
    assert_eq!(images(&real), Vec::<String>::new());

    real.hand.drop("greeter");
    real.hand.publish();
    real.once().good();
    assert_eq!(locked_here(&real), None);
}

#[test]
fn docker_what_an_older_syncer_runs_keeps_its_containers_and_is_healed_under_its_name() {
    let (real, image) = (Real::enrolled(), Image::new("older"));
    app(&real, "older-image", &image.name);
    real.hand.publish();
    real.once().good();
    as_an_older_syncer_left_it(&real, &image);
    let before = real.running();

    lock(&real, &image, 0);
    real.hand.publish();
    real.once().good();
    assert_eq!(real.running(), before, "nothing is made anew");
    let names = || docker(&["ps", "--all", "--filter", &real.label(), "--format", "{{.Image}}"]);
    assert_eq!(names(), image.name);

    image.mean(1);
    lose_containers(&real);
    real.once().good();
    assert_eq!(images(&real), [image.id(0)], "by what the engine has under its name");
    lose_containers(&real);
    image.leave_engine();
    real.once().good();
    assert_eq!(images(&real), [image.id(0)], "what is pulled again is what is locked");
    assert_eq!(names(), image.name, "and its name is what it was");
    real.assert_idle();
}

/// Version 0.2 ran images by the names in the compose file, and noted nothing about them.
fn as_an_older_syncer_left_it(real: &Real, image: &Image) {
    let project: PathBuf = fs::read_dir(real.home().join("projects")).unwrap().next().unwrap().unwrap().path();
    let name = project.file_name().unwrap().to_string_lossy().into_owned();
    let resolved = project.join("compose.resolved.yaml");
    let mut document: Value = serde_json::from_slice(&fs::read(&resolved).unwrap()).unwrap();
    document["services"]["web"]["image"] = image.name.clone().into();
    fs::write(&resolved, document.to_string()).unwrap();
    let marker = project.join("marker.json");
    let mut noted: BTreeMap<String, Value> = serde_json::from_slice(&fs::read(&marker).unwrap()).unwrap();
    noted.remove("images").expect("it is noted");
    fs::write(&marker, serde_json::to_vec(&noted).unwrap()).unwrap();
    docker(&["tag", image.id(0), &image.name]);
    let (files, resolved) = (project.join("files"), resolved.display().to_string());
    let up = ["up", "--detach", "--pull", "never"];
    let place = ["-f", &resolved, "--project-directory", files.to_str().unwrap(), "--env-file", "/dev/null"];
    let args = [&["compose", "-p", &name], &place[..], &up[..]].concat();
    text(Command::new(client()).args(args).output().expect("docker runs"));
}

/// Lets the tag mean this manifest, and has the device want it.
fn put_locked(real: &Real, image: &Image, manifest: &Value) {
    let manifest = serde_json::to_vec(manifest).unwrap();
    image.put(&manifest);
    real.hand.describe("greeter", |described| {
        described["locks"]["hello"]["images"] = json!({image.name.as_str(): Digest::of(&manifest)});
    });
    real.hand.publish();
}

#[test]
fn docker_an_image_for_which_there_is_no_room_is_not_fetched() {
    let (real, image) = (Real::enrolled(), Image::new("room"));
    app(&real, "room-image", &image.name);
    let mut huge: Value = serde_json::from_slice(&image.manifest(0)).unwrap();
    huge["layers"][1]["size"] = (1_u64 << 50).into();
    put_locked(&real, &image, &huge);
    real.once().ended(1);
    assert_eq!(real.states("greeter"), ["hello pending disk-full"]);
    let message = real.message("greeter");
    assert!(
        message.contains(
            "has 1073741825 MiB in its registry, 1073741824 MiB of it in layers that aren't here, so 3221225984 MiB have to be free in `/"
        ),
        "{message}"
    );
    assert_eq!(images(&real), Vec::<String>::new());

    image.mean(0);
    lock(&real, &image, 0);
    real.hand.publish();
    real.once().good();
    assert_eq!(images(&real), [image.id(0)]);
}

#[test]
fn docker_layers_that_the_engine_has_need_no_room() {
    let (real, image) = (Real::enrolled(), Image::new("layers"));
    app(&real, "layers-image", &image.name);
    let mut manifest: Value = serde_json::from_slice(&image.manifest(0)).unwrap();
    // It is that of what all images here are made from.
    manifest["layers"][0]["size"] = (1_u64 << 50).into();
    put_locked(&real, &image, &manifest);
    real.once().good();
    assert_eq!(images(&real), [image.id(0)]);
}

#[test]
fn docker_how_long_a_pull_may_take_is_the_sites_word() {
    let (real, image) = (Real::enrolled(), Image::with_bytes("slow", 3 << 20));
    let proxy = FaultProxy::start(registry().parse().unwrap());
    let name = image.name.replace(&registry(), &proxy.address().to_string());
    app(&real, "slow-image", &name);
    real.hand.describe("greeter", |described| {
        described["locks"]["hello"]["images"] = json!({name.as_str(): image.digest(0)});
    });
    real.hand.publish();
    proxy.set(Fault::Throttle(500_000));
    real.use_docker(&client(), ", pullTimeout: 2s");
    real.once().ended(1);
    assert_eq!(real.states("greeter"), ["hello pending artifact-unavailable"]);
    let (pinned, message) =
        (format!("{}@{}", name.strip_suffix(":1").unwrap(), image.digest(0)), real.message("greeter"));
    let words = "it took longer than 2 s, which is `docker.pullTimeout` of device.yaml";
    assert_eq!(message, format!("image `{pinned}` can't be fetched: {words}"));

    real.use_docker(&client(), "");
    real.once().good();
    assert_eq!(images(&real), [image.id(0)], "what takes longer than that is pulled all the same");
}
