//! The least of an OCI registry that serves the program: it keeps what is pushed, in memory, on loopback.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use repo_model::Digest;

/// What it keeps: manifests by tag and digest, blobs by digest.
#[derive(Default)]
struct Store {
    manifests: HashMap<String, Vec<u8>>,
    blobs: HashMap<String, Vec<u8>>,
    upload: Vec<u8>,
}

/// A registry that lives as long as the test's process.
pub(crate) struct Registry {
    pub(crate) host: String,
    store: Arc<Mutex<Store>>,
}

impl Registry {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let store = Arc::new(Mutex::new(Store::default()));
        let shared = Arc::clone(&store);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = Arc::clone(&shared);
                thread::spawn(move || serve(stream.unwrap(), &shared));
            }
        });
        Self { host, store }
    }

    /// Keeps a blob; its digest.
    pub(crate) fn put_blob(&self, bytes: &[u8]) -> Digest {
        let digest = Digest::of(bytes);
        self.store.lock().unwrap().blobs.insert(digest.to_string(), bytes.to_owned());
        digest
    }

    /// Keeps a manifest under a tag; its digest.
    pub(crate) fn put_manifest(&self, tag: &str, bytes: &[u8]) -> Digest {
        let digest = Digest::of(bytes);
        let mut store = self.store.lock().unwrap();
        store.manifests.insert(tag.to_owned(), bytes.to_owned());
        store.manifests.insert(digest.to_string(), bytes.to_owned());
        digest
    }

    /// The digest of what a tag means.
    pub(crate) fn digest(&self, tag: &str) -> Option<Digest> {
        self.store.lock().unwrap().manifests.get(tag).map(|bytes| Digest::of(bytes))
    }
}

struct Request {
    method: String,
    path: String,
    body: Vec<u8>,
}

fn serve(stream: TcpStream, store: &Mutex<Store>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    while let Some(request) = read(&mut reader) {
        let (status, headers, body) = answer(&request, &mut store.lock().unwrap());
        let head = request.method == "HEAD";
        let length = body.len();
        let text = format!("HTTP/1.1 {status} -\r\nContent-Length: {length}\r\n{headers}\r\n");
        let body = if head { Vec::new() } else { body };
        if stream.write_all(&[text.into_bytes(), body].concat()).is_err() {
            return;
        }
    }
}

fn read(reader: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        match header.trim().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.trim().parse().ok()?,
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { method, path, body })
}

fn answer(request: &Request, store: &mut Store) -> (u16, String, Vec<u8>) {
    let Request { method, path, body } = request;
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let last = path.rsplit('/').next().unwrap_or_default();
    let missing = || (404, String::new(), br#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"no"}]}"#.to_vec());
    match method.as_str() {
        "GET" | "HEAD" if path.contains("/manifests/") => store.manifests.get(last).map_or_else(missing, |bytes| {
            let digest = Digest::of(bytes);
            let kind = "application/vnd.oci.image.manifest.v1+json";
            (200, format!("Content-Type: {kind}\r\nDocker-Content-Digest: {digest}\r\n"), bytes.clone())
        }),
        "GET" | "HEAD" if path.contains("/blobs/") => {
            store.blobs.get(last).map_or_else(missing, |bytes| (200, String::new(), bytes.clone()))
        }
        "PUT" if path.contains("/manifests/") => {
            store.manifests.insert(last.to_owned(), body.clone());
            store.manifests.insert(Digest::of(body).to_string(), body.clone());
            (201, format!("Location: {path}\r\n"), Vec::new())
        }
        "POST" => {
            store.upload.clear();
            (202, format!("Location: {path}1\r\n"), Vec::new())
        }
        "PATCH" => {
            store.upload.extend(body);
            (202, format!("Location: {path}\r\nRange: 0-{}\r\n", store.upload.len().saturating_sub(1)), Vec::new())
        }
        "PUT" => {
            let mut bytes = std::mem::take(&mut store.upload);
            bytes.extend(body);
            let digest = Digest::of(&bytes).to_string();
            assert!(query.replace("%3A", ":").contains(&digest), "{query} is not {digest}");
            store.blobs.insert(digest.clone(), bytes);
            (201, format!("Location: {}{digest}\r\n", path.trim_end_matches(last)), Vec::new())
        }
        _ => (200, String::new(), b"{}".to_vec()),
    }
}
