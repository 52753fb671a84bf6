//! The names of the operating points, and the hook that lets a test cut the power there.

macro_rules! points {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// One operating point of a synced step.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum SyncPoint {
            $($(#[$doc])* $variant,)*
        }

        impl SyncPoint {
            /// All of them; the crash tests must cut each on both sides.
            pub const ALL: &[SyncPoint] = &[$(SyncPoint::$variant,)*];

            /// The name in traces and in `SYNC_CUT`.
            pub fn name(self) -> &'static str {
                match self {
                    $(SyncPoint::$variant => $name,)*
                }
            }
        }
    };
}

points! {
    /// A temporary file's bytes are written and synced.
    FileData = "file.data",
    /// The temporary file takes its target's name.
    FileRename = "file.rename",
    /// The directory of a replaced file is synced.
    FileDir = "file.dir",
    /// A file's name is removed.
    FileRemove = "file.remove",
    /// The directory of a removed file is synced.
    FileRemoveDir = "file.remove-dir",
    /// A slot is overwritten in place.
    SlotWrite = "slot.write",
    /// The overwritten slot is synced.
    SlotData = "slot.data",
    /// A directory is made.
    DirCreate = "dir.create",
    /// The parent of a new directory is synced.
    DirParent = "dir.parent",
    /// A file or directory takes another name.
    DirRename = "dir.rename",
    /// The directories on both sides of a rename are synced.
    DirRenameParents = "dir.rename-parents",
    /// Some files and directories of a tree are synced.
    TreeSync = "tree.sync",
    /// A directory is removed with all below it.
    TreeRemove = "tree.remove",
    /// The parent of a removed directory is synced.
    TreeRemoveParent = "tree.remove-parent",
    /// The bytes of a pack and its index are synced.
    PackData = "pack.data",
    /// A pack takes its name.
    PackRename = "pack.rename",
    /// A pack index takes its name, which makes the objects visible.
    IndexRename = "index.rename",
    /// `objects/pack` is synced.
    PackDir = "pack.dir",
    /// A pack's file, or a loose object that a pack replaced, is removed.
    PackRemove = "pack.remove",
    /// The lock files of some refs are written and synced.
    RefLock = "ref.lock",
    /// The lock file becomes the ref.
    RefMove = "ref.move",
    /// A ref's file is removed.
    RefDelete = "ref.delete",
    /// The directory of a ref is synced.
    RefDir = "ref.dir",
}

#[cfg(not(feature = "cut-points"))]
pub(crate) fn at<T>(_point: SyncPoint, step: impl FnOnce() -> T) -> T {
    step()
}

/// Runs one synced step between two possible power cuts.
#[cfg(feature = "cut-points")]
pub(crate) fn at<T>(point: SyncPoint, step: impl FnOnce() -> T) -> T {
    cut::reach(point, "before");
    let result = step();
    cut::reach(point, "after");
    result
}

/// The test side: traces every point and runs the cutting command at the chosen one.
#[cfg(feature = "cut-points")]
mod cut {
    use std::collections::BTreeMap;
    use std::io::Write;
    use std::sync::Mutex;

    use super::SyncPoint;

    static COUNTS: Mutex<BTreeMap<(SyncPoint, &'static str), u32>> = Mutex::new(BTreeMap::new());

    pub(super) fn reach(point: SyncPoint, side: &'static str) {
        let count = {
            let mut counts = COUNTS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let count = counts.entry((point, side)).or_default();
            *count += 1;
            *count
        };
        trace(point, side);
        if std::env::var("SYNC_CUT").is_ok_and(|wanted| wanted == format!("{}:{side}:{count}", point.name())) {
            cut();
        }
    }

    fn trace(point: SyncPoint, side: &str) {
        if let Some(path) = std::env::var_os("SYNC_TRACE") {
            let line = format!("{} {side}\n", point.name());
            let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
            file.and_then(|mut file| file.write_all(line.as_bytes())).expect("SYNC_TRACE names a writable file");
        }
    }

    /// The command shuts the volume down and kills this process; it does not come back.
    fn cut() {
        let command = std::env::var_os("SYNC_CUT_COMMAND").expect("SYNC_CUT_COMMAND is set beside SYNC_CUT");
        let status = std::process::Command::new(command).arg(std::process::id().to_string()).status();
        panic!("the cutting command came back: {status:?}");
    }
}
