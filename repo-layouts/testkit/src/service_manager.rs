//! A service manager as a program sees it: a socket to which it tells how it is.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A program that says nothing for so long says nothing; for machines under load.
const PATIENCE: Duration = Duration::from_secs(60);

/// Listens to one program.
#[derive(Debug)]
pub struct ServiceManager {
    socket: UnixDatagram,
    name: String,
}

impl ServiceManager {
    /// Behind a socket in the file system.
    pub fn at(path: &Path) -> Self {
        Self::on(UnixDatagram::bind(path), path.display().to_string())
    }

    /// Behind an abstract socket of this process.
    pub fn at_an_abstract_name() -> Self {
        let name = format!("margo-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name);
        Self::on(address.and_then(|address| UnixDatagram::bind_addr(&address)), format!("@{name}"))
    }

    fn on(socket: std::io::Result<UnixDatagram>, name: String) -> Self {
        let socket = socket.expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("set");
        Self { socket, name }
    }

    /// Lets the program talk to this, and wants a sign of life within this time.
    pub fn manages(&self, program: &mut Command, watchdog: Duration) {
        program.env("NOTIFY_SOCKET", &self.name).env("WATCHDOG_USEC", watchdog.as_micros().to_string());
    }

    fn next(&self) -> String {
        let mut bytes = [0; 8192];
        let length = self.socket.recv(&mut bytes).expect("the program says something");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    /// What is said, but for signs of life, up to the first word that begins so.
    pub fn until(&self, word: &str) -> Vec<String> {
        let mut said = Vec::new();
        while !said.last().is_some_and(|last: &String| last.starts_with(word)) {
            said.extend(Some(self.next()).filter(|word| word != "WATCHDOG=1"));
        }
        said
    }

    /// Hears so many signs of life more.
    pub fn hears_it_live(&self, times: usize) {
        let mut heard = 0;
        while heard < times {
            heard += usize::from(self.next() == "WATCHDOG=1");
        }
    }

    /// Waits until nothing is said for this long.
    ///
    /// # Panics
    /// If that doesn't come.
    pub fn hears_it_fall_silent(&self, time: Duration) {
        let began = Instant::now();
        self.socket.set_read_timeout(Some(time)).expect("set");
        while self.socket.recv(&mut [0; 8192]).is_ok() {
            assert!(began.elapsed() < PATIENCE, "it goes on saying something");
        }
        self.socket.set_read_timeout(Some(PATIENCE)).expect("set");
    }

    /// Whether nothing was said that wasn't heard.
    pub fn is_silent(&self) -> bool {
        self.socket.set_nonblocking(true).expect("set");
        self.socket.recv(&mut [0; 64]).is_err()
    }
}
