//! What comes into the fleet is committed as it is, once, by the operator; or nothing is.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use repo_testkit::git::git;

use super::*;

const FOLDER: &str = "applications/counter/1.0.0";

#[test]
fn a_package_is_committed_byte_for_byte_and_the_same_again_changes_nothing() {
    let lab = Lab::new();
    let dir = package(&lab, "vendor", "1.0.0");
    fs::set_permissions(dir.join("compose/counter/compose.yaml"), fs::Permissions::from_mode(0o4755)).unwrap();
    // Something else that is staged, and is nobody's business.
    lab.write("notes.txt", "mine");
    git(&lab.fleet, &["add", "notes.txt"]);
    let before = git(&lab.fleet, &["rev-parse", "HEAD"]);
    let said = lab.run(&["app", "add", text(&dir), "--dry-run"]).good();
    assert!(said.starts_with("counter@1.0.0 would come into the fleet: applications/counter/1.0.0 (4 files"), "{said}");
    assert!(git(&lab.fleet, &["rev-parse", "HEAD"]) == before && !lab.path(FOLDER).exists());
    let added = json(&lab, &["app", "add", text(&dir)]);
    assert_eq!(
        (&added["version"], &added["folder"], &added["wasThere"]),
        (&"1.0.0".into(), &FOLDER.into(), &false.into())
    );
    assert_eq!(committed(&lab, &format!("{FOLDER}/margo.yaml")), description("1.0.0").into_bytes());
    assert_eq!(committed(&lab, &format!("{FOLDER}/resources/license.txt")), LICENCE);
    let changed = git(&lab.fleet, &["diff-tree", "-r", "--no-commit-id", "--name-only", "HEAD"]);
    assert_eq!(changed.lines().count(), 4, "{changed}");
    assert!(changed.lines().all(|path| path.starts_with(FOLDER)), "{changed}");
    let modes = git(&lab.fleet, &["ls-tree", "-r", "--format=%(objectmode) %(path)", "HEAD", FOLDER]);
    assert!(modes.contains(&format!("100755 {FOLDER}/compose/counter/compose.yaml")), "{modes}");
    assert_eq!(modes.matches("100644 ").count(), 3, "{modes}");
    assert_eq!(
        lab.path(FOLDER).join("compose/counter/compose.yaml").metadata().unwrap().permissions().mode() & 0o7777,
        0o755
    );
    let log = git(&lab.fleet, &["log", "-1", "--format=%an %B"]);
    assert_eq!(log, format!("Olga counter: version 1.0.0\n\nFrom: {}", dir.display()));
    assert_eq!(stands(&lab).1, "A  notes.txt");
    lab.run(&["validate"]).good();
    let again = json(&lab, &["app", "add", text(&dir)]);
    assert_eq!(again["wasThere"], true);
    assert_eq!(git(&lab.fleet, &["rev-list", "--count", &format!("{before}..HEAD")]), "1");
}

#[test]
fn a_version_keeps_its_meaning_and_what_lies_in_its_place_is_left_alone() {
    let lab = Lab::new();
    let dir = package(&lab, "vendor", "1.0.0");
    // Somebody's own files where the package would be.
    lab.write("applications/counter/1.0.0/margo.yaml", description("1.0.0") + "# mine\n");
    let said = refused(&lab, &["app", "add", text(&dir)]);
    assert!(said.contains("not committed, and not this package's: compose/counter/compose.yaml"), "{said}");
    fs::remove_dir_all(lab.path("applications/counter")).unwrap();
    lab.run(&["app", "add", text(&dir)]).good();
    write(&dir, "resources/license.txt", "other terms");
    write(&dir, "resources/more.txt", "");
    let said = refused(&lab, &["app", "add", text(&dir)]);
    let expected = "counter 1.0.0 is in the fleet already, with other files: resources/license.txt, resources/more.txt";
    assert!(said.contains(expected) && said.contains("hint: what a version means is settled"), "{said}");
    // A version whose folder is the same where case doesn't count.
    let rc = package(&lab, "rc", "1.0.0-rc");
    lab.run(&["app", "add", text(&rc)]).good();
    let said = refused(&lab, &["app", "add", text(&package(&lab, "upper", "1.0.0-RC"))]);
    assert!(said.contains("can't be told from that of 1.0.0-RC") && said.contains("version 1.0.0-rc"), "{said}");
}

