//! Objects of Kubernetes that a vendor's chart renders to, against the site's policy (`policy` of `device.yaml`).
//!
//! The order of a judgement: text → `Manifest` → each object → `Verdict`. What a chart may do beyond that is bounded
//! by the Pod Security that its namespace enforces; so with `podSecurity` the namespace has to enforce it before anything
//! is applied, and nothing that is applied may lift it.

mod judge;
mod manifest;
mod quantity;
mod scope;

use serde::Deserialize;

use super::pattern::Pattern;

pub use judge::Verdict;
pub use manifest::Manifest;

/// The label by which a namespace says what it enforces.
pub const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// What a site says of the objects of charts; the default says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectPolicy {
    /// The images that containers may run; all without.
    pub images: Option<Vec<Pattern>>,
    /// Bytes that a pod may use at most.
    pub memory: Option<u64>,
    /// Thousandths of a processor that a pod may use at most.
    pub milli_cpus: Option<u64>,
    /// What objects may be and do beside the containers; anything without.
    pub kubernetes: Option<KubernetesPolicy>,
}

impl ObjectPolicy {
    /// Whether no object can break it, so that none has to be looked at.
    pub fn is_silent(&self) -> bool {
        *self == Self::default()
    }

    /// What the namespace has to enforce before anything is applied in it; `None` if that doesn't matter.
    pub fn pod_security(&self) -> Option<PodSecurity> {
        self.kubernetes.as_ref()?.pod_security.filter(|level| *level != PodSecurity::Privileged)
    }
}

/// The section `policy.kubernetes` of `device.yaml`: the namespace is the boundary.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct KubernetesPolicy {
    /// What the release's namespace has to enforce at least.
    pub pod_security: Option<PodSecurity>,
    /// First and last of each range of ports that services may open on nodes.
    pub node_ports: Vec<(u16, u16)>,
    /// The kinds of cluster-scoped objects that a chart may make.
    pub cluster_scoped: Vec<String>,
}

/// A level of Kubernetes' Pod Security Standards, the laxest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PodSecurity {
    Privileged,
    Baseline,
    Restricted,
}

impl PodSecurity {
    /// As labels write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }

    /// Whether a namespace with this label, or without it, enforces at least this. A word that Kubernetes doesn't know
    /// enforces nothing that can be relied on.
    pub fn is_enforced_by(self, label: Option<&str>) -> bool {
        let all = [Self::Privileged, Self::Baseline, Self::Restricted];
        self == Self::Privileged || all.into_iter().any(|one| Some(one.as_str()) == label && one >= self)
    }
}

#[cfg(test)]
mod tests;
