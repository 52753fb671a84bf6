//! The walkthroughs, run as they stand in their documents, on real Docker and Kubernetes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use repo_testkit::ports::free_port;
use repo_testkit::program;
use serde_json::{Value, json};

use crate::installed::Installed;
use crate::site::registry_name;

/// A file or directory of this repository.
fn place(path: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.join(path).canonicalize().expect("it is there")
}

/// The blocks of a document that are marked like this, in order.
fn blocks(document: &str, mark: &str) -> Vec<String> {
    let text = std::fs::read_to_string(place(document)).expect("a document");
    let mark = format!("```sh {mark}\n");
    let blocks = text.split(&mark).skip(1);
    blocks.map(|rest| rest.split("```").next().expect("an end").to_owned()).collect()
}

/// One line of the script says which block just ended.
fn script(document: &str, mark: &str) -> String {
    let blocks: Vec<_> = blocks(document, mark)
        .iter()
        .enumerate()
        .map(|(n, block)| format!("{block}echo \"== end of {n}\"\n"))
        .collect();
    // Wherever it breaks off, the host ends with it.
    format!("set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{}", blocks.concat())
}

/// Where the programs are that were built.
fn programs() -> PathBuf {
    program("device-syncer").parent().expect("a directory").to_owned()
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is set: run the tests by `./justw test`"))
}

struct Walk {
    dir: tempfile::TempDir,
}

impl Walk {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary directory") }
    }

    fn run(&self, document: &str, more: &[(&str, PathBuf)]) -> String {
        self.run_with(&programs(), (document, "walkthrough"), more)
    }

    /// The same with programs that lie elsewhere, and blocks with another mark.
    fn run_with(&self, programs: &Path, (document, mark): (&str, &str), more: &[(&str, PathBuf)]) -> String {
        let path = format!("{}:{}", programs.display(), variable("PATH"));
        let image = format!("{}/{}:1", variable("MARGO_TEST_REGISTRY"), variable("MARGO_TEST_IMAGE"));
        let mut bash = Command::new("bash");
        bash.args(["-c", &script(document, mark)]).current_dir(self.dir.path()).stdin(Stdio::null()).env("PATH", path);
        bash.env("PORT", free_port().to_string()).env("SSH_PORT", free_port().to_string());
        bash.env("REGISTRY", variable("MARGO_TEST_REGISTRY")).env("IMAGE", image).env("HOME", self.dir.path());
        bash.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        for who in ["AUTHOR", "COMMITTER"] {
            bash.env(format!("GIT_{who}_NAME"), "Operator").env(format!("GIT_{who}_EMAIL"), "op@example.invalid");
        }
        bash.envs(more.iter().map(|(name, value)| (name, value)));
        let output = bash.output().expect("bash runs");
        let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{said}\n{errors}");
        said.into_owned()
    }

    /// What one block printed.
    fn part(said: &str, number: usize) -> String {
        let begin = if number == 0 {
            Some(said)
        } else {
            said.split_once(&format!("== end of {}\n", number - 1)).map(|(_, rest)| rest)
        };
        let part = begin.and_then(|rest| rest.split_once(&format!("== end of {number}\n"))).expect("the block ran").0;
        part.to_owned()
    }
}

