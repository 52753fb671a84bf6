//! What the engine tells of our containers is heard: on real Docker, by a syncer that otherwise looks once an hour.

use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use repo_testkit::faults::listening::{Listening, forward};

use crate::docker::{CHECK, Real, client, docker, variable};
use crate::docker_health::end;
use crate::world::{World, command, until};

impl World {
    /// The syncer as a service, which looks once an hour unless it hears something.
    pub(crate) fn listens(&self) -> Child {
        let file = self.home().join("device.yaml");
        let settings = std::fs::read_to_string(&file).unwrap();
        let hourly = "poll: 1h\n";
        std::fs::write(&file, settings.replace(hourly, "") + hourly).unwrap();
        command(&self.home(), &["run"]).spawn().unwrap()
    }
}

/// The engine, before which something stands that knows what was asked.
fn watched(real: &Real) -> Listening {
    let host = variable("DOCKER_HOST");
    let socket = PathBuf::from(host.strip_prefix("unix://").unwrap());
    let engine = Listening::start(move |head, stream| forward(head, stream, &socket));
    real.use_engine(&client(), &format!("unix://{}", engine.path().display()), "");
    engine
}

fn listens(engine: &Listening) -> bool {
    engine.asked().iter().any(|line| line.contains("/events?"))
}

/// How often all that is ours was listed.
fn looks(engine: &Listening) -> usize {
    let is_look = |line: &&String| line.contains("/containers/json?") && line.contains("device-syncer.fleet");
    engine.asked().iter().filter(is_look).count()
}

/// Two services that say that they are well.
fn pair() -> String {
    let service = format!(
        "{{image: 'margo-test/busybox:1', network_mode: none, command: [sleep, '100000'], \
         environment: {{GREETING: '${{GREETING}}'}}, {CHECK}}}"
    );
    format!("services: {{web: {service}, other: {service}}}\n")
}

#[test]
fn what_is_gone_is_back_soon_after_the_engines_event_and_nothing_else_is_touched() {
    let real = Real::enrolled();
    real.want("pair", &pair());
    real.hand.publish();
    real.once().good();
    let engine = watched(&real);
    let (web, other) = (real.of_service("web")[0].clone(), real.of_service("other"));
    // What was put back once is put back again only after a pause, so each way has a syncer of its own.
    for how in [&["rm", "--force"][..], &["stop", "-t", "0"]] {
        let before = real.of_service("web")[0].clone();
        let asked = engine.asked().len();
        let syncer = real.listens();
        let is_new = || engine.asked()[asked..].iter().any(|line| line.contains("/events?"));
        until("it listens", is_new);
        // The first pass is over.
        std::thread::sleep(Duration::from_secs(2));
        let began = Timestamp::now();
        docker(&[how, &[&before[..64]]].concat());
        let is_back = |all: &[String]| all.len() == 2 && all.iter().all(|it| it.ends_with("true"));
        until("it is back", || real.of_service("web")[..] != [before.clone()] && is_back(&real.running()));
        let started: Timestamp = real.of_service("web")[0][65..].parse().unwrap();
        let took = started.duration_since(began).as_secs_f32();
        eprintln!("back after {took:.2} s, with docker's own `{}`", how[0]);
        assert!(took < 15.0, "{took}");
        end(syncer);
    }
    assert_eq!((real.of_service("web").len(), real.of_service("other")), (1, other));
    assert_ne!(real.of_service("web")[0], web);
}

#[test]
fn containers_that_end_all_the_time_cause_a_look_each_second_at_most() {
    let real = Real::enrolled();
    let service = format!(
        "{{image: 'margo-test/busybox:1', network_mode: none, restart: always, volumes: ['data:/data'], {CHECK}, \
         command: [sh, -c, 'while [ ! -e /data/broken ]; do sleep 0.1; done; exit 3']}}"
    );
    let services: String = (0..5).map(|n| format!("s{n}: {service}, ")).collect();
    real.want("looping", &format!("services: {{{services}}}\nvolumes: {{data: {{}}}}\n"));
    real.hand.publish();
    real.once().good();
    let engine = watched(&real);
    let syncer = real.listens();
    until("it listens", || listens(&engine) && looks(&engine) > 0);
    let (began, before) = (Instant::now(), looks(&engine));
    docker(&["exec", &real.of_service("s0")[0][..64], "touch", "/data/broken"]);
    std::thread::sleep(Duration::from_secs(8));
    let (seconds, looks) = (began.elapsed().as_secs() as usize, looks(&engine) - before);
    eprintln!("{looks} looks in {seconds} s");
    assert!((1..=seconds + 2).contains(&looks), "{looks} looks in {seconds} s");
    end(syncer);
}
