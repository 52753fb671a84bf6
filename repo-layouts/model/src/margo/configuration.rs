//! Configuration of an ApplicationDescription: how parameters are shown to a person and what values they may have.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::IntoSet;
use crate::value::ParamValue;
use crate::yaml::{Field, Reader};

/// How parameters are shown and checked (Margo, *Configuration*).
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Configuration {
    /// The sections, in the order in which they are shown.
    pub sections: Vec<Section>,
    /// The rules that settings name.
    #[serde(rename = "schema")]
    pub schemas: Vec<Schema>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Section {
    pub name: String,
    pub settings: Vec<Setting>,
}

/// How one parameter is shown and which rule it follows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setting {
    pub parameter: String,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether it can't change once installed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub immutable: bool,
    pub schema: String,
}

/// The type that a value must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataType {
    /// The type of the value or of its items.
    pub item: ItemType,
    /// Whether it is a list: `array[…]`.
    pub array: bool,
}

/// The type of a single value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemType {
    String,
    Integer,
    Double,
    Boolean,
}

/// A rule for values (Margo, *Schema*). The rules themselves are applied by whoever gives the values: [`DataType::fits`]
/// answers for the type, the fields hold the rest.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Schema {
    /// The name by which `configuration` refers to it.
    pub name: String,
    pub data_type: DataType,
    /// Whether there may be no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_empty: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_length: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_length: Option<u64>,
    /// A regular expression, as written and not anchored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regex_match: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_value: Option<ParamValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_value: Option<ParamValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_precision: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_precision: Option<u64>,
    /// Whether several options may be chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multiselect: Option<bool>,
    /// The only values allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<Vec<ParamValue>>,
}

const DATA_TYPES: [(&str, DataType); 8] = [
    ("string", DataType { item: ItemType::String, array: false }),
    ("integer", DataType { item: ItemType::Integer, array: false }),
    ("double", DataType { item: ItemType::Double, array: false }),
    ("boolean", DataType { item: ItemType::Boolean, array: false }),
    ("array[string]", DataType { item: ItemType::String, array: true }),
    ("array[integer]", DataType { item: ItemType::Integer, array: true }),
    ("array[double]", DataType { item: ItemType::Double, array: true }),
    ("array[boolean]", DataType { item: ItemType::Boolean, array: true }),
];

impl Serialize for DataType {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let name = DATA_TYPES.iter().find(|(_, data_type)| data_type == self).map(|(name, _)| *name);
        serializer.serialize_str(name.unwrap_or_default())
    }
}

impl DataType {
    /// Whether the value has this type; an integer is also a double.
    pub fn fits(&self, value: &ParamValue) -> bool {
        match (self.array, value) {
            (true, ParamValue::Array(items)) => items.iter().all(|item| self.item.fits(item)),
            (false, value) => self.item.fits(value),
            _ => false,
        }
    }
}

impl ItemType {
    fn fits(self, value: &ParamValue) -> bool {
        matches!(
            (self, value),
            (Self::String, ParamValue::String(_))
                | (Self::Integer, ParamValue::Integer(_))
                | (Self::Double, ParamValue::Double(_) | ParamValue::Integer(_))
                | (Self::Boolean, ParamValue::Boolean(_))
        )
    }
}

impl Configuration {
    /// Reads the configuration; settings must name one of `parameters` and a schema that is there.
    pub(super) fn read(field: Field<'_>, parameters: &BTreeSet<&str>) -> Option<Self> {
        field.mapping(|reader| {
            let schemas = reader.required("schema", |field| field.list(|field| field.mapping(schema)));
            let names = schemas.iter().flatten().map(|schema| schema.name.as_str()).into_set();
            if let Some(schemas) = schemas.as_ref().filter(|schemas| schemas.len() > names.len()) {
                let twice = schemas.iter().enumerate().find(|(i, s)| schemas[..*i].iter().any(|t| t.name == s.name));
                let name = twice.map(|(_, schema)| schema.name.as_str()).unwrap_or_default();
                reader.field().fail::<()>(format!("has two schemas named `{name}`"));
            }
            let known = |setting: Field<'_>| read_setting(setting, parameters, schemas.is_some().then_some(&names));
            let sections = reader.required("sections", |field| field.list(|field| section(field, known)));
            Some(Self { sections: sections?, schemas: schemas.clone()? })
        })
    }
}

fn section(field: Field<'_>, setting: impl FnMut(Field<'_>) -> Option<Setting>) -> Option<Section> {
    field.mapping(|reader| {
        let name = reader.required("name", Field::string);
        let settings = reader.required("settings", |field| field.list(setting));
        Some(Section { name: name?, settings: settings? })
    })
}

fn read_setting(field: Field<'_>, parameters: &BTreeSet<&str>, schemas: Option<&BTreeSet<&str>>) -> Option<Setting> {
    field.mapping(|reader| {
        let parameter = reader.required("parameter", |field| one_of(field, "parameter", Some(parameters)));
        let name = reader.required("name", Field::string);
        let description = reader.optional("description", Field::string);
        let immutable = reader.optional("immutable", Field::bool).unwrap_or_default();
        let schema = reader.required("schema", |field| one_of(field, "schema", schemas));
        Some(Setting { parameter: parameter?, name: name?, description, immutable, schema: schema? })
    })
}

fn one_of(field: Field<'_>, what: &str, names: Option<&BTreeSet<&str>>) -> Option<String> {
    let name = field.clone().string()?;
    match names {
        Some(names) if !names.contains(name.as_str()) => field.fail(format!("there is no {what} `{name}`")),
        _ => Some(name),
    }
}

fn schema(reader: &mut Reader<'_>) -> Option<Schema> {
    let name = reader.required("name", Field::string);
    let data_type = reader.required("dataType", |field| field.choice(&DATA_TYPES));
    let schema = Schema {
        allow_empty: reader.optional("allowEmpty", Field::bool),
        min_length: reader.optional("minLength", Field::integer),
        max_length: reader.optional("maxLength", Field::integer),
        regex_match: reader.optional("regexMatch", Field::string),
        min_value: reader.optional("minValue", number),
        max_value: reader.optional("maxValue", number),
        min_precision: reader.optional("minPrecision", Field::integer),
        max_precision: reader.optional("maxPrecision", Field::integer),
        multiselect: reader.optional("multiselect", Field::bool),
        options: reader.optional("options", |field| field.list(ParamValue::read)),
        name: name?,
        data_type: data_type?,
    };
    Some(schema)
}

fn number(field: Field<'_>) -> Option<ParamValue> {
    match ParamValue::read(field.clone())? {
        value @ (ParamValue::Integer(_) | ParamValue::Double(_)) => Some(value),
        _ => field.fail("must be a number"),
    }
}
