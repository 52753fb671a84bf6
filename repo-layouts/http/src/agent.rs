//! Requests and answers over kept connections.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ureq::AsSendBody;
use ureq::config::AutoHeaderValue;
use ureq::http::{self, HeaderMap, header};
use ureq::unversioned::transport::{ConnectProxyConnector, Connector, TcpConnector};

use crate::resolver::Remembering;
use crate::socket::{NoNames, SocketConnector};
use crate::tls::{self, TlsConnector};
use crate::{Body, Credential, HttpError, Problem, Settings, SettingsError, Timeouts, Url};

/// How long an unused connection is kept; a host that ends it before is noticed.
const IDLE: Duration = Duration::from_secs(900);

/// The most bytes of an answer's headers; less than the buffer, so that more of them are seen for what they are.
const HEADERS: usize = 8 << 10;

/// A kept connection that died while nobody used it shows so at the next request, within this.
const UNNOTICED: Duration = Duration::from_secs(5);

/// How much of a refusal's text is read, and shown.
const SAID: (u64, usize) = (64 << 10, 300);

/// The longest wait that a host may ask for.
const LONGEST_RETRY: Duration = Duration::from_secs(24 * 3600);

/// Redirects that are followed where that is allowed at all.
const REDIRECTS: usize = 5;

/// Asks hosts over HTTPS. Copies share connections; one connection to a host is kept while nobody asks.
#[derive(Debug, Clone)]
pub struct Agent(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    current: Mutex<ureq::Agent>,
    config: ureq::config::Config,
    way: Way,
    timeouts: Timeouts,
    /// Registries that are asked without TLS, as `host[:port]`.
    plain_http: BTreeSet<String>,
    interrupts: AtomicU64,
}

#[derive(Debug)]
enum Way {
    Network { tls: TlsConnector, names: Remembering },
    Socket(SocketConnector),
}

impl Way {
    fn agent(&self, config: &ureq::config::Config) -> ureq::Agent {
        match self {
            Self::Network { tls, names } => {
                let connector =
                    ().chain(ConnectProxyConnector::default()).chain(TcpConnector::default()).chain(tls.clone());
                ureq::Agent::with_parts(config.clone(), connector, names.clone())
            }
            Self::Socket(connector) => ureq::Agent::with_parts(config.clone(), connector.clone(), NoNames),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    /// Asks whether there is something to read.
    Head,
    Post,
    Put,
}

#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// `None`: `POST` with a body, `GET` without.
    pub method: Option<Method>,
    /// What is sent along; `GET` and `HEAD` send nothing.
    pub body: Option<&'a [u8]>,
    pub url: &'a Url,
    /// Header lines beside those of the agent.
    pub headers: &'a [(&'a str, &'a str)],
    /// In whose name; with one no redirect is followed.
    pub credential: &'a Credential,
    /// The answer's content type; another one is an error. `None`: any.
    pub expects: Option<&'static str>,
    /// Limits in place of the agent's; `None` keeps those.
    pub timeouts: Option<Timeouts>,
    /// It may be asked twice, so a kept connection that turns out to be dead is no error.
    pub repeatable: bool,
}

impl<'a> Request<'a> {
    /// A `GET` without a credential.
    pub fn get(url: &'a Url) -> Self {
        let credential = &Credential::None;
        Self {
            method: None,
            body: None,
            url,
            headers: &[],
            credential,
            expects: None,
            timeouts: None,
            repeatable: true,
        }
    }

    /// A `POST` without a credential.
    pub fn post(url: &'a Url, body: &'a [u8]) -> Self {
        Self { body: Some(body), repeatable: false, ..Self::get(url) }
    }
}

#[derive(Debug)]
pub struct Response {
    /// 200 to 299, except where whatever comes was asked for ([`Agent::answer`]).
    pub status: u16,
    headers: HeaderMap,
    /// Read as it comes; the caller says how much of it at most.
    pub body: Body,
}

impl Response {
    /// A header's value, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The values of a header that may be there more than once, as far as they are text.
    pub fn headers(&self, name: &str) -> impl Iterator<Item = &str> {
        self.headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok())
    }

