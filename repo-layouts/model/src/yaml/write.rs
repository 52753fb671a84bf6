//! Writing YAML that no reader can misread.

use serde::Serialize;
use serde_yaml::ser_options;

/// The YAML of `value` in block style, with a final newline.
///
/// Whatever any YAML 1.1 or 1.2 reader could take for something else is quoted, keys too; a string is always one
/// line, because block scalars and folding differ between readers. The bytes depend on nothing but the value.
///
/// # Panics
/// If `value` has a map with keys that are not scalars; the types that are written have none.
pub fn to_yaml(value: &impl Serialize) -> Vec<u8> {
    let options = ser_options! { prefer_block_scalars: false, compact_list_indent: true };
    serde_yaml::to_string_with_options(value, options).expect("plain data serialises").into_bytes()
}
