//! `serve`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use repo_service::ServiceManager;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use wfm_git_host::{Server, Settings};

use super::log::{self, Log};
use super::{Place, alert};
use crate::config::Config;
use crate::error::Failure;
use crate::hosting::HostedHome;
use crate::repos::Home;

/// Hosts the devices' repositories over HTTPS, and over SSH if asked for, for any Git client
///
/// Prints the addresses that it listens on. Which ones, the certificate and all limits stand in the section `serve:` of
/// publisher.yaml; with it, `run` hosts too. For SSH it starts the machine's sshd for each connection, with a
/// configuration of its own. SIGTERM and SIGINT let running pushes end.
///
///   wfm-git-publisher -C my-fleet serve
///   wfm-git-publisher -C my-fleet serve --listen 127.0.0.1:8443 --ssh 127.0.0.1:2222
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Where to listen, instead of what the settings say
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,

    /// Where to listen for SSH, instead of what the settings say
    #[arg(long, value_name = "ADDRESS:PORT")]
    ssh: Option<SocketAddr>,

    /// The form of the log, on standard error; RUST_LOG chooses what is in it
    #[arg(long, value_enum, default_value_t)]
    log: Log,
}

pub(super) fn run(place: &Place, args: &Args) -> Result<u8, Failure> {
    log::start(args.log);
    let home = place.home()?;
    home.check()?;
    let config = Config::load(&home.config())?;
    let mut settings = config.required_serve()?.clone();
    if let Some(listen) = args.listen {
        settings.listen = listen;
    }
    if let Some(listen) = args.ssh {
        settings.ssh.get_or_insert_default().listen = Some(listen);
    }
    let service = Arc::new(service_manager());
    runtime()?.block_on(service.feed_during(async {
        let server = bind(home, &settings).await?;
        super::print(&format!("https://{}\n", server.address()));
        if let Some((user, address)) = server.ssh_address() {
            super::print(&format!("ssh://{user}@{address}\n"));
        }
        alert::start(place, "HEAD", config.alerts.clone())?;
        service.ready();
        // It has no steps that could hang: connections are tasks of their own.
        service.alive(Duration::MAX);
        server.run(shutdown(&service)?).await;
        Ok(0)
    }))
}

/// Listens, with stock git from where this program would find it.
pub(super) async fn bind(home: Home, settings: &Settings) -> Result<Server, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let hosted = Arc::new(HostedHome::new(home.clone()));
    let places = hosted.places();
    let server = Server::bind(hosted, places, settings, path).await?;
    home.on_move(server.move_listener());
    Ok(server)
}

/// For thousands of connections; blocking work is bounded by those who ask for it.
pub(super) fn runtime() -> Result<Runtime, Failure> {
    Ok(Builder::new_multi_thread().enable_all().build()?)
}

/// Who started this program and hears how it goes.
pub(super) fn service_manager() -> ServiceManager {
    ServiceManager::of(|name| std::env::var_os(name))
}

/// Ready at SIGTERM or SIGINT, of which the service manager hears.
pub(super) fn shutdown(service: &Arc<ServiceManager>) -> Result<impl Future<Output = ()> + use<>, Failure> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let service = service.clone();
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        service.stopping();
    })
}
