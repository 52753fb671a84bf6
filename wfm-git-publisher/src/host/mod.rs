//! The Git host that devices come to: one port with TLS, stock Git on the other side of it.
//!
//! A request comes in through `connection`, is let in and routed by `http` and `access`, and answered apart from the HTTP
//! that asked for it (`underway`). What devices ask all day is answered from the object store (`fetch`, `repos`) or waits
//! for a change (`wait`); fetches and pushes are rare and go to stock `git upload-pack` and `git receive-pack`, bounded
//! by `process`; a large answer is kept on the disk (`spool`) until its client has taken it. A push (`receive`) is judged by [`judge`] while stock git keeps its objects in quarantine, and answered
//! when it is on the disk. [`wire`] reads what strangers send, as pure functions.

mod access;
pub mod account;
mod accounting;
mod answer;
mod body;
mod connection;
mod fetch;
mod http;
mod janitor;
pub mod judge;
mod limits;
pub(crate) mod lock;
mod metrics;
mod process;
mod publisher;
mod receive;
mod repos;
mod settings;
mod spool;
mod underway;
mod wait;
pub mod wire;

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use repo_git::durable;
use repo_model::DeviceId;
use rustix::fs::Access;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use limits::Limits;
pub use publisher::{FleetFigures, Places, PolicyError, Publisher, Reason};
pub use settings::Settings;

use self::accounting::Accounting;
use self::metrics::Metrics;
use self::process::Gate;
use self::repos::Repos;
use self::spool::Spools;
use self::wait::Wakes;
use self::wire::path::{Service, Target};
use crate::accounts::{AccountError, Accounts};
use crate::ca::{self, CaError, Served};

/// The hooks that stock git calls for a push, both this program.
pub const HOOKS: [&str; 2] = ["pre-receive", "update"];

/// The first argument of this program when it is called as a hook; the second is the hook's name.
pub const HOOK: &str = "hook";

