//! What the fleet means something else for, before, in the middle and after.

use std::collections::{BTreeMap, BTreeSet};

use repo_model::DeviceId;

use super::world::{Nature, World, device, name, press, version};
use crate::rollout::{HeldBy, Phase, Why};

#[test]
fn what_is_for_a_single_device_and_none_go_at_once() {
    for (policy, count) in [("none", 30), ("{}", 1)] {
        let mut world = World::of(30, policy);
        (1..=count).for_each(|number| world.want(&press(number), "app", Some(2)));
        let look = world.pass();
        assert!(look.held.is_empty() && look.decided.is_empty(), "{policy}");
        assert_eq!(world.with(2).len(), count);
    }
}

#[test]
fn where_nobody_wrote_how_a_change_goes_to_ten_devices_at_once_and_to_eleven_wave_by_wave() {
    let without = "id: b0ecbe35-21cf-41d1-9ea8-b18a1dd0f461\nname: works\n";
    for (count, first) in [(10, 10), (11, 1)] {
        let mut world = World::of(30, "{}");
        world.write("fleet.yaml", without);
        (1..=count).for_each(|number| world.want(&press(number), "app", Some(2)));
        let look = world.pass();
        assert_eq!((world.with(2).len(), look.held.len()), (first, count - first), "{:?}", world.decided);
    }
    // What goes on as a rollout isn't let go because few are left of it.
    let mut world = World::of(11, "{}");
    world.write("fleet.yaml", without);
    world.want_all("app", Some(2));
    world.pass();
    let look = world.pass();
    assert_eq!((world.with(2).len(), look.held.len()), (1, 10));
    world.run();
    assert_eq!((world.with(2).len(), world.phase(12)), (11, Phase::Done));
}

#[test]
fn a_removal_and_an_addition_are_held_like_a_change() {
    for wanted in [None, Some(1)] {
        let mut world = World::of(30, "{}");
        let (deployment, goes) = if wanted.is_none() { ("app", 1) } else { ("scada", 0) };
        world.want_all(deployment, wanted);
        let look = world.pass();
        assert_eq!(
            (look.held.len(), world.decided.as_slice()),
            (29, &["12 start".to_owned(), "12 release 1".into()][..])
        );
        assert_eq!(30 - world.with(1).len(), goes);
        world.run();
        assert_eq!(world.phase(12), Phase::Done);
    }
}

#[test]
fn what_comes_to_a_device_that_has_nothing_is_not_held_unless_it_stopped_elsewhere() {
    let mut world = World::of(30, "{}");
    world.want_all("app", Some(2));
    let first = world.ordered(12)[0].clone();
    world.pass();
    world.add(&device("new-1"), "line: l9");
    world.want(&device("new-1"), "app", Some(2));
    world.pass();
    assert!(world.with(2).contains(&device("new-1")));
    world.nature(&first, Nature::Fails);
    world.run();
    assert_eq!(world.phase(12), Phase::Stopped);
    for number in 2..=40 {
        world.add(&device(format!("new-{number}")), "line: l9");
        world.want(&device(format!("new-{number}")), "app", Some(2));
    }
    let look = world.run();
    assert_eq!((world.with(2).len(), world.phase(12)), (2, Phase::Stopped));
    let by = look.held[&device("new-7")][&name("app")];
    assert_eq!(by, HeldBy { rollout: Some(12), wave: Some(3) }, "{:?}", world.decided);
    // Neither does a fix of it, before a person says so.
    world.want_all("app", Some(3));
    world.run();
    assert_eq!((world.phase(13), world.with(3).len()), (Phase::Stopped, 0), "{:?}", world.decided);
}

#[test]
fn who_is_held_drops_out_and_who_is_released_goes_back_at_once_when_it_is_reverted() {
    let mut world = World::of(30, "{}");
    world.want_all("app", Some(2));
    world.pass();
    world.wait(300);
    world.pass();
    assert_eq!(world.with(2).len(), 3);
    world.words(12, "paused: true");
    world.want_all("app", Some(1));
    let look = world.pass();
    assert!(look.held.is_empty(), "{:?}", look.held);
    assert_eq!((world.with(1).len(), world.decided.last().map(String::as_str)), (30, Some("12 back")));
    world.words(12, "{}");
    world.run();
    assert_eq!(world.phase(12), Phase::Done);
}

