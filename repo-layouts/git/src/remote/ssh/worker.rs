//! The thread that has the session: it runs the host's commands, carries their bytes, and keeps the session alive.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use repo_http::Phase;
use ssh2::{Channel, Session};

use super::channel::{Open, Served};
use super::mailbox::{Job, Shared};
use super::pipe::{Failure, Pipe};
use super::session::{BEFORE_AUTH, Broken, Guard, Live, Opening, UNNOTICED, dead, drive, is_blocked};
use super::{Problem, Settings};

/// What is said once about a channel's size: how much of its data may be on its way.
const WINDOW: u32 = 1 << 20;

/// The most bytes of one packet on a channel.
const PACKET: u32 = 32 << 10;

/// How long to wait where nothing has to be done.
const IDLE: Duration = Duration::from_secs(3600);

/// After so much silence a session has to show that it is alive before it is trusted again.
const SILENCE: Duration = Duration::from_secs(8);

/// So much more than it carried may have come over a session; then it is replaced when nobody uses it, and ended in any case.
const OVERHEAD: (u64, u64) = (4 << 20, 16 << 20);

/// The shortest time between keepalives; libssh2 sends none within 2 s of another.
const OFTEN: Duration = Duration::from_secs(3);

/// What libssh2 keeps of each answer to a keepalive, in bytes.
const KEEPALIVE_COST: u64 = 256;

/// Channels that the host doesn't close although we did.
const UNCLOSED: usize = 8;

/// The longest wait after a refused key that is refused for the first time, and the longest of all.
const REFUSED: (Duration, Duration) = (Duration::from_secs(120), Duration::from_secs(900));

/// Runs until nobody will ask any more.
pub(super) fn run(shared: &Arc<Shared>) {
    let mut worker = Worker { shared, current: None, interrupts: 0, algorithm: None, refused: 0 };
    while worker.turn() {}
}

struct Worker<'a> {
    shared: &'a Shared,
    current: Option<Current>,
    interrupts: u64,
    /// The kind of host key that was right last time.
    algorithm: Option<String>,
    /// How often in a row the host refused all keys.
    refused: u32,
}

/// The session that is kept, and its channels.
struct Current {
    /// First, so that the connection ends before libssh2 frees what stands on it, and doesn't wait for it.
    live: Live,
    channels: Vec<Open>,
    spare: Spare,
    /// How many bytes came over all its channels.
    carried: u64,
    keepalives: u64,
    /// When a sign of life was asked for that hasn't come.
    asked: Option<Instant>,
    /// It was silent for long and is used again: it must answer soon.
    is_doubtful: bool,
}

/// A channel for the next command, opened while there is time. Reading from it also makes libssh2 hear and answer what
/// the host asks of the session.
enum Spare {
    None,
    Here(Channel),
    /// The host allows only one at a time.
    Refused,
}

