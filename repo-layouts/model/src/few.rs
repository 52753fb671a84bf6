//! Maps from pairs, sets from values and order in lists, in little code.

use std::cmp::Ordering;
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

/// Sorts a list of some dozens, as [`slice::sort_by`] does, by moving each value to its place among those before it.
///
/// The standard's sort takes 4 kB of the program for each kind of list. Where there may be thousands, it is the right one.
pub fn sort_few<T>(list: &mut [T], order: impl Fn(&T, &T) -> Ordering) {
    for end in 1..list.len() {
        let mut at = end;
        while at > 0 && order(&list[at - 1], &list[at]) == Ordering::Greater {
            list.swap(at - 1, at);
            at -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_is_the_one_that_collect_makes() {
        let pairs = [("b", 1), ("a", 2), ("b", 3), ("a", 4), ("c", 5)];
        assert_eq!(pairs.into_map(), pairs.into_iter().collect());
    }

    #[test]
    fn a_list_is_sorted_as_the_standard_does_it_and_what_is_equal_stays_in_order() {
        let mut lists = vec![vec![], vec![(1, 'a')], vec![(3, 'a'), (1, 'b'), (2, 'c'), (1, 'd'), (3, 'e'), (0, 'f')]];
        for list in &mut lists {
            let mut sorted = list.clone();
            sorted.sort_by_key(|(key, _)| *key);
            sort_few(list, |(a, _), (b, _)| a.cmp(b));
            assert_eq!(*list, sorted);
        }
    }

    #[test]
    fn the_set_is_the_one_that_collect_makes() {
        let values = ["b", "a", "b", "c"];
        assert_eq!(values.into_set(), values.into_iter().collect());
    }
}
