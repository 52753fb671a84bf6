//! The branches of the contract's repositories, and who writes them.

use crate::words::words;

/// What every branch's ref begins with.
pub const HEADS: &str = "refs/heads/";

words! {
    /// A branch of a device repository, or the control repository's only one. Its name is also the value of the trailer
    /// `Kind` on each of its commits.
    Branch {
        Desired "desired" "What the device shall run; only ever moves forward."
        Bundle "bundle" "The archive that the manifest names: one parentless commit, replaced."
        Freshness "freshness" "The proof that the publisher still stands behind a tip: one parentless commit, replaced."
        Status "status" "What became of each deployment, one commit per transition."
        Heartbeat "heartbeat" "What runs at this moment: one parentless commit, replaced."
        Site "site" "What persons of the device's site approve and reject: one parentless commit, replaced."
        Control "control" "The publisher's ledger and locks, in its control repository."
    }
}

impl Branch {
    /// The branches of a device repository, those that the publisher writes first.
    pub const OF_DEVICE: [Self; 6] =
        [Self::Desired, Self::Bundle, Self::Freshness, Self::Status, Self::Heartbeat, Self::Site];

    /// The branches of a device repository that the publisher alone writes (*Common rules* 2).
    pub const BY_PUBLISHER: [Self; 3] = [Self::Desired, Self::Bundle, Self::Freshness];

    /// The branches of a device repository that the device alone writes (*Common rules* 2).
    pub const BY_DEVICE: [Self; 2] = [Self::Status, Self::Heartbeat];

    /// The branches of a device repository that the device's own site alone writes (*Common rules* 2).
    pub const BY_SITE: [Self; 1] = [Self::Site];

    /// The branch's ref, in full.
    pub const fn ref_name(self) -> &'static str {
        match self {
            Self::Desired => "refs/heads/desired",
            Self::Bundle => "refs/heads/bundle",
            Self::Freshness => "refs/heads/freshness",
            Self::Status => "refs/heads/status",
            Self::Heartbeat => "refs/heads/heartbeat",
            Self::Site => "refs/heads/site",
            Self::Control => "refs/heads/control",
        }
    }

    /// The branch that a ref is; `None` for every other ref.
    pub fn of_ref(ref_name: &str) -> Option<Self> {
        Self::parse(ref_name.strip_prefix(HEADS)?)
    }
}

/// The number of commits after which a device begins a new epoch of `status`. By count, not by time: clocks are wrong.
pub const EPOCH_COMMITS: usize = 10_000;

/// The branch that keeps epoch `n` of `status`, from 1: where it stood at its end. Nobody moves or deletes it.
pub fn epoch_branch(n: u32) -> String {
    format!("{}-{n}", Branch::Status)
}

/// The same branch's ref, in full.
pub fn epoch_ref(n: u32) -> String {
    ref_name(epoch_branch(n))
}

/// Which epoch of `status` a ref keeps; `None` for every other ref.
pub fn epoch_of(ref_name: &str) -> Option<u32> {
    let n: u32 = ref_name.strip_prefix(Branch::Status.ref_name())?.strip_prefix('-')?.parse().ok()?;
    (n > 0 && epoch_ref(n) == ref_name).then_some(n)
}

/// The full name of a branch's ref, for branches of any name: an operator's fleet repository has its own.
pub fn ref_name(branch: impl AsRef<str>) -> String {
    format!("{HEADS}{}", branch.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ref_is_a_branch_only_by_its_exact_name() {
        for (branch, _) in Branch::TABLE {
            assert_eq!(ref_name(branch), branch.ref_name());
            assert_eq!(Branch::of_ref(branch.ref_name()), Some(*branch));
        }
        for other in ["status", "refs/heads/Status", "refs/tags/status", "refs/heads/status/x", "refs/heads/main"] {
            assert_eq!(Branch::of_ref(other), None, "{other}");
        }
    }

    #[test]
    fn an_epoch_has_a_number_from_1_written_in_one_way() {
        assert_eq!((epoch_of(&epoch_ref(1)), epoch_of("refs/heads/status-40")), (Some(1), Some(40)));
        for other in ["status", "status-0", "status-01", "status-+1", "status-", "status-1/x", "status-4294967296"] {
            assert_eq!(epoch_of(&ref_name(other)), None, "{other}");
        }
        assert_eq!(epoch_of("refs/tags/status-1"), None);
    }

    #[test]
    fn each_branch_of_a_device_has_one_writer() {
        let by_writer = [&Branch::BY_PUBLISHER[..], &Branch::BY_DEVICE[..], &Branch::BY_SITE[..]];
        assert_eq!(by_writer.concat(), Branch::OF_DEVICE);
    }
}
