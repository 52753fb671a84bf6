//! Plain things for the core's unit tests.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use repo_model::envelope::{DriftPolicy, OnFailure};
use repo_model::margo::ProfileType;
use repo_model::{ComponentName, DeploymentId, DeploymentName, Digest, FleetId};

use crate::decision::component::{Component, Kind};
use crate::decision::deployment::{DesiredComponent, DesiredDeployment, Requirements};
use crate::decision::failure::Failure;
use crate::decision::observation::{Condition, Observed};
use crate::decision::restart::RestartsAsked;

pub(crate) fn fleet() -> FleetId {
    "5d3f7d5e-7a3a-4c3a-9a57-1c1f6a3f9f10".parse().unwrap()
}

/// The deploymentId of the operator's `name`.
pub(crate) fn id(name: &str) -> DeploymentId {
    let name: DeploymentName = name.parse().unwrap();
    DeploymentId::derive(fleet(), &name, &"press-01".parse().unwrap())
}

pub(crate) fn component(name: &str) -> ComponentName {
    name.parse().unwrap()
}

pub(crate) fn project(deployment: &str, name: &str) -> String {
    id(deployment).runtime_name(&component(name))
}

/// What keys an apply of that version.
pub(crate) fn input_digest(deployment: &str, name: &str, version: &str) -> Digest {
    Digest::of(format!("{deployment}/{name} {version}").as_bytes())
}

/// A deployment of components in their versions; a version that begins with `!` can't run here, for that reason, and what
/// follows a `+` is of the device's own files.
pub(crate) fn wanted(name: &str, components: &[(&str, &str)]) -> DesiredDeployment {
    DesiredDeployment {
        id: id(name),
        name: name.parse().unwrap(),
        title: format!("{name}'s title"),
        document: format!("{name} {components:?}").into_bytes(),
        suspended: false,
        depends_on: Vec::new(),
        requirements: Requirements::Met,
        on_failure: OnFailure::Hold,
        stabilise: Duration::from_secs(300),
        drift: DriftPolicy::Heal,
        restarts: RestartsAsked::default(),
        rolled_back: None,
        components: components.iter().map(|(part, version)| wanted_component(name, part, version)).collect(),
    }
}

fn wanted_component(deployment: &str, name: &str, version: &str) -> DesiredComponent {
    let input = Component {
        deployment: id(deployment),
        deployment_name: deployment.parse().unwrap(),
        component: component(name),
        project: project(deployment, name),
        repository: "oci://registry.invalid/app".to_owned(),
        revision: version.to_owned(),
        lock: None,
        images: Default::default(),
        kind: Kind::Compose { parameters: BTreeMap::new(), secrets: BTreeSet::new() },
        input_digest: input_digest(deployment, name, version),
        fleet_digest: input_digest(deployment, name, version.split('+').next().unwrap_or_default()),
        wait: true,
        timeout: Duration::from_secs(1),
    };
    let input = match version.strip_prefix('!') {
        Some(code) => Err(Failure::new(code, "can't run here")),
        None => Ok(input),
    };
    DesiredComponent { name: component(name), project: project(deployment, name), input }
}

/// A project as the runtime finds it; without a digest it is half made.
pub(crate) fn observed(deployment: &str, name: &str, digest: Option<Digest>, condition: Condition) -> Observed {
    Observed {
        kind: ProfileType::Compose,
        project: project(deployment, name),
        deployment: Some(id(deployment)),
        component: Some(component(name)),
        input_digest: digest,
        condition,
        violation: None,
        services: BTreeMap::new(),
    }
}

/// Up to three deployments `a`, `b`, `c` of up to three components `x`, `y`, `z`, some of which can't run here.
pub(crate) fn any_wanted() -> impl Strategy<Value = Vec<DesiredDeployment>> {
    let version = prop::sample::select(vec!["1", "2", "3", "!capability-missing"]);
    let components = prop::collection::btree_map(prop::sample::select(vec!["x", "y", "z"]), version, 0..4);
    prop::collection::btree_map(prop::sample::select(vec!["a", "b", "c"]), components, 0..4).prop_map(|all| {
        let parts = |parts: BTreeMap<&'static str, &'static str>| parts.into_iter().collect::<Vec<_>>();
        all.into_iter().map(|(name, components)| wanted(name, &parts(components))).collect()
    })
}
