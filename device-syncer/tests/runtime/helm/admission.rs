//! What a site admits of charts.

use super::*;

/// Lets the site say this; `images` are patterns.
fn site(world: &mut World, images: Option<&[&str]>, kubernetes: Option<Value>) {
    let patterns = |all: &[&str]| all.iter().map(|one| (*one).to_owned().try_into().unwrap()).collect();
    let kubernetes = kubernetes.map(|said| serde_json::from_value(said).unwrap());
    world.settings.policy = ObjectPolicy { images: images.map(patterns), kubernetes, ..ObjectPolicy::default() };
    world.restart();
}

/// Gives the component a chart with this one template, and a container that keeps it small.
fn template(world: &mut World, text: &str) {
    world.chart(chart::pack("web", "1.0.0", &[("templates/a.yaml", text)]));
}

/// The reason, without quotes, for which the policy denies it before anything of its deployment is changed.
fn denial(world: &World) -> String {
    let error = world.runtime.prefetch(&world.component, Source::Anywhere, &|| false).unwrap_err();
    assert_eq!((error.code().as_str(), error.is_transient()), ("policy-denied", false), "{error}");
    error.to_string().replace('`', "")
}

pub(super) fn what_a_site_does_not_admit_of_a_chart_is_told_before_anything_is_made(world: &mut World) {
    let log = wrap(world, "echo \"$@\" >>$log");
    site(world, Some(&["registry.plant.local/**"]), None);
    let reason = denial(world);
    let field = "spec.template.spec.containers[0].image is web, which isn't among policy.images";
    assert!(reason.contains(&format!("Deployment {}: {field}", world.release())), "{reason}");
    assert_eq!(world.observed(), None);
    let there = kubectl(&["get", "namespace", &world.namespace()]).output().unwrap();
    assert!(!there.status.success(), "not even its namespace is made");
    site(world, Some(&["web"]), None);
    world.apply().unwrap();
    world.assert_runs();
    world.text("hooks.pre-upgrade", "ok");
    let reason = denial(world);
    assert!(reason.contains("Job ") && reason.contains("containers[0].image is hook"), "{reason}");
    world.unset("hooks.pre-upgrade");
    world.settings.policy.memory = Some(1 << 30);
    world.restart();
    let reason = denial(world);
    assert!(reason.contains("resources.limits.memory is missing, so it is over policy.ceilings.memory"), "{reason}");
    assert_eq!(world.statuses(), ["deployed"], "what runs keeps running");
    world.settings.policy = ObjectPolicy::default();
    world.restart();
    repo_git::durable::remove_file(&log).unwrap();
    world.text("greeting", "silent");
    world.apply().unwrap();
    let calls = fs::read_to_string(&log).unwrap();
    assert!(
        !calls.contains("--dry-run") && calls.contains("upgrade"),
        "a site that says nothing pays nothing: {calls}"
    );
}

pub(super) fn what_a_chart_hides_where_rendering_does_not_show_it_is_judged_too(world: &mut World) {
    site(world, Some(&["web"]), None);
    let pod = |image: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: x}}\nspec: {{containers: [{{name: x, image: {image}}}]}}\n"
        )
    };
    let evil = pod("evil");
    let hook = |event: &str| {
        format!("{}\n", evil.replace("{name: x}", &format!("{{name: x, annotations: {{helm.sh/hook: {event}}}}}")))
    };
    let subchart = ("charts/sub/Chart.yaml", "apiVersion: v2\nname: sub\nversion: 1.0.0\n");
    for files in [
        [("crds/a.yaml", evil.as_str()), subchart],
        [("charts/sub/crds/a.yml", &evil), subchart],
        [("charts/sub/templates/a.yaml", &evil), subchart],
        [("templates/a.yaml", &hook("post-install")), subchart],
        [("templates/a.yaml", &hook("pre-delete,test")), subchart],
        [("templates/a.yaml", &format!("{}---\n{evil}", pod("web"))), subchart],
    ] {
        world.chart(chart::pack("web", "1.0.0", &files));
        let reason = denial(world);
        assert!(reason.contains("Pod x: spec.containers[0].image is evil"), "{files:?}: {reason}");
    }
    // Only `helm test` runs it, and nothing calls that.
    world.chart(chart::pack("web", "1.0.0", &[("templates/a.yaml", &hook("test"))]));
    world.apply().unwrap();
    let twice = "apiVersion: v1\nkind: ConfigMap\nkind: Pod\nmetadata: {name: x}\n";
    template(world, twice);
    let error = world.apply().unwrap_err();
    assert!(["policy-denied", "helm-failed"].contains(&error.code().as_str()), "{error}");
}

