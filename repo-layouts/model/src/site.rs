//! `site.json`: the site's list, in which persons of a site approve and reject changes of one device from elsewhere.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::clock::SKEW;
use crate::desired::Refusal;
use crate::envelope::{LAYOUT, MAX_SERIAL};
use crate::message::Message;
use crate::report::Reason;
use crate::{Branch, DeviceId, Digest, ErrorCode, FileTree, FleetId, KeyText};

/// The path in the tree of `site`.
pub const SITE: &str = "site.json";

/// How long a list counts, at most.
pub const LIFE: SignedDuration = SignedDuration::from_hours(14 * 24);

/// The largest list, in bytes.
pub const MAX_BYTES: usize = 64 << 10;

/// The most words of a list, approved and rejected together.
pub const MAX_WORDS: usize = 100;

/// The most characters of `by` and of `why`.
pub const MAX_TEXT: usize = 200;

/// What the signed, parentless commit on `site` holds: all that its persons approve and reject now. What isn't in it is
/// neither.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteList {
    pub layout: u64,
    pub fleet: FleetId,
    pub device: DeviceId,
    /// Rises with every other list.
    pub serial: u64,
    /// Until when it counts.
    pub expires: Timestamp,
    #[serde(default)]
    pub approvals: Vec<SiteWord>,
    /// A change that is in both is rejected.
    #[serde(default)]
    pub rejected: Vec<SiteWord>,
}

/// A person's word for one change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteWord {
    /// The digest of the change, as the device names it in `gates` of `syncer.json`.
    pub set: Digest,
    /// Who says so. Which key of the site signed the list is another question.
    pub by: String,
    /// The reason that the person gave.
    pub why: String,
}

/// Who reads a list, and what is known so far.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    pub fleet: FleetId,
    pub device: &'a DeviceId,
    /// The site's keys, which the device's own configuration lists.
    pub keys: &'a [KeyText],
    /// The highest serial that such a key signed, and the digest of that `site.json`.
    pub known: Option<(u64, Digest)>,
    /// The present moment by the device.
    pub now: Timestamp,
}

/// The tree doesn't hold a list for this device.
fn refused<T>(code: impl Into<&'static str>, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(code, message))
}

impl SiteList {
    /// Reads a commit on `site`, and checks it but for who signed it, its serial and what time it is.
    ///
    /// # Errors
    /// `wrong-device` and `layout-too-new`; [`Reason::Unreadable`] for anything else that is wrong with it.
    pub fn read(
        files: &FileTree,
        message: &Message,
        has_parents: bool,
        (fleet, device): (FleetId, &DeviceId),
    ) -> Result<Self, Refusal> {
        let invalid = |text: String| refused(Reason::Unreadable, text);
        if let Some((key, value)) = message.wrong_identity(Branch::Site, fleet, device) {
            return refused(
                ErrorCode::WrongDevice,
                format!("the trailer `{key}` must stand exactly once, as `{value}`"),
            );
        }
        if has_parents {
            return invalid("a commit on `site` has no parents".to_owned());
        }
        let Some(bytes) = files.get(SITE) else { return invalid(format!("`{SITE}` is missing")) };
        if let Some(other) = files.keys().find(|path| *path != SITE) {
            return invalid(format!("`{other}` lies beside `{SITE}`, where nothing else may"));
        }
        let list = Self::parse(bytes)?;
        if (list.fleet, &list.device) != (fleet, device) {
            return refused(ErrorCode::WrongDevice, format!("`{SITE}` is for another device or fleet"));
        }
        Ok(list)
    }

