//! The exchange by which a device that has no join file gets one: its messages, and the sums that both sides compare.
//!
//! Neither side believes the other: a person compares a code, or a pin or a signature vouches (`repo-layouts/README.md`,
//! *Enrolment*). The device commits to a nonce before it sees the host's, so that nobody between them can choose the code.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::envelope::LAYOUT;
use crate::join::{Account, Join, JoinFloor, JoinTrust};
use crate::{DeviceId, Digest, FleetId, KeyText};

/// The largest claim, in bytes.
pub const MAX_CLAIM: usize = 4 << 10;

/// The largest enrolment file or offer, in bytes.
pub const MAX_OFFER: usize = 256 << 10;

/// The most characters of what a claim says in free text.
pub const MAX_TEXT: usize = 200;

/// The namespace of a proof, which a key makes over the [`Transcript`].
pub const PROOF_NAMESPACE: &str = "wfm-enrol";

/// The namespace of a batch token's proof, which its key makes over [`Transcript::token_message`].
pub const TOKEN_NAMESPACE: &str = "wfm-enrol-token";

/// Why a message of the exchange can't be believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnrolmentError {
    /// A request that isn't what the contract allows.
    #[error("{0}")]
    Malformed(String),
    /// What is revealed isn't what was committed to.
    #[error("the nonce and the claim aren't those that the request committed to: begin anew")]
    Commitment,
    /// A signature that doesn't verify, or another key's.
    #[error("`{0}` isn't a signature of this exchange by the key that the claim names: begin anew")]
    Proof(&'static str),
    /// An enrolment file, an offer or an answer of a host that no device can follow.
    #[error("{0}")]
    Offer(String),
    /// The offer's roster isn't the pinned one.
    #[error(
        "the host offers the roster {found}, and {pinned} is pinned: another host answers, or the pin is an older roster's"
    )]
    Pin { pinned: Pin, found: Pin },
}

impl EnrolmentError {
    /// The code under which host or device say it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::Commitment => "commitment",
            Self::Proof(_) => "proof",
            Self::Offer(_) => "offer-invalid",
            Self::Pin { .. } => "pin-mismatch",
        }
    }
}

/// 32 random bytes of one side, written as 64 lower-case hex digits. The device's is a secret until it is revealed.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Nonce([u8; 32]);

impl Nonce {
    /// The caller's random bytes.
    pub fn new(random: [u8; 32]) -> Self {
        Self(random)
    }
}

impl TryFrom<String> for Nonce {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        let digest = format!("sha256:{text}").parse::<Digest>().map_err(|_| "a nonce has 64 lower-case hex digits")?;
        Ok(Self(*digest.as_bytes()))
    }
}

impl From<Nonce> for String {
    fn from(nonce: Nonce) -> Self {
        hex(&nonce.0)
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce(…)")
    }
}

/// What decides whether a request is believed, said with its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A person who compares the code.
    Code,
    /// A batch token's signature.
    Token,
    /// The device's key, which is enrolled already.
    Known,
}

/// `POST /enroll`: the first message, which says nothing of the device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    pub layout: u64,
    pub kind: Kind,
    /// [`commitment`] of what will be revealed.
    pub commitment: Digest,
}

/// The answer to a [`Start`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Started {
    /// 128 random bits in hex: whoever knows them may ask for this request.
    pub request: String,
    /// The host's nonce.
    pub nonce: Nonce,
    /// The exact text of the host's offer.
    pub offer: String,
    /// How many seconds the device has to reveal.
    pub reveal_seconds: u64,
}

/// `POST /enroll/<request>`: what the device committed to, with its proofs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reveal {
    /// The device's nonce.
    pub nonce: Nonce,
    /// The exact text of the claim.
    pub claim: String,
    /// An armoured SSH signature over the transcript by the claim's `key`.
    pub proof: String,
    /// The same by its `replaces`, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces_proof: Option<String>,
    /// With [`Kind::Token`] only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenProof>,
}

/// A batch token's word for one exchange.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenProof {
    pub name: String,
    /// An armoured SSH signature over [`Transcript::token_message`] by the token's key.
    pub proof: String,
}

