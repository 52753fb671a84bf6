//! A TCP proxy in the test's own process that breaks connections in every way that a network can, and counts.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::ports::free_listener;

/// What becomes of connections, from the moment that it is set. Bytes are counted per connection, from its beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fault {
    #[default]
    None,
    /// New connections are refused; those that are open end.
    Refuse,
    /// Both sides are closed in an orderly way after this many bytes in this direction.
    CutAfter(Direction, u64),
    /// Both sides get a reset after this many bytes in this direction.
    ResetAfter(Direction, u64),
    /// After this many bytes in this direction nothing passes any more, and nothing is closed.
    StallAfter(Direction, u64),
    /// Open connections fall silent both ways, and new ones are accepted by nobody who answers: the peer is gone.
    HalfOpen,
    /// At most this many bytes a second in each direction.
    Throttle(u32),
    /// Both sides of a connection are closed once nothing has passed for this long, as load balancers do it.
    CutIdle(Duration),
    /// A connection on which nothing has passed for this long falls silent and is never closed, as routers that
    /// translate addresses do it.
    ForgetIdle(Duration),
}

impl Fault {
    /// Whether only a limit of time shows it.
    pub fn is_silent(self) -> bool {
        matches!(self, Self::HalfOpen | Self::StallAfter(..) | Self::Throttle(_) | Self::ForgetIdle(_))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// What passed since the beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub connections: u64,
    /// How often a client spoke after the server had, or first. With TLS 1.3 a full handshake is one of them and each
    /// request another.
    pub exchanges: u64,
    /// Bytes from clients to the server.
    pub up: u64,
    /// Bytes from the server to clients.
    pub down: u64,
}

/// A running proxy; it ends, and all its connections with it, when dropped.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    fault: Fault,
    counts: Counts,
    ended: bool,
    listening: bool,
    open: BTreeMap<u64, Arc<Link>>,
    target: Option<SocketAddr>,
}

impl FaultProxy {
    /// A proxy on a free port of this machine in front of `target`.
    ///
    /// # Panics
    /// If no port can be had.
    pub fn start(target: SocketAddr) -> Self {
        // One that nobody is given while new connections are refused.
        let listener = free_listener();
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared::default());
        let mut state = shared.lock();
        (state.target, state.listening) = (Some(target), true);
        drop(state);
        let accepting = Arc::clone(&shared);
        let acceptor = Some(thread::spawn(move || accept(listener, address, &accepting)));
        Self { address, shared, acceptor }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on this happens; it holds when the call returns.
    pub fn set(&self, fault: Fault) {
        let mut state = self.shared.lock();
        state.fault = fault;
        if fault == Fault::Refuse {
            state.close_all();
        }
        self.shared.changed.notify_all();
        if let Fault::CutIdle(_) | Fault::ForgetIdle(_) = fault {
            let shared = Arc::clone(&self.shared);
            thread::spawn(move || shared.end_idle(fault));
        }
        let listen = fault != Fault::Refuse;
        if state.listening && !listen {
            drop(state);
            // Wakes the acceptor, which sees that it has to close the port.
            let _ = TcpStream::connect(self.address);
        } else {
            drop(state);
        }
        drop(self.shared.wait_while(|state| state.listening != listen && !state.ended));
    }

    /// Leads new connections to another server.
    pub fn lead_to(&self, target: SocketAddr) {
        self.shared.lock().target = Some(target);
    }

    /// What passed so far.
    pub fn counts(&self) -> Counts {
        self.shared.lock().counts
    }