    /// The media type, without parameters.
    pub fn content_type(&self) -> &str {
        media_type(&self.headers)
    }
}

impl Agent {
    /// An agent with these settings. Nothing is contacted yet.
    pub fn new(settings: &Settings) -> Result<Self, SettingsError> {
        let proxy = settings.proxy.as_ref().map(|proxy| proxy.open(&[])).transpose()?;
        Self::with(settings, proxy, tls::config(settings, Vec::new())?, BTreeSet::new())
    }

    /// An agent for registries, their token services and their storage. These hosts (`host[:port]`) may be asked without
    /// TLS, and are asked without the proxy. Beside the settings' authorities those of this machine are trusted; where the settings have
    /// no proxy, that of the environment counts.
    pub fn for_registries(settings: &Settings, plain_http: BTreeSet<String>) -> Result<Self, SettingsError> {
        let direct: Vec<_> = plain_http.iter().map(|host| host_of(host).to_owned()).collect();
        let proxy = match &settings.proxy {
            Some(proxy) => Some(proxy.open(&direct)?),
            None => crate::proxy::of_environment(&direct),
        };
        Self::with(settings, proxy, tls::config(settings, tls::system_roots())?, plain_http)
    }

    fn with(
        settings: &Settings,
        proxy: Option<ureq::Proxy>,
        (tls, judge): (rustls::ClientConfig, Arc<tls::Judge>),
        plain_http: BTreeSet<String>,
    ) -> Result<Self, SettingsError> {
        let tls = TlsConnector { config: Arc::new(tls), judge, made: Arc::default() };
        let way = Way::Network { tls, names: Remembering::default() };
        Ok(Self::by(way, &settings.user_agent, settings.timeouts, proxy, plain_http))
    }

    /// An agent for what listens on a socket of this machine ([`Url::on_socket`]), and for nobody else.
    pub fn on_socket(path: &Path, user_agent: &str, timeouts: Timeouts) -> Self {
        Self::by(Way::Socket(SocketConnector::new(path)), user_agent, timeouts, None, [Url::SOCKET.to_owned()].into())
    }

    fn by(
        way: Way,
        user_agent: &str,
        timeouts: Timeouts,
        proxy: Option<ureq::Proxy>,
        plain_http: BTreeSet<String>,
    ) -> Self {
        let config = ureq::config::Config::builder()
            .https_only(plain_http.is_empty())
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(proxy)
            .no_delay(true)
            .user_agent(user_agent)
            // Whoever wants a certain kind of answer says so.
            .accept(AutoHeaderValue::None)
            .max_response_header_size(HEADERS)
            .input_buffer_size(2 * HEADERS)
            .output_buffer_size(2 * HEADERS)
            .max_idle_connections(1)
            .max_idle_connections_per_host(1)
            .max_idle_age(IDLE)
            .timeout_resolve(Some(timeouts.connect))
            .timeout_connect(Some(timeouts.connect))
            .build();
        let (current, interrupts) = (Mutex::new(way.agent(&config)), AtomicU64::new(0));
        Self(Arc::new(Shared { current, config, way, timeouts, plain_http, interrupts }))
    }

    /// Ends every request that is under way, in whatever thread; the agent stays usable.
    pub fn interrupt(&self) {
        let fresh = self.0.way.agent(&self.0.config);
        let mut current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.interrupts.fetch_add(1, Ordering::SeqCst);
        std::mem::replace(&mut *current, fresh).shutdown();
    }

    /// Whether the certificate that a host was trusted by last would be trusted at this moment, too, in seconds since
    /// 1970. Not before anything was asked of a host.
    pub fn would_trust_at(&self, seconds: u64) -> bool {
        matches!(&self.0.way, Way::Network { tls, .. } if tls.judge.trusts_at(seconds))
    }

    /// Connections with TLS, or to the socket, that were made so far.
    pub fn connections(&self) -> u64 {
        match &self.0.way {
            Way::Network { tls, .. } => tls.made.load(Ordering::Relaxed),
            Way::Socket(connector) => connector.made(),
        }
    }

    pub fn timeouts(&self) -> Timeouts {
        self.0.timeouts
    }

