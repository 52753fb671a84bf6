//! Receivers of alerts: a URL behind Python's own HTTPS server, which checks the signatures by itself, and a command.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use jiff::{SignedDuration, Timestamp};
use repo_testkit::pki::{Authority, Validity};
use repo_testkit::ports::free_port;
use serde_json::{Value, json};

use wfm_git_host::accounts::{Role, Store, TTL};
use wfm_git_publisher::config::AlertKind;
use wfm_git_publisher::rollout::Phase;

use crate::device_history::tells;
use crate::follow::{Running, wait_for};
use crate::reports::Reporter;
use crate::rollouts;
use crate::support::{BEGIN, Lab, after, cells, page};
use crate::waves::reports;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Takes what is signed by the secret and isn't old, as Standard Webhooks' own libraries do; nothing while `down` is there, which
/// may say for how many seconds it wants to be left alone. `times` has when each request came.
const SERVER: &str = r#"
import base64, hashlib, hmac, http.server, json, os, ssl, sys, time
directory, port = sys.argv[1], int(sys.argv[2])
key = base64.b64decode(sys.argv[3].removeprefix("whsec_"))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        event, sent = self.headers["webhook-id"], self.headers["webhook-timestamp"]
        digest = hmac.new(key, f"{event}.{sent}.".encode() + body, hashlib.sha256).digest()
        good = hmac.compare_digest("v1," + base64.b64encode(digest).decode(), self.headers["webhook-signature"])
        good = good and abs(time.time() - int(sent)) < 300 and json.loads(body)["id"] == event
        good = good and self.headers["Content-Type"] == "application/cloudevents+json"
        down = os.path.exists(directory + "/down")
        with open(directory + "/times", "a") as file:
            file.write(f"{time.monotonic()}\n")
        with open(directory + ("/refused" if down else "/events" if good else "/forged"), "ab") as file:
            file.write(body + b"\n")
        self.send_response(503 if down else 204 if good else 401)
        if down and (wait := open(directory + "/down").read()):
            self.send_header("Retry-After", wait)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_): pass
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(directory + "/server.pem", directory + "/server.key")
server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
server.socket = context.wrap_socket(server.socket, server_side=True)
open(directory + "/ready", "w").close()
server.serve_forever()
"#;

struct Hook {
    dir: PathBuf,
    port: u16,
    server: Child,
}

impl Hook {
    fn start(lab: &Lab) -> Self {
        let (dir, port, authority) = (lab.dir().join("hook"), free_port(), Authority::new("the receiver's authority"));
        fs::create_dir(&dir).unwrap();
        let server = authority.server(&["127.0.0.1"], Validity::Now);
        fs::write(dir.join("ca.pem"), authority.certificate()).unwrap();
        fs::write(dir.join("server.pem"), server.certificate).unwrap();
        fs::write(dir.join("server.key"), server.key).unwrap();
        private(&dir.join("secret"), SECRET);
        let mut command = Command::new("python3");
        command.args(["-c", SERVER]).arg(&dir).args([&port.to_string(), SECRET]).stdin(Stdio::null());
        let hook = Self { dir, port, server: command.spawn().unwrap() };
        wait_for("the receiver", || hook.dir.join("ready").exists());
        hook
    }

    /// Its settings, with more of them.
    fn settings(&self, more: &str) -> String {
        let dir = self.dir.display();
        format!(
            "{{url: \"https://127.0.0.1:{}/wfm\", secretFile: {dir}/secret, caFile: {dir}/ca.pem, {more}}}",
            self.port
        )
    }

