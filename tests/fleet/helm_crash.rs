//! Power cuts and kills of a device that runs a chart, on real Helm and a real Kubernetes API, which is another machine:
//! what it has done stays done whatever the device lost.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::{Duration, Instant};

use repo_testkit::cluster::{HELM_3, HELM_4};
use repo_testkit::faults::chaos_rounds;
use repo_testkit::faults::power::{Cut, Point, Volume, cut_at, trace_to};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

use crate::crash::{occurrences, random, seed};
use crate::edge::{DEEDS, Deed, Edge};
use repo_testkit::device::reboot;

/// How helm changes the release.
const CHANGES: [(Deed, &str); 3] =
    [(Deed::Install, "helm.upgrade"), (Deed::Change, "helm.upgrade"), (Deed::Remove, "helm.uninstall")];

/// Points that such a pass can't do without.
const POINTS: [&str; 10] = [
    "file.data",
    "file.rename",
    "file.remove",
    "slot.write",
    "slot.data",
    "pack.data",
    "index.rename",
    "ref.lock",
    "ref.move",
    "ref.dir",
];

/// The points that each deed passes when nothing happens, but for directories, which are made once.
fn trace(edge: &Edge) -> Vec<(Deed, Vec<Point>)> {
    let (file, mut all) = (edge.path("trace"), Vec::new());
    edge.cycle("traced", |deed| {
        std::fs::write(&file, "").expect("written");
        let points = trace_to(&mut edge.device.once(), &file).expect("a good pass");
        all.push((deed, points.into_iter().filter(|point| !point.name.starts_with("dir.")).collect()));
        std::fs::remove_file(&file).expect("removed");
    });
    all
}

/// The power goes at this point of a pass, and comes back. Returns false if the pass never came there.
fn cut(edge: &Edge, volume: &Volume, point: &Point) -> bool {
    volume.sync().expect("synced");
    std::fs::write(edge.path("cut"), point.to_string()).expect("written");
    let ended = cut_at(volume, &mut edge.device.once(), point, Cut::Power).expect("the cut is made");
    let _ = std::fs::remove_file(edge.path("cut"));
    reboot(&edge.root);
    ended.is_none()
}

/// So many cuts at each point and side, each in one of the deeds that pass it and at any of its occurrences there; what
/// is helm's, in each deed. In any order.
fn draw(traced: &[(Deed, Vec<Point>)], most: usize) -> Vec<(Deed, Point)> {
    let mut state = seed();
    let all = traced.iter().flat_map(|(deed, points)| points.iter().map(|point| (*deed, point.clone())));
    let (mut drawn, others): (Vec<_>, Vec<_>) = all.partition(|(_, point)| point.name.starts_with("helm."));
    let sides: BTreeSet<_> = others.iter().map(|(_, point)| (&point.name, &point.side)).collect();
    for (index, side) in sides.into_iter().enumerate() {
        let of = |deed| others.iter().filter(move |(of, point)| *of == deed && (&point.name, &point.side) == side);
        let deeds: Vec<_> = DEEDS.into_iter().filter(|deed| of(*deed).next().is_some()).collect();
        for n in 0..most {
            let mut places: Vec<_> = of(deeds[(index / 2 + n) % deeds.len()]).collect();
            drawn.push(places.swap_remove(random(&mut state, places.len() as u64) as usize).clone());
        }
    }
    drawn.sort_by_cached_key(|_| random(&mut state, u64::MAX));
    drawn
}

