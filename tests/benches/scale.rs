//! A fleet of 10,000 devices and 100 deployments: checked, compared, published, changed, and published again.
//!
//! Nothing that was published is removed between two runs: ext4 gives inodes that were just freed out again only after
//! looking through all of them, which would be in the next run's time.

use std::process::Command;
use std::time::Duration;

use repo_testkit::git;

use crate::baseline::Baseline;
use crate::cost::{disk, of_run};
use crate::fleet::{ALL, Fleet, id};
use crate::floor::Floor;
use crate::stage::{Stage, copy, run, timed};
use crate::{DEVICES, Line, median, shown};

const ALL_DEVICES: usize = 10 * DEVICES;

/// How often each is done; what takes many seconds, less often.
const RUNS: usize = 10;
const SOME: usize = 5;
const LONG: usize = 3;

/// How many devices stock Git makes the same commits for.
const SAMPLE: usize = 100;

pub(crate) fn measure(stage: &Stage) -> Vec<Line> {
    let fleet = Fleet::mixed(stage, "scale", ALL_DEVICES);
    let kept = stage.dir.path().join("scale-kept");
    copy(&fleet.home(), &kept);
    let cost = |args: &[&str]| of_run(&mut fleet.command(args));
    let validate = runs(RUNS, |_| cost(&["validate"]));
    let first = runs(LONG, |number| {
        if number > 0 {
            std::fs::rename(fleet.home(), stage.dir.path().join(format!("scale-{number}"))).expect("set aside");
            copy(&kept, &fleet.home());
        }
        cost(&["publish"])
    });
    let bytes = disk(&fleet.home().join("devices")) / ALL_DEVICES as u64;
    let once = runs(1, |_| cost(&["publish"]));
    // Files that were written just now could be written again without showing it.
    std::thread::sleep(Duration::from_secs(3));
    cost(&["publish"]);
    let same = runs(RUNS, |_| cost(&["publish"]));
    let imports = imports(&fleet, stage);
    let by_git = Baseline::new(&fleet, stage).measure(true);
    let (mut some_planned, mut some) = (Vec::new(), Vec::new());
    for number in 0..RUNS {
        fleet.change_of("role-03-1", number);
        some_planned.push(cost(&["plan"]));
        if number < SOME {
            some.push(cost(&["publish"]));
        }
    }
    run(&mut fleet.command(&["publish"]));
    let (mut all_planned, mut all) = (Vec::new(), Vec::new());
    for number in 0..LONG {
        fleet.change_of(ALL, number);
        all_planned.push(cost(&["plan"]));
        all.push(cost(&["publish"]));
    }
    fleet.assert_published(&[0, ALL_DEVICES - 1], 1 + LONG);
    let floor = Floor::of(&fleet, ALL_DEVICES);
    let (files, each_bytes) = floor.each();
    let floors: Vec<_> = (0..LONG).map(|number| floor.write(stage, number)).collect();
    let above = median_of(&all).0.as_secs_f64() / median(&floors).as_secs_f64();
    fleet.in_waves();
    let (mut held_planned, mut begun, mut waited) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..LONG {
        // Each comes in the place of the one before, of which one device has begun.
        fleet.change_of(ALL, LONG + number);
        held_planned.push(cost(&["plan"]));
        begun.push(cost(&["publish"]));
        waited.push(cost(&["publish"]));
    }
    // As before: what was written just now isn't believed yet.
    std::thread::sleep(Duration::from_secs(3));
    cost(&["publish"]);
    let held = runs(RUNS, |_| cost(&["publish"]));
    let name = format!("{ALL_DEVICES} devices, 100 deployments, 8 on each");
    let each = median_of(&first).0.as_secs_f64() / ALL_DEVICES as f64;
    let ratio = |others: &[Duration]| format!("{:.0} ×", median(others).as_secs_f64() / each);
    let of_all = |others: &[Duration]| shown(median(others) * ALL_DEVICES as u32);
    vec![
        line(format!("{name}: validate"), &validate).goal("≤ 1 s"),
        line(format!("{name}: first publish, durable"), &first).goal("≤ 10 s, ≤ 200 MB"),
        line(format!("{name}: publish, nothing changed"), &same).goal("≤ 80 ms"),
        line("  the same, the first time after a change", &once),
        line("  one parameter of one deployment (a tenth of the devices): plan", &some_planned).goal("≤ 1 s"),
        line("  the same: publish", &some),
        line("  one parameter of the deployment that all have: plan", &all_planned).goal("≤ 2 s, ≤ 100 MB"),
        line("  the same: publish", &all).goal("≤ 8 s"),
        Line::of_times(
            format!("  its floor: {files} files with {each_bytes} bytes for each, written, moved, synced twice in all"),
            &floors,
        ),
        Line::new("  as many times as the floor", format!("{above:.1} ×"), all.len()),
        line("  the same in waves, of which the first is one device: plan", &held_planned),
        line("  the same: publish, which holds back all others", &begun),
        line("  the same: publish while it waits for that device", &waited).goal("≤ 1 s"),
        line(format!("  nothing changed, {} held: publish", ALL_DEVICES - 1), &held).goal("≤ 80 ms"),
        Line::of_times("git fast-import, the same commits for one device, unsigned, with a new repository", &imports),
        Line::new("  for all devices, extrapolated", of_all(&imports), imports.len()),
        Line::new("  times slower than our first publish", ratio(&imports), imports.len()),
        Line::of_times("git CLI, the same commits for one device, signed, with a new repository", &by_git),
        Line::new("  for all devices, extrapolated", of_all(&by_git), by_git.len()),
        Line::new("  times slower than our first publish", ratio(&by_git), by_git.len()).goal("≥ 20 ×"),
        Line::new("disk for one device after the first publish", format!("{:.0} KB", bytes as f64 / 1e3), 1),
    ]
}

