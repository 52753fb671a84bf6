//! The device over HTTPS: against a foreign host with every kind of trouble, and against one that offers what ours does.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use repo_testkit::deltas::{Shape, bomb, peak_memory};
use repo_testkit::faults::fault_proxy::{Direction, Fault, FaultProxy};
use repo_testkit::foreign_host::{Answer, ForeignHost, Options, Shown};
use repo_testkit::{git, terminate};
use serde_json::{Value, json};

use crate::our_host::{OurHost, State};
use crate::world::{World, command, finish, until};

pub(crate) const SECRET: &str = "c4nary-of-this-device";

/// Short limits, so that silence doesn't take long.
const SHORT: &str = "host: {timeouts: {connect: 2s, answer: 2s, stall: 1500ms, total: 6s}}\n";

/// Joins the world's device again, over HTTPS.
pub(crate) fn join(world: &World, url: &str, ca: &str, account: bool) {
    let path = world.hand.path("join.json");
    let mut join: Value = serde_json::from_slice(&fs::read(&path).expect("a join file")).expect("JSON");
    join["url"] = url.into();
    join["ca"] = ca.into();
    if account {
        join["account"] = json!({"user": "press-01", "secret": SECRET});
    }
    fs::write(&path, join.to_string()).expect("written");
    world.init(&world.home());
    world.settings("");
}

/// The device's repository at a foreign host, and a device that reaches it through a proxy that breaks things.
pub(crate) fn abroad(options: Options) -> (World, ForeignHost, FaultProxy) {
    let world = World::enrolled();
    let account = options.account.is_some();
    let host = ForeignHost::start(options);
    std::os::unix::fs::symlink(world.hand.repository(), host.repository("press-01")).expect("linked");
    git::git(&world.hand.repository(), &["config", "http.receivepack", "true"]);
    let proxy = FaultProxy::start(host.address());
    let ca = fs::read_to_string(host.ca()).expect("its authority");
    join(&world, &format!("{}/press-01.git", host.url_by(proxy.address())), &ca, account);
    world.hand.want("greeter", &world.app, "hello");
    world.hand.publish();
    (world, host, proxy)
}

/// The device's repository at a host like ours.
pub(crate) fn at_home(state: State) -> (World, OurHost) {
    let world = World::enrolled();
    let secrets = [SECRET.to_owned()].into();
    let host = OurHost::start(world.hand.repository(), State { secrets, ..state });
    join(&world, &host.url(), host.host.authority.certificate(), true);
    world.hand.want("greeter", &world.app, "hello");
    world.hand.publish();
    (world, host)
}

/// Why the host can't be reached, by `status`.
pub(crate) fn trouble(world: &World) -> Option<String> {
    let out: Value = serde_json::from_str(&world.syncer(&["status", "--output", "json"]).good().stdout).expect("JSON");
    let host = out["host"].as_object()?;
    Some(format!("{} {}", host["type"].as_str()?, host["reason"].as_str()?))
}

pub(crate) fn account(world: &World) -> Value {
    serde_json::from_slice(&fs::read(world.home().join("account.json")).expect("an account")).expect("JSON")
}

