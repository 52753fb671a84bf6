//! Files of the fleet that an operator would push, sent along with a question: what the fleet would be with them. Nothing of them is kept.

use std::collections::{BTreeMap, BTreeSet};

use repo_model::DeviceId;
use serde::{Deserialize, Serialize};

use super::paths::Bounds;
use crate::fleet::{Content, SourceFile, is_relevant};

/// What is sent along.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proposed {
    /// The devices that are asked about; all where none is named.
    #[serde(default)]
    pub devices: BTreeSet<DeviceId>,
    /// The text of each file that would be another one, by its path; `None` where it would go.
    #[serde(default)]
    pub files: BTreeMap<String, Option<String>>,
}

/// It can't be looked at.
#[derive(Debug, thiserror::Error)]
pub enum ProposedError {
    #[error("what is sent along can't be understood")]
    Malformed(#[from] serde_json::Error),
    #[error("`{0}` is no file of a fleet")]
    NoFile(String),
    #[error("the account {account} may change {allowed} and nothing else (its `paths`), and `{path}` is none of that")]
    Outside { account: String, allowed: String, path: String },
}

impl Proposed {
    /// Reads what an account sends that may push what lies within these paths, or everything if there are none.
    pub fn read(bytes: &[u8], account: &str, paths: &[String]) -> Result<Self, ProposedError> {
        let proposed: Self = serde_json::from_slice(bytes)?;
        if let Some(path) = proposed.files.keys().find(|path| !is_relevant(path)) {
            return Err(ProposedError::NoFile(path.clone()));
        }
        if let Some(bounds) = Bounds::of(account, paths)
            && let Some(path) = proposed.files.keys().find(|path| !bounds.fit(path))
        {
            let (account, allowed, path) = (account.to_owned(), bounds.shown(), path.clone());
            return Err(ProposedError::Outside { account, allowed, path });
        }
        Ok(proposed)
    }

    /// What differs between files of the fleet; `None` where it can't be sent along, because it is no text.
    pub fn between(before: &[SourceFile], after: &[SourceFile]) -> Option<BTreeMap<String, Option<String>>> {
        let (before, after) = (by_path(before), by_path(after));
        let paths: BTreeSet<_> = before.keys().chain(after.keys()).copied().collect();
        let mut files = BTreeMap::new();
        for path in paths.into_iter().filter(|path| before.get(path) != after.get(path)) {
            let text = match after.get(path) {
                None => None,
                Some(Content::Plain(bytes)) => Some(String::from_utf8(bytes.clone()).ok()?),
                Some(Content::Refused(..)) => return None,
            };
            files.insert(path.to_owned(), text);
        }
        Some(files)
    }

    /// The fleet's files with these in their places.
    pub fn over(&self, mut files: Vec<SourceFile>) -> Vec<SourceFile> {
        files.retain(|file| !self.files.contains_key(&file.path));
        let new = self.files.iter().filter_map(|(path, text)| Some(SourceFile::plain(path, text.as_deref()?)));
        files.extend(new);
        files
    }
}

fn by_path(files: &[SourceFile]) -> BTreeMap<&str, &Content> {
    files.iter().map(|file| (file.path.as_str(), &file.content)).collect()
}

#[cfg(test)]
mod tests {
    use repo_model::error_chain;

    use super::*;

    #[test]
    fn what_differs_is_sent_along_and_stands_in_the_place_of_what_was() {
        let file = |path: &str, text: &str| SourceFile::plain(path, text);
        let before = [file("fleet.yaml", "a"), file("devices/b.yaml", "b"), file("devices/c.yaml", "c")];
        let after = [file("fleet.yaml", "a"), file("devices/b.yaml", "B"), file("devices/d.yaml", "d")];
        let files = Proposed::between(&before, &after).unwrap();
        let expected = [("devices/b.yaml", Some("B")), ("devices/c.yaml", None), ("devices/d.yaml", Some("d"))];
        assert_eq!(files, expected.map(|(path, text)| (path.to_owned(), text.map(str::to_owned))).into());
        let proposed = Proposed { files, ..Proposed::default() };
        let mut made = proposed.over(before.to_vec());
        made.sort_by(|one, other| one.path.cmp(&other.path));
        assert_eq!(by_path(&made), by_path(&after));
        assert!(Proposed::between(&before, &[SourceFile::plain("devices/b.yaml", vec![0xff])]).is_none());
    }

    #[test]
    fn only_files_of_a_fleet_within_an_accounts_paths_are_looked_at() {
        let read = |text: &str, paths: &[&str]| {
            let paths: Vec<_> = paths.iter().map(|path| (*path).to_owned()).collect();
            Proposed::read(text.as_bytes(), "olga", &paths).map(drop).map_err(|error| error_chain(&error))
        };
        let one = r#"{"devices": ["press-01"], "files": {"deployments/hello.yaml": "id: hello"}}"#;
        assert_eq!(read(one, &[]), Ok(()));
        assert_eq!(read(one, &["deployments"]), Ok(()));
        for (text, paths, why) in [
            (one, &["devices/graz"][..], "may change `devices/graz` and nothing else"),
            (one, &["[x]"], "may change nothing"),
            (r#"{"files": {"../fleet.yaml": ""}}"#, &[], "`../fleet.yaml` is no file of a fleet"),
            (r#"{"files": {"README.md": ""}}"#, &[], "is no file of a fleet"),
            (r#"{"file": {}}"#, &[], "unknown field"),
            ("{}{}", &[], "trailing"),
        ] {
            let said = read(text, paths).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
