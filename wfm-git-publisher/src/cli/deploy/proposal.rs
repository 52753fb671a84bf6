//! What a deployment's file would come to, before it is written: who gets it, who can't run it, what would be published; and its
//! commit, once a person agrees.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufRead, Write};
use std::path::Path;

use jiff::Timestamp;
use repo_git::CommitId;
use repo_model::problem::{Problem, Problems};
use repo_model::{DeploymentName, DeviceId, error_chain, text};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::{Place, asked, problems_json, questions, threads, with_options};
use super::ask::{Dialog, named};
use super::options::{AnswerArgs, Said};
use crate::error::{Failure, warning};
use crate::explain::{Answer, CanRun, can_run};
use crate::fleet::{self, Application, Fleet, ParameterRule, Reading, SourceFile, counted, read_applications};
use crate::hosting::Proposed;
use crate::operator::FleetHost;
use crate::operator::deploy::{self, DeploymentFile, Question};
use crate::plan::{Allowed, Blocked, Shown, to_json, to_text};
use crate::publish::{self, Planned, RolloutProgress, known_devices};
use crate::render::problems_of;
use crate::repos::{FleetRepo, Home, Registries, StockGit};

/// A deployment's file that isn't written yet.
pub(super) struct Proposal<'a> {
    pub(super) place: &'a Place,
    /// The commit of the fleet that was looked at.
    pub(super) head: CommitId,
    pub(super) id: &'a DeploymentName,
    pub(super) application: &'a Application,
    /// As the file says it.
    pub(super) profile: Option<&'a str>,
    pub(super) file: &'a DeploymentFile,
    pub(super) text: String,
    /// The message of the commit.
    pub(super) message: String,
    pub(super) said: &'a Said,
    /// The fleet at that commit, and what is read of it.
    pub(super) files: &'a [SourceFile],
    pub(super) before: &'a Reading,
}

/// What it would come to.
struct Judged {
    /// The devices that get it.
    devices: Vec<DeviceId>,
    /// Those that have it by the last commit, and wouldn't any more.
    leaving: Vec<DeviceId>,
    /// What is known of the devices that get it; nothing where neither the publisher's home is here nor a host can say.
    answers: Vec<CanRun>,
    /// What would be published for all of these; absent where neither the publisher's home is here nor a host can say.
    foreseen: Option<Foreseen>,
    /// What would be wrong in the fleet that isn't now; and what is doubtful in this file.
    problems: Problems,
    /// What couldn't be published that can be now.
    blocked: Vec<Blocked>,
}

/// What `publish` would do.
struct Foreseen {
    /// For people.
    text: String,
    devices: Value,
    rollouts: Value,
}

/// What a host says to who can run a version.
#[derive(Deserialize)]
struct Asked {
    devices: Vec<CanRun>,
}

/// What a host says that `publish` would do.
#[derive(Deserialize)]
struct Told {
    devices: Value,
    rollouts: Value,
}

/// The same of a device, as far as it keeps a file from being written.
#[derive(Deserialize)]
struct ToldDevice {
    #[serde(default)]
    blocked: Vec<Blocked>,
}

