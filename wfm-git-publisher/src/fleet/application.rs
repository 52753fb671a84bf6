//! Application packages: found by what their `margo.yaml` says they are, which their path must repeat.

use std::collections::BTreeMap;
use std::sync::Arc;

use repo_model::ApplicationId;
use repo_model::margo::configuration::Schema;
use repo_model::margo::description::DeploymentProfile;
use repo_model::margo::{ApplicationDescription, ProfileType, Target};
use repo_model::problem::{Problem, Problems};
use repo_model::value::ParamValue;
use repo_model::yaml::{Limits, Node, Span, parse};

use super::file::SourceFile;
use super::place::Place;
use super::schema::{Breach, ValueRule};

/// The file of a package that describes it.
pub const MARGO_YAML: &str = "margo.yaml";

/// A package in `applications/`, which deployments share.
#[derive(Debug, Clone, PartialEq)]
pub struct Application {
    /// The path of its `margo.yaml` in the fleet repository.
    pub file: String,
    /// Margo's ApplicationDescription.
    pub description: ApplicationDescription,
    /// The rules for its parameters' values, by parameter.
    pub rules: BTreeMap<String, Rule>,
    /// Its profiles, in the vendor's order.
    pub profiles: Vec<Profile>,
    places: BTreeMap<String, Place>,
    pointers: BTreeMap<(String, String), Place>,
}

/// What an operator's value of a parameter has to follow.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Whether it can't change once installed.
    pub immutable: bool,
    /// The same for all parameters that name it.
    values: Arc<ValueRule>,
}

impl Rule {
    /// As the vendor wrote it.
    pub fn schema(&self) -> &Schema {
        &self.values.schema
    }

    /// Where it stands in the package's `margo.yaml`.
    pub fn place(&self) -> &Place {
        &self.values.place
    }

    /// Checks a value against it.
    pub(crate) fn check(&self, value: &ParamValue) -> Result<(), Breach> {
        self.values.check(value)
    }

    /// Why its pattern isn't applied, if it isn't.
    pub(super) fn doubt(&self) -> Option<Problem> {
        self.values.doubt()
    }
}

/// A profile of a package, with what is needed to render it.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// As the vendor wrote it.
    pub description: DeploymentProfile,
    /// The parameters that it uses, with the places in it where their values go, in the one spelling that is written.
    pub parameters: BTreeMap<String, Vec<Target>>,
    /// Where the profile begins in `margo.yaml`.
    pub place: Place,
}

impl Application {
    /// Id and version, by which deployments name it.
    pub fn key(&self) -> (ApplicationId, String) {
        (self.description.id.clone(), self.description.version.clone())
    }

    /// The profiles that devices of this fleet may run.
    pub fn deployable(&self) -> impl Iterator<Item = &Profile> {
        self.profiles.iter().filter(|profile| profile.is_deployable())
    }

