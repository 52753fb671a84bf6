//! The publisher's home beside the fleet repository: keys, the ledger and the devices' repositories.
//!
//! Nothing secret is ever inside the fleet's work tree.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use repo_git::PublicKey;
use repo_git::durable::{self, FileError};
use repo_model::DeviceId;

use super::moves::Moves;

/// Where everything of one fleet's publisher lies.
#[derive(Debug, Clone)]
pub struct Home {
    root: PathBuf,
    pub(super) moves: Moves,
}

/// The home can't be used.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    #[error("there is no publisher's home at `{}`", path.display())]
    Missing { path: PathBuf },
    /// It has lost the publisher's ledger.
    #[error("the publisher's home at `{}` has no `control.git`", path.display())]
    NoLedger { path: PathBuf },
    /// Another publisher is at work.
    #[error("another publisher is at work in `{}`", path.display())]
    Busy { path: PathBuf },
    /// A file or directory can't be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A line of `operators` is not a key.
    #[error("`{}`:{line} is not an Ed25519 public key", path.display())]
    Operator { path: PathBuf, line: usize },
}

macro_rules! places {
    ($($(#[$doc:meta])* $name:ident: $file:literal,)*) => {
        impl Home {
            $($(#[$doc])* pub fn $name(&self) -> PathBuf { self.root.join($file) })*
        }
    };
}

places! {
    /// The secret keys, each readable by its owner only.
    keys: "keys",
    /// The key that signs rosters; it may be kept elsewhere, `publish` doesn't need it.
    root_key: "keys/root",
    /// The key that signs `desired`, `bundle`, `freshness` and the ledger.
    publisher_key: "keys/publisher",
    /// The publisher's next key, until a roster that lists it is published.
    next_publisher_key: "keys/publisher.next",
    /// The next version of the roster, and its signatures, until it is published.
    proposals: "trust",
    /// What was published: serials, locks and rosters, signed.
    control: "control.git",
    /// One bare repository for each device, named after it.
    devices: "devices",
    /// One join file for each device: as secret as what is in it.
    joins: "join",
    /// Who may use the host.
    accounts: "accounts",
    /// Devices that wait to be enrolled, and whether they may.
    enrolments: "enroll",
    /// The certificate authority of this fleet's host.
    ca: "ca",
    /// The authority that takes the place of that one, or the one of before.
    next_ca: "ca.next",
    /// The keys by which clients recognise this fleet's host over SSH.
    ssh: "ssh",
    /// What can be rebuilt at any time.
    index: "index",
    /// Which devices are up to date, and what each of them depended on.
    up_to_date: "index/settled",
    /// When what devices say was looked at last, while a rollout waits for them.
    looks: "index/looks",
    /// What was read of each device's repository.
    status_index: "index/status",
    /// What was read of each device's file in the fleet repository.
    fleet_index: "index/fleet",
    /// Where those stand who follow the fleet by questions.
    cursors: "index/cursors",
    /// What can't be published, since when, and who left the fleet.
    findings: "findings.json",
    /// What receivers of alerts were told.
    alerts: "alerts",
    /// For `git log --show-signature`.
    allowed_signers: "allowed_signers",
    /// The operators' public keys, one a line.
    operators: "operators",
    /// Settings that are this machine's business.
    config: "publisher.yaml",
    /// Their JSON Schema, for editors.
    config_schema: "publisher.schema.json",
    /// The operators' own repository, if it is hosted beside the devices'.
    hosted_fleet: "fleet.git",
    /// Held by the one publisher that is at work.
    lock_file: "lock",
    /// Held by each process that publishes what is pushed to the hosted fleet.
    following_file: "run.lock",
}

impl Home {
    /// The home of a fleet repository with this work tree, unless another place is asked for: `<fleet>.wfm` beside it.
    pub fn beside(fleet: &Path) -> Self {
        let mut name = fleet.file_name().unwrap_or_default().to_owned();
        name.push(".wfm");
        Self::at(fleet.with_file_name(name))
    }

    /// The home of a fleet at this place: of the hosted repository in it, of itself, or of a work tree beside it.
    pub fn of(fleet: &Path) -> Self {
        let around = fleet.parent().map(Self::at).filter(|home| home.hosted_fleet() == fleet && home.check().is_ok());
        let itself = || Some(Self::at(fleet)).filter(|home| home.check_ledger().is_ok());
        around.or_else(itself).unwrap_or_else(|| Self::beside(fleet))
    }

    /// A home at this place.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), moves: Moves::default() }
    }

    /// From now on `listener` is called, within this process, when branches of a device moved through this home or a clone
    /// of it.
    pub fn on_move(&self, listener: impl Fn(&DeviceId) + Send + Sync + 'static) {
        self.moves.listen(Box::new(listener));
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// An error if there is no home.
    pub fn check(&self) -> Result<(), HomeError> {
        if self.keys().is_dir() { Ok(()) } else { Err(HomeError::Missing { path: self.root.clone() }) }
    }

    /// Whether it is there with its ledger.
    pub fn check_ledger(&self) -> Result<(), HomeError> {
        self.check()?;
        if self.control().is_dir() { Ok(()) } else { Err(HomeError::NoLedger { path: self.root.clone() }) }
    }

    /// Makes its directories, readable by their owner only.
    pub fn create(&self) -> Result<(), HomeError> {
        for path in [self.root.clone(), self.keys(), self.devices(), self.joins(), self.accounts(), self.index()] {
            durable::create_dir_all(&path, 0o700).map_err(FileError::write(&path))?;
        }
        Ok(())
    }

    /// Removes what a publisher that was killed left half made beside the devices' repositories. Under the lock.
    pub(crate) fn clear_devices(&self) -> Result<(), HomeError> {
        let path = self.devices();
        let failed = FileError::read(&path);
        for entry in fs::read_dir(&path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_name().as_encoded_bytes().starts_with(durable::TEMP_PREFIX.as_bytes()) {
                let path = entry.path();
                durable::remove_dir_all(&path).map_err(FileError::write(&path))?;
            }
        }
        Ok(())
    }

    /// The repository of a device.
    pub fn device(&self, device: &DeviceId) -> PathBuf {
        self.devices().join(Self::device_name(device))
    }

    /// Its name among those of all devices.
    pub fn device_name(device: &DeviceId) -> String {
        format!("{}.git", device.repository_name())
    }

    /// The join file of a device.
    pub fn join(&self, device: &DeviceId) -> PathBuf {
        self.joins().join(format!("{}.json", device.repository_name()))
    }

    pub fn write(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), HomeError> {
        Ok(durable::replace_file(path, bytes, mode).map_err(FileError::write(path))?)
    }

    /// The operators' keys; none if there is no such file. Empty lines and those with `#` in front don't count.
    pub fn operator_keys(&self) -> Result<Vec<PublicKey>, HomeError> {
        let path = self.operators();
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            read => read.map_err(FileError::read(&path))?,
        };
        let lines = text.lines().map(str::trim).enumerate();
        let keys = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        keys.map(|(index, line)| line.parse().map_err(|_| HomeError::Operator { path: path.clone(), line: index + 1 }))
            .collect()
    }

    /// Waits until no other publisher is at work, at most this long.
    pub fn lock(&self, wait: Duration) -> Result<HomeLock, HomeError> {
        let path = self.lock_file();
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let file = opened.map_err(FileError::write(&path))?;
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(HomeLock { _file: file }),
                Err(TryLockError::WouldBlock) if start.elapsed() < wait => sleep(Duration::from_millis(20)),
                Err(TryLockError::WouldBlock) => return Err(HomeError::Busy { path: self.root.clone() }),
                Err(TryLockError::Error(source)) => return Err(FileError::Write { path, source }.into()),
            }
        }
    }
}

impl Home {
    /// Says, until that is dropped, that this process publishes what is pushed to the hosted fleet.
    pub fn follow(&self) -> Result<Following, HomeError> {
        let path = self.following_file();
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let file = opened.map_err(FileError::write(&path))?;
        // Whoever asks holds it for a moment.
        file.lock_shared().map_err(FileError::write(&path))?;
        Ok(Following { _file: file })
    }

    /// Whether any process publishes what is pushed to the hosted fleet, as far as that can be known.
    pub fn is_followed(&self) -> bool {
        // Who looks takes the lock for a moment: two at once would take each other for somebody who publishes. That is why they
        // look one after the other.
        let alone = File::open(&self.root).and_then(|root| root.lock().map(|()| root));
        let file = File::open(self.following_file());
        let is_held = file.is_ok_and(|file| match file.try_lock() {
            // Closing it would not do while another thread begins a program.
            Ok(()) => file.unlock().is_err(),
            Err(error) => matches!(error, TryLockError::WouldBlock),
        });
        drop(alone);
        is_held
    }
}

/// Held by who publishes what is pushed; given up when dropped, and by the kernel when the process dies.
#[derive(Debug)]
pub struct Following {
    _file: File,
}

/// Held while publishing; given up when dropped, and by the kernel when the process dies.
#[derive(Debug)]
pub struct HomeLock {
    _file: File,
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// How often all of many who look at once say that somebody publishes.
    fn said(home: &Home) -> usize {
        let looks = || (0..500).filter(|_| home.is_followed()).count();
        thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(looks)).collect();
            all.into_iter().map(|one| one.join().unwrap()).sum()
        })
    }

    #[test]
    fn many_who_look_at_once_take_nobody_who_looks_for_one_who_publishes() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        assert_eq!(said(&home), 0, "nobody ever did");
        let (one, other) = (home.follow().unwrap(), home.follow().unwrap());
        assert_eq!(said(&home), 4000);
        drop(one);
        assert_eq!(said(&home), 4000);
        drop(other);
        assert_eq!(said(&home), 0, "nobody does any more");
    }
}
