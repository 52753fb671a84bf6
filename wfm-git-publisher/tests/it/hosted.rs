//! The fleet repository hosted beside the devices': what operators push is validated, and what is accepted published.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use repo_model::Trailer;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use repo_testkit::git;
use repo_testkit::ports::free_port;
use wfm_git_host::accounts::Role;

use crate::host::{Login, Site, eventually, said};
use crate::support::{Lab, SECOND};

/// A fleet with one device, made a hosted one.
pub(crate) fn hosted() -> Lab {
    hosted_of(Lab::with(&["press-01"]))
}

/// A fleet as it is, made a hosted one the way the documentation says.
fn hosted_of(lab: Lab) -> Lab {
    lab.publish_all();
    let bare = lab.home.hosted_fleet();
    git::git(lab.dir(), &["clone", "--quiet", "--bare", "fleet", &bare.display().to_string()]);
    lab
}

/// An operator at another machine.
struct Operator {
    site: Site,
    login: Login,
    clone: PathBuf,
}

impl Operator {
    fn new() -> Self {
        Self::of(hosted())
    }

    fn of(lab: Lab) -> Self {
        let site = Site::on(lab, "");
        let login = site.login("olga", Role::Operator, None);
        let clone = site.clone(&login, "fleet.git", "olga");
        Self { site, login, clone }
    }

    fn edit(&self, path: &str, from: &str, to: &str) {
        let path = self.clone.join(path);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(path, text.replacen(from, to, 1)).unwrap();
        git::git(&self.clone, &["commit", "--quiet", "--all", "--message", "a change"]);
    }

    fn push(&self, args: &[&str]) -> Output {
        self.site.run(&self.clone, &self.login, &[&["push", "origin"], args].concat())
    }

    fn refs(&self) -> String {
        git::git(&self.site.lab.home.hosted_fleet(), &["for-each-ref"])
    }

    /// The push fails for this reason, in the operator's terminal, and nothing has moved.
    #[track_caller]
    fn refused(&self, args: &[&str], reason: &str) {
        let before = self.refs();
        let pushed = self.push(args);
        assert!(!pushed.status.success() && said(&pushed).contains(reason), "{}", said(&pushed));
        assert_eq!(self.refs(), before);
    }

    #[track_caller]
    fn accepted(&self, args: &[&str]) -> String {
        let pushed = self.push(args);
        assert!(pushed.status.success(), "{}", said(&pushed));
        git::git(&self.site.lab.home.hosted_fleet(), &["fsck", "--strict"]);
        said(&pushed)
    }
}

#[test]
fn a_broken_fleet_is_refused_with_file_line_and_column_in_the_operators_terminal() {
    let olga = Operator::new();
    olga.edit("deployments/hello.yaml", "parameters:", "parametres:");
    let expected = fs::read_to_string(olga.clone.join("deployments/hello.yaml")).unwrap();
    let line = expected.lines().position(|line| line.starts_with("parametres:")).unwrap() + 1;
    olga.refused(&["main"], &format!("remote: deployments/hello.yaml:{line}:1: parametres"));
    olga.refused(&["main"], "main: the fleet has 1 problem(s)");
    // The publisher's own words for it are the same.
    let validate = olga.site.lab.run_in(&olga.clone, &["validate"]).failed(1);
    assert!(validate.contains(&format!("deployments/hello.yaml:{line}:1: parametres")), "{validate}");
    // Work on the way is nobody's business, and no secret either.
    let text = olga.accepted(&["HEAD:refs/heads/wip"]);
    assert!(text.contains("wip isn't published as it is") && text.contains(&format!("hello.yaml:{line}:1")), "{text}");
    olga.edit("deployments/hello.yaml", "parametres:", "parameters:");
    olga.accepted(&["main"]);
    // What only goes wrong for a device is wrong, too.
    olga.edit("deployments/hello.yaml", "hello from the press", "\"{{ device.labels.nowhere }}\"");
    olga.refused(&["main"], "device.labels.nowhere");
}

