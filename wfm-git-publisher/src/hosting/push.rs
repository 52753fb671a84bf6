//! A push to the hosted fleet repository: what `validate` would refuse is refused before it is there.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use jiff::Timestamp;
use repo_git::{Ancestry, CommitId, Repo};
use repo_model::branch::HEADS;
use repo_model::problem::{Problem, Problems};
use repo_model::{DeviceId, error_chain};
use wfm_git_host::judge::{self, Move, Rejected};

use super::paths::Bounds;
use crate::fleet::{self, Reading};
use crate::parallel;
use crate::plan::{Allowed, Blocked, Code, Shown, summary};
use crate::publish::{self, Findings, Options, RolloutProgress};
use crate::render::problems_of;
use crate::repos::{APPROVALS, Control, CoverageError, FleetRepo, Home, Ledger};

/// How many problems a person is shown at once.
const MAX_SHOWN: usize = 50;

/// The most devices of a fleet whose plan is made while somebody waits for the end of a push: for so many it takes a second or
/// two, and some eight where each repository has to be read.
const MAX_PLANNED: usize = 10_000;

/// The most things that can't be published that are told then.
const MAX_BLOCKED: usize = 10;

/// Judges a push to the fleet repository of this home. Returns what is worth saying about one that is accepted.
///
/// The branch of `HEAD` is what gets published: it only moves forward, and only to a fleet without errors that is still
/// this fleet, and to which those agreed who have to. Other branches are work on the way; that they aren't published is told, and
/// so are their problems, which refuse nothing. Approvals come and stay as they are. Where the account is bound to `paths`, nothing else may be changed by any
/// commit that comes.
pub fn judge_fleet_push(
    home: &Path,
    (account, paths): (&str, &[String]),
    push: &judge::Push<'_>,
) -> Result<Vec<String>, Rejected> {
    let judge::Push { repository, quarantine, moves } = *push;
    let repo = Repo::open_with_quarantine(repository, quarantine)?;
    let refs = repo.advertisement().map_err(|source| Rejected::Read { name: "HEAD".to_owned(), source })?;
    let published = refs.into_iter().find_map(|one| one.symref.filter(|_| one.name == "HEAD"));
    if let Some(bounds) = Bounds::of(account, paths) {
        bounds.check((&Repo::open(repository)?, &repo), moves, published.as_deref())?;
    }
    let push = Push {
        repo: &repo,
        source: FleetRepo::quarantined(repository, quarantine)?,
        home: Home::at(home),
        published,
        moves,
    };
    let mut notes = Vec::new();
    for step in moves {
        push.check(step, &mut notes)?;
    }
    Ok(notes)
}

struct Push<'a> {
    repo: &'a Repo,
    source: FleetRepo,
    home: Home,
    /// The full name of the branch that gets published.
    published: Option<String>,
    /// All of the push: approvals may come together with what they approve.
    moves: &'a [Move],
}

