//! Labels of devices: what may be a key, and what a value.

use std::collections::BTreeMap;

use repo_model::yaml::Field;

/// Labels by Kubernetes' rules, without its limit on what may stand before a key's `/`.
pub(super) fn read(field: Field<'_>) -> Option<BTreeMap<String, String>> {
    field.entries(|key, field| {
        if !is_label_key(key) {
            return field.fail(format!("`{key}` is not a label's name: letters, digits and inner `. _ - /`"));
        }
        let value = field.clone().string()?;
        if is_label_value(&value) {
            Some(value)
        } else {
            field.fail("must be at most 63 letters, digits and inner `. _ -`")
        }
    })
}

pub(super) fn is_label_key(text: &str) -> bool {
    !text.is_empty() && is_label(text, 253, b"._-/")
}

pub(super) fn is_label_value(text: &str) -> bool {
    is_label(text, 63, b"._-")
}

fn is_label(text: &str, max: usize, inner: &[u8]) -> bool {
    let edge = |c: Option<u8>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= max
        && edge(text.bytes().next())
        && edge(text.bytes().last())
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || inner.contains(&c))
}
