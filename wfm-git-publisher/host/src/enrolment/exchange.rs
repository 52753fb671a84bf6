//! What was begun and not revealed yet: in memory, for a minute, and no more of it than may be.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use repo_model::Digest;
use repo_model::enrolment::{Kind, Nonce, Start, Started};

use super::pace::{Pace, Paces};
use crate::accounting::Network;

/// How long a device has to reveal.
pub(super) const REVEAL: Duration = Duration::from_secs(60);

/// The most of each kind that are begun at the same time.
const MAX_BEGUN: usize = 1024;

/// How often anybody may begin: it bounds how often somebody in between may try for a code that is on a display.
const BEGINS: Pace = Pace { per_second: 2, burst: 60 };

/// How often one network may begin: half of all.
const BEGINS_OF_NETWORK: Pace = Pace { per_second: 1, burst: 30 };

/// How often devices with a token may begin, and known ones, of all networks: nobody can try for a code with them.
const BEGINS_WITHOUT_CODE: Pace = Pace { per_second: 50, burst: 200 };

/// How often one network may ask for anything here: a hall behind one router.
const ASKS_OF_NETWORK: Pace = Pace { per_second: 5, burst: 120 };

/// The same of requests with a token, and of known devices: a whole batch, or a whole site after its host was restored, behind
/// one router.
const ASKS_WITHOUT_CODE: Pace = Pace { per_second: 50, burst: 400 };

/// The most networks that are remembered.
const MAX_NETWORKS: usize = 4096;

/// What the host offers, as it stands in the home.
#[derive(Debug, Clone)]
pub(super) struct Offer {
    /// The exact text.
    pub(super) text: Arc<str>,
    pub(super) roster: Digest,
}

impl Offer {
    /// A known device needs none: it has its own roster, and its own address of the host.
    pub(super) fn nothing() -> Self {
        Self { text: "".into(), roster: Digest::of(b"") }
    }
}

/// An exchange between its two first messages.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) start: Start,
    pub(super) nonce: Nonce,
    pub(super) offer: Offer,
    until: Instant,
}

/// All of them, and how often somebody asked.
#[derive(Debug)]
pub(super) struct Exchanges {
    begun: HashMap<String, Begun>,
    begins: Paces<()>,
    begins_of: Paces<Network>,
    asks_of: Paces<Network>,
    with_token: WithoutCode,
    known: WithoutCode,
}

/// How often devices asked that come without a code, by what else lets them in.
#[derive(Debug)]
struct WithoutCode {
    begins: Paces<()>,
    asks_of: Paces<Network>,
}

impl Default for WithoutCode {
    fn default() -> Self {
        Self { begins: Paces::new(BEGINS_WITHOUT_CODE, 1), asks_of: Paces::new(ASKS_WITHOUT_CODE, MAX_NETWORKS) }
    }
}

impl Default for Exchanges {
    fn default() -> Self {
        Self {
            begun: HashMap::new(),
            begins: Paces::new(BEGINS, 1),
            begins_of: Paces::new(BEGINS_OF_NETWORK, MAX_NETWORKS),
            asks_of: Paces::new(ASKS_OF_NETWORK, MAX_NETWORKS),
            with_token: WithoutCode::default(),
            known: WithoutCode::default(),
        }
    }
}

impl Exchanges {
    /// Whether somebody from there may ask for anything of that kind; else after which time. What is neither is a stranger's.
    pub(super) fn ask(&mut self, kind: Kind, from: IpAddr, now: Instant) -> Result<(), Duration> {
        match kind {
            Kind::Code => self.asks_of.take(from.into(), now),
            Kind::Token => self.with_token.asks_of.take(from.into(), now),
            Kind::Known => self.known.asks_of.take(from.into(), now),
        }
    }

    /// Of which kind a request is that was begun.
    pub(super) fn kind(&self, request: &str) -> Option<Kind> {
        self.begun.get(request).map(|begun| begun.start.kind)
    }

    /// Begins one, with 32 random bytes for the nonce and 16 for its name; else says after which time it may be.
    pub(super) fn begin(
        &mut self,
        start: Start,
        offer: Offer,
        from: IpAddr,
        (nonce, name): ([u8; 32], [u8; 16]),
        now: Instant,
    ) -> Result<Started, Duration> {
        self.begun.retain(|_, begun| begun.until > now);
        if self.begun.values().filter(|begun| begun.start.kind == start.kind).count() >= MAX_BEGUN {
            return Err(REVEAL);
        }
        match start.kind {
            Kind::Code => {
                // A network that comes too often uses up nothing of the others'.
                self.begins_of.take(from.into(), now)?;
                self.begins.take((), now)?;
            }
            Kind::Token => self.with_token.begins.take((), now)?,
            Kind::Known => self.known.begins.take((), now)?,
        }
        let nonce = Nonce::new(nonce);
        let request: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
        let started = Started {
            request: request.clone(),
            nonce,
            offer: offer.text.to_string(),
            reveal_seconds: REVEAL.as_secs(),
        };
        self.begun.insert(request, Begun { start, nonce, offer, until: now + REVEAL });
        Ok(started)
    }