impl Push<'_> {
    fn check(&self, step: &Move, notes: &mut Vec<String>) -> Result<(), Rejected> {
        let name = &step.name;
        // Anything else could change what other refs mean to git: `refs/replace/`, `refs/notes/`…
        let Some(branch) = name.strip_prefix(HEADS) else {
            return match name {
                name if name.starts_with(APPROVALS) => self.check_approval(step),
                name if name.starts_with("refs/tags/") => Ok(()),
                name => rule(format!("{name} is neither a branch nor a tag")),
            };
        };
        let is_published = self.published.as_ref() == Some(name);
        match step.new {
            None if is_published => rule(format!("{branch} is what gets published; it can't be deleted")),
            None => Ok(()),
            Some(new) if is_published => {
                self.check_history(branch, step.old, new)?;
                let reading = self.check_fleet(branch, new, notes)?;
                notes.extend(reading.map(|reading| self.what_follows(reading)));
                notes.extend(self.why_not_now(branch));
                Ok(())
            }
            Some(new) => {
                if let Err(rejected) = self.check_fleet(branch, new, notes) {
                    notes.push(format!("{branch} isn't published as it is: {rejected}"));
                }
                notes.extend(self.beside(branch));
                Ok(())
            }
        }
    }

    /// That nothing is published of a branch beside the one that is; nothing where none is.
    fn beside(&self, branch: &str) -> Option<String> {
        let published = self.published.as_ref()?.strip_prefix(HEADS)?;
        Some(format!(
            "nothing is published of {branch}: only {published} is; `wfm-git-publisher plan --rev {branch}` shows what it would do"
        ))
    }

    /// An approval is somebody's word, which nobody moves or takes away; what isn't one is told at once.
    fn check_approval(&self, Move { old, new, name }: &Move) -> Result<(), Rejected> {
        let (None, Some(new)) = (old, new) else {
            return rule(format!("{name} is an approval; it stays as it is: approve another commit instead"));
        };
        let Some(tag) = self.source.approval(name, *new) else {
            return rule(format!(
                "{name} is no tag of that name on a commit: use `wfm-git-publisher approve`, or `git tag -s`"
            ));
        };
        match tag.signer() {
            Ok(_) => Ok(()),
            Err(error) => rule(format!("{name}: {error}")),
        }
    }

    /// Whether those agreed who have to, as `publish` will ask.
    fn check_covered(&self, branch: &str, ledger: &Ledger, new: CommitId) -> Result<(), Rejected> {
        let tags = self.moves.iter().filter_map(|step| Some((step.name.clone(), step.new?))).collect::<Vec<_>>();
        match self.source.check_covered(ledger.base(&self.source), new, &tags, Timestamp::now()) {
            Err(CoverageError::NotCovered(error)) => rule(format!("{branch}: {error}\n  hint: {}", error.hint())),
            Err(error) => rule(format!("{branch}: {}", error_chain(&error))),
            Ok(()) => Ok(()),
        }
    }

    /// What was published stays in the history: devices' commits name it.
    fn check_history(&self, branch: &str, old: Option<CommitId>, new: CommitId) -> Result<(), Rejected> {
        let Some(old) = old else { return Ok(()) };
        let read = |source| Rejected::Read { name: branch.to_owned(), source };
        match self.repo.is_ancestor(old, new).map_err(read)? {
            Ancestry::Yes => Ok(()),
            _ => rule(format!("{branch} is what gets published; it only moves forward: pull first, or `git revert`")),
        }
    }

    /// Whether a fleet may be published as it is. What was read of it, unless the publisher's ledger can't be.
    fn check_fleet(&self, branch: &str, new: CommitId, notes: &mut Vec<String>) -> Result<Option<Reading>, Rejected> {
        let files = self.source.files(new).map_err(|error| Rejected::Rule(error_chain(&error)))?;
        let Reading { fleet, mut problems } = fleet::read(&files);
        problems.extend(fleet.iter().flat_map(|fleet| problems_of(fleet, parallel::cores())));
        if problems.has_errors() {
            let count = problems.errors().count();
            let problems = shown(problems.errors());
            return rule(format!("{branch}: the fleet has {count} problem(s)\n{problems}"));
        }
        notes.extend(warnings(&problems));
        // Without its ledger the publisher says by itself what it can't do, and asks the same before it publishes.
        let Ok((ledger, rosters)) = Control::read(&self.home) else { return Ok(None) };
        self.check_covered(branch, &ledger, new)?;
        let known = rosters.fleet();
        match &fleet {
            Some(fleet) if fleet.settings.id != known => {
                rule(format!("{branch}: fleet.yaml: id: is another fleet's; here it is {known}"))
            }
            _ => Ok(Some(Reading { fleet, problems })),
        }
    }

    /// Why it isn't published as soon as it is here; nothing where it is.
    fn why_not_now(&self, branch: &str) -> Vec<String> {
        let nobody = format!(
            "no `wfm-git-publisher run` follows {branch} at this moment: it is published with the next `wfm-git-publisher publish`"
        );
        let nobody = (!self.home.is_followed()).then_some(nobody);
        let findings = Findings::read(&self.home);
        // The rest is judged with this push.
        let is_before = |one: &&Blocked| [Code::PassFailed, Code::KeyNotAllowed].contains(&one.code);
        let failed = findings.of_all().filter(is_before).map(|one| {
            let since = one.since.map(|since| format!(" since {since:.0}")).unwrap_or_default();
            format!("nothing could be published{since}: {}", hinted(&one.message, &one.hint))
        });
        failed.chain(nobody).collect()
    }

    /// What `publish` does with it, in a few lines: nobody shall push and wonder whether anything happens.
    fn what_follows(&self, reading: Reading) -> String {
        if reading.fleet.as_ref().is_some_and(|fleet| fleet.devices.len() > MAX_PLANNED) {
            let text =
                "it is accepted; what it changes of so many devices isn't told here: see `wfm-git-publisher plan`";
            return text.to_owned();
        }
        let stop = AtomicBool::new(false);
        let options = Options {
            now: Timestamp::now(),
            devices: None,
            allowed: Allowed::default(),
            resolve: &|_| Err("a push asks no registry".into()),
            threads: parallel::cores(),
            stop: &stop,
            progress: &|_, _, _| (),
            remotes: None,
            reclaim: BTreeSet::new(),
        };
        let planned = match publish::plan_read(&self.home, &self.source, reading, &options) {
            Ok(planned) => planned,
            Err(error) => return format!("it is accepted; what it changes can't be told: {}", error_chain(&error)),
        };
        let rollouts = planned.rollouts.as_ref().map(RolloutProgress::to_text).unwrap_or_default();
        let clock = planned.clock.map(|error| format!("nothing is published before that is right: {error}\n"));
        let blocked = planned.devices.iter().filter_map(|shown| match shown {
            Shown::Plan(plan, blocked) => Some(blocked.iter().map(move |one| (&plan.device, one))),
            _ => None,
        });
        let line = |(device, one): (&DeviceId, &Blocked)| format!("{device}: {}\n", hinted(&one.message, &one.hint));
        let mut blocked: Vec<_> = blocked.flatten().map(line).collect();
        let more = blocked.len().saturating_sub(MAX_BLOCKED);
        blocked.truncate(MAX_BLOCKED);
        if more > 0 {
            blocked.push(format!("and {more} more that can't be published; `wfm-git-publisher plan` shows them all\n"));
        }
        let lines = [clock.unwrap_or_default(), rollouts, blocked.concat(), summary(&planned.devices)].concat();
        format!("it is accepted, and `publish` does this with it:\n{}", lines.trim_end())
    }
}

fn warnings(problems: &Problems) -> Option<String> {
    let text = shown(problems.warnings());
    (!text.is_empty()).then(|| format!("warnings:\n{text}"))
}

/// A message with what to do below it.
fn hinted(message: &str, hint: &Option<String>) -> String {
    let hint = hint.as_ref().map(|hint| format!("\n  hint: {hint}")).unwrap_or_default();
    format!("{message}{hint}")
}

/// Problems as `validate` shows them, file, line and column first.
fn shown<'a>(problems: impl Iterator<Item = &'a Problem>) -> String {
    let mut lines: Vec<_> = problems.map(|problem| hinted(&problem.to_string(), &problem.hint)).collect();
    let all = lines.len();
    lines.truncate(MAX_SHOWN);
    if all > MAX_SHOWN {
        lines.push(format!("and {} more; `wfm-git-publisher validate` tells them all", all - MAX_SHOWN));
    }
    lines.join("\n")
}

fn rule<T>(text: String) -> Result<T, Rejected> {
    Err(Rejected::Rule(text))
}
