//! Whatever an archive's `compose.yaml` and `.env` say, finding its images ends, and gives short names.
#![no_main]

use std::collections::BTreeMap;

use flate2::Compression;
use flate2::write::GzEncoder;
use libfuzzer_sys::fuzz_target;
use repo_artifacts::{Archive, Images, Limits};

/// The compose file, the `.env` file and an included one, with a byte 0 between them.
const FILES: [&str; 3] = ["compose.yaml", ".env", "more.yaml"];

fn archive(bytes: &[u8]) -> Archive {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::none()));
    for (name, content) in FILES.iter().zip(bytes.splitn(FILES.len(), |byte| *byte == 0)) {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, format!("application/{name}"), content).expect("a file");
    }
    let gzip = tar.into_inner().and_then(GzEncoder::finish).expect("an archive");
    Archive::read(&gzip, &Limits::default()).expect("it is small, and its names are plain")
}

fuzz_target!(|bytes: &[u8]| {
    let images = Images::of(&archive(bytes));
    let variables = [("A", Some("a".repeat(100))), ("B", Some(String::new())), ("C", None)];
    let variables: BTreeMap<_, _> = variables.map(|(name, value)| (name.to_owned(), value)).into();
    for names in [images.names(&BTreeMap::new()), images.names(&variables)] {
        assert!(names.iter().all(|name| !name.is_empty() && name.len() <= 4096), "{names:?}");
    }
    let kept = serde_json::to_string(&images).expect("JSON");
    assert_eq!(serde_json::from_str::<Images>(&kept).expect("the same"), images);
});