pub(super) fn a_chart_that_reaches_beyond_its_namespace_is_denied(world: &mut World) {
    let object = |kind: &str, more: &str| {
        format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: {{{{ .Release.Name }}}}{more}}}\n")
    };
    let role =
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: \"{{ .Release.Name }}\"}\n";
    let service = |port: u16| {
        format!("{}spec: {{type: NodePort, ports: [{{port: 80, nodePort: {port}}}]}}\n", object("Service", ""))
    };
    let port = 30000 + u16::from_le_bytes(uuid::Uuid::new_v4().as_bytes()[..2].try_into().unwrap()) % 2000;
    let said = |listed: &[&str]| json!({"nodePorts": [[port, port]], "clusterScoped": listed});
    for (text, expected) in [
        (role.to_owned(), "kind is cluster-scoped, and isn't among policy.kubernetes.clusterScoped"),
        (object("ConfigMap", ", namespace: default"), "metadata.namespace is another one than the release's"),
        (service(port + 1), "spec.ports[0].nodePort isn't within policy.kubernetes.nodePorts"),
        (object("Service", "") + "spec: {type: NodePort, ports: [{port: 80}]}\n", "nodePort is missing"),
    ] {
        site(world, None, Some(said(&[])));
        template(world, &text);
        let reason = denial(world);
        assert!(reason.contains(expected), "{reason}");
    }
    template(world, &service(port));
    world.apply().unwrap();
    site(world, None, Some(said(&["ClusterRole"])));
    template(world, role);
    world.apply().unwrap();
    world.remove(30).unwrap();
}

pub(super) fn the_namespace_has_to_enforce_what_the_site_wants(world: &mut World) {
    site(world, None, Some(json!({"podSecurity": "baseline"})));
    let namespace = world.namespace();
    let label = |level: &str| format!("kubectl label namespace {namespace} pod-security.kubernetes.io/enforce={level}");
    let reason = denial(world);
    assert!(reason.contains("enforces nothing") && reason.contains(&label("baseline")), "{reason}");
    assert!(kubectl(&["create", "namespace", &namespace]).output().unwrap().status.success());
    assert!(denial(world).contains("enforces nothing"));
    let enforce = |level: &str| {
        let label = format!("pod-security.kubernetes.io/enforce={level}");
        let output = kubectl(&["label", "namespace", &namespace, &label, "--overwrite"]).output().unwrap();
        assert!(output.status.success());
    };
    enforce("privileged");
    assert!(denial(world).contains("enforces privileged"));
    for level in ["baseline", "restricted"] {
        enforce(level);
        world.text("greeting", level);
        world.component.wait = level == "baseline";
        world.apply().unwrap();
    }
    // The cluster itself holds the pods to it.
    enforce("baseline");
    world.component.wait = true;
    template(
        world,
        "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {hostNetwork: true, containers: [{name: x, image: x}]}\n",
    );
    let error = world.apply().unwrap_err();
    assert!(error.to_string().contains("violates PodSecurity"), "{error}");
}

pub(super) fn where_kinds_of_others_lie_is_asked_of_the_cluster(world: &mut World) {
    let group = format!("g{}.example", world.component.deployment.to_string().replace('-', ""));
    let definition = |scope: &str, kind: &str, plural: &str| {
        format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: {plural}.{group}}}\nspec:\n  \
             group: {group}\n  scope: {scope}\n  names: {{kind: {kind}, plural: {plural}}}\n  versions: [{{name: v1, served: \
             true, storage: true, schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}}}]\n"
        )
    };
    let file = world.dir.path().join("crds.yaml");
    let both =
        format!("{}---\n{}", definition("Namespaced", "Recipe", "recipes"), definition("Cluster", "Line", "lines"));
    repo_git::durable::replace_file(&file, both.as_bytes(), 0o600).unwrap();
    let path = file.to_str().unwrap().to_owned();
    assert!(kubectl(&["apply", "--filename", &path]).output().unwrap().status.success());
    let established = ["recipes", "lines"].map(|plural| format!("crd/{plural}.{group}"));
    let waits = ["wait", "--for=condition=Established", &established[0], &established[1], "--timeout=30s"];
    assert!(kubectl(&waits).output().unwrap().status.success());
    site(world, Some(&["web"]), Some(json!({})));
    let object = |kind: &str, image: &str| {
        let pod = format!("spec: {{deep: [{{containers: [{{name: x, image: {image}}}]}}]}}");
        format!("apiVersion: {group}/v1\nkind: {kind}\nmetadata: {{name: x}}\n{pod}\n")
    };
    template(world, &object("Line", "web"));
    let reason = denial(world);
    assert!(reason.contains("Line x: kind isn't known to lie in a namespace"), "{reason}");
    template(world, &object("Recipe", "evil"));
    let reason = denial(world);
    assert!(reason.contains("Recipe x: spec.deep[0].containers[0].image is evil"), "{reason}");
    template(world, &object("Recipe", "web"));
    world.apply().unwrap();
    world.remove(30).unwrap();
    let _ = kubectl(&["delete", "--filename", &path, "--wait=false"]).output();
}

