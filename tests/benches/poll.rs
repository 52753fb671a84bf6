//! A poll that finds nothing new: by the syncer's own code, by other Git clients, and by REST.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use repo_http::Url;
use repo_testkit::faults::fault_proxy::FaultProxy;
use repo_testkit::git;

use crate::cost::{of_calls, of_runs};
use crate::fleet::Fleet;
use crate::host::{Host, agent};
use crate::rest::{Client, Documents, Rest};
use crate::stage::{Stage, run};
use crate::{Line, RUNS, libgit2, median, shown};

/// Polls of one run in a kept process, and processes of one run.
const POLLS: u32 = 200;
const PROCESSES: u32 = 5;

struct Cost {
    wall: Duration,
    cpu: Duration,
    bytes: u64,
    requests: f64,
}

/// Measures a client that keeps its connection; `client` makes one that goes to an address.
fn kept<C: FnMut()>(target: SocketAddr, client: impl Fn(SocketAddr) -> C) -> Cost {
    let mut direct = client(target);
    direct();
    let runs: Vec<_> = (0..RUNS).map(|_| of_calls(POLLS, &mut direct)).collect();
    let (wall, cpu): (Vec<_>, Vec<_>) = runs.into_iter().unzip();
    let proxy = FaultProxy::start(target);
    let mut counted = client(proxy.address());
    counted();
    counted();
    let before = proxy.counts();
    (0..POLLS).for_each(|_| counted());
    let after = proxy.counts();
    assert_eq!(before.connections, after.connections, "the connection is kept");
    let bytes = (after.up + after.down - before.up - before.down) / u64::from(POLLS);
    let requests = (after.exchanges - before.exchanges) as f64 / f64::from(POLLS);
    Cost { wall: median(&wall), cpu: median(&cpu), bytes, requests }
}

/// Measures a program that is run for each poll; `program` makes the command for an address.
fn run_each(target: SocketAddr, program: impl Fn(SocketAddr) -> Command) -> Cost {
    let runs: Vec<_> = (0..RUNS).map(|_| of_runs(PROCESSES, &program(target))).collect();
    let (wall, cpu): (Vec<_>, Vec<_>) = runs.into_iter().unzip();
    let proxy = FaultProxy::start(target);
    of_runs(PROCESSES, &program(proxy.address()));
    let (counts, each) = (proxy.counts(), u64::from(PROCESSES));
    let requests = (counts.exchanges - counts.connections) as f64 / f64::from(PROCESSES);
    Cost { wall: median(&wall), cpu: median(&cpu), bytes: (counts.up + counts.down) / each, requests }
}

/// What one device gets by Git, as REST would give it.
pub(crate) fn documents(repository: &Path) -> Documents {
    let file = |commit, path| git::show(repository, commit, path).expect("a document");
    Documents { manifest: file("desired", "manifest.json"), bundle: file("bundle", "bundle.tar.gz") }
}

pub(crate) fn measure(stage: &Stage) -> Vec<Line> {
    let fleet = Fleet::new(stage, "poll", 1, 1);
    run(&mut fleet.command(&["publish"]));
    // What a device adds by its reports.
    for branch in ["status", "heartbeat"] {
        git::git(&fleet.repository(0), &["update-ref", &format!("refs/heads/{branch}"), "refs/heads/freshness"]);
    }
    let host = Host::start(&fleet, 1);
    let place = |through| host.place(through, 0);
    let ours = kept(host.address, |through| {
        let remote = place(through).remote();
        move || assert_eq!(remote.refs(&["refs/heads/"]).expect("refs").len(), 5)
    });
    let by_git = run_each(host.address, |through| place(through).ls_remote(stage.dir.path()));
    let by_go = run_each(host.address, |through| place(through).go_git("list", &["-"]));
    let go_kept = go_git_kept(&host);
    let by_git2 = kept(host.address, |through| {
        let place = place(through);
        let url = Url::parse(&place.url).expect("a URL");
        let way = (agent(place.authority()), url, place.login.credential());
        move || {
            libgit2::lead_to(way.0.clone(), way.1.clone(), way.2.clone());
            assert!(libgit2::poll() >= 5);
        }
    });
    let rest = Rest::start(documents(&fleet.repository(0)));
    let by_rest = kept(rest.address, |through| {
        let mut client = Client::new(through, &rest, place(through).login);
        move || assert!(client.poll() < 1 << 20)
    });
    let mut lines = ours.lines("device-syncer", Some(&by_rest));
    lines.extend(by_rest.lines("REST, GET with If-None-Match → 304, the same agent", None));
    lines.extend(by_git2.lines("git2 (libgit2, version 0), the same agent", None));
    lines.extend(by_git.lines("git ls-remote, a process for each", None));
    lines.extend(by_go.lines("go-git, a process for each", None));
    let (wall, cpu) = go_kept;
    lines.push(Line::new(
        "poll by go-git, a process that stays: wall-clock, CPU",
        format!("{} {}", shown(wall), shown(cpu)),
        RUNS,
    ));
    lines
}

/// Wall-clock and CPU time of a poll within a process: what a hundred more of them take.
fn go_git_kept(host: &Host) -> (Duration, Duration) {
    const MORE: u32 = 100;
    let of = |count: &str| of_runs(1, &host.place(host.address, 0).go_git("poll", &[count, "0"]));
    let runs: Vec<_> = (0..RUNS).map(|_| (of("1"), of("101"))).collect();
    let each = |pick: fn(&(Duration, Duration)) -> Duration| {
        let all: Vec<_> = runs.iter().map(|(one, more)| pick(more).saturating_sub(pick(one)) / MORE).collect();
        median(&all)
    };
    (each(|times| times.0), each(|times| times.1))
}

impl Cost {
    fn lines(&self, who: &str, goal_by: Option<&Cost>) -> Vec<Line> {
        let line = |what: &str, value: String| Line::new(format!("poll by {who}: {what}"), value, RUNS);
        let goal = |line: Line, goal: String| if goal_by.is_some() { line.goal(goal) } else { line };
        let most = goal_by.map_or(0, |rest| rest.bytes * 3 / 2);
        vec![
            line("wall-clock", shown(self.wall)),
            goal(line("CPU of the client", shown(self.cpu)), "≤ 0.30 ms".to_owned()),
            goal(line("bytes, with TLS", self.bytes.to_string()), format!("≤ {most} (1.5 × REST)")),
            goal(line("requests", format!("{:.2}", self.requests)), "1, kept connection".to_owned()),
        ]
    }
}
