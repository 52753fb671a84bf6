//! Trouble between a device and our own host: what runs keeps running, `status` says why, and all is told later.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use repo_http::{Agent, Credential, Request, Settings, Url};
use repo_testkit::faults::fault_proxy::{Direction, Fault, FaultProxy};
use repo_testkit::faults::lossy_link::LossyLink;
use repo_testkit::foreign_host::{ForeignHost, Options};
use repo_testkit::pki::{Authority, Validity};
use repo_testkit::{git, program};

use crate::hosted::{Hosted, ID, read};
use repo_testkit::copy;
use repo_testkit::device::reboot;
use repo_testkit::fleet::DEPLOYMENT;

/// Short limits, so that silence doesn't take long.
const SHORT: &str = "{timeouts: {connect: 2s, answer: 2s, stall: 1500ms, total: 6s}}";

/// A device that has adopted what its host behind a proxy published.
fn installed(lines: &str) -> (Hosted, FaultProxy) {
    let (mut hosted, proxy) = Hosted::behind_a_proxy(lines);
    hosted.start_host();
    hosted.adopt_first();
    (hosted, proxy)
}

impl Hosted {
    /// An operator's change, and where it went.
    fn greet(&self, text: &str) {
        let before = self.fleet.read(DEPLOYMENT);
        let line = before.lines().find(|line| line.starts_with("  greeting:")).expect("a greeting").to_owned();
        let serial = self.fleet.serial(ID);
        self.fleet.change(DEPLOYMENT, &line, &format!("  greeting: {text}"));
        self.until("it is published", |hosted| hosted.fleet.serial(ID) > serial);
    }

    /// A pass that can't reach the host, and ends in time with one of these reasons; nothing on the device changes.
    fn cut_off(&self, what: &str, reasons: &[&str]) {
        let (begin, before) = (Instant::now(), self.device.environments());
        assert!(!self.device.syncer(&["once"]).status.success(), "{what}");
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}: {:?}", begin.elapsed());
        let found = self.trouble().unwrap_or_default();
        assert!(reasons.contains(&found.as_str()), "{what}: {found}");
        assert_eq!(self.device.environments(), before, "{what}");
    }

    /// Everything arrived on both sides, and stock Git finds nothing wrong.
    fn assert_settled(&self, greeting: &str) {
        self.assert_arrived(greeting);
        self.device.assert_whole(&self.fleet, true, greeting);
    }

    fn assert_arrived(&self, greeting: &str) {
        self.until("it has arrived", |hosted| {
            hosted.device.syncer(&["once"]).status.success() && hosted.runs(greeting)
        });
        assert_eq!(self.trouble(), None);
        let (host, clone) = (self.fleet.repository(ID), self.device.clone_dir());
        assert_eq!(git::tip(&host, "status"), git::tip(&clone, "status"));
        git::git(&host, &["fsck", "--strict", "--full", "--no-dangling"]);
    }
}

#[test]
fn whatever_the_network_does_before_our_host_the_device_goes_on_and_tells_later() {
    let (hosted, proxy) = installed("");
    let slow = ["Unreachable ConnectTimeout", "Unreachable ConnectionStalled", "Unreachable AnswerTimeout"];
    let cut = ["Unreachable ConnectionCut"];
    for (number, (fault, reasons)) in [
        (Fault::Refuse, &["Unreachable ConnectionRefused"][..]),
        (Fault::HalfOpen, &slow),
        (Fault::CutAfter(Direction::Down, 500), &cut),
        (Fault::ResetAfter(Direction::Down, 500), &cut),
        (Fault::StallAfter(Direction::Down, 0), &slow),
        (Fault::StallAfter(Direction::Down, 1500), &slow),
        (Fault::StallAfter(Direction::Up, 700), &slow),
        (Fault::Throttle(1), &slow),
    ]
    .into_iter()
    .enumerate()
    {
        let greeting = format!("hello {number}");
        hosted.greet(&greeting);
        hosted.device.set("host", if fault.is_silent() { SHORT } else { "{}" });
        proxy.set(fault);
        hosted.cut_off(&format!("{fault:?}"), reasons);
        proxy.set(Fault::Refuse);
        proxy.set(Fault::None);
        hosted.device.set("host", "{}");
        hosted.assert_settled(&greeting);
    }
}

