//! The forms in which `plan` and `validate` tell what they found: to people, to programs, to reviews and to pipelines.

mod github;
mod junit;
mod markdown;
mod sarif;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use clap::ValueEnum;
use repo_model::problem::{Problem, Problems, Severity};
use repo_model::{DeviceId, text};
use serde_json::Value;

use crate::fleet::{Fleet, SETTINGS, SIGNERS};
use crate::plan::{Blocked, Code, Describe, FLEET_DOUBTFUL, Group, Part, StatementKind, groups};
use crate::publish::{Planned, RolloutProgress};

/// The form of what `plan` and `validate` found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Sentences, for people
    #[default]
    Text,
    /// For programs: texts in it are exactly what strangers wrote, so escape them before you show them
    Json,
    /// For the review of a change, such as a comment on a pull request: at most 60,000 bytes
    Markdown,
    /// What is wrong, with file and line, for code scanning (SARIF 2.1.0)
    Sarif,
    /// One test case for each file of the fleet, and what is wrong as its failure, for GitLab and others
    Junit,
    /// What is wrong, as commands by which GitHub Actions marks lines
    Github,
}

/// What a command found.
pub(super) struct Found {
    /// `plan` or `validate`.
    command: &'static str,
    /// Errors first, then by file and line.
    findings: Vec<Finding>,
    /// The files of the fleet, and those that anything is found in.
    files: BTreeSet<String>,
    /// The outcome in one line.
    summary: String,
    /// What is decided about rollouts, a line each.
    rollouts: Vec<String>,
    /// What `publish` would change, each change once.
    changes: Vec<Row>,
}

/// A change and the devices that it is made on.
struct Row {
    change: String,
    details: Vec<String>,
    devices: String,
}

/// Something that is wrong or held back, where a person can do something about it.
struct Finding {
    /// The word for its kind, the same for all of a kind.
    rule: &'static str,
    problem: Problem,
}

impl Found {
    /// What is wrong in the files of a fleet; absent where not even that can be read.
    pub(super) fn of_files(command: &'static str, problems: &Problems, fleet: Option<&Fleet>, summary: &str) -> Self {
        let findings = problems.iter().map(Finding::of_problem).collect();
        Self::new(command, findings, fleet, summary)
    }

    /// What keeps something from being published, in files or elsewhere.
    pub(super) fn of_planned(command: &'static str, planned: &Planned, summary: &str) -> Self {
        let findings = planned.problems.iter().map(Finding::of_problem);
        let findings = findings.chain(refusals(planned)).collect();
        Self::new(command, findings, Some(&planned.fleet), summary)
    }

    /// The same with what `publish` would change.
    pub(super) fn with_changes(self, planned: &Planned) -> Self {
        let describe = Describe::new(&planned.fleet);
        let changes = groups(&planned.devices).into_iter().filter(|group| group.kind != StatementKind::Refused);
        let rows = |Group { line, parts, .. }: Group| {
            let row =
                |Part { details, devices }| Row { change: line.clone(), details, devices: describe.devices(&devices) };
            parts.into_iter().map(row).collect::<Vec<_>>()
        };
        let changes = changes.flat_map(rows).collect();
        let rollouts = planned.rollouts.as_ref().map(RolloutProgress::to_text).unwrap_or_default();
        Self { changes, rollouts: rollouts.lines().map(str::to_owned).collect(), ..self }
    }

    fn new(command: &'static str, mut findings: Vec<Finding>, fleet: Option<&Fleet>, summary: &str) -> Self {
        findings.sort_by(|a, b| a.order().cmp(&b.order()));
        let devices = fleet.iter().flat_map(|fleet| fleet.devices.values().map(|device| &device.file));
        let deployments = fleet.iter().flat_map(|fleet| fleet.deployments.values().map(|one| &one.place.file));
        let found = findings.iter().map(|one| &one.problem.file);
        let files = devices.chain(deployments).chain(found).cloned().chain([SETTINGS.to_owned()]).collect();
        let errors = findings.iter().filter(|one| one.is_error()).count();
        let counts = || format!("{errors} errors, {} warnings", findings.len() - errors);
        let summary = if summary.is_empty() { counts() } else { summary.trim_end().to_owned() };
        Self { command, findings, files, summary, rollouts: Vec::new(), changes: Vec::new() }
    }
}

impl Finding {
    fn of_problem(problem: &Problem) -> Self {
        let rule = if problem.severity == Severity::Error { Code::FleetInvalid.as_str() } else { FLEET_DOUBTFUL };
        Self { rule, problem: problem.clone() }
    }

    fn is_error(&self) -> bool {
        self.problem.severity == Severity::Error
    }

    fn order(&self) -> (bool, &str, Option<NonZeroU32>) {
        (!self.is_error(), &self.problem.file, self.problem.line)
    }

    /// What is wrong, without its place, and in a line below it what to do.
    fn text(&self) -> String {
        let Problem { key, message, hint, .. } = &self.problem;
        let key = if key.is_empty() { String::new() } else { format!("{}: ", text::line(key)) };
        let hint = hint.iter().map(|hint| format!("\nhint: {}", text::line(hint))).collect::<String>();
        format!("{key}{}{hint}", text::line(message))
    }
}

/// What can't be published although no file says anything wrong, each thing once, at the place where a person would look.
fn refusals(planned: &Planned) -> Vec<Finding> {
    let describe = Describe::new(&planned.fleet);
    let mut devices: BTreeMap<_, Vec<DeviceId>> = BTreeMap::new();
    for Blocked { device, deployment, code, message, hint, .. } in planned.refusals() {
        devices.entry((code, deployment, message, hint)).or_default().extend(device);
    }
    let refused = devices.into_iter().map(|((code, deployment, message, hint), devices)| {
        let on = if devices.is_empty() { String::new() } else { format!(" on {}", describe.devices(&devices)) };
        let about = deployment.iter().map(|name| format!("`{name}` ")).collect::<String>();
        let message = format!("{about}not published{on}: {message}");
        let place = deployment.and_then(|name| Some(&planned.fleet.deployments.get(&name)?.place));
        let problem = match place {
            Some(place) => place.problem(message).key(""),
            None => Problem::error(file(planned, code, &devices), message),
        };
        Finding { rule: code.as_str(), problem: Problem { hint, ..problem } }
    });
    refused.collect()
}

/// Where a person would look who reads that these devices get nothing new.
fn file<'a>(planned: &'a Planned, code: Code, devices: &[DeviceId]) -> &'a str {
    match (devices, code) {
        (_, Code::NotCovered) => SIGNERS,
        ([device], _) => planned.fleet.devices.get(device).map_or(SETTINGS, |device| &device.file),
        _ => SETTINGS,
    }
}

impl Format {
    /// Whether everything that is wrong is in the log already, because the form is made of lines of it.
    pub(super) fn is_log(self) -> bool {
        self == Self::Github
    }

    /// Prints it in this form.
    pub(super) fn print(
        self,
        text: impl FnOnce() -> String,
        json: impl FnOnce() -> Value,
        found: impl FnOnce() -> Found,
    ) {
        match self {
            Self::Text => super::print(&text()),
            Self::Json => super::print_json(&json()),
            Self::Markdown => super::print(&markdown::page(&found())),
            Self::Sarif => super::print_format(&sarif::log(&found())),
            Self::Junit => super::print(&junit::suite(&found())),
            Self::Github => super::print(&github::commands(&found())),
        }
    }
}
