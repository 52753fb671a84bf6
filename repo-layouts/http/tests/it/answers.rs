//! Requests and answers where nothing is wrong.

use std::io::Write;
use std::time::Duration;

use repo_http::{Credential, Problem, Request};

use repo_testkit::faults::scripted_host::{Host, Reply, answer};

use crate::{agent_of, url_of};

#[test]
fn one_connection_is_kept_across_requests() {
    let host = Host::start(|asked| Reply::Keep(answer("200 OK", &["Content-Type: text/plain"], &asked.body)));
    let agent = agent_of(&host);
    for round in 0..5 {
        let body = format!("round {round}").into_bytes();
        let url = url_of(&host, "/echo");
        let response = agent.send(&Request::post(&url, &body)).unwrap();
        assert_eq!(response.body.bytes(100).unwrap(), body);
    }
    assert_eq!(agent.connections(), 1);
    assert!(host.asked().iter().all(|asked| asked.connection == 0 && asked.head.starts_with("POST /echo HTTP/1.1")));
}

#[test]
fn a_kept_connection_that_the_host_closed_is_made_anew() {
    let host = Host::start(|_| Reply::End(answer("200 OK", &[], b"x")));
    let (agent, url) = (agent_of(&host), url_of(&host, "/"));
    for _ in 0..3 {
        assert_eq!(agent.send(&Request::get(&url)).unwrap().body.bytes(10).unwrap(), b"x");
    }
    assert_eq!(host.asked().len(), 3);
}

#[test]
fn a_kept_connection_that_dies_at_the_next_request_is_made_anew_for_what_may_be_repeated() {
    // The second request of each connection is never answered.
    let start = || {
        let seen = std::sync::Mutex::new(std::collections::BTreeSet::new());
        Host::start(move |asked| match seen.lock().unwrap().insert(asked.connection) {
            true => Reply::Keep(answer("200 OK", &[], b"x")),
            false => Reply::End(Vec::new()),
        })
    };
    let host = start();
    let (agent, url) = (agent_of(&host), url_of(&host, "/"));
    for _ in 0..3 {
        assert_eq!(agent.send(&Request::get(&url)).unwrap().body.bytes(10).unwrap(), b"x");
    }
    assert_eq!(agent.connections(), 3);
    let host = start();
    let (agent, url) = (agent_of(&host), url_of(&host, "/"));
    agent.send(&Request::post(&url, b"once")).unwrap().body.bytes(10).unwrap();
    let error = agent.send(&Request::post(&url, b"once")).unwrap_err();
    assert_eq!((error.problem, host.asked().len()), (Problem::Cut, 2));
}

#[test]
fn chunked_and_compressed_answers_are_read() {
    let host = Host::start(|asked| {
        if asked.head.contains("/chunked") {
            let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n7\r\n, world\r\n0\r\n\r\n";
            return Reply::Keep(text.as_bytes().to_vec());
        }
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(b"hello, world").unwrap();
        Reply::Keep(answer("200 OK", &["Content-Encoding: gzip"], &encoder.finish().unwrap()))
    });
    let agent = agent_of(&host);
    for path in ["/chunked", "/gzip"] {
        assert_eq!(agent.send(&Request::get(&url_of(&host, path))).unwrap().body.bytes(100).unwrap(), b"hello, world");
    }
    assert_eq!(agent.connections(), 1);
}

#[test]
fn a_body_is_never_longer_than_allowed_compressed_or_not() {
    let host = Host::start(|_| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(&[0; 1 << 20]).unwrap();
        Reply::Keep(answer("200 OK", &["Content-Encoding: gzip"], &encoder.finish().unwrap()))
    });
    let error = agent_of(&host).send(&Request::get(&url_of(&host, "/"))).unwrap().body.bytes(1000).unwrap_err();
    assert_eq!(error.problem, Problem::TooLarge { limit: 1000 });
}

#[test]
fn credentials_go_into_one_header_and_into_no_error() {
    let host = Host::start(|_| Reply::Keep(answer("403 Forbidden", &[], b"")));
    let (agent, url) = (agent_of(&host), url_of(&host, "/"));
    let basic = Credential::Basic { user: "press-01".to_owned(), secret: "c4nary".to_owned() };
    for credential in [Credential::None, basic, Credential::Bearer("c4nary".to_owned())] {
        let request = Request { credential: &credential, ..Request::get(&url) };
        let error = agent.send(&request).unwrap_err();
        assert!(!format!("{error} {error:?} {request:?}").contains("c4nary"));
    }
    let sent = host.asked().into_iter().map(|asked| {
        let lines = asked.head.lines().filter(|line| line.to_ascii_lowercase().starts_with("authorization:"));
        lines.map(|line| line.split_once(": ").unwrap().1.to_owned()).collect::<Vec<_>>().join("|")
    });
    assert_eq!(sent.collect::<Vec<_>>(), ["", "Basic cHJlc3MtMDE6YzRuYXJ5", "Bearer c4nary"]);
}

#[test]
fn an_interrupted_request_ends_at_once_and_the_agent_goes_on() {
    let host = Host::start(|asked| match asked.head.contains("/wait") {
        true => Reply::Stall(Vec::new()),
        false => Reply::Keep(answer("200 OK", &[], b"x")),
    });
    let (agent, wait) = (agent_of(&host), url_of(&host, "/wait"));
    let long = repo_http::Timeouts {
        answer: Duration::from_secs(60),
        stall: Duration::from_secs(60),
        total: Duration::from_secs(60),
        ..agent.timeouts()
    };
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| agent.send(&Request { timeouts: Some(long), ..Request::get(&wait) }));
        while host.asked().is_empty() {
            std::thread::yield_now();
        }
        let begin = std::time::Instant::now();
        agent.interrupt();
        assert!(waiting.join().unwrap().is_err() && begin.elapsed() < Duration::from_secs(30));
    });
    assert_eq!(host.asked().len(), 1, "an interrupted request isn't repeated");
    assert_eq!(agent.send(&Request::get(&url_of(&host, "/"))).unwrap().body.bytes(10).unwrap(), b"x");
}
