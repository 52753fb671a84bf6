//! What this device should run: the accepted documents, with the values that never leave the device put in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hmac::{Hmac, Mac};
use repo_model::desired::{Desired, Document};
use repo_model::envelope::{EnvelopeDeployment, STABILISE, ValueSource};
use repo_model::margo::helm_values::HelmValues;
use repo_model::margo::{self, Component, DeviceCapabilities, ProfileType, Source};
use repo_model::problem::Problems;
use repo_model::value::{Param, ParamValue, input_digest};
use repo_model::{ComponentName, DeploymentId, ErrorCode, IntoMap, IntoSet};
use sha2::Sha256;

use crate::decision::admission::Admission;
use crate::decision::component::{self, ImageLocks, Kind};
use crate::decision::deployment::{DesiredComponent, DesiredDeployment, Requirements, in_order};
use crate::decision::failure::Failure;
use crate::decision::restart::RestartsAsked;

/// How long an apply may take where the document doesn't say.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The most characters of a message about what a device lacks: it stays in `status` for ever.
const MAX_LACK: usize = 1000;

/// What only the device knows: what it has and can run, the values that stay on it, and the key under which they enter
/// digests.
pub struct DeviceValues<'a> {
    /// The types of profiles that have a runtime here.
    pub types: &'a BTreeSet<ProfileType>,
    /// What it reports of itself; absent while that isn't known.
    pub capabilities: Option<&'a DeviceCapabilities>,
    /// Reads a device file by its bare name; the failure never holds its contents.
    pub read: &'a dyn Fn(&str) -> Result<String, Failure>,
    /// Decrypts an armoured age file with the device's key; the failure never holds what is in it.
    pub decrypt: &'a dyn Fn(&str) -> Result<String, Failure>,
    /// 32 bytes that never leave the device: a digest tells nobody a value that only few could be.
    pub hmac_key: &'a [u8],
    /// Where the site lets packages come from.
    pub admission: &'a Admission,
    /// The most that a document's `timeout` counts for.
    pub max_timeout: Duration,
}

impl std::fmt::Debug for DeviceValues<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DeviceValues")
    }
}

/// Everything that the accepted state wants: deployments after those that they wait for, else in the order of the
/// operators' ids.
pub fn resolve(desired: &Desired, values: &DeviceValues<'_>) -> Vec<DesiredDeployment> {
    let mut all: Vec<_> = desired
        .deployments
        .iter()
        .filter_map(|(id, document)| {
            Some(resolve_deployment(*id, document, desired.envelope.deployments.get(id)?, values))
        })
        .collect();
    all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    in_order(all, |one| &one.name, |one| &one.depends_on)
}

/// One deployment, from its document and what goes with it.
pub(super) fn resolve_deployment(
    id: DeploymentId,
    document: &Document,
    envelope: &EnvelopeDeployment,
    values: &DeviceValues<'_>,
) -> DesiredDeployment {
    let deployment = &document.deployment;
    let component = |component: &Component| DesiredComponent {
        name: component.name.clone(),
        project: id.runtime_name(&component.name),
        input: input(id, component, document, envelope, values),
    };
    DesiredDeployment {
        id,
        name: envelope.id.clone(),
        title: deployment.name.clone(),
        document: document.bytes.clone(),
        suspended: envelope.policy.suspended,
        depends_on: envelope.policy.depends_on.clone(),
        requirements: requirements(document, envelope, values.capabilities),
        on_failure: envelope.policy.on_failure,
        stabilise: Duration::from_secs(envelope.policy.stabilise_seconds.unwrap_or(STABILISE)),
        drift: envelope.policy.drift,
        restarts: RestartsAsked { number: envelope.policy.restart, here: None },
        rolled_back: None,
        components: deployment.components.iter().map(component).collect(),
    }
}

