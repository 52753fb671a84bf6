//! Devices' repositories at a host that is reached by the machine's own `ssh`: real OpenSSH with plain Git behind it.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use repo_testkit::faults::fault_proxy::{Direction, Fault, FaultProxy};
use repo_testkit::git::{self, git};
use repo_testkit::ssh_client::SshClient;
use repo_testkit::sshd::{Options, Sshd};
use wfm_git_publisher::mirror::{MirrorError, Mirrored};

use crate::remote::{assert_same, greet, result, said, second, stranger, write};
use crate::support::{BEGIN, Lab};

/// A fleet whose devices' repositories are at a host over SSH, where the publisher's key may do everything.
struct Site {
    lab: Lab,
    sshd: Sshd,
    client: SshClient,
}

impl Site {
    fn new(devices: &[&str]) -> Self {
        let sshd = Sshd::start(Options::default());
        let client = SshClient::new(&sshd, &sshd.client("publisher"));
        let site = Self { lab: Lab::with(devices), sshd, client };
        devices.iter().for_each(|device| drop(site.sshd.create(device)));
        site.settings("");
        site
    }

    fn remote(&self, device: &str) -> PathBuf {
        self.sshd.repository(device)
    }

    fn url(&self, at: SocketAddr) -> String {
        self.sshd.url(at, "{device}")
    }

    /// Writes `publisher.yaml`; `more` are further lines of `remote`.
    fn settings(&self, more: &str) {
        let (config, key) = (self.client.config(), self.sshd.host_key("ed25519"));
        let command = format!("  sshCommand: [ssh, -F, {}]\n  hostKeys: [{key}]\n{more}", config.display());
        self.settings_for(&self.url(self.sshd.address()), &command);
    }

    fn settings_for(&self, url: &str, more: &str) {
        fs::write(self.lab.home.config(), format!("remote:\n  url: {url}\n{more}")).unwrap();
    }

    #[track_caller]
    fn assert_same(&self, device: &str) {
        assert_same(&self.lab, device, &self.remote(device));
    }
}

#[test]
fn a_fleet_is_pushed_over_ssh_and_what_means_the_same_is_not() {
    let site = Site::new(&["press-01", "packer-01"]);
    let outcome = site.lab.publish_all();
    assert_eq!(result(&outcome, "press-01").as_ref().ok(), Some(&Mirrored::Pushed(3)));
    ["press-01", "packer-01"].iter().for_each(|device| site.assert_same(device));
    let url = site.url(site.sshd.address()).replace("{device}", "press-01");
    let clone = site.client.git(site.lab.dir()).args(["clone", "-q", "-b", "desired", &url, "clone"]).output();
    assert!(clone.as_ref().unwrap().status.success(), "{clone:?}");
    assert!(site.lab.dir().join("clone/envelope.json").exists());

    greet(&site.lab, "hello again");
    assert_eq!(site.lab.publish_all().pushed(), 1, "the packer has no such deployment");
    site.assert_same("press-01");
    let before = site.sshd.sessions();
    assert_eq!(site.lab.publish_all().pushed(), 0);
    assert_eq!(site.sshd.sessions() - before, 2, "one look at each repository, and nothing else");
    assert_eq!(site.lab.publish_at(*BEGIN + 13 * 3600).pushed(), 2, "a replaced proof of freshness");
    site.assert_same("press-01");
}

#[test]
fn a_host_that_takes_no_protocol_version_is_talked_to_in_the_oldest() {
    let mut site = Site::new(&["press-01"]);
    site.sshd.set(|options| options.accept_env = false);
    site.lab.publish_all();
    site.assert_same("press-01");
    // What is fetched comes in version 0, too.
    let tip = site.lab.tip("press-01", "desired");
    fs::remove_dir_all(site.lab.repo("press-01")).unwrap();
    assert_eq!(site.lab.publish_all().published(), 0);
    assert_eq!(site.lab.tip("press-01", "desired"), tip);
    greet(&site.lab, "in version 0");
    site.lab.publish_all();
    site.assert_same("press-01");
}

