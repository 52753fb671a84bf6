//! The README's walkthrough, run as it stands there, on real Docker.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use repo_testkit::program;

/// The blocks marked `sh walkthrough`, in order.
fn blocks() -> Vec<String> {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(readme).expect("a README");
    let blocks = readme.split("```sh walkthrough\n").skip(1);
    blocks.map(|rest| rest.split("```").next().expect("an end").to_owned()).collect()
}

/// One line of the script says which block just ended.
fn script() -> String {
    let blocks: Vec<_> =
        blocks().iter().enumerate().map(|(n, block)| format!("{block}echo \"== end of {n}\"\n")).collect();
    // Wherever it breaks off, the host ends with it.
    format!("set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{}", blocks.concat())
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is set: run the tests by `./justw test`"))
}

struct Walk {
    dir: tempfile::TempDir,
}

impl Walk {
    fn run(&self) -> String {
        let programs: PathBuf = program("device-syncer").parent().expect("a directory").to_owned();
        let path = format!("{}:{}", programs.display(), variable("PATH"));
        let image = format!("{}:1", variable("MARGO_TEST_IMAGE"));
        let mut bash = Command::new("bash");
        bash.args(["-c", &script()]).current_dir(self.dir.path()).stdin(Stdio::null()).env("PATH", path);
        let port = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a free port").port();
        bash.env("PORT", port.to_string());
        bash.env("REGISTRY", variable("MARGO_TEST_REGISTRY")).env("IMAGE", image).env("HOME", self.dir.path());
        bash.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        for who in ["AUTHOR", "COMMITTER"] {
            bash.env(format!("GIT_{who}_NAME"), "Operator").env(format!("GIT_{who}_EMAIL"), "op@example.invalid");
        }
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
    let walk = Walk { dir: tempfile::tempdir().expect("a temporary directory") };
    let said = walk.run();
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
