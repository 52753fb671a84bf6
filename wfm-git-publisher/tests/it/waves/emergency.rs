//! What a person does where a change is bad: takes it back, or brings a fix at once.

use super::*;

#[test]
fn what_stopped_and_is_undone_ends_and_holds_nothing_back_from_anybody() {
    let (lab, first) = stopped();
    let held = || {
        let status: Value = serde_json::from_str(&lab.run(&["status", "--output", "json"]).out).unwrap();
        (status["summary"]["heldBack"].clone(), lab.run(&["status"]).out.contains("held back by rollouts"))
    };
    assert_eq!(held(), (4.into(), true));
    change(&lab, "servus", FIRST);
    publish(&lab, *BEGIN + 6);
    assert_eq!(held(), (0.into(), false));
    reports(&lab, first, "installed");
    publish(&lab, *BEGIN + BAKE);
    assert_eq!(
        (decisions(&lab)[2..].to_vec(), held()),
        (vec!["stop 1".into(), "back".into(), "finish".into()], (0.into(), false))
    );
    assert_eq!(state(&lab, 1)["stops"][0]["resumed"], Value::Null);
    change(&lab, FIRST, "griass di");
    publish(&lab, *BEGIN + BAKE);
    assert_eq!((have(&lab, "hello", "griass di").len(), &state(&lab, 2)["state"]), (1, &"running".into()));
}

#[test]
fn a_fix_at_once_comes_to_a_device_of_which_a_rollout_holds_another_deployment_back() {
    let devices: Vec<_> = (1..=12).map(|number| format!("press-{number:02}")).collect();
    let devices: Vec<_> = devices.iter().map(String::as_str).collect();
    let lab = Lab::with(&devices);
    lab.write("fleet.yaml", lab.read("fleet.yaml") + "rollout: {waves: [1], bake: 60s}\n");
    lab.edit("deployments/hello.yaml", "matchLabels: {site: graz}", "matchLabels: {}");
    lab.write("deployments/second.yaml", SECOND.replace("site: graz", ""));
    lab.commit();
    assert_eq!(lab.publish_all().published(), 12);
    lab.edit("deployments/second.yaml", "servus", "griass di");
    change(&lab, FIRST, "servus");
    publish(&lab, *BEGIN);
    let with = |deployment: &str, text: &str| {
        let has = |device: &&&str| lab.documents(device).get(deployment).is_some_and(|one| one.contains(text));
        devices.iter().filter(has).copied().collect::<Vec<_>>()
    };
    let first = with("hello", "servus");
    assert_eq!((first.len(), with("second", "griass di")), (1, first.clone()));
    let held = *devices.iter().find(|device| **device != first[0]).unwrap();
    let hello = lab.read("deployments/hello.yaml");
    let fix = format!("overrides:\n  - when: {{devices: [{held}]}}\n    parameters: {{greeting: a fix}}\n");
    lab.write("deployments/hello.yaml", hello.replace("overrides:\n", &fix) + "rollout: none\n");
    lab.commit();
    publish(&lab, *BEGIN + 1);
    assert_eq!(decisions(&lab), ["start", "release 1", "join"]);
    assert_eq!(
        (with("hello", "a fix"), with("hello", "servus"), with("second", "griass di")),
        (vec![held], first.clone(), first)
    );
    for round in 1..4 {
        devices.iter().for_each(|device| reports(&lab, device, "installed"));
        publish(&lab, *BEGIN + 1 + round * BAKE);
    }
    assert_eq!(
        (with("second", "griass di").len(), with("hello", "servus").len(), with("hello", "a fix")),
        (12, 11, vec![held])
    );
    assert_eq!(state(&lab, 1)["state"], "done");
}
