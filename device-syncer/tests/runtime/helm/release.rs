//! A release: what it gets, what is seen of it, and what is left once it is removed.

use super::*;

pub(super) fn a_chart_gets_typed_values_in_its_own_namespace(world: &mut World) {
    world.text("settings.version", "1.10");
    world.text("settings.yes", "yes");
    world.set("settings.count", ParamValue::Integer(30));
    world.set("settings.ratio", ParamValue::Double(30.0));
    world.set("settings.armed", ParamValue::Boolean(false));
    world.text(r"settings.a\.b/c", "dotted");
    world.text("settings.slots[1].name", "second");
    world.set("settings.list", ParamValue::Array(vec![ParamValue::Integer(1), ParamValue::String("1".to_owned())]));
    world.apply().unwrap();
    world.assert_runs();
    let expected = json!({"settings": {
        "version": "1.10", "yes": "yes", "count": 30, "ratio": 30.0, "armed": false, "a.b/c": "dotted",
        "slots": [null, {"name": "second"}], "list": [1, "1"],
    }});
    let values = world.ask(&["get", "values"]);
    let number = |value: &Value| value["settings"]["ratio"].as_f64();
    assert_eq!((number(&values), values["settings"]["ratio"].is_number()), (number(&expected), true));
    let without_ratio = |mut value: Value| {
        value["settings"].as_object_mut().unwrap().remove("ratio");
        value
    };
    assert_eq!(without_ratio(values), without_ratio(expected));
    let settings = world.object("configmap", world.release());
    let settings: Value = serde_json::from_str(settings["data"]["settings.json"].as_str().unwrap()).unwrap();
    assert_eq!((&settings["settings"]["version"], &settings["greeting"]), (&json!("1.10"), &json!("hello")));
    assert_eq!(world.object("namespace", &world.namespace())["status"]["phase"], "Active");
}

pub(super) fn a_second_apply_touches_no_object(world: &mut World) {
    world.apply().unwrap();
    let versions = |world: &World| {
        let version = |kind| world.object(kind, world.release())["metadata"]["resourceVersion"].clone();
        let generation = world.object("deployment", world.release())["metadata"]["generation"].clone();
        (version("configmap"), generation)
    };
    let before = versions(world);
    world.apply().unwrap();
    world.assert_runs();
    assert_eq!(versions(world), before);
}

pub(super) fn an_upgrade_sets_its_own_values_and_keeps_few_revisions(world: &mut World) {
    world.text("greeting", "first");
    world.set("replicas", ParamValue::Integer(1));
    world.apply().unwrap();
    world.unset("greeting");
    for tag in ["2", "3", "4"] {
        world.text("image.tag", tag);
        assert_ne!(world.observed().unwrap().input_digest, Some(world.component.input_digest));
        world.apply().unwrap();
        world.assert_runs();
    }
    assert_eq!(world.ask(&["get", "values"]), json!({"image": {"tag": "4"}, "replicas": 1}));
    let container = &world.object("deployment", world.release())["spec"]["template"]["spec"]["containers"][0];
    assert_eq!((&container["image"], &container["env"][0]["value"]), (&json!("web:4"), &json!("hello")));
    assert_eq!(world.statuses(), ["superseded", "superseded", "deployed"]);
}

pub(super) fn a_removal_can_be_repeated_and_leaves_nothing(world: &mut World) {
    world.remove(30).unwrap();
    world.apply().unwrap();
    world.remove(30).unwrap();
    assert_eq!(world.observed(), None);
    assert_eq!(world.objects(), [""; 0]);
    world.remove(30).unwrap();
}

pub(super) fn a_release_that_is_not_ours_is_never_taken_over(world: &mut World) {
    let chart = fixture("web");
    let namespace = world.namespace();
    for labels in ["a=b", &format!("device-syncer.fleet={},device-syncer.device=another", world.settings.fleet)] {
        let args = ["upgrade", world.release(), chart.to_str().unwrap(), "--install", "--namespace", &namespace];
        assert!(world.helm(&args).args(["--create-namespace", "--labels", labels]).output().unwrap().status.success());
        let before = world.statuses();
        let error = world.apply().unwrap_err();
        assert_eq!((error.code().as_str(), error.is_transient()), ("not-ours", false), "{error}");
        let command = format!("helm uninstall {} --namespace {namespace}", world.release());
        assert!(error.to_string().contains(&command), "{error}");
        world.remove(30).unwrap();
        assert_eq!((world.statuses(), world.observed()), (before, None));
    }
}

pub(super) fn a_component_that_changes_its_namespace_leaves_the_old_one(world: &mut World) {
    world.apply().unwrap();
    let old = world.namespace();
    world.move_to(&format!("{old}-2"));
    assert_ne!(world.observed().unwrap().input_digest, Some(world.component.input_digest));
    world.apply().unwrap();
    world.assert_runs();
    world.move_to(&old);
    assert_eq!(world.objects(), [""; 0]);
}

