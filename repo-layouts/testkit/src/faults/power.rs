//! Power cuts on a real file system, at every named sync point of a real process.
//!
//! A [`Volume`] is an ext4 on a loop device that is told to forget everything unsynced, as a power cut makes it. A
//! process built with repo-git's feature `cut-points` writes down which points it passes (`SYNC_TRACE`) and, at the one
//! named by `SYNC_CUT`, runs the helper `power-cut`, which shuts the volume down and kills it. [`cut_everywhere`] does
//! that for every point, side and occurrence. It needs root, and fails clearly without.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};

use rustix::ioctl::{Setter, ioctl};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

use super::chaos_rounds;

/// The environment variable with the mount point that `power-cut` shuts down.
pub const VOLUME_VARIABLE: &str = "SYNC_CUT_VOLUME";

/// A power cut could not be arranged.
#[derive(Debug, thiserror::Error)]
pub enum PowerError {
    #[error("power cuts need root: they mount ext4 on loop devices")]
    NotRoot,
    #[error("`{command}` failed: {detail}")]
    Command { command: String, detail: String },
    /// The volume could not be used.
    #[error("cannot use the volume")]
    Io(#[from] io::Error),
}

/// An ext4 file system on a loop device, unmounted and gone when dropped.
#[derive(Debug)]
pub struct Volume {
    dir: TempDir,
    boots: Cell<u32>,
}

impl Volume {
    /// Makes and mounts a volume of this many MiB (at least 8).
    pub fn new(mebibytes: u64) -> Result<Self, PowerError> {
        if !geteuid().is_root() {
            return Err(PowerError::NotRoot);
        }
        let volume = Self { dir: TempDir::new()?, boots: Cell::new(0) };
        File::create(volume.image())?.set_len(mebibytes << 20)?;
        run(Command::new("mkdir").arg(volume.path()))?;
        let lazy = "lazy_itable_init=0,lazy_journal_init=0";
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0", "-E", lazy]).arg(volume.image()))?;
        volume.mount()?;
        Ok(volume)
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("volume")
    }

    /// Cuts the power: whatever is not on the disk yet will never be. Every access fails until [`Volume::reboot`].
    pub fn cut(&self) -> Result<(), PowerError> {
        Ok(shut_down(&self.path())?)
    }

    /// Mounts a copy of the disk as it is now, which replays its journal. The old file system may live on in a straggler
    /// or in a container's mount namespace, where it harms nobody.
    pub fn reboot(&self) -> Result<(), PowerError> {
        let old = self.image();
        self.boots.set(self.boots.get() + 1);
        run(Command::new("cp").arg("--sparse=always").arg(&old).arg(self.image()))?;
        self.unmount()?;
        #[allow(clippy::disallowed_methods, reason = "a file of this test harness")]
        std::fs::remove_file(old)?;
        self.mount()
    }

    /// Removes all files, for another round.
    pub fn clear(&self) -> Result<(), PowerError> {
        let path = self.path();
        run(Command::new("find").arg(&path).args(["-mindepth", "1", "-maxdepth", "1", "-exec", "rm", "-rf", "{}", "+"]))
    }

    /// Makes all that is there survive a cut.
    pub fn sync(&self) -> Result<(), PowerError> {
        rustix::fs::syncfs(File::open(self.path())?).map_err(|error| PowerError::Io(error.into()))
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join(format!("image-{}", self.boots.get()))
    }

    /// `commit=300`: the journal isn't written by itself; `noauto_da_alloc`: nor are renamed files.
    fn mount(&self) -> Result<(), PowerError> {
        let options = "loop,noauto_da_alloc,commit=300";
        run(Command::new("mount").args(["-t", "ext4", "-o", options]).arg(self.image()).arg(self.path()))
    }

