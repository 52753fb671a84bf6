//! How an error is shown: once, with its causes and a hint; and the exit code that goes with it.

use repo_model::text;

use crate::decision::failure::is_disk_full;
use crate::home::HomeError;
use crate::host::connection::ConnectionError;
use crate::host::enrolment::ExchangeError;
use crate::host::ssh::SshSetupError;
use crate::reconcile::pass_error::PassError;
use crate::reconcile::preview::PlanError;
use crate::runtimes::RuntimeError;
use crate::state::history::HistoryError;
use crate::state::hold::HoldError;
use crate::state::json_file::FileError;
use crate::state::layout::NewerLayout;

/// Exit code: a user's or the configuration's error.
pub const USER: u8 = 1;

/// Exit code: `plan` found differences.
pub const DIFFERENCES: u8 = 3;

/// Exit code: `doctor` found nothing that is wrong, and something that may become so.
pub const WARNINGS: u8 = 4;

/// Exit code: this program failed its own rules.
pub const INTERNAL: u8 = 70;

/// Exit code: a newer program made the home what it is (`EX_CONFIG` of sysexits.h).
pub const NEWER: u8 = 78;

/// Any error that ends a command.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error(transparent)]
    Layout(#[from] NewerLayout),
    #[error(transparent)]
    Pass(#[from] PassError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Hold(#[from] HoldError),
    #[error(transparent)]
    History(#[from] HistoryError),
    /// What a person said can't be noted.
    #[error(transparent)]
    File(#[from] FileError),
    /// The host doesn't enrol this device.
    #[error("this device can't be enrolled")]
    Enrol(#[from] ExchangeError),
    /// An input of the command line or a file.
    #[error("{0}")]
    Input(String),
    /// Anything of the operating system.
    #[error("{doing}")]
    Io { doing: String, source: std::io::Error },
}

impl CliError {
    /// The text for standard error: `error:`, each cause, and what to do.
    pub fn render(&self) -> String {
        let mut text = format!("error: {}\n", text::lines(&self.to_string()));
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            text += &format!("caused by: {}\n", text::lines(&cause.to_string()));
            source = cause.source();
        }
        if let Some(hint) = self.hint() {
            text += &format!("hint: {hint}\n");
        }
        text
    }

    /// What the program ends with.
    pub fn code(&self) -> u8 {
        if matches!(self, Self::Layout(_)) { NEWER } else { USER }
    }

    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Layout(_) => Some("install that version again, or a newer one; what runs keeps running"),
            Self::Home(HomeError::NotInitialised { .. }) => Some(
                "run `device-syncer init --join FILE` with the file that `wfm-git-publisher device add` wrote, or name the home with `--home`",
            ),
            Self::Home(HomeError::Taken { .. }) => {
                Some("use another `--home`, or remove this one if the device was given up")
            }
            Self::Home(HomeError::Busy { .. }) => {
                Some("end the other one, or look with `device-syncer status`, which needs no lock")
            }
            Self::Home(HomeError::Join { .. }) => Some("have it written again by `wfm-git-publisher device add`"),
            Self::Home(HomeError::HmacKey { .. }) => Some(
                "restore the file from a backup; or remove it and run `device-syncer init --join FILE` again, which makes a \
                 new key: what gets a value of a device file is applied once more then, and what runs isn't made anew",
            ),
            Self::Home(
                HomeError::Ssh(SshSetupError::NotBuilt { .. })
                | HomeError::Connection(ConnectionError::Ssh(SshSetupError::NotBuilt { .. })),
            ) => Some(
                "use the package that has SSH, or have a join file over HTTPS written by \
                 `wfm-git-publisher device join ID --over https`",
            ),
            Self::Home(HomeError::Ssh(_)) => Some(
                "`host.sshKey` in device.yaml names a private key in OpenSSH's format that only its owner can read; without it \
                 `init --join` makes one",
            ),
            Self::Home(HomeError::Connection(_)) => {
                Some("`host` in device.yaml and `url` in the join file say how; device.sample.yaml shows every key")
            }
            Self::Home(HomeError::Config(_)) => Some("device.sample.yaml shows every key with its form"),
            Self::Plan(PlanError::Runtime(RuntimeError::RuntimeUnavailable { tool: "helm", .. })) => {
                Some("does the API server run, and are `helm.kubeconfig` and `helm.context` in device.yaml right?")
            }
            Self::Plan(PlanError::Runtime(RuntimeError::RuntimeUnavailable { .. })) => {
                Some("is the engine running, and is `docker.host` in device.yaml right?")
            }
            Self::Enrol(error) => enrol_hint(error),
            Self::Hold(HoldError::NotHeld { .. }) => Some("`device-syncer status` shows what is held, and by whom"),
            Self::Hold(HoldError::Content { .. }) => {
                Some("`device-syncer release` ends all that persons hold; then say again what shall be held")
            }
            error if is_disk_full(error) => Some(
                "disk-full: make room on the disk of the device's home; what runs keeps running, and the next pass goes on",
            ),
            _ => None,
        }
    }
}

fn enrol_hint(error: &ExchangeError) -> Option<&'static str> {
    match error {
        ExchangeError::Host(_) => Some(
            "is it the right host? Otherwise have the enrolment file written anew by `wfm-git-publisher enroll file --out FILE`; \
             `host` in device.yaml says what else is believed",
        ),
        ExchangeError::Offer(_) | ExchangeError::OtherOffer => Some(
            "have the enrolment file written anew by `wfm-git-publisher enroll file --out FILE`, and compare where it is from",
        ),
        _ => None,
    }
}