pub(super) fn a_release_that_was_left_under_way_is_judged_once_it_is_brought_back(world: &mut World) {
    world.apply().unwrap();
    world.kill_upgrade("pre-upgrade", "pending-upgrade");
    site(world, Some(&["other"]), None);
    world.text("greeting", "after");
    let prepared = world.runtime.prefetch(&world.component, Source::Anywhere, &|| false).unwrap();
    let error = world.runtime.apply(&prepared, &Cancel::whatever(&|| false)).unwrap_err();
    assert_eq!(error.code().as_str(), "policy-denied", "{error}");
    assert_eq!(world.statuses().last().unwrap(), "deployed", "it is brought back, and goes on");
    site(world, Some(&["web"]), None);
    world.apply().unwrap();
    world.assert_runs();
}

pub(super) fn what_becomes_something_else_when_it_is_applied_is_told_and_goes_on(world: &mut World) {
    site(world, Some(&["web"]), None);
    let namespace = world.namespace();
    assert!(kubectl(&["create", "namespace", &namespace]).output().unwrap().status.success());
    let image = r#"{{ if lookup "v1" "ConfigMap" .Release.Namespace "flag" }}evil{{ else }}web{{ end }}"#;
    let pod = format!("spec: {{containers: [{{name: x, image: {image}}}]}}");
    template(world, &format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: x}}\n{pod}\n"));
    let prepared = world.runtime.prefetch(&world.component, Source::Anywhere, &|| false).unwrap();
    assert!(kubectl(&["create", "configmap", "flag", "--namespace", &namespace]).output().unwrap().status.success());
    let denied = |error: RuntimeError, words: &str| {
        assert_eq!((error.code().as_str(), error.is_transient()), ("policy-denied", false), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    };
    denied(
        world.runtime.apply(&prepared, &Cancel::whatever(&|| false)).unwrap_err(),
        "image` is evil, which isn't among",
    );
    assert_eq!(
        (world.statuses(), world.object("pod", "x")["spec"]["containers"][0]["image"].clone()),
        (vec!["deployed".to_owned()], json!("evil"))
    );
    let found = world.observed().unwrap();
    assert!(found.violation.unwrap().contains("image` is evil"));
    assert_eq!((found.input_digest, found.condition), (Some(world.component.input_digest), Condition::Running));
    // A cluster that reads the manifest otherwise than this program: only the objects as they live show it.
    world.remove(30).unwrap();
    world.chart(chart::pack_dir(&fixture("web")));
    let helm = world.settings.program.display().to_string();
    let other =
        format!("if [ $1 = status ]; then {helm} \"$@\" | sed 's/\"image\": *\"web/\"image\":\"evil/g'; exit; fi");
    wrap(world, &other);
    denied(world.apply().unwrap_err(), "image` is evil, which isn't among");
}

pub(super) fn what_runs_is_told_once_the_site_does_not_admit_it_any_more(world: &mut World) {
    world.apply().unwrap();
    assert_eq!(world.observed().unwrap().violation, None);
    site(world, Some(&["other"]), Some(json!({})));
    let found = world.observed().unwrap();
    assert!(found.violation.unwrap().contains("image` is web, which isn't among"));
    assert_eq!(found.condition, Condition::Running);
    world.assert_runs();
    site(world, Some(&["web"]), Some(json!({})));
    assert_eq!(world.observed().unwrap().violation, None);
}