#[test]
fn what_was_cut_off_before_its_commit_is_completed() {
    let lab = Lab::new();
    let dir = package(&lab, "vendor", "1.0.0");
    lab.run(&["app", "add", text(&dir)]).good();
    git(&lab.fleet, &["reset", "--quiet", "--mixed", "HEAD~1"]);
    assert!(lab.path(FOLDER).join("margo.yaml").exists());
    lab.run(&["app", "add", text(&dir)]).good();
    assert_eq!(stands(&lab).1, "");
    assert_eq!(committed(&lab, &format!("{FOLDER}/resources/license.txt")), LICENCE);
    // And where an operator made the folder by hand.
    let other = lab.path("applications/counter/2.0.0");
    write(&other, "margo.yaml", description("2.0.0"));
    let said = lab.run(&["app", "add", "applications/counter/2.0.0"]);
    assert!(said.err.contains("names `resources/icon.png`, which is not in the package"), "{}", said.err);
    said.good();
    assert_eq!(stands(&lab).1, "");
}

#[test]
fn everything_that_is_wrong_is_told_with_its_place_before_anything_is_written() {
    let lab = Lab::new();
    let dir = package(&lab, "vendor", "1.0.0");
    let wrong =
        description("../../x").replace("memory: 2Gi", "memory: plenty").replace("type: compose", "type: compost");
    write(&dir, "margo.yaml", wrong);
    write(&dir, "resources/.gitattributes", "* filter=run\n");
    write(&dir, "resources/margo.yaml", "id: other\n");
    let said = refused(&lab, &["app", "add", text(&dir)]);
    for part in [
        "margo.yaml:13:9: ",
        "type",
        "resources/.gitattributes: would have git change files",
        "taken for a package of its own",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    write(&dir, "margo.yaml", description("1.0.0").replace("  version: 1.0.0", "  version: ../../x"));
    let said = refused(&lab, &["app", "add", text(&dir)]);
    assert!(said.contains("margo.yaml: metadata.version: `../../x` can't be the name of a folder"), "{said}");
    assert!(refused(&lab, &["app", "add", "nowhere"]).contains("there is no folder and no archive `nowhere`"));
    let empty = lab.dir().join("empty");
    fs::create_dir(&empty).unwrap();
    assert!(refused(&lab, &["app", "add", text(&empty)]).contains("margo.yaml: is missing"));
}

#[test]
fn a_folder_with_what_is_no_file_is_refused() {
    let lab = Lab::new();
    let dir = package(&lab, "vendor", "1.0.0");
    symlink("/etc/passwd", dir.join("resources/passwd")).unwrap();
    assert!(refused(&lab, &["app", "add", text(&dir)]).contains("resources/passwd` is a link"));
    fs::remove_file(dir.join("resources/passwd")).unwrap();
    // Reading a pipe would wait for ever.
    rustix::fs::mknodat(rustix::fs::CWD, dir.join("pipe"), rustix::fs::FileType::Fifo, 0o644.into(), 0).unwrap();
    assert!(refused(&lab, &["app", "add", text(&dir)]).contains("pipe` is a device, socket or pipe"));
    fs::remove_file(dir.join("pipe")).unwrap();
    git(lab.dir(), &["init", "--quiet", text(&dir)]);
    let said = refused(&lab, &["app", "add", text(&dir)]);
    assert!(said.contains(".git` is a Git repository") && said.contains("git archive"), "{said}");
    fs::remove_dir_all(dir.join(".git")).unwrap();
    fs::File::create(dir.join("large")).unwrap().set_len(33 << 20).unwrap();
    assert!(refused(&lab, &["app", "add", text(&dir)]).contains("has more than 33554432 bytes"));
    fs::remove_file(dir.join("large")).unwrap();
    // The fleet's own folder leads elsewhere.
    let elsewhere = lab.dir().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, lab.path("applications/counter")).unwrap();
    assert!(refused(&lab, &["app", "add", text(&dir)]).contains("applications/counter` is a link"));
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

/// What git would make other bytes of isn't committed, and the advice helps.
#[test]
fn what_git_would_commit_with_other_bytes_is_refused_until_it_is_told_to_keep_them() {
    let lab = Lab::new();
    let dir = package(&lab, "vendor", "1.0.0");
    git(&lab.fleet, &["config", "core.autocrlf", "input"]);
    lab.write(".gitattributes", "*.png filter=shout\n*.txt text ident\n");
    lab.write(".gitignore", "*.png\nlicense.txt\n");
    git(&lab.fleet, &["config", "filter.shout.clean", "tr a-z A-Z; echo"]);
    lab.commit();
    let said = refused(&lab, &["app", "add", text(&dir)]);
    let both = format!("{FOLDER}/resources/icon.png, {FOLDER}/resources/license.txt");
    assert!(said.contains(&format!("git would not commit these files as they are: {both}")), "{said}");
    assert!(!lab.path(FOLDER).exists(), "what was written for it goes again");
    // What an operator put there stays.
    fs::create_dir_all(lab.path(FOLDER).parent().unwrap()).unwrap();
    crate::support::copy(&dir, &lab.path(FOLDER));
    let own = refused(&lab, &["app", "add", FOLDER]);
    assert!(own.contains("git would not commit these files as they are"), "{own}");
    assert_eq!(fs::read(lab.path(FOLDER).join("resources/license.txt")).unwrap(), LICENCE);
    fs::remove_dir_all(lab.path(FOLDER)).unwrap();
    let advice = said.split("echo '").nth(1).unwrap().split('\'').next().unwrap();
    let before = lab.read(".gitattributes");
    lab.write(".gitattributes", before + advice + "\n");
    lab.commit();
    // What is ignored is part of the package all the same.
    lab.run(&["app", "add", text(&dir)]).good();
    assert_eq!(committed(&lab, &format!("{FOLDER}/resources/license.txt")), LICENCE);
    assert_eq!(committed(&lab, &format!("{FOLDER}/resources/icon.png")).len(), 7);
    assert_eq!(stands(&lab).1, "");
}

#[test]
fn the_commit_is_the_operators_own_with_hooks_and_signature() {
    let lab = Lab::new();
    let dir = package(&lab, "vendor", "1.0.0");
    let key = lab.dir().join("olga");
    Lab::device_key("olga").save(&key).unwrap();
    for (name, value) in [("gpg.format", "ssh"), ("user.signingKey", text(&key)), ("commit.gpgSign", "true")] {
        git(&lab.fleet, &["config", name, value]);
    }
    let hook = lab.path(".git/hooks/pre-commit");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, "#!/bin/sh\nexit 1\n").unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(lab.run(&["app", "add", text(&dir)]).failed(1).contains("cannot commit the package"));
    // A hook that changes what is committed is told.
    let changes = "#!/bin/sh\necho more >> applications/counter/1.0.0/resources/license.txt\ngit add applications\n";
    fs::write(&hook, changes).unwrap();
    let said = lab.run(&["app", "add", text(&dir)]).failed(1);
    assert!(said.contains("the commit doesn't hold the package as it is: resources/license.txt"), "{said}");
    git(&lab.fleet, &["reset", "--quiet", "--hard", "HEAD~1"]);
    fs::remove_file(&hook).unwrap();
    lab.run(&["app", "add", text(&dir)]).good();
    assert!(git(&lab.fleet, &["cat-file", "commit", "HEAD"]).contains("BEGIN SSH SIGNATURE"));
}
