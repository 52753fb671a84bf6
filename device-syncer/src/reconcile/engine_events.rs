//! Makes a pass begin when something happens to our containers: soon, once for all events that come together, and not
//! oftener than each second, whatever a container does.

use std::time::Duration;

use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::Instant;

use crate::runtimes::{DeviceRuntimes, Watch};

/// How long a pass waits for more events after the first one: a container ends before it is gone.
const SETTLE: Duration = Duration::from_millis(200);

/// The shortest time between two passes that events begin.
const BETWEEN: Duration = Duration::from_secs(1);

/// Listens for as long as it lives.
#[derive(Debug)]
pub struct EngineEvents {
    events: Receiver<()>,
    /// The earliest moment of the next pass: [`BETWEEN`] after the one before.
    rest: Instant,
    /// When the pass for the events that came is due; `None` where none came.
    due: Option<Instant>,
    _watch: Option<Watch>,
}

impl EngineEvents {
    /// Listens to the engine of these runtimes, if it can be listened to.
    pub fn listen(runtimes: &DeviceRuntimes) -> Self {
        let (heard, events) = channel(1);
        // A full channel holds an event already.
        let watch = runtimes.watch(move || heard.try_send(()).unwrap_or_default());
        Self { events, rest: Instant::now(), due: None, _watch: watch }
    }

    /// Returns when a pass is due because of an event; never where the engine sends none. May be dropped and asked
    /// again.
    pub async fn next(&mut self) {
        let due = match self.due {
            Some(due) => due,
            None => {
                if self.events.recv().await.is_none() {
                    std::future::pending::<()>().await;
                }
                *self.due.insert(self.rest.max(Instant::now() + SETTLE))
            }
        };
        tokio::time::sleep_until(due).await;
        // The same pass sees what came meanwhile.
        while self.events.try_recv().is_ok() {}
        (self.due, self.rest) = (None, Instant::now() + BETWEEN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_flood_of_events_is_a_look_each_second_and_the_first_comes_soon() {
        let (heard, events) = channel(1);
        let mut engine = EngineEvents { events, rest: Instant::now(), due: None, _watch: None };
        let began = Instant::now();
        let flood = tokio::spawn(async move {
            while began.elapsed() < Duration::from_millis(2500) {
                let _ = heard.try_send(());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let mut looks = Vec::new();
        while began.elapsed() < Duration::from_millis(2500) {
            // What is asked anew in between loses nothing.
            if tokio::time::timeout(Duration::from_millis(50), engine.next()).await.is_ok() {
                looks.push(began.elapsed());
            }
        }
        flood.await.unwrap();
        assert!(looks[0] < Duration::from_secs(1), "{looks:?}");
        assert!(looks.windows(2).all(|two| two[1] - two[0] >= Duration::from_millis(990)), "{looks:?}");
        assert!((1..=3).contains(&looks.len()), "{looks:?}");
    }

    #[tokio::test]
    async fn where_nothing_is_heard_no_look_is_asked_for() {
        let (heard, events) = channel(1);
        drop(heard);
        let mut engine = EngineEvents { events, rest: Instant::now(), due: None, _watch: None };
        assert!(tokio::time::timeout(Duration::from_millis(300), engine.next()).await.is_err());
    }
}
