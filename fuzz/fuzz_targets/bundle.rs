//! The head of a bundle is read if it is the one that we would write, and nothing of the pack behind it is.
#![no_main]

use libfuzzer_sys::fuzz_target;
use repo_git::remote::fuzz::bundled;

const NAME: &str = "refs/heads/status-1";

fuzz_target!(|bytes: &[u8]| {
    let Some((tip, pack)) = bundled(bytes, NAME) else { return };
    let head = &bytes[..bytes.len() - pack.len()];
    // An object's name may be in capitals.
    assert!(head.eq_ignore_ascii_case(format!("# v2 git bundle\n{tip} {NAME}\n\n").as_bytes()));
});
