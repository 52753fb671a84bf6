//! How far a long command is, on standard error: on a terminal by one line that is written anew, elsewhere by a line now and then.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::terminal;

/// How long a command works before a terminal is told, and how often the line there is written anew.
const QUIET: Duration = Duration::from_millis(500);
const ANEW: Duration = Duration::from_millis(100);

/// The same where each line stays.
const APART: Duration = Duration::from_secs(2);

/// How many characters a line has where a terminal doesn't say.
const WIDTH: usize = 80;

/// Tells how far a command is for as long as this is kept; nothing else may be printed meanwhile.
#[derive(Debug)]
pub(super) struct Progress {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    over: Condvar,
}

#[derive(Debug)]
struct State {
    /// What is done, as `publishing`; without a count it is all that is told.
    work: &'static str,
    count: Option<Count>,
    is_over: bool,
}

/// How many are done of how many, and what they are.
#[derive(Debug)]
struct Count {
    done: usize,
    all: usize,
    things: &'static str,
}

/// Whether nobody is told anything.
static SILENT: AtomicBool = AtomicBool::new(false);

/// Tells nothing from now on: what a host says comes to whoever asked once it is over.
pub(super) fn silence() {
    SILENT.store(true, Ordering::Relaxed);
}

impl Progress {
    /// Begins with work that isn't counted.
    pub(super) fn start(work: &'static str) -> Self {
        let state = Mutex::new(State { work, count: None, is_over: false });
        let shared = Arc::new(Shared { state, over: Condvar::new() });
        let told = Arc::clone(&shared);
        // Without a thread to spare nobody is told either.
        let spawn = || thread::Builder::new().spawn(move || told.tell()).ok();
        let thread = (!SILENT.load(Ordering::Relaxed)).then(spawn).flatten();
        Self { shared, thread }
    }

    /// Goes on with other work that isn't counted.
    pub(super) fn at(&self, work: &'static str) {
        let mut state = self.shared.state();
        (state.work, state.count) = (work, None);
    }

    /// Goes on with work of which so many of all things are done.
    pub(super) fn show(&self, work: &'static str, things: &'static str, done: usize, all: usize) {
        *self.shared.state() = State { work, count: Some(Count { done, all, things }), is_over: false };
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.shared.state().is_over = true;
        self.shared.over.notify_all();
        self.thread.take().map(JoinHandle::join);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The line to be told once it is time; `None` if the work is over before.
    fn line(&self, wait: Duration) -> Option<String> {
        let waited = self.over.wait_timeout_while(self.state(), wait, |state| !state.is_over);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (!state.is_over).then(|| state.to_string())
    }

    fn tell(&self) {
        let is_terminal = io::stderr().is_terminal();
        let (mut wait, again) = if is_terminal { (QUIET, ANEW) } else { (APART, APART) };
        let mut told = String::new();
        while let Some(line) = self.line(wait) {
            wait = again;
            match is_terminal {
                true => told = rewrite(&told, &line),
                false if line == told => {}
                false => {
                    write(&format!("{line}\n"));
                    told = line;
                }
            }
        }
        if is_terminal && !told.is_empty() {
            rewrite(&told, "");
            write("\r");
        }
    }
}

/// Writes a line of a terminal over another one, without codes that not every terminal knows; what stands there now.
fn rewrite(before: &str, line: &str) -> String {
    let room = terminal::width(io::stderr()).map_or(WIDTH, |width| width.get().into()).saturating_sub(1);
    let line: String = line.chars().take(room).collect();
    write(&format!("\r{line:0$}", before.chars().count()));
    line
}

fn write(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.work)?;
        self.count.as_ref().map_or(Ok(()), |Count { done, all, things }| {
            write!(f, " {} of {} {things}", thousands(*done), thousands(*all))
        })
    }
}

/// A number with a comma before each three digits.
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let comma = |at: usize| at > 0 && (digits.len() - at).is_multiple_of(3);
    digits.chars().enumerate().flat_map(|(at, digit)| comma(at).then_some(',').into_iter().chain([digit])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_read_at_a_glance() {
        let all = [0, 999, 1000, 12_345, 1_234_567].map(thousands);
        assert_eq!(all, ["0", "999", "1,000", "12,345", "1,234,567"]);
    }
}