#[test]
fn what_was_reverted_and_comes_again_begins_anew() {
    let mut world = World::of(30, "{}");
    world.want_all("app", Some(2));
    world.pass();
    world.wait(300);
    world.pass();
    world.want_all("app", Some(1));
    world.pass();
    world.want_all("app", Some(2));
    let look = world.pass();
    assert_eq!((world.with(2).len(), look.held.len()), (1, 29), "{:?}", world.decided);
    world.run();
    assert_eq!((world.with(2).len(), world.phase(12)), (30, Phase::Done));
}

#[test]
fn a_fix_supersedes_and_begins_with_who_has_the_old_change() {
    let mut world = World::of(30, "{}");
    world.want_all("app", Some(2));
    world.pass();
    let first = world.with(2);
    assert_ne!(first.first(), world.ordered(13).first());
    world.want_all("app", Some(3));
    world.pass();
    assert_eq!(world.decided[2..], ["13 start", "12 supersede", "13 release 1"]);
    assert_eq!((world.with(3), world.records[&13].state.supersedes.clone()), (first, BTreeSet::from([12])));
    world.run();
    assert_eq!((world.with(3).len(), world.phase(13), world.phase(12)), (30, Phase::Done, Phase::Superseded));
}

#[test]
fn a_fix_of_what_stopped_or_was_paused_waits_for_a_person_first() {
    for stops in [true, false] {
        let mut world = World::of(30, "{}");
        world.want_all("app", Some(2));
        world.pass();
        if stops {
            let first = world.ordered(12)[0].clone();
            world.nature(&first, Nature::Fails);
            world.run();
            world.nature(&first, Nature::Well);
        } else {
            world.words(12, "paused: true");
        }
        world.want_all("app", Some(3));
        world.run();
        assert_eq!(
            (world.phase(13), world.with(3).len(), world.records[&13].open_stop()),
            (Phase::Stopped, 0, Some(1))
        );
        world.words(13, "resumed: 1");
        world.run();
        assert_eq!((world.phase(13), world.with(3).len()), (Phase::Done, 30));
    }
}

#[test]
fn a_few_join_the_last_wave_and_more_of_them_supersede() {
    for (count, decided) in [(3, "12 join"), (4, "13 start")] {
        let mut world = World::of(30, "{}");
        world.want_all("app", Some(2));
        world.pass();
        let held: Vec<_> = world.ordered(12)[20..].iter().take(count).cloned().collect();
        held.iter().for_each(|device| world.want(device, "app", Some(3)));
        world.pass();
        // Those who still shall have 2 are members, and so are those who left: 27 and 3, 26 and 4.
        assert_eq!(world.decided[2], decided, "{:?}", world.decided);
        world.run();
        assert_eq!((world.with(3).len(), world.with(2).len()), (count, 30 - count));
    }
}

#[test]
fn a_label_that_takes_many_out_in_the_middle_begins_anew_and_takes_nothing_from_who_waits() {
    for gone in [3, 4] {
        let mut world = World::of(30, "{}");
        world.want_all("app", Some(2));
        world.pass();
        let first = world.with(2);
        let order = world.ordered(12);
        order[20..20 + gone].iter().for_each(|device| world.want(device, "app", None));
        let look = world.pass();
        // A few of them join the last wave, more make another rollout, which begins with who is in the middle.
        let decided = if gone == 3 { &["12 join"][..] } else { &["13 start", "12 supersede", "13 release 1"] };
        assert_eq!(world.decided[2..], *decided);
        // In its place one goes first whom the change is new to.
        let (one_more, has) = (usize::from(gone == 4), world.with(2));
        assert!(has.is_superset(&first) && has.len() == 1 + one_more);
        assert_eq!((world.with(1).len(), look.held.len()), (29 - one_more, 29 - one_more));
        world.run();
        assert_eq!((world.with(2).len(), world.with(1).len()), (30 - gone, 0));
    }
}

#[test]
fn who_is_in_the_middle_keeps_its_place_in_the_budget_when_another_rollout_comes_in_the_place_of_its_own() {
    let mut world = World::of(30, "{waves: [100%], disruptionBudget: {groupBy: [line], maxUnavailable: 1}}");
    world.want_all("app", Some(2));
    world.pass();
    let first = world.with(2);
    assert_eq!(first.len(), 3, "one of each line");
    // Labels take some of the others out.
    let others: Vec<_> = world.ordered(12).into_iter().filter(|device| !first.contains(device)).collect();
    others[..5].iter().for_each(|device| world.want(device, "app", None));
    world.pass();
    assert_eq!((world.with(2), world.with(1).len()), (first.clone(), 27), "{:?}", world.decided);
    assert_eq!(world.decided[2..], ["13 start", "12 supersede"]);
    world.wait(300);
    world.pass();
    assert_eq!(world.with(1).len(), 24, "one more of each line");
    world.run();
    assert_eq!((world.phase(13), world.with(2).len(), world.with(1).len()), (Phase::Done, 25, 0));
}

