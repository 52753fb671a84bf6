//! The site's limit on removals: what goes beyond it waits for a person who has seen it.

use crate::clocks::once_at;
use crate::world::World;

/// A device that runs four deployments, and whose site lets half of them go.
fn four() -> World {
    let world = World::running();
    for name in ["other", "third", "fourth"] {
        world.hand.want(name, &world.app, "hello");
    }
    world.hand.publish();
    world.settings("gates: {removals: 50%}\n");
    world.once().good();
    world
}

#[test]
fn more_removals_than_the_site_lets_go_wait_for_a_person_who_saw_them() {
    let world = four();
    world.syncer(&["approve", "--removals"]).ended(1).says(&["nothing is to be removed"]);
    for name in ["greeter", "other", "third"] {
        world.hand.drop(name);
    }
    world.hand.publish();
    let containers = world.containers();
    world.once().ended(1);
    assert_eq!(world.containers(), containers);
    assert_eq!(world.states("other"), ["hello removing waiting-approval"]);
    let message = world.message("other");
    assert_eq!(message, "3 deployments would go at once: `device-syncer approve --removals` lets them");
    world.assert_quiet();

    let change = || {
        let said = world.syncer(&["approve", "--removals"]).good().stdout;
        assert!(said.contains("- other\n") && said.contains("Nothing is approved yet."), "{said}");
        let change = said.split("--change ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
        (said.lines().filter(|line| line.starts_with("- ")).count(), change)
    };
    let approve = |change: &str| {
        world.syncer(&["approve", "--removals", "--change", change, "--by", "j.doe", "--why", "given up"])
    };
    let (count, seen) = change();
    assert_eq!(count, 3);
    world.once().ended(1);
    world.syncer(&["approve", "--removals", "--change", &seen]).ended(2);
    approve("00000000").ended(1).says(&["and not 00000000"]);
    approve(&seen[..4]).ended(1);
    // What a newer revision removes besides wasn't seen, whether the word comes before it or after it.
    assert!(approve(&seen).good().stdout.contains("these 3"));
    world.hand.drop("fourth");
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(world.containers(), containers);
    approve(&seen).ended(1).says(&["look at it by `approve --removals`"]);
    let (count, seen) = change();
    assert_eq!(count, 4);
    approve(&seen).good();
    world.once().good();
    assert_eq!(world.containers(), [""; 0]);

    // The word was for once: the same deployments may come again.
    for name in ["greeter", "other", "third"] {
        world.hand.want(name, &world.app, "hello");
    }
    world.hand.publish();
    world.once().good();
    for name in ["greeter", "other", "third"] {
        world.hand.drop(name);
    }
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(world.states("other"), ["hello removing waiting-approval"]);
}

#[test]
fn few_at_a_time_are_many_within_a_day_and_wait_for_a_person() {
    let world = four();
    for name in ["greeter", "other"] {
        world.hand.drop(name);
        world.hand.publish();
        world.once().good();
    }
    assert_eq!(world.containers().len(), 2);
    world.hand.drop("third");
    world.hand.publish();
    // A clone that is started anew, or a clock that is set, forgets nothing of it.
    for time in ["+2 days", "-2 days"] {
        once_at(&world, time).ended(1);
        assert_eq!(world.states("third"), ["hello removing waiting-approval"]);
    }
    world.once().ended(1);
    let message = world.message("third");
    let words =
        "1 deployments would go at once, and 2 went within 24 hours: `device-syncer approve --removals` lets them";
    assert_eq!(message, words);
    let plan = world.syncer(&["plan"]).ended(1).stdout;
    assert!(plan.contains("waiting-approval: 1 deployments would go"), "{plan}");
    assert_eq!(world.containers().len(), 2);
    world.assert_quiet();
    let said = world.syncer(&["approve", "--removals"]).good().stdout;
    let seen = said.split("--change ").nth(1).unwrap().split(' ').next().unwrap();
    world.syncer(&["approve", "--removals", "--change", seen, "--by", "j.doe", "--why", "given up"]).good();
    world.once().good();
    assert_eq!(world.containers().len(), 1);
    // What a person saw counts for nothing more, and what went before does still.
    world.hand.drop("fourth");
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(world.message("fourth"), words);
}

#[test]
fn few_removals_need_nobody() {
    let world = World::running();
    world.hand.want("other", &world.app, "hello");
    world.hand.publish();
    world.once().good();
    world.settings("gates: {removals: 0%}\n");
    world.hand.drop("greeter");
    world.hand.drop("other");
    world.hand.publish();
    world.once().good();
    assert_eq!(world.containers(), [""; 0]);
    world.settings("gates: {removals: 100%}\n");
    world.once().ended(1).says(&["gates.removals: `100%` is no share from 0% to 99%"]);
}
