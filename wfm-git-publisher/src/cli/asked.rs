//! Commands in a clone of a hosted fleet: without the publisher's home beside it, its host is asked.

use std::io;
use std::path::Path;
use std::time::Instant;

use clap::ArgMatches;
use repo_model::{Digest, text};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::questions::{OUTPUT, Question};
use super::{Output, PAUSE, PAUSE_OF_HOST, Place, events, print, print_json_text, questions, terminal, unpushed};
use crate::error::Failure;
use crate::operator::{Answer, FleetHost};
use crate::repos::{FleetRepo, StockGit};

/// Arguments that name a commit of the fleet.
const REVISIONS: [&str; 2] = ["rev", "commit"];

/// The commit that is looked at where none is named.
const NEWEST: &str = "HEAD";

/// What a host answers to `events`.
#[derive(Deserialize)]
struct Answered {
    events: Vec<Value>,
    cursor: Option<Digest>,
}

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
    let is_followed = question.is_followed(arguments);
    let asked = question.asked(arguments, terminal::width(io::stdout()), |name, value| match name {
        // Its lines are printed here, below those of the answers before.
        OUTPUT if is_followed => "json".to_owned(),
        name if REVISIONS.contains(&name) => revision.clone(),
        _ => value.to_owned(),
    });
    let asked = asked.map_err(|option| {
        let failure = Failure::new(format!("`--{option}` isn't answered by a host"));
        failure.hint("ask again now and then, or do it beside the publisher's home")
    })?;
    eprint!("note: asked {}\n{note}", host.url());
    if is_followed {
        let form = arguments.get_one(OUTPUT).copied().unwrap_or_default();
        return follow(&host, &asked, form).map(Some);
    }
    let Answer { exit_code, output, is_json, notes } = host.ask(&asked)?;
    if is_json {
        print_json_text(&output)
    } else {
        print(&output)
    }
    if !notes.is_empty() {
        eprintln!("{}", text::page(&notes));
    }
    Ok(Some(exit_code))
}

/// Asks a host what happened, and then again and again what came since: ten times as long after an answer as that took.
fn follow(host: &FleetHost, first: &str, form: Output) -> Result<u8, Failure> {
    let (mut question, mut is_first, mut told) = (first.to_owned(), true, String::new());
    loop {
        let begun = Instant::now();
        let asked = host.ask(&question);
        let took = begun.elapsed();
        let (said, wait) = match asked {
            Ok(answer) => {
                let Answered { events: new, cursor } = read(&answer)?;
                events::print_events(&new, form, is_first);
                let cursor =
                    cursor.ok_or_else(|| Failure::new(format!("`{}` can't keep where this stands", host.url())))?;
                (question, is_first) = (questions::after(first, &cursor), false);
                (answer.notes, (took * 10).clamp(PAUSE, PAUSE_OF_HOST))
            }
            Err(error) if !is_first && error.may_pass() => (Failure::of(&error).to_string(), PAUSE_OF_HOST),
            Err(error) => return Err(error.into()),
        };
        // What is in the way is told once.
        if said != told && !said.is_empty() {
            eprintln!("{}", text::page(&said).trim_end());
        }
        told = said;
        std::thread::sleep(wait);
    }
}

/// The JSON of an answer as what it is; without such a one the failure that the host tells.
pub(super) fn read<T: DeserializeOwned>(said: &Answer) -> Result<T, Failure> {
    let why = |_| Failure::new(said.notes.strip_prefix("error: ").unwrap_or(&said.notes));
    serde_json::from_str(&said.output).map_err(why)
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
