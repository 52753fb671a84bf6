//! Values that only the holder of an SSH key can read: armoured age files (age-encryption.org/v1) with `ssh-ed25519` recipients, as
//! `age --armor --recipient "ssh-ed25519 AAAA…"` makes them.
//!
//! One is at most 64 KiB of clear text, which is one chunk of the format's. Why the `age` crate isn't used is in
//! `docs/decisions/0137-a-secret-is-an-age-file-for-one-device.md`.

use base64ct::{Base64, Base64Unpadded, Encoding};
use curve25519_dalek::edwards::CompressedEdwardsY;
use curve25519_dalek::montgomery::MontgomeryPoint;
use ring::{aead, digest, hkdf, hmac};
use ssh_key::rand_core::{OsRng, RngCore};
use zeroize::Zeroizing;

use crate::{PublicKey, SigningKey};

/// The most bytes that are encrypted.
pub const MAX_CLEAR: usize = 64 << 10;

/// The most bytes of an armoured file: a chunk and its header in base64.
const MAX_ARMOR: usize = 128 << 10;

/// The most recipients of a file that is read.
const MAX_STANZAS: usize = 32;

const BEGIN: &str = "-----BEGIN AGE ENCRYPTED FILE-----";
const END: &str = "-----END AGE ENCRYPTED FILE-----";
const VERSION: &str = "age-encryption.org/v1";
const MAC: &str = "---";

/// The type of a recipient, and with the version what its keys are derived for.
const RECIPIENT: &str = "ssh-ed25519";
const LABEL: &[u8] = b"age-encryption.org/v1/ssh-ed25519";

/// The bytes of a line of base64, in armour and in headers.
const LINE: usize = 64;

/// The nonce of the first chunk that is the last one, too.
const ONLY_CHUNK: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// A text is no age file, or can't be decrypted or made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AgeError {
    /// It isn't what `age --armor` makes.
    #[error("it is no armoured age file: {0}")]
    Malformed(&'static str),
    /// None of its recipients is the key.
    #[error("it is encrypted to other keys")]
    OtherKeys,
    /// A byte of it isn't what was encrypted, or it was encrypted wrongly.
    #[error("it is damaged, or not encrypted as age does")]
    Damaged,
    #[error("it has more than {} KiB in clear", MAX_CLEAR >> 10)]
    TooLong,
    /// The key is no point of the curve.
    #[error("nothing can be encrypted to this key")]
    Key,
}

/// An age file that was read, and isn't decrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgeFile {
    /// Those of its recipients that are Ed25519 keys of SSH.
    recipients: Vec<Recipient>,
    /// The header up to its MAC, which is over that.
    header: Vec<u8>,
    mac: Vec<u8>,
    /// The nonce, then the only chunk.
    payload: Vec<u8>,
}

/// The file's key, encrypted to one SSH key.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Recipient {
    /// The first bytes of the SHA-256 of the SSH key.
    tag: [u8; 4],
    /// The ephemeral X25519 key.
    share: [u8; 32],
    /// The file's key under the one that both sides derive.
    body: [u8; 32],
}

impl AgeFile {
    /// Reads a file; nothing of it is proven yet.
    pub fn parse(armor: &str) -> Result<Self, AgeError> {
        let bytes = unarmored(armor)?;
        let mut lines = Lines { bytes: &bytes, at: 0 };
        if lines.next()? != VERSION {
            return Err(AgeError::Malformed("it doesn't begin with the version 1 of the format"));
        }
        let (mut recipients, mut count) = (Vec::new(), 0);
        let mac = loop {
            let begin = lines.at;
            let line = lines.next()?;
            if let Some(mac) = line.strip_prefix(MAC).and_then(|rest| rest.strip_prefix(' ')) {
                break (begin + MAC.len(), decoded(mac)?);
            }
            count += 1;
            if count > MAX_STANZAS {
                return Err(AgeError::Malformed("it has more than 32 recipients"));
            }
            recipients.extend(lines.recipient(line)?);
        };
        let (header, payload) = (bytes[..mac.0].to_vec(), bytes[lines.at..].to_vec());
        Ok(Self { recipients, header, mac: mac.1, payload })
    }

    /// Whether this key is one of its recipients, by the beginning of the key's digest.
    pub fn is_for(&self, key: &PublicKey) -> bool {
        self.recipients.iter().any(|one| one.tag == tag(key))
    }

