//! This program as the host calls it for a question about the fleet: the same commands, with what is in the home.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

use clap::FromArgMatches;
use wfm_git_host::api::{ANSWER, MAX_SENT, MISSING, UNKNOWN};

use super::questions::{Called, NoQuestion, OPENAPI, read};
use super::{Args, Command, code_of, command, plan, print, progress, run, terminal};
use crate::error::{Failure, USAGE};
use crate::hosting::Proposed;
use crate::operator::OPENAPI_PATH;
use crate::repos::Home;

/// Answers a question, if the program was called for one by the host.
pub(super) fn called() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    arguments.next().filter(|first| first == ANSWER)?;
    progress::silence();
    let (home, question) = (arguments.next()?, arguments.next()?);
    let text = |argument: OsString| argument.into_string().ok();
    let sender = match arguments.next() {
        Some(account) => Some(Sender { account: text(account)?, paths: arguments.map(text).collect::<Option<_>>()? }),
        None => None,
    };
    Some(ExitCode::from(answer(&home, question.to_str()?, sender.as_ref())))
}

/// Who sends something along, on the standard input.
struct Sender {
    account: String,
    /// What the account may change; everything if there are none.
    paths: Vec<String>,
}

fn answer(home: &OsStr, question: &str, sender: Option<&Sender>) -> u8 {
    if question == OPENAPI_PATH && sender.is_none() {
        print(OPENAPI);
        return 0;
    }
    let Called { words, width, .. } = match read(question) {
        Ok(called) if sender.is_some() && !called.takes_files => {
            eprintln!("nothing is sent along with this question; {OPENAPI_PATH} describes all there are");
            return UNKNOWN;
        }
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
        Ok(args) => code_of(|| match sender {
            Some(sender) => run_with(args, sender).map_err(exit),
            None => run(args).map_err(exit),
        }),
        Err(error) => {
            eprint!("{error}");
            USAGE
        }
    }
}

/// Runs the command with what is sent along.
fn run_with(args: Args, Sender { account, paths }: &Sender) -> Result<u8, Failure> {
    let mut sent = Vec::new();
    io::stdin().lock().take(MAX_SENT).read_to_end(&mut sent)?;
    let proposed = Proposed::read(&sent, account, paths).map_err(|error| {
        let mut failure = Failure::from(error);
        failure.exit = USAGE;
        failure
    })?;
    let place = args.place();
    match args.command {
        Command::Plan(args) => plan::run_proposed(&place, args, &proposed),
        _ => Err(Failure::new("nothing is sent along with this question")),
    }
}

/// That something isn't there the host knows by an exit code of its own.
fn exit(mut failure: Failure) -> Failure {
    if failure.is_missing {
        failure.exit = MISSING;
    }
    failure
}
