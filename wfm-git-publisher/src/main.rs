//! The publisher's command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    wfm_git_publisher::cli::main()
}
