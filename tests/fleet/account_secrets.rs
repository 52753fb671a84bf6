//! Secrets of accounts stay where they belong, whoever uses them: devices, operators, auditors, registries.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use repo_testkit::{git, terminate};

use crate::hosted::{Hosted, ID};
use crate::secrets::{Secret, each_arguments, files};
use repo_testkit::fleet::DEPLOYMENT;

/// What was said, by whom.
type Said = Vec<(String, Vec<u8>)>;

/// Where secrets of accounts may lie: with who shows them, and in the join file that brings one.
const PLACES: [&str; 5] = ["/fleet.wfm/join/", "/home/join.json", "/home/account.json", ".secret", "/keys/"];

/// Everything that could be seen and has a secret in it.
fn leaks(hosted: &Hosted, secrets: &[Secret], said: &Said) -> Vec<String> {
    let mut leaks = Vec::new();
    let mut look = |place: String, text: &[u8]| {
        leaks.extend(secrets.iter().filter(|one| one.is_in(text)).map(|one| format!("{} in {place}", one.name)));
    };
    for repository in repositories(hosted) {
        let all = git::try_git(&repository, &["cat-file", "--batch-all-objects", "--batch", "--unordered"]);
        assert!(all.status.success() && all.stdout.len() > 1000, "{}: no objects", repository.display());
        look(format!("an object of {}", repository.display()), &all.stdout);
    }
    said.iter().for_each(|(who, text)| look(format!("what {who} said"), text));
    for path in files(hosted.dir.path()) {
        let name = path.display().to_string();
        if !PLACES.iter().any(|place| name.contains(place)) {
            look(name, &std::fs::read(&path).unwrap_or_default());
        }
    }
    leaks
}

fn repositories(hosted: &Hosted) -> Vec<PathBuf> {
    let fleet = &hosted.fleet;
    vec![fleet.repository(ID), fleet.dir(), fleet.home().join("fleet.git"), fleet.control(), hosted.device.clone_dir()]
}

fn secret(path: &Path) -> String {
    std::fs::read_to_string(path).expect("a secret").trim().to_owned()
}

/// All of one secret: the text, and the bytes that it stands for.
fn of(name: &'static str, text: &str) -> Vec<Secret> {
    let raw = BASE64_URL_SAFE_NO_PAD.decode(text).ok();
    std::iter::once(Secret::new(name, text.as_bytes())).chain(raw.map(|raw| Secret::new(name, &raw))).collect()
}

/// Runs a command of the publisher with all logs on; what it said is kept.
fn publisher(hosted: &Hosted, said: &mut Said, args: &[&str]) -> Output {
    let output = hosted.fleet.command(args).env("RUST_LOG", "trace").output().expect("the publisher runs");
    said.push((format!("{args:?}"), [output.stdout.clone(), output.stderr.clone()].concat()));
    output
}

/// A pass of the device with all logs on.
fn once(hosted: &Hosted, said: &mut Said) {
    let output = hosted.device.once().env("DEVICE_SYNCER_LOG", "trace").output().expect("the syncer runs");
    said.push(("a pass".to_owned(), [output.stdout, output.stderr].concat()));
}

/// Stock Git as a person uses it, who shows this secret; what it said is kept, the server's words among it.
fn stock_git(hosted: &Hosted, said: &mut Said, user: &str, secret: &str, args: &[&str]) -> Output {
    let mut command = git::command(hosted.dir.path());
    let header = format!("Authorization: Basic {}", BASE64_STANDARD.encode(format!("{user}:{secret}")));
    let ca = hosted.fleet.home().join("ca/ca.pem");
    command.env("GIT_CONFIG_COUNT", "2").env("GIT_CONFIG_KEY_0", "http.extraHeader").env("GIT_CONFIG_VALUE_0", header);
    command.env("GIT_CONFIG_KEY_1", "http.sslCAInfo").env("GIT_CONFIG_VALUE_1", ca).env("GIT_TERMINAL_PROMPT", "0");
    let output = command.args(args).output().expect("git is installed");
    said.push((format!("git {args:?}"), [output.stdout.clone(), output.stderr.clone()].concat()));
    output
}

