//! The site's lists that this device believed: `site.json` of the home, beside the clone, whose loss opens nothing.

use std::path::PathBuf;

use repo_model::error_chain;

use crate::config::Home;
use crate::decision::approval::ChangeSet;
use crate::decision::site::{Believed, KnownLists};
use crate::state::json_file::{self, FileError};

/// `site.json` can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SiteFileError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(
        "`{}` isn't what this program wrote: once somebody removes it, the next list of the site counts, whatever its serial: \
         {problem}",
        path.display()
    )]
    Content { path: PathBuf, problem: String },
}

/// What is known of the site's lists; nothing where there is no file.
pub fn read(home: &Home) -> Result<KnownLists, SiteFileError> {
    let path = home.site();
    json_file::read(&path)?.map_err(|problem| SiteFileError::Content { path, problem })
}

/// Keeps a list that is believed, before anything that it approves is done.
pub fn believe(home: &Home, believed: Believed) -> Result<(), SiteFileError> {
    let mut known = read(home)?;
    known.believe(believed);
    Ok(json_file::write(&home.site(), &known)?)
}

/// Notes what these changes are, where the newest list approves them, before anything of them goes. What can't be noted
/// may need another word once something of it has gone.
pub fn begin<'a>(home: &Home, changes: impl Iterator<Item = &'a ChangeSet>) {
    let changes: Vec<_> = changes.filter(|change| !change.going.is_empty()).collect();
    if changes.is_empty() {
        return;
    }
    let noted = read(home).and_then(|mut known| {
        let is_new = changes.into_iter().fold(false, |is_new, change| known.begin(change) | is_new);
        if is_new {
            json_file::write(&home.site(), &known)?;
        }
        Ok(())
    });
    if let Err(error) = noted {
        tracing::warn!(error = error_chain(&error), "what the site's list approves can't be noted");
    }
}
