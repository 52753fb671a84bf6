//! What ran where and when, as a bill of materials: CycloneDX 1.5, by that project's own library.

use std::collections::{BTreeMap, BTreeSet};

use cyclonedx_bom::models::bom::BomReference;
use cyclonedx_bom::models::component::Classification;
use cyclonedx_bom::models::composition::{AggregateType, Composition, Compositions};
use cyclonedx_bom::models::dependency::{Dependencies, Dependency};
use cyclonedx_bom::models::hash::{Hash, HashAlgorithm, HashValue, Hashes};
use cyclonedx_bom::models::property::{Properties, Property};
use cyclonedx_bom::models::tool::Tools;
use cyclonedx_bom::prelude::{Bom, Component, Components, DateTime, Metadata, Purl};
use jiff::Timestamp;
use repo_artifacts::ImageReference;
use repo_model::margo::ProfileType;
use repo_model::{DeviceId, Digest};

use super::{Package, Record, RunComponent};

/// What no bill of materials made from device repositories has, a sentence for each.
pub const MISSING: &[&str] = &[
    "images that a chart renders to: no repository names their digests",
    "images whose digest stands in the archive itself: the archive's digest fixes them, and no repository repeats them",
    "what is in a chart, an archive or an image: fetch it by its digest and scan it",
];

/// What something is that ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Chart,
    /// A compose archive.
    Archive,
    Image,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Chart => "chart",
            Self::Archive => "archive",
            Self::Image => "image",
        }
    }
}

/// Something that ran, the same wherever it did.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    pub kind: Kind,
    /// Where a chart or archive is from; an image's name without its tag.
    pub name: String,
    /// A chart's or archive's revision, or an image's tag; absent for an archive by URL.
    pub version: Option<String>,
    /// Of the bytes of a chart or archive; of an image's manifest or index, or its id if no registry gave it.
    pub digest: Digest,
}

impl Part {
    fn package(package: &Package) -> Self {
        let kind = if package.profile == ProfileType::Helm { Kind::Chart } else { Kind::Archive };
        let (name, version) = (package.location.clone(), package.revision.clone());
        Self { kind, name, version, digest: package.lock.lock.content }
    }

    fn image((name, digest): (&String, &Digest)) -> Self {
        let (name, version) = match ImageReference::parse(name) {
            Ok(image) => (image.name().to_owned(), Some(image.tag().to_owned())),
            Err(_) => (name.clone(), None),
        };
        Self { kind: Kind::Image, name, version, digest: *digest }
    }

    /// What other places of the document call it: no other part is called the same.
    fn reference(&self) -> String {
        format!("{}:{}:{}@{}", self.kind.as_str(), self.name, self.version.as_deref().unwrap_or_default(), self.digest)
    }

    fn purl(&self) -> Option<Purl> {
        let name = self.name.trim_end_matches('/').rsplit('/').next()?.to_ascii_lowercase();
        let is_oci = self.kind == Kind::Image || self.name.starts_with("oci://");
        Purl::new(if is_oci { "oci" } else { "generic" }, &name, &self.digest.to_string()).ok()
    }

    fn component(&self, properties: Vec<Property>) -> Component {
        let kind = if self.kind == Kind::Image { Classification::Container } else { Classification::Application };
        let version = self.version.clone().unwrap_or_else(|| self.digest.to_string());
        let hash = Hash { alg: HashAlgorithm::SHA_256, content: HashValue(self.digest.hex()) };
        Component {
            description: Some(self.kind.as_str().into()),
            hashes: Some(Hashes(vec![hash])),
            purl: self.purl(),
            properties: Some(Properties(properties)),
            ..Component::new(kind, &self.name, &version, Some(self.reference()))
        }
    }
}

impl RunComponent {
    /// Its chart or archive.
    pub fn part(&self) -> Part {
        Part::package(&self.package)
    }

    /// Its images, as far as the publisher or the device says which they are.
    pub fn image_parts(&self) -> impl Iterator<Item = Part> {
        self.package.lock.images.iter().chain(&self.images).map(Part::image)
    }
}

/// What the whole document says of itself.
#[derive(Debug)]
pub struct About<'a> {
    pub now: Timestamp,
    /// The roster that everything is believed by.
    pub roster: Digest,
    /// Whether the audit found something wrong.
    pub is_good: bool,
    /// The time that is asked about, as it was asked.
    pub from: Option<&'a Timestamp>,
    pub to: Option<&'a Timestamp>,
}

