//! Connections over SSH that the host accepts itself: each gets a stock sshd of its own, which ends with it.
//!
//! So there is no daemon that has to be kept alive, locks anybody out, or holds the port when the host was killed, and
//! limits are the host's: many may come at once, those who are unknown take turns by network and have a short time, and
//! who says nothing takes nobody's turn.

use std::io;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{Duration, sleep, timeout};

use super::heard::Heard;
use super::sshd::{GRACE_SECONDS, Sshd};
use crate::admission::Admitted;
use crate::arrivals::Arrival;
use crate::limits::Limits;
use crate::shared::Host;
use crate::turns::FIRST;

/// How long a client that has the server's version may take for its next word until another one may log in beside it.
const NEXT: Duration = Duration::from_millis(500);

/// How long a login may take until another one may begin beside it.
const LOGIN: Duration = Duration::from_secs(5);

/// How long after a client's time for its key a connection may be without a session.
const KNOWN: Duration = Duration::from_secs(GRACE_SECONDS * 2);

/// How long an sshd may take to send what is left, and to end.
const GRACE: Duration = Duration::from_secs(2);

/// The longest line of its log that is kept.
const LINE: usize = 1000;

#[derive(Debug)]
pub(crate) struct Front {
    listener: TcpListener,
    pub(crate) address: SocketAddr,
    sshd: Arc<Sshd>,
}

impl Front {
    pub(crate) async fn bind(listen: SocketAddr, sshd: Sshd) -> io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, sshd: Arc::new(sshd) })
    }

    /// Accepts connections until the host stops.
    pub(crate) async fn accept(&self, host: &Host) {
        loop {
            let accepted = tokio::select! {
                // Both are cancel-safe: a connection that isn't accepted stays in the queue.
                accepted = self.listener.accept() => accepted,
                () = host.stop.cancelled() => return,
            };
            match accepted {
                Ok((stream, address)) => {
                    let Some(admitted) = host.admit(address) else { continue };
                    let (serving, sshd) = (host.clone(), Arc::clone(&self.sshd));
                    host.serving.spawn(async move {
                        if let Err(error) = serve(&serving, &sshd, stream, admitted).await {
                            tracing::warn!(%address, %error, "sshd can't be started");
                        }
                    });
                }
                Err(error) => {
                    // Out of file descriptors, most likely: others have to go first.
                    tracing::warn!(%error, "a connection can't be accepted");
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
}

async fn serve(host: &Host, sshd: &Sshd, stream: TcpStream, admitted: Admitted) -> io::Result<()> {
    let address = admitted.peer.address;
    let turn = tokio::select! {
        turn = host.turns.wait(&stream, address.ip().into()) => turn,
        () = host.stop.cancelled() => return Ok(()),
    };
    // Too many were before it; it comes again.
    let Some(turn) = turn else { return Ok(()) };
    let spoke = turn.spoke();
    let listed = host.arrivals.list(Arc::clone(&admitted.peer), turn);
    let (heard, stream) = Heard::begin(stream)?;
    let mut child = start(sshd, stream)?;
    let said = tokio::spawn(log(address, child.stderr.take()));
    tokio::select! {
        _ = child.wait() => return Ok(()),
        () = stopped_short(host, &listed.arrival, spoke.then_some(heard)) => tracing::debug!(%address, "it stopped"),
        () = unknown(&listed.arrival) => tracing::debug!(%address, "nobody came of it"),
        () = stopped(host, &listed.arrival) => {}
    }
    end(&mut child).await;
    said.abort();
    Ok(())
}

fn start(sshd: &Sshd, stream: std::net::TcpStream) -> io::Result<Child> {
    stream.set_nonblocking(false)?;
    let output = stream.try_clone()?;
    let mut command = Command::new(&sshd.program);
    command.args(["-i", "-e", "-f"]).arg(&sshd.config).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command.stdin(std::os::fd::OwnedFd::from(stream)).stdout(std::os::fd::OwnedFd::from(output));
    command.stderr(Stdio::piped()).process_group(0).kill_on_drop(true).spawn()
}

/// Ends when a client that has the server's version, and said its own, then says nothing for as long as others may be silent,
/// and there are as many silent ones as may have an sshd.
async fn stopped_short(host: &Host, arrival: &Arrival, heard: Option<Heard>) {
    if let Some(heard) = heard {
        // A busy sshd takes its time: that isn't the client's fault.
        heard.answered().await;
        sleep(NEXT).await;
        if !heard.more() {
            arrival.was_long();
        }
        sleep(FIRST - NEXT).await;
        if !heard.more() && !arrival.counts_as_silent(&host.turns).await {
            return;
        }
    }
    std::future::pending().await
}

/// Ends when a connection is nobody's for too long.
async fn unknown(arrival: &Arrival) {
    sleep(LOGIN).await;
    arrival.was_long();
    sleep(KNOWN - LOGIN).await;
    if arrival.is_known() {
        std::future::pending().await
    }
}

/// Ends when the host stops and all that was in flight here is answered.
async fn stopped(host: &Host, arrival: &Arrival) {
    host.stop.cancelled().await;
    arrival.sessions.close();
    let _ = timeout(Limits::SHUTDOWN, arrival.sessions.wait()).await;
    // What was answered is still to be sent.
    sleep(GRACE / 4).await;
}

async fn end(child: &mut Child) {
    let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    if let Some(group) = group {
        let _ = kill_process_group(group, Signal::TERM);
    }
    if timeout(GRACE, child.wait()).await.is_err() {
        let _ = group.map(|group| kill_process_group(group, Signal::KILL));
        let _ = child.wait().await;
    }
}

/// What an sshd says goes into the host's log.
async fn log(address: SocketAddr, from: Option<impl AsyncRead + Unpin>) {
    let Some(from) = from else { return };
    let mut from = BufReader::with_capacity(LINE, from);
    loop {
        let said = match from.fill_buf().await {
            Ok(said) if !said.is_empty() => said,
            _ => return,
        };
        let length = said.iter().position(|c| *c == b'\n').map_or(said.len(), |at| at + 1);
        let line = String::from_utf8_lossy(&said[..length]).trim().to_owned();
        if !line.is_empty() {
            tracing::info!(target: "sshd", %address, "{}", repo_model::text::line(&line));
        }
        from.consume(length);
    }
}