const ONE_OF_EACH_LINE: &str = "{waves: [100%], disruptionBudget: {groupBy: [line], maxUnavailable: 1}}";

/// A rollout with one of each line in the middle of version 2, of whom the site of one holds it; with that one, and how many of
/// its line have which version.
fn held_in_the_middle() -> (World, DeviceId, impl Fn(&World, u32) -> usize) {
    let mut world = World::of(30, ONE_OF_EACH_LINE);
    let first = world.ordered(12)[0].clone();
    world.nature(&first, Nature::Held);
    world.want_all("app", Some(2));
    world.pass();
    assert_eq!(world.with(2).len(), 3, "one of each line");
    let number = (1..=30_usize).find(|number| press(*number) == first).expect("one of them");
    let line: BTreeSet<_> = (1..=30_usize).filter(|one| one.div_ceil(10) == number.div_ceil(10)).map(press).collect();
    (world, first, move |world: &World, version| world.with(version).intersection(&line).count())
}

#[test]
fn who_joins_in_the_middle_keeps_its_place_in_the_budget_until_it_is_updated_with_what_it_has() {
    let (mut world, first, of_line) = held_in_the_middle();
    // Its label changed, and something else is meant for it.
    world.want(&first, "app", Some(3));
    let look = world.run();
    assert_eq!(world.decided[2], "12 join");
    assert!(look.held.contains_key(&first) && world.records[&12].released_with(&first).is_none());
    assert_eq!((of_line(&world, 1), of_line(&world, 2), world.with(2).len()), (9, 1, 21), "{:?}", world.decided);
    assert_eq!(look.waiting[0].why, Why::Budget);
    assert_eq!(look.waiting[0].devices, BTreeMap::from([(first.clone(), "deferred: app/web: held".to_owned())]));
    // Once it is well with that, the others come, and it is the last.
    world.nature(&first, Nature::Well);
    let look = world.pass();
    world.now = look.again.expect("once it has baked");
    world.pass();
    assert_eq!((of_line(&world, 1), of_line(&world, 3)), (8, 0));
    world.run();
    assert_eq!((world.phase(12), world.with(2).len(), world.with(3)), (Phase::Done, 29, BTreeSet::from([first])));
}

#[test]
fn who_joins_in_the_middle_takes_its_place_in_the_budget_along_to_what_is_meant_now() {
    let (mut world, first, of_line) = held_in_the_middle();
    for version in [3, 4] {
        world.want(&first, "app", Some(version));
        world.run();
    }
    assert_eq!((of_line(&world, 1), of_line(&world, 2)), (9, 1), "it joined twice: {:?}", world.decided);
    world.words(12, &format!("promoted: [{first}]"));
    world.run();
    assert_eq!((of_line(&world, 1), of_line(&world, 4)), (9, 1), "nobody else came for it: {:?}", world.decided);
    world.nature(&first, Nature::Well);
    world.run();
    assert_eq!((world.phase(12), world.with(2).len(), world.with(4)), (Phase::Done, 29, BTreeSet::from([first])));
}

#[test]
fn who_joined_in_the_middle_keeps_its_place_in_the_budget_when_the_fleet_means_again_what_it_has() {
    for gone in [0, 5] {
        let (mut world, first, of_line) = held_in_the_middle();
        world.want(&first, "app", Some(3));
        world.pass();
        world.want(&first, "app", Some(2));
        // With so many others another rollout comes in the place of this one.
        let others: Vec<_> = world.ordered(12).into_iter().filter(|id| world.with(1).contains(id)).collect();
        others[..gone].iter().for_each(|device| world.want(device, "app", None));
        world.run();
        let number = if gone == 0 { 12 } else { 13 };
        assert_eq!((world.phase(number), of_line(&world, 2)), (Phase::Running, 1), "{:?}", world.decided);
        world.nature(&first, Nature::Well);
        world.run();
        assert_eq!((world.phase(number), world.with(2).len()), (Phase::Done, 30 - gone), "{:?}", world.decided);
    }
}