/// Whether the device has what the profile asks for, judged by what it reports, as the publisher judges it.
fn requirements(
    document: &Document,
    envelope: &EnvelopeDeployment,
    device: Option<&DeviceCapabilities>,
) -> Requirements {
    let lack = |text: String| {
        Requirements::Unmet(Failure::new(ErrorCode::CapabilityMissing, text.chars().take(MAX_LACK).collect::<String>()))
    };
    let asked: Vec<_> = match required(document, envelope) {
        Ok(all) => all.into_iter().filter(|one| !one.is_empty()).collect(),
        Err(problems) => return lack(format!("what it asks of a device can't be judged here: {problems}")),
    };
    if asked.is_empty() {
        return Requirements::Met;
    }
    let Some(device) = device else { return Requirements::Unknown };
    let unmet: Vec<_> = asked.iter().flat_map(|one| one.unmet(device)).collect();
    if unmet.is_empty() { Requirements::Met } else { lack(unmet.join("; ")) }
}

/// rc.3's requirements stand in the document, and the pre-draft's in the envelope.
fn required(document: &Document, envelope: &EnvelopeDeployment) -> Result<[margo::Requirements; 2], Problems> {
    let resources = envelope.required_resources.as_ref().map(margo::Requirements::of_resources).transpose()?;
    Ok([document.deployment.requirements()?, resources.unwrap_or_default()])
}

fn input(
    id: DeploymentId,
    component: &Component,
    document: &Document,
    envelope: &EnvelopeDeployment,
    values: &DeviceValues<'_>,
) -> Result<component::Component, Failure> {
    let kind = document.deployment.profile_type;
    if !values.types.contains(&kind) {
        return Err(Failure::new(
            ErrorCode::CapabilityMissing,
            format!("this device has no runtime for {kind} components"),
        ));
    }
    let (repository, revision) = source(component);
    if let Some(denied) = values.admission.denied(kind, repository) {
        return Err(denied);
    }
    let locked = envelope.locks.get(&component.name).ok_or_else(|| {
        Failure::new(
            ErrorCode::ArtifactInvalid,
            format!("`envelope.json` has no lock for component `{}`", component.name),
        )
    })?;
    let parameters = parameters(&component.name, document, envelope, values)?;
    let namespace = (kind == ProfileType::Helm).then_some(document.deployment.namespace.as_str());
    let digest = |is_by_fleet: bool| {
        let param = |(place, value): (&String, &Value<'_>)| {
            let (tag, text) = if is_by_fleet { value.said_by_fleet() } else { value.digested() };
            Param { pointer: place.clone(), tag: tag.to_owned(), text: text.to_owned() }
        };
        let parameters: Vec<_> = parameters.iter().map(param).collect();
        input_digest(kind.as_str(), component.name.as_str(), namespace, locked.lock.content, &parameters)
    };
    let input_digest = digest(false);
    let has_file = parameters.values().any(|value| value.file.is_some());
    let fleet_digest = if has_file { digest(true) } else { input_digest };
    Ok(component::Component {
        deployment: id,
        deployment_name: envelope.id.clone(),
        component: component.name.clone(),
        project: id.runtime_name(&component.name),
        repository: repository.to_owned(),
        revision: revision.to_owned(),
        lock: Some(locked.lock),
        images: ImageLocks { published: locked.images.clone(), first_use: BTreeMap::new() },
        input_digest,
        fleet_digest,
        kind: match namespace {
            None => compose(parameters),
            Some(namespace) => helm(namespace, parameters)?,
        },
        wait: component.wait,
        timeout: component.timeout.unwrap_or(TIMEOUT).min(values.max_timeout),
    })
}

/// Where the package is: repository and revision; a URL has no revision.
fn source(component: &Component) -> (&str, &str) {
    match &component.source {
        Source::Oci { repository, revision } | Source::HelmRepo { repository, revision } => (repository, revision),
        // Its signature was checked when it was locked.
        Source::Https { package_location, key_location: _ } => (package_location, ""),
    }
}

/// A value as the component gets it, and as it enters the digest.
struct Value<'a> {
    value: ParamValue,
    tag: &'static str,
    digested: String,
    /// The name of the device's file that holds it.
    file: Option<&'a str>,
}

