//! The layers of an image, and which of them an engine needs.

use serde::Deserialize;

/// The layers of an image, the lowest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageLayers {
    /// How many bytes its registry has of each, compressed.
    sizes: Vec<u64>,
    /// The digest of what is in each, unpacked (OCI image specification, *Layer DiffID*); empty where that isn't known.
    diff_ids: Vec<String>,
}

/// An image's configuration, as far as it is about layers.
#[derive(Debug, Deserialize)]
pub(super) struct Configuration {
    rootfs: RootFs,
}

#[derive(Debug, Deserialize)]
struct RootFs {
    diff_ids: Vec<String>,
}

impl ImageLayers {
    /// Without a configuration, or with one of other layers, nobody knows what is in them.
    pub(super) fn new(sizes: Vec<u64>, configuration: Option<Configuration>) -> Self {
        let diff_ids = configuration.map(|one| one.rootfs.diff_ids).filter(|ids| ids.len() == sizes.len());
        Self { sizes, diff_ids: diff_ids.unwrap_or_default() }
    }

    /// How many bytes its registry has of all of them, compressed.
    pub fn size(&self) -> u64 {
        sum(&self.sizes)
    }

    /// How many of these bytes an engine lacks that has images of these layers, the lowest first of each. A layer is shared together
    /// with all below it, on which it builds.
    pub fn missing(&self, images: &[Vec<String>]) -> u64 {
        let shared = |image: &Vec<String>| self.diff_ids.iter().zip(image).take_while(|(own, its)| own == its).count();
        let shared = images.iter().map(shared).max().unwrap_or_default();
        sum(&self.sizes[shared..])
    }
}

fn sum(sizes: &[u64]) -> u64 {
    sizes.iter().copied().fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    fn of(diff_ids: Option<&[&str]>) -> ImageLayers {
        let rootfs = |diff_ids| RootFs { diff_ids: ids(diff_ids) };
        ImageLayers::new(vec![1000, 100, 10], diff_ids.map(|diff_ids| Configuration { rootfs: rootfs(diff_ids) }))
    }

    #[test]
    fn a_layer_is_there_where_an_image_begins_with_it_and_all_below_it() {
        let image = of(Some(&["a", "b", "c"]));
        for (others, missing) in [
            (&[][..], 1110),
            (&[ids(&["a"])], 110),
            (&[ids(&["a", "x", "c"]), ids(&["a", "b", "y", "c"])], 10),
            (&[ids(&["a", "b", "c", "d"])], 0),
            (&[ids(&["b", "c"]), ids(&[])], 1110),
        ] {
            assert_eq!((image.missing(others), image.size()), (missing, 1110), "{others:?}");
        }
    }

    #[test]
    fn where_it_is_not_known_what_is_in_them_all_are_missing() {
        for unknown in [None, Some(&["a", "b"][..]), Some(&["a", "b", "c", "d"])] {
            assert_eq!(of(unknown).missing(&[ids(&["a", "b", "c", "d"])]), 1110, "{unknown:?}");
        }
        assert_eq!(sum(&[u64::MAX, 1]), u64::MAX);
    }
}
