//! Questions about a hosted fleet: from a clone at another machine, and by stock curl.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use jiff::Timestamp;
use repo_model::Digest;
use repo_model::enrolment::{Claim, Transcript};
use repo_testkit::foreign_host::{Answer, ForeignHost, Options};
use repo_testkit::git;
use serde_json::{Value, json};
use wfm_git_host::accounts::{Role, Store};
use wfm_git_host::enrolment::Waiting;
use wfm_git_publisher::rollout::Phase;

use crate::device_history::tells;
use crate::host::{DEVICE, Login, Site, Stream, printed};
use crate::hosted::hosted;
use crate::reports::Reporter;
use crate::restarts;
use crate::rollouts;
use crate::support::{Lab, Ran, SECOND};
use crate::terminal::quoted;

/// An operator at another machine, with a clone and git's own helper for credentials.
pub(crate) struct Elsewhere {
    site: Site,
    olga: Login,
    clone: PathBuf,
}

impl Elsewhere {
    pub(crate) fn new() -> Self {
        Self::with("")
    }

    /// With these lines under `serve:`.
    fn with(settings: &str) -> Self {
        let site = Site::on(hosted(), settings);
        let olga = site.login("olga", Role::Operator, None);
        let clone = site.clone(&olga, "fleet.git", "olga");
        git::git(&clone, &["config", "credential.helper", "store"]);
        Self { site, olga, clone }
    }

    pub(crate) fn login(&self, secret: &str) -> Ran {
        let file = self.site.lab.dir().join("olga.secret");
        fs::write(&file, secret).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let ca = self.site.ca.display().to_string();
        self.run(&["login", "--user", "olga", "--secret-file", file.to_str().unwrap(), "--ca-file", &ca])
    }

    pub(crate) fn login_as_olga(&self) -> Ran {
        self.login(&self.olga.secret)
    }

    fn logged_in(self) -> Self {
        let said = self.login_as_olga().good();
        assert_eq!(said, format!("Logged in at https://{} as olga (operator).\n", self.site.address));
        self
    }

    fn run(&self, args: &[&str]) -> Ran {
        let mut command = self.site.lab.command(args);
        Ran::of(command.current_dir(&self.clone).env("GIT_TERMINAL_PROMPT", "0").output().unwrap())
    }

