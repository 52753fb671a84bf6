//! `fleet.yaml`: who the fleet is and what holds for all of its devices.

use std::collections::BTreeMap;

use repo_model::FleetId;
use repo_model::problem::{Problem, Problems};
use repo_model::value::ParamValue;
use repo_model::yaml::{Field, Reader};

use super::SETTINGS;
use super::file::{Role, SourceFile, decode, refuse_unbuilt};
use super::group::Group;
use super::guards::Guards;
use super::images::ImageSettings;
use super::policy::{self, Policy};
use super::rollout_policy::{self, RolloutRule};
use super::values::{Values, data, values};

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The fleet's identity, made once by `init` and never changed.
    pub id: FleetId,
    /// For people, and for templates as `fleet.name`.
    pub name: String,
    /// What devices do that say nothing else.
    pub policy: Policy,
    /// Values for every deployment whose application has a parameter of that name.
    pub defaults: Values,
    /// What holds for some devices, in order: the later wins.
    pub groups: Vec<Group>,
    /// What templates can name as `fleet.data.…`.
    pub data: BTreeMap<String, ParamValue>,
    /// How much may be removed at once.
    pub guards: Guards,
    pub images: ImageSettings,
    /// How changes reach devices where a deployment says nothing; at once where nothing is said.
    pub rollout: Option<RolloutRule>,
}

const UNBUILT: &[&str] = &["repositories", "signing", "operators", "registries"];

pub(super) fn read(files: &[&SourceFile], problems: &mut Problems) -> Option<Settings> {
    let Some(file) = files.iter().find(|file| Role::of(&file.path) == Some(Role::Settings)) else {
        let problem = Problem::error(SETTINGS, "is missing");
        problems.push(problem.hint("this isn't a fleet repository, or the commit has no fleet in it: see `init`"));
        return None;
    };
    decode::<FleetId, _>(file, problems, document).good()
}

fn document(reader: &mut Reader<'_>) -> Option<Settings> {
    let id = reader.required("id", Field::parse);
    let name = reader.required("name", name);
    let policy = reader.optional("policy", policy::read).unwrap_or_default();
    let defaults = reader.optional("defaults", defaults).unwrap_or_default();
    let groups = reader.optional("groups", Group::read_list).unwrap_or_default();
    let data = reader.optional("data", data).unwrap_or_default();
    let guards = reader.optional("guards", Guards::read).unwrap_or_default();
    let images = reader.optional("images", ImageSettings::read).unwrap_or_default();
    let rollout = reader.optional("rollout", rollout_policy::read);
    refuse_unbuilt(reader, UNBUILT);
    Some(Settings { id: id?, name: name?, policy, defaults, groups, data, guards, images, rollout })
}

fn defaults(field: Field<'_>) -> Option<Values> {
    field.mapping(|reader| reader.required("parameters", values))
}

fn name(field: Field<'_>) -> Option<String> {
    let text = field.clone().string()?;
    if text.is_empty() || text.len() > 100 || text.chars().any(char::is_control) {
        return field.fail("must be 1 to 100 characters without control characters");
    }
    Some(text)
}
