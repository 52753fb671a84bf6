//! One command on a session: its bytes, its end, and its closing.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ssh2::Channel;

use super::Problem;
use super::pipe::{End, Pipe, ROOM};
use super::session::is_blocked;
use super::wire::Wire;

/// The most bytes that a command may say on its standard error.
const LONGEST_TALK: u64 = 1 << 20;

/// How long the host may take to say how a command ended after its output has ended.
const LAST_WORD: Duration = Duration::from_secs(2);

/// A command that the host runs.
pub(super) struct Open {
    channel: Channel,
    pub(super) pipe: Arc<Pipe>,
    /// How many bytes of its standard error have come.
    talk: u64,
    is_eof_sent: bool,
    /// When its output ended; `None` before.
    silent_since: Option<Instant>,
    closing: bool,
}

/// What one round came to.
pub(super) enum Served {
    /// Still open; so many bytes came, and whether some went.
    Moved { read: u64, written: bool },
    /// Both sides have closed it.
    Closed,
}

impl Open {
    pub(super) fn new(channel: Channel, pipe: Arc<Pipe>) -> Self {
        Self { channel, pipe, talk: 0, is_eof_sent: false, silent_since: None, closing: false }
    }

    /// Nobody here uses it any more, and the host hasn't closed it.
    pub(super) fn is_left(&self) -> bool {
        self.closing || self.pipe.lock().abandoned
    }

    /// Carries what can be carried. An error is one of the session.
    pub(super) fn serve(&mut self, wire: &mut Wire) -> io::Result<Served> {
        let mut read = 0;
        let mut written = false;
        if !self.closing {
            read = self.read()?;
            written = self.write(wire)?;
            self.notice_end()?;
        }
        if self.closing {
            return match self.channel.close() {
                Ok(()) => Ok(Served::Closed),
                Err(error) if is_blocked(&error) => Ok(Served::Moved { read, written }),
                Err(error) => Err(error.into()),
            };
        }
        Ok(Served::Moved { read, written })
    }

    /// Takes what came, as far as there is room for it.
    fn read(&mut self) -> io::Result<u64> {
        let mut buffer = [0; 32 << 10];
        let mut all = 0;
        loop {
            let room = ROOM.saturating_sub(self.pipe.lock().incoming.len()).min(buffer.len());
            if room == 0 {
                break;
            }
            match blocked(self.channel.read(&mut buffer[..room]))? {
                None | Some(0) => break,
                Some(count) => {
                    all += count as u64;
                    self.pipe.change(|state| state.incoming.extend(&buffer[..count]));
                }
            }
        }
        while let Some(count @ 1..) = blocked(self.channel.stderr().read(&mut buffer[..4096]))? {
            all += count as u64;
            self.talk += count as u64;
            self.pipe.lock().hear(&buffer[..count]);
            if self.talk > LONGEST_TALK {
                self.pipe.fail(Problem::TooLarge { limit: LONGEST_TALK }.into());
                self.closing = true;
                break;
            }
        }
        Ok(all)
    }

    /// Gives what is to be sent to libssh2, as far as the host takes it.
    fn write(&mut self, wire: &mut Wire) -> io::Result<bool> {
        let mut written = false;
        while wire.has_room() {
            let chunk: Vec<u8> = {
                let state = self.pipe.lock();
                state.outgoing.iter().take(32 << 10).copied().collect()
            };
            if chunk.is_empty() {
                break;
            }
            match self.channel.write(&chunk) {
                Ok(count) => {
                    written = true;
                    self.pipe.change(|state| drop(state.outgoing.drain(..count.min(chunk.len()))));
                    wire.pump();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if wire.ended => return Err(error),
                // The command has ended and takes nothing more; what it said is still read.
                Err(_) => self.pipe.change(|state| state.outgoing.clear()),
            }
        }
        let is_done = {
            let state = self.pipe.lock();
            state.is_written && state.outgoing.is_empty()
        };
        if is_done && !self.is_eof_sent {
            match self.channel.send_eof() {
                Err(error) if is_blocked(&error) => {}
                _ => self.is_eof_sent = true,
            }
        }
        Ok(written)
    }

    /// Notes the end of the command, or that nobody here waits for it.
    fn notice_end(&mut self) -> io::Result<()> {
        if self.silent_since.is_none() && self.channel.eof() {
            self.silent_since = Some(Instant::now());
            self.pipe.change(|state| state.is_read = true);
        }
        if let Some(since) = self.silent_since {
            match self.channel.wait_close() {
                Err(error) if is_blocked(&error) => {
                    if since.elapsed() > LAST_WORD {
                        self.finish(None);
                    }
                }
                Err(error) => return Err(error.into()),
                Ok(()) => {
                    let by_signal = self.channel.exit_signal().is_ok_and(|signal| signal.exit_signal.is_some());
                    let status = self.channel.exit_status().ok().filter(|_| !by_signal);
                    self.finish(status);
                }
            }
        }
        let is_over = {
            let state = self.pipe.lock();
            (state.abandoned && state.outgoing.is_empty()) || matches!(state.end, Some(End::Failed(_)))
        };
        self.closing |= is_over;
        Ok(())
    }

    fn finish(&mut self, status: Option<i32>) {
        self.pipe.change(|state| state.finish(End::Exit(status)));
        self.closing = true;
    }
}

/// What came; `None` where nothing does now.
fn blocked(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        result => result.map(Some),
    }
}
