//! Fetching within limits, and leaving nothing behind when it fails.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use repo_git::{Ancestry, CommitId, FetchError, FetchLimits, Remote, RemoteError, Repo, TreeLimits};
use repo_testkit::deltas::{Shape, bomb};

use crate::support::{Corner, commit, limits, listing, set, store, tree};

/// A pack whose deltas name their bases by their ids.
const NAMED: &[u8] = include_bytes!("../../../../fuzz/corpus/packs/named-chain");

fn remote(repo: &Repo) -> Remote {
    Remote::open(&repo.path().display().to_string()).expect("a remote")
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
    drop(lock);

    // What was left out comes when it is asked for.
    remote(&up).fetch_whole(&down, &[commits[5]], &limits()).expect("fetched");
    corner.fsck(&down);
    assert_eq!(down.history(commits[5], None, 10).expect("readable").len(), 6);
    assert!(!down.path().join("shallow").exists());
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

#[test]
fn a_small_pack_of_large_deltas_is_refused_in_little_memory() {
    let corner = Corner::new();
    let (up, down) = (corner.repo("upstream.git"), corner.repo("down.git"));
    let tip = bomb(up.path(), Shape::Chain(24), None);
    let mut child = crate::child::command("fetch");
    child.env("CHILD_ROOT", down.path()).env("CHILD_UPSTREAM", up.path()).env("CHILD_WANT", tip);
    child.env("CHILD_SECONDS", "300");
    let said = said(child);
    assert!(said("RESULT").contains("TooMuchToResolve"), "{}", said("RESULT"));
    let peak: u64 = said("PEAK").parse().expect("bytes");
    assert!(peak < 200 << 20, "{peak} bytes of memory");
}

/// What a child that fetched said of something.
fn said(mut child: Command) -> impl Fn(&str) -> String {
    let output = child.output().expect("started");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let value = |of: &str, line: &str| Some(line.split_once(of)?.1.trim().to_owned());
    move |of| text.lines().find_map(|line| value(of, line)).unwrap_or_else(|| panic!("no {of}: {text}"))
}

#[test]
fn chains_of_deltas_are_counted_however_they_name_their_bases() {
    let corner = Corner::new();
    let repo = corner.repo("r.git");
    // 251 deltas, each on the one before; and five that name their bases by id, in the same pack and behind them.
    let (long, named) = (include_bytes!("../../../../fuzz/corpus/packs/long-chain"), NAMED);
    let error = repo.measure_pack(&long[..], &limits()).expect_err("too long");
    assert!(matches!(error, FetchError::TooManyDeltas { limit: 250 }), "{error:?}");
    repo.measure_pack(named, &limits()).expect("at worst they are one chain");
    // A base and a result of 16 bytes each, and 7 of instructions; at worst six such parts are one chain.
    for (object_bytes, fits) in [(59, true), (58, false)] {
        let measured = repo.measure_pack(named, &FetchLimits { object_bytes, ..limits() });
        assert_eq!(measured.is_ok(), fits, "{object_bytes}: {measured:?}");
        assert!(measured.is_ok() || matches!(measured, Err(FetchError::TooMuchToResolve { limit: 232 })));
    }
    for torn in [&named[..11], &named[..40], &named[..named.len() - 30]] {
        assert!(matches!(repo.measure_pack(torn, &limits()), Err(FetchError::Corrupt(_))));
    }
}

/// Thousands of commits on one file, packed as hard as stock Git does.
fn packed_hard(corner: &Corner, commits: usize) -> (Repo, CommitId) {
    let repo = corner.repo("packed.git");
    let mut lines: Vec<String> = (0..200).map(|n| format!("line {n} of a file that changes often\n")).collect();
    let mut stream = Vec::new();
    for n in 0..commits {
        lines[n * 7 % 200] = format!("line {n} is another one now\n");
        let text = lines.concat();
        let head = "commit refs/heads/desired\ncommitter T <t@example.com> 1700000000 +0000\ndata 1\nm\n";
        write!(stream, "{head}M 644 inline f\ndata {}\n{text}\n", text.len()).expect("written");
    }
    let mut import = corner.command("git");
    import.arg("-C").arg(repo.path()).args(["fast-import", "--quiet"]).stdin(Stdio::piped());
    let mut import = import.spawn().expect("git is installed");
    import.stdin.take().expect("a pipe").write_all(&stream).expect("written");
    assert!(import.wait().expect("it ends").success());
    corner.git(repo.path(), &["repack", "-qadf", "--depth=50", "--window=50"]);
    let repo = Repo::open(repo.path()).expect("opened");
    let tip = repo.tip("desired").expect("readable").expect("there");
    (repo, tip)
}

#[test]
fn a_long_history_that_stock_git_packed_hard_is_fetched_in_full() {
    let corner = Corner::new();
    let (up, tip) = packed_hard(&corner, 3000);
    let down = corner.repo("down.git");
    let fetched = remote(&up).fetch(&down, &[tip], &[], false, &limits()).expect("fetched");
    assert_eq!(fetched.objects, 9000);
    assert_eq!(down.history(tip, None, 9000).expect("readable").len(), 3000);
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
    let result = said(child)("RESULT");
    (result, start.elapsed())
}

/// Sends a pack of one blob that doesn't end in time: 2^23 bytes announced, and deflated noise.
const ENDLESS: &str = r"
printf '000dpackfile\n'
{ printf 'PACK\0\0\0\002\0\0\0\001\260\200\200\040\170\234'; gzip -1 </dev/urandom | tail -c +11; } |
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
        // Whoever chats quickly has said too much before the time is over.
        let is_given_up = result.contains("Timeout") || body.contains(chat) && result.contains("says more than it may");
        assert!(is_given_up && took < Duration::from_secs(60), "{body}: {result} {took:?}");
    }
}

#[test]
fn a_remote_that_never_comes_to_its_pack_is_given_up_for_what_it_says() {
    let endless = format!("printf '0011shallow-info\\n'; yes '0034shallow {}' | tr -d '\\n'", "1".repeat(40));
    let (result, took) = fetch_from_fake(&endless, 300);
    assert!(result.contains("Protocol") && took < Duration::from_secs(120), "{result} {took:?}");
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

#[test]
fn a_damaged_shallow_file_is_not_taken_for_the_remotes_fault() {
    let corner = Corner::new();
    let (up, commits) = upstream(&corner, 2);
    let down = corner.repo("down.git");
    remote(&up).fetch(&down, &commits[..1], &[], true, &limits()).expect("fetched");
    std::fs::write(down.path().join("shallow"), "no commit's id\n").expect("written");
    let failed = remote(&up).fetch(&down, &commits[1..], &[], false, &limits());
    assert!(matches!(failed, Err(FetchError::Read(_))), "{failed:?}");
}
