//! How often what isn't a change of state is told anew: each word of `status` stays for ever.

use std::time::Instant;

use crate::decision::failure::STEADY;

/// So many changes may come at once.
const BURST: u32 = 10;

/// A token bucket: `BURST` changes at once, and from then on one in each [`STEADY`]. Lives as long as the process.
#[derive(Debug, Clone, Copy, Default)]
pub struct RateLimit {
    /// When all of them may come at once again.
    full: Option<Instant>,
}

impl RateLimit {
    /// Whether a change may be told now; then it counts.
    pub fn lets(&mut self, now: Instant) -> bool {
        let full = self.full.map_or(now, |full| full.max(now)) + STEADY;
        let lets = full <= now + STEADY * BURST;
        if lets {
            self.full = Some(full);
        }
        lets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_come_at_once_and_from_then_on_one_in_ten_minutes() {
        let (mut limit, begin) = (RateLimit::default(), Instant::now());
        let told = |limit: &mut RateLimit, seconds: std::ops::Range<u32>| {
            seconds.filter(|second| limit.lets(begin + std::time::Duration::from_secs((*second).into()))).count()
        };
        assert_eq!(told(&mut limit, 0..599), 10);
        assert_eq!(told(&mut limit, 599..601), 1);
        assert_eq!(told(&mut limit, 601..86_400), 142, "however often it would be told");
        assert_eq!(told(&mut limit, 200_000..200_599), 10, "after a rest");
    }
}
