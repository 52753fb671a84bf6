//! Who waits to be enrolled, as it is shown here and as a host answers it.

use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use repo_git::sign::openssh;
use repo_model::enrolment::{Claim, Kind};
use repo_model::{DeviceId, error_chain};
use serde::{Deserialize, Serialize};
use wfm_git_host::accounts::Store;
use wfm_git_host::enrolment::{Claims, Verdict, Waiting};

use super::says;
use crate::cli::{Place, table};
use crate::error::Failure;
use crate::fleet::{self, SourceFile};
use crate::operator::{Batch, Candidate, conflict, counts, rekey_note, waiting_with};
use crate::repos::{Control, Home};

/// Who waits, who was answered, and who may come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct View {
    /// Until when devices may ask by a code; absent where they may not.
    open_until: Option<Timestamp>,
    /// The batch tokens that count.
    tokens: Vec<OpenToken>,
    /// Those that wait for a person's word, the oldest first.
    pub(super) pending: Vec<Pending>,
    /// Those of which a person said something, as long as that is remembered.
    pub(super) answered: Vec<Answered>,
}

/// A batch token with which devices may ask.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct OpenToken {
    name: String,
    until: Timestamp,
}

/// One that waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Pending {
    #[serde(flatten)]
    pub(super) request: Request,
    address: IpAddr,
    token: Option<String>,
    /// As which it would be taken in that came by a token, or whose new key it is.
    device: Option<DeviceId>,
    /// What there is to know.
    note: Option<String>,
    /// Why it can't be taken in.
    problem: Option<String>,
    /// What another device has of what it claims.
    conflict: Option<String>,
    /// What it says of itself; absent where that can't be read.
    claim: Option<Claim>,
}

/// What tells one that waits, or waited, from all others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) number: u64,
    received: Timestamp,
    /// Of the key that it proved; absent where its claim can't be read.
    pub(super) fingerprint: Option<String>,
}

/// One that was answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Answered {
    #[serde(flatten)]
    pub(super) request: Request,
    pub(super) answer: Word,
    /// As which it was taken in.
    pub(super) device: Option<DeviceId>,
}

/// What a person said of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Word {
    Approved,
    Rejected,
}

impl View {
    pub(super) fn of(place: &Place, home: &Home, listed: &[Waiting], now: Timestamp) -> Result<Self, Failure> {
        let source = place.source()?;
        let files = source.files(source.resolve("HEAD")?)?;
        let by_token = by_token(home, &files, listed)?;
        let (tokens, _) = fleet::read_tokens(&files);
        let tokens = tokens.into_values().filter(|token| counts(token, now));
        let opening = Claims::new(home.enrolments()).opening()?;
        let undecided = listed.iter().filter(|one| one.verdict.is_none());
        Ok(Self {
            open_until: opening.map(|opening| opening.until).filter(|until| now < *until),
            tokens: tokens.map(|token| OpenToken { name: token.name, until: token.until }).collect(),
            pending: undecided.map(|one| Pending::of(one, listed, &files, &by_token)).collect(),
            answered: listed.iter().filter_map(Answered::of).collect(),
        })
    }

    /// For people: who waits, and who may come to.
    pub(super) fn page(&self, now: Timestamp) -> String {
        let head = match self.open_until {
            Some(until) => format!("devices may ask to be enrolled until {until:.0}\n"),
            None if !self.tokens.is_empty() => String::new(),
            None => "no device may ask to be enrolled now: `enroll open --for 8h` lets them\n".to_owned(),
        };
        let of_token = |token: &OpenToken| format!("with the token {} until {:.0}\n", token.name, token.until);
        let head: String = std::iter::once(head).chain(self.tokens.iter().map(of_token)).collect();
        let body = match self.pending.iter().collect::<Vec<_>>() {
            none if none.is_empty() => "no device waits\n".to_owned(),
            some => rows(&some, now),
        };
        let waits = |kind: Kind| self.pending.iter().any(|one| one.kind() == kind);
        let by_number = "\nA new key, if the device shows the same: device approve --number NUMBER --id ID\n";
        let codes = [
            waits(Kind::Code).then(|| "\nRead the code from the device: device approve CODE --id ID\n".to_owned()),
            waits(Kind::Known).then(|| by_number.to_owned()),
        ];
        let mut names: Vec<_> = self.pending.iter().filter_map(|one| one.token.as_ref()).collect();
        names.sort();
        names.dedup();
        let names =
            names.into_iter().map(|name| format!("\nAll with the token {name}: device approve --token {name}\n"));
        let more: String = codes.into_iter().flatten().chain(names).collect();
        format!("{head}{body}{more}")
    }
}

