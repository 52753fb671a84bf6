//! The hidden command by which this program is the sandbox of another one.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use repo_model::error_chain;

use crate::runtimes::sandbox::{self, Entry};

/// Becomes another program that sees one directory and the system's programs: how strangers' files are resolved.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// All that the program reads besides programs: its standard input.
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Has the kernel refuse everything else.
    #[arg(long)]
    landlock: bool,
    /// User and group id of the program.
    #[arg(long, value_name = "ID")]
    user: Option<u32>,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Returns only if it can't.
pub(super) fn run(args: Args) -> ExitCode {
    let Args { directory, landlock, user, program } = args;
    let mut words = program.into_iter();
    let program = words.next().unwrap_or_default().into();
    let error = sandbox::enter(Entry { directory, landlock, user, program, args: words.collect() });
    eprintln!("{}", error_chain(&error));
    ExitCode::from(if error.is_unsupported() { sandbox::UNSUPPORTED } else { sandbox::FAILED })
}
