//! One object after the other against the policy.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::scope::{self, Scope};
use super::{ENFORCE, KubernetesPolicy, ObjectPolicy, PodSecurity, quantity};
use crate::decision::admission;

/// The lists in which a pod has its containers.
const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];
/// The node ports of which a cluster chooses one, unless it is told otherwise.
const CHOSEN: (u16, u16) = (30000, 32767);
/// How many reasons are told of one release.
const TOLD: usize = 8;
/// The most characters of a vendor's word in a reason.
const WORD: usize = 120;

/// What is denied of a release's objects.
#[derive(Debug, Default)]
pub struct Verdict {
    denied: Vec<String>,
    /// Kinds as `KIND.GROUP` that count as cluster-scoped unless the cluster says that they aren't, with a reason each.
    unknown: BTreeMap<String, String>,
}

impl Verdict {
    /// Judges an object that would be, or is, made for a release in this namespace.
    pub fn object(&mut self, policy: &ObjectPolicy, namespace: &str, object: &Value) {
        let kind = object["kind"].as_str().unwrap_or_default();
        if let (Some(of), Some(items)) = (kind.strip_suffix("List"), object["items"].as_array()) {
            return items.iter().for_each(|item| self.item(policy, namespace, object, of, item));
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let mut judge = Judge { policy, namespace, object: format!("{} {}", word(kind), word(name)), verdict: self };
        judge.pods(object, &mut String::new());
        if let Some(kubernetes) = &policy.kubernetes {
            judge.place(kubernetes, object, kind);
            match kind {
                "Service" => judge.service(kubernetes, &object["spec"]),
                "Namespace" | "Role" | "RoleBinding" => judge.boundary(object, kind),
                _ => {}
            }
        }
    }

    /// Of a list; it may leave out what its list says.
    fn item(&mut self, policy: &ObjectPolicy, namespace: &str, list: &Value, of: &str, item: &Value) {
        let mut item = item.clone();
        if let Some(map) = item.as_object_mut() {
            map.entry("kind").or_insert_with(|| of.into());
            map.entry("apiVersion").or_insert_with(|| list["apiVersion"].clone());
        }
        self.object(policy, namespace, &item);
    }

    /// Something else that isn't as the policy wants it.
    pub fn deny(&mut self, reason: String) {
        if !self.denied.contains(&reason) {
            self.denied.push(reason);
        }
    }

    /// Whether the cluster has to be asked which kinds lie in namespaces.
    pub fn asks_for_kinds(&self) -> bool {
        !self.unknown.is_empty()
    }

    /// Takes what the cluster says: the kinds, as `KIND.GROUP`, that lie in namespaces.
    pub fn settle(&mut self, namespaced: &BTreeSet<String>) {
        let unknown = std::mem::take(&mut self.unknown);
        unknown.into_iter().filter(|(kind, _)| !namespaced.contains(kind)).for_each(|(_, reason)| self.deny(reason));
    }

    /// What is denied: object, field and rule. Nothing, if all is admitted.
    pub fn reasons(mut self) -> Vec<String> {
        let more = self.denied.len().saturating_sub(TOLD);
        self.denied.truncate(TOLD);
        self.denied.extend((more > 0).then(|| format!("and {more} more")));
        self.denied
    }
}

struct Judge<'a> {
    policy: &'a ObjectPolicy,
    namespace: &'a str,
    /// Kind and name of the object that is judged, as messages have them.
    object: String,
    verdict: &'a mut Verdict,
}