/// The answer to a [`Reveal`] that is in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// How many seconds a `GET` of the request may wait for an answer.
    pub wait: u64,
}

/// What a device that was approved is told. It holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approved {
    pub device: DeviceId,
    /// Where the device's repository is.
    pub url: String,
    /// The name of its account.
    pub user: String,
    pub floor: JoinFloor,
}

/// What a device says of itself. Nothing in it but the keys is proven.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub layout: u64,
    /// The device's public key, `ssh-ed25519 AAAA…`.
    pub key: KeyText,
    /// Digest of the text of the secret that the device made for its account.
    pub account: Digest,
    /// The version of its syncer.
    pub version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    /// The id that it would like to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<DeviceId>,
    /// The enrolled key that `key` shall replace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<KeyText>,
}

impl Claim {
    /// Reads a claim.
    ///
    /// # Errors
    /// [`EnrolmentError::Malformed`].
    pub fn parse(bytes: &[u8]) -> Result<Self, EnrolmentError> {
        let claim: Self = document("the claim", bytes, MAX_CLAIM).map_err(EnrolmentError::Malformed)?;
        let malformed = |problem: String| Err(EnrolmentError::Malformed(format!("the claim: {problem}")));
        for (name, key) in [("key", Some(&claim.key)), ("replaces", claim.replaces.as_ref())] {
            if key.is_some_and(|key| !is_ed25519(key)) {
                return malformed(format!("`{name}` is not an Ed25519 key: expected `ssh-ed25519 AAAA…`"));
            }
        }
        if claim.replaces.as_ref() == Some(&claim.key) {
            return malformed("`replaces` is `key` itself".to_owned());
        }
        let texts = [
            ("version", Some(&claim.version)),
            ("serial", claim.serial.as_ref()),
            ("model", claim.model.as_ref()),
            ("mac", claim.mac.as_ref()),
            ("hostname", claim.hostname.as_ref()),
            ("arch", claim.arch.as_ref()),
        ];
        for (name, text) in texts {
            let length = text.map_or(1, |text| text.chars().count());
            if !(1..=MAX_TEXT).contains(&length) {
                return malformed(format!("`{name}` has {length} characters, and may have 1 to {MAX_TEXT}"));
            }
        }
        Ok(claim)
    }
}

/// A join file but for what is one device's: what the host offers, and, with a token, what a batch of devices is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrolmentFile {
    pub layout: u64,
    pub fleet: FleetId,
    /// The host's origin, `https://host[:port]`.
    pub url: String,
    /// PEM of the authorities that the host's certificate must chain to; absent: the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// When it was written: the device's first floor of time.
    pub issued: Timestamp,
    /// The newest roster.
    pub trust: JoinTrust,
    /// Absent in an offer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
}

/// A batch token, in an enrolment file only. Its key is never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    pub name: String,
    /// The private key, as OpenSSH writes it.
    pub key: String,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("name", &self.name).finish_non_exhaustive()
    }
}

impl EnrolmentFile {
    /// Reads an enrolment file or an offer.
    ///
    /// # Errors
    /// [`EnrolmentError::Offer`].
    pub fn parse(bytes: &[u8]) -> Result<Self, EnrolmentError> {
        let file: Self = document("the enrolment file", bytes, MAX_OFFER).map_err(EnrolmentError::Offer)?;
        let invalid = |problem: String| EnrolmentError::Offer(format!("the enrolment file: {problem}"));
        if !is_origin(&file.url) {
            return Err(invalid("`url` must be `https://host` or `https://host:port`, without a path".to_owned()));
        }
        file.trust.check(file.fleet).map_err(invalid)?;
        Ok(file)
    }

    /// Reads an offer of a host that is known by a pin only.
    ///
    /// # Errors
    /// [`EnrolmentError::Offer`] and [`EnrolmentError::Pin`].
    pub fn pinned(bytes: &[u8], pinned: Pin) -> Result<Self, EnrolmentError> {
        let file = Self::parse(bytes)?;
        let found = Pin::of(file.trust.sha256);
        if found == pinned { Ok(file) } else { Err(EnrolmentError::Pin { pinned, found }) }
    }

