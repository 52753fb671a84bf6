//! `signers.yaml` of a fleet that has none.

use std::path::{Path, PathBuf};

use repo_git::durable::{self, FileError};
use repo_git::{KeyError, PublicKey};
use serde::Serialize;

use crate::fleet::SIGNERS;
use crate::repos::{GitError, StockGit};

/// The first person who has to agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FirstSigner {
    pub file: &'static str,
    pub person: String,
    /// The fingerprint of their key.
    pub key: String,
}

/// The file can't be made.
#[derive(Debug, thiserror::Error)]
pub enum SignersError {
    #[error("`{}` is there already", path.display())]
    Exists { path: PathBuf },
    /// Nobody says which key the operator signs with.
    #[error("it isn't known which key you sign with")]
    NoKey,
    #[error("`{}` can't be used", path.display())]
    Key {
        path: PathBuf,
        #[source]
        source: KeyError,
    },
    /// The fleet's work tree can't be written, or a key's file can't be read.
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot commit `{SIGNERS}`")]
    Git(#[from] GitError),
}

/// Makes the file with one person who has to agree to everything, and commits it. Their name and key are those of the
/// operator's Git, unless others are given.
pub fn init_signers(root: &Path, person: Option<&str>, key: Option<&Path>) -> Result<FirstSigner, SignersError> {
    let (git, path) = (StockGit::new(root), root.join(SIGNERS));
    if path.exists() {
        return Err(SignersError::Exists { path });
    }
    let configured = |name: &str| git.run(&["config", "--get", name]).ok().map(|text| text.trim().to_owned());
    let key = match key {
        Some(key) => key_of(key)?,
        None => {
            let named = configured("user.signingKey").filter(|named| !named.is_empty()).ok_or(SignersError::NoKey)?;
            match named.strip_prefix("key::").unwrap_or(&named).parse() {
                Ok(key) => key,
                Err(_) => key_of(Path::new(&named))?,
            }
        }
    };
    let person = person.map(str::to_owned).or_else(|| configured("user.name")).unwrap_or_else(|| "operator".to_owned());
    durable::replace_file(&path, text(&person, key).as_bytes(), 0o644).map_err(FileError::write(&path))?;
    git.commit(&[SIGNERS], "Changes of the fleet need somebody's signature")?;
    Ok(FirstSigner { file: SIGNERS, person, key: key.fingerprint() })
}

/// The key of a `.pub` file, or of the one beside a private key's file.
fn key_of(path: &Path) -> Result<PublicKey, SignersError> {
    let mut public = path.to_owned();
    if path.extension().is_none_or(|end| end != "pub") {
        public.as_mut_os_string().push(".pub");
    }
    let text = std::fs::read_to_string(&public).map_err(FileError::read(&public))?;
    text.parse().map_err(|source| SignersError::Key { path: public, source })
}

fn text(person: &str, key: PublicKey) -> String {
    // A name goes into YAML in quotes; JSON's are YAML's too.
    let person = serde_json::Value::from(person).to_string();
    format!(
        "# Who has to agree to changes of this fleet, by a signature: on the commit, or on a tag (`wfm-git-publisher approve`).\n\
         # It counts as it was last published. All rules that fit a path count; `need` is how many different people.\n\
         people:\n  {person}:\n    - {key}\n\
         rules:\n  - {{paths: [\"**\"], need: 1, of: [{person}]}}\n  - {{paths: [{SIGNERS}], need: 1, of: [{person}]}}\n"
    )
}

#[cfg(test)]
mod tests {
    use repo_git::SigningKey;

    use super::*;
    use crate::fleet::{Signers, SourceFile};

    #[test]
    fn what_is_written_can_be_read_whatever_somebody_is_called() {
        for name in ["anna", "Anna O'Hara: \"x\"", "{yes}", "no"] {
            let file = text(name, SigningKey::from_seed(&[1; 32]).public());
            let signers = Signers::read(&SourceFile::plain(SIGNERS, file.clone())).unwrap_or_else(|_| panic!("{file}"));
            assert!(signers.rules.iter().all(|rule| rule.of.contains(name)));
        }
    }
}
