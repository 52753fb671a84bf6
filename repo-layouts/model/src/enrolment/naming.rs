//! What tells a device of a batch from the others, of what it says of itself.

use super::symbols::Symbols;
use crate::{Digest, KeyText};

/// What vendors write where a serial number should be, in lower case and without anything but letters and digits.
const PLACEHOLDERS: [&str; 12] = [
    "tobefilledbyoem",
    "defaultstring",
    "systemserialnumber",
    "serialnumber",
    "notspecified",
    "notapplicable",
    "unknown",
    "none",
    "na",
    "oem",
    "invalid",
    "123456789",
];

/// By what a device is told from the others of its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedBy {
    Serial,
    /// Its serial number is none.
    Mac,
    /// Nor has it a MAC address.
    Key,
}

/// The part of a device's id that is its own: its serial number, else its MAC address, else 60 bits of its key's digest.
/// Whatever can't stand in an id is a dash.
pub fn own_name(serial: Option<&str>, mac: Option<&str>, key: &KeyText) -> (String, NamedBy) {
    if let Some(serial) = serial.filter(|serial| !is_placeholder(serial)) {
        return (
            serial.trim().replace(|c: char| !(c.is_ascii_alphanumeric() || "._~-".contains(c)), "-"),
            NamedBy::Serial,
        );
    }
    let mac: Option<String> = mac.map(|mac| mac.chars().filter(char::is_ascii_hexdigit).collect());
    if let Some(mac) = mac.filter(|mac| mac.len() == 12 && mac.bytes().any(|c| c != b'0')) {
        return (mac.to_ascii_lowercase(), NamedBy::Mac);
    }
    let key = Symbols::<12>::of_digest(&Digest::of(key.as_str().as_bytes())).to_string();
    (key.replace('-', "").to_ascii_lowercase(), NamedBy::Key)
}

/// Whether a serial number is what vendors write in the place of one: a word for none, or one character again and again.
pub fn is_placeholder(serial: &str) -> bool {
    let text: String = serial.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    let first = text.chars().next();
    text.len() < 2 || PLACEHOLDERS.contains(&text.as_str()) || text.chars().all(|c| Some(c) == first)
}
