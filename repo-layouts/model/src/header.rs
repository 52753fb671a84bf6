//! The headers of the contract's host over HTTPS, in lower case as HTTP/2 and readers of HTTP/1.1 want them.

/// For how many seconds at most a device may wait for changes; in answers of a host where it may.
pub const WAIT: &str = "wfm-wait";

/// Within how many milliseconds a device comes at random after the host ended its wait because of a change; absent
/// means 0.
pub const JITTER: &str = "wfm-jitter";

/// The name that a host gives its answer to `ls-refs`, or that of the answer which a device has: at most 64 visible
/// characters.
pub const REFS: &str = "wfm-refs";
