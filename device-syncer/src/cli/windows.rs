//! `windows`: when changes may be made on this device, and whether they may now.

use std::fmt::Write;
use std::process::ExitCode;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use repo_model::windows::Spread;
use repo_model::{DeploymentId, text};
use serde::Serialize;

use super::OutputArgs;
use super::show::{age, json};
use crate::config::{Home, known_zone};
use crate::decision::windows::{AllWindows, Counting, Doubt, Whose};
use crate::error::CliError;
use crate::home;
use crate::state::loaded;

/// How many of the next times are printed.
const TIMES: usize = 5;

/// Prints when changes may be made on this device, and whether they may now: by `gates.windows` of device.yaml and by the
/// fleet's windows, which count together, also those of single deployments.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  device-syncer windows\n  device-syncer windows --output json")]
pub(super) struct Args {
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(home: &Home, args: &Args) -> Result<ExitCode, CliError> {
    let now = Timestamp::now();
    let (site, spread, clock) = home::site_windows(home)?;
    let (device_state, desired) = loaded::peek(&home.repository());
    let windows = AllWindows::new(site, desired.as_ref(), known_zone);
    let name = |id: DeploymentId| device_state.name_of(id, desired.as_ref());
    let by = By { spread, clock, now };
    let out = WindowsOut::of(&windows, &by, name);
    args.output.print(|| out.text(now), || json(&out))?;
    Ok(ExitCode::SUCCESS)
}

/// What windows are kept by.
struct By {
    spread: Spread,
    /// Why the device's clock isn't believed.
    clock: Option<Doubt>,
    now: Timestamp,
}

/// All windows, for `windows --output json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WindowsOut {
    #[serde(flatten)]
    device: TimesOut,
    /// Deployments with windows of their own, which count in the place of the fleet's for the whole device.
    deployments: Vec<DeploymentOut>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DeploymentOut {
    deployment: String,
    deployment_id: DeploymentId,
    #[serde(flatten)]
    times: TimesOut,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TimesOut {
    /// By whose clock the times are printed: the site's, else the fleet's. `null` where nobody has windows: then changes may
    /// be made at any time.
    zone: Option<String>,
    /// By whose clock the site's windows are meant; `null` where it has none.
    site_zone: Option<String>,
    /// The same of the fleet's.
    fleet_zone: Option<String>,
    /// Whether changes may be made now.
    open: bool,
    /// The next times at which they may, up to 400 days ahead; the first one has begun if `open`.
    next: Vec<Time>,
    /// The next times at which what changes need is fetched, ahead of them; `null` where that is when they are made.
    fetch: Option<Vec<Time>>,
    /// How many seconds before they close nothing begins any more.
    last_start_seconds: i64,
    /// Why none is believed to be open.
    doubt: Option<String>,
    #[serde(skip)]
    whose: Whose,
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
    /// What they come to from now on.
    fn of(windows: &AllWindows, by: &By, name: impl Fn(DeploymentId) -> String) -> Self {
        let own = windows.of_deployments().map(|(id, own)| DeploymentOut {
            deployment: name(id),
            deployment_id: id,
            times: TimesOut::of(own, by),
        });
        Self { device: TimesOut::of(windows.of_device(), by), deployments: own.collect() }
    }

    fn text(&self, now: Timestamp) -> String {
        let mut text = if self.device.whose == Whose::Nobodys {
            "changes may be made at any time: neither device.yaml (`gates.windows`) nor the fleet has windows\n"
                .to_owned()
        } else {
            self.device.text(now)
        };
        for DeploymentOut { deployment, times, .. } in &self.deployments {
            let _ = write!(text, "{}, which has windows of its own: {}", text::cell(deployment), times.text(now));
        }
        if self.device.whose != Whose::Nobodys || !self.deployments.is_empty() {
            text += "this device begins up to 10 minutes after a window opens, each time as much\n";
        }
        text
    }
}

impl TimesOut {
    fn of(windows: Counting<'_>, By { spread, clock, now }: &By) -> Self {
        let doubt = windows.at(*now, clock.as_ref(), *spread).doubt;
        let next = windows.next(*now, *spread, TIMES);
        let times = |times: Vec<(Timestamp, Option<Timestamp>)>| {
            times.into_iter().map(|(from, until)| Time { from, until }).collect::<Vec<_>>()
        };
        let (next, fetch) = (times(next), windows.next_fetches(*now, *spread, TIMES).map(times));
        let name = |zone: &TimeZone| zone.iana_name().map(str::to_owned);
        let fleet_zone = windows.fleet.and_then(|fleet| match fleet {
            Ok(fleet) => name(&fleet.zone),
            Err(unknown) => Some(unknown.clone()),
        });
        let site_zone = windows.site.and_then(|site| name(&site.zone));
        Self {
            zone: site_zone.clone().or_else(|| fleet_zone.clone()),
            open: doubt.is_none() && next.first().is_some_and(|first| first.from <= *now),
            next,
            fetch,
            doubt: doubt.as_ref().map(Doubt::message),
            last_start_seconds: windows.last_start().as_secs(),
            site_zone,
            fleet_zone,
            whose: windows.whose(),
            shown_in: windows.sides().next().map_or(TimeZone::UTC, |side| side.zone.clone()),
        }
    }

    fn text(&self, now: Timestamp) -> String {
        let shown =
            |moment: Timestamp| moment.to_zoned(self.shown_in.clone()).strftime("%a %Y-%m-%d %H:%M:%S %Z").to_string();
        let mut all = match (&self.doubt, self.next.first()) {
            (Some(doubt), _) => format!("closed: {}\n", text::cell(doubt)),
            (None, None) => "closed: no window opens within 400 days\n".to_owned(),
            (None, Some(_)) if self.open => "open: changes may be made now\n".to_owned(),
            (None, Some(first)) => format!("closed for {} more\n", age(first.from.duration_since(now))),
        };
        for Time { from, until } in &self.next {
            let until = until.map_or("without an end that is near".to_owned(), shown);
            let _ = writeln!(all, "{} to {until}", shown(*from));
        }
        match self.fetch.as_ref().map(|times| times.first()) {
            None => {}
            Some(None) => {
                all += "charts, archives and images are never fetched: no window for that opens within 400 days\n"
            }
            Some(Some(Time { from, until })) => {
                let until = until.map_or("without an end that is near".to_owned(), shown);
                let _ = writeln!(all, "charts, archives and images are fetched from {} to {until}", shown(*from));
            }
        }
        if self.last_start_seconds > 0 {
            let _ =
                writeln!(all, "nothing begins in the last {:#}", SignedDuration::from_secs(self.last_start_seconds));
        }
        let clocks: Vec<_> =
            [&self.fleet_zone, &self.site_zone].into_iter().flatten().map(|zone| text::cell(zone)).collect();
        let _ = writeln!(all, "by {}, by the clock of {}", self.whose, clocks.join(" and "));
        all
    }
}
