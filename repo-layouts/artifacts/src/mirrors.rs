//! Mirrors of registries: where else the same bytes are.

use std::collections::BTreeMap;
use std::fmt;

use crate::reference::{self, Kind, invalid};
use crate::{InvalidReference, Reference};

/// Where the repositories of a registry are as well: at another one, with a path before theirs or without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    host: String,
    /// Empty, or ends in `/`.
    before: String,
}

/// The mirrors of registries. Nothing that is locked is believed of one: its bytes are held against the digest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mirrors {
    /// By `host[:port]` of the registry, in the order in which they are asked.
    pub of: BTreeMap<String, Vec<Mirror>>,
    /// A registry that has mirrors isn't asked itself.
    pub only: bool,
}

impl Mirror {
    /// Reads `host[:port]` with a path, or without one.
    pub fn parse(text: &str) -> Result<Self, InvalidReference> {
        let rule = "a mirror is `host[:port]`, and a path in it where it has one";
        let place = Reference::oci(&format!("oci://{text}/x"), "x", Kind::Image).map_err(|_| invalid(text, rule))?;
        Ok(Self { host: place.host().to_owned(), before: place.path().trim_end_matches('x').to_owned() })
    }

    /// Host and port of the registry that it is.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether it is on this machine, where TLS protects nothing.
    pub fn is_loopback(&self) -> bool {
        reference::is_loopback(&self.host)
    }

    /// Where the artefact is there.
    fn place_of(&self, reference: &Reference) -> Reference {
        reference.at(&self.host, format!("{}{}", self.before, reference.path()))
    }
}

impl fmt::Display for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.before.strip_suffix('/') {
            Some(path) => write!(f, "{}/{path}", self.host),
            None => f.write_str(&self.host),
        }
    }
}

impl Mirrors {
    /// Where an artefact is asked for by its digest, in this order: at the mirrors of its registry, and at that itself.
    pub(crate) fn places(&self, reference: &Reference) -> Vec<Reference> {
        let mut places = self.mirrored(reference);
        if !self.only || places.is_empty() {
            places.push(reference.clone());
        }
        places
    }

    /// Where it is asked what a tag means: a mirror is believed only where it stands in its registry's place.
    pub(crate) fn authorities(&self, reference: &Reference) -> Vec<Reference> {
        let mirrored = if self.only { self.mirrored(reference) } else { Vec::new() };
        if mirrored.is_empty() { vec![reference.clone()] } else { mirrored }
    }

    fn mirrored(&self, reference: &Reference) -> Vec<Reference> {
        let mirrors = if reference.url().is_some() { None } else { self.of.get(reference.host()) };
        mirrors.into_iter().flatten().map(|mirror| mirror.place_of(reference)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirrors(only: bool) -> Mirrors {
        let mirrors =
            ["mirror.plant.local:5000/vendor/x", "other.plant.local"].map(|text| Mirror::parse(text).unwrap());
        Mirrors { of: [("registry.example".to_owned(), mirrors.into())].into(), only }
    }

    fn names(places: &[Reference]) -> Vec<String> {
        places.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn mirrors_come_first_in_their_order_and_never_say_what_a_tag_means_unless_they_stand_for_the_registry() {
        let reference = Reference::parse("oci://registry.example/apps/hello", "1").unwrap();
        let own = "oci://registry.example/apps/hello:1";
        let there = ["oci://mirror.plant.local:5000/vendor/x/apps/hello:1", "oci://other.plant.local/apps/hello:1"];
        assert_eq!(names(&mirrors(false).places(&reference)), [there[0], there[1], own]);
        assert_eq!(names(&mirrors(false).authorities(&reference)), [own]);
        assert_eq!(names(&mirrors(true).places(&reference)), there);
        assert_eq!(names(&mirrors(true).authorities(&reference)), there);
    }

    #[test]
    fn what_has_no_mirror_is_asked_itself() {
        let elsewhere = Reference::parse("oci://registry.example:5000/apps/hello", "1").unwrap();
        let by_url = Reference::parse("https://registry.example/hello.tar.gz", "").unwrap();
        for reference in [elsewhere, by_url] {
            let own = reference.to_string();
            assert_eq!(names(&mirrors(true).places(&reference)), [own.as_str()]);
            assert_eq!(names(&mirrors(true).authorities(&reference)), [own.as_str()]);
        }
    }

    #[test]
    fn a_mirror_is_a_place_and_nothing_else() {
        for text in
            ["", "/vendor", "oci://mirror.plant.local", "mirror.plant.local/", "mirror.plant.local/Vendor", "a b"]
        {
            assert!(Mirror::parse(text).is_err(), "{text}");
        }
        for text in ["mirror.plant.local", "[::1]:5000", "mirror.plant.local:5000/vendor/x"] {
            assert_eq!(Mirror::parse(text).unwrap().to_string(), text);
        }
    }
}
