//! The walkthroughs, run as they stand in their documents, on real Docker and Kubernetes.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

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

/// What a page shows between two fences, and a test does.
enum Block {
    /// A script of `bash`, run to its end.
    Script(String),
    /// What a person sees and types at a terminal, from the command on.
    Terminal(String),
}

/// The blocks of a document that are marked like this, in order.
fn blocks(document: &str, mark: &str) -> Vec<Block> {
    let text = std::fs::read_to_string(place(document)).expect("a document");
    let fenced = text.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    let ours = fenced.filter_map(|(language, text)| match language.split_once(' ') {
        Some(("sh", marked)) if marked == mark => Some(Block::Script(format!("{text}\n"))),
        Some(("console", marked)) if marked == mark => Some(Block::Terminal(format!("{text}\n"))),
        _ => None,
    });
    ours.collect()
}

/// How the lines end in which a person is asked: for a parameter, for devices, and whether it is meant.
const QUESTIONS: [&str; 3] = ["]:", "  devices:", "[y/N]"];

impl Block {
    fn script(&self) -> String {
        match self {
            Self::Script(script) => script.clone(),
            Self::Terminal(page) => {
                let command = page.lines().next().and_then(|line| line.strip_prefix("$ ")).expect("a command");
                // Where it asks something else than the page shows, nobody answers.
                format!("timeout --foreground 60 script --quiet --return --command '{command}' /dev/null\n")
            }
        }
    }

    /// What a person is asked, and types.
    fn answers(&self) -> Vec<(String, String)> {
        let Self::Terminal(page) = self else { return Vec::new() };
        let asked = page.lines().filter_map(|line| {
            let end = QUESTIONS.iter().find_map(|end| Some(line.find(end)? + end.len()))?;
            Some((format!("{} ", &line[..end]), line[end..].trim().to_owned()))
        });
        asked.collect()
    }
}

/// One line of the script says which block just ended.
fn script(blocks: &[Block]) -> String {
    let blocks: Vec<_> =
        blocks.iter().enumerate().map(|(n, block)| format!("{}echo \"== end of {n}\"\n", block.script())).collect();
    // Wherever it breaks off, the host ends with it.
    format!("set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{}", blocks.concat())
}

/// Reads all that a script says, and types each answer once its question stands on the last line.
fn converse(mut from: impl Read, to: impl Write, answers: &[(String, String)]) -> String {
    let (mut said, mut answers, mut bytes) = (Vec::new(), answers.iter().peekable(), [0; 4096]);
    let mut to = Some(to);
    loop {
        // Whatever else would ask finds an end.
        to = to.filter(|_| answers.peek().is_some());
        let count = from.read(&mut bytes).expect("what it says");
        if count == 0 {
            return String::from_utf8_lossy(&said).replace("\r\n", "\n");
        }
        said.extend(&bytes[..count]);
        let last = said.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        if let (Some(to), Some((_, answer))) = (&mut to, answers.next_if(|(question, _)| question.as_bytes() == last)) {
            writeln!(to, "{answer}").expect("it is read");
        }
    }
}

/// Where the programs are that were built.
fn programs() -> PathBuf {
    program("device-syncer").parent().expect("a directory").to_owned()
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is set: run the tests by `./justw test`"))
}

/// Sees that a person saw each line of the page after the command, in this order; `…` stands for any lines.
fn shows(said: &str, page: &str) {
    let mut lines = said.lines().map(str::trim_end);
    let mut is_next = true;
    for line in page.lines().skip(1) {
        if line == "…" {
            is_next = false;
            continue;
        }
        let found = if is_next { lines.next() == Some(line) } else { lines.any(|one| one == line) };
        assert!(found, "{line}\nisn't there in\n{said}");
        is_next = true;
    }
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
        let blocks = blocks(document, mark);
        bash.args(["-c", &script(&blocks)]).current_dir(self.dir.path()).env("PATH", path);
        bash.env("PORT", free_port().to_string()).env("SSH_PORT", free_port().to_string());
        bash.env("REGISTRY", variable("MARGO_TEST_REGISTRY")).env("IMAGE", image).env("HOME", self.dir.path());
        bash.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        for who in ["AUTHOR", "COMMITTER"] {
            bash.env(format!("GIT_{who}_NAME"), "Operator").env(format!("GIT_{who}_EMAIL"), "op@example.invalid");
        }
        bash.envs(more.iter().map(|(name, value)| (name, value)));
        let log = self.dir.path().join("errors.log");
        bash.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&log).expect("a file"));
        let mut bash = bash.spawn().expect("bash runs");
        let (from, to) = (bash.stdout.take().expect("a pipe"), bash.stdin.take().expect("a pipe"));
        let answers: Vec<_> = blocks.iter().flat_map(Block::answers).collect();
        let said = converse(from, to, &answers);
        let is_well = bash.wait().expect("its end").success();
        assert!(is_well, "{said}\n{}", std::fs::read_to_string(&log).unwrap_or_default());
        for (number, block) in blocks.iter().enumerate() {
            let Block::Terminal(page) = block else { continue };
            shows(&Self::part(&said, number), page);
        }
        said
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
    let start = Instant::now();
    let said = walk.run_with(&programs(), ("docs/tutorial.md", "tutorial"), &[]);
    let minutes = start.elapsed().as_secs_f64() / 60.0;
    println!("the tutorial's own steps took {minutes:.1} minutes");
    assert!(minutes <= 10.0, "it promises ten minutes, and took {minutes:.1}");
    let part = |number| Walk::part(&said, number);
    assert!(part(6).contains("33 devices: 33 installed") && part(6).contains("Up "), "a container runs: {said}");
    let stopped = part(7);
    assert!(stopped.contains("rollout: starts 1: hello on 33 devices; waves 3, 17, rest"), "{stopped}");
    assert!(stopped.contains("press-02") && stopped.contains("hello-token"), "{stopped}");
    // The other two are updated, or one of them still updates.
    assert!(stopped.contains("Devices: 1 failed, 30 not released, ") && stopped.contains(" updat"), "{stopped}");
    assert!(stopped.lines().any(|line| line.starts_with("rollout-stopped ") && line.contains(" desk ")), "{stopped}");
    let history = part(8);
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
