//! `windows`: when changes may be made on this device, and whether they may now.

use std::fmt::Write;
use std::process::ExitCode;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use repo_model::windows::Spread;
use serde::Serialize;

use super::OutputArgs;
use super::show::{age, json};
use crate::config::Home;
use crate::decision::windows::Windows;
use crate::error::CliError;
use crate::home;

/// How many of the next times are printed.
const TIMES: usize = 5;

/// Prints when changes may be made on this device by `gates.windows` of device.yaml, and whether they may now.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(home: &Home, args: &Args) -> Result<ExitCode, CliError> {
    let now = Timestamp::now();
    let windows = WindowsOut::of(&home::site_windows(home)?, now);
    args.output.print(|| windows.text(now), || json(&windows))?;
    Ok(ExitCode::SUCCESS)
}

/// The site's windows, for `windows --output json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WindowsOut {
    /// `null` where there are no windows: then changes may be made at any time.
    zone: Option<String>,
    /// Whether they may now.
    open: bool,
    /// The next times at which they may, up to 400 days ahead; the first one has begun if `open`.
    next: Vec<Time>,
    #[serde(skip)]
    shown_in: TimeZone,
}

#[derive(Debug, Serialize)]
struct Time {
    from: Timestamp,
    /// `null` where it doesn't end within 400 days.
    until: Option<Timestamp>,
}

impl WindowsOut {
    /// What the site's windows come to from now on.
    fn of((windows, spread): &(Option<Windows>, Spread), now: Timestamp) -> Self {
        let Some(windows) = windows else {
            let next = vec![Time { from: now, until: None }];
            return Self { zone: None, open: true, next, shown_in: TimeZone::UTC };
        };
        let next = windows.next(now, *spread, TIMES);
        let next: Vec<_> = next.into_iter().map(|(from, until)| Time { from, until }).collect();
        let open = next.first().is_some_and(|first| first.from <= now);
        let shown_in = windows.zone.clone();
        Self { zone: shown_in.iana_name().map(str::to_owned), open, next, shown_in }
    }

    fn text(&self, now: Timestamp) -> String {
        let Some(zone) = &self.zone else {
            return "changes may be made at any time: device.yaml has no `gates.windows`\n".to_owned();
        };
        let shown =
            |moment: Timestamp| moment.to_zoned(self.shown_in.clone()).strftime("%a %Y-%m-%d %H:%M:%S %Z").to_string();
        let mut text = match self.next.first() {
            None => "closed: no window opens within 400 days\n".to_owned(),
            Some(_) if self.open => "open: changes may be made now\n".to_owned(),
            Some(first) => format!("closed for {} more\n", age(first.from.duration_since(now))),
        };
        for Time { from, until } in &self.next {
            let until = until.map_or("without an end that is near".to_owned(), shown);
            let _ = writeln!(text, "{} to {until}", shown(*from));
        }
        let _ = writeln!(
            text,
            "by the clock of {zone}; this device begins up to 10 minutes after a window opens, each time as much"
        );
        text
    }
}
