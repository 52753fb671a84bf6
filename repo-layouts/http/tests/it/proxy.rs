//! A proxy that is asked to `CONNECT`, and hosts that are reached without it.

use repo_http::{Agent, Proxy, Request, Settings, Source};
use repo_testkit::faults::connect_proxy::ConnectProxy;
use repo_testkit::faults::scripted_host::{Host, Reply, answer};

use crate::{settings_of, url_of};

fn settings(host: &Host, proxy: &ConnectProxy) -> Settings {
    let proxy = Proxy { url: proxy.url(), account: None, except: Vec::new() };
    Settings { proxy: Some(proxy), ..settings_of(host) }
}

fn host() -> Host {
    Host::start(|_| Reply::Keep(answer("200 OK", &[], b"x")))
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test's own file")]
fn hosts_are_reached_through_the_proxy_with_its_own_account() {
    use std::os::unix::fs::PermissionsExt;
    let (host, proxy) = (host(), ConnectProxy::start(Some("Basic bGluZSAyOnBAc3MgdzByZA==")));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("password");
    std::fs::write(&file, "p@ss w0rd\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut settings = settings(&host, &proxy);
    settings.proxy.as_mut().unwrap().account = Some(("line 2".to_owned(), Source::File(file)));
    let agent = Agent::new(&settings).unwrap();
    for _ in 0..2 {
        assert_eq!(agent.send(&Request::get(&url_of(&host, "/"))).unwrap().body.bytes(10).unwrap(), b"x");
    }
    let asked = proxy.asked();
    assert_eq!(asked.len(), 1, "the connection is kept");
    assert!(asked[0].starts_with(&format!("CONNECT {} HTTP/1.1", host.address())), "{}", asked[0]);
}

#[test]
fn hosts_that_are_excepted_are_reached_without_it() {
    let (host, proxy) = (host(), ConnectProxy::start(None));
    let mut settings = settings(&host, &proxy);
    settings.proxy.as_mut().unwrap().except = vec![".example".to_owned(), "127.0.0.1".to_owned()];
    Agent::new(&settings).unwrap().send(&Request::get(&url_of(&host, "/"))).unwrap();
    assert!(proxy.asked().is_empty());
}

#[test]
fn a_proxy_that_refuses_is_named() {
    let (host, proxy) = (host(), ConnectProxy::start(Some("Basic x")));
    let error = Agent::new(&settings(&host, &proxy)).unwrap().send(&Request::get(&url_of(&host, "/"))).unwrap_err();
    assert_eq!(error.reason(), "ProxyFailed");
    assert!(error.to_string().contains("407"), "{error}");
}
