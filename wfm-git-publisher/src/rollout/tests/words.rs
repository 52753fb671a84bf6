//! What persons say of a rollout.

use super::world::{Nature, World, press};
use crate::rollout::{Phase, Why, approval_ahead};

fn stopped() -> World {
    let mut world = World::of(30, "{}");
    let first = world.ordered(12)[0].clone();
    world.nature(&first, Nature::Fails);
    world.want_all("app", Some(1));
    world.nature(&first, Nature::Well);
    world.want_all("app", Some(2));
    world.pass();
    world.nature(&first, Nature::Fails);
    world.run();
    assert_eq!(world.phase(12), Phase::Stopped);
    world
}

#[test]
fn paused_releases_nothing_more_until_it_is_not() {
    let mut world = World::of(30, "{}");
    world.want_all("app", Some(2));
    world.pass();
    world.words(12, "paused: true");
    world.wait(100_000);
    let look = world.run();
    assert_eq!((world.with(2).len(), &look.waiting[0].why), (1, &Why::Paused));
    world.words(12, "paused: false");
    world.run();
    assert_eq!(world.phase(12), Phase::Done);
}

#[test]
fn words_that_can_not_be_read_pause_that_rollout() {
    let mut world = World::of(30, "{}");
    world.want_all("app", Some(2));
    world.pass();
    world.words(12, "promote: true");
    world.wait(100_000);
    let look = world.run();
    assert_eq!((world.with(2).len(), &look.waiting[0].why), (1, &Why::WordsUnreadable));
}

#[test]
fn words_in_a_file_with_a_wrong_name_pause_until_it_has_the_right_one() {
    let mut world = World::of(30, "{}");
    world.want_all("app", Some(2));
    world.pass();
    world.write("rollouts/12.yml", "paused: true");
    world.wait(100_000);
    let look = world.run();
    assert_eq!((world.with(2).len(), &look.waiting[0].why), (1, &Why::WordsUnreadable));
}

#[test]
fn a_deployment_that_can_not_be_read_pauses_its_rollout() {
    let mut world = World::of(30, "{}");
    world.want_all("app", Some(2));
    world.pass();
    world.write("deployments/app.yaml", "id: app\nnonsense: true\n");
    world.wait(100_000);
    let look = world.run();
    assert_eq!(world.with(2).len(), 1);
    assert!(matches!(&look.waiting[0].why, Why::DeploymentsUnreadable(names) if names.len() == 1));
}

#[test]
fn a_wave_behind_approve_waits_for_a_person() {
    let mut world = World::of(30, "{waves: [1, approve, 10%, approve]}");
    world.want_all("app", Some(2));
    let look = world.run();
    assert_eq!((world.with(2).len(), &look.waiting[0].why), (1, &Why::Approval(2)));
    world.words(12, "approved: 2");
    let look = world.run();
    assert_eq!((world.with(2).len(), &look.waiting[0].why), (3, &Why::Approval(3)));
    world.words(12, "approved: 3");
    world.run();
    assert_eq!((world.with(2).len(), world.phase(12)), (30, Phase::Done));
}

/// The wave that a person has to agree to next, by the record alone.
fn ahead(world: &World) -> Option<u32> {
    approval_ahead(&world.records[&12], &world.fleet)
}

#[test]
fn a_wave_that_has_nobody_needs_no_word_and_the_one_behind_it_does() {
    for count in [2, 5, 10] {
        let mut world = World::of(count, "{waves: [1, 10%, approve], bake: 1s}");
        world.want_all("app", Some(2));
        world.pass();
        assert_eq!(ahead(&world), Some(3), "it can be agreed to before it is waited for");
        let look = world.run();
        assert_eq!((world.with(2).len(), &look.waiting[0].why), (1, &Why::Approval(3)), "{count}");
        assert_eq!(ahead(&world), Some(3));
        world.words(12, "approved: 2");
        assert_eq!(&world.run().waiting[0].why, &Why::Approval(3));
        world.words(12, "approved: 3");
        world.run();
        assert_eq!((world.with(2).len(), world.phase(12)), (count, Phase::Done));
    }
}