    /// Reads the document alone.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        #[derive(Deserialize)]
        struct Layout {
            layout: u64,
        }
        let invalid = |text: String| refused(Reason::Unreadable, text);
        if bytes.len() > MAX_BYTES {
            return invalid(format!("`{SITE}` has {} bytes, more than the {MAX_BYTES} allowed", bytes.len()));
        }
        let unreadable = |error| Refusal::new(Reason::Unreadable, format!("`{SITE}`: {error}"));
        match crate::json::read(bytes).map_err(unreadable)? {
            Layout { layout: 0 } => return invalid(format!("`{SITE}`: `layout` is 0, which is none")),
            Layout { layout } if layout > LAYOUT => {
                let text = format!("`{SITE}` has layout {layout}, and {LAYOUT} is the newest that is known here");
                return refused(ErrorCode::LayoutTooNew, text);
            }
            Layout { .. } => {}
        }
        let list: Self = crate::json::read(bytes).map_err(unreadable)?;
        let count = list.words().count();
        if count > MAX_WORDS {
            return invalid(format!("`{SITE}` has {count} words, more than the {MAX_WORDS} allowed"));
        }
        for text in list.words().flat_map(|word| [&word.by, &word.why]) {
            let length = text.chars().count();
            if text.trim().is_empty() || length > MAX_TEXT {
                return invalid(format!(
                    "`{SITE}`: `by` and `why` have 1 to {MAX_TEXT} characters, and one has {length}"
                ));
            }
        }
        Ok(list)
    }

    /// All words, those that approve first.
    pub fn words(&self) -> impl Iterator<Item = &SiteWord> {
        self.approvals.iter().chain(&self.rejected)
    }
}

/// Decides whether a device believes a commit on `site` (`repo-layouts/README.md`, *Branch `site`*), whose signature is
/// `signer`'s.
///
/// # Errors
/// What [`SiteList::read`] says; `signature-invalid`, `serial-rollback`, [`Reason::SiteForked`] and [`Reason::OutOfTime`].
pub fn accept(
    files: &FileTree,
    message: &Message,
    has_parents: bool,
    signer: &KeyText,
    reader: &Reader<'_>,
) -> Result<SiteList, Refusal> {
    if !reader.keys.contains(signer) {
        return refused(ErrorCode::SignatureInvalid, "`site` isn't signed by a key of this device's site");
    }
    let list = SiteList::read(files, message, has_parents, (reader.fleet, reader.device))?;
    let serial = list.serial;
    if !(1..=MAX_SERIAL).contains(&serial) {
        return refused(ErrorCode::SerialRollback, format!("`{SITE}`: serial {serial} is none"));
    }
    if let Some((known, digest)) = reader.known {
        if serial < known {
            let text =
                format!("`{SITE}` has serial {serial}, and {known} was believed before: the next one is {}", known + 1);
            return refused(ErrorCode::SerialRollback, text);
        }
        if serial == known && Digest::of(&files[SITE]) != digest {
            let text =
                format!("a key of the site signed two lists with serial {serial}: the next one is {}", known + 1);
            return refused(Reason::SiteForked, text);
        }
    }
    let left = list.expires.duration_since(reader.now);
    if !left.is_positive() {
        return refused(Reason::OutOfTime, format!("`{SITE}` with serial {serial} ended at {:.0}", list.expires));
    }
    if left > LIFE + SKEW {
        let text = format!(
            "`{SITE}` with serial {serial} would count until {:.0}, which is more than {} days: or the clock of this device, \
             or of who made it, is wrong",
            list.expires,
            LIFE.as_hours() / 24
        );
        return refused(Reason::OutOfTime, text);
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_64_kib_at_most_whatever_it_is_filled_up_with() {
        let list = SiteList {
            layout: LAYOUT,
            fleet: FleetId::from(uuid::Uuid::nil()),
            device: "press-04".parse().unwrap(),
            serial: 1,
            expires: Timestamp::UNIX_EPOCH,
            approvals: Vec::new(),
            rejected: Vec::new(),
        };
        let mut bytes = crate::json::to_bytes(&list);
        bytes.resize(MAX_BYTES, b' ');
        assert_eq!(SiteList::parse(&bytes), Ok(list));
        bytes.push(b' ');
        assert_eq!(SiteList::parse(&bytes).unwrap_err().code, "Unreadable");
    }
}