impl Value<'_> {
    /// How it enters the digest of what the component gets: a tag and a text.
    fn digested(&self) -> (&str, &str) {
        (self.tag, &self.digested)
    }

    /// How it enters the digest of what the fleet says of that.
    fn said_by_fleet(&self) -> (&str, &str) {
        self.file.map_or_else(|| self.digested(), |name| (FILE, name))
    }

    fn is_secret(&self) -> bool {
        self.tag == SECRET
    }
}

/// The tag of a value that only the device knows, wherever it has it from.
const SECRET: &str = "deviceFile";

/// The tag of the name of a device's file.
const FILE: &str = "deviceFileName";

fn compose(parameters: BTreeMap<String, Value<'_>>) -> Kind {
    let secrets = parameters.iter().filter(|(_, value)| value.is_secret()).map(|(name, _)| name.clone()).into_set();
    let parameters = parameters.into_iter().map(|(name, value)| (name, value.value.text())).into_map();
    Kind::Compose { parameters, secrets }
}

fn helm(namespace: &str, parameters: BTreeMap<String, Value<'_>>) -> Result<Kind, Failure> {
    let values = HelmValues::new(parameters.iter().map(|(pointer, value)| (pointer.as_str(), &value.value)));
    let values = values.map_err(|error| Failure::new(ErrorCode::ParameterInvalid, error.to_string()))?;
    let secrets = parameters.into_values().filter(Value::is_secret).map(|value| value.value.text()).collect();
    Ok(Kind::Helm { namespace: namespace.to_owned(), values, secrets })
}

/// Environment variable, or path into the chart's values → value, of everything that targets the component.
fn parameters<'a>(
    component: &ComponentName,
    document: &Document,
    envelope: &'a EnvelopeDeployment,
    values: &DeviceValues<'_>,
) -> Result<BTreeMap<String, Value<'a>>, Failure> {
    let kind = document.deployment.profile_type;
    let mut all = BTreeMap::new();
    let mut put = |parameter: &str, place: &str, value: Value<'a>| match all.insert(place.to_owned(), value) {
        None => Ok(()),
        Some(_) => {
            let text = format!("parameter `{parameter}`: `{place}` is set by another parameter too");
            Err(Failure::new(ErrorCode::ParameterInvalid, text))
        }
    };
    for (name, parameter) in &document.deployment.parameters {
        for target in parameter.targets.iter().filter(|target| target.components.contains(component)) {
            let (value, tag) = (parameter.value.clone(), parameter.value.type_tag());
            put(name, target.place(kind), Value { digested: value.text(), value, tag, file: None })?;
        }
    }
    for (name, from) in &envelope.values_from {
        for target in from.targets.iter().filter(|target| target.components.contains(component)) {
            let text = secret(name, &from.source, values)?;
            let digested = keyed_digest(values.hmac_key, &text);
            let file = match &from.source {
                ValueSource::DeviceFile(name) => Some(name.as_str()),
                ValueSource::Encrypted(_) => None,
            };
            put(name, target.place(kind), Value { value: ParamValue::String(text), tag: SECRET, digested, file })?;
        }
    }
    Ok(all)
}

fn secret(parameter: &str, source: &ValueSource, values: &DeviceValues<'_>) -> Result<String, Failure> {
    match source {
        ValueSource::DeviceFile(name) => (values.read)(name),
        ValueSource::Encrypted(text) => (values.decrypt)(text).map_err(|failure| {
            Failure::new(failure.code, format!("parameter `{parameter}`: its encrypted value: {}", failure.message))
        }),
    }
}

/// Digests reach Git, so a value that must not is told apart under a key that never leaves the device.
fn keyed_digest(key: &[u8], value: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(value.as_bytes());
    let bytes = mac.finalize().into_bytes();
    format!("hmac-sha256:{}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

#[cfg(test)]
mod tests;
