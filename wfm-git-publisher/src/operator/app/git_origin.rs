//! How a Git repository with a package is named.

use std::fmt;
use std::str::FromStr;

/// `git+https://host/path@REV[//SUBDIR]`, or `git+file://…` for a repository on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitOrigin {
    pub(super) scheme: &'static str,
    pub(super) url: String,
    pub(super) rev: String,
    /// The package's folder; empty for the top.
    pub(super) folder: String,
}

impl FromStr for GitOrigin {
    type Err = InvalidOrigin;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |rule: &str| InvalidOrigin(rule.to_owned());
        let known = ["https", "file"]
            .into_iter()
            .find_map(|scheme| Some((scheme, text.strip_prefix(&format!("git+{scheme}://"))?)));
        let (scheme, rest) =
            known.ok_or_else(|| invalid("expected git+https://HOST/PATH@REV, or git+file:///PATH@REV"))?;
        let (host, path) = rest.split_at(rest.find('/').ok_or_else(|| invalid("there is no path behind the host"))?);
        if host.contains('@') {
            return Err(invalid("an address has no account in it; git asks your credential helper"));
        }
        if host.starts_with('-') || (scheme == "https") == host.is_empty() {
            return Err(invalid("the host is a name or an address"));
        }
        let (path, rev) = path.split_once('@').ok_or_else(|| invalid("name the revision: …@v1.0.0"))?;
        let (rev, folder) = rev.split_once("//").unwrap_or((rev, ""));
        if !is_rev(rev) {
            return Err(invalid("a revision is a tag, a branch or a commit: letters, digits and inner `. _ / + -`"));
        }
        let is_part = |part: &str| !["", ".", ".."].contains(&part) && !part.chars().any(char::is_control);
        let folder = folder.trim_end_matches('/');
        if !folder.is_empty() && !folder.split('/').all(is_part) {
            return Err(invalid("the folder behind `//` is a path in the repository"));
        }
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(invalid("an address has no spaces"));
        }
        let url = format!("{scheme}://{host}{path}");
        Ok(Self { scheme, url, rev: rev.to_owned(), folder: folder.to_owned() })
    }
}

impl fmt::Display for GitOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, rev, folder, .. } = self;
        write!(f, "git+{url}@{rev}")?;
        if folder.is_empty() { Ok(()) } else { write!(f, "//{folder}") }
    }
}

/// Whether it can be taken for a revision only: no option, no pattern, no refspec.
fn is_rev(rev: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    edge(rev.chars().next())
        && edge(rev.chars().next_back())
        && rev.len() <= 200
        && rev.bytes().all(|c| c.is_ascii_alphanumeric() || b"._/+-".contains(&c))
        && !rev.contains("..")
}

/// The text names no package.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidOrigin(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_named_with_its_revision_and_nothing_in_it_is_an_option() {
        let parse = |text: &str| text.parse::<GitOrigin>();
        let one = parse("git+https://git.example:8443/apps/hello.git@release/v1.0.0//packages/hello/").unwrap();
        let expected = ("https", "https://git.example:8443/apps/hello.git", "release/v1.0.0", "packages/hello");
        assert_eq!((one.scheme, one.url.as_str(), one.rev.as_str(), one.folder.as_str()), expected);
        assert_eq!(one.to_string(), "git+https://git.example:8443/apps/hello.git@release/v1.0.0//packages/hello");
        assert_eq!(parse("git+file:///srv/hello@main").unwrap().url, "file:///srv/hello");
        for bad in [
            "git+https://git.example/a.git",
            "git+https://git.example@v1",
            "git+https://git.example/a.git@",
            "git+https://git.example/a.git@--upload-pack=x",
            "git+https://git.example/a.git@-v",
            "git+https://git.example/a.git@+v1:refs/heads/x",
            "git+https://git.example/a.git@v1..v2",
            "git+https://git.example/a.git@v1^",
            "git+https://git.example/a.git@refs/*",
            "git+https://git.example/a.git@v1//../x",
            "git+https://git.example/a.git@v1//a//b",
            "git+https://user:secret@git.example/a.git@v1",
            "git+https://-oProxyCommand=x/a@v1",
            "git+https:///a@v1",
            "git+file://host/a@v1",
            "git+http://git.example/a.git@v1",
            "git+ssh://git.example/a.git@v1",
            "git+ext::sh -c x@v1",
            "git+https://git.example/a b@v1",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
