//! Whom the agent believes, and how it shows who it is.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use repo_http::{
    Agent, ClientCertificate, Clock, Credential, HttpError, Method, Pin, Problem, Request, Settings, SettingsError,
    Trust, Url,
};
use repo_model::Digest;

use repo_testkit::faults::scripted_host::{Host, Reply, answer};

use crate::{settings_of, url_of};
use repo_testkit::pki::{Authority, Identity, Validity};

fn host(make: impl FnOnce(&Authority) -> Identity, client: bool) -> Host {
    let authority = Authority::new("test authority");
    let identity = make(&authority);
    Host::with(authority, identity, client, |_| Reply::Keep(answer("200 OK", &[], b"x")))
}

fn ask(host: &Host, settings: &Settings) -> Result<(), HttpError> {
    Agent::new(settings).unwrap().send(&Request::get(&url_of(host, "/")))?.body.bytes(10).map(drop)
}

fn distrust(result: Result<(), HttpError>) -> Trust {
    let error = result.unwrap_err();
    assert!(error.needs_a_person(), "{error}");
    match error.problem {
        Problem::Certificate(trust) => trust,
        other => panic!("{other}"),
    }
}

#[test]
fn each_reason_not_to_believe_a_certificate_has_its_name() {
    let names = &["127.0.0.1"];
    let expired = host(|ca| ca.server(names, Validity::Past), false);
    assert_eq!(distrust(ask(&expired, &settings_of(&expired))), Trust::Expired);
    let early = host(|ca| ca.server(names, Validity::Future), false);
    assert_eq!(distrust(ask(&early, &settings_of(&early))), Trust::NotYet);
    let other_name = host(|ca| ca.server(&["elsewhere.example"], Validity::Now), false);
    assert_eq!(distrust(ask(&other_name, &settings_of(&other_name))), Trust::Name);
    let stranger = host(|_| Authority::new("stranger").server(names, Validity::Now), false);
    assert_eq!(distrust(ask(&stranger, &settings_of(&stranger))), Trust::Authority);
    // Without an authority of one's own, the public roots count, and they didn't sign this.
    let good = host(|ca| ca.server(names, Validity::Now), false);
    assert_eq!(distrust(ask(&good, &Settings::default())), Trust::Authority);
}

#[test]
fn a_pinned_key_is_wanted_beside_a_trusted_certificate() {
    let host = host(|ca| ca.server(&["127.0.0.1"], Validity::Now), false);
    let key = Digest::of(&host.identity.public);
    let settings = settings_of(&host);
    ask(&host, &Settings { pin: Some(Pin(key)), ..settings.clone() }).unwrap();
    let other = Some(Pin(Digest::of(b"another key")));
    let error = ask(&host, &Settings { pin: other, ..settings }).unwrap_err();
    assert_eq!(error.problem, Problem::Certificate(Trust::Key));
    // A pin alone believes nobody.
    let alone = Settings { pin: Some(Pin(key)), ..Settings::default() };
    assert_eq!(distrust(ask(&host, &alone)), Trust::Authority);
}

#[test]
fn who_believes_any_certificate_shows_nobody_a_credential() {
    let stranger = host(|_| Authority::new("stranger").server(&["elsewhere.example"], Validity::Past), false);
    let anybody = Settings { believes_any: true, ..Settings::default() };
    ask(&stranger, &anybody).unwrap();
    let (agent, url) = (Agent::new(&anybody).unwrap(), url_of(&stranger, "/"));
    let credential = Credential::Basic { user: "press-01".to_owned(), secret: "secret".to_owned() };
    let before = stranger.asked().len();
    let error = agent.send(&Request { credential: &credential, ..Request::get(&url) }).unwrap_err();
    assert_eq!((error.problem, stranger.asked().len()), (Problem::Settings, before), "nothing was asked");
    assert!(!agent.would_trust_at(0), "nothing was trusted");
}

#[test]
fn a_clock_at_1970_is_lifted_to_the_floor_of_time_and_a_plausible_one_is_not() {
    const YEAR: u64 = 365 * 86400;
    let host = host(|ca| ca.server(&["127.0.0.1"], Validity::Now), false);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let clock = Clock::of(|| SystemTime::UNIX_EPOCH + Duration::from_secs(86400)).plausible_from(now - YEAR);
    let settings = Settings { clock: clock.clone(), ..settings_of(&host) };
    assert_eq!(distrust(ask(&host, &settings)), Trust::NotYet);
    clock.set_floor(now);
    ask(&host, &settings).unwrap();
    clock.set_floor(now + 10 * YEAR);
    assert_eq!(distrust(ask(&host, &settings)), Trust::Expired);
    // A floor that was raised too far is no reason to distrust a clock that can be right.
    let clock = Clock::default().plausible_from(now - YEAR);
    clock.set_floor(now + 10 * YEAR);
    ask(&host, &Settings { clock, ..settings }).unwrap();
}

