//! How a rollout goes on by itself: waves, proof, failures, and its end.

use std::collections::{BTreeMap, BTreeSet};

use super::world::{Nature, World, device, press};
use crate::rollout::{Phase, Why};

/// A deployment without a word on how it goes.
const APP: &str = "id: app\napplication: {id: hello, version: 1.0.0}\ntargets: [{matchLabels: {}}]\n";

#[test]
fn a_change_comes_to_one_device_then_to_a_tenth_and_then_to_the_rest() {
    let mut world = World::of(30, "{}");
    world.want_all("app", Some(2));
    let first = world.pass();
    assert_eq!(world.decided, ["12 start", "12 release 1"]);
    assert_eq!((world.with(2).len(), first.held.len()), (1, 29));
    assert_eq!(
        world.with(2),
        BTreeSet::from([world.ordered(12)[0].clone()]),
        "the first in an order nobody can choose"
    );
    let following = &first.following[0];
    let whom: Vec<_> = following.devices.iter().map(|(id, how)| (id.clone(), how.as_str())).collect();
    assert_eq!(
        (&following.why, following.again.map(|again| again.as_second() - world.now.as_second())),
        (&Why::Updating, Some(300))
    );
    assert_eq!((whom, first.waiting.len()), (vec![(world.ordered(12)[0].clone(), "updating: is published now")], 0));
    // Nothing more before it has baked.
    world.wait(299);
    let waiting = world.pass();
    assert_eq!((world.with(2).len(), &waiting.waiting[0].why), (1, &Why::Updating));
    world.now = waiting.again.expect("a moment");
    world.pass();
    assert_eq!(world.with(2).len(), 3);
    world.wait(300);
    world.pass();
    assert_eq!(world.with(2).len(), 30);
    let last = world.run();
    assert_eq!(world.decided.last().map(String::as_str), Some("12 finish"));
    assert!(last.held.is_empty() && world.records.is_empty() && world.phase(12) == Phase::Done);
    // The next look finds nothing.
    assert!(world.pass().decided.is_empty());
}

#[test]
fn a_look_with_nothing_to_do_decides_nothing_and_asks_no_held_device() {
    let mut world = World::of(30, "{}");
    world.want_all("app", Some(2));
    world.pass();
    let before = world.records.clone();
    let look = world.look();
    assert!(look.decided.is_empty());
    assert_eq!((look.records, look.states[&12].len()), (before, 1));
}

#[test]
fn of_thirty_one_dies_one_is_off_and_one_is_held_and_only_the_one_that_died_failed() {
    let mut world = World::of(30, "{maxFailures: 1}");
    let order = world.ordered(12);
    let [dead, off, held] = [&order[5], &order[6], &order[7]];
    world.nature(dead, Nature::Dies);
    world.nature(off, Nature::Off);
    world.nature(held, Nature::Held);
    world.want_all("app", Some(2));
    world.run();
    let end = world.ended[&12].state.end.clone().expect("an end");
    let left: Vec<_> = end.left.iter().map(|(id, how)| (id, how.split(':').next().unwrap_or_default())).collect();
    let mut expected = vec![(dead, "failed"), (off, "offline"), (held, "deferred")];
    expected.sort();
    assert_eq!(left, expected);
}

#[test]
fn who_is_off_is_passed_over_and_the_next_in_order_comes_first() {
    let mut world = World::of(30, "{}");
    let order = world.ordered(12);
    world.nature(&order[0], Nature::Off);
    world.nature(&order[1], Nature::Blocked);
    world.want_all("app", Some(2));
    world.pass();
    // What can't be published now is no difference: it is no member.
    assert_eq!(world.with(2), BTreeSet::from([order[2].clone()]));
    let release = &world.records[&12].state.waves[0];
    assert_eq!(release.passed_over.keys().collect::<Vec<_>>(), [&order[0]]);
    world.run();
    assert_eq!(world.with(2).len(), 29, "who was passed over came with the last wave");
}