pub(super) fn a_chart_that_cannot_be_rendered_leaves_nothing(world: &mut World) {
    world.chart(chart::pack("web", "1.0.1", &[("templates/bad.yaml", "a: {{ .Values.none.such }}\n")]));
    let error = world.apply().unwrap_err();
    assert_eq!((error.code().as_str(), error.is_transient()), ("helm-failed", false), "{error}");
    assert!(error.to_string().contains("bad.yaml"), "{error}");
    assert_eq!(world.observed(), None);
    world.chart(chart::archive([("web/values.yaml".to_owned(), "a: b\n")]));
    let error = world.apply().unwrap_err();
    assert_eq!((error.code().as_str(), error.is_transient()), ("artifact-invalid", false), "{error}");
    assert!(error.to_string().contains("Chart.yaml"), "{error}");
}

pub(super) fn values_that_break_the_charts_schema_are_final(world: &mut World) {
    world.apply().unwrap();
    world.text("replicas", "two");
    let error = world.apply().unwrap_err();
    assert_eq!((error.code().as_str(), error.is_transient()), ("helm-failed", false), "{error}");
    assert!(error.to_string().contains("replicas"), "{error}");
    assert_eq!(world.statuses(), ["deployed"], "what runs keeps running");
}

pub(super) fn without_waiting_an_apply_returns_at_once(world: &mut World) {
    world.text("nodeSelector.no", "node");
    world.component.wait = false;
    world.apply().unwrap();
    assert_eq!(world.observed().unwrap().input_digest, Some(world.component.input_digest));
}

pub(super) fn an_api_server_that_is_away_or_refuses_us_is_transient(world: &mut World) {
    let kubeconfig = fs::read_to_string(&world.settings.kubeconfig).unwrap();
    let port = kubeconfig.split("127.0.0.1:").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let token = kubeconfig.split("token: \"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    for (from, to) in [(&port, "1"), (&token, "of-nobody")] {
        let good = std::mem::replace(&mut world.settings.kubeconfig, world.dir.path().join("kubeconfig"));
        repo_git::durable::replace_file(&world.settings.kubeconfig, kubeconfig.replace(from, to).as_bytes(), 0o600)
            .unwrap();
        world.restart();
        let errors = [world.runtime.observe().unwrap_err(), world.apply().unwrap_err(), world.remove(5).unwrap_err()];
        for error in errors {
            assert_eq!((error.code().as_str(), error.is_transient()), ("runtime-unavailable", true), "{error}");
        }
        assert_eq!(world.runtime.versions(), None);
        world.settings.kubeconfig = good;
        world.restart();
        world.apply().unwrap();
        world.assert_runs();
    }
}

pub(super) fn values_are_in_a_file_for_us_alone_and_secrets_are_nowhere_else(world: &mut World) {
    let look = "echo \"$@\" >>$log\nenv >>$log\nfor file in \"$@\"; do case $file in */values/*) \
                stat -c '%a' \"$file\" >>$log; grep -c hunter2hunter2 \"$file\" >>$log;; esac; done";
    let log = wrap(world, look);
    world.text("greeting", "hunter2hunter2");
    let Kind::Helm { secrets, .. } = &mut world.component.kind else { panic!("it is a chart") };
    secrets.push("hunter2hunter2".to_owned());
    world.apply().unwrap();
    let seen = fs::read_to_string(&log).unwrap();
    assert!(!seen.contains("hunter2hunter2") && seen.contains("\n600\n1\n"), "{seen}");
    assert!(!seen.contains("KUBECONFIG=") && !seen.contains("HELM_"), "{seen}");
    assert_eq!(fs::read_dir(&world.settings.values_dir).unwrap().count(), 0);
    world.text("replicas", "hunter2hunter2");
    let error = world.apply().unwrap_err();
    assert!(!error.to_string().contains("hunter2hunter2"), "{error}");
    let left = world.settings.values_dir.join("left.yaml");
    repo_git::durable::replace_file(&left, b"of a killed syncer", 0o600).unwrap();
    world.restart();
    assert_eq!(fs::read_dir(&world.settings.values_dir).unwrap().count(), 1, "helm may read it for another process");
    world.runtime.sweep().unwrap();
    assert_eq!(fs::read_dir(&world.settings.values_dir).unwrap().count(), 0);
    let mode = fs::metadata(&world.settings.values_dir).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

pub(super) fn a_quiet_look_is_one_call(world: &mut World) {
    let log = wrap(world, "echo $1 >>$log");
    world.apply().unwrap();
    world.assert_runs();
    repo_git::durable::remove_file(&log).unwrap();
    for _ in 0..2 {
        world.runtime.observe().unwrap();
    }
    assert_eq!(fs::read_to_string(&log).unwrap(), "list\nlist\n");
}

pub(super) fn an_object_that_is_gone_is_seen_and_made_again(world: &mut World) {
    world.apply().unwrap();
    world.assert_runs();
    let (release, namespace) = (world.release().to_owned(), world.namespace());
    assert!(kubectl(&["delete", "configmap", &release, "--namespace", &namespace]).output().unwrap().status.success());
    assert_eq!(world.observed().unwrap().condition, Condition::Running, "it was looked at just now");
    world.restart();
    let found = world.observed().unwrap();
    assert_eq!((found.input_digest, found.condition), (Some(world.component.input_digest), Condition::Missing));
    world.apply().unwrap();
    world.assert_runs();
    assert_eq!(world.object("configmap", &release)["metadata"]["name"], release);
}

pub(super) fn pods_that_went_away_are_seen(world: &mut World) {
    world.apply().unwrap();
    let (release, namespace) = (world.release().to_owned(), world.namespace());
    let patch = r#"{"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null},
                   "template": {"spec": {"nodeSelector": {"no": "node"}}}}}"#;
    let mut stop = kubectl(&["patch", "deployment", &release, "--namespace", &namespace, "--patch", patch]);
    assert!(stop.output().unwrap().status.success());
    let is_told = |world: &mut World| {
        world.restart();
        let found = world.observed().unwrap();
        let text = format!("Deployment {release} has 0 of 1 available");
        (found.condition == Condition::Degraded(text)).then_some(found.input_digest)
    };
    let mut told = None;
    let came = repo_testkit::comes_within(Duration::from_secs(30), || {
        told = is_told(world);
        told.is_some()
    });
    assert!(came, "{:?}", world.observed());
    let digest = told.flatten();
    assert_eq!(digest, Some(world.component.input_digest), "its input is what was applied");
}

