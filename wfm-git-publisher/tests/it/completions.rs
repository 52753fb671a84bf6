//! What a real bash, zsh and fish complete by the script that `completions` prints.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use std::env;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use repo_testkit::comes_within;
use repo_testkit::git::git;

use crate::support::{Lab, PROGRAM, Ran};

/// Sources the script, calls what it registered as bash does where somebody presses the tab key behind the last of the words, and
/// prints a line for each completion.
const TAB: &str = r#"
source <(wfm-git-publisher completions bash)
complete=$(complete -p wfm-git-publisher) complete=${complete##*-F }
COMP_WORDS=(wfm-git-publisher "$@") COMP_CWORD=$# COMP_TYPE=9
"${complete%% *}" wfm-git-publisher "${!#}" "${COMP_WORDS[COMP_CWORD-1]}"
[ "${#COMPREPLY[@]}" = 0 ] || printf '%s\n' "${COMPREPLY[@]}"
"#;

/// The completions of the last word, in a shell that stands in this directory.
#[track_caller]
fn tab(lab: &Lab, dir: &Path, words: &[&str]) -> Vec<String> {
    let programs = Path::new(PROGRAM).parent().expect("a directory").display();
    let path = format!("{programs}:{}", env::var("PATH").expect("a path"));
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", TAB, "bash"]).args(words).current_dir(dir);
    let ran = Ran::of(bash.env_clear().env("PATH", path).env("HOME", lab.dir()).output().expect("bash is installed"));
    assert_eq!(ran.err, "", "{words:?}");
    ran.good().lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_the_names_in_the_fleet_that_is_meant_and_nothing_where_there_is_none() {
    let lab = Lab::with(&["press-02", "press-01", "line-2/mill", "packer-01"]);
    lab.run(&["device", "label", "packer-01", "ring=canary"]).good();
    git(lab.dir(), &["clone", "--quiet", "fleet", "clone"]);
    let in_fleet = |words: &[&str]| tab(&lab, &lab.fleet, words);
    for (words, expected) in [
        (&["device", "sh"][..], &["show"][..]),
        (&["device", "show", "p"], &["packer-01", "press-01", "press-02"]),
        (&["status", "packer-01", "line"], &["line-2/mill"]),
        (&["device", "label", "pa"], &["packer-01"]),
        (&["trace", "--device", "press-"], &["press-01", "press-02"]),
        (&["explain", "press-01", "h"], &["hello"]),
        (&["deployment", "show", "h"], &["hello"]),
        (&["device", "restart", "press-01", "h"], &["hello"]),
        (&["why-not", "h"], &["hello"]),
        (&["app", "show", "h"], &["hello@1.0.0"]),
        (&["status", "-l", "ring"], &["ring=canary"]),
        (&["device", "show", "nobody"], &[]),
    ] {
        assert_eq!(in_fleet(words), expected, "{words:?}");
    }
    // From elsewhere, also where a shell hands over what is typed, and in a clone; what isn't committed doesn't count yet.
    lab.write("devices/later.yaml", "id: press-03\n");
    for words in [
        &["-C", "fleet", "device", "show", "press"][..],
        &["device", "show", "-C", "~/fleet", "press"],
        &["device", "-C", "clone", "show", "press"],
    ] {
        assert_eq!(tab(&lab, lab.dir(), words), ["press-01", "press-02"], "{words:?}");
    }
    // Nothing is said where nothing can be read.
    for words in [&["device", "show", "press"][..], &["-C", "nowhere", "device", "show", "press"]] {
        assert_eq!(tab(&lab, lab.dir(), words), [""; 0], "{words:?}");
    }
    lab.write(".git/HEAD", "garbage");
    assert_eq!(in_fleet(&["device", "show", "press"]), [""; 0]);
}

#[test]
fn a_name_in_the_fleet_is_no_more_than_a_name_for_the_shell() {
    let lab = Lab::with(&["press-01"]);
    // The first four are ids of devices by our rules, and would be options and somebody's home where they are completed.
    let ids =
        ["--allow-removals", "-C", "~root", "~/x", "$(touch pwned)", "`touch pwned`", "x;touch pwned", "*", "a b"];
    for (number, id) in ids.into_iter().enumerate() {
        lab.write(&format!("devices/{number}.yaml"), format!("id: {id:?}\nlabels: {{site: {id:?}}}\n"));
        lab.write(&format!("deployments/{number}.yaml"), format!("id: {id:?}\n"));
        lab.write(&format!("applications/hello/{}/margo.yaml", id.replace('/', "_")), "");
    }
    lab.write("devices/esc.yaml", "id: \"p\\eress\"\n");
    lab.write("applications/--yes/1.0.0/margo.yaml", "");
    lab.commit();
    let names = |words: &[&str]| {
        let mut all = tab(&lab, &lab.fleet, words);
        // Options of the command fit there, too.
        all.retain(|one| !one.starts_with('-'));
        all
    };
    for words in [&["device", "show", ""][..], &["publish", "--reclaim", ""]] {
        assert_eq!(names(words), ["packer-01", "press-01", "press-02"], "{words:?}");
    }
    assert_eq!(names(&["deployment", "show", ""]), ["hello"]);
    assert_eq!(names(&["why-not", ""]), ["hello"]);
    // Behind the application they are harmless.
    let versions = ["--allow-removals", "-C", "1.0.0", "~_x", "~root"].map(|version| format!("hello@{version}"));
    assert_eq!(names(&["app", "show", ""]), versions);
    for typed in ["$", "`", "~", "*", "a", "x"] {
        assert_eq!(tab(&lab, &lab.fleet, &["publish", typed]), [""; 0], "{typed}");
    }
    assert_eq!(tab(&lab, &lab.fleet, &["device", "show", "--al"]), [""; 0]);
    // Files come with a clone, too.
    ids.iter().for_each(|name| lab.write(&format!("applications/hello/{name}.tgz"), ""));
    lab.commit();
    assert_eq!(tab(&lab, &lab.path("applications/hello"), &["app", "push", "1"]), ["1.0.0/"]);
    let all = names(&["app", "push", "applications/hello/"]);
    assert!(all.iter().all(|path| !path.contains(['$', '`', ';', '*', ' '])) && all.len() > 1, "{all:?}");
    assert_eq!(tab(&lab, &lab.path("applications/hello"), &["-C", "~/fl"]), ["~/fleet.wfm/", "~/fleet/"]);
    assert_eq!(tab(&lab, &lab.path("applications/hello"), &["-C", "~r"]), [""; 0]);
    assert!(!lab.path("pwned").exists());
    assert_eq!(git(&lab.fleet, &["status", "--porcelain"]), "");
}

/// Stands where a shell finds the program, and asks that what the shell asks; whatever else it is called with it writes down.
const INSTEAD: &str = r#"#!/bin/sh
if [ -n "$WFM_GIT_PUBLISHER_COMPLETE" ] || [ "$1" = completions ]; then exec "$PROGRAM" "$@"; fi
printf '%s\n' "$*" >"$HOME/called.new" && mv "$HOME/called.new" "$HOME/called"
"#;

/// What each shell reads when somebody starts it, as `docs/completions.md` has it.
const SETTINGS: [(&str, &str, &str); 3] = [
    ("bash", ".bashrc", "source <(wfm-git-publisher completions bash)"),
    ("zsh", ".zshrc", "autoload -U compinit && compinit\nsource <(wfm-git-publisher completions zsh)"),
    ("fish", ".config/fish/config.fish", "wfm-git-publisher completions fish | source"),
];

/// Lets a zsh that is only unpacked find what is its own.
const UNPACKED: &str = "module_path=($SHELLS/usr/lib/*/zsh/*(/)) fpath=($SHELLS/usr/share/zsh/functions/**/*(/))";

/// What a shell calls where somebody types this on a terminal, the tab key, and return.
fn called(lab: &Lab, (shell, file, settings): (&str, &str, &str), line: &str) -> String {
    let home = lab.dir().join(format!("home of {shell}"));
    let file = home.join(file);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::create_dir_all(home.join("bin")).unwrap();
    let instead = home.join("bin/wfm-git-publisher");
    fs::write(&instead, INSTEAD).unwrap();
    fs::set_permissions(&instead, fs::Permissions::from_mode(0o755)).unwrap();
    let shells = env::var_os("MARGO_TEST_SHELLS").map(PathBuf::from).filter(|unpacked| unpacked.is_dir());
    let unpacked = if shells.is_some() && shell == "zsh" { UNPACKED } else { "" };
    fs::write(&file, format!("{unpacked}\n{settings}\necho >\"$HOME/begun\"\n")).unwrap();

    let mut path = vec![home.join("bin")];
    path.extend(shells.iter().flat_map(|unpacked| [unpacked.join("bin"), unpacked.join("usr/bin")]));
    path.extend(env::split_paths(&env::var_os("PATH").unwrap()));
    let mut command = Command::new("script");
    command.args(["--quiet", "--command", &format!("exec {shell} -i"), "/dev/null"]).current_dir(&lab.fleet);
    command.env_clear().env("HOME", &home).env("PATH", env::join_paths(path).unwrap()).env("PROGRAM", PROGRAM);
    command.env("TERM", "xterm").env("SHELL", "/bin/sh");
    if let Some(unpacked) = &shells {
        let libraries = fs::read_dir(unpacked.join("usr/lib")).unwrap().map(|entry| entry.unwrap().path());
        command.env("SHELLS", unpacked).env("LD_LIBRARY_PATH", env::join_paths(libraries).unwrap());
    }
    let (called, begun) = (home.join("called"), home.join("begun"));
    let _ = (fs::remove_file(&called), fs::remove_file(&begun));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut keys = child.stdin.take().unwrap();
    let is_there = |file: &Path| comes_within(Duration::from_secs(30), || file.exists());
    let has_begun = is_there(&begun);
    write!(keys, "{line}\t\r").unwrap();
    let is_called = has_begun && is_there(&called);
    write!(keys, "exit\r").unwrap();
    drop(keys);
    let said = child.wait_with_output().unwrap();
    assert!(is_called, "{shell}: {line}: {}", String::from_utf8_lossy(&said.stdout));
    fs::read_to_string(called).unwrap()
}

#[test]
fn bash_zsh_and_fish_complete_a_command_an_option_and_a_device_where_somebody_presses_the_tab_key() {
    let lab = Lab::with(&["press-01", "packer-01"]);
    for settings in SETTINGS {
        for (typed, expected) in [
            ("device sh", "device show\n"),
            ("status --exit", "status --exit-code\n"),
            ("device show pa", "device show packer-01\n"),
            ("-C ../fleet device label pa", "-C ../fleet device label packer-01\n"),
        ] {
            let line = format!("wfm-git-publisher {typed}");
            assert_eq!(called(&lab, settings, &line), expected, "{}: {line}", settings.0);
        }
    }
}