#[test]
fn what_was_published_stays_in_the_history_and_the_fleet_stays_this_fleet() {
    let olga = Operator::new();
    olga.edit("deployments/hello.yaml", "hello from the press", "servus");
    olga.accepted(&["main", "HEAD:refs/heads/next", "HEAD:refs/tags/v1"]);
    olga.accepted(&["--delete", "next"]);
    olga.refused(&["--delete", "main"], "can't be deleted");
    olga.refused(&["HEAD:refs/replace/1234567890123456789012345678901234567890"], "neither a branch nor a tag");
    git::git(&olga.clone, &["commit", "--quiet", "--amend", "--message", "another one"]);
    olga.refused(&["--force", "main"], "it only moves forward");
    git::git(&olga.clone, &["reset", "--quiet", "--hard", "origin/main"]);
    let id =
        olga.site.lab.read("fleet.yaml").lines().find_map(|line| line.strip_prefix("id: ").map(str::to_owned)).unwrap();
    olga.edit("fleet.yaml", &id, "11111111-2222-4333-8444-555555555555");
    olga.refused(&["main"], "fleet.yaml: id: is another fleet's");
    git::git(&olga.clone, &["rm", "--quiet", "fleet.yaml"]);
    git::git(&olga.clone, &["commit", "--quiet", "--message", "nothing is left"]);
    olga.refused(&["main"], "fleet.yaml: is missing");
    let before = olga.refs();
    let auditor = olga.site.login("audit", Role::Auditor, None);
    let pushed = olga.site.run(&olga.clone, &auditor, &["push", "origin", "HEAD:refs/heads/x"]);
    assert!(!pushed.status.success());
    assert_eq!(olga.refs(), before);
}

/// `run` with its host, ended with the test.
struct Running {
    child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Stock git as the operator uses it: what it trusts stands in the clone, and the account comes from a helper.
fn git_with(dir: &Path, user: &str, secret: &Path) -> Command {
    let helper =
        format!("credential.helper=!f() {{ echo username={user}; echo password=$(cat '{}'); }}; f", secret.display());
    let mut command = git::command(dir);
    command.args(["-c", "credential.helper=", "-c", &helper]).env("GIT_TERMINAL_PROMPT", "0");
    command
}

#[test]
fn what_an_operator_pushes_is_published_at_once_and_commits_that_are_not_pushed_are_not() {
    let lab = Lab::new();
    let port = free_port();
    let listen = format!("127.0.0.1:{port}");
    let init =
        ["init", "plant", "--registry", "registry.example", "--host", "127.0.0.1", "--listen", &listen, "--hosted"];
    lab.run_in(lab.dir(), &init).good();
    let lab = lab.moved_to("plant");
    // Only being told of a push makes it look in time.
    let settings = lab.home.root().join("publisher.yaml");
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, text + "poll: 1h\n").unwrap();
    lab.enroll("press-01");
    // The new device is committed, and not pushed: nothing is published for it.
    assert_eq!(lab.run(&["publish"]).good(), "0 published, 0 unchanged, 3 not enrolled\n");
    let secret = lab.dir().join("olga.secret");
    let add = ["account", "add", "olga", "--role", "operator", "--secret-file", secret.to_str().unwrap()];
    lab.run(&add).good();
    let log = lab.dir().join("run.log");
    // Told to follow the home, as on a host without any work tree.
    let mut command = lab.command(&["-C", lab.home.root().to_str().unwrap(), "run"]);
    let mut running =
        Running { child: command.stderr(fs::File::create(&log).unwrap()).stdout(Stdio::null()).spawn().unwrap() };
    let listens = || fs::read_to_string(&log).unwrap().contains("listening");
    assert!(eventually(listens), "{}", fs::read_to_string(&log).unwrap());
    let source = git::git(&lab.home.hosted_fleet(), &["rev-parse", "main"]);
    let pushed = git_with(&lab.fleet, "olga", &secret).args(["push", "--quiet"]).output().unwrap();
    assert!(pushed.status.success(), "{}", said(&pushed));
    assert_ne!(git::git(&lab.home.hosted_fleet(), &["rev-parse", "main"]), source);
    let noticed = || fs::read_to_string(&log).unwrap().contains("registry.example");
    assert!(eventually(noticed), "the push is looked at: {}", fs::read_to_string(&log).unwrap());
    // Serial 1 had to leave the application out: there is no such registry. From now on its tag's meaning is known.
    assert_eq!(lab.publish_hosted().published(), 1);
    lab.edit("deployments/hello.yaml", "hello from the press", "servus");
    let commit = lab.commit();
    let pushed = git_with(&lab.fleet, "olga", &secret).args(["push", "--quiet"]).output().unwrap();
    assert!(pushed.status.success(), "{}", said(&pushed));
    assert!(eventually(|| lab.serial("press-01") == 3), "{}", fs::read_to_string(&log).unwrap());
    assert_eq!(lab.trailer("press-01", Trailer::FleetCommit), commit);
    repo_testkit::terminate(&running.child);
    assert!(running.child.wait().unwrap().success());
    let log = fs::read_to_string(&log).unwrap();
    assert!(!log.contains(fs::read_to_string(&secret).unwrap().trim()), "{log}");
    let said = lab.run_in(lab.home.root(), &["device", "add", "press-09"]).failed(1);
    assert!(said.contains("has no work tree") && said.contains("hint: work in a clone"), "{said}");
}

