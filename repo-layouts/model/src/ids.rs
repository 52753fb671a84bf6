//! The names that must not be mixed up, each its own type.
//!
//! Patterns: device and component names from the Margo specification, the operator's deployment id from
//! `repo-layouts/README.md`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::Digest;

/// A name that breaks its type's pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{value}` is not a {what}: {rule}")]
pub struct InvalidName {
    /// What the text was meant to be.
    pub what: &'static str,
    /// The text itself, cut to 100 characters.
    pub value: String,
    pub rule: &'static str,
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $rule:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                let check: fn(&str) -> bool = $check;
                if check(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(InvalidName { what: $what, value: text.chars().take(100).collect(), rule: $rule })
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<Self, InvalidName> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.0)
            }
        }
    };
}

name!(
    /// The operator's id of a device; it may have several `/`-separated parts (`line-2/press-04`).
    DeviceId,
    "device id",
    "letters, digits and `. _ ~ -`, in parts divided by `/`, at most 200 characters",
    |text| text.len() <= 200
        && text.split('/').all(|part| {
            !part.is_empty()
                && part != "."
                && part != ".."
                && part.bytes().all(|c| c.is_ascii_alphanumeric() || b"._~-".contains(&c))
        })
);

name!(
    /// The operator's own id of a deployment, the `id` in `deployments/**/*.yaml`.
    DeploymentName,
    "deployment id",
    "1 to 63 lower-case letters, digits and inner dashes",
    |text| (1..=63).contains(&text.len()) && is_dashed(text)
);

name!(
    /// A component of a deployment profile.
    ComponentName,
    "component name",
    "lower-case letters, digits and dashes, at most 200 characters",
    |text| (1..=200).contains(&text.len()) && text.bytes().all(is_dash_char)
);

name!(
    /// Margo's `applicationId`.
    ApplicationId,
    "application id",
    "1 to 200 lower-case letters, digits and dashes",
    |text| (1..=200).contains(&text.len()) && text.bytes().all(is_dash_char)
);

fn is_dash_char(c: u8) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-'
}

fn is_dashed(text: &str) -> bool {
    text.bytes().all(is_dash_char) && !text.starts_with('-') && !text.ends_with('-')
}

impl DeviceId {
    /// The name of this device's repository (without `.git`): the id itself where that is a safe file name, else
    /// a slug and eight hex digits of its SHA-256 (`repo-layouts/README.md`, *Identity*).
    pub fn repository_name(&self) -> String {
        let id = self.as_str();
        let first = id.as_bytes()[0];
        let safe = (first.is_ascii_lowercase() || first.is_ascii_digit())
            && id.bytes().all(|c| is_dash_char(c) || c == b'.' || c == b'_')
            && ![".", ".lock", ".git"].iter().any(|end| id.ends_with(end));
        if safe {
            return id.to_owned();
        }
        let slug: String =
            id.to_ascii_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(48).collect();
        let slug = slug.trim_matches('-');
        let hash = &Digest::of(id.as_bytes()).hex()[..8];
        if slug.is_empty() { format!("device-{hash}") } else { format!("{slug}-{hash}") }
    }
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Uuid);

        impl $name {
            pub fn uuid(&self) -> Uuid {
                self.0
            }
        }

        impl From<Uuid> for $name {
            fn from(uuid: Uuid) -> Self {
                Self(uuid)
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;

            /// Accepts the hyphenated form only; case is folded.
            fn from_str(text: &str) -> Result<Self, InvalidName> {
                let invalid = || InvalidName {
                    what: $what,
                    value: text.chars().take(100).collect(),
                    rule: "a UUID like 123e4567-e89b-12d3-a456-426614174000",
                };
                if text.len() != 36 {
                    return Err(invalid());
                }
                Uuid::try_parse(text).map(Self).map_err(|_| invalid())
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<Self, InvalidName> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0.hyphenated())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

uuid_id!(
    /// The fleet's identity, made once by `init` and never changed.
    FleetId,
    "fleet id"
);

uuid_id!(
    /// Margo's `deploymentId`: one deployment on one device.
    DeploymentId,
    "deployment UUID"
);

impl DeploymentId {
    /// UUIDv5 over `<deployment id>\n<device id>` in the fleet's namespace (`repo-layouts/README.md`, *Identity*).
    pub fn derive(fleet: FleetId, deployment: &DeploymentName, device: &DeviceId) -> Self {
        Self(Uuid::new_v5(&fleet.0, format!("{deployment}\n{device}").as_bytes()))
    }

    /// The name of a component's compose project or helm release: component name without edge dashes, cut to 36,
    /// `-`, and 16 hex digits of SHA-256(`<deploymentId>/<component>`). At most 53 characters (helm's limit).
    pub fn runtime_name(&self, component: &ComponentName) -> String {
        let head = component.as_str().trim_matches('-');
        let head = head[..head.len().min(36)].trim_end_matches('-');
        let hash = &Digest::of(format!("{self}/{component}").as_bytes()).hex()[..16];
        if head.is_empty() { format!("c-{hash}") } else { format!("{head}-{hash}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_holds_on_both_sides_of_its_edge() {
        for good in ["a", "A~b", "line-2/press.04", "x_y", &"a".repeat(200)] {
            assert!(good.parse::<DeviceId>().is_ok(), "{good}");
        }
        for bad in ["", "/", "a/", "/a", "a//b", "a b", "ä", "..", "a/../b", ".", &"a".repeat(201)] {
            assert!(bad.parse::<DeviceId>().is_err(), "{bad}");
        }
        for good in ["a", "0", "a-b", &"a".repeat(63)] {
            assert!(good.parse::<DeploymentName>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", &"a".repeat(64)] {
            assert!(bad.parse::<DeploymentName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_repository_name_is_the_id_where_that_is_safe() {
        let name = |id: &str| id.parse::<DeviceId>().unwrap().repository_name();
        assert_eq!(name("press-04"), "press-04");
        for unsafe_id in ["Press-04", "line-2/press-04", "a.git", "a.lock", "a.", ".a", "~"] {
            let name = name(unsafe_id);
            assert_ne!(name, unsafe_id);
            assert!(!name.contains('/') && !name.starts_with('-') && !name.starts_with('.'), "{name}");
        }
        assert_ne!(name("Press"), name("PRESS"), "names differ when case is ignored");
    }

    #[test]
    fn a_runtime_name_fits_helm() {
        let id: DeploymentId = "ad9b614e-8912-45f4-a523-372358765def".parse().unwrap();
        for component in ["a", "-a-", "---", &"x".repeat(200), &format!("{}--{}", "y".repeat(34), "z")] {
            let name = id.runtime_name(&component.parse().unwrap());
            assert!(name.len() <= 53 && is_dashed(&name), "{name}");
        }
    }
}
