//! What a host answers that a clone asks.

use std::ops::ControlFlow;

use serde::de::DeserializeOwned;

use super::Progress;
use crate::error::Failure;
use crate::operator::{Answer, FleetHost, FleetHostError};

/// What comes after an answer: the next question, or the end with this exit code.
pub(super) type Next = ControlFlow<u8, String>;

/// Asks a host, and tells whoever waits that it is waited for.
pub(super) fn ask(host: &FleetHost, question: &str) -> Result<Answer, FleetHostError> {
    ask_with(host, question, None)
}

/// The same with this JSON sent along.
pub(super) fn ask_with(host: &FleetHost, question: &str, sent: Option<&[u8]>) -> Result<Answer, FleetHostError> {
    // Not before git has a credential: it may ask a person for one.
    host.ask(question, sent, || Progress::start("waiting for the host"))
}

/// The JSON of an answer as what it is; without such a one the failure that the host tells.
pub(super) fn read<T: DeserializeOwned>(said: &Answer) -> Result<T, Failure> {
    if !said.is_json {
        return Err(Failure::new(said.notes.strip_prefix("error: ").unwrap_or(&said.notes)));
    }
    serde_json::from_str(&said.output).map_err(|error| {
        let failure = Failure::new(format!("cannot understand what the host answers: {error}"));
        failure.hint("it may be newer than this program, which has to be updated then")
    })
}