#[test]
fn a_push_ends_with_what_will_be_published_and_what_is_held_back() {
    let olga = Operator::new();
    let told = |pushed: &Output| {
        said(pushed).lines().filter(|line| line.starts_with("remote: ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let said_of = |pushed: &Output, line: &str| {
        assert!(pushed.status.success(), "{}", said(pushed));
        let told: Vec<_> = told(pushed).iter().map(|line| line.trim_end().to_owned()).collect();
        assert!(told.contains(&format!("remote: {line}")), "{line}: {told:?}");
    };
    olga.edit("deployments/hello.yaml", "hello from the press", "servus");
    let pushed = olga.push(&["HEAD"]);
    said_of(&pushed, "it is accepted, and `publish` does this with it:");
    said_of(&pushed, "1 device to change, 0 unchanged, 2 not enrolled");
    // What doesn't change anything says so. Of a branch beside nothing is published, which is told but for its end.
    olga.site.lab.publish_hosted();
    git::git(&olga.clone, &["commit", "--quiet", "--allow-empty", "--message", "nothing"]);
    said_of(&olga.push(&["HEAD"]), "0 devices to change, 1 unchanged, 2 not enrolled");
    let beside = olga.push(&["HEAD:refs/heads/work"]);
    let alone =
        "nothing is published of work: only main is; `wfm-git-publisher plan --rev work` shows what it would do";
    said_of(&beside, alone);
    assert!(!said(&beside).contains("`publish` does"), "{}", said(&beside));
    let gone = olga.push(&[":refs/heads/work"]);
    assert!(gone.status.success() && !said(&gone).contains("published"), "{}", said(&gone));
    // A guard holds back what is accepted: it is told now, and not only when nothing happens.
    let second = olga.clone.join("deployments/second.yaml");
    fs::write(&second, SECOND).unwrap();
    let commit = |message: &str| {
        git::git(&olga.clone, &["add", "--all"]);
        git::git(&olga.clone, &["commit", "--quiet", "--message", message]);
    };
    let settings = olga.clone.join("fleet.yaml");
    let guarded = fs::read_to_string(&settings).unwrap() + "guards: {deviceRemovals: 50%}\n";
    fs::write(settings, guarded).unwrap();
    commit("a second one");
    said_of(&olga.push(&["HEAD"]), "1 device to change, 0 unchanged, 2 not enrolled");
    olga.site.lab.publish_hosted();
    fs::remove_file(&second).unwrap();
    fs::remove_file(olga.clone.join("deployments/hello.yaml")).unwrap();
    commit("neither of them");
    let pushed = olga.push(&["HEAD"]);
    let guard = "remote: press-01: 2 of its 2 deployments would be removed";
    assert!(pushed.status.success() && said(&pushed).contains(guard), "{}", said(&pushed));
    let hint = "remote:   hint: look at `plan`; if it is meant: `wfm-git-publisher allow hello second -m WHY`";
    assert!(said(&pushed).contains(hint), "{}", said(&pushed));
}

#[test]
fn a_push_that_starts_a_rollout_names_its_waves_and_the_next_one_what_it_waits_for() {
    let lab = Lab::with(&["press-01", "press-02", "press-03"]);
    lab.write("fleet.yaml", lab.read("fleet.yaml") + "rollout: {waves: [1]}\n");
    lab.commit();
    let olga = Operator::of(hosted_of(lab));
    olga.edit("deployments/hello.yaml", "hello from the press", "servus");
    let told = olga.accepted(&["HEAD"]);
    assert!(told.contains("remote: rollout: starts 1: hello on 2 devices; waves 1, rest"), "{told}");
    assert!(told.contains("remote: 1 device to change, "), "{told}");
    olga.site.lab.publish_hosted();
    git::git(&olga.clone, &["commit", "--quiet", "--allow-empty", "--message", "nothing"]);
    let told = olga.accepted(&["HEAD"]);
    assert!(told.contains("remote: rollout: 1 waits for 1 device"), "{told}");
    assert!(told.contains("remote: 0 devices to change, "), "{told}");
}

#[test]
fn a_push_of_a_new_version_says_which_rollout_it_starts() {
    let lab = Lab::with(&["press-01", "press-02", "press-03"]);
    lab.write("fleet.yaml", lab.read("fleet.yaml") + "rollout: {waves: [1]}\n");
    lab.commit();
    let olga = Operator::of(hosted_of(lab));
    let package = fs::read_to_string(olga.clone.join("applications/hello/1.0.0/margo.yaml")).unwrap();
    fs::create_dir(olga.clone.join("applications/hello/1.1.0")).unwrap();
    fs::write(olga.clone.join("applications/hello/1.1.0/margo.yaml"), package.replace("1.0.0", "1.1.0")).unwrap();
    git::git(&olga.clone, &["add", "."]);
    olga.edit("deployments/hello.yaml", "version: 1.0.0}", "version: 1.1.0}");
    let told = olga.accepted(&["HEAD"]);
    let starts = "rollout: starts 1: hello on 2 devices; waves 1, rest\n";
    assert!(told.contains(&format!("remote: {}", starts.trim_end())), "{told}");
    assert!(told.contains("remote: 1 device to change, "), "{told}");
    let done = olga.site.lab.publish_hosted().rollouts.unwrap().to_text();
    assert!(done.starts_with(starts), "{done}");
}

const NOBODY: &str =
    "no `wfm-git-publisher run` follows main at this moment: it is published with the next `wfm-git-publisher publish`";

#[test]
fn a_push_that_nobody_publishes_says_so_and_one_that_run_publishes_does_not() {
    let olga = Operator::new();
    let lab = &olga.site.lab;
    let push = || {
        git::git(&olga.clone, &["commit", "--quiet", "--allow-empty", "--message", "nothing"]);
        olga.accepted(&["HEAD"])
    };
    let told = push();
    assert!(told.contains("`publish` does this with it") && told.contains(NOBODY), "{told}");
    // One that follows something else is no more than none.
    let follow = |rev: &str| {
        let log = lab.dir().join("run.log");
        let mut command = lab.command(&["run", "--rev", rev]);
        command.env("RUST_LOG", "debug").stderr(fs::File::create(&log).unwrap()).stdout(Stdio::null());
        let running = Running { child: command.spawn().unwrap() };
        let is_at_work = || fs::read_to_string(&log).unwrap().contains("reading the fleet repository");
        assert!(eventually(is_at_work), "{}", fs::read_to_string(&log).unwrap());
        running
    };
    git::git(&lab.home.hosted_fleet(), &["branch", "release"]);
    let other = follow("release");
    assert!(push().contains(NOBODY));
    drop(other);
    for rev in ["HEAD", "main"] {
        let running = follow(rev);
        let told = push();
        assert!(told.contains("`publish` does this with it") && !told.contains(NOBODY), "{rev}: {told}");
        drop(running);
        assert!(push().contains(NOBODY), "{rev}: whose process is gone follows nothing");
    }
    let beside = olga.accepted(&["HEAD:refs/heads/work"]);
    assert!(!beside.contains("follows"), "{beside}");
}

#[test]
fn a_push_while_nothing_can_be_published_says_why() {
    let olga = Operator::new();
    let lab = &olga.site.lab;
    let key = fs::read(lab.home.publisher_key()).unwrap();
    olga.edit("deployments/hello.yaml", "hello from the press", "servus");
    fs::remove_file(lab.home.publisher_key()).unwrap();
    olga.accepted(&["HEAD"]);
    lab.run(&["publish"]).failed(1);
    olga.edit("deployments/hello.yaml", "servus", "griass di");
    let told = olga.accepted(&["HEAD"]);
    assert!(told.contains("remote: nothing could be published since ") && told.contains("keys/publisher"), "{told}");
    fs::write(lab.home.publisher_key(), key).unwrap();
    fs::set_permissions(lab.home.publisher_key(), fs::Permissions::from_mode(0o600)).unwrap();
    lab.publish_hosted();
    olga.edit("deployments/hello.yaml", "griass di", "hello");
    assert!(!olga.accepted(&["HEAD"]).contains("nothing could be published"));
}

#[test]
fn plan_publish_and_status_go_by_the_pushed_commit_and_name_those_that_are_not_pushed() {
    let lab = hosted();
    let pushed = git::git(&lab.fleet, &["rev-parse", "HEAD"]);
    lab.edit("deployments/hello.yaml", "hello from the press", "servus");
    let local = lab.commit();
    for command in [&["plan"][..], &["publish"], &["status"], &["explain", "press-01"]] {
        let ran = lab.run(command);
        assert_eq!(ran.code, Some(0), "{command:?}: nothing was pushed that differs: {}{}", ran.out, ran.err);
        assert!(ran.err.contains(&format!("note: at commit {} of the hosted fleet", &pushed[..12])), "{}", ran.err);
        let named = format!(
            "note: 1 commit here is not pushed, and only what is pushed counts: git push\n  {} a change\n",
            &local[..7]
        );
        assert!(ran.err.contains(&named), "{command:?}: {}", ran.err);
    }
    let json: serde_json::Value = serde_json::from_str(&lab.run(&["status", "--output", "json"]).out).unwrap();
    assert_eq!(json["commit"], pushed.as_str());
    // What isn't pushed can be looked at by its name.
    assert_eq!(lab.run(&["plan", "--rev", &local]).code, Some(3));
    assert!(lab.run(&["publish", "--rev", &local]).failed(1).contains("there is no revision"), "only what is pushed");
    // Somebody else pushed.
    git::git(&lab.home.hosted_fleet(), &["fetch", "--quiet", &lab.fleet.display().to_string(), "+HEAD:main"]);
    git::git(&lab.fleet, &["reset", "--quiet", "--hard", &pushed]);
    git::git(&lab.fleet, &["reflog", "expire", "--expire=now", "--all"]);
    git::git(&lab.fleet, &["gc", "--quiet", "--prune=now"]);
    let plan = lab.run(&["plan"]);
    assert_eq!(plan.code, Some(3), "{}", plan.err);
    assert!(plan.err.contains("the hosted fleet has commits that are not here: git pull"), "{}", plan.err);
}

#[test]
fn a_push_that_is_not_agreed_to_is_refused_with_rule_path_and_commit_and_approvals_stay() {
    let olga = Operator::new();
    let (anna, ben) = (Lab::device_key("anna").public(), Lab::device_key("ben").public());
    let people = format!("people:\n  anna: [{anna}]\n  ben: [{ben}]\n");
    let rules =
        "rules:\n  - {paths: [\"**\"], need: 1, of: [anna]}\n  - {paths: [signers.yaml], need: 2, of: [anna, ben]}\n";
    fs::write(olga.clone.join("signers.yaml"), people + rules).unwrap();
    git::git(&olga.clone, &["add", "signers.yaml"]);
    git::git(&olga.clone, &["commit", "--quiet", "--message", "who has to agree"]);
    olga.accepted(&["main"]);
    olga.site.lab.publish_hosted();
    let sign = |name: &str, args: &[&str]| {
        let path = olga.site.lab.dir().join(name);
        Lab::device_key(name).save(&path).unwrap();
        let key = format!("user.signingKey={}", path.display());
        git::git(&olga.clone, &[&["-c", "gpg.format=ssh", "-c", &key], args].concat());
    };
    olga.edit("deployments/hello.yaml", "hello from the press", "servus");
    let commit = git::git(&olga.clone, &["rev-parse", "HEAD"]);
    // All of the push or nothing: the other branch doesn't come either.
    olga.refused(&["main", "HEAD:refs/heads/next"], &format!("commit {commit} changes `deployments/hello.yaml`"));
    olga.refused(&["main"], "rules[0] of commit ");
    let text = olga.accepted(&["HEAD:refs/heads/next"]);
    assert!(text.contains("next isn't published as it is: ") && text.contains("wants 1 of anna to agree"), "{text}");
    // What isn't an approval isn't taken for one.
    git::git(&olga.clone, &["tag", "approve/light"]);
    olga.refused(&["approve/light"], "is no tag of that name on a commit");
    git::git(&olga.clone, &["tag", "-a", "-m", "yes", "approve/unsigned"]);
    olga.refused(&["approve/unsigned"], "there is no signature");
    sign("anna", &["tag", "-s", "-m", "a release", "v1"]);
    olga.refused(&["refs/tags/v1:refs/tags/approve/v1"], "is no tag of that name on a commit");
    // A person who has to agree to nothing of it says so, and it is still not enough.
    sign("ben", &["tag", "-s", "-m", "yes", "approve/ben"]);
    olga.refused(&["main", "approve/ben"], "nobody did");
    sign("anna", &["tag", "-s", "-m", "yes", "approve/anna"]);
    olga.accepted(&["main", "approve/anna", "approve/ben"]);
    assert_eq!(olga.site.lab.publish_hosted().published(), 1);
    // Nobody takes a word back that was given, or gives it to something else.
    olga.refused(&["--delete", "approve/anna"], "is an approval; it stays as it is");
    sign("anna", &["tag", "-f", "-s", "-m", "no", "approve/anna", "HEAD~1"]);
    olga.refused(&["--force", "approve/anna"], "is an approval; it stays as it is");
}
