//! Why a package doesn't come into the fleet, or doesn't leave it.

use repo_artifacts::{ArchiveError, RegistryError};
use repo_git::OpenError;
use repo_git::durable::FileError;
use repo_model::Digest;
use repo_model::problem::Problems;

use crate::repos::{GitError, SourceError};

/// A package can't be read, added or removed.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error("cannot read the fleet")]
    Fleet(#[from] SourceError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot commit the package")]
    Git(#[from] GitError),
    /// There is neither a folder nor a file.
    #[error("there is no folder and no archive `{0}`")]
    Nothing(String),
    /// There is no such package in the fleet.
    #[error("there is no package {wanted} in the fleet")]
    NoPackage {
        wanted: String,
        /// The versions that are there.
        versions: Vec<String>,
    },
    #[error("`{path}` is a {what}, and a package is files alone")]
    NotAFile { path: String, what: &'static str },
    /// More than a package may have.
    #[error("`{from}` has more than {limit} {what}")]
    TooMuch { from: String, what: &'static str, limit: usize },
    #[error("cannot read the archive `{from}`")]
    Archive {
        from: String,
        #[source]
        source: ArchiveError,
    },
    #[error("cannot get the package")]
    Registry(#[from] RegistryError),
    /// A part of a package in a registry isn't a file of it.
    #[error("`{from}`: layer {part}: {why}")]
    Part { from: String, part: Digest, why: &'static str },
    #[error("cannot make a place for the repository")]
    Scratch {
        #[source]
        source: OpenError,
    },
    #[error("git can't fetch `{from}`: {said}")]
    Fetch { from: String, said: String },
    #[error("cannot read what git fetched of `{from}`")]
    Fetched {
        from: String,
        #[source]
        source: Box<SourceError>,
    },
    #[error("there is no folder `{folder}` in `{from}`")]
    NoFolderThere { from: String, folder: String },
    /// It may not come into the fleet.
    #[error("the package in `{from}` is refused")]
    Refused { from: String, problems: Problems },
    /// The fleet has the version, as something else.
    #[error("{package} is in the fleet already, with other files: {}", files.join(", "))]
    Exists { package: String, files: Vec<String> },
    /// A version whose folder would be the same on some file systems.
    #[error("the fleet has version {other}, whose folder can't be told from that of {version} by every file system")]
    Alike { version: String, other: String },
    /// In the work tree something is in its place.
    #[error("`{folder}` has files that are not committed, and not this package's: {}", files.join(", "))]
    Taken { folder: String, files: Vec<String> },
    /// A folder on the way isn't one.
    #[error("`{0}` is a link, or no folder")]
    NoFolder(String),
    #[error("`{0}` has changes that are not committed")]
    Dirty(String),
    /// Git would commit something else.
    #[error("git would not commit these files as they are: {}", files.join(", "))]
    Converted { files: Vec<String> },
    /// Git committed something else, because of a hook for instance.
    #[error("the commit doesn't hold the package as it is: {}", files.join(", "))]
    Changed { files: Vec<String> },
    /// Deployments use it.
    #[error("{package} is used by {}", users.join(", "))]
    Used { package: String, users: Vec<String> },
    /// Files of deployments may use it.
    #[error("it can't be told whether {package} is used, because these files can't be read: {}", files.join(", "))]
    Unreadable { package: String, files: Vec<String> },
    /// Something else in the fleet needs it.
    #[error("without {package} the fleet would be wrong")]
    Needed { package: String, problems: Problems },
}

impl AppError {
    /// What is wrong in files, with their places.
    pub fn problems(&self) -> Option<&Problems> {
        match self {
            Self::Refused { problems, .. } | Self::Needed { problems, .. } => Some(problems),
            _ => None,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Nothing(_) => {
                "name a folder with margo.yaml, a .tar.gz of one, oci://HOST/PATH:TAG or git+https://HOST/PATH@REV"
            }
            Self::NoPackage { versions, .. } if !versions.is_empty() => {
                return Some(format!("there is {}", versions.join(", ")));
            }
            Self::NoPackage { .. } => "`app list` shows those that are committed",
            Self::NotAFile { .. } => {
                "have the vendor pack it without; a Git repository's files alone are written by `git archive --output app.tar.gz HEAD`"
            }
            Self::Registry(RegistryError::Unavailable { .. }) => {
                "registries and their accounts are set in publisher.yaml (`registries:`); for one without TLS say --plain-http HOST"
            }
            Self::Part { .. } => {
                "have the vendor push each file as a layer with its path as title, as `oras push` does"
            }
            Self::Fetch { .. } => {
                "see whether `git fetch` gets the revision; git asks your credential helper, and never you"
            }
            Self::NoFolderThere { .. } => "name the folder with margo.yaml behind the revision: …@REV//FOLDER",
            Self::Exists { .. } => {
                "what a version means is settled: have the vendor raise `metadata.version`; `app diff` shows what is different"
            }
            Self::Taken { .. } => "move that folder away, or commit it yourself",
            Self::Dirty(_) => "commit or undo them first",
            Self::Converted { .. } => {
                "tell git to keep packages as they are, and commit that: \
                 echo 'applications/** -text -filter -ident -working-tree-encoding' >> .gitattributes"
            }
            Self::Changed { .. } => "take the commit back (git revert HEAD), and see which hook of yours changes files",
            Self::Used { .. } => "change or remove what uses it first; `why-not` and `explain` show who gets it",
            Self::Unreadable { .. } => "correct them first: `validate` says what is wrong",
            _ => return None,
        };
        Some(text.to_owned())
    }
}
