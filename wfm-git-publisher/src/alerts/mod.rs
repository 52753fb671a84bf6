//! Who is told when something needs somebody: what fires follows from what devices verifiably say, and each receiver hears of it
//! once, and once more when it is over.
//!
//! Level-triggered: what fires now is compared with what a receiver was told, so one that was away hears what is so, and not all
//! that was. Each receiver has a thread of its own, and none waits for another. `rules` and `told` are pure.

mod event;
mod receiver;
mod rules;
mod told;
mod webhook;

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

use jiff::Timestamp;
use repo_git::durable::{self, FileError};
use repo_model::{DeviceId, FleetId, error_chain};
use tracing::{debug, warn};
use wfm_git_host::accounts::{AccountError, AccountName, Store};
use wfm_git_host::ca;

use crate::config::{self, Config};
use crate::operator::key_ends;
use crate::publish::Findings;
use crate::repos::{Control, ControlError, FleetRepo, Home, Rosters, SourceError};
use crate::status::{self, DeviceStatus, Usable, UsableError};

use receiver::{Courier, Look, Receiver};
use rules::{Ending, Looked};

pub use receiver::TellError;
pub use rules::{Alert, Firing};
pub use told::{Known, Told};

/// A look takes a tenth of the time at most, however many devices there are.
const SHARE: u32 = 10;

/// What looks, and whom it tells.
#[derive(Debug)]
pub struct Alerts {
    /// The fleet repository.
    pub fleet: PathBuf,
    /// The revision of it that is followed.
    pub rev: String,
    pub home: Home,
    /// How many devices are read at the same time.
    pub threads: usize,
}

/// It can't be told what fires.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    #[error("cannot read the fleet repository")]
    Source(#[from] SourceError),
    #[error(transparent)]
    Fleet(#[from] UsableError),
    #[error("cannot read the publisher's ledger")]
    Control(#[from] ControlError),
    #[error("cannot read the publisher's settings")]
    Config(#[from] config::ConfigError),
    #[error("cannot read the host's accounts")]
    Accounts(#[from] AccountError),
    #[error(transparent)]
    File(#[from] FileError),
}

impl Alerts {
    /// Looks and tells for as long as this process lives, in threads of its own. Of all processes that would, one does.
    pub fn start(self, settings: config::Alerts) {
        thread::spawn(move || self.run(settings));
    }

    fn run(self, settings: config::Alerts) {
        let mut logged = String::new();
        let mut said = |error: Option<String>| {
            let text = error.unwrap_or_default();
            if !text.is_empty() && text != logged {
                warn!(error = text, "it can't be told what fires; it is tried again");
            }
            logged = text;
        };
        // Held until this process ends.
        let _lock = loop {
            match self.lock() {
                Ok(Some(lock)) => break lock,
                Ok(None) => debug!("another process tells what fires"),
                Err(error) => said(Some(error_chain(&error))),
            }
            thread::sleep(settings.poll);
        };
        let receivers: Vec<_> = self
            .receivers(&settings)
            .map(|receiver| {
                let (sender, looks) = mpsc::channel();
                thread::spawn(move || receiver.follow(&looks));
                sender
            })
            .collect();
        loop {
            let begin = Instant::now();
            match self.look(Timestamp::now()) {
                Ok((fleet, firing)) => {
                    let look = Arc::new(Look { fleet, firing });
                    receivers.iter().for_each(|receiver| _ = receiver.send(Arc::clone(&look)));
                    said(None);
                }
                Err(error) => said(Some(error_chain(&error))),
            }
            thread::sleep(settings.poll.max(begin.elapsed().saturating_mul(SHARE)));
        }
    }

    /// What fires now, in which fleet. Where the fleet can't be used, that fires, and devices are judged by the last one that could.
    pub fn look(&self, now: Timestamp) -> Result<(FleetId, Firing), LookError> {
        let (control, findings) = (Control::read(&self.home)?, Findings::read(&self.home));
        let source = FleetRepo::open(&self.fleet)?;
        let commit = source.resolve(&self.rev)?;
        let Usable { fleet, unusable, .. } =
            status::usable_fleet(&self.home, &source, commit, &control.1, self.threads)?;
        let devices = status::read(&self.home, &control, &fleet, &|_: &DeviceId| true, [].into(), self.threads, now);
        let (ledger, rosters) = control;
        let blocked = findings.of_all_with(unusable);
        let ends = &self.ends(&rosters, &devices)?;
        let (devices, blocked, rollouts) = (&devices, &blocked, &ledger.rollouts);
        Ok((fleet.settings.id, Looked { devices, blocked, rollouts, ends, now }.firing()))
    }

    /// When the publisher's key, the host's own certificate and the secrets of its accounts end.
    fn ends(&self, rosters: &Rosters, devices: &[DeviceStatus]) -> Result<Vec<Ending>, LookError> {
        let certificate = Config::load(&self.home.config())?.serve.and_then(|serve| serve.certificate);
        let own = [
            ("publisher-key", "the publisher's key", key_ends(&self.home, rosters)),
            ("host-certificate", "the host's certificate", certificate.and_then(|path| ca::file_expires(&path))),
        ];
        let own = own
            .into_iter()
            .filter_map(|(name, what, end)| Some(Ending { name: name.to_owned(), what: what.to_owned(), end: end? }));
        // Files of devices' accounts, which may be many, aren't opened.
        let of_devices: BTreeSet<_> = devices.iter().map(|one| AccountName::of(&one.device)).collect();
        let others = Store::new(self.home.accounts()).list_named(|name| !of_devices.contains(name))?.accounts;
        Ok(own.chain(others.values().filter_map(Ending::of)).collect())
    }

    /// What a receiver was told, by the receiver's name; `None` if it was never told anything.
    pub fn told(&self, settings: &config::Alerts) -> Result<Vec<(String, Option<Told>)>, FileError> {
        self.receivers(settings).map(|receiver| Ok((receiver.name.clone(), receiver.read()?))).collect()
    }

    fn receivers(&self, settings: &config::Alerts) -> impl Iterator<Item = Receiver> {
        settings.receivers.iter().map(|(name, settings)| {
            let file = self.home.alerts().join(format!("{name}.json"));
            Receiver { name: name.clone(), settings: settings.clone(), file }
        })
    }

    /// The lock of whoever tells; `None` while another process has it.
    fn lock(&self) -> Result<Option<std::fs::File>, FileError> {
        let (dir, path) = (self.home.alerts(), self.home.alerts().join("lock"));
        durable::create_dir_all(&dir, 0o700).map_err(FileError::write(&dir))?;
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(FileError::write(&path))?;
        Ok(file.try_lock().is_ok().then_some(file))
    }
}

/// Tells one receiver something that means nothing, to see whether it hears it.
pub fn test(fleet: FleetId, name: &str, settings: &config::Receiver, now: Timestamp) -> Result<(), TellError> {
    Courier::new(settings)?.deliver(&event::test_event(fleet, name, now), now)
}
