//! A tag is read or refused; what was signed and the signature are all of it, each byte once.
#![no_main]

use libfuzzer_sys::fuzz_target;
use repo_git::repo::Tag;

fuzz_target!(|bytes: &[u8]| {
    let Ok(tag) = Tag::parse(bytes) else { return };
    let _ = tag.signer();
    assert!(bytes.starts_with(&tag.payload));
    let rest = &bytes[tag.payload.len()..];
    assert_eq!(tag.signature.is_some(), !rest.is_empty());
    assert!(tag.signature.is_none_or(|signature| signature == String::from_utf8_lossy(rest)));
});
