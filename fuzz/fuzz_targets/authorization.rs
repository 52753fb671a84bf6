//! A header is read or refused, in bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|header: &str| {
    if let Some(Some(user)) = fuzz::authorization(header) {
        assert!(user.len() < header.len() && !user.contains(':'));
    }
});
