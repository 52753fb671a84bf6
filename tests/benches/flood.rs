//! What the devices of a host notice of strangers who ask to be enrolled, as fast as the host answers them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use repo_http::{Request, Url};
use repo_model::Digest;
use repo_model::enrolment::{Kind, Start};
use repo_model::json;

use crate::crowd::{BUSY, Crowd};
use crate::host::agent;
use crate::load::{self, Client};
use crate::served::runtime;
use crate::stage::{Stage, run};
use crate::{Line, RUNS, median, shown};

/// How many strangers ask at the same time.
const STRANGERS: usize = 4;

/// How long a run takes, and between two polls: what is asked for is an answer, not all that the host can do.
const TIME: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(5);

pub(crate) fn measure(stage: &Stage) -> Vec<Line> {
    let crowd = Crowd::new(stage, "flood", BUSY);
    run(&mut crowd.fleet.command(&["enroll", "open", "--for", "1h"]));
    let (host, authority) = (&crowd.host, crowd.host.authority());
    let runtime = runtime();
    let mut clients =
        runtime.block_on(load::connections(host.address, &authority, (0..BUSY).map(Crowd::poll).collect()));
    let mut polls = || runtime.block_on(polled(&mut clients));
    let alone: Vec<_> = (0..RUNS).map(|_| polls()).collect();
    let (is_over, [begun, late]) = (AtomicBool::new(false), [0; 2].map(AtomicUsize::new));
    let start = json::to_bytes(&Start { layout: 1, kind: Kind::Code, commitment: Digest::of(b"") });
    let url = Url::parse(&format!("https://{}/enroll", host.address)).expect("a URL");
    let flooded = std::thread::scope(|scope| {
        for _ in 0..STRANGERS {
            let agent = agent(authority.clone());
            let (start, url, is_over, begun, late) = (&start, &url, &is_over, &begun, &late);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    match agent.answer(&Request::post(url, start)).expect("an answer").status {
                        201 => begun.fetch_add(1, Ordering::Relaxed),
                        429 => late.fetch_add(1, Ordering::Relaxed),
                        status => panic!("{status}"),
                    };
                }
            });
        }
        let flooded: Vec<_> = (0..RUNS).map(|_| polls()).collect();
        is_over.store(true, Ordering::Relaxed);
        flooded
    });
    let each = |count: &AtomicUsize| count.load(Ordering::Relaxed) as f64 / (TIME.as_secs_f64() * RUNS as f64);
    let percentile = |runs: &[Vec<Duration>], percent: usize| {
        median(&runs.iter().map(|run| run[(run.len() - 1) * percent / 100]).collect::<Vec<_>>())
    };
    let line = |what: &str, runs: &[Vec<Duration>], percent| {
        Line::new(format!("a poll {what}: p{percent}"), shown(percentile(runs, percent)), RUNS)
    };
    let asked = format!("{:.0} begun, {:.0} told to wait", each(&begun), each(&late));
    vec![
        line("of a device alone", &alone, 50),
        line("of a device alone", &alone, 99),
        line("while strangers ask to be enrolled", &flooded, 50),
        line("while strangers ask to be enrolled", &flooded, 99).goal("≤ 20 ms"),
        Line::new(format!("  {STRANGERS} strangers at once, each second"), asked, RUNS),
    ]
}

/// One device after the other polls for a while. How long each waited, in order.
async fn polled(clients: &mut [Client]) -> Vec<Duration> {
    let (start, mut latencies) = (Instant::now(), Vec::new());
    let count = clients.len();
    while start.elapsed() < TIME {
        let (connection, request) = &mut clients[latencies.len() % count];
        let sent = Instant::now();
        let (status, _) = connection.ask(request).await;
        assert_eq!(status, 200);
        latencies.push(sent.elapsed());
        tokio::time::sleep(PAUSE).await;
    }
    latencies.sort();
    latencies
}