#[test]
fn who_stalls_or_is_suspended_comes_last_and_proves_nothing() {
    let mut world = World::of(30, "{}");
    let order = world.ordered(12);
    let [stalls, suspended] = [&order[0], &order[1]];
    world.nature(stalls, Nature::Stalls);
    world.nature(suspended, Nature::Held);
    world.write(&format!("devices/{suspended}.yaml"), &format!("id: {suspended}\nsuspended: true\n"));
    world.want_all("app", Some(2));
    world.pass();
    assert_eq!(world.with(2), BTreeSet::from([order[2].clone()]));
    let passed_over = &world.records[&12].state.waves[0].passed_over;
    assert_eq!(
        passed_over.iter().map(|(id, why)| (id, why.as_str())).collect::<BTreeMap<_, _>>(),
        [(stalls, "SignatureInvalid"), (suspended, "is suspended")].into()
    );
    world.run();
    let end = world.ended[&12].state.end.clone().expect("an end");
    assert_eq!(
        end.left.iter().map(|(id, how)| (id, how.split(':').next().unwrap_or_default())).collect::<BTreeMap<_, _>>(),
        [(stalls, "failed"), (suspended, "deferred")].into(),
        "who stalled before is no reason to stop"
    );
    assert!(end.left.len() == 2 && world.with(2).len() == 30);
}

#[test]
fn a_device_that_restarts_in_a_circle_is_never_updated_and_fails_at_last() {
    let mut world = World::of(30, "{}");
    let first = world.ordered(12)[0].clone();
    world.nature(&first, Nature::Circles);
    world.want_all("app", Some(2));
    world.run();
    assert_eq!(world.phase(12), Phase::Stopped);
    let stop = &world.records[&12].state.stops[0];
    assert_eq!(stop.failed.get(&first).map(String::as_str), Some("no progress: isn't healthy"));
    assert_eq!((stop.reason.as_str(), world.with(2).len()), ("1 of 1 failed", 1));
}

#[test]
fn a_stop_holds_although_what_failed_heals_by_itself() {
    let mut world = World::of(30, "{}");
    let first = world.ordered(12)[0].clone();
    world.want_all("app", Some(2));
    world.pass();
    world.nature(&first, Nature::Fails);
    world.run();
    assert_eq!(world.phase(12), Phase::Stopped);
    world.nature(&first, Nature::Well);
    world.wait(100_000);
    let look = world.run();
    assert_eq!((world.phase(12), world.with(2).len(), &look.waiting[0].why), (Phase::Stopped, 1, &Why::Stopped(1)));
}

#[test]
fn the_bound_of_failures_is_passed_by_one_more() {
    for (failing, phase) in [(1, Phase::Done), (2, Phase::Stopped)] {
        let mut world = World::of(100, "{waves: [100%], maxFailures: 1%, bake: 1s}");
        (1..=failing).for_each(|number| world.nature(&press(number), Nature::Fails));
        world.want_all("app", Some(2));
        // Failing before is no sign of the change.
        (1..=failing).for_each(|number| world.nature(&press(number), Nature::Well));
        world.pass();
        (1..=failing).for_each(|number| world.nature(&press(number), Nature::Fails));
        world.run();
        assert_eq!(world.phase(12), phase, "{failing}");
    }
}

#[test]
fn what_failed_before_says_nothing_of_the_change() {
    let mut world = World::of(30, "{}");
    let order = world.ordered(12);
    world.nature(&order[0], Nature::Fails);
    world.want_all("app", Some(2));
    let look = world.run();
    assert_eq!(world.records[&12].state.waves[0].was_failing, BTreeSet::from([order[0].clone()]));
    // It is no proof either: somebody has to say that it goes on.
    assert_eq!(look.waiting[0].why, Why::TooFewUpdated { updated: 0, needed: 1 });
    assert_eq!((look.waiting[0].devices.keys().collect::<Vec<_>>(), world.with(2).len()), (vec![&order[0]], 1));
}

#[test]
fn a_wave_by_labels_has_those_alone_and_one_that_is_nobodys_begins_with_the_first() {
    let mut world = World::of(30, "{waves: [{matchLabels: {line: l2}}]}");
    world.want_all("app", Some(2));
    world.pass();
    assert_eq!(world.with(2), (11..=20).map(press).collect());
    let mut world = World::of(30, "{waves: [{matchLabels: {line: l9}}, {devices: [press-03]}]}");
    world.want_all("app", Some(2));
    world.pass();
    assert_eq!(world.with(2).len(), 1);
    let mut world = World::of(30, "{waves: [{devices: [press-03]}]}");
    world.nature(&press(3), Nature::Off);
    world.want_all("app", Some(2));
    let look = world.run();
    assert_eq!(
        (&look.waiting[0].why, world.with(2).len()),
        (&Why::NobodyReady(1), 0),
        "with selectors nobody else comes"
    );
    assert_eq!(look.waiting[0].devices.keys().collect::<Vec<_>>(), [&press(3)]);
}