#[test]
fn git_s_short_form_of_an_address_and_a_key_of_its_own_lead_there_too() {
    let site = Site::new(&["press-01"]);
    // A name of the owner's configuration, which says the rest.
    let config = site.lab.dir().join("ssh_config");
    let (address, known) = (site.sshd.address(), site.client.known_hosts());
    let lines = format!(
        "Host plant_git\n  HostName {}\n  Port {}\n  UserKnownHostsFile {}\n  GlobalKnownHostsFile none\n",
        address.ip(),
        address.port(),
        known.display()
    );
    fs::write(&config, lines).unwrap();
    site.sshd.forget_clients();
    let key = site.sshd.client("another");
    let url = format!("{}@plant_git:{}", site.sshd.user(), site.remote("{device}").display());
    let more = format!("  sshCommand: [ssh, -F, {}]\n  identityFile: {}\n", config.display(), key.display());
    site.settings_for(&url, &more);
    site.lab.publish_all();
    site.assert_same("press-01");
}

#[test]
fn what_devices_report_is_fetched_over_ssh() {
    let mut site = Site::new(&["press-01"]);
    site.lab.publish_all();
    let status = write(&site.remote("press-01"), "status", &stranger(), "x\n\nKind: status\n");
    let table = site.lab.run(&["status"]).good();
    assert!(table.contains("doubtful: wrong-device: `status` can't be believed"), "{table}");
    assert_eq!(site.lab.tip("press-01", "status"), Some(status));
    site.sshd.kill();
    let table = site.lab.run(&["status"]).good();
    assert!(table.contains("can't be believed") && table.contains("refuses connections"), "{table}");
}

#[test]
fn a_foreign_tip_is_told_and_reclaimed_over_ssh() {
    let site = Site::new(&["press-01"]);
    site.lab.publish_all();
    let foreign = write(&site.remote("press-01"), "desired", &stranger(), "I am the publisher now");
    greet(&site.lab, "with a stranger around");
    let text = said(&site.lab.publish(), "press-01");
    assert!(text.contains(&foreign) && text.contains("Mallory"), "{text}");
    assert_eq!(git::tip(&site.remote("press-01"), "desired"), Some(foreign));
    site.lab.run(&["publish", "--reclaim", "press-01"]).good();
    site.assert_same("press-01");
}

#[test]
fn a_publisher_with_a_fresh_home_adopts_what_the_host_has() {
    let site = Site::new(&["press-01"]);
    site.lab.publish_all();
    let tip = site.lab.tip("press-01", "desired");
    fs::remove_dir_all(site.lab.repo("press-01")).unwrap();
    assert_eq!(site.lab.publish_all().published(), 0, "what the host has means the same");
    assert_eq!(site.lab.tip("press-01", "desired"), tip);
    site.assert_same("press-01");
}

#[test]
fn of_two_publishers_over_ssh_exactly_one_wins_and_nothing_is_lost() {
    let site = Site::new(&["press-01"]);
    site.lab.publish_all();
    let other = second(&site.lab);
    for round in 0..3 {
        for (lab, who) in [(&site.lab, "one"), (&other, "other")] {
            greet(lab, &format!("{who} {round}"));
        }
        std::thread::scope(|scope| {
            let both = [&site.lab, &other].map(|lab| scope.spawn(|| lab.publish()));
            for outcome in both.map(|thread| thread.join().unwrap()) {
                for (device, result) in &outcome.remote {
                    assert!(matches!(result, Ok(_) | Err(MirrorError::Raced { .. })), "{device}: {result:?}");
                }
            }
        });
        let serials = git(&site.remote("press-01"), &["log", "--format=%(trailers:key=Serial,valueonly)", "desired"]);
        let serials: Vec<u64> = serials.split_whitespace().map(|text| text.parse().unwrap()).collect();
        assert!(serials.is_sorted_by(|a, b| a > b) && serials.len() > round + 1, "{serials:?}");
    }
}