#[test]
fn it_is_known_when_a_host_that_is_trusted_now_would_not_be() {
    let host = host(|ca| ca.server(&["127.0.0.1"], Validity::Now), false);
    let agent = Agent::new(&settings_of(&host)).unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    assert!(!agent.would_trust_at(now), "nothing was asked yet");
    agent.send(&Request::get(&url_of(&host, "/"))).unwrap();
    assert!(agent.would_trust_at(now) && !agent.would_trust_at(now + 100 * 365 * 86400) && !agent.would_trust_at(0));
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test's own files")]
fn a_client_certificate_is_shown_to_a_host_that_wants_one() {
    use std::os::unix::fs::PermissionsExt;
    let host = host(|ca| ca.server(&["127.0.0.1"], Validity::Now), true);
    let error = ask(&host, &settings_of(&host)).unwrap_err();
    assert_eq!(error.problem, Problem::ClientCertificate);
    assert!(error.needs_a_person());
    let dir = tempfile::tempdir().unwrap();
    let client = host.authority.client("press-01");
    let files = ClientCertificate { chain: dir.path().join("client.pem"), key: dir.path().join("client.key") };
    std::fs::write(&files.chain, &client.certificate).unwrap();
    std::fs::write(&files.key, &client.key).unwrap();
    let settings = Settings { client_certificate: Some(files.clone()), ..settings_of(&host) };
    std::fs::set_permissions(&files.key, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(Agent::new(&settings), Err(SettingsError::Credential(_))), "others can read the key");
    std::fs::set_permissions(&files.key, std::fs::Permissions::from_mode(0o600)).unwrap();
    ask(&host, &settings).unwrap();
}

#[test]
fn an_authority_that_is_none_is_refused_when_the_agent_is_made() {
    for text in ["", "no PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let settings = Settings { authorities: vec![text.to_owned()], ..Settings::default() };
        assert!(matches!(Agent::new(&settings), Err(SettingsError::Authorities(_))), "{text}");
    }
}

#[test]
fn nobody_is_asked_without_tls_but_a_registry_by_an_agent_that_knows_it() {
    let host = Host::plain(|_| Reply::Keep(answer("200 OK", &[], b"x")));
    let named = BTreeSet::from([host.address().to_string()]);
    let url = Url::of_registry(&format!("http://{}/v2/", host.address()), &named).unwrap();
    let other = BTreeSet::from(["registry.example".to_owned()]);
    let settings = Settings::default();
    for agent in [Agent::new(&settings).unwrap(), Agent::for_registries(&settings, other).unwrap()] {
        assert_eq!(agent.send(&Request::get(&url)).unwrap_err().reason(), "SettingsUnusable");
    }
    assert!(host.asked().is_empty());
    let agent = Agent::for_registries(&settings, named).unwrap();
    assert_eq!(agent.send(&Request::get(&url)).unwrap().body.bytes(10).unwrap(), b"x");
}

#[test]
fn an_answer_is_an_answer_whatever_its_status_where_that_is_asked() {
    let host = Host::start(|asked| {
        let method = asked.head.split(' ').next().unwrap_or_default();
        let body: &[u8] = if method == "HEAD" { b"" } else { b"no" };
        Reply::Keep(answer("401 Unauthorized", &["WWW-Authenticate: Basic", "WWW-Authenticate: Bearer"], body))
    });
    let (agent, url) = (Agent::new(&settings_of(&host)).unwrap(), url_of(&host, "/"));
    for (method, body) in
        [(Method::Get, None), (Method::Head, None), (Method::Post, Some(&b""[..])), (Method::Put, Some(b"x"))]
    {
        let response = agent.answer(&Request { method: Some(method), body, ..Request::get(&url) }).unwrap();
        assert_eq!(response.status, 401);
        assert_eq!(response.headers("www-authenticate").collect::<Vec<_>>(), ["Basic", "Bearer"]);
        response.body.bytes(10).unwrap();
    }
    let asked = host.asked();
    let methods: Vec<_> = asked.iter().map(|asked| asked.head.split(' ').next().unwrap_or_default()).collect();
    assert_eq!(methods, ["GET", "HEAD", "POST", "PUT"]);
    assert_eq!((asked[2].body.len(), asked[3].body.as_slice()), (0, &b"x"[..]));
    assert_eq!(agent.connections(), 1);
}
