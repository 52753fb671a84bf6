//! A clone or floor that is lost or damaged, and how large a clone becomes.

use super::*;

#[test]
fn a_lost_clone_costs_no_mutation_and_no_transition_is_told_twice() {
    let world = World::running();
    let (calls, containers, before) = (world.fake.calls(), world.containers(), world.hand.tip("status"));
    fs::remove_dir_all(world.clone()).unwrap();
    world.once().good();
    assert_eq!((world.fake.calls(), world.containers()), (calls, containers));
    assert_eq!(world.told(), Vec::<String>::new());
    assert_eq!(world.hand.tip("status"), before, "it goes on from the host's `status`");
    world.assert_idle();
    world.assert_cured();
    assert_eq!(world.told().len(), 3);
    world.assert_whole(true);
}

#[test]
fn a_lost_clone_is_lost_while_the_host_is_away_too() {
    let world = World::running();
    let (before, status) = (world.containers(), world.hand.tip("status"));
    fs::remove_dir_all(world.clone()).unwrap();
    let away = Away::take(&world);
    for _ in 0..2 {
        world.once().ended(1).says(&["can't be reached"]);
    }
    assert_eq!(world.containers(), before);
    away.back();
    world.once().good();
    assert_eq!(world.hand.tip("status"), status, "nothing was said meanwhile that the host knows better");
    world.assert_idle();
}

#[test]
fn a_damaged_clone_is_set_aside_and_made_anew() {
    let world = World::running();
    let before = world.containers();
    let packs = fs::read_dir(world.clone().join("objects/pack")).unwrap();
    for pack in packs.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|it| it == "pack"))
    {
        fs::set_permissions(&pack, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&pack, b"rotten").unwrap();
    }
    world.once().good();
    assert_eq!(world.containers(), before);
    assert_eq!((world.told(), world.conditions()), (vec![String::new()], vec!["CloneDamaged SetAside".to_owned()]));
    assert!(world.home().join("repository.damaged").exists());
    world.assert_idle();
}

#[test]
fn the_floor_survives_the_loss_of_the_clone() {
    let world = World::running();
    let first = world.hand.tip("desired");
    world.assert_cured();
    fs::remove_dir_all(world.clone()).unwrap();
    world.hand.move_branch("desired", &first);
    let before = world.containers();
    let run = world.once().ended(1);
    assert!(run.stderr.contains("SerialRollback") && run.stderr.contains("serial 1 is below 2"), "{run:?}");
    assert_eq!(world.containers(), before);
    world.hand.set_serial(2);
    world.assert_cured();
}

#[test]
fn a_lost_floor_is_made_anew_from_the_clone_and_told() {
    let world = World::running();
    let first = world.hand.tip("desired");
    world.assert_cured();
    fs::remove_file(world.home().join("floor")).unwrap();
    world.once().good().says(&["FloorLost"]);
    assert_eq!(world.conditions(), ["SecurityEvent FloorLost"]);
    let second = world.hand.tip("desired");
    world.hand.move_branch("desired", &first);
    let run = world.once().ended(1);
    assert!(run.stderr.contains("serial 1 is below 2"), "{run:?}");
    world.hand.move_branch("desired", &second);
    world.assert_cured();
    assert_eq!(world.conditions(), Vec::<String>::new(), "an event stays until the next adoption");
}

#[test]
fn without_clone_and_floor_the_join_file_is_the_floor() {
    let world = World::running();
    let join = world.home().join("join.json");
    let text = fs::read_to_string(&join).unwrap().replace("\"serial\":0", "\"serial\":5");
    fs::write(&join, text).unwrap();
    fs::remove_dir_all(world.clone()).unwrap();
    fs::remove_file(world.home().join("floor")).unwrap();
    world.once().ended(1).says(&["SerialRollback", "serial 1 is below 5"]);
    assert_eq!(world.greetings(), ["hello"]);
    world.hand.set_serial(5);
    world.assert_cured();
}

#[test]
fn packs_and_objects_of_the_clone_stay_bounded() {
    let world = World::running();
    world.settings("limits: {packs: 3}\n");
    for n in 0..6 {
        world.hand.want("greeter", &world.app, &format!("\"{n}\""));
        world.hand.publish();
        world.once().good();
    }
    let count = git::git(&world.clone(), &["count-objects", "-v"]);
    let number = |word: &str| -> usize {
        count.lines().find_map(|line| line.strip_prefix(word)).unwrap().trim().parse().unwrap()
    };
    assert!(number("packs:") <= 4 && number("count:") <= 4, "{count}");
    let kept = git::git(&world.clone(), &["rev-list", "--count", &world.hand.tip("desired")]);
    assert!(kept.parse::<u32>().unwrap() <= 5, "{kept} states are kept of {}", world.hand.serial());
    // What the host believes that this device has, because it had it once, comes again.
    world.hand.want("greeter", &world.app, "\"0\"");
    world.hand.publish();
    world.once().good();
    assert_eq!(world.greetings(), ["0"]);
    world.assert_idle();
}
