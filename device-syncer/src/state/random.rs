use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Where the kernel gives random bytes.
pub const SOURCE: &str = "/dev/urandom";

/// 256 new random bits, from the kernel.
pub fn random() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    File::open(Path::new(SOURCE)).and_then(|mut source| source.read_exact(&mut bytes))?;
    Ok(bytes)
}
