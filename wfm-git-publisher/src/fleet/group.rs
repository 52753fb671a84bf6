//! Groups in `fleet.yaml`: what holds for some devices, below what a deployment itself says.

use std::collections::BTreeMap;

use repo_model::ApplicationId;
use repo_model::yaml::Field;

use super::place::{Place, placed};
use super::policy::{self, Policy};
use super::selector::Selector;
use super::values::{Values, values};

/// Values and intervals that `fleet.yaml` sets for some devices.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Unique among the fleet's groups; explanations name it.
    pub name: String,
    pub when: Selector,
    /// What they do differently from the fleet.
    pub policy: Policy,
    /// The applications that the values are for; every one that has such parameters if absent.
    pub applications: Option<BTreeMap<ApplicationId, Place>>,
    /// Values for the deployments of those on those devices.
    pub parameters: Values,
}

impl Group {
    /// Whether the values are for deployments of this application.
    pub fn is_about(&self, application: &ApplicationId) -> bool {
        self.applications.as_ref().is_none_or(|only| only.contains_key(application))
    }

    pub(super) fn read_list(field: Field<'_>) -> Option<Vec<Self>> {
        let groups = field.clone().list(Self::read)?;
        let twice =
            groups.iter().enumerate().find(|(index, one)| groups[..*index].iter().any(|it| it.name == one.name));
        match twice {
            Some((_, group)) => field.fail(format!("has two groups named `{}`", group.name)),
            None => Some(groups),
        }
    }

    fn read(field: Field<'_>) -> Option<Self> {
        field.mapping(|reader| {
            let name = reader.required("name", |field| {
                let name = field.clone().string()?;
                if name.is_empty() { field.fail("must not be empty") } else { Some(name) }
            });
            let when = reader.required("when", Selector::read);
            let policy = reader.optional("policy", policy::read).unwrap_or_default();
            let applications = reader.optional("applications", |field| {
                let all: BTreeMap<_, _> = field.clone().list(placed)?.into_iter().collect();
                if all.is_empty() { field.fail("names no application") } else { Some(all) }
            });
            let parameters = reader.optional("parameters", values).unwrap_or_default();
            Some(Self { name: name?, when: when?, policy, applications, parameters })
        })
    }
}
