//! Many clients at once: kept connections with TLS, and HTTP by hand, so that the load costs less than what it measures.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// How many connections are made at the same time.
const AT_ONCE: usize = 64;

pub(crate) struct Connection {
    stream: TlsStream<TcpStream>,
    read: Vec<u8>,
}

/// A connection with its request.
pub(crate) type Client = (Connection, Vec<u8>);

/// A client that knows this authority.
pub(crate) fn connector(authority: &str) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).expect("PEM")).expect("an authority");
    TlsConnector::from(Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()))
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr, tls: &TlsConnector) -> Self {
        let stream = TcpStream::connect(address).await.expect("the host listens");
        stream.set_nodelay(true).expect("set");
        let name = ServerName::from(address.ip());
        Self { stream: tls.connect(name, stream).await.expect("TLS"), read: Vec::new() }
    }

    /// Sends a request; the status and body of the answer.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> (u16, &[u8]) {
        self.stream.write_all(request).await.expect("the connection is kept");
        self.read.clear();
        let head = loop {
            self.more().await;
            if let Some(end) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let text = String::from_utf8_lossy(&self.read[..head]).to_ascii_lowercase();
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let length = text.split_once("\r\ncontent-length: ").and_then(|(_, rest)| rest.split("\r\n").next());
        match length.and_then(|length| length.parse::<usize>().ok()) {
            Some(length) => {
                while self.read.len() < head + length {
                    self.more().await;
                }
            }
            None if text.contains("\r\ntransfer-encoding: chunked\r\n") => {
                while !self.read.ends_with(b"0\r\n\r\n") {
                    self.more().await;
                }
            }
            None => {}
        }
        (status, &self.read[head..])
    }

    async fn more(&mut self) {
        assert_ne!(self.stream.read_buf(&mut self.read).await.expect("an answer"), 0, "the host ended the connection");
    }
}

/// One connection for each request, which is sent at once: a host doesn't bear strangers for long.
pub(crate) async fn connections(address: SocketAddr, authority: &str, requests: Vec<Vec<u8>>) -> Vec<Client> {
    let (tls, mut opening) = (connector(authority), JoinSet::new());
    let mut open: Vec<Option<Client>> = requests.iter().map(|_| None).collect();
    let mut opened = |(number, client): (usize, Client)| open[number] = Some(client);
    for (number, request) in requests.into_iter().enumerate() {
        if number >= AT_ONCE {
            opened(opening.join_next().await.expect("one is opening").expect("it opens"));
        }
        let tls = tls.clone();
        opening.spawn(async move {
            let mut connection = Connection::open(address, &tls).await;
            let (status, _) = connection.ask(&request).await;
            assert_eq!(status, 200);
            (number, (connection, request))
        });
    }
    opening.join_all().await.into_iter().for_each(opened);
    open.into_iter().map(|client| client.expect("opened")).collect()
}

/// What came of a time under load.
pub(crate) struct Served {
    pub(crate) per_second: f64,
    /// In order.
    pub(crate) latencies: Vec<Duration>,
}

impl Served {
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        self.latencies[(self.latencies.len() - 1) * percent / 100]
    }
}

/// Every client of a group asks in turn, so as many requests as there are groups are under way at any time.
pub(crate) async fn run(groups: Vec<Vec<Client>>, time: Duration) -> (Served, Vec<Vec<Client>>) {
    let (start, mut asking) = (Instant::now(), JoinSet::new());
    for mut group in groups {
        asking.spawn(async move {
            let mut latencies = Vec::new();
            while start.elapsed() < time {
                for (connection, request) in &mut group {
                    let sent = Instant::now();
                    let (status, _) = connection.ask(request).await;
                    assert_eq!(status, 200);
                    latencies.push(sent.elapsed());
                }
            }
            (latencies, group)
        });
    }
    let (mut latencies, groups): (Vec<_>, Vec<_>) = asking.join_all().await.into_iter().unzip();
    let took = start.elapsed();
    let mut latencies: Vec<_> = latencies.drain(..).flatten().collect();
    latencies.sort();
    (Served { per_second: latencies.len() as f64 / took.as_secs_f64(), latencies }, groups)
}
