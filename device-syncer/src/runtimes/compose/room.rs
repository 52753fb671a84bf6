//! Room for images, known before they are fetched: a disk that an image filled is full for what runs, too.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use repo_artifacts::ImageReference;

use super::{ComposeRuntime, Prepared};
use crate::decision::capabilities::architecture;
use crate::runtimes::RuntimeError;

/// How much room an image needs while the engine fetches it, in multiples of what its registry has of the layers that aren't here: that,
/// and what is in it, which is about twice as much.
const GROWTH: u64 = 3;

/// What stays free for what runs, in bytes.
const STAYS_FREE: u64 = 512 << 20;

/// How many bytes the images need together that are fetched at this moment.
#[derive(Debug, Default)]
pub(super) struct Reserved(Mutex<u64>);

/// Room that a fetch has until this is dropped; nothing where its size isn't known.
#[derive(Debug)]
#[must_use = "the room is another fetch's as soon as this is dropped"]
pub(super) struct Reservation<'a>(&'a Reserved, u64);

impl Reserved {
    /// Reserves so many bytes beside what others have reserved. An error is how many of those that are free nobody has reserved.
    fn reserve(&self, bytes: u64, free: u64) -> Result<Reservation<'_>, u64> {
        let mut reserved = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = free.saturating_sub(*reserved);
        if bytes.saturating_add(STAYS_FREE) > left {
            return Err(left);
        }
        *reserved += bytes;
        Ok(Reservation(self, bytes))
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let Self(reserved, bytes) = self;
        *reserved.0.lock().unwrap_or_else(PoisonError::into_inner) -= *bytes;
    }
}

impl ComposeRuntime {
    /// Reserves room for an image on the engine's disk, and fails if it has none beside what others fetch meanwhile. Where the registry
    /// or the disk can't be asked from here, the engine finds out.
    pub(super) fn reserve_room(&self, prepared: &Prepared, image: &str) -> Result<Reservation<'_>, RuntimeError> {
        let nothing = || Reservation(&self.lasting.reserved, 0);
        let Ok(reference) = ImageReference::parse(image) else { return Ok(nothing()) };
        let Some((place, free)) = self.room() else { return Ok(nothing()) };
        let layers = match self.registry.image_layers(&reference, architecture(std::env::consts::ARCH)) {
            Ok(Some(layers)) => layers,
            Ok(None) => return Ok(nothing()),
            Err(error) => {
                tracing::debug!(
                    image = reference.name(),
                    error = repo_model::error_chain(&error),
                    "its size isn't known"
                );
                return Ok(nothing());
            }
        };
        let here = self.engine.layers().unwrap_or_else(|error| {
            let error = repo_model::error_chain(&error);
            tracing::debug!(error, "which layers are here isn't known, so all of them count");
            Vec::new()
        });
        let (size, missing) = (layers.size(), layers.missing(&here));
        let bytes = missing.saturating_mul(GROWTH);
        let left = match self.lasting.reserved.reserve(bytes, free) {
            Ok(reservation) => return Ok(reservation),
            Err(left) => left,
        };
        let needed = bytes.saturating_add(STAYS_FREE);
        let (image, place) = (prepared.redactor.clean(image), place.display());
        let is_partly_here = missing < size;
        let [size, missing, needed, left, others] = [size, missing, needed, left, free - left].map(|bytes| bytes >> 20);
        let of_it =
            if is_partly_here { format!(", {missing} MiB of it in layers that aren't here") } else { String::new() };
        let others =
            if others > 0 { format!(" beside {others} MiB for what else is fetched now") } else { String::new() };
        let reason = format!(
            "image `{image}` has {size} MiB in its registry{of_it}, so {needed} MiB have to be free in `{place}`, and {left} MiB are{others}"
        );
        Err(RuntimeError::DiskFull { reason })
    }

    /// Where an engine of this machine keeps images, and how many bytes are free there.
    fn room(&self) -> Option<(PathBuf, u64)> {
        let place = self.data_root().filter(|_| self.engine.is_local())?;
        let stat = rustix::fs::statvfs(&place).ok()?;
        Some((place, stat.f_bavail.saturating_mul(stat.f_frsize)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn two_fetches_at_once_never_count_on_the_same_room_and_what_stays_free_is_nobodys() {
        let reserved = Reserved::default();
        let free = 2100 * MIB;
        let first = reserved.reserve(1500 * MIB, free).unwrap();
        assert_eq!(reserved.reserve(1500 * MIB, free).unwrap_err(), 600 * MIB);
        assert_eq!(reserved.reserve(89 * MIB, free).unwrap_err(), 600 * MIB, "what runs needs some");
        let small = reserved.reserve(88 * MIB, free).unwrap();
        drop(first);
        let second = reserved.reserve(1500 * MIB, free).unwrap();
        drop((small, second));
        assert_eq!(reserved.reserve(u64::MAX, free).unwrap_err(), free);
        assert_eq!(*reserved.0.lock().unwrap(), 0, "all of it is given back");
    }
}