impl Judge<'_> {
    fn deny(&mut self, field: &str, rule: &str) {
        self.verdict.deny(format!("`{}`: `{}` {rule}", self.object, word(field)));
    }

    /// Finds pods wherever they are: what has a list of containers is one, whatever kind it is in.
    fn pods(&mut self, value: &Value, path: &mut String) {
        let length = path.len();
        match value {
            Value::Object(map) => {
                if CONTAINERS.iter().any(|list| value[*list].is_array()) {
                    self.pod(value, path);
                }
                for (key, child) in map {
                    path.push_str(if length == 0 { "" } else { "." });
                    path.push_str(key);
                    self.pods(child, path);
                    path.truncate(length);
                }
            }
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    path.push_str(&format!("[{at}]"));
                    self.pods(item, path);
                    path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn pod(&mut self, pod: &Value, path: &str) {
        let at = |field: String| if path.is_empty() { field } else { format!("{path}.{field}") };
        for list in CONTAINERS {
            for (number, container) in containers(pod, list) {
                self.image(&container["image"], &at(format!("{list}[{number}].image")));
            }
        }
        for (number, volume) in pod["volumes"].as_array().into_iter().flatten().enumerate() {
            if !volume["image"].is_null() {
                self.image(&volume["image"]["reference"], &at(format!("volumes[{number}].image.reference")));
            }
        }
        let ObjectPolicy { memory, milli_cpus, .. } = *self.policy;
        for (limit, ceiling, most) in [
            ("memory", "memory", memory.map(|bytes| u128::from(bytes) * 1000)),
            ("cpu", "cpus", milli_cpus.map(u128::from)),
        ] {
            if let Some(most) = most {
                self.ceiling(pod, &at, limit, ceiling, most);
            }
        }
    }

    fn image(&mut self, image: &Value, field: &str) {
        let Some(patterns) = &self.policy.images else { return };
        match image.as_str() {
            Some(image) if admission::admits_image(patterns, image) => {}
            Some(image) => {
                let name = word(admission::image_name(image));
                self.deny(field, &format!("is {name}, which isn't among `policy.images`"));
            }
            None => self.deny(field, "is missing, so nobody knows whether it is among `policy.images`"),
        }
    }

    /// What runs at the same time counts together: all containers, or one that runs before them; beside either of them
    /// those of `initContainers` that stay.
    fn ceiling(&mut self, pod: &Value, at: &dyn Fn(String) -> String, limit: &str, ceiling: &str, most: u128) {
        let (mut together, mut alone) = (0_u128, 0_u128);
        for list in ["containers", "initContainers"] {
            for (number, container) in containers(pod, list) {
                let field = at(format!("{list}[{number}].resources.limits.{limit}"));
                let found = &container["resources"]["limits"][limit];
                let amount = quantity::milli(found);
                let rule = match amount {
                    None if !found.is_null() => "can't be read, so it is over",
                    None | Some(0) => "is missing, so it is over",
                    Some(amount) if amount > most => "is over",
                    Some(amount) => {
                        let stays = list == "containers" || container["restartPolicy"] == "Always";
                        if stays {
                            together = together.saturating_add(amount)
                        } else {
                            alone = alone.max(amount)
                        }
                        continue;
                    }
                };
                self.deny(&field, &format!("{rule} `policy.ceilings.{ceiling}`"));
            }
        }
        let stays: u128 = containers(pod, "initContainers")
            .filter(|(_, container)| container["restartPolicy"] == "Always")
            .filter_map(|(_, container)| quantity::milli(&container["resources"]["limits"][limit]))
            .fold(0, u128::saturating_add);
        if together.max(alone.saturating_add(stays)) > most {
            let rule = format!("of a pod's containers together is over `policy.ceilings.{ceiling}`");
            self.deny(&at(format!("containers[*].resources.limits.{limit}")), &rule);
        }
    }

    /// In the release's namespace, or of a kind that the site lists.
    fn place(&mut self, policy: &KubernetesPolicy, object: &Value, kind: &str) {
        let namespace = &object["metadata"]["namespace"];
        let is_elsewhere = match namespace {
            Value::Null => false,
            Value::String(name) => !name.is_empty() && name != self.namespace,
            _ => true,
        };
        if is_elsewhere {
            let rule = format!("is another one than the release's, which is {}", self.namespace);
            self.deny("metadata.namespace", &rule);
        }
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let scope = scope::of(api_version, kind);
        if scope == Scope::Namespace || policy.cluster_scoped.iter().any(|listed| listed == kind) {
            return;
        }
        let is_unknown = scope == Scope::Unknown && !kind.is_empty();
        let rule = match is_unknown {
            true => "isn't known to lie in a namespace, and isn't among `policy.kubernetes.clusterScoped`",
            false => "is cluster-scoped, and isn't among `policy.kubernetes.clusterScoped`",
        };
        if is_unknown {
            let key = format!("{kind}.{}", scope::group(api_version));
            let reason = format!("`{}`: `kind` {rule}", self.object);
            self.verdict.unknown.entry(key).or_insert(reason);
        } else {
            self.deny("kind", rule);
        }
    }

    /// Ports that are reached from outside of the cluster.
    fn service(&mut self, policy: &KubernetesPolicy, spec: &Value) {
        let rule = "isn't within `policy.kubernetes.nodePorts`";
        let is_within = |port: &Value| {
            let number = port.as_u64().and_then(|port| u16::try_from(port).ok());
            number.is_some_and(|port| policy.node_ports.iter().any(|(first, last)| (*first..=*last).contains(&port)))
        };
        let is_given = |port: &Value| !port.is_null() && *port != 0;
        let balances = !matches!(spec["type"].as_str(), Some("ClusterIP" | "NodePort" | "ExternalName"))
            && !spec["type"].is_null();
        let opens = spec["type"] == "NodePort" || balances && spec["allocateLoadBalancerNodePorts"] != false;
        let any = policy.node_ports.iter().any(|(first, last)| *first <= CHOSEN.0 && CHOSEN.1 <= *last);
        for (at, port) in spec["ports"].as_array().into_iter().flatten().enumerate() {
            let given = &port["nodePort"];
            if is_given(given) && !is_within(given) {
                self.deny(&format!("spec.ports[{at}].nodePort"), rule);
            } else if !is_given(given) && opens && !any {
                let rule = format!("is missing, so it may be any of {}–{}, which {rule}", CHOSEN.0, CHOSEN.1);
                self.deny(&format!("spec.ports[{at}].nodePort"), &rule);
            }
            // Some clusters open a balanced port on their nodes as it is.
            if balances && !is_within(&port["port"]) {
                self.deny(&format!("spec.ports[{at}].port"), &format!("of a load balancer {rule}"));
            }
        }
        if is_given(&spec["healthCheckNodePort"]) && !is_within(&spec["healthCheckNodePort"]) {
            self.deny("spec.healthCheckNodePort", rule);
        }
        let external = &spec["externalIPs"];
        if !external.is_null() && external.as_array().is_none_or(|all| !all.is_empty()) {
            self.deny("spec.externalIPs", "opens ports beside `policy.kubernetes.nodePorts`");
        }
    }

    /// With `podSecurity` the namespace is the boundary: nothing in it may lift it.
    fn boundary(&mut self, object: &Value, kind: &str) {
        let Some(level) = self.policy.pod_security() else { return };
        match kind {
            "Namespace" => {
                let label = object["metadata"]["labels"][ENFORCE].as_str();
                if !level.is_enforced_by(label) {
                    self.deny(&format!("metadata.labels.{ENFORCE}"), &weaker(level));
                }
            }
            "Role" => {
                let rules = object["rules"].as_array().into_iter().flatten();
                let found = rules.enumerate().find(|(_, rule)| may_lift(rule)).map(|(at, _)| at);
                if let Some(at) = found {
                    let rule = "may change the namespace, or roles beyond its own rights: it could lift \
                                `policy.kubernetes.podSecurity`";
                    self.deny(&format!("rules[{at}]"), rule);
                }
            }
            _ => {
                let role = &object["roleRef"];
                let is_tame = matches!(role["name"].as_str(), Some("view" | "edit" | "admin"));
                if role["kind"] != "Role" && !is_tame {
                    let rule = "is a cluster's role other than view, edit and admin: it could lift \
                                `policy.kubernetes.podSecurity`";
                    self.deny("roleRef", rule);
                }
            }
        }
    }
}

/// What a namespace lacks.
fn weaker(level: PodSecurity) -> String {
    format!("enforces less than `policy.kubernetes.podSecurity: {}`", level.as_str())
}

/// Whether a rule of a role lets somebody change the namespace's labels, or give rights away that they don't have.
fn may_lift(rule: &Value) -> bool {
    let words = |field: &str| {
        let all = rule[field].as_array().into_iter().flatten();
        all.map(|word| word.as_str().unwrap_or("*").to_ascii_lowercase()).collect::<Vec<_>>()
    };
    let (verbs, resources) = (words("verbs"), words("resources"));
    let is_of = |name: &str| {
        resources.iter().any(|one| one.split('/').next() == Some(name) || one == "*" || one.starts_with("*/"))
    };
    let writes = verbs.iter().any(|verb| !["get", "list", "watch"].contains(&verb.as_str()));
    let gives = verbs.iter().any(|verb| ["*", "escalate", "bind"].contains(&verb.as_str()));
    is_of("namespaces") && writes || (is_of("roles") || is_of("rolebindings")) && gives
}

/// Those of a list that are mappings, with their places in it.
fn containers<'a>(pod: &'a Value, list: &str) -> impl Iterator<Item = (usize, &'a Value)> + use<'a> {
    pod[list].as_array().into_iter().flatten().enumerate().filter(|(_, container)| container.is_object())
}

/// The beginning of a vendor's word.
fn word(text: &str) -> String {
    match text.char_indices().nth(WORD) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
