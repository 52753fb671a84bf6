//! What `plan` says of many devices: each thing once, and what a person has to look at first.

use crate::support::{Lab, SECOND};

/// A fleet with so many devices of the site linz, which have a deployment of their own, published.
fn lab(count: usize) -> Lab {
    let lab = Lab::with(&["press-01"]);
    for number in 1..=count {
        device(&lab, number);
    }
    lab.write("fleet.yaml", lab.read("fleet.yaml") + "rollout: none\nguards: {deviceRemovals: 50%}\n");
    lab.write("deployments/second.yaml", second("10", "servus"));
    lab.commit();
    lab.publish_all();
    lab
}

fn device(lab: &Lab, number: usize) {
    let id = format!("mill-{number:02}");
    let key = Lab::device_key(&id).public();
    let text = format!("id: {id}\nlabels: {{site: linz, line: \"{}\"}}\nstatusKeys: [{key}]\n", number % 2);
    lab.write(&format!("devices/{id}.yaml"), text);
}

fn second(interval: &str, greeting: &str) -> String {
    SECOND
        .replace("graz", "linz")
        .replace("{greeting: servus}", &format!("{{greeting: {greeting}, interval: {interval}}}"))
}

#[test]
fn the_same_change_on_many_devices_is_told_once() {
    let lab = lab(30);
    lab.write("deployments/second.yaml", second("15", "servus"));
    lab.commit();
    let plan = lab.run(&["plan"]);
    let expected = "~ second\n    interval: 10 → 15\n    on 30 devices (site=linz: mill-01, mill-02, mill-03 and 27 more)\n\
                    packer-01, press-02: not enrolled yet, nothing is published for it\n\
                    30 devices to change, 1 unchanged, 2 not enrolled\n";
    assert_eq!((plan.out.as_str(), plan.code), (expected, Some(3)));

    let each = lab.run(&["plan", "--each"]);
    assert_eq!(each.out.matches("interval: 10 → 15").count(), 30, "{}", each.out);
    assert!(
        each.out.starts_with("mill-01: after serial 1\n  ~ second\n      interval: 10 → 15\nmill-02: "),
        "{}",
        each.out
    );
    assert_eq!(each.code, Some(3));

    let some = lab.run(&["plan", "mill-02", "mill-04"]);
    assert!(some.out.contains("    on mill-02, mill-04\n2 devices to change"), "{}", some.out);
}

#[test]
fn what_differs_from_device_to_device_is_told_of_those_that_it_concerns_and_many_values_as_their_number() {
    let lab = lab(8);
    let on = "overrides:\n  - when: {matchLabels: {line: \"1\"}}\n    parameters: {interval: 20}\n";
    lab.write("deployments/second.yaml", second("15", "\"from {{ device.id }}\"") + on);
    lab.commit();
    let plan = lab.run(&["plan"]).out;
    let expected = "~ second\n    greeting: \"servus\" → \"from mill-01\", and 7 other values (`plan --each` tells them)\n    \
                    on 8 devices (site=linz: mill-01, mill-02, mill-03 and 5 more)\n    \
                    interval: 10 → 20\n    on 4 devices (mill-01, mill-03, mill-05 and 1 more)\n    \
                    interval: 10 → 15\n    on 4 devices (line=0: mill-02, mill-04, mill-06 and 1 more)\n";
    assert!(plan.starts_with(expected), "{plan}");
    assert_eq!(lab.run(&["plan", "--each"]).out.matches("→ \"from mill-").count(), 8);
}

#[test]
fn a_value_of_several_devices_is_told_beside_those_that_one_device_alone_has() {
    let lab = lab(14);
    let greeting = "\"{{ 'even' if device.labels.line == '0' else device.id }}\"";
    lab.write("deployments/second.yaml", second("10", greeting));
    lab.commit();
    let plan = lab.run(&["plan"]).out;
    let expected = "~ second\n    greeting: \"servus\" → \"mill-01\", and 6 other values (`plan --each` tells them)\n    \
                    on 7 devices (mill-01, mill-03, mill-05 and 4 more)\n    \
                    greeting: \"servus\" → \"even\"\n    on 7 devices (line=0: mill-02, mill-04, mill-06 and 4 more)\n";
    assert!(plan.starts_with(expected), "{plan}");
}

#[test]
fn refusals_come_first_then_removals_then_changes_then_what_is_new() {
    let lab = lab(5);
    device(&lab, 6);
    lab.remove("deployments/second.yaml");
    lab.write(
        "deployments/third.yaml",
        second("10", "servus").replace("id: second", "id: third").replace("linz", "graz"),
    );
    lab.edit("deployments/hello.yaml", "hello from the press", "good morning");
    lab.commit();
    let plan = lab.run(&["plan"]);
    let lines: Vec<_> = plan.out.lines().filter(|line| !line.starts_with(' ')).collect();
    let expected = [
        "! not published: 1 of its 1 deployments would be removed, and the guard is 50 %: `second` (removals-guarded)",
        "~ hello",
        "mill-06: first desired state",
        "+ third",
        "= second: held back by a guard (removals-guarded): remove",
        "packer-01, press-02: not enrolled yet, nothing is published for it",
        "2 devices to change, 5 unchanged, 5 held back by guards, 2 not enrolled",
    ];
    assert_eq!(lines, expected, "{}", plan.out);
    let held = "(removals-guarded): remove\n    on 5 devices (mill-01, mill-02, mill-03 and 2 more)\n";
    assert!(plan.out.contains(held), "{}", plan.out);
    assert_eq!(plan.code, Some(1));
    let allowed = lab.run(&["publish", "--allow-removals"]);
    assert!(allowed.code == Some(0) && lab.documents("mill-01").is_empty(), "{}{}", allowed.out, allowed.err);
}