impl Drop for Walk {
    /// Where the walkthrough broke off, its container is still there.
    fn drop(&mut self) {
        let fleet = std::fs::read_to_string(self.dir.path().join("my-fleet/fleet.yaml")).unwrap_or_default();
        let Some(id) = fleet.lines().find_map(|line| line.strip_prefix("id: ")) else { return };
        let list = format!(
            "docker ps -a --filter label=device-syncer.fleet={id} --format '{{{{.Label \"com.docker.compose.project\"}}}}'"
        );
        let clean = format!("{list} | sort -u | xargs -r -I@ docker compose -p @ down --timeout 1");
        let _ = Command::new("bash").args(["-c", &clean]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

#[test]
fn docker_the_readme_goes_from_init_to_a_container_a_change_a_removal_and_the_signed_history() {
    program("wfm-git-publisher");
    let walk = Walk::new();
    let said = walk.run("README.md", &[]);
    let part = |number| Walk::part(&said, number);
    assert!(part(3).contains("first desired state") && part(3).contains("installed"), "{said}");
    assert!(part(3).contains("hello-") && part(3).contains("Up "), "a container runs: {said}");
    assert!(part(4).contains("\"hello from the press\" → \"servus from the press\""), "{said}");
    assert!(!part(5).contains("installed"), "{said}");
    let history = part(6);
    assert!(history.contains("Good \"git\" signature for publisher"), "{history}");
    assert!(history.contains("Good \"git\" signature for press-01"), "{history}");
    assert!(!history.contains("No signature") && !history.contains("BAD"), "{history}");
    for transition in ["installing > installed", "installed > removing", "removing > removed"] {
        assert!(history.contains(transition), "{transition}: {history}");
    }
}

#[test]
fn docker_the_readme_goes_the_same_way_over_ssh() {
    let walk = Walk::new();
    let programs = Installed::new();
    let said = walk.run_with(programs.dir(), ("README.md", "ssh-walkthrough"), &[]);
    let part = |number| Walk::part(&said, number);
    assert!(part(1).contains("1 published") && part(1).contains(", over SSH with SHA256:"), "{said}");
    assert!(part(1).contains("host: ssh://") && part(1).contains("asked with SHA256:"), "{said}");
    assert!(part(1).contains("installed") && part(1).contains("Up "), "a container runs: {said}");
    let history = part(2);
    assert!(history.contains("Good \"git\" signature for publisher"), "{history}");
    assert!(history.contains("Good \"git\" signature for press-01"), "{history}");
    assert!(!history.contains("No signature") && !history.contains("BAD"), "{history}");
    assert!(history.contains("removing > removed"), "{history}");
}

#[test]
fn docker_the_tutorial_goes_from_nothing_to_a_change_that_stops_by_itself_and_back() {
    program("fake-docker");
    let walk = Walk::new();
    let said = walk.run_with(&programs(), ("docs/tutorial.md", "tutorial"), &[]);
    let part = |number| Walk::part(&said, number);
    assert!(part(4).contains("33 devices: 33 installed") && part(4).contains("Up "), "a container runs: {said}");
    let stopped = part(5);
    assert!(stopped.contains("rollout: starts 1: hello on 33 devices; waves 3, 17, rest"), "{stopped}");
    assert!(stopped.contains("press-02") && stopped.contains("hello-token"), "{stopped}");
    // The other two are updated, or one of them still updates.
    assert!(stopped.contains("Devices: 1 failed, 30 not released, ") && stopped.contains(" updat"), "{stopped}");
    assert!(stopped.lines().any(|line| line.starts_with("rollout-stopped ") && line.contains(" desk ")), "{stopped}");
    let history = part(6);
    for transition in ["hello: installed > failed (parameter-invalid)", "hello: failed > installed"] {
        assert!(history.contains(transition), "{transition}: {history}");
    }
    let alerts = std::fs::read_to_string(walk.dir.path().join("alerts.jsonl")).expect("somebody was told");
    let all: Vec<Value> = alerts.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let is_stopped = |one: &Value| one["data"]["alert"] == "rollout-stopped" && one["data"]["status"] == "firing";
    assert!(all.iter().any(is_stopped), "{alerts}");
}

/// The values of the charts that were told apart by a key that only one of them has.
fn values(part: &str, key: &str) -> Vec<Value> {
    let all = part.lines().filter(|line| line.starts_with('{')).map(|line| serde_json::from_str(line).expect("JSON"));
    all.filter(|value: &Value| value.get(key).is_some()).collect()
}

fn mixed_fleet(helm: &str) {
    let (helm, kubeconfig) = (PathBuf::from(variable(helm)), PathBuf::from(variable("MARGO_TEST_KUBECONFIG")));
    let walk = Walk::new();
    let namespace = format!("line-control-{}", registry_name(walk.dir.path()));
    let more = [
        ("MIXED", place("fixtures/mixed-fleet")),
        ("HELM", helm.clone()),
        ("KUBECONFIG", kubeconfig.clone()),
        ("CONTEXT", "margo-test".into()),
        ("NAMESPACE", (&namespace).into()),
    ];
    let said = walk.run("fixtures/mixed-fleet/README.md", &more);
    let part = |number| Walk::part(&said, number);

    let first = part(3);
    assert!(first.contains("2 published, 4 unchanged"), "only the cells get charts: {said}");
    for device in ["cell-01", "cell-02"] {
        let row = first.lines().find(|line| line.starts_with(device) && line.contains("orchestrator")).expect("a row");
        assert!(row.contains("1.0.9, 2.3.7") && row.contains("installed"), "{row}");
    }
    for reason in
        ["it is a helm profile, and the device runs compose", "it needs the property `/peripherals` ContainsAll"]
    {
        assert!(first.contains(reason), "{said}");
    }
    assert_eq!(
        first.lines().filter(|line| line.contains("deployed") && line.contains(&namespace)).count(),
        4,
        "{said}"
    );

    let second = part(4);
    assert!(second.contains("pollFrequency: 120 → 90") && second.contains("1 published, 5 unchanged"), "{said}");
    let orchestrators = values(&second, "idp");
    let by_site = |site: &str| orchestrators.iter().find(|one| one["settings"]["siteId"] == site).expect("its values");
    let expected = |site: &str, poll: u64| {
        json!({
            "administrator": {"name": "Some One", "userPrincipalName": "someone@plant.example.com"},
            "idp": {
                "clientId": "1e3", "name": "test", "provider": "plant",
                "providerMetadata": "https://idp.plant.example.com/realm",
                "providerUrl": "https://idp.plant.example.com/realm",
            },
            "settings": {"limits": {"cpu": 1.5, "memory": 16384}, "pollFrequency": poll, "siteId": site},
        })
    };
    assert_eq!(*by_site("graz-cell-01"), expected("graz-cell-01", 30));
    assert_eq!(*by_site("graz-cell-02"), expected("graz-cell-02", 90));

    let third = part(5);
    let history: Vec<_> = third.lines().filter(|line| line.ends_with(')') && line.contains(" (serial ")).collect();
    let order = |wanted: &[&str]| {
        let mut newest_first = history.iter();
        wanted.iter().all(|subject| newest_first.any(|line| line.starts_with(subject)))
    };
    let gone = ["hello removed", "database-services removed", "digitron-orchestrator removed"];
    assert!(order(&gone), "what depends on something goes first: {said}");
    let came =
        ["digitron-orchestrator installed", "database-services installed", "hello installed", "hello installing"];
    assert!(order(&came), "and comes last: {said}");
    let listed = Command::new(&helm)
        .args(["list", "--kube-context", "margo-test", "--namespace", &namespace, "--short"])
        .env("KUBECONFIG", &kubeconfig)
        .output();
    assert_eq!(String::from_utf8_lossy(&listed.expect("helm runs").stdout), "", "no release is left");
}

#[test]
fn docker_helm_4_brings_charts_and_compose_to_a_mixed_fleet_and_takes_them_away() {
    mixed_fleet("MARGO_TEST_HELM4");
}

#[test]
fn docker_helm_3_brings_charts_and_compose_to_a_mixed_fleet_and_takes_them_away() {
    mixed_fleet("MARGO_TEST_HELM3");
}
