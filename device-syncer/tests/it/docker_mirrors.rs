//! Mirrors of registries, on real Docker and a real registry: what they serve, lack and lie about.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread;

use serde_json::{Value, json};

use crate::docker::{CHECK, Real, client, docker};
use crate::docker_images::{Image, images, locked_here, lose_containers};
use crate::from_fleet::say as say_site;
use crate::world::{App, push, registry};

/// A registry that nobody is at.
const AWAY: &str = "127.0.0.1:1";

/// Wants one service with this image, its archive at this registry.
fn want(real: &Real, at: &str, image: &str) {
    let directory = real.path("application");
    fs::create_dir_all(&directory).unwrap();
    let compose = format!("services: {{web: {{image: \"{image}\", command: [sleep, \"100000\"], {CHECK}}}}}\n");
    fs::write(directory.join("compose.yaml"), compose).unwrap();
    let app = push(&directory, &format!("mirrored-{}", real.hand.fleet()), "1.0.0");
    let app = App { repository: app.repository.replace(&registry(), at), ..app };
    real.hand.want("greeter", &app, "hello");
    real.hand.edit("greeter", |text| text[..text.find("  parameters:").unwrap()].to_owned());
}

/// The same image by its name at this registry.
fn named(image: &Image, at: &str) -> String {
    image.name.replace(&registry(), at)
}

fn lock(real: &Real, name: &str, digest: &str) {
    real.hand.describe("greeter", |described| described["locks"]["hello"]["images"] = json!({name: digest}));
}

/// Adds mirrors to the settings, in place of those before.
fn mirrors(real: &Real, of: &str, mirrors: &[&str], only: bool) {
    real.use_program(&client());
    real.add_mirrors(of, mirrors, only);
}

/// What a liar says of everything under a digest that it is asked for.
type Lie = fn(&Image, &str) -> Vec<u8>;

/// A manifest of something else.
fn other_manifest(image: &Image, path: &str) -> Vec<u8> {
    if path.contains("/manifests/") { image.manifest(1) } else { b"{}".to_vec() }
}

/// The right manifest, and other bytes of its configuration and layers.
fn other_layers(image: &Image, path: &str) -> Vec<u8> {
    if path.contains("/manifests/") { image.manifest(0) } else { b"something else".to_vec() }
}

/// A registry on this machine that lies. Gives its `host:port`.
fn liar(image: &Image, lie: Lie) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let image = image.clone();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let first = lines.next().unwrap_or_default();
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            let path = first.split(' ').nth(1).unwrap_or_default();
            let body = if path == "/v2/" { b"{}".to_vec() } else { lie(&image, path) };
            let digest = path.rsplit('/').next().unwrap_or_default();
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.distribution.manifest.v2+json\r\n\
                 Docker-Content-Digest: {digest}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let body = if first.starts_with("HEAD") { &[][..] } else { &body };
            let _ = stream.write_all(&[head.as_bytes(), body].concat());
        }
    });
    host
}

#[test]
fn docker_what_the_registry_itself_can_not_give_comes_from_its_mirror_under_the_same_names() {
    let (real, image) = (Real::enrolled(), Image::new("mirrored"));
    let name = named(&image, AWAY);
    want(&real, AWAY, &name);
    lock(&real, &name, image.digest(0));
    real.hand.publish();
    real.once().ended(1);
    assert_eq!(real.states("greeter"), ["hello pending artifact-unavailable"]);

    mirrors(&real, AWAY, &[&registry()], false);
    real.once().good();
    assert_eq!(images(&real), [image.id(0)]);
    let path = name.strip_prefix(&format!("{AWAY}/")).unwrap().strip_suffix(":1").unwrap().to_owned();
    let expected = format!("device-syncer.invalid/{path}:{}", image.digest(0).strip_prefix("sha256:").unwrap());
    assert_eq!(docker(&["ps", "--all", "--filter", &real.label(), "--format", "{{.Image}}"]), expected);
    let before = real.running();

    mirrors(&real, AWAY, &["127.0.0.1:2", &registry()], true);
    real.once().good();
    assert_eq!(real.running(), before, "another source is no change");
    real.assert_idle();
    lose_containers(&real);
    image.leave_engine();
    real.once().good();
    assert_eq!(images(&real), [image.id(0)], "the second mirror has it");
    assert_eq!(docker(&["ps", "--all", "--filter", &real.label(), "--format", "{{.Image}}"]), expected);
}

