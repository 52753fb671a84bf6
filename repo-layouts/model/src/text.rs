//! Text that a stranger wrote, made harmless for a person's terminal, log or review.
//!
//! What can't be seen, or steers a terminal, is written as `\u{…}`, so that nothing is hidden either: control characters
//! and escapes, line breaks, marks that turn the direction of writing, characters without width, spaces that look like
//! another one. Text of any script stays as it is. Doing it twice changes nothing.

use std::fmt::Write as _;
use std::io;

/// The most characters of one line that are shown.
const MAX_CHARS: usize = 1000;

/// The most lines of one text that are shown.
const MAX_LINES: usize = 100;

/// The most marks upon one letter: more than any script needs, too few to cover the lines above and below.
const MAX_MARKS: usize = 4;

/// Before each line of a text but its first.
const INDENT: &str = "    ";

/// Letters and symbols that leave the place blank in which they stand.
const BLANK: [char; 5] = ['\u{115f}', '\u{1160}', '\u{2800}', '\u{3164}', '\u{ffa0}'];

/// One line of visible text: what is hidden is escaped, and what is too long ends in `…`.
pub fn line(text: &str) -> String {
    if is_plain(text) && text.len() <= MAX_CHARS {
        return text.to_owned();
    }
    let (mut line, mut marks) = (String::new(), MAX_MARKS);
    for (count, c) in text.chars().enumerate() {
        if count == MAX_CHARS {
            return line + "…";
        }
        marks = match kind(c) {
            Kind::Mark if marks < MAX_MARKS => marks + 1,
            Kind::Visible => 0,
            Kind::Mark | Kind::Hidden => {
                line.extend(escaped(c));
                continue;
            }
        };
        line.push(c);
    }
    line
}

/// One line of visible text for a table, whose columns are told apart by more than one space.
pub fn cell(text: &str) -> String {
    line(text).split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Visible text with the line breaks that it has. Each line but the first is indented, and so can't be taken for one
/// that this program wrote.
pub fn lines(text: &str) -> String {
    let mut all = text.trim_end().lines();
    let mut shown = all.by_ref().take(MAX_LINES).map(line).collect::<Vec<_>>().join(&format!("\n{INDENT}"));
    if all.next().is_some() {
        let _ = write!(shown, "\n{INDENT}…");
    }
    shown
}

/// A page that this program wrote, with line breaks and tabs as they are.
pub fn page(text: &str) -> String {
    by_line(text, |page, c| match kind(c) {
        Kind::Hidden if !matches!(c, '\n' | '\t') => page.extend(escaped(c)),
        _ => page.push(c),
    })
}

/// Writes what this program logs in JSON by way of [`json`]. Each event has to come in one piece.
#[derive(Debug)]
pub struct Harmless<W>(pub W);

impl<W: io::Write> io::Write for Harmless<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.0.write_all(json(&String::from_utf8_lossy(event)).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The same JSON, with nothing in it that steers a terminal: what can't be seen is `\uXXXX`, which means the same.
pub fn json(json: &str) -> String {
    by_line(json, |text, c| match kind(c) {
        Kind::Hidden if c != '\n' => {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| _ = write!(text, "\\u{unit:04x}"));
        }
        _ => text.push(c),
    })
}

/// Adds character by character; lines of plain ASCII, as most are, at once.
fn by_line(text: &str, add: impl Fn(&mut String, char)) -> String {
    let mut all = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        if is_plain(line.strip_suffix('\n').unwrap_or(line)) {
            all.push_str(line);
        } else {
            line.chars().for_each(|c| add(&mut all, c));
        }
    }
    all
}

fn is_plain(text: &str) -> bool {
    text.bytes().all(|c| matches!(c, b' '..=b'~'))
}

enum Kind {
    Visible,
    /// It is written upon the letter before it.
    Mark,
    Hidden,
}

