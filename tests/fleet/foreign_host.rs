//! The foreign host and the fault proxy of the tests, as stock Git finds them.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use repo_testkit::faults::fault_proxy::{Direction, Fault, FaultProxy};
use repo_testkit::foreign_host::{Answer, ForeignHost, Options, Shown};
use repo_testkit::git;
use tempfile::TempDir;

/// Long enough for a loaded machine.
const LONG: Duration = Duration::from_secs(30);

/// A repository with one commit to push.
fn work() -> (TempDir, PathBuf) {
    let dir = TempDir::new().expect("a temporary directory");
    git::git(dir.path(), &["init", "--quiet", "--initial-branch=desired", "work"]);
    let work = dir.path().join("work");
    git::git(&work, &["commit", "--quiet", "--allow-empty", "--message", "one"]);
    (dir, work)
}

fn run(mut command: Command, args: &[&str]) -> (bool, String) {
    let Output { status, stdout, stderr } = command.args(args).output().expect("git is installed");
    (status.success(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
}

fn push(host: &ForeignHost, work: &Path, url: &str) -> (bool, String) {
    run(host.git(work), &["push", "--quiet", url, "desired", "+desired:freshness"])
}

#[test]
fn stock_git_pushes_clones_and_replaces_with_every_protocol_version() {
    let mut host = ForeignHost::start(Options::default());
    let (dir, work) = work();
    let repository = host.create("devices/press-01");
    let url = format!("{}/devices/press-01.git", host.url());
    assert_eq!(push(&host, &work, &url), (true, String::new()));
    git::git(&work, &["commit", "--quiet", "--amend", "--allow-empty", "--message", "another"]);
    assert_eq!(run(host.git(&work), &["push", "--quiet", &url, "+desired:freshness"]), (true, String::new()));
    assert_ne!(git::tip(&repository, "desired"), git::tip(&repository, "freshness"));
    for version in ["0", "1", "2"] {
        let clone = format!("clone-{version}");
        let option = format!("protocol.version={version}");
        let cloned = run(host.git(dir.path()), &["-c", &option, "clone", "-q", "-b", "desired", &url, &clone]);
        assert_eq!(cloned, (true, String::new()));
        assert_eq!(git::tip(&dir.path().join(&clone), "desired"), git::tip(&repository, "desired"));
        // What the server greets with shows that the wish for a version reached it.
        let (_, said) = run_traced(&host, dir.path(), &["-c", &option, "ls-remote", &url]);
        let greeting = format!("version {version}");
        assert_eq!(said.contains(&format!("< {greeting}")), version != "0", "{said}");
    }
    assert!(host.requests("POST", "/git-receive-pack") >= 2);
    assert!(!repository.join("logs").exists() && !repository.join("hooks").exists());
}

fn run_traced(host: &ForeignHost, dir: &Path, args: &[&str]) -> (bool, String) {
    let mut command = host.git(dir);
    command.env("GIT_TRACE_PACKET", "1");
    run(command, args)
}

#[test]
fn it_asks_for_an_account_or_a_certificate_when_told_to() {
    let account = Some(("publisher".to_owned(), "geheim".to_owned()));
    let mut host = ForeignHost::start(Options { account, ..Options::default() });
    let (dir, work) = work();
    host.create("one");
    let (pushed, said) = push(&host, &work, &format!("{}/one.git", host.url()));
    assert!(!pushed && said.contains("could not read Username"), "{said}");
    let with_password = format!("https://publisher:geheim@{}/one.git", host.address());
    assert_eq!(push(&host, &work, &with_password), (true, String::new()));

    host.set(|options| *options = Options { client_certificate: true, ..Options::default() });
    let url = format!("{}/one.git", host.url());
    assert!(!run(host.git(&work), &["ls-remote", &url]).0, "a client without a certificate got in");
    let client = host.client("press-01");
    let (certificate, key) = (dir.path().join("client.pem"), dir.path().join("client.key"));
    std::fs::write(&certificate, client.certificate).expect("written");
    std::fs::write(&key, client.key).expect("written");
    let mut command = host.git(&work);
    command.env("GIT_SSL_CERT", &certificate).env("GIT_SSL_KEY", &key);
    let (listed, said) = run(command, &["ls-remote", &url]);
    assert!(listed && said.contains("refs/heads/desired"), "{said}");
}

#[test]
fn it_answers_what_it_is_told_and_shows_the_certificate_it_is_told() {
    let mut host = ForeignHost::start(Options::default());
    let (_dir, work) = work();
    host.create("one");
    let url = format!("{}/one.git", host.url());
    for (status, expected) in [(404, "not found"), (429, "429"), (500, "500")] {
        let answer = Answer { status, headers: vec!["Retry-After: 1".to_owned()], body: "no\n".to_owned() };
        host.set(|options| options.answer = Some(answer));
        let (listed, said) = run(host.git(&work), &["ls-remote", &url]);
        assert!(!listed && said.contains(expected), "{status}: {said}");
    }
    for certificate in [Shown::Expired, Shown::OtherName, Shown::OtherAuthority] {
        host.set(|options| *options = Options { certificate, ..Options::default() });
        let (listed, said) = run(host.git(&work), &["ls-remote", &url]);
        assert!(!listed && said.to_lowercase().contains("certificate"), "{certificate:?}: {said}");
    }
    host.set(|options| *options = Options::default());
    assert_eq!(push(&host, &work, &url), (true, String::new()));
}

#[test]
fn it_stops_dies_and_comes_back_on_its_port() {
    let mut host = ForeignHost::start(Options::default());
    let (_dir, work) = work();
    host.create("one");
    let url = format!("{}/one.git", host.url());
    for end in [ForeignHost::stop, ForeignHost::kill] {
        end(&mut host);
        let (listed, said) = run(host.git(&work), &["ls-remote", &url]);
        assert!(!listed && said.contains("Failed to connect"), "{said}");
        host.restart();
        assert_eq!(run(host.git(&work), &["ls-remote", &url]), (true, String::new()));
    }
}

#[test]
fn through_the_proxy_all_is_as_without_and_counted() {
    let host = ForeignHost::start(Options::default());
    let (_dir, work) = work();
    host.create("one");
    let proxy = FaultProxy::start(host.address());
    let url = format!("{}/one.git", host.url_by(proxy.address()));
    assert_eq!(push(&host, &work, &url), (true, String::new()));
    let counts = proxy.counts();
    assert!(counts.connections >= 1 && counts.exchanges >= 3, "{counts:?}");
    assert!(counts.up > 1000 && counts.down > 1000, "{counts:?}");
}

#[test]
fn stock_git_notices_every_fault_and_is_well_after_it() {
    let host = ForeignHost::start(Options::default());
    let (_dir, work) = work();
    host.create("one");
    let proxy = FaultProxy::start(host.address());
    let url = format!("{}/one.git", host.url_by(proxy.address()));
    let mut faults = vec![Fault::Refuse];
    for direction in [Direction::Up, Direction::Down] {
        faults.extend([0, 700].map(|bytes| Fault::CutAfter(direction, bytes)));
        faults.extend([0, 700].map(|bytes| Fault::ResetAfter(direction, bytes)));
    }
    for fault in faults {
        proxy.set(fault);
        let (listed, said) = run(host.git(&work), &["ls-remote", &url]);
        assert!(!listed && !said.is_empty(), "{fault:?}: {said}");
        proxy.set(Fault::None);
        assert_eq!(run(host.git(&work), &["ls-remote", &url]), (true, String::new()), "after {fault:?}");
    }
    assert_eq!(push(&host, &work, &url), (true, String::new()));
}

/// What a server got, and how the connection ended.
type Seen = (Vec<u8>, Option<ErrorKind>);

/// A server that sends back what it gets, for one connection, behind a proxy.
fn echo() -> (FaultProxy, JoinHandle<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let proxy = FaultProxy::start(listener.local_addr().expect("an address"));
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let (mut seen, mut buffer) = (Vec::new(), [0; 64]);
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => return (seen, None),
                Err(error) => return (seen, Some(error.kind())),
                Ok(count) => {
                    seen.extend(&buffer[..count]);
                    if let Err(error) = stream.write_all(&buffer[..count]) {
                        return (seen, Some(error.kind()));
                    }
                }
            }
        }
    });
    (proxy, server)
}

