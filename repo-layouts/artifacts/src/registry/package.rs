//! Application packages as registries keep them: a manifest whose layers are the files (Margo, *Application Registry*).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use repo_model::Digest;
use serde::Deserialize;

use super::manifest::MANIFESTS;
use super::tokens::Purpose;
use super::{Registry, RegistryError, invalid};
use crate::reference::{self, Kind};
use crate::{InvalidReference, PACKAGE_DESCRIPTION_TYPE, PACKAGE_TYPE, Reference};

/// What names a file of a package, as ORAS writes it (OCI image specification, *Pre-Defined Annotation Keys*).
const TITLE: &str = "org.opencontainers.image.title";

/// Which key of the description names the file.
const RESOURCE: &str = "org.margo.app.resource";

/// ORAS packs a whole folder into such a layer.
const IS_FOLDER: &str = "io.deis.oras.content.unpack";

/// `oci://host[:port]/path:tag`, or `@sha256:…` instead of the tag or behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageReference {
    reference: Reference,
    digest: Option<Digest>,
    text: String,
}

/// A package's files, with the digest of the manifest that lists them.
#[derive(Debug, Clone)]
pub struct PulledPackage {
    pub manifest: Digest,
    pub parts: Vec<PackagePart>,
}

/// A file of a package, as its manifest says what it is.
#[derive(Debug, Clone)]
pub struct PackagePart {
    pub is_description: bool,
    /// Its path in the package, as a stranger wrote it.
    pub title: Option<String>,
    /// The dotted path of the key in the description that names it.
    pub resource: Option<String>,
    pub digest: Digest,
    pub bytes: Vec<u8>,
}

impl PackageReference {
    /// The tag, unless the digest alone is named.
    pub fn tag(&self) -> Option<&str> {
        self.text.rsplit('/').next().filter(|last| last.split('@').next().is_some_and(|name| name.contains(':')))?;
        Some(self.reference.tag())
    }
}

impl FromStr for PackageReference {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |rule| reference::invalid(text, rule);
        let (tagged, digest) = match text.split_once('@') {
            Some((tagged, digest)) => {
                let digest: Digest = digest.parse().map_err(|_| invalid("a digest is `sha256:` and 64 hex digits"))?;
                (tagged, Some(digest))
            }
            None => (text, None),
        };
        let last = tagged.rfind('/').map_or(0, |at| at + 1);
        let (repository, tag) = match (tagged[last..].find(':'), &digest) {
            (Some(at), _) => (&tagged[..last + at], tagged[last + at + 1..].to_owned()),
            // Only shown: the artefact is asked for by its digest.
            (None, Some(digest)) => (tagged, digest.to_string().replace(':', "-")),
            (None, None) => return Err(invalid("name a tag (`:1.0.0`) or a digest (`@sha256:…`)")),
        };
        let reference = Reference::oci(repository, &tag, Kind::Package).map_err(|error| invalid(error.rule))?;
        Ok(Self { reference, digest, text: text.to_owned() })
    }
}

impl fmt::Display for PackageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Registry {
    /// The files of an application package, verified: at most so many, with so many bytes together. A mirror is asked for
    /// what a tag means only where it stands in its registry's place.
    pub fn pull_package(
        &self,
        package: &PackageReference,
        max_parts: usize,
        max_bytes: usize,
    ) -> Result<PulledPackage, RegistryError> {
        let (reference, mirrors) = (&package.reference, self.mirrors());
        let places = match package.digest {
            Some(_) => mirrors.places(reference),
            None => mirrors.authorities(reference),
        };
        self.first(reference, places, |place| self.package_at(place, package.digest, max_parts, max_bytes))
    }

    fn package_at(
        &self,
        place: &Reference,
        digest: Option<Digest>,
        max_parts: usize,
        max_bytes: usize,
    ) -> Result<PulledPackage, RegistryError> {
        let session = self.session(place, Purpose::Pull)?;
        let wanted = digest.map_or_else(|| place.tag().to_owned(), |digest| digest.to_string());
        let body = session.manifest(&wanted, MANIFESTS)?;
        let manifest: Manifest = serde_json::from_slice(&body).map_err(|error| invalid(place, error.to_string()))?;
        let layers = manifest.layers(place)?;
        if layers.len() > max_parts {
            return Err(invalid(place, format!("it has more than {max_parts} files")));
        }
        let (mut parts, mut left) = (Vec::new(), max_bytes);
        for layer in layers {
            let too_large = || invalid(place, format!("its files have more than {max_bytes} bytes"));
            // What a manifest says of a size spares the request, and nothing else.
            if usize::try_from(layer.size).is_ok_and(|size| size > left) {
                return Err(too_large());
            }
            let digest = layer.digest(place)?;
            let bytes = session.blob(digest, left)?;
            left = left.checked_sub(bytes.len()).ok_or_else(too_large)?;
            let mut named = layer.annotations;
            let (title, resource) = (named.remove(TITLE), named.remove(RESOURCE));
            let is_description = layer.media_type == PACKAGE_DESCRIPTION_TYPE;
            parts.push(PackagePart { is_description, title, resource, digest, bytes });
        }
        Ok(PulledPackage { manifest: Digest::of(&body), parts })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    artifact_type: Option<String>,
    config: Option<Config>,
    /// An index has none.
    layers: Option<Vec<Layer>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    media_type: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Layer {
    media_type: String,
    digest: String,
    #[serde(default)]
    size: i64,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl Manifest {
    /// The layers of what is an application package.
    fn layers(self, place: &Reference) -> Result<Vec<Layer>, RegistryError> {
        let Some(layers) = self.layers else {
            return Err(invalid(place, "it is an index of several artefacts".to_owned()));
        };
        // Where registries know no artefact types, the config's stands for it.
        let found = self.artifact_type.or(self.config.map(|config| config.media_type)).unwrap_or_default();
        if found != PACKAGE_TYPE {
            return Err(invalid(place, format!("it is of type `{found}`, expected `{PACKAGE_TYPE}`")));
        }
        if let Some(layer) = layers.iter().find(|layer| layer.annotations.contains_key(IS_FOLDER)) {
            let why = format!("its layer {} is a folder packed as one: each file is a layer of its own", layer.digest);
            return Err(invalid(place, why));
        }
        Ok(layers)
    }
}

impl Layer {
    fn digest(&self, place: &Reference) -> Result<Digest, RegistryError> {
        self.digest.parse().map_err(|error: repo_model::digest::InvalidDigest| invalid(place, error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_named_by_tag_or_digest() {
        let digest = Digest::of(b"x");
        let parse = |text: &str| text.parse::<PackageReference>();
        let tagged = parse("oci://r.example:5000/apps/hello:1.0.0").unwrap();
        assert_eq!((tagged.tag(), tagged.digest, tagged.reference.host()), (Some("1.0.0"), None, "r.example:5000"));
        let fixed = parse(&format!("oci://r.example:5000/apps/hello@{digest}")).unwrap();
        assert_eq!((fixed.tag(), fixed.digest), (None, Some(digest)));
        let both = parse(&format!("oci://r.example/hello:1.0.0@{digest}")).unwrap();
        assert_eq!((both.tag(), both.digest), (Some("1.0.0"), Some(digest)));
        for bad in [
            "oci://r.example/hello",
            "oci://r.example:5000/hello",
            "oci://r.example/hello@sha256:1",
            "r/h:1",
            "oci://u@r.example/h:1",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
