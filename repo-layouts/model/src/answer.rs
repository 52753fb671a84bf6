//! Words by which a host's answer is understood over HTTPS and SSH alike; what follows `: ` is for people.

/// The account ended because its device is retired: HTTP's 403, or the word of an `ERR` line.
pub const RETIRED: &str = "retired";

/// For how many seconds a device that is retired leaves its host alone: a day.
pub const RETIRED_AGAIN: u64 = 86_400;

/// Whether a line with which a host refuses says that the device is retired.
pub fn says_retired(line: &str) -> bool {
    line.strip_prefix(RETIRED).is_some_and(|rest| rest.starts_with(':'))
}