    /// Starts a command that goes on.
    fn start(&self, args: &[&str]) -> Child {
        let mut command = self.site.lab.command(args);
        command.current_dir(&self.clone).env("GIT_TERMINAL_PROMPT", "0");
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn commit(&self, path: &str, text: &str) -> String {
        fs::write(self.clone.join(path), text).unwrap();
        git::git(&self.clone, &["add", path]);
        git::git(&self.clone, &["commit", "--quiet", "--message", "a change"]);
        git::git(&self.clone, &["rev-parse", "HEAD"])
    }

    /// Pushes as git does it by itself: with the authority and the credential of the login.
    fn push(&self) {
        let mut push = git::command(&self.clone);
        push.args(["push", "--quiet"]).env("HOME", self.site.lab.dir()).env("GIT_TERMINAL_PROMPT", "0");
        printed(&push.output().unwrap());
    }
}

/// What stock curl gets: the status, the content type and the body.
fn curl(site: &Site, login: Option<&Login>, args: &[&str], path: &str) -> (u16, String, String) {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--cacert"]).arg(&site.ca).args(args);
    command.args(["--write-out", "\n%{http_code} %{content_type}"]);
    command.args(login.map(|login| format!("-u{}:{}", login.name, login.secret)));
    let text = printed(&command.arg(site.url(&format!("api/v1/{path}"))).output().expect("curl is installed"));
    let (body, last) = text.rsplit_once('\n').unwrap_or(("", &text));
    let (status, kind) = last.split_once(' ').unwrap();
    (status.parse().unwrap(), kind.to_owned(), body.to_owned())
}

/// The lines that a program prints, as they come.
fn lines(pipe: Option<impl Read>) -> impl Iterator<Item = String> {
    BufReader::new(pipe.unwrap()).lines().map(Result::unwrap)
}

/// The objects that it prints, as they come.
fn objects(pipe: Option<impl Read>) -> impl Iterator<Item = Value> {
    serde_json::Deserializer::from_reader(BufReader::new(pipe.unwrap())).into_iter().map(Result::unwrap)
}

/// What is said while something takes long depends on how busy the machine is.
fn without_progress(notes: &str) -> Vec<&str> {
    let is_progress = |line: &&str| ["comparing ", "reading ", "following "].iter().any(|work| line.starts_with(work));
    notes.lines().filter(|line| !is_progress(line)).collect()
}

#[test]
fn a_clone_elsewhere_asks_its_host_and_prints_what_is_printed_beside_the_home() {
    let there = Elsewhere::new();
    let said = there.run(&["status"]).failed(1);
    assert!(said.contains("there is no publisher's home") && said.contains("`login`"), "{said}");
    let there = there.logged_in();
    rollouts::remember(&there.site.lab.home, 12, Phase::Stopped, &[DEVICE]);
    let asked = format!("note: asked https://{}\n", there.site.address);
    for args in [
        &["status"][..],
        &["status", DEVICE, "-l", "!spare", "--exit-code", "--output", "json"],
        &["status", "press-99"],
        &["status", "--group-by", "version"],
        &["device", "show", DEVICE],
        &["device", "show", "press-99"],
        &["device", "answers", DEVICE],
        &["device", "answers", DEVICE, "7"],
        &["device", "answers", "press-99"],
        &["deployment", "show", "hello", "--output", "json"],
        &["deployment", "show", "hello", DEVICE],
        &["deployment", "show", "hello", "press-99"],
        &["rollout", "list"],
        &["rollout", "show", "12"],
        &["rollout", "show", "12", "--watch"],
        &["rollout", "show", "13", "--watch"],
        &["trace", "--output", "json"],
        &["trace", "HEAD~1", "--device", DEVICE],
        &["history", DEVICE, "-n", "1"],
        &["events", DEVICE],
        &["events", "--since", "2026-01-01T00:00:00Z", "--output", "json"],
        &["explain", DEVICE, "hello", "greeting"],
        &["why-not", "hello", DEVICE],
        &["plan", "--output", "markdown"],
        &["device", "pending"],
        &["device", "pending", "--output", "json"],
        &["alert", "list"],
    ] {
        let (ran, beside) = (there.run(args), there.site.lab.run(args));
        assert_eq!((ran.code, &ran.out), (beside.code, &beside.out), "{args:?}: {}{}", ran.err, beside.err);
        let notes = ran.err.strip_prefix(&asked).unwrap_or_else(|| panic!("{args:?}: {}", ran.err));
        assert_eq!(without_progress(notes), without_progress(&beside.err), "{args:?}");
    }
}

#[test]
fn a_restart_from_a_clone_has_a_number_above_what_the_host_knows_and_needs_no_host() {
    let mut there = Elsewhere::new().logged_in();
    restarts::says(&there.site.lab, DEVICE, Some(0), 5);
    let restart = |there: &Elsewhere, more: &[&str]| {
        let restart = ["device", "restart", DEVICE, "hello", "-m", "it leaks", "--output", "json"];
        let ran = there.run(&[&restart, more].concat());
        (ran.code.unwrap(), serde_json::from_str::<Value>(&ran.out).unwrap_or_default(), ran.err)
    };
    let (code, said, _) = restart(&there, &[]);
    assert_eq!((code, &said["restart"]), (0, &json!(6)));
    let (code, said, notes) = restart(&there, &["--wait=0s"]);
    assert_eq!((code, &said["restart"], &said["done"]), (1, &json!(7), &json!([])), "{notes}");
    assert_eq!(said["left"], json!([{"device": DEVICE, "why": "not published for it"}]));
    assert!(notes.contains("note: done on 0 of 1 device\n"), "{notes}");
    let pushed = git::tip(&there.site.lab.home.hosted_fleet(), "main");
    assert_eq!(pushed.unwrap(), git::git(&there.clone, &["rev-parse", "HEAD"]), "whoever waits has it pushed");
    there.site.kill();
    let (code, said, _) = restart(&there, &[]);
    assert_eq!((code, &said["restart"]), (0, &json!(8)), "by the file alone");
}

#[test]
fn a_table_of_the_host_fits_into_the_lines_of_whoever_reads_it() {
    let there = Elsewhere::new().logged_in();
    let (lab, clone) = (&there.site.lab, there.clone.display());
    let why = format!(r#","error":{{"code":"X","message":"{}"}}"#, "it is broken ".repeat(10).trim());
    Reporter { lab, device: DEVICE }.status(DEVICE, "failed", &why);
    let widest = |page: &str| {
        assert!(page.contains(&format!("\n{DEVICE}  ")) && page.contains("broken"), "{page}");
        page.lines().map(|line| line.chars().count()).max().unwrap()
    };
    assert!(widest(&there.run(&["status"]).good()) > 150, "each row is one line");
    let notes = lab.dir().join("notes");
    let status = format!("cd '{clone}' && {} 2>'{}'", quoted(&["status"]), notes.display());
    let on_terminal = |line: &str| {
        let ran = lab.on_terminal(line, "");
        assert_eq!(ran.code, Some(0), "{line}: {}{}", ran.out, fs::read_to_string(&notes).unwrap_or_default());
        widest(&ran.out)
    };
    assert!(on_terminal(&format!("stty cols 100; {status}")) <= 100);
    assert!(on_terminal(&format!("export COLUMNS=90; {status}")) <= 90);
    assert!(on_terminal(&status) > 150, "nobody knows how wide its lines are");
    let get = |asked: &str| curl(&there.site, Some(&there.olga), &[], asked);
    assert!(widest(&get("status?output=text&width=90").2) <= 90);
    assert!(widest(&get("status?output=text&width=65535").2) > 150);
    for width in ["0", "65536", "wide"] {
        let (status, _, said) = get(&format!("status?output=text&width={width}"));
        assert!(status == 400 && said.contains("`width` is a number from 1 to 65535"), "{width}: {status}: {said}");
    }
}

#[test]
fn whoever_follows_the_fleet_from_a_clone_sees_what_comes_once() {
    let there = Elsewhere::new().logged_in();
    let lab = &there.site.lab;
    let [mut json, mut text] = ["json", "text"].map(|form| there.start(&["events", "--follow", "--output", form]));
    let (mut json_lines, mut text_lines) = (lines(json.stdout.take()), lines(text.stdout.take()));
    let mut event = || serde_json::from_str::<Value>(&json_lines.next().unwrap()).unwrap();
    let mut line = || text_lines.next().unwrap();
    let first = event();
    assert_eq!((&first["apiVersion"], &first["event"]), (&"v1".into(), &"published".into()), "{first}");
    assert_eq!(line(), "WHEN                  DEVICE    COMMIT        WHAT");
    assert!(line().contains("  press-01  "), "what was published");
    tells(lab, DEVICE, json!([]), json!([]));
    assert_eq!([event(), event()].map(|one| one["event"].clone()), ["accepted", "transition"]);
    for expected in ["accepted serial 1", "hello: none > installed"] {
        let line = line();
        assert!(line.ends_with(expected), "{expected}: {line}");
    }
    // What the host doesn't know any more is said, and ends it.
    fs::remove_dir_all(lab.home.cursors()).unwrap();
    for child in [json, text] {
        let said = Ran::of(child.wait_with_output().unwrap()).failed(1);
        assert!(said.contains("isn't known any more\n") && said.contains("hint: a cursor counts for ten"), "{said}");
    }
}

#[test]
fn whoever_watches_devices_from_a_clone_sees_what_changes_also_after_the_host_was_away() {
    let listen = format!("  listen: 127.0.0.1:{}\n", repo_testkit::ports::free_port());
    let mut there = Elsewhere::with(&listen).logged_in();
    let [mut json, mut text] = ["json", "text"].map(|form| there.start(&["status", "--watch", "--output", form]));
    let mut failed = there.start(&["status", "--failed", "--watch", "--output", "json"]);
    let mut failing = objects(failed.stdout.take());
    let mut failing = move || {
        let devices = failing.next().unwrap()["devices"].as_array().unwrap().clone();
        devices.into_iter().map(|one| one["health"].clone()).collect::<Vec<_>>()
    };
    let (mut objects, mut notes) = (objects(json.stdout.take()), lines(text.stderr.take()));
    let mut devices = move || {
        let object = objects.next().unwrap();
        assert_eq!(object["apiVersion"], "v1");
        let devices = object["devices"].as_array().unwrap().clone();
        devices.into_iter().filter(|one| one["membership"] == "enrolled").collect::<Vec<_>>()
    };
    let mut text_lines = lines(text.stdout.take());
    // As far as the line that sums up.
    let mut page = move || {
        let mut page = String::new();
        while !page.lines().any(|line| line.starts_with("1 device: ")) {
            page += &(text_lines.next().unwrap() + "\n");
        }
        page
    };
    assert_eq!((devices()[0]["health"].clone(), failing()), ("unknown".into(), vec![]));
    assert_eq!(page(), there.site.lab.run(&["status"]).good());
    tells(&there.site.lab, DEVICE, json!([]), json!([]));
    assert_eq!(devices()[0]["deployments"][0]["state"], "installed");
    let shown = page();
    assert!(shown.contains("\npress-01  hello ") && !shown.contains("packer-01"), "{shown}");
    there.site.kill();
    assert!(notes.any(|line| line.starts_with(&format!("error: cannot ask `https://{}`", there.site.address))));
    there.site.restart();
    // What comes now is shown, too; another device signed it.
    tells(&there.site.lab, "packer-01", json!([]), json!([]));
    assert!(notes.any(|line| line == format!("note: https://{} answers again", there.site.address)));
    let shown = &devices()[0];
    assert_eq!((&shown["health"], &shown["doubts"][0]["code"]), (&"doubtful".into(), &"signature-invalid".into()));
    assert!(page().contains("doubtful: signature-invalid: "));
    // Who watches those that failed sees one get well.
    assert_eq!(failing(), ["doubtful"]);
    tells(&there.site.lab, DEVICE, json!([]), json!([]));
    assert_ne!(failing(), ["doubtful"]);
    for child in [&mut json, &mut text, &mut failed] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn whoever_watches_a_rollout_from_a_clone_learns_how_it_ends() {
    let there = Elsewhere::new().logged_in();
    let home = &there.site.lab.home;
    for (number, end, code) in [(12, Phase::Stopped, 1), (13, Phase::Done, 0)] {
        rollouts::remember(home, number, Phase::Running, &[DEVICE]);
        let watch = |form: &str| there.start(&["rollout", "show", &number.to_string(), "--watch", "--output", form]);
        let [mut json, mut text] = ["json", "text"].map(watch);
        let (mut objects, mut lines) = (objects(json.stdout.take()), lines(text.stdout.take()));
        assert_eq!(lines.next().unwrap(), format!("Rollout {number}: running"));
        assert_eq!(objects.next().unwrap()["state"], "running");
        rollouts::remember(home, number, end, &[DEVICE]);
        let (last, head) = (objects.next().unwrap(), format!("Rollout {number}: {}", end.as_str()));
        assert_eq!((&last["state"], &last["words"]["paused"]), (&end.as_str().into(), &false.into()));
        assert!(objects.next().is_none(), "that was all");
        let heads: Vec<_> = lines.filter(|line| line.starts_with("Rollout ")).collect();
        assert_eq!(heads, [head]);
        assert_eq!([text.wait().unwrap().code(), json.wait().unwrap().code()], [Some(code); 2]);
    }
}

/// Lets a stranger wait for a person's word, with this number.
fn wait_for_a_word(lab: &Lab, number: u64) {
    let key = Lab::device_key(&format!("stranger {number}")).public().to_string().parse().unwrap();
    let claim = Claim { model: Some("Box 7".to_owned()), ..Claim::new(key, Digest::of(b"a secret"), "0.3.0") };
    let digest = Digest::of(&number.to_be_bytes());
    let waiting = Waiting {
        layout: 1,
        request: digest.hex()[..32].to_owned(),
        number,
        received: Timestamp::now(),
        address: [192, 0, 2, 7].into(),
        claim: serde_json::to_string(&claim).unwrap(),
        transcript: Transcript::from_hex(&digest.hex()).unwrap(),
        roster: digest,
        token: None,
        rekeys: None,
        verdict: None,
    };
    let dir = lab.home.enrolments();
    fs::create_dir_all(&dir).unwrap();
    // Nobody may read half of it.
    fs::write(dir.join("new"), serde_json::to_vec(&waiting).unwrap()).unwrap();
    fs::rename(dir.join("new"), dir.join(format!("{}.json", waiting.request))).unwrap();
}

#[test]
fn whoever_watches_from_a_clone_who_waits_sees_who_comes_and_what_becomes_of_whom() {
    let there = Elsewhere::new().logged_in();
    let lab = &there.site.lab;
    wait_for_a_word(lab, 1);
    let [mut json, mut text] =
        ["json", "text"].map(|form| there.start(&["device", "pending", "--watch", "--output", form]));
    let (mut objects, mut lines) = (objects(json.stdout.take()), lines(text.stdout.take()));
    let mut event = || {
        let event = objects.next().unwrap();
        assert_eq!(event["apiVersion"], "v1");
        (event["event"].clone(), event["number"].clone(), event["claim"]["model"].clone())
    };
    let mut line = |begin: &str| assert!(lines.any(|line| line.starts_with(begin)), "{begin}");
    assert_eq!(event(), ("waiting".into(), 1.into(), "Box 7".into()));
    ["no device may ask ", "NUMBER  AGE ", "1       ", "Read the code from the device: "]
        .into_iter()
        .for_each(&mut line);
    wait_for_a_word(lab, 2);
    assert_eq!(event(), ("waiting".into(), 2.into(), "Box 7".into()));
    ["NUMBER  AGE ", "2       "].into_iter().for_each(&mut line);
    lab.run(&["device", "reject", "1"]).good();
    assert_eq!(event(), ("rejected".into(), 1.into(), Value::Null));
    line("1 is rejected");
    fs::remove_dir_all(lab.home.enrolments()).unwrap();
    assert_eq!(event(), ("over".into(), 2.into(), Value::Null));
    line("2 waits no longer");
    for child in [&mut json, &mut text] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn what_is_not_pushed_the_host_does_not_know_and_what_is_it_does() {
    let there = Elsewhere::new().logged_in();
    let commit = there.commit("deployments/second.yaml", SECOND);
    let ran = there.run(&["plan"]);
    assert!(ran.code == Some(0) && ran.err.contains("note: 1 commit here is not pushed"), "{}{}", ran.out, ran.err);
    let said = there.run(&["plan", "--rev", "main"]).failed(1);
    assert!(said.contains("main isn't pushed") && said.contains(&format!("no revision `{commit}`")), "{said}");
    there.push();
    for args in [&["plan"][..], &["plan", "--rev", "main"], &["plan", "--rev", "HEAD~0"]] {
        let ran = there.run(args);
        assert!(ran.code == Some(3) && !ran.err.contains("pushed"), "{args:?}: {}{}", ran.out, ran.err);
    }
}

#[test]
fn an_account_that_ended_is_forgotten_and_nothing_is_kept_but_by_gits_helper() {
    let there = Elsewhere::new();
    let said = there.login("a-guess").failed(1);
    assert!(said.contains("doesn't know this account") && said.contains("hint: log in again"), "{said}");
    assert!(there.run(&["status"]).failed(1).contains("there is no publisher's home"), "nothing is set");
    let there = there.logged_in();
    let kept = || fs::read_to_string(there.site.lab.dir().join(".git-credentials")).unwrap();
    assert!(kept().contains(&there.olga.secret));
    let settings = fs::read_to_string(there.clone.join(".git/config")).unwrap();
    assert!(settings.contains("[wfm]") && !settings.contains(&there.olga.secret), "{settings}");
    let accounts = Store::new(there.site.lab.home.accounts());
    accounts.revoke(&"olga".parse().unwrap(), Timestamp::now()).unwrap();
    let ended = || there.run(&["status"]).err.contains("doesn't know this account");
    assert!(crate::host::eventually(ended));
    assert!(!kept().contains(&there.olga.secret));
    let said = there.run(&["status"]).failed(1);
    assert!(said.contains("git has no credential") && said.contains("hint: log in with"), "{said}");
    there.run(&["logout"]).good();
    assert!(there.run(&["status"]).failed(1).contains("there is no publisher's home"));
    assert_eq!(there.run(&["logout"]).good(), "Nobody was logged in.\n");
}

#[test]
fn what_a_person_says_of_a_rollout_elsewhere_is_checked_at_the_host_and_is_a_commit() {
    let there = Elsewhere::new().logged_in();
    rollouts::remember(&there.site.lab.home, 12, Phase::Stopped, &[DEVICE]);
    assert!(there.run(&["rollout", "resume", "13"]).failed(1).contains("there is no rollout 13"));
    assert!(
        there
            .run(&["rollout", "promote", "12", "press-99"])
            .failed(1)
            .contains("`press-99` is no device of rollout 12")
    );
    let said = there.run(&["rollout", "approve", "12"]).failed(1);
    assert!(said.contains("no wave of rollout 12 that is to come needs anybody's word"), "{said}");
    let said = there.run(&["rollout", "resume", "12"]).good();
    assert!(said.contains("stop 1 is lifted") && said.ends_with("Then: git push\n"), "{said}");
    assert!(there.run(&["device", "label", DEVICE, "ring=canary"]).good().ends_with("Then: git push\n"));
    let waited = there.run(&["device", "sync", DEVICE, "--wait=0s"]).failed(1);
    assert!(waited.contains("press-01 doesn't say that it answers anything"), "{waited}");
    let restarted = there.run(&["device", "restart", DEVICE, "hello", "-m", "it leaks"]).good();
    assert!(restarted.ends_with("Then: git push\n"), "{restarted}");
    let pushed = git::git(&there.site.lab.home.hosted_fleet(), &["show", "main:devices/press-01.yaml"]);
    assert!(pushed.ends_with("ask: {number: 1, what: sync}"), "it was pushed: {pushed}");
    let line = format!("{} {DEVICE}", Lab::device_key("new-disk").public());
    assert!(there.run(&["device", "enroll", DEVICE, &line, "--replace"]).good().ends_with("Then: git push\n"));
    there.push();
    let pushed = git::git(&there.site.lab.home.hosted_fleet(), &["show", "main:rollouts/12.yaml"]);
    assert!(pushed.contains("resumed: 1"), "{pushed}");
    assert!(there.run(&["rollout", "show", "12", "--output", "json"]).good().contains("\"resumed\": 1"));
}

#[test]
fn who_can_run_what_is_deployed_from_a_clone_its_host_says_and_what_it_is_not_asked_for_is_said() {
    let there = Elsewhere::new().logged_in();
    let deploy =
        |package: &str, name: &str| there.run(&["deploy", package, "--name", name, "--device", DEVICE, "--yes"]);
    let ran = deploy("hello", "second");
    let note = format!("note: asked https://{} who can run it, and what `publish` would do\n", there.site.address);
    assert!(ran.err.contains(&note), "{}", ran.err);
    assert!(ran.good().contains("\n  press-01 isn't known to run it: "));
    let package = fs::read_to_string(there.clone.join("applications/hello/1.0.0/margo.yaml")).unwrap();
    fs::create_dir(there.clone.join("applications/hello/1.1.0")).unwrap();
    there.commit("applications/hello/1.1.0/margo.yaml", &package.replace("version: 1.0.0", "version: 1.1.0"));
    let ran = deploy("hello@1.1.0", "third");
    assert!(ran.err.contains("note: who can run hello@1.1.0 is not known: it isn't pushed\n"), "{}", ran.err);
    assert!(ran.good().contains("deployments/third.yaml is committed"));
    for args in [
        &["device", "approve", "K4TX-9QHM", "--id", "press-09"][..],
        &["enroll", "open", "--for", "8h"],
        &["account", "list"],
        &["publish"],
        &["alert", "test", "desk"],
    ] {
        let said = there.run(args).failed(1);
        assert!(said.contains("there is no publisher's home at") && said.contains("isn't asked for this"), "{said}");
    }
}

#[test]
fn what_publish_would_do_is_seen_in_a_clone_before_anything_is_pushed() {
    let there = Elsewhere::new().logged_in();
    let hosted = there.site.lab.home.hosted_fleet();
    let kept = || (git::git(&hosted, &["for-each-ref"]), git::git(&hosted, &["count-objects", "-v"]));
    let before = kept();
    let deploy = |name: &str, more: &[&str]| {
        there.run(
            &[&["deploy", "hello", "--name", name, "--device", DEVICE, "--set", "greeting=hi", "--yes"], more].concat(),
        )
    };
    let second = deploy("second", &[]).good();
    let plan = second.split_once("\n\n").expect(&second).1;
    assert!(plan.contains("+ second") && plan.contains(DEVICE) && !plan.contains("+ hello"), "{second}");
    // What isn't pushed yet is a part of it.
    let third: Value = serde_json::from_str(&deploy("third", &["--output", "json"]).good()).unwrap();
    let device = &third["plan"][0];
    let added: Vec<_> = device["deployments"].as_array().unwrap().iter().map(|one| &one["deployment"]).collect();
    assert_eq!((&device["device"], added), (&DEVICE.into(), vec![&json!("second"), &json!("third")]), "{third:#}");
    assert_eq!(kept(), before, "the host kept nothing");
    // What only the host knows refuses it as beside the publisher's home: the device has another value.
    let package = fs::read_to_string(there.clone.join("applications/hello/1.0.0/margo.yaml")).unwrap();
    let package = package.replace("          schema: text", "          schema: text\n          immutable: true");
    there.commit("applications/hello/1.0.0/margo.yaml", &package);
    there.push();
    there.site.lab.publish_hosted();
    let committed = git::git(&there.clone, &["rev-parse", "HEAD"]);
    let said = there.run(&["deploy", "edit", "second", "--set", "greeting=servus", "--yes"]).failed(1);
    assert!(said.contains("nothing is written") && said.contains("can't change once it is installed"), "{said}");
    assert_eq!(git::git(&there.clone, &["rev-parse", "HEAD"]), committed);
    // A branch that the host knows nothing of.
    git::git(&there.clone, &["checkout", "--quiet", "-b", "mine"]);
    let ran = deploy("fourth", &[]);
    let note = "note: what `publish` would do is not known: this branch follows none of the host\n";
    assert!(ran.err.contains(note), "{}", ran.err);
    ran.good();
}

#[test]
fn only_an_operator_asks_what_a_push_would_do_within_their_paths_and_a_bound() {
    let there = Elsewhere::new();
    let (site, dir) = (&there.site, there.site.lab.dir());
    let (auditor, device) = (site.login("desk", Role::Auditor, None), site.device());
    let file = dir.join("gerda.secret");
    let add = ["account", "add", "gerda", "--role", "operator", "--path", "devices", "--secret-file"];
    site.lab.run(&[&add[..], &[file.to_str().unwrap()]].concat()).good();
    let gerda = Login { name: "gerda".to_owned(), secret: fs::read_to_string(file).unwrap().trim().to_owned() };
    let openapi: Value = serde_json::from_str(&curl(site, Some(&auditor), &[], "openapi.json").2).unwrap();
    let body = dir.join("sent.json");
    let post = |login: &Login, path: &str, sent: &str| {
        fs::write(&body, sent).unwrap();
        curl(site, Some(login), &["--data-binary", &format!("@{}", body.display())], path)
    };
    let file = fs::read_to_string(there.clone.join("deployments/hello.yaml")).unwrap();
    let sent = json!({ "devices": [DEVICE], "files": { "deployments/hello.yaml": file.replace("from the press", "from here") } });
    let (status, _, text) = post(&there.olga, "plan", &sent.to_string());
    let plan: Value = serde_json::from_str(&text).unwrap();
    assert!(status == 200 && schema(&openapi, "/plan").is_valid(&plan), "{text}");
    assert_eq!(
        (plan["devices"].as_array().unwrap().len(), &plan["devices"][0]["state"]),
        (1, &"changed".into()),
        "{text}"
    );
    assert!(post(&there.olga, "plan?output=text", &sent.to_string()).2.contains("hello from here"));
    // With nothing in it, it is what is published.
    assert_eq!(curl(site, Some(&auditor), &[], "plan").2, post(&there.olga, "plan", "{}").2);
    let large = json!({ "files": { "deployments/hello.yaml": " ".repeat(1 << 20) } }).to_string();
    for (login, path, sent, expected, why) in [
        (&auditor, "plan", "{}", 405, "GET, HEAD"),
        (&device, "plan", "{}", 404, ""),
        (&there.olga, "status", "{}", 404, "nothing is sent along with this question"),
        (&there.olga, "plan", "{}}", 400, "can't be understood"),
        (&there.olga, "plan", r#"{"files": {"../fleet.yaml": ""}}"#, 400, "`../fleet.yaml` is no file of a fleet"),
        (&there.olga, "plan", &large, 413, ""),
        (&gerda, "plan", &sent.to_string(), 400, "the account gerda may change `devices` and nothing else"),
    ] {
        let (status, kind, text) = post(login, path, sent);
        assert_eq!((status, &*kind), (expected, "application/problem+json"), "{path}: {text}");
        assert!(text.contains(why), "{why}: {text}");
    }
    let own = json!({ "devices": [DEVICE], "files": { "devices/press-01.yaml": null } }).to_string();
    assert_eq!(post(&gerda, "plan", &own).0, 200);
}

#[test]
fn what_a_guard_holds_is_let_pass_from_a_clone() {
    let there = Elsewhere::new().logged_in();
    let file = fs::read_to_string(there.clone.join("deployments/hello.yaml")).unwrap();
    there.commit("deployments/hello.yaml", &file.replacen("id: hello\n", "id: hello-anew\n", 1));
    there.push();
    let held = there.run(&["plan"]).out;
    assert!(held.contains("`wfm-git-publisher allow hello-anew -m WHY`"), "{held}");
    assert!(there.run(&["allow", "second", "-m", "moved"]).failed(1).contains("no guard holds `second` back"));
    let said = there.run(&["allow", "hello-anew", "-m", "it begins anew"]).good();
    assert!(said.contains("press-01, after serial 1: hello, hello-anew\nThen: git push\n"), "{said}");
    let note = there.run(&["plan"]).err;
    assert!(note.contains("1 commit here is not pushed"), "{note}");
    there.push();
    let passes = there.run(&["plan"]).out;
    assert!(passes.contains("+ hello-anew (replaces hello: data not carried), let pass by a person"), "{passes}");
    let lab = &there.site.lab;
    assert_eq!(lab.publish_hosted().published(), 1);
    assert_eq!(lab.documents(DEVICE).into_keys().collect::<Vec<_>>(), ["hello-anew"]);
}

#[test]
fn a_host_that_answers_no_questions_is_told_from_others_and_no_host_steers_the_terminal() {
    let fixed = |status, headers: &[&str], body: &str| {
        let headers = headers.iter().map(|line| (*line).to_owned()).collect();
        Some(Answer { status, headers, body: body.to_owned() })
    };
    let mut host =
        ForeignHost::start(Options { answer: fixed(404, &[], "there is nothing here"), ..Options::default() });
    let lab = Lab::new();
    git::git(lab.dir(), &["clone", "--quiet", "fleet", "elsewhere"]);
    let clone = lab.dir().join("elsewhere");
    let secret = lab.dir().join("secret");
    fs::write(&secret, "a-secret").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    git::git(&clone, &["config", "credential.helper", "store"]);
    let (url, ca) = (host.url(), host.ca().display().to_string());
    let login = ["login", &url, "--user", "olga", "--secret-file", secret.to_str().unwrap(), "--ca-file", &ca];
    let said = lab.run_in(&clone, &login).failed(1);
    assert!(
        said.contains("doesn't answer questions about a fleet (status 404)") && said.contains("0.3 or newer"),
        "{said}"
    );
    host.set(|options| {
        options.answer = fixed(200, &[], "{\"user\": \"dev\", \"role\": \"device\", \"expires\": null}")
    });
    assert!(lab.run_in(&clone, &login).failed(1).contains("only operators and auditors ask"));
    host.set(|options| {
        options.answer = fixed(200, &[], "{\"user\": \"olga\", \"role\": \"operator\", \"expires\": null}")
    });
    lab.run_in(&clone, &login).good();
    let headers = ["Wfm-Exit-Code: 0", "Wfm-Notes: warning: %1b[2Jnothing"];
    host.set(|options| options.answer = fixed(200, &headers, "all is well \u{1b}[31m"));
    let ran = lab.run_in(&clone, &["status"]);
    assert_eq!((ran.code, &*ran.out), (Some(0), "all is well \\u{1b}[31m\n"));
    assert!(ran.err.ends_with("warning: \\u{1b}[2Jnothing\n"), "{}", ran.err);
}

#[test]
fn whom_git_trusts_by_its_environment_is_trusted_as_well() {
    let elsewhere = Elsewhere::new();
    let git_does = |variable: &str, path: &Path| {
        let mut command = elsewhere.site.lab.command(&["login", "--user", "olga", "--secret-file", "../olga.secret"]);
        Ran::of(command.current_dir(&elsewhere.clone).env(variable, path).output().unwrap())
    };
    let secret = elsewhere.clone.join("../olga.secret");
    fs::write(&secret, &elsewhere.olga.secret).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let unknown = git_does("GIT_SSL_NOTHING", &elsewhere.site.ca).failed(1);
    assert!(unknown.contains("UnknownIssuer"), "{unknown}");
    git_does("GIT_SSL_CAINFO", &elsewhere.site.ca).good();
    let missing = git_does("GIT_SSL_CAINFO", Path::new("nowhere.pem")).failed(1);
    assert!(missing.contains("nowhere.pem"), "{missing}");
    let no_certificate = git_does("GIT_SSL_CERT", Path::new("nobody.pem")).failed(1);
    assert!(no_certificate.contains("nobody.pem"), "{no_certificate}");
}

/// The schema of an answer in the description.
fn schema(openapi: &Value, path: &str) -> jsonschema::Validator {
    let content = &openapi["paths"][path]["get"]["responses"]["200"]["content"]["application/json"];
    let schema = json!({ "allOf": [content["schema"]], "components": openapi["components"] });
    jsonschema::validator_for(&schema).unwrap()
}

#[test]
fn stock_curl_gets_what_the_description_says_of_each_question() {
    let site = Site::on(hosted(), "");
    rollouts::remember(&site.lab.home, 12, Phase::Stopped, &[DEVICE]);
    Reporter { lab: &site.lab, device: DEVICE }.status(DEVICE, "failed", r#","error":{"code":"X","message":"no"}"#);
    let auditor = site.login("desk", Role::Auditor, None);
    let (status, kind, text) = curl(&site, Some(&auditor), &[], "openapi.json");
    assert_eq!((status, &*kind), (200, "application/json"));
    let openapi: Value = serde_json::from_str(&text).unwrap();
    let examples = [
        ("/status", "status?failed"),
        ("/status", "status?group-by=version"),
        ("/devices", "devices?selector=%21spare"),
        ("/devices/{id}", "devices/press-01"),
        ("/devices/{id}/answers", "devices/press-01/answers"),
        ("/devices/{device}/applications", "devices/press-01/applications"),
        ("/applications/{package}/devices", "applications/hello%401.0.0/devices"),
        ("/deployments/{id}", "deployments/hello"),
        ("/rollouts", "rollouts"),
        ("/rollouts/{number}", "rollouts/12"),
        ("/trace/{commit}", "trace/HEAD?device=press-01"),
        ("/history/{device}", "history/press-01?since=2d"),
        ("/events", "events?since=2d"),
        ("/explain/{device}", "explain/press-01?deployment=hello"),
        ("/why-not/{application}/{device}", "why-not/hello/press-01"),
        ("/plan", "plan?rev=HEAD"),
        ("/enrolments", "enrolments"),
        ("/alerts", "alerts"),
    ];
    for (path, asked) in examples {
        let (status, kind, text) = curl(&site, Some(&auditor), &[], asked);
        assert_eq!((status, &*kind), (200, "application/json"), "{asked}: {text}");
        let answer = serde_json::from_str(&text).unwrap();
        let errors: Vec<_> = schema(&openapi, path)
            .iter_errors(&answer)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{asked}: {errors:?}\n{text}");
        assert!(!schema(&openapi, path).is_valid(&json!({})), "{path}");
    }
    let tried =
        examples.iter().map(|(path, _)| *path).chain(["/openapi.json"]).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(tried.len(), openapi["paths"].as_object().unwrap().len(), "{tried:?}");
    let (_, kind, text) = curl(&site, Some(&auditor), &[], "status?output=text");
    assert!(kind == "text/plain; charset=utf-8" && text.starts_with("DEVICE"), "{kind}: {text}");
    let headers = curl(&site, Some(&auditor), &["--include"], "status?devices=press-99").2.to_ascii_lowercase();
    for header in
        ["wfm-exit-code: 1", "wfm-notes: note: at commit ", "no device `press-99`", "x-content-type-options: nosniff"]
    {
        assert!(headers.contains(header), "{header}: {headers}");
    }
    assert!(!headers.contains("access-control-"), "{headers}");

    // Who may ask, and what isn't answered: as problem details.
    let (device, person) = (site.device(), site.lab.dir().join("person.secret"));
    let add =
        ["account", "add", "j.doe", "--role", "site", "--device", DEVICE, "--secret-file", person.to_str().unwrap()];
    site.lab.run(&add).good();
    let person = Login { name: "j.doe".to_owned(), secret: fs::read_to_string(person).unwrap().trim().to_owned() };
    let problems = jsonschema::validator_for(
        &json!({ "$ref": "#/components/schemas/Problem", "components": openapi["components"] }),
    )
    .unwrap();
    for (login, args, asked, expected, code) in [
        (None, &[][..], "status", 401, None),
        (Some(&device), &[], "status", 404, None),
        (Some(&person), &[], "openapi.json", 404, None),
        (Some(&auditor), &["--request", "POST"], "status", 405, None),
        (Some(&auditor), &[], "publish", 404, None),
        (Some(&auditor), &[], "status?home=/etc", 400, Some(2)),
        (Some(&auditor), &[], "history/press-01?since=never", 400, Some(2)),
        (Some(&auditor), &[], "devices/press-99", 404, Some(1)),
        (Some(&auditor), &[], "devices/press-99/answers", 404, Some(1)),
        (Some(&auditor), &[], "devices/press-99/applications", 404, Some(1)),
        (Some(&auditor), &[], "applications/nothing/devices", 404, Some(1)),
        (Some(&auditor), &[], "deployments/nothing", 404, Some(1)),
        (Some(&auditor), &[], "rollouts/99", 404, Some(1)),
        (Some(&auditor), &[], "history/press-99", 404, Some(1)),
        (Some(&auditor), &[], "why-not/nothing/press-01", 404, Some(1)),
        (Some(&auditor), &[], &format!("events?after=sha256:{}", "0".repeat(64)), 404, Some(1)),
        (Some(&auditor), &[], "events?after=../status", 400, Some(2)),
        (Some(&auditor), &[], "plan?rev=nowhere", 422, Some(1)),
    ] {
        let (status, kind, text) = curl(&site, login, args, asked);
        assert_eq!((status, &*kind), (expected, "application/problem+json"), "{asked}: {text}");
        let problem: Value = serde_json::from_str(&text).unwrap();
        assert!(problems.is_valid(&problem) && problem["exitCode"].as_i64() == code, "{asked}: {text}");
    }
}

#[test]
fn questions_that_take_long_hold_up_no_device_and_those_that_are_too_many_are_sent_away() {
    let site = Site::on(hosted(), "");
    // Whoever reads what can't be published waits for ever.
    let findings = site.lab.home.findings();
    let _ = fs::remove_file(&findings);
    let made = Command::new("mkfifo").arg(&findings).status().unwrap();
    assert!(made.success());
    let desks = ["one", "two", "three"].map(|name| site.login(name, Role::Auditor, None));
    let ask = |desk: &Login| site.say(desk.ask("/api/v1/status"));
    // Of two accounts one each is answered, and all others wait: of one account eight requests at most, sixteen in all.
    let mut asked: Vec<Stream> =
        desks[..2].iter().flat_map(|desk| (0..8).map(|_| ask(desk)).collect::<Vec<_>>()).collect();
    asked.extend((0..2).map(|_| ask(&desks[2])));
    let said = |desk: &Login| site.get("/api/v1/status", Some(desk));
    let busy = || said(&desks[2]).status == 503;
    assert!(crate::host::eventually(busy));
    let answer = said(&desks[2]);
    assert!(answer.header("retry-after").is_some() && answer.text().contains("the host is busy"), "{}", answer.text());
    assert_eq!(said(&desks[0]).status, 429);
    let device = site.device();
    let polled = site.get(&format!("/devices/{DEVICE}.git/info/refs?service=git-upload-pack"), Some(&device));
    assert_eq!(polled.status, 200);
    // Who goes away takes the processes along.
    drop(asked);
    let threads = || fs::read_dir(format!("/proc/{}/task", site.pid())).unwrap();
    let has_child = |path: PathBuf| fs::read_to_string(path.join("children")).is_ok_and(|all| !all.is_empty());
    assert!(crate::host::eventually(|| !threads().any(|thread| has_child(thread.unwrap().path()))));
}
