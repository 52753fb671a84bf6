//! Each kind of trouble has its own name, says whether it heals by itself, and takes no longer than its limit.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use repo_http::{Agent, Credential, HttpError, Phase, Problem, Request, Settings, Timeouts, Url};

use repo_testkit::faults::scripted_host::{Host, Reply, answer};

use crate::{agent_of, settings_of, url_of};

/// Asks and reads all of the answer.
fn ask(host: &Host, path: &str) -> HttpError {
    ask_within(host, path, Timeouts::default())
}

fn ask_within(host: &Host, path: &str, timeouts: Timeouts) -> HttpError {
    let begin = Instant::now();
    let agent = Agent::new(&Settings { timeouts, ..settings_of(host) }).expect("an agent");
    let url = url_of(host, path);
    let request = Request { expects: Some("application/x-git-upload-pack-result"), ..Request::get(&url) };
    let error = agent.send(&request).and_then(|response| response.body.bytes(1 << 20)).unwrap_err();
    assert!(begin.elapsed() < Duration::from_secs(25), "{error} took {:?}", begin.elapsed());
    error
}

fn replying(reply: fn() -> Reply) -> Host {
    Host::start(move |_| reply())
}

const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-result\r\nContent-Length: 100\r\n\r\n";

#[test]
fn statuses_are_named() {
    let host = Host::start(|asked| {
        let status = asked.head.split(' ').nth(1).unwrap().trim_start_matches('/').to_owned();
        let headers = ["Retry-After: 7", "Content-Type: text/plain; charset=utf-8"];
        Reply::Keep(answer(&format!("{status} X"), &headers, b"the reason\nand more"))
    });
    for (status, reason, person) in [
        (401, "Unauthorized", true),
        (403, "Forbidden", true),
        (404, "NotFound", true),
        (413, "RequestRefused", false),
        (429, "TooManyRequests", false),
        (500, "HostError", false),
        (503, "HostError", false),
    ] {
        let error = ask(&host, &format!("/{status}"));
        assert_eq!((error.status(), error.reason(), error.needs_a_person()), (Some(status), reason, person));
        assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
        assert!(error.to_string().ends_with(&format!("answers {status}: the reason")), "{error}");
    }
}

#[test]
fn a_captive_portal_is_not_the_host() {
    let host = replying(|| Reply::Keep(answer("200 OK", &["Content-Type: text/html"], b"<html>log in</html>")));
    let error = ask(&host, "/");
    assert_eq!((error.reason(), error.needs_a_person()), ("NotTheHost", false));
    assert!(error.to_string().contains("`text/html`"), "{error}");
}

#[test]
fn a_redirect_is_followed_only_without_a_credential_and_only_where_that_is_asked() {
    let host = Host::start(|asked| match asked.head.contains(" /old") {
        true => Reply::Keep(answer("302 Found", &["Location: /new?token=1"], b"")),
        false => Reply::Keep(answer("200 OK", &[], b"x")),
    });
    let (agent, url) = (agent_of(&host), url_of(&host, "/old"));
    let error = agent.send(&Request::get(&url)).unwrap_err();
    assert_eq!(error.problem, Problem::Redirect { to: "/new".to_owned() });
    let bearer = Credential::Bearer("c4nary".to_owned());
    let error = agent.send_anywhere(&Request { credential: &bearer, ..Request::get(&url) }).unwrap_err();
    assert_eq!(error.reason(), "Redirected");
    assert_eq!(host.asked().len(), 2);
    assert_eq!(agent.send_anywhere(&Request::get(&url)).unwrap().body.bytes(10).unwrap(), b"x");
}

#[test]
fn redirects_in_a_circle_end() {
    let host = replying(|| Reply::Keep(answer("302 Found", &["Location: /"], b"")));
    let error = agent_of(&host).send_anywhere(&Request::get(&url_of(&host, "/"))).unwrap_err();
    assert_eq!((error.reason(), host.asked().len()), ("Redirected", 5));
}