    /// The exact text of the host's offer: the same without a token.
    pub fn offer(&self) -> Vec<u8> {
        crate::json::to_bytes(&Self { token: None, ..self.clone() })
    }

    /// The join file that an answer makes of this, with the secret that the device made.
    ///
    /// # Errors
    /// [`EnrolmentError::Offer`] where the answer leads to another host.
    pub fn join(self, approved: Approved, secret: String) -> Result<Join, EnrolmentError> {
        if !approved.url.strip_prefix(&self.url).is_some_and(|path| path.starts_with('/')) {
            return Err(EnrolmentError::Offer(format!("the answer's `url` doesn't lead to {}", self.url)));
        }
        Ok(Join {
            layout: LAYOUT,
            fleet: self.fleet,
            device: approved.device,
            url: approved.url,
            ca: self.ca,
            host_keys: Vec::new(),
            account: Some(Account { user: approved.user, secret }),
            issued: Some(self.issued),
            trust: self.trust,
            floor: approved.floor,
        })
    }
}

/// What a device commits to before it sees the host's nonce.
pub fn commitment(device: &Nonce, claim: &[u8]) -> Digest {
    sum("wfm-enrol-commit-1\n", &[&device.0, Digest::of(claim).as_bytes()])
}

/// What both sides said, as one digest: two exchanges have the same one only if each byte of both is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transcript(Digest);

impl Transcript {
    /// Of the nonces of device and host, and the exact bytes of claim and offer.
    pub fn of((device, host): (&Nonce, &Nonce), claim: &[u8], offer: &[u8]) -> Self {
        let (claim, offer) = (Digest::of(claim), Digest::of(offer));
        Self(sum("wfm-enrol-1\n", &[&device.0, &host.0, claim.as_bytes(), offer.as_bytes()]))
    }

    /// The 32 bytes that a proof signs.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    /// The 64 hex digits.
    pub fn hex(&self) -> String {
        self.0.hex()
    }

    /// What the device shows and the operator types.
    pub fn code(&self) -> Code {
        Symbols::first_of(self.as_bytes())
    }

    /// What the operator is told, and is typed at the device. The device never shows it.
    pub fn confirm(&self) -> Confirm {
        Symbols::first_of(sum("wfm-enrol-confirm-1\n", &[self.as_bytes()]).as_bytes())
    }

    /// What a batch token's key signs for the device with this key.
    pub fn token_message(&self, key: &KeyText) -> String {
        format!("{} {key}\n", self.hex())
    }
}

/// Which key made an armoured signature over bytes in a namespace, if it verifies at all: `(bytes, namespace, signature)`.
pub type Signer<'a> = &'a dyn Fn(&[u8], &str, &str) -> Option<KeyText>;

impl Reveal {
    /// Decides whether this is what `start` committed to, and whether the claim's keys say so; not whether anybody wants the
    /// device, nor whether the token counts.
    ///
    /// # Errors
    /// [`EnrolmentError::Malformed`], [`EnrolmentError::Commitment`] and [`EnrolmentError::Proof`].
    pub fn check(
        &self,
        start: &Start,
        host: &Nonce,
        offer: &[u8],
        signer: Signer<'_>,
    ) -> Result<(Claim, Transcript), EnrolmentError> {
        let malformed = |problem: &str| Err(EnrolmentError::Malformed(problem.to_owned()));
        let bytes = self.claim.as_bytes();
        if commitment(&self.nonce, bytes) != start.commitment {
            return Err(EnrolmentError::Commitment);
        }
        let claim = Claim::parse(bytes)?;
        if (start.kind == Kind::Token) != self.token.is_some() {
            return malformed("`token` belongs to a request of the kind `token`, and to no other");
        }
        if claim.replaces.is_some() != self.replaces_proof.is_some() {
            return malformed("`replacesProof` belongs to a claim with `replaces`, and to no other");
        }
        let transcript = Transcript::of((&self.nonce, host), bytes, offer);
        let proves = |proof: &str, key: &KeyText| {
            signer(transcript.as_bytes(), PROOF_NAMESPACE, proof).is_some_and(|signed| signed == *key)
        };
        if !proves(&self.proof, &claim.key) {
            return Err(EnrolmentError::Proof("proof"));
        }
        if !self.replaces_proof.iter().zip(&claim.replaces).all(|(proof, key)| proves(proof, key)) {
            return Err(EnrolmentError::Proof("replacesProof"));
        }
        Ok((claim, transcript))
    }
}

