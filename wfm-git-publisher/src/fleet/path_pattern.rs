//! Patterns of paths: `fleet.yaml`, `devices/graz`, `devices/*.yaml`, `applications/*/margo.yaml`, `**`.
//!
//! `*` is any part of one name, `**` any number of names. A pattern that ends in a plain name is that file, or all that is
//! below that directory.

use std::fmt;
use std::str::FromStr;

/// The most bytes of a pattern.
const MAX_BYTES: usize = 500;

/// A pattern of paths from the fleet's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern(Vec<Name>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Name {
    /// Any number of names, also none.
    Any,
    /// One name, in which `*` stands for anything.
    One(String),
}

/// The text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no pattern of paths: names with `/` between them, `*` for any part of a name, `**` for any number of names"
)]
pub struct InvalidPattern(String);

impl FromStr for PathPattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        let invalid = || InvalidPattern(text.chars().take(100).collect());
        // What other tools give a meaning to is refused: nobody shall believe that it has one here.
        if text.len() > MAX_BYTES || text.contains(|c: char| c.is_control() || "?[]{}!\\\u{fffd}".contains(c)) {
            return Err(invalid());
        }
        let name = |name: &str| match name {
            "**" => Some(Name::Any),
            "" | "." | ".." => None,
            name if name.contains("**") => None,
            name => Some(Name::One(name.to_owned())),
        };
        text.split('/').map(name).collect::<Option<_>>().map(Self).ok_or_else(invalid)
    }
}

impl PathPattern {
    /// Whether a path is one of those; also that of a link that stands where `x/**` says that a directory is.
    pub fn fits(&self, path: &str) -> bool {
        let path: Vec<_> = path.split('/').collect();
        let whole = |length: usize| wild(&self.0, &path[..length], |name| *name == Name::Any, one);
        let ends_plain = matches!(self.0.last(), Some(Name::One(name)) if !name.contains('*'));
        whole(path.len()) || ends_plain && (1..path.len()).any(whole)
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|name| match name {
            Name::Any => "**",
            Name::One(name) => name,
        });
        f.write_str(&names.collect::<Vec<_>>().join("/"))
    }
}

fn one(pattern: &Name, name: &&str) -> bool {
    let Name::One(pattern) = pattern else { return false };
    wild(pattern.as_bytes(), name.as_bytes(), |byte| *byte == b'*', |a, b| a == b)
}

/// Whether a pattern with items that stand for any number of others fits all of `text`, in at most their lengths' product
/// of steps: of what fits, only the last such item is ever tried further.
fn wild<P, T>(pattern: &[P], text: &[T], is_any: impl Fn(&P) -> bool, fits: impl Fn(&P, &T) -> bool) -> bool {
    let (mut at, mut next, mut retry) = (0, 0, None);
    while next < text.len() {
        match pattern.get(at) {
            Some(item) if is_any(item) => {
                retry = Some((at, next));
                at += 1;
            }
            Some(item) if fits(item, &text[next]) => (at, next) = (at + 1, next + 1),
            _ => {
                let Some((any, from)) = retry else { return false };
                retry = Some((any, from + 1));
                (at, next) = (any + 1, from + 1);
            }
        }
    }
    pattern[at..].iter().all(is_any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_names_and_not_their_beginnings() {
        let cases: [(&str, &[&str], &[&str]); 9] = [
            ("**", &["a", "a/b/c"], &[]),
            ("fleet.yaml", &["fleet.yaml"], &["x/fleet.yaml", "fleet.yaml2", "fleet"]),
            ("devices/**", &["devices", "devices/a", "devices/a/b"], &["device", "devices2/a", "x/devices/a"]),
            ("devices/graz", &["devices/graz", "devices/graz/a.yaml"], &["devices/graz2/a", "devices"]),
            ("devices/*", &["devices/a.yaml"], &["devices", "devices/a/b"]),
            (
                "devices/gr*-*.yaml",
                &["devices/graz-1.yaml", "devices/gr-.yaml"],
                &["devices/graz.yaml", "devices/a/graz-1.yaml"],
            ),
            ("**/margo.yaml", &["margo.yaml", "a/b/margo.yaml"], &["a/margo.yml", "a/xmargo.yaml"]),
            ("a/**/b/**/c", &["a/b/c", "a/x/b/y/z/c", "a/b/b/c/c"], &["a/c", "a/b/d"]),
            ("*", &["a"], &["a/b"]),
        ];
        for (pattern, fits, others) in cases {
            let parsed: PathPattern = pattern.parse().unwrap();
            assert_eq!(parsed.to_string(), pattern);
            fits.iter().for_each(|path| assert!(parsed.fits(path), "{pattern} {path}"));
            others.iter().for_each(|path| assert!(!parsed.fits(path), "{pattern} {path}"));
        }
        for bad in ["", "/a", "a/", "a//b", "../a", "a**", "a?", "[ab]", "!a", "{a,b}", "a\\b", &"a/".repeat(300)] {
            assert!(bad.parse::<PathPattern>().is_err(), "{bad}");
        }
        // What takes exponential time in a simple matcher.
        let slow: PathPattern = ["**/*a*a*a*a*b"; 20].join("/").parse().unwrap();
        assert!(!slow.fits(&["a".repeat(100).as_str(); 40].join("/")));
    }
}