impl Proposal<'_> {
    /// Shows what it would come to, has a person agree, and writes and commits it.
    pub(super) fn conclude<R: BufRead, W: Write>(
        &self,
        args: &AnswerArgs,
        dialog: Option<&mut Dialog<R, W>>,
    ) -> Result<u8, Failure> {
        self.file.check(&self.text)?;
        let judged = self.judge(args.output.is_json())?;
        judged.problems.warnings().for_each(|problem| eprint!("{}", warning(problem)));
        if !args.output.is_json() {
            super::super::print(&self.page(&judged));
        }
        self.check(&judged)?;
        let agreed = match dialog {
            Some(dialog) => dialog.confirm(&format!("Write {} and commit it?", self.file.file))?,
            None => args.yes,
        };
        if agreed {
            self.file.write(self.head, &self.text, &self.message)?;
        }
        let next = if agreed { self.place.next_push()? } else { "" };
        let done = if agreed { format!("{} is committed\n{next}", self.file.file) } else { String::new() };
        args.output.print(&done, || self.json(&judged, agreed));
        if agreed { Ok(0) } else { Err(Failure::new("nothing is written").hint("--yes writes it without asking")) }
    }

    /// Reads the fleet with the file in it, as the commit would have it, and compares it with what devices have.
    fn judge(&self, is_json: bool) -> Result<Judged, Failure> {
        let mut files = self.files.to_vec();
        files.retain(|file| file.path != self.file.file);
        files.push(SourceFile::plain(&self.file.file, self.text.as_str()));
        let after = fleet::read_on(&files, threads());
        let mut problems = self.new_in(&self.before.problems, &after.problems);
        let Some(fleet) = after.fleet.as_ref().filter(|fleet| fleet.deployments.contains_key(self.id)) else {
            return Err(self.refused(&problems, &[]));
        };
        let devices = meant(fleet, self.id);
        let before = self.before.fleet.as_ref().map(|fleet| meant(fleet, self.id)).unwrap_or_default();
        let leaving: Vec<_> = before.into_iter().filter(|device| !devices.contains(device)).collect();
        let touched: Vec<_> = devices.iter().chain(&leaving).cloned().collect();
        let home = self.place.home()?;
        let has_home = home.check_ledger().is_ok();
        let mut blocked = Vec::new();
        let (mut foreseen, mut answers) = (None, Vec::new());
        if !has_home {
            let found = problems_of(fleet, threads());
            let before = self.before.fleet.as_ref().filter(|_| found.has_errors());
            let before = before.map(|fleet| problems_of(fleet, threads())).unwrap_or_default();
            problems.extend(self.new_in(&before, &found));
            if let Some(host) = FleetHost::of_clone(&self.place.root()?)?.filter(|_| self.place.home.is_none()) {
                eprintln!("note: asked {} who can run it, and what `publish` would do", host.url());
                answers = self.asked(&host, fleet, &devices)?;
                // What is wrong already it would only say again.
                let told = if problems.has_errors() {
                    Ok(Default::default())
                } else {
                    self.told(&host, &files, &touched, is_json)
                };
                match told {
                    Ok((told, found)) => {
                        let (shown, rest): (Vec<_>, Vec<_>) = found.into_iter().partition(Blocked::is_shown_as_problem);
                        (foreseen, blocked) = (told, rest);
                        problems.extend(shown.iter().map(problem));
                    }
                    Err(failure) => eprintln!("note: what `publish` would do is not known: {}", failure.in_line()),
                }
            } else {
                eprintln!("note: there is no publisher's home here, so what devices have is not looked at");
            }
        } else if !touched.is_empty() {
            let after = check(&home, &files, &touched)?;
            let is_wrong = after.problems.has_errors() || !errors(&after).is_empty();
            let before = is_wrong.then(|| check(&home, self.files, &touched)).transpose()?;
            problems = self.new_in(before.as_ref().map_or(&Problems::default(), |one| &one.problems), &after.problems);
            blocked = new_among(errors(&after), &before.as_ref().map(errors).unwrap_or_default());
            answers = self.answers(&home, &files, &devices)?;
            foreseen = Some(Foreseen::of(&after));
        }
        Ok(Judged { devices, leaving, answers, foreseen, problems, blocked })
    }

    /// What is wrong after and wasn't before, by the options that it comes from; and what is doubtful in this file.
    fn new_in(&self, before: &Problems, after: &Problems) -> Problems {
        let known: BTreeSet<_> = before.errors().map(ToString::to_string).collect();
        let new = after.errors().filter(|problem| !known.contains(&problem.to_string()));
        let doubts = after.warnings().filter(|problem| problem.file == self.file.file);
        Problems(new.chain(doubts).map(|problem| self.said.by_option(problem, &self.file.file)).collect())
    }

    fn answers(&self, home: &Home, files: &[SourceFile], devices: &[DeviceId]) -> Result<Vec<CanRun>, Failure> {
        let (applications, _) = read_applications(files);
        let is_asked = |device: &DeviceId| devices.contains(device);
        let (answers, _) = known_devices(home, files, is_asked, Timestamp::now(), threads(), |fleet, known| {
            let deployment = fleet.deployments.get(self.id)?;
            Some(can_run(fleet, &applications, &deployment.on(known.device).application, &known))
        })?;
        Ok(answers.into_iter().flatten().collect())
    }

    /// What the host of a clone says of these devices; nothing where it can't say.
    fn asked(&self, host: &FleetHost, fleet: &Fleet, devices: &[DeviceId]) -> Result<Vec<CanRun>, Failure> {
        let mut asked: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        let deployment = fleet.deployments.get(self.id);
        for device in devices.iter().filter_map(|id| fleet.devices.get(id)) {
            let Some(deployment) = deployment else { continue };
            asked.entry(deployment.on(device).application.key()).or_default().insert(&device.id);
        }
        let mut answers = Vec::new();
        for ((application, version), devices) in asked {
            let package = format!("{application}@{version}");
            let why = match asked::ask(host, &questions::devices(&package)) {
                Ok(said) if said.is_json => {
                    let Asked { devices: all } = asked::read(&said)?;
                    answers.extend(all.into_iter().filter(|one| devices.contains(&one.device)));
                    continue;
                }
                Ok(_) => "it isn't pushed".to_owned(),
                Err(error) => error_chain(&error),
            };
            eprintln!("note: who can run {} is not known: {}", text::line(&package), text::line(&why));
            return Ok(Vec::new());
        }
        Ok(answers)
    }

    /// What the host of a clone says that `publish` would do for these devices with these files, and what couldn't be published then
    /// that can be now.
    fn told(
        &self,
        host: &FleetHost,
        after: &[SourceFile],
        touched: &[DeviceId],
        is_json: bool,
    ) -> Result<(Option<Foreseen>, Vec<Blocked>), Failure> {
        if touched.is_empty() {
            return Ok((None, Vec::new()));
        }
        let root = self.place.root()?;
        let (base, rev) = pushed(&root).ok_or_else(|| Failure::new("this branch follows none of the host"))?;
        let known = FleetRepo::open(&root)?.files_on(base, threads())?;
        let ask = |files: &[SourceFile], form: &str| {
            let files = Proposed::between(&known, files).ok_or_else(|| Failure::new("not all files are texts"))?;
            let sent = serde_json::to_vec(&Proposed { devices: touched.iter().cloned().collect(), files });
            let sent = sent.map_err(|error| Failure::new(error.to_string()))?;
            Ok::<_, Failure>(asked::ask_with(host, &questions::plan_of(&rev, form), Some(&sent))?)
        };
        let told: Told = asked::read(&ask(after, "json")?)?;
        let found = told.errors()?;
        let before = match found.is_empty() {
            true => Vec::new(),
            false => asked::read::<Told>(&ask(self.files, "json")?)?.errors()?,
        };
        let text = if is_json { String::new() } else { ask(after, "text")?.output };
        let Told { devices, rollouts } = told;
        Ok((Some(Foreseen { text, devices, rollouts }), new_among(found, &before)))
    }

    fn check(&self, judged: &Judged) -> Result<(), Failure> {
        match judged.problems.has_errors() || !judged.blocked.is_empty() {
            true => Err(self.refused(&judged.problems, &judged.blocked)),
            false => Ok(()),
        }
    }

    fn refused(&self, problems: &Problems, blocked: &[Blocked]) -> Failure {
        let mut all = Problems(problems.errors().cloned().collect());
        all.extend(blocked.iter().filter(|one| !one.is_shown_as_problem()).map(problem));
        let failure = Failure::new(format!("`{}` can't be deployed like this, and nothing is written", self.id));
        failure.problems(&all)
    }

    fn page(&self, judged: &Judged) -> String {
        let names = |devices: &[DeviceId]| named(&devices.iter().map(ToString::to_string).collect::<Vec<_>>());
        let (app, version) = self.application.key();
        let mut page = format!("{}: {app}@{} on {}", self.id, text::line(&version), counted(judged.devices.len()));
        let _ = match judged.devices.as_slice() {
            [] => writeln!(page),
            devices => writeln!(page, ": {}", names(devices)),
        };
        if !judged.leaving.is_empty() {
            let _ = writeln!(page, "  not any more on {}: {}", counted(judged.leaving.len()), names(&judged.leaving));
        }
        for one in &judged.answers {
            if let Some((word, why)) = self.why_not(one) {
                let _ = writeln!(page, "  {} {word}: {}", one.device, text::line(&why));
            }
        }
        if let Some(foreseen) = &judged.foreseen {
            let _ = write!(page, "\n{}", foreseen.text);
        }
        page
    }

    /// Why a device can't run it, or why that isn't known.
    fn why_not(&self, one: &CanRun) -> Option<(&'static str, String)> {
        let named = super::named(self.profile);
        let against: Vec<_> = one.against.iter().filter(|fit| named.is_none_or(|id| fit.profile == id)).collect();
        let word = match one.answer {
            Answer::Unknown => "isn't known to run it",
            Answer::No => "can't run it",
            // Another profile fits than the one that is named.
            Answer::Yes | Answer::Runs if named.is_some() && !against.is_empty() => "can't run it",
            Answer::Yes | Answer::Runs => return None,
        };
        let against = against.iter().map(|fit| format!("{}: {}", fit.profile, fit.reasons.join("; ")));
        Some((word, one.reasons.iter().cloned().chain(against).collect::<Vec<_>>().join("; ")))
    }

    fn json(&self, judged: &Judged, committed: bool) -> Value {
        let (application, version) = self.application.key();
        let devices: Vec<_> = match judged.answers.as_slice() {
            [] => judged.devices.iter().map(|device| json!({ "device": device })).collect(),
            answers => answers.iter().map(|one| json!(one)).collect(),
        };
        let question = |one: &Question<'_>| {
            let parameter = &one.setting.parameter;
            json!({
                "section": one.section,
                "parameter": parameter,
                "name": one.setting.name,
                "description": one.setting.description,
                "immutable": one.setting.immutable,
                "rule": self.application.rules.get(parameter).map(ParameterRule::schema),
                "default": one.default,
            })
        };
        let questions = deploy::questions(self.application, super::named(self.profile));
        json!({
            "deployment": self.id,
            "application": application,
            "version": version,
            "file": self.file.file,
            "text": self.text,
            "questions": questions.iter().map(question).collect::<Vec<_>>(),
            "devices": devices,
            "leaving": judged.leaving,
            "plan": judged.foreseen.as_ref().map(|foreseen| &foreseen.devices),
            "rollouts": judged.foreseen.as_ref().map(|foreseen| &foreseen.rollouts),
            "problems": problems_json(&judged.problems),
            "committed": committed,
        })
    }
}

