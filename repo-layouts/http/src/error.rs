//! What went wrong with a request, precisely, and what that means for whoever asked.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use repo_model::answer::says_retired;
use rustls::{AlertDescription, CertificateError};
use ureq::Timeout;

use crate::tls::WrongKey;
use crate::{Cause, CredentialError, SettingsError, Timeouts, Url};

/// A request that failed. Neither its text nor its causes hold a credential.
#[derive(Debug, thiserror::Error)]
#[error("`{url}` {problem}")]
pub struct HttpError {
    /// What was asked, without its query.
    pub url: String,
    pub problem: Problem,
    #[source]
    pub source: Option<Cause>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The name means nothing here and now.
    #[error("can't be found: its name doesn't resolve")]
    NameUnknown,
    #[error("refuses connections")]
    Refused,
    /// The network doesn't lead there, or anything else under TCP.
    #[error("can't be reached")]
    Network,
    /// The proxy didn't make the connection.
    #[error("can't be reached through the proxy: {said}")]
    Proxy { said: String },
    /// A limit in time passed.
    #[error("{phase} within {} s", limit.as_secs_f64())]
    Slow { phase: Phase, limit: Duration },
    /// The connection ended in the middle.
    #[error("broke the connection off")]
    Cut,
    /// The host's certificate isn't believed.
    #[error("has a certificate that is not believed: {0}")]
    Certificate(Trust),
    /// The host doesn't accept our certificate, or wants one.
    #[error("doesn't accept this client's certificate, or wants one")]
    ClientCertificate,
    #[error("can't agree on TLS")]
    Tls,
    /// The own credential can't be read.
    #[error("isn't asked: the credential can't be read")]
    Credential,
    /// The own settings can't be used.
    #[error("isn't asked: the settings can't be used")]
    Settings,
    #[error("answers {status}{}", if said.is_empty() { String::new() } else { format!(": {said}") })]
    Status {
        status: u16,
        /// One line of what the host said, if that was plain text.
        said: String,
        /// How long the host wants to be left alone.
        retry_after: Option<Duration>,
    },
    /// Elsewhere; never followed where a credential goes along.
    #[error("redirects to `{to}`, which is not followed")]
    Redirect {
        /// Where to, without its query.
        to: String,
    },
    /// It answers, and not as the host that is meant: a captive portal, a login page, another server.
    #[error("answers with `{found}` instead of `{expected}`: another server or a captive portal answers in its place")]
    ContentType { found: String, expected: &'static str },
    #[error("sends more than the {limit} bytes allowed")]
    TooLarge { limit: u64 },
    /// It doesn't speak HTTP as it must.
    #[error("breaks the HTTP protocol")]
    Protocol,
}

/// Which step took too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Phase {
    /// Name, TCP and TLS, until the connection stands.
    #[error("doesn't accept a connection")]
    Connect,
    /// From the request to the first byte of the answer.
    #[error("doesn't answer")]
    Answer,
    /// Between two bytes, either way.
    #[error("stalls: not a byte")]
    Stall,
    /// From the beginning to the last byte.
    #[error("is too slow: not done")]
    Total,
}

/// Why a certificate isn't believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Trust {
    #[error("it has expired")]
    Expired,
    /// Its time hasn't come, or the clock here is behind.
    #[error("it isn't valid yet; is the clock right?")]
    NotYet,
    /// No trusted authority signed it.
    #[error("no authority that is trusted here signed it")]
    Authority,
    /// The certificate is for another name than the URL has.
    #[error("it is for another name")]
    Name,
    /// It isn't for the pinned key.
    #[error("it is not for the pinned key")]
    Key,
    #[error("it is not a proper certificate of a host")]
    Other,
}

impl Phase {
    /// A stable name, in PascalCase as the reason of a condition; the same over HTTPS and SSH.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Connect => "ConnectTimeout",
            Self::Answer => "AnswerTimeout",
            Self::Stall => "ConnectionStalled",
            Self::Total => "TotalTimeout",
        }
    }
}

impl HttpError {
    pub(crate) fn new(url: &Url, problem: Problem, source: Option<Cause>) -> Self {
        Self { url: url.to_string(), problem, source }
    }

    /// The own credential can't be read, so nothing was asked.
    pub fn credential(url: &Url, source: CredentialError) -> Self {
        Self::new(url, Problem::Credential, Some(source.into()))
    }

    /// Settings that were good once and aren't any more.
    pub fn settings(url: &Url, source: SettingsError) -> Self {
        Self::new(url, Problem::Settings, Some(source.into()))
    }

