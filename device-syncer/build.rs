//! Packs the long texts that the program prints or writes once in a device's life: the static program has to stay small.
#![allow(clippy::disallowed_methods, reason = "what a build makes, it makes again")]

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::{env, fs};

use flate2::Compression;
use flate2::write::GzEncoder;

const TEXTS: [&str; 3] = ["device.sample.yaml", "device.schema.json", "output.schema.json"];

fn main() -> Result<(), Box<dyn Error>> {
    let to = env::var("OUT_DIR")?;
    for name in TEXTS {
        println!("cargo::rerun-if-changed={name}");
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(&fs::read(name)?)?;
        fs::write(Path::new(&to).join(name).with_added_extension("gz"), gzip.finish()?)?;
    }
    Ok(())
}
