//! A proxy that is asked to `CONNECT`, and hosts that are reached without it.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use repo_http::{Agent, Proxy, Request, Settings, Source};

use repo_testkit::scripted_host::{Host, Reply, answer};

use crate::{settings_of, url_of};

/// A proxy that lets everyone through, or nobody; and what it was asked.
fn proxy(answer: &'static str) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let log = Arc::clone(&asked);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, log) = (client.unwrap(), Arc::clone(&log));
            std::thread::spawn(move || tunnel(client, answer, &log));
        }
    });
    (address, asked)
}

fn tunnel(mut client: TcpStream, answer: &str, log: &Mutex<Vec<String>>) {
    let lines = BufReader::new(client.try_clone().unwrap()).lines().map_while(Result::ok);
    let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let Some(to) = head.first().and_then(|line| line.split(' ').nth(1)).map(str::to_owned) else { return };
    log.lock().unwrap().push(head.join("\n"));
    client.write_all(answer.as_bytes()).unwrap();
    if answer.contains(" 200 ") {
        let mut server = TcpStream::connect(to).unwrap();
        let (mut from, mut back) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut from, &mut server));
        let _ = std::io::copy(&mut back, &mut client);
    }
}

fn settings(host: &Host, proxy: SocketAddr) -> Settings {
    let proxy = Proxy { url: format!("http://{proxy}"), account: None, except: Vec::new() };
    Settings { proxy: Some(proxy), ..settings_of(host) }
}

fn host() -> Host {
    Host::start(|_| Reply::Keep(answer("200 OK", &[], b"x")))
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test's own file")]
fn hosts_are_reached_through_the_proxy_with_its_own_account() {
    use std::os::unix::fs::PermissionsExt;
    let (host, (proxy, asked)) = (host(), proxy("HTTP/1.1 200 Connection established\r\n\r\n"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("password");
    std::fs::write(&file, "p@ss w0rd\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut settings = settings(&host, proxy);
    settings.proxy.as_mut().unwrap().account = Some(("line 2".to_owned(), Source::File(file)));
    let agent = Agent::new(&settings).unwrap();
    for _ in 0..2 {
        assert_eq!(agent.send(&Request::get(&url_of(&host, "/"))).unwrap().body.bytes(10).unwrap(), b"x");
    }
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 1, "the connection is kept");
    assert!(asked[0].starts_with(&format!("CONNECT {} HTTP/1.1", host.address())), "{}", asked[0]);
    assert!(asked[0].contains("Proxy-Authorization: Basic bGluZSAyOnBAc3MgdzByZA=="), "{}", asked[0]);
}

#[test]
fn hosts_that_are_excepted_are_reached_without_it() {
    let (host, (proxy, asked)) = (host(), proxy("HTTP/1.1 200 OK\r\n\r\n"));
    let mut settings = settings(&host, proxy);
    settings.proxy.as_mut().unwrap().except = vec![".example".to_owned(), "127.0.0.1".to_owned()];
    Agent::new(&settings).unwrap().send(&Request::get(&url_of(&host, "/"))).unwrap();
    assert!(asked.lock().unwrap().is_empty());
}

#[test]
fn a_proxy_that_refuses_is_named() {
    let (host, (proxy, _)) = (host(), proxy("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"));
    let error = Agent::new(&settings(&host, proxy)).unwrap().send(&Request::get(&url_of(&host, "/"))).unwrap_err();
    assert_eq!(error.reason(), "ProxyFailed");
    assert!(error.to_string().contains("407"), "{error}");
}
