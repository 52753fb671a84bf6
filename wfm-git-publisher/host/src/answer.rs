//! Errors as clients read them: one line of text for every error, or problem details for programs, and never a word about what an
//! account may not see.

use axum::body::Body;
use axum::http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Response, StatusCode};
use repo_model::answer::RETIRED;
use serde_json::json;

use crate::accounts::Denied;

/// An answer other than what was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// 401: no credentials, or none that let in.
    Unauthorized,
    /// 403: the device is retired, and nothing more is here for it.
    Retired,
    /// There is nothing here for this account.
    NotFound,
    /// The repository is there, but this can't be done with it.
    Forbidden(&'static str),
    /// The request can't be understood.
    BadRequest(String),
    /// Another method is needed: these, as the header `Allow` lists them.
    Method(&'static str),
    /// The request took too long.
    Timeout,
    /// The request is too large.
    TooLarge(u64),
    /// This account has too many requests in flight.
    TooMany,
    /// The host is at one of its limits; the client may come again in a few seconds.
    Busy,
    /// The host is about to stop.
    Stopping,
    /// Something is wrong with the host. What, is in its log.
    Internal,
}

impl From<Denied> for Refusal {
    /// All are alike for whoever asks, but for a device that is retired.
    fn from(denied: Denied) -> Self {
        if matches!(denied, Denied::Retired(_)) { Self::Retired } else { Self::Unauthorized }
    }
}

impl Refusal {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Retired | Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::Timeout => StatusCode::REQUEST_TIMEOUT,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Self::Busy | Self::Stopping => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Unauthorized => "an account is needed".to_owned(),
            Self::Retired => format!("{RETIRED}: this device is retired, and nothing more is here for it"),
            Self::NotFound => "there is nothing here".to_owned(),
            Self::Forbidden(why) => (*why).to_owned(),
            Self::BadRequest(why) => why.clone(),
            Self::Method(allowed) => format!("this can't be done that way, but by {allowed}"),
            Self::Timeout => "the request took too long".to_owned(),
            Self::TooLarge(limit) => format!("the request is larger than {limit} bytes"),
            Self::TooMany => "this account has too many requests in flight".to_owned(),
            Self::Busy => "the host is busy".to_owned(),
            Self::Stopping => "the host is about to stop".to_owned(),
            Self::Internal => "the host failed; its log says why".to_owned(),
        }
    }

    /// Seconds after which trying again makes sense.
    fn retry_after(&self) -> Option<&'static str> {
        match self {
            Self::TooMany => Some("1"),
            Self::Busy => Some("5"),
            Self::Stopping => Some("2"),
            Self::Retired => Some("86400"),
            _ => None,
        }
    }

    /// The same in one line, for those who have no status: a word that programs understand, the text for people, and when
    /// trying again makes sense.
    pub(crate) fn line(&self) -> String {
        let word = match self {
            Self::Unauthorized => "unauthorized",
            Self::NotFound => "not-found",
            Self::Forbidden(_) => "forbidden",
            Self::BadRequest(_) | Self::Method(_) | Self::Timeout | Self::TooLarge(_) => "bad-request",
            Self::TooMany | Self::Busy => "busy",
            Self::Stopping => "stopping",
            Self::Internal => "internal",
            // Its text begins with its word.
            Self::Retired => return format!("{}{}", self.text(), self.again()),
        };
        format!("{word}: {}{}", self.text(), self.again())
    }

    /// When trying again makes sense, for those who have no headers.
    fn again(&self) -> String {
        self.retry_after().map(|seconds| format!("; retry-after={seconds}")).unwrap_or_default()
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let response = text(self.status(), &self.text());
        self.with_headers(response)
    }

    /// The same as problem details.
    pub(crate) fn into_problem(self) -> Response<Body> {
        let response = problem(self.status(), &self.text(), None);
        self.with_headers(response)
    }

    fn with_headers(self, mut response: Response<Body>) -> Response<Body> {
        if self == Self::Unauthorized {
            let realm = HeaderValue::from_static("Basic realm=\"wfm\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, realm);
        }
        if let Self::Method(allowed) = self {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
        }
        if let Some(seconds) = self.retry_after() {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(seconds));
        }
        response
    }
}

/// An answer of one line.
pub(crate) fn text(status: StatusCode, line: &str) -> Response<Body> {
    with_type(status, "text/plain; charset=utf-8", format!("{line}\n"))
}

/// Problem details (RFC 9457), with the exit code of the command that said so.
pub(crate) fn problem(status: StatusCode, detail: &str, exit_code: Option<i32>) -> Response<Body> {
    let title = status.canonical_reason().unwrap_or_default();
    let mut details = json!({ "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail });
    if let Some(code) = exit_code {
        details["exitCode"] = code.into();
    }
    with_type(status, "application/problem+json", format!("{details}\n"))
}

/// An answer that no cache keeps.
pub(crate) fn with_type(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_retired_is_told_so_by_a_word_and_for_how_long_to_leave_the_host_alone() {
        let text = "retired: this device is retired, and nothing more is here for it";
        assert_eq!(Refusal::Retired.line(), format!("{text}; retry-after=86400"));
        let response = Refusal::Retired.into_response();
        assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (403, &"86400".parse().unwrap()));
        assert!(
            repo_model::answer::says_retired(text) && Refusal::NotFound.line() == "not-found: there is nothing here"
        );
    }
}