impl Worker<'_> {
    /// One round: hear what is wanted, carry what can be carried, wait. Tells whether to go on.
    fn turn(&mut self) -> bool {
        let (jobs, stop, interrupts) = {
            let mut mail = self.shared.mail();
            (std::mem::take(&mut mail.jobs), mail.stop, mail.interrupts)
        };
        if stop {
            if let Some(current) = self.current.take() {
                current.hang_up();
            }
            return false;
        }
        if interrupts != self.interrupts {
            self.interrupts = interrupts;
            self.drop_session(Failure { problem: Problem::Cut, source: Some("it was interrupted".to_owned()) });
        }
        for job in jobs {
            self.start(&job);
        }
        let served = match &mut self.current {
            None => Ok(IDLE),
            Some(current) => current.serve().and_then(|()| current.look_after(&self.shared.settings)),
        };
        match served {
            Err(failure) => self.drop_session(failure),
            Ok(at_most) => self.wait(at_most),
        }
        true
    }

    /// Waits for the host, or until something is wanted, or for so long.
    fn wait(&mut self, at_most: Duration) {
        if self.current.as_ref().is_some_and(Current::is_worn) {
            self.drop_session(Problem::Cut.into());
        }
        // Whoever rang while a session or a channel was opened was heard there, and not listened to.
        let is_wanted = {
            let mail = self.shared.mail();
            mail.stop || !mail.jobs.is_empty() || mail.interrupts != self.interrupts
        };
        let at_most = if is_wanted { Duration::ZERO } else { at_most };
        match &self.current {
            Some(current) => current.live.wire.wait(&self.shared.wake, at_most),
            None => self.shared.wake.wait(at_most),
        }
    }

    fn drop_session(&mut self, failure: Failure) {
        if let Some(mut current) = self.current.take() {
            for open in current.channels.drain(..) {
                open.pipe.fail(failure.clone());
            }
            current.hang_up();
        }
    }

    /// Has a command run; on a session that turns out to be dead, once more on a new one.
    fn start(&mut self, job: &Job) {
        let was_kept = self.current.is_some();
        let mut outcome = self.try_start(job);
        if was_kept && matches!(&outcome, Err(failure) if failure.problem == Problem::Cut) && self.is_wanted(&job.pipe)
        {
            self.drop_session(dead());
            outcome = self.try_start(job);
        }
        if let Err(failure) = outcome {
            job.pipe.fail(failure);
        }
    }

    /// Whether anybody still waits for this conversation.
    fn is_wanted(&self, pipe: &Pipe) -> bool {
        let state = pipe.lock();
        let is_over = state.abandoned || state.end.is_some();
        drop(state);
        let mail = self.shared.mail();
        !is_over && !mail.stop && mail.interrupts == self.interrupts
    }

    fn try_start(&mut self, job: &Job) -> Result<(), Failure> {
        let is_fresh = self.current.is_none();
        if is_fresh {
            self.current = Some(self.open(job)?);
        }
        let Some(mut current) = self.current.take() else { return Err(dead()) };
        let limit = self.shared.settings.timeouts.answer;
        let (slow, now) = (Problem::Slow { phase: Phase::Answer, limit }, Instant::now());
        let is_over = || !self.is_wanted(&job.pipe);
        let proof = (!is_fresh).then_some(now);
        let guard =
            Guard { wake: &self.shared.wake, until: now + limit, slow, proof, received: u64::MAX, is_over: &is_over };
        let opened = current.open_channel(job, &guard);
        self.current = Some(current);
        match opened {
            Ok(()) => {
                job.pipe.change(|state| state.opened = true);
                Ok(())
            }
            Err(failure) => {
                // What the session was about to do for it can't be taken back.
                self.drop_session(Problem::Cut.into());
                Err(failure)
            }
        }
    }

    fn open(&mut self, job: &Job) -> Result<Current, Failure> {
        let shared = self.shared;
        let url = &shared.url;
        let known = shared.expected.of(&url.known_hosts_name())?;
        let limit = shared.settings.timeouts.connect;
        let slow = Problem::Slow { phase: Phase::Connect, limit };
        let is_over = || !self.is_wanted(&job.pipe);
        let (until, received) = (Instant::now() + limit, BEFORE_AUTH);
        let guard = Guard { wake: &shared.wake, until, slow, proof: None, received, is_over: &is_over };
        let opening = Opening { url, settings: &shared.settings, known: &known, guard };
        let mut algorithm = self.algorithm.clone();
        let opened = opening.open(&mut algorithm);
        match opened {
            Ok(live) => {
                (self.algorithm, self.refused) = (algorithm, 0);
                shared.sessions.fetch_add(1, Ordering::Relaxed);
                Ok(Current::new(live))
            }
            Err(mut failure) => {
                // The next time any kind may be right.
                self.algorithm = None;
                if let Problem::KeyRefused { retry_after, .. } = &mut failure.problem {
                    *retry_after = after_refusal(self.refused, RandomState::new().hash_one(self.refused));
                    self.refused += 1;
                }
                Err(failure)
            }
        }
    }
}

/// How long the host is left alone once it refused all keys so many times before: 1 to 2 min, then twice as long each time,
/// at most 15 min. Spread over the upper half, so that the devices of a site, which share an address, don't come together.
fn after_refusal(before: u32, random: u64) -> Duration {
    let longest = REFUSED.0.saturating_mul(1 << before.min(3)).min(REFUSED.1);
    let half = longest / 2;
    half + half.mul_f64((random >> 32) as f64 / f64::from(u32::MAX))
}

impl Current {
    fn new(live: Live) -> Self {
        let (channels, spare, asked) = (Vec::new(), Spare::None, None);
        Self { live, channels, spare, carried: 0, keepalives: 0, asked, is_doubtful: false }
    }

    fn open_channel(&mut self, job: &Job, guard: &Guard<'_>) -> Result<(), Failure> {
        let spare = match std::mem::replace(&mut self.spare, Spare::None) {
            Spare::Here(channel) if !channel.eof() => self.run(channel, job, guard)?,
            _ => None,
        };
        let channel = match spare {
            Some(channel) => Some(channel),
            None => {
                let Live { session, wire } = &mut self.live;
                let channel = drive(session, wire, guard, new_channel).map_err(Broken::into_failure)?;
                self.run(channel, job, guard)?
            }
        };
        let channel = channel.ok_or(Problem::Protocol)?;
        self.channels.push(Open::new(channel, Arc::clone(&job.pipe)));
        Ok(())
    }

