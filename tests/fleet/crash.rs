//! Power cuts and kills of the syncer at every sync point, and at random instants.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use repo_testkit::faults::chaos_rounds;
use repo_testkit::faults::power::{
    Cut, Experiment, Point, Volume, assert_cut, cut_at, cut_everywhere, points, start_on, trace,
};

use serde_json::json;

use crate::hand_made::HandMade;
use repo_testkit::device::reboot;

/// What a pass is to do when it is cut.
#[derive(Debug, Clone, Copy)]
enum Deed {
    /// The first adoption, and two containers.
    Install,
    /// A changed parameter of one service.
    Update,
    /// The removal of everything.
    Remove,
    /// A changed parameter of one deployment, and a second deployment at the same time.
    Both,
}

impl Deed {
    /// Brings the host and a device on `root` to where the deed is next; what that took is remembered.
    fn prepare(self, made: &HandMade, root: &Path) {
        if !made.restore(root) {
            made.begin(root);
            match self {
                Self::Install => {}
                Self::Update | Self::Remove | Self::Both => made.assert_converges(root, "before the deed"),
            }
            match self {
                Self::Install => {}
                Self::Update => made.greet("two"),
                Self::Remove => made.empty(),
                Self::Both => made.greet_twice("two"),
            }
            made.keep(root);
        }
        reboot(root);
    }
}

/// How many occurrences of each point and side are cut; `just chaos` asks for more.
pub(crate) fn occurrences() -> usize {
    chaos_rounds().map_or(1, |rounds| (rounds / 100).max(2))
}

fn cut(deed: Deed, cut: Cut) -> BTreeSet<String> {
    let made = HandMade::new();
    let check = |root: &Path, when: &str| {
        made.assert_whole(root, false, when);
        reboot(root);
        made.assert_converges(root, when);
    };
    let experiment = Experiment {
        deed: &format!("{deed:?}"),
        prepare: &|root| deed.prepare(&made, root),
        command: &|root| made.once(root),
        check: &|root, _, when| check(root, when),
        cut,
        occurrences: occurrences(),
    };
    cut_everywhere(&experiment).expect("the cuts are made")
}

/// Points that a syncer passes only after damage, or that only the publisher passes.
const ELSEWHERE: &[&str] = &["ref.delete"];

#[test]
fn power_cuts_leave_the_last_good_state_or_the_new_one() {
    let deeds = [Deed::Install, Deed::Update, Deed::Remove];
    let all: BTreeSet<_> = deeds.into_iter().flat_map(|deed| cut(deed, Cut::Power)).collect();
    let passed =
        ["file.data", "file.rename", "slot.data", "pack.data", "index.rename", "ref.lock", "ref.move", "pack.remove"];
    assert_cut(&all, &passed);
    assert!(ELSEWHERE.iter().all(|name| !all.contains(*name)), "{all:?}");
}

#[test]
fn power_kills_at_every_sync_point_leave_no_mix() {
    cut(Deed::Install, Cut::Process);
    cut(Deed::Update, Cut::Process);
}

/// Each point once, as it is passed in the midst of a deed, and after it: what is durable then is what is before the next.
fn amidst(points: &[Point]) -> impl Iterator<Item = &Point> {
    let mut groups: BTreeMap<&str, Vec<&Point>> = BTreeMap::new();
    for point in points.iter().filter(|point| point.side == "after") {
        groups.entry(&point.name).or_default().push(point);
    }
    groups.into_values().map(|group| group[group.len() / 2])
}

