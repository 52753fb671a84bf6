//! What the other side says in words, made harmless.

/// How much of it is kept, in characters.
const MAX_SAID: usize = 2048;

/// Text of the other side on one line, without control characters.
pub(super) fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.split(['\n', '\r']).map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" / ");
    lines.chars().filter(|c| !c.is_control()).take(MAX_SAID).collect()
}
