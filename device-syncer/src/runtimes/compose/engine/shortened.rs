//! JSON with every text cut, as it comes: what an application writes into a label is of any length, and none of it is kept
//! that isn't needed.

use std::io::{self, Read};

/// Passes JSON on, and of each text no more than `limit` bytes, as they are written, and the rest of the character that is
/// begun. The engine writes no surrogate pairs (Go's `encoding/json`), between whose halves a text couldn't be cut.
pub(super) struct Shortened<R> {
    inner: R,
    limit: usize,
    text: Option<Text>,
}

/// A text that is being read.
#[derive(Default)]
struct Text {
    kept: usize,
    is_cut: bool,
    escape: Escape,
}

/// Where in an escape the next byte is.
#[derive(Default, Clone, Copy)]
enum Escape {
    #[default]
    None,
    Begun,
    /// So many hex digits still come.
    Hex(u8),
}

impl<R> Shortened<R> {
    pub(super) fn new(inner: R, limit: usize) -> Self {
        Self { inner, limit, text: None }
    }

    fn keeps(&mut self, byte: u8) -> bool {
        match &mut self.text {
            None if byte == b'"' => self.text = Some(Text::default()),
            None => {}
            Some(text) if text.ends(byte) => self.text = None,
            Some(text) => return text.keeps(byte, self.limit),
        }
        true
    }
}

impl Text {
    fn ends(&self, byte: u8) -> bool {
        matches!(self.escape, Escape::None) && byte == b'"'
    }

    fn keeps(&mut self, byte: u8, limit: usize) -> bool {
        let begins_a_character = matches!(self.escape, Escape::None) && byte & 0xc0 != 0x80;
        self.is_cut |= begins_a_character && self.kept >= limit;
        self.escape = match (self.escape, byte) {
            (Escape::None, b'\\') => Escape::Begun,
            (Escape::Begun, b'u') => Escape::Hex(4),
            (Escape::Hex(left @ 2..), _) => Escape::Hex(left - 1),
            _ => Escape::None,
        };
        self.kept += usize::from(!self.is_cut);
        !self.is_cut
    }
}

impl<R: Read> Read for Shortened<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.inner.read(buffer)?;
            let mut kept = 0;
            for at in 0..read {
                if self.keeps(buffer[at]) {
                    buffer[kept] = buffer[at];
                    kept += 1;
                }
            }
            if kept > 0 || read == 0 {
                return Ok(kept);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Gives a few bytes at a time.
    struct Slowly<'a>(&'a [u8], usize);

    impl Read for Slowly<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let most = self.1.min(buffer.len());
            self.0.read(&mut buffer[..most])
        }
    }

    fn shortened(json: &str, limit: usize, step: usize) -> String {
        let mut text = String::new();
        Shortened::new(Slowly(json.as_bytes(), step), limit).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn a_text_is_cut_between_two_characters_and_all_else_is_left() {
        for (json, expected) in [
            (
                r#"{"abcdef": [1234567, "", "abc", "abcd"], "b": null}"#,
                r#"{"abc": [1234567, "", "abc", "abc"], "b": null}"#,
            ),
            (r#"["ab\"\\\"d", "\u003c\u003c"]"#, r#"["ab\"", "\u003c"]"#),
            (r#"["aäöü", "äöü"]"#, r#"["aä", "äö"]"#),
        ] {
            for step in 1..8 {
                assert_eq!(shortened(json, 3, step), expected, "{step} bytes at a time");
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_left_is_json_with_the_beginnings_of_the_same_texts(
            texts in proptest::collection::vec(any::<String>(), 0..8), limit in 0..20_usize, step in 1..20_usize,
        ) {
            let json = serde_json::to_string(&texts).unwrap();
            let left: Vec<String> = serde_json::from_str(&shortened(&json, limit, step)).unwrap();
            prop_assert_eq!(left.len(), texts.len());
            for (left, text) in left.iter().zip(&texts) {
                prop_assert!(text.starts_with(left.as_str()));
                // No character takes more than six bytes.
                prop_assert!(left.len() < limit + 6 && (left == text || left.len() * 6 >= limit));
            }
        }

        #[test]
        fn bytes_that_are_no_json_are_passed_on_or_cut_and_nothing_else(
            bytes in proptest::collection::vec(any::<u8>(), 0..200), limit in 0..20_usize,
        ) {
            let mut left = Vec::new();
            Shortened::new(bytes.as_slice(), limit).read_to_end(&mut left).unwrap();
            let mut rest = bytes.iter();
            prop_assert!(left.iter().all(|byte| rest.any(|one| one == byte)));
        }
    }
}