fn kind(c: char) -> Kind {
    match c {
        ' '..='~' => Kind::Visible,
        c if BLANK.contains(&c) => Kind::Hidden,
        c if c.escape_debug().len() == 1 => Kind::Visible,
        // Rust escapes marks only where they have no letter.
        c if format!("a{c}").escape_debug().count() == 2 => Kind::Mark,
        _ => Kind::Hidden,
    }
}

fn escaped(c: char) -> impl Iterator<Item = char> {
    let known = matches!(c, '\n' | '\r' | '\t').then(|| c.escape_debug());
    let unknown = known.is_none().then(|| c.escape_unicode());
    known.into_iter().flatten().chain(unknown.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_steers_a_terminal_or_hides_is_shown_as_it_is_written() {
        for (text, shown) in [
            ("\u{1b}[2J\u{7}x", r"\u{1b}[2J\u{7}x"),
            ("a\r\nb\tc", r"a\r\nb\tc"),
            ("\u{9b}31m\u{85}\u{7f}", r"\u{9b}31m\u{85}\u{7f}"),
            (
                "\u{202e}gpj\u{202c}\u{2066}\u{2069}\u{200e}\u{200f}\u{61c}",
                r"\u{202e}gpj\u{202c}\u{2066}\u{2069}\u{200e}\u{200f}\u{61c}",
            ),
            ("a\u{200b}\u{200c}\u{200d}\u{2060}\u{feff}\u{ad}b", r"a\u{200b}\u{200c}\u{200d}\u{2060}\u{feff}\u{ad}b"),
            ("a\u{2028}b\u{2029}c\u{a0}\u{3000}", r"a\u{2028}b\u{2029}c\u{a0}\u{3000}"),
            ("\u{e0041}\u{3164}\u{2800}\u{fff9}", r"\u{e0041}\u{3164}\u{2800}\u{fff9}"),
            ("\u{301}a", r"\u{301}a"),
        ] {
            assert_eq!(line(text), shown);
            assert_eq!(line(shown), shown);
        }
        assert_eq!(
            line("a\u{301}\u{302}\u{303}\u{304}\u{305}\u{306}"),
            "a\u{301}\u{302}\u{303}\u{304}\\u{305}\\u{306}"
        );
    }

    #[test]
    fn text_of_any_script_stays_as_it_is() {
        for text in
            ["it's `x` \"y\" \\z", "Größe → 3 µm²", "e\u{301}te\u{301}", "日本語", "สวัสดีชั้น", "नमस्ते", "עברית", "🚀"]
        {
            assert_eq!(line(text), text);
            assert_eq!(page(text), text);
            assert_eq!(json(text), text);
        }
    }

    #[test]
    fn long_text_is_cut() {
        assert_eq!(line(&"x".repeat(1 << 20)), "x".repeat(MAX_CHARS) + "…");
        assert_eq!(lines(&"x\n".repeat(1 << 20)).lines().count(), MAX_LINES + 1);
    }

    #[test]
    fn no_cell_looks_like_two_and_no_line_like_one_of_ours() {
        assert_eq!(cell("ok  \n press-02   installed "), r"ok \n press-02 installed");
        assert_eq!(
            lines("git said\nerror: all is well\r\nhint: run this\n"),
            "git said\n    error: all is well\n    hint: run this"
        );
        assert_eq!(page("a\tb\n\u{1b}c\r\n"), "a\tb\n\\u{1b}c\\r\n");
    }

    proptest! {
        #[test]
        fn json_means_the_same_and_steers_nothing(text in any::<String>()) {
            let shown = json(&serde_json::to_string_pretty(&[&text]).unwrap());
            prop_assert!(!shown.chars().any(|c| c != '\n' && c.is_control()));
            prop_assert_eq!(serde_json::from_str::<Vec<String>>(&shown).unwrap(), vec![text]);
        }

        #[test]
        fn a_line_is_one_line_and_nothing_in_it_is_hidden(text in any::<String>()) {
            let shown = line(&text);
            prop_assert!(!shown.chars().any(|c| matches!(kind(c), Kind::Hidden)));
            prop_assert_eq!(line(&shown).len() <= shown.len() + 3, true);
        }
    }
}
