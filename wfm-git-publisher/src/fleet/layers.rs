//! Where a parameter's value comes from: the layers that may say it, the strongest first.

use std::fmt;

use super::values::{Given, Values};
use super::{Deployment, Device, Fleet};

/// Where a value is set, from the strongest to the weakest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule<'a> {
    /// The deployment's override with this number, from 0.
    Override(usize),
    Deployment,
    /// The fleet's group of this name.
    Group(&'a str),
    Fleet,
    Package,
}

impl fmt::Display for Rule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Override(index) => write!(f, "overrides[{index}] of the deployment"),
            Self::Deployment => f.write_str("the deployment's parameters"),
            Self::Group(name) => write!(f, "the fleet's group `{name}`"),
            Self::Fleet => f.write_str("the fleet's defaults"),
            Self::Package => f.write_str("the package's default"),
        }
    }
}

/// The values that hold for one deployment on one device, layer by layer.
#[derive(Debug, Clone)]
pub struct Layers<'a> {
    layers: Vec<(Rule<'a>, &'a Values)>,
}

impl Fleet {
    /// What says values for a deployment on a device: its overrides, the later first, its own parameters, the groups,
    /// the later first, and the fleet's defaults.
    pub fn layers<'a>(&'a self, deployment: &'a Deployment, device: &Device) -> Layers<'a> {
        let application = &deployment.application.description.id;
        let overrides = deployment.overrides.iter().enumerate().rev();
        let overrides = overrides.filter(|(_, one)| one.when.selects(device));
        let groups =
            self.settings.groups.iter().rev().filter(|group| group.when.selects(device) && group.is_about(application));
        let layers = overrides
            .map(|(index, one)| (Rule::Override(index), &one.parameters))
            .chain([(Rule::Deployment, &deployment.parameters)])
            .chain(groups.map(|group| (Rule::Group(&group.name), &group.parameters)))
            .chain([(Rule::Fleet, &self.settings.defaults)]);
        Layers { layers: layers.filter(|(_, values)| !values.is_empty()).collect() }
    }
}

impl<'a> Layers<'a> {
    /// Every value that is given to a parameter, the strongest first; the first one counts.
    pub fn of<'n>(&self, name: &'n str) -> impl Iterator<Item = (Rule<'a>, &'a Given)> + use<'_, 'a, 'n> {
        self.layers.iter().filter_map(move |(rule, values)| Some((*rule, values.get(name)?)))
    }
}