#[test]
fn power_cuts_with_two_jobs_at_work_leave_each_its_last_good_state_or_the_new_one_and_blame_no_neighbour() {
    let (made, volume) = (HandMade::new(), Volume::new(64).expect("a volume"));
    let root = volume.path();
    let start = || start_on(&volume, &|root| Deed::Both.prepare(&made, root)).expect("prepared");
    start();
    let points = trace(&mut made.once(&root)).expect("it runs");
    let (mut cuts, mut together) = (0, 0);
    for point in amidst(&points) {
        start();
        // In which order the two pass it is another one each time.
        let missed = cut_at(&volume, &mut made.once(&root), point, Cut::Power).expect("the cut is made");
        assert!(missed.is_none(), "{point}: {missed:?}");
        let when = format!("power cut at {point} with two at work");
        made.assert_whole(&root, false, &when);
        let open = made.attempts(&root).into_iter().filter(|(_, one)| one["open"] != 0).map(|(name, _)| name);
        let open: BTreeSet<_> = open.collect();
        reboot(&root);
        made.assert_blamed(&root, &open, &when);
        made.assert_converges(&root, &when);
        assert_eq!(made.greetings(&root), ["two", "two"], "{when}");
        cuts += 1;
        together += usize::from(open.len() == 2);
    }
    println!("{cuts} cuts, {together} of them while both were applied");
    assert!(together > 0, "none of {cuts} cuts came while both were applied");
}

/// A device on which both components ran well, and one of them failed with what came after: the next pass puts both back.
fn before_the_rollback(made: &HandMade, root: &Path) {
    if !made.restore(root) {
        made.begin(root);
        made.greet_as_two("well");
        made.assert_converges(root, "before it has run well");
        made.stabilise(root);
        made.greet_as_two("badly");
        made.let_the_other_fail(root);
        assert_eq!(made.once(root).status().expect("it runs").code(), Some(1));
        assert_eq!(made.told("failed rolled-back"), 0);
        made.keep(root);
    }
    reboot(root);
}

/// Cuts the power amidst the pass that a device makes as it is prepared: then `is_over` holds, as it does after a pass without a
/// cut, and nothing more is done or said.
fn cut_a_pass(prepare: impl Fn(&HandMade, &Path), is_over: impl Fn(&HandMade, &Path, &str), what: &str) {
    let (made, volume) = (HandMade::new(), Volume::new(64).expect("a volume"));
    let root = volume.path();
    let start = || start_on(&volume, &|root| prepare(&made, root)).expect("prepared");
    let ends = |when: &str| {
        // What stands there then isn't what is wanted.
        assert_eq!(made.once(&root).status().expect("it runs").code(), Some(1), "{when}");
        is_over(&made, &root, when);
        let before = made.marks(&root);
        made.once(&root).status().expect("it runs");
        assert_eq!(made.marks(&root), before, "{when}: it is quiet");
        made.assert_whole(&root, false, when);
    };
    start();
    let trace = tempfile::NamedTempFile::new().expect("a file");
    made.once(&root).env("SYNC_TRACE", trace.path()).status().expect("it runs");
    let points = points(trace.path()).expect("points");
    ends("uncut");
    for point in amidst(&points) {
        start();
        let missed = cut_at(&volume, &mut made.once(&root), point, Cut::Power).expect("the cut is made");
        let when = format!("power cut at {point} {what}");
        assert!(missed.is_none(), "{when}: {missed:?}");
        made.assert_whole(&root, false, &when);
        reboot(&root);
        ends(&when);
    }
}

#[test]
fn power_cuts_of_a_rollback_end_with_all_that_ran_well_and_it_is_told_once() {
    let rolled_back = |made: &HandMade, root: &Path, when: &str| {
        assert_eq!(made.greetings(root), ["well", "well"], "{when}");
        assert_eq!(made.codes(), ["rolled-back", "rolled-back"], "{when}");
        // The one component that hadn't failed; the other one goes on having failed.
        assert_eq!(made.told("failed rolled-back"), 1, "{when}");
    };
    cut_a_pass(before_the_rollback, rolled_back, "of a rollback");
}

/// A device that has gone down twice with both components on trial, and does so a third time.
fn before_it_is_given_up(made: &HandMade, root: &Path, on_failure: &str) {
    if !made.restore(root) {
        made.begin(root);
        made.greet_as_two("well");
        made.assert_converges(root, "before it has run well");
        if on_failure == "last-good" {
            made.stabilise(root);
        }
        made.greet_as_two_with("badly", &json!({"onFailure": on_failure, "stabiliseSeconds": 600}));
        (0..3).for_each(|_| made.go_down_on_trial(root, 2));
        assert_eq!(made.told("failed crash-loop") + made.told("failed rolled-back"), 0);
        made.keep(root);
    }
    reboot(root);
}

