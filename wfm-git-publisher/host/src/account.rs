//! `GET /account` and `POST /account/renew`: what an account may know about itself, and its next secret.

use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode, header};
use axum::routing::{get, post};
use axum::{Extension, Router};
use repo_model::error_chain;
use serde_json::{Value, json};
use tracing::{error, info};

use crate::accounts::{AccountError, Accounts, Identity};

/// Asks for credentials the way every Git client understands.
const CHALLENGE: &str = "Basic realm=\"wfm\"";

/// Both routes, with the accounts that they are about. Who asks is an extension of the request.
pub(crate) fn router(accounts: Accounts) -> Router {
    Router::new().route("/account", get(show)).route("/account/renew", post(renew)).with_state(accounts)
}

/// Who asks and until when the secret that was shown is valid: `{user, role, expires}`.
async fn show(State(accounts): State<Accounts>, who: Option<Extension<Identity>>) -> Response<Body> {
    let Some(Extension(who)) = who else { return unauthorized() };
    answer(&json!({ "user": who.name, "role": who.role, "expires": accounts.expires(&who) }))
}

/// A new secret, `{user, secret, expires}`. The old one is valid until the new one was used.
async fn renew(State(accounts): State<Accounts>, who: Option<Extension<Identity>>) -> Response<Body> {
    let Some(Extension(who)) = who else { return unauthorized() };
    let name = who.name.clone();
    // It waits for the disk: nobody may have a secret that a power cut takes away.
    let renewed = tokio::task::spawn_blocking(move || accounts.renew(&who)).await;
    match renewed {
        Ok(Ok(issued)) => {
            info!(account = %name, "has a new secret");
            answer(&json!({ "user": issued.name, "secret": issued.secret.reveal(), "expires": issued.expires }))
        }
        Ok(Err(error @ AccountError::NoSecret(_))) => line(StatusCode::FORBIDDEN, &format!("{error}\n")),
        // Changed since it was let in, a moment ago.
        Ok(Err(AccountError::Replaced(_) | AccountError::Revoked(_) | AccountError::None(_))) => unauthorized(),
        Ok(Err(error)) => failed(name.as_str(), &error),
        Err(error) => failed(name.as_str(), &error),
    }
}

fn answer(value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{value}\n")));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    response
}

fn unauthorized() -> Response<Body> {
    let mut response = line(StatusCode::UNAUTHORIZED, "credentials are needed\n");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static(CHALLENGE));
    response
}

fn failed(account: &str, cause: &(dyn std::error::Error + 'static)) -> Response<Body> {
    error!(account, error = error_chain(cause), "can't give it a new secret; the old one stays valid");
    let mut response =
        line(StatusCode::SERVICE_UNAVAILABLE, "no new secret can be made now; the old one stays valid\n");
    response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("60"));
    response
}

fn line(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(text.to_owned()));
    *response.status_mut() = status;
    let plain = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use axum::http::{HeaderMap, Request};
    use jiff::Timestamp;
    use tower::ServiceExt;

    use super::*;
    use crate::accounts::{Issued, Store, TTL};

    struct Lab {
        _dir: tempfile::TempDir,
        store: Store,
        issued: Issued,
        accounts: Accounts,
    }

    fn lab() -> Lab {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("accounts"));
        let device = "press-01".parse().unwrap();
        let issued = store.issue_for_device(&device, Some(TTL), false, Timestamp::now()).unwrap();
        let accounts = Accounts::open(store.dir()).unwrap();
        Lab { _dir: dir, store, issued, accounts }
    }

    async fn ask(lab: &Lab, method: &str, path: &str, secret: Option<&str>) -> (StatusCode, HeaderMap, Value) {
        let mut request = Request::builder().method(method).uri(path);
        let who = lab.accounts.authenticate(secret.map(|secret| format!("Bearer {secret}")).as_deref());
        if let Ok(who) = who {
            request = request.extension(who);
        }
        let response = router(lab.accounts.clone()).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let body = to_bytes(response.into_body(), 10_000).await.unwrap();
        (status, headers, serde_json::from_slice(&body).unwrap_or_default())
    }

    #[tokio::test]
    async fn an_account_learns_about_itself_and_gets_its_next_secret() {
        let lab = lab();
        let first = lab.issued.secret.reveal();
        let (status, headers, about) = ask(&lab, "GET", "/account", Some(first)).await;
        assert_eq!(
            (status, &headers["cache-control"]),
            (StatusCode::OK, &header::HeaderValue::from_static("no-store"))
        );
        let expires = lab.issued.expires.unwrap().to_string();
        assert_eq!(about, json!({ "user": "press-01", "role": "device", "expires": expires }));
        let (status, _, renewed) = ask(&lab, "POST", "/account/renew", Some(first)).await;
        assert_eq!((status, renewed["user"].as_str()), (StatusCode::OK, Some("press-01")));
        let second = renewed["secret"].as_str().unwrap();
        for secret in [first, second] {
            assert_eq!(ask(&lab, "GET", "/account", Some(secret)).await.0, StatusCode::OK);
        }
        lab.store.revoke(&lab.issued.name, Timestamp::now()).unwrap();
        let late = std::time::Instant::now() + std::time::Duration::from_secs(8);
        while ask(&lab, "GET", "/account", Some(second)).await.0 != StatusCode::UNAUTHORIZED {
            assert!(std::time::Instant::now() < late, "it is still let in");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn nobody_learns_nothing() {
        let lab = lab();
        for (method, path) in [("GET", "/account"), ("POST", "/account/renew")] {
            for secret in [None, Some("guess")] {
                let (status, headers, _) = ask(&lab, method, path, secret).await;
                assert_eq!(
                    (status, &headers["www-authenticate"]),
                    (StatusCode::UNAUTHORIZED, &header::HeaderValue::from_static(CHALLENGE))
                );
            }
        }
        assert_eq!(ask(&lab, "GET", "/account/renew", None).await.0, StatusCode::METHOD_NOT_ALLOWED);
    }

    #[tokio::test]
    async fn what_can_not_be_written_leaves_the_old_secret() {
        let lab = lab();
        let secret = lab.issued.secret.reveal();
        // Nothing can be changed without the lock, and a directory can't be locked for writing.
        let lock = lab.store.dir().join(".lock");
        repo_git::durable::remove_file(&lock).unwrap();
        repo_git::durable::create_dir_all(&lock, 0o700).unwrap();
        let (status, headers, _) = ask(&lab, "POST", "/account/renew", Some(secret)).await;
        assert_eq!((status, headers.contains_key("retry-after")), (StatusCode::SERVICE_UNAVAILABLE, true));
        assert_eq!(ask(&lab, "GET", "/account", Some(secret)).await.0, StatusCode::OK);
    }
}
