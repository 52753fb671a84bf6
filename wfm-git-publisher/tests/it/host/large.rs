//! Answers that don't fit into memory, and many who wait.

use repo_testkit::git;

use super::limits::{Stuck, begin, fetch_of, large};
use super::{DEVICE, Site, eventually};

#[test]
fn a_large_answer_arrives_whole_and_a_process_ends_with_a_client_that_goes_away() {
    let site = Site::new();
    large(&site, &site.device());
    let auditor = site.login("aud", wfm_git_host::accounts::Role::Auditor, None);
    let clone = site.clone(&auditor, "devices/press-01.git", "large");
    git::git(&clone, &["fsck", "--strict"]);
    assert!(eventually(|| children(site.pid()) == 0), "a process waits for its client");
    let stuck = Stuck::in_repository_of(&site, DEVICE);
    let request = fetch_of(&site, DEVICE);
    let stream = begin(&site, "git-upload-pack", &auditor, request.len(), &request);
    let _held = stuck.held();
    assert!(children(site.pid()) > 0, "nothing makes the answer");
    drop(stream);
    assert!(eventually(|| children(site.pid()) == 0), "a process goes on for nobody");
}

fn children(pid: u32) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let children = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    children.map(|text| text.split_whitespace().count()).sum()
}

#[test]
fn two_thousand_that_wait_are_cheap() {
    let limits = "connectionsPerAccount: 5000, requestsPerAccount: 5000, strangersPerAddress: 5000";
    let site = Site::with(&format!("  limits: {{{limits}}}\n"));
    let auditor = site.login("aud", wfm_git_host::accounts::Role::Auditor, None);
    let head = auditor.ask(&site.wait_path());
    super::abuse::raise_file_limit();
    let wait = |count: usize| (0..count).map(|_| site.say(&head)).collect::<Vec<_>>();
    // Threads and what handshakes need are there from the first ones on.
    let first = wait(1_000);
    assert!(eventually(|| site.waiters(&auditor) == 1_000));
    let before = memory(site.pid());
    let more = wait(2_000);
    assert!(eventually(|| site.waiters(&auditor) == 3_000));
    let each = memory(site.pid()).saturating_sub(before) / 2_000;
    println!("{each} bytes for each that waits");
    assert!(each < 28 << 10, "{each} bytes for each that waits");
    drop((first, more));
    assert!(eventually(|| site.waiters(&auditor) == 0));
}

/// A process' own memory, in bytes: of what it shares with other tests' hosts, its part changes as they come and go.
pub(super) fn memory(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}
