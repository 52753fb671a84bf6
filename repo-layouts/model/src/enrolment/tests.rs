//! The exchange between two sides, and whatever is changed of it.

use proptest::prelude::*;

use super::*;
use crate::{Digest, KeyText};

const OFFER: &[u8] = b"the offer";

fn key(last: char) -> KeyText {
    format!("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE1hcmdvTWFyZ29NYXJnb01hcmdvTWFyZ29NYXJnb00{last}").parse().unwrap()
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
    Claim { replaces, ..Claim::new(key('P'), Digest::of(b"a secret"), "0.3.0") }
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
    for (kind, replaces) in [(Kind::Code, None), (Kind::Known, None), (Kind::Code, Some(key('T'))), (Kind::Token, None)]
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

/// The first bits of a code, at most 16: so few that chance hits them now and then.
fn shortened(transcript: Transcript, bits: u32) -> u16 {
    let [first, second, ..] = *transcript.as_bytes();
    u16::from_be_bytes([first, second]) >> (16 - bits)
}

/// A nonce that nobody else draws.
fn drawn(side: u8, number: u32) -> Nonce {
    let mut bytes = [side; 32];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    Nonce::new(bytes)
}

/// He is host to the device and device to the host, and wants both to come to one code. Where either side weren't bound by what it said
/// first, he would whenever he likes.
#[test]
fn who_stands_in_the_middle_hits_a_code_no_more_often_than_chance_because_both_sides_are_bound() {
    // Chance has 16 of either; `just chaos` asks for more.
    let is_long = std::env::var_os("MARGO_CHAOS_ROUNDS").is_some();
    let (starts, bits) = if is_long { (1 << 20, 16) } else { (1 << 14, 10) };
    let device_claim = crate::json::to_bytes(&Claim::new(key('T'), Digest::of(b"another secret"), "0.3.0"));
    let (_, _, reveal) = exchange(Kind::Code, None);
    let at_device = |device, said| shortened(Transcript::of((&device, &said), &device_claim, OFFER), bits);
    let at_host = |said, host| shortened(Transcript::of((&said, &host), reveal.claim.as_bytes(), OFFER), bits);
    // What he says to the device he says when he knows what the host will come to, and of the device its commitment alone.
    let hits = (0..starts).filter(|number| {
        let [device, host, his] = [b'd', b'h', b'm'].map(|side| drawn(side, *number));
        let said = match number % 3 {
            0 => host,
            1 => Nonce::new(*commitment(&device, &device_claim).as_bytes()),
            _ => drawn(b's', *number),
        };
        at_device(device, said) == at_host(his, host)
    });
    let hits = hits.count();
    assert!((4..40).contains(&hits), "{hits}, where chance has 16");
    for number in 0..4 {
        let [device, host, his] = [b'd', b'h', b'm'].map(|side| drawn(side, number));
        // Had the device said its nonce first, he would choose his answer by it.
        let wanted = at_host(his, host);
        let said = (0..starts).map(|number| drawn(b's', number)).find(|said| at_device(device, *said) == wanted);
        assert!(said.is_some(), "he finds one");
        // So would he choose what he says to the host, which is bound to what he said first.
        let wanted = at_device(device, host);
        let other = (0..starts).map(|number| drawn(b'o', number)).find(|other| at_host(*other, host) == wanted);
        let start = Start { layout: 1, kind: Kind::Code, commitment: commitment(&his, reveal.claim.as_bytes()) };
        let reveal = |nonce: Nonce| {
            let transcript = Transcript::of((&nonce, &host), reveal.claim.as_bytes(), OFFER);
            Reveal { nonce, proof: signature(&key('P'), PROOF_NAMESPACE, transcript.as_bytes()), ..reveal.clone() }
        };
        assert_eq!(code_of(&(start.clone(), host, reveal(his)), OFFER), None);
        assert_eq!(code_of(&(start, host, reveal(other.expect("found"))), OFFER), Some("commitment"));
    }
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