#[test]
fn whatever_the_waves_it_ends_once_a_person_agreed_to_each_that_it_waited_for_and_that_is_the_one_ahead() {
    for policy in [
        "{waves: [1, approve, 10%, approve, 10%, approve, 50%]}",
        "{waves: [{matchLabels: {line: l2}}, approve, {matchLabels: {line: l9}}, 3, approve, approve]}",
        "{waves: [{devices: [press-02]}, 2, approve, 4, {devices: [press-03]}, approve, 100%]}",
        "{waves: [100%, approve], disruptionBudget: {groupBy: [line], maxUnavailable: 1}}",
    ] {
        for count in 2..=12 {
            let (mut world, mut approved) = (World::of(count, policy), Vec::new());
            world.want_all("app", Some(2));
            let mut look = world.run();
            while let Some(Why::Approval(wave)) = look.waiting.first().map(|one| one.why.clone()) {
                assert_eq!(ahead(&world), Some(wave), "{policy} {count}");
                assert!(approved.last().is_none_or(|last| *last < wave), "{policy} {count}: {approved:?} {wave}");
                approved.push(wave);
                world.words(12, &format!("approved: {wave}"));
                look = world.run();
            }
            assert_eq!((world.with(2).len(), world.phase(12)), (count, Phase::Done), "{policy}: {:?}", world.decided);
        }
    }
}

#[test]
fn where_everybody_of_a_wave_left_its_word_is_needed_and_no_later_one() {
    let mut world = World::of(30, "{waves: [1, approve, 3, approve]}");
    world.want_all("app", Some(2));
    world.run();
    world.words(12, "approved: 2");
    let look = world.run();
    assert_eq!((&look.waiting[0].why, ahead(&world)), (&Why::Approval(3), Some(3)));
    let second = world.records[&12].state.waves.iter().filter(|release| release.wave == 2);
    let gone: Vec<_> = second.flat_map(|release| release.devices.clone()).collect();
    assert_eq!(gone.len(), 2);
    for device in &gone {
        world.devices.remove(device);
        world.wants.remove(device);
        world.write(&format!("devices/{device}.yaml"), "id: somebody-else\n");
    }
    world.words(12, "approved: 1");
    assert_eq!(ahead(&world), Some(2));
    let look = world.run();
    assert_eq!((&look.waiting[0].why, ahead(&world)), (&Why::Approval(2), Some(2)));
    let mut world = World::of(30, "{}");
    world.want_all("app", Some(2));
    world.pass();
    assert_eq!(ahead(&world), None, "no `approve` is ahead");
}

#[test]
fn a_word_lifts_the_stop_that_it_names_and_no_later_one() {
    let mut world = stopped();
    world.words(12, "resumed: 2");
    world.run();
    assert_eq!((world.phase(12), world.with(2).len()), (Phase::Stopped, 1), "a word for a stop that is still to come");
    world.words(12, "resumed: 1");
    let look = world.run();
    // What failed is accepted, and proves nothing: the first wave still has nobody who is updated.
    assert_eq!(look.waiting[0].why, Why::TooFewUpdated { updated: 0, needed: 1 });
    let next = world.ordered(12)[1].clone();
    world.words(12, &format!("resumed: 1\npromoted: [{next}]"));
    world.nature(&next, Nature::Well);
    world.run();
    assert_eq!(world.with(2).len(), 2);
    world.nature(&next, Nature::Fails);
    let look = world.run();
    assert_eq!((world.phase(12), &look.waiting[0].why), (Phase::Stopped, &Why::Stopped(2)), "{:?}", world.decided);
}

#[test]
fn promoted_is_the_rest_at_once_in_spite_of_failures() {
    let mut world = stopped();
    world.words(12, "promoted: true");
    world.run();
    assert_eq!((world.with(2).len(), world.phase(12)), (30, Phase::Done));
    assert!(world.decided.contains(&"12 resume 1".to_owned()), "{:?}", world.decided);
}

#[test]
fn promoted_devices_are_no_wave_and_the_rest_goes_on_as_it_would() {
    let mut world = World::of(30, "{}");
    world.want_all("app", Some(2));
    world.words(12, "promoted: [press-01, press-02, press-03]");
    world.pass();
    assert_eq!(world.with(2), [1, 2, 3].map(press).into());
    world.run();
    assert_eq!(world.phase(12), Phase::Done);
}

#[test]
fn promoted_does_not_pass_the_budget() {
    let mut world = World::of(20, "{disruptionBudget: {groupBy: [line], maxUnavailable: 2}}");
    world.want_all("app", Some(2));
    world.words(12, "promoted: true");
    world.pass();
    assert_eq!(world.with(2).len(), 4);
    world.run();
    assert_eq!((world.with(2).len(), world.phase(12)), (20, Phase::Done));
}
