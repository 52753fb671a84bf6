//! The objects of a release as they live: whether one is gone, or isn't available.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use repo_model::IntoMap;
use repo_model::envelope::IgnoredDrift;
use serde::Deserialize;
use serde_json::Value;

use super::admit::denied;
use super::client::HELM;
use super::release::Listed;
use super::rendered::Rendered;
use super::{HelmRuntime, drift};
use crate::decision::observation::Condition;
use crate::runtimes::RuntimeError;

/// Kinds that end or are removed by themselves.
const PASSING: &[&str] = &["Job", "Pod", "List"];

/// What `helm status` says of a release.
#[derive(Debug, Deserialize)]
struct Status {
    info: Info,
    #[serde(flatten)]
    rendered: Rendered,
}

#[derive(Debug, Deserialize)]
struct Info {
    /// What the server lists, by `apiVersion` and `kind`.
    #[serde(default)]
    resources: BTreeMap<String, Vec<Value>>,
}

/// Ends the names of lists of what the cluster made for objects of the manifest.
const RELATED: &str = "(related)";

/// What comes back as often as this is made by something in the cluster, not by a person: it is left to it.
const STUBBORN: u32 = 3;

impl HelmRuntime {
    /// How the objects of a release that is deployed are, but for what is ignored, and what of them the site's policy doesn't
    /// admit. What helm can't tell is no reason to doubt them.
    pub(super) fn objects(
        &self,
        listed: &Listed,
        ignored: &[IgnoredDrift],
    ) -> Result<(Condition, Option<String>), RuntimeError> {
        let Some(status) = self.status(&listed.namespace, &listed.name)? else { return Ok((Condition::Running, None)) };
        let healed = self.healed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_stubborn =
            |what: &str| healed.get(&(listed.name.clone(), what.to_owned())).is_some_and(|count| *count >= STUBBORN);
        let condition = condition(&status, &listed.namespace, &is_stubborn, ignored);
        let policy = &self.settings.policy;
        let judged = || status.rendered.judge(policy, &listed.namespace, &[]).reasons();
        let reasons = if policy.is_silent() { Vec::new() } else { judged() };
        Ok((condition, (!reasons.is_empty()).then(|| reasons.join("; "))))
    }

    /// Judges what was applied as it is now: its chart may have rendered to something else than before, and the cluster
    /// may read it otherwise than this program. So the objects as they live are judged, too.
    pub(super) fn check_applied(&self, namespace: &str, release: &str) -> Result<(), RuntimeError> {
        let policy = &self.settings.policy;
        if policy.is_silent() {
            return Ok(());
        }
        let problem = || HELM.unavailable("what `helm status` printed can't be read".to_owned(), None);
        let status = self.status(namespace, release)?.ok_or_else(problem)?;
        let mut verdict = status.rendered.judge(policy, namespace, &[]);
        for (kind, objects) in status.info.resources.iter().filter(|(kind, _)| !kind.ends_with(RELATED)) {
            for object in objects {
                let mut object = object.clone();
                if let (Some(map), Some((api_version, _))) = (object.as_object_mut(), kind.rsplit_once('/')) {
                    map.entry("apiVersion").or_insert_with(|| api_version.into());
                }
                verdict.object(policy, namespace, &object);
            }
        }
        self.ask_the_cluster(&mut verdict, namespace)?;
        denied(release, verdict)
    }

    /// What helm says of a release and its objects; `None` if that can't be read.
    fn status(&self, namespace: &str, release: &str) -> Result<Option<Status>, RuntimeError> {
        let mut args = vec!["status", release, "--namespace", namespace, "--output", "json"];
        if self.helm_version()?.starts_with("v3.") {
            args.push("--show-resources");
        }
        let output = self.helm.try_ask(&args)?;
        Ok(serde_json::from_slice(&output.stdout).ok().filter(|_| output.status.success()))
    }

    /// Notes that what somebody changed of a release is undone, if that is so.
    pub(super) fn note_healed(&self, namespace: &str, release: &str) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = known.iter().find(|(listed, _)| listed.name == release && listed.namespace == namespace);
        let Some(Condition::Edited(what)) = seen.map(|(_, seen)| &seen.condition) else { return };
        let mut healed = self.healed.lock().unwrap_or_else(PoisonError::into_inner);
        let count = healed.entry((release.to_owned(), what.clone())).or_default();
        *count += 1;
        if *count == STUBBORN {
            tracing::warn!(release, what, "comes back as soon as it is undone; left to whoever changes it");
        }
    }
}

