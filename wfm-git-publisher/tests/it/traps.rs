//! Files that are wrong in nasty ways, each through the real program: named, told, and nothing removed for them.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};

use repo_testkit::git::git;

use crate::support::{Lab, SECOND};

fn published() -> Lab {
    let lab = Lab::with(&["press-01"]);
    lab.write("deployments/second.yaml", SECOND);
    lab.commit();
    lab.publish_all();
    lab
}

/// Replaces the second deployment, and expects that `validate`, `plan` and `publish` name it and leave it.
#[track_caller]
fn expect(lab: &Lab, bytes: &[u8], expected: &str) {
    lab.write("deployments/second.yaml", bytes);
    lab.commit();
    refused(lab, expected);
}

#[track_caller]
fn refused(lab: &Lab, expected: &str) {
    let before = lab.refs("press-01");
    for args in [&["validate"][..], &["validate", "--rev", "HEAD"], &["plan"], &["publish"]] {
        let said = lab.run(args).failed(1);
        assert!(said.contains(expected), "{args:?}: expected `{expected}`, found\n{said}");
    }
    assert_eq!(lab.refs("press-01"), before, "{expected}");
}

#[test]
fn yaml_that_misleads_is_refused() {
    let lab = published();
    let file = "caused by: deployments/second.yaml";
    let with = |more: &str| format!("{SECOND}{more}");
    let deep = format!("{SECOND}overrides: {}1{}\n", "[".repeat(200), "]".repeat(200));
    let bomb = "a: &a [x, x]\nb: &b [*a, *a]\nid: second\n";
    let huge = format!("{SECOND}# {}\n", "x".repeat(2 << 20));
    for (text, expected) in [
        (with("unknown: 1\n").into_bytes(), format!("{file}:5:1: unknown: unknown key")),
        (with("paramters: {}\n").into_bytes(), "did you mean `parameters`?".to_owned()),
        (with("id: third\n").into_bytes(), format!("{file}:5:1: duplicate key `id`")),
        (SECOND.replace("servus", "yes").into_bytes(), format!("{file}:4:24: parameters.greeting: `yes`")),
        (SECOND.replace("servus", "1_000").into_bytes(), format!("{file}:4:24")),
        (SECOND.replace("parameters: {greeting", "parameters:\n\tgreeting: {x").into_bytes(), file.to_owned()),
        (
            SECOND.replace("[{matchLabels: {site: graz}}]", "graz").into_bytes(),
            format!("{file}:3:10: targets: is a string, expected a list"),
        ),
        (with("...\n---\nid: other\n").into_bytes(), file.to_owned()),
        (deep.into_bytes(), file.to_owned()),
        (bomb.into(), file.to_owned()),
        (huge.into_bytes(), file.to_owned()),
        ([SECOND.as_bytes(), b"# \xff\xfe\n"].concat(), file.to_owned()),
        (vec![], file.to_owned()),
        (SECOND.replace("servus", "!!binary aGk=").into_bytes(), file.to_owned()),
    ] {
        expect(&lab, &text, &expected);
    }
}

#[test]
fn a_byte_order_mark_and_other_encodings_are_refused() {
    let lab = published();
    let file = "caused by: deployments/second.yaml";
    expect(&lab, format!("\u{feff}{SECOND}").as_bytes(), &format!("{file}:1:1: starts with a byte order mark"));
    for bytes in [u16::to_le_bytes, u16::to_be_bytes] {
        let wide = |text: &str| text.encode_utf16().flat_map(bytes).collect::<Vec<u8>>();
        expect(&lab, &wide(SECOND), file);
        expect(&lab, &wide(&format!("\u{feff}{SECOND}")), file);
    }
}

#[test]
fn only_plain_files_are_read() {
    let lab = published();
    lab.remove("deployments/second.yaml");
    lab.write("elsewhere.yaml", SECOND);
    symlink("../elsewhere.yaml", lab.path("deployments/second.yaml")).unwrap();
    lab.commit();
    refused(&lab, "deployments/second.yaml: is a symbolic link");
    lab.remove("deployments/second.yaml");
    lab.write("deployments/second.yaml", SECOND);
    std::fs::set_permissions(lab.path("deployments/second.yaml"), PermissionsExt::from_mode(0o755)).unwrap();
    lab.commit();
    refused(&lab, "deployments/second.yaml: is executable");
    lab.rename("deployments", "moved");
    symlink("moved", lab.path("deployments")).unwrap();
    lab.commit();
    refused(&lab, "deployments: is a symbolic link");
}

#[test]
fn names_that_are_not_utf_8_are_refused() {
    let lab = published();
    lab.remove("deployments/second.yaml");
    let name = std::ffi::OsStr::from_bytes(b"sec\xffond.yaml");
    repo_git::durable::replace_file(&lab.path("deployments").join(name), SECOND.as_bytes(), 0o644).unwrap();
    lab.commit();
    refused(&lab, "has a name that is not UTF-8");
}

#[test]
fn a_submodule_is_refused() {
    let lab = published();
    let commit = git(&lab.fleet, &["rev-parse", "HEAD"]);
    lab.remove("deployments/second.yaml");
    git(&lab.fleet, &["add", "--all"]);
    let entry = format!("160000,{commit},deployments/more");
    git(&lab.fleet, &["update-index", "--add", "--cacheinfo", &entry]);
    git(&lab.fleet, &["commit", "--quiet", "-m", "a submodule"]);
    let before = lab.refs("press-01");
    let said = lab.run(&["publish"]).failed(1);
    assert!(said.contains("deployments/more: is a submodule"), "{said}");
    assert_eq!(lab.refs("press-01"), before);
}

#[test]
fn settings_that_can_not_be_used_stop_everything() {
    let lab = published();
    let good = lab.read("fleet.yaml");
    let id = good.lines().find(|line| line.starts_with("id:")).unwrap().to_owned();
    for (from, to, expected) in [
        ("poll: 15s", "poll: 15", "fleet.yaml:13:9: policy.poll: is an integer"),
        ("poll: 15s", "poll: 2d", "fleet.yaml:13:9: policy.poll: `2d` is not a duration"),
        (&id, "", "fleet.yaml:9:1: id: is missing"),
        (&id, "id: 0", "fleet.yaml:6:5: id:"),
    ] {
        lab.write("fleet.yaml", good.replace(from, to));
        lab.commit();
        let said = lab.run(&["publish"]).failed(1);
        assert!(said.contains(expected), "{expected}: {said}");
    }
    lab.write("fleet.yaml", good.replace(&id, "id: 5d3f7d5e-7a3a-4c3a-9a57-1c1f6a3f9f10"));
    lab.commit();
    let said = lab.run(&["publish"]).failed(1);
    assert!(said.contains("the publisher's home is that of fleet"), "{said}");
    lab.remove("fleet.yaml");
    lab.commit();
    assert!(lab.run(&["publish"]).failed(1).contains("fleet.yaml: is missing"));
}
