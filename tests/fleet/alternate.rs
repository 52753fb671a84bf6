//! Both sides cut in turn, at random sync points, each on a file system of its own.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use repo_testkit::faults::chaos_rounds;
use repo_testkit::faults::power::{Point, PowerError, VOLUME_VARIABLE, Volume, trace};
use repo_testkit::program;
use tempfile::TempDir;

use crate::crash::{random, seed};
use crate::site::registry_name;
use crate::ssh_site;
use repo_testkit::device::Device;
use repo_testkit::device::reboot;
use repo_testkit::fleet::{DEPLOYMENT, Fleet};
use repo_testkit::sshd::{Options, Sshd};
use repo_testkit::text;

/// One side: where it lies, what it runs, and which points that passes.
struct Side<'a> {
    name: &'static str,
    volume: &'a Volume,
    command: &'a dyn Fn() -> Command,
    points: Vec<Point>,
}

impl Side<'_> {
    /// Runs it until a random point, if it gets there; what happened.
    fn cut(&self, state: &mut u64) -> String {
        let point = &self.points[random(state, self.points.len() as u64) as usize];
        let power = random(state, 2) == 0;
        let mut command = (self.command)();
        command.env("SYNC_CUT", point.to_string()).env("SYNC_CUT_COMMAND", program("power-cut"));
        if power {
            command.env(VOLUME_VARIABLE, self.volume.path());
        }
        let output = command.stdin(Stdio::null()).output().expect("it runs");
        let killed = output.status.signal().is_some();
        if power && killed {
            self.volume.reboot().expect("rebooted");
            reboot(&self.volume.path());
        }
        let how = if killed { ["killed", "power cut"][usize::from(power)] } else { "not reached" };
        format!("{} {point} {how}", self.name)
    }
}

/// The points that a later round passes too, which may have less to do than the first one.
fn early(points: Result<Vec<Point>, PowerError>) -> Vec<Point> {
    let mut points = points.expect("it runs");
    points.retain(|point| point.occurrence <= 4);
    assert!(!points.is_empty(), "both programs must be built with `cut-points`");
    points
}

fn sync(volume: &Volume) {
    text(Command::new("sync").arg("-f").arg(volume.path()).output().expect("sync runs"));
}

/// An operator's change: another greeting, or the deployment goes or comes.
fn change(fleet: &Fleet, original: &str, round: usize, state: &mut u64) {
    match random(state, 4) {
        0 => _ = std::fs::remove_file(fleet.dir().join(DEPLOYMENT)),
        _ => fleet.write(DEPLOYMENT, &original.replace("hello from the press", &format!("greeting {round}"))),
    }
    if !fleet.is_clean() {
        fleet.commit(&format!("round {round}"));
    }
}

#[test]
fn power_cuts_and_kills_of_both_sides_in_turn_converge() {
    converge(15, |fleet, root| Device::join(fleet, "press-01", root));
}

#[test]
fn power_cuts_and_kills_of_both_sides_in_turn_converge_over_ssh() {
    let sshd = Sshd::start(Options::default());
    converge(6, |fleet, root| ssh_site::join(fleet, &sshd, root));
    assert!(sshd.sessions() > 6, "{}", sshd.log());
}

/// At least so many rounds, unless the environment says how many, and until as many cuts have hit: which point is reached
/// is left to chance. With a device that joins like this.
fn converge(rounds: usize, join: impl Fn(&Fleet, &Path) -> Device) {
    let seed = seed();
    let mut state = seed;
    let (host, field) = (Volume::new(64).expect("a volume"), Volume::new(64).expect("a volume"));
    let name = TempDir::new().expect("a temporary directory");
    let fleet = Fleet::init(&host.path(), &registry_name(name.path()));
    fleet.push_application();
    let device = join(&fleet, &field.path());
    let original = fleet.read(DEPLOYMENT);
    let (publish, once) = (|| fleet.command(&["publish"]), || device.once());
    let sides = [
        Side { name: "publisher", volume: &host, command: &publish, points: early(trace(&mut publish())) },
        Side { name: "syncer", volume: &field, command: &once, points: early(trace(&mut once())) },
    ];
    let rounds = chaos_rounds().unwrap_or(rounds);
    let (mut round, mut cuts, mut hits) = (0, 0, 0);
    while round < rounds || hits < rounds {
        assert!(round < 4 * rounds, "only {hits} of {cuts} cuts hit");
        change(&fleet, &original, round, &mut state);
        [&host, &field].into_iter().for_each(sync);
        let mut story = format!("seed {seed}, round {round}:");
        for turn in 0..=random(&mut state, 4) {
            let told = sides[(turn as usize + round) % 2].cut(&mut state);
            story += &format!(" {told};");
            cuts += 1;
            hits += usize::from(!told.ends_with("not reached"));
            fleet.assert_whole(false, &story);
            device.assert_whole(&fleet, false, &story);
        }
        fleet.assert_converges(&story);
        device.assert_converges(&fleet, &story);
        let wanted = usize::from(fleet.dir().join(DEPLOYMENT).exists());
        assert_eq!(device.environments().len(), wanted, "{story}: what runs is what is wanted");
        round += 1;
    }
    println!("{hits} of {cuts} cuts hit in {round} rounds");
}
