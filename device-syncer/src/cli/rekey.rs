//! `rekey`.

use std::process::ExitCode;

use repo_git::SigningKey;
use repo_git::sign::openssh::fingerprint;
use repo_http::{Agent, Url};
use repo_model::enrolment::{Claim, EnrolmentError, Nonce};
use repo_model::{DeviceId, Digest};
use serde::Serialize;

use super::show::json;
use super::{OutputArgs, must_be};
use crate::config::Home;
use crate::error::CliError;
use crate::home::{self, HomeError};
use crate::host::enrolment::{ExchangeError, Stand, ask, begin_rekey, reveal};
use crate::host::verify::key_text;
use crate::state::rekey::{self, Rekey};

/// Asks for a new key in the place of the one that this device signs with.
///
/// The old key vouches for the new one, so nobody has to come here; but a person says yes at the host:
/// `wfm-git-publisher device pending`, then `device approve --number NUMBER --id ID`. Compare the fingerprint that this prints. Until
/// the publisher publishes it, the old key goes on; then the running syncer goes over to the new one by itself, also
/// after a power cut, and the old one counts no longer. A device that comes with a certificate gets another one with it. Run it again to see how it
/// stands.
///
/// Where the host isn't reached over HTTPS with an account of the fleet's own host, it prints the lines to enrol instead; over SSH with a new
/// key for the host, too. Give them to `wfm-git-publisher device enroll ID - --replace`.
///
/// For keys that may have been seen by somebody, or that are as old as your rules let them be. Where a thief has the old key, he can
/// ask as well: approve only what you began yourself.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  device-syncer rekey\n  device-syncer rekey --output json")]
pub(super) struct Args {
    #[command(flatten)]
    output: OutputArgs,
}

/// How it stands with the new key, as `rekey` prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    state: State,
    /// Of the new key: `SHA256:…`.
    fingerprint: String,
    /// What to give to `device enroll`, where a person carries it to the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    enrolment_line: Option<String>,
    /// The same for the key with which a host is asked over SSH.
    #[serde(skip_serializing_if = "Option::is_none")]
    ssh_line: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum State {
    /// A person has to say yes at the host.
    Waits,
    /// One did; the next state that is published lists the key.
    Approved,
    /// A person has to carry the lines to the host.
    ToEnroll,
}

pub(super) fn run(home: &Home, args: &Args) -> Result<ExitCode, CliError> {
    must_be(home)?;
    let device = home::joined(home)?.device;
    let connection = home::connection(home)?;
    let shown = match connection.enrolments() {
        Some((agent, url)) => at_host(home, &device, (agent, &url), connection.certificate.is_some())?,
        None => lines(home, &device)?,
    };
    args.output.print(|| text(&shown, &device), || json(&shown))?;
    Ok(ExitCode::SUCCESS)
}

/// How the request stands that was made before; a new one where there is none any more.
fn at_host(home: &Home, device: &DeviceId, host: (&Agent, &Url), by_certificate: bool) -> Result<Shown, CliError> {
    if let (Some(request), true) = (rekey::read(home).and_then(|asked| asked.request), home.next_key().exists()) {
        match ask(host.0, host.1, &request)? {
            Stand::Waits => return shown(home, State::Waits),
            Stand::Approved(_) => return shown(home, State::Approved),
            Stand::Rejected => {
                rekey::end_request(home).map_err(HomeError::from)?;
                let why = "the operator rejected the new key, and the old one goes on; run it again to ask once more";
                return Err(CliError::Input(why.to_owned()));
            }
            // Nobody said anything for too long, or the host never heard of it.
            Stand::Unknown => {}
        }
    }
    let (asked, next) = rekey::begin(home).map_err(HomeError::from)?;
    let certificate = if by_certificate { Some(home::next_certificate(home)?) } else { None };
    match request(home, device, host, (asked, &next), certificate) {
        Ok(Stand::Unknown) => Err(CliError::Input("the host didn't keep the request: run it again".to_owned())),
        Ok(_) => shown(home, State::Waits),
        Err(CliError::Enrol(error @ (ExchangeError::Closed | ExchangeError::Refused(_)))) => {
            rekey::end_request(home).map_err(HomeError::from)?;
            Err(CliError::Input(format!("{error}{}", reason(&error))))
        }
        Err(error) => Err(error),
    }
}

/// Asks for the new key; what is about to be revealed is on the disk before it is.
fn request(
    home: &Home,
    device: &DeviceId,
    (agent, url): (&Agent, &Url),
    (mut asked, next): (Rekey, &SigningKey),
    certificate: Option<Digest>,
) -> Result<Stand, CliError> {
    let old = SigningKey::load(&home.key()).map_err(|error| HomeError::Key(error.into()))?;
    let claim = Claim::new(key_text(&next.public()), Digest::of(asked.secret.as_bytes()), env!("CARGO_PKG_VERSION"));
    let claim = Claim { id: Some(device.clone()), replaces: Some(key_text(&old.public())), certificate, ..claim };
    let prepared = begin_rekey(agent, url, (&old, next), &claim, Nonce::new(home::random()?))?;
    asked.request = Some(prepared.request.clone());
    rekey::write(home, &asked)?;
    Ok(reveal(agent, url, &prepared)?)
}

fn reason(error: &ExchangeError) -> &'static str {
    match error {
        ExchangeError::Refused(word) if *word == EnrolmentError::NotListed.code() => {
            ": the state that was published last doesn't list this device's key, another key was approved, or the host is too old for this"
        }
        ExchangeError::Closed => "; is the host one of this fleet's own, and new enough for this?",
        _ => "",
    }
}

/// The lines that a person carries to the host.
fn lines(home: &Home, device: &DeviceId) -> Result<Shown, CliError> {
    let (_, next) = rekey::begin(home).map_err(HomeError::from)?;
    let ssh_line = home::next_ssh_line(home, &key_text(&next.public()))?;
    let shown = shown(home, State::ToEnroll)?;
    Ok(Shown { enrolment_line: Some(format!("{} {device}", next.public())), ssh_line, ..shown })
}

fn shown(home: &Home, state: State) -> Result<Shown, CliError> {
    let next = SigningKey::load(&home.next_key()).map_err(|error| HomeError::Key(error.into()))?;
    Ok(Shown { state, fingerprint: fingerprint(&key_text(&next.public())), enrolment_line: None, ssh_line: None })
}

fn text(Shown { state, fingerprint, enrolment_line, ssh_line }: &Shown, device: &DeviceId) -> String {
    let lines: String = enrolment_line.iter().chain(ssh_line).map(|line| format!("{line}\n")).collect();
    match state {
        State::Waits => format!(
            "new key: {fingerprint}\nat the host: wfm-git-publisher device pending, and then\n  \
             wfm-git-publisher device approve --number NUMBER --id {device}\nuntil that is published, the old key goes on\n"
        ),
        State::Approved => {
            format!("new key: {fingerprint}\nit is approved; the device goes over to it with the next `publish`\n")
        }
        State::ToEnroll => format!(
            "{lines}at the publisher: wfm-git-publisher device enroll {device} - --replace, with what stands above\n\
             until that is published, the old key goes on\n"
        ),
    }
}
