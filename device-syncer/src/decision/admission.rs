//! Admission: where a site lets packages come from (`policy.archives` and `policy.charts` of `device.yaml`).

use repo_model::ErrorCode;
use repo_model::margo::ProfileType;

use super::failure::Failure;
use super::pattern::Pattern;

/// Patterns of names, as documents write them; without any, everything is admitted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Admission {
    /// Of compose archives: `oci://host/path`, or a URL.
    pub archives: Option<Vec<Pattern>>,
    /// Of charts: `oci://host/path`, or the URL of a chart repository.
    pub charts: Option<Vec<Pattern>>,
}

impl Admission {
    /// Why a package from here isn't admitted, if it isn't.
    pub fn denied(&self, kind: ProfileType, name: &str) -> Option<Failure> {
        let (patterns, key) = match kind {
            ProfileType::Compose => (self.archives.as_ref()?, "archives"),
            ProfileType::Helm => (self.charts.as_ref()?, "charts"),
            // It has no runtime here.
            ProfileType::Custom => return None,
        };
        // The query of a URL may be a secret, and says nothing of where it leads.
        let name = name.split('?').next().unwrap_or_default();
        let is_admitted = is_plain(name) && patterns.iter().any(|pattern| pattern.means(name));
        let text = format!("`{name}` isn't among `policy.{key}` of this device's site");
        (!is_admitted).then(|| Failure::new(ErrorCode::PolicyDenied, text))
    }
}

/// Whether any of these means an image, as its user writes it.
pub fn admits_image(patterns: &[Pattern], image: &str) -> bool {
    let name = image_name(image);
    is_plain(name) && patterns.iter().any(|pattern| pattern.means(name))
}

/// An image without tag and digest.
pub fn image_name(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or_default();
    let tag = name.rfind(':').filter(|at| !name[*at..].contains('/'));
    &name[..tag.unwrap_or(name.len())]
}

/// Whether a name means what its characters show: what resolves to something else is admitted by no pattern.
pub fn is_plain(name: &str) -> bool {
    let has_user =
        name.split_once("://").map_or(name, |(_, rest)| rest).split('/').next().is_some_and(|host| host.contains('@'));
    !has_user && !name.contains(['\\', '%', '#']) && !name.split('/').any(|part| part == ".." || part == ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(all: &[&str]) -> Option<Vec<Pattern>> {
        Some(all.iter().map(|one| Pattern::try_from((*one).to_owned()).unwrap()).collect())
    }

    #[test]
    fn what_comes_from_elsewhere_is_denied_and_tricks_with_names_do_not_help() {
        let admission = Admission {
            archives: patterns(&["oci://r.plant.local/**", "https://plant.local/apps/*"]),
            charts: patterns(&[]),
        };
        let denied = |kind, name: &str| admission.denied(kind, name).map(|failure| failure.message);
        for name in
            ["oci://r.plant.local/a/b", "https://plant.local/apps/a.tgz", "https://plant.local/apps/a.tgz?token=x"]
        {
            assert_eq!(denied(ProfileType::Compose, name), None, "{name}");
        }
        for name in [
            "oci://r.plant.local.evil.example/a",
            "oci://evil.example/oci://r.plant.local/a",
            "oci://r.plant.local",
            "https://plant.local/apps/../elsewhere",
            "https://plant.local/apps/%2e%2e%2felsewhere",
            "https://plant.local/apps/a/b",
            "https://plant.local/apps/..",
            "oci://r.plant.local/..",
            "oci://r.plant.local/x@y/../a",
            "http://plant.local/apps/a.tgz",
            "",
        ] {
            assert!(denied(ProfileType::Compose, name).is_some(), "{name}");
        }
        let user = Admission { archives: patterns(&["https://**"]), charts: None };
        assert!(user.denied(ProfileType::Compose, "https://plant.local@evil.example/a").is_some());
        let words = "`oci://r.plant.local/a` isn't among `policy.charts` of this device's site";
        assert_eq!(denied(ProfileType::Helm, "oci://r.plant.local/a").as_deref(), Some(words), "none is admitted");
        let secret = denied(ProfileType::Compose, "https://evil.example/a?token=hunter2").unwrap();
        assert!(!secret.contains("hunter2"), "{secret}");
        assert_eq!(Admission::default().denied(ProfileType::Helm, "anything"), None);
    }
}
