//! A day of a device, accelerated and not simulated: by polling each 15 s, by waiting, and by REST.
//!
//! Every poll, change and heartbeat of the day is made, one after the other, by the syncer's own code over TLS through
//! a proxy that counts. A wait of 40 s is made in one second; its bytes are the same.

use std::path::Path;
use std::time::Duration;

use device_syncer::config::Home;
use device_syncer::home;
use device_syncer::host::refs::RemoteRefs;
use device_syncer::reconcile::pass::Syncer;
use repo_git::Waited;
use repo_testkit::faults::fault_proxy::{Counts, FaultProxy};
use repo_testkit::git;

use crate::cost::{disk, thread_cpu};
use crate::poll::documents;
use crate::rest::{Client, Rest};
use crate::site::{Docker, Site};
use crate::stage::Stage;
use crate::{Line, median, shown};

/// How many days are made: each takes minutes.
const RUNS: usize = 3;

const CHANGES: u32 = 10;

/// Polls of a day, each 15 s; heartbeats, and the polls between waits, each 300 s; waits that end with nothing, each 40 s.
const POLLS: u32 = 24 * 3600 / 15;
const HEARTBEATS: u32 = 24 * 3600 / 300;
const WAITED: u32 = 24 * 3600 / 40;

/// The longest wait that is asked for here.
const LONGEST: Duration = Duration::from_secs(40);

/// Waits that are really made; the others are alike.
const WAITS: u32 = 12;

/// What passed, and what it took of the device.
#[derive(Clone, Copy, Default)]
struct Spent {
    bytes: u64,
    requests: u64,
    cpu: Duration,
}

impl Spent {
    fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, requests: self.requests + other.requests, cpu: self.cpu + other.cpu }
    }

    fn times(self, factor: u32) -> Self {
        let by = u64::from(factor);
        Self { bytes: self.bytes * by, requests: self.requests * by, cpu: self.cpu * factor }
    }

    fn over(self, count: u32) -> Self {
        let by = u64::from(count);
        Self { bytes: self.bytes / by, requests: self.requests.div_ceil(by), cpu: self.cpu / count }
    }
}

/// What a call costs, seen from the device.
fn spent(proxy: &FaultProxy, call: impl FnOnce()) -> Spent {
    let (before, cpu) = (proxy.counts(), thread_cpu());
    call();
    let (cpu, after) = (thread_cpu() - cpu, proxy.counts());
    let requests = |counts: Counts| counts.exchanges - counts.connections;
    let bytes = after.up + after.down - before.up - before.down;
    Spent { bytes, requests: requests(after) - requests(before), cpu }
}

/// Passes until all is reported.
fn pass(syncer: &mut Syncer) {
    let mut left = None;
    for _ in 0..30 {
        let outcome = syncer.converge().expect("a pass");
        if outcome.is_up_to_date() {
            return;
        }
        left = Some((outcome.problems, outcome.not_ready));
        std::thread::sleep(Duration::from_secs(1));
    }
    panic!("it doesn't converge: {left:?}");
}

/// The parts that a day by Git is made of.
struct Parts {
    polls: Spent,
    changes: Spent,
    heartbeats: Spent,
    /// A wait that ends with nothing; the poll that follows several of them; and a wait that ends with news.
    wait: Spent,
    poll: Spent,
    called: Spent,
    /// Growth on the device and on the host, and the device's repository as a whole, in bytes.
    disk: [u64; 3],
    /// How many reports the device pushed.
    reports: u64,
}

fn by_git(site: &Site, syncer: &mut Syncer, day: u32) -> Parts {
    let proxy = &site.proxy;
    let clone = site.device.clone_dir();
    let commits = || git::git(&site.repository(), &["rev-list", "--count", "status"]).parse::<u64>().expect("a number");
    let (device, host, reports) = (disk(&clone), disk(&site.repository()), commits());
    let mut parts = Parts {
        polls: Spent::default(),
        changes: Spent::default(),
        heartbeats: Spent::default(),
        wait: Spent::default(),
        poll: Spent::default(),
        called: Spent::default(),
        disk: [0; 3],
        reports: 0,
    };
    pass(syncer);
    for number in 1..=POLLS {
        if number % (POLLS / CHANGES) == 0 {
            site.change((day * POLLS + number) as usize);
            site.publish();
            parts.changes = parts.changes.plus(spent(proxy, || pass(syncer)));
            continue;
        }
        let poll = spent(proxy, || _ = RemoteRefs::poll(syncer.host.remote()).expect("the host answers"));
        parts.polls = parts.polls.plus(poll);
        if number % (POLLS / HEARTBEATS) == 0 {
            syncer.host.heartbeat.forget();
            parts.heartbeats = parts.heartbeats.plus(spent(proxy, || pass(syncer)));
        }
    }
    parts.reports = commits() - reports;
    parts.disk = [disk(&clone).saturating_sub(device), disk(&site.repository()).saturating_sub(host), disk(&clone)];
    (parts.wait, parts.poll, parts.called) = waits(proxy, syncer);
    parts
}