    /// Has the command run on a channel. `None`: the host doesn't want that.
    fn run(&mut self, mut channel: Channel, job: &Job, guard: &Guard<'_>) -> Result<Option<Channel>, Failure> {
        let Live { session, wire } = &mut self.live;
        if job.wants_v2 {
            // A refusal is normal (Debian's default): it is version 0 then.
            match drive(session, wire, guard, |_| channel.setenv("GIT_PROTOCOL", "version=2")) {
                Ok(()) | Err(Broken::Said(_)) => {}
                Err(broken) => return Err(broken.into_failure()),
            }
        }
        match drive(session, wire, guard, |_| channel.exec(&job.command)) {
            Ok(()) => Ok(Some(channel)),
            Err(Broken::Said(_)) => Ok(None),
            Err(broken) => Err(broken.into_failure()),
        }
    }

    /// Carries bytes in all directions until nothing more goes at once.
    fn serve(&mut self) -> Result<(), Failure> {
        let was_silent = self.live.wire.active.elapsed() > SILENCE && !self.live.wire.is_sending();
        let mut unread = None;
        loop {
            let mut moved = self.live.wire.pump();
            let (mut at, mut carried) = (0, 0);
            while at < self.channels.len() {
                let served = self.channels[at].serve(&mut self.live.wire).map_err(|error| cut(&error))?;
                match served {
                    Served::Closed => drop(self.channels.swap_remove(at)),
                    Served::Moved { read, written } => {
                        carried += read;
                        moved |= read > 0 || written;
                        // Whoever uses a session after a long silence wants to know soon whether it still is one.
                        self.is_doubtful |= written && was_silent;
                        at += 1;
                    }
                }
            }
            self.carried += carried;
            self.drain()?;
            moved |= self.live.wire.pump() || self.live.wire.is_worth_another_look(&mut unread);
            if self.received() > OVERHEAD.1 {
                return Err(Problem::TooLarge { limit: OVERHEAD.1 }.into());
            }
            if !moved {
                break;
            }
        }
        let unclosed = self.channels.iter().filter(|open| open.is_left()).count();
        if unclosed > UNCLOSED { Err(Problem::Protocol.into()) } else { Ok(()) }
    }

    /// Has libssh2 hear and answer what concerns no channel.
    fn drain(&mut self) -> Result<(), Failure> {
        if self.channels.is_empty() {
            match &mut self.spare {
                Spare::Refused => {}
                Spare::None => match new_channel(&mut self.live.session) {
                    Ok(channel) => self.spare = Spare::Here(channel),
                    Err(error) if is_blocked(&error) => {}
                    Err(_) => self.spare = Spare::Refused,
                },
                Spare::Here(channel) => match channel.read(&mut [0; 1]) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(cut(&error)),
                    // The host closed it, or says something unasked: the next command gets another.
                    Ok(_) => self.spare = Spare::Refused,
                },
            }
        }
        if self.live.wire.ended { Err(Problem::Cut.into()) } else { Ok(()) }
    }

    /// Bytes that came beside what channels carried, which is counted twice for what stands around it.
    fn received(&self) -> u64 {
        (self.live.wire.received + self.keepalives * KEEPALIVE_COST).saturating_sub(2 * self.carried)
    }

    /// It has done its duty, and nobody uses it.
    fn is_worn(&self) -> bool {
        self.channels.is_empty() && self.received() > OVERHEAD.0
    }

    /// Asks for signs of life, and ends a session without any. Returns how long nothing has to be done.
    fn look_after(&mut self, settings: &Settings) -> Result<Duration, Failure> {
        let wire = &self.live.wire;
        if self.asked.is_some_and(|asked| wire.heard >= asked) {
            (self.asked, self.is_doubtful) = (None, false);
        }
        if self.channels.iter().any(|open| open.pipe.lock().suspect) && wire.heard.elapsed() > UNNOTICED / 2 {
            return Err(dead());
        }
        let patience = if self.is_doubtful { UNNOTICED } else { settings.timeouts.stall };
        match self.asked {
            Some(asked) => patience.checked_sub(asked.elapsed()).ok_or_else(dead),
            None => match settings.keepalive.max(OFTEN).checked_sub(wire.active.elapsed()) {
                Some(left) if !self.is_doubtful => Ok(left.max(Duration::from_millis(1))),
                _ => self.ask(patience),
            },
        }
    }

    fn ask(&mut self, patience: Duration) -> Result<Duration, Failure> {
        self.live.session.set_keepalive(true, 1);
        let now = Instant::now();
        self.live.session.keepalive_send().map_err(|error| cut(&error.into()))?;
        self.asked = Some(now);
        self.keepalives += 1;
        // The answer may have come already: then nothing more would tell of it.
        Ok(if self.live.wire.pump() { Duration::ZERO } else { patience })
    }

    fn hang_up(self) {
        for open in &self.channels {
            open.pipe.fail(Problem::Cut.into());
        }
        self.live.say_goodbye();
    }
}

fn new_channel(session: &mut Session) -> Result<Channel, ssh2::Error> {
    session.channel_open("session", WINDOW, PACKET, None)
}

fn cut(error: &io::Error) -> Failure {
    Failure { problem: Problem::Cut, source: Some(error.to_string()) }
}
