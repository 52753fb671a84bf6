//! `trust propose`: the next version of the roster, as a file.

use jiff::{SignedDuration, Timestamp};
use repo_git::SigningKey;
use repo_git::durable::{self, FileError};
use repo_git::sign::openssh::fingerprint;
use repo_model::roster::{Publisher, Roster, RosterError, Trust, roster_path};
use repo_model::{KeyText, json};

use super::LOCK_WAIT;
use super::changes::changes;
use super::error::TrustError;
use super::host::HostChanges;
use super::key::{among, named};
use super::proposal::{self, Proposal};
use crate::repos::{Control, Home, key_text};

/// How long a publisher's key counts where nobody says how long, which a stolen one would at most: a year, and time to miss the
/// reminders.
pub const LIFE: SignedDuration = SignedDuration::from_hours(400 * 24);

/// How long the key that a new one replaces goes on counting, unless it ends before.
const OVERLAP: SignedDuration = SignedDuration::from_hours(90 * 24);

/// The furthest end.
const MAX_LIFE: SignedDuration = SignedDuration::from_hours(3660 * 24);

/// What is to be another than in the newest roster. Keys are named by their text, by a file, or by their fingerprint.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Whether this home gets another key.
    pub new_publisher: bool,
    pub add_publishers: Vec<String>,
    pub drop_publishers: Vec<String>,
    /// When the new publishers' keys end; without a new one, when this home's ends.
    pub not_after: Option<NotAfter>,
    pub add_roots: Vec<String>,
    pub drop_roots: Vec<String>,
    /// How many roots sign the version after; absent: as many as now.
    pub threshold: Option<usize>,
    /// What devices are told of the host.
    pub host: HostChanges,
    /// Whether a proposal that is signed may be given up.
    pub anew: bool,
}

/// When a key ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAfter {
    Days(u16),
    At(Timestamp),
}

impl NotAfter {
    fn end(self, now: Timestamp) -> Result<Timestamp, TrustError> {
        let end = match self {
            Self::Days(days) => later(now, SignedDuration::from_hours(i64::from(days) * 24)),
            Self::At(end) => end,
        };
        let is_right = now < end && end <= later(now, MAX_LIFE);
        if is_right { Ok(end) } else { Err(TrustError::End(format!("{end:.0}"))) }
    }
}

fn later(now: Timestamp, time: SignedDuration) -> Timestamp {
    now.checked_add(time).unwrap_or(Timestamp::MAX)
}

/// The keys of this home.
struct Own {
    /// The publisher's, if it is here.
    now: Option<KeyText>,
    /// The one that replaces it, if this home gets another.
    next: Option<KeyText>,
}

/// Writes the next version into the home. One that is proposed already is replaced, unless somebody signed it.
pub fn propose(home: &Home, wanted: &Changes, now: Timestamp) -> Result<Proposal, TrustError> {
    home.check()?;
    let _lock = home.lock(LOCK_WAIT)?;
    let rosters = Control::known_rosters(home)?;
    let before = &rosters.newest.roster;
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    if let Ok(Some(proposed)) = Proposal::read(home, &rosters) {
        let signed = proposed.signed_by(before);
        let count = signed.before.len() + signed.own.len();
        if count > 0 && !wanted.anew {
            return Err(TrustError::Signed { path: proposed.path, count });
        }
    }
    let next_path = home.next_publisher_key();
    let kept = if next_path.exists() { key_text(SigningKey::load(&next_path)?.public()) } else { None };
    if kept.iter().any(|key| before.publishers.iter().any(|one| one.key == *key)) {
        return Err(TrustError::Unfinished { path: next_path, version: before.version });
    }
    let made = (wanted.new_publisher && kept.is_none()).then(SigningKey::generate);
    let next = kept.or_else(|| key_text(made.as_ref()?.public())).filter(|_| wanted.new_publisher);
    let present = SigningKey::load(&home.publisher_key()).ok();
    let own = Own { now: present.and_then(|key| key_text(key.public())), next };
    let after = next_version(before, wanted, &own, now)?;
    let bytes = json::to_bytes(&after);
    let path = proposal::file(home, &roster_path(after.version));
    Trust::pin(&path.display().to_string(), &bytes, after.fleet).map_err(TrustError::Roster)?;
    if let Some(key) = made {
        key.save(&next_path)?;
    }
    let dir = home.proposals();
    durable::create_dir_all(&dir, 0o700).map_err(FileError::write(&dir))?;
    // What was signed before is nothing that these bytes say.
    proposal::clear(home, before.version, |version| version == after.version)?;
    durable::replace_file(&path, &bytes, 0o644).map_err(FileError::write(&path))?;
    Proposal::read(home, &rosters)?.ok_or(TrustError::NoProposal { version: before.version })
}