#[test]
fn a_host_that_changed_its_key_or_refuses_ours_gets_nothing_and_a_person_is_told_what_to_do() {
    let mut site = Site::new(&["press-01", "press-02"]);
    site.settings("  connections: 1\n");
    site.sshd.change_host_keys();
    let outcome = site.lab.publish();
    assert_eq!((outcome.published(), outcome.pushed()), (2, 0));
    let text = said(&outcome, "press-01");
    assert!(text.contains("shows another key than the one that is known (SHA256:"), "{text}");
    assert!(said(&outcome, "press-02").contains("the host failed for `press-01`"), "one key for all of them");
    let failed = site.lab.run(&["publish"]).failed(1);
    assert!(failed.contains("hint: ask the host's operator whether the key is new"), "{failed}");

    // A host that was never met is as bad: nobody is asked, so nobody says yes.
    site.client.know_nobody();
    let failed = site.lab.run(&["publish"]).failed(1);
    assert!(failed.contains("shows a key that nothing here knows") && failed.contains("ssh-keyscan"), "{failed}");

    site.client.know(&site.sshd, site.sshd.address());
    site.sshd.forget_clients();
    let failed = site.lab.run(&["publish"]).failed(1);
    assert!(failed.contains("doesn't let us in with the keys that were offered"), "{failed}");
    assert!(failed.contains("hint: give the host the publisher's public key"), "{failed}");
    let key = site.sshd.client("another");
    site.settings(&format!("  identityFile: {}\n", key.display()));
    site.lab.publish_all();
    site.assert_same("press-01");
}

#[test]
fn a_machine_without_ssh_is_told_to_install_it() {
    let site = Site::new(&["press-01"]);
    site.settings_for(&site.url(site.sshd.address()), "  sshCommand: [no-such-ssh]\n");
    let failed = site.lab.run(&["publish"]).failed(1);
    assert!(failed.contains("there is no program `no-such-ssh`"), "{failed}");
    assert!(failed.contains("hint: install OpenSSH's client"), "{failed}");
}

#[test]
fn one_repository_that_is_not_there_is_its_own_trouble() {
    let site = Site::new(&["packer-01", "press-01"]);
    fs::remove_dir_all(site.remote("packer-01")).unwrap();
    let outcome = site.lab.publish();
    let text = said(&outcome, "packer-01");
    assert!(text.contains("refuses: fatal: ") && text.contains("does not appear to be a git repository"), "{text}");
    site.assert_same("press-01");
    let failed = site.lab.run(&["publish"]).failed(1);
    assert!(failed.contains("hint: make the repository at the host"), "{failed}");
    site.sshd.create("packer-01");
    site.lab.publish_all();
    site.assert_same("packer-01");
}

#[test]
fn what_a_hook_at_the_host_says_is_told_without_its_control_characters() {
    let site = Site::new(&["press-01"]);
    let hooks = site.remote("press-01").join("hooks");
    fs::create_dir_all(&hooks).unwrap();
    let hook = hooks.join("update");
    fs::write(&hook, "#!/bin/sh\nprintf 'only on \\033[1mMondays\\n' >&2\nexit 1\n").unwrap();
    fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let text = said(&site.lab.publish(), "press-01");
    assert!(
        text.contains("refuses to move `bundle`: hook declined (") && text.contains("only on [1mMondays"),
        "{text}"
    );
    fs::remove_file(&hook).unwrap();
    site.lab.publish_all();
    site.assert_same("press-01");
}

#[test]
fn a_stall_or_a_cut_ends_within_its_limits_and_the_next_publish_heals() {
    let site = Site::new(&["press-01"]);
    site.lab.publish_all();
    let proxy = FaultProxy::start(site.sshd.address());
    site.client.know(&site.sshd, proxy.address());
    let command = format!("  sshCommand: [ssh, -F, {}]\n", site.client.config().display());
    let settings = |more: &str| site.settings_for(&site.url(proxy.address()), &format!("{command}{more}"));
    for (number, fault) in [
        Fault::HalfOpen,
        Fault::StallAfter(Direction::Down, 0),
        Fault::StallAfter(Direction::Down, 3400),
        Fault::StallAfter(Direction::Up, 4500),
        Fault::CutAfter(Direction::Down, 3000),
        Fault::ResetAfter(Direction::Up, 5000),
        Fault::Refuse,
    ]
    .into_iter()
    .enumerate()
    {
        greet(&site.lab, &format!("hello {number}"));
        settings("  timeouts: {connect: 2s, answer: 2s, stall: 3s, total: 8s}\n");
        proxy.set(fault);
        let begin = Instant::now();
        let outcome = site.lab.publish();
        assert!(begin.elapsed() < Duration::from_secs(40), "{fault:?}: {:?}", begin.elapsed());
        assert_eq!(outcome.published(), 1, "{fault:?}: it is here whatever the network does");
        assert!(said(&outcome, "press-01").contains(&proxy.address().to_string()), "{fault:?}");
        proxy.set(Fault::Refuse);
        proxy.set(Fault::None);
        settings("");
        site.lab.publish_all();
        site.assert_same("press-01");
    }
}

