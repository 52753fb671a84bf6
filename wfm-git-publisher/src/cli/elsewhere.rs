//! Commands in a clone of a hosted fleet: without the publisher's home beside it, its host is asked.

use std::io;
use std::path::Path;
use std::time::Instant;

use clap::{ArgMatches, FromArgMatches};
use repo_model::text;

use super::asked::{self, Next};
use super::questions::{OUTPUT, Question, Shown};
use super::{
    Output, PAUSE, PAUSE_OF_HOST, Place, events, pending, print, print_json_text, rollout, status, terminal, unpushed,
};
use crate::error::Failure;
use crate::operator::{Answer, FleetHost};
use crate::repos::{FleetRepo, StockGit};

/// Arguments that name a commit of the fleet.
const REVISIONS: [&str; 2] = ["rev", "commit"];

/// The commit that is looked at where none is named.
const NEWEST: &str = "HEAD";

/// Asks the host that this clone was logged in to, and prints its answer; `None` where the publisher's home is here, nobody logged
/// in, or the command is no question.
pub(super) fn ask(place: &Place, matches: &ArgMatches) -> Result<Option<u8>, Failure> {
    let asks = Question::meant(matches).filter(|(question, _)| question.needs_home && place.home.is_none());
    let Some((question, arguments)) = asks else { return Ok(None) };
    let root = place.root()?;
    if place.home()?.root().exists() {
        return Ok(None);
    }
    let Some(host) = FleetHost::of_clone(&root)? else { return Ok(None) };
    let revision = REVISIONS.into_iter().find_map(|name| arguments.try_get_raw(name).ok().flatten()?.next());
    let (revision, note) = revision.map(|one| known(&root, &one.to_string_lossy())).unwrap_or_default();
    let shown = question.shown_on(arguments);
    let asked = question.asked(arguments, terminal::width(io::stdout()), |name, value| match name {
        // What is new of it is printed here, below the answers before.
        OUTPUT if shown.is_some() => "json".to_owned(),
        name if REVISIONS.contains(&name) => revision.clone(),
        _ => value.to_owned(),
    });
    eprint!("note: asked {}\n{note}", host.url());
    let Some(shown) = shown else { return show(&asked::ask(&host, &asked)?).map(Some) };
    let form: Output = arguments.get_one(OUTPUT).copied().unwrap_or_default();
    match shown {
        Shown::Status => {
            let picks = status::Picks::from_arg_matches(arguments).map_err(|error| Failure::new(error.to_string()))?;
            again(&host, &asked, status::watcher(&asked, picks, form))
        }
        Shown::Rollout => again(&host, &asked, rollout::watcher(&asked, form)),
        Shown::Events => again(&host, &asked, events::follower(&asked, form)),
        Shown::Pending => again(&host, &asked, pending::watcher(&asked, form)),
    }
    .map(Some)
}

/// Why a command failed that needs the publisher's home, in a clone that is logged in: its host isn't asked for this.
pub(super) fn unasked(place: &Place, failure: Failure) -> Failure {
    let host = || FleetHost::of_clone(&place.root().ok()?).ok()?;
    match Some(&failure).filter(|failure| failure.needs_home && place.home.is_none()).and_then(|_| host()) {
        Some(host) => {
            failure.hint(format!("{} isn't asked for this: do it at its machine, in the home there", host.url()))
        }
        None => failure,
    }
}

/// Prints an answer as it is; returns its exit code.
fn show(answer: &Answer) -> Result<u8, Failure> {
    if answer.is_json {
        print_json_text(&answer.output)
    } else {
        print(&answer.output)
    }
    if !answer.notes.is_empty() {
        eprintln!("{}", text::page(&answer.notes));
    }
    Ok(answer.exit_code)
}

/// Asks a host, and then again and again, ten times as long after an answer as that took, until `take` says that it was the last.
/// While the host is away it is asked on.
fn again(host: &FleetHost, first: &str, mut take: impl FnMut(&Answer) -> Result<Next, Failure>) -> Result<u8, Failure> {
    let (mut question, mut is_first, mut is_away, mut told) = (first.to_owned(), true, false, String::new());
    loop {
        let begun = Instant::now();
        let asked = if is_first { asked::ask(host, &question) } else { host.ask(&question, None, || ()) };
        let took = begun.elapsed();
        let (said, wait, next) = match asked {
            // It can't answer this, and says why.
            Ok(answer) if !answer.is_json => return show(&answer),
            Ok(answer) => {
                if is_away {
                    eprintln!("note: {} answers again", host.url());
                }
                let next = take(&answer)?;
                (is_first, is_away) = (false, false);
                (answer.notes, (took * 10).clamp(PAUSE, PAUSE_OF_HOST), next)
            }
            Err(error) if !is_first && error.may_pass() => {
                is_away = true;
                (Failure::of(&error).to_string(), PAUSE_OF_HOST, Next::Continue(question))
            }
            Err(error) => return Err(error.into()),
        };
        // What is in the way is told once.
        if said != told && !said.is_empty() {
            eprintln!("{}", text::page(&said).trim_end());
        }
        told = said;
        match next {
            Next::Break(code) => return Ok(code),
            Next::Continue(next) => question = next,
        }
        std::thread::sleep(wait);
    }
}

/// A revision as the host knows it, by what it is in this clone; and a note of what isn't pushed, which the host can't have.
fn known(root: &Path, revision: &str) -> (String, String) {
    let git = StockGit::new(root);
    if revision == NEWEST {
        let upstream = git.run(&["rev-parse", "--quiet", "--verify", "@{upstream}"]).ok();
        let upstream = upstream.and_then(|text| text.trim().parse().ok());
        return (revision.to_owned(), upstream.map(|upstream| unpushed(root, upstream)).unwrap_or_default());
    }
    let found = FleetRepo::open(root).and_then(|source| source.resolve(revision));
    let Ok(commit) = found.map(|commit| commit.to_string()) else { return (revision.to_owned(), String::new()) };
    let having = git.run(&["for-each-ref", "--count=1", "--contains", &commit, "refs/remotes"]);
    let note = match having.is_ok_and(|refs| refs.is_empty()) {
        true => format!("note: {} isn't pushed, and only what is pushed counts: git push\n", text::line(revision)),
        false => String::new(),
    };
    (commit, note)
}
