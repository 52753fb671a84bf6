//! Commands in a clone of a hosted fleet: without the publisher's home beside it, its host is asked.

use std::io;
use std::path::Path;

use clap::ArgMatches;
use repo_model::text;
use serde::de::DeserializeOwned;

use super::questions::Question;
use super::{Place, print, print_json_text, terminal, unpushed};
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
    let asked =
        question.asked(arguments, terminal::width(io::stdout()), |name, value| match REVISIONS.contains(&name) {
            true => revision.clone(),
            false => value.to_owned(),
        });
    let asked = asked.map_err(|option| {
        let failure = Failure::new(format!("`--{option}` isn't answered by a host"));
        failure.hint("ask again now and then, or do it beside the publisher's home")
    })?;
    eprint!("note: asked {}\n{note}", host.url());
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