fn condition(
    status: &Status,
    namespace: &str,
    is_stubborn: &dyn Fn(&str) -> bool,
    ignored: &[IgnoredDrift],
) -> Condition {
    let live: Vec<&Value> = status.info.resources.values().flatten().collect();
    let found: BTreeMap<_, _> = live.iter().filter_map(|object| Some((identity(object)?, *object))).into_map();
    let documents = serde_yaml::from_multiple::<Value>(&status.rendered.manifest).unwrap_or_default();
    let covers = |(kind, name): (&str, &str), part: &str| ignored.iter().any(|one| one.covers(kind, name, part));
    let mut declared = Vec::new();
    for document in documents.iter() {
        let Some((kind, name, own)) = identity(document).filter(|(kind, ..)| !PASSING.contains(kind)) else { continue };
        if covers((kind, name), "") {
            continue;
        }
        let place = if own.is_empty() { namespace } else { own };
        // One without a namespace belongs to the whole cluster.
        let Some(object) = [place, ""].into_iter().find_map(|place| found.get(&(kind, name, place))) else {
            tracing::warn!(kind, name, "an object of a release is gone");
            return Condition::Missing;
        };
        declared.push((document, *object, (kind, name)));
    }
    let edited = declared.into_iter().find_map(|(document, object, identity)| {
        let is_scaled_by_another = live.iter().any(|one| scales(one, object));
        drift::edited(document, object, is_scaled_by_another, &|part| covers(identity, part))
            .filter(|what| !is_stubborn(what))
    });
    if let Some(what) = edited {
        tracing::warn!(what, "an object of a release was changed");
        return Condition::Edited(what);
    }
    if let Some(pod) = live.iter().find_map(|object| crash_loop(object)) {
        return Condition::CrashLooping(pod);
    }
    live.iter().find_map(|object| lack(object)).map_or(Condition::Running, Condition::Degraded)
}

/// Which pod of a list of those that the cluster made for an object ends again and again, in a few words.
fn crash_loop(list: &Value) -> Option<String> {
    let pods = list["items"].as_array().filter(|_| list["kind"] == "PodList")?;
    let is_looping = |container: &&Value| container["state"]["waiting"]["reason"] == "CrashLoopBackOff";
    pods.iter().find_map(|pod| {
        let containers =
            ["initContainerStatuses", "containerStatuses"].iter().filter_map(|key| pod["status"][key].as_array());
        let container = containers.flatten().find(is_looping)?;
        let (restarts, name) = (container["restartCount"].as_u64().unwrap_or(0), container["name"].as_str()?);
        let pod = pod["metadata"]["name"].as_str()?;
        Some(format!("Pod {pod} has restarted container `{name}` {restarts} times so far"))
    })
}

/// Whether an object says how many of another one there are: an autoscaler.
fn scales(scaler: &Value, object: &Value) -> bool {
    let target = &scaler["spec"]["scaleTargetRef"];
    let is_of_kind = !target["kind"].is_string() || target["kind"] == object["kind"];
    is_of_kind && target["name"] == object["metadata"]["name"]
}

fn identity(object: &Value) -> Option<(&str, &str, &str)> {
    let metadata = &object["metadata"];
    let namespace = metadata["namespace"].as_str().unwrap_or_default();
    Some((object["kind"].as_str()?, metadata["name"].as_str()?, namespace))
}

