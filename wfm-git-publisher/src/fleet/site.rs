//! `policy: site:`: what the fleet says of the policies that sites have in their devices' own settings. Each site decides which
//! of these keys it hands over; the others count for nothing there.

use std::collections::BTreeMap;

use repo_model::yaml::{Field, Reader};
use serde_json::{Value, json};

use super::place::Place;

/// What is said, by the site's names of its keys, and where.
pub type ForSites = BTreeMap<&'static str, (Value, Place)>;

type Read = fn(&Field<'_>) -> Option<Value>;

/// The keys that a site can hand over.
const KEYS: [(&str, Read); 4] = [("ports", ports), ("external", names), ("capabilities", names), ("devices", names)];

/// Keys of a site's policy that make root on the machine whoever says them.
const SITES_ALONE: [&str; 3] = ["privileged", "hostNamespaces", "hostPaths"];

pub(super) fn read(field: Field<'_>) -> Option<ForSites> {
    field.mapping(|reader: &mut Reader<'_>| {
        let mut said = ForSites::new();
        for (key, read) in KEYS {
            let value = reader.optional(key, |field| Some((read(&field)?, Place::of(&field))));
            said.extend(value.map(|value| (key, value)));
        }
        for key in SITES_ALONE {
            reader.refuse(
                key,
                "can't be said by a fleet: it makes root on the machine, so it stands in `device.yaml` alone",
            );
        }
        Some(said)
    })
}

fn ports(field: &Field<'_>) -> Option<Value> {
    if field.node().text() == Some("any") {
        return Some(json!("any"));
    }
    let range = |field: Field<'_>| {
        let ends: Vec<u16> = field.clone().list(Field::integer)?;
        match ends.as_slice() {
            [first, last] if first <= last => Some(ends),
            _ => field.fail_hint("is no range of ports", "write first and last, like [8000, 8099]"),
        }
    };
    Some(json!(field.clone().list(range)?))
}

fn names(field: &Field<'_>) -> Option<Value> {
    let name = |field: Field<'_>| {
        let name = field.clone().string()?;
        if name.is_empty() || name.chars().any(char::is_control) { field.fail("is no name") } else { Some(name) }
    };
    Some(json!(field.clone().list(name)?))
}
