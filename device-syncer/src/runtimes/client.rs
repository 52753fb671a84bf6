//! The program by which a runtime is reached: how it is called, and what its failures mean.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::command::{self, CommandError, Output, Spec, last_lines};
use super::{Redactor, RuntimeError};

/// Limit of a call that only asks.
pub(super) const QUERY: Duration = Duration::from_secs(60);
/// How much of what a program says goes into an error.
pub(super) const REASON: usize = 1024;

/// What is peculiar to a program.
#[derive(Debug)]
pub(super) struct Tool {
    pub(super) name: &'static str,
    /// Limit of its standard output in bytes.
    pub(super) stdout_limit: usize,
    /// What it says when that which does the work can't be talked to, or goes while it works.
    pub(super) unavailable: &'static [&'static str],
    /// A call that fails only then.
    pub(super) probe: &'static [&'static str],
}

/// A program with its environment. Neither this program's environment nor anybody's own configuration is passed on.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) tool: &'static Tool,
    pub(super) program: PathBuf,
    pub(super) env: Vec<(OsString, OsString)>,
    /// Precedes the arguments of every call.
    pub(super) first: Vec<OsString>,
    /// Follows the arguments of every call.
    pub(super) always: Vec<OsString>,
    /// Whether calls that only ask end.
    pub(super) ends: Arc<AtomicBool>,
}

/// A call beyond the ordinary one.
pub(super) struct Call<'a> {
    pub(super) args: Vec<OsString>,
    pub(super) timeout: Duration,
    pub(super) redactor: &'a Redactor,
    /// Variables beside those that each call gets.
    pub(super) parameters: &'a [(&'a str, &'a str)],
    pub(super) cancel: &'a dyn Fn() -> bool,
}

impl Tool {
    /// The program can't be run, or what does the work doesn't answer as it should.
    pub(super) fn unavailable(&self, reason: String, source: Option<CommandError>) -> RuntimeError {
        RuntimeError::RuntimeUnavailable { tool: self.name, reason, source }
    }

    /// What a run means that didn't end by itself.
    pub(super) fn broken_off(&self, error: CommandError) -> RuntimeError {
        match error {
            CommandError::Cancelled { .. } => RuntimeError::Cancelled,
            error => self.unavailable(error.to_string(), Some(error)),
        }
    }
}

impl Client {
    /// Runs the program; an exit status other than 0 is not an error here.
    pub(super) fn run(&self, call: Call<'_>) -> Result<Output, RuntimeError> {
        self.try_run(call).map_err(|error| self.tool.broken_off(error))
    }

    /// The same, where it matters how it was ended.
    pub(super) fn try_run(&self, call: Call<'_>) -> Result<Output, CommandError> {
        let parameters = call.parameters.iter().map(|(name, value)| (name.into(), value.into()));
        let spec = Spec {
            program: self.program.clone(),
            args: self.first.iter().cloned().chain(call.args).chain(self.always.iter().cloned()).collect(),
            env: self.env.iter().cloned().chain(parameters).collect(),
            timeout: call.timeout,
            stdout_limit: self.tool.stdout_limit,
            redactor: call.redactor.clone(),
        };
        command::run(&spec, call.cancel)
    }

    /// Asks something that should always succeed.
    pub(super) fn ask(&self, args: &[&str]) -> Result<Vec<u8>, RuntimeError> {
        let output = self.try_ask(args)?;
        if output.status.success() { Ok(output.stdout) } else { Err(self.no_answer(&output)) }
    }

    /// The same, as text; bytes that are no UTF-8 are replaced.
    pub(super) fn ask_text(&self, args: &[&str]) -> Result<String, RuntimeError> {
        self.ask(args).map(|answer| String::from_utf8_lossy(&answer).into_owned())
    }

    /// Ends all calls that only ask, and each that is still to come.
    pub(super) fn end_questions(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }

    /// Whether a call that only asks is to end.
    pub(super) fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    /// Asks something whose exit status the caller judges; what hangs is ended after [`QUERY`].
    pub(super) fn try_ask(&self, args: &[&str]) -> Result<Output, RuntimeError> {
        let args = args.iter().map(OsString::from).collect();
        let cancel = &|| self.ends();
        self.run(Call { args, timeout: QUERY, redactor: &Redactor::default(), parameters: &[], cancel })
    }

    /// What a failure means of a call that should always succeed: the tool can't be used.
    pub(super) fn no_answer(&self, output: &Output) -> RuntimeError {
        self.tool.unavailable(last_lines(&output.stderr, REASON), None)
    }

    /// What a failure means: that which does the work is gone, the disk is full, or else what the caller makes of the
    /// text.
    pub(super) fn failure(&self, output: &Output, otherwise: impl FnOnce(String) -> RuntimeError) -> RuntimeError {
        self.failure_said(&output.stderr, otherwise)
    }

    /// The same of what was said in any other way.
    pub(super) fn failure_said(&self, said: &str, otherwise: impl FnOnce(String) -> RuntimeError) -> RuntimeError {
        let reason = last_lines(said, REASON);
        if said.contains("no space left on device") {
            return RuntimeError::DiskFull { reason };
        }
        let known = self.tool.unavailable.iter().any(|words| said.contains(words));
        if known || self.ask(self.tool.probe).is_err() {
            return self.tool.unavailable(reason, None);
        }
        otherwise(reason)
    }
}

pub(super) fn environment<const N: usize>(variables: [(&str, OsString); N]) -> Vec<(OsString, OsString)> {
    variables.map(|(name, value)| (name.into(), value)).into()
}
