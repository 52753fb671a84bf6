//! Runs a tool on strangers' files where it sees them and the system's programs, and nothing else of the host.
//!
//! Compose opens whatever path a file makes it open, so no check of the file's text can be the only wall. This program
//! starts itself anew ([`enter`]); the new process takes the directory with the files as its standard input, gives up
//! what it could reach (Landlock) and who it is (a user id that owns nothing), and becomes the tool. The files are at
//! `/proc/self/fd/0`, a path that needs no right to anything above them, so the device's home stays closed to everybody.

mod child;

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::process::{Signal, geteuid};

pub use child::{Entry, SandboxError, enter};

use super::client::QUERY;
use super::command::{self, CommandError, Output, Spec, last_lines};
use super::{Redactor, RuntimeError};

/// Where the files are for the tool.
pub(super) const DIRECTORY: &str = "/proc/self/fd/0";

/// The subcommand by which this program enters the sandbox.
pub const SUBCOMMAND: &str = "resolve-in-sandbox";

/// Exit code: the sandbox or the tool can't be started. What docker itself uses where it can't do what it is asked to.
pub const FAILED: u8 = 125;

/// Exit code: this kernel, or this process' rights, can't have the sandbox that was asked for.
pub const UNSUPPORTED: u8 = 124;

/// What the device's own configuration says.
#[derive(Debug, Clone)]
pub struct SandboxSettings {
    /// This program: `/proc/self/exe`, which an update doesn't change under a running one.
    pub program: PathBuf,
    /// User and group id of the tool, where this process is root; nothing on the device should belong to it.
    pub user: u32,
}

/// What keeps a process from the rest of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Confinement {
    /// The kernel refuses every file but those of the directory and the programs, and TCP where it can (Linux 6.7).
    landlock: bool,
    /// The process has a user id of its own.
    user: bool,
}

/// What the kernel may offer, the strongest first.
const CONFINEMENTS: [Confinement; 4] = [
    Confinement { landlock: true, user: true },
    Confinement { landlock: true, user: false },
    Confinement { landlock: false, user: true },
    Confinement { landlock: false, user: false },
];

impl Confinement {
    /// No confinement at all.
    #[cfg(test)]
    pub(super) const OPEN: Self = CONFINEMENTS[3];

    /// Whether anything keeps the process from files that it shouldn't read.
    pub(super) fn is_closed(self) -> bool {
        self.landlock || self.user
    }
}

/// Starts tools in the strongest confinement that this device has.
#[derive(Debug)]
pub(super) struct Sandbox {
    settings: SandboxSettings,
    confinement: OnceLock<Confinement>,
}

impl Sandbox {
    pub(super) fn new(settings: SandboxSettings) -> Self {
        Self { settings, confinement: OnceLock::new() }
    }

    /// With that confinement, whatever else this device has.
    #[cfg(test)]
    pub(super) fn with(settings: SandboxSettings, confinement: Confinement) -> Self {
        Self { settings, confinement: confinement.into() }
    }

    /// What this device has, found by trying it once.
    ///
    /// What fails for another reason than being unsupported is an error, so that a bad moment never weakens it.
    pub(super) fn confinement(&self) -> Result<Confinement, RuntimeError> {
        if let Some(known) = self.confinement.get() {
            return Ok(*known);
        }
        for confinement in CONFINEMENTS.into_iter().filter(|one| !one.user || geteuid().is_root()) {
            let output = self.try_out(confinement)?;
            if output.status.success() {
                return Ok(*self.confinement.get_or_init(|| confinement));
            }
            // A system call filter, such as systemd's, may end what wants another user id.
            let is_filtered = output.status.signal() == Some(Signal::SYS.as_raw());
            if output.status.code() != Some(UNSUPPORTED.into()) && !is_filtered {
                return Err(unavailable(last_lines(&output.stderr, 1024), None));
            }
        }
        Err(unavailable("this program can't start itself".to_owned(), None))
    }

    /// Makes this program `program`, with what it shall read at [`DIRECTORY`]; the program's own arguments follow.
    pub(super) fn arguments(
        &self,
        confinement: Confinement,
        directory: Option<&Path>,
        program: &Path,
    ) -> Vec<OsString> {
        let mut args = vec![SUBCOMMAND.into()];
        if let Some(directory) = directory {
            args.extend(["--directory".into(), directory.into()]);
        }
        if confinement.landlock {
            args.push("--landlock".into());
        }
        if confinement.user {
            args.extend(["--user".into(), self.settings.user.to_string().into()]);
        }
        args.extend(["--".into(), program.into()]);
        args
    }

    /// The program that takes these arguments.
    pub(super) fn program(&self) -> &Path {
        &self.settings.program
    }

    /// Starts this program itself in the sandbox, which only says its version there.
    fn try_out(&self, confinement: Confinement) -> Result<Output, RuntimeError> {
        let mut args = self.arguments(confinement, None, &self.settings.program);
        args.push("--version".into());
        let spec = Spec {
            program: self.settings.program.clone(),
            args,
            env: Vec::new(),
            timeout: QUERY,
            stdout_limit: 1024,
            redactor: Redactor::default(),
        };
        command::run(&spec, &|| false).map_err(not_started)
    }
}

/// This program couldn't be started for the sandbox, or didn't end by itself.
pub(super) fn not_started(error: CommandError) -> RuntimeError {
    match error {
        CommandError::Cancelled { .. } => RuntimeError::Cancelled,
        CommandError::Start { program, source } => {
            let reason = format!(
                "its sandbox can't be started: {source}; `{program}` must be this program and executable: is /proc mounted?"
            );
            unavailable(reason, None)
        }
        error => unavailable(error.to_string(), Some(error)),
    }
}

fn unavailable(reason: String, source: Option<CommandError>) -> RuntimeError {
    RuntimeError::RuntimeUnavailable { tool: "docker", reason, source }
}

/// What a tool said of the files at [`DIRECTORY`], with the paths that their author knows. `None` if it names a path
/// anywhere else: then it may quote what is there.
pub(super) fn quotable(output: &str) -> Option<String> {
    let output = output.replace(&format!("{DIRECTORY}/"), "").replace(DIRECTORY, ".");
    let mut before = None;
    for (at, c) in output.char_indices() {
        let is_relative = |c: char| c.is_alphanumeric() || "._-+@%}".contains(c);
        let leads_up = c == '/' && output[..at].ends_with("..");
        if leads_up || (c == '/' && !before.is_some_and(is_relative)) {
            return None;
        }
        before = Some(c);
    }
    Some(output)
}

#[cfg(test)]
mod tests;
