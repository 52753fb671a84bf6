//! `app show`.

use std::fmt::Write;

use repo_model::margo::Component;
use repo_model::margo::description::DeploymentProfile;
use repo_model::text;
use serde_json::{Value, json};

use super::super::{OutputArgs, Place, table, threads};
use super::add::{files_json, size};
use super::list::users;
use crate::error::Failure;
use crate::fleet::{Application, Package, ParameterRule, licence, resources, uses, vendors};
use crate::operator::app::{Got, Version, of_fleet};
use crate::plan::{parameter_rules, parameter_type, shown_component};

/// Shows what an application package offers: profiles and what they ask of a device, parameters, licence, files
///
///   wfm-git-publisher app show hello            (its newest version)
///   wfm-git-publisher app show hello@1.0.0
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct ShowArgs {
    /// An application of the fleet, `APP` or `APP@VERSION`
    #[arg(value_name = "APP[@VERSION]")]
    package: Version,

    /// The commit of the fleet
    #[arg(long, default_value = "HEAD")]
    rev: String,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(place: &Place, args: &ShowArgs) -> Result<u8, Failure> {
    let source = place.source()?;
    let commit = source.resolve(&args.rev)?;
    let Got { package, from, .. } = of_fleet(&args.package, &source, commit)?;
    let (application, _) =
        package.read(&from).map_err(|problems| Failure::new(format!("`{from}` can't be used")).problems(&problems))?;
    let users = users(&application.description, &uses(&source.files_on(commit, threads())?));
    let text = to_text(&application, &package, &users);
    args.output.print(&text, || to_json(&application, &package, &users));
    Ok(0)
}

fn to_text(application: &Application, package: &Package, users: &[String]) -> String {
    let description = &application.description;
    let line = |text: &str| text::line(text);
    let mut page = format!("{} {}: {}\n", description.id, line(&description.version), line(&description.name));
    if let Some(about) = &description.description {
        let _ = writeln!(page, "  {}", line(about));
    }
    let or_none = |all: String| if all.is_empty() { "-".to_owned() } else { line(&all) };
    let _ = writeln!(page, "  vendor:  {}", or_none(vendors(description).join(", ")));
    let _ = writeln!(page, "  licence: {}", or_none(licence(description).unwrap_or_default().to_owned()));
    let _ = writeln!(page, "  used by: {}", or_none(users.join(", ")));
    let _ = writeln!(page, "  folder:  {} ({})", application.folder(), size(package));
    for profile in &description.profiles {
        let _ = writeln!(page, "\nprofile {} ({})", line(&profile.id), profile.kind);
        for component in &profile.components {
            let _ = writeln!(page, "  component {}: {}", component.name, line(&shown_component(component)));
        }
        for need in needs(profile) {
            let _ = writeln!(page, "  needs {}", line(&need));
        }
    }
    if !description.parameters.is_empty() {
        let rows = std::iter::once(["PARAMETER", "TYPE", "DEFAULT", "RULES"].map(str::to_owned));
        let rows: Vec<_> = rows.chain(parameters(application).map(|one| one.row())).collect();
        let _ = write!(page, "\n{}", table(&rows));
    }
    page
}

fn needs(profile: &DeploymentProfile) -> Vec<String> {
    profile.requirements.iter().flat_map(|one| one.needs()).collect()
}

/// What is shown of a parameter.
struct Parameter<'a> {
    application: &'a Application,
    name: &'a str,
}

fn parameters(application: &Application) -> impl Iterator<Item = Parameter<'_>> {
    application.description.parameters.keys().map(move |name| Parameter { application, name })
}

impl Parameter<'_> {
    fn is_immutable(&self) -> bool {
        self.application.rules.get(self.name).is_some_and(|rule| rule.immutable)
    }

    fn default(&self) -> Option<Value> {
        let default = self.application.description.parameters.get(self.name)?.default.as_ref()?;
        serde_json::to_value(default).ok()
    }

    fn row(&self) -> [String; 4] {
        let immutable = self.is_immutable().then(|| "immutable".to_owned());
        let rules: Vec<_> = immutable.into_iter().chain(parameter_rules(self.application, self.name)).collect();
        let default = self.default().map_or_else(|| "-".to_owned(), |value| value.to_string());
        [self.name.to_owned(), parameter_type(self.application, self.name), default, rules.join(", ")]
    }

    fn json(&self) -> Value {
        json!({
            "parameter": self.name,
            "type": parameter_type(self.application, self.name),
            "default": self.default(),
            "immutable": self.is_immutable(),
            "rule": self.application.rules.get(self.name).map(ParameterRule::schema),
        })
    }
}

fn to_json(application: &Application, package: &Package, users: &[String]) -> Value {
    let description = &application.description;
    let component = |one: &Component| json!({ "component": one.name, "source": shown_component(one) });
    let profile = |one: &DeploymentProfile| {
        json!({
            "profile": one.id,
            "type": one.kind,
            "description": one.description,
            "components": one.components.iter().map(component).collect::<Vec<_>>(),
            "needs": needs(one),
            "deviceConstraints": one.device_constraints,
            "requiredResources": one.required_resources,
        })
    };
    let resources: serde_json::Map<_, _> = resources(description).map(|(key, path)| (key, Value::from(path))).collect();
    json!({
        "application": description.id,
        "version": description.version,
        "name": description.name,
        "description": description.description,
        "vendor": vendors(description),
        "licence": licence(description),
        "resources": resources,
        "folder": application.folder(),
        "profiles": description.profiles.iter().map(profile).collect::<Vec<_>>(),
        "parameters": parameters(application).map(|one| one.json()).collect::<Vec<_>>(),
        "files": files_json(package),
        "usedBy": users,
    })
}
