//! A fleet of 1,000 devices is published, changed, and published again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use repo_testkit::git;

use crate::baseline::Baseline;
use crate::stage::{Stage, copy, run, timed};
use crate::{DEVICES, Line, median, shown};

/// How often each is done: the first publish makes 1,000 repositories, and takes its time.
const FIRST: usize = 3;
const CHANGE: usize = 5;
const SAME: usize = 10;

/// The fleet and its home.
pub(crate) struct Fleet<'a> {
    stage: &'a Stage,
    dir: PathBuf,
}

impl<'a> Fleet<'a> {
    /// A fleet whose devices all run the example; nothing is published yet.
    fn new(stage: &'a Stage) -> Self {
        let fleet = Self { stage, dir: stage.dir.path().join("fleet") };
        let name = stage.dir.path().file_name().expect("a name").to_string_lossy().to_lowercase();
        let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        let mut init = Command::new(&stage.publisher);
        init.arg("init").arg(&fleet.dir).args(["--registry", &format!("{}/{name}", stage.registry)]);
        run(init.args(["--image", "margo-test/busybox:1"]));
        run(&mut fleet.command(&["app", "push", "applications/hello/1.0.0"]));
        let key = stage.dir.path().join("device-key");
        run(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]).arg(&key));
        let key = std::fs::read_to_string(key.with_extension("pub")).expect("a key");
        let key = key.trim();
        run(Command::new("rm").arg("-r").arg(fleet.dir.join("devices")));
        for number in 0..DEVICES {
            let dir = fleet.dir.join(format!("devices/line-{:02}", number / 50));
            std::fs::create_dir_all(&dir).expect("made");
            let text = format!("id: press-{number:04}\nlabels: {{site: graz, role: press}}\nstatusKeys: [{key}]\n");
            std::fs::write(dir.join(format!("press-{number:04}.yaml")), text).expect("written");
        }
        fleet.commit("1,000 devices");
        fleet
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.stage.dir.path().join("fleet.wfm")
    }

    pub(crate) fn repository(&self, number: usize) -> PathBuf {
        self.home().join(format!("devices/press-{number:04}.git"))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.stage.publisher);
        command.arg("-C").arg(&self.dir).args(args);
        command
    }

    fn commit(&self, message: &str) {
        git::git(&self.dir, &["add", "--all"]);
        git::git(&self.dir, &["commit", "--quiet", "--message", message]);
    }

    fn change(&self, number: usize) {
        let path = self.dir.join("deployments/hello.yaml");
        let text = std::fs::read_to_string(&path).expect("a deployment");
        let line = text.lines().find(|line| line.starts_with("  greeting:")).expect("a greeting");
        std::fs::write(&path, text.replacen(line, &format!("  greeting: change {number}"), 1)).expect("written");
        self.commit(&format!("change {number}"));
    }

    fn assert_published(&self, serial: usize) {
        for number in [0, DEVICES / 2, DEVICES - 1] {
            let trailers = git::git(
                &self.repository(number),
                &["log", "-1", "--format=%(trailers:key=Serial,valueonly)", "desired"],
            );
            assert_eq!(trailers.trim(), serial.to_string(), "device {number}");
        }
    }
}

/// Puts the home back to where nothing was published.
fn restore(kept: &Path, home: &Path) {
    run(Command::new("rm").arg("-rf").arg(home));
    copy(kept, home);
}

pub(crate) fn measure(stage: &Stage) -> Vec<Line> {
    let fleet = Fleet::new(stage);
    let kept = stage.dir.path().join("kept");
    copy(&fleet.home(), &kept);
    let first: Vec<_> = (0..FIRST)
        .map(|_| {
            restore(&kept, &fleet.home());
            timed(&mut fleet.command(&["publish"]))
        })
        .collect();
    fleet.assert_published(1);
    restore(&kept, &fleet.home());
    let one_core = [timed(
        Command::new("taskset").args(["-c", "0"]).arg(&stage.publisher).args(["-C"]).arg(&fleet.dir).arg("publish"),
    )];
    fleet.assert_published(1);
    let baseline = Baseline::new(&fleet, stage);
    let unsigned = baseline.measure(false);
    let signed = baseline.measure(true);
    let change: Vec<_> = (0..CHANGE)
        .map(|number| {
            fleet.change(number);
            timed(&mut fleet.command(&["publish"]))
        })
        .collect();
    fleet.assert_published(1 + CHANGE);
    let same: Vec<_> = (0..SAME).map(|_| timed(&mut fleet.command(&["publish"]))).collect();
    fleet.assert_published(1 + CHANGE);
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
