//! ApplicationDeployment: what a device shall run of one application.

use std::collections::BTreeMap;

use super::component::Component;
use super::header::Form;
use super::parameter::{Parameter, Target, check_unique};
use super::{Extensions, Header, ProfileType, Requirements};
use crate::problem::Problems;
use crate::value::{ParamValue, Strictness};
use crate::yaml::{self, Field, Reader};
use crate::{ApplicationId, DeploymentId, DeviceId};

pub(super) const FORM: Form = Form {
    versions: &["application.margo.org/v1alpha1"],
    kind: "ApplicationDeployment",
    of_2024: &["margo.org/v1-alpha1", "margo.deployment/v1"],
    lacks: "a deployment has neither `id` and `spec.applicationId` nor a name and namespace",
};

/// What a device shall run of one application (Margo, *ApplicationDeployment*).
#[derive(Debug, Clone, PartialEq)]
pub struct ApplicationDeployment {
    /// Which forms of the pre-draft the document has.
    pub dialect: Dialect,
    pub id: DeploymentId,
    /// The application that it is made from.
    pub application_id: ApplicationId,
    /// Name of the object in Kubernetes; shown to no one and no identity.
    pub name: String,
    /// Namespace of that object in Kubernetes.
    pub namespace: String,
    /// The device, or `<device>/*` for those behind a gateway; absent in the pre-draft.
    pub device_id: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// What runs the components.
    pub profile_type: ProfileType,
    /// What is applied, in this order; at least one.
    pub components: Vec<Component>,
    /// What the device must have, as written.
    pub device_constraints: Option<serde_json::Value>,
    /// The values and where they go.
    pub parameters: BTreeMap<String, Parameter>,
    /// Vendors' own keys on the profile.
    pub profile_extensions: Extensions,
    /// Vendors' own keys on `spec`.
    pub extensions: Extensions,
}

/// Which forms of the pre-draft a document has, field by field; none is `1.0.0-rc.3`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dialect {
    /// `apiVersion` and `kind`.
    pub header: bool,
    /// The deployment's id in `metadata.annotations`.
    pub annotated_id: bool,
    /// The application's id in `metadata.annotations`.
    pub annotated_application: bool,
    /// The type is `docker-compose` or `helm.v3`.
    pub old_type: bool,
}

impl Dialect {
    /// `1.0.0-rc.3`.
    pub const RC3: Self = Self { header: false, annotated_id: false, annotated_application: false, old_type: false };

    /// All forms of the pre-draft.
    pub const PRE_DRAFT: Self = Self { header: true, annotated_id: true, annotated_application: true, old_type: true };
}

impl ApplicationDeployment {
    /// Reads either dialect: the document with warnings, or all that is wrong with it.
    pub fn read(file: &str, bytes: &[u8]) -> Result<(Self, Problems), Problems> {
        let read = |field: Field<'_>| FORM.refuse_2024(&field).and_then(|()| field.mapping(document));
        yaml::read(file, bytes, Strictness::Vendor, read)
    }

    /// The document in its dialect. The bytes depend on nothing but the value.
    pub fn to_yaml(&self) -> Vec<u8> {
        yaml::to_yaml(self)
    }

    /// What the device must have, as far as the document says it (rc.3's `deviceConstraints`).
    ///
    /// # Errors
    /// What is wrong there. It is only read here, so that one deployment that a device can't judge is no more than that.
    pub fn requirements(&self) -> Result<Requirements, Problems> {
        self.device_constraints.as_ref().map_or(Ok(Requirements::default()), Requirements::of_constraints)
    }

    /// Whether both ask for the same, whatever their dialects.
    pub fn same_meaning(&self, other: &Self) -> bool {
        self.plain() == other.plain()
    }

    /// The document in the form that all have which ask for the same: equal bytes mean [`same_meaning`](Self::same_meaning).
    pub fn plain_yaml(&self) -> Vec<u8> {
        self.plain().to_yaml()
    }

    fn plain(&self) -> Self {
        let mut plain = Self { dialect: Dialect::RC3, ..self.clone() };
        for target in plain.parameters.values_mut().flat_map(|parameter| &mut parameter.targets) {
            target.pointer = target.place(self.profile_type).to_owned();
        }
        plain
    }
}

#[derive(Default)]
struct Metadata {
    id: Option<DeploymentId>,
    application_id: Option<ApplicationId>,
    name: String,
    namespace: String,
    device_id: Option<String>,
    labels: BTreeMap<String, String>,
}

struct Spec {
    application_id: Option<ApplicationId>,
    profile: Profile,
    parameters: BTreeMap<String, Parameter>,
    extensions: Extensions,
}

struct Profile {
    kind: ProfileType,
    old_type: bool,
    components: Vec<Component>,
    device_constraints: Option<serde_json::Value>,
    extensions: Extensions,
}

