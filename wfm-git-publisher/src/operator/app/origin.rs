//! Where a package is.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use repo_artifacts::{InvalidReference, PackageReference};
use repo_model::ApplicationId;

use super::git_origin::{GitOrigin, InvalidOrigin};

/// A package as an operator names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A folder, or an archive (`.tar.gz`, `.tgz`).
    Path(PathBuf),
    /// One of the fleet's.
    Fleet(Version),
    /// In a registry.
    Oci(PackageReference),
    /// In a Git repository.
    Git(GitOrigin),
}

/// A version of an application of the fleet, `APP@V`; or its newest one, `APP`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    pub application: ApplicationId,
    pub version: Option<String>,
}

impl FromStr for Version {
    type Err = InvalidOrigin;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (application, version) = match text.split_once('@') {
            Some((application, version)) => (application, Some(version.to_owned())),
            None => (text, None),
        };
        let application = application.parse().map_err(|_| InvalidOrigin("expected APP or APP@VERSION".to_owned()))?;
        match version.as_deref() {
            Some("") => Err(InvalidOrigin("there is no version behind the `@`".to_owned())),
            Some(version) if version.contains('/') => Err(InvalidOrigin("a version has no `/`".to_owned())),
            _ => Ok(Self { application, version }),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Some(version) => write!(f, "{}@{version}", self.application),
            None => write!(f, "{}", self.application),
        }
    }
}

impl FromStr for Origin {
    type Err = InvalidOrigin;

    /// `APP@V` is one of the fleet's; a folder that is called so is `./APP@V`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with("oci://") {
            return text.parse().map(Self::Oci).map_err(|error: InvalidReference| InvalidOrigin(error.to_string()));
        }
        if text.starts_with("git+") {
            return text.parse().map(Self::Git);
        }
        if let Some(version) = text.contains('@').then(|| text.parse::<Version>().ok()).flatten() {
            return Ok(Self::Fleet(version));
        }
        match text {
            "" => Err(InvalidOrigin("it is empty".to_owned())),
            path if path.contains("://") => Err(InvalidOrigin("expected oci://… or git+https://…@REV".to_owned())),
            path => Ok(Self::Path(path.into())),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Fleet(version) => write!(f, "{version}"),
            Self::Oci(reference) => write!(f, "{reference}"),
            Self::Git(repository) => write!(f, "{repository}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_is_a_version_of_the_fleets_or_a_path() {
        let fleet = |application: &str, version: &str| {
            Origin::Fleet(Version { application: application.parse().unwrap(), version: Some(version.to_owned()) })
        };
        assert_eq!("hello@1.0.0".parse(), Ok(fleet("hello", "1.0.0")));
        for path in ["hello", "./hello@1.0.0", "a.tar.gz", "/x/y@2/z.tgz", "Hello@1", "hello@1/2"] {
            assert_eq!(path.parse(), Ok(Origin::Path(path.into())), "{path}");
        }
        assert!(matches!("oci://r.example/hello:1.0.0".parse(), Ok(Origin::Oci(_))));
        assert!(matches!("git+https://git.example/hello@v1".parse(), Ok(Origin::Git(_))));
        for bad in ["https://r.example/hello-1.0.0.tar.gz", "oci://r.example/hello", "git+http://git.example/hello@v1"]
        {
            assert!(bad.parse::<Origin>().is_err(), "{bad}");
        }
        assert!(
            "".parse::<Origin>().is_err() && "hello@".parse::<Version>().is_err() && "A".parse::<Version>().is_err()
        );
    }
}