    /// The clear text, of which every byte is proven; only for the holder of a recipient's key.
    pub fn decrypt(&self, key: &SigningKey) -> Result<Zeroizing<Vec<u8>>, AgeError> {
        let public = key.public();
        let mut mine = self.recipients.iter().filter(|one| one.tag == tag(&public)).peekable();
        if mine.peek().is_none() {
            return Err(AgeError::OtherKeys);
        }
        let file_key = mine.find_map(|one| one.unwrap(key, &public)).ok_or(AgeError::Damaged)?;
        let mac_key = hmac::Key::new(hmac::HMAC_SHA256, &*derived(&[], &*file_key, b"header"));
        hmac::verify(&mac_key, &self.header, &self.mac).map_err(|_| AgeError::Damaged)?;
        let (nonce, chunk) = self.payload.split_at_checked(16).ok_or(AgeError::Damaged)?;
        if chunk.len() > MAX_CLEAR + aead::MAX_TAG_LEN {
            return Err(AgeError::TooLong);
        }
        let payload_key = derived(nonce, &*file_key, b"payload");
        opened(&payload_key, ONLY_CHUNK, chunk).ok_or(AgeError::Damaged)
    }
}

/// Encrypts a value to each of these keys, as armour. The same value is another text each time.
pub fn encrypt(keys: &[PublicKey], clear: &[u8]) -> Result<String, AgeError> {
    if clear.len() > MAX_CLEAR {
        return Err(AgeError::TooLong);
    }
    let file_key = random::<16>();
    let mut header = format!("{VERSION}\n");
    for key in keys {
        header += &stanza(key, &file_key)?;
    }
    header += MAC;
    let mac_key = hmac::Key::new(hmac::HMAC_SHA256, &*derived(&[], &*file_key, b"header"));
    let mac = Base64Unpadded::encode_string(hmac::sign(&mac_key, header.as_bytes()).as_ref());
    let nonce = random::<16>();
    let chunk = sealed(&derived(&*nonce, &*file_key, b"payload"), ONLY_CHUNK, clear)?;
    Ok(armored(&[header.as_bytes(), b" ", mac.as_bytes(), b"\n", &*nonce, &chunk].concat()))
}

/// The part of a header that gives one key the file's.
fn stanza(key: &PublicKey, file_key: &[u8; 16]) -> Result<String, AgeError> {
    let (ephemeral, point) = (random::<32>(), montgomery(key)?);
    let share = MontgomeryPoint::mul_base_clamped(*ephemeral).to_bytes();
    let wrapping = wrapping_key(key, &point, &share, point.mul_clamped(*ephemeral)).ok_or(AgeError::Key)?;
    let body = sealed(&wrapping, [0; 12], file_key)?;
    let [tag, share, body] = [&tag(key)[..], &share, &body].map(Base64Unpadded::encode_string);
    Ok(format!("-> {RECIPIENT} {tag} {share}\n{body}\n"))
}

impl Recipient {
    /// The file's key, if this is the key that it was encrypted to.
    fn unwrap(&self, key: &SigningKey, public: &PublicKey) -> Option<Zeroizing<[u8; 16]>> {
        let scalar =
            Zeroizing::new(<[u8; 32]>::try_from(&digest::digest(&digest::SHA512, &*key.seed()).as_ref()[..32]).ok()?);
        let shared = MontgomeryPoint(self.share).mul_clamped(*scalar);
        let wrapping = wrapping_key(public, &montgomery(public).ok()?, &self.share, shared)?;
        let opened = opened(&wrapping, [0; 12], &self.body)?;
        opened.as_slice().try_into().map(Zeroizing::new).ok()
    }
}

/// The key under which the file's is encrypted, of what both sides know; `None` if the other side made that nothing.
fn wrapping_key(
    key: &PublicKey,
    point: &MontgomeryPoint,
    share: &[u8; 32],
    shared: MontgomeryPoint,
) -> Option<Zeroizing<[u8; 32]>> {
    // Bound to the SSH key, which several points of the other curve stand for.
    let tweak = derived(&wire(key), &[], LABEL);
    let shared = Zeroizing::new(shared.mul_clamped(*tweak).to_bytes());
    (*shared != [0; 32]).then(|| derived(&[&share[..], point.as_bytes()].concat(), &*shared, LABEL))
}

/// The key as a point of the curve on which keys are agreed.
fn montgomery(key: &PublicKey) -> Result<MontgomeryPoint, AgeError> {
    let point = CompressedEdwardsY(*key.as_bytes()).decompress().ok_or(AgeError::Key)?;
    Ok(point.to_montgomery())
}

/// The key as SSH sends it (RFC 8709, 4).
fn wire(key: &PublicKey) -> Vec<u8> {
    let string = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes(), bytes].concat();
    [string(RECIPIENT.as_bytes()), string(key.as_bytes())].concat()
}

