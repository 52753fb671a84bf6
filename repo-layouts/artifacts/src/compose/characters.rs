//! Which characters a file may have that Compose parses: those that every reader takes for the same.
//!
//! YAML 1.1, which Compose reads, ends a line at U+0085, U+2028, U+2029 and a lone CR; YAML 1.2 doesn't at the first
//! three, and readers of variables end it at LF alone. Other control characters end a text for some of them, or are
//! blanks. YAML's own list of printable characters (1.2, 5.1) leaves those out.

/// Refuses the first character that isn't allowed; the error names file, line and character.
pub(super) fn check(file: &str, text: &str) -> Result<(), String> {
    // Editors put one byte order mark at the beginning, and readers drop it.
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text).chars().peekable();
    let mut line = 1;
    while let Some(c) = rest.next() {
        line += usize::from(c == '\n');
        let is_crlf = c == '\r' && rest.peek() == Some(&'\n');
        if !is_crlf && !is_allowed(c) {
            let why = match c {
                '\r' | '\u{85}' | '\u{2028}' | '\u{2029}' => "ends a line for some readers and not for others",
                _ => "isn't the same for all readers",
            };
            return Err(format!(
                "{file}:{line}: the character U+{:04X} {why}: leave it out, or write it as an escape",
                u32::from(c)
            ));
        }
    }
    Ok(())
}

fn is_allowed(c: char) -> bool {
    let is_printable = matches!(c, '\t' | '\n' | ' '..='~' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..);
    is_printable && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_readers_take_differently_is_refused_with_file_line_and_character() {
        for (c, name) in [
            ('\r', "U+000D"),
            ('\u{85}', "U+0085"),
            ('\u{2028}', "U+2028"),
            ('\u{2029}', "U+2029"),
            ('\0', "U+0000"),
            ('\u{b}', "U+000B"),
            ('\u{c}', "U+000C"),
            ('\u{1b}', "U+001B"),
            ('\u{7f}', "U+007F"),
            ('\u{9f}', "U+009F"),
            ('\u{feff}', "U+FEFF"),
            ('\u{fffe}', "U+FFFE"),
        ] {
            let problem = check("a/b.yaml", &format!("a: 1\r\nb: 2 # {c}x\n")).unwrap_err();
            assert!(problem.starts_with("a/b.yaml:2: ") && problem.contains(name), "{problem}");
        }
        assert!(check("x", "a\r").is_err() && check("x", "\r\r\n").is_err());
    }

    #[test]
    fn ordinary_text_of_any_language_passes() {
        assert_eq!(check("x", "\u{feff}a:\t1\r\nb: Grüße 😀 日本語\u{a0}\u{200d}\u{fffd}~\n"), Ok(()));
    }
}
