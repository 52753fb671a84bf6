//! Which kinds of objects lie in a namespace.

/// Kubernetes' own kinds that lie in one, by the group of their API.
const NAMESPACED: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "Binding",
            "ConfigMap",
            "Endpoints",
            "Event",
            "LimitRange",
            "PersistentVolumeClaim",
            "Pod",
            "PodTemplate",
            "ReplicationController",
            "ResourceQuota",
            "Secret",
            "Service",
            "ServiceAccount",
        ],
    ),
    ("apps", &["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"]),
    ("authorization.k8s.io", &["LocalSubjectAccessReview"]),
    ("autoscaling", &["HorizontalPodAutoscaler"]),
    ("batch", &["CronJob", "Job"]),
    ("coordination.k8s.io", &["Lease"]),
    ("discovery.k8s.io", &["EndpointSlice"]),
    ("events.k8s.io", &["Event"]),
    ("extensions", &["Ingress"]),
    ("networking.k8s.io", &["Ingress", "NetworkPolicy"]),
    ("policy", &["PodDisruptionBudget"]),
    ("rbac.authorization.k8s.io", &["Role", "RoleBinding"]),
    ("resource.k8s.io", &["ResourceClaim", "ResourceClaimTemplate"]),
    ("storage.k8s.io", &["CSIStorageCapacity"]),
];

/// Where an object of a kind lies.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Namespace,
    Cluster,
    /// It isn't one of Kubernetes' own kinds: only the cluster knows.
    Unknown,
}

/// By `apiVersion` and `kind`.
pub(super) fn of(api_version: &str, kind: &str) -> Scope {
    let group = group(api_version);
    match NAMESPACED.iter().find(|(own, _)| *own == group) {
        Some((_, kinds)) if kinds.contains(&kind) => Scope::Namespace,
        Some(_) => Scope::Cluster,
        // What others define has a domain's name.
        None if !group.contains('.') => Scope::Cluster,
        None => Scope::Unknown,
    }
}

/// The group in an `apiVersion`; empty of `v1`.
pub(super) fn group(api_version: &str) -> &str {
    api_version.rsplit_once('/').map_or("", |(group, _)| group)
}