/// What `publish` would do for these devices once the files are committed.
fn check(home: &Home, files: &[SourceFile], devices: &[DeviceId]) -> Result<Planned, Failure> {
    let registries = Registries::new(Default::default());
    Ok(with_options(&registries, None, devices, Allowed::default(), |options| publish::check(home, files, &options))?)
}

impl Foreseen {
    fn of(planned: &Planned) -> Self {
        let rollouts = planned.rollouts.as_ref();
        Self {
            text: rollouts.map(RolloutProgress::to_text).unwrap_or_default()
                + &to_text(&planned.devices, &planned.fleet),
            devices: json!(to_json(&planned.devices)),
            rollouts: json!(rollouts.map(RolloutProgress::to_json)),
        }
    }
}

impl Told {
    /// What couldn't be published.
    fn errors(&self) -> Result<Vec<Blocked>, Failure> {
        let devices = Vec::<ToldDevice>::deserialize(&self.devices)
            .map_err(|error| Failure::new(format!("cannot understand what the host answers: {error}")))?;
        Ok(devices.into_iter().flat_map(|one| one.blocked).filter(|one| one.code.is_error()).collect())
    }
}

fn errors(planned: &Planned) -> Vec<Blocked> {
    planned.devices.iter().flat_map(Shown::blocked).filter(|one| one.code.is_error()).cloned().collect()
}

