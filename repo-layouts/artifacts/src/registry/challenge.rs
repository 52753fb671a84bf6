//! What a registry says about who may ask (`WWW-Authenticate`), and the token that its token service gives
//! (distribution, *Token Authentication Specification*).

use std::time::Duration;

use http_auth::ChallengeRef;
use http_auth::parser::ChallengeParser;
use serde::Deserialize;

/// How long a token lasts of which its service doesn't say it, and the longest that is believed.
const LIFE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));

/// How a registry wants to know who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Challenge {
    /// Whoever asks is answered, without an account.
    None,
    /// A user and a password.
    Basic,
    /// A token of the service at `realm`.
    Bearer {
        /// Its address, as the registry wrote it.
        realm: String,
        /// The name by which the service knows the registry.
        service: Option<String>,
    },
}

impl Challenge {
    /// What the registry's headers say; a token is preferred.
    pub(super) fn of<'a>(headers: impl Iterator<Item = &'a str>) -> Self {
        let mut found = Self::None;
        for header in headers {
            match ChallengeParser::new(header).filter_map(Result::ok).find_map(|one| bearer(&one)) {
                Some(bearer) => return bearer,
                None => found = Self::Basic,
            }
        }
        found
    }
}

fn bearer(challenge: &ChallengeRef<'_>) -> Option<Challenge> {
    let parameter = |name: &str| {
        let (_, value) = challenge.params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))?;
        Some(value.to_unescaped())
    };
    let is_bearer = challenge.scheme.eq_ignore_ascii_case("Bearer");
    is_bearer.then(|| Some(Challenge::Bearer { realm: parameter("realm")?, service: parameter("service") }))?
}

/// A token service's answer isn't one. What it said isn't repeated, because it may hold a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidToken {
    #[error("the registry's token service answers with no token")]
    None,
    #[error("the registry's token isn't one word of printable text")]
    Unusable,
}

/// What a token service answers.
#[derive(Deserialize)]
struct Answer {
    token: Option<String>,
    /// The same by its name in OAuth 2.
    access_token: Option<String>,
    /// Seconds; what is no such number says nothing.
    #[serde(default)]
    expires_in: serde_json::Value,
}

/// The token in a token service's answer, and how long it lasts.
pub(super) fn token(answer: &[u8]) -> Result<(String, Duration), InvalidToken> {
    let answer: Answer = serde_json::from_slice(answer).map_err(|_| InvalidToken::None)?;
    let given = [answer.token, answer.access_token].into_iter().flatten().find(|token| !token.is_empty());
    let token = given.ok_or(InvalidToken::None)?;
    if !token.bytes().all(|c| c.is_ascii_graphic()) {
        return Err(InvalidToken::Unusable);
    }
    let life = answer.expires_in.as_u64().map_or(LIFE.0, |seconds| Duration::from_secs(seconds).min(LIFE.1));
    Ok((token, life))
}

/// A text as a value of a URL's query.
pub(super) fn query_value(text: &str) -> String {
    let mut value = String::new();
    for byte in text.bytes() {
        match byte {
            b'-' | b'.' | b'_' | b'~' => value.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => value.push(byte.into()),
            _ => value += &format!("%{byte:02X}"),
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(headers: &[&str]) -> Challenge {
        Challenge::of(headers.iter().copied())
    }

    #[test]
    fn a_token_is_preferred_wherever_it_is_offered() {
        let realm = |challenge| match challenge {
            Challenge::Bearer { realm, service } => (realm, service.unwrap_or_default()),
            other => panic!("{other:?}"),
        };
        let one = r#"Bearer realm="https://auth.example/token",service="registry.example",scope="repository:a:pull""#;
        let wanted = ("https://auth.example/token".to_owned(), "registry.example".to_owned());
        assert_eq!(realm(of(&[one])), wanted);
        assert_eq!(realm(of(&["Basic realm=\"x\"", one])), wanted);
        assert_eq!(realm(of(&[&format!("Basic realm=\"x\", {}", one.replace("Bearer", "bEARER"))])), wanted);
        assert_eq!(realm(of(&[r#"Bearer realm="a\"b""#])).0, "a\"b");
        assert_eq!(of(&[]), Challenge::None);
        for no_token in ["Basic realm=\"x\"", "Bearer service=\"x\"", "Bearer realm=", "\u{1}", "", "Negotiate", ",,,="]
        {
            assert_eq!(of(&[no_token]), Challenge::Basic, "{no_token:?}");
        }
    }

    #[test]
    fn a_token_is_one_word_and_lasts_as_long_as_it_says_up_to_an_hour() {
        let read = |text: &str| token(text.as_bytes());
        assert_eq!(read(r#"{"token": "abc", "expires_in": 300}"#), Ok(("abc".to_owned(), Duration::from_secs(300))));
        assert_eq!(read(r#"{"access_token": "abc"}"#), Ok(("abc".to_owned(), Duration::from_secs(60))));
        let both = r#"{"token": "", "access_token": "abc", "expires_in": -1.5}"#;
        assert_eq!(read(both), Ok(("abc".to_owned(), Duration::from_secs(60))));
        let for_ever = r#"{"token": "a", "expires_in": 18446744073709551615}"#;
        assert_eq!(read(for_ever), Ok(("a".to_owned(), Duration::from_secs(3600))));
        for none in ["", "{}", "[]", "<html>", r#"{"token": ""}"#, r#"{"token": 1}"#, r#"{"token": "a""#] {
            assert_eq!(read(none), Err(InvalidToken::None), "{none}");
        }
        for unusable in
            [r#"{"token": "a\r\nHost: b"}"#, r#"{"token": "a b"}"#, r#"{"token": "ü"}"#, r#"{"token": "\u0000"}"#]
        {
            assert_eq!(read(unusable), Err(InvalidToken::Unusable), "{unusable}");
        }
    }

    #[test]
    fn a_service_can_write_nothing_into_a_query_but_its_name() {
        assert_eq!(query_value("a-b.c_d~e"), "a-b.c_d~e");
        assert_eq!(query_value("a&scope=b\n#ü"), "a%26scope%3Db%0A%23%C3%BC");
    }
}