#[test]
fn who_is_in_the_middle_keeps_its_place_in_the_budget_while_the_rollout_in_the_place_of_its_own_passes_it_over() {
    let (mut world, first, of_line) = held_in_the_middle();
    world.nature(&first, Nature::Off);
    world.want_all("app", Some(3));
    world.pass();
    assert_eq!(world.decided[2..4], ["13 start", "12 supersede"]);
    assert!(world.records[&13].passed_over().contains(&first), "it is silent");
    assert_eq!((world.with(3).len(), of_line(&world, 1)), (2, 9), "one of each other line: {:?}", world.decided);
}

#[test]
fn a_label_that_brings_devices_in_where_something_stopped_lets_it_come_to_none_of_them() {
    let mut world = World::of(30, "{}");
    let outside: Vec<_> = (31..=33).map(press).collect();
    for device in &outside {
        world.add(device, "line: l9");
        world.want(device, "scada", Some(1));
    }
    world.pass();
    (1..=30).for_each(|number| world.want(&press(number), "app", Some(2)));
    world.pass();
    let first = world.with(2).into_iter().next().expect("one goes first");
    world.nature(&first, Nature::Fails);
    world.run();
    assert_eq!(world.phase(12), Phase::Stopped);
    outside.iter().for_each(|device| world.want(device, "app", Some(2)));
    let look = world.run();
    assert_eq!((world.phase(12), world.with(2)), (Phase::Stopped, BTreeSet::from([first])));
    assert!(outside.iter().all(|device| look.held[device].contains_key(&name("app"))));
}

#[test]
fn deployments_with_a_policy_of_their_own_make_a_rollout_each_unless_one_waits_for_the_other() {
    let text = |id: &str, more: &str| {
        format!("id: {id}\napplication: {{id: hello, version: 1.0.0}}\ntargets: [{{matchLabels: {{}}}}]\n{more}")
    };
    for (more, rollouts) in [("", 2), ("dependsOn: [app]\n", 1)] {
        let mut world = World::of(30, "{}");
        world.write("deployments/app.yaml", &text("app", ""));
        world.write("deployments/scada.yaml", &text("scada", &format!("rollout: {{waves: [5]}}\n{more}")));
        world.want_all("app", Some(2));
        world.want_all("scada", Some(1));
        world.pass();
        assert_eq!(world.records.len(), rollouts, "{more}");
        let policy = &world.records[&(11 + u32::try_from(rollouts).unwrap())].state.policy;
        assert_eq!(policy.waves.len(), if rollouts == 2 { 1 } else { 2 }, "together by the fleet's");
        world.run();
        assert!(world.records.is_empty(), "{:?}", world.decided);
    }
    let mut world = World::of(30, "{}");
    world.write("deployments/scada.yaml", &text("scada", "rollout: {waves: [5]}\n"));
    world.want_all("app", None);
    world.want_all("scada", Some(1));
    world.replaces.insert((name("scada"), name("app")));
    world.pass();
    assert_eq!(world.records.len(), 1, "what replaces another goes with it");
}

#[test]
fn an_emergency_goes_at_once_in_the_middle_of_a_rollout() {
    let mut world = World::of(30, "{}");
    world.want_all("app", Some(2));
    world.pass();
    world.write("fleet.yaml", "id: b0ecbe35-21cf-41d1-9ea8-b18a1dd0f461\nname: works\nrollout: none\n");
    world.want_all("app", Some(3));
    let look = world.pass();
    assert!(look.held.is_empty(), "{:?}", look.held);
    assert_eq!(world.with(3).len(), 30);
    world.run();
    assert!(world.records.is_empty(), "{:?}", world.decided);
}

#[test]
fn what_a_guard_refuses_is_held_and_begins_nothing() {
    let mut world = World::of(30, "{}");
    world.refuses = Some("removes too much");
    world.want_all("app", None);
    let look = world.pass();
    assert_eq!((look.held.len(), look.decided.len(), look.refused.len()), (30, 0, 1));
    assert_eq!(look.held[&press(1)][&name("app")], HeldBy { rollout: None, wave: None });
    assert_eq!(look.refused[0].devices.len(), 30);
}

#[test]
fn a_member_whose_tip_is_not_what_it_had_is_told_and_is_no_reason_to_begin_anew() {
    let mut world = World::of(30, "{}");
    world.want_all("app", Some(2));
    world.pass();
    let held = world.ordered(12)[20].clone();
    world.devices.get_mut(&held).unwrap().tip = [(name("app"), version(0)), (name("x"), version(9))].into();
    world.want(&held, "x", Some(9));
    let look = world.pass();
    assert_eq!(look.lost.keys().collect::<Vec<_>>(), [&held]);
    assert!(look.held.contains_key(&held) && look.decided.is_empty());
}

