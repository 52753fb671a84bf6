//! Frames hold no more than was sent, and writing them gives the same frames again.
#![no_main]

use fuzz::wire::pktline::{MAX_DATA, Packet, all, line, write};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut again = Vec::new();
    let mut frames = Vec::new();
    for packet in all(bytes) {
        let Ok(packet) = packet else { return };
        if let Packet::Data(data) = packet {
            assert!(data.len() <= MAX_DATA && line(data).len() <= data.len());
            write(&mut again, data);
            // A frame without bytes is never written.
            frames.extend(Some(data).filter(|data| !data.is_empty()));
        }
    }
    assert!(again.len() <= bytes.len());
    let read: Vec<_> = all(&again).map(|packet| packet.expect("what was written")).collect();
    assert_eq!(read, frames.into_iter().map(Packet::Data).collect::<Vec<_>>());
});
