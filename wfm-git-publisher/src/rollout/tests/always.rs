//! What always holds, over random fleets, changes, failures and returns.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use repo_model::DeviceId;

use super::world::{Nature, World, name, press};
use crate::fleet::RolloutPolicy;
use crate::rollout::{Look, Meaning, Phase, Why};

/// How many devices there are, in two lines.
const COUNT: usize = 16;

/// Something that happens between two looks.
#[derive(Debug, Clone)]
enum Event {
    Becomes(usize, Nature),
    /// The fleet means another version for some devices.
    Want(usize, usize, u32),
    /// The same for all.
    WantAll(u32),
    Wait(i64),
    Resume,
    Pause(bool),
    Retire(usize),
    /// `control.git` is lost.
    Lose,
}

fn natures() -> impl Strategy<Value = Nature> {
    prop_oneof![
        3 => Just(Nature::Well),
        1 => Just(Nature::Off),
        1 => Just(Nature::Dies),
        1 => Just(Nature::Fails),
        1 => Just(Nature::Circles),
        1 => Just(Nature::Stalls),
        1 => Just(Nature::Held),
        1 => Just(Nature::Blocked),
    ]
}

fn events(count: usize) -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (1..=count, natures()).prop_map(|(number, nature)| Event::Becomes(number, nature)),
        2 => (1..=count, 1..=count, 1..4_u32).prop_map(|(from, to, version)| Event::Want(from, to, version)),
        // One that joins what there is.
        2 => (1..=count, 1..4_u32).prop_map(|(number, version)| Event::Want(number, number, version)),
        2 => (1..4_u32).prop_map(Event::WantAll),
        5 => (0..8000_i64).prop_map(Event::Wait),
        1 => Just(Event::Resume),
        1 => any::<bool>().prop_map(Event::Pause),
        1 => (1..=count).prop_map(Event::Retire),
        1 => Just(Event::Lose),
    ];
    prop::collection::vec(event, 0..15)
}

fn policies() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just("{}"),
        Just("{waves: [1, 3, 50%], maxFailures: 2}"),
        Just("{waves: [{matchLabels: {line: l2}}, 20%], successThreshold: 100%}"),
        Just("{waves: [2, 30%], disruptionBudget: {groupBy: [line], maxUnavailable: 1}}"),
    ]
}

fn apply(world: &mut World, event: &Event) {
    match event {
        Event::Becomes(number, nature) => world.nature(&press(*number), *nature),
        Event::Want(from, to, version) => {
            (*from..=*to).for_each(|number| world.want(&press(number), "app", Some(*version)));
        }
        Event::WantAll(version) => world.want_all("app", Some(*version)),
        Event::Wait(seconds) => world.wait(*seconds),
        Event::Resume => words(world, |stops| format!("resumed: {stops}")),
        Event::Pause(paused) => words(world, |_| format!("paused: {paused}")),
        Event::Retire(number) => world.retire(&press(*number)),
        Event::Lose => world.records.clear(),
    }
}

/// What a person says of every unfinished rollout.
fn words(world: &mut World, text: impl Fn(u32) -> String) {
    let open: Vec<_> =
        world.records.values().map(|record| (record.number(), record.open_stop().unwrap_or(0))).collect();
    open.into_iter().for_each(|(number, stop)| world.words(number, &text(stop)));
}

/// All of it, with a look after each.
fn happen(world: &mut World, events: &[Event]) {
    for event in events {
        apply(world, event);
        match event {
            Event::Lose => lost(world),
            _ => _ = pass(world),
        }
    }
}