#[test]
fn a_transfer_that_breaks_off_anywhere_is_made_up_for() {
    let (hosted, proxy) = installed("");
    hosted.greet("measured");
    let before = proxy.counts();
    hosted.assert_settled("measured");
    let all = proxy.counts();
    for (direction, bytes) in [(Direction::Down, all.down - before.down), (Direction::Up, all.up - before.up)] {
        for part in 1..=6 {
            let greeting = format!("{direction:?} {part}");
            hosted.greet(&greeting);
            // Each connection counts for itself, so the last parts may be beyond the end of all.
            let at = bytes * part / 7;
            proxy.set(if part % 2 == 0 { Fault::CutAfter(direction, at) } else { Fault::ResetAfter(direction, at) });
            hosted.device.syncer(&["once"]);
            hosted.device.assert_whole(&hosted.fleet, false, &greeting);
            proxy.set(Fault::None);
            hosted.assert_settled(&greeting);
        }
    }
}

/// Three of ten packets get lost, from the boot on.
#[test]
fn a_device_that_boots_at_a_link_that_loses_most_packets_starts_what_ran_and_at_a_better_one_gets_the_newest_state() {
    let (mut hosted, link) = (Hosted::new(), LossyLink::losing(30));
    let target = format!("application: {{id: hello, version: 1.0.0}}\ntargets: [{{devices: [{ID}]}}]\n");
    hosted.fleet.write("deployments/other.yaml", &format!("id: other\n{target}parameters: {{greeting: neighbour}}\n"));
    hosted.fleet.commit("a neighbour");
    let host = hosted.start_host();
    hosted.adopt_first();
    hosted.end(host);
    let container = |hosted: &Hosted, greeting: &str| {
        let state = read(&hosted.device.docker_dir().join("state.json"));
        let all = state["containers"].as_object().expect("containers").clone();
        all.into_iter().find(|(_, one)| one["service"]["environment"]["GREETING"] == greeting)
    };
    let neighbour = |hosted: &Hosted| {
        let (id, one) = container(hosted, "neighbour").expect("the neighbour runs");
        (id, one["started_at"].clone())
    };
    let before = neighbour(&hosted);
    hosted.fleet.change(DEPLOYMENT, "hello from the press", "servus from the press");
    hosted.fleet.run(&["publish"]);

    // Where hardly anything comes through, it starts what the boot didn't, with what it has.
    let (id, _) = container(&hosted, "hello from the press").expect("it runs");
    let docker = format!("fake://{}", hosted.device.docker_dir().display());
    let mut kill = Command::new(program("fake-docker"));
    assert!(kill.env("DOCKER_HOST", docker).args(["kill", &id]).output().expect("it runs").status.success());
    reboot(&hosted.dir.path().join(ID));
    let hopeless = LossyLink::losing(80);
    let at_work = hosted.start_at(&hopeless);
    hosted.until("what ran is started", |hosted| {
        let greeting = ["hello from the press", "servus from the press"].into_iter();
        greeting.filter_map(|greeting| container(hosted, greeting)).any(|(_, one)| one["status"] == "running")
    });
    hosted.until("packets get lost", |_| hopeless.lost() > 5);
    assert_eq!(neighbour(&hosted), before);
    at_work.into_iter().for_each(|number| hosted.end(number));

    reboot(&hosted.dir.path().join(ID));
    hosted.start_at(&link);
    hosted.until("the newest state runs", |hosted| hosted.runs("servus from the press"));
    hosted.until("its host is told", |hosted| {
        let [host, clone] = [hosted.fleet.repository(ID), hosted.device.clone_dir()].map(|at| git::tip(&at, "status"));
        let status = hosted.fleet.status(ID);
        let rows = status["deployments"].as_array().expect("a list");
        host == clone && rows.len() == 2 && rows.iter().all(|row| row["state"] == "installed")
    });
    assert_eq!(neighbour(&hosted), before);
    assert!(link.lost() > 5, "{} packets got lost", link.lost());
}

