//! What the working group chose instead of Git: a small server of the same documents by REST, with the TLS of the host.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use repo_http::{Agent, Problem, Request, Url};
use repo_model::Digest;
use repo_testkit::pki::{Authority, Validity};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;

use crate::host::Login;

/// Where a device of the draft finds what it is to run, the archive of that, and where it says how it goes.
const PATHS: [&str; 3] =
    ["/api/v1/clients/device/deployments", "/api/v1/clients/device/bundle", "/api/v1/clients/device/status"];

/// What a device gets.
#[derive(Clone)]
pub(crate) struct Documents {
    pub(crate) manifest: Vec<u8>,
    pub(crate) bundle: Vec<u8>,
}

pub(crate) struct Rest {
    pub(crate) address: SocketAddr,
    pub(crate) authority: String,
    documents: Arc<Mutex<Documents>>,
    _runtime: Runtime,
}

/// One device's way there.
pub(crate) struct Client {
    agent: Agent,
    origin: String,
    login: Login,
    etag: String,
}

struct Listener(TcpListener, TlsAcceptor);

impl axum::serve::Listener for Listener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let Ok((stream, address)) = self.0.accept().await else { continue };
            let _ = stream.set_nodelay(true);
            if let Ok(stream) = self.1.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

impl Rest {
    pub(crate) fn start(documents: Documents) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let authority = Authority::new("REST");
        let identity = authority.server(&["127.0.0.1"], Validity::Now);
        let chain = vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes()).expect("a certificate")];
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("a key");
        let tls = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).expect("TLS");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("an address");
        let documents = Arc::new(Mutex::new(documents));
        let router = Router::new().route(PATHS[0], get(manifest)).route(PATHS[1], get(bundle));
        let router = router.route(PATHS[2], post(status)).with_state(Arc::clone(&documents));
        let listener = Listener(listener, TlsAcceptor::from(Arc::new(tls)));
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self { address, authority: authority.certificate().to_owned(), documents, _runtime: runtime }
    }

    pub(crate) fn set(&self, documents: Documents) {
        *self.documents.lock().expect("nobody panics") = documents;
    }
}

type Shared = State<Arc<Mutex<Documents>>>;

fn etag(bytes: &[u8]) -> String {
    format!("\"{}\"", Digest::of(bytes).hex())
}

async fn manifest(State(documents): Shared, headers: HeaderMap) -> Response {
    let manifest = documents.lock().expect("nobody panics").manifest.clone();
    let etag = etag(&manifest);
    if headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == etag.as_bytes()) {
        return (StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response();
    }
    ([(header::ETAG, etag.as_str()), (header::CONTENT_TYPE, "application/json")], manifest).into_response()
}

async fn bundle(State(documents): Shared) -> Response {
    let bundle = documents.lock().expect("nobody panics").bundle.clone();
    ([(header::CONTENT_TYPE, "application/gzip")], bundle).into_response()
}

async fn status(_: axum::body::Bytes) -> StatusCode {
    StatusCode::CREATED
}

impl Client {
    /// The same agent and the same kind of account as the syncer's.
    pub(crate) fn new(through: SocketAddr, rest: &Rest, login: Login) -> Self {
        let agent = crate::host::agent(rest.authority.clone());
        Self { agent, origin: format!("https://{through}"), login, etag: String::new() }
    }

    /// Asks whether there is something new, and fetches it; how many bytes of documents came.
    pub(crate) fn poll(&mut self) -> usize {
        let known = self.etag.clone();
        match self.ask(PATHS[0], &[("Accept", "application/json"), ("If-None-Match", &known)], None) {
            None => 0,
            Some((etag, manifest)) => {
                self.etag = etag;
                let (_, bundle) = self.ask(PATHS[1], &[("Accept", "application/gzip")], None).expect("a bundle");
                manifest + bundle
            }
        }
    }

    /// Says how a deployment goes.
    pub(crate) fn tell(&self, status: &[u8]) {
        self.ask(PATHS[2], &[("Content-Type", "application/json")], Some(status));
    }

    /// The answer's `ETag` and length; `None` if nothing is new.
    fn ask(&self, path: &str, headers: &[(&str, &str)], body: Option<&[u8]>) -> Option<(String, usize)> {
        let url = Url::parse(&format!("{}{path}", self.origin)).expect("a URL");
        let credential = &self.login.credential();
        let request = Request { credential, headers, body, ..Request::get(&url) };
        match self.agent.send(&request) {
            Ok(response) => {
                let etag = response.header("etag").unwrap_or_default().to_owned();
                Some((etag, response.body.bytes(1 << 20).expect("a body").len()))
            }
            // To this agent "not modified" is one more answer that leads elsewhere.
            Err(error) => match error.problem {
                Problem::Redirect { .. } => None,
                _ => panic!("{error:?}"),
            },
        }
    }
}
