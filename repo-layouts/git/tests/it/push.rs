//! Pushing with an exact lease to stock `git receive-pack`.

use repo_git::repo::Prepared;
use repo_git::{CommitId, FetchLimits, PushError, PushResult, Remote, RemoteError, Repo};

use crate::support::{Corner, commit, set, spec, store, tree, update};

fn remote(repo: &Repo) -> Remote {
    Remote::open(&repo.path().display().to_string()).expect("a remote")
}

#[test]
fn branches_are_made_moved_and_replaced() {
    let corner = Corner::new();
    let (local, up) = (corner.repo("local.git"), corner.repo("up.git"));
    let one = commit(&local, "status", &[("a/x", "1"), ("b", "1")]);
    let beat = store(&local, &tree(&[("current-state.json", "1")]), &[], "beat");
    let made = remote(&up).push(&local, &[update("status", None, one, false), update("heartbeat", None, beat, true)]);
    assert_eq!(made.expect("pushed"), [PushResult::Done, PushResult::Done]);
    let two = commit(&local, "status", &[("a/x", "1"), ("b", "2")]);
    let beat_2 = store(&local, &tree(&[("current-state.json", "2")]), &[], "beat");
    let moves = [update("status", Some(one), two, false), update("heartbeat", Some(beat), beat_2, true)];
    assert_eq!(remote(&up).push(&local, &moves).expect("pushed"), [PushResult::Done, PushResult::Done]);
    assert_eq!(remote(&up).push(&local, &moves).expect("again"), [PushResult::Done, PushResult::Done]);
    assert_eq!((up.tip("status").expect("there"), up.tip("heartbeat").expect("there")), (Some(two), Some(beat_2)));
    corner.fsck(&up);
    // Only what was new went over: 4 + 2 objects, then commit, root tree and `b`, and commit and tree.
    let counts = corner.git(up.path(), &["count-objects", "-v"]);
    assert!(counts.contains("in-pack: 11") && counts.contains("count: 0"), "{counts}");
}

#[test]
fn a_branch_that_moved_meanwhile_is_stale_and_stays() {
    let corner = Corner::new();
    let (local, up) = (corner.repo("local.git"), corner.repo("up.git"));
    let one = commit(&local, "status", &[("f", "1")]);
    let two = commit(&local, "status", &[("f", "2")]);
    let other = commit(&up, "status", &[("f", "other")]);
    for expected in [None, Some(one)] {
        let result = remote(&up).push(&local, &[update("status", expected, two, true)]).expect("judged");
        assert!(matches!(&result[..], [PushResult::Stale { text }] if text.contains(&other.to_string())), "{result:?}");
    }
    assert_eq!(up.tip("status").expect("there"), Some(other));
}

#[test]
fn of_concurrent_pushes_from_one_state_one_wins() {
    let corner = Corner::new();
    let (local, up) = (corner.repo("local.git"), corner.repo("up.git"));
    let base = commit(&local, "status", &[("f", "0")]);
    remote(&up).push(&local, &[update("status", None, base, false)]).expect("pushed");
    let rivals: Vec<CommitId> =
        (0..8).map(|n| store(&local, &tree(&[("f", &format!("r{n}"))]), &[base], "rival")).collect();
    let results: Vec<PushResult> = std::thread::scope(|scope| {
        let push = |new: CommitId| {
            let (local, to) = (local.clone(), remote(&up));
            scope.spawn(move || to.push(&local, &[update("status", Some(base), new, false)]).expect("judged").remove(0))
        };
        let pushes: Vec<_> = rivals.iter().map(|rival| push(*rival)).collect();
        pushes.into_iter().map(|push| push.join().expect("no panic")).collect()
    });
    let won: Vec<usize> = (0..8).filter(|n| results[*n] == PushResult::Done).collect();
    assert_eq!(won.len(), 1, "{results:?}");
    assert!(results.iter().all(|r| matches!(r, PushResult::Done | PushResult::Stale { .. })), "{results:?}");
    assert_eq!(up.tip("status").expect("there"), Some(rivals[won[0]]));
    corner.fsck(&up);
}

