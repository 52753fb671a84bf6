//! What commands print for programs: held against the schema that comes with them, here and wherever a test reads it.

use serde_json::{Value, json};

use crate::world::{Run, World, syncer};

/// The schema of each command that prints for programs.
fn schemas() -> Value {
    serde_json::from_str(include_str!("../../output.schema.json")).unwrap()
}

/// That of one command; `None` if it prints nothing for programs.
fn schema(command: &str) -> Option<jsonschema::Validator> {
    let all = schemas();
    let schema = json!({ "allOf": [all["commands"].get(command)?], "$defs": all["$defs"], "required": ["apiVersion"],
        "properties": { "apiVersion": { "const": "v1" } } });
    Some(jsonschema::validator_for(&schema).unwrap())
}

/// Fails unless what a command printed for programs is as the schema says.
pub(crate) fn is_as_described(args: &[&str], run: &Run) {
    let is_for_programs = args.windows(2).any(|two| two == ["--output", "json"]) || args == ["diagnostics"];
    let Some(schema) = args.iter().find_map(|word| schema(word)).filter(|_| is_for_programs) else { return };
    for document in serde_json::Deserializer::from_str(&run.stdout).into_iter::<Value>() {
        let document = document.unwrap_or_else(|error| panic!("{args:?}: {error}: {run:?}"));
        let errors: Vec<_> =
            schema.iter_errors(&document).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(errors.is_empty(), "{args:?}: {errors:?}\n{document:#}");
    }
}

#[test]
fn what_is_printed_for_programs_begins_with_its_version_and_is_as_the_schema_says() {
    let world = World::running();
    let json = |args: &[&str], code: i32| {
        let said = world.syncer(&[args, &["--output", "json"]].concat()).ended(code).stdout;
        assert!(said.starts_with("{\n  \"apiVersion\": \"v1\",\n  \""), "{args:?}: {said}");
        serde_json::from_str::<Value>(&said).unwrap()
    };
    json(&["status"], 0);
    json(&["history"], 0);
    json(&["explain", "greeter"], 0);
    json(&["windows"], 0);
    json(&["trust"], 0);
    json(&["rekey"], 0);
    world.syncer(&["doctor", "--output", "json"]);
    assert!(world.syncer(&["diagnostics"]).good().stdout.starts_with("{\n  \"apiVersion\": \"v1\",\n"));
    world.settings("gates: {approval: {for: ['*']}, removals: 50%}\n");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.once().ended(1);
    json(&["plan"], 1);
    json(&["explain", "greeter"], 0);
    let change = json(&["approve", "greeter"], 0)["change"].as_str().unwrap().to_owned();
    json(&["reject", "greeter", "--change", &change, "--by", "j.doe", "--why", "not now"], 0);
    world.hand.drop("greeter");
    world.hand.publish();
    world.once().ended(1);
    json(&["approve", "--removals"], 0);

    json(&["once"], 1);
    json(&["retry"], 0);
    json(&["retry", "greeter"], 0);
    json(&["accept-history", &"0".repeat(40)], 0);
    let held = json(&["hold", "greeter", "--by", "j.doe", "--why", "line 2", "--for", "8h"], 0);
    assert_eq!((&held["deployment"], &held["by"], &held["now"]), (&"greeter".into(), &"j.doe".into(), &false.into()));
    assert!(held["until"].is_string(), "{held:#}");
    assert_eq!(json(&["release", "greeter"], 0)["deployment"], "greeter");
    let followed = json(&["set-host", "--back"], 0);
    assert!(followed["serial"].is_u64(), "{followed:#}");
    world.syncer(&["leave", "--output", "json"]).ended(1).says(&["nobody can be asked here"]);
    assert_eq!(json(&["leave", "--yes"], 0)["removed"], false);

    let schemas = schemas();
    assert!(jsonschema::meta::is_valid(&schemas), "it is a schema itself");
    for command in schemas["commands"].as_object().unwrap().keys() {
        assert!(!schema(command).unwrap().is_valid(&json!({ "apiVersion": "v1" })), "of `{command}` nothing is said");
    }
    let printed = syncer(&world.home(), &["schema", "output"]).good().stdout;
    assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), schemas);
}
