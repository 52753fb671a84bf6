//! How long a device that the host doesn't let in leaves it alone.

use std::time::{Duration, Instant};

use repo_model::answer::RETIRED_AGAIN;
use repo_model::enrolment::EnrolmentError;
use repo_model::error_chain;

use super::{AccountError, PAUSE};
use crate::host::enrolment::ExchangeError;

/// The pause of one that the host refused.
const REFUSED: Duration = Duration::from_secs(3600);

/// The same of one that was taken out of service.
const RETIRED: Duration = Duration::from_secs(RETIRED_AGAIN);

/// The pause until a device asks again to be let in by its key.
#[derive(Debug, Default)]
pub struct Away {
    until: Option<Instant>,
}

impl Away {
    /// Whether it may ask now.
    pub fn is_over(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() >= until)
    }

    /// Notes what came of asking. Returns whether it is let in.
    pub fn note(&mut self, result: &Result<(), AccountError>) -> bool {
        let pause = match result {
            Err(AccountError::Exchange(ExchangeError::Refused(word))) if word == EnrolmentError::Retired.code() => {
                RETIRED
            }
            Err(AccountError::Exchange(ExchangeError::Closed | ExchangeError::Refused(_))) => REFUSED,
            Err(AccountError::Exchange(error)) => error.after().map_or(PAUSE, |after| after.min(REFUSED)),
            _ => PAUSE,
        };
        self.until = Some(Instant::now() + pause);
        if let Err(error) = result {
            tracing::warn!(error = error_chain(error), "the host doesn't let this device in by its key either");
        }
        result.is_ok()
    }
}
