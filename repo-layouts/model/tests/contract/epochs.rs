//! Epochs of `status`, as `fixtures/vectors/epochs.json` has them.

use repo_model::branch::epoch_of;
use repo_model::message::{Epoch, Message};
use serde_json::Value;

#[test]
fn epochs_are_those_of_the_vectors() {
    let text = include_str!("../../../../fixtures/vectors/epochs.json");
    let vectors: Value = serde_json::from_str(text).expect("JSON");
    let cases = |key: &str| vectors[key].as_array().expect("a list").clone();
    for case in cases("refs") {
        let name = case["ref"].as_str().expect("text");
        assert_eq!(epoch_of(name).map(u64::from), case["epoch"].as_u64(), "{name}");
    }
    for case in cases("messages") {
        let text = case["message"].as_str().expect("text");
        let begins = Epoch::<String>::of(&Message::parse(text));
        let said = begins.map(|epoch| serde_json::json!({"number": epoch.number, "previous": epoch.previous}));
        assert_eq!(said.unwrap_or_default(), case["begins"], "{text}");
    }
}