/// A table of some that wait.
pub(super) fn rows(some: &[&Pending], now: Timestamp) -> String {
    let head = ["NUMBER", "AGE", "FROM", "SAYS THAT IT IS", "KEY", "NOTE"].map(str::to_owned);
    table(&std::iter::once(head).chain(some.iter().map(|one| one.row(now))).collect::<Vec<_>>())
}

/// What came by tokens, judged as an approval would.
fn by_token(home: &Home, files: &[SourceFile], listed: &[Waiting]) -> Result<Vec<Candidate>, Failure> {
    let mut names: Vec<_> = listed.iter().filter_map(|one| one.token.as_ref()).map(|by| by.name.clone()).collect();
    names.sort();
    names.dedup();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let (tokens, _) = fleet::read_tokens(files);
    let (accounts, roster) = (Store::new(home.accounts()), Control::read(home)?.1.newest.digest);
    let mut judged = Vec::new();
    for name in names {
        let batch = Batch { token: tokens.get(&name), files, accounts: &accounts, roster };
        judged.extend(batch.judge(waiting_with(listed.to_vec(), &name))?);
    }
    Ok(judged)
}

impl Request {
    fn of(one: &Waiting) -> Self {
        let fingerprint = one.claim().ok().map(|claim| openssh::fingerprint(&claim.key));
        Self { number: one.number, received: one.received, fingerprint }
    }
}

impl Pending {
    pub(super) fn of(one: &Waiting, listed: &[Waiting], files: &[SourceFile], by_token: &[Candidate]) -> Self {
        let candidate = by_token.iter().find(|candidate| candidate.waiting.request == one.request);
        let (claim, unreadable) = match one.claim() {
            Ok(claim) => (Some(claim), None),
            Err(error) => (None, Some(error_chain(&error))),
        };
        let is_new = one.kind() == Kind::Code;
        let rekey = claim.as_ref().and_then(|claim| rekey_note(files, listed, one, claim));
        Self {
            request: Request::of(one),
            address: one.address,
            token: one.token.as_ref().map(|token| token.name.clone()),
            device: candidate.and_then(|candidate| candidate.device.clone()).or_else(|| one.rekeys.clone()),
            note: candidate.and_then(|candidate| candidate.note.clone()).or(rekey),
            problem: unreadable.or_else(|| candidate.and_then(|candidate| candidate.problem.clone())),
            conflict: claim.as_ref().filter(|_| is_new).and_then(|claim| conflict(files, claim)),
            claim,
        }
    }

    /// What lets it in.
    fn kind(&self) -> Kind {
        match self {
            Self { token: Some(_), .. } => Kind::Token,
            Self { device: Some(_), .. } => Kind::Known,
            _ => Kind::Code,
        }
    }

    fn row(&self, now: Timestamp) -> [String; 6] {
        let Request { number, received, fingerprint } = &self.request;
        let age = now.duration_since(*received).max(SignedDuration::ZERO);
        let age = if age.as_mins() > 0 { format!("{} min", age.as_mins()) } else { format!("{} s", age.as_secs()) };
        let says = self.claim.as_ref().map(says).unwrap_or_default();
        let key = fingerprint.clone().unwrap_or_default();
        [number.to_string(), age, self.address.to_string(), says, key, self.remark()]
    }

    /// What is to be known of it; of one that came by a token, as what it would be taken in.
    pub(super) fn remark(&self) -> String {
        let Self { token, device, note, problem, conflict, claim, .. } = self;
        if claim.is_none() {
            return problem.clone().unwrap_or_default();
        }
        let Some(token) = token else { return note.as_ref().or(conflict.as_ref()).cloned().unwrap_or_default() };
        let device = device.as_ref().map(|device| format!("as {device}"));
        let problem = problem.as_ref().map(|problem| format!("NOT: {problem}"));
        let parts = [Some(format!("token {token}")), device, problem, note.clone()];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

impl Answered {
    fn of(one: &Waiting) -> Option<Self> {
        let (answer, device) = match one.verdict.as_ref()? {
            Verdict::Approved { answer, .. } => (Word::Approved, Some(answer.device.clone())),
            Verdict::Rejected { .. } => (Word::Rejected, None),
        };
        Some(Self { request: Request::of(one), answer, device })
    }
}