#[test]
fn what_our_host_answers_in_trouble_is_named_and_costs_nothing() {
    let (hosted, proxy) = installed("  limits: {connectionsPerAccount: 1}\n");
    // Somebody else holds the only connection that the account may have.
    let kept = hosted.account()["current"]["secret"].as_str().expect("a secret").to_owned();
    let authority = std::fs::read_to_string(hosted.fleet.home().join("ca/ca.pem")).expect("an authority");
    let tip = |branch| git::tip(&hosted.fleet.repository(ID), branch).expect("published");
    let wait = format!("wait?desired={}&freshness={}", tip("desired"), tip("freshness"));
    let url = Url::parse(&format!("https://{}/devices/{ID}.git/{wait}", hosted.address)).expect("a URL");
    let agent = Agent::new(&Settings { authorities: vec![authority], ..Settings::default() }).expect("an agent");
    std::thread::scope(|scope| {
        let held = scope.spawn(|| {
            let credential = Credential::Basic { user: ID.to_owned(), secret: kept };
            agent.send(&Request { credential: &credential, ..Request::get(&url) })
        });
        hosted.until("it is asked to wait", |hosted| {
            !hosted.device.syncer(&["once"]).status.success()
                && hosted.trouble().as_deref() == Some("Unreachable TooManyRequests")
        });
        assert!(hosted.runs("hello from the press"));
        agent.interrupt();
        held.join().expect("it ends").expect_err("it was broken off");
    });
    hosted.until("it is let in again", |hosted| hosted.device.syncer(&["once"]).status.success());

    // Its repository is gone, and then damaged.
    let (repository, away) = (hosted.fleet.repository(ID), hosted.dir.path().join("away.git"));
    // The publisher, which looks each second, would make it anew.
    let control = repo_git::Repo::open(&hosted.fleet.control()).expect("a ledger");
    let held = control.lock().expect("nobody else has it for long");
    std::fs::rename(&repository, &away).expect("renamed");
    hosted.cut_off("no repository", &["Stalled NotFound"]);
    std::fs::rename(&away, &repository).expect("renamed");
    let refs = repository.join("packed-refs");
    let good = std::fs::read(&refs).expect("what is published");
    replace(&refs, b"nonsense\n");
    hosted.cut_off("damaged refs", &["Unreachable HostError"]);
    replace(&refs, &good);
    drop(held);

    // A portal that wants everybody to log in has another certificate.
    let portal = ForeignHost::start(Options::default());
    proxy.lead_to(portal.address());
    proxy.set(Fault::Refuse);
    proxy.set(Fault::None);
    hosted.cut_off("a portal", &["Stalled CertificateUnknownAuthority"]);
    proxy.lead_to(hosted.address);
    proxy.set(Fault::Refuse);
    proxy.set(Fault::None);
    hosted.greet("after all that");
    hosted.assert_settled("after all that");
}

/// Replaces a file whole, as every program does that means well.
fn replace(path: &Path, bytes: &[u8]) {
    let new = path.with_extension("lock");
    std::fs::write(&new, bytes).expect("written");
    std::fs::rename(new, path).expect("renamed");
}