/// What follows from the newest roster and what is wanted.
fn next_version(before: &Roster, wanted: &Changes, own: &Own, now: Timestamp) -> Result<Roster, TrustError> {
    let after = Roster {
        version: before.version + 1,
        fleet: before.fleet,
        issued: Some(now),
        threshold: wanted.threshold.unwrap_or(before.threshold),
        roots: roots(before, wanted)?,
        publishers: publishers(before, wanted, own, now)?,
        host: wanted.host.of(before.host.as_ref())?,
    };
    if after.threshold == 0 || after.threshold > after.roots.len() {
        let problem = format!("`threshold` is {}, and it has {} root keys", after.threshold, after.roots.len());
        let path = roster_path(after.version);
        return Err(TrustError::Roster(RosterError::Invalid { path, problem }));
    }
    if after.publishers.is_empty() {
        return Err(TrustError::NoPublisher);
    }
    if changes(before, &after).is_empty() {
        return Err(TrustError::NothingChanges { version: before.version });
    }
    Ok(after)
}

fn roots(before: &Roster, wanted: &Changes) -> Result<Vec<KeyText>, TrustError> {
    let version = before.version;
    let mut roots = before.roots.clone();
    for name in &wanted.drop_roots {
        let dropped = among(name, roots.iter(), "root", version)?;
        roots.retain(|root| *root != dropped);
    }
    for name in &wanted.add_roots {
        let key = named(name)?;
        if roots.contains(&key) {
            return Err(TrustError::Listed { role: "root", key: fingerprint(&key), version });
        }
        roots.push(key);
    }
    Ok(roots)
}

