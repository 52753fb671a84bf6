use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Where the kernel gives random bytes.
pub const SOURCE: &str = "/dev/urandom";

/// 256 new random bits as base64url, for a secret that is sent as text.
pub fn text() -> io::Result<String> {
    Ok(URL_SAFE_NO_PAD.encode(random()?))
}

/// 256 new random bits, from the kernel.
pub fn random() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    File::open(Path::new(SOURCE)).and_then(|mut source| source.read_exact(&mut bytes))?;
    Ok(bytes)
}
