//! Compression whose bytes depend on the content alone. What lies under `flate2` depends on who else is built with it,
//! so what is signed or locked by its digest is not left to it.

/// Bytes before the compressed ones: no name, no time, an unknown system (RFC 1952).
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// The level at which the most is compressed.
pub const BEST: u8 = 9;

/// A gzip stream with these bytes, at a level from 0 to [`BEST`].
pub fn compress(bytes: &[u8], level: u8) -> Vec<u8> {
    let mut gzip = HEADER.to_vec();
    if level == BEST {
        // The format wants it said.
        gzip[8] = 2;
    }
    gzip.extend(miniz_oxide::deflate::compress_to_vec(bytes, level));
    gzip.extend(crc32fast::hash(bytes).to_le_bytes());
    // The length modulo 2^32, as the format has it.
    gzip.extend((bytes.len() as u32).to_le_bytes());
    gzip
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;
    use proptest::prelude::*;

    use super::*;
    use crate::Digest;

    #[test]
    fn the_bytes_are_always_the_same() {
        let text: String = (0..2000).map(|number| format!("line {number}\n")).collect();
        let digest = |level| Digest::of(&compress(text.as_bytes(), level)).to_string();
        assert_eq!(digest(6), "sha256:fb8778c93d58833c8249f0f4334f766af90fa8d0d3d0035ec99c26174550ea95");
        assert_eq!(digest(BEST), "sha256:cd8ee60015c42198c6bd8ba6174a67d71cd38b46b915ebedd4c0d921762d0ace");
    }

    proptest! {
        #[test]
        fn what_is_compressed_comes_back(bytes: Vec<u8>, level in 0..=BEST) {
            let mut back = Vec::new();
            GzDecoder::new(compress(&bytes, level).as_slice()).read_to_end(&mut back).unwrap();
            prop_assert_eq!(back, bytes);
        }
    }
}
