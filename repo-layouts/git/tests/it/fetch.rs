//! Fetching within limits, and leaving nothing behind when it fails.

use std::time::Duration;

use repo_git::{Ancestry, CommitId, FetchError, FetchLimits, Remote, RemoteError, Repo, TreeLimits};

use crate::support::{Corner, commit, listing, set, store, tree};

fn remote(repo: &Repo) -> Remote {
    Remote::open(&repo.path().display().to_string()).expect("a remote")
}

fn limits() -> FetchLimits {
    FetchLimits { timeout: Duration::from_secs(300), ..FetchLimits::default() }
}

/// A repository with a history of `count` commits.
fn upstream(corner: &Corner, count: usize) -> (Repo, Vec<CommitId>) {
    let repo = corner.repo("upstream.git");
    let text = |n: usize| {
        (0..400).map(|line| format!("line {line} of {}\n", if line == n { n } else { 0 })).collect::<String>()
    };
    let commits = (0..count).map(|n| commit(&repo, "desired", &[("f", &text(n)), ("g", &n.to_string())])).collect();
    (repo, commits)
}

#[test]
fn refs_are_listed_by_prefix() {
    let corner = Corner::new();
    let (up, commits) = upstream(&corner, 1);
    set(&up, "status", commits[0]);
    let refs = remote(&up).refs(&["refs/heads/s"]).expect("listed");
    assert_eq!(refs.into_iter().collect::<Vec<_>>(), [("refs/heads/status".to_owned(), commits[0])]);
    let url = format!("file://{}", up.path().display());
    assert_eq!(Remote::open(&url).expect("opened").refs(&[]).expect("listed").len(), 3, "HEAD too");
    let empty = corner.repo("empty.git");
    assert!(remote(&empty).refs(&["refs/heads/"]).expect("listed").is_empty());
}

#[test]
fn a_whole_history_and_then_only_what_is_new_as_a_thin_pack() {
    let corner = Corner::new();
    let (up, commits) = upstream(&corner, 5);
    corner.git(up.path(), &["gc", "-q"]);
    let down = corner.repo("down.git");
    let first = remote(&up).fetch(&down, &[commits[3]], &[], false, &limits()).expect("fetched");
    assert!(first.objects >= 12, "{first:?}");
    let second = remote(&up).fetch(&down, &[commits[4]], &[commits[3]], false, &limits()).expect("fetched");
    assert!(second.objects <= 4 && second.bytes < first.bytes, "{second:?}");
    set(&down, "desired", commits[4]);
    corner.fsck(&down);
    assert_eq!(down.history(commits[4], None, 10).expect("readable").len(), 5);
    assert_eq!(down.pack_count(), 2);
    assert!(!down.path().join("shallow").exists());
    assert_eq!(remote(&up).fetch(&down, &[commits[4]], &[commits[4]], false, &limits()).expect("again").objects, 0);
    assert_eq!(down.pack_count(), 2);
}

#[test]
fn depth_one_first_and_then_the_whole_distance() {
    let corner = Corner::new();
    let (up, commits) = upstream(&corner, 6);
    let down = corner.repo("down.git");
    remote(&up).fetch(&down, &[commits[2]], &[], true, &limits()).expect("fetched");
    set(&down, "desired", commits[2]);
    corner.fsck(&down);
    assert_eq!(std::fs::read_to_string(down.path().join("shallow")).expect("there").trim(), commits[2].to_string());
    assert_eq!(down.is_ancestor(commits[0], commits[2]).expect("readable"), Ancestry::Unknown);
    assert_eq!(down.is_ancestor(commits[1], commits[2]).expect("readable"), Ancestry::Yes, "named as the parent");

    remote(&up).fetch(&down, &[commits[5]], &[commits[2]], false, &limits()).expect("fetched");
    set(&down, "desired", commits[5]);
    corner.fsck(&down);
    assert_eq!(down.history(commits[5], None, 10).expect("readable").len(), 4);
    assert_eq!(down.is_ancestor(commits[2], commits[5]).expect("readable"), Ancestry::Yes);
    assert!(down.resolve(&commits[1].to_string()).expect("readable").is_none());

    // A consolidated shallow repository is still whole in itself.
    let lock = down.lock().expect("locked");
    assert!(down.consolidate(&lock, 1).expect("consolidated"));
    corner.fsck(&down);
    assert_eq!(down.files(commits[5], &TreeLimits::default()).expect("read")["g"], b"5");
}

#[test]
fn every_limit_stops_the_fetch_and_leaves_nothing() {
    let corner = Corner::new();
    let (up, commits) = upstream(&corner, 3);
    let noise: String = (0..200_000u64).map(|n| char::from(b'a' + (n * n % 1013 % 26) as u8)).collect();
    let big = store(&up, &tree(&[("noise", &noise), ("zeros", &"0".repeat(3 << 20))]), &[commits[2]], "big");
    set(&up, "desired", big);
    let down = corner.repo("down.git");
    let before = listing(down.path());
    let fetch = |limits: FetchLimits| {
        let result = remote(&up).fetch(&down, &[big], &[], false, &limits).expect_err("over a limit");
        assert_eq!(listing(down.path()), before, "{result:?}");
        result
    };
    let objects = fetch(FetchLimits { objects: 5, ..limits() });
    assert!(matches!(objects, FetchError::TooManyObjects { found: 16, limit: 5 }), "{objects:?}");
    let bytes = fetch(FetchLimits { bytes: 3000, ..limits() });
    assert!(matches!(bytes, FetchError::TooManyBytes { limit: 3000 }), "{bytes:?}");
    let object = fetch(FetchLimits { object_bytes: 1 << 20, ..limits() });
    assert!(matches!(object, FetchError::ObjectTooLarge { .. }), "{object:?}");
    remote(&up).fetch(&down, &[big], &[], false, &limits()).expect("within the limits");
}

