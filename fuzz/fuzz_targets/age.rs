//! An encrypted value is read or refused, and what nobody encrypted to a key is never opened by it.
#![no_main]

use std::sync::LazyLock;

use base64ct::{Base64, Encoding};
use libfuzzer_sys::fuzz_target;
use repo_git::SigningKey;
use repo_git::age::AgeFile;

static KEY: LazyLock<SigningKey> = LazyLock::new(|| SigningKey::from_seed(&[7; 32]));

fuzz_target!(|bytes: &[u8]| {
    let inside = Base64::encode_string(bytes);
    let armor = format!("-----BEGIN AGE ENCRYPTED FILE-----\n{inside}\n-----END AGE ENCRYPTED FILE-----\n");
    let Ok(file) = AgeFile::parse(&armor) else { return };
    assert!(file.decrypt(&KEY).is_err());
});
