//! Waiting for what devices say.

use std::time::{Duration, Instant};

use super::{Place, pause};
use crate::duration::parse_duration;
use crate::error::Failure;

/// Reads how long to wait at most: `30s`, `2m` or `1h`.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map(Duration::from_secs);
    time.ok_or_else(|| "write it like 30s, 2m or 1h".to_owned())
}

/// Asks again and again until what is said is enough, or the time is over. Returns what was said last.
pub(super) fn until<T>(
    place: &Place,
    time: Duration,
    said: impl Fn() -> Result<Option<T>, Failure>,
    mut is_enough: impl FnMut(&T) -> bool,
) -> Result<Option<T>, Failure> {
    let until = Instant::now() + time;
    loop {
        // A host that is busy or away now may answer later.
        let said = said();
        if matches!(&said, Ok(Some(said)) if is_enough(said)) || Instant::now() >= until {
            return said;
        }
        pause(place, false)?;
    }
}

/// Neither is the publisher's home here nor can a host be asked.
pub(super) fn nowhere() -> Failure {
    let failure = Failure::new("the publisher's home isn't here");
    failure.hint("ask its host: `wfm-git-publisher login https://name[:port]`")
}
