//! `status`.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use jiff::Timestamp;
use repo_model::desired::Desired;
use repo_model::{error_chain, text};

use super::{OutputArgs, must_be, show, watch};
use crate::config::from_fleet::shown;
use crate::config::{FleetKey, Home, Said, Settings};
use crate::decision::drift;
use crate::decision::observation::Observation;
use crate::error::CliError;
use crate::home;
use crate::state::hold::Holds;
use crate::state::{loaded, local_condition};

/// The longest that the runtimes are observed.
const OBSERVATION: Duration = Duration::from_secs(10);

/// Prints what was accepted, what stands in the way, each component's state, and how it is now. Needs neither host nor
/// runtime: what can't be asked is `unknown`. Exit code 0 whatever it says.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  device-syncer status\n  device-syncer status --watch          # until Ctrl-C\n  \
                        device-syncer status --watch | tee changes.log")]
pub(super) struct Args {
    /// Shows it again whenever it changes, with device, host, version and health; where nobody looks at a terminal, each
    /// change is a line.
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(home: &Home, args: &Args) -> Result<ExitCode, CliError> {
    must_be(home)?;
    if args.watch {
        return watch::run(&|| read(home).0, args.output);
    }
    let (status, unobserved) = read(home);
    if let Some(reason) = unobserved {
        eprintln!("how what runs is can't be told: {}", text::lines(&reason));
    }
    args.output.print(|| show::status(&status, Timestamp::now()), || show::json(&status))?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the device state without the lock, so that a running syncer isn't disturbed; and why what runs can't be
/// observed.
pub(super) fn read(home: &Home) -> (show::StatusOut, Option<String>) {
    let (device_state, desired) = loaded::peek(&home.repository());
    let observation = observe(home, desired.as_ref());
    let (host, pass) = (local_condition::read(&home.contact()), local_condition::read(&home.failure()));
    let status =
        show::StatusOut::of(&device_state, desired.as_ref(), observation.as_ref().ok()).with_trouble(host, pass);
    // What can't be read is said by `observe`.
    let status = status.at_host(home::host_of(home).ok()).of_device(home::device_id(home));
    let settings = Settings::read(home).ok();
    let status = status.with_fleet(from_fleet(settings.as_ref(), desired.as_ref()));
    let file = settings.and_then(|settings| settings.gates.hold);
    let status = status.with_holds(Holds::default().read(home, file.as_deref(), &home::clocks(home)));
    (status, observation.err())
}

/// What comes from the fleet of the site's policy, by the state that was accepted.
pub(super) fn from_fleet(settings: Option<&Settings>, desired: Option<&Desired>) -> BTreeMap<FleetKey, Said> {
    let said = desired.map(|desired| &desired.envelope.policy.site);
    let all = settings.zip(said).map(|(settings, said)| shown(settings, said));
    all.unwrap_or_default()
}

/// What runs now, unless that takes too long to find out; with what this state has ignored.
pub(super) fn observe(home: &Home, desired: Option<&Desired>) -> Result<Observation, String> {
    let runtimes = home::runtimes_of(home).map_err(|error| error_chain(&error))?;
    runtimes.ignore_drift(desired.map(drift::ignored).unwrap_or_default());
    let (sender, receiver) = mpsc::channel();
    // It may be left behind: it only asks.
    std::thread::spawn(move || sender.send(runtimes.observe()));
    receiver
        .recv_timeout(OBSERVATION)
        .map_err(|_| format!("the runtime doesn't answer within {} s", OBSERVATION.as_secs()))
}