/// The look after `control.git` was lost: what still differs begins anew, with the first who come.
fn lost(world: &mut World) {
    let before: BTreeMap<_, _> = world.devices.iter().map(|(id, sim)| (id.clone(), sim.tip.clone())).collect();
    let next = world.next_number;
    let look = pass(world);
    let moved: BTreeSet<_> =
        before.iter().filter(|(id, tip)| world.devices[*id].tip != **tip).map(|(id, _)| id).collect();
    // What is for a single device goes at once.
    let Some(record) = look.records.values().next() else { return assert!(moved.len() <= 1, "{moved:?} moved") };
    assert!(look.records.len() == 1 && record.number() >= next && record.state.waves.len() <= 1, "{record:?}");
    let released = record.released().into_keys().collect();
    assert!(moved.is_subset(&released), "{moved:?} moved: {:?}", world.decided);
    if record.state.policy == RolloutPolicy::default() {
        assert!(released.len() <= 1, "{released:?} are released: {:?}", world.decided);
    }
}

/// A pass, and what holds of it whatever happened before.
fn pass(world: &mut World) -> Look {
    let before: BTreeMap<_, _> = world.devices.iter().map(|(id, sim)| (id.clone(), sim.tip.clone())).collect();
    let stopped: Vec<_> = world.records.values().filter(|record| record.open_stop().is_some()).cloned().collect();
    let look = world.pass();
    for (id, tip) in &before {
        let (sim, app) = (&world.devices[id], name("app"));
        let moved = sim.tip.get(&app) != tip.get(&app);
        // 1: what no record releases isn't published, unless it is for a single device.
        let released = world.records.values().any(|record| record.released_with(id).is_some());
        let alone = !world.records.values().any(|record| record.state.deployments.contains(&app));
        assert!(!moved || released || alone, "{id} moved: {:?}", world.decided);
        assert!(!(moved && look.held.contains_key(id)), "{id} is held and moved");
    }
    if world.records.is_empty() {
        let moved = before.iter().filter(|(id, tip)| world.devices[*id].tip != **tip).count();
        let finished = look.decided.iter().any(|one| one.record.state.state.is_finished());
        assert!(moved <= 1 || finished, "{moved} moved without a rollout: {:?}", world.decided);
    }
    // 6: a stop holds until the word for this stop.
    for record in stopped {
        let number = record.number();
        let word = world.fleet.rollouts.get(&number).and_then(|words| words.as_ref().map(|words| words.resumed));
        let Some(after) = world.records.get(&number) else { continue };
        let resumed = after.open_stop() != record.open_stop();
        assert!(!resumed || word == record.open_stop(), "{number} resumed by itself");
        assert!(resumed || after.state.waves == record.state.waves || after.members != record.members);
    }
    for record in world.records.values() {
        bounds(world, record, &look);
    }
    look
}

