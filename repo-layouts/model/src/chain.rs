//! An error and what lies under it, in one line.

use std::error::Error;

/// An error's text and those of all its causes, joined by `: `. A text that ends with its cause's isn't followed by it.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(&format!(": {cause_text}"));
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_is_named_once_from_the_outside_in() {
        let inner = std::io::Error::other("no room");
        let outer = std::io::Error::other(Outer(inner));
        assert_eq!(error_chain(&outer), "cannot write: no room");
        let passed_on = Outer(std::io::Error::other("cannot write"));
        assert_eq!(error_chain(&passed_on), "cannot write");
    }

    #[derive(Debug)]
    struct Outer(std::io::Error);

    impl std::fmt::Display for Outer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("cannot write")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }
}
