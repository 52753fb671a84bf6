//! Who may import what, as `ARCHITECTURE.md` has it.

use std::collections::{BTreeMap, BTreeSet};

/// Each name of a table's first column, with what its second one allows.
pub(super) type Table = BTreeMap<String, BTreeSet<String>>;

/// The table whose head has this first cell and an empty second one; nothing if the page has none.
///
/// A row allows what it names in back-quotes; *all above* is everything that stands before, in the same row too.
pub(super) fn table(page: &str, head: &str) -> Option<Table> {
    let (_, rows) = page.split_once(&format!("\n| {head} | |\n|---|---|\n"))?;
    let mut table = Table::new();
    for row in rows.lines().take_while(|line| line.starts_with('|')) {
        let (left, allowed) = row.trim_matches('|').split_once('|')?;
        for name in names(left) {
            let mut may = names(allowed).collect::<BTreeSet<_>>();
            if allowed.contains("all above") {
                may.extend(table.keys().cloned());
            }
            table.insert(name, may);
        }
    }
    Some(table)
}

/// What stands in back-quotes.
fn names(text: &str) -> impl Iterator<Item = String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned)
}
