//! Other answers in a file that is there.

use super::*;

const HELLO: &str = "deployments/hello.yaml";

#[test]
fn only_the_answers_change_and_everything_else_stays_byte_for_byte() {
    let lab = lab();
    let before = committed(&lab, HELLO);
    let args = ["deploy", "edit", "hello", "--set", "greeting=servus", "--set", "interval=9", "--yes"];
    let made = json(&lab, &args);
    let said = "  greeting: hello from the press\n";
    let after = before.replacen(said, "  greeting: \"servus\"\n  interval: 9\n", 1);
    assert_eq!(
        (committed(&lab, HELLO), &made["text"], &made["committed"]),
        (after.clone(), &after.clone().into(), &true.into())
    );
    assert_eq!(git(&lab.fleet, &["log", "-1", "--format=%s"]), "hello: other answers");
    // The same again is no commit.
    let (commits, again) = (count(&lab), json(&lab, &args));
    assert_eq!((&again["wasThere"], count(&lab)), (&true.into(), commits));
    let devices = ["deploy", "edit", "hello", "--targets", "site=linz", "--device", "packer-01", "--yes"];
    let said = lab.run(&devices).good();
    assert!(said.starts_with("hello: hello@1.0.0 on 3 devices: "), "{said}");
    let begin = after.find("targets:\n").unwrap();
    let end = after.find("\n# … except these.").unwrap();
    let list = "targets:\n  - matchLabels: {site: linz}\n  - devices: [packer-01]\n";
    assert_eq!(committed(&lab, HELLO), format!("{}{list}{}", &after[..begin], &after[end..]));
    lab.run(&["validate"]).good();
}

#[test]
fn who_loses_it_is_said_and_what_is_wrong_is_told_by_its_option() {
    let lab = lab();
    lab.write(
        "deployments/pump.yaml",
        "id: pump\napplication: {id: pump, version: 1.0.0}\ntargets:\n- matchLabels: {site: linz}\n",
    );
    lab.commit();
    let ran = lab.run(&["deploy", "edit", "pump", "--targets", "line=2"]);
    assert!(
        ran.out
            .starts_with("pump: pump@1.0.0 on 2 devices: packer-01, press-02\n  not any more on 1 device: press-01\n"),
        "{}",
        ran.out
    );
    ran.failed(1);
    for (args, why) in [
        (&["pump", "--set", "interval=0"][..], "--set interval: is 0, and must be at least 1"),
        (&["pump", "--set", "none=0"], "--set none: pump has no parameter `none`"),
        (&["none"], "there is no deployment `none` in the fleet\nhint: make it: deploy APP --name none"),
    ] {
        let said = refused(&lab, &[&["deploy", "edit"], args, &["--yes"]].concat());
        assert!(said.contains(why), "{args:?}: {said}");
    }
}

#[test]
fn what_cant_be_edited_or_has_other_changes_is_left_alone() {
    let lab = lab();
    let text = "id: pump\napplication: {id: pump, version: 1.0.0}\ntargets: [{matchLabels: {site: linz}}]\nparameters: {interval: 7}\n";
    lab.write(FILE, text);
    lab.commit();
    let args = ["deploy", "edit", "pump", "--set", "interval=8", "--yes"];
    let said = refused(&lab, &args);
    assert!(said.contains("can't be edited without changing more") && said.contains("with an editor"), "{said}");
    lab.write(FILE, text.replace("{interval: 7}", "\n  interval: 7"));
    lab.commit();
    lab.write(FILE, lab.read(FILE) + "# mine\n");
    let said = refused(&lab, &args);
    assert!(said.contains("has changes that are not committed\nhint: commit or undo them first"), "{said}");
    lab.commit();
    lab.run(&args).good();
    // One that was cut off before its commit is completed by the same again.
    let done = committed(&lab, FILE);
    git(&lab.fleet, &["reset", "--quiet", "--mixed", "HEAD~1"]);
    lab.run(&args).good();
    assert_eq!((committed(&lab, FILE), crate::catalogue::stands(&lab).1), (done, String::new()));
    lab.edit(FILE, "interval: 8", "intervall: 8");
    lab.commit();
    let said = refused(&lab, &args);
    assert!(said.contains("can't be edited before it is right") && said.contains("no parameter `intervall`"), "{said}");
}
