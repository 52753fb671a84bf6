//! One session with a host: the way to it, its key, and being let in.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use ssh2::{DisconnectCode, ErrorCode, MethodType, Session};

use super::algorithms::{KINDS, Offer, of_key, ours, said_instead};
use super::host_keys::{Known, describe};
use super::identity::Key;
use super::pipe::Failure;
use super::wire::{Connecting, Wake, Wire};
use super::{Answer, Identity, Problem, Settings, Url};

/// The most bytes that a host sends before it lets anyone in.
pub(super) const BEFORE_AUTH: u64 = 1 << 20;

/// How long to leave a host alone that has too many connections.
const BUSY: Duration = Duration::from_secs(30);

/// How long an ssh-agent may take to list its keys, and to sign.
const AGENT: Duration = Duration::from_secs(3);

/// A kept session that died while nobody used it shows so within this.
pub(super) const UNNOTICED: Duration = Duration::from_secs(5);

/// libssh2's numbers for errors that matter here.
mod code {
    pub(super) const EAGAIN: i32 = -37;
    pub(super) const FILE: i32 = -16;
    pub(super) const AUTHENTICATION_FAILED: i32 = -18;
    pub(super) const PUBLICKEY_UNVERIFIED: i32 = -19;
    pub(super) const KEYFILE_AUTH_FAILED: i32 = -48;
    pub(super) const ALGO_UNSUPPORTED: i32 = -51;
    pub(super) const AGENT_PROTOCOL: i32 = -42;
}

/// A session that let us in.
pub(super) struct Live {
    /// First, so that the connection ends before libssh2 frees the session, and doesn't wait for the host.
    pub(super) wire: Wire,
    pub(super) session: Session,
}

/// Until when a step may take, and who may end it before.
pub(super) struct Guard<'a> {
    pub(super) wake: &'a Wake,
    pub(super) until: Instant,
    /// What it is if it isn't done by then.
    pub(super) slow: Problem,
    /// The host must be heard of within [`UNNOTICED`] of this, else the session counts as dead.
    pub(super) proof: Option<Instant>,
    /// How many bytes the host may have sent in all by then.
    pub(super) received: u64,
    /// Whether somebody wants it to end.
    pub(super) is_over: &'a dyn Fn() -> bool,
}

impl Guard<'_> {
    fn check(&self) -> Result<Duration, Failure> {
        let now = Instant::now();
        if (self.is_over)() {
            return Err(Failure { problem: Problem::Cut, source: Some("it was interrupted".to_owned()) });
        }
        if now >= self.until {
            return Err(self.slow.clone().into());
        }
        Ok(self.until - now)
    }
}

/// Why a step of libssh2 failed.
pub(super) enum Broken {
    /// Not by libssh2, or the session with it.
    Off(Failure),
    /// libssh2 says no, and the session may be well.
    Said(ssh2::Error),
}

impl Broken {
    /// The failure that it is where nothing more precise is known.
    pub(super) fn into_failure(self) -> Failure {
        match self {
            Self::Off(failure) => failure,
            Self::Said(error) => Failure { problem: Problem::Cut, source: Some(error.to_string()) },
        }
    }
}

/// What a kept session comes to that doesn't answer.
pub(super) fn dead() -> Failure {
    Failure { problem: Problem::Cut, source: Some("the kept session died unnoticed".to_owned()) }
}

/// Runs one step of libssh2 to its end.
pub(super) fn drive<T>(
    session: &mut Session,
    wire: &mut Wire,
    guard: &Guard<'_>,
    mut step: impl FnMut(&mut Session) -> Result<T, ssh2::Error>,
) -> Result<T, Broken> {
    let mut unread = None;
    loop {
        wire.pump();
        let result = step(session);
        let came = wire.pump();
        match result {
            Err(error) if is_blocked(&error) => {}
            Err(error) if wire.ended => {
                return Err(Broken::Off(Failure { problem: Problem::Cut, source: Some(error.to_string()) }));
            }
            result => return result.map_err(Broken::Said),
        }
        let mut left = guard.check().map_err(Broken::Off)?;
        if wire.received > guard.received {
            return Err(Broken::Off(Problem::TooLarge { limit: guard.received }.into()));
        }
        if let Some(begin) = guard.proof.filter(|begin| wire.heard < *begin) {
            let Some(rest) = UNNOTICED.checked_sub(begin.elapsed()) else { return Err(Broken::Off(dead())) };
            left = left.min(rest);
        }
        if !came && !wire.is_worth_another_look(&mut unread) {
            wire.wait(guard.wake, left);
        }
    }
}

/// What it takes to open a session.
pub(super) struct Opening<'a> {
    pub(super) url: &'a Url,
    pub(super) settings: &'a Settings,
    pub(super) known: &'a Known,
    pub(super) guard: Guard<'a>,
}

