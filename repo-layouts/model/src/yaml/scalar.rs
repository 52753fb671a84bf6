//! What a plain scalar means: YAML 1.2's core schema, and whether every reader would agree.

/// Whose file it is, and thus how much may be left to the reader of a plain scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// The fleet's own file: a plain scalar that two readers of YAML could take for different things is an error.
    Fleet,
    /// A vendor's file: it is read by YAML 1.2's core schema, with a warning.
    Vendor,
}

/// A plain scalar, read by YAML 1.2's core schema (YAML 1.2.2 §10.3.2).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Plain {
    /// `null`, `~` or nothing.
    Null,
    /// `true` or `false`.
    Boolean(bool),
    /// Decimal, `0o` or `0x`.
    Integer(i128),
    /// An integer of more than 128 bits.
    HugeInteger,
    /// Decimal with a fraction or exponent, an infinity or not-a-number.
    Double(f64),
    /// What no other rule of the core schema matches.
    String,
}

impl Plain {
    /// What it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Boolean(_) => "a boolean",
            Self::Integer(_) | Self::HugeInteger => "an integer",
            Self::Double(_) => "a number",
            Self::String => "a string",
        }
    }
}

/// Reads a plain scalar by YAML 1.2's core schema.
pub fn resolve(text: &str) -> Plain {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Plain::Null,
        "true" | "True" | "TRUE" => return Plain::Boolean(true),
        "false" | "False" | "FALSE" => return Plain::Boolean(false),
        ".nan" | ".NaN" | ".NAN" => return Plain::Double(f64::NAN),
        _ => {}
    }
    integer(text).or_else(|| double(text)).unwrap_or(Plain::String)
}

fn integer(text: &str) -> Option<Plain> {
    let (digits, radix) = match text.split_at_checked(2) {
        Some(("0o", digits)) => (digits, 8),
        Some(("0x", digits)) => (digits, 16),
        _ => (text.strip_prefix(['+', '-']).unwrap_or(text), 10),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let signed = if radix == 10 { text } else { digits };
    Some(i128::from_str_radix(signed, radix).map_or(Plain::HugeInteger, Plain::Integer))
}

fn double(text: &str) -> Option<Plain> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if let ".inf" | ".Inf" | ".INF" = unsigned {
        let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
        return Some(Plain::Double(sign * f64::INFINITY));
    }
    // Rust also reads `inf`, `infinity` and `nan`, which are strings here.
    let numeric = text.bytes().all(|c| c.is_ascii_digit() || b"+-.eE".contains(&c));
    let digit_first = unsigned.trim_start_matches('.').starts_with(|c: char| c.is_ascii_digit());
    let value = text.parse().ok().filter(|_| numeric && digit_first)?;
    Some(Plain::Double(value))
}

/// Whether some reader of YAML 1.1 or 1.2 takes this plain text for anything but a string, such as `yes`, `1:30`,
/// `2020-01-01`, `1_000`, `=` or `<<`: what [`to_yaml`](super::to_yaml) would quote, except versions and addresses.
pub fn is_ambiguous(text: &str) -> bool {
    !is_dotted(text) && super::to_yaml(&text) != [text.as_bytes(), b"\n"].concat()
}

/// `1.2.3` or `192.168.0.1`: a float by the letter of YAML 1.1's pattern, but no reader takes it for one.
fn is_dotted(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
    text.split('.').count() > 2 && text.split('.').all(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_schema_is_read_as_specified() {
        for text in ["", "~", "null", "Null", "NULL"] {
            assert_eq!(resolve(text), Plain::Null, "{text}");
        }
        for (text, value) in [("0", 0), ("-7", -7), ("+1", 1), ("012", 12), ("0o10", 8), ("0x1F", 31), ("-0", 0)] {
            assert_eq!(resolve(text), Plain::Integer(value), "{text}");
        }
        for (text, value) in [("1.10", 1.1), (".5", 0.5), ("5.", 5.0), ("1e3", 1000.0), ("-1.5E-2", -0.015)] {
            assert_eq!(resolve(text), Plain::Double(value), "{text}");
        }
        assert_eq!(resolve("-.inf"), Plain::Double(f64::NEG_INFINITY));
        assert!(matches!(resolve(".nan"), Plain::Double(value) if value.is_nan()));
        assert_eq!(resolve(&"9".repeat(40)), Plain::HugeInteger);
        for text in [
            "yes",
            "nULL",
            "tRue",
            "1_000",
            "1:30",
            "0x",
            "0o8",
            "0b1",
            "-0x1F",
            "+",
            "-",
            ".",
            "..5",
            "1.2.3",
            "inf",
            "nan",
            "infinity",
            "e3",
            "1e",
            "1e+",
            "2020-01-01",
            "=",
            "<<",
            "0xg",
            "+.nan",
            "1 ",
            "é",
            "éé",
        ] {
            assert_eq!(resolve(text), Plain::String, "{text}");
        }
    }

    #[test]
    fn text_that_any_reader_could_take_for_something_else_is_ambiguous() {
        for text in [
            "yes",
            "Yes",
            "YES",
            "no",
            "on",
            "off",
            "y",
            "n",
            "true",
            "null",
            "~",
            "",
            "1_000",
            "1:30",
            "12:30:45",
            "2020-01-01",
            "=",
            "<<",
            "0b1",
            "007",
            "1e3",
            ".inf",
            "nan",
            "1.2.",
            "1",
        ] {
            assert!(is_ambiguous(text), "{text}");
        }
        for text in ["hello", "1.2.3-rc", "a:b", "x=y", "yesterday", "https://a/b", "SID-123-ABC", "Some One", "2.3.7"]
        {
            assert!(!is_ambiguous(text), "{text}");
        }
    }
}
