//! Charts: locked for the whole fleet when they are first published, and read, so that values that they don't know are
//! told.

use std::sync::{Arc, Mutex};

use repo_model::Digest;
use repo_testkit::chart::{pack, push};
use repo_testkit::faults::scripted_host::{Host, Reply, answer};

use crate::registry::Registry;
use crate::support::Lab;

const VALUES: &str = "image: {tag: \"1.0\"}\nreplicas: 1\nresources: {}\n";

/// A fleet with one chart, at this place, and three values in it.
fn lab(repository: &str) -> Lab {
    let lab = Lab::with(&["press-01", "press-02"]);
    lab.remove("deployments/hello.yaml");
    let properties = format!("{{repository: \"{repository}\", revision: 1.2.3}}");
    lab.write(
        "applications/app/1.0.0/margo.yaml",
        format!(
            "id: app\nmetadata: {{name: App, version: 1.0.0}}\ndeploymentProfiles:\n  - id: chart\n    type: helm\n    \
             components: [{{name: hello, properties: {properties}}}]\nparameters:\n  \
             tag: {{value: \"1.10\", targets: [{{pointer: image.tag, components: [hello]}}]}}\n  \
             cpu: {{value: 0.5, targets: [{{pointer: resources.limits.cpu, components: [hello]}}]}}\n  \
             replicas: {{value: 2, targets: [{{pointer: replicaCount, components: [hello]}}]}}\n"
        ),
    );
    lab.write(
        "deployments/app.yaml",
        "id: app\napplication: {id: app, version: 1.0.0}\nnamespace: line-2\ntargets: [{matchLabels: {}}]\n",
    );
    lab.commit();
    lab
}

fn content(lab: &Lab, device: &str) -> String {
    let envelope = lab.json(device, "desired", "envelope.json");
    let deployment = envelope["deployments"].as_object().unwrap().values().next().unwrap();
    deployment["locks"]["hello"]["content"].as_str().unwrap().to_owned()
}

const WARNING: &str = "applications/app/1.0.0/margo.yaml:10:44: parameters.replicas.targets[0].pointer: \
                       the chart hello 1.2.3 has no value `replicaCount`";

#[test]
fn a_chart_is_locked_for_the_whole_fleet_and_values_that_it_does_not_know_are_warned_of() {
    let registry = Registry::start();
    let chart = pack("hello", "1.2.3", &[("values.yaml", VALUES)]);
    push(&registry.host, "charts/hello", "1.2.3", &chart, None);
    let lab = lab(&format!("oci://{}/charts/hello", registry.host));
    let validated = lab.run(&["validate"]);
    assert!(!validated.err.contains("replicaCount"), "nothing is known of it yet: {}", validated.err);
    validated.good();
    let planned = lab.run(&["plan"]);
    assert!(planned.out.contains("hello:1.2.3: `publish` finds out which bytes these are"), "{}", planned.out);
    let published = lab.run(&["publish"]);
    assert!(published.err.contains(WARNING), "{}", published.err);
    published.good();
    push(&registry.host, "charts/hello", "1.2.3", &pack("hello", "1.2.3", &[("values.yaml", "other: 1\n")]), None);
    lab.edit("deployments/app.yaml", "namespace: line-2", "namespace: line-3");
    lab.commit();
    let planned = lab.run(&["plan"]);
    assert!(planned.out.contains("namespace: line-2 → line-3"), "{}", planned.out);
    assert!(planned.err.contains(WARNING), "{}", planned.err);
    assert!(lab.run(&["validate"]).err.contains(WARNING));
    lab.run(&["publish"]).good();
    for device in ["press-01", "press-02"] {
        assert_eq!(content(&lab, device), Digest::of(&chart).to_string(), "the tag means what it meant first");
        let document = &lab.documents(device)["app"];
        for expected in ["type: helm\n", "namespace: line-3\n", "value: \"1.10\"\n", "value: 0.5\n", "value: 2\n"] {
            assert!(document.contains(expected), "{expected} in {document}");
        }
    }
    assert_eq!(lab.run(&["plan"]).code, Some(0), "what is published is what is wanted");
}

#[test]
fn what_no_helm_could_install_is_not_published() {
    let registry = Registry::start();
    let lab = lab(&format!("oci://{}/charts/hello", registry.host));
    push(&registry.host, "charts/hello", "1.2.3", b"no chart", None);
    let said = lab.run(&["publish"]).failed(1);
    assert!(said.contains("it is no chart that can be installed") && said.contains("charts/hello:1.2.3"), "{said}");
    assert!(lab.tip("press-01", "desired").is_none_or(|_| lab.documents("press-01").is_empty()));
    push(&registry.host, "charts/hello", "1.2.3", &pack("hello", "1.2.3", &[]), None);
    lab.run(&["publish"]).good();
    assert_eq!(lab.documents("press-01").len(), 1);
}

#[test]
fn a_chart_of_a_chart_repository_is_locked_and_written_through() {
    let chart = pack("hello", "1.2.3", &[("values.yaml", VALUES)]);
    let digest = Digest::of(&chart).to_string();
    let index = "entries: {hello: [{version: 1.2.3, urls: [hello-1.2.3.tgz]}]}\n";
    let served = Arc::new(Mutex::new(chart));
    let bytes = Arc::clone(&served);
    let host = Host::start(move |asked| match asked.head.split(' ').nth(1) {
        Some("/stable/index.yaml") => Reply::Keep(answer("200 OK", &[], index.as_bytes())),
        Some("/stable/hello-1.2.3.tgz") => Reply::Keep(answer("200 OK", &[], &bytes.lock().unwrap())),
        _ => Reply::Keep(answer("404 Not Found", &[], b"")),
    });
    let repository = host.url("/stable");
    let lab = lab(&repository);
    let ca = lab.dir().join("plant-ca.pem");
    repo_git::durable::replace_file(&ca, host.authority.certificate().as_bytes(), 0o600).unwrap();
    let config = format!("registries:\n  \"{}\": {{caFile: {}}}\n", host.address(), ca.display());
    repo_git::durable::replace_file(&lab.home.config(), config.as_bytes(), 0o600).unwrap();
    let published = lab.run(&["publish"]);
    assert!(published.err.contains(WARNING), "{}", published.err);
    published.good();
    *served.lock().unwrap() = pack("hello", "1.2.3", &[]);
    lab.edit("deployments/app.yaml", "namespace: line-2", "namespace: line-3");
    lab.commit();
    lab.run(&["publish"]).good();
    for device in ["press-01", "press-02"] {
        assert_eq!(content(&lab, device), digest);
        let document = &lab.documents(device)["app"];
        assert!(document.contains(&format!("repository: {repository}\n")), "{document}");
        assert!(document.contains("revision: \"1.2.3\"\n"), "{document}");
    }
    // The memory is lost, and the host gives something else: what devices have is what counts.
    let control = lab.home.control();
    repo_git::durable::remove_dir_all(&control).unwrap();
    lab.run(&["publish"]).good();
    assert_eq!(content(&lab, "press-01"), digest);
    assert_eq!(lab.run(&["plan"]).code, Some(0));
}
