//! The units of both services, as systemd itself judges them.

use std::fs;
use std::process::Command;

use repo_testkit::{program, root};
use tempfile::TempDir;

/// Each program with what systemd may call the exposure of its service at most, in tenths; 100 is a service without any
/// sandbox. What stands open is told in `docs/service.md`.
const SERVICES: [(&str, &str); 2] = [("device-syncer", "32"), ("wfm-git-publisher", "17")];

/// A service's unit, which starts the program from where it was built.
fn unit(name: &str) -> (TempDir, String) {
    let text = fs::read_to_string(root().join(name).join("packaging").join(format!("{name}.service"))).expect("a unit");
    let installed = format!("ExecStart=/usr/bin/{name} ");
    assert!(text.contains(&installed), "{name}: a package installs the program in /usr/bin");
    let dir = TempDir::new().expect("a temporary directory");
    let path = dir.path().join(format!("{name}.service"));
    let built = format!("ExecStart={} ", program(name).display());
    fs::write(&path, text.replace(&installed, &built)).expect("written");
    let path = path.display().to_string();
    (dir, path)
}

/// Runs systemd-analyze, and expects it to be content.
fn analyze(args: &[&str]) -> String {
    let output = Command::new("systemd-analyze").args(args).output();
    let output = output.expect("systemd-analyze is installed: run the tests by `./justw test`");
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "systemd-analyze {}:\n{said}", args.join(" "));
    said
}

#[test]
fn systemd_understands_every_line_of_the_units() {
    for (name, _) in SERVICES {
        let (_dir, unit) = unit(name);
        assert_eq!(analyze(&["verify", "--man=no", &unit]), "", "{name}");
    }
}

#[test]
fn services_are_exposed_no_more_than_they_have_to_be() {
    for (name, most) in SERVICES {
        let (_dir, unit) = unit(name);
        let said = analyze(&["security", "--no-pager", "--offline=true", &format!("--threshold={most}"), &unit]);
        assert!(said.contains("Overall exposure level"), "{name}: {said}");
    }
}