    /// Sends a request and returns what answers it: its headers are here, its body still comes. Anything but success is
    /// an error, a redirect too.
    pub fn send(&self, request: &Request<'_>) -> Result<Response, HttpError> {
        self.exchange(request, |response| judge(request, response))
    }

    /// Sends a request and returns what answers it, whatever its status.
    pub fn answer(&self, request: &Request<'_>) -> Result<Response, HttpError> {
        self.exchange(request, Ok)
    }

    fn exchange(
        &self,
        request: &Request<'_>,
        judge: impl Fn(Response) -> Result<Response, HttpError>,
    ) -> Result<Response, HttpError> {
        let shared = &self.0;
        let (before, began) = ((self.connections(), shared.interrupts.load(Ordering::SeqCst)), Instant::now());
        let mut result = self.send_once(request).and_then(&judge);
        // Only a kept connection may have died unnoticed; a new one that breaks, or breaks later, is the host's word.
        let was_kept = before == (self.connections(), shared.interrupts.load(Ordering::SeqCst));
        let is_stale = was_kept && began.elapsed() < UNNOTICED;
        if request.repeatable && is_stale && matches!(&result, Err(HttpError { problem: Problem::Cut, .. })) {
            result = self.send_once(request).and_then(judge);
        }
        if let (Err(error), Way::Network { names, .. }) = (&result, &shared.way)
            && error.status().is_none()
        {
            names.forget();
        }
        result
    }

    /// Like [`Agent::send`], but follows redirects to other `https` addresses. Only without a credential.
    pub fn send_anywhere(&self, request: &Request<'_>) -> Result<Response, HttpError> {
        let mut url = request.url.clone();
        for _ in 0..REDIRECTS {
            let result = self.send(&Request { url: &url, ..request.clone() });
            let Err(HttpError { problem: Problem::Redirect { .. }, source: Some(to), .. }) = &result else {
                return result;
            };
            let next = to.downcast_ref::<Target>().and_then(|Target(to)| resolve(&url, to));
            match next {
                Some(next) if *request.credential == Credential::None => url = next,
                _ => return result,
            }
        }
        Err(HttpError::new(&url, Problem::Redirect { to: "too many others".to_owned() }, None))
    }

    fn send_once(&self, request: &Request<'_>) -> Result<Response, HttpError> {
        let must_be_plain = matches!(self.0.way, Way::Socket(_));
        if (request.url.is_plain() || must_be_plain) && !request.url.is_one_of(&self.0.plain_http) {
            let cause = "it would be asked without TLS, and isn't one of those that may be";
            return Err(HttpError::new(request.url, Problem::Settings, Some(cause.into())));
        }
        if matches!(&self.0.way, Way::Network { tls, .. } if tls.judge.believes_any)
            && *request.credential != Credential::None
        {
            let cause = "a credential would be shown to a host that nobody knows";
            return Err(HttpError::new(request.url, Problem::Settings, Some(cause.into())));
        }
        let timeouts = request.timeouts.unwrap_or(self.0.timeouts);
        let agent = self.0.current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let implied = if request.body.is_some() { Method::Post } else { Method::Get };
        let body = request.body.unwrap_or_default();
        let answer = match request.method.unwrap_or(implied) {
            Method::Get => run(&agent, request, http::Method::GET, (), &timeouts),
            Method::Head => run(&agent, request, http::Method::HEAD, (), &timeouts),
            Method::Post => run(&agent, request, http::Method::POST, body, &timeouts),
            Method::Put => run(&agent, request, http::Method::PUT, body, &timeouts),
        };
        let (parts, body) = answer.map_err(|error| HttpError::judge(request.url, error, &timeouts))?.into_parts();
        let body = Body { reader: body.into_reader(), url: request.url.clone(), timeouts };
        Ok(Response { status: parts.status.as_u16(), headers: parts.headers, body })
    }
}