impl TokenProof {
    /// Whether the token with this public key vouches for the device with `device` in this exchange.
    pub fn proves(&self, token: &KeyText, transcript: &Transcript, device: &KeyText, signer: Signer<'_>) -> bool {
        let message = transcript.token_message(device);
        signer(message.as_bytes(), TOKEN_NAMESPACE, &self.proof).is_some_and(|signed| signed == *token)
    }
}

/// What the device shows: 40 bits.
pub type Code = Symbols<8>;

/// What the operator is told: 20 bits.
pub type Confirm = Symbols<4>;

/// What stands behind a host's URL: 100 bits of its roster's digest.
pub type Pin = Symbols<20>;

impl Pin {
    /// The pin of a roster.
    pub fn of(roster: Digest) -> Self {
        Self::first_of(roster.as_bytes())
    }
}

/// So many characters for people, in Crockford's base 32, with a dash after every fourth or fifth.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbols<const N: usize>([u8; N]);

/// The characters, in the order of their values: without I, L, O and U.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// The text isn't so many of these characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {0} letters and digits, with or without dashes, none of them U: read them again")]
pub struct InvalidSymbols(pub usize);

impl<const N: usize> Symbols<N> {
    /// The first 5·N bits.
    fn first_of(bytes: &[u8; 32]) -> Self {
        let bit = |index: usize| bytes[index / 8] >> (7 - index % 8) & 1;
        Self(std::array::from_fn(|at| (0..5).fold(0, |value, index| value << 1 | bit(at * 5 + index))))
    }
}

impl<const N: usize> FromStr for Symbols<N> {
    type Err = InvalidSymbols;

    /// Reads what a person typed: case and dashes don't count, O is 0, I and L are 1.
    fn from_str(text: &str) -> Result<Self, InvalidSymbols> {
        let value = |c: u8| {
            let c = match c.to_ascii_uppercase() {
                b'O' => b'0',
                b'I' | b'L' => b'1',
                other => other,
            };
            ALPHABET.iter().position(|one| *one == c).and_then(|value| u8::try_from(value).ok())
        };
        let values: Option<Vec<u8>> = text.bytes().filter(|c| *c != b'-').map(value).collect();
        values.and_then(|values| values.try_into().ok()).map(Self).ok_or(InvalidSymbols(N))
    }
}

impl<const N: usize> fmt::Display for Symbols<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = if N.is_multiple_of(5) { 5 } else { 4 };
        for (at, value) in self.0.iter().enumerate() {
            if at > 0 && at.is_multiple_of(group) {
                f.write_str("-")?;
            }
            write!(f, "{}", char::from(ALPHABET[usize::from(*value)]))?;
        }
        Ok(())
    }
}

impl<const N: usize> fmt::Debug for Symbols<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// SHA-256 of a label and of parts, each of which has 32 bytes: nothing can be cut elsewhere.
fn sum(label: &str, parts: &[&[u8; 32]]) -> Digest {
    Digest::from_bytes(
        parts.iter().fold(Sha256::new_with_prefix(label), |sum, part| sum.chain_update(part)).finalize().into(),
    )
}

fn hex(bytes: &[u8; 32]) -> String {
    Digest::from_bytes(*bytes).hex()
}

/// Reads a document within its bounds, and refuses a layout that isn't known here before anything else of it.
fn document<T: serde::de::DeserializeOwned>(what: &str, bytes: &[u8], most: usize) -> Result<T, String> {
    #[derive(Deserialize)]
    struct Layout {
        layout: u64,
    }
    if bytes.len() > most {
        return Err(format!("{what} has {} bytes, more than the {most} allowed", bytes.len()));
    }
    let unreadable = |error| format!("{what}: {error}");
    let Layout { layout } = crate::json::read(bytes).map_err(unreadable)?;
    if layout != LAYOUT {
        return Err(format!("{what} has layout {layout}, and only {LAYOUT} is known here: update what reads it"));
    }
    crate::json::read(bytes).map_err(unreadable)
}

