//! Names in one line of a hint.

/// What [`listed`] says of nothing.
pub(super) const NONE: &str = "none";

/// Each name in backquotes, separated by commas.
pub(super) fn listed<T: std::fmt::Display>(names: impl Iterator<Item = T>) -> String {
    let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    if names.is_empty() { NONE.to_owned() } else { names.join(", ") }
}
