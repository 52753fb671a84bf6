//! The host as it is started, serves, and ends in good order.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use repo_git::durable;
use repo_model::DeviceId;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::accounting::Accounting;
use crate::accounts::{AccountError, Accounts};
use crate::arrivals::Arrivals;
use crate::ca::{self, CaError, Served};
use crate::calls::Calls;
use crate::enrolment::Enrolment;
use crate::hooks;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::process::Gate;
use crate::publisher::{Places, Publisher};
use crate::repos::Repos;
use crate::settings::Settings;
use crate::shared::{Host, Shared};
use crate::spool::Spools;
use crate::ssh::{Ssh, SshError};
use crate::turns::Turns;
use crate::watch::RefWatcher;
use crate::wire::path::Target;
use crate::{account, connection, wait};

/// How many strangers are told the rosters at the same time, each from memory: the others come again.
const ROSTERS: usize = 4;

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
        address: String,
        #[source]
        source: io::Error,
    },
    /// SSH is asked for, and can't be served.
    #[error("cannot serve over SSH")]
    Ssh(#[from] SshError),
    /// Its directories can't be made, or this program's own can't be found.
    #[error("cannot make or find `{}`", path.display())]
    Place {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A host that listens already.
#[derive(Debug)]
pub struct Server {
    host: Host,
    listener: TcpListener,
    address: SocketAddr,
    tls: Arc<rustls::ServerConfig>,
    ssh: Option<Ssh>,
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
        let (hook_dir, temp) = (places.index.join("hooks"), places.index.join("uploads"));
        let place = |path: &PathBuf| durable::create_dir_all(path, 0o700);
        for path in [&hook_dir, &temp] {
            place(path).map_err(|source| ServeError::Place { path: path.clone(), source })?;
        }
        hooks::install(&hook_dir).map_err(|source| ServeError::Place { path: hook_dir.clone(), source })?;
        let listening = async {
            let listener = TcpListener::bind(settings.listen).await?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let fail = |source| ServeError::Listen { address: settings.listen.to_string(), source };
        let (listener, address) = listening.await.map_err(fail)?;
        let limits = settings.limits.clone();
        let accounts = Accounts::open(places.accounts)?;
        let (watcher, hints) = RefWatcher::new(&places.root);
        let gate = || Gate::new(limits.processes, limits.processes_per_account, limits.queue);
        let (questions, asking) = Limits::QUESTIONS;
        let unknown = |source| ServeError::Place { path: "/proc/self/exe".into(), source };
        let program = std::env::current_exe().map_err(unknown)?;
        let host = Host(Arc::new(Shared {
            account: account::router(accounts.clone()),
            accounts,
            enrolment: Arc::new(Enrolment::new(Arc::clone(&publisher), places.enrolments, temp.clone())),
            repos: Repos::new(places.root.clone()),
            watcher,
            calls: Mutex::new(Calls::new()),
            metrics: Metrics::new(),
            certificate,
            accounting: Accounting::default(),
            connections: Arc::new(Semaphore::new(limits.connections)),
            requests: Arc::new(Semaphore::new(limits.requests)),
            rosters: Arc::new(Semaphore::new(ROSTERS)),
            questions: Gate::new(questions, 1, asking),
            readers: gate(),
            writers: gate(),
            turns: Turns::new(&limits),
            arrivals: Arrivals::default(),
            spools: Spools::new(temp.clone(), limits.spool_bytes),
            program,
            path,
            hooks: hook_dir,
            temp,
            stop: CancellationToken::new(),
            serving: TaskTracker::new(),
            pushes: TaskTracker::new(),
            publisher,
            home: places.root,
            limits,
        }));
        let ssh = match &settings.ssh {
            Some(chosen) => Some(Ssh::bind(chosen, &places.ssh, &host.path).await?),
            None => None,
        };
        Ok(Self { host, listener, address, tls, ssh, hints })
    }

    /// What a publisher in the same process calls when it moved branches of a device; others are noticed by the file system.
    pub fn move_listener(&self) -> impl Fn(&DeviceId) + Send + Sync + 'static {
        let watcher = Arc::clone(&self.host.watcher);
        move |device| watcher.hint(Target::Device(&device.repository_name()).place())
    }

    /// Where it listens: with the port that the system chose, if the settings say 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens for SSH, and as whom clients come; `None` if it doesn't, or another sshd is in front of it.
    pub fn ssh_address(&self) -> Option<(&str, SocketAddr)> {
        let ssh = self.ssh.as_ref()?;
        Some((&ssh.user, ssh.front.as_ref()?.address))
    }

    /// Serves until `shutdown` is ready. Then nothing new is taken, those who wait are sent away, and what runs may end,
    /// pushes first of all.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let Self { host, listener, address, tls, ssh, hints } = self;
        tracing::info!(%address, ssh = ssh.as_ref().map(Ssh::to_string), "listening");
        let noticing = tokio::spawn(wait::refresh_moved(host.clone(), hints));
        let stop = host.stop.clone();
        let accepting = connection::accept(&host, listener, tls);
        let accepting_ssh = async {
            if let Some(ssh) = &ssh {
                ssh.accept(&host).await;
            }
        };
        tokio::join!(accepting, accepting_ssh, async {
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

/// Each connection and each process takes file descriptors; the soft limit is often 1,024.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the number of open files can't be raised");
    }
}