/// Whether a key is `ssh-ed25519` with exactly 32 bytes. Its blob is 51 bytes, 68 characters without padding; the first 25 and
/// two bits are the same for all of them, so that the 26th is A to P.
fn is_ed25519(key: &KeyText) -> bool {
    key.as_str().strip_prefix("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI").is_some_and(|rest| {
        rest.len() == 43 && !rest.contains('=') && rest.as_bytes().first().is_some_and(|c| (b'A'..=b'P').contains(c))
    })
}

/// `https://host[:port]`, and nothing that could lead elsewhere.
fn is_origin(url: &str) -> bool {
    url.strip_prefix("https://").is_some_and(|authority| {
        (1..=300).contains(&authority.len())
            && authority.bytes().all(|c| c.is_ascii_alphanumeric() || b".-:[]".contains(&c))
            && authority.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[')
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OFFER: &[u8] = b"the offer";

    fn key(last: char) -> KeyText {
        format!("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE1hcmdvTWFyZ29NYXJnb01hcmdvTWFyZ29NYXJnb00{last}")
            .parse()
            .unwrap()
    }

    /// What stands in for a signature: who signed what, and where.
    fn signature(by: &KeyText, namespace: &str, bytes: &[u8]) -> String {
        format!("{by} {namespace} {}", Digest::of(bytes))
    }

    fn signer(bytes: &[u8], namespace: &str, armored: &str) -> Option<KeyText> {
        let by: KeyText = armored.parse().ok()?;
        (armored == signature(&by, namespace, bytes)).then_some(by)
    }

    fn claim(replaces: Option<KeyText>) -> Claim {
        Claim {
            layout: 1,
            key: key('P'),
            account: Digest::of(b"a secret"),
            version: "0.3.0".to_owned(),
            serial: None,
            model: None,
            mac: None,
            hostname: None,
            arch: None,
            id: None,
            replaces,
        }
    }

    /// An exchange in which everything is in order, and the host's nonce.
    fn exchange(kind: Kind, replaces: Option<KeyText>) -> (Start, Nonce, Reveal) {
        let (nonce, host) = (Nonce::new([1; 32]), Nonce::new([2; 32]));
        let claim = String::from_utf8(crate::json::to_bytes(&claim(replaces.clone()))).unwrap();
        let start = Start { layout: 1, kind, commitment: commitment(&nonce, claim.as_bytes()) };
        let transcript = Transcript::of((&nonce, &host), claim.as_bytes(), OFFER);
        let proof = |by: &KeyText| signature(by, PROOF_NAMESPACE, transcript.as_bytes());
        let token = (kind == Kind::Token).then(|| {
            let message = transcript.token_message(&key('P'));
            TokenProof { name: "graz".to_owned(), proof: signature(&key('T'), TOKEN_NAMESPACE, message.as_bytes()) }
        });
        let replaces_proof = replaces.as_ref().map(proof);
        (start, host, Reveal { nonce, claim, proof: proof(&key('P')), replaces_proof, token })
    }

    fn code_of((start, host, reveal): &(Start, Nonce, Reveal), offer: &[u8]) -> Option<&'static str> {
        reveal.check(start, host, offer, &signer).err().map(|error| error.code())
    }

    #[test]
    fn only_what_was_committed_to_and_is_signed_for_this_very_exchange_is_believed() {
        for (kind, replaces) in
            [(Kind::Code, None), (Kind::Known, None), (Kind::Code, Some(key('T'))), (Kind::Token, None)]
        {
            let good = exchange(kind, replaces.clone());
            let (claim, transcript) = good.2.check(&good.0, &good.1, OFFER, &signer).unwrap();
            assert_eq!((claim.key, claim.replaces), (key('P'), replaces));
            if let Some(token) = &good.2.token {
                assert!(token.proves(&key('T'), &transcript, &key('P'), &signer));
                assert!(!token.proves(&key('P'), &transcript, &key('P'), &signer), "another token");
                assert!(!token.proves(&key('T'), &transcript, &key('T'), &signer), "another device");
                let other = Transcript::of((&good.1, &good.2.nonce), good.2.claim.as_bytes(), OFFER);
                assert!(!token.proves(&key('T'), &other, &key('P'), &signer), "another exchange");
            }
        }
        let bad = |code: &str, kind, replaces, change: fn(&mut (Start, Nonce, Reveal))| {
            let mut exchange = exchange(kind, replaces);
            change(&mut exchange);
            assert_eq!(code_of(&exchange, OFFER), Some(code));
        };
        bad("commitment", Kind::Code, None, |(_, _, reveal)| reveal.nonce = Nonce::new([3; 32]));
        bad("commitment", Kind::Code, None, |(_, _, reveal)| reveal.claim.push(' '));
        bad("commitment", Kind::Code, None, |(start, _, _)| start.commitment = Digest::of(b""));
        bad("malformed", Kind::Code, None, |(start, _, reveal)| {
            reveal.claim = "{\"layout\":1}".to_owned();
            start.commitment = commitment(&reveal.nonce, reveal.claim.as_bytes());
        });
        bad("malformed", Kind::Token, None, |(_, _, reveal)| reveal.token = None);
        bad("malformed", Kind::Token, None, |(start, _, _)| start.kind = Kind::Code);
        bad("malformed", Kind::Code, Some(key('T')), |(_, _, reveal)| reveal.replaces_proof = None);
        bad("malformed", Kind::Code, None, |(_, _, reveal)| reveal.replaces_proof = Some(reveal.proof.clone()));
        // A message of another exchange, which had another nonce of the host's.
        bad("proof", Kind::Code, None, |(_, host, _)| *host = Nonce::new([4; 32]));
        bad("proof", Kind::Code, None, |(_, _, reveal)| reveal.proof = reveal.proof.replace("wfm-enrol ", "git "));
        bad("proof", Kind::Code, Some(key('T')), |(_, _, reveal)| {
            reveal.proof = reveal.replaces_proof.clone().unwrap();
        });
        bad("proof", Kind::Code, Some(key('T')), |(_, _, reveal)| reveal.replaces_proof = Some(reveal.proof.clone()));
        assert_eq!(code_of(&exchange(Kind::Code, None), b"another offer"), Some("proof"));
    }

    #[test]
    fn no_secret_is_printed() {
        let (start, host, reveal) = exchange(Kind::Token, None);
        let token = Token { name: "graz".to_owned(), key: "private".to_owned() };
        let said = format!("{start:?} {host:?} {reveal:?} {token:?}");
        assert!(!said.contains("private") && !said.contains("0101") && !said.contains("1, 1"), "{said}");
    }

    proptest! {
        #[test]
        fn a_code_is_read_as_it_was_shown_however_it_is_typed(bytes: [u8; 32], lower: bool, dashes: bool) {
            let transcript = Transcript(Digest::from_bytes(bytes));
            let mut typed = transcript.code().to_string();
            prop_assert!(typed.len() == 9 && !typed.contains(['I', 'L', 'O', 'U']));
            typed = typed.replace('0', "O").replace('1', if lower { "l" } else { "I" });
            if lower { typed = typed.to_lowercase(); }
            if !dashes { typed = typed.replace('-', ""); }
            prop_assert_eq!(typed.parse(), Ok(transcript.code()));
        }

        #[test]
        fn whatever_is_changed_on_the_way_makes_another_transcript(
            at in 0_usize..4, index in 0_usize..32, bit in 0_u32..8, parts: [[u8; 32]; 4],
        ) {
            let of = |[device, host, claim, offer]: [[u8; 32]; 4]| {
                Transcript::of((&Nonce::new(device), &Nonce::new(host)), &claim, &offer)
            };
            let mut changed = parts;
            changed[at][index] ^= 1 << bit;
            prop_assert_ne!(of(parts), of(changed));
        }

        #[test]
        fn strangers_text_never_panics(text: String) {
            let _ = (Claim::parse(text.as_bytes()), EnrolmentFile::parse(text.as_bytes()), text.parse::<Code>());
        }
    }
}