#[test]
fn a_large_result_of_a_small_delta_is_refused_too() {
    let corner = Corner::new();
    let up = corner.repo("upstream.git");
    let base = "0123456789abcdef".repeat(20_000);
    commit(&up, "desired", &[("f", &base)]);
    let tip = commit(&up, "desired", &[("f", &format!("{base}{base}{base}"))]);
    corner.git(up.path(), &["repack", "-adqf"]);
    let down = corner.repo("down.git");
    let before = listing(down.path());
    let tight = FetchLimits { object_bytes: 400_000, ..limits() };
    let error = remote(&up).fetch(&down, &[tip], &[], false, &tight).expect_err("over the limit");
    assert!(matches!(error, FetchError::ObjectTooLarge { .. }), "{error:?}");
    assert_eq!(listing(down.path()), before);
}

#[test]
fn what_is_not_there_is_an_error_that_says_so() {
    let corner = Corner::new();
    let (up, _) = upstream(&corner, 1);
    let down = corner.repo("down.git");
    let before = listing(down.path());
    let nobody: CommitId = "1".repeat(40).parse().expect("an id");
    let error = remote(&up).fetch(&down, &[nobody], &[], false, &limits()).expect_err("not there");
    assert!(matches!(error, FetchError::NotSent(id) if id == nobody), "{error:?}");
    let nowhere = Remote::open(&corner.path("nowhere.git").display().to_string()).expect("a path");
    let error = nowhere.refs(&[]).expect_err("nowhere");
    assert!(
        matches!(&error, RemoteError::Unreachable { detail, .. } if detail.contains("not appear to be a git")),
        "{error:?}"
    );
    assert!(matches!(
        nowhere.fetch(&down, &[nobody], &[], true, &limits()),
        Err(FetchError::Remote(RemoteError::Unreachable { .. }))
    ));
    assert!(matches!(Remote::open("https://example.com/x.git"), Err(RemoteError::Unsupported { .. })));
    assert_eq!(listing(down.path()), before);
}

/// A `git` that greets like `upload-pack` and then behaves as `body` says.
fn fake_git(corner: &Corner, body: &str) -> String {
    let bin = corner.path("bin");
    std::fs::create_dir_all(&bin).expect("made");
    let greeting = ["version 2", "agent=fake", "ls-refs", "fetch=shallow"];
    let lines: String =
        greeting.iter().map(|line| format!("printf '%04x%s\\n' {} '{line}'\n", line.len() + 5)).collect();
    // It takes the whole request, also when it has said all.
    let script = format!("#!/bin/sh\n{lines}printf 0000\nhead -c 20 >/dev/null\n{body}\nexec >&-\ncat >/dev/null\n");
    std::fs::write(bin.join("git"), script).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(bin.join("git"), mode).expect("executable");
    format!("{}:{}", bin.display(), std::env::var("PATH").expect("PATH"))
}

/// How a fetch from a fake `git` ends, and how long it takes.
fn fetch_from_fake(body: &str, seconds: u64) -> (String, Duration) {
    let corner = Corner::new();
    let down = corner.repo("down.git");
    let mut child = crate::child::command("fetch");
    child.env("PATH", fake_git(&corner, body)).env("CHILD_ROOT", down.path()).env("CHILD_UPSTREAM", corner.path("x"));
    child.env("CHILD_SECONDS", seconds.to_string());
    let start = std::time::Instant::now();
    let output = child.output().expect("started");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let result = text.lines().find_map(|line| line.split_once("RESULT ")).expect("a result").1.to_owned();
    (result, start.elapsed())
}

/// Sends a pack of one blob that never ends: 2^34 bytes announced, and deflated noise.
const ENDLESS: &str = r"
printf '000dpackfile\n'
{ printf 'PACK\0\0\0\002\0\0\0\001\260\200\200\200\200\004\170\234'; gzip -1 </dev/urandom | tail -c +11; } |
while printf 'fff0\001' && dd bs=65515 count=1 iflag=fullblock 2>/dev/null; do :; done";

#[test]
fn an_endless_pack_stops_at_the_limit() {
    let (result, _) = fetch_from_fake(ENDLESS, 300);
    assert!(result.contains("TooManyBytes"), "{result}");
}

#[test]
fn a_remote_that_falls_silent_or_only_chats_is_given_up() {
    let chat = r"while printf '000a\002still'; do :; done";
    for body in ["sleep 100", &format!("printf '000dpackfile\\n'; {chat}"), "printf '000dpackfile\\n'; sleep 100"] {
        let (result, took) = fetch_from_fake(body, 2);
        assert!(result.contains("Timeout") && took < Duration::from_secs(60), "{body}: {result} {took:?}");
    }
}

#[test]
fn nonsense_and_a_torn_pack_are_told_apart_from_silence() {
    let (result, _) = fetch_from_fake("printf 'nonsense'", 300);
    assert!(result.contains("Protocol"), "{result}");
    let (result, _) = fetch_from_fake(r"printf '000dpackfile\n0011\001PACK\0\0\0\002\0\0\0\001'", 300);
    assert!(result.contains("Corrupt"), "{result}");
    let (result, _) = fetch_from_fake(r"printf '000dpackfile\n0011\001PACK\0\0\0\002\377\0\0\0'", 300);
    assert!(result.contains("TooManyObjects"), "{result}");
}