    /// Lazily: a child of a killed process may need a moment to let go. The loop device goes with its last user.
    fn unmount(&self) -> Result<(), PowerError> {
        run(Command::new("umount").arg("-l").arg(self.path()))
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = self.unmount();
    }
}

/// Tells the file system at `mount_point` to stop at once and not to write its journal out (ext4, XFS and F2FS).
pub fn shut_down(mount_point: &Path) -> io::Result<()> {
    /// `_IOR('X', 125, __u32)`.
    const EXT4_IOC_SHUTDOWN: rustix::ioctl::Opcode = 0x8004_587d;
    const WITHOUT_LOG_FLUSH: u32 = 2;
    let volume = File::open(mount_point)?;
    #[allow(
        unsafe_code,
        reason = "no crate wraps this ioctl; the kernel reads one u32 behind the pointer and keeps nothing"
    )]
    let result = unsafe { ioctl(&volume, Setter::<EXT4_IOC_SHUTDOWN, u32>::new(WITHOUT_LOG_FLUSH)) };
    Ok(result?)
}

/// Kills a process as a power cut does: without a word.
pub fn kill(pid: u32) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(kill_process(pid, Signal::KILL)?)
}

/// One place to cut at: before or after the n-th passing of a sync point.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    pub name: String,
    /// `before` or `after`.
    pub side: String,
    /// Counted from 1.
    pub occurrence: u32,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.name, self.side, self.occurrence)
    }
}

/// What dies with the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The power: everything unsynced is lost.
    Power,
    /// Only the process (SIGKILL): the file system keeps all it was told.
    Process,
}

/// An experiment: how to set it up, what to run, and what must hold afterwards.
pub struct Experiment<'a> {
    /// What is done, for messages.
    pub deed: &'a str,
    /// Fills the empty volume; the result is synced. Called before every run.
    pub prepare: &'a dyn Fn(&Path),
    /// The command to cut, built with `cut-points`.
    pub command: &'a dyn Fn(&Path) -> Command,
    /// Judges the volume after the cut and the reboot, and panics with the words given if anything is wrong. `None`: the
    /// uncut run.
    pub check: &'a dyn Fn(&Path, Option<&Point>, &str),
    pub cut: Cut,
    /// At most this many occurrences of each point and side, spread evenly, the first and the last among them.
    pub occurrences: usize,
}

/// These points were cut on both sides.
///
/// # Panics
/// If one wasn't.
pub fn assert_cut(both_sides: &BTreeSet<String>, points: &[&str]) {
    let missing: Vec<_> = points.iter().filter(|name| !both_sides.contains(**name)).collect();
    assert!(missing.is_empty(), "{missing:?} were not cut on both sides: {both_sides:?}");
}

/// Runs the experiment once uncut, to learn its points, and then once for each of them. Gives the points that were cut on
/// both sides. A process is killed before a point only, but where `just chaos` asks for more: what was done outside since the
/// point that came before isn't noted there yet, and of what was written nothing is lost on either side.
pub fn cut_everywhere(experiment: &Experiment<'_>) -> Result<BTreeSet<String>, PowerError> {
    let volume = Volume::new(64)?;
    start_on(&volume, experiment.prepare)?;
    let points = trace(&mut (experiment.command)(&volume.path()))?;
    let (deed, cut) = (experiment.deed, experiment.cut);
    (experiment.check)(&volume.path(), None, &format!("{deed} uncut"));
    let mut sides: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let wanted = if cut == Cut::Power || chaos_rounds().is_some() { &["before", "after"][..] } else { &["before"] };
    let points: Vec<_> = points.into_iter().filter(|point| wanted.contains(&&*point.side)).collect();
    let chosen = choose(&points, experiment.occurrences);
    for point in &chosen {
        start_on(&volume, experiment.prepare)?;
        let mut command = (experiment.command)(&volume.path());
        // A command that passes other points each time proves nothing.
        if let Some(output) = cut_at(&volume, &mut command, point, cut)? {
            let detail = format!("it was to be cut at {point}, but: {}", describe(output.status, &output.stderr));
            return Err(PowerError::Command { command: format!("{command:?}"), detail });
        }
        (experiment.check)(&volume.path(), Some(point), &format!("{deed}, {cut:?} cut at {point}"));
        sides.entry(point.name.clone()).or_default().insert(point.side.clone());
    }
    let both_sides = sides.into_iter().filter(|(_, sides)| sides.len() == wanted.len()).map(|(name, _)| name).collect();
    println!("{deed}: {} {cut:?} cuts, {both_sides:?}", chosen.len());
    Ok(both_sides)
}

