//! `init`.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::{OutputArgs, show};
use crate::config::Home;
use crate::error::CliError;
use crate::home;

/// Makes this device's home and keys, and prints the line that enrols it.
///
/// Give the line to the operator: `wfm-git-publisher device enroll ID 'LINE'`. Where the host is reached over SSH, a
/// second line has the key with which the device asks it, and where it comes with a certificate, the digest of that one's key:
/// give both, to `device enroll ID -`. The keys never leave the device. Running it again prints the same lines; a newer join
/// file of this device replaces the one before, also to change between HTTPS and SSH, or between a secret and a certificate.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  device-syncer init --join press-01.json\n  ssh press-01 sudo device-syncer init --join - < press-01.json"
)]
pub(super) struct Args {
    /// The file that `wfm-git-publisher device add` wrote; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    join: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(home: &Home, args: &Args) -> Result<ExitCode, CliError> {
    let enrolment = home::init(home, &args.join, &read(&args.join)?)?;
    args.output.print(|| show::enrolment(&enrolment), || show::json(&show::EnrolmentOut::of(&enrolment)))?;
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    let mut bytes = Vec::new();
    let read = match path.as_os_str() == "-" {
        true => io::stdin().lock().read_to_end(&mut bytes),
        false => fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)),
    };
    read.map_err(|source| CliError::Io { doing: format!("can't read `{}`", path.display()), source })?;
    Ok(bytes)
}
