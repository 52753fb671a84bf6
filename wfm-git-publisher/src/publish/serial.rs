//! Which serial and `manifestVersion` come next, and whether the tip lags behind what the device may know.

use repo_model::Digest;
use repo_model::envelope::{MAX_JUMP, MAX_SERIAL};
use repo_model::report::Adopted;

use crate::plan::Numbers;
use crate::repos::{Entry, EntryState, MAX_LEAD, Published};

/// Up to this number a person can have a device believed whatever it says that it adopted: to get there, it would have to
/// adopt billions of states, each a million above the one before. Above, in such steps only, so that nothing that is made up
/// uses its numbers up.
const BELIEVED: u64 = MAX_SERIAL / 2;

/// Everything that is known about how far a device is.
#[derive(Debug, Clone, Default)]
pub struct KnownNumbers<'a> {
    /// Serial and `manifestVersion` of the verified tip.
    pub parent: Option<(u64, u64)>,
    /// What the ledger notes of the device; absent if nothing was ever given out to it.
    pub ledger: Option<&'a Entry>,
    /// What the device's verified status says it adopted.
    pub adopted: Option<&'a Adopted>,
    /// Whether the history of the tip has that, or a `Continues` that names it.
    pub adopted_is_known: bool,
    /// Whether it is gone on from however far ahead it is: a person says so, or a publisher's key signed it.
    pub is_certain: bool,
}

/// No number can be given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SerialError {
    /// The device claims what can't be.
    #[error(
        "its status says that it adopted {what} {claimed}, and no more than {known} was ever published; no device gets that far"
    )]
    Claim {
        what: &'static str,
        /// The number that the device says it adopted.
        claimed: u64,
        /// The highest that is known here.
        known: u64,
    },
    /// There are no more numbers.
    #[error("its {what} can't rise above {MAX_SERIAL}")]
    Exhausted { what: &'static str },
}

