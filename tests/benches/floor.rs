//! What no program that publishes can do without: the bytes that it writes for each device, and the syncs that make them last.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::fleet::{Fleet, id};
use crate::stage::{Stage, cores, run};

/// Files of many devices are written side by side, because each waits for the disk.
const WRITERS: usize = 4;

/// What the last publish wrote, by device.
pub(crate) struct Floor(Vec<Vec<(String, Vec<u8>)>>);

impl Floor {
    /// Reads the newest pack of each device with its index, and the file of the branches that moved.
    pub(crate) fn of(fleet: &Fleet, devices: usize) -> Self {
        Self((0..devices).map(|number| written(&fleet.repository(number))).collect())
    }

    /// How many files and bytes there are for each device.
    pub(crate) fn each(&self) -> (usize, usize) {
        let bytes: usize = self.0.iter().flatten().map(|(_, bytes)| bytes.len()).sum();
        (self.0.iter().map(Vec::len).sum::<usize>() / self.0.len(), bytes / self.0.len())
    }

    /// Writes all of it under other names, syncs it once, moves it into its places, and syncs that.
    pub(crate) fn write(&self, stage: &Stage, run_number: usize) -> Duration {
        let dir = stage.make_dir(&format!("floor-{run_number}"));
        let places: Vec<_> = (0..self.0.len()).map(|number| dir.join(id(number))).collect();
        places.iter().for_each(|place| fs::create_dir(place).expect("made"));
        run(std::process::Command::new("sync").arg("-f").arg(&dir));
        let sync = || rustix::fs::syncfs(File::open(&dir).expect("opened")).expect("synced");
        let start = Instant::now();
        self.for_each(&places, |place, (name, bytes)| {
            fs::write(place.join(format!(".{name}")), bytes).expect("written")
        });
        sync();
        self.for_each(&places, |place, (name, _)| {
            fs::rename(place.join(format!(".{name}")), place.join(name)).expect("moved");
        });
        sync();
        start.elapsed()
    }

    fn for_each(&self, places: &[PathBuf], work: impl Fn(&Path, &(String, Vec<u8>)) + Sync) {
        let all: Vec<_> = self.0.iter().zip(places).collect();
        thread::scope(|scope| {
            for part in all.chunks(all.len().div_ceil(WRITERS * cores())) {
                let work = &work;
                scope.spawn(move || {
                    part.iter().for_each(|(files, place)| files.iter().for_each(|one| work(place, one)))
                });
            }
        });
    }
}

fn written(repository: &Path) -> Vec<(String, Vec<u8>)> {
    let packs = fs::read_dir(repository.join("objects/pack")).expect("listed").flatten().map(|entry| entry.path());
    let packs = packs.filter(|path| path.extension().is_some_and(|ending| ending == "pack"));
    let newest = packs.max_by_key(|path| fs::metadata(path).and_then(|meta| meta.modified()).expect("a time"));
    let newest = newest.expect("a pack");
    let files = [newest.with_extension("idx"), newest, repository.join("packed-refs")].into_iter();
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    files.map(|path| (name(&path), fs::read(&path).expect("read"))).collect()
}
