//! A device's claim is read or refused, within its bounds, and means the same once it is written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use repo_model::enrolment::{Claim, MAX_CLAIM};
use repo_model::json;

fuzz_target!(|bytes: &[u8]| {
    let Ok(claim) = Claim::parse(bytes) else { return };
    assert!(bytes.len() <= MAX_CLAIM && claim.replaces.as_ref() != Some(&claim.key));
    let written = json::to_bytes(&claim);
    assert!(written.len() > MAX_CLAIM || Claim::parse(&written) == Ok(claim));
});
