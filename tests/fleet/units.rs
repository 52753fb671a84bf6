//! The units of both services, as systemd itself judges them.

use std::fs;
use std::process::Command;

use repo_testkit::{program, root};
use tempfile::TempDir;

/// Each program with what systemd may call the exposure of its service at most, in tenths; 100 is a service without any
/// sandbox. What stands open is told in `docs/service.md`.
const SERVICES: [(&str, &str); 2] = [("device-syncer", "35"), ("wfm-git-publisher", "17")];

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

#[test]
fn the_syncers_service_may_ask_the_kernel_about_its_clock_and_set_none() {
    let (_dir, unit) = unit("device-syncer");
    let unit = fs::read_to_string(unit).expect("the unit");
    let words = |key: &str| {
        let values = unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        values.flat_map(str::split_whitespace).map(str::to_owned).collect::<Vec<_>>()
    };
    let of = |filter: &str| match filter.starts_with('@') {
        true => analyze(&["syscall-filter", "--no-pager", filter]),
        false => filter.to_owned(),
    };
    let allowed = words("SystemCallFilter").iter().map(|filter| of(filter)).collect::<Vec<_>>().join("\n");
    let is_allowed = |call: &str| allowed.lines().any(|line| line.trim() == call);
    // That of glibc, of musl, and of either on 32 bits.
    for call in ["clock_adjtime", "adjtimex", "clock_adjtime64"] {
        assert!(is_allowed(call), "{call}");
    }
    assert!(words("ProtectClock").is_empty(), "it forbids these calls whatever the filter says");
    for call in ["clock_settime", "clock_settime64", "settimeofday"] {
        assert!(!is_allowed(call), "{call}");
    }
    assert!(!words("CapabilityBoundingSet").iter().any(|one| one == "CAP_SYS_TIME"));
    assert_eq!(words("DevicePolicy"), ["closed"], "the clock's device is no way either");
}
