//! Whatever a stranger sends, the readers of the wire neither panic nor grow; what they accept, they read back.

use proptest::prelude::*;

use super::commands::{Commands, PackHead};
use super::pktline::{FLUSH, MAX_DATA, all, first, write};
use super::report::{Report, one_line};
use super::upload::Request;
use super::{Malformed, object_name, path};

/// Bytes that look a little like the protocol, so that more than the first check is met.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        any::<Vec<u8>>(),
        "command=(ls-refs|fetch|object-info)\n?".prop_map(String::into_bytes),
        "(want|have|shallow|ref-prefix|agent=) ?[0-9a-f]{0,41}\n?".prop_map(String::into_bytes),
        "[0-9a-f]{40} [0-9a-f]{40} refs/heads/[a-z]{1,8}(\\x00[a-z -]{0,20})?\n?".prop_map(String::into_bytes),
        "(unpack|ok|ng) [a-z/ ]{0,30}\n?".prop_map(String::into_bytes),
    ];
    let frame = prop_oneof![
        8 => line.prop_map(|line| {
            let mut out = Vec::new();
            write(&mut out, &line);
            out
        }),
        1 => Just(FLUSH.to_vec()),
        1 => Just(b"0001".to_vec()),
        1 => any::<Vec<u8>>(),
    ];
    prop::collection::vec(frame, 0..20).prop_map(|frames| frames.concat())
}

proptest! {
    #[test]
    fn no_bytes_make_the_readers_panic(bytes in bytes(), is_v2: bool, sideband: bool) {
        let _ = first(&bytes);
        let frames = all(&bytes).count();
        prop_assert!(frames <= bytes.len() / 4 + 1);
        let _ = PackHead::parse(&bytes);
        if let Ok(Some((commands, taken))) = Commands::parse(&bytes) {
            prop_assert!(taken <= bytes.len());
            prop_assert!(commands.commands.iter().all(|one| one.name.starts_with("refs/")));
        }
        if let Ok(Request::Fetch(wants)) = Request::parse(&bytes, is_v2) {
            prop_assert!(wants.len() * 45 <= bytes.len());
        }
        if let Ok(report) = Report::parse(&bytes, sideband) {
            prop_assert!(report.messages.len() <= bytes.len() * 3);
        }
        let _ = object_name(&bytes);
    }

    #[test]
    fn no_path_leaves_the_home(path in "(/devices/|/fleet.git/|/control.git/|)[a-z0-9./%_\\\\-]{0,40}(\\.git/info/refs|/wait|)",
                               query in proptest::option::of("[a-z=&0-9-]{0,60}")) {
        for query in [query.as_deref(), Some("service=git-upload-pack")] {
            if let Some((target, _)) = path::parse(&path, query) {
                let place = target.place();
                let escapes = std::path::Path::new(&place).components()
                    .any(|part| !matches!(part, std::path::Component::Normal(_)));
                prop_assert!(!escapes && place.matches('/').count() <= 1, "{place}");
            }
        }
    }

    #[test]
    fn frames_come_back_as_they_were(lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..200), 0..20)) {
        let mut out = Vec::new();
        lines.iter().for_each(|line| write(&mut out, line));
        let read: Result<Vec<_>, Malformed> = all(&out).collect();
        let expected: Vec<_> = lines.iter().map(|line| super::pktline::Packet::Data(line)).collect();
        prop_assert_eq!(read.unwrap(), expected);
    }

    #[test]
    fn a_reason_stays_in_its_line(text in any::<String>()) {
        let line = one_line(&text);
        prop_assert!(line.len() <= MAX_DATA && !line.chars().any(char::is_control));
    }
}
