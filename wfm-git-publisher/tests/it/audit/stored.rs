//! A host, or a disk: objects and refs that aren't what they were.

use repo_testkit::git::try_git;

use super::forge::{BAD, Forge, Forgery, GOOD, all_are_found, feed, forgery};
use crate::support::copy;

/// One byte of an object's file is another one.
fn flipped(rev: &'static str, branch: &'static str) -> Forgery<'static> {
    forgery(format!("a byte of {rev}"), "object-damaged", branch, move |forge| {
        let path = forge.object(rev);
        let bytes = std::fs::read(&path).unwrap();
        // Compressed text can come out the same with another bit: it is flipped when stock Git says so, too.
        let is_flipped = |at: &usize| {
            let mut bytes = bytes.clone();
            bytes[*at] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            !try_git(&forge.bad(), &["fsck", "--no-dangling"]).status.success()
        };
        assert!((bytes.len() / 2..bytes.len()).any(|at| is_flipped(&at)));
        None
    })
}

/// Another object of the same kind under its name.
fn exchanged(rev: &'static str, other: &'static str, branch: &'static str) -> Forgery<'static> {
    forgery(format!("{other} in the place of {rev}"), "object-damaged", branch, move |forge| {
        std::fs::write(forge.object(rev), std::fs::read(forge.object(other)).unwrap()).unwrap();
        None
    })
}

fn missing(rev: &'static str, branch: &'static str) -> Forgery<'static> {
    forgery(format!("{rev} is missing"), "object-damaged", branch, move |forge| {
        std::fs::remove_file(forge.object(rev)).unwrap();
        None
    })
}

/// A branch stands where another one does.
fn spliced(branch: &'static str, at: &'static str, code: &'static str) -> Forgery<'static> {
    forgery(format!("{branch} stands at {at}"), code, branch, move |forge| {
        let at = forge.git(&["rev-parse", at]);
        forge.hand.move_branch(branch, &at);
        Some(at)
    })
}

/// A branch of another device's.
fn borrowed(branch: &'static str, code: &'static str) -> Forgery<'static> {
    forgery(format!("{branch} of another device"), code, branch, move |forge| {
        let from = forge.repository(GOOD).display().to_string();
        forge.git(&["fetch", "--quiet", &from, &format!("+{branch}:{branch}")]);
        Some(forge.hand.tip(branch))
    })
}

fn deleted(branch: &'static str, code: &'static str) -> Forgery<'static> {
    forgery(format!("no {branch}"), code, None, move |forge| {
        forge.git(&["update-ref", "-d", &format!("refs/heads/{branch}")]);
        None
    })
}

