use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::manifest::BYTES;
use super::*;

fn policy(text: Value) -> ObjectPolicy {
    let patterns = |all: &Value| all.as_array().map(|_| serde_json::from_value(all.clone()).unwrap());
    ObjectPolicy {
        images: patterns(&text["images"]),
        memory: text["memory"].as_u64(),
        milli_cpus: text["cpus"].as_u64(),
        kubernetes: text.get("kubernetes").map(|all| serde_json::from_value(all.clone()).unwrap()),
    }
}

fn reasons(policy: &ObjectPolicy, object: &Value) -> Vec<String> {
    let mut verdict = Verdict::default();
    verdict.object(policy, "plant", object);
    verdict.settle(&BTreeSet::from(["Recipe.plant.example".to_owned()]));
    verdict.reasons()
}

/// What is told, without the quotes around object and field.
fn told(policy: &ObjectPolicy, object: &Value) -> String {
    reasons(policy, object).join("; ").replace('`', "")
}

/// A workload with this pod.
fn deployment(pod: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
           "spec": {"template": {"spec": pod}}})
}

#[test]
fn every_image_of_every_pod_has_to_be_admitted_wherever_the_pod_is() {
    let policy = policy(json!({"images": ["r.plant.local/**"]}));
    let (good, bad) = ("r.plant.local/a/b:1@sha256:0", "docker.io/library/x:1");
    let pod = |image: &str| json!({"containers": [{"name": "a", "image": image}]});
    for place in [
        |pod: Value| json!({"kind": "Pod", "spec": pod}),
        |pod: Value| json!({"kind": "PodTemplate", "template": {"spec": pod}}),
        |pod: Value| json!({"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {"spec": pod}}}}}),
        |pod: Value| json!({"kind": "Recipe", "spec": {"steps": [{"runs": {"in": pod}}]}}),
        |pod: Value| json!({"kind": "Recipe", "containers": pod["containers"]}),
        |pod: Value| json!({"kind": "List", "items": [{"kind": "Pod", "spec": pod}]}),
        |pod: Value| json!({"kind": "PodList", "items": [{"spec": pod}]}),
        deployment,
    ] {
        assert_eq!(told(&policy, &place(pod(good))), "");
        let denied = told(&policy, &place(pod(bad)));
        assert!(
            denied.ends_with("containers[0].image is docker.io/library/x, which isn't among policy.images"),
            "{denied}"
        );
    }
    for list in ["initContainers", "ephemeralContainers"] {
        let mut pod = pod(good);
        pod[list] = json!([{"name": "a", "image": good}, {"name": "b", "image": bad}]);
        let expected = format!(
            "Deployment web: spec.template.spec.{list}[1].image is docker.io/library/x, which isn't among policy.images"
        );
        assert_eq!(told(&policy, &deployment(pod)), expected);
    }
    let mut mounted = pod(good);
    mounted["volumes"] = json!([{"name": "a"}, {"name": "b", "image": {"reference": bad}}]);
    assert!(told(&policy, &deployment(mounted)).contains("volumes[1].image.reference is docker.io"));
    for nothing in [json!({}), json!({"image": null}), json!({"image": ["r.plant.local/a"]})] {
        assert!(
            told(&policy, &deployment(json!({"containers": [nothing]}))).contains("containers[0].image is missing")
        );
    }
    for trick in ["r.plant.local.evil.example/a", "r.plant.local/../evil/a", "u@r.plant.local/a"] {
        assert_ne!(told(&policy, &deployment(pod(trick))), "", "{trick}");
    }
    assert_eq!(told(&ObjectPolicy::default(), &deployment(pod(bad))), "");
}

#[test]
fn a_pod_is_over_the_ceiling_together_alone_or_without_a_limit() {
    let policy = policy(json!({"memory": 1_u64 << 20, "cpus": 1000}));
    let container = |memory: Value, cpu: Value| json!({"resources": {"limits": {"memory": memory, "cpu": cpu}}});
    let stays = |memory: &str| {
        let mut container = container(memory.into(), "1m".into());
        container["restartPolicy"] = "Always".into();
        container
    };
    let fits = |memory: &str| container(memory.into(), "100m".into());
    for (containers, before, expected) in [
        (vec![fits("1Mi")], vec![], ""),
        (vec![container(json!(1_048_576), json!(1))], vec![], ""),
        (vec![fits("512Ki"), fits("512Ki")], vec![fits("1Mi"), fits("1024Ki")], ""),
        (vec![fits("0.5Mi")], vec![stays("524288")], ""),
        (
            vec![fits("1Mi"), fits("1")],
            vec![],
            "containers[*].resources.limits.memory of a pod's containers together is over",
        ),
        (vec![fits("513Ki")], vec![stays("512Ki")], "containers[*].resources.limits.memory of a pod's"),
        (vec![fits("1")], vec![stays("1Ki"), fits("1Mi")], "containers[*].resources.limits.memory of a pod's"),
        (vec![fits("2Mi")], vec![], "containers[0].resources.limits.memory is over policy.ceilings.memory"),
        (vec![fits("1")], vec![fits("2M")], "initContainers[0].resources.limits.memory is over"),
        (vec![fits("0")], vec![], "limits.memory is missing, so it is over"),
        (vec![container(Value::Null, "1m".into())], vec![], "limits.memory is missing, so it is over"),
        (vec![json!({})], vec![], "limits.memory is missing, so it is over"),
        (vec![container("1m".into(), "1001m".into())], vec![], "limits.cpu is over policy.ceilings.cpus"),
        (vec![container("1".into(), "1.0001".into())], vec![], "limits.cpu is over"),
        (vec![container("1".into(), json!(1.5))], vec![], "limits.cpu is over"),
        (vec![container("1".into(), "1e1".into())], vec![], "limits.cpu is over"),
        (vec![container("1_0".into(), "1".into())], vec![], "limits.memory can't be read, so it is over"),
        (vec![container("-1".into(), "1".into())], vec![], "limits.memory can't be read"),
        (vec![container(json!([1]), "1".into())], vec![], "limits.memory can't be read"),
    ] {
        let found = told(&policy, &deployment(json!({"containers": containers, "initContainers": before})));
        assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{expected}: {found}");
    }
}

#[test]
fn an_amount_is_read_as_kubernetes_writes_it() {
    for (text, milli) in [
        ("1", Some(1000)),
        ("0.1", Some(100)),
        (".5", Some(500)),
        ("1.", Some(1000)),
        ("100m", Some(100)),
        ("1u", Some(1)),
        ("1500n", Some(1)),
        ("2k", Some(2_000_000)),
        ("1Ki", Some(1_024_000)),
        ("1.5Gi", Some(1_610_612_736_000)),
        ("1E", Some(1_000_000_000_000_000_000_000)),
        ("1e3", Some(1_000_000)),
        ("1E-3", Some(1)),
        ("", None),
        (".", None),
        ("Mi", None),
        ("1mi", None),
        ("1e", None),
        ("1e99", None),
        ("+1", None),
        ("0x1", None),
        ("1.1.1", None),
        ("1 Mi", None),
        ("123456789012345678901", None),
    ] {
        assert_eq!(quantity::milli(&text.into()), milli, "{text}");
    }
}

#[test]
fn what_lies_elsewhere_or_belongs_to_the_whole_cluster_has_to_be_listed() {
    let policy = policy(json!({"kubernetes": {"clusterScoped": ["ClusterRole", "Line"]}}));
    let object = |api: &str, kind: &str, namespace: Value| json!({"apiVersion": api, "kind": kind, "metadata": {"name": "x", "namespace": namespace}});
    for (api, kind, namespace, expected) in [
        ("v1", "ConfigMap", Value::Null, ""),
        ("v1", "ConfigMap", "plant".into(), ""),
        (
            "v1",
            "ConfigMap",
            "kube-system".into(),
            "ConfigMap x: metadata.namespace is another one than the release's, which is plant",
        ),
        ("v1", "ConfigMap", json!(["plant"]), "metadata.namespace is another one"),
        ("apps/v1", "Deployment", Value::Null, ""),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", Value::Null, ""),
        (
            "rbac.authorization.k8s.io/v1",
            "ClusterRoleBinding",
            Value::Null,
            "ClusterRoleBinding x: kind is cluster-scoped",
        ),
        ("v1", "Namespace", Value::Null, "Namespace x: kind is cluster-scoped"),
        ("v1", "PersistentVolume", "plant".into(), "PersistentVolume x: kind is cluster-scoped"),
        ("storage.k8s.io/v1", "StorageClass", Value::Null, "is cluster-scoped"),
        (
            "scheduling.k8s.io/v1",
            "PriorityClass",
            "plant".into(),
            "PriorityClass x: kind isn't known to lie in a namespace",
        ),
        ("plant.example/v1", "Recipe", Value::Null, ""),
        ("plant.example/v1", "Line", Value::Null, ""),
        ("evil.example/v1", "Recipe", "plant".into(), "Recipe x: kind isn't known to lie in a namespace"),
        ("evil.example/v1", "Deployment", Value::Null, "Deployment x: kind isn't known to lie in a namespace"),
        ("", "", Value::Null, "kind is cluster-scoped"),
    ] {
        let found = told(&policy, &object(api, kind, namespace.clone()));
        assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{kind} {namespace}: {found}");
    }
    assert_eq!(told(&ObjectPolicy::default(), &object("v1", "Namespace", "other".into())), "");
}

#[test]
fn ports_of_nodes_have_to_be_within_the_ranges() {
    let some = policy(json!({"kubernetes": {"nodePorts": [[30000, 30100], [30200, 30200]]}}));
    let all = policy(json!({"kubernetes": {"nodePorts": [[30000, 32767], [80, 80]]}}));
    let none = policy(json!({"kubernetes": {}}));
    let service = |spec: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec});
    let node = |port: Value| service(json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}));
    let balancer = |more: Value| {
        let mut spec = json!({"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30000}]});
        more.as_object().unwrap().iter().for_each(|(key, value)| spec[key] = value.clone());
        service(spec)
    };
    for (policy, object, expected) in [
        (&none, service(json!({"ports": [{"port": 80}]})), ""),
        (&none, service(json!({"type": "ClusterIP", "ports": [{"port": 80, "nodePort": 0}]})), ""),
        (&some, node(json!(30100)), ""),
        (&some, node(json!(30200)), ""),
        (&some, node(json!(30101)), "Service s: spec.ports[0].nodePort isn't within policy.kubernetes.nodePorts"),
        (&none, node(json!(30000)), "nodePort isn't within"),
        (&some, node(json!("030000")), "nodePort isn't within"),
        (&some, node(json!(95_536 + 30_000)), "nodePort isn't within"),
        (&some, node(Value::Null), "nodePort is missing, so it may be any of 30000–32767"),
        (&all, node(Value::Null), ""),
        (&none, service(json!({"ports": [{"port": 80, "nodePort": 30000}]})), "nodePort isn't within"),
        (&all, balancer(json!({})), ""),
        (
            &all,
            balancer(json!({"ports": [{"port": 443}], "allocateLoadBalancerNodePorts": false})),
            "port of a load balancer isn't within",
        ),
        (
            &some,
            balancer(json!({"ports": [{"port": 80}], "allocateLoadBalancerNodePorts": "no"})),
            "nodePort is missing",
        ),
        (&some, balancer(json!({"type": ["NodePort"]})), "port of a load balancer isn't within"),
        (&all, balancer(json!({"healthCheckNodePort": 1})), "spec.healthCheckNodePort isn't within"),
        (&all, service(json!({"externalIPs": ["10.0.0.1"]})), "spec.externalIPs opens ports"),
        (&all, service(json!({"externalIPs": []})), ""),
    ] {
        let found = told(policy, &object);
        assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{object}: {found}");
    }
}

#[test]
fn with_pod_security_nothing_of_a_chart_may_lift_what_the_namespace_enforces() {
    let object = |kind: &str, more: Value| {
        let mut object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "x"}});
        more.as_object().unwrap().iter().for_each(|(key, value)| object[key] = value.clone());
        object
    };
    let rule =
        |resource: &str, verb: &str| object("Role", json!({"rules": [{}, {"resources": [resource], "verbs": [verb]}]}));
    let bound = |kind: &str, name: &str| object("RoleBinding", json!({"roleRef": {"kind": kind, "name": name}}));
    let labelled = |level: &str| {
        let labels = json!({"metadata": {"name": "plant", "labels": {ENFORCE: level}}, "apiVersion": "v1"});
        object("Namespace", labels)
    };
    let said = policy(json!({"kubernetes": {"podSecurity": "baseline", "clusterScoped": ["Namespace"]}}));
    let unsaid = policy(json!({"kubernetes": {"clusterScoped": ["Namespace"]}}));
    for (object, expected) in [
        (rule("configmaps", "*"), ""),
        (rule("namespaces", "get"), ""),
        (rule("namespaces", "patch"), "Role x: rules[1] may change the namespace"),
        (rule("namespaces/status", "update"), "rules[1] may change"),
        (rule("*", "update"), "rules[1] may change"),
        (rule("*/status", "update"), "rules[1] may change"),
        (rule("roles", "create"), ""),
        (rule("roles", "escalate"), "rules[1] may change"),
        (rule("rolebindings", "bind"), "rules[1] may change"),
        (bound("Role", "x"), ""),
        (bound("ClusterRole", "edit"), ""),
        (bound("ClusterRole", "cluster-admin"), "RoleBinding x: roleRef is a cluster's role"),
        (labelled("restricted"), ""),
        (labelled("baseline"), ""),
        (labelled("privileged"), "enforces less than policy.kubernetes.podSecurity: baseline"),
        (labelled("none"), "enforces less"),
    ] {
        let found = told(&said, &object);
        assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{object}: {found}");
        assert_eq!(told(&unsaid, &object), "", "{object}");
    }
    for (level, label, is_enforced) in [
        (PodSecurity::Baseline, Some("baseline"), true),
        (PodSecurity::Baseline, Some("restricted"), true),
        (PodSecurity::Baseline, Some("privileged"), false),
        (PodSecurity::Baseline, Some("Restricted"), false),
        (PodSecurity::Baseline, None, false),
        (PodSecurity::Restricted, Some("baseline"), false),
        (PodSecurity::Privileged, None, true),
    ] {
        assert_eq!(level.is_enforced_by(label), is_enforced, "{level:?} {label:?}");
    }
}

