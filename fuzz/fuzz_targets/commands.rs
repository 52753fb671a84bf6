//! The commands of a push: read the same however the bytes arrive, and what is reported for them can be read again.
#![no_main]

use fuzz::wire::commands::{Commands, MAX_BYTES, PackHead};
use fuzz::wire::report::Report;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for sideband in [false, true] {
        let _ = Report::parse(bytes, sideband);
    }
    let Ok(Some((head, length))) = Commands::parse(bytes) else { return };
    assert!(length <= bytes.len() && length <= MAX_BYTES + 65520);
    assert_eq!(Commands::parse(&bytes[..length]), Ok(Some((head.clone(), length))));
    assert!(length == 0 || !matches!(Commands::parse(&bytes[..length - 1]), Ok(Some(_))));
    for command in &head.commands {
        assert!(command.name.starts_with("refs/") && !command.name.contains(|c: char| c.is_ascii_control() || c == ' '));
        assert!(command.old.is_some() || command.new.is_some());
    }
    let _ = PackHead::parse(&bytes[length..]);
    let written = Report::refused(&head, "no\nnever").write(&head);
    let sideband = head.can("side-band-64k") || head.can("side-band");
    if let Ok(read) = Report::parse(&written, sideband) {
        assert_eq!(read.refs.len(), head.commands.len());
        assert!(head.commands.is_empty() || !read.is_good());
    }
});