impl KnownNumbers<'_> {
    /// What the device may have adopted that the tip's history doesn't know: the host or this repository was restored
    /// from an older state. The next commit must continue it.
    pub fn lost(&self) -> Option<Published> {
        if let Some(adopted) = self.followed().filter(|_| !self.adopted_is_known) {
            return Some(Published { serial: adopted.serial, envelope: adopted.envelope });
        }
        let published = self.ledger?.last_published()?;
        (self.parent.is_none_or(|(serial, _)| serial < published.serial)).then_some(published)
    }

    /// The numbers that an interrupted attempt reserved, and the envelope that they belong to.
    pub fn reserved(&self) -> Option<(Numbers, Digest)> {
        let entry = self.ledger.filter(|entry| entry.state == EntryState::Reserved)?;
        let above =
            self.parent.map_or(0, |(serial, _)| serial).max(self.followed().map_or(0, |adopted| adopted.serial));
        let numbers = Numbers { serial: entry.serial, manifest_version: entry.manifest_version };
        (entry.serial > above).then_some((numbers, entry.envelope))
    }

    /// The next numbers; `new_manifest` says that the manifest's content changes.
    pub fn next(&self, new_manifest: bool) -> Result<Numbers, SerialError> {
        self.check_claim()?;
        let parent = self.parent.unwrap_or_default();
        let ledger = self.ledger.map_or((0, 0), |entry| (entry.serial, entry.manifest_version));
        let adopted = self.followed().map_or((0, 0), |adopted| (adopted.serial, adopted.manifest_version));
        let highest = |a: u64, b: u64, c: u64| a.max(b).max(c);
        let version = highest(parent.1, ledger.1, adopted.1);
        // Another content may have had the versions above the parent's, and the parent's own, where the device adopted something
        // that is unknown here.
        let is_others = version > parent.1 || !self.adopted_is_known && adopted.1 == version && version > 0;
        let manifest_version = if new_manifest || is_others { version + 1 } else { version };
        let numbers = Numbers { serial: highest(parent.0, ledger.0, adopted.0) + 1, manifest_version };
        match numbers {
            _ if numbers.serial > MAX_SERIAL => Err(SerialError::Exhausted { what: "serial" }),
            _ if numbers.manifest_version > MAX_SERIAL => Err(SerialError::Exhausted { what: "manifestVersion" }),
            _ => Ok(numbers),
        }
    }

    /// What the device adopted, unless that is further beyond what is known here than anything is lost.
    fn followed(&self) -> Option<&Adopted> {
        let leads_nowhere = |(claimed, known): &(u64, u64)| *claimed <= known.saturating_add(MAX_LEAD);
        self.adopted.filter(|adopted| self.is_certain || self.claims(adopted).iter().all(leads_nowhere))
    }

    /// Serial and `manifestVersion` as the device says, each with the highest that is known here.
    fn claims(&self, adopted: &Adopted) -> [(u64, u64); 2] {
        let parent = self.parent.unwrap_or_default();
        let ledger = self.ledger.map_or((0, 0), |entry| (entry.serial, entry.manifest_version));
        [(adopted.serial, parent.0.max(ledger.0)), (adopted.manifest_version, parent.1.max(ledger.1))]
    }

    /// A device may know more than a publisher whose stolen key someone used, but not without bounds.
    fn check_claim(&self) -> Result<(), SerialError> {
        let Some(adopted) = self.followed() else { return Ok(()) };
        for (what, (claimed, known)) in ["serial", "manifestVersion"].into_iter().zip(self.claims(adopted)) {
            if claimed > known.saturating_add(MAX_JUMP).max(BELIEVED) {
                return Err(SerialError::Claim { what, claimed, known });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(serial: u64, manifest_version: u64, state: EntryState) -> Entry {
        Entry {
            device: "press-01".parse().unwrap(),
            serial,
            manifest_version,
            envelope: Digest::of(&serial.to_be_bytes()),
            state,
            time: "2026-11-21T12:00:00Z".parse().unwrap(),
            published: None,
        }
    }

    fn adopted(serial: u64, manifest_version: u64) -> Adopted {
        let envelope = Digest::of(&serial.to_be_bytes());
        Adopted { serial, manifest_version, trust: 1, commit: "0".repeat(40), envelope }
    }

    fn numbers(serial: u64, manifest_version: u64) -> Result<Numbers, SerialError> {
        Ok(Numbers { serial, manifest_version })
    }

    #[test]
    fn the_next_serial_is_above_all_that_anyone_knows() {
        for (parent, ledger, claim, serial) in [
            (None, None, None, 1),
            (Some(6), Some(6), Some(6), 7),
            (Some(3), Some(6), None, 7),
            (Some(6), None, Some(9), 10),
            (None, Some(4), Some(2), 5),
        ] {
            let (ledger, claim) =
                (ledger.map(|one| entry(one, 1, EntryState::Published)), claim.map(|one| adopted(one, 1)));
            let known = KnownNumbers {
                parent: parent.map(|serial| (serial, 1)),
                ledger: ledger.as_ref(),
                adopted: claim.as_ref(),
                adopted_is_known: true,
                is_certain: false,
            };
            assert_eq!(known.next(true).unwrap().serial, serial, "{known:?}");
        }
    }

    #[test]
    fn the_manifest_version_rises_only_with_the_manifest() {
        let known = KnownNumbers { parent: Some((6, 4)), ..KnownNumbers::default() };
        assert_eq!(known.next(false), numbers(7, 4));
        assert_eq!(known.next(true), numbers(7, 5));
        // Version 5 was given out before the repository was restored, and its content isn't known any more.
        let ledger = entry(8, 5, EntryState::Published);
        assert_eq!(
            KnownNumbers { parent: Some((6, 4)), ledger: Some(&ledger), ..KnownNumbers::default() }.next(false),
            numbers(9, 6)
        );
    }

    #[test]
    fn a_version_that_the_device_knows_with_another_content_is_not_given_out_again() {
        let claim = adopted(3, 3);
        let known = KnownNumbers { parent: Some((3, 3)), adopted: Some(&claim), ..KnownNumbers::default() };
        assert_eq!(
            known.next(false),
            numbers(4, 4),
            "a restored publisher came to the same number before it heard of it"
        );
        assert_eq!(KnownNumbers { adopted_is_known: true, ..known }.next(false), numbers(4, 3));
        let claim = adopted(9, 2);
        let known = KnownNumbers { parent: Some((3, 3)), adopted: Some(&claim), ..KnownNumbers::default() };
        assert_eq!(known.next(false), numbers(10, 3), "what is above all that it knows is its own");
    }

    #[test]
    fn a_tip_that_lags_behind_is_continued() {
        let ledger = entry(6, 1, EntryState::Published);
        let published = Published { serial: 6, envelope: ledger.envelope };
        let known = KnownNumbers { parent: Some((6, 1)), ledger: Some(&ledger), ..KnownNumbers::default() };
        assert_eq!(known.lost(), None);
        assert_eq!(KnownNumbers { parent: Some((3, 1)), ..known.clone() }.lost(), Some(published));
        assert_eq!(KnownNumbers { parent: None, ..known.clone() }.lost(), Some(published));
        let claim = adopted(5, 1);
        let known = KnownNumbers { parent: Some((3, 1)), adopted: Some(&claim), ..known };
        assert_eq!(known.lost().map(|lost| lost.serial), Some(5), "what the device says it has goes first");
        assert_eq!(KnownNumbers { adopted_is_known: true, ..known }.lost(), Some(published));
    }

    #[test]
    fn what_was_only_reserved_is_not_lost() {
        let ledger = Entry {
            published: Some(Published { serial: 6, envelope: Digest::of(b"6") }),
            ..entry(7, 1, EntryState::Reserved)
        };
        let known = KnownNumbers { parent: Some((6, 1)), ledger: Some(&ledger), ..KnownNumbers::default() };
        assert_eq!(known.lost(), None);
        assert_eq!(known.reserved().map(|(numbers, _)| numbers.serial), Some(7));
        assert_eq!(known.next(true).unwrap().serial, 8);
        assert_eq!(KnownNumbers { parent: Some((7, 1)), ..known }.reserved(), None, "the tip already has it");
    }

    #[test]
    fn a_device_can_not_claim_what_was_never_published() {
        let claim = adopted(BELIEVED + 1, 1);
        let known =
            KnownNumbers { parent: Some((6, 1)), adopted: Some(&claim), is_certain: true, ..KnownNumbers::default() };
        assert!(matches!(known.next(true), Err(SerialError::Claim { what: "serial", .. })));
        let claim = adopted(6, BELIEVED + 1);
        let known =
            KnownNumbers { parent: Some((6, 1)), adopted: Some(&claim), is_certain: true, ..KnownNumbers::default() };
        assert!(matches!(known.next(true), Err(SerialError::Claim { what: "manifestVersion", .. })));
    }

    #[test]
    fn a_claim_is_followed_only_as_far_as_something_can_be_lost() {
        for (claim, serial) in [
            (adopted(6 + MAX_LEAD, 1), 7 + MAX_LEAD),
            (adopted(7 + MAX_LEAD, 1), 7),
            (adopted(9, 2 + MAX_LEAD), 7),
            (adopted(MAX_SERIAL, MAX_SERIAL), 7),
        ] {
            let known = KnownNumbers { parent: Some((6, 1)), adopted: Some(&claim), ..KnownNumbers::default() };
            assert_eq!(known.next(true).unwrap().serial, serial, "{claim:?}");
            assert_eq!(known.lost().is_some(), serial > 7);
        }
    }

    #[test]
    fn whatever_a_stolen_key_can_have_made_a_device_adopt_is_gone_on_from_by_a_persons_word() {
        let claim = adopted(6 + 2 * MAX_JUMP, 1 + 2 * MAX_JUMP);
        let known =
            KnownNumbers { parent: Some((6, 1)), adopted: Some(&claim), is_certain: true, ..KnownNumbers::default() };
        assert_eq!(known.lost().map(|lost| lost.serial), Some(6 + 2 * MAX_JUMP));
        assert_eq!(known.next(true), numbers(7 + 2 * MAX_JUMP, 2 + 2 * MAX_JUMP));
        // A device that is believed once can't use the rest up by that.
        let (claim, further) = (adopted(BELIEVED, 1), adopted(BELIEVED + MAX_JUMP + 2, 1));
        let next =
            KnownNumbers { parent: Some((6, 1)), adopted: Some(&claim), is_certain: true, ..KnownNumbers::default() };
        let next = next.next(false).unwrap();
        let known = KnownNumbers {
            parent: Some((next.serial, 1)),
            adopted: Some(&further),
            is_certain: true,
            ..KnownNumbers::default()
        };
        assert!(matches!(known.next(false), Err(SerialError::Claim { .. })));
    }

    #[test]
    fn numbers_end_where_json_readers_lose_them() {
        let known = KnownNumbers { parent: Some((MAX_SERIAL, 1)), ..KnownNumbers::default() };
        assert_eq!(known.next(false), Err(SerialError::Exhausted { what: "serial" }));
        let known = KnownNumbers { parent: Some((1, MAX_SERIAL)), ..KnownNumbers::default() };
        assert_eq!(known.next(true), Err(SerialError::Exhausted { what: "manifestVersion" }));
    }
}
