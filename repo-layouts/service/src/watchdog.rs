//! A watchdog in a thread of the program that it watches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::MEALS;

/// Ends the program when it isn't fed; gone when dropped.
#[derive(Debug)]
pub(crate) struct Watchdog {
    meals: Arc<AtomicU64>,
}

impl Watchdog {
    /// It `bites` when it isn't fed for so long. It goes by how often it woke up hungry: a program that was stopped or slept with the
    /// machine isn't one that hangs.
    pub(crate) fn begin(patience: Duration, bites: impl Fn() + Send + 'static) -> Self {
        let meals = Arc::new(AtomicU64::new(0));
        let bowl = Arc::downgrade(&meals);
        thread::spawn(move || {
            let (mut eaten, mut hungry) = (0, 0);
            while let Some(meals) = bowl.upgrade().map(|meals| meals.load(Ordering::Relaxed)) {
                (eaten, hungry) = (meals, if meals == eaten { hungry + 1 } else { 0 });
                if hungry > MEALS {
                    tracing::error!("no sign of life for {} s: ended by its watchdog", patience.as_secs());
                    return bites();
                }
                thread::sleep(patience / MEALS);
            }
        });
        Self { meals }
    }

    pub(crate) fn feed(&self) {
        self.meals.fetch_add(1, Ordering::Relaxed);
    }
}