fn run(
    agent: &ureq::Agent,
    request: &Request<'_>,
    method: http::Method,
    body: impl AsSendBody,
    timeouts: &Timeouts,
) -> Result<http::Response<ureq::Body>, ureq::Error> {
    let mut builder = http::Request::builder().method(method).uri(request.url.as_str());
    for (name, value) in request.headers {
        builder = builder.header(*name, *value);
    }
    if let Some(credential) = request.credential.header() {
        let mut value = http::HeaderValue::from_str(&credential).map_err(http::Error::from)?;
        value.set_sensitive(true);
        builder = builder.header(header::AUTHORIZATION, value);
    }
    let configured = agent.configure_request(builder.body(body)?);
    let configured = configured.timeout_global(Some(timeouts.total)).timeout_recv_response(Some(timeouts.answer));
    let configured = configured.timeout_per_read(Some(timeouts.stall)).timeout_per_write(Some(timeouts.stall));
    agent.run(configured.build())
}

/// Success with the right content type, or the error that it is.
fn judge(request: &Request<'_>, response: Response) -> Result<Response, HttpError> {
    let fail = |problem| Err(HttpError::new(request.url, problem, None));
    match (response.status, request.expects) {
        (204, _) | (200..=299, None) => Ok(response),
        (200..=299, Some(expected)) if response.content_type().eq_ignore_ascii_case(expected) => Ok(response),
        (200..=299, Some(expected)) => fail(Problem::ContentType { found: clean(response.content_type()), expected }),
        (300..=399, _) => {
            let to = response.header("location").unwrap_or_default().to_owned();
            let shown = clean(to.split('?').next().unwrap_or_default());
            Err(HttpError::new(request.url, Problem::Redirect { to: shown }, Some(Target(to).into())))
        }
        (status, _) => {
            let retry_after = retry_after(&response.headers);
            let is_text = response.content_type() == "text/plain";
            // Read in any case: then the connection can be kept.
            let text = response.body.bytes(SAID.0).unwrap_or_default();
            let said = if is_text { clean(&String::from_utf8_lossy(&text)) } else { String::new() };
            fail(Problem::Status { status, said, retry_after })
        }
    }
}

/// Where a redirect leads, as the host wrote it.
#[derive(Debug, thiserror::Error)]
#[error("the answer is a redirect")]
struct Target(String);

fn resolve(from: &Url, to: &str) -> Option<Url> {
    let absolute =
        if to.starts_with('/') && !to.starts_with("//") { format!("{}{to}", from.origin()) } else { to.to_owned() };
    Url::parse(&absolute).ok()
}

/// The name or address in `host[:port]`, as a URL has it.
fn host_of(authority: &str) -> &str {
    match authority.rfind(':').filter(|colon| !authority[*colon..].contains(']')) {
        Some(colon) => &authority[..colon],
        None => authority,
    }
}

fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// The seconds of `Retry-After`; a date counts as a minute, because the clock here may be wrong.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let seconds = value.parse().unwrap_or(60);
    Some(Duration::from_secs(seconds).min(LONGEST_RETRY))
}

/// One line of printable text, cut.
fn clean(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    line.chars().filter(|c| !c.is_control()).take(SAID.1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_says_how_long_it_wants_to_be_left_alone() {
        let after = |value: &str| {
            let value = http::HeaderValue::from_str(value).unwrap();
            retry_after(&HeaderMap::from_iter([(header::RETRY_AFTER, value)]))
        };
        assert_eq!(after("120"), Some(Duration::from_secs(120)));
        assert_eq!(after("99999999"), Some(LONGEST_RETRY));
        assert_eq!(after("Sun, 06 Nov 2026 08:49:37 GMT"), Some(Duration::from_secs(60)));
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }

    #[test]
    fn a_redirect_leads_to_https_only() {
        let from = Url::parse("https://a.example/x").unwrap();
        assert_eq!(resolve(&from, "/y").unwrap().as_str(), "https://a.example/y");
        assert_eq!(resolve(&from, "https://b.example/y?z").unwrap().as_str(), "https://b.example/y?z");
        assert!(resolve(&from, "http://b.example/").is_none() && resolve(&from, "//b.example/").is_none());
    }

    #[test]
    fn what_a_host_says_is_one_clean_line() {
        assert_eq!(clean(" no\u{1b}[31m such\nthing"), "no[31m such");
    }
}
