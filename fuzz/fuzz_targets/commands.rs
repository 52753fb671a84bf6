//! The commands of a push: read the same however the bytes arrive, and what is reported for them can be read again. So is
//! the end of its pack, and what else comes over SSH.
#![no_main]

use fuzz::wire::commands::{Commands, MAX_BYTES, PackHead};
use fuzz::wire::pack_end::PackEnd;
use fuzz::wire::report::Report;
use fuzz::wire::ssh::{Frames, Wait, deepens, said, without_service};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for sideband in [false, true] {
        let _ = Report::parse(bytes, sideband);
    }
    over_ssh(bytes);
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

fn over_ssh(bytes: &[u8]) {
    let end = |parts: &[&[u8]]| {
        let (mut end, mut taken) = (PackEnd::new(1 << 22), 0);
        for part in parts {
            taken += end.feed(part).ok()?;
        }
        Some((taken, end.is_done()))
    };
    let (one, two) = bytes.split_at(bytes.len() / 2);
    let whole = end(&[bytes]);
    assert_eq!(whole, end(&[one, two]));
    assert!(whole.is_none_or(|(taken, done)| done || taken == bytes.len()));
    let mut frames = Frames::default();
    if let Ok(None) = frames.end(one) {
        assert_eq!(frames.end(bytes), Frames::default().end(bytes));
    }
    let _ = (Wait::parse(bytes), said(bytes), deepens(bytes));
    assert!(bytes.ends_with(without_service(bytes)));
}
