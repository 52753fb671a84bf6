//! Enrolment by code or by a batch token (`repo-layouts/README.md`, *Enrolment*): devices that nobody knows say who they are,
//! and a person takes them in, who compares their code or made their token. A device that is known comes back by its key, where
//! its account ended or this host lost it; of those nothing is kept here.
//!
//! It is the only thing that strangers may ask of this host, so everything in it is bounded: it is closed unless an operator
//! opened it for a while ([`Opening`]), a token counts ([`Tokens`]) or a key is proven, and none of the three takes places of another; `exchange` keeps what was begun in memory, and begins no more than `pace`
//! allows; `claims` keeps what waits for a person in the home's `enroll/`, one file each, and is the truth for both the
//! running host and the command line. A stranger gets the same words whether its id, serial or key is known or not.

mod claims;
mod exchange;
mod opened;
mod pace;
mod range;
mod requests;

pub use claims::{Claims, ClaimsError, Opening, Token, Tokens, Verdict, Waiting};
pub use range::{InvalidRange, Range};

pub(crate) use requests::Enrolment;
