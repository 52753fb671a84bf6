//! Who takes a place in `disruptionBudget`, and who leaves it.

use super::*;

/// One device at a time.
const BUDGET: &str = "{waves: [1], bake: 60s, disruptionBudget: {groupBy: [cell], maxUnavailable: 1}}\n";

fn of_one_line(lines: &[(&str, &str)]) -> Lab {
    let lab = lab_with(lines);
    lab.run(&[&["device", "label"], &DEVICES[..], &["cell=a"]].concat()).good();
    publish(&lab, *BEGIN);
    lab
}

#[test]
fn who_waits_for_a_place_that_a_device_of_another_rollout_has_comes_once_that_is_well() {
    let budget = format!("rollout: {BUDGET}");
    let lab =
        of_one_line(&[("deployments/hello.yaml", &budget), ("deployments/second.yaml", &format!("{SECOND}{budget}"))]);
    change(&lab, FIRST, "servus");
    publish(&lab, *BEGIN);
    let first = have(&lab, "hello", "servus")[0];
    let others: Vec<_> = DEVICES.into_iter().filter(|device| *device != first).collect();
    let second = lab.read("deployments/second.yaml");
    let others = format!("overrides: [{{when: {{devices: {others:?}}}, parameters: {{greeting: griass di}}}}]\n");
    lab.write("deployments/second.yaml", second + &others);
    lab.write("rollouts/1.yaml", "paused: true\n");
    lab.commit();
    publish(&lab, *BEGIN + 1);
    let said = publish(&lab, *BEGIN + 1).rollouts.unwrap();
    let whom = format!("2 waits, because `disruptionBudget` leaves no room ({first}: updating: didn't adopt it yet)");
    assert!(said.to_text().contains(&whom), "{}", said.to_text());
    assert_eq!(said.again.map(|again| again.to_string()), Some(after(60)));
    assert!(lab.is_as_left_at(*BEGIN + 1));
    reports(&lab, first, "installed");
    publish(&lab, *BEGIN + 2);
    assert!(lab.is_as_left_at(*BEGIN + 2) && !lab.is_as_left_at(*BEGIN + BAKE));
    publish(&lab, *BEGIN + BAKE);
    assert_eq!(have(&lab, "second", "griass di").len(), 1, "{:?}", decisions(&lab));
}

#[test]
fn a_device_that_gets_a_fix_at_once_in_the_middle_leaves_its_place_to_the_others() {
    let lab = of_one_line(&[("fleet.yaml", &format!("rollout: {BUDGET}"))]);
    change(&lab, FIRST, "servus");
    publish(&lab, *BEGIN);
    let first = have(&lab, "hello", "servus")[0];
    reports(&lab, first, "failed");
    let hello = lab.read("deployments/hello.yaml");
    let fix = format!("overrides:\n  - when: {{devices: [{first}]}}\n    parameters: {{greeting: griass di}}\n");
    lab.write("deployments/hello.yaml", hello.replace("overrides:\n", &fix) + "rollout: none\n");
    lab.commit();
    for round in 1..8 {
        publish(&lab, *BEGIN + round * BAKE);
        all_report(&lab);
    }
    assert_eq!(have(&lab, "hello", "griass di"), [first]);
    assert_eq!(
        (have(&lab, "hello", "servus").len(), &state(&lab, 1)["state"]),
        (4, &"done".into()),
        "{:?}",
        decisions(&lab)
    );
}
