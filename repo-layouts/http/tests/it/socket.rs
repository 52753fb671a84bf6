//! What listens on a socket of the machine: asked without TLS or a name, over a kept connection, within the limits.

use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use repo_http::{Agent, Phase, Problem, Request, Timeouts, Url};
use repo_testkit::faults::listening::Listening;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK";

fn agent(path: &Path) -> Agent {
    let limit = Duration::from_millis(300);
    Agent::on_socket(path, "test", Timeouts { answer: limit, stall: limit, ..Timeouts::default() })
}

fn ask(agent: &Agent, path: &str) -> Result<Vec<u8>, Problem> {
    let url = Url::on_socket(path).unwrap();
    let answer = agent.send(&Request::get(&url)).and_then(|response| response.body.bytes(1 << 20));
    answer.map_err(|error| error.problem)
}

#[test]
fn requests_share_a_kept_connection_and_one_that_ended_meanwhile_is_made_anew() {
    let listening = Listening::start(|head, stream| {
        assert!(head.starts_with("GET /v1.41/containers/json?all=1 HTTP/1.1\r\n"), "{head}");
        assert!(head.to_lowercase().contains("host: localhost\r\n"), "{head}");
        stream.write_all(ANSWER).is_ok()
    });
    let agent = agent(&listening.path());
    for _ in 0..3 {
        assert_eq!(ask(&agent, "/v1.41/containers/json?all=1").unwrap(), b"OK");
    }
    assert_eq!((agent.connections(), listening.connections()), (1, 1));
    let once = Listening::start(|_, stream| stream.write_all(ANSWER).is_err());
    let agent = self::agent(&once.path());
    for _ in 0..3 {
        assert_eq!(ask(&agent, "/").unwrap(), b"OK");
    }
    assert_eq!(agent.connections(), 3);
}

#[test]
fn a_socket_that_is_not_there_refuses_or_says_nothing_is_an_error_within_its_limit() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(ask(&agent(&dir.path().join("none")), "/"), Err(Problem::Network));
    let gone = dir.path().join("gone");
    drop(UnixListener::bind(&gone).unwrap());
    assert_eq!(ask(&agent(&gone), "/"), Err(Problem::Refused));
    let limit = Duration::from_millis(300);
    let began = Instant::now();
    let silent = Listening::start(|_, _| true);
    assert_eq!(ask(&agent(&silent.path()), "/"), Err(Problem::Slow { phase: Phase::Answer, limit }));
    let stalls = Listening::start(|_, stream| stream.write_all(&ANSWER[..ANSWER.len() - 1]).is_ok());
    assert_eq!(ask(&agent(&stalls.path()), "/"), Err(Problem::Slow { phase: Phase::Stall, limit }));
    assert!(began.elapsed() < Duration::from_secs(20));
    let cut = Listening::start(|_, stream| stream.write_all(&ANSWER[..20]).is_err());
    assert_eq!(ask(&agent(&cut.path()), "/"), Err(Problem::Cut));
}

#[test]
fn too_many_who_wait_for_a_connection_hold_nobody_up_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("full");
    let socket = rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&socket, 0).unwrap();
    let _waits = UnixStream::connect(&path).unwrap();
    let limit = Duration::from_millis(300);
    let agent = Agent::on_socket(&path, "test", Timeouts { connect: limit, ..Timeouts::default() });
    assert_eq!(ask(&agent, "/"), Err(Problem::Slow { phase: Phase::Connect, limit }));
}

#[test]
fn whoever_waits_for_an_answer_is_interrupted() {
    let silent = Listening::start(|_, _| true);
    let agent = Agent::on_socket(&silent.path(), "test", Timeouts::default());
    let (other, began) = (agent.clone(), Instant::now());
    let waits = thread::spawn(move || ask(&other, "/"));
    while silent.connections() == 0 {
        thread::sleep(Duration::from_millis(10));
    }
    agent.interrupt();
    waits.join().unwrap().unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[test]
fn an_agent_of_a_socket_asks_nobody_else_and_no_other_agent_asks_a_socket() {
    let listening = Listening::start(|_, stream| stream.write_all(ANSWER).is_ok());
    let elsewhere = Url::parse("https://127.0.0.1:9/").unwrap();
    let answer = agent(&listening.path()).send(&Request::get(&elsewhere)).map(|answer| answer.status);
    assert_eq!(answer.unwrap_err().problem, Problem::Settings);
    let agent = Agent::new(&repo_http::Settings::default()).unwrap();
    assert_eq!(ask(&agent, "/"), Err(Problem::Settings));
}
