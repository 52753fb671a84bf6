//! The one HTTPS agent of both programs, under Git, compose archives and whatever else is asked of a host, or of what
//! listens on a socket.
//!
//! An [`Agent`] keeps one connection to a host across requests and judges what comes back: [`Settings`] say whom it
//! trusts (public roots, a private CA, a pinned key), who it is (a client certificate), which proxy it takes and how
//! long each step may last; a [`Source`] says where its credential comes from, and is read again for each request. A
//! [`HttpError`] names the problem, whether it heals by itself, and when the host wants to be asked again. [`Clock`] is
//! the time that certificates are judged by: the machine's, or what the caller has proof of where that can't be right.
//!
//! Only `https://` is spoken, except with the registries that are named for plain HTTP to an agent of their own
//! ([`Agent::for_registries`]), Git hosts are never asked by that, and over a socket of the machine itself
//! ([`Agent::on_socket`]). Redirects are never followed where a credential is
//! attached, and neither a URL nor an error holds a secret.

mod agent;
mod body;
mod client_certificate;
mod clock;
mod credentials;
mod error;
mod proxy;
mod resolver;
mod settings;
mod settings_error;
mod socket;
mod tls;
mod url;

pub use agent::{Agent, Method, Request, Response};
pub use body::Body;
pub use client_certificate::ClientCertificate;
pub use clock::Clock;
pub use credentials::{Credential, CredentialError, Credentials, Source, read_private};
pub use error::{HttpError, Phase, Problem, Trust};
pub use proxy::Proxy;
pub use settings::{Pin, Settings, Timeouts};
pub use settings_error::SettingsError;
pub use url::{InvalidUrl, Url};

/// What lies under an error: its own chain of causes.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;
