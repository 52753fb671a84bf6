//! How many polls a host serves: ours, and stock `git http-backend` behind lighttpd, under the same load.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use repo_testkit::foreign_host::{ForeignHost, Options};
use tokio::runtime::{Builder, Runtime};

use crate::cost::Process;
use crate::crowd::Crowd;
use crate::stage::{Stage, run};
use crate::{DEVICES, Line, RUNS, load, median, shown};

/// How many requests are under way at any time.
const AT_ONCE: usize = 64;

/// How long a run takes.
const TIME: Duration = Duration::from_secs(2);

/// What a host does under load.
struct Rate {
    per_second: u64,
    p50: Duration,
    p99: Duration,
    /// Of the host, for one poll.
    cpu: Option<Duration>,
}

pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Every device has a connection, and asks when it is its turn.
fn rate(
    address: SocketAddr,
    authority: &str,
    devices: usize,
    poll: fn(usize) -> Vec<u8>,
    host: Option<Process>,
) -> Rate {
    let runtime = runtime();
    let requests = (0..devices).map(poll).collect();
    let mut groups: Vec<Vec<_>> = (0..AT_ONCE).map(|_| Vec::new()).collect();
    for (number, client) in runtime.block_on(load::connections(address, authority, requests)).into_iter().enumerate() {
        groups[number % AT_ONCE].push(client);
    }
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let before = host.map(Process::cpu);
        let served;
        (served, groups) = runtime.block_on(load::run(groups, TIME));
        let polls = served.latencies.len() as u32;
        let cpu = host.map(|host| (host.cpu() - before.expect("the same host")) / polls);
        runs.push(Rate {
            per_second: served.per_second as u64,
            p50: served.percentile(50),
            p99: served.percentile(99),
            cpu,
        });
    }
    let times = |of: fn(&Rate) -> Duration| median(&runs.iter().map(of).collect::<Vec<_>>());
    let cpu = host.map(|_| times(|run| run.cpu.unwrap_or_default()));
    let per_second = median(&runs.iter().map(|run| run.per_second).collect::<Vec<_>>());
    Rate { per_second, p50: times(|run| run.p50), p99: times(|run| run.p99), cpu }
}

/// The path of a device's repository at a host that has no devices.
fn foreign_poll(number: usize) -> Vec<u8> {
    let request = String::from_utf8(Crowd::poll(number)).expect("text");
    request.replacen("POST /devices/", "POST /", 1).into_bytes()
}

pub(crate) fn measure(stage: &Stage) -> Vec<Line> {
    let crowd = Crowd::new(stage, "served", DEVICES);
    let host = crowd.host.process();
    let ours = rate(crowd.host.address, &crowd.host.authority(), DEVICES, Crowd::poll, Some(host));
    let foreign = ForeignHost::start(Options::default());
    let mut copy = Command::new("cp");
    run(copy.arg("-a").arg("-T").arg(crowd.fleet.home().join("devices")).arg(foreign.repositories()));
    let authority = std::fs::read_to_string(foreign.ca()).expect("its authority");
    // One connection for each process that it may start at a time: more only wait.
    let theirs = rate(foreign.address(), &authority, AT_ONCE, foreign_poll, None);
    let line = |what: String, value: String| Line::new(what, value, RUNS);
    let of = |who: &str, rate: &Rate| {
        let name = format!("polls served, {who}, {AT_ONCE} at once");
        let [p50, p99] =
            [("p50", rate.p50), ("p99", rate.p99)].map(|(what, time)| line(format!("{name}: {what}"), shown(time)));
        [line(format!("{name}: each second"), rate.per_second.to_string()), p50, p99]
    };
    let [rate, p50, p99] = of(&format!("our host, {DEVICES} repositories and connections"), &ours);
    let cpu = line("polls served, our host: its CPU for one".to_owned(), shown(ours.cpu.expect("measured")));
    let mut lines = vec![rate.goal("≥ 10000"), p50, p99.goal("≤ 20 ms"), cpu];
    lines.extend(of("git http-backend behind lighttpd", &theirs));
    lines
}