/// Keys that have ended go. None is without an end, and the one that this home's next replaces ends soon.
fn publishers(before: &Roster, wanted: &Changes, own: &Own, now: Timestamp) -> Result<Vec<Publisher>, TrustError> {
    let version = before.version;
    let end = wanted.not_after.map_or_else(|| Ok(later(now, LIFE)), |end| end.end(now))?;
    let added = wanted.add_publishers.iter().map(|name| named(name));
    let added = added.chain(own.next.clone().map(Ok)).collect::<Result<Vec<_>, _>>()?;
    let renewed = own.now.as_ref().filter(|_| wanted.not_after.is_some() && added.is_empty());
    let replaced = own.now.as_ref().filter(|_| own.next.is_some());
    let mut publishers = before.publishers.clone();
    for name in &wanted.drop_publishers {
        let dropped = among(name, publishers.iter().map(|publisher| &publisher.key), "publisher", version)?;
        publishers.retain(|publisher| publisher.key != dropped);
    }
    publishers.retain(|publisher| publisher.not_after.is_none_or(|end| now < end));
    for publisher in &mut publishers {
        let is = |key: Option<&KeyText>| key == Some(&publisher.key);
        publisher.not_after = match publisher.not_after {
            _ if is(renewed) => Some(end),
            until if is(replaced) => Some(until.unwrap_or(Timestamp::MAX).min(later(now, OVERLAP))),
            until => Some(until.unwrap_or_else(|| later(now, LIFE))),
        };
    }
    for key in added {
        if publishers.iter().any(|publisher| publisher.key == key) {
            return Err(TrustError::Listed { role: "publisher", key: fingerprint(&key), version });
        }
        publishers.push(Publisher { key, not_after: Some(end) });
    }
    Ok(publishers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn key(seed: u8) -> KeyText {
        SigningKey::from_seed(&[seed; 32]).public().to_string().parse().unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn before(ends: &[(u8, Option<&str>)]) -> Roster {
        let publisher = |(seed, end): &(u8, Option<&str>)| Publisher { key: key(*seed), not_after: end.map(at) };
        Roster {
            version: 1,
            fleet: "5d3f7d5e-7a3a-4c3a-9a57-1c1f6a3f9f10".parse().unwrap(),
            issued: None,
            threshold: 1,
            roots: vec![key(1)],
            publishers: ends.iter().map(publisher).collect(),
            host: None,
        }
    }

    fn ends(before: &Roster, wanted: &Changes, own: &Own) -> Vec<(KeyText, String)> {
        let after = next_version(before, wanted, own, at(NOW)).unwrap();
        assert!(after.issued == Some(at(NOW)) && after.version == 2);
        let end = |one: Publisher| (one.key, one.not_after.map_or_else(|| "-".to_owned(), |end| end.to_string()));
        after.publishers.into_iter().map(end).collect()
    }

    fn own(next: Option<u8>) -> Own {
        Own { now: Some(key(7)), next: next.map(key) }
    }

    #[test]
    fn no_key_is_without_an_end_and_the_one_that_is_replaced_counts_for_90_days_more_at_most() {
        let new = Changes { new_publisher: true, ..Changes::default() };
        for (end, overlap) in [
            (None, "2026-04-01T00:00:00Z"),
            (Some("2029-01-01T00:00:00Z"), "2026-04-01T00:00:00Z"),
            (Some("2026-01-02T00:00:00Z"), "2026-01-02T00:00:00Z"),
        ] {
            let expected = [(key(7), overlap.to_owned()), (key(8), "2027-02-05T00:00:00Z".to_owned())];
            assert_eq!(ends(&before(&[(7, end)]), &new, &own(Some(8))), expected);
        }
        let ended = before(&[(7, Some("2025-12-31T00:00:00Z")), (6, None)]);
        let other = ends(&ended, &new, &own(Some(8)));
        assert_eq!(other[0], (key(6), "2027-02-05T00:00:00Z".to_owned()), "another machine's goes on");
        assert_eq!(other.len(), 2, "what has ended goes");
    }

    #[test]
    fn the_end_is_that_of_what_is_added_or_else_of_this_homes_key() {
        let until = Changes { not_after: Some(NotAfter::Days(30)), ..Changes::default() };
        let both = before(&[(7, Some("2026-02-01T00:00:00Z")), (6, Some("2027-01-01T00:00:00Z"))]);
        let (mine, other) = ((key(7), "2026-01-31T00:00:00Z".to_owned()), (key(6), "2027-01-01T00:00:00Z".to_owned()));
        assert_eq!(ends(&both, &until, &own(None)), [mine, other.clone()]);
        let added = Changes { add_publishers: vec![key(8).to_string()], ..until };
        let new = (key(8), "2026-01-31T00:00:00Z".to_owned());
        assert_eq!(ends(&both, &added, &own(None)), [(key(7), "2026-02-01T00:00:00Z".to_owned()), other, new]);
        for end in ["2026-01-01T00:00:00Z", "2020-01-01T00:00:00Z", "2037-01-01T00:00:00Z"] {
            let far = Changes { not_after: Some(NotAfter::At(at(end))), ..Changes::default() };
            assert!(matches!(next_version(&both, &far, &own(None), at(NOW)), Err(TrustError::End(_))), "{end}");
        }
    }

    #[test]
    fn what_would_lock_everybody_out_or_says_nothing_is_no_proposal() {
        let one = before(&[(7, Some("2027-01-01T00:00:00Z"))]);
        let refused = |wanted: Changes| next_version(&one, &wanted, &own(None), at(NOW)).unwrap_err();
        let names = |seed: u8| vec![key(seed).to_string()];
        assert!(matches!(refused(Changes::default()), TrustError::NothingChanges { version: 1 }));
        let wanted = Changes { drop_publishers: names(7), ..Changes::default() };
        assert!(matches!(refused(wanted), TrustError::NoPublisher));
        for threshold in [0, 2] {
            let wanted = Changes { threshold: Some(threshold), ..Changes::default() };
            assert!(matches!(refused(wanted), TrustError::Roster(_)));
        }
        let wanted = Changes { drop_roots: names(1), ..Changes::default() };
        assert!(matches!(refused(wanted), TrustError::Roster(_)));
        for wanted in [
            Changes { drop_roots: names(9), ..Changes::default() },
            Changes { drop_publishers: vec!["SHA256:none".to_owned()], ..Changes::default() },
        ] {
            assert!(matches!(refused(wanted), TrustError::NotListed { .. }));
        }
        for wanted in [
            Changes { add_roots: names(1), ..Changes::default() },
            Changes { add_publishers: names(7), ..Changes::default() },
        ] {
            assert!(matches!(refused(wanted), TrustError::Listed { .. }));
        }
        let ecdsa = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBA==";
        let wanted = Changes { add_roots: vec![ecdsa.to_owned()], ..Changes::default() };
        assert!(matches!(refused(wanted), TrustError::NotAKey { .. }));
    }
}
