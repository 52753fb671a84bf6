//! The docker client: how it is called, and what its failures mean.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::ComposeSettings;
use crate::runtime::command::{self, CommandError, Output, Spec};
use crate::runtime::{Redactor, RuntimeError};

/// Limit of a call that only asks.
pub(super) const QUERY: Duration = Duration::from_secs(60);
const STDOUT_LIMIT: usize = 32 << 20;

/// What the client says when its daemon is gone, or goes while it works (docker 20.10 to 28).
const UNAVAILABLE: &[&str] = &[
    "Cannot connect to the Docker daemon",
    "error during connect",
    "Is the docker daemon running",
    "unexpected EOF",
    "server is shutting down",
    "context canceled",
];

/// A docker client with its environment.
#[derive(Debug, Clone)]
pub(super) struct Docker {
    program: PathBuf,
    env: Vec<(OsString, OsString)>,
}

/// A call beyond the ordinary one.
pub(super) struct Call<'a> {
    pub(super) args: Vec<OsString>,
    pub(super) timeout: Duration,
    pub(super) redactor: &'a Redactor,
    /// Added to the environment.
    pub(super) parameters: &'a [(&'a str, &'a str)],
    pub(super) cancel: &'a dyn Fn() -> bool,
}

impl Docker {
    pub(super) fn new(settings: &ComposeSettings) -> Self {
        let fixed = [
            ("PATH", settings.path.as_str().into()),
            ("HOME", settings.home.clone().into_os_string()),
            // Nothing is fetched while a file is resolved (compose 2.40: `pkg/remote`).
            ("COMPOSE_EXPERIMENTAL_GIT_REMOTE", "false".into()),
            ("COMPOSE_EXPERIMENTAL_OCI_REMOTE", "false".into()),
        ];
        let own = settings.environment.clone();
        let env = fixed.into_iter().map(|(name, value): (_, OsString)| (name.into(), value)).chain(own).collect();
        Self { program: settings.docker.clone(), env }
    }

    /// Runs the client; an exit status other than 0 is not an error here.
    pub(super) fn run(&self, call: Call<'_>) -> Result<Output, RuntimeError> {
        let parameters = call.parameters.iter().map(|(name, value)| (name.into(), value.into()));
        let spec = Spec {
            program: self.program.clone(),
            args: call.args,
            env: self.env.iter().cloned().chain(parameters).collect(),
            timeout: call.timeout,
            stdout_limit: STDOUT_LIMIT,
            redactor: call.redactor.clone(),
        };
        command::run(&spec, call.cancel).map_err(|error| match error {
            CommandError::Cancelled { .. } => RuntimeError::Cancelled,
            error => RuntimeError::RuntimeUnavailable { reason: error.to_string(), source: Some(error) },
        })
    }

    /// Asks something that should always succeed.
    pub(super) fn ask(&self, args: &[&str]) -> Result<String, RuntimeError> {
        let output = self.try_ask(args)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(RuntimeError::RuntimeUnavailable { reason: last_lines(&output.stderr, 1024), source: None })
    }

    /// Asks something that may fail.
    pub(super) fn try_ask(&self, args: &[&str]) -> Result<Output, RuntimeError> {
        let args = args.iter().map(OsString::from).collect();
        self.run(Call { args, timeout: QUERY, redactor: &Redactor::default(), parameters: &[], cancel: &|| false })
    }

    /// What a failure means: the daemon, the disk, or else what the caller makes of the text.
    pub(super) fn failure(&self, output: &Output, otherwise: impl FnOnce(String) -> RuntimeError) -> RuntimeError {
        let reason = last_lines(&output.stderr, 1024);
        if output.stderr.contains("no space left on device") {
            return RuntimeError::DiskFull { reason };
        }
        let known = UNAVAILABLE.iter().any(|words| output.stderr.contains(words));
        if known || self.ask(&["version", "--format", "{{.Server.Version}}"]).is_err() {
            return RuntimeError::RuntimeUnavailable { reason, source: None };
        }
        otherwise(reason)
    }
}

/// `compose` for one project, before the verb. Without a file compose knows a project by its labels alone.
pub(super) fn compose(project: &str, file: Option<(&Path, &Path, &Path)>) -> Vec<OsString> {
    let mut args: Vec<OsString> = ["compose", "--ansi", "never", "-p", project].map(OsString::from).into();
    if let Some((file, directory, env_file)) = file {
        let options = [("-f", file), ("--project-directory", directory), ("--env-file", env_file)];
        args.extend(options.into_iter().flat_map(|(option, path)| [option.into(), path.into()]));
    }
    args
}

/// The end of a text, in whole lines where they fit.
pub(super) fn last_lines(text: &str, limit: usize) -> String {
    let text = text.trim();
    let Some(cut) = text.len().checked_sub(limit).filter(|cut| *cut > 0) else { return text.to_owned() };
    let cut = (cut..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    let tail = &text[cut..];
    tail.split_once('\n').map_or(tail, |(_, whole)| whole).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_text_is_cut_at_a_line() {
        assert_eq!(last_lines("short\n", 100), "short");
        assert_eq!(last_lines("first\nsecond\nthird", 14), "second\nthird");
        assert_eq!(last_lines("äöüäöü", 5), "öü");
    }
}
