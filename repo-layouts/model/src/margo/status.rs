//! DeploymentStatus: how far a device is with one deployment.

use std::fmt;

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

use super::ReportedCode;
use super::header::{Form, Header};
use crate::json::MAX_INTEGER;
use crate::problem::Problems;
use crate::yaml::{self, Field, Reader};
use crate::{ComponentName, DeploymentId, DeviceId, json};

/// rc.3 has no header; `apiVersion: v1` is met in examples of it.
const FORM: Form = Form {
    versions: &["deployment.margo.org/v1alpha1", "v1"],
    kind: "DeploymentStatusManifest",
    of_2024: &["deployment.margo/v1"],
    lacks: "a status has neither `adoptedManifestVersion` nor `error.source`",
};

/// The state of a component or deployment, ordered by severity: the greater is the more severe (Margo,
/// *DeploymentStatus*).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It was applied as the adopted state has it, and not merely as one before.
    Installed,
    /// It was removed from the device.
    Removed,
    /// It waits, for the reason given.
    Pending,
    /// It is being applied.
    Installing,
    /// It is being removed.
    Removing,
    /// It could not be done.
    Failed,
}

impl State {
    /// All of them with their words in Margo's documents, by severity.
    pub const ALL: [(&'static str, Self); 6] = [
        ("installed", Self::Installed),
        ("removed", Self::Removed),
        ("pending", Self::Pending),
        ("installing", Self::Installing),
        ("removing", Self::Removing),
        ("failed", Self::Failed),
    ];

    /// The word in Margo's documents.
    pub fn as_str(self) -> &'static str {
        Self::ALL[self as usize].0
    }

    /// The state of a word in Margo's documents.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(word, _)| *word == text).map(|(_, state)| state)
    }

    /// The state of a deployment whose components are in these states: the most severe; `installed` if there are none.
    pub fn overall(components: impl IntoIterator<Item = Self>) -> Self {
        components.into_iter().max().unwrap_or(Self::Installed)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How far a device is with one deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentStatus {
    pub deployment_id: DeploymentId,
    /// The device, if it says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_id: Option<DeviceId>,
    /// The version of the newest State Manifest that the device adopted; the pre-draft has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adopted_manifest_version: Option<u64>,
    pub status: Status,
    /// One entry for each component, always.
    pub components: Vec<ComponentStatus>,
    #[serde(flatten, serialize_with = "write_header")]
    pub header: Header,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The most severe of the components'.
    pub state: State,
    /// Why, if it failed or waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<StatusError>,
}

/// The state of one component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ComponentStatus {
    pub name: ComponentName,
    pub state: State,
    /// Why, if it failed or waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<StatusError>,
}

/// Why something failed or waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusError {
    pub code: ReportedCode,
    /// The component, or `metadata.name` of the deployment for the overall state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// For a person to read; programs use the code.
    pub message: String,
}

fn write_header<S: serde::Serializer>(header: &Header, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    FORM.write(header, &mut map)?;
    map.end()
}

impl DeploymentStatus {
    /// Reads either dialect. An error with neither code nor message is none.
    pub fn read(file: &str, bytes: &[u8]) -> Result<Self, Problems> {
        let read = |field: Field<'_>| FORM.refuse_2024(&field).and_then(|()| field.mapping(document));
        yaml::read_json(file, bytes, read).map(|(status, _)| status)
    }

    /// The bytes that are written: RFC 8785 and a final newline.
    pub fn to_bytes(&self) -> Vec<u8> {
        json::to_bytes(self)
    }
}

fn document(reader: &mut Reader<'_>) -> Option<DeploymentStatus> {
    let header = FORM.read(reader);
    let deployment_id = reader.required("deploymentId", Field::parse);
    let device_id = reader.optional("deviceId", Field::parse);
    let adopted_manifest_version = reader.optional("adoptedManifestVersion", |field| {
        let version = field.clone().integer()?;
        if version <= MAX_INTEGER { Some(version) } else { field.fail("is above 2^53-1, which no device adopts") }
    });
    let status = reader.required("status", |field| {
        field.mapping(|reader| {
            let (state, error) = state_and_error(reader);
            Some(Status { state: state?, error })
        })
    });
    let components = reader.required("components", |field| field.list(|field| field.mapping(component)));
    let (deployment_id, status) = (deployment_id?, status?);
    Some(DeploymentStatus {
        deployment_id,
        device_id,
        adopted_manifest_version,
        status,
        components: components?,
        header,
    })
}

fn component(reader: &mut Reader<'_>) -> Option<ComponentStatus> {
    let name = reader.required("name", Field::parse);
    let (state, error) = state_and_error(reader);
    Some(ComponentStatus { name: name?, state: state?, error })
}

fn state_and_error(reader: &mut Reader<'_>) -> (Option<State>, Option<StatusError>) {
    let state = reader.required("state", |field| field.choice(&State::ALL));
    let error = reader.optional("error", |field| field.mapping(error)).flatten();
    (state, error)
}

fn error(reader: &mut Reader<'_>) -> Option<Option<StatusError>> {
    let code = reader.optional("code", Field::string).unwrap_or_default();
    let source = reader.optional("source", Field::string).filter(|source| !source.is_empty());
    let message = reader.optional("message", Field::string).unwrap_or_default();
    let none = code.is_empty() && message.is_empty();
    Some((!none).then(|| StatusError { code: code.into(), source, message }))
}
