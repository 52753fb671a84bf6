//! What listens on a Unix socket and answers HTTP as a test says; also one that stands before the real one.

use std::io::{Read, Write, copy};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// A socket in a directory of its own. Each connection has a thread, which ends with it.
#[derive(Debug)]
pub struct Listening {
    dir: tempfile::TempDir,
    connections: Arc<AtomicUsize>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Listening {
    /// `says` answers the head of a request, and tells whether another one may follow on the connection.
    pub fn start(says: impl Fn(&str, &mut UnixStream) -> bool + Send + Sync + 'static) -> Self {
        let (dir, connections) = (tempfile::tempdir().expect("a directory"), Arc::new(AtomicUsize::new(0)));
        let listener = UnixListener::bind(dir.path().join("sock")).expect("a socket");
        let listening = Self { dir, connections, asked: Arc::default() };
        let (says, count, asked) = (Arc::new(says), Arc::clone(&listening.connections), Arc::clone(&listening.asked));
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (says, asked) = (Arc::clone(&says), Arc::clone(&asked));
                count.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || {
                    while let Some(head) = request(&mut stream) {
                        asked.lock().expect("nobody panics").push(head.lines().next().unwrap_or_default().to_owned());
                        if !says(&head, &mut stream) {
                            break;
                        }
                    }
                });
            }
        });
        listening
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("sock")
    }

    /// How many connections it had.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// The first lines of all requests so far.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("nobody panics").clone()
    }
}

/// An answer with a length, after which the connection is kept.
pub fn kept(status: &str, headers: &[&str], body: &str) -> String {
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// Lets the one who listens at `to` answer this request, and ends the connection with that.
pub fn forward(head: &str, stream: &mut UnixStream, to: &Path) -> bool {
    let Ok(mut other) = UnixStream::connect(to) else { return false };
    let last = if head.to_lowercase().contains("\r\nupgrade:") { "" } else { "Connection: close\r\n" };
    let head = format!("{}\r\n{last}\r\n", head.trim_end());
    if other.write_all(head.as_bytes()).is_err() {
        return false;
    }
    if let (Ok(mut from), Ok(mut into)) = (stream.try_clone(), other.try_clone()) {
        thread::spawn(move || {
            let _ = copy(&mut from, &mut into);
            let _ = into.shutdown(Shutdown::Write);
        });
    }
    let _ = copy(&mut other, stream);
    let _ = stream.shutdown(Shutdown::Both);
    false
}

fn request(stream: &mut UnixStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.extend(byte);
    }
    String::from_utf8(head).ok()
}
