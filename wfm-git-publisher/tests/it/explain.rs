//! `explain` and `why-not`: the file, line and rule behind what a device gets.

use serde_json::Value;

use crate::support::Lab;

fn lab() -> Lab {
    let lab = Lab::with(&["press-01"]);
    lab.write(
        "fleet.yaml",
        lab.read("fleet.yaml")
            + "defaults:\n  parameters: {interval: 7}\n\
               groups: [{name: graz, when: {matchLabels: {site: graz}}, parameters: {interval: 8}}]\n",
    );
    lab.edit("deployments/hello.yaml", "hello from the press", "\"hello from {{ device.id }}\"");
    lab.write("devices/spare-01.yaml", "id: spare-01\nlabels: {site: linz}\n");
    lab.commit();
    lab
}

#[test]
fn each_value_has_a_file_a_line_and_a_rule() {
    let lab = lab();
    let text = lab.run(&["explain", "press-01", "hello"]).good();
    for line in [
        "press-01 (devices/press-01.yaml)",
        "  + hello (hello 1.0.0)",
        "a target means the device  [deployments/hello.yaml:12:5]",
        "profile hello-compose (the only one)  [applications/hello/1.0.0/margo.yaml:17:5]",
        "greeting: \"hello from press-01\" → GREETING in hello",
        "by the deployment's parameters: template hello from {{ device.id }}  [deployments/hello.yaml:22:13]",
        "interval: 8 → INTERVAL in hello",
        "by the fleet's group `graz`: 8",
        "over the fleet's defaults: 7",
        "over the package's default: 5  [applications/hello/1.0.0/margo.yaml:",
        "token: left out → TOKEN in hello",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let json = lab.run(&["explain", "press-01", "hello", "interval", "--output", "json"]).good();
    let json: Value = serde_json::from_str(&json).unwrap();
    let parameters = json["deployments"][0]["parameters"].as_array().unwrap();
    assert_eq!(parameters.len(), 1);
    assert_eq!(parameters[0]["said"][0]["rule"], "the fleet's group `graz`");
    assert_eq!(parameters[0]["said"][0]["place"]["file"], "fleet.yaml");
    assert!(parameters[0]["said"][0]["place"]["line"].as_u64().unwrap() > 1);
}

#[test]
fn the_reason_against_is_named() {
    let lab = lab();
    let ran = lab.run(&["why-not", "hello", "spare-01"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("- hello (hello 1.0.0)"), "{}", ran.out);
    assert!(
        ran.out.contains("no target: its label `site` is `linz`, not `graz`  [deployments/hello.yaml:12:5]"),
        "{}",
        ran.out
    );
    assert_eq!(lab.run(&["why-not", "hello", "press-01"]).code, Some(0), "it gets it");
    lab.edit("deployments/hello.yaml", "{{ device.id }}", "{{ device.labels.line }}");
    lab.edit(
        "deployments/hello.yaml",
        "# exclude:\n#   - matchLabels: {role: spare}",
        "exclude:\n  - devices: [press-02]",
    );
    lab.edit("devices/press-01.yaml", "  line: \"1\"", "  # line: \"1\"");
    lab.commit();
    let ran = lab.run(&["why-not", "hello", "press-02"]);
    assert!(ran.out.contains("`exclude` takes the device out again  [deployments/hello.yaml:18:5]"), "{}", ran.out);
    let ran = lab.run(&["why-not", "hello", "press-01"]);
    assert!(ran.out.contains("there is no `device.labels.line` here"), "{}", ran.out);
    for (args, message) in [
        (["why-not", "nothing", "press-01"], "no usable deployment in the fleet is of `nothing`"),
        (["why-not", "hello", "nobody"], "there is no usable device `nobody`"),
        (["explain", "press-01", "nothing"], "no deployment of this id"),
    ] {
        let error = lab.run(&args).failed(1);
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn what_is_left_as_it_is_is_explained_down_to_the_value_that_is_wrong() {
    let lab = lab();
    lab.publish_all();
    lab.edit("deployments/hello.yaml", "hello from {{ device.id }}", "hello from {{ device.labels.nowhere }}");
    lab.commit();
    let text = lab.run(&["explain", "press-01", "hello", "greeting"]).good();
    for line in ["device.labels.nowhere", "it keeps what it has (serial 1)", "by the deployment's parameters: template"]
    {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn how_a_device_behaves_has_files_lines_and_rules_too() {
    let lab = lab();
    lab.edit(
        "fleet.yaml",
        "{name: graz, when: {matchLabels: {site: graz}},",
        "{name: graz, policy: {poll: 20s}, when: {matchLabels: {site: graz}},",
    );
    lab.write("devices/press-01.yaml", lab.read("devices/press-01.yaml") + "policy: {poll: 1m}\n");
    lab.write("devices/spare-02.yaml", "id: spare-02\n");
    lab.commit();
    let text = lab.run(&["explain", "press-01"]).good();
    let line = lab.read("devices/press-01.yaml").lines().count();
    for part in [
        &format!("  poll: 60 s\n      by the device's policy: 60 s  [devices/press-01.yaml:{line}:16]\n"),
        "      over the fleet's group `graz`: 20 s  [fleet.yaml:",
        "      over the fleet's policy: 15 s  [fleet.yaml:",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let json: Value = serde_json::from_str(&lab.run(&["explain", "spare-02", "--output", "json"]).good()).unwrap();
    assert_eq!((&json["policy"][0]["name"], &json["policy"][0]["seconds"]), (&"poll".into(), &15.into()));
    assert_eq!(json["policy"][0]["said"].as_array().unwrap().len(), 1);
}

#[test]
fn whatever_keeps_everything_as_it_is_is_shown() {
    let lab = lab();
    lab.publish_all();
    // Too much would go.
    lab.write("fleet.yaml", lab.read("fleet.yaml") + "guards: {deviceRemovals: 0%}\n");
    lab.edit("deployments/hello.yaml", "- matchLabels: {site: graz}", "- devices: [spare-01]");
    lab.commit();
    let text = lab.run(&["explain", "press-01"]).good();
    let guarded =
        "  not published: 1 of its 1 deployments would be removed, and the guard is 0 %: `hello`; look at `plan`";
    assert!(text.contains(guarded), "{text}");
    // The file of what it has can't be used.
    lab.write("deployments/hello.yaml", "id: hello\n");
    lab.commit();
    for args in [&["explain", "press-01"][..], &["explain", "press-01", "hello"]] {
        let text = lab.run(args).good();
        assert!(text.contains("  ? hello: can't be used, see `validate`; whoever has it keeps it"), "{text}");
    }
    let ran = lab.run(&["why-not", "hello", "press-01"]);
    assert!(ran.code == Some(1) && ran.out.contains("? hello: can't be used"), "{}", ran.out);
    // Its repository can't be believed: then nothing that it says counts.
    let stranger = lab.git("press-01", &["commit-tree", "desired^{tree}", "-p", "desired", "-m", "a stranger's"]);
    lab.git("press-01", &["update-ref", "refs/heads/desired", &stranger]);
    let text = lab.run(&["explain", "press-01"]).good();
    assert!(text.contains("  its repository tells nothing of it: "), "{text}");
}

#[test]
fn suspension_and_dependencies_are_explained_with_their_places() {
    let lab = lab();
    lab.write("deployments/base.yaml", BASE);
    lab.write("deployments/hello.yaml", lab.read("deployments/hello.yaml") + "suspended: true\ndependsOn: [base]\n");
    lab.write("devices/press-01.yaml", lab.read("devices/press-01.yaml") + "suspended: true\n");
    lab.commit();
    let lines = lab.read("deployments/hello.yaml").lines().count();
    let text = lab.run(&["explain", "press-01", "hello"]).good();
    for line in [
        "press-01 (devices/press-01.yaml)\n  suspended: the device leaves everything as it is\n",
        "  + hello (hello 1.0.0)",
        "it is suspended: devices leave what they have of it  [deployments/hello.yaml:",
        &format!("it waits for `base`  [deployments/hello.yaml:{lines}:13]"),
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    // What it waits for isn't for this device: then neither is what waits.
    lab.edit("deployments/base.yaml", "{matchLabels: {site: graz}}", "{devices: [packer-01]}");
    lab.commit();
    let ran = lab.run(&["why-not", "hello", "press-01"]);
    assert!(ran.code == Some(1) && ran.out.contains("  - hello (hello 1.0.0)"), "{}", ran.out);
    let expected =
        format!("deployments/hello.yaml:{lines}:13: dependsOn[0]: waits for `base`, which isn't for this device");
    assert!(ran.out.contains(&expected), "{expected}\n{}", ran.out);
}

#[test]
fn who_says_how_a_device_behaves_towards_a_deployment_is_explained() {
    let lab = lab();
    lab.edit("fleet.yaml", "  report: 5m", "  onFailure: last-good\n  drift: report\n  report: 5m");
    lab.edit("fleet.yaml", "{site: graz}}, ", "{site: graz}}, policy: {drift: heal-in-window}, ");
    let of_device = "policy: {onFailure: hold}\n";
    lab.write("devices/press-01.yaml", lab.read("devices/press-01.yaml") + of_device);
    lab.write("deployments/hello.yaml", lab.read("deployments/hello.yaml") + "onFailure: last-good-anyway\n");
    lab.commit();
    let [of_device, own] =
        ["devices/press-01.yaml", "deployments/hello.yaml"].map(|file| lab.read(file).lines().count());
    let text = lab.run(&["explain", "press-01", "hello"]).good();
    let expected = format!(
        "      onFailure: last-good-anyway
          by the deployment: last-good-anyway  [deployments/hello.yaml:{own}:12]
          over the device's policy: hold  [devices/press-01.yaml:{of_device}:21]
          over the fleet's policy: last-good  [fleet.yaml:14:14]
      drift: heal-in-window
          by the fleet's group `graz`: heal-in-window  [fleet.yaml:"
    );
    assert!(text.contains(&expected), "{expected}\n{text}");
    let json: Value = serde_json::from_str(&lab.run(&["explain", "press-01", "--output", "json"]).good()).unwrap();
    let stabilise = &json["deployments"][0]["policy"][1];
    assert_eq!(*stabilise, serde_json::json!({"name": "stabilise", "value": "300 s", "said": []}));
    lab.publish_all();
    let envelope = lab.json("press-01", "desired", "envelope.json");
    let policies: Vec<_> = envelope["deployments"].as_object().unwrap().values().map(|one| &one["policy"]).collect();
    assert_eq!(policies, [&serde_json::json!({"onFailure": "last-good-anyway", "drift": "heal-in-window"})]);
}

#[test]
fn what_the_fleet_says_of_sites_policies_is_layered_by_key_and_explained() {
    let lab = lab();
    lab.edit("fleet.yaml", "  report: 5m", "  site: {ports: [[8000, 8099]], external: [plant]}\n  report: 5m");
    lab.write("devices/press-01.yaml", lab.read("devices/press-01.yaml") + "policy: {site: {ports: any}}\n");
    lab.commit();
    let text = lab.run(&["explain", "press-01", "hello"]).good();
    for line in [
        "  site external: [\"plant\"], if the site hands it over\n      by the fleet's policy: [\"plant\"]  [fleet.yaml:14:",
        "  site ports: \"any\", if the site hands it over\n      by the device's policy: \"any\"  [devices/press-01.yaml:",
        "      over the fleet's policy: [[8000,8099]]  [fleet.yaml:14:",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    lab.publish_all();
    let envelope = lab.json("press-01", "desired", "envelope.json");
    assert_eq!(envelope["policy"]["site"], serde_json::json!({"external": ["plant"], "ports": "any"}));
    assert_eq!(envelope.get("requires"), None, "an older device allows less");
    lab.edit("devices/press-01.yaml", "{ports: any}", "{ports: [[80, 80]]}");
    lab.commit();
    let planned = lab.run(&["plan"]);
    assert!(planned.out.contains("policy site ports: \"any\" → [[80,80]]"), "{}", planned.out);
    lab.edit("fleet.yaml", "external: [plant]", "registries: {mirrors: {docker.io: [m.plant.local, n.plant.local]}}");
    lab.edit(
        "devices/press-01.yaml",
        "{ports: [[80, 80]]}",
        "{registries: {mirrors: {quay.io: [m.plant.local/quay]}}}",
    );
    lab.commit();
    lab.publish_all();
    let own = serde_json::json!({"mirrors": {"quay.io": ["m.plant.local/quay"]}});
    let site = &lab.json("press-01", "desired", "envelope.json")["policy"]["site"];
    assert_eq!(site["registries"], own, "the nearest word counts for the key as a whole");
    let explained = lab.run(&["explain", "press-01", "hello"]).good();
    let line = format!(
        "  site registries: {own}, if the site hands it over\n      by the device's policy: {own}  [devices/press-01"
    );
    assert!(explained.contains(&line), "{line}\n{explained}");
}

const BASE: &str = "id: base\napplication: {id: hello, version: 1.0.0}\ntargets: [{matchLabels: {site: graz}}]\n";

#[test]
fn a_value_that_stays_on_the_device_is_shown_as_its_file() {
    let lab = lab();
    lab.edit("fleet.yaml", "parameters: {interval: 7}", "parameters: {token: {valueFrom: {deviceFile: token}}}");
    lab.commit();
    let text = lab.run(&["explain", "press-01", "hello", "token"]).good();
    assert!(text.contains("token: file token of the device → TOKEN in hello"), "{text}");
    assert!(text.contains("by the fleet's defaults: file token of the device  [fleet.yaml:"), "{text}");
}