    /// How long the host wants to be left alone, if it said so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.problem {
            Problem::Status { retry_after, .. } => retry_after,
            _ => None,
        }
    }

    /// The status, if the host answered with one that is no success.
    pub fn status(&self) -> Option<u16> {
        match self.problem {
            Problem::Status { status, .. } => Some(status),
            _ => None,
        }
    }

    /// Whether the host's certificate isn't believed.
    pub fn is_of_certificate(&self) -> bool {
        matches!(self.problem, Problem::Certificate(_))
    }

    /// Whether somebody has to do something before this can work again. Anything else may pass by itself.
    pub fn needs_a_person(&self) -> bool {
        match &self.problem {
            Problem::Status { status, .. } => matches!(status, 401 | 403 | 404 | 407 | 410),
            Problem::Certificate(_)
            | Problem::ClientCertificate
            | Problem::Credential
            | Problem::Settings
            | Problem::Redirect { .. } => true,
            _ => false,
        }
    }

    /// A stable name of the problem, in PascalCase as the reason of a condition.
    pub fn reason(&self) -> &'static str {
        match &self.problem {
            Problem::NameUnknown => "NameUnknown",
            Problem::Refused => "ConnectionRefused",
            Problem::Network => "NetworkUnreachable",
            Problem::Proxy { .. } => "ProxyFailed",
            Problem::Slow { phase, .. } => phase.reason(),
            Problem::Cut => "ConnectionCut",
            Problem::Certificate(Trust::Expired) => "CertificateExpired",
            Problem::Certificate(Trust::NotYet) => "CertificateNotYetValid",
            Problem::Certificate(Trust::Authority) => "CertificateUnknownAuthority",
            Problem::Certificate(Trust::Name) => "CertificateWrongName",
            Problem::Certificate(Trust::Key) => "CertificateWrongKey",
            Problem::Certificate(Trust::Other) => "CertificateInvalid",
            Problem::ClientCertificate => "ClientCertificateRefused",
            Problem::Tls => "TlsFailed",
            Problem::Credential => "CredentialUnreadable",
            Problem::Settings => "SettingsUnusable",
            Problem::Status { status: 403, said, .. } if says_retired(said) => "Retired",
            Problem::Status { status, .. } => match status {
                401 => "Unauthorized",
                403 => "Forbidden",
                404 | 410 => "NotFound",
                407 => "ProxyUnauthorized",
                429 => "TooManyRequests",
                500.. => "HostError",
                _ => "RequestRefused",
            },
            Problem::Redirect { .. } => "Redirected",
            Problem::ContentType { .. } => "NotTheHost",
            Problem::TooLarge { .. } => "TooLarge",
            Problem::Protocol => "ProtocolBroken",
        }
    }

    pub(crate) fn judge(url: &Url, error: ureq::Error, timeouts: &Timeouts) -> Self {
        let problem = problem(&error, timeouts);
        // What these would add was said in full.
        let is_said = matches!(
            problem,
            Problem::Slow { .. } | Problem::Proxy { .. } | Problem::NameUnknown | Problem::Refused | Problem::Cut
        );
        let source: Option<Cause> = match error {
            _ if is_said => None,
            ureq::Error::Io(error) => Some(error.into()),
            ureq::Error::Other(error) => Some(error),
            error => Some(error.into()),
        };
        Self::new(url, problem, source)
    }

    /// The error of an answer that broke off while it was read.
    pub(crate) fn of_reading(url: &Url, error: io::Error, timeouts: &Timeouts) -> Self {
        Self::judge(url, error.into(), timeouts)
    }
}

fn problem(error: &ureq::Error, timeouts: &Timeouts) -> Problem {
    match error {
        ureq::Error::HostNotFound => Problem::NameUnknown,
        ureq::Error::Timeout(reason) => slow(*reason, timeouts),
        ureq::Error::ConnectProxyFailed(said) => Problem::Proxy { said: said.clone() },
        ureq::Error::Io(error) => of_io(error),
        ureq::Error::Other(error) => match error.downcast_ref::<rustls::Error>() {
            Some(error) => of_tls(error),
            None => Problem::Tls,
        },
        ureq::Error::ConnectionFailed => Problem::Network,
        ureq::Error::BodyStalled => Problem::Cut,
        _ => Problem::Protocol,
    }
}

fn slow(reason: Timeout, timeouts: &Timeouts) -> Problem {
    let (phase, limit) = match reason {
        Timeout::Resolve | Timeout::Connect => (Phase::Connect, timeouts.connect),
        Timeout::RecvResponse => (Phase::Answer, timeouts.answer),
        Timeout::PerRead | Timeout::PerWrite => (Phase::Stall, timeouts.stall),
        _ => (Phase::Total, timeouts.total),
    };
    Problem::Slow { phase, limit }
}

fn of_io(error: &io::Error) -> Problem {
    let inner = error.get_ref().map(|inner| inner as &(dyn std::error::Error + 'static));
    if let Some(tls) = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return of_tls(tls);
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Problem::Refused,
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof
        | io::ErrorKind::NotConnected => Problem::Cut,
        // std has no kind for a name that doesn't resolve.
        _ if error.to_string().contains("failed to lookup address") => Problem::NameUnknown,
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => Problem::Protocol,
        _ => Problem::Network,
    }
}

fn of_tls(error: &rustls::Error) -> Problem {
    match error {
        rustls::Error::InvalidCertificate(error) => Problem::Certificate(of_certificate(error)),
        rustls::Error::NoCertificatesPresented => Problem::Certificate(Trust::Other),
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::AccessDenied,
        ) => Problem::ClientCertificate,
        _ => Problem::Tls,
    }
}

fn of_certificate(error: &CertificateError) -> Trust {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => Trust::Expired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Trust::NotYet,
        CertificateError::UnknownIssuer | CertificateError::BadSignature => Trust::Authority,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => Trust::Name,
        CertificateError::Other(other) if other.source().is_some_and(|error| error.is::<WrongKey>()) => Trust::Key,
        _ => Trust::Other,
    }
}
