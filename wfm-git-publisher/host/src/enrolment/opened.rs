//! Who may ask to be enrolled now: what the home says of it, read again when that changed.

use std::error::Error;
use std::path::Path;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use repo_git::durable::Stamp;
use repo_model::KeyText;
use repo_model::enrolment::{Claim, EnrolmentError, EnrolmentFile, TokenProof, Transcript};

use super::claims::{Claims, OFFER, OPEN, Opening, TOKENS, Token};
use super::exchange::Offer;
use crate::lock::lock;

/// What one or two files said when they had these stamps.
#[derive(Debug)]
pub(super) struct Kept<T> {
    stamps: Vec<Option<Stamp>>,
    said: Option<Arc<T>>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { stamps: Vec::new(), said: None }
    }
}

/// Something that files of the home say.
pub(super) trait Said: Sized {
    const FILES: &[&str];

    /// `None` where the files say nothing of it.
    fn read(claims: &Claims) -> Result<Option<Self>, Box<dyn Error>>;
}

impl<T: Said> Kept<T> {
    /// What they say now.
    pub(super) fn read(kept: &Mutex<Self>, claims: &Claims) -> Result<Option<Arc<T>>, Box<dyn Error>> {
        let of = |dir: &Path| T::FILES.iter().map(|name| Stamp::of(&dir.join(name))).collect::<Vec<_>>();
        let (stamps, mut kept) = (of(claims.dir()), lock(kept));
        if kept.stamps != stamps {
            let said = T::read(claims)?.map(Arc::new);
            *kept = Self { stamps, said };
        }
        Ok(kept.said.clone())
    }
}

/// An opening and what it offers.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) opening: Opening,
    pub(super) offer: Offer,
}

impl Said for Open {
    const FILES: &[&str] = &[OPEN];

    fn read(claims: &Claims) -> Result<Option<Self>, Box<dyn Error>> {
        let Some(opening) = claims.opening()? else { return Ok(None) };
        let offer = offer(&opening.offer)?;
        Ok(Some(Self { opening, offer }))
    }
}

/// The tokens of the published fleet, and what whoever has one is offered.
#[derive(Debug)]
pub(super) struct WithTokens {
    tokens: Vec<Token>,
    pub(super) offer: Offer,
}

impl Said for WithTokens {
    const FILES: &[&str] = &[TOKENS, OFFER];

    fn read(claims: &Claims) -> Result<Option<Self>, Box<dyn Error>> {
        let (tokens, text) = (claims.tokens()?.tokens, claims.offer()?);
        let offer = text.map(|text| offer(&text)).transpose()?;
        Ok(offer.map(|offer| Self { tokens, offer }))
    }
}

impl WithTokens {
    /// Whether anybody could come by a token.
    pub(super) fn any_counts(&self, now: Timestamp) -> bool {
        self.tokens.iter().any(|token| now < token.until)
    }

    /// For how many devices the token is that vouches for this one. Who has no token learns of none.
    pub(super) fn vouches(
        &self,
        proof: &TokenProof,
        claim: &Claim,
        transcript: &Transcript,
        now: Timestamp,
    ) -> Result<u32, EnrolmentError> {
        let token = self.tokens.iter().find(|token| token.name == proof.name);
        let token = token.filter(|token| proof.proves(&token.key, transcript, &claim.key, &signer));
        match token {
            None => Err(EnrolmentError::TokenUnknown),
            Some(token) if token.until <= now => Err(EnrolmentError::TokenEnded),
            Some(token) if token.used >= token.count => Err(EnrolmentError::TokenFull),
            Some(token) => Ok(token.count),
        }
    }
}

fn offer(text: &str) -> Result<Offer, EnrolmentError> {
    let file = EnrolmentFile::parse(text.as_bytes())?;
    Ok(Offer { text: text.into(), roster: file.trust.sha256 })
}

/// Which key made a signature.
pub(super) fn signer(bytes: &[u8], namespace: &str, signature: &str) -> Option<KeyText> {
    repo_git::sign::verify(namespace, bytes, signature).ok()?.to_string().parse().ok()
}
