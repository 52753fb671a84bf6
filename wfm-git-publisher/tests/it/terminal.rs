//! What is seen on a terminal and not elsewhere: tables that fit into its lines, and how far a command is.

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use repo_testkit::git::git;

use crate::audit::honest::Honest;
use crate::support::{BEGIN, Lab, PROGRAM, Ran};
use crate::waves::{self, FIRST};

/// A command line of the program for a shell.
pub(crate) fn quoted(args: &[&str]) -> String {
    [&[PROGRAM], args].concat().iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_table_fits_into_the_lines_of_a_terminal_and_is_whole_where_there_is_none() {
    let lab = Lab::with(&["press-01"]);
    // No machine is called so.
    lab.run(&["publish"]).failed(1);
    let whole = lab.command(&["status"]).env("COLUMNS", "60").output().map(Ran::of).unwrap().good();
    let row = whole.lines().find(|line| line.contains("artifact-unavailable")).unwrap();
    assert!(row.contains("push it with `app push`"), "{whole}");
    let widest = |line: &str| {
        let page = lab.on_terminal(line, "").good();
        let text = page.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.contains("\r\npress-01  hello ") && text.ends_with("`revision` in its margo.yaml"), "{page}");
        page.lines().map(|line| line.chars().count()).max().unwrap()
    };
    // Warnings are no table.
    let status = format!("{} 2>/dev/null", quoted(&["status"]));
    assert!(widest(&format!("stty cols 100; {status}")) <= 100);
    assert!(widest(&format!("stty cols 100; COLUMNS=80 {status}")) <= 80);
    assert!(widest(&status) > 200, "nobody knows how wide its lines are");
}

#[test]
fn every_table_fits_into_lines_of_60_and_of_80_characters() {
    let (honest, waves) = (Honest::new(), waves::lab());
    let lab = &honest.lab;
    lab.run(&["account", "add", "desk", "--role", "auditor"]).good();
    lab.run(&["account", "add", "olga", "--role", "operator", "--path", "deployments/graz-*.yaml"]).good();
    waves::change(&waves, FIRST, "servus");
    assert!(waves.publish_at(*BEGIN).is_complete());
    let tables: [&[&str]; 14] = [
        &["status"],
        &["status", "--group-by", "site"],
        &["trace"],
        &["history", "press-01", "-n", "1000"],
        &["events", "--since", "2000-01-01T00:00:00Z"],
        &["device", "list"],
        &["device", "show", "press-01"],
        &["device", "apps", "press-01"],
        &["deployment", "show", "hello"],
        &["app", "list"],
        &["app", "show", "hello"],
        &["app", "devices", "hello"],
        &["account", "list"],
        &["trust", "show"],
    ];
    let of_rollouts: [&[&str]; 4] = [&["rollout", "list"], &["rollout", "show", "1"], &["status"], &["trace"]];
    let tables = tables.iter().map(|args| (lab, args)).chain(of_rollouts.iter().map(|args| (&waves, args)));
    for ((lab, args), width) in tables.flat_map(|one| [60, 80].map(|width| (one, width))) {
        let page = lab.on_terminal(&format!("COLUMNS={width} {} 2>/dev/null", quoted(args)), "").out;
        let is_head = |line: &str| {
            let name = line.split("  ").next().unwrap_or_default();
            name.len() > 1 && name.chars().all(|c| c.is_ascii_uppercase() || c == ' ')
        };
        // What isn't of a table stands apart by an empty line, and may be longer.
        let (mut tables, mut in_table) = (0, false);
        for line in page.lines() {
            in_table = !line.is_empty() && (in_table || is_head(line));
            tables += usize::from(in_table);
            assert!(!in_table || line.chars().count() <= width, "{args:?} in {width}: {line}\n{page}");
        }
        assert!(tables > 0, "{args:?}: {page}");
    }
}

/// Takes what connects, answers nothing, and hangs up after this time.
fn silent_registry(held: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let connection = connection.unwrap();
            thread::spawn(move || {
                thread::sleep(held);
                drop(connection);
            });
        }
    });
    address
}

#[test]
fn a_terminal_is_told_how_far_a_command_is_by_one_line_and_whatever_else_reads_it_by_lines_of_their_own() {
    let lab = Lab::new();
    let push = ["app", "push", "applications/hello/1.0.0"];
    let at = |registry: &str| lab.edit("applications/hello/1.0.0/margo.yaml", "oci://registry.example/", registry);
    at(&format!("oci://{}/", silent_registry(Duration::from_millis(2500))));
    let (page, said) = thread::scope(|scope| {
        let piped = scope.spawn(|| lab.run(&push).failed(1));
        (lab.on_terminal(&quoted(&push), "").out, piped.join().unwrap())
    });
    let (line, blank) = ("pushing 0 of 1 archives", " ".repeat(23));
    assert!(page.starts_with(&format!("\r{line}\r{line}")), "{page:?}");
    assert!(page.contains(&format!("\r{line}\r{blank}\rerror: ")) && !page.contains('\u{1b}'), "{page:?}");
    assert!(said.starts_with(&format!("{line}\nerror: ")) && !said.contains('\r'), "{said:?}");
}

#[test]
fn a_command_that_waits_for_a_registry_or_for_the_host_of_its_clone_says_so() {
    let lab = Lab::new();
    let silent = || silent_registry(Duration::from_millis(2500));
    let package = format!("oci://{}/vendor/hello:1.0.0", silent());
    let clone = lab.dir().join("elsewhere/fleet");
    git(lab.dir(), &["clone", "--quiet", lab.fleet.to_str().unwrap(), clone.to_str().unwrap()]);
    let host = format!("https://{}", silent());
    let helper = "!f() { echo username=desk; echo password=secret; }; f";
    for (key, value) in [("wfm.host", host.as_str()), ("credential.helper", helper)] {
        git(&clone, &["config", "--local", key, value]);
    }
    let commands: [(&[&str], _); 3] = [
        (&["app", "add", &package], "fetching the package"),
        (&["app", "diff", "hello@1.0.0", &package], "fetching the packages"),
        (&["-C", clone.to_str().unwrap(), "status"], "waiting for the host"),
    ];
    for (args, told) in commands {
        let ran = lab.on_terminal(&quoted(args), "");
        assert!(ran.code != Some(0) && ran.out.contains(&format!("\r{told}\r")), "{args:?}: {:?}", ran.out);
    }
}

#[test]
fn nothing_but_help_and_usage_is_coloured_on_a_terminal_and_not_even_that_where_no_color_is_set() {
    let lab = Lab::new();
    let is_coloured = |set: &str, args: &[&str]| {
        let page = lab.on_terminal(&format!("export TERM=xterm-256color; {set} {}", quoted(args)), "").out;
        assert!(!page.is_empty(), "{args:?}");
        // Progress moves the cursor, which is no colour.
        let mut sequences = page.split("\u{1b}[").skip(1);
        sequences.any(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').starts_with('m'))
    };
    for args in [&["status", "--help"][..], &["statu"]] {
        assert!(is_coloured("", args), "{args:?}");
        assert!(!is_coloured("NO_COLOR=1", args), "{args:?}");
    }
    for args in [&["status"][..], &["device", "list"], &["device", "show", "press-99"]] {
        assert!(!is_coloured("", args), "{args:?}");
    }
}