fn tag(key: &PublicKey) -> [u8; 4] {
    let hash = digest::digest(&digest::SHA256, &wire(key));
    std::array::from_fn(|at| hash.as_ref()[at])
}

/// HKDF with SHA-256 (RFC 5869).
fn derived(salt: &[u8], secret: &[u8], info: &[u8]) -> Zeroizing<[u8; 32]> {
    let mut key = Zeroizing::new([0; 32]);
    let info = [info];
    let made = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(secret);
    let made = made.expand(&info, hkdf::HKDF_SHA256).and_then(|made| made.fill(&mut *key));
    made.expect("as long as the digest");
    key
}

fn cipher(key: &[u8; 32]) -> aead::LessSafeKey {
    let key = aead::UnboundKey::new(&aead::CHACHA20_POLY1305, key).expect("a key of 32 bytes");
    aead::LessSafeKey::new(key)
}

/// Each key encrypts once, so that a nonce may be constant.
fn sealed(key: &[u8; 32], nonce: [u8; 12], clear: &[u8]) -> Result<Vec<u8>, AgeError> {
    // Room for all of it at once: growing would leave copies behind.
    let mut bytes = Vec::with_capacity(clear.len() + aead::MAX_TAG_LEN);
    bytes.extend_from_slice(clear);
    let nonce = aead::Nonce::assume_unique_for_key(nonce);
    cipher(key).seal_in_place_append_tag(nonce, aead::Aad::empty(), &mut bytes).map_err(|_| AgeError::TooLong)?;
    Ok(bytes)
}

fn opened(key: &[u8; 32], nonce: [u8; 12], bytes: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(bytes.to_vec());
    let nonce = aead::Nonce::assume_unique_for_key(nonce);
    let length = cipher(key).open_in_place(nonce, aead::Aad::empty(), &mut bytes).ok()?.len();
    bytes.truncate(length);
    Some(bytes)
}

fn random<const N: usize>() -> Zeroizing<[u8; N]> {
    let mut bytes = Zeroizing::new([0; N]);
    OsRng.fill_bytes(&mut *bytes);
    bytes
}

/// The lines of a header, which is followed by what isn't text.
struct Lines<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Result<&'a str, AgeError> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|byte| *byte == b'\n').ok_or(AgeError::Malformed("its header is cut off"))?;
        self.at += end + 1;
        std::str::from_utf8(&rest[..end]).map_err(|_| AgeError::Malformed("its header is no text"))
    }

    /// A recipient of which `line` is the first one; `None` if it is none of SSH's Ed25519 keys.
    fn recipient(&mut self, line: &str) -> Result<Option<Recipient>, AgeError> {
        let arguments =
            line.strip_prefix("-> ").ok_or(AgeError::Malformed("its header has a line that is no recipient"))?;
        let arguments: Vec<_> = arguments.split(' ').collect();
        let mut body = String::new();
        loop {
            let line = self.next()?;
            body += line;
            match line.len() {
                LINE => {}
                ..LINE => break,
                _ => return Err(AgeError::Malformed("a line of its header is too long")),
            }
        }
        let &[RECIPIENT, tag, share] = arguments.as_slice() else { return Ok(None) };
        let exact = || AgeError::Malformed("a recipient isn't as long as one is");
        Ok(Some(Recipient {
            tag: decoded(tag)?.try_into().map_err(|_| exact())?,
            share: decoded(share)?.try_into().map_err(|_| exact())?,
            body: decoded(&body)?.try_into().map_err(|_| exact())?,
        }))
    }
}

fn decoded(base64: &str) -> Result<Vec<u8>, AgeError> {
    Base64Unpadded::decode_vec(base64).map_err(|_| AgeError::Malformed("its header isn't in base64"))
}

fn armored(bytes: &[u8]) -> String {
    let text = Base64::encode_string(bytes);
    let lines = text.as_bytes().chunks(LINE).map(String::from_utf8_lossy);
    format!("{BEGIN}\n{}\n{END}\n", lines.collect::<Vec<_>>().join("\n"))
}

