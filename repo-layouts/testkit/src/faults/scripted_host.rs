//! A host with TLS, or without where that is the point, in the test's own process that answers as it is told, and remembers what it was asked.
#![allow(missing_debug_implementations, reason = "only tests hold these")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::pki::{Authority, Identity, Validity};

/// What a request looked like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Number of the connection, from 0.
    pub connection: usize,
    /// Request line and headers.
    pub head: String,
    /// The body of the request.
    pub body: Vec<u8>,
}

/// What becomes of a request.
pub enum Reply {
    /// These bytes, and the connection stays.
    Keep(Vec<u8>),
    /// These bytes, and then the connection ends.
    End(Vec<u8>),
    /// These bytes, and then nothing until the other side goes away.
    Stall(Vec<u8>),
    /// The first bytes at once, of the others one every 20 ms.
    Trickle(Vec<u8>, Vec<u8>),
}

/// A running host; it ends when dropped.
pub struct Host {
    /// Who signed its certificate.
    pub authority: Authority,
    pub identity: Identity,
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    /// A host with a good certificate.
    pub fn start(serve: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let authority = Authority::new("test authority");
        let identity = authority.server(&["127.0.0.1", "localhost"], Validity::Now);
        Self::with(authority, identity, false, serve)
    }

    /// A host without TLS; nobody trusts the certificate that it has all the same.
    pub fn plain(serve: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let authority = Authority::new("test authority");
        let identity = authority.server(&["127.0.0.1"], Validity::Now);
        Self::listen(authority, identity, None, serve)
    }

    /// A host that shows this certificate, and wants one of its authority if `client` is set.
    pub fn with(
        authority: Authority,
        identity: Identity,
        client: bool,
        serve: impl Fn(&Asked) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let config = config(&authority, &identity, client);
        Self::listen(authority, identity, Some(config), serve)
    }

    fn listen(
        authority: Authority,
        identity: Identity,
        config: Option<Arc<ServerConfig>>,
        serve: impl Fn(&Asked) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a test's host works");
        let address = listener.local_addr().expect("a test's host works");
        let (asked, ended) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (log, end, serve) = (Arc::clone(&asked), Arc::clone(&ended), Arc::new(serve));
        let thread = std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                if end.load(Ordering::SeqCst) {
                    return;
                }
                let (config, log, serve) = (config.clone(), Arc::clone(&log), Arc::clone(&serve));
                let stream = stream.expect("a test's host works");
                std::thread::spawn(move || drop(accept(number, stream, config, &log, &*serve)));
            }
        });
        Self { authority, identity, address, asked, ended, thread: Some(thread) }
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("a test's host works").clone()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        self.thread.take().map(JoinHandle::join);
    }
}

pub fn answer(status: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n", body.len()).into_bytes();
    headers.iter().for_each(|header| bytes.extend(format!("{header}\r\n").bytes()));
    bytes.extend(b"\r\n");
    bytes.extend(body);
    bytes
}

fn config(authority: &Authority, identity: &Identity, client: bool) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = builder.expect("a test's host works");
    let builder = if client {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(authority.certificate().as_bytes()).expect("a test's host works"))
            .expect("a test's host works");
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .expect("a test's host works");
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let chain = vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes()).expect("a test's host works")];
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("a test's host works");
    Arc::new(builder.with_single_cert(chain, key).expect("a test's host works"))
}

fn accept(
    number: usize,
    socket: TcpStream,
    config: Option<Arc<ServerConfig>>,
    log: &Mutex<Vec<Asked>>,
    serve: &dyn Fn(&Asked) -> Reply,
) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let Some(config) = config else { return converse(number, socket, log, serve) };
    let connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
    converse(number, StreamOwned::new(connection, socket), log, serve)
}

fn converse(
    number: usize,
    mut stream: impl Read + Write,
    log: &Mutex<Vec<Asked>>,
    serve: &dyn Fn(&Asked) -> Reply,
) -> std::io::Result<()> {
    loop {
        let asked = read(number, &mut stream)?;
        log.lock().expect("a test's host works").push(asked.clone());
        match serve(&asked) {
            Reply::Keep(bytes) => stream.write_all(&bytes)?,
            Reply::End(bytes) => return stream.write_all(&bytes),
            Reply::Stall(bytes) => {
                stream.write_all(&bytes)?;
                return stream.read(&mut [0]).map(drop);
            }
            Reply::Trickle(first, rest) => {
                stream.write_all(&first)?;
                for byte in rest {
                    stream.write_all(&[byte])?;
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        }
    }
}

fn read(connection: usize, stream: &mut impl Read) -> std::io::Result<Asked> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body)?;
    Ok(Asked { connection, head, body })
}