    /// Waits until the condition holds for what passed; false after `limit`.
    pub fn wait_until(&self, limit: Duration, holds: impl Fn(&Counts) -> bool) -> bool {
        let state = self.shared.lock();
        let waited = self.shared.changed.wait_timeout_while(state, limit, |state| !holds(&state.counts));
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// How many connections are open now.
    pub fn open(&self) -> usize {
        self.shared.lock().open.len()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.ended = true;
        state.close_all();
        self.shared.changed.notify_all();
        drop(state);
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while(&self, condition: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        self.changed.wait_while(self.lock(), |state| condition(state)).unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends connections that are idle, for as long as this is the fault.
    fn end_idle(&self, fault: Fault) {
        let (Fault::CutIdle(limit) | Fault::ForgetIdle(limit)) = fault else { return };
        loop {
            let state = self.lock();
            if state.ended || state.fault != fault {
                return;
            }
            for link in state.open.values().filter(|link| link.idle() >= limit) {
                if matches!(fault, Fault::CutIdle(_)) {
                    link.both(Shutdown::Both);
                } else {
                    link.forgotten.store(true, Ordering::Relaxed);
                }
            }
            drop(state);
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl State {
    fn close_all(&mut self) {
        for link in self.open.values() {
            link.both(Shutdown::Both);
        }
    }
}

/// Accepts until the end; while connections are refused the port is closed.
fn accept(listener: TcpListener, address: SocketAddr, shared: &Arc<Shared>) {
    let mut listener = Some(listener);
    loop {
        if shared.lock().ended {
            return;
        }
        if shared.lock().fault == Fault::Refuse {
            listener = None;
            shared.lock().listening = false;
            shared.changed.notify_all();
            drop(shared.wait_while(|state| state.fault == Fault::Refuse && !state.ended));
            continue;
        }
        let open = listener.get_or_insert_with(|| TcpListener::bind(address).expect("the port is still free"));
        if !std::mem::replace(&mut shared.lock().listening, true) {
            shared.changed.notify_all();
        }
        if let Ok((client, _)) = open.accept() {
            begin(client, shared);
        }
    }
}

/// Starts one connection, unless it only woke the acceptor.
fn begin(client: TcpStream, shared: &Arc<Shared>) {
    let mut state = shared.lock();
    if state.ended || state.fault == Fault::Refuse {
        return;
    }
    state.counts.connections += 1;
    let number = state.counts.connections;
    let target = state.target.expect("set at the start");
    drop(state);
    shared.changed.notify_all();
    let Ok(server) = TcpStream::connect(target) else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let link = Arc::new(Link {
        number,
        client,
        server,
        last: Mutex::new((Direction::Down, Instant::now())),
        broken: AtomicBool::new(false),
        forgotten: AtomicBool::new(false),
    });
    shared.lock().open.insert(number, Arc::clone(&link));
    for direction in [Direction::Up, Direction::Down] {
        let pump = Pump { shared: Arc::clone(shared), link: Arc::clone(&link), direction, passed: 0 };
        thread::spawn(move || pump.run());
    }
}

/// One connection: both its ends, each one descriptor, so that the last to let go decides how it closes.
#[derive(Debug)]
struct Link {
    number: u64,
    client: TcpStream,
    server: TcpStream,
    /// Who spoke last, and when.
    last: Mutex<(Direction, Instant)>,
    broken: AtomicBool,
    /// Nothing passes any more, and nothing is closed.
    forgotten: AtomicBool,
}

impl Link {
    /// How long nothing has passed.
    fn idle(&self) -> Duration {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).1.elapsed()
    }

    fn both(&self, how: Shutdown) {
        for end in [&self.client, &self.server] {
            let _ = end.shutdown(how);
        }
    }

    /// Closes both ends with a reset, as soon as both directions have let go.
    fn reset(&self) {
        for end in [&self.client, &self.server] {
            let _ = rustix::net::sockopt::set_socket_linger(end, Some(Duration::ZERO));
        }
        // Wakes the other direction and sends nothing.
        self.both(Shutdown::Read);
    }
}

/// One direction of one connection.
struct Pump {
    shared: Arc<Shared>,
    link: Arc<Link>,
    direction: Direction,
    passed: u64,
}

/// What a direction may do now.
enum Gate {
    /// Pass this many bytes, then wait so long.
    Pass(usize, Duration),
    Cut,
    Reset,
}

impl Pump {
    fn run(mut self) {
        let end = self.pass_all();
        let mut state = self.shared.lock();
        let first = !self.link.broken.load(Ordering::Relaxed);
        match end {
            // The sender is done; the other direction may go on.
            Gate::Pass(..) if first => {
                let to = if self.direction == Direction::Up { &self.link.server } else { &self.link.client };
                let _ = to.shutdown(Shutdown::Write);
                if Arc::strong_count(&self.link) <= 2 {
                    state.open.remove(&self.link.number);
                }
            }
            Gate::Pass(..) => {}
            Gate::Cut | Gate::Reset => {
                self.link.broken.store(true, Ordering::Relaxed);
                state.open.remove(&self.link.number);
                if matches!(end, Gate::Cut) { self.link.both(Shutdown::Both) } else { self.link.reset() }
            }
        }
        // The connection closes before anyone is told that it did.
        drop(self.link);
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Passes everything until there is nothing more, or a fault ends it.
    fn pass_all(&mut self) -> Gate {
        let link = Arc::clone(&self.link);
        let (mut from, mut to) = match self.direction {
            Direction::Up => (&link.client, &link.server),
            Direction::Down => (&link.server, &link.client),
        };
        let mut buffer = vec![0; 16 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let mut rest = &buffer[..count];
            loop {
                match self.gate(rest.len()) {
                    Gate::Pass(0, _) => break,
                    Gate::Pass(allowed, pause) => {
                        let (now, later) = rest.split_at(allowed);
                        self.count(allowed as u64);
                        if to.write_all(now).is_err() {
                            return Gate::Pass(0, Duration::ZERO);
                        }
                        rest = later;
                        self.pause(pause);
                    }
                    end => return end,
                }
            }
        }
        Gate::Pass(0, Duration::ZERO)
    }

    /// Waits until something may be done with `waiting` bytes.
    fn gate(&self, waiting: usize) -> Gate {
        let (mine, passed) = (self.direction, self.passed);
        let stalls = |fault| match fault {
            _ if self.link.forgotten.load(Ordering::Relaxed) => true,
            Fault::HalfOpen => true,
            Fault::StallAfter(direction, limit) => direction == mine && passed >= limit,
            _ => false,
        };
        let state = self.shared.wait_while(|state| stalls(state.fault) && !state.ended);
        let up_to =
            |limit: u64| Gate::Pass(waiting.min((limit - passed).try_into().unwrap_or(usize::MAX)), Duration::ZERO);
        match state.fault {
            // The other direction decides how it closes.
            _ if self.link.broken.load(Ordering::Relaxed) => Gate::Pass(0, Duration::ZERO),
            _ if state.ended => Gate::Cut,
            Fault::Refuse => Gate::Cut,
            Fault::CutAfter(direction, limit) if direction == mine && passed >= limit => Gate::Cut,
            Fault::ResetAfter(direction, limit) if direction == mine && passed >= limit => Gate::Reset,
            Fault::CutAfter(direction, limit)
            | Fault::ResetAfter(direction, limit)
            | Fault::StallAfter(direction, limit)
                if direction == mine =>
            {
                up_to(limit)
            }
            Fault::Throttle(rate) => {
                let piece = waiting.min((rate as usize / 20).max(1));
                Gate::Pass(piece, Duration::from_secs_f64(piece as f64 / f64::from(rate.max(1))))
            }
            _ => Gate::Pass(waiting, Duration::ZERO),
        }
    }

    fn count(&mut self, bytes: u64) {
        self.passed += bytes;
        let now = (self.direction, Instant::now());
        let (before, _) = std::mem::replace(&mut *self.link.last.lock().unwrap_or_else(PoisonError::into_inner), now);
        let mut state = self.shared.lock();
        match self.direction {
            Direction::Up => {
                state.counts.up += bytes;
                state.counts.exchanges += u64::from(before == Direction::Down);
            }
            Direction::Down => state.counts.down += bytes,
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Waits, unless the fault changes meanwhile.
    fn pause(&self, pause: Duration) {
        if pause.is_zero() {
            return;
        }
        let state = self.shared.lock();
        let fault = state.fault;
        let same = |state: &mut State| state.fault == fault && !state.ended;
        drop(self.shared.changed.wait_timeout_while(state, pause, same));
    }
}