pub(super) fn pods_that_crash_again_and_again_are_told(world: &mut World) {
    world.apply().unwrap();
    let namespace = world.namespace();
    let pods = kubectl(&["get", "pods", "--namespace", &namespace, "--output", "name"]).output().unwrap().stdout;
    let pods = String::from_utf8(pods).unwrap();
    let pod = pods.lines().next().expect("a pod").to_owned();
    // What a kubelet says of a container that ends again and again.
    let patch = r#"{"status": {"containerStatuses": [{"name": "web", "image": "web", "imageID": "", "ready": false,
                   "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}}"#;
    let patch = ["patch", &pod, "--namespace", &namespace, "--subresource", "status", "--patch", patch];
    assert!(kubectl(&patch).output().unwrap().status.success());
    world.restart();
    let name = pod.trim_start_matches("pod/");
    let text = format!("Pod {name} has restarted container `web` 4 times so far");
    assert_eq!(world.observed().unwrap().condition, Condition::CrashLooping(text));
}

#[test]
fn a_chart_of_a_chart_repository_is_verified_by_its_lock_and_asked_for_once() {
    let good = chart::pack_dir(&fixture("web"));
    let (served, asked) = (Arc::new(Mutex::new(good.clone())), Arc::new(AtomicUsize::new(0)));
    let (bytes, count) = (Arc::clone(&served), Arc::clone(&asked));
    let host = Host::start(move |request| {
        count.fetch_add(1, Ordering::Relaxed);
        let index = "entries: {web: [{name: web, version: 1.0.0, urls: [web-1.0.0.tgz]}]}\n";
        Reply::Keep(match request.head.split(' ').nth(1).unwrap_or_default() {
            "/stable/index.yaml" => answer("200 OK", &[], index.as_bytes()),
            "/stable/web-1.0.0.tgz" => answer("200 OK", &[], &bytes.lock().unwrap()),
            _ => answer("404 Not Found", &[], b""),
        })
    });
    let mut world = World::new("MARGO_TEST_HELM4");
    world.settings.registry.extra_roots = vec![host.authority.certificate().as_bytes().to_vec()];
    world.settings.cache_dir = world.dir.path().join("empty");
    world.component.repository = host.url("/stable");
    world.restart();
    *served.lock().unwrap() = chart::pack("web", "1.0.0", &[]);
    let error = world.apply().unwrap_err();
    assert_eq!((error.code().as_str(), error.is_transient()), ("artifact-digest-changed", false), "{error}");
    *served.lock().unwrap() = good;
    world.apply().unwrap();
    world.assert_runs();
    let before = asked.load(Ordering::Relaxed);
    world.apply().unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), before, "it is in the cache");
    world.component.revision = "9.9.9".to_owned();
    world.component.lock = None;
    let error = world.apply().unwrap_err();
    assert_eq!((error.code().as_str(), error.is_transient()), ("artifact-unavailable", true), "{error}");
}

pub(super) fn versions_tell_helm_and_kubernetes(world: &mut World) {
    let versions = world.runtime.versions().unwrap();
    let helm = world.settings.program.parent().and_then(Path::file_name).and_then(OsStr::to_str).unwrap();
    assert_eq!(format!("helm-{}", versions["helm"]), helm);
    assert_eq!(versions["kubernetes"], "1.35.4");
}
