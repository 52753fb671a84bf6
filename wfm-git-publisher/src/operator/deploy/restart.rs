//! A restart in a deployment's file: a number that rises, for all of its devices or for one.

use repo_model::DeviceId;
use repo_model::yaml::{Limits, Node, parse};
use serde_json::{Value, json};

use super::super::edit::{add_item, replace_plain, set_word};
use super::edit::meaning;
use super::target::word;

/// The key of the number.
const RESTART: &str = "restart";

/// The list with what is otherwise on some devices.
const OVERRIDES: &str = "overrides";

/// The text with this number of a restart: for all devices of the deployment, or for one of them in an override. `None` if it is
/// written so that it would mean something else besides.
pub fn restarted(text: &str, device: Option<&DeviceId>, number: u64) -> Option<String> {
    let (edited, wanted) = match device {
        None => for_all(text, number)?,
        Some(device) => for_one(text, device, number)?,
    };
    (meaning(&edited)? == wanted).then_some(edited)
}

/// The edited text, and what it has to mean.
type Edited = (String, Value);

fn for_all(text: &str, number: u64) -> Option<Edited> {
    let mut wanted = meaning(text)?;
    let edited = match node(text)?.get(RESTART) {
        Some(old) => replace_plain(text, old.span, &number.to_string())?,
        // Line ends of another kind would all be replaced.
        None if text.contains('\r') => return None,
        None => set_word(text, RESTART, &number.to_string())?,
    };
    wanted.as_object_mut()?.insert(RESTART.to_owned(), number.into());
    Some((edited, wanted))
}

/// In the override that says a restart for just this device, else in a new one.
fn for_one(text: &str, device: &DeviceId, number: u64) -> Option<Edited> {
    let (node, mut wanted) = (node(text)?, meaning(text)?);
    let when = json!({ "devices": [device] });
    let list = wanted.as_object_mut()?.entry(OVERRIDES).or_insert_with(|| json!([]));
    if list.is_null() {
        *list = json!([]);
    }
    let list = list.as_array_mut()?;
    let own = list.iter().rposition(|one| one["when"] == when && one.get(RESTART).is_some());
    let edited = match own {
        Some(own) => {
            list[own][RESTART] = number.into();
            let old = node.get(OVERRIDES)?.item(own)?.get(RESTART)?;
            replace_plain(text, old.span, &number.to_string())?
        }
        None => {
            let when = format!("when: {{devices: [{}]}}", word(device.as_str()));
            let restart = format!("{RESTART}: {number}");
            let flow = format!("{{{when}, {restart}}}");
            let edited = add_item(text, OVERRIDES, &[when, restart], &flow)?;
            let new = json!({ "when": { "devices": [device] }, RESTART: number });
            // In flow style it comes first, which of restarts means the same.
            let is_first = meaning(&edited)?[OVERRIDES].get(0) == Some(&new);
            list.insert(if is_first { 0 } else { list.len() }, new);
            edited
        }
    };
    Some((edited, wanted))
}

fn node(text: &str) -> Option<Node> {
    parse("", text.as_bytes(), &Limits::FLEET).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(text: &str, device: &str, number: u64) -> Option<String> {
        restarted(text, Some(&device.parse().unwrap()), number)
    }

    #[test]
    fn for_all_devices_one_number_changes_or_comes() {
        let all = |text: &str| restarted(text, None, 12);
        for (before, after) in [
            ("# head\nid: a # who\n", "# head\nid: a # who\nrestart: 12\n"),
            ("restart: 3   # it leaks\nid: a\n", "restart: 12   # it leaks\nid: a\n"),
            ("id: a\r\nrestart: 3\r\n", "id: a\r\nrestart: 12\r\n"),
            ("{id: a, restart: 3}\n", "{id: a, restart: 12}\n"),
            ("id: a\nrestart: 3", "id: a\nrestart: 12"),
        ] {
            assert_eq!(all(before).as_deref(), Some(after), "{before}");
        }
        assert_eq!(all("{id: a}\n"), None);
        assert_eq!(all("id: a\r\n"), None);
        assert_eq!(all("restart: &x 3\nid: *x\n"), None);
    }

    #[test]
    fn for_one_device_an_override_changes_or_comes_and_the_rest_stays() {
        let one = "  - when: {devices: [press-01]}\n    restart: 4\n";
        let block = "id: a\noverrides:\n  # Graz goes first.\n  - when: {matchLabels: {site: graz}}\n    parameters:\n      \
                     a: 1 # now\n\n# The end.\nsuspended: false\n";
        let added = block.replace("a: 1 # now\n", &format!("a: 1 # now\n{one}"));
        let other = added.replace("press-01", "\"1e3\"");
        for (before, device, number, after) in [
            ("id: a # who", "press-01", 4, format!("id: a # who\noverrides:\n{one}")),
            ("overrides:\nid: a\n", "press-01", 4, format!("overrides:\n{one}id: a\n")),
            (block, "press-01", 4, added.clone()),
            (block, "1e3", 4, other.clone()),
            (&added, "press-01", 5, added.replace("restart: 4", "restart: 5")),
            ("overrides:\n- when: {devices: [x]}\n  restart: 1 # why\nid: a\n", "x", 2,
                "overrides:\n- when: {devices: [x]}\n  restart: 2 # why\nid: a\n".to_owned()),
            ("overrides:\n- when: {devices: [x]}\n  restart: 1\nid: a\n", "z", 2,
                "overrides:\n- when: {devices: [x]}\n  restart: 1\n- when: {devices: [z]}\n  restart: 2\nid: a\n".to_owned()),
            // What else an override says stays its own.
            ("overrides:\n- when: {devices: [x]}\n  parameters: {a: 1}\n", "x", 2,
                "overrides:\n- when: {devices: [x]}\n  parameters: {a: 1}\n- when: {devices: [x]}\n  restart: 2\n".to_owned()),
            ("overrides: [] # none\nid: a\n", "x", 2, "overrides: [{when: {devices: [x]}, restart: 2}] # none\nid: a\n".to_owned()),
            ("overrides: [{when: {devices: [x]}, restart: 2}]\n", "z", 3,
                "overrides: [{when: {devices: [z]}, restart: 3}, {when: {devices: [x]}, restart: 2}]\n".to_owned()),
            ("overrides: [{when: {devices: [x]}, restart: 2}]\n", "x", 13,
                "overrides: [{when: {devices: [x]}, restart: 13}]\n".to_owned()),
            ("id: a\r\noverrides:\r\n  - when: {devices: [x]}\r\n    restart: 2\r\n", "z", 3,
                "id: a\r\noverrides:\r\n  - when: {devices: [x]}\r\n    restart: 2\r\n  - when: {devices: [z]}\r\n    restart: 3\r\n".to_owned()),
        ] {
            assert_eq!(on(before, device, number).as_deref(), Some(after.as_str()), "{before}");
        }
        for text in [
            "{id: a}\n",
            "[1]\n",
            "overrides: 1\n",
            "x: &y [1]\noverrides: *y\n",
            "id: a\roverrides:\r- when: {devices: [x]}\r  restart: 1\r",
        ] {
            assert_eq!(on(text, "z", 2), None, "{text}");
        }
    }
}