fn foreign(name: &'static str) -> Forgery<'static> {
    forgery(format!("a ref {name}"), "foreign-ref", None, move |forge| {
        let tip = forge.hand.tip("desired");
        forge.git(&["update-ref", name, &tip]);
        Some(tip)
    })
}

fn forgeries() -> Vec<Forgery<'static>> {
    vec![
        flipped("desired", "desired"),
        flipped("desired~2", "desired"),
        flipped("desired~2^{tree}", "desired"),
        flipped("desired~2:envelope.json", "desired"),
        flipped("desired~2:deployments", "desired"),
        flipped("desired~4:trust/1.json", "desired"),
        flipped("status", "status"),
        flipped("status~7", "status"),
        flipped("status~7^{tree}", "status"),
        flipped("status~7:syncer.json", "status"),
        flipped("heartbeat:current-state.json", "heartbeat"),
        flipped("bundle:bundle.tar.gz", "bundle"),
        exchanged("desired~2", "desired~3", "desired"),
        exchanged("desired~2:envelope.json", "desired~3:envelope.json", "desired"),
        exchanged("status~7^{tree}", "status~8^{tree}", "status"),
        exchanged("status~7:syncer.json", "status~4:syncer.json", "status"),
        missing("desired~2", "desired"),
        missing("desired~2:envelope.json", "desired"),
        missing("status~7", "status"),
        missing("status~7:syncer.json", "status"),
        spliced("status", "desired", "signature-invalid"),
        spliced("heartbeat", "status", "wrong-device"),
        spliced("status", "heartbeat", "wrong-device"),
        spliced("freshness", "bundle", "wrong-device"),
        spliced("bundle", "freshness", "wrong-device"),
        spliced("site", "heartbeat", "wrong-device"),
        borrowed("status", "signature-invalid"),
        borrowed("heartbeat", "wrong-device"),
        borrowed("freshness", "wrong-device"),
        borrowed("bundle", "wrong-device"),
        borrowed("site", "wrong-device"),
        deleted("desired", "branch-missing"),
        deleted("status", "branch-missing"),
        deleted("bundle", "branch-missing"),
        deleted("freshness", "not-fresh"),
        forgery("desired stands at status", "trust-invalid", None, |forge| {
            let status = forge.hand.tip("status");
            forge.hand.move_branch("desired", &status);
            None
        }),
        foreign("refs/heads/main"),
        foreign("refs/heads/status2"),
        foreign("refs/tags/v1"),
        foreign("refs/replace/0123456789012345678901234567890123456789"),
        forgery("an older desired", "desired-unknown", "status", |forge| {
            let old = forge.line("desired")[1].clone();
            forge.hand.move_branch("desired", &old);
            Some(forge.hand.tip("status"))
        }),
        forgery("an older desired, by its proof", "proof-unknown", "freshness", |forge| {
            let old = forge.line("desired")[1].clone();
            forge.hand.move_branch("desired", &old);
            None
        }),
        forgery("an older status", "status-behind", "heartbeat", |forge| {
            let old = forge.line("status")[3].clone();
            forge.hand.move_branch("status", &old);
            None
        }),
        forgery("a shallow clone", "history-incomplete", None, |forge| {
            forge.put("shallow", &format!("{}\n", forge.line("desired")[1]));
            None
        }),
        forgery("another HEAD", "head-elsewhere", None, |forge| {
            forge.put("HEAD", "ref: refs/heads/main\n");
            None
        }),
        forgery("a commit replaced by another one", "foreign-ref", None, |forge| {
            let line = forge.line("desired");
            forge.git(&["replace", &line[2], &line[3]]);
            None
        }),
        forgery("a branch that is no commit", "object-damaged", "status", |forge| {
            let blob = feed(&forge.bad(), &["hash-object", "-w", "--stdin"], "x");
            forge.put("refs/heads/status", &format!("{blob}\n"));
            None
        }),
        forgery("a branch that is no ref", "object-damaged", "status", |forge| {
            forge.put("refs/heads/status", "\0\0\0\0");
            None
        }),
        forgery("no repository", "repository-unreadable", None, |forge| {
            std::fs::remove_dir_all(forge.bad().join("objects")).unwrap();
            None
        }),
    ]
}

#[test]
fn objects_and_refs_that_are_not_what_they_were_are_found() {
    all_are_found(&Forge::new(), &forgeries());
}

#[test]
fn a_repository_in_anothers_place_and_one_that_is_there_twice_are_found() {
    let forge = Forge::new();
    let codes = |forge: &Forge| {
        let mut codes: Vec<_> = forge.audit().findings.iter().map(|one| one.found.kind.code).collect();
        codes.sort_unstable();
        codes
    };
    copy(&forge.repository(GOOD), &forge.bad());
    assert_eq!(codes(&forge), ["device-twice", "device-twice", "name-mismatch"]);
    copy(&forge.repository(GOOD), &forge.devices().join("copy.git"));
    std::fs::remove_dir_all(forge.bad()).unwrap();
    assert_eq!(codes(&forge), ["device-twice", "device-twice", "name-mismatch"], "{BAD} is gone");
}