/// Runs a command that must succeed and returns every point it passed, in order.
pub fn trace(command: &mut Command) -> Result<Vec<Point>, PowerError> {
    let file = tempfile::NamedTempFile::new()?;
    trace_to(command, file.path())
}

/// The same into a file that others may write points of their own to while the command runs.
pub fn trace_to(command: &mut Command, file: &Path) -> Result<Vec<Point>, PowerError> {
    run(command.env("SYNC_TRACE", file))?;
    points(file)
}

/// The points that a command wrote into this file (`SYNC_TRACE`), in order.
pub fn points(file: &Path) -> Result<Vec<Point>, PowerError> {
    let text = std::fs::read_to_string(file)?;
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    let mut points = Vec::new();
    for line in text.lines() {
        let count = counts.entry(line).or_default();
        *count += 1;
        if let Some((name, side)) = line.split_once(' ') {
            points.push(Point { name: name.to_owned(), side: side.to_owned(), occurrence: *count });
        }
    }
    Ok(points)
}

/// Empties the volume, fills it as `prepare` does, and syncs it.
pub fn start_on(volume: &Volume, prepare: &dyn Fn(&Path)) -> Result<(), PowerError> {
    volume.clear()?;
    prepare(&volume.path());
    volume.sync()
}

/// One run that ends at this point, and the reboot. What it said if it ended by itself, because it never came there.
pub fn cut_at(volume: &Volume, command: &mut Command, point: &Point, cut: Cut) -> Result<Option<Output>, PowerError> {
    command.env("SYNC_CUT", point.to_string()).env("SYNC_CUT_COMMAND", crate::program("power-cut"));
    if cut == Cut::Power {
        command.env(VOLUME_VARIABLE, volume.path());
    }
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.signal() != Some(Signal::KILL.as_raw()) {
        return Ok(Some(output));
    }
    if cut == Cut::Power {
        volume.reboot()?;
    }
    Ok(None)
}

/// For each point and side at most `most` occurrences, evenly spread.
fn choose(points: &[Point], most: usize) -> Vec<Point> {
    let mut groups: BTreeMap<(&str, &str), Vec<&Point>> = BTreeMap::new();
    for point in points {
        groups.entry((&point.name, &point.side)).or_default().push(point);
    }
    let mut chosen = Vec::new();
    for group in groups.values() {
        let count = group.len().min(most.max(1));
        let at = |n: usize| if count == 1 { 0 } else { n * (group.len() - 1) / (count - 1) };
        chosen.extend((0..count).map(|n| group[at(n)].clone()));
    }
    chosen
}

fn run(command: &mut Command) -> Result<(), PowerError> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(PowerError::Command { command: format!("{command:?}"), detail: describe(output.status, &said) })
}

fn describe(status: ExitStatus, said: &[u8]) -> String {
    format!("{status}: {}", String::from_utf8_lossy(said).trim())
}

impl fmt::Debug for Experiment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Experiment").field("cut", &self.cut).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "it shows what happens to unsynced files")]
    fn what_was_not_synced_is_lost_and_what_was_is_there() {
        let volume = Volume::new(16).expect("a volume");
        std::fs::write(volume.path().join("synced"), "a").expect("written");
        volume.sync().expect("synced");
        std::fs::write(volume.path().join("unsynced"), "b").expect("written");
        volume.cut().expect("cut");
        assert!(std::fs::write(volume.path().join("after"), "c").is_err());
        volume.reboot().expect("rebooted");
        let names: Vec<_> =
            std::fs::read_dir(volume.path()).expect("listed").map(|e| e.expect("read").file_name()).collect();
        assert!(names.contains(&"synced".into()) && !names.contains(&"unsynced".into()), "{names:?}");
    }

    #[test]
    fn occurrences_are_chosen_from_first_to_last() {
        let point = |occurrence| Point { name: "x".to_owned(), side: "before".to_owned(), occurrence };
        let all: Vec<Point> = (1..=10).map(point).collect();
        let numbers = |most| choose(&all, most).iter().map(|p| p.occurrence).collect::<Vec<_>>();
        assert_eq!((numbers(1), numbers(3), numbers(99).len()), (vec![1], vec![1, 5, 10], 10));
    }
}
