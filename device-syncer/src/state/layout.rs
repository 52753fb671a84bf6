//! Which layout a home has, so that an older program touches nothing of what a newer one keeps.

use std::path::PathBuf;

use repo_git::repo::{Repo, TreeLimits};
use repo_model::{json, text};
use serde::{Deserialize, Serialize};

use crate::config::Home;
use crate::decision::device_state::STATE;

/// The file of the state's tree that says so; one without it is of layout 1, which 0.2 wrote.
const FILE: &str = "layout.json";

/// What this program writes. It rises with whatever a program of before would misread, overlook or lose, of the state or
/// beside it.
const LAYOUT: u32 = 2;

/// `layout.json`. What else a newer program has to say there is not for this one.
#[derive(Debug, Serialize, Deserialize)]
struct Layout {
    layout: u32,
    /// The version of the program that wrote it.
    #[serde(default)]
    program: String,
}

/// A newer program made the home what it is.
#[derive(Debug, thiserror::Error)]
#[error(
    "the home `{}` has layout {layout}, of device-syncer {program}; this is {}, which knows layouts up to {LAYOUT}, and \
     touches nothing there", home.display(), env!("CARGO_PKG_VERSION")
)]
pub struct NewerLayout {
    home: PathBuf,
    layout: u32,
    program: String,
}

/// Fails where a newer program keeps more than this one knows of. What can't be read isn't newer: it is damaged, and mended
/// as such.
pub fn check(home: &Home) -> Result<(), NewerLayout> {
    match read(home) {
        Some(Layout { layout, program }) if layout > LAYOUT => {
            let program = text::line(&program).chars().take(40).collect();
            Err(NewerLayout { home: home.root().to_owned(), layout, program })
        }
        _ => Ok(()),
    }
}

fn read(home: &Home) -> Option<Layout> {
    let repo = Repo::open(&home.repository()).ok()?;
    let state = repo.reference(STATE).ok()??;
    let file = repo.list(state, &limits()).ok()?.into_iter().find(|entry| entry.path == FILE)?;
    serde_json::from_slice(&repo.blob(file.blob, limits().bytes).ok()?).ok()
}

/// The path and the bytes of what this program writes.
pub(super) fn file() -> (String, Vec<u8>) {
    let layout = Layout { layout: LAYOUT, program: env!("CARGO_PKG_VERSION").to_owned() };
    (FILE.to_owned(), json::to_bytes(&layout))
}

/// Bounds on the device's own trees, which it wrote itself.
pub(super) fn limits() -> TreeLimits {
    TreeLimits { files: 100_000, bytes: 256 << 20, ..TreeLimits::default() }
}