impl Opening<'_> {
    /// Opens a session. `algorithm` is the kind of host key that was right before, and is kept for the next time.
    pub(super) fn open(&self, algorithm: &mut Option<String>) -> Result<Live, Failure> {
        let wanted: Vec<String> = match &*algorithm {
            Some(algorithm) => vec![algorithm.clone()],
            None => self.known.algorithms().into_iter().flat_map(of_key).map(str::to_owned).collect(),
        };
        let (mut live, found) = self.greet(&wanted, false)?;
        let mut judged = self.known.judge(&found);
        if let (Err(Problem::HostKeyChanged { .. }), true) = (&judged, self.known.has_fingerprints()) {
            // A fingerprint doesn't say of which kind its key is, and a host shows one at a time.
            let offer = Offer::read(&live.wire.greeting);
            let shown = live.session.methods(MethodType::HostKey).map(str::to_owned);
            for other in ours(&live.session, MethodType::HostKey) {
                let is_offered = offer.as_ref().is_some_and(|offer| offer.has(1, other));
                if !is_offered || Some(other) == shown.as_deref() {
                    continue;
                }
                let (next, found) = self.greet(&[other.to_owned()], true)?;
                if self.known.judge(&found).is_ok() {
                    (live, judged) = (next, Ok(()));
                    break;
                }
            }
        }
        judged?;
        *algorithm = live.session.methods(MethodType::HostKey).map(str::to_owned);
        self.be_let_in(&mut live)?;
        Ok(live)
    }

    /// Connects and agrees on keys; returns the host's own, which nobody has judged yet.
    fn greet(&self, wanted: &[String], only: bool) -> Result<(Live, Vec<u8>), Failure> {
        let (wire, libssh2) = Wire::new(self.connect()?).map_err(network)?;
        let session = Session::new().map_err(|error| Broken::Said(error).into_failure())?;
        let mut live = Live { wire, session };
        let Live { wire, session } = &mut live;
        session.set_blocking(false);
        session.set_tcp_stream(libssh2);
        for (kind, _) in KINDS {
            let mut names: Vec<&str> = ours(session, kind);
            if matches!(kind, MethodType::HostKey) {
                // The kinds that are known come first, so that the host shows a key that can be judged.
                names.sort_by_key(|name| wanted.iter().position(|wanted| wanted == name).unwrap_or(usize::MAX));
                names.retain(|name| !only || wanted.iter().any(|wanted| wanted == name));
            }
            session.method_pref(kind, &names.join(",")).map_err(|error| Broken::Said(error).into_failure())?;
        }
        if let Err(broken) = drive(session, wire, &self.guard, |session| session.handshake()) {
            return Err(no_handshake(session, wire, broken));
        }
        let found = session.host_key().map(|(key, _)| key.to_owned()).unwrap_or_default();
        Ok((live, found))
    }

    fn connect(&self) -> Result<TcpStream, Failure> {
        let addresses: Vec<SocketAddr> = match (self.url.host(), self.url.port()).to_socket_addrs() {
            Ok(addresses) => addresses.collect(),
            Err(error) => return Err(Failure { problem: Problem::NameUnknown, source: Some(error.to_string()) }),
        };
        let mut last = Failure::from(Problem::NameUnknown);
        for (at, address) in addresses.iter().enumerate() {
            let left = self.guard.check()?;
            // Some time for each of those that are left.
            let until = Instant::now() + left / (addresses.len() - at) as u32;
            match self.connect_to(*address, until) {
                Ok(stream) => return Ok(stream),
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    fn connect_to(&self, address: SocketAddr, until: Instant) -> Result<TcpStream, Failure> {
        let connecting = Connecting::begin(address).map_err(network)?;
        loop {
            match connecting.stands() {
                Some(Ok(())) => return connecting.into_stream().map_err(network),
                Some(Err(error)) => return Err(network(error)),
                None => {}
            }
            self.guard.check()?;
            if Instant::now() >= until {
                return Err(self.guard.slow.clone().into());
            }
            connecting.wait(self.guard.wake, until.saturating_duration_since(Instant::now()));
        }
    }

    /// Offers each key until one is accepted.
    fn be_let_in(&self, live: &mut Live) -> Result<(), Failure> {
        let (mut offered, mut unusable) = (Vec::new(), None);
        for identity in &self.settings.identities {
            let outcome = match identity {
                Identity::KeyFile { path, .. } => match identity.read() {
                    Ok(Some(key)) => self.offer_key(live, &key, path, &mut offered),
                    Ok(None) => continue,
                    Err(problem) => Err(problem.into()),
                },
                Identity::Agent { socket } => self.offer_agent(live, socket, &mut offered),
            };
            match outcome {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                // Another key may do.
                Err(failure) if matches!(failure.problem, Problem::KeyUnreadable { .. } | Problem::Agent { .. }) => {
                    unusable.get_or_insert(failure);
                }
                // The host ends it after too many keys (`MaxAuthTries`).
                Err(failure) if failure.problem == Problem::Cut && !offered.is_empty() && live.wire.ended => break,
                Err(failure) => return Err(failure),
            }
        }
        match unusable {
            Some(failure) if offered.is_empty() => Err(failure),
            _ => {
                let (user, offered) = (self.url.user().to_owned(), offered.join(", "));
                Err(Problem::KeyRefused { user, offered, retry_after: Duration::ZERO }.into())
            }
        }
    }

    fn offer_key(
        &self,
        live: &mut Live,
        key: &Key,
        path: &std::path::Path,
        offered: &mut Vec<String>,
    ) -> Result<bool, Failure> {
        let (user, passphrase) = (self.url.user(), key.passphrase.as_ref().map(|text| text.as_str()));
        offered.push(format!("the key `{}` ({})", path.display(), key.name));
        let result = drive(&mut live.session, &mut live.wire, &self.guard, |session| {
            session.userauth_pubkey_memory(user, None, &key.text, passphrase)
        });
        match result {
            Ok(()) => Ok(true),
            Err(Broken::Said(error)) if is_one_of(&error, &[code::FILE, code::KEYFILE_AUTH_FAILED]) => {
                offered.pop();
                let why = match passphrase {
                    Some(_) => "the passphrase is wrong, or the key is damaged".to_owned(),
                    None => format!("it is damaged, or of a kind that isn't supported ({})", key.name),
                };
                Err(Problem::KeyUnreadable { file: path.to_owned(), why }.into())
            }
            other => is_accepted(other),
        }
    }

    fn offer_agent(
        &self,
        live: &mut Live,
        socket: &std::path::Path,
        offered: &mut Vec<String>,
    ) -> Result<bool, Failure> {
        let fail = |why: &str| Failure::from(Problem::Agent { socket: socket.to_owned(), why: why.to_owned() });
        super::agent::lists(socket, self.guard.check()?.min(AGENT)).map_err(|_| fail("doesn't answer"))?;
        let mut agent = live.session.agent().map_err(|_| fail("can't be used"))?;
        agent.set_identity_path(socket).map_err(|_| fail("can't be used"))?;
        agent.connect().map_err(|_| fail("doesn't answer"))?;
        let listed = agent.list_identities().and_then(|()| agent.identities());
        let keys = listed.map_err(|_| fail("doesn't say which keys it has"))?;
        if keys.is_empty() {
            return Err(fail("has no key"));
        }
        for key in keys {
            super::agent::signs(socket, key.blob(), self.guard.check()?.min(AGENT))
                .map_err(|_| fail("lists its keys, but doesn't sign"))?;
            offered.push(format!("the agent's key {}", describe(key.blob())));
            let user = self.url.user();
            let result = drive(&mut live.session, &mut live.wire, &self.guard, |_| agent.userauth(user, &key));
            match result {
                Err(Broken::Said(error)) if is_one_of(&error, &[code::AGENT_PROTOCOL, code::ALGO_UNSUPPORTED]) => {}
                other => {
                    if is_accepted(other)? {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }
}

impl Live {
    /// Says goodbye as far as that takes no time.
    pub(super) fn say_goodbye(mut self) {
        self.wire.pump();
        let _ = self.session.disconnect(Some(DisconnectCode::ByApplication), "", None);
        self.wire.pump();
    }
}

/// Why no handshake came about: by what the host said, if that tells more than libssh2.
fn no_handshake(session: &Session, wire: &Wire, broken: Broken) -> Failure {
    if let Some(Err(problem)) = Offer::read(&wire.greeting).map(|offer| offer.judge(session)) {
        return problem.into();
    }
    match said_instead(&wire.greeting) {
        // OpenSSH's words (`MaxStartups`, `PerSourcePenalties`) before it closes.
        Some(said) if said.starts_with("Exceeded MaxStartups") || said.starts_with("Not allowed at this time") => {
            Problem::Answer { answer: Answer::Busy, said, retry_after: Some(BUSY) }.into()
        }
        Some(said) => Failure { problem: Problem::NotSsh, source: Some(format!("it says `{said}`")) },
        None => broken.into_failure(),
    }
}

/// Whether libssh2 waits for the host.
pub(super) fn is_blocked(error: &ssh2::Error) -> bool {
    is_one_of(error, &[code::EAGAIN])
}

fn is_one_of(error: &ssh2::Error, codes: &[i32]) -> bool {
    codes.iter().any(|code| error.code() == ErrorCode::Session(*code))
}

/// Whether the host accepted a key; anything but yes and no is an error.
fn is_accepted(result: Result<(), Broken>) -> Result<bool, Failure> {
    match result {
        Ok(()) => Ok(true),
        Err(Broken::Said(error)) if is_one_of(&error, &[code::AUTHENTICATION_FAILED, code::PUBLICKEY_UNVERIFIED]) => {
            Ok(false)
        }
        Err(broken) => Err(broken.into_failure()),
    }
}

fn network(error: std::io::Error) -> Failure {
    use std::io::ErrorKind;
    let problem = match error.kind() {
        ErrorKind::ConnectionRefused => Problem::Refused,
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => Problem::Cut,
        _ => Problem::Network,
    };
    let source = (problem == Problem::Network).then(|| error.to_string());
    Failure { problem, source }
}