#[test]
fn a_commit_that_is_stored_nowhere_here_is_pushed_with_its_pack_and_replaces_only_what_it_may() {
    let corner = Corner::new();
    let up = corner.repo("up.git");
    let made = |text| {
        let mut prepared = Prepared::default();
        let files = tree(&[("current-state.json", text)]);
        let id = prepared.commit(&spec(&files, &[], "beat"), None).expect("made");
        (id, prepared.pack().expect("a pack"))
    };
    let ((one, first), (two, second)) = (made("1"), made("2"));
    let push = |pack, expected, new, force| remote(&up).push_pack(pack, &update("heartbeat", expected, new, force));
    assert_eq!(push(&first, None, one, false).expect("pushed"), PushResult::Done);
    assert_eq!(push(&first, None, one, false).expect("again"), PushResult::Done);
    let (stale, refused) = (push(&second, None, two, true), push(&second, Some(one), two, false));
    assert!(matches!(stale, Ok(PushResult::Stale { .. })), "{stale:?}");
    assert!(matches!(refused, Ok(PushResult::Refused { .. })), "{refused:?}");
    assert_eq!(push(&second, Some(one), two, true).expect("pushed"), PushResult::Done);
    assert_eq!(up.tip("heartbeat").expect("there"), Some(two));
    corner.fsck(&up);
}

#[test]
fn rewriting_needs_force_and_a_hook_can_refuse() {
    let corner = Corner::new();
    let (local, up) = (corner.repo("local.git"), corner.repo("up.git"));
    let one = commit(&local, "status", &[("f", "1")]);
    let rewritten = store(&local, &tree(&[("f", "x")]), &[], "no parent");
    remote(&up).push(&local, &[update("status", None, one, false)]).expect("pushed");
    let result = remote(&up).push(&local, &[update("status", Some(one), rewritten, false)]).expect("judged");
    assert!(matches!(result[..], [PushResult::Refused { .. }]), "{result:?}");

    corner.git(up.path(), &["config", "receive.denyNonFastForwards", "true"]);
    let both = [update("status", Some(one), rewritten, true), update("fresh", None, one, false)];
    let result = remote(&up).push(&local, &both).expect("judged");
    assert!(
        matches!(&result[..], [PushResult::Refused { text }, PushResult::Done] if text == "non-fast-forward"),
        "{result:?}"
    );
    assert_eq!(up.tip("status").expect("there"), Some(one));
}

#[test]
fn a_shallow_clone_pushes_on_top_of_its_boundary() {
    let corner = Corner::new();
    let (up, local) = (corner.repo("up.git"), corner.repo("local.git"));
    commit(&up, "status", &[("f", "1")]);
    let tip = commit(&up, "status", &[("f", "2")]);
    remote(&up).fetch(&local, &[tip], &[], true, &FetchLimits::default()).expect("fetched");
    set(&local, "status", tip);
    let next = commit(&local, "status", &[("f", "3")]);
    let result = remote(&up).push(&local, &[update("status", Some(tip), next, false)]).expect("judged");
    assert_eq!(result, [PushResult::Done]);
    assert_eq!(up.history(next, None, 10).expect("whole").len(), 3);
    corner.fsck(&up);
}

#[test]
fn a_broken_remote_is_an_error_not_a_result() {
    let corner = Corner::new();
    let (local, up) = (corner.repo("local.git"), corner.repo("up.git"));
    let one = commit(&local, "status", &[("f", "1")]);
    let nowhere = Remote::open(&corner.path("nowhere.git").display().to_string()).expect("a path");
    let gone = nowhere.push(&local, &[update("status", None, one, false)]);
    assert!(matches!(gone, Err(PushError::Remote(RemoteError::Unreachable { .. }))), "{gone:?}");
    corner.git(up.path(), &["config", "receive.maxInputSize", "10"]);
    let refused = remote(&up).push(&local, &[update("status", None, one, false)]);
    assert!(
        matches!(refused, Err(PushError::Unpack { .. } | PushError::Remote(RemoteError::Protocol { .. }))),
        "{refused:?}"
    );
    assert_eq!(up.tip("status").expect("readable"), None);
}