#[test]
fn power_cuts_of_a_device_with_a_chart_leave_one_release_and_tell_each_transition_once() {
    let volume = Volume::new(64).expect("a volume");
    let edge = Edge::new(HELM_4, &volume.path());
    let drawn = draw(&trace(&edge), occurrences().div_ceil(2));
    let of = |deed| drawn.iter().filter(move |(of, _)| *of == deed).map(|(_, point)| point.clone()).collect::<Vec<_>>();
    let (mut left, mut cuts) = (DEEDS.map(of), BTreeSet::new());
    for cycle in 0.. {
        if left.iter().all(Vec::is_empty) {
            break;
        }
        for (deed, points) in DEEDS.into_iter().zip(&mut left) {
            let (first, second) = (points.pop(), points.last().map(|point| Point { occurrence: 1, ..point.clone() }));
            let when = format!("{deed:?}, cut at {first:?}, perhaps then at {second:?}");
            edge.round(deed, &format!("{deed:?} {cycle}"), None, &when, || {
                let Some(mut first) = first else { return };
                if !cut(&edge, &volume, &first) {
                    // How often a pass comes there depends on how many of its reports it pushes at once.
                    assert!(first.occurrence > 1, "{when}: it never came there");
                    first.occurrence -= 1;
                    return points.insert(0, first);
                }
                cuts.insert(format!("{deed:?} {first}"));
                // The next boot may have the power cut again, if there is still so much to do.
                if let Some(second) = second
                    && cut(&edge, &volume, &second)
                {
                    cuts.insert(format!("{deed:?} {second} at the next boot"));
                    points.pop();
                }
            });
        }
    }
    println!("{} cuts: {cuts:?}", cuts.len());
    let sides = ["before", "after"];
    let was_cut = |place: &str| cuts.iter().any(|cut| cut.contains(place));
    for (name, side) in POINTS.iter().flat_map(|name| sides.map(|side| (name, side))) {
        assert!(was_cut(&format!(" {name}:{side}:")), "{name} was not cut {side} it");
    }
    for ((deed, name), side) in CHANGES.into_iter().flat_map(|change| sides.map(|side| (change, side))) {
        assert!(was_cut(&format!("{deed:?} {name}:{side}:")), "{deed:?} was not cut {side} {name}");
    }
}

#[test]
fn power_cuts_while_helm_works_are_made_good_at_the_next_boot() {
    let volume = Volume::new(64).expect("a volume");
    let edge = Edge::new(HELM_4, &volume.path());
    for (deed, name) in CHANGES {
        let point = Point { name: name.to_owned(), side: "during".to_owned(), occurrence: 1 };
        let when = format!("{deed:?}, cut while helm works");
        edge.round(deed, &format!("{deed:?}"), Some("ok"), &when, || assert!(cut(&edge, &volume, &point)));
    }
}

/// Ends the syncer, and what it called or not: a service manager ends all, the kernel in want of memory one. Git is left
/// alone, because it is the host's: on a machine of its own it outlives the device. Returns whether something was called.
fn kill(syncer: u32, alone: bool) -> bool {
    let pid = |id: u32| i32::try_from(id).ok().and_then(Pid::from_raw).expect("a process has a number above 0");
    // Held, so that it calls nobody between the look and the kill.
    let _ = kill_process(pid(syncer), Signal::STOP);
    let tasks = std::fs::read_dir(format!("/proc/{syncer}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let is_the_hosts =
        |id: &u32| std::fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|name| name.starts_with("git"));
    let called: Vec<u32> = lists.flat_map(|list| numbers(&list)).filter(|id| !is_the_hosts(id)).collect();
    let _ = kill_process(pid(syncer), Signal::KILL);
    for child in called.iter().filter(|_| !alone) {
        let _ = kill_process_group(pid(*child), Signal::KILL);
    }
    !called.is_empty()
}

fn numbers(list: &str) -> Vec<u32> {
    list.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

fn kills(helm: &str) {
    let mut state = seed();
    let dir = TempDir::new().expect("a temporary directory");
    let edge = Edge::new(helm, dir.path());
    let mut whole = Vec::new();
    edge.cycle("whole", |_| {
        let start = Instant::now();
        edge.device.pass();
        whole.push(start.elapsed());
    });
    let (mut within, mut calling) = (0, 0);
    let rounds = chaos_rounds().map_or(2 * DEEDS.len(), |rounds| (rounds / 10).max(10));
    for round in 0..rounds {
        let (deed, alone) = (DEEDS[round % DEEDS.len()], random(&mut state, 2) == 0);
        let after = Duration::from_micros(random(&mut state, whole[round % DEEDS.len()].as_micros() as u64));
        let when =
            format!("round {round}, {deed:?}, killed after {after:?}, {}", if alone { "alone" } else { "with helm" });
        edge.round(deed, &format!("round {round}"), None, &when, || {
            let mut syncer = edge.device.once().stderr(Stdio::null()).spawn().expect("the syncer runs");
            std::thread::sleep(after);
            within += usize::from(syncer.try_wait().expect("waited").is_none());
            calling += usize::from(kill(syncer.id(), alone));
            let _ = syncer.wait();
        });
    }
    println!("{within} of {rounds} killed before their end, {calling} while something else worked for them");
    assert!(within * 2 >= rounds, "only {within} of {rounds} were killed before their end");
}

#[test]
fn crash_kills_at_random_instants_with_helm_4_leave_one_release() {
    kills(HELM_4);
}

#[test]
fn crash_kills_at_random_instants_with_helm_3_leave_one_release() {
    kills(HELM_3);
}
