//! A fleet of 1,000 devices is published, changed, and published again.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::baseline::Baseline;
use crate::fleet::Fleet;
use crate::stage::{Stage, copy, run, timed};
use crate::{DEVICES, Line, median, shown};

/// How often each is done: the first publish makes 1,000 repositories, and takes its time.
const FIRST: usize = 3;
const CHANGE: usize = 5;
const SAME: usize = 10;

/// The devices that are looked at.
const SOME: [usize; 3] = [0, DEVICES / 2, DEVICES - 1];

/// Puts the home back to where nothing was published.
fn restore(kept: &Path, home: &Path) {
    run(Command::new("rm").arg("-rf").arg(home));
    copy(kept, home);
}

pub(crate) fn measure(stage: &Stage) -> Vec<Line> {
    let fleet = Fleet::new(stage, "fleet", DEVICES, DEVICES);
    let kept = stage.dir.path().join("kept");
    copy(&fleet.home(), &kept);
    let first: Vec<_> = (0..FIRST)
        .map(|_| {
            restore(&kept, &fleet.home());
            timed(&mut fleet.command(&["publish"]))
        })
        .collect();
    fleet.assert_published(&SOME, 1);
    restore(&kept, &fleet.home());
    let one_core = [timed(
        Command::new("taskset").args(["-c", "0"]).arg(&stage.publisher).args(["-C"]).arg(fleet.dir()).arg("publish"),
    )];
    fleet.assert_published(&SOME, 1);
    let baseline = Baseline::new(&fleet, stage);
    let unsigned = baseline.measure(false);
    let signed = baseline.measure(true);
    let change: Vec<_> = (0..CHANGE)
        .map(|number| {
            fleet.change(number);
            timed(&mut fleet.command(&["publish"]))
        })
        .collect();
    fleet.assert_published(&SOME, 1 + CHANGE);
    let same: Vec<_> = (0..SAME).map(|_| timed(&mut fleet.command(&["publish"]))).collect();
    fleet.assert_published(&SOME, 1 + CHANGE);
    let ratio = |each: &[Duration], ours: &[Duration]| {
        format!("{:.0} ×", median(each).as_secs_f64() / (median(ours).as_secs_f64() / DEVICES as f64))
    };
    let name = format!("publish {DEVICES} devices");
    let by_git = "git CLI, the same three commits and refs for one device, one after the other";
    vec![
        Line::of_times(format!("{name}: first, 3 signed commits each, durable"), &first),
        Line::of_times(format!("{name}: first, on one core"), &one_core),
        Line::of_times(format!("{name}: one parameter changed for all"), &change),
        Line::of_times(format!("{name}: nothing changed"), &same),
        Line::new("  that is for one device, first publish", shown(median(&first) / DEVICES as u32), first.len()),
        Line::of_times(format!("{by_git}, signed"), &signed),
        Line::of_times(format!("{by_git}, unsigned"), &unsigned),
        Line::new("  times slower than our first publish, signed", ratio(&signed, &first), signed.len()),
        Line::new("  times slower than our first publish on one core, signed", ratio(&signed, &one_core), signed.len()),
        Line::new("  times slower than our first publish, unsigned", ratio(&unsigned, &first), unsigned.len()),
    ]
}