#[test]
fn a_device_lives_over_https_as_it_does_over_a_path_and_no_log_has_its_secret() {
    let account = Some(("press-01".to_owned(), SECRET.to_owned()));
    let (world, mut host, _proxy) = abroad(Options { account, ..Options::default() });
    let mut once = command(&world.home(), &["once"]);
    let run =
        finish(once.env("DEVICE_SYNCER_LOG", "trace").env("RUST_LOG", "trace").spawn().expect("it starts")).good();
    assert_eq!(world.states("greeter"), ["hello installed"]);
    world.assert_idle();
    world.assert_cured();
    world.assert_whole(true);
    let encoded = "cHJlc3MtMDE6YzRuYXJ5";
    let said = format!("{}{}{}", run.stdout, run.stderr, world.once().stderr);
    assert!(!said.contains(SECRET) && !said.contains(encoded), "{said}");
    for file in ["account.json", "join.json"] {
        let mode = fs::metadata(world.home().join(file)).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    // A secret that is no longer known is a matter for a person, and what runs keeps running.
    let before = world.containers();
    host.set(|options| options.account = Some(("press-01".to_owned(), "an0ther".to_owned())));
    let run = world.once().ended(1);
    assert!(run.stderr.contains("Stalled: Unauthorized") && !run.stderr.contains(SECRET), "{}", run.stderr);
    assert_eq!((trouble(&world), world.containers()), (Some("Stalled Unauthorized".to_owned()), before));
    let status = world.syncer(&["status"]).good().stdout;
    assert!(status.contains("Stalled: Unauthorized"), "{status}");
    let plan = world.syncer(&["plan"]);
    assert!(plan.stdout.contains("Stalled: Unauthorized"), "{plan:?}");
}

#[test]
fn a_small_pack_of_large_deltas_takes_no_memory_and_is_no_news() {
    let (world, _host, _proxy) = abroad(Options::default());
    world.once().good();
    let (there, before) = (world.hand.repository(), (world.containers(), world.fake.calls()));
    let good = world.hand.tip("desired");
    let tip = bomb(&there, Shape::Chain(24), Some(&good));
    git::git(&there, &["update-ref", "refs/heads/desired", &tip]);
    let (peak, output) = peak_memory(command(&world.home(), &["once"]).spawn().expect("it starts"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("FetchFailed") && said.contains("deltas of the pack come to more"), "{said}");
    assert!(peak < 200 << 20, "{peak} bytes of memory");
    assert_eq!(world.conditions(), ["Stalled FetchFailed"]);
    assert_eq!((world.containers(), world.fake.calls()), before, "the same containers, untouched");
    git::git(&there, &["update-ref", "refs/heads/desired", &good]);
    world.assert_cured();
}

#[test]
fn whatever_the_host_answers_what_runs_keeps_running_and_status_says_why() {
    let (world, mut host, _proxy) = abroad(Options::default());
    world.once().good();
    world.told();
    let before = (world.containers(), world.fake.calls());
    let answers = [
        (401, "X: y", "Stalled Unauthorized"),
        (403, "X: y", "Stalled Forbidden"),
        (404, "X: y", "Stalled NotFound"),
        (429, "Retry-After: 9", "Unreachable TooManyRequests"),
        (500, "X: y", "Unreachable HostError"),
        (200, "Content-Type: text/html", "Unreachable NotTheHost"),
        (302, "Location: https://login.example/", "Stalled Redirected"),
    ];
    for (status, header, name) in answers {
        let answer = Answer { status, headers: vec![header.to_owned()], body: "<html>no</html>".to_owned() };
        host.set(|options| options.answer = Some(answer));
        world.once().ended(1);
        assert_eq!(trouble(&world).as_deref(), Some(name));
    }
    host.set(|options| options.answer = None);
    for (shown, name) in [
        (Shown::Expired, "Stalled CertificateExpired"),
        (Shown::OtherName, "Stalled CertificateWrongName"),
        (Shown::OtherAuthority, "Stalled CertificateUnknownAuthority"),
    ] {
        host.set(|options| options.certificate = shown);
        world.once().ended(1);
        assert_eq!(trouble(&world).as_deref(), Some(name));
    }
    assert_eq!((world.containers(), world.fake.calls()), before, "the same containers, untouched");
    assert_eq!(world.told(), Vec::<String>::new());
    host.set(|options| options.certificate = Shown::Good);
    world.assert_idle();
    assert_eq!(trouble(&world), None);
    world.assert_cured();
}

/// A host, or whoever stands between, says what a terminal would obey, and what would look like lines of our own.
#[test]
fn what_a_host_says_is_shown_as_it_is_and_steers_no_terminal() {
    let (world, mut host, _proxy) = abroad(Options::default());
    world.once().good();
    let said = "no\u{202e}\u{9b}2J\u{1b}[2J\u{2066}\u{200b}\u{2028}adopted: serial 99";
    let headers = vec!["Content-Type: text/plain".to_owned()];
    host.set(|options| options.answer = Some(Answer { status: 403, headers, body: said.to_owned() }));
    let is_harmless = |text: &str| {
        !text.contains(|c: char| c != '\n' && (c.is_control() || "\u{202e}\u{2066}\u{200b}\u{2028}".contains(c)))
    };
    for args in [&["once"][..], &["--log", "json", "once"], &["status"], &["status", "--output", "json"], &["plan"]] {
        let ran = world.syncer(args);
        let shown = format!("{}{}", ran.stdout, ran.stderr);
        assert!(is_harmless(&shown), "{args:?}: {shown:?}");
        assert!(shown.contains("u{202e}") || shown.contains("u202e"), "{args:?} hides what was said: {shown}");
        assert!(!shown.lines().any(|line| line.starts_with("adopted: serial 99")), "{args:?}: {shown}");
    }
}

#[test]
fn whatever_the_network_does_the_device_goes_on_and_tells_later() {
    let (world, _host, proxy) = abroad(Options::default());
    world.once().good();
    for (fault, names) in [
        (Fault::Refuse, &["Unreachable ConnectionRefused"][..]),
        (Fault::HalfOpen, &["Unreachable ConnectTimeout", "Unreachable ConnectionStalled"]),
        (Fault::CutAfter(Direction::Down, 1500), &["Unreachable ConnectionCut"]),
        (Fault::ResetAfter(Direction::Down, 1500), &["Unreachable ConnectionCut"]),
        (Fault::StallAfter(Direction::Down, 1500), &["Unreachable ConnectionStalled", "Unreachable AnswerTimeout"]),
        (
            Fault::Throttle(150),
            &[
                "Unreachable ConnectTimeout",
                "Unreachable TotalTimeout",
                "Unreachable AnswerTimeout",
                "Unreachable ConnectionStalled",
            ],
        ),
    ] {
        world.settings(if fault.is_silent() { SHORT } else { "" });
        proxy.set(fault);
        let (begin, before) = (Instant::now(), world.containers());
        world.once().ended(1);
        assert!(begin.elapsed() < Duration::from_secs(60), "{fault:?}: {:?}", begin.elapsed());
        let found = trouble(&world).expect("trouble");
        assert!(names.contains(&found.as_str()), "{fault:?}: {found}");
        assert_eq!(world.containers(), before);
        proxy.set(Fault::Refuse);
        proxy.set(Fault::None);
    }
    world.settings("");
    world.once().good();
    assert_eq!(trouble(&world), None);
    world.assert_cured();
}

#[test]
fn a_running_device_backs_off_from_a_host_in_trouble_and_heeds_what_it_asks_for() {
    let (world, mut host, proxy) = abroad(Options::default());
    world.settings("poll: 1s\nreport: 1h\n");
    world.once().good();
    let answer = Answer { status: 429, headers: vec!["Retry-After: 3600".to_owned()], body: String::new() };
    host.set(|options| options.answer = Some(answer));
    let before = proxy.counts();
    let syncer = command(&world.home(), &["run"]).spawn().expect("it starts");
    until("it asked", || trouble(&world).as_deref() == Some("Unreachable TooManyRequests"));
    let asked = proxy.counts().exchanges - before.exchanges;
    // Several poll intervals.
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(proxy.counts().exchanges - before.exchanges, asked, "it asked again within the time it was told");
    terminate(&syncer);
    finish(syncer).good();
}

#[test]
fn a_device_that_waits_sees_a_publish_at_once_and_asks_for_nothing_in_between() {
    let (world, host) = at_home(State { wait: Some(Duration::from_secs(300)), ..State::default() });
    world.settings("poll: 1s\nreport: 1h\n");
    let syncer = command(&world.home(), &["run"]).spawn().expect("it starts");
    until("it waits", || host.state().waiting == 1 && world.states("greeter") == ["hello installed"]);
    // The heartbeat and the status were told; then there is nothing to ask.
    until("it is quiet", || {
        let before = host.host.asked().len();
        std::thread::sleep(Duration::from_millis(2500));
        host.host.asked().len() == before
    });
    let (asked, begin) = (host.asked("git-upload-pack").len(), Instant::now());
    world.told();
    world.hand.want("greeter", &world.app, "at once");
    world.hand.publish();
    until("the update runs", || world.greetings() == ["at once"]);
    assert!(begin.elapsed() < Duration::from_secs(60));
    // What goes away before that is missed by the update itself, for as long as it waits for health.
    until("the update is told", || {
        world.told().iter().any(|said| said.contains("greeter/hello installing > installed"))
    });
    assert!(host.asked("git-upload-pack").len() > asked);
    until("it waits again", || host.state().waiting == 1);
    // A container that goes away is healed although the host isn't asked.
    let state = world.fake.dir().join("state.json");
    let mut json: Value = serde_json::from_slice(&fs::read(&state).expect("there")).expect("JSON");
    json["containers"] = json!({});
    fs::write(&state, json.to_string()).expect("written");
    until("it is healed", || world.greetings() == ["at once"]);
    until("it waits again", || host.state().waiting == 1);
    // Asked to end, it does so at once, although its wait would last for minutes.
    let begin = Instant::now();
    terminate(&syncer);
    finish(syncer).good();
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
}

#[test]
fn a_device_that_is_called_with_many_others_comes_at_a_moment_of_its_own() {
    let jitter = Duration::from_secs(3);
    let wait = Some(Duration::from_secs(300));
    let (world, host) = at_home(State { wait, jitter: 3000, ..State::default() });
    world.settings("poll: 1h\nreport: 1h\n");
    let syncer = command(&world.home(), &["run"]).spawn().expect("it starts");
    until("it waits", || host.state().waiting == 1 && world.states("greeter") == ["hello installed"]);
    let delays: Vec<_> = (0..5)
        .map(|round| {
            until("it waits again", || host.state().waiting == 1);
            let before = host.asked("git-upload-pack").len();
            world.hand.want("greeter", &world.app, &format!("round {round}"));
            world.hand.publish();
            let called = Instant::now();
            until("it comes", || host.asked("git-upload-pack").len() > before);
            let delay = called.elapsed();
            until("the update runs", || world.greetings() == [format!("round {round}")]);
            delay
        })
        .collect();
    // All five within a twentieth of the time would be one chance in three million.
    let spread = delays.iter().max().expect("five").saturating_sub(*delays.iter().min().expect("five"));
    assert!(spread > jitter / 20, "{delays:?}");
    assert!(delays.iter().all(|delay| *delay < jitter + Duration::from_secs(60)), "{delays:?}");
    terminate(&syncer);
    finish(syncer).good();
}

#[test]
fn a_request_at_the_device_ends_its_rest_at_once() {
    let (world, host) = at_home(State { wait: Some(Duration::from_secs(300)), ..State::default() });
    world.settings("poll: 1h\n");
    let syncer = command(&world.home(), &["run"]).spawn().expect("it starts");
    until("it waits", || host.state().waiting == 1);
    let request = world.home().join("request-retry");
    world.syncer(&["retry"]).good();
    until("the request was taken", || !request.exists());
    terminate(&syncer);
    finish(syncer).good();
}

#[test]
fn a_host_whose_waits_end_at_once_is_not_asked_in_a_circle() {
    let (world, host) = at_home(State { wait: Some(Duration::from_secs(300)), lies: true, ..State::default() });
    let syncer = command(&world.home(), &["run"]).spawn().expect("it starts");
    until("it waited", || host.asked("/wait").len() >= 3);
    std::thread::sleep(Duration::from_secs(4));
    let waits = host.asked("/wait").len();
    assert!(waits <= 10, "{waits} waits");
    terminate(&syncer);
    finish(syncer).good();
}

#[test]
fn a_secret_is_renewed_before_it_ends_and_each_cut_leaves_one_that_works() {
    for lose in [None, Some("renewal"), Some("proof")] {
        let expires = Some("2020-01-01T00:00:00Z".to_owned());
        let wait = Some(Duration::from_secs(300));
        let (world, host) = at_home(State { wait, expires, lose, ..State::default() });
        // Where the answer to the new secret got lost, the rest of the pass is refused: the host ended the old one.
        world.once().ended(if lose == Some("proof") { 1 } else { 0 });
        let kept = account(&world);
        match lose {
            None => assert!(kept["next"].is_null() && kept["previous"]["secret"] == SECRET, "{lose:?}"),
            Some("proof") => {
                assert!(kept["current"]["secret"] == SECRET && !kept["next"].is_null());
                assert!(!host.state().secrets.contains(SECRET), "the host knows the new one only");
            }
            _ => assert!(kept["current"]["secret"] == SECRET && kept["next"].is_null()),
        }
        // Whatever got lost, the next pass gets in.
        host.state().lose = None;
        world.once().good();
        let kept = account(&world);
        assert!(kept["current"]["secret"] != SECRET && kept["next"].is_null(), "{lose:?}");
        assert_eq!(host.state().secrets.len(), 1);
        let run = world.once().good();
        assert!(!run.stderr.contains("c4nary"), "{}", run.stderr);
        assert_eq!(host.asked("/account/renew").len(), if lose == Some("renewal") { 2 } else { 1 });
    }
}

#[test]
fn a_host_restored_from_before_a_renewal_is_reached_with_the_secret_of_that_time() {
    let (expires, wait) = (Some("2020-01-01T00:00:00Z".to_owned()), Some(Duration::from_secs(300)));
    let (world, host) = at_home(State { wait, expires: expires.clone(), ..State::default() });
    world.once().good();
    assert_ne!(account(&world)["current"]["secret"], SECRET);
    {
        let mut state = host.state();
        (state.secrets, state.expires) = ([SECRET.to_owned()].into(), expires);
    }
    world.once().good();
    world.once().good();
    let kept = account(&world);
    assert!(kept["current"]["secret"] != SECRET && host.state().secrets.len() == 1, "renewed again");
}

#[test]
fn a_revoked_device_keeps_what_runs_and_says_why() {
    let (world, host) = at_home(State { wait: Some(Duration::from_secs(300)), ..State::default() });
    world.once().good();
    let before = world.containers();
    host.state().secrets.clear();
    world.once().ended(1);
    assert_eq!((trouble(&world), world.containers()), (Some("Stalled Unauthorized".to_owned()), before));
}

#[test]
fn a_credential_of_the_site_takes_the_place_of_the_joined_one() {
    let account = Some(("site".to_owned(), "s1te".to_owned()));
    let (world, _host, _proxy) = abroad(Options { account, ..Options::default() });
    let password = world.home().join("host-password");
    let settings = |source: &str| world.settings(&format!("host: {{account: {{user: site, password: {source}}}}}\n"));
    settings("{file: host-password}");
    world.once().ended(1);
    assert_eq!(trouble(&world).as_deref(), Some("Stalled CredentialUnreadable"));
    fs::write(&password, "s1te\n").expect("written");
    fs::set_permissions(&password, fs::Permissions::from_mode(0o640)).expect("set");
    let run = world.once().ended(1);
    assert!(run.stderr.contains("chmod 600") && !run.stderr.contains("s1te"), "{}", run.stderr);
    fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).expect("set");
    world.once().good();
    settings("{env: HOST_PASSWORD}");
    let once =
        |name: &str, value: &str| finish(command(&world.home(), &["once"]).env(name, value).spawn().expect("runs"));
    once("HOST_PASSWORD", "s1te").good();
    once("HOST_PASSWORD", "").ended(1);
    settings("{systemd: host-password}");
    once("CREDENTIALS_DIRECTORY", &world.home().display().to_string()).good();
    world.once().ended(1);
    assert_eq!(trouble(&world).as_deref(), Some("Stalled CredentialUnreadable"));
}

#[test]
fn an_address_with_a_credential_is_refused_and_not_repeated() {
    let (world, host) = at_home(State::default());
    let path = world.hand.path("join.json");
    let text = fs::read_to_string(&path).expect("a join file").replace("https://", "https://press-01:c4nary@");
    fs::write(&path, text).expect("written");
    world.init(&world.home());
    let run = world.once().ended(1);
    assert!(run.stderr.contains("holds a credential") && !run.stderr.contains("c4nary"), "{}", run.stderr);
    drop(host);
}

#[test]
fn an_archive_by_url_runs_when_it_is_the_locked_one_and_only_then() {
    use repo_testkit::faults::scripted_host::{Host, Reply, answer};
    let apps = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/apps/hello");
    let archive = repo_artifacts::pack(&apps, "hello").expect("an archive");
    let digest = repo_model::Digest::of(&archive).to_string();
    let host = Host::start(move |_| Reply::Keep(answer("200 OK", &["Content-Type: application/gzip"], &archive)));
    let world = World::enrolled();
    fs::write(world.home().join("plant-ca.pem"), host.authority.certificate()).expect("written");
    let settings = fs::read_to_string(world.home().join("device.yaml")).expect("settings");
    let with_ca = settings.replace("registries: {", "registries: {ca: [plant-ca.pem], ");
    let publish = |digest: &str, more: &str| {
        world.hand.want("greeter", &world.app, "by url");
        let (url, more) = (host.url("/hello.tar.gz?token=c4nary"), more.to_owned());
        world.hand.edit("greeter", |document| {
            let lines = document.lines().filter(|line| !line.trim_start().starts_with("revision:"));
            let place = |line: &str| match line.trim_start().starts_with("repository:") {
                true => format!("          packageLocation: \"{url}\"\n{more}"),
                false => format!("{line}\n"),
            };
            lines.map(place).collect()
        });
        world.hand.describe("greeter", |described| {
            described["locks"]["hello"] = json!({"manifest": digest, "content": digest});
        });
        world.hand.publish();
    };
    publish(&digest, "");
    // Nobody trusts its authority yet.
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello pending artifact-unavailable"]);
    fs::write(world.home().join("device.yaml"), with_ca).expect("written");
    world.syncer(&["retry"]).good();
    world.once().good();
    assert_eq!(
        (world.states("greeter"), world.greetings()),
        (vec!["hello installed".to_owned()], vec!["by url".to_owned()])
    );
    publish(&repo_model::Digest::of(b"other").to_string(), "");
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello failed artifact-digest-changed"]);
    assert!(!world.message("greeter").contains("c4nary"), "{}", world.message("greeter"));
    publish(&digest, "          keyLocation: \"https://example.invalid/key.asc\"\n");
    world.once().good();
    assert_eq!(world.states("greeter"), ["hello installed"], "its signature was checked when it was locked");
}

#[test]
fn a_client_certificate_and_a_proxy_are_taken_from_the_settings_and_changed_files_are_read_again() {
    let (world, host, proxy) = abroad(Options { client_certificate: true, ..Options::default() });
    world.once().ended(1);
    assert_eq!(trouble(&world).as_deref(), Some("Stalled ClientCertificateRefused"));
    let keep = |name: &str, text: &str| {
        let path = world.home().join(name);
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
    };
    let good = host.client("press-01");
    let other = repo_testkit::pki::Authority::new("another authority").client("press-01");
    keep("client.pem", &other.certificate);
    keep("client.key", &other.key);
    world.settings("host: {clientCertificate: {chain: client.pem, key: client.key}}\npoll: 1s\n");
    let syncer = command(&world.home(), &["run"]).spawn().expect("it starts");
    let before = proxy.counts().connections;
    until("it tried", || proxy.counts().connections > before);
    assert_eq!(trouble(&world).as_deref(), Some("Stalled ClientCertificateRefused"));
    // In place of a back-off of minutes: the change itself wakes it.
    keep("client.key", &good.key);
    keep("client.pem", &good.certificate);
    until("it is in", || trouble(&world).is_none() && world.states("greeter") == ["hello installed"]);
    terminate(&syncer);
    finish(syncer).good();
}

#[test]
fn a_device_whose_clock_is_at_1970_joins_and_goes_on() {
    let (world, host, _proxy) = abroad(Options::default());
    let at_1970 = |args: &[&str]| {
        let mut faketime = std::process::Command::new("faketime");
        faketime.args(["-m", "--exclude-monotonic", "1970-01-03 00:00:00", env!("CARGO_BIN_EXE_device-syncer")]);
        faketime.arg("--home").arg(world.home()).args(args).stdin(std::process::Stdio::null());
        faketime.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        finish(faketime.spawn().expect("faketime is installed: ./justw setup stack"))
    };
    // Nothing tells it the time yet.
    at_1970(&["once"]).ended(1);
    assert_eq!(trouble(&world).as_deref(), Some("Stalled CertificateNotYetValid"));
    // A join file says when it was written.
    let path = world.hand.path("join.json");
    let mut join: Value = serde_json::from_slice(&fs::read(&path).expect("a join file")).expect("JSON");
    join["issued"] = jiff::Timestamp::now().to_string().into();
    fs::write(&path, join.to_string()).expect("written");
    at_1970(&["init", "--join", &path.display().to_string()]).good();
    at_1970(&["once"]).good();
    assert_eq!(world.states("greeter"), ["hello installed"]);
    // What was verified is the floor from then on.
    at_1970(&["once"]).good();
    drop(host);
}
