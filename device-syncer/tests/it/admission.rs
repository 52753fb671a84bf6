//! What a site doesn't admit isn't applied, and what runs goes on.

use crate::world::World;

#[test]
fn what_comes_from_where_the_site_admits_nothing_fails_until_the_site_admits_it() {
    let world = World::running();
    world.settings("policy: {archives: ['oci://registry.plant.local/**']}\n");
    let containers = world.containers();
    world.once().ended(1).says(&["policy-denied"]);
    assert_eq!(
        (world.states("greeter"), world.containers()),
        (vec!["hello failed policy-denied".to_owned()], containers)
    );
    let message = world.message("greeter");
    assert!(message.ends_with("isn't among `policy.archives` of this device's site"), "{message}");
    world.assert_quiet();
    world.settings("policy: {archives: ['oci://**']}\n");
    world.once().good();
    world.settings("policy: {archives: ['oci://**'], charts: [], images: ['nowhere/*']}\n");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello failed policy-denied"]);
    assert!(world.message("greeter").contains("isn't among `policy.images`"), "{}", world.message("greeter"));
    assert_eq!(world.greetings(), ["hello"]);
    world.settings("");
    world.syncer(&["retry", "greeter"]).good();
    world.once().good();
    assert_eq!(world.greetings(), ["servus"]);
}

#[test]
fn a_mistake_in_what_a_site_admits_is_named() {
    let world = World::running();
    let mistakes = [
        ("{images: ['']}", "an empty pattern means nothing"),
        ("{ceilings: {memory: 512}}", "memory"),
        ("{ceilings: {memory: 512MB}}", "`policy.ceilings.memory: 512MB` is no amount such as 512Mi"),
        ("{ceilings: {cpus: 0}}", "`policy.ceilings.cpus: 0` is no number such as 0.5"),
        ("{ceilings: {pids: 5}}", "pids"),
        ("{kubernetes: {podSecurity: strict}}", "strict"),
        ("{kubernetes: {nodePorts: [30000]}}", "nodePorts"),
        ("{kubernetes: {hostNetwork: true}}", "hostNetwork"),
    ];
    world.assert_mistakes(&["once"], |policy| format!("policy: {policy}\n"), &mistakes);
}

#[test]
fn what_the_site_does_not_admit_any_more_goes_on_is_told_and_is_not_put_back() {
    let world = World::running();
    let before = world.containers();
    world.settings("policy: {ceilings: {memory: 64Mi}}\n");
    world.once();
    assert_eq!(world.conditions(), ["PolicyViolated NotAdmitted"]);
    let condition = world.report()["conditions"][0]["message"].as_str().unwrap().to_owned();
    assert!(condition.contains("memory: without a limit, and so over `policy.ceilings.memory`"), "{condition}");
    assert_eq!((world.states("greeter"), world.containers()), (vec!["hello installed".to_owned()], before));
    world.assert_quiet();

    world.stop_all();
    let stopped = world.containers();
    world.once().ended(1);
    assert_eq!((world.states("greeter"), world.containers()), (vec!["hello failed policy-denied".to_owned()], stopped));
    assert!(world.message("greeter").contains("isn't put back"), "{}", world.message("greeter"));
    world.assert_quiet();

    // It counts as long as the site says so.
    world.settings("");
    world.once().good();
    assert_eq!((world.states("greeter"), world.conditions()), (vec!["hello installed".to_owned()], Vec::new()));
}