#[test]
fn docker_a_mirror_that_lies_is_away_or_lacks_it_is_passed_over_and_told() {
    for lie in [other_manifest as Lie, other_layers] {
        let (real, image) = (Real::enrolled(), Image::new("lied-about"));
        let liar = liar(&image, lie);
        want(&real, &registry(), &image.name);
        lock(&real, &image.name, image.digest(0));
        real.hand.publish();
        mirrors(&real, &registry(), &[&liar], true);
        real.once().ended(1);
        assert_eq!(real.states("greeter"), ["hello pending artifact-unavailable"], "what lies is never the last word");
        assert!(real.message("greeter").contains(&liar), "{}", real.message("greeter"));

        let lacks = format!("{}/nobody", registry());
        mirrors(&real, &registry(), &[&liar, AWAY, &lacks], false);
        let run = real.once().good();
        assert_eq!(images(&real), [image.id(0)]);
        for mirror in [&*liar, AWAY, &*lacks] {
            let told = |line: &&str| line.contains("a mirror is passed over") && line.contains(mirror);
            assert!(run.stderr.lines().any(|line| told(&line)), "{mirror}: {}", run.stderr);
        }
    }
}

#[test]
fn docker_with_mirrors_only_nobody_else_is_asked_however_it_ends() {
    let (real, image) = (Real::enrolled(), Image::new("only"));
    want(&real, &registry(), &image.name);
    lock(&real, &image.name, image.digest(0));
    real.hand.publish();
    mirrors(&real, &registry(), &[AWAY], true);
    real.once().ended(1);
    assert_eq!(real.states("greeter"), ["hello pending artifact-unavailable"]);
    assert!(real.message("greeter").contains(AWAY), "{}", real.message("greeter"));
    assert_eq!(images(&real), Vec::<String>::new());
    mirrors(&real, &registry(), &[AWAY], false);
    real.once().good();
    assert_eq!(images(&real), [image.id(0)]);

    // What runs is none of the mirrors' business.
    let before = real.running();
    mirrors(&real, &registry(), &[AWAY], true);
    real.once().good();
    assert_eq!(real.running(), before);
}

#[test]
fn docker_what_a_tag_means_a_mirror_says_only_in_its_registrys_place_and_then_it_is_said_on_status() {
    let (real, image) = (Real::enrolled(), Image::new("unlocked"));
    let name = named(&image, AWAY);
    want(&real, &registry(), &name);
    real.hand.publish();
    mirrors(&real, AWAY, &[&registry()], false);
    real.once().ended(1);
    assert_eq!(real.states("greeter"), ["hello pending artifact-unavailable"], "only the registry itself says it");

    mirrors(&real, AWAY, &[&registry()], true);
    real.once().good();
    assert_eq!(images(&real), [image.id(0)]);
    let id = real.hand.deployment_id("greeter").to_string();
    assert_eq!(locked_here(&real), Some(json!({id: {"hello": {"web": {"image": name, "digest": image.digest(0)}}}})));
    image.mean(1);
    lose_containers(&real);
    image.leave_engine();
    real.once().good();
    assert_eq!(images(&real), [image.id(0)], "once locked, it is");
}

