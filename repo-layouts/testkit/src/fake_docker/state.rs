//! What the fake remembers, synced before any command ends.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use repo_model::Digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Result;

/// Everything that the daemon would have.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct State {
    /// Grows with each change: ids and times come from it.
    pub(super) clock: u64,
    pub(super) containers: BTreeMap<String, Container>,
    pub(super) networks: BTreeMap<String, BTreeMap<String, String>>,
    pub(super) volumes: BTreeMap<String, BTreeMap<String, String>>,
    /// Name → id, which is the digest as well that it was pulled as.
    pub(super) images: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    /// The service as it was when the container was made.
    pub(super) service: Value,
    /// `created`, `running` or `exited`; a knob may say otherwise when it is looked at.
    pub(super) status: String,
    #[serde(default)]
    pub(super) exit_code: i64,
    pub(super) started_at: String,
}

/// The state, with the directory it lives in.
#[derive(Debug)]
pub(super) struct Store {
    dir: PathBuf,
    pub(super) state: State,
    /// Held for as long as a command works on the state: two at a time take turns, as with dockerd.
    lock: File,
}

impl Store {
    /// Opens the state, once no other command has it.
    pub(super) fn open(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let lock = OpenOptions::new().create(true).append(true).open(dir.join("lock"))?;
        lock.lock()?;
        Ok(Self { dir: dir.to_owned(), state: read(dir)?, lock })
    }

    /// The text of a knob that is set.
    pub(super) fn knob(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.dir.join("knobs").join(name)).ok().map(|text| text.trim().to_owned())
    }

    /// The text of a knob that counts once.
    pub(super) fn take_knob(&self, name: &str) -> Option<String> {
        let text = self.knob(name)?;
        let _ = fs::remove_file(self.dir.join("knobs").join(name));
        Some(text)
    }

    /// Waits for as long as a knob is set, for all projects or some with this one; others go on meanwhile.
    pub(super) fn hang(&mut self, knob: &str, project: &str) -> Result<()> {
        let names = |of: &str| of.is_empty() || of.split_whitespace().any(|one| one == project);
        let hangs = |store: &Self| store.knob(knob).is_some_and(|of| names(&of));
        if !hangs(self) {
            return Ok(());
        }
        self.lock.unlock()?;
        while hangs(self) {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        self.lock.lock()?;
        self.state = read(&self.dir)?;
        Ok(())
    }

    /// Makes one change durable, and then writes it down.
    pub(super) fn commit(&mut self, call: &str) -> Result<()> {
        self.state.clock += 1;
        let temp = self.dir.join(format!("state.{}", std::process::id()));
        let mut file = File::create(&temp)?;
        file.write_all(&serde_json::to_vec_pretty(&self.state)?)?;
        file.sync_all()?;
        fs::rename(&temp, self.dir.join("state.json"))?;
        let mut log = OpenOptions::new().create(true).append(true).open(self.dir.join("calls.log"))?;
        log.write_all(format!("{call}\n").as_bytes())?;
        log.sync_all()?;
        Ok(File::open(&self.dir)?.sync_all()?)
    }

    /// An id that nothing else has.
    pub(super) fn new_id(&self, name: &str) -> String {
        Digest::of(format!("{name} {}", self.state.clock).as_bytes()).hex()
    }

    /// A time that nothing else has.
    pub(super) fn now(&self) -> String {
        let clock = self.state.clock;
        format!("2026-01-01T{:02}:{:02}:{:02}.{clock:09}Z", clock / 3600 % 24, clock / 60 % 60, clock % 60)
    }
}

fn read(dir: &Path) -> Result<State> {
    match fs::read(dir.join("state.json")) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
        Err(_) => Ok(State::default()),
    }
}
