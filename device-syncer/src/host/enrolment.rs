//! The exchange by which this device gets its join file from a host (`repo-layouts/README.md`, *Enrolment*).

use std::time::Duration;

use repo_git::SigningKey;
use repo_http::{Agent, HttpError, Method, Request, Url};
use repo_model::enrolment::{
    Approved, Claim, Code, EnrolmentError, EnrolmentFile, Kind, MAX_OFFER, Nonce, PROOF_NAMESPACE, Pin, Reveal, Start,
    Started, TOKEN_NAMESPACE, Token, TokenProof, Transcript, commitment,
};
use repo_model::envelope::LAYOUT;
use repo_model::json;

/// The longest answer: an offer as JSON in JSON, in bytes.
const MAX_ANSWER: u64 = 4 * MAX_OFFER as u64;

/// How an exchange goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stand {
    /// Nobody said anything yet.
    Waits,
    Approved(Approved),
    Rejected,
    /// The host knows nothing of it: nobody said anything for too long, or what was sent never came.
    Unknown,
}

/// An exchange doesn't go on.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The host can't be reached, or doesn't answer as it should.
    #[error(transparent)]
    Host(#[from] HttpError),
    /// It takes no enrolments now, or not from here.
    #[error("the host lets nobody ask to be enrolled now, or not from here")]
    Closed,
    /// It has as many requests as it takes.
    #[error("the host has as many devices that wait as it takes")]
    Full {
        /// After which time it wants to be asked again.
        after: Duration,
    },
    /// What it offers can't be followed.
    #[error(transparent)]
    Offer(#[from] EnrolmentError),
    /// It offers something else than the enrolment file says.
    #[error("the host offers another fleet, address or authority than the enrolment file names")]
    OtherOffer,
    /// It didn't accept what was revealed to it.
    #[error("the host doesn't accept what was sent to it: {0}")]
    Refused(String),
    /// Its answer isn't one of the contract's.
    #[error("the host's answer can't be understood")]
    Answer,
    #[error("the exchange can't be signed")]
    Sign(#[source] repo_git::KeyError),
}

impl ExchangeError {
    /// Whether nothing but a person changes it.
    pub fn needs_a_person(&self) -> bool {
        match self {
            Self::Host(error) => error.needs_a_person() && error.status().is_none(),
            Self::Closed | Self::Full { .. } | Self::Refused(_) | Self::Answer => false,
            Self::Offer(_) | Self::OtherOffer | Self::Sign(_) => true,
        }
    }

    /// After which time the host wants to be asked again, if it said so.
    pub fn after(&self) -> Option<Duration> {
        match self {
            Self::Host(error) => error.retry_after(),
            Self::Full { after } => Some(*after),
            _ => None,
        }
    }
}

/// The host that this device wants to be enrolled at.
#[derive(Debug)]
pub struct Enrolments<'a> {
    agent: Agent,
    file: &'a EnrolmentFile,
    /// The key of the file's token, if it has one.
    token: Option<SigningKey>,
    url: Url,
}

/// What is about to be revealed: once it is kept, it may be.
#[derive(Debug)]
pub struct Prepared {
    pub request: String,
    pub code: Code,
    reveal: Reveal,
}

impl<'a> Enrolments<'a> {
    /// At the host that the file names, with its token if it has one.
    pub fn new(
        agent: Agent,
        file: &'a EnrolmentFile,
        token: Option<SigningKey>,
    ) -> Result<Self, repo_http::InvalidUrl> {
        Ok(Self { agent, file, token, url: Url::parse(&file.url)?.at_host("enroll") })
    }

    /// The name of the file's token, if it has one.
    pub fn token(&self) -> Option<&str> {
        self.file.token.as_ref().map(|token| token.name.as_str())
    }

    /// Begins: commits to a nonce and to the claim, and hears the host's nonce and offer.
    pub fn begin(&self, key: &SigningKey, claim: &Claim, nonce: Nonce) -> Result<Prepared, ExchangeError> {
        let claim_key = claim.key.clone();
        let claim = text(claim)?;
        let kind = if self.token.is_some() { Kind::Token } else { Kind::Code };
        let started = start(&self.agent, &self.url, kind, &nonce, &claim)?;
        let offer = EnrolmentFile::pinned(started.offer.as_bytes(), Pin::of(self.file.trust.sha256))?;
        // When it was written is no matter: this device's first floor of time is that of the file which it was given.
        let token = self.file.token.clone();
        if (EnrolmentFile { issued: self.file.issued, token, ..offer }) != *self.file {
            return Err(ExchangeError::OtherOffer);
        }
        let transcript = Transcript::of((&nonce, &started.nonce), claim.as_bytes(), started.offer.as_bytes());
        let proof = proof(key, &transcript)?;
        let token = match (&self.token, &self.file.token) {
            (Some(key), Some(Token { name, .. })) => {
                let message = transcript.token_message(&claim_key);
                let proof = key.sign(TOKEN_NAMESPACE, message.as_bytes()).map_err(ExchangeError::Sign)?;
                Some(TokenProof { name: name.clone(), proof })
            }
            _ => None,
        };
        let reveal = Reveal { nonce, claim, proof, replaces_proof: None, token };
        Ok(Prepared { request: started.request, code: transcript.code(), reveal })
    }

    /// Reveals what was committed to.
    pub fn reveal(&self, prepared: &Prepared) -> Result<Stand, ExchangeError> {
        reveal(&self.agent, &self.url, prepared)
    }

    /// Asks what was said of a request.
    pub fn ask(&self, request: &str) -> Result<Stand, ExchangeError> {
        ask(&self.agent, &self.url, request)
    }
}

/// Reveals what was committed to, at the host whose enrolments are there.
pub fn reveal(agent: &Agent, url: &Url, prepared: &Prepared) -> Result<Stand, ExchangeError> {
    let (url, bytes) = (url.below(&prepared.request), json::to_bytes(&prepared.reveal));
    match send(agent, &Request::post(&url, &bytes))? {
        (202, _) => Ok(Stand::Waits),
        (404, _) => Ok(Stand::Unknown),
        (400 | 403, answer) => Err(refused(&answer)),
        _ => Err(ExchangeError::Answer),
    }
}

/// Asks what was said of a request, at the host whose enrolments are there.
pub fn ask(agent: &Agent, url: &Url, request: &str) -> Result<Stand, ExchangeError> {
    match send(agent, &Request { method: Some(Method::Get), ..Request::get(&url.below(request)) })? {
        (200, answer) => json::read(&answer).map(Stand::Approved).map_err(|_| ExchangeError::Answer),
        (204, _) => Ok(Stand::Waits),
        (404, _) => Ok(Stand::Unknown),
        (409, _) => Ok(Stand::Rejected),
        _ => Err(ExchangeError::Answer),
    }
}

/// Begins an exchange by which a device that is enrolled asks for a new key: both the old one and the new one sign it.
pub fn begin_rekey(
    agent: &Agent,
    url: &Url,
    (old, new): (&SigningKey, &SigningKey),
    claim: &Claim,
    nonce: Nonce,
) -> Result<Prepared, ExchangeError> {
    let claim = text(claim)?;
    let started = start(agent, url, Kind::Known, &nonce, &claim)?;
    let transcript = Transcript::of((&nonce, &started.nonce), claim.as_bytes(), started.offer.as_bytes());
    let replaces_proof = Some(proof(old, &transcript)?);
    let reveal = Reveal { nonce, claim, proof: proof(new, &transcript)?, replaces_proof, token: None };
    Ok(Prepared { request: started.request, code: transcript.code(), reveal })
}

/// Comes back to a host whose publisher knows this device's key: with a claim that names the device, and the digest of the
/// secret that it will show.
pub fn readmit(
    agent: &Agent,
    url: &Url,
    key: &SigningKey,
    claim: &Claim,
    nonce: Nonce,
) -> Result<Approved, ExchangeError> {
    let claim = text(claim)?;
    let started = start(agent, url, Kind::Known, &nonce, &claim)?;
    // Whatever it offers: this device has its own roster, and keeps the address of the host that it has.
    let transcript = Transcript::of((&nonce, &started.nonce), claim.as_bytes(), started.offer.as_bytes());
    let reveal = Reveal { nonce, claim, proof: proof(key, &transcript)?, replaces_proof: None, token: None };
    match send(agent, &Request::post(&url.below(&started.request), &json::to_bytes(&reveal)))? {
        (200, answer) => json::read(&answer).map_err(|_| ExchangeError::Answer),
        (404, _) => Err(ExchangeError::Closed),
        (400 | 403, answer) => Err(refused(&answer)),
        _ => Err(ExchangeError::Answer),
    }
}

fn text(claim: &Claim) -> Result<String, ExchangeError> {
    String::from_utf8(json::to_bytes(claim)).map_err(|_| ExchangeError::Answer)
}

/// The first message, and what the host says to it.
fn start(agent: &Agent, url: &Url, kind: Kind, nonce: &Nonce, claim: &str) -> Result<Started, ExchangeError> {
    let start = Start { layout: LAYOUT, kind, commitment: commitment(nonce, claim.as_bytes()) };
    let started: Started = match send(agent, &Request::post(url, &json::to_bytes(&start)))? {
        (201, answer) => json::read(&answer).map_err(|_| ExchangeError::Answer)?,
        (404, _) => return Err(ExchangeError::Closed),
        (400 | 403, answer) => return Err(refused(&answer)),
        _ => return Err(ExchangeError::Answer),
    };
    let is_name = started.request.len() == 32 && started.request.bytes().all(|c| c.is_ascii_hexdigit());
    if is_name { Ok(started) } else { Err(ExchangeError::Answer) }
}

fn proof(key: &SigningKey, transcript: &Transcript) -> Result<String, ExchangeError> {
    key.sign(PROOF_NAMESPACE, transcript.as_bytes()).map_err(ExchangeError::Sign)
}

/// A status that is a word of the exchange, and what came with it; anything else is an error.
fn send(agent: &Agent, request: &Request<'_>) -> Result<(u16, Vec<u8>), ExchangeError> {
    let response = agent.answer(request)?;
    let status = response.status;
    if [429, 503].contains(&status) {
        let after = response.header("retry-after").and_then(|value| value.parse().ok()).unwrap_or(10);
        return Err(ExchangeError::Full { after: Duration::from_secs(after) });
    }
    Ok((status, response.body.bytes(MAX_ANSWER)?))
}

/// The word that the host answers a refused request with (`{"error": …}`), of which 40 characters are kept.
fn refused(answer: &[u8]) -> ExchangeError {
    #[derive(serde::Deserialize)]
    struct Word {
        error: String,
    }
    let word = json::read::<Word>(answer).map_or_else(|_| "no reason given".to_owned(), |word| word.error);
    ExchangeError::Refused(word.chars().take(40).collect())
}
