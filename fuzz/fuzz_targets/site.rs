//! A list of a site's is read or refused, within its bounds, and means the same once it is written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use repo_model::json;
use repo_model::site::{MAX_BYTES, MAX_WORDS, SiteList};

fuzz_target!(|bytes: &[u8]| {
    let Ok(list) = SiteList::parse(bytes) else { return };
    assert!(bytes.len() <= MAX_BYTES && list.words().count() <= MAX_WORDS);
    let written = json::to_bytes(&list);
    assert!(written.len() > MAX_BYTES || SiteList::parse(&written) == Ok(list));
});
