//! Room for images, known before they are fetched: a disk that an image filled is full for what runs, too.

use std::path::PathBuf;

use repo_artifacts::ImageReference;

use super::{ComposeRuntime, Prepared};
use crate::decision::capabilities::architecture;
use crate::runtimes::RuntimeError;

/// How much room an image needs while the engine fetches it, in multiples of what its registry has of it: that, and what is
/// in it, which is about twice as much.
const GROWTH: u64 = 3;

/// What stays free for what runs, in bytes.
const RESERVE: u64 = 512 << 20;

impl ComposeRuntime {
    /// Fails if the engine's disk has no room for an image. Where the registry or the disk can't be asked from here, the
    /// engine finds out.
    pub(super) fn check_room(&self, prepared: &Prepared, image: &str) -> Result<(), RuntimeError> {
        let Ok(reference) = ImageReference::parse(image) else { return Ok(()) };
        let Some((place, free)) = self.room() else { return Ok(()) };
        let size = match self.registry.image_size(&reference, architecture(std::env::consts::ARCH)) {
            Ok(Some(size)) => size,
            Ok(None) => return Ok(()),
            Err(error) => {
                tracing::debug!(
                    image = reference.name(),
                    error = repo_model::error_chain(&error),
                    "its size isn't known"
                );
                return Ok(());
            }
        };
        let needed = needed(size);
        if needed <= free {
            return Ok(());
        }
        let (image, place) = (prepared.redactor.clean(image), place.display());
        let [size, needed, free] = [size, needed, free].map(|bytes| bytes >> 20);
        let reason = format!(
            "image `{image}` has {size} MiB in its registry, so {needed} MiB have to be free in `{place}`, and {free} MiB are"
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

/// How many bytes have to be free for an image of this size.
fn needed(size: u64) -> u64 {
    size.saturating_mul(GROWTH).saturating_add(RESERVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_needs_three_times_its_size_and_what_stays_free() {
        assert_eq!([0, 100 << 20, u64::MAX].map(needed), [512 << 20, 812 << 20, u64::MAX]);
    }
}