    fn events(&self) -> Vec<Value> {
        events(&self.dir.join("events"))
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn private(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn events(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What happened to which subject, in the order in which it was told.
fn told(events: &[Value]) -> Vec<String> {
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    events
        .iter()
        .map(|one| {
            format!("{} {} {}", word(&one["data"]["status"]), word(&one["data"]["alert"]), word(&one["subject"]))
        })
        .collect()
}

fn lab() -> Lab {
    let lab = Lab::with(&["press-01", "packer-01"]);
    lab.publish_all();
    for device in ["press-01", "packer-01"] {
        says(&lab, device, "installed");
    }
    lab
}

fn says(lab: &Lab, device: &str, state: &str) {
    reports(lab, device, state);
    Reporter { lab, device }.heartbeat(device, &after(-60));
}

fn settings(lab: &Lab, receivers: &[(&str, String)]) {
    let lines = receivers.iter().map(|(name, settings)| format!("    {name}: {settings}\n")).collect::<String>();
    fs::write(lab.home.config(), format!("alerts:\n  poll: 1s\n  receivers:\n{lines}")).unwrap();
}

/// The settings of a command as a receiver, and the file with the events that it took.
fn pager(lab: &Lab) -> (String, PathBuf) {
    let (page, paged) = (lab.dir().join("page"), lab.dir().join("paged"));
    fs::write(&page, format!("#!/bin/sh\ncat >>{0}; echo >>{0}\n", paged.display())).unwrap();
    fs::set_permissions(&page, fs::Permissions::from_mode(0o755)).unwrap();
    (format!("{{command: {}, for: 1s}}", page.display()), paged)
}

#[test]
fn a_failed_deployment_is_told_signed_once_and_once_more_when_it_is_well() {
    let lab = lab();
    let hook = Hook::start(&lab);
    settings(&lab, &[("on-call", hook.settings("for: 1s"))]);
    assert_eq!(lab.run(&["alert", "test", "on-call"]).good(), "on-call took a test event\n");
    // Of two processes that would tell, one does.
    let both = [Running::start(&lab, &[]), Running::start(&lab, &[])];
    says(&lab, "press-01", "failed");
    wait_for("the event", || hook.events().len() == 2);
    let listed: Value = serde_json::from_str(&lab.run(&["alert", "list", "--output", "json"]).good()).unwrap();
    assert_eq!(listed["alerts"][0]["receivers"]["on-call"]["told"], true, "{listed}");
    let table = lab.run(&["alert", "list"]).good();
    assert!(table.contains("deployment-failed  devices/press-01/deployments/hello  on-call"), "{table}");
    std::thread::sleep(std::time::Duration::from_secs(3));
    says(&lab, "press-01", "installed");
    wait_for("its end", || hook.events().len() == 3);
    both.into_iter().for_each(|one| _ = one.stop().good());

    let events = hook.events();
    assert_eq!(events[0]["type"], "wfm.alert.test");
    assert_eq!(
        told(&events[1..]),
        [
            "firing deployment-failed devices/press-01/deployments/hello",
            "resolved deployment-failed devices/press-01/deployments/hello"
        ]
    );
    let fleet = lab.json("press-01", "desired", "envelope.json")["fleet"].as_str().unwrap().to_owned();
    let (event, data) = (&events[1], &events[1]["data"]);
    assert_eq!((&event["specversion"], &event["source"]), (&json!("1.0"), &json!(format!("urn:uuid:{fleet}"))));
    assert_eq!(
        (&data["device"], &data["deployment"], &data["count"]),
        (&json!("press-01"), &json!("hello"), &json!(1))
    );
    assert_eq!(data["message"], "apply-failed: it did not work");
    assert!(!hook.dir.join("forged").exists());
    assert_eq!(lab.run(&["alert", "list"]).good(), "nothing fires\n");
}

#[test]
fn a_receiver_that_is_down_holds_nobody_up_and_hears_what_is_so_when_it_is_back() {
    let lab = lab();
    let hook = Hook::start(&lab);
    let (pager, paged) = pager(&lab);
    settings(&lab, &[("on-call", hook.settings("for: 1s")), ("pager", pager)]);
    fs::write(hook.dir.join("down"), "").unwrap();
    let running = Running::start(&lab, &[]);
    says(&lab, "press-01", "failed");
    wait_for("the command", || events(&paged).len() == 1);
    wait_for("the receiver that is down", || hook.dir.join("refused").exists());
    says(&lab, "press-01", "installed");
    says(&lab, "packer-01", "failed");
    wait_for("the command, again", || events(&paged).len() == 3);
    fs::remove_file(hook.dir.join("down")).unwrap();
    wait_for("the receiver", || !hook.events().is_empty());
    let said = running.stop();
    assert!(said.err.contains("an alert isn't delivered"), "{}", said.err);
    assert_eq!(told(&hook.events()), ["firing deployment-failed devices/packer-01/deployments/hello"]);
    let mut paged = told(&events(&paged));
    paged.sort();
    assert_eq!(
        paged,
        [
            "firing deployment-failed devices/packer-01/deployments/hello",
            "firing deployment-failed devices/press-01/deployments/hello",
            "resolved deployment-failed devices/press-01/deployments/hello",
        ]
    );
    // Told again after a loss of what is known: too much is better than nothing.
    fs::write(lab.home.alerts().join("on-call.json"), "{").unwrap();
    let running = Running::start(&lab, &[]);
    wait_for("the receiver, again", || hook.events().len() == 2);
    running.stop();
    assert_eq!(told(&hook.events()[1..]), ["firing deployment-failed devices/packer-01/deployments/hello"]);
}

#[test]
fn a_receiver_that_asks_to_be_left_alone_is_for_as_long_as_it_says() {
    let lab = lab();
    let hook = Hook::start(&lab);
    settings(&lab, &[("on-call", hook.settings("for: 1s"))]);
    // Longer than anybody waits after a first failure.
    fs::write(hook.dir.join("down"), "9").unwrap();
    let running = Running::start(&lab, &[]);
    says(&lab, "press-01", "failed");
    wait_for("the receiver that is down", || hook.dir.join("refused").exists());
    fs::remove_file(hook.dir.join("down")).unwrap();
    wait_for("the event", || !hook.events().is_empty());
    running.stop();
    let times = fs::read_to_string(hook.dir.join("times")).unwrap();
    let times: Vec<f64> = times.lines().map(|line| line.parse().unwrap()).collect();
    assert!(times.len() == 2 && times[1] - times[0] >= 9.0, "{times:?}");
}

/// The settings of a command of these lines as a receiver.
fn command(lab: &Lab, lines: &str) -> String {
    let page = lab.dir().join("page");
    fs::write(&page, format!("#!/bin/sh\n{lines}\n")).unwrap();
    fs::set_permissions(&page, fs::Permissions::from_mode(0o755)).unwrap();
    format!("{{command: {}, timeout: 1s, for: 1s}}", page.display())
}

#[test]
fn what_a_receiver_refuses_keeps_nothing_else_from_it() {
    let lab = lab();
    let [refused, paged] = ["refused", "paged"].map(|name| lab.dir().join(name));
    let (to_refused, to_paged) = (refused.display(), paged.display());
    let lines = format!(
        "event=$(cat)\ncase $event in *device-offline*) echo \"$event\" >>{to_refused}; exit 1;; esac\necho \"$event\" >>{to_paged}"
    );
    settings(&lab, &[("pager", command(&lab, &lines))]);
    lab.was_heard("packer-01", 7200);
    rollouts::remember(&lab.home, 12, Phase::Stopped, &["press-01", "packer-01"]);
    let running = Running::start(&lab, &[]);
    wait_for("what is refused", || refused.exists());
    wait_for("what sorts behind it", || told(&events(&paged)) == ["firing rollout-stopped rollouts/12"]);
    wait_for("it, again", || events(&refused).len() > 2);
    // What is new doesn't wait as long as what is refused, which is for 20 s by now.
    let tries = events(&refused).len();
    says(&lab, "press-01", "failed");
    wait_for("what is new", || events(&paged).len() == 2);
    assert_eq!(told(&events(&paged))[1..], ["firing deployment-failed devices/press-01/deployments/hello"]);
    assert_eq!(events(&refused).len(), tries);
    let said = running.stop().err;
    assert!(said.contains("an alert isn't delivered"), "{said}");
    let told_of = fs::read_to_string(lab.home.alerts().join("pager.json")).unwrap();
    let told_of: Value = serde_json::from_str(&told_of).unwrap();
    assert_eq!(told_of["alerts"]["device-offline devices/packer-01"]["told"], false, "{told_of}");
}

#[test]
fn a_receiver_that_is_away_costs_one_try_a_round_and_no_time_that_counts() {
    let lab = lab();
    let (tries, times) = (lab.dir().join("tries"), lab.dir().join("times"));
    let lines = format!("cat >>{0}; echo >>{0}; date +%s >>{1}; sleep 30", tries.display(), times.display());
    settings(&lab, &[("pager", command(&lab, &lines))]);
    says(&lab, "press-01", "failed");
    says(&lab, "packer-01", "failed");
    let running = Running::start(&lab, &[]);
    wait_for("the first try", || events(&tries).len() == 1);
    // What begins while it is away is so from now on, and not from when it is tried again.
    rollouts::remember(&lab.home, 12, Phase::Stopped, &["press-01", "packer-01"]);
    let known = || fs::read_to_string(lab.home.alerts().join("pager.json")).unwrap();
    wait_for("what is noted meanwhile", || known().contains("rollout-stopped rollouts/12"));
    assert_eq!(events(&tries).len(), 1);
    wait_for("the second try", || events(&tries).len() == 2);
    running.stop();
    let times = fs::read_to_string(times).unwrap();
    let times: Vec<i64> = times.lines().map(|line| line.parse().unwrap()).collect();
    assert!(times[1] - times[0] >= 5, "{times:?}");
    let tries = told(&events(&tries));
    assert_ne!(tries[0], tries[1], "what it hangs at is in the way of nothing else");
}

#[test]
fn a_device_that_never_said_anything_is_told_once_it_may_be_silent_no_longer() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_at(*BEGIN - 7200);
    lab.enroll("press-02");
    lab.publish_all();
    let firing = || {
        let listed: Value = serde_json::from_str(&lab.run(&["alert", "list", "--output", "json"]).good()).unwrap();
        listed["alerts"].as_array().unwrap().clone()
    };
    let all = firing();
    let [one] = &all[..] else { panic!("{all:?}") };
    assert_eq!((&one["alert"], &one["subject"]), (&json!("device-offline"), &json!("devices/press-01")));
    assert_eq!(
        one["message"],
        format!("it never said anything since something was published for it first, at {}", after(-7200))
    );
    says(&lab, "press-01", "installed");
    assert_eq!(firing(), [json!(null); 0]);
}

#[test]
fn a_crash_loop_and_a_rollout_that_stopped_have_words_of_their_own_until_they_are_over() {
    let lab = lab();
    let (pager, paged) = pager(&lab);
    settings(&lab, &[("pager", pager)]);
    let running = Running::start(&lab, &[]);
    let press = Reporter { lab: &lab, device: "press-01" };
    let restarts =
        r#""health":"degraded","crashLooping":true,"reason":"service `web` is restarting after it exited with 3""#;
    press.heartbeat_of("press-01", &after(-60), restarts);
    rollouts::remember(&lab.home, 12, Phase::Stopped, &["press-01", "packer-01"]);
    wait_for("both", || events(&paged).len() == 2);
    press.heartbeat("press-01", &after(-60));
    rollouts::remember(&lab.home, 12, Phase::Done, &["press-01", "packer-01"]);
    wait_for("their ends", || events(&paged).len() == 5);
    running.stop().good();
    let all = events(&paged);
    let sorted = |events: &[Value]| {
        let mut told = told(events);
        told.sort();
        told
    };
    let (loops, stopped) =
        ("deployment-crash-looping devices/press-01/deployments/hello", "rollout-stopped rollouts/12");
    assert_eq!(sorted(&all[..2]), [format!("firing {loops}"), format!("firing {stopped}")]);
    let ends = ["firing rollout-finished rollouts/12", &format!("resolved {loops}"), &format!("resolved {stopped}")];
    assert_eq!(sorted(&all[2..]), ends);
    let mut said: Vec<_> = all[..2].iter().map(|one| one["data"]["message"].as_str().unwrap()).collect();
    said.sort_unstable();
    assert_eq!(said, ["service `web` is restarting after it exited with 3", "the rollout stopped: 1 of 1 failed"]);
}

#[test]
fn the_page_has_each_alert() {
    let words = cells(&page("alerts.md"), "What fires").into_iter().map(|row| row[0].clone());
    let all = AlertKind::TABLE.iter().map(|(kind, _)| format!("`{kind}`"));
    assert_eq!(words.collect::<Vec<_>>(), all.collect::<Vec<_>>());
}

#[test]
fn a_device_that_is_silent_lies_or_gets_nothing_fires_and_whoever_is_not_enrolled_does_not() {
    let lab = Lab::with(&["press-01", "press-02", "press-03"]);
    lab.write("devices/spare-01.yaml", "id: spare-01\n");
    lab.commit();
    lab.publish_all();
    says(&lab, "press-01", "failed");
    // The last word of one that is silent since two hours stays as it is.
    Reporter { lab: &lab, device: "press-02" }.heartbeat("press-02", &after(-60));
    lab.was_heard("press-02", 7200);
    // A stranger signs.
    Reporter { lab: &lab, device: "press-03" }.heartbeat("press-01", &after(-60));
    lab.edit("deployments/hello.yaml", "version: 1.0.0", "version: 9.9.9");
    lab.commit();
    lab.run(&["publish"]).failed(1);
    let listed: Value = serde_json::from_str(&lab.run(&["alert", "list", "--output", "json"]).good()).unwrap();
    let all = listed["alerts"].as_array().unwrap().iter();
    let all: Vec<_> =
        all.map(|one| format!("{} {}", one["alert"].as_str().unwrap(), one["subject"].as_str().unwrap())).collect();
    for expected in ["deployment-failed devices/press-01/deployments/hello", "device-offline devices/press-02"] {
        assert!(all.iter().any(|one| one == expected), "{expected}: {all:?}");
    }
    assert!(all.iter().any(|one| one.starts_with("security-event devices/press-03/security/")), "{all:?}");
    assert!(all.iter().any(|one| one.starts_with("not-publishable ")), "{all:?}");
    assert!(!all.iter().any(|one| one.contains("spare-01")), "{all:?}");
}

#[test]
fn what_a_device_says_of_itself_how_a_rollout_ends_and_what_soon_counts_no_more_is_told() {
    let lab = Lab::with(&["press-01", "packer-01"]);
    lab.publish_all();
    says(&lab, "packer-01", "installed");
    let (pager, paged) = pager(&lab);
    settings(&lab, &[("pager", pager)]);
    // For 30 days from when it was made.
    let certificate = Authority::new("the host's authority").server(&["wfm.example"], Validity::Now);
    fs::write(lab.dir().join("host.pem"), certificate.certificate).unwrap();
    private(&lab.dir().join("host.key"), &certificate.key);
    let dir = lab.dir().display();
    let serve = format!("serve: {{names: [wfm.example], certificateFile: {dir}/host.pem, keyFile: {dir}/host.key}}\n");
    fs::write(lab.home.config(), fs::read_to_string(lab.home.config()).unwrap() + &serve).unwrap();
    // For 90 days, of which 20 are left.
    let began = Timestamp::now() - SignedDuration::from_hours(70 * 24);
    let desk = "desk".parse().unwrap();
    Store::new(lab.home.accounts()).add(&desk, Role::Auditor, None, Some(TTL), began).unwrap();
    let running = Running::start(&lab, &[]);
    // Whoever hears of a rollout's end was there before it.
    wait_for("the ends of the certificate and the secret", || events(&paged).len() == 2);
    let condition = |kind: &str| json!({"type": kind, "reason": "Reason", "message": "it is so"});
    tells(&lab, "press-01", ["Stalled", "Stale", "RuntimeUnavailable"].map(condition).into(), json!([]));
    let unwell = r#""health":"degraded","reason":"`web` is gone""#;
    Reporter { lab: &lab, device: "packer-01" }.heartbeat_of("packer-01", &after(-60), unwell);
    rollouts::remember(&lab.home, 12, Phase::Done, &["press-01", "packer-01"]);
    repo_testkit::comes_within(std::time::Duration::from_secs(20), || events(&paged).len() >= 7);
    running.stop().good();
    let mut all: Vec<_> = events(&paged)
        .iter()
        .map(|one| {
            let data = &one["data"];
            let about = one["subject"].as_str().unwrap();
            format!("{} {about}: {}", data["alert"].as_str().unwrap(), data["message"].as_str().unwrap())
        })
        .collect();
    all.sort();
    let ends = [
        "credential-ends credentials/accounts/desk: the secret of the account desk (auditor) ends at ",
        "credential-ends credentials/host-certificate: the host's certificate ends at ",
    ];
    assert!(all.iter().zip(ends).all(|(one, begin)| one.starts_with(begin)), "{all:?}");
    assert_eq!(
        all[2..],
        [
            "deployment-degraded devices/packer-01/deployments/hello: `web` is gone",
            "device-stale devices/press-01: Reason: it is so",
            "device-stalled devices/press-01: Reason: it is so",
            "rollout-finished rollouts/12: the rollout is done: every device has the change",
            "runtime-unreachable devices/press-01: Reason: it is so",
        ]
    );
}

#[test]
fn a_fleet_that_cannot_be_used_is_told_and_resolves_nothing_else() {
    let lab = lab();
    says(&lab, "press-01", "failed");
    let (pager, paged) = pager(&lab);
    settings(&lab, &[("pager", pager)]);
    let running = Running::start(&lab, &[]);
    let failed = "firing deployment-failed devices/press-01/deployments/hello";
    wait_for("what failed", || told(&events(&paged)) == [failed]);
    let good = lab.read("fleet.yaml");
    // Both are no fleet of this home.
    let id = good.lines().find(|line| line.starts_with("id: ")).unwrap();
    for (number, bad) in ["not: [a fleet\n".to_owned(), good.replace(id, "id: 11111111-2222-4333-8444-555555555555")]
        .into_iter()
        .enumerate()
    {
        lab.write("fleet.yaml", bad);
        lab.commit();
        let began = 1 + 2 * number;
        wait_for("the fleet", || events(&paged).len() > began);
        assert_eq!(told(&events(&paged))[began..], ["firing not-publishable fleet/not-publishable/fleet-invalid"]);
        lab.write("fleet.yaml", good.clone());
        lab.commit();
        wait_for("its end", || events(&paged).len() > began + 1);
        assert_eq!(
            told(&events(&paged))[began + 1..],
            ["resolved not-publishable fleet/not-publishable/fleet-invalid"]
        );
    }
    lab.write("fleet.yaml", "not: [a fleet\n");
    lab.commit();
    wait_for("the fleet", || events(&paged).len() == 6);
    says(&lab, "packer-01", "failed");
    wait_for("what fails meanwhile", || events(&paged).len() == 7);
    assert_eq!(told(&events(&paged))[6..], ["firing deployment-failed devices/packer-01/deployments/hello"]);
    running.stop().good();
}

#[test]
fn a_receiver_of_another_form_is_refused_and_no_secret_is_shown() {
    let lab = lab();
    let secret = lab.dir().join("secret");
    let hook = |more: &str| format!("{{url: \"https://127.0.0.1:9/\", secretFile: {}{more}}}", secret.display());
    let refused = |receivers: &str| {
        fs::write(lab.home.config(), format!("alerts:\n  receivers:\n    on-call: {receivers}\n")).unwrap();
        lab.run(&["alert", "test", "on-call"]).failed(1)
    };
    for (text, mode, expected) in [
        (SECRET, 0o644, "must be its owner's alone"),
        ("whsec_c2hvcnQ=", 0o600, "24 to 64 bytes"),
        ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", 0o600, "isn't `whsec_`"),
    ] {
        fs::write(&secret, text).unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(mode)).unwrap();
        let said = refused(&hook(""));
        assert!(said.contains(expected) && !said.contains(text), "{said}");
    }
    for (receiver, expected) in [
        (hook(", command: /bin/true"), "or `command`"),
        (hook(", only: [device-lost]"), "device-lost"),
        ("{url: \"https://hooks.example\"}".to_owned(), "needs one of `secretFile`"),
        ("{url: \"http://hooks.example\", secretFile: a}".to_owned(), "https://host/path"),
        ("{command: []}".to_owned(), "names no program"),
        ("{command: /bin/false}".to_owned(), "failed (exit status: 1)"),
        ("{command: [sleep, \"9\"], timeout: 1s}".to_owned(), "took longer than 1 s"),
        ("{command: /bin/true, for: 0s}".to_owned(), "1s to 24h"),
    ] {
        let said = refused(&receiver);
        assert!(said.contains(expected), "{receiver}: {said}");
    }
    fs::write(lab.home.config(), "alerts: {receivers: {../x: {command: /bin/true}}}\n").unwrap();
    let said = lab.run(&["alert", "list"]).failed(1);
    assert!(said.contains("can't be a receiver's name"), "{said}");
}
