//! The same work on many devices, on as many threads as there are cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// How many threads compute at the same time here.
pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// `work` on each item; the results have the order of the items.
pub(crate) fn map<T: Send, R: Send>(items: Vec<T>, threads: usize, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    if threads < 2 || items.len() < 2 {
        return items.into_iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let slots: Vec<_> = items.into_iter().map(|item| Mutex::new((Some(item), None))).collect();
    thread::scope(|scope| {
        for _ in 0..threads.min(slots.len()) {
            scope.spawn(|| {
                while let Some(slot) = slots.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut slot = slot.lock().expect("no one else holds it");
                    slot.1 = slot.0.take().map(&work);
                }
            });
        }
    });
    slots.into_iter().filter_map(|slot| slot.into_inner().expect("all threads are done").1).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_keep_the_order_of_the_items() {
        for threads in [1, 2, 7] {
            let doubled = super::map((0..100).collect(), threads, |number: u32| number * 2);
            assert_eq!(doubled, (0..100).map(|number| number * 2).collect::<Vec<_>>());
        }
    }
}
