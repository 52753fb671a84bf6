//! `approve` and `reject`: a person's word for what waits for it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;

use jiff::Timestamp;
use repo_model::desired::Desired;
use repo_model::margo::{ApplicationDeployment, Source};
use repo_model::{ComponentName, DeploymentId, Digest, IntoMap, error_chain, text};
use serde::Serialize;

use super::approve_removals::{self, Named};
use super::show::json;
use super::{OutputArgs, hold, must_be};
use crate::config::Home;
use crate::decision::approval::{Approvals, ChangeSet, Review, Said, Word};
use crate::decision::component::Component;
use crate::decision::device_state::DeviceState;
use crate::decision::plan::{Action, Plan, PlannedComponent};
use crate::error::CliError;
use crate::home;
use crate::reconcile::preview::changes;
use crate::reconcile::reconciler::approvals_of;
use crate::state::{approvals, loaded};

/// Approves a change that waits for a person: of a deployment (`gates.approval` of device.yaml, or `approval: site` of the
/// fleet), or many removals at once
/// (`gates.removals`).
///
/// Without `--change` it shows what would be changed, and names it. What is approved is exactly that: a newer revision that
/// comes to something else waits again, and one that comes to the same doesn't.
///
///   device-syncer approve greeter
///   device-syncer approve greeter --change 4be1c0ffee12 --by j.doe --why "line 2 is idle"
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, group = clap::ArgGroup::new("what").required(true))]
pub(super) struct Args {
    /// The operator's id of the deployment, or Margo's deploymentId.
    #[arg(group = "what")]
    deployment: Option<String>,
    /// All removals that wait because they are too many at once.
    #[arg(long, group = "what")]
    removals: bool,
    /// The change, as it is named without this.
    #[arg(long, value_name = "CHANGE", requires_all = ["by", "why"])]
    change: Option<String>,
    /// Who says so; kept in the home with the approval.
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// What for; kept in the same way.
    #[arg(long, value_name = "TEXT")]
    why: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Rejects a change of a deployment that waits for a person: it goes on waiting, and `status` says who rejected it and why.
///
/// `approve` shows what it comes to, and names it. Whoever approves it later takes this back.
///
///   device-syncer reject greeter --change 4be1c0ffee12 --by j.doe --why "not before the audit"
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct RejectArgs {
    /// The operator's id of the deployment, or Margo's deploymentId.
    deployment: String,
    /// The change, as `approve` names it.
    #[arg(long, value_name = "CHANGE")]
    change: String,
    /// Who says so; stands on `status`, signed and for ever.
    #[arg(long, value_name = "NAME")]
    by: String,
    /// What for; stands in the same place.
    #[arg(long, value_name = "TEXT")]
    why: String,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    /// A person's word, if it is one.
    fn word(&self) -> Result<Option<Named>, CliError> {
        let given = |text: &Option<String>| text.clone().unwrap_or_default();
        self.change.clone().map(|change| word(change, &given(&self.by), &given(&self.why))).transpose()
    }
}

fn word(change: String, by: &str, why: &str) -> Result<Named, CliError> {
    Ok(Named { change, by: hold::words("--by", by)?, why: hold::words("--why", why)? })
}

pub(super) fn run(home: &Home, args: &Args) -> Result<ExitCode, CliError> {
    must_be(home)?;
    let word = args.word()?;
    let Some(deployment) = &args.deployment else {
        approve_removals::run(home, word, args.output)?;
        return Ok(ExitCode::SUCCESS);
    };
    let mut found = Found::of(home, deployment)?;
    if let Some(word) = word {
        found.review(home, Review::Approved, word)?;
    }
    args.output.print(|| found.out.text(), || json(&found.out))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn reject(home: &Home, args: &RejectArgs) -> Result<ExitCode, CliError> {
    must_be(home)?;
    let mut found = Found::of(home, &args.deployment)?;
    found.review(home, Review::Rejected, word(args.change.clone(), &args.by, &args.why)?)?;
    args.output.print(|| found.out.text(), || json(&found.out))?;
    Ok(ExitCode::SUCCESS)
}

/// What a change of a deployment comes to now.
struct Found {
    change: ChangeSet,
    out: ChangeOut,
    /// By the site's list.
    is_rejected_elsewhere: bool,
}

impl Found {
    fn of(home: &Home, deployment: &str) -> Result<Self, CliError> {
        let (device_state, desired) = loaded::peek(&home.repository());
        let Some(desired) = desired else {
            return Err(CliError::Input(
                "no state was accepted on this device yet, so nothing is to be changed".into(),
            ));
        };
        let (device, reconciler, clock_is_behind) = home::read_only(home.clone())?;
        let plan = changes(&device, &reconciler, &device_state, &desired)?;
        let named =
            |id: &DeploymentId| id.to_string() == deployment || device_state.name_of(*id, Some(&desired)) == deployment;
        let id = plan.changes.keys().copied().find(named).ok_or_else(|| {
            CliError::Input(format!(
                "no deployment `{deployment}` is wanted or goes here: `device-syncer plan` shows all"
            ))
        })?;
        let approvals = approvals_of(&device, Some(&desired), Timestamp::now(), clock_is_behind);
        let approvals = approvals.map(|all| Approvals { names: device_state.names(), ..all });
        let found = Self::make(approvals, id, &plan, (&device_state, &desired))?;
        if found.out.is_nothing() {
            return Err(CliError::Input(format!("nothing of `{deployment}` is to be changed")));
        }
        Ok(found)
    }

    fn make(
        approvals: Option<Approvals>,
        id: DeploymentId,
        plan: &Plan,
        (device_state, desired): (&DeviceState, &Desired),
    ) -> Result<Self, CliError> {
        let change = plan.changes[&id].clone();
        let name = device_state.name_of(id, Some(desired));
        let is_asked = |all: &Approvals| all.means(name.parse().ok().as_ref(), id);
        let Some(approvals) = approvals.filter(is_asked) else {
            let text = format!(
                "neither `gates.approval` of device.yaml nor the fleet (`approval: site`) asks anybody about `{name}`, so \
                 nothing of it waits for a word"
            );
            return Err(CliError::Input(text));
        };
        let before = revisions(device_state, id);
        let components = plan.deployments.iter().filter(|one| one.id == id).flat_map(|one| &one.components);
        let goes = plan.removals.iter().filter(|one| one.deployment == Some(id));
        let goes = goes.map(|one| one.component.as_ref().map_or(one.project.clone(), ToString::to_string));
        let said = approvals.said(&change).unwrap_or_else(|error| {
            eprintln!("nothing counts as said so far, because {}", text::lines(error));
            None
        });
        let out = ChangeOut {
            deployment: name,
            deployment_id: id,
            change: change.digest().hex(),
            components: components.map(|one| PartOut::of(one, &before)).collect(),
            goes: goes.collect(),
            review: said.map(ReviewOut::of),
        };
        let is_rejected_elsewhere = matches!(said, Some(Said::Elsewhere(said)) if said.review == Review::Rejected);
        Ok(Self { change, out, is_rejected_elsewhere })
    }

    /// Notes a person's word for what was shown under this name.
    fn review(&mut self, home: &Home, review: Review, named: Named) -> Result<(), CliError> {
        if !named.is(&self.out.change) {
            let (ChangeOut { deployment, change, .. }, named) = (&self.out, &named.change);
            let short = &change[..12];
            let text = format!(
                "the change of `{deployment}` is {short}, and not {named}: look at it by `approve {deployment}`"
            );
            return Err(CliError::Input(text));
        }
        let Named { by, why, .. } = named;
        let word = Word { review, change: self.change.clone(), by, why, at: Timestamp::now() };
        // What the site's list rejects stays rejected, whatever is said here.
        if !self.is_rejected_elsewhere {
            self.out.review = Some(ReviewOut::of(Said::Here(&word)));
        }
        approvals::note(home, word).map_err(|error| CliError::Input(error_chain(&error)))
    }
}

/// The revisions of what was applied of a deployment.
fn revisions(device_state: &DeviceState, id: DeploymentId) -> BTreeMap<ComponentName, String> {
    let document = device_state.deployments.get(&id).map(|applied| applied.document.as_slice()).unwrap_or_default();
    let read = ApplicationDeployment::read("deployment.yaml", document).ok();
    let components = read.into_iter().flat_map(|(document, _)| document.components);
    let revision = |source: Source| match source {
        Source::Oci { revision, .. } | Source::HelmRepo { revision, .. } => revision,
        Source::Https { package_location, .. } => package_location,
    };
    components.map(|one| (one.name, revision(one.source))).into_map()
}

/// A change, for `approve --output json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ChangeOut {
    deployment: String,
    deployment_id: DeploymentId,
    /// Names it: 64 hex digits.
    change: String,
    components: Vec<PartOut>,
    /// The components that go.
    goes: Vec<String>,
    /// What was said of just this.
    #[serde(rename = "said")]
    review: Option<ReviewOut>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PartOut {
    name: ComponentName,
    /// Whether anything of it is to be changed.
    changes: bool,
    /// Why, or why it can't.
    why: Option<String>,
    /// The revision that was applied before, where another one is wanted now.
    from: Option<String>,
    repository: Option<String>,
    revision: Option<String>,
    /// What the revision meant when it was published.
    content: Option<Digest>,
}

#[derive(Debug, Serialize)]
struct ReviewOut {
    #[serde(rename = "said")]
    review: Review,
    by: String,
    why: String,
    /// When it was said at the device; absent where it stands in the site's list.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Timestamp>,
    /// The name of the key that signed the site's list, where it stands in that.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

impl ReviewOut {
    fn of(said: Said<'_>) -> Self {
        let (word, at, key) = match said {
            Said::Here(Word { by, why, at, .. }) => ((by, why), Some(*at), None),
            Said::Elsewhere(said) => ((&said.word.by, &said.word.why), None, Some(said.key.clone())),
        };
        Self { review: said.review(), by: word.0.clone(), why: word.1.clone(), at, key }
    }

    /// Who said it: by the site's list, its key as well.
    fn who(&self) -> String {
        let key = self.key.as_ref().map(|key| format!(" in the site's list, with the key of {key}"));
        format!("{}{}", self.by, key.unwrap_or_default())
    }
}

impl PartOut {
    fn of(planned: &PlannedComponent, before: &BTreeMap<ComponentName, String>) -> Self {
        let (changes, why, input): (_, _, Option<&Component>) = match &planned.action {
            Action::Keep => (false, None, None),
            Action::Apply { reason, input, .. } => {
                (true, Some(super::show::reason_text(*reason).to_owned()), Some(input))
            }
            Action::Restore { reason, input } => (true, Some(reason.clone()), Some(input)),
            // It needs no word.
            Action::Restart { .. } | Action::TakeDown { .. } => (false, None, None),
            Action::Fail(failure) | Action::Wait(failure) => (false, Some(failure.message.clone()), None),
            Action::Unknown => (false, Some("its runtime doesn't answer".to_owned()), None),
        };
        let from = before.get(&planned.name).filter(|from| input.is_some_and(|input| input.revision != **from));
        Self {
            name: planned.name.clone(),
            changes,
            why,
            from: from.cloned(),
            repository: input.map(|input| input.repository.clone()),
            revision: input.map(|input| input.revision.clone()),
            content: input.and_then(|input| input.lock).map(|lock| lock.content),
        }
    }

    fn text(&self) -> String {
        let mut text = format!("{} {}", if self.changes { '+' } else { '=' }, self.name);
        for place in [&self.repository, &self.revision].into_iter().flatten() {
            let _ = write!(text, " {place}");
        }
        if let Some(content) = &self.content {
            let _ = write!(text, " {content}");
        }
        let words: Vec<_> = self.from.iter().map(|from| format!("now {from}")).chain(self.why.clone()).collect();
        let why = if words.is_empty() { String::new() } else { format!(" ({})", words.join("; ")) };
        text::cell(&(text + &why))
    }
}

impl ChangeOut {
    fn is_nothing(&self) -> bool {
        self.goes.is_empty() && !self.components.iter().any(|one| one.changes)
    }

    /// What would be changed, and what was said of it or how to say it.
    fn text(&self) -> String {
        let (deployment, short) = (&self.deployment, &self.change[..12]);
        let mut text = format!("{}\n", text::cell(&format!("{deployment}: change {short}")));
        for part in &self.components {
            let _ = writeln!(text, "{}", part.text());
        }
        for name in &self.goes {
            let _ = writeln!(text, "{}", text::cell(&format!("- {name} goes")));
        }
        text + &match &self.review {
            None => format!(
                "Nothing is approved yet. All of this may be done with `device-syncer approve {deployment} --change {short} \
                 --by NAME --why TEXT`, or not with `device-syncer reject`.\n"
            ),
            Some(said @ ReviewOut { review: Review::Approved, why, .. }) => {
                text::cell(&format!(
                    "approved by {}: {why}; the next pass that may does it (`device-syncer once`, or the running one)",
                    said.who()
                )) + "\n"
            }
            Some(said @ ReviewOut { review: Review::Rejected, why, .. }) => {
                text::cell(&format!("rejected by {}: {why}; it goes on waiting", said.who())) + "\n"
            }
        }
    }
}