#[test]
fn what_is_told_is_short_whatever_a_vendor_writes() {
    let policy = policy(json!({"images": []}));
    let long = "x".repeat(5000);
    let containers: Vec<_> = (0..100).map(|_| json!({"image": long})).collect();
    let object = json!({"kind": long, "metadata": {"name": long}, "spec": {&long: {"containers": containers}}});
    let found = reasons(&policy, &object);
    assert!(!found.is_empty() && found.iter().all(|reason| reason.len() < 700), "{found:?}");
    let found = reasons(&policy, &json!({"kind": "Pod", "spec": {"containers": containers}}));
    assert_eq!((found.len(), found[8].as_str()), (9, "and 92 more"), "{found:?}");
}

fn read(text: &str) -> Result<Vec<Value>, String> {
    let mut all = Vec::new();
    Manifest::default().read(text, |object| all.push(object.clone())).map(|()| all)
}

#[test]
fn documents_are_parted_as_kubernetes_does_and_what_readers_differ_on_is_refused() {
    let text =
        "---\n# Source: web/templates/a.yaml\nkind: A\na: &x {b: 1}\nc: *x\n--- # and\n# nothing\n---\r\nkind: B\r\n";
    let expected = [json!({"kind": "A", "a": {"b": 1}, "c": {"b": 1}}), json!({"kind": "B"})];
    assert_eq!(read(text).unwrap(), expected);
    assert_eq!(
        read(r#"{"kind": "C", "n": 1.5, "b": true, "z": null}"#).unwrap(),
        [json!({"kind": "C", "n": 1.5, "b": true, "z": null})]
    );
    // What YAML 1.1 takes for another number is text, and so no port or limit.
    let numbers = "a: 030000\nb: 0x10\nc: 0o7\nd: 1_000\ne: 1:30\nf: yes\ng: -0\nh: 0\ni: 0.5\n";
    let expected = json!({"a": "030000", "b": "0x10", "c": "0o7", "d": "1_000", "e": "1:30", "f": "yes", "g": "-0", "h": 0, "i": 0.5});
    assert_eq!(read(numbers).unwrap(), [expected]);
    for (text, words) in [
        ("# Source: web/a.yaml\nkind: A\nkind: B\n", "web/a.yaml:3:1: duplicate key"),
        ("kind: A\n\"\\u006bind\": B\n", "duplicate key"),
        ("a: &x {kind: A}\n<<: *x\n", "merge keys"),
        ("kind: !!binary a2luZA==\n", "tags such as"),
        ("%YAML 1.1\nkind: A\n", "directives"),
        ("kind: A\n...\nkind: B\n", "manifest"),
        ("kind: A\n--- {kind: B}\n", "something follows `---`"),
        ("# a\u{2028}kind: A\n", "line 1 holds a character"),
        ("kind: A\n# a\u{85}spec: {}\n", "line 2 holds a character"),
        ("# a\rkind: A\n", "line 1 holds a character"),
        ("kind: A\r---\rkind: B\n", "holds a character"),
        ("\u{feff}kind: A\n", "holds a character"),
        ("? {a: b}\n: c\n", "can't be a key"),
        ("a: [\n", "not closed"),
    ] {
        let problem = read(text).unwrap_err();
        assert!(problem.contains(words), "{text}: {problem}");
    }
}

#[test]
fn what_a_chart_renders_to_has_bounds() {
    let bomb = |levels: usize| {
        let level = |at: usize| format!("a{at}: &a{at} [{}]\n", vec![format!("*a{}", at - 1); 10].join(", "));
        format!("a0: &a0 x\n{}", (1..=levels).map(level).collect::<String>())
    };
    assert!(read(&bomb(9)).unwrap_err().contains("more than 300000 values"));
    let many = format!("---\n{}", bomb(4)).repeat(300);
    assert!(read(&many).unwrap_err().contains("more than 2000000 values"));
    assert!(read(&"a: 1\n---\n".repeat(10_001)).unwrap_err().contains("more than 10000 objects"));
    assert!(read(&"#\n".repeat(BYTES / 2 + 1)).unwrap_err().contains("bytes"));
    assert!(read(&format!("a: {}x{}\n", "[".repeat(200), "]".repeat(200))).unwrap_err().contains("nested"));
    let mut manifest = Manifest::default();
    let half = format!("a: |\n{}", format!("  {}\n---\nb: |\n", "x".repeat(1 << 20)).repeat(20));
    assert_eq!(manifest.read(&half, |_| {}), Ok(()));
    assert!(manifest.read(&half, |_| {}).unwrap_err().contains("bytes"), "of all texts together");
}