/// Everything that is done with accounts, by everybody, with all logs on.
fn live(hosted: &mut Hosted, said: &mut Said) -> Vec<Secret> {
    let (root, home) = (hosted.dir.path().to_owned(), hosted.fleet.home());
    let file = |name: &str| root.join(format!("{name}.secret")).display().to_string();
    for (name, role) in [("audit", "auditor"), ("olga", "operator")] {
        publisher(hosted, said, &["account", "add", name, "--role", role, "--secret-file", &file(name)]);
    }
    let (fleet, bare) = (hosted.fleet.dir().display().to_string(), home.join("fleet.git").display().to_string());
    git::git(&root, &["clone", "--quiet", "--bare", &fleet, &bare]);
    let log = |name: &str| Stdio::from(File::create(root.join(name)).expect("a log"));
    let mut host = hosted.fleet.command(&["run"]);
    host.env("RUST_LOG", "trace").stdout(Stdio::null()).stderr(log("host.log"));
    hosted.running.push(host.spawn().expect("the publisher starts"));
    hosted.until("the host answers", |hosted| hosted.device.syncer(&["once"]).status.success());
    let first = hosted.account()["current"]["secret"].as_str().expect("a secret").to_owned();

    // The device's secret is renewed while it runs and waits.
    let path = hosted.device.home().join("account.json");
    let mut due = hosted.account();
    due["current"]["since"] = "2020-01-01T00:00:00Z".into();
    due["current"]["expires"] = "2020-02-01T00:00:00Z".into();
    std::fs::write(&path, due.to_string()).expect("written");
    let mut device = hosted.device.command(&["run"]);
    device.env("DEVICE_SYNCER_LOG", "trace").stdout(Stdio::null()).stderr(log("device.log"));
    hosted.running.push(device.spawn().expect("the syncer starts"));
    hosted.until("it is renewed", |hosted| hosted.account()["current"]["secret"] != first.as_str());
    let second = hosted.account()["current"]["secret"].as_str().expect("a secret").to_owned();

    // An auditor reads, an operator pushes a good change and one that is refused; then the old secrets are wrong ones.
    let url = |repository: &str| format!("https://{}/{repository}", hosted.address);
    let (audit, olga) = (secret(file("audit").as_ref()), secret(file("olga").as_ref()));
    let clone = ["clone", "--quiet", &url(&format!("devices/{ID}.git")), "audited"];
    assert!(stock_git(hosted, said, "audit", &audit, &clone).status.success());
    assert!(stock_git(hosted, said, "olga", &olga, &["clone", "--quiet", &url("fleet.git"), "work"]).status.success());
    let work = root.join("work");
    let good = std::fs::read_to_string(work.join(DEPLOYMENT)).expect("a deployment");
    for (text, accepted) in [(good.replace("hello from the press", "pushed"), true), ("id: [".to_owned(), false)] {
        std::fs::write(work.join(DEPLOYMENT), text).expect("written");
        git::git(&work, &["commit", "--quiet", "--all", "--message", "another"]);
        let push = ["-C", "work", "push", "origin", "HEAD"];
        assert_eq!(stock_git(hosted, said, "olga", &olga, &push).status.success(), accepted);
    }
    hosted.until("what was pushed runs", |hosted| hosted.runs("pushed"));
    publisher(hosted, said, &["account", "rotate", "audit", "--at-once", "--secret-file", &file("rotated")]);
    let rotated = secret(file("rotated").as_ref());
    publisher(hosted, said, &["account", "list", "--output", "json"]);
    publisher(hosted, said, &["status"]);
    let list = ["ls-remote", &url(&format!("devices/{ID}.git"))];
    hosted.until("the rotated one counts", |hosted| {
        stock_git(hosted, &mut Said::new(), "audit", &rotated, &list).status.success()
    });
    assert!(!stock_git(hosted, said, "audit", &audit, &list).status.success());
    publisher(hosted, said, &["account", "revoke", ID]);
    hosted.until("the device is out", |hosted| hosted.trouble().as_deref() == Some("Stalled Unauthorized"));
    terminate(&hosted.running[1]);
    hosted.running[1].wait().expect("it ends");
    once(hosted, said);
    for args in [["status"], ["plan"]] {
        let output = hosted.device.command(&args).env("DEVICE_SYNCER_LOG", "trace").output().expect("it runs");
        said.push((format!("{args:?}"), [output.stdout, output.stderr].concat()));
    }
    terminate(&hosted.running[0]);
    hosted.running[0].wait().expect("it ends");
    let access = std::fs::read_to_string(root.join("host.log")).expect("a log");
    for account in [ID, "audit", "olga"] {
        assert!(access.contains(account), "the log names {account}");
    }
    [
        of("the device's first secret", &first),
        of("the device's second secret", &second),
        of("the auditor's secret", &audit),
        of("the auditor's rotated secret", &rotated),
        of("the operator's secret", &olga),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[test]
fn no_secret_of_an_account_is_in_any_object_log_file_or_argument_and_the_search_finds_those_that_are_planted() {
    let mut hosted = Hosted::new();
    let (seen, done, mut said) = (Mutex::new(BTreeSet::new()), AtomicBool::new(false), Said::new());
    let secrets = std::thread::scope(|scope| {
        // The arguments of all processes, all the time; most git processes live for a few milliseconds.
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                seen.lock().expect("nobody panics with it").append(&mut each_arguments());
                std::thread::sleep(Duration::from_millis(3));
            }
        });
        let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| live(&mut hosted, &mut said)));
        done.store(true, Ordering::Relaxed);
        lived.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let seen = seen.into_inner().expect("nobody panicked with it");
    let arguments = seen.into_iter().collect::<Vec<_>>().concat();
    for program in ["device-syncer", "wfm-git-publisher", "receive-pack"] {
        assert!(arguments.windows(program.len()).any(|window| window == program.as_bytes()), "{program} was seen");
    }
    said.push(("the arguments of a process".to_owned(), arguments));
    assert_eq!(leaks(&hosted, &secrets, &said), Vec::<String>::new());

    // And it would have found them, in every form.
    said.clear();
    let mut planted = Vec::new();
    for (number, (one, form)) in
        secrets.iter().flat_map(|one| one.forms().iter().map(move |form| (one, form))).enumerate()
    {
        let file = hosted.dir.path().join(format!("planted-{number:03}"));
        std::fs::write(&file, [b"a ", form.as_slice(), b" b"].concat()).expect("written");
        planted.push(format!("{} in {}", one.name, file.display()));
    }
    said.push(("somebody".to_owned(), secrets[0].forms()[0].clone()));
    planted.push(format!("{} in what somebody said", secrets[0].name));
    let mut found = leaks(&hosted, &secrets, &said);
    found.sort();
    // One form of a secret may be part of another.
    found.dedup();
    planted.sort();
    assert_eq!(found, planted);
}
