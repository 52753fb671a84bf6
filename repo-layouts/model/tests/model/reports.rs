//! What a device may sign: anything. A reader believes it or doubts it, and never breaks.

use jiff::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;
use repo_model::FileTree;
use repo_model::envelope::MAX_SERIAL;
use repo_model::message::Message;
use repo_model::report::{self, Beside, Link, Status};
use serde_json::json;
use uuid::Uuid;

const DOCUMENT: &str = "deployments/11111111-2222-4333-8444-555555555555.json";

proptest! {
    #[test]
    fn whatever_a_device_signs_is_believed_or_doubted(
        bytes in vec(any::<u8>(), 0..100),
        layout in 0_u64..3,
        numbers in prop::array::uniform3(any::<u64>()),
        trailers in "(Serial: [0-9]{1,3}\n|Desired-Commit: [0-9a-f]{0,40}\n|[A-Za-z-]{1,9}: .{0,9}\n){0,5}",
        second in any::<i32>(),
    ) {
        let device = "press-04".parse().unwrap();
        let [serial, version, trust] = numbers;
        let adopted = json!({"serial": serial, "manifestVersion": version, "trust": trust, "commit": "",
            "envelope": format!("sha256:{}", "0".repeat(64))});
        let syncer = json!({"layout": layout, "version": "", "instance": Uuid::nil(), "adopted": adopted});
        let message = Message::parse(&format!("said\n\n{trailers}"));
        for file in [syncer.to_string().as_bytes(), &bytes] {
            let mut files = FileTree::from([("syncer.json".to_owned(), file.to_vec())]);
            files.extend(["capabilities.json", "images.json", DOCUMENT].map(|path| (path.to_owned(), bytes.clone())));
            if let Ok(status) = Status::read(&device, &message, &files, None) {
                prop_assert!(layout == 1 || file == bytes);
                prop_assert!(status.adopted().is_none_or(|adopted| (1..=MAX_SERIAL).contains(&adopted.serial)));
            }
        }
        let time = Timestamp::from_second(i64::from(second)).unwrap();
        let beat = json!({"layout": layout, "time": time, "serial": serial, "deployments": {}});
        let files = FileTree::from([("current-state.json".to_owned(), beat.to_string().into_bytes())]);
        let read = report::heartbeat(&files, Beside { status: None, named: None, now: Timestamp::UNIX_EPOCH });
        prop_assert_eq!(read.is_ok(), layout == 1);
    }

    #[test]
    fn an_honest_device_is_never_doubted_for_its_history(mut serials in vec(0_u64..20, 0..50), reset in 0_usize..50) {
        serials.sort_unstable_by(|a, b| b.cmp(a));
        // A clone that was lost tells of nothing for a moment.
        if let Some(serial) = serials.get_mut(reset) {
            *serial = 0;
        }
        let links: Vec<_> = serials.iter().map(|serial| Link { serial: *serial, instance: Some(Uuid::nil()) }).collect();
        prop_assert_eq!(report::chain(&links), vec![]);
    }
}