    /// Takes one out, whatever comes of it: it is revealed once.
    pub(super) fn take(&mut self, request: &str, now: Instant) -> Option<Begun> {
        self.begun.remove(request).filter(|begun| begun.until > now)
    }
}

#[cfg(test)]
mod tests {
    use repo_model::enrolment::Kind;

    use super::*;

    fn start() -> Start {
        Start { layout: 1, kind: Kind::Code, commitment: Digest::of(b"") }
    }

    fn begin(exchanges: &mut Exchanges, from: &str, name: u32, now: Instant) -> Result<Started, Duration> {
        let offer = Offer { text: "{}".into(), roster: Digest::of(b"") };
        let mut random = [0; 16];
        random[..4].copy_from_slice(&name.to_be_bytes());
        exchanges.begin(start(), offer, from.parse().unwrap(), ([0; 32], random), now)
    }

    #[test]
    fn a_flood_from_one_network_leaves_half_of_the_starts_to_others_and_a_flood_from_all_stays_bounded() {
        let (mut exchanges, now) = (Exchanges::default(), Instant::now());
        let of_one = (0..100).filter(|name| begin(&mut exchanges, "2001:db8::1", *name, now).is_ok()).count();
        assert_eq!(of_one, 30);
        let of_all = (0..1000u32).filter(|name| {
            begin(&mut exchanges, &format!("10.0.{}.{}", name / 256, name % 256), 1000 + name, now).is_ok()
        });
        assert_eq!(of_all.count(), 30);
        assert!(begin(&mut exchanges, "192.0.2.1", 5000, now).unwrap_err() <= Duration::from_secs(1));
        begin(&mut exchanges, "192.0.2.1", 5000, now + Duration::from_secs(1)).unwrap();
        // An hour of a full flood: two a second.
        let begun = (0..7200u32).filter(|step| {
            let now = now + Duration::from_millis(500 * u64::from(*step));
            (0..3).any(|more| {
                let (name, from) = (10_000 + 3 * step + more, format!("10.1.{}.{}", step % 256, more));
                begin(&mut exchanges, &from, name, now).is_ok()
            })
        });
        assert!(begun.count() <= 7_200);
        assert!(exchanges.begun.len() <= MAX_BEGUN);
    }

    #[test]
    fn a_flood_of_one_kind_takes_nothing_of_those_that_come_by_another() {
        let (mut exchanges, now) = (Exchanges::default(), Instant::now());
        let from: IpAddr = "192.0.2.1".parse().unwrap();
        let offer = || Offer { text: "{}".into(), roster: Digest::of(b"") };
        let mut try_begin = |kind, name: u32, now| {
            let mut random = [0; 16];
            random[..4].copy_from_slice(&name.to_be_bytes());
            let start = Start { layout: 1, kind, commitment: Digest::of(b"") };
            exchanges.ask(kind, from, now)?;
            exchanges.begin(start, offer(), from, ([0; 32], random), now)
        };
        let codes = (0..10_000).filter(|name| try_begin(Kind::Code, *name, now).is_ok()).count();
        assert_eq!(codes, 30);
        let tokens = (0..10_000).filter(|name| try_begin(Kind::Token, 10_000 + name, now).is_ok()).count();
        assert_eq!(tokens, 200);
        let known = (0..10_000).filter(|name| try_begin(Kind::Known, 20_000 + name, now).is_ok()).count();
        assert_eq!(known, 200);
        // Each goes on at its own pace, and is bounded.
        let later = now + Duration::from_secs(1);
        assert!((0..50).all(|name| try_begin(Kind::Token, 50_000 + name, later).is_ok()));
        try_begin(Kind::Token, 60_000, later).unwrap_err();
        try_begin(Kind::Code, 70_000, later).unwrap();
        let all = (0..2_900u32).filter(|step| {
            try_begin(Kind::Token, 100_000 + step, later + Duration::from_millis(20 * u64::from(*step))).is_ok()
        });
        assert!(all.count() <= MAX_BEGUN);
    }

    #[test]
    fn what_was_begun_is_revealed_once_and_within_a_minute() {
        let (mut exchanges, now) = (Exchanges::default(), Instant::now());
        let one = begin(&mut exchanges, "192.0.2.1", 1, now).unwrap().request;
        let two = begin(&mut exchanges, "192.0.2.1", 2, now).unwrap().request;
        assert!(exchanges.take(&one, now).is_some());
        assert!(exchanges.take(&one, now).is_none());
        assert!(exchanges.take(&two, now + REVEAL).is_none());
    }
}