#[test]
fn a_budget_bounds_who_is_changed_at_the_same_time_and_the_rest_follows() {
    let mut world = World::of(30, "{waves: [1, 50%], disruptionBudget: {groupBy: [line], maxUnavailable: 1}}");
    world.want_all("app", Some(2));
    world.pass();
    world.wait(300);
    world.pass();
    let busy =
        |world: &World, line: usize| (1..=10).filter(|n| world.with(2).contains(&press((line - 1) * 10 + n))).count();
    let first = world.ordered(12)[0].clone();
    let lines = [1, 2, 3].map(|line| busy(&world, line));
    assert!(world.with(2).contains(&first) && lines.iter().sum::<usize>() <= 4, "{lines:?}");
    assert!(world.records[&12].state.waves.len() >= 2);
    world.run();
    assert_eq!((world.phase(12), world.with(2).len()), (Phase::Done, 30));
}

#[test]
fn a_device_that_waits_for_its_window_keeps_its_place_in_the_budget() {
    let mut world = World::of(10, "{waves: [100%], disruptionBudget: {groupBy: [line], maxUnavailable: 1}}");
    let first = world.ordered(12)[0].clone();
    world.nature(&first, Nature::Held);
    world.want_all("app", Some(2));
    let look = world.run();
    assert_eq!((world.with(2).len(), &look.waiting[0].why), (1, &Why::TooFewUpdated { updated: 0, needed: 1 }));
    world.words(12, "promoted: true");
    let look = world.run();
    assert_eq!((world.with(2).len(), &look.waiting[0].why), (1, &Why::Budget));
    assert!(look.waiting[0].devices.contains_key(&first));
    world.nature(&first, Nature::Well);
    world.run();
    assert_eq!((world.phase(12), world.with(2).len()), (Phase::Done, 10));
}

#[test]
fn a_device_that_is_moved_to_another_line_in_the_middle_takes_its_place_in_the_budget_along() {
    let mut world = World::of(30, "{waves: [1], disruptionBudget: {groupBy: [line], maxUnavailable: 1}}");
    let first = world.ordered(12)[0].clone();
    world.nature(&first, Nature::Held);
    world.want_all("app", Some(2));
    world.pass();
    let number = (1..=30_usize).find(|number| press(*number) == first).expect("one of them");
    let (from, to) = (number.div_ceil(10), number.div_ceil(10) % 3 + 1);
    world.write(&format!("devices/{first}.yaml"), &format!("id: {first}\nlabels: {{line: l{to}}}\n"));
    world.words(12, "promoted: true");
    world.pass();
    let with = world.with(2);
    let of = |line: usize| (1..=30_usize).filter(|one| one.div_ceil(10) == line && with.contains(&press(*one))).count();
    // One of its old line comes, and none of the new one.
    assert_eq!((of(from), of(to), with.len()), (2, 0, 3));
    world.nature(&first, Nature::Well);
    world.run();
    assert_eq!((world.phase(12), world.with(2).len()), (Phase::Done, 30));
}

#[test]
fn a_device_that_leaves_the_fleet_is_no_member_any_more() {
    let mut world = World::of(30, "{}");
    let first = world.ordered(12)[0].clone();
    world.nature(&first, Nature::Held);
    world.want_all("app", Some(2));
    world.run();
    assert_eq!(world.with(2).len(), 1);
    world.devices.remove(&first);
    world.wants.remove(&first);
    world.write(&format!("devices/{first}.yaml"), "id: somebody-else\n");
    world.pass();
    assert_eq!(
        (world.decided.last().map(String::as_str), world.with(2).len()),
        (Some("12 release 1"), 1),
        "another first one"
    );
    let look = world.run();
    assert!(look.held.is_empty() && world.phase(12) == Phase::Done);
}

const ONE_OF_A_LINE: &str = "{waves: [1], disruptionBudget: {groupBy: [line], maxUnavailable: 1}}";

#[test]
fn a_device_that_is_retired_in_the_middle_or_after_it_leaves_its_place_in_the_budget() {
    for is_updated in [false, true] {
        let (mut world, first) = World::begun(4, ONE_OF_A_LINE);
        if is_updated {
            world.wait(300);
        }
        world.retire(&first);
        world.run();
        assert_eq!((world.phase(12), world.with(2).len()), (Phase::Done, 4), "{:?}", world.decided);
    }
}

#[test]
fn a_device_that_gets_something_else_at_once_in_the_middle_leaves_its_place_in_the_budget() {
    let mut world = World::of(10, ONE_OF_A_LINE);
    world.write("deployments/app.yaml", APP);
    world.want_all("app", Some(2));
    world.pass();
    let first = world.ordered(12)[0].clone();
    world.nature(&first, Nature::Held);
    world.write("deployments/app.yaml", &format!("{APP}rollout: none\n"));
    world.want(&first, "app", Some(3));
    world.run();
    assert_eq!((world.phase(12), world.with(2).len()), (Phase::Done, 9), "{:?}", world.decided);
    assert_eq!(world.with(3), BTreeSet::from([first]));
}