#[test]
fn certificates_of_the_operator_are_judged_and_changed_while_all_runs() {
    let authority = Authority::new("the fleet's authority");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let place = |name: &str| dir.path().join(name);
    std::fs::write(place("ca.pem"), authority.certificate()).expect("written");
    let show = |names: &[&str], validity| {
        let identity = authority.server(names, validity);
        for (name, text, mode) in [("host.key", identity.key, 0o600), ("host.pem", identity.certificate, 0o644)] {
            let new = place("new");
            std::fs::write(&new, text).expect("written");
            std::fs::set_permissions(&new, std::fs::Permissions::from_mode(mode)).expect("set");
            std::fs::rename(&new, place(name)).expect("renamed");
        }
    };
    show(&["127.0.0.1"], Validity::Now);
    let path = dir.path().display();
    let lines = format!("  certificateFile: {path}/host.pem\n  keyFile: {path}/host.key\n  caFile: {path}/ca.pem\n");
    let (hosted, _proxy) = installed(&lines);
    for (names, validity, reason) in [
        (["127.0.0.1"], Validity::Past, "Stalled CertificateExpired"),
        (["127.0.0.1"], Validity::Future, "Stalled CertificateNotYetValid"),
        (["elsewhere.example"], Validity::Now, "Stalled CertificateWrongName"),
    ] {
        show(&names, validity);
        hosted.until(reason, |hosted| {
            !hosted.device.syncer(&["once"]).status.success() && hosted.trouble().as_deref() == Some(reason)
        });
        assert!(hosted.runs("hello from the press"));
    }
    show(&["127.0.0.1"], Validity::Now);
    hosted.greet("believed again");
    hosted.assert_settled("believed again");
}

#[test]
fn our_host_restored_from_an_old_backup_is_put_right_and_the_device_goes_on() {
    let (mut hosted, _proxy) = installed("");
    let (repository, backup) = (hosted.fleet.repository(ID), hosted.dir.path().join("backup.git"));
    copy(&repository, &backup);
    for text in ["one", "two"] {
        hosted.greet(text);
        hosted.assert_settled(text);
    }
    let serial = hosted.fleet.serial(ID);
    hosted.end(0);
    copy(&backup, &repository);
    hosted.start_host();
    hosted.until("it has what was published again", |hosted| hosted.fleet.serial(ID) >= serial);
    let log = git::git(&repository, &["log", "--format=%(trailers:key=Continues)", "desired"]);
    assert_eq!(log.matches("Continues: ").count(), 1, "{log}");
    // What the device said of commits that the host lost can't be checked against the host any more.
    hosted.assert_arrived("two");
    hosted.greet("three");
    hosted.assert_arrived("three");
}

#[test]
fn a_device_whose_clock_is_at_1970_reaches_our_host() {
    let (hosted, _proxy) = installed("");
    hosted.greet("in 1970");
    let mut once = hosted.device.once();
    let mut faketime = std::process::Command::new("faketime");
    faketime.args(["-m", "--exclude-monotonic", "1970-01-03 00:00:00"]).arg(once.get_program()).args(once.get_args());
    once = faketime;
    let output = once.stdin(std::process::Stdio::null()).output().expect("faketime is installed: ./justw setup stack");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(hosted.runs("in 1970"));
    assert_eq!(hosted.trouble(), None);
}

#[test]
fn what_the_host_refuses_is_in_the_devices_log_in_the_hosts_words() {
    let (hosted, _proxy) = installed("  limits: {repositoryBytes: 1048576}\n");
    let repository = hosted.fleet.repository(ID);
    // Bytes that a branch reaches, so that nothing clears them away.
    let ballast = hosted.dir.path().join("ballast");
    let noise = repo_testkit::noise(2_000_000, 0);
    std::fs::write(&ballast, noise).expect("written");
    let blob = git::git(&repository, &["hash-object", "-w", &ballast.display().to_string()]);
    std::fs::write(&ballast, format!("{blob}\n")).expect("written");
    let list = std::fs::File::open(&ballast).expect("there");
    let packed = git::command(&repository).args(["pack-objects", "-q", "objects/pack/pack"]).stdin(list).output();
    assert!(packed.expect("git runs").status.success());
    git::git(&repository, &["prune-packed"]);
    git::git(&repository, &["update-ref", "refs/tags/ballast", &blob]);
    hosted.greet("servus");
    let output = hosted.device.syncer(&["once"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("the repository is full"), "{said}");
    assert!(hosted.runs("servus"), "it does what it shall all the same");
    git::git(&repository, &["update-ref", "-d", "refs/tags/ballast"]);
    // The operator of the host makes room, with stock Git.
    git::git(&repository, &["repack", "-a", "-d", "-q"]);
    hosted.assert_settled("servus");
}
