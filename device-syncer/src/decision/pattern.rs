//! Patterns of names, as a site writes them: `*` stands for anything within a part, `**` for anything.

use serde::Deserialize;

/// A pattern such as `line-*`, or `registry.plant.local/**`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Pattern(String);

/// A text that is no pattern.
#[derive(Debug, thiserror::Error)]
#[error("an empty pattern means nothing: `**` means everything")]
pub struct EmptyPattern;

impl TryFrom<String> for Pattern {
    type Error = EmptyPattern;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text.is_empty() { Err(EmptyPattern) } else { Ok(Self(text)) }
    }
}

impl Pattern {
    /// Whether it means this name, the whole of it. Parts are parted by `/`.
    pub fn means(&self, name: &str) -> bool {
        // What is left of the name behind each beginning that the pattern so far can mean.
        let mut ends = vec![0];
        let mut rest = self.0.as_str();
        while let Some(next) = rest.chars().next() {
            let (stars, length) = match rest {
                _ if rest.starts_with("**") => (Some(true), 2),
                _ if rest.starts_with('*') => (Some(false), 1),
                _ => (None, next.len_utf8()),
            };
            ends = match stars {
                Some(crosses) => anything(name, ends[0], crosses, &ends),
                None => ends.into_iter().filter(|end| name[*end..].starts_with(next)).map(|end| end + length).collect(),
            };
            if ends.is_empty() {
                return false;
            }
            rest = &rest[length..];
        }
        ends.contains(&name.len())
    }

    /// Whether it means every name that begins so.
    pub fn means_all_below(&self, beginning: &str) -> bool {
        self.0.ends_with("**") && self.means(beginning)
    }
}

/// The ends of what stars may stand for, in order, from each of these on.
fn anything(name: &str, first: usize, crosses: bool, from: &[usize]) -> Vec<usize> {
    let mut is_open = false;
    let places = (first..=name.len()).filter(|at| name.is_char_boundary(*at));
    let reached = places.filter(|at| {
        is_open = is_open && (crosses || !name[..*at].ends_with('/')) || from.binary_search(at).is_ok();
        is_open
    });
    reached.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stays_within_a_part_and_two_stars_do_not() {
        for (pattern, yes, no) in [
            ("*", vec!["", "hello", "é"], vec!["a/b", "/"]),
            ("**", vec!["", "a", "a/b/c"], vec![]),
            ("hello", vec!["hello"], vec!["hello2", "hell", "", "Hello"]),
            ("line-*", vec!["line-", "line-2"], vec!["line", "xline-2", "line-2/a"]),
            ("*-*-x", vec!["a-b-x", "--x", "a-b-c-x"], vec!["a-x", "a-b-xx"]),
            ("r.example/**", vec!["r.example/", "r.example/a/b:1@sha256:0"], vec!["r.example", "xr.example/a"]),
            ("r.example/*", vec!["r.example/a"], vec!["r.example/a/b"]),
            ("r/**/a", vec!["r/b/a", "r/b/c/a"], vec!["r/a", "r/b/ab"]),
            ("**/a*b/**", vec!["x/ab/y", "x/y/azb/z/z"], vec!["x/a/b/y", "ab/y"]),
            ("é*", vec!["é", "éà"], vec!["e"]),
        ] {
            let pattern = Pattern::try_from(pattern.to_owned()).unwrap();
            yes.iter().for_each(|name| assert!(pattern.means(name), "{pattern:?} {name}"));
            no.iter().for_each(|name| assert!(!pattern.means(name), "{pattern:?} {name}"));
        }
        assert!(Pattern::try_from(String::new()).is_err());
    }

    #[test]
    fn what_ends_in_two_stars_means_whatever_begins_so() {
        let means = |pattern: &str, name| Pattern::try_from(pattern.to_owned()).unwrap().means_all_below(name);
        for pattern in ["**", "r.example/**", "r.example/a/**", "*/a/**", "r.example**", "r.example/a/***"] {
            assert!(means(pattern, "r.example/a/"), "{pattern}");
        }
        for pattern in ["*", "r.example/a/*", "r.example/a/", "r.example/a/b**", "r.example/**/*", "**/a", "x/**"] {
            assert!(!means(pattern, "r.example/a/"), "{pattern}");
        }
    }

    #[test]
    fn many_stars_and_a_long_name_take_no_time() {
        let pattern = Pattern::try_from("*a".repeat(100) + "b").unwrap();
        assert!(!pattern.means(&"a".repeat(2000)));
    }
}