#[test]
fn docker_doctor_asks_each_mirror_for_the_device_and_for_its_engine() {
    let (real, image) = (Real::enrolled(), Image::new("examined"));
    let name = named(&image, AWAY);
    want(&real, AWAY, &name);
    lock(&real, &name, image.digest(0));
    real.hand.publish();
    mirrors(&real, AWAY, &["127.0.0.1:2", &registry()], false);
    real.once().good();
    let rows = || -> Vec<Value> {
        let all: Value = serde_json::from_str(&real.syncer(&["doctor", "--output", "json"]).stdout).unwrap();
        all["checks"].as_array().unwrap().clone()
    };
    let result = |rows: &[Value], check: &str| {
        let row = rows.iter().find(|row| row["check"] == check);
        row.unwrap_or_else(|| panic!("{check} in {rows:?}"))["result"].as_str().unwrap().to_owned()
    };
    let found = rows();
    for who in ["registry", "engine"] {
        assert_eq!(result(&found, &format!("{who}: {AWAY}")), "failed");
        assert_eq!(result(&found, &format!("{who}: 127.0.0.1:2, mirror of {AWAY}")), "warning");
        assert_eq!(result(&found, &format!("{who}: {}, mirror of {AWAY}", registry())), "ok");
    }
    mirrors(&real, AWAY, &["127.0.0.1:2"], true);
    let found = rows();
    for who in ["registry", "engine"] {
        assert_eq!(result(&found, &format!("{who}: 127.0.0.1:2, mirror of {AWAY}")), "failed");
        assert!(!found.iter().any(|row| row["check"] == format!("{who}: {AWAY}")), "{found:?}");
    }
}

#[test]
fn docker_a_mirror_that_the_fleet_names_counts_once_the_site_hands_that_over_and_until_it_is_taken_back() {
    let (real, image) = (Real::enrolled(), Image::new("named-by-the-fleet"));
    let name = named(&image, AWAY);
    want(&real, AWAY, &name);
    lock(&real, &name, image.digest(0));
    let lost = || {
        lose_containers(&real);
        image.leave_engine();
    };
    let is_unavailable = || {
        real.once().ended(1);
        assert!(real.states("greeter")[0].ends_with("artifact-unavailable"), "{:?}", real.states("greeter"));
        assert_eq!(images(&real), Vec::<String>::new());
    };
    real.hand.publish();
    is_unavailable();
    say_site(
        &real,
        json!({"registries": {"mirrors": {AWAY: ["127.0.0.1:2", registry()]}, "plainHttp": ["a.example"]}}),
    );
    is_unavailable();
    let status = || real.syncer(&["status"]).good().stdout;
    assert!(!status().contains("from the fleet"), "{}", status());

    real.add_settings("fromFleet: [registries]\n");
    real.once().good();
    assert_eq!(images(&real), [image.id(0)]);
    real.assert_idle();
    let counts = json!({"mirrors": {AWAY: ["127.0.0.1:2", registry()]}});
    let line = format!("registries comes from the fleet: {counts} of {{");
    assert!(status().contains(&line), "{line} in {}", status());
    let all: Value = serde_json::from_str(&real.syncer(&["doctor", "--output", "json"]).stdout).unwrap();
    for who in ["registry", "engine"] {
        let check = format!("{who}: {}, mirror of {AWAY}", registry());
        let row = all["checks"].as_array().unwrap().iter().find(|row| row["check"] == *check);
        assert_eq!(row.unwrap_or_else(|| panic!("{check} in {all}"))["result"], "ok");
    }

    lost();
    mirrors(&real, AWAY, &["127.0.0.1:2"], false);
    real.add_settings("fromFleet: [registries]\n");
    is_unavailable();
    let line = "registries comes from the fleet: {\"mirrors\":{}} of {";
    assert!(status().contains(line), "the site has the last word: {}", status());

    real.use_program(&client());
    real.add_settings("fromFleet: [registries]\n");
    real.once().good();
    assert_eq!(images(&real), [image.id(0)]);
    say_site(&real, json!({}));
    real.once().good();
    assert_eq!(images(&real), [image.id(0)], "what runs is none of the mirrors' business");
    lost();
    is_unavailable();
}