/// The bill of materials of what ran.
pub fn bill(records: &[(DeviceId, Record)], about: &About<'_>) -> Bom {
    let mut parts: BTreeMap<Part, BTreeSet<String>> = BTreeMap::new();
    let mut needs: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (device, record) in records {
        let of_device = needs.entry(device_reference(device)).or_default();
        of_device.extend(record.components.iter().map(|run| run.part().reference()));
        for run in &record.components {
            let (package, ran) = (run.part(), ran(device, run));
            let images = needs.entry(package.reference()).or_default();
            for image in run.image_parts() {
                images.insert(image.reference());
                parts.entry(image).or_default().insert(ran.clone());
            }
            parts.entry(package).or_default().insert(ran);
        }
    }
    let is_package = |part: &&Part| part.kind != Kind::Image;
    let packages = parts.keys().filter(is_package).map(|part| BomReference::new(part.reference())).collect();
    let devices = records.iter().map(|(device, _)| Component {
        version: None,
        ..Component::new(Classification::Device, &device.to_string(), "", Some(device_reference(device)))
    });
    let parts = parts.iter().map(|(part, ran)| part.component(ran.iter().map(|ran| property("ran", ran)).collect()));
    let needs = needs
        .into_iter()
        .map(|(dependency_ref, needs)| Dependency { dependency_ref, dependencies: needs.into_iter().collect() });
    Bom {
        metadata: Some(metadata(about)),
        components: Some(Components(devices.chain(parts).collect())),
        dependencies: Some(Dependencies(needs.collect())),
        compositions: Some(Compositions(vec![Composition {
            bom_ref: None,
            aggregate: AggregateType::Incomplete,
            assemblies: Some(packages),
            dependencies: None,
            vulnerabilities: None,
            signature: None,
        }])),
        ..Bom::default()
    }
}

fn metadata(about: &About<'_>) -> Metadata {
    let tool = Component::new(Classification::Application, env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), None);
    let asked = [("from", about.from), ("to", about.to)];
    let asked = asked.iter().filter_map(|(name, time)| Some(property(name, &time.as_ref()?.to_string())));
    let said = [
        property("roster", &about.roster.to_string()),
        property("audit", if about.is_good { "nothing is wrong" } else { "something is wrong" }),
    ];
    let missing = MISSING.iter().map(|text| property("missing", text));
    Metadata {
        timestamp: DateTime::try_from(format!("{:.0}", about.now)).ok(),
        tools: Some(Tools::Object { services: None, components: Some(Components(vec![tool])) }),
        properties: Some(Properties(said.into_iter().chain(asked).chain(missing).collect())),
        ..Metadata::default()
    }
}

fn device_reference(device: &DeviceId) -> String {
    format!("device:{device}")
}

/// Where and when, as `press-01 hello/web 2026-03-01T08:00:00Z/2026-04-01T08:00:00Z`: an interval of ISO 8601, whose end is
/// `..` where it goes on.
fn ran(device: &DeviceId, run: &RunComponent) -> String {
    let until = run.until.map_or_else(|| "..".to_owned(), |until| format!("{until:.0}"));
    format!("{device} {}/{} {:.0}/{until}", run.deployment, run.component, run.since)
}

/// A property in a namespace of our own, as CycloneDX wants it.
fn property(name: &str, value: &str) -> Property {
    Property::new(format!("margo-gitops:{name}"), value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(kind: Kind, name: &str, version: Option<&str>) -> Part {
        Part { kind, name: name.to_owned(), version: version.map(str::to_owned), digest: Digest::of(name.as_bytes()) }
    }

    /// A device's own words reach the document only as values.
    #[test]
    fn images_whose_names_are_none_stay_what_they_are() {
        let digest = Digest::of(b"an image");
        for (name, expected, tag) in [
            ("busybox", "busybox", Some("latest")),
            ("registry.example:5000/tools/busybox:1.36", "registry.example:5000/tools/busybox", Some("1.36")),
            ("***", "***", None),
            ("../..\n\"},{", "../..\n\"},{", None),
            ("", "", None),
        ] {
            let part = Part::image((&name.to_owned(), &digest));
            assert_eq!((part.name.as_str(), part.version.as_deref()), (expected, tag));
            let component = part.component(Vec::new());
            assert!(!component.name.contains('\n'));
        }
    }

    #[test]
    fn a_part_is_called_like_no_other_one() {
        let parts = [
            part(Kind::Chart, "oci://registry.example/a", Some("1.0.0")),
            part(Kind::Archive, "oci://registry.example/a", Some("1.0.0")),
            part(Kind::Archive, "oci://registry.example/a", Some("1.0.1")),
            part(Kind::Archive, "https://example.com/a.tar.gz", None),
            part(Kind::Image, "registry.example/a", Some("1.0.0")),
        ];
        let names: BTreeSet<_> = parts.iter().map(Part::reference).collect();
        assert_eq!(names.len(), parts.len());
        let purls: Vec<_> = parts.iter().map(|part| part.purl().unwrap().to_string()).collect();
        assert!(purls[0].starts_with("pkg:oci/a@sha256") && purls[3].starts_with("pkg:generic/a.tar.gz@"), "{purls:?}");
    }
}
