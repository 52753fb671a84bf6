//! Maps from pairs and sets from values, in little code.

use std::collections::{BTreeMap, BTreeSet};

/// Puts pairs into a map one after the other; of two with the same key the later one stays.
///
/// `collect` comes to the same map. But it sorts the pairs first, by code of its own for each kind of iterator: 4 kB of the
/// program each time, where the maps of a device have some dozens of entries.
pub trait IntoMap<K: Ord, V>: IntoIterator<Item = (K, V)> + Sized {
    /// The map of these pairs.
    fn into_map(self) -> BTreeMap<K, V> {
        let mut map = BTreeMap::new();
        map.extend(self);
        map
    }
}

impl<K: Ord, V, I: IntoIterator<Item = (K, V)>> IntoMap<K, V> for I {}

/// Puts values into a set one after the other: what [`IntoMap`] is for maps, and for the same reason.
pub trait IntoSet<T: Ord>: IntoIterator<Item = T> + Sized {
    /// The set of these values.
    fn into_set(self) -> BTreeSet<T> {
        let mut set = BTreeSet::new();
        set.extend(self);
        set
    }
}

impl<T: Ord, I: IntoIterator<Item = T>> IntoSet<T> for I {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_is_the_one_that_collect_makes() {
        let pairs = [("b", 1), ("a", 2), ("b", 3), ("a", 4), ("c", 5)];
        assert_eq!(pairs.into_map(), pairs.into_iter().collect());
    }

    #[test]
    fn the_set_is_the_one_that_collect_makes() {
        let values = ["b", "a", "b", "c"];
        assert_eq!(values.into_set(), values.into_iter().collect());
    }
}
