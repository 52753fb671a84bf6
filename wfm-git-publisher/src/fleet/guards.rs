//! Guards in `fleet.yaml`: how much may be removed at once without a person's word.

use repo_model::yaml::Field;

/// How much may be removed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guards {
    /// Of the deployments of any one device.
    pub device: Limit,
    /// Of all deployments on all devices.
    pub fleet: Limit,
}

/// A share, and how many removals are always allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    pub percent: u8,
    /// So few are never too many.
    pub always: usize,
}

impl Default for Guards {
    /// Half of a device's, if more than two; a quarter of the fleet's, if more than ten.
    fn default() -> Self {
        Self { device: Limit { percent: 50, always: 2 }, fleet: Limit { percent: 25, always: 10 } }
    }
}

impl Limit {
    /// Whether removing so many of so many is more than this.
    pub fn is_passed(&self, removed: usize, of: usize) -> bool {
        removed > self.always && removed * 100 > of * usize::from(self.percent)
    }
}

impl Guards {
    pub(super) fn read(field: Field<'_>) -> Option<Self> {
        field.mapping(|reader| {
            let standard = Guards::default();
            let device = reader.optional("deviceRemovals", share).unwrap_or(standard.device);
            let fleet = reader.optional("fleetRemovals", share).unwrap_or(standard.fleet);
            Some(Guards { device, fleet })
        })
    }
}

/// A share that is written out holds for any number.
fn share(field: Field<'_>) -> Option<Limit> {
    let text = field.clone().string()?;
    let percent = text.strip_suffix('%').filter(|digits| digits.bytes().all(|c| c.is_ascii_digit()));
    match percent.and_then(|digits| digits.parse().ok()).filter(|percent| *percent <= 100) {
        Some(percent) => Some(Limit { percent, always: 0 }),
        None => field.fail_hint(format!("`{text}` is not a share"), "write 0% to 100%"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_passed_on_one_side_of_its_edge_only() {
        let half = Limit { percent: 50, always: 0 };
        assert!(half.is_passed(2, 3) && !half.is_passed(2, 4) && half.is_passed(1, 1) && !half.is_passed(0, 0));
        assert!(!Limit { always: 2, ..half }.is_passed(2, 2) && Limit { always: 2, ..half }.is_passed(3, 5));
        assert!(!Limit { percent: 100, always: 0 }.is_passed(5, 5) && Limit { percent: 0, always: 0 }.is_passed(1, 99));
    }
}