type Cost = (Duration, Duration, u64);

fn runs(times: usize, run: impl FnMut(usize) -> Cost) -> Vec<Cost> {
    (0..times).map(run).collect()
}

fn median_of(costs: &[Cost]) -> Cost {
    let of = |part: fn(&Cost) -> Duration| median(&costs.iter().map(part).collect::<Vec<_>>());
    (of(|cost| cost.0), of(|cost| cost.1), costs.iter().map(|cost| cost.2).max().unwrap_or_default())
}

fn line(what: impl Into<String>, costs: &[Cost]) -> Line {
    let (wall, cpu, memory) = median_of(costs);
    let value = format!("{}, {} CPU, {} MB", shown(wall), shown(cpu), memory / 1024);
    Line::new(what, value, costs.len())
}

/// What `git fast-import` needs for each of some devices; it can't sign.
fn imports(fleet: &Fleet, stage: &Stage) -> Vec<Duration> {
    let dir = stage.dir.path().join("imports");
    std::fs::create_dir_all(&dir).expect("made");
    let numbers = (0..SAMPLE.min(ALL_DEVICES)).map(|n| n * ALL_DEVICES / SAMPLE.min(ALL_DEVICES));
    numbers
        .map(|number| {
            let (stream, repository) = (dir.join(id(number)), dir.join(format!("{}.git", id(number))));
            let mut export = git::command(&fleet.repository(number));
            export.args(["fast-export", "desired", "bundle", "freshness"]);
            std::fs::write(&stream, run(&mut export).stdout).expect("written");
            let script = "git init -q --bare --template= \"$2\" && exec git --git-dir=\"$2\" -c core.fsync=all \
                -c core.fsyncMethod=fsync -c fastimport.unpackLimit=0 fast-import --quiet <\"$1\"";
            timed(Command::new("sh").args(["-c", script, "sh"]).arg(&stream).arg(&repository))
        })
        .collect()
}
