//! Serials and numbers against the floor, newer layouts, and the states of others.

use repo_model::Trailer;
use std::fs;

use repo_testkit::git;
use repo_testkit::hand::Hand;

use super::{Refusals, refused};
use crate::world::{DEVICE, World};

#[test]
fn a_serial_that_is_lower() {
    let world = World::running();
    let first = world.hand.tip("desired");
    world.assert_cured();
    world.hand.move_branch("desired", &first);
    world.assert_refused("serial-rollback", &["serial 1 is below 2", &first]);
}

#[test]
fn a_serial_that_was_there_before_with_other_bytes() {
    refused("serial-rollback", &["serial 1", "other content"], |_, draft| draft.renumber(1));
}

#[test]
fn the_floor_holds_on_a_fresh_clone_too() {
    let world = World::running();
    world.hand.want("greeter", &world.app, "\"not this\"");
    world.hand.forge(|draft| {
        draft.renumber(1);
        draft.parents.clear();
    });
    fs::remove_dir_all(world.clone()).unwrap();
    let run = world.once().ended(1);
    assert!(run.stderr.contains("SerialRollback") && run.stderr.contains("other content"), "{run:?}");
    assert_eq!(world.greetings(), ["hello"]);
}

#[test]
fn a_manifest_version_that_falls() {
    refused("serial-rollback", &["manifestVersion"], |_, draft| {
        draft.json("manifest.json", |manifest| manifest["manifestVersion"] = 1.into());
        draft.json("envelope.json", |envelope| envelope["manifestVersion"] = 1.into());
        draft.seal();
    });
}

#[test]
fn numbers_that_jump_too_far_or_are_too_large() {
    let refusals = Refusals::new();
    for serial in [1_000_002, (1 << 53) - 1, 1 << 53] {
        refusals.refuse("serial-rollback", &[&serial.to_string()], |draft| draft.renumber(serial));
    }
    refusals.cure();
    let world = World::running();
    world.hand.set_serial(1_000_000);
    world.assert_cured();
}

#[test]
fn a_layout_or_a_feature_that_is_newer_than_the_syncer() {
    let refusals = Refusals::new();
    refusals.refuse("layout-too-new", &["layout 2", "update it"], |draft| {
        draft.json("envelope.json", |envelope| envelope["layout"] = 2.into());
        draft.seal();
    });
    refusals.refuse("layout-too-new", &["teleport", "update it"], |draft| {
        draft.json("envelope.json", |envelope| envelope["requires"] = serde_json::json!(["teleport"]));
        draft.seal();
    });
    refusals.cure();
}

#[test]
fn unknown_keys_are_ignored() {
    let world = World::running();
    world.hand.want("greeter", &world.app, "servus");
    world.hand.forge(|draft| {
        draft.json("envelope.json", |envelope| envelope["policy"]["future"] = 1.into());
        draft.add_trailer("Future", "yes");
        draft.seal();
    });
    world.once().good();
    assert_eq!(world.greetings(), ["servus"]);
}

#[test]
fn the_state_of_another_device_or_fleet() {
    let refusals = Refusals::new();
    refusals.refuse("wrong-device", &["press-02", DEVICE], |draft| {
        draft.json("envelope.json", |envelope| envelope["device"]["id"] = "press-02".into());
        draft.trailer(Trailer::Device, "press-02");
        draft.seal();
    });
    let other = "11111111-2222-4333-8444-555555555555";
    refusals.refuse("wrong-device", &[other], |draft| {
        draft.json("envelope.json", |envelope| envelope["fleet"] = other.into());
        draft.trailer(Trailer::Fleet, other);
        draft.seal();
    });
    refusals.cure();
}

#[test]
fn the_repository_of_another_fleet() {
    let world = World::running();
    let other = Hand::make(world.path("other-hand"), DEVICE);
    other.enroll(&world.key());
    other.set_serial(7);
    other.publish();
    let here = world.hand.tip("desired");
    git::git(&world.hand.repository(), &["fetch", "-q", &other.repository().display().to_string(), "+desired:desired"]);
    world.assert_refused("trust-invalid", &["trust/1.json"]);
    world.hand.move_branch("desired", &here);
    world.assert_cured();
}
