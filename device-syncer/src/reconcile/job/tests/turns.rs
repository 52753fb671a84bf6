//! Two jobs at once, of which one goes on at each moment: it hands over where it calls a runtime, between two transactions.

use std::cell::Cell;
use std::sync::{Condvar, Mutex};
use std::thread;

thread_local! {
    /// Which of them this thread does, if it does any.
    static JOB: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Lets one job go on at a time, in an order that a test chooses.
#[derive(Debug, Default)]
pub(super) struct Turns {
    turn: Mutex<Turn>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Turn {
    /// Who goes on at the next calls, the last one first; the same one where it says nothing.
    order: Vec<usize>,
    at_work: Vec<usize>,
    whose: usize,
}

impl Turn {
    fn pass(&mut self) {
        let is_at_work = |job: &usize| self.at_work.contains(job);
        let chosen = self.order.pop().filter(is_at_work).or(Some(self.whose).filter(is_at_work));
        self.whose = chosen.or(self.at_work.first().copied()).unwrap_or_default();
    }
}

impl Turns {
    /// Jobs go on in this order at the calls from now on.
    pub(super) fn choose(&self, order: &[usize]) {
        self.turn.lock().unwrap().order = order.to_vec();
    }

    /// Runs jobs to their ends. Returns whether any of them acted.
    pub(super) fn run<W: Sync>(&self, works: &[W], job: impl Fn(&W) -> bool + Sync) -> bool {
        {
            let mut turn = self.turn.lock().unwrap();
            turn.at_work = (0..works.len()).collect();
            turn.pass();
        }
        let one = |(number, work)| {
            JOB.set(Some(number));
            let _end = End { turns: self, number };
            self.wait(number);
            job(work)
        };
        thread::scope(|scope| {
            let threads: Vec<_> = works.iter().enumerate().map(|work| scope.spawn(move || one(work))).collect();
            threads.into_iter().fold(false, |acted, thread| thread.join().unwrap() | acted)
        })
    }

    /// A job calls a runtime: it goes on when it is its turn again.
    pub(super) fn hand_over(&self) {
        if let Some(job) = JOB.get() {
            self.turn.lock().unwrap().pass();
            self.wait(job);
        }
    }

    fn wait(&self, job: usize) {
        self.changed.notify_all();
        drop(self.changed.wait_while(self.turn.lock().unwrap(), |turn| turn.whose != job).unwrap());
    }
}

/// Hands over for the last time when it is dropped, also by a panic.
struct End<'a> {
    turns: &'a Turns,
    number: usize,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        let mut turn = self.turns.turn.lock().unwrap();
        turn.at_work.retain(|one| *one != self.number);
        turn.pass();
        self.turns.changed.notify_all();
    }
}