#[test]
fn a_silent_ssh_is_ended_and_what_it_started_too() {
    let site = Site::new(&["press-01"]);
    let mark = site.lab.dir().join("mark");
    let program = site.lab.dir().join("ssh");
    // What it leaves behind holds on to its standard error, as an ssh that is kept for the next connection does.
    let script = format!("#!/bin/sh\nenv >{}\n(setsid sleep 30 >/dev/null) &\nsleep 600\n", mark.display());
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let more = format!("  sshCommand: [{}]\n  timeouts: {{answer: 1s, total: 20s}}\n", program.display());
    site.settings_for(&site.url(site.sshd.address()), &more);
    let begin = Instant::now();
    let mut command = site.lab.command(&["publish"]);
    let output = command.env("GIT_SECRET", "s3cret").env("SSH_AUTH_SOCK", "/agent").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("kept silent for 1 s") && begin.elapsed() < Duration::from_secs(15), "{text}");
    // It gets what it needs of the environment, and nothing else.
    let given = fs::read_to_string(&mark).unwrap();
    let mut names: Vec<_> = given.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    names.retain(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name));
    names.sort_unstable();
    assert_eq!(names, ["GIT_PROTOCOL", "HOME", "LC_ALL", "PATH", "SSH_AUTH_SOCK"]);
}

#[test]
fn a_host_that_never_stops_talking_fills_no_memory() {
    let site = Site::new(&["press-01"]);
    let program = site.lab.dir().join("ssh");
    let there = site.remote("press-01");
    let flood = "while :; do printf '0fff%4091s' x; done";
    let script =
        format!("#!/bin/sh\ncase \"$*\" in *upload-pack*) exec git-upload-pack {} ;; esac\n{flood}\n", there.display());
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    site.settings_for(&site.url(site.sshd.address()), &format!("  sshCommand: [{}]\n", program.display()));
    let text = said(&site.lab.publish(), "press-01");
    assert!(text.contains("it says more than it may"), "{text}");
}

/// The fleet is a clone on this machine; where it is pushed to is the operators' own Git's business.
#[test]
fn a_fleet_that_its_operators_push_over_ssh_is_published_like_any_other() {
    let site = Site::new(&["press-01"]);
    let url = site.url(site.sshd.address()).replace("{device}", "fleet");
    site.sshd.create("fleet");
    let own = |args: &[&str]| {
        let ran = site.client.git(&site.lab.fleet).args(args).output().unwrap();
        assert!(ran.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ran.stderr));
    };
    own(&["remote", "add", "origin", &url]);
    own(&["push", "-q", "-u", "origin", "HEAD"]);
    site.lab.publish_all();
    // The program that isn't given the key can't reach the fleet's remote, and needn't.
    let ran = site.lab.run(&["device", "add", "press-02"]);
    assert_eq!((ran.code, ran.err.contains("ssh")), (Some(0), false), "{}{}", ran.out, ran.err);
    for command in [&["validate"][..], &["plan"], &["device", "list"], &["explain", "press-01"]] {
        let ran = site.lab.run(command);
        assert!(!ran.err.contains("ssh:") && !ran.err.contains("error"), "{command:?}: {}", ran.err);
    }
    own(&["push", "-q"]);
    greet(&site.lab, "pushed over ssh");
    own(&["push", "-q"]);
    assert_eq!(site.lab.publish_all().pushed(), 1);
    site.assert_same("press-01");
}
