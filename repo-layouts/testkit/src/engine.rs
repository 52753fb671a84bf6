//! What a Docker Engine says of its containers and images, asked on its socket: that costs it and the tests a tenth of what
//! a call of `docker` does.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde_json::Value;

/// An engine that listens on a Unix socket.
#[derive(Debug, Clone)]
pub struct Engine {
    socket: PathBuf,
}

impl Engine {
    /// The engine of this `DOCKER_HOST`.
    ///
    /// # Panics
    /// If that is no Unix socket.
    pub fn at(host: &str) -> Self {
        Self { socket: host.strip_prefix("unix://").expect("a Unix socket").into() }
    }

    /// The engine of the tests.
    ///
    /// # Panics
    /// Where `DOCKER_HOST` isn't set.
    pub fn of_the_tests() -> Self {
        Self::at(&std::env::var("DOCKER_HOST").expect("DOCKER_HOST is set: run the tests by `./justw test`"))
    }

    /// What an address says; nothing if the engine knows nothing there, or doesn't answer.
    pub fn get(&self, path: &str) -> Option<Value> {
        // To HTTP/1.0 it answers in one piece, and ends the connection.
        let mut stream = UnixStream::connect(&self.socket).ok()?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: engine\r\n\r\n").as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let is_good = head.split(' ').nth(1) == Some("200");
        is_good.then(|| serde_json::from_str(body).expect("JSON"))
    }

    /// All containers with these labels (`NAME=VALUE`), whether they run or not, as `docker inspect` shows them; the newest
    /// first. One that goes away meanwhile is none.
    ///
    /// # Panics
    /// If the engine doesn't answer.
    pub fn containers(&self, labels: &[&str]) -> Vec<Value> {
        self.try_containers(labels).expect("the engine answers")
    }

    /// The same; nothing if the engine doesn't answer.
    pub fn try_containers(&self, labels: &[&str]) -> Option<Vec<Value>> {
        let filters = serde_json::json!({ "label": labels }).to_string();
        let listed = self.get(&format!("/containers/json?all=true&filters={}", escape(&filters)))?;
        let ids = listed.as_array()?.iter().filter_map(|one| one["Id"].as_str());
        Some(ids.filter_map(|id| self.get(&format!("/containers/{id}/json"))).collect())
    }

    /// Whether it has an image of this name or id.
    pub fn has_image(&self, name: &str) -> bool {
        self.get(&format!("/images/{name}/json")).is_some()
    }
}

/// A text as a part of a query.
fn escape(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// A text of what the engine says.
///
/// # Panics
/// Where there is no text at that pointer.
pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("{pointer} in {value}"))
}