#[test]
fn a_lost_record_releases_nothing_that_it_did_not_release_already() {
    let mut world = World::of(30, "{}");
    world.want_all("app", Some(2));
    world.pass();
    world.wait(300);
    world.pass();
    let before = world.with(2);
    world.records.clear();
    world.pass();
    assert_eq!(world.with(2).len(), before.len() + 1, "a canary of what still differs: {:?}", world.decided);
}

/// A rollout of version 2 that 13 devices have, of which a person says something, and version 3 in its place.
fn superseded(word: &str) -> (World, BTreeSet<DeviceId>) {
    let mut world = World::of(30, "{waves: [1, 13]}");
    world.want_all("app", Some(2));
    world.pass();
    world.wait(300);
    world.pass();
    let middle = world.with(2);
    assert_eq!(middle.len(), 13);
    world.words(12, word);
    world.want_all("app", Some(3));
    (world, middle)
}

#[test]
fn who_has_a_change_goes_back_at_once_to_what_it_had_before_although_a_fix_came_in_its_place() {
    // Before anybody got the fix, once one did, and once it stopped before the first.
    for (word, passes) in [("{}", 0), ("{}", 1), ("paused: true", 1)] {
        let (mut world, middle) = superseded(word);
        (0..passes).for_each(|_| _ = world.pass());
        let fixed = world.with(3);
        assert_eq!(fixed.len(), usize::from(passes == 1 && word == "{}"), "{:?}", world.decided);
        assert!(fixed.is_subset(&middle));
        world.want_all("app", Some(1));
        let look = world.pass();
        assert_eq!((world.with(1).len(), look.held.len()), (30, 0), "{:?}", world.decided);
        let number = if passes == 0 { 12 } else { 13 };
        assert_eq!(world.decided.last(), Some(&format!("{number} back")));
        world.words(12, "{}");
        world.run();
        assert_eq!((world.phase(number), world.with(1).len()), (Phase::Done, 30), "{:?}", world.decided);
    }
}

#[test]
fn who_goes_back_may_go_back_to_the_change_in_the_middle_or_to_what_was_before_that() {
    let (mut world, middle) = superseded("{}");
    world.pass();
    world.want_all("app", Some(2));
    world.pass();
    // Those who never had it wait for it as before.
    assert_eq!((world.with(2), world.with(1).len()), (middle, 17), "{:?}", world.decided);
    world.want_all("app", Some(1));
    let look = world.pass();
    assert_eq!((world.with(1).len(), look.held.len()), (30, 0), "{:?}", world.decided);
}

#[test]
fn who_joins_in_the_middle_goes_back_at_once_to_what_it_had_before() {
    let (mut world, first) = World::begun(30, "{}");
    world.want(&first, "app", Some(3));
    let look = world.pass();
    assert!(world.decided[2] == "12 join" && look.held.contains_key(&first));
    world.want(&first, "app", Some(1));
    world.pass();
    assert!(world.with(1).contains(&first), "{:?}", world.decided);
}

#[test]
fn what_is_for_one_device_at_once_comes_although_a_rollout_holds_another_deployment_of_it() {
    let mut world = World::of(30, "{}");
    let text = "id: app\napplication: {id: hello, version: 1.0.0}\ntargets: [{matchLabels: {}}]\n";
    world.write("deployments/app.yaml", text);
    world.want_all("app", Some(2));
    world.want_all("second", Some(1));
    world.pass();
    let held = world.ordered(12)[20].clone();
    // Alone the word releases nothing that the rollout holds.
    world.write("deployments/app.yaml", &format!("{text}rollout: none\n"));
    let look = world.pass();
    assert_eq!((world.with(2).len(), look.held.len()), (1, 29));
    world.want(&held, "app", Some(3));
    let decided = world.look();
    assert_eq!(decided.decided.len(), 1, "it joins with what it has then");
    // The power is cut after that is in the ledger.
    world.records.clone_from(&decided.records);
    let look = world.pass();
    assert_eq!(world.with(3), BTreeSet::from([held.clone()]), "{:?} {:?}", world.decided, look.lost);
    assert_eq!(look.held[&held].keys().collect::<Vec<_>>(), [&name("second")]);
    let look = world.pass();
    assert!(look.lost.is_empty() && look.decided.is_empty());
    world.run();
    assert_eq!((world.phase(12), world.with(2).len(), world.with(3).len()), (Phase::Done, 29, 1));
}