/// The host can't start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The certificate can't be used.
    #[error("cannot use the host's certificate")]
    Certificate(#[from] CaError),
    /// The accounts can't be read.
    #[error("cannot read the host's accounts")]
    Accounts(#[from] AccountError),
    /// The address can't be listened on.
    #[error("cannot listen on `{address}`")]
    Listen {
        /// The address.
        address: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Its directories can't be made.
    #[error("cannot make `{}`", path.display())]
    Place {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Shared by all connections.
#[derive(Debug, Clone)]
struct Host(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    publisher: Arc<dyn Publisher>,
    /// Where the publisher's home is, for the hook that judges pushes to the fleet.
    home: PathBuf,
    limits: Limits,
    accounts: Accounts,
    /// What accounts ask about themselves.
    account: axum::Router,
    repos: Repos,
    wakes: Arc<Wakes>,
    metrics: Metrics,
    certificate: Arc<Served>,
    accounting: Accounting,
    connections: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    readers: Gate,
    writers: Gate,
    /// Where stock git is found.
    path: OsString,
    /// The hooks of pushes.
    hooks: PathBuf,
    /// For bodies that don't fit into memory.
    temp: PathBuf,
    /// For answers that don't.
    spools: Arc<Spools>,
    /// Set when the host shall stop.
    stop: CancellationToken,
    /// Connections.
    serving: TaskTracker,
    /// Pushes, which go on when their connection is gone.
    pushes: TaskTracker,
}

impl Deref for Host {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Host {
    /// The gate before processes of this service.
    fn gate(&self, service: Service) -> &Gate {
        match service {
            Service::UploadPack => &self.readers,
            Service::ReceivePack => &self.writers,
        }
    }
}

/// A host that listens already.
#[derive(Debug)]
pub struct Server {
    host: Host,
    listener: TcpListener,
    address: SocketAddr,
    tls: Arc<rustls::ServerConfig>,
    hints: tokio::sync::mpsc::Receiver<String>,
}

impl Server {
    /// Binds the address, and prepares all that is needed to serve what is in these places. `path` is where stock git is
    /// found.
    pub async fn bind(
        publisher: Arc<dyn Publisher>,
        places: Places,
        settings: &Settings,
        path: OsString,
    ) -> Result<Self, ServeError> {
        raise_file_limit();
        let certificate = Served::open(&places.ca, settings)?;
        let tls = ca::server_config(Arc::clone(&certificate))?;
        let (hooks, temp) = (places.index.join("hooks"), places.index.join("uploads"));
        let place = |path: &PathBuf| durable::create_dir_all(path, 0o700);
        for path in [&hooks, &temp] {
            place(path).map_err(|source| ServeError::Place { path: path.clone(), source })?;
        }
        install_hooks(&hooks).map_err(|source| ServeError::Place { path: hooks.clone(), source })?;
        let listening = async {
            let listener = TcpListener::bind(settings.listen).await?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let fail = |source| ServeError::Listen { address: settings.listen.to_string(), source };
        let (listener, address) = listening.await.map_err(fail)?;
        let limits = settings.limits.clone();
        let accounts = Accounts::open(places.accounts)?;
        let (wakes, hints) = Wakes::new(&places.root);
        let gate = || Gate::new(limits.processes, limits.processes_per_account, limits.queue);
        let host = Host(Arc::new(Shared {
            account: account::router(accounts.clone()),
            accounts,
            repos: Repos::new(places.root.clone()),
            wakes,
            metrics: Metrics::new(),
            certificate,
            accounting: Accounting::default(),
            connections: Arc::new(Semaphore::new(limits.connections)),
            requests: Arc::new(Semaphore::new(limits.requests)),
            readers: gate(),
            writers: gate(),
            spools: Spools::new(temp.clone(), limits.spool_bytes),
            path,
            hooks,
            temp,
            stop: CancellationToken::new(),
            serving: TaskTracker::new(),
            pushes: TaskTracker::new(),
            publisher,
            home: places.root,
            limits,
        }));
        Ok(Self { host, listener, address, tls, hints })
    }

    /// Tells the host that branches of a device moved, for a publisher in the same process; who doesn't call it is noticed
    /// by the file system.
    pub fn on_move(&self) -> impl Fn(&DeviceId) + Send + Sync + 'static {
        let wakes = Arc::clone(&self.host.wakes);
        move |device| wakes.hint(Target::Device(&device.repository_name()).place())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown` is ready. Then nothing new is taken, those who wait are sent away, and what runs may end,
    /// pushes first of all.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let Self { host, listener, address, tls, hints } = self;
        tracing::info!(%address, "listening");
        let noticing = tokio::spawn(wait::run(host.clone(), hints));
        let stop = host.stop.clone();
        let accepting = connection::accept(&host, listener, tls);
        tokio::join!(accepting, async {
            shutdown.await;
            stop.cancel();
        });
        host.serving.close();
        host.pushes.close();
        let ended = async {
            host.pushes.wait().await;
            host.serving.wait().await;
        };
        if tokio::time::timeout(Limits::SHUTDOWN, ended).await.is_err() {
            tracing::warn!(connections = host.serving.len(), pushes = host.pushes.len(), "broken off");
        }
        noticing.abort();
        tracing::info!("the host stopped");
    }
}

/// Lets stock git call this very program. By scripts, because git takes a link to a program that has gone for no hook
/// at all, and would accept every push; a script that can't run it fails, and the push with it.
fn install_hooks(hooks: &Path) -> io::Result<()> {
    let program = std::env::current_exe()?;
    let quoted = program.as_os_str().as_bytes().split(|byte| *byte == b'\'').collect::<Vec<_>>().join(&b"'\\''"[..]);
    for name in HOOKS {
        let script = [b"#!/bin/sh\nexec '", &quoted[..], format!("' {HOOK} {name} \"$@\"\n").as_bytes()].concat();
        durable::replace_file(&hooks.join(name), &script, 0o700)?;
    }
    check_hooks(hooks)
}

/// Whether git will call the hooks: those that it may not execute it leaves out, with a word to nobody.
fn check_hooks(hooks: &Path) -> io::Result<()> {
    HOOKS.iter().try_for_each(|name| Ok(rustix::fs::access(hooks.join(name), Access::EXEC_OK)?))
}

/// Each connection and each process takes file descriptors; the soft limit is often 1,024.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the number of open files can't be raised");
    }
}