/// 7: waves and the budget bound who is between its release and `updated`.
fn bounds(world: &World, record: &crate::rollout::Record, look: &Look) {
    let policy = &record.state.policy;
    let released = record.released();
    let newest = record.state.waves.iter().map(|release| release.wave).max().unwrap_or(0);
    if newest < record.last_wave() {
        let specs: Vec<_> = crate::rollout::waves_of(policy).take(newest as usize).map(|(_, spec)| spec).collect();
        let most: usize = specs
            .iter()
            .map(|spec| match spec {
                crate::fleet::WaveSpec::Total(total) => total.rounded_up(record.members.len()),
                _ => record.members.len(),
            })
            .max()
            .unwrap_or(0);
        let app = name("app");
        let means = |device: &DeviceId| Meaning::of(world.wants[device].get(&app).map(|digest| (&app, *digest)));
        let proves =
            |device: &DeviceId| record.members.get(device).is_some_and(|one| !one.back && one.want == means(device));
        let proving = released.keys().filter(|device| proves(device) && !world.is_retired(device)).count();
        assert!(proving <= most, "{proving} of at most {most}: {:?}", world.decided);
    }
    let Some(budget) = &policy.disruption_budget else { return };
    // Also of those who joined in the middle of something else, and keep their place.
    let states = &look.states[&record.number()];
    let all: BTreeSet<_> = released.keys().copied().chain(states.keys()).collect();
    let mut busy: BTreeMap<Vec<String>, Vec<_>> = BTreeMap::new();
    for device in &all {
        let updated = states.get(*device).is_some_and(|one| one.state == crate::rollout::DeviceState::Updated);
        let group = world.fleet.devices.get(*device).and_then(|device| policy.group_of(device));
        if let Some(group) = group.filter(|_| !updated && !world.is_retired(device)) {
            busy.entry(group).or_default().push((*device).clone());
        }
    }
    // One that was updated and isn't any more, or became something else, was let in before.
    let now: Vec<_> = look.decided.iter().filter(|one| one.record.number() == record.number()).collect();
    let releases = now.iter().filter(|one| matches!(one.decision, crate::rollout::Decision::Release(_)));
    for one in releases {
        let newly: BTreeSet<_> = one.record.state.waves.last().expect("a release").devices.iter().collect();
        let newly: BTreeSet<_> = newly.into_iter().filter(|device| !states.contains_key(*device)).collect();
        for busy in busy.values().filter(|busy| busy.iter().any(|device| newly.contains(device))) {
            assert!(busy.len() <= budget.max_unavailable as usize, "{busy:?} are busy: {:?}", world.decided);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, max_shrink_iters: 200, ..ProptestConfig::default() })]

    /// Whatever happens, once nothing happens any more a rollout ends, or waits for somebody whom it names.
    #[test]
    fn any_schedule_of_failures_and_returns_ends_or_waits_for_somebody_named(
        policy in policies(),
        events in events(COUNT),
    ) {
        let mut world = World::of(COUNT, policy);
        world.want_all("app", Some(2));
        pass(&mut world);
        happen(&mut world, &events);
        let mut last = pass(&mut world);
        for _ in 0..300 {
            match last.again {
                Some(moment) if moment > world.now => world.now = moment,
                _ => world.wait(1),
            }
            let before = world.decided.len();
            last = pass(&mut world);
            if last.again.is_none() && world.decided.len() == before {
                break;
            }
        }
        prop_assert!(last.decided.is_empty(), "it never comes to rest: {:?}", world.decided);
        for record in world.records.values() {
            let waiting = last.waiting.iter().find(|waiting| waiting.rollout == record.number());
            let waiting = waiting.expect("who doesn't decide waits");
            match &waiting.why {
                Why::Paused | Why::Approval(_) => {}
                Why::Stopped(stop) => prop_assert_eq!(record.open_stop(), Some(*stop)),
                why => prop_assert!(!waiting.devices.is_empty(), "{:?} for nobody: {:?}", why, world.decided),
            }
        }
        for record in world.ended.values().filter(|record| record.state.state == Phase::Done) {
            prop_assert!(record.state.end.is_some());
        }
    }

    /// Once all are well and nobody holds anything back, everything that is meant is there in the end.
    #[test]
    fn once_all_are_well_everything_that_is_meant_comes(policy in policies(), events in events(COUNT)) {
        let mut world = World::of(COUNT, policy);
        world.want_all("app", Some(2));
        pass(&mut world);
        happen(&mut world, &events);
        (1..=COUNT).for_each(|number| world.nature(&press(number), Nature::Well));
        for _ in 0..300 {
            words(&mut world, |stop| format!("resumed: {stop}"));
            let before = world.decided.len();
            let look = pass(&mut world);
            match look.again {
                Some(moment) if moment > world.now => world.now = moment,
                None if look.decided.is_empty() && world.decided.len() == before => break,
                _ => world.wait(1),
            }
        }
        prop_assert!(world.records.is_empty(), "{:?} {:?}", world.decided, world.look().waiting);
        for (id, sim) in world.devices.iter().filter(|(id, _)| !world.is_retired(id)) {
            prop_assert_eq!(&sim.tip, &world.wants[id], "{} {:?}", id, &world.decided);
        }
    }
}