fn connect(proxy: &FaultProxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).expect("connected");
    stream.set_read_timeout(Some(LONG)).expect("set");
    stream
}

#[test]
fn a_cut_is_an_orderly_end_at_exactly_that_byte() {
    let (proxy, server) = echo();
    proxy.set(Fault::CutAfter(Direction::Up, 5));
    let mut client = connect(&proxy);
    client.write_all(b"0123456789").expect("sent");
    let mut got = Vec::new();
    let _ = client.read_to_end(&mut got);
    assert_eq!(server.join().expect("no panic"), (b"01234".to_vec(), None));
    assert!(b"01234".starts_with(&got));
}

#[test]
fn a_reset_reaches_both_ends() {
    let (proxy, server) = echo();
    proxy.set(Fault::ResetAfter(Direction::Up, 5));
    let mut client = connect(&proxy);
    client.write_all(b"0123456789").expect("sent");
    let mut got = Vec::new();
    let error = client.read_to_end(&mut got).expect_err("a reset").kind();
    assert_eq!(error, ErrorKind::ConnectionReset);
    let (_, error) = server.join().expect("no panic");
    assert!(matches!(error, Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)), "{error:?}");
}

#[test]
fn a_stall_holds_everything_back_until_it_ends() {
    for fault in [Fault::StallAfter(Direction::Down, 5), Fault::HalfOpen] {
        let (proxy, server) = echo();
        let mut client = connect(&proxy);
        let mut got = [0; 5];
        client.write_all(b"01234").expect("sent");
        client.read_exact(&mut got).expect("echoed");
        proxy.set(fault);
        client.write_all(b"56789").expect("sent");
        client.set_read_timeout(Some(Duration::from_millis(100))).expect("set");
        let silent = client.read(&mut got).expect_err("nothing passes").kind();
        assert!(matches!(silent, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{fault:?}: {silent:?}");
        proxy.set(Fault::None);
        client.set_read_timeout(Some(LONG)).expect("set");
        client.read_exact(&mut got).expect("echoed");
        assert_eq!(&got, b"56789");
        drop(client);
        assert_eq!(server.join().expect("no panic").0, b"0123456789");
    }
}

#[test]
fn a_throttle_takes_its_time_and_loses_nothing() {
    let (proxy, server) = echo();
    proxy.set(Fault::Throttle(20));
    let mut client = connect(&proxy);
    let begin = Instant::now();
    client.write_all(b"0123456789").expect("sent");
    let mut got = [0; 10];
    client.read_exact(&mut got).expect("echoed");
    assert!(begin.elapsed() >= Duration::from_millis(450), "{:?}", begin.elapsed());
    drop(client);
    assert_eq!(server.join().expect("no panic").0, b"0123456789");
    assert_eq!((proxy.counts().up, proxy.counts().down), (10, 10));
}
