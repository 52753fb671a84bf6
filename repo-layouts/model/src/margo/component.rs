//! A component of a deployment profile: what to fetch, from where, and how long to wait for it.

use std::time::Duration;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

pub use super::source::Source;
use super::{Extensions, ProfileType};
use crate::ComponentName;
use crate::yaml::{Field, Reader};

/// The longest `timeout` that is accepted.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// A component of a deployment profile (Margo, *Component*).
#[derive(Debug, Clone, PartialEq)]
pub struct Component {
    /// Its name, unique in its profile.
    pub name: ComponentName,
    pub source: Source,
    /// Whether it is finished before the next one starts; true if the document says nothing.
    pub wait: bool,
    /// How long that may take, up to [`MAX_TIMEOUT`].
    pub timeout: Option<Duration>,
    /// Vendors' own keys.
    pub extensions: Extensions,
}

impl Component {
    /// Reads a component of a profile of this type; with no type what depends on it isn't checked.
    pub(super) fn read(field: Field<'_>, kind: Option<ProfileType>) -> Option<Self> {
        field.mapping(|reader| {
            let extensions = reader.extensions();
            let name = reader.required("name", Field::parse);
            let properties = reader.required("properties", |field| field.mapping(|reader| properties(reader, kind)));
            let (name, (source, wait, timeout)) = name.zip(properties)?;
            Some(Self { name, source, wait, timeout, extensions })
        })
    }

    /// Reads the components of a profile: at least one, no name twice.
    pub(super) fn read_list(field: Field<'_>, kind: Option<ProfileType>) -> Option<Vec<Self>> {
        let components = field.clone().list(|field| Self::read(field, kind))?;
        if components.is_empty() {
            return field.fail("lists no component");
        }
        for (index, component) in components.iter().enumerate() {
            if components[..index].iter().any(|other| other.name == component.name) {
                return field.fail(format!("has two components named `{}`", component.name));
            }
        }
        Some(components)
    }
}

fn properties(reader: &mut Reader<'_>, kind: Option<ProfileType>) -> Option<(Source, bool, Option<Duration>)> {
    let source = Source::read(reader, kind);
    let wait = reader.optional("wait", read_wait).unwrap_or(true);
    let timeout = reader.optional("timeout", |field| {
        let text = field.clone().string()?;
        parse_timeout(&text).map_or_else(|| field.fail_hint(format!("`{text}` is no time limit"), TIMEOUT_HINT), Some)
    });
    Some((source?, wait, timeout))
}

const TIMEOUT_HINT: &str = "write minutes and seconds such as 8m30s, more than 0 and up to 24h";

/// Pre-draft documents have the boolean as a string too.
fn read_wait(field: Field<'_>) -> Option<bool> {
    match field.node().text() {
        Some("true") => Some(true),
        Some("false") => Some(false),
        _ => field.bool(),
    }
}

/// `8m30s`, and also `90s`, `5m`, `1h`: each unit at most once, in falling order.
fn parse_timeout(text: &str) -> Option<Duration> {
    let (mut rest, mut seconds) = (text, 0u64);
    for (unit, factor) in [('h', 3600), ('m', 60), ('s', 1)] {
        if let Some((number, after)) = rest.split_once(unit) {
            if number.is_empty() || !number.bytes().all(|c| c.is_ascii_digit()) {
                return None;
            }
            seconds = seconds.checked_add(number.parse::<u64>().ok()?.checked_mul(factor)?)?;
            rest = after;
        }
    }
    let timeout = Duration::from_secs(seconds);
    (rest.is_empty() && seconds > 0 && timeout <= MAX_TIMEOUT).then_some(timeout)
}

impl Serialize for Component {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("properties", &Properties(self))?;
        for (key, value) in &self.extensions {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

struct Properties<'a>(&'a Component);

impl Serialize for Properties<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.0.source.write(&mut map)?;
        if !self.0.wait {
            map.serialize_entry("wait", &false)?;
        }
        if let Some(timeout) = self.0.timeout {
            let seconds = timeout.as_secs();
            map.serialize_entry("timeout", &format!("{}m{}s", seconds / 60, seconds % 60))?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_hours_minutes_and_seconds() {
        for (text, seconds) in [("8m30s", 510), ("90s", 90), ("5m", 300), ("1h", 3600), ("5m0s", 300), ("24h", 86400)] {
            assert_eq!(parse_timeout(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        for text in
            ["", "5", "0s", "m", "30s5m", "5m5m", "1.5h", "-5m", "5 m", "24h1s", "99999999999999999999s", "5ms", "+5s"]
        {
            assert_eq!(parse_timeout(text), None, "{text}");
        }
    }
}