fn unarmored(armor: &str) -> Result<Vec<u8>, AgeError> {
    if armor.len() > MAX_ARMOR {
        return Err(AgeError::TooLong);
    }
    let inside = armor.trim().strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(END));
    let inside = inside.ok_or(AgeError::Malformed("it isn't between age's lines BEGIN and END (`age --armor`)"))?;
    let text: String = inside.split_ascii_whitespace().collect();
    Base64::decode_vec(&text).map_err(|_| AgeError::Malformed("it isn't in base64"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    const CLEAR: &[u8] = b"canary-of-the-tests";

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_seed(&[seed; 32])
    }

    /// Stock age, with what it is given.
    fn age(arguments: &[&str], input: &[u8]) -> Vec<u8> {
        let mut command = Command::new("age");
        let command = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("age, see .ci/setup");
        child.stdin.take().expect("piped").write_all(input).expect("written");
        let output = child.wait_with_output().expect("ended");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    fn read(armor: &str, key: &SigningKey) -> Result<Vec<u8>, AgeError> {
        AgeFile::parse(armor)?.decrypt(key).map(|clear| clear.to_vec())
    }

    #[test]
    fn stock_age_reads_what_is_encrypted_here_and_the_other_way_round() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        key(1).save(&path).unwrap();
        let long = "ä".repeat(MAX_CLEAR / 2);
        for clear in [b"", CLEAR, long.as_bytes()] {
            let ours = encrypt(&[key(2).public(), key(1).public()], clear).unwrap();
            assert_eq!(age(&["--decrypt", "--identity", path.to_str().unwrap()], ours.as_bytes()), clear);
            let to = [key(1).public().to_string(), key(3).public().to_string()];
            let theirs = age(&["--armor", "--recipient", &to[0], "--recipient", &to[1]], clear);
            let theirs = String::from_utf8(theirs).unwrap();
            assert_eq!(read(&theirs, &key(1)).unwrap(), clear);
            assert_eq!(read(&theirs, &key(3)).unwrap(), clear);
        }
    }

    #[test]
    fn only_a_recipients_key_opens_it() {
        let armor = encrypt(&[key(1).public()], CLEAR).unwrap();
        assert_ne!(armor, encrypt(&[key(1).public()], CLEAR).unwrap());
        let file = AgeFile::parse(&armor).unwrap();
        assert!(file.is_for(&key(1).public()) && !file.is_for(&key(2).public()));
        assert_eq!(read(&armor, &key(1)).unwrap(), CLEAR);
        assert_eq!(read(&armor, &key(2)), Err(AgeError::OtherKeys));
        // Somebody who gives it another recipient's tag.
        let mut other = file.clone();
        other.recipients[0].tag = tag(&key(2).public());
        assert_eq!(other.decrypt(&key(2)).map(drop), Err(AgeError::Damaged));
        assert_eq!(encrypt(&[key(1).public()], &vec![0; MAX_CLEAR + 1]), Err(AgeError::TooLong));
    }

    #[test]
    fn each_byte_of_it_counts() {
        let bytes = unarmored(&encrypt(&[key(1).public()], CLEAR).unwrap()).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(read(&armored(&changed), &key(1)).is_err(), "byte {at}");
            assert!(read(&armored(&bytes[..at]), &key(1)).is_err(), "cut at {at}");
        }
        let longer = [bytes.as_slice(), b"x"].concat();
        assert_eq!(read(&armored(&longer), &key(1)), Err(AgeError::Damaged));
    }

    #[test]
    fn what_is_no_age_file_is_told_as_that() {
        let header = |lines: &str| armored(format!("{VERSION}\n{lines}").as_bytes());
        let many = format!("{}--- AAAA\n", "-> X25519 A\n\n".repeat(MAX_STANZAS + 1));
        for (text, why) in [
            (String::new(), "BEGIN and END"),
            (String::from_utf8_lossy(CLEAR).into_owned(), "BEGIN and END"),
            (format!("{BEGIN}\n{END}"), "cut off"),
            (format!("{BEGIN}\n!\n{END}"), "base64"),
            (armored(b"age-encryption.org/v2\n"), "version 1"),
            (header("-> ssh-ed25519 AAAA"), "cut off"),
            (header("x\n--- AAAA\n"), "no recipient"),
            (header("-> ssh-ed25519 AAAA AAAA\nAAAA\n--- AAAA\n"), "as long"),
            (header(&format!("-> X25519 A\n{}\n", "A".repeat(LINE + 1))), "too long"),
            (header(&many), "more than 32"),
        ] {
            let error = AgeFile::parse(&text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        // Kinds of recipients that aren't known here are passed over, as age does.
        let grease = header("-> x-grease a b c\nAAAA\n--- AAAA\n");
        assert_eq!(read(&grease, &key(1)), Err(AgeError::OtherKeys));
        assert_eq!(AgeFile::parse(&"a".repeat(MAX_ARMOR + 1)), Err(AgeError::TooLong));
    }
}
