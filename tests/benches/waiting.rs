//! Thousands of devices that wait at the host: what one costs, and when it learns what was published.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use crate::crowd::{BUSY, Crowd};
use crate::fleet::{Fleet, id};
use crate::host::Login;
use crate::load::{self, Connection};
use crate::served::runtime;
use crate::stage::{Stage, run};
use crate::{DEVICES, Line, RUNS, median, shown};

/// How long a publish may take to reach everyone.
const LOST: Duration = Duration::from_secs(60);

/// How often a device asks that doesn't wait.
const POLL: Duration = Duration::from_secs(15);

/// A device that learned of another `desired`, and when.
struct Heard {
    number: usize,
    desired: String,
    at: SystemTime,
}

/// What so many waiting devices come to.
struct Waiting {
    devices: usize,
    /// Memory of the host for each, in bytes: of ten parts of them the middle one.
    each: u64,
    /// The same of all of them at once.
    average: u64,
    /// Memory of the host with all of them, in KiB.
    all: u64,
    p50: Duration,
    p99: Duration,
    /// The host's CPU for all of them, in a second.
    idle: Duration,
}

/// Waits again and again, as a device does.
async fn wait(mut connection: Connection, number: usize, mut tips: [String; 2], heard: UnboundedSender<Heard>) {
    let login = Login::of(number).header();
    loop {
        let [desired, freshness] = &tips;
        let path = format!("/devices/{}.git/wait?desired={desired}&freshness={freshness}", id(number));
        let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {login}\r\n\r\n");
        let (status, body) = connection.ask(request.as_bytes()).await;
        let at = SystemTime::now();
        if status == 204 {
            continue;
        }
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(body));
        let said: Value = serde_json::from_slice(body).expect("JSON");
        let next = ["desired", "freshness"].map(|branch| said[branch].as_str().expect("an id").to_owned());
        if next[0] != tips[0] && heard.send(Heard { number, desired: next[0].clone(), at }).is_err() {
            return;
        }
        tips = next;
    }
}

/// When a device's `desired` got where it is, by the file system.
pub(crate) fn moved(fleet: &Fleet, number: usize) -> SystemTime {
    let meta = fleet.repository(number).join("packed-refs").metadata().expect("branches");
    let (seconds, nanos) = (meta.ctime().unsigned_abs(), meta.ctime_nsec() as u32);
    SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos)
}

/// How long after its branch moved each device heard of it.
async fn published(crowd: &Crowd, heard: &mut UnboundedReceiver<Heard>, change: usize) -> Vec<Duration> {
    crowd.fleet.change(change);
    let mut publish = crowd.fleet.command(&["publish"]);
    let publishing = tokio::task::spawn_blocking(move || run(&mut publish));
    let mut all = Vec::new();
    for _ in 0..BUSY {
        all.push(timeout(LOST, heard.recv()).await.expect("everyone hears of it").expect("somebody waits"));
    }
    publishing.await.expect("published");
    let late = |one: &Heard| {
        assert_eq!(one.desired, crowd.fleet.tip(one.number, "desired"), "it heard what is true");
        one.at.duration_since(moved(&crowd.fleet, one.number)).unwrap_or_default()
    };
    all.iter().map(late).collect()
}

async fn measure_with(crowd: &Crowd, devices: usize) -> Waiting {
    let (host, authority) = (crowd.host.process(), crowd.host.authority());
    let empty = host.pss();
    let (sender, mut heard) = unbounded_channel();
    let (mut waiters, mut each, mut all) = (Vec::new(), Vec::new(), empty);
    for step in 0..RUNS {
        let numbers = devices * step / RUNS..devices * (step + 1) / RUNS;
        let requests = numbers.clone().map(Crowd::poll).collect();
        let connections = load::connections(crowd.host.address, &authority, requests).await;
        let count = numbers.len() as u64;
        for (number, (connection, _)) in numbers.zip(connections) {
            let tips = ["desired", "freshness"].map(|branch| crowd.fleet.tip(number, branch));
            waiters.push(tokio::spawn(wait(connection, number, tips, sender.clone())));
        }
        // Until the requests are there, and the host is at rest.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let before = std::mem::replace(&mut all, host.pss());
        each.push(all.saturating_sub(before) * 1024 / count);
    }
    let mut idle = Vec::new();
    for _ in 0..RUNS {
        let before = host.cpu();
        tokio::time::sleep(Duration::from_secs(1)).await;
        idle.push(host.cpu() - before);
    }
    let mut latencies = Vec::new();
    for change in 0..RUNS {
        latencies.extend(published(crowd, &mut heard, devices + change).await);
    }
    latencies.sort();
    for waiter in waiters {
        assert!(!waiter.is_finished(), "everyone goes on waiting");
        waiter.abort();
    }
    let percentile = |percent: usize| latencies[(latencies.len() - 1) * percent / 100];
    let (each, idle) = (median(&each), median(&idle));
    let average = (all - empty) * 1024 / devices as u64;
    Waiting { devices, each, average, all, p50: percentile(50), p99: percentile(99), idle }
}

pub(crate) fn measure(stage: &Stage) -> Vec<Line> {
    let mut lines = Vec::new();
    for (name, devices) in [("waiting", DEVICES), ("waiting-all", 10 * DEVICES)] {
        let crowd = Crowd::new(stage, name, devices);
        let waiting = runtime().block_on(measure_with(&crowd, devices));
        lines.extend(waiting.lines());
    }
    let late = |percent: u32| format!("{:.1} s", POLL.as_secs_f64() * f64::from(percent) / 100.0);
    lines.push(Line::new("a poll each 15 s instead, by arithmetic: publish → device, p50", late(50), 1));
    lines.push(Line::new("a poll each 15 s instead, by arithmetic: publish → device, p99", late(99), 1));
    lines
}

impl Waiting {
    fn lines(&self) -> Vec<Line> {
        let name = format!("{} devices wait", self.devices);
        let (samples, kilobytes) = (RUNS * BUSY, |bytes: u64| format!("{:.1} KB", bytes as f64 / 1e3));
        let when = format!("publish → device ({RUNS} changes for {BUSY} of them)");
        vec![
            Line::new(format!("{name}: the host's memory for one (PSS)"), kilobytes(self.each), RUNS).goal("≤ 20 KB"),
            Line::new(
                format!("{name}: the host's memory for one, with what the first ones need"),
                kilobytes(self.average),
                1,
            ),
            Line::new(
                format!("{name}: the host's memory with all (PSS)"),
                format!("{:.1} MiB", self.all as f64 / 1024.0),
                1,
            ),
            Line::new(format!("{name}: the host's CPU while nothing moves, each second"), shown(self.idle), RUNS),
            Line::new(format!("{name}: {when}, p50"), shown(self.p50), samples).goal("≤ 100 ms"),
            Line::new(format!("{name}: {when}, p99"), shown(self.p99), samples),
        ]
    }
}
