//! The long texts that `build.rs` packs.

use std::io::Read;

use flate2::read::MultiGzDecoder;

/// A text, by the name of its file in this package.
macro_rules! packed {
    ($name:literal) => {
        $crate::config::unpack(include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".gz")))
    };
}

pub(crate) use packed;

/// The text that was packed.
///
/// # Panics
/// Never for what `build.rs` made.
pub(crate) fn unpack(gzip: &[u8]) -> String {
    let mut text = String::new();
    MultiGzDecoder::new(gzip).read_to_string(&mut text).expect("it was packed from a text");
    text
}