#[test]
fn a_host_that_is_silent_or_slow_is_left_after_the_limit_of_its_phase() {
    let slow = |timeouts, reply| match ask_within(&replying(reply), "/", timeouts).problem {
        Problem::Slow { phase, .. } => phase,
        other => panic!("{other}"),
    };
    let (short, long) = (Duration::from_secs(1), Timeouts::default());
    let stall = Timeouts { stall: short, ..long };
    assert_eq!(slow(stall, || Reply::Stall(Vec::new())), Phase::Stall);
    assert_eq!(slow(stall, || Reply::Stall([HEAD, b"the beginning"].concat())), Phase::Stall);
    // A byte now and then is no stall; the headers have a limit of their own, and so has the whole.
    let answer = Timeouts { answer: short, ..long };
    let headers = || Reply::Trickle(b"HTTP/1.1 200 OK\r\nX: ".to_vec(), vec![b'x'; 1000]);
    assert_eq!(slow(answer, headers), Phase::Answer);
    let total = Timeouts { total: short, ..long };
    assert_eq!(slow(total, || Reply::Trickle(HEAD.to_vec(), vec![0; 1000])), Phase::Total);
}

#[test]
fn a_connection_that_breaks_off_is_not_the_end_of_an_answer() {
    for reply in [
        || Reply::End(Vec::new()),
        || Reply::End(b"HTTP/1.1 200 OK\r\nContent-".to_vec()),
        || Reply::End([HEAD, b"the beginning"].concat()),
        || {
            Reply::End(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-result\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel".to_vec())
        },
    ] {
        assert_eq!(ask(&replying(reply), "/").problem, Problem::Cut);
    }
}

#[test]
fn what_is_not_http_is_named() {
    let error = ask(&replying(|| Reply::End(b"SSH-2.0-OpenSSH_9.2\r\n\r\n".to_vec())), "/");
    assert_eq!(error.reason(), "ProtocolBroken", "{error:?}");
}

#[test]
fn endless_headers_end() {
    let error = ask(&replying(|| Reply::Keep([&b"HTTP/1.1 200 OK\r\nX: "[..], &[b'x'; 1 << 20]].concat())), "/");
    assert_eq!(error.reason(), "ProtocolBroken", "{error:?}");
}

#[test]
fn nobody_there_is_refused_and_no_name_is_unknown() {
    let host = replying(|| Reply::Keep(Vec::new()));
    let ask = |url: &str| agent_of(&host).send(&Request::get(&Url::parse(url).unwrap())).unwrap_err();
    // No port that the system gives to anybody.
    let error = ask("https://127.0.0.1:1/");
    assert_eq!((error.reason(), error.needs_a_person()), ("ConnectionRefused", false));
    assert_eq!(ask("https://nowhere.invalid/").reason(), "NameUnknown");
}

#[test]
fn a_host_that_accepts_and_never_speaks_is_left() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = Url::parse(&format!("https://{}/", silent.local_addr().unwrap())).unwrap();
    let timeouts = Timeouts { connect: Duration::from_millis(300), ..Timeouts::default() };
    let settings = Settings { timeouts, ..Settings::default() };
    let error = Agent::new(&settings).unwrap().send(&Request::get(&url)).unwrap_err();
    assert!(matches!(error.reason(), "ConnectTimeout" | "ConnectionStalled"), "{error}");
}

#[test]
fn plain_http_behind_https_is_a_tls_failure() {
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = Url::parse(&format!("https://{}/", plain.local_addr().unwrap())).unwrap();
    let server = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let mut client = plain.accept().unwrap().0;
        let _ = client.read(&mut [0; 1024]).unwrap();
        client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        let _ = client.read_to_end(&mut Vec::new());
    });
    let error = Agent::new(&Settings::default()).unwrap().send(&Request::get(&url)).unwrap_err();
    server.join().unwrap();
    assert!(matches!(error.reason(), "TlsFailed" | "ConnectionCut"), "{error:?}");
}
