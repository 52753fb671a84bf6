//! Telling that a file was changed, without reading it.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, statat};

/// A file system may give two changes within this time the same stamp: kernels take its time from a coarse clock, of up
/// to 10 ms.
pub const TICK: Duration = Duration::from_millis(50);

/// What another file, other contents and other permissions change: inode, length and the time of the last change, which
/// nobody can set back; and when the contents were written, which a copy may keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    inode: u64,
    size: u64,
    changed: (i64, i64),
    modified: i64,
}

impl Stamp {
    /// Of what is there now, symbolic links followed; `None` if nothing is, or it can't be found out.
    pub fn of(path: &Path) -> Option<Self> {
        Self::below(CWD, path)
    }

    /// The same of a path that begins at an open directory.
    pub(crate) fn below(directory: impl AsFd, path: &Path) -> Option<Self> {
        let found = statat(directory, path, AtFlags::empty()).ok()?;
        let changed = (found.st_ctime, i64::try_from(found.st_ctime_nsec).unwrap_or(0));
        Some(Self {
            inode: found.st_ino,
            size: u64::try_from(found.st_size).unwrap_or(0),
            changed,
            modified: found.st_mtime,
        })
    }

    /// When its contents were written last (`mtime`), in Unix seconds: what a copy of all about a file keeps.
    pub fn modified(&self) -> i64 {
        self.modified
    }

    /// When contents, owner or permissions were changed last (`ctime`); 1970 for anything before.
    pub fn changed(&self) -> SystemTime {
        let (seconds, nanos) = self.changed;
        let since = Duration::new(u64::try_from(seconds).unwrap_or(0), u32::try_from(nanos).unwrap_or(0));
        SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Whether a change from this moment on has another stamp, also where the clock was set back since.
    pub fn is_of_another_moment(&self, now: SystemTime) -> bool {
        now.duration_since(self.changed()).unwrap_or_else(|error| error.duration()) > TICK
    }

    /// What tells it from others, as bytes.
    pub(crate) fn to_bytes(self) -> [u8; 32] {
        let [seconds, nanoseconds] = [self.changed.0, self.changed.1].map(i64::to_be_bytes);
        let parts = [self.inode.to_be_bytes(), self.size.to_be_bytes(), seconds, nanoseconds];
        std::array::from_fn(|at| parts[at / 8][at % 8])
    }

    /// Whether whatever changes from this Unix second on gets another stamp, also where files are stamped with whole seconds.
    pub fn shows_changes_from(&self, now: i64) -> bool {
        now - self.changed.0 > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_of_now_hides_what_comes_next_and_no_other() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let at = |seconds, nanos| Stamp { inode: 1, size: 1, changed: (seconds, nanos), modified: seconds };
        let stamp = at(1_700_000_000, 10_000_000);
        assert_eq!(stamp.changed(), now + Duration::from_millis(10));
        assert!(!stamp.is_of_another_moment(now) && !stamp.is_of_another_moment(now + TICK));
        assert!(stamp.is_of_another_moment(now + TICK * 2));
        assert!(at(1_800_000_000, 0).is_of_another_moment(now), "the clock was set back");
        assert!(at(i64::MAX, 0).is_of_another_moment(now) && at(-1, 0).is_of_another_moment(now));
    }
}
