//! `app list`.

use repo_model::margo::ApplicationDescription;
use repo_model::margo::description::DeploymentProfile;
use serde_json::{Value, json};

use super::super::{OutputArgs, Place, print_problems, table, threads};
use crate::error::{Failure, USER};
use crate::fleet::{self, Application, Use, read_applications, vendors};

/// Lists the application packages of the fleet, and what uses them
///
///   wfm-git-publisher app list
///   wfm-git-publisher app list --output json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct ListArgs {
    /// The commit of the fleet
    #[arg(long, default_value = "HEAD")]
    rev: String,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(place: &Place, args: &ListArgs) -> Result<u8, Failure> {
    let source = place.source()?;
    let files = source.files_on(source.resolve(&args.rev)?, threads())?;
    let (applications, problems) = read_applications(&files);
    print_problems(&problems, "the catalogue");
    let uses = fleet::uses(&files);
    let rows = std::iter::once(["APPLICATION", "VERSION", "NAME", "VENDOR", "PROFILES", "USED BY"].map(str::to_owned));
    let rows: Vec<_> = rows.chain(applications.iter().map(|one| row(one, &uses))).collect();
    args.output.print(&table(&rows), || {
        let all: Vec<_> = applications.iter().map(|one| one_json(one, &uses)).collect();
        json!({ "applications": all, "problems": super::super::problems_json(&problems) })
    });
    Ok(if problems.has_errors() { USER } else { 0 })
}

fn row(application: &Application, uses: &[Use]) -> [String; 6] {
    let description = &application.description;
    let kinds: Vec<_> = description.profiles.iter().map(|one| one.kind.as_str()).collect();
    let users = users(description, uses);
    [
        description.id.to_string(),
        description.version.clone(),
        description.name.clone(),
        vendors(description).join(", "),
        kinds.join(", "),
        if users.is_empty() { "-".to_owned() } else { users.join(", ") },
    ]
}

fn one_json(application: &Application, uses: &[Use]) -> Value {
    let description = &application.description;
    let profile = |one: &DeploymentProfile| json!({ "profile": one.id, "type": one.kind });
    json!({
        "application": description.id,
        "version": description.version,
        "name": description.name,
        "vendor": vendors(description),
        "folder": application.folder(),
        "profiles": description.profiles.iter().map(profile).collect::<Vec<_>>(),
        "usedBy": users(description, uses),
    })
}

/// The deployments that name it; by their files where their ids can't be read.
pub(super) fn users(description: &ApplicationDescription, uses: &[Use]) -> Vec<String> {
    let ours = uses.iter().filter(|one| one.is_of(description.id.as_str(), &description.version));
    ours.map(|one| one.deployment.clone().unwrap_or_else(|| one.file.clone())).collect()
}
