//! This program as the host calls it for a question about the fleet: the same commands, with what is in the home.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::FromArgMatches;
use wfm_git_host::api::{ANSWER, MISSING, UNKNOWN};

use super::questions::{Called, NoQuestion, OPENAPI, read};
use super::{Args, code_of, command, print, progress, run, terminal};
use crate::error::{Failure, USAGE};
use crate::operator::OPENAPI_PATH;
use crate::repos::Home;

/// Answers a question, if the program was called for one by the host.
pub(super) fn called() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    arguments.next().filter(|first| first == ANSWER)?;
    progress::silence();
    let (home, question) = (arguments.next()?, arguments.next()?);
    Some(ExitCode::from(answer(&home, question.to_str()?)))
}

fn answer(home: &OsStr, question: &str) -> u8 {
    if question == OPENAPI_PATH {
        print(OPENAPI);
        return 0;
    }
    let Called { words, width } = match read(question) {
        Ok(called) => called,
        Err(error) => {
            eprintln!("{error}; {OPENAPI_PATH} describes all there are");
            return if error == NoQuestion::Path { UNKNOWN } else { USAGE };
        }
    };
    if !Home::at(Path::new(home)).hosted_fleet().is_dir() {
        eprintln!("the fleet repository isn't hosted here, so this host knows nothing of the fleet");
        return UNKNOWN;
    }
    width.into_iter().for_each(terminal::is_elsewhere);
    let place = ["wfm-git-publisher".into(), "--fleet".into(), home.to_owned(), "--home".into(), home.to_owned()];
    let line = place.into_iter().chain(words.into_iter().map(OsString::from));
    match command().try_get_matches_from(line).and_then(|matches| Args::from_arg_matches(&matches)) {
        Ok(args) => code_of(|| run(args).map_err(exit)),
        Err(error) => {
            eprint!("{error}");
            USAGE
        }
    }
}

/// That something isn't there the host knows by an exit code of its own.
fn exit(mut failure: Failure) -> Failure {
    if failure.is_missing {
        failure.exit = MISSING;
    }
    failure
}
