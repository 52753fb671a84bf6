//! The one JSON form that is written: RFC 8785 key order and a final newline.

use serde::Serialize;

/// The bytes of `value` in RFC 8785 order, with a final newline.
///
/// # Panics
/// Never for the types of this crate: they hold neither NaN nor maps with keys that are not strings.
pub fn to_bytes(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = canonical(value);
    bytes.push(b'\n');
    bytes
}

/// The RFC 8785 bytes themselves, as digests of values use them.
pub fn canonical(value: &impl Serialize) -> Vec<u8> {
    serde_json_canonicalizer::to_vec(value).expect("plain data serialises")
}
