//! Sends an event to a URL, signed as Standard Webhooks have it: whoever knows the secret can tell who sent it, and when.

use base64ct::{Base64, Encoding};
use hmac::{Hmac, Mac};
use jiff::Timestamp;
use repo_git::durable::FileError;
use repo_http::{Agent, CredentialError, HttpError, Proxy, Request, Settings, SettingsError};
use serde_json::Value;
use sha2::Sha256;

use crate::config::Webhook;
use crate::repos::USER_AGENT;

/// In front of a secret in its text form.
const PREFIX: &str = "whsec_";

/// How long a secret is, in bytes.
const SECRET: std::ops::RangeInclusive<usize> = 24..=64;

/// An event can't be sent to a URL.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot use the receiver's settings")]
    Settings(#[from] SettingsError),
    #[error("cannot read the receiver's secret")]
    Secret(#[from] CredentialError),
    /// It can't be one of Standard Webhooks.
    #[error("the receiver's secret isn't `{PREFIX}` and 24 to 64 bytes in Base64")]
    SecretForm,
    #[error("the receiver doesn't take the event")]
    Http(#[from] HttpError),
}

/// A receiver's URL, with the connection to it.
#[derive(Debug)]
pub(super) struct Sender {
    settings: Webhook,
    agent: Agent,
}

impl Sender {
    /// Nothing is contacted yet.
    pub(super) fn new(settings: &Webhook) -> Result<Self, WebhookError> {
        let read = |path: &std::path::PathBuf| std::fs::read_to_string(path).map_err(FileError::read(path));
        let authorities = settings.ca_file.as_ref().map(read).transpose()?.into_iter().collect();
        let proxy = settings.proxy.clone().map(|url| Proxy { url, account: None, except: Vec::new() });
        let all = Settings { authorities, proxy, user_agent: USER_AGENT.to_owned(), ..Settings::default() };
        Ok(Self { settings: settings.clone(), agent: Agent::new(&all)? })
    }

    /// Sends an event; it was taken if this succeeds.
    pub(super) fn send(&self, event: &Value, now: Timestamp) -> Result<(), WebhookError> {
        let (body, id) = (event.to_string(), event["id"].as_str().unwrap_or_default());
        let (time, secret) = (now.as_second().to_string(), secret(&self.settings.secret.read()?)?);
        let signature = sign(&secret, &format!("{id}.{time}.{body}"));
        let headers = [
            ("Content-Type", "application/cloudevents+json"),
            ("webhook-id", id),
            ("webhook-timestamp", &time),
            ("webhook-signature", &signature),
        ];
        // The same event has the same id, so it may come twice.
        let request =
            Request { headers: &headers, repeatable: true, ..Request::post(&self.settings.url, body.as_bytes()) };
        self.agent.send(&request)?;
        Ok(())
    }
}

fn secret(text: &str) -> Result<Vec<u8>, WebhookError> {
    let bytes = text.strip_prefix(PREFIX).and_then(|text| Base64::decode_vec(text).ok());
    bytes.filter(|bytes| SECRET.contains(&bytes.len())).ok_or(WebhookError::SecretForm)
}

fn sign(secret: &[u8], text: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes a key of any length");
    mac.update(text.as_bytes());
    format!("v1,{}", Base64::encode_string(&mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_the_specification_s_example() {
        let secret = secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let text = r#"msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{"test": 2432232314}"#;
        assert_eq!(sign(&secret, text), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_of_another_form_is_refused() {
        for text in
            ["", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_MfKQ", "whsec_*fKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]
        {
            assert!(secret(text).is_err(), "{text}");
        }
    }
}
