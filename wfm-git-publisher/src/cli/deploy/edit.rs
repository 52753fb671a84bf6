//! `deploy edit`.

use std::collections::BTreeMap;

use repo_model::DeploymentName;
use serde_json::json;

use super::super::{Place, threads};
use super::Settings;
use super::options::{AnswerArgs, Said};
use super::proposal::Proposal;
use crate::error::Failure;
use crate::fleet::{self, Choice, Deployment, Fleet, counted};
use crate::operator::deploy::{DeployError, DeploymentEdit, DeploymentFile, edited, questions};
use crate::repos::FleetRepo;

/// Asks again what a deployment's package asks, with what is there, and writes and commits what is otherwise
///
/// On a terminal Enter leaves an answer as it is, and the devices; without one, only what options say changes. --targets and
/// --device name all devices that are meant from then on. Only the lines change in which an answer stands: comments, order and
/// all other keys stay byte for byte. Where the file is written so that this can't be done, that is said, and nothing is. Another
/// version, overrides and all else are changed with an editor.
///
///   wfm-git-publisher deploy edit hello --set interval=30 --yes
///   wfm-git-publisher deploy edit hello --targets site=graz --targets 'line in (1,2)' --yes
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The deployment's id
    #[arg(value_name = "ID")]
    deployment: DeploymentName,

    #[command(flatten)]
    answers: AnswerArgs,
}

pub(super) fn run(place: &Place, args: &Args) -> Result<u8, Failure> {
    let root = place.work_tree()?;
    let source = FleetRepo::open(&root)?;
    let head = source.resolve("HEAD")?;
    let files = source.files_on(head, threads())?;
    let id = &args.deployment;
    let file = DeploymentFile::open(&root, &files, id)?;
    let before = fleet::read_on(&files, threads());
    let fleet = super::usable(&before)?;
    let Some(deployment) = fleet.deployments.get(id) else {
        let failure = Failure::new(format!("`{}` can't be edited before it is right", file.file));
        return Err(failure.problems(&before.problems));
    };
    let application = &deployment.application;
    let profile = match &deployment.profile {
        Choice::Named(index) => application.profiles.get(*index).map(|one| one.description.id.as_str()),
        Choice::Auto(_) => Some("auto"),
    };
    let now: Settings =
        deployment.parameters.iter().map(|(name, given)| (name.clone(), given.setting.clone())).collect();
    let mut said = Said::read(&args.answers, application)?;
    let mut dialog = super::dialog(&args.answers);
    if let Some(dialog) = &mut dialog {
        file.check_clean()?;
        dialog.head(application)?;
        let asked = questions(application, super::named(profile));
        said.add(dialog.parameters(application, &asked, &said.parameters, &now)?);
        if said.targets.is_empty() {
            said.targets = dialog.targets(fleet, Some(&devices(fleet, deployment)))?.unwrap_or_default();
        }
    }
    let is_new = |name: &String, setting: &_| now.get(name) != Some(setting);
    let parameters: BTreeMap<_, _> = said
        .parameters
        .iter()
        .filter(|(name, setting)| is_new(name, setting))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    let targets = (!said.targets.is_empty()).then(|| said.targets.clone());
    let old = file.committed.as_deref().unwrap_or_default();
    let text = edited(old, &DeploymentEdit { parameters, targets })
        .ok_or_else(|| DeployError::Edit { file: file.file.clone() })?;
    if text == old {
        file.check_clean()?;
        let said = format!("{} says so already\n", file.file);
        args.answers
            .output
            .print(&said, || json!({ "deployment": id, "file": file.file, "committed": false, "wasThere": true }));
        return Ok(0);
    }
    let proposal = Proposal {
        place,
        head,
        id,
        application,
        profile,
        file: &file,
        text,
        message: format!("{id}: other answers"),
        said: &said,
        files: &files,
        before: &before,
    };
    proposal.conclude(&args.answers, dialog.as_mut())
}

/// The devices that are meant now, in a few words.
fn devices(fleet: &Fleet, deployment: &Deployment) -> String {
    let meant = fleet.devices.values().filter(|device| deployment.is_for(device));
    counted(meant.count())
}
