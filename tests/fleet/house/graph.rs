//! Circles among imports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::code::Import;

/// The sets of files of which each imports every other one, be it through others.
pub(super) fn circles(imports: &[Import]) -> Vec<BTreeSet<PathBuf>> {
    let mut next: BTreeMap<&Path, Vec<&Path>> = BTreeMap::new();
    for import in imports {
        next.entry(&import.from).or_default().push(&import.to);
    }
    let reached: BTreeMap<_, _> = next.keys().map(|file| (*file, reachable(file, &next))).collect();
    let mut found = BTreeSet::new();
    for (file, files) in &reached {
        let back = |other: &&&Path| reached.get(**other).is_some_and(|from| from.contains(file));
        let circle: BTreeSet<_> = files.iter().filter(back).map(|other| other.to_path_buf()).collect();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

fn reachable<'a>(begin: &Path, next: &BTreeMap<&'a Path, Vec<&'a Path>>) -> BTreeSet<&'a Path> {
    let mut reached = BTreeSet::new();
    let mut open = vec![begin];
    while let Some(file) = open.pop() {
        let new = next.get(file).into_iter().flatten().filter(|other| !reached.contains(**other));
        let new: Vec<_> = new.copied().collect();
        reached.extend(new.iter().copied());
        open.extend(new);
    }
    reached
}
