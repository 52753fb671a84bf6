//! What isn't written, and that it is told by the option that it comes from.

use super::*;

/// The same, and the package asks for nothing, so that it is rendered for devices that said nothing.
fn lab() -> Lab {
    let lab = super::lab();
    let constraint = "    deviceConstraints: {capacityRequirements: {memory: 2Gi}}\n";
    lab.edit("applications/pump/1.0.0/margo.yaml", constraint, "");
    lab.commit();
    lab
}

fn pump<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["deploy", "pump", "--yes"], more].concat()
}

#[test]
fn what_is_wrong_is_told_by_its_option_and_rule_and_nothing_is_written() {
    let lab = lab();
    lab.write("../values.yaml", "interval: 0\n");
    lab.write("../broken.yaml", "interval: [\n");
    let linz = ["--targets", "site=linz"];
    for (args, why) in [
        (&["--set", "interval=0"][..], "--set interval: is 0, and must be at least 1\nhint: its rule is `seconds`"),
        (&["--set", "mode=medium"], "--set mode: is `medium`, expected `slow` or `fast`"),
        (&["--set", "channel="], "--set channel: must not be empty"),
        (&["--set", "intervall=5"], "--set intervall: pump has no parameter `intervall`\nhint: it has "),
        (&["--set", "interval=5", "--set", "interval=6"], "--set interval: is given twice"),
        (&["--set", "channel={{ device.idd }}"], "--set channel: "),
        (&["--values", "../values.yaml"], "--values ../values.yaml: interval: is 0, and must be at least 1"),
        (&["--values", "../broken.yaml"], "../broken.yaml:"),
        (&["--values", "../none.yaml"], "none.yaml"),
        (&["--profile", "large"], "--profile: pump has no profile `large`\nhint: it has `small`"),
        (&["--device", "press-09"], "--device press-09: there is no device `press-09`"),
        (&["--targets", "a=b c"], "--targets a=b c: "),
    ] {
        let said = refused(&lab, &pump(&[&linz[..], args].concat()));
        assert!(said.contains(why), "{args:?}: {said}");
    }
    for (args, why) in [
        (&["deploy", "none", "--yes"][..], "error: there is no"),
        (&["deploy", "pump@2.0.0", "--yes"], "hint: there is 1.0.0"),
        (&["deploy", "hello", "--yes"], "hint: change it: deploy edit hello; or"),
    ] {
        let said = refused(&lab, &[args, &linz].concat());
        assert!(said.contains(why), "{args:?}: {said}");
    }
    for args in [&["--targets", ""][..], &["--targets", "line in 7"], &["--name", "Big"], &["--set", "interval"]] {
        assert_eq!(lab.run(&pump(args)).code, Some(2), "{args:?}");
    }
}

#[test]
fn what_was_wrong_before_is_in_nobodys_way_and_what_gets_wrong_by_it_elsewhere_is() {
    let lab = lab();
    lab.edit("deployments/hello.yaml", "greeting: hello from the press", "greting: x");
    lab.commit();
    lab.run(&["validate"]).failed(1);
    lab.run(&pump(&["--targets", "line=1", "--set", "channel=a"])).good();
    // The fleet's own value counts for a deployment only once there is one.
    lab.write(
        "fleet.yaml",
        lab.read("fleet.yaml")
            + "groups:\n- {name: g, when: {matchLabels: {line: \"2\"}}, parameters: {interval: 0}}\n",
    );
    lab.commit();
    let said = refused(&lab, &pump(&["--name", "b", "--targets", "line=2", "--set", "channel=a"]));
    assert!(said.contains("fleet.yaml:") && said.contains("must be at least 1"), "{said}");
    lab.run(&pump(&["--name", "b", "--targets", "line=1", "--set", "channel=a"])).good();
}

#[test]
fn two_profiles_need_a_choice() {
    let lab = lab();
    let second = "  - id: large\n    type: compose\n    components: [{name: pump, properties: {repository: \
        \"oci://r.example/large\", revision: 1.0.0}}]\nparameters:";
    lab.write("applications/pump/1.0.0/margo.yaml", PUMP.replacen("parameters:", second, 1));
    lab.commit();
    let args = pump(&["--targets", "site=linz", "--set", "channel=a"]);
    let said = refused(&lab, &args);
    assert!(said.contains("--profile: pump has more than one profile\nhint: add `profile:` with `auto` or"), "{said}");
    lab.run(&[&args[..], &["--profile", "large"]].concat()).good();
    assert!(committed(&lab, FILE).contains("\nprofile: large\n"));
}

#[test]
fn nothing_is_written_through_a_link() {
    let lab = lab();
    let outside = lab.dir().join("outside");
    std::fs::rename(lab.path("deployments"), &outside).unwrap();
    std::os::unix::fs::symlink(&outside, lab.path("deployments")).unwrap();
    lab.commit();
    let said = refused(&lab, &pump(&["--targets", "site=linz", "--set", "channel=a"]));
    assert!(said.contains("`deployments` is a link, and nothing is written through it"), "{said}");
    assert!(!outside.join("pump.yaml").exists());
}
