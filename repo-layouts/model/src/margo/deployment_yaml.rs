//! How an ApplicationDeployment is written: the order of its keys, in its dialect.

use std::collections::BTreeMap;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::ApplicationDeployment;
use super::deployment::FORM;

impl Serialize for ApplicationDeployment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if self.dialect.header {
            FORM.write(&FORM.pre_draft(), &mut map)?;
        }
        if !self.dialect.annotated_id {
            map.serialize_entry("id", &self.id)?;
        }
        map.serialize_entry("metadata", &MetadataOut(self))?;
        map.serialize_entry("spec", &SpecOut(self))?;
        map.end()
    }
}

struct MetadataOut<'a>(&'a ApplicationDeployment);

impl Serialize for MetadataOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(deployment) = self;
        let mut annotations = BTreeMap::new();
        if deployment.dialect.annotated_application {
            annotations.insert("applicationId", deployment.application_id.to_string());
        }
        if deployment.dialect.annotated_id {
            annotations.insert("id", deployment.id.to_string());
        }
        let mut map = serializer.serialize_map(None)?;
        if !annotations.is_empty() {
            map.serialize_entry("annotations", &annotations)?;
        }
        map.serialize_entry("name", &deployment.name)?;
        map.serialize_entry("namespace", &deployment.namespace)?;
        if let Some(device_id) = &deployment.device_id {
            map.serialize_entry("deviceId", device_id)?;
        }
        if !deployment.labels.is_empty() {
            map.serialize_entry("labels", &deployment.labels)?;
        }
        map.end()
    }
}

struct SpecOut<'a>(&'a ApplicationDeployment);

impl Serialize for SpecOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(deployment) = self;
        let mut map = serializer.serialize_map(None)?;
        if !deployment.dialect.annotated_application {
            map.serialize_entry("applicationId", &deployment.application_id)?;
        }
        map.serialize_entry("deploymentProfile", &ProfileOut(deployment))?;
        if !deployment.parameters.is_empty() {
            map.serialize_entry("parameters", &deployment.parameters)?;
        }
        for (key, value) in &deployment.extensions {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

struct ProfileOut<'a>(&'a ApplicationDeployment);

impl Serialize for ProfileOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(deployment) = self;
        let kind = deployment.profile_type;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", if deployment.dialect.old_type { kind.old_name() } else { kind.as_str() })?;
        map.serialize_entry("components", &deployment.components)?;
        if let Some(constraints) = &deployment.device_constraints {
            map.serialize_entry("deviceConstraints", constraints)?;
        }
        for (key, value) in &deployment.profile_extensions {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}
