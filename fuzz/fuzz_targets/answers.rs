//! What another host says of its refs and of a push.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| repo_git::remote::fuzz::answers(bytes));