#[test]
fn who_has_the_place_in_the_budget_is_named_whichever_rollout_it_is_of() {
    let mut world = World::of(20, ONE_OF_A_LINE);
    world.write("deployments/app.yaml", &format!("{APP}rollout: {ONE_OF_A_LINE}\n"));
    world
        .write("deployments/other.yaml", &format!("{}rollout: {ONE_OF_A_LINE}\n", APP.replace("id: app", "id: other")));
    world.want_all("app", Some(2));
    world.pass();
    let first = world.with(2).into_iter().next().expect("one goes first");
    world.words(12, "paused: true");
    // One more rollout, of the others of its line.
    let is_of = |world: &World, device: &_| world.fleet.devices[&first].labels == world.fleet.devices[device].labels;
    let line: Vec<_> =
        world.devices.keys().filter(|device| **device != first && is_of(&world, device)).cloned().collect();
    line.iter().for_each(|device| world.want(device, "other", Some(1)));
    let look = world.pass();
    let waiting = look.waiting.iter().find(|waiting| waiting.rollout == 13).expect("it waits");
    assert_eq!((&waiting.why, waiting.devices.keys().collect::<Vec<_>>()), (&Why::Budget, vec![&first]));
    let baked = look.again.expect("once it has baked");
    assert_eq!((waiting.again, baked.as_second() - world.now.as_second()), (Some(baked), 300));
    world.now = baked;
    world.pass();
    assert_eq!(world.decided[2..], ["13 start", "13 release 1"]);
}

#[test]
fn what_stopped_and_is_reverted_ends_and_holds_nothing_back_any_more() {
    for fails in [true, false] {
        let (mut world, first) = World::begun(30, "{}");
        world.nature(&first, Nature::Fails);
        world.run();
        assert_eq!(world.phase(12), Phase::Stopped);
        // What stopped comes to no new device; what is good again comes to it, and to one that is newer.
        world.add(&device("new-1"), "line: l9");
        world.want(&device("new-1"), "app", Some(2));
        assert!(world.pass().held.contains_key(&device("new-1")));
        world.nature(&first, if fails { Nature::Fails } else { Nature::Well });
        world.add(&device("new-2"), "line: l9");
        world.want_all("app", Some(1));
        let look = world.pass();
        assert_eq!((look.held.len(), world.with(1).len()), (0, 32));
        let look = world.run();
        if fails {
            assert_eq!((world.phase(12), &look.waiting[0].why), (Phase::Stopped, &Why::Stopped(1)));
            world.nature(&first, Nature::Well);
            world.run();
        }
        assert_eq!(world.phase(12), Phase::Done, "{:?}", world.decided);
        assert_eq!(world.ended[&12].open_stop(), Some(1), "nobody lifted it");
        assert!(world.decided.iter().all(|decided| decided != "12 resume 1"));
        world.want_all("app", Some(3));
        world.run();
        assert_eq!((world.phase(13), world.with(3).len()), (Phase::Done, 32), "{:?}", world.decided);
    }
}

#[test]
fn what_stopped_before_it_released_anybody_ends_when_it_is_reverted() {
    let (mut world, first) = World::begun(30, "{}");
    world.nature(&first, Nature::Fails);
    world.run();
    world.nature(&first, Nature::Well);
    world.want_all("app", Some(3));
    world.pass();
    assert_eq!((world.phase(13), world.with(3).len()), (Phase::Stopped, 0));
    world.want_all("app", Some(1));
    let look = world.run();
    assert_eq!((world.phase(13), world.with(1).len(), look.held.len()), (Phase::Done, 30, 0), "{:?}", world.decided);
}

#[test]
fn who_says_that_it_goes_on_without_proof_hears_that_everybody_comes_then() {
    let (mut world, first) = World::begun(30, "{}");
    world.nature(&first, Nature::Fails);
    world.run();
    world.words(12, "resumed: 1");
    let look = world.run();
    let said = look.waiting[0].to_string();
    assert_eq!(look.waiting[0].why, Why::TooFewUpdated { updated: 0, needed: 1 });
    assert!(
        said.contains("`rollout promote 12 DEVICE`") && said.contains("`rollout promote 12` to everybody"),
        "{said}"
    );
}