/// Cuts the power while a set is given up with which the device goes down: then this runs, and is reported like that.
fn cut_what_is_given_up(on_failure: &str, runs: &[&str], code: &str) {
    let given_up = |made: &HandMade, root: &Path, when: &str| {
        assert_eq!(
            (made.greetings(root), made.codes()),
            (runs.iter().map(ToString::to_string).collect(), vec![code.to_owned(); 2]),
            "{when}"
        );
        assert_eq!(made.told(&format!("failed {code}")), 3, "{when}: each component and the deployment, once");
    };
    let what = format!("while what the device goes down with is given up ({on_failure})");
    cut_a_pass(|made, root| before_it_is_given_up(made, root, on_failure), given_up, &what);
}

#[test]
fn power_cuts_while_what_the_device_goes_down_with_is_given_up_end_with_what_ran_well_or_nothing() {
    cut_what_is_given_up("last-good", &["well", "well"], "rolled-back");
    cut_what_is_given_up("hold", &[], "crash-loop");
}

/// `MARGO_CHAOS_SEED`, or another one each time; printed.
pub(crate) fn seed() -> u64 {
    let seed = match std::env::var("MARGO_CHAOS_SEED") {
        Ok(seed) => seed.parse().expect("MARGO_CHAOS_SEED is a number"),
        Err(_) => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            u64::from(std::process::id()) << 30 | u64::from(now.expect("it is after 1970").subsec_nanos())
        }
    };
    println!("seed {seed}");
    seed
}

/// A pseudo-random number in `0..below` (SplitMix64), reproducible from the printed seed.
pub(crate) fn random(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) % below.max(1)
}

#[test]
fn crash_kills_at_random_instants_converge() {
    let seed = seed();
    let (mut state, mut histogram, mut within) = (seed, [0; 10], 0);
    let made = HandMade::new();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let root = dir.path().join("round");
    // The first one may take longer than all others.
    let length = (0..3).map(|_| length(&made, &root)).min().expect("three");
    let rounds = chaos_rounds().unwrap_or(40);
    for round in 0..rounds {
        prepare_afresh(&made, &root);
        let after = Duration::from_micros(random(&mut state, length.as_micros() as u64));
        let mut child = begin(&made, &root);
        std::thread::sleep(after);
        within += usize::from(child.try_wait().expect("waited").is_none());
        let _ = child.kill();
        let _ = child.wait();
        histogram[(after.as_micros() * 10 / length.as_micros().max(1)).min(9) as usize] += 1;
        let when = format!("seed {seed}, round {round}, killed {after:?} after its first write");
        made.assert_whole(&root, false, &when);
        made.assert_converges(&root, &when);
    }
    println!("killed by tenth of the time after the first write: {histogram:?}; {within} of {rounds} before the end");
    assert!(within * 2 >= rounds, "only {within} of {rounds} kills hit between the first write and the end");
}

fn prepare_afresh(made: &HandMade, root: &Path) {
    let _ = std::fs::remove_dir_all(root);
    std::fs::create_dir(root).expect("made");
    Deed::Install.prepare(made, root);
}

/// Starts a pass and waits for its first write.
fn begin(made: &HandMade, root: &Path) -> Child {
    let trace = root.join("trace");
    let child = made.once(root).env("SYNC_TRACE", &trace).stderr(Stdio::null()).spawn().expect("the syncer runs");
    let start = Instant::now();
    while !trace.exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "no write: the syncer must be built with `cut-points`");
        std::thread::sleep(Duration::from_millis(1));
    }
    child
}

/// How long a pass takes from its first write to its end.
fn length(made: &HandMade, root: &Path) -> Duration {
    prepare_afresh(made, root);
    let mut child = begin(made, root);
    let start = Instant::now();
    assert!(child.wait().expect("waited").success());
    start.elapsed()
}