fn waits(proxy: &FaultProxy, syncer: &Syncer) -> (Spent, Spent, Spent) {
    let remote = syncer.host.remote();
    let refs = RemoteRefs::poll(remote).expect("the host answers");
    let nothing = spent(proxy, || {
        for _ in 0..WAITS {
            let waited = remote.wait(refs.desired, refs.freshness, None, LONGEST).expect("the host lets wait");
            assert_eq!(waited, Waited::Nothing);
        }
    });
    let polled = spent(proxy, || {
        for _ in 0..WAITS {
            RemoteRefs::poll(remote).expect("the host answers");
        }
    });
    let called = spent(proxy, || {
        for _ in 0..WAITS {
            let waited = remote.wait(None, None, None, LONGEST).expect("the host lets wait");
            assert!(matches!(waited, Waited::Moved { .. }));
        }
    });
    (nothing.over(WAITS), polled.over(WAITS), called.over(WAITS))
}

/// The same day: each poll asks for the manifest, a change brings it with the bundle, and each report is sent.
fn by_rest(site: &Site, reports: u64) -> Spent {
    let mut documents = documents(&site.repository());
    let status = git::git(&site.repository(), &["ls-tree", "-r", "--name-only", "status", "deployments/"]);
    let status = status.lines().find(|path| path.ends_with(".json")).expect("a status").to_owned();
    let status = git::show(&site.repository(), "status", &status).expect("a status");
    let rest = Rest::start(documents.clone());
    let proxy = FaultProxy::start(rest.address);
    let mut client = Client::new(proxy.address(), &rest, site.place().login);
    client.poll();
    let mut all = Spent::default();
    for number in 1..=POLLS {
        if number % (POLLS / CHANGES) == 0 {
            // One byte more of space: another document of practically the same size.
            documents.manifest.push(b' ');
            rest.set(documents.clone());
        }
        all = all.plus(spent(&proxy, || _ = client.poll()));
    }
    all.plus(spent(&proxy, || (0..reports).for_each(|_| client.tell(&status))))
}

pub(crate) fn measure(stage: &Stage) -> Vec<Line> {
    let site = Site::new(stage, "day", "serve", "waitSeconds: 1", &Docker::Fake);
    let (mut syncer, _locks) = home::open(Home::new(site.device.home())).expect("a device's home");
    let days: Vec<_> = (0..RUNS as u32).map(|day| by_git(&site, &mut syncer, day)).collect();
    let reports = median_of(&days, |day| day.reports);
    let rests: Vec<_> = (0..RUNS).map(|_| by_rest(&site, reports)).collect();
    let each = |of: fn(&Parts) -> Spent| median_spent(&days.iter().map(of).collect::<Vec<_>>());
    let polling = each(|day| day.polls.plus(day.changes));
    let waiting = each(|day| {
        let nothing = day.wait.times(WAITED).plus(day.poll.times(HEARTBEATS));
        nothing.plus(day.called.times(CHANGES)).plus(day.changes)
    });
    let (rest, heartbeats, change) =
        (median_spent(&rests), each(|day| day.heartbeats), each(|day| day.changes.over(CHANGES)));
    let mut lines = line(&format!("a day, poll each 15 s, {CHANGES} changes, {reports} reports, by Git"), polling);
    lines.extend(line(&format!("a day, poll each 15 s, {CHANGES} changes, {reports} reports, by REST"), rest));
    lines.extend(line(&format!("a day, waiting, {CHANGES} changes, {reports} reports, by Git"), waiting));
    lines.extend(line(&format!("a day, {HEARTBEATS} heartbeats beside that, by Git"), heartbeats));
    lines.extend(line("a day, of that one change: fetch, verify, apply, report", change));
    let [device, host, whole] = [0, 1, 2].map(|part| median_of(&days, |day| day.disk[part]));
    let kilobytes = |bytes: u64| format!("{:.0} KB", bytes as f64 / 1e3);
    lines.push(Line::new("a day: growth on the device's disk", kilobytes(device), RUNS));
    lines.push(Line::new("a day: growth of the repository on the host's disk", kilobytes(host), RUNS));
    lines.push(Line::new("a day: the device's repository after it", kilobytes(whole), RUNS));
    lines.push(Line::new("a day by REST: the documents alone", kilobytes(size(&site.repository())), 1));
    lines
}

fn median_of(days: &[Parts], of: impl Fn(&Parts) -> u64) -> u64 {
    median(&days.iter().map(of).collect::<Vec<_>>())
}

fn median_spent(all: &[Spent]) -> Spent {
    Spent {
        bytes: median(&all.iter().map(|one| one.bytes).collect::<Vec<_>>()),
        requests: median(&all.iter().map(|one| one.requests).collect::<Vec<_>>()),
        cpu: median(&all.iter().map(|one| one.cpu).collect::<Vec<_>>()),
    }
}

fn size(repository: &Path) -> u64 {
    let documents = documents(repository);
    (documents.manifest.len() + documents.bundle.len()) as u64
}

fn line(what: &str, spent: Spent) -> Vec<Line> {
    vec![
        Line::new(format!("{what}: bytes, with TLS"), format!("{:.0} KB", spent.bytes as f64 / 1e3), RUNS),
        Line::new(format!("{what}: requests"), spent.requests.to_string(), RUNS),
        Line::new(format!("{what}: CPU of the device"), shown(spent.cpu), RUNS),
    ]
}
