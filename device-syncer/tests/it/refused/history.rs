//! Histories that were rewritten or lost, and proofs of freshness.

use repo_model::Trailer;
use repo_testkit::git;
use repo_testkit::hand::Draft;

use crate::world::World;

#[test]
fn an_old_proof_of_freshness_is_told_and_stops_nothing() {
    let world = World::running();
    let before = world.marks();
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    let expire = |draft: &mut Draft| {
        draft.json("freshness.json", |proof| {
            proof["issued"] = "2026-01-01T00:00:00Z".into();
            proof["expires"] = "2026-01-02T00:00:00Z".into();
        });
    };
    let fresh = world.hand.tip("freshness");
    world.hand.forge_on("freshness", expire);
    world.once().ended(1).says(&["Expired"]);
    assert_eq!(world.conditions(), ["Stale Expired"]);
    assert_ne!(world.marks().1, before.1, "the newer state is applied all the same");
    assert_eq!(world.greetings(), ["servus"]);
    world.assert_quiet();
    world.hand.move_branch("freshness", &fresh);
    world.once().good();
    assert_eq!(world.conditions(), Vec::<String>::new());
    assert_eq!(world.subject(), "Stale cleared (serial 2)");
    world.assert_idle();
}

#[test]
fn a_proof_of_freshness_that_nobody_vouches_for_is_none() {
    let world = World::running();
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    for change in [
        (|world, draft| draft.key = Some(world.hand.stranger())) as fn(&World, &mut Draft),
        |_, draft| draft.key = None,
        |_, draft| draft.trailer(Trailer::Kind, "bundle"),
        |_, draft| draft.json("freshness.json", |proof| proof["device"] = "press-02".into()),
        |_, draft| draft.json("freshness.json", |proof| proof["serial"] = 1.into()),
        |_, draft| draft.files.clear(),
    ] {
        let honest = world.hand.tip("freshness");
        world.hand.forge_on("freshness", |draft| {
            draft.json("freshness.json", |proof| proof["expires"] = "2026-01-02T00:00:00Z".into());
            change(&world, draft);
        });
        world.once().good();
        assert_eq!(world.conditions(), Vec::<String>::new(), "it neither helps nor harms");
        world.hand.move_branch("freshness", &honest);
    }
}

/// Rewrites the host's history: serial 2 goes, and serial 3 descends from serial 1 alone.
fn rewritten(change: impl FnOnce(&World, &mut Draft)) -> World {
    let world = World::running();
    let first = world.hand.tip("desired");
    world.assert_cured();
    world.told();
    world.hand.move_branch("desired", &first);
    world.hand.want("greeter", &world.app, "rewritten");
    world.hand.forge(|draft| change(&world, draft));
    world
}

#[test]
fn a_rewritten_history() {
    let world = rewritten(|_, _| ());
    let run = world.assert_refused("history-rewritten", &["accept-history"]);
    assert!(run.stderr.contains(&world.hand.tip("desired")), "{run:?}");
}

#[test]
fn a_rewritten_history_that_says_it_continues_something_else() {
    let world = rewritten(|_, draft| draft.add_trailer(Trailer::Continues, &format!("sha256:{:064} 2", 0)));
    world.assert_refused("history-rewritten", &[]);
    let world = rewritten(|world, draft| {
        let envelope = world.report()["adopted"]["envelope"].as_str().unwrap().to_owned();
        draft.add_trailer(Trailer::Continues, &format!("{envelope} 1"));
    });
    world.assert_refused("history-rewritten", &[]);
}

/// What the device adopted, as `Continues` names it.
fn adopted(world: &World) -> String {
    let report = world.report();
    format!("{} {}", report["adopted"]["envelope"].as_str().unwrap(), report["adopted"]["serial"])
}

#[test]
fn a_rewritten_history_that_continues_what_was_adopted_is_adopted_with_an_event() {
    let world = rewritten(|world, draft| draft.add_trailer(Trailer::Continues, &adopted(world)));
    world.once().good().says(&["HistoryContinued"]);
    assert_eq!(world.greetings(), ["rewritten"]);
    assert_eq!(world.conditions(), ["SecurityEvent HistoryContinued"]);
    world.assert_cured();
    assert_eq!(world.conditions(), Vec::<String>::new());
}

#[test]
fn a_commit_after_the_one_that_continues_is_adopted_too() {
    let world = rewritten(|world, draft| draft.add_trailer(Trailer::Continues, &adopted(world)));
    world.assert_cured();
    assert_eq!(world.conditions(), ["SecurityEvent HistoryContinued"]);
}

#[test]
fn a_stranger_can_not_continue_a_history() {
    let world = rewritten(|world, draft| {
        draft.add_trailer(Trailer::Continues, &adopted(world));
        draft.key = Some(world.hand.stranger());
    });
    world.hand.want("greeter", &world.app, "on top of it");
    world.hand.publish();
    world.assert_refused("history-rewritten", &[]);
}

#[test]
fn a_host_that_was_restored_three_versions_back() {
    let world = World::running();
    let old = (world.hand.tip("desired"), world.hand.tip("status"), world.hand.tip("freshness"));
    for n in 2..=4 {
        world.hand.want("greeter", &world.app, &format!("\"{n}\""));
        world.hand.publish();
        world.once().good();
    }
    let newest = world.hand.tip("status");
    world.hand.move_branch("desired", &old.0);
    world.hand.move_branch("status", &old.1);
    world.hand.move_branch("freshness", &old.2);
    world.assert_refused("serial-rollback", &["serial 1 is below 4"]);
    let known = git::try_git(&world.hand.repository(), &["merge-base", "--is-ancestor", &newest, "status"]);
    assert!(known.status.success(), "the device gives the host back what it had to say");
    assert_eq!(world.greetings(), ["4"]);
    // The publisher learns from `status` what the device adopted, and goes on from there.
    let continues = adopted(&world);
    world.hand.want("greeter", &world.app, "restored");
    world.hand.forge(|draft| draft.add_trailer(Trailer::Continues, &continues));
    world.once().good();
    assert_eq!(world.greetings(), ["restored"]);
    assert_eq!(world.conditions(), ["SecurityEvent HistoryContinued"]);
    world.assert_cured();
}

#[test]
fn a_host_that_lost_desired() {
    let world = World::running();
    let tip = world.hand.tip("desired");
    git::git(&world.hand.repository(), &["update-ref", "-d", "refs/heads/desired"]);
    let containers = world.containers();
    world.once().ended(1).says(&["HistoryRewritten", "gone from the host"]);
    assert_eq!(world.conditions(), ["Stalled HistoryRewritten"]);
    assert_eq!(world.containers(), containers);
    world.assert_quiet();
    world.hand.move_branch("desired", &tip);
    world.once().good();
    assert_eq!(world.conditions(), Vec::<String>::new());
}
