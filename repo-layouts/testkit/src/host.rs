//! The publisher's own host, as it is delivered, in a process of its own.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;

use crate::terminate;

/// A running `wfm-git-publisher serve`, killed when dropped.
#[derive(Debug)]
pub struct Host {
    pub child: Child,
    /// `https://HOST:PORT`; empty if it ended before it listened.
    pub url: String,
    says: BufReader<ChildStdout>,
    log: Option<JoinHandle<String>>,
}

impl Host {
    /// Starts the host by this command, and waits until it listens or has ended.
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the host starts");
        let mut errors = child.stderr.take().expect("piped");
        let log = std::thread::spawn(move || {
            let mut log = Vec::new();
            let _ = errors.read_to_end(&mut log);
            String::from_utf8_lossy(&log).into_owned()
        });
        let says = BufReader::new(child.stdout.take().expect("piped"));
        let mut host = Self { child, url: String::new(), says, log: Some(log) };
        host.url = host.line();
        host
    }

    /// The next line that it prints; empty if it ended.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.says.read_line(&mut line).expect("it says where it listens");
        line.trim().to_owned()
    }

    /// `HOST:PORT`.
    #[track_caller]
    pub fn address(&mut self) -> String {
        let address = self.url.strip_prefix("https://").map(str::to_owned);
        address.unwrap_or_else(|| panic!("the host didn't start: {}", self.log()))
    }

    /// Ends the host in good order, and gives its log.
    pub fn stop(mut self) -> String {
        terminate(&self.child);
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}");
        self.log()
    }

    /// Kills the host without a word.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// What it said, once it has ended.
    fn log(&mut self) -> String {
        self.log.take().map(|log| log.join().expect("it is read")).unwrap_or_default()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.kill();
    }
}
