//! Pushes by devices: what is let in, what is refused, and in whose words.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Output;

use repo_git::SigningKey;
use repo_testkit::faults::damage::flip_object;
use repo_testkit::git;
use wfm_git_host::accounts::Role;

use super::{DEVICE, Login, OTHER, Report, Site, eventually, printed, said};
use crate::reports::Reporter;
use crate::support::Lab;

/// A device with its clone.
pub(super) struct Pusher {
    pub(super) site: Site,
    device: Login,
    pub(super) clone: PathBuf,
    pub(super) key: SigningKey,
}

impl Pusher {
    fn new() -> Self {
        Self::on(Site::new())
    }

    pub(super) fn on(site: Site) -> Self {
        let device = site.device();
        let clone = site.clone(&device, "devices/press-01.git", "device");
        Self { key: Lab::device_key(DEVICE), site, device, clone }
    }

    fn report<'a>(&'a self, kind: &'a str, parents: &'a [&'a str]) -> Report<'a> {
        Report { device: DEVICE, kind, parents, signer: Some(&self.key) }
    }

    pub(super) fn commit(&self, kind: &str, parents: &[&str], text: &str) -> String {
        self.report(kind, parents).commit(&self.site, &self.clone, text)
    }

    pub(super) fn push(&self, refspecs: &[&str]) -> Output {
        let url = self.site.url("devices/press-01.git");
        self.site.run(&self.clone, &self.device, &[&["push", &url], refspecs].concat())
    }

    #[track_caller]
    pub(super) fn accepted(&self, refspec: &str) {
        let pushed = self.push(&[refspec]);
        assert!(pushed.status.success(), "{refspec}: {}", said(&pushed));
        git::git(&self.repository(), &["fsck", "--strict"]);
    }

    /// The push fails, for this reason, and nothing has moved.
    #[track_caller]
    pub(super) fn refused(&self, refspec: &str, reason: &str) {
        let before = git::refs(&self.repository());
        let pushed = self.push(&[refspec]);
        let text = said(&pushed);
        assert!(!pushed.status.success() && text.contains(reason), "{refspec}: {text}");
        assert_eq!(git::refs(&self.repository()), before, "{refspec}");
    }

    pub(super) fn repository(&self) -> PathBuf {
        self.site.lab.repo(DEVICE)
    }

    pub(super) fn tip(&self, branch: &str) -> Option<String> {
        self.site.lab.tip(DEVICE, branch)
    }
}

#[test]
fn a_device_adds_to_its_status_and_replaces_its_heartbeat() {
    let pusher = Pusher::new();
    let first = pusher.commit("status", &[], "1");
    pusher.accepted(&format!("{first}:refs/heads/status"));
    let second = pusher.commit("status", &[&first], "2");
    pusher.accepted(&format!("{second}:refs/heads/status"));
    for beat in ["1", "2", "3"] {
        let beat = pusher.commit("heartbeat", &[], beat);
        pusher.accepted(&format!("+{beat}:refs/heads/heartbeat"));
        assert_eq!(pusher.tip("heartbeat"), Some(beat));
    }
    let (third, beat) = (pusher.commit("status", &[&second], "3"), pusher.commit("heartbeat", &[], "4"));
    let both = pusher.push(&[&format!("{third}:refs/heads/status"), &format!("+{beat}:refs/heads/heartbeat")]);
    assert!(both.status.success(), "{}", said(&both));
    assert_eq!((pusher.tip("status"), pusher.tip("heartbeat")), (Some(third), Some(beat)));
}

#[test]
fn what_a_device_pushes_is_known_before_somebody_asks() {
    let pusher = Pusher::new();
    let lab = &pusher.site.lab;
    Reporter { lab, device: DEVICE }.status(DEVICE, "installed", "");
    let commit = lab.tip(DEVICE, "status").unwrap();
    git::git(&pusher.clone, &["fetch", "--quiet", lab.repo(DEVICE).to_str().unwrap(), "status"]);
    lab.git(DEVICE, &["update-ref", "-d", "refs/heads/status"]);
    pusher.accepted(&format!("{commit}:refs/heads/status"));
    let known = || std::fs::read_to_string(lab.home.status_index()).unwrap_or_default();
    assert!(eventually(|| known().contains("\"state\":\"installed\"")), "{}", known());
}

#[test]
fn every_protocol_version_pushes() {
    let pusher = Pusher::new();
    let mut parent = pusher.commit("status", &[], "0");
    pusher.accepted(&format!("{parent}:refs/heads/status"));
    for version in ["0", "1", "2"] {
        let next = pusher.commit("status", &[&parent], version);
        let url = pusher.site.url("devices/press-01.git");
        let (protocol, refspec) = (format!("protocol.version={version}"), format!("{next}:refs/heads/status"));
        let pushed = pusher.site.run(&pusher.clone, &pusher.device, &["-c", &protocol, "push", &url, &refspec]);
        assert!(pushed.status.success(), "v{version}: {}", said(&pushed));
        parent = next;
    }
}

#[test]
fn a_device_writes_no_other_branch_and_deletes_none() {
    let pusher = Pusher::new();
    let status = pusher.commit("status", &[], "1");
    let only = "a device may only push refs/heads/status and refs/heads/heartbeat";
    for other in ["desired", "bundle", "freshness", "main", "status2", "status/x"] {
        pusher.refused(&format!("+{status}:refs/heads/{other}"), only);
    }
    pusher.refused(&format!("{status}:refs/tags/status"), only);
    pusher.accepted(&format!("{status}:refs/heads/status"));
    pusher.refused(":refs/heads/status", "refs/heads/status may not be deleted");
    pusher.refused(":refs/heads/desired", only);
    let beat = pusher.commit("heartbeat", &[], "1");
    let refspecs = [format!("+{beat}:refs/heads/heartbeat"), format!("+{beat}:refs/heads/desired")];
    let mixed = pusher.push(&refspecs.each_ref().map(String::as_str));
    assert!(!mixed.status.success());
    assert_eq!(pusher.tip("heartbeat"), None, "of a push with one bad ref nothing is taken");
}

#[test]
fn only_what_the_devices_own_key_signed_is_let_in() {
    let pusher = Pusher::new();
    let stranger = SigningKey::generate();
    let unsigned = Report { signer: None, ..pusher.report("status", &[]) };
    let unsigned = unsigned.commit(&pusher.site, &pusher.clone, "1");
    pusher.refused(&format!("{unsigned}:refs/heads/status"), "there is no signature");
    for signer in [&stranger, &Lab::device_key(OTHER)] {
        let report = Report { signer: Some(signer), ..pusher.report("status", &[]) };
        let forged = report.commit(&pusher.site, &pusher.clone, "1");
        pusher.refused(&format!("{forged}:refs/heads/status"), "which is no key of this device");
    }
    let beat = pusher.commit("heartbeat", &[], "1");
    pusher.refused(&format!("{beat}:refs/heads/status"), "its trailer `Kind` is not `status`");
    let other = Report { device: OTHER, ..pusher.report("status", &[]) };
    let other = other.commit(&pusher.site, &pusher.clone, "1");
    pusher.refused(&format!("{other}:refs/heads/status"), "its trailer `Device` is not `press-01`");
    let objects = pusher.site.lab.git(DEVICE, &["cat-file", "--batch-all-objects", "--batch-check"]);
    for refused in [unsigned, beat, other] {
        assert!(!objects.contains(&refused), "{refused} was kept");
    }
}

#[test]
fn a_signed_status_is_only_added_to_and_a_foreign_one_replaced() {
    let pusher = Pusher::new();
    let first = pusher.commit("status", &[], "1");
    pusher.accepted(&format!("{first}:refs/heads/status"));
    let unrelated = pusher.commit("status", &[], "2");
    pusher.refused(&format!("+{unrelated}:refs/heads/status"), "which this device signed");
    let stranger = SigningKey::generate();
    let foreign = Report { signer: Some(&stranger), ..pusher.report("status", &[]) };
    let foreign = foreign.commit(&pusher.site, &pusher.clone, "3");
    git::git(
        &pusher.clone,
        &["push", "-q", &pusher.repository().display().to_string(), &format!("+{foreign}:refs/heads/status")],
    );
    pusher.accepted(&format!("+{unrelated}:refs/heads/status"));
}

#[test]
fn a_device_can_report_that_its_desired_state_is_forged() {
    let pusher = Pusher::new();
    let (repository, good) = (pusher.repository(), pusher.tip("desired").unwrap());
    let forge = |parents: &[&str]| {
        let commit = git::git(&repository, &[&["commit-tree", "desired^{tree}", "-m", "forged"], parents].concat());
        git::git(&repository, &["update-ref", "refs/heads/desired", &commit]);
    };
    // Upon the good one, unsigned; then without any history, which only a host that saw the good one can make up for.
    forge(&["-p", &good]);
    let first = pusher.commit("status", &[], "signature-invalid");
    pusher.accepted(&format!("{first}:refs/heads/status"));
    forge(&[]);
    let second = pusher.commit("status", &[&first], "signature-invalid, still");
    pusher.accepted(&format!("{second}:refs/heads/status"));
}

#[test]
fn a_push_that_expects_another_state_is_refused() {
    let pusher = Pusher::new();
    let first = pusher.commit("status", &[], "1");
    pusher.accepted(&format!("{first}:refs/heads/status"));
    let second = pusher.commit("status", &[&first], "2");
    let url = pusher.site.url("devices/press-01.git");
    let lease = format!("--force-with-lease=refs/heads/status:{second}");
    let args = ["push", &lease, &url, &format!("{second}:refs/heads/status")];
    let pushed = pusher.site.run(&pusher.clone, &pusher.device, &args);
    assert!(!pushed.status.success(), "{}", said(&pushed));
    assert_eq!(pusher.tip("status"), Some(first));
}

#[test]
fn trees_with_anything_but_plain_files_are_refused() {
    let pusher = Pusher::new();
    let blob = pusher.site.lab.dir().join("blob");
    std::fs::write(&blob, "x").unwrap();
    let blob = git::git(&pusher.clone, &["hash-object", "-w", &blob.display().to_string()]);
    for entry in [
        format!("120000 blob {blob}\tlink"),
        format!("100755 blob {blob}\tprogram"),
        format!("160000 commit {}\tsub", pusher.tip("desired").unwrap()),
    ] {
        let tree = tree(&pusher.clone, &pusher.site, &entry);
        let commit = pusher.report("status", &[]).commit_tree(&pusher.site, &pusher.clone, &tree);
        let before = git::refs(&pusher.repository());
        let pushed = pusher.push(&[&format!("{commit}:refs/heads/status")]);
        assert!(!pushed.status.success(), "{entry}: {}", said(&pushed));
        assert_eq!(git::refs(&pusher.repository()), before, "{entry}");
    }
}

fn tree(clone: &Path, site: &Site, entries: &str) -> String {
    let file = site.lab.dir().join("entries");
    std::fs::write(&file, if entries.is_empty() { String::new() } else { format!("{entries}\n") }).unwrap();
    let input = std::fs::File::open(&file).unwrap();
    super::printed(&git::command(clone).arg("mktree").stdin(input).output().unwrap())
}

#[test]
fn a_push_that_is_too_large_is_refused_with_a_reason() {
    let pusher = Pusher::on(Site::with("  limits: {pushBytes: 100000, pushObjects: 20}\n"));
    let noise = repo_testkit::noise(240_000, 0);
    let large = pusher.report("status", &[]).commit_file(&pusher.site, &pusher.clone, "syncer.json", &noise);
    pusher.refused(&format!("{large}:refs/heads/status"), "413");
    let mut parent = pusher.commit("status", &[], "0");
    for number in 1..20 {
        parent = pusher.commit("status", &[&parent], &number.to_string());
    }
    pusher.refused(&format!("{parent}:refs/heads/status"), "objects, more than the 20 allowed");
}

#[test]
fn a_client_that_still_sends_hears_that_it_is_too_much() {
    let site = Site::with("  limits: {pushBytes: 100000}\n");
    let head = "POST /devices/press-01.git/git-receive-pack HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
                Content-Type: application/x-git-receive-pack-request\r\nContent-Length: 400000\r\n";
    let mut stream = site.say(format!("{head}{}\r\n", site.device().header()));
    for _ in 0..8 {
        std::thread::sleep(std::time::Duration::from_millis(50));
        stream.write_all(&[b'x'; 50_000]).and_then(|()| stream.flush()).expect("the host still reads");
    }
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[test]
fn a_full_repository_takes_no_more_and_says_so() {
    let pusher = Pusher::on(Site::with("  limits: {repositoryBytes: 1048576}\n"));
    let noise = repo_testkit::noise(1_200_000, 0);
    let large = pusher.report("status", &[]).commit_file(&pusher.site, &pusher.clone, "syncer.json", &noise);
    pusher.accepted(&format!("{large}:refs/heads/status"));
    let next = pusher.commit("status", &[&large], "2");
    pusher.refused(&format!("{next}:refs/heads/status"), "the repository is full");
}

#[test]
fn what_nobody_reaches_any_more_fills_no_repository() {
    let pusher = Pusher::on(Site::with("  limits: {repositoryBytes: 1048576}\n"));
    for number in 0..4u32 {
        let noise = repo_testkit::noise(600_000, number);
        let beat =
            pusher.report("heartbeat", &[]).commit_file(&pusher.site, &pusher.clone, "current-state.json", &noise);
        pusher.accepted(&format!("+{beat}:refs/heads/heartbeat"));
    }
}

#[test]
fn a_push_that_nobody_can_judge_is_refused() {
    let mut pusher = Pusher::new();
    let program = pusher.site.lab.dir().join("host's program");
    pusher.site.restart_as(&program);
    let status = pusher.commit("status", &[], "1");
    pusher.accepted(&format!("{status}:refs/heads/status"));
    // As an update or a removal of the package does while the host runs.
    std::fs::remove_file(&program).unwrap();
    let stranger = SigningKey::generate();
    let forged = Report { device: DEVICE, kind: "status", parents: &[&status], signer: Some(&stranger) };
    let forged = forged.commit(&pusher.site, &pusher.clone, "2");
    pusher.refused(&format!("{forged}:refs/heads/status"), "hook declined");
    // What is no program git would take for no hook.
    let hook = pusher.site.lab.home.index().join("hooks/pre-receive");
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    pusher.refused(&format!("{forged}:refs/heads/status"), "the host failed");
}

#[test]
fn a_shallow_clone_pushes_as_to_any_host() {
    let pusher = Pusher::new();
    let mut parent = pusher.commit("status", &[], "1");
    pusher.accepted(&format!("{parent}:refs/heads/status"));
    for version in ["0", "1", "2"] {
        let next = pusher.commit("status", &[&parent], version);
        pusher.accepted(&format!("{next}:refs/heads/status"));
        let (protocol, name) = (format!("protocol.version={version}"), format!("shallow-{version}"));
        let url = pusher.site.url("devices/press-01.git");
        let args = ["-c", &protocol, "clone", "-q", "--depth", "1", "--branch", "status", &url, &name];
        let cloned = pusher.site.run(pusher.site.lab.dir(), &pusher.device, &args);
        assert!(cloned.status.success(), "{}", said(&cloned));
        let clone = pusher.site.lab.dir().join(&name);
        let parents = [next.as_str()];
        let report = pusher.report("status", &parents);
        let pushed = report.commit(&pusher.site, &clone, &format!("from {name}"));
        let args = ["-c", &protocol, "push", "-q", &url, &format!("{pushed}:refs/heads/status")];
        let done = pusher.site.run(&clone, &pusher.device, &args);
        assert!(done.status.success(), "{version}: {}", said(&done));
        parent.clone_from(&pushed);
        assert_eq!(pusher.tip("status"), Some(pushed));
        git::git(&pusher.clone, &["fetch", "-q", &pusher.repository().display().to_string(), "status"]);
    }
}

#[test]
fn auditors_write_nothing_and_devices_only_at_home() {
    let pusher = Pusher::new();
    let status = pusher.commit("status", &[], "1");
    let refspec = format!("{status}:refs/heads/status");
    let auditor = pusher.site.login("aud", Role::Auditor, None);
    let operator = pusher.site.login("op", Role::Operator, None);
    for login in [&auditor, &operator] {
        let url = pusher.site.url("devices/press-01.git");
        let pushed = pusher.site.run(&pusher.clone, login, &["push", &url, &refspec]);
        assert!(!pushed.status.success() && said(&pushed).contains("403"), "{}", said(&pushed));
    }
    for repository in ["devices/packer-01.git", "devices/nobody.git", "control.git", "fleet.git"] {
        let pushed = pusher.site.run(&pusher.clone, &pusher.device, &["push", &pusher.site.url(repository), &refspec]);
        assert!(!pushed.status.success() && said(&pushed).contains("not found"), "{repository}: {}", said(&pushed));
    }
}

#[test]
fn replaced_heartbeats_leave_a_bounded_repository_without_what_nobody_reaches() {
    let pusher = Pusher::new();
    let first = pusher.commit("heartbeat", &[], "first");
    let here = pusher.repository().display().to_string();
    let mut last = String::new();
    for number in 0..45 {
        last = pusher.commit("heartbeat", &[], &number.to_string());
        git::git(&pusher.clone, &["push", "-q", &here, &format!("+{last}:refs/heads/heartbeat")]);
    }
    pusher.accepted(&format!("+{first}:refs/heads/heartbeat"));
    let counted = pusher.site.lab.git(DEVICE, &["count-objects", "-v"]);
    assert!(counted.contains("packs: 2\n") && counted.contains("count: 0\n"), "{counted}");
    // What this push replaced may be read still.
    let unreachable = pusher.site.lab.git(DEVICE, &["fsck", "--unreachable", "--no-reflogs"]);
    let commits: Vec<_> = unreachable.lines().filter(|line| line.contains(" commit ")).collect();
    assert_eq!(commits, [format!("unreachable commit {last}")]);
}

#[test]
fn who_began_to_read_before_a_push_gets_what_it_was_told_though_that_push_makes_packs_one() {
    let pusher = Pusher::new();
    let (site, auditor) = (&pusher.site, pusher.site.login("aud", Role::Auditor, None));
    let beat = |text: &str| {
        let beat = pusher.commit("heartbeat", &[], text);
        pusher.accepted(&format!("+{beat}:refs/heads/heartbeat"));
        beat
    };
    let told = beat("told");
    site.lab.scatter(DEVICE);
    beat("next");
    assert!(site.lab.is_tidy(DEVICE));
    let elsewhere = site.lab.dir().join("elsewhere");
    git::git(site.lab.dir(), &["init", "--quiet", "--bare", "elsewhere"]);
    let read = site.run(&elsewhere, &auditor, &["fetch", "--quiet", &site.url("devices/press-01.git"), &told]);
    assert!(read.status.success(), "{}", said(&read));
}

#[test]
fn who_began_to_read_before_a_publish_gets_what_it_was_told_though_that_publish_makes_packs_one() {
    let site = Site::new();
    let auditor = site.login("aud", Role::Auditor, None);
    let told = ["freshness", "bundle"].map(|branch| site.lab.tip(DEVICE, branch).unwrap());
    let url = site.url("devices/press-01.git");
    let listed = printed(&site.run(site.lab.dir(), &auditor, &["ls-remote", &url]));
    assert!(told.iter().all(|told| listed.contains(told)), "{listed}");
    site.lab.scatter(DEVICE);
    site.lab.edit("deployments/hello.yaml", "greeting:", "greeting: servus #");
    site.lab.commit();
    site.lab.publish_all();
    assert!(site.lab.is_tidy(DEVICE) && site.lab.tip(DEVICE, "bundle").as_ref() != Some(&told[1]));
    // From our host, and from the same directory by stock git alone, as behind a daemon or sshd of somebody's own.
    for (name, from) in [("ours", url), ("stock", site.lab.repo(DEVICE).display().to_string())] {
        git::git(site.lab.dir(), &["init", "--quiet", "--bare", name]);
        let read = site.run(&site.lab.dir().join(name), &auditor, &["fetch", "--quiet", &from, &told[0], &told[1]]);
        assert!(read.status.success(), "{from}: {}", said(&read));
    }
}

#[test]
fn before_anything_is_published_a_device_sees_an_empty_repository_and_pushes_nothing() {
    let lab = Lab::with(&[DEVICE, OTHER]);
    let site = Site::on(lab, "");
    let device = site.device();
    for version in ["0", "2"] {
        let (protocol, name) = (format!("protocol.version={version}"), format!("empty-{version}"));
        let args = ["-c", &protocol, "clone", "-q", &site.url("devices/press-01.git"), &name];
        let cloned = site.run(site.lab.dir(), &device, &args);
        assert!(cloned.status.success() && said(&cloned).contains("empty repository"), "{}", said(&cloned));
    }
    let head = git::git(&site.lab.dir().join("empty-2"), &["symbolic-ref", "HEAD"]);
    assert_eq!(head, "refs/heads/desired");
    let clone = site.lab.dir().join("empty-2");
    let tree = tree(&clone, &site, "");
    let commit = git::git(&clone, &["commit-tree", &tree, "-m", "x"]);
    let args = ["push", &site.url("devices/press-01.git"), &format!("{commit}:refs/heads/status")];
    let pushed = site.run(&clone, &device, &args);
    assert!(
        !pushed.status.success() && said(&pushed).contains("nothing is published for this device"),
        "{}",
        said(&pushed)
    );
}

#[test]
fn a_damaged_memory_of_the_publisher_keeps_no_device_from_pushing() {
    let lab = Lab::with(&[DEVICE, super::OTHER]);
    lab.publish_all();
    flip_object(&lab.home.control(), "control:trust/1.json");
    let pusher = Pusher::on(Site::on(lab, ""));
    let first = pusher.commit("status", &[], "1");
    pusher.accepted(&format!("{first}:refs/heads/status"));
    // A stranger's key counts no more than before.
    let stranger = SigningKey::from_seed(&[9; 32]);
    let parents = [first.as_str()];
    let forged = Report { signer: Some(&stranger), ..pusher.report("status", &parents) };
    let forged = forged.commit(&pusher.site, &pusher.clone, "2");
    pusher.refused(&format!("{forged}:refs/heads/status"), "no key of this device");
}

#[test]
fn a_damaged_status_is_pushed_again() {
    let lab = Lab::with(&[DEVICE, super::OTHER]);
    lab.publish_all();
    let mut pusher = Pusher::on(Site::on(lab, ""));
    let first = pusher.commit("status", &[], "1");
    pusher.accepted(&format!("{first}:refs/heads/status"));
    let second = pusher.commit("status", &[&first], "2");
    pusher.accepted(&format!("{second}:refs/heads/status"));
    flip_object(&pusher.repository(), &second);
    pusher.site.restart();
    let third = pusher.commit("status", &[&second], "3");
    // It goes by what the host showed before it looked: that comes to nothing, and the next one sends all.
    let refspec = format!("{third}:refs/heads/status");
    assert!(!pusher.push(&[&refspec]).status.success());
    pusher.accepted(&refspec);
    assert_eq!(git::git(&pusher.repository(), &["rev-list", "--count", "status"]), "3");
    assert!(pusher.repository().with_extension("damaged").exists());
}
