//! `policy: site:`: what the fleet says of the policies that sites have in their devices' own settings. Each site decides which
//! of these keys it hands over; the others count for nothing there.

use std::collections::BTreeMap;

use repo_artifacts::Mirror;
use repo_model::envelope::{MAX_MIRROR_NAME, MAX_MIRRORED, MAX_MIRRORS};
use repo_model::yaml::{Field, Reader};
use serde_json::{Value, json};

use super::place::Place;

/// What is said, by the site's names of its keys, and where.
pub type ForSites = BTreeMap<&'static str, (Value, Place)>;

type Read = fn(&Field<'_>) -> Option<Value>;

/// The keys that a site can hand over.
const KEYS: [(&str, Read); 5] =
    [("ports", ports), ("external", names), ("capabilities", names), ("devices", names), ("registries", registries)];

/// Keys of a site's policy that make root on the machine whoever says them.
const SITES_ALONE: [&str; 3] = ["privileged", "hostNamespaces", "hostPaths"];

/// What else a site has below `registries`: its passwords, and whom it believes.
const REGISTRIES_ALONE: [&str; 4] = ["plainHttp", "ca", "accounts", "mirrorsOnly"];

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

/// `registries`: mirrors, and nothing else of what a site has below it.
fn registries(field: &Field<'_>) -> Option<Value> {
    field.clone().mapping(|reader: &mut Reader<'_>| {
        let mirrors = reader.required("mirrors", mirrors);
        for key in REGISTRIES_ALONE {
            reader.refuse(
                key,
                "can't be said by a fleet, which says mirrors alone: it is about whom a site believes and shows passwords to, so it \
                 stands in `device.yaml` alone",
            );
        }
        Some(json!({"mirrors": mirrors?}))
    })
}

fn mirrors(field: Field<'_>) -> Option<Value> {
    let of = field.clone().entries(|registry, field| {
        if registry.contains('/') || !is_place(registry) {
            return field.fail_hint("is not said of a registry", "its key is `host[:port]`, like docker.io");
        }
        let mirror = |field: Field<'_>| {
            let hint = "write `host[:port]`, and a path where it has one, like mirror.plant.local:5000/vendor";
            field.clone().string().and_then(|text| match is_place(&text) {
                true => Some(text),
                false => field.fail_hint("is no mirror", hint),
            })
        };
        let mirrors = field.clone().list(mirror)?;
        match mirrors.len() {
            1..=MAX_MIRRORS => Some(mirrors),
            count => field.fail(format!("names {count} mirrors, and has to name 1 to {MAX_MIRRORS}")),
        }
    })?;
    match of.len() {
        0..=MAX_MIRRORED => Some(json!(of)),
        count => field.fail(format!("is said of {count} registries, and may be of {MAX_MIRRORED}")),
    }
}

fn is_place(text: &str) -> bool {
    text.len() <= MAX_MIRROR_NAME && Mirror::parse(text).is_ok()
}