    /// The first profile with this id.
    pub fn profile(&self, id: &str) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.description.id == id)
    }

    /// Where the default of a parameter stands.
    pub fn default_place(&self, parameter: &str) -> Option<&Place> {
        self.places.get(parameter)
    }

    /// Where the pointer of a parameter's target stands.
    pub fn pointer_place(&self, parameter: &str, target: &Target) -> Option<&Place> {
        self.pointers.get(&(parameter.to_owned(), target.pointer.clone()))
    }

    /// A rule each of those that several parameters name, in the order of the file.
    pub(super) fn distinct_rules(&self) -> impl Iterator<Item = &Rule> {
        let rules: BTreeMap<_, _> = self.rules.values().map(|rule| (rule.place(), rule)).collect();
        rules.into_values()
    }

    /// Its folder in the fleet repository.
    pub fn folder(&self) -> String {
        format!("applications/{}/{}", self.description.id, self.description.version)
    }

    /// Reads a package's `margo.yaml`. A broken one breaks the deployments that name it, and nothing else.
    pub(super) fn read(file: &SourceFile, problems: &mut Problems) -> Option<Self> {
        let before = problems.errors().count();
        let application = Self::read_anywhere(&file.path, file.bytes(problems)?, problems)?;
        let expected = format!("{}/{MARGO_YAML}", application.folder());
        if file.path != expected {
            let (id, version) = application.key();
            let problem = Problem::error(&file.path, format!("describes {id} {version}"));
            problems.push(problem.hint(format!("move it to {expected}, or correct its id and version")));
        }
        (problems.errors().count() == before).then_some(application)
    }

    /// The same of a `margo.yaml` that may lie anywhere.
    pub(super) fn read_anywhere(file: &str, bytes: &[u8], problems: &mut Problems) -> Option<Self> {
        let description = match ApplicationDescription::read(file, bytes) {
            Ok((description, warnings)) => {
                problems.extend(warnings);
                description
            }
            Err(found) => {
                problems.extend(found);
                return None;
            }
        };
        let node = parse(file, bytes, &Limits::VENDOR).ok()?;
        let application = Self::prepare(file, description, &node);
        problems.extend(application.distinct_rules().filter_map(|rule| rule.values.problem()));
        Some(application)
    }

    fn prepare(file: &str, description: ApplicationDescription, node: &Node) -> Self {
        let place = |span: Span, key: String| {
            let number = |number| u32::try_from(number).unwrap_or(u32::MAX);
            Place { file: file.to_owned(), line: number(span.line), column: number(span.column), key }
        };
        let names = description.parameters.keys();
        let places = names.filter_map(|name| {
            let found = node.at(&["parameters", name, "value"]).or_else(|| node.at(&["parameters", name]))?;
            Some((name.clone(), place(found.span, format!("parameters.{name}.value"))))
        });
        let targets = description
            .parameters
            .iter()
            .flat_map(|(name, one)| one.targets.iter().enumerate().map(move |(index, target)| (name, index, target)));
        let pointers = targets.filter_map(|(name, index, target)| {
            let found = node.at(&["parameters", name, "targets"])?.item(index)?.get("pointer")?;
            let key = format!("parameters.{name}.targets[{index}].pointer");
            Some(((name.clone(), target.pointer.clone()), place(found.span, key)))
        });
        let configuration = description.configuration.iter();
        let settings = configuration.flat_map(|one| one.sections.iter().flat_map(|section| &section.settings));
        let schemas = description.configuration.iter().flat_map(|one| one.schemas.iter().enumerate());
        let schemas: BTreeMap<_, _> = schemas
            .map(|(index, schema)| {
                let span =
                    node.at(&["configuration", "schema"]).and_then(|list| list.item(index)).map(|node| node.span);
                let place = place(span.unwrap_or(node.span), format!("configuration.schema[{index}]"));
                (schema.name.as_str(), Arc::new(ValueRule::new(schema.clone(), place)))
            })
            .collect();
        let mut rules = BTreeMap::<String, Rule>::new();
        for setting in settings {
            let Some(values) = schemas.get(setting.schema.as_str()) else { continue };
            let rule = Rule { immutable: setting.immutable, values: Arc::clone(values) };
            // Of two settings of one parameter the first one's rule counts.
            rules
                .entry(setting.parameter.clone())
                .and_modify(|rule| rule.immutable = setting.immutable)
                .or_insert(rule);
        }
        let profile = |(index, profile): (usize, &DeploymentProfile)| {
            let key = format!("deploymentProfiles[{index}]");
            let span = node.at(&["deploymentProfiles"]).and_then(|list| list.item(index)).map(|node| node.span);
            Profile::new(profile, &description, place(span.unwrap_or(node.span), key))
        };
        let profiles = description.profiles.iter().enumerate().map(profile).collect();
        let (places, pointers) = (places.collect(), pointers.collect());
        Self { file: file.to_owned(), rules, profiles, places, pointers, description }
    }
}

impl Profile {
    /// Whether devices of this fleet may run it: what a `custom` one is, only its vendors know.
    pub fn is_deployable(&self) -> bool {
        self.description.kind != ProfileType::Custom
    }

    fn new(profile: &DeploymentProfile, description: &ApplicationDescription, place: Place) -> Self {
        let parameters = description.parameters.iter().map(|(name, definition)| {
            let targets = definition.targets_in(profile).into_iter();
            let written = |target: Target| Target { pointer: target.place(profile.kind).to_owned(), ..target };
            (name.clone(), targets.map(written).collect::<Vec<_>>())
        });
        let parameters = parameters.filter(|(_, targets)| !targets.is_empty()).collect();
        Self { description: profile.clone(), parameters, place }
    }
}
