//! Devices that have told much: what the clone and the repository at the host take after `EPOCH_TRANSITIONS` (50,000) transitions of each
//! of `EPOCH_DEVICES` (10), in epochs of 10,000 commits.

use std::time::Duration;

use device_syncer::config::Home;
use device_syncer::decision::message::{Identity, message};
use device_syncer::decision::status::Report;
use device_syncer::home;
use device_syncer::state::store::Store;
use repo_git::SigningKey;
use repo_model::margo::State;
use repo_testkit::git;

use crate::cost::{disk, thread_cpu};
use crate::site::{Docker, Site};
use crate::stage::Stage;
use crate::{Line, shown};

/// What is told before the host hears of it: a day or two without a connection, each time.
const AT_ONCE: usize = 500;

/// Packs before they are made one.
const PACKS: usize = 50;

fn setting(name: &str, usual: usize) -> usize {
    std::env::var(name).ok().map_or(usual, |text| text.parse().expect("a number"))
}

/// What a device came to.
struct Told {
    clone: u64,
    /// The clone at its largest, when it was told of and before.
    most: u64,
    host: u64,
    epochs: usize,
    commits: usize,
    /// Of the pass that told the last of it.
    pass: Duration,
}

pub(crate) fn measure(stage: &Stage) -> Vec<Line> {
    // A build that isn't optimised only tries the bench itself.
    let is_trial = cfg!(debug_assertions);
    let devices = setting("EPOCH_DEVICES", if is_trial { 1 } else { 10 });
    let transitions = setting("EPOCH_TRANSITIONS", if is_trial { 1_000 } else { 50_000 });
    let all: Vec<_> = (0..devices).map(|number| tell(stage, &format!("epochs-{number}"), transitions)).collect();
    let most = |of: fn(&Told) -> u64| all.iter().map(of).max().unwrap_or_default();
    let megabytes = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    let [least, largest] = [all.iter().map(|told| told.epochs).min(), all.iter().map(|told| told.epochs).max()];
    let commits = all.iter().map(|told| told.commits).max().unwrap_or_default();
    let cpu = all.iter().map(|told| told.pass).max().unwrap_or_default();
    let name = format!("{devices} devices × {transitions} transitions");
    vec![
        Line::new(
            format!("{name}: epochs of a device"),
            format!("{:?} to {:?}", least.unwrap_or(0), largest.unwrap_or(0)),
            devices,
        ),
        Line::new("  the longest `status`, in commits", commits.to_string(), devices),
        Line::new("  the largest clone at the end", megabytes(most(|told| told.clone)), devices).goal("≤ 2 MB"),
        Line::new(
            "  the largest clone, with what the host doesn't know yet",
            megabytes(most(|told| told.most)),
            devices,
        ),
        Line::new(
            "  the largest repository at the host, all of its history in it",
            megabytes(most(|told| told.host)),
            devices,
        ),
        Line::new("  the last pass: CPU", shown(cpu), devices),
    ]
}

fn tell(stage: &Stage, name: &str, transitions: usize) -> Told {
    let site = Site::new(stage, name, "serve", "", &Docker::Fake);
    let (clone, mut told, mut most, mut pass) = (site.device.clone_dir(), 0, 0, Duration::ZERO);
    while told < transitions {
        told += change(&site, AT_ONCE.min(transitions - told));
        most = most.max(disk(&clone));
        let (mut syncer, _locks) = home::open(Home::new(site.device.home())).expect("a device's home");
        let before = thread_cpu();
        for _ in 0..3 {
            syncer.converge().expect("a pass");
        }
        pass = thread_cpu() - before;
    }
    let repository = site.repository();
    let branches = git::git(&repository, &["for-each-ref", "--format=%(refname:short)", "refs/heads/status*"]);
    let count =
        |branch: &str| git::git(&repository, &["rev-list", "--count", branch]).parse::<usize>().expect("a number");
    // Whatever is measured, nothing of it is lost.
    let said =
        [&["log", "--format=%(trailers:key=State,valueonly)"], &branches.lines().collect::<Vec<_>>()[..]].concat();
    let said = git::git(&repository, &said);
    assert!(said.lines().filter(|line| line.contains("/* ")).count() >= told, "{name}: transitions are missing");
    Told {
        clone: disk(&clone),
        most,
        host: disk(&repository),
        epochs: branches.lines().count(),
        commits: branches.lines().map(count).max().unwrap_or_default(),
        pass,
    }
}

/// Lets the device tell so many transitions of its only component, there and back. It runs in the end as it did.
fn change(site: &Site, transitions: usize) -> usize {
    let home = Home::new(site.device.home());
    let key = SigningKey::load(&site.device.home().join("status.key")).expect("its key");
    let identity = Identity { fleet: site.join.fleet, device: site.join.device.clone() };
    let mut store = Store::open(&home, &identity.device, key).expect("its clone");
    let begin = store.status_tip();
    for number in 0..transitions {
        let mut next = store.device_state.clone();
        let mut report = Report::read(&next.status);
        let deployments = report.deployments.iter();
        let (id, component) = deployments
            .filter_map(|(id, one)| Some((*id, one.components.first()?.name.clone())))
            .next()
            .expect("it runs something");
        report.set(id, &component, if number % 2 == 0 { State::Failed } else { State::Installed }, None);
        let version = next.adopted_version();
        report.write(&mut next.status, &identity.device, version);
        let says = |next: &_, before: &_| message(next, before, &identity);
        store.commit(next, says, 1_700_000_000 + i64::try_from(number).expect("small")).expect("told");
        store.consolidate(PACKS, begin).expect("consolidated");
    }
    transitions
}