/// What a controller's object lacks, in a few words.
fn lack(object: &Value) -> Option<String> {
    let (kind, name, _) = identity(object)?;
    let status = &object["status"];
    let replicas = || object["spec"]["replicas"].as_u64().unwrap_or(1);
    let (wanted, ready) = match kind {
        "Deployment" => (replicas(), &status["availableReplicas"]),
        "StatefulSet" => (replicas(), &status["readyReplicas"]),
        "DaemonSet" => (status["desiredNumberScheduled"].as_u64().unwrap_or(0), &status["numberAvailable"]),
        _ => return None,
    };
    let ready = ready.as_u64().unwrap_or(0);
    (ready < wanted).then(|| format!("{kind} {name} has {ready} of {wanted} available"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MANIFEST: &str = "---\n# Source: a\nkind: ConfigMap\nmetadata: {name: a}\n---\nkind: ClusterRole\n\
                            metadata: {name: b}\n---\nkind: Deployment\nmetadata: {name: c, namespace: x}\n---\n\
                            kind: Job\nmetadata: {name: gone}\n---\n# nothing\n";

    fn status(resources: &Value) -> Condition {
        let text = json!({"info": {"resources": resources}, "manifest": MANIFEST}).to_string();
        condition(&serde_json::from_str(&text).unwrap(), "n", &|_| false, &[])
    }

    #[test]
    fn an_object_that_is_gone_and_one_that_lacks_something_are_told_apart() {
        let object = |kind: &str, name: &str, namespace: Option<&str>, available: u64| {
            json!({"kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": {"replicas": 2},
                   "status": {"availableReplicas": available}})
        };
        let all = |available: u64| {
            json!({"v1/ConfigMap": [object("ConfigMap", "a", Some("n"), 0)], "v1/Pod(related)": [{"kind": "PodList"}],
                   "v1/ClusterRole": [object("ClusterRole", "b", None, 0)],
                   "v1/Deployment": [object("Deployment", "c", Some("x"), available)]})
        };
        assert_eq!(status(&all(2)), Condition::Running);
        assert_eq!(status(&all(1)), Condition::Degraded("Deployment c has 1 of 2 available".to_owned()));
        for kind in ["v1/ConfigMap", "v1/ClusterRole", "v1/Deployment"] {
            let mut some = all(2);
            some.as_object_mut().unwrap().remove(kind);
            assert_eq!(status(&some), Condition::Missing, "{kind}");
        }
        let mut elsewhere = all(2);
        elsewhere["v1/ConfigMap"][0]["metadata"]["namespace"] = "other".into();
        assert_eq!(status(&elsewhere), Condition::Missing);
    }

    #[test]
    fn a_pod_that_ends_again_and_again_is_told_from_one_that_is_not_there_yet() {
        let of = |reason: &str| {
            let container = json!({"name": "web", "restartCount": 7, "state": {"waiting": {"reason": reason}}});
            let pod = json!({"metadata": {"name": "c-1"}, "status": {"containerStatuses": [container]}});
            let deployment = json!({"kind": "Deployment", "metadata": {"name": "c", "namespace": "x"}});
            status(&json!({"v1/ConfigMap": [{"kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}}],
                "v1/ClusterRole": [{"kind": "ClusterRole", "metadata": {"name": "b"}}],
                "v1/Deployment": [deployment], "v1/Pod(related)": [{"kind": "PodList", "items": [pod]}]}))
        };
        let looping = "Pod c-1 has restarted container `web` 7 times so far".to_owned();
        assert_eq!(of("CrashLoopBackOff"), Condition::CrashLooping(looping));
        assert_eq!(of("ContainerCreating"), Condition::Degraded("Deployment c has 0 of 1 available".to_owned()));
    }

    #[test]
    fn an_object_that_is_ignored_as_a_whole_may_be_gone_and_another_one_of_its_kind_may_not() {
        let of = |ignored: Value| {
            let text = json!({"info": {"resources": {"v1/ClusterRole": [{"kind": "ClusterRole", "metadata": {"name": "b"}}],
                "v1/Deployment": [{"kind": "Deployment", "metadata": {"name": "c", "namespace": "x"}, "spec": {"replicas": 0}}]}},
                "manifest": MANIFEST});
            let ignored: Vec<IgnoredDrift> = serde_json::from_value(ignored).unwrap();
            condition(&serde_json::from_value(text).unwrap(), "n", &|_| false, &ignored)
        };
        assert_eq!(of(json!([{"kind": "ConfigMap", "name": "a", "pointer": ""}])), Condition::Running);
        assert_eq!(of(json!([{"kind": "ConfigMap", "pointer": ""}])), Condition::Running);
        for other in [
            json!([]),
            json!([{"kind": "ConfigMap", "name": "b", "pointer": ""}]),
            json!([{"kind": "Secret", "pointer": ""}]),
            json!([{"kind": "ConfigMap", "name": "a", "pointer": "/data"}]),
        ] {
            assert_eq!(of(other.clone()), Condition::Missing, "{other}");
        }
    }
}
