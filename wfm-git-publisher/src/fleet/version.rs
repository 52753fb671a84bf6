//! Which of two versions of a package is newer: as SemVer says, and in some order where they are none.

use std::cmp::Ordering;

/// Compares two versions (SemVer 2.0.0, *Precedence*); what is no number is compared as text.
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    let parts = |version: &str| {
        let version = version.split('+').next().unwrap_or(version).to_owned();
        match version.split_once('-') {
            Some((core, before)) => (core.to_owned(), Some(before.to_owned())),
            None => (version, None),
        }
    };
    let ((core_a, before_a), (core_b, before_b)) = (parts(a), parts(b));
    let before = match (&before_a, &before_b) {
        (Some(a), Some(b)) => compare_parts(a, b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    };
    compare_parts(core_a.trim_start_matches('v'), core_b.trim_start_matches('v')).then(before).then_with(|| a.cmp(b))
}

/// Numbers come before text, and fewer parts before more.
fn compare_parts(a: &str, b: &str) -> Ordering {
    let key = |part: &str| match part.parse::<u64>() {
        Ok(number) => (false, number, String::new()),
        Err(_) => (true, 0, part.to_owned()),
    };
    a.split('.').map(key).cmp(b.split('.').map(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_semver_says() {
        let ordered = [
            "0.9.0",
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc.1",
            "1.0.0",
            "1.0.1+build",
            "1.2.0",
            "v1.9.0",
            "1.10.0",
            "2",
            "2.0.1",
            "latest",
        ];
        for (index, a) in ordered.iter().enumerate() {
            for b in &ordered[index + 1..] {
                assert_eq!(
                    (compare_versions(a, b), compare_versions(b, a)),
                    (Ordering::Less, Ordering::Greater),
                    "{a} {b}"
                );
            }
        }
        assert_eq!(compare_versions("1.0.0", "1.0.0"), Ordering::Equal);
    }
}