/// What can't be published, as something that is wrong with its device.
fn problem(one: &Blocked) -> Problem {
    let device = one.device.as_ref().map_or_else(|| "the fleet".to_owned(), |id| format!("device `{id}`"));
    let problem = Problem::error(device, one.message.clone());
    one.hint.iter().fold(problem, |problem, hint| problem.hint(hint))
}

/// What isn't among these already.
fn new_among(mut found: Vec<Blocked>, known: &[Blocked]) -> Vec<Blocked> {
    let same = |one: &Blocked, other: &Blocked| {
        (&one.device, &one.deployment, one.code) == (&other.device, &other.deployment, other.code)
    };
    found.retain(|one| !known.iter().any(|other| same(one, other)));
    found
}

/// The newest commit of this branch that the host has, and what the host is asked for: what it publishes, unless this is another
/// branch. So what others pushed meanwhile stays in the plan.
fn pushed(root: &Path) -> Option<(CommitId, String)> {
    let git = StockGit::new(root);
    let run = |args: &[&str]| Some(git.run(args).ok()?.trim().to_owned());
    let upstream = run(&["rev-parse", "--abbrev-ref", "@{upstream}"])?;
    let base: CommitId = run(&["merge-base", "HEAD", &upstream])?.parse().ok()?;
    let is_published = run(&["rev-parse", "--abbrev-ref", "origin/HEAD"])? == upstream;
    Some((base, if is_published { "HEAD".to_owned() } else { base.to_string() }))
}

/// The devices that get a deployment.
fn meant(fleet: &Fleet, id: &DeploymentName) -> Vec<DeviceId> {
    let deployment = fleet.deployments.get(id);
    let meant = fleet.devices.values().filter(|device| deployment.is_some_and(|one| one.is_for(device)));
    meant.map(|device| device.id.clone()).collect()
}
