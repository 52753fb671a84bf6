//! What the service manager that started a program hears of it: systemd's protocol of `sd_notify(3)`.
//!
//! Each thing that is said is one datagram to the socket that `NOTIFY_SOCKET` names. Nothing is read back, and nothing
//! depends on being heard. A program that no service manager started has none of this.
//!
//! The watchdog is fed by the task that does the work ([`ServiceManager::feed_during`]) as long as the work keeps what it
//! said last: that it gives its next sign of life within a time ([`ServiceManager::alive`]). Where no service manager has one,
//! the program may have a watchdog of its own ([`ServiceManager::or_watchdog`]).

pub mod log;
mod watchdog;

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use repo_model::text;
use tokio::time::{MissedTickBehavior, interval};

use self::watchdog::Watchdog;

/// How long a datagram waits for room in the service manager's queue.
const PATIENCE: Duration = Duration::from_secs(1);

/// No sign of life is promised for later than this.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// The watchdog is fed so many times within the time after which it bites.
const MEALS: u32 = 3;

/// The service manager, if one started this program; nobody by default.
#[derive(Debug)]
pub struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// After how long without food its watchdog ends this program.
    watchdog: Option<Duration>,
    /// Whether that is this program's own.
    is_own: bool,
    /// When the next sign of life is due at the latest.
    due: Mutex<Instant>,
}

impl Default for ServiceManager {
    fn default() -> Self {
        Self { socket: None, watchdog: None, is_own: false, due: Mutex::new(Instant::now()) }
    }
}

impl ServiceManager {
    /// Whom the variables name that a service manager sets for what it starts. Nobody is told where they name nobody, or
    /// what this program can't talk to, which is logged.
    pub fn of(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        Self::try_of(&variable).unwrap_or_else(|error| {
            tracing::warn!(%error, "the service manager can't be told anything by its NOTIFY_SOCKET");
            Self::default()
        })
    }

    fn try_of(variable: &dyn Fn(&str) -> Option<OsString>) -> io::Result<Self> {
        let Some(name) = variable("NOTIFY_SOCKET") else { return Ok(Self::default()) };
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            [b'/', ..] => SocketAddr::from_pathname(&name)?,
            _ => return Err(io::Error::new(io::ErrorKind::Unsupported, "it begins neither with `/` nor with `@`")),
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let number = |name| variable(name)?.to_str()?.parse::<u64>().ok();
        let is_meant = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|micros| is_meant && *micros > 0).map(Duration::from_micros);
        Ok(Self { socket: Some((socket, address)), watchdog, ..Self::default() })
    }

    /// A watchdog of this program's own, which ends it after so long without food, where the service manager has none.
    #[must_use]
    pub fn or_watchdog(mut self, patience: Option<Duration>) -> Self {
        let own = patience.filter(|patience| self.watchdog.is_none() && !patience.is_zero());
        self.is_own = own.is_some();
        self.watchdog = self.watchdog.or(own);
        self
    }

    /// After how long without a sign of life its watchdog ends this program; `None` where nothing does.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// The program does what it is there for, from now on.
    pub fn ready(&self) {
        self.notify("READY=1");
    }

    /// How it is, for people: one line, whatever strangers wrote in it.
    pub fn status(&self, text: &str) {
        self.notify(&format!("STATUS={}", text::line(text)));
    }

    /// It was asked to end, and does.
    pub fn stopping(&self) {
        self.notify("STOPPING=1");
    }

    /// The work goes on, and says so again within this time.
    pub fn alive(&self, within: Duration) {
        *self.due.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + within.min(LONGEST);
    }

    /// Does the work, and feeds the watchdog meanwhile while signs of life come in time.
    ///
    /// The task of the work is what feeds: work that doesn't let its task go on starves it, too.
    pub async fn feed_during<T>(&self, work: impl Future<Output = T>) -> T {
        let Some(watchdog) = self.watchdog else { return work.await };
        let own = self.is_own.then(|| Watchdog::begin(watchdog, || std::process::abort()));
        let mut ticks = interval(watchdog / MEALS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut work = pin!(work);
        let mut was_alive = true;
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                // Cancel-safe: a tick holds nothing.
                _ = ticks.tick() => {}
            }
            let is_alive = Instant::now() < *self.due.lock().unwrap_or_else(PoisonError::into_inner);
            if is_alive {
                match &own {
                    Some(own) => own.feed(),
                    None => self.notify("WATCHDOG=1"),
                }
            } else if was_alive {
                tracing::error!("no sign of life: the watchdog isn't fed any more");
            }
            was_alive = is_alive;
        }
    }

    fn notify(&self, what: &str) {
        let Some((socket, address)) = &self.socket else { return };
        if let Err(error) = socket.send_to_addr(what.as_bytes(), address) {
            tracing::warn!(%error, "the service manager can't be told `{what}`");
        }
    }
}

#[cfg(test)]
mod tests;