fn document(reader: &mut Reader<'_>) -> Option<ApplicationDeployment> {
    // The only header that is read: half of it means all of it.
    let header = FORM.read(reader) != Header::default();
    let id = reader.optional("id", Field::parse);
    let metadata = reader.required("metadata", |field| field.mapping(metadata));
    let spec = reader.required("spec", |field| field.mapping(spec));
    let (metadata, spec) = metadata.zip(spec)?;
    let id = either(reader, &["id"], "id", id, metadata.id);
    let application =
        either(reader, &["spec", "applicationId"], "applicationId", spec.application_id, metadata.application_id);
    let ((id, annotated_id), (application_id, annotated_application)) = id.zip(application)?;
    Some(ApplicationDeployment {
        dialect: Dialect { header, annotated_id, annotated_application, old_type: spec.profile.old_type },
        id,
        application_id,
        name: metadata.name,
        namespace: metadata.namespace,
        device_id: metadata.device_id,
        labels: metadata.labels,
        profile_type: spec.profile.kind,
        components: spec.profile.components,
        device_constraints: spec.profile.device_constraints,
        parameters: spec.parameters,
        profile_extensions: spec.profile.extensions,
        extensions: spec.extensions,
    })
}

/// An id that stands in its new place or among the annotations; the second value says that it is only there.
fn either<T: PartialEq>(
    reader: &Reader<'_>,
    path: &[&str],
    key: &str,
    new: Option<T>,
    annotated: Option<T>,
) -> Option<(T, bool)> {
    let field = reader.field();
    let there = |path: &[&str]| field.node().at(path).is_some();
    let problem = match (new, annotated) {
        (Some(new), Some(annotated)) if new != annotated => format!("differs from `metadata.annotations.{key}`"),
        (Some(new), _) => return Some((new, false)),
        (None, Some(annotated)) => return Some((annotated, true)),
        // What is there but wrong has been reported.
        (None, None) if there(path) || there(&["metadata", "annotations", key]) => return None,
        (None, None) => "is missing".to_owned(),
    };
    let problem = field.problem(problem).key(path.join("."));
    // Where the text of 2024 had both ids.
    let is_of_2024 = there(&["metadata", key]);
    let hint = "`metadata` has it in Margo's 2024 text: write the document as in 1.0.0-rc.3, or as in the pre-draft";
    field.report(if is_of_2024 { problem.hint(hint) } else { problem });
    None
}

fn metadata(reader: &mut Reader<'_>) -> Option<Metadata> {
    let annotations = reader.optional("annotations", |field| {
        field.mapping(|reader| {
            Some((reader.optional("id", Field::parse), reader.optional("applicationId", Field::parse)))
        })
    });
    let (id, application_id) = annotations.unwrap_or_default();
    let name = reader.required("name", name);
    let namespace = reader.required("namespace", namespace);
    let device_id = reader.optional("deviceId", device_id);
    let labels = reader.optional("labels", |field| field.entries(|_, field| field.string())).unwrap_or_default();
    Some(Metadata { id, application_id, name: name?, namespace: namespace?, device_id, labels })
}

fn name(field: Field<'_>) -> Option<String> {
    let text = field.clone().string()?;
    if text.is_empty() || text.len() > 253 || text.chars().any(char::is_control) {
        return field.fail("must be 1 to 253 characters without control characters");
    }
    Some(text)
}

/// Reads a namespace of Kubernetes: a DNS label.
pub fn namespace(field: Field<'_>) -> Option<String> {
    let text = field.clone().string()?;
    let is_inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let good =
        (1..=63).contains(&text.len()) && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-');
    if good { Some(text) } else { field.fail("must be 1 to 63 lower-case letters, digits and inner dashes") }
}

/// A device, or `<device>/*` (rc.3, *DeviceId_with_asterisk*).
fn device_id(field: Field<'_>) -> Option<String> {
    let text = field.clone().string()?;
    match text.strip_suffix("/*").unwrap_or(&text).parse::<DeviceId>() {
        Ok(_) => Some(text),
        Err(error) => field.fail(error.to_string()),
    }
}

fn spec(reader: &mut Reader<'_>) -> Option<Spec> {
    let extensions = reader.extensions();
    let application_id = reader.optional("applicationId", Field::parse);
    let profile = reader.required("deploymentProfile", |field| field.mapping(profile));
    let components: Vec<_> = profile
        .iter()
        .flat_map(|profile| profile.components.iter().map(|component| (profile.kind, component)))
        .collect();
    let parameters = match &profile {
        Some(profile) => {
            let parameters = reader.optional("parameters", |field| read_parameters(field, profile.kind, &components));
            parameters.unwrap_or_default()
        }
        // Without a profile every target would be wrong: one mistake, one message.
        None => {
            reader.ignore("parameters");
            BTreeMap::new()
        }
    };
    Some(Spec { application_id, profile: profile?, parameters, extensions })
}

fn profile(reader: &mut Reader<'_>) -> Option<Profile> {
    let extensions = reader.extensions();
    let kind = reader.required("type", ProfileType::read);
    let components = reader.required("components", |field| Component::read_list(field, kind.map(|(kind, _)| kind)));
    let device_constraints = reader.optional("deviceConstraints", Field::json);
    let ((kind, old_type), components) = kind.zip(components)?;
    Some(Profile { kind, old_type, components, device_constraints, extensions })
}

fn read_parameters(
    field: Field<'_>,
    kind: ProfileType,
    components: &[(ProfileType, &Component)],
) -> Option<BTreeMap<String, Parameter>> {
    let parameters = field.clone().entries(|_, field| {
        field.mapping(|reader| {
            let value = reader.required("value", ParamValue::read);
            let targets = reader.required("targets", |field| Target::read_list(field, components));
            Some(Parameter { value: value?, targets: targets? })
        })
    })?;
    let targets = parameters.iter().flat_map(|(name, p)| p.targets.iter().map(|target| (name.as_str(), target)));
    check_unique(&field, kind, targets)?;
    Some(parameters)
}
