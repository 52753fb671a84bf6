//! What the site itself lets changes wait for.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::SignedDuration;
use jiff::tz::TimeZone;
use repo_model::KeyText;
use repo_model::envelope::DriftPolicy;
use repo_model::text;
use repo_model::windows::{Overrun, Rules, Span};
use serde::Deserialize;

use super::invalid::InvalidValue;
use super::parse_duration;
use crate::decision::approval::AskedFor;
use crate::decision::pattern::Pattern;
use crate::decision::site::SiteKey;
use crate::decision::windows::Windows;

/// The section `gates` of `device.yaml`; an absent key closes nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct GatesFragment {
    hold: Option<PathBuf>,
    windows: Option<WindowsFragment>,
    removals: Option<String>,
    approval: Option<ApprovalFragment>,
    hook: Option<HookFragment>,
    drift: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApprovalFragment {
    #[serde(default, rename = "for")]
    names: Vec<Pattern>,
    #[serde(default)]
    except: Vec<Pattern>,
    #[serde(default)]
    keys: Vec<SiteKeyFragment>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SiteKeyFragment {
    name: String,
    key: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HookFragment {
    command: Vec<String>,
    timeout: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WindowsFragment {
    zone: String,
    #[serde(default)]
    apply: Rules,
    #[serde(default)]
    downtime: Vec<Span>,
    fetch: Option<Rules>,
    #[serde(default)]
    talk: Rules,
    #[serde(rename = "lastStart")]
    last_start: Option<String>,
    overrun: Option<String>,
}

/// The site's own gates: no commit of the fleet opens them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SiteGates {
    /// While this file is there, everything is held.
    pub hold: Option<PathBuf>,
    /// When changes may be made; at any time without.
    pub windows: Option<Windows>,
    /// The share of its deployments, in percent, beyond which their removal needs a person; nothing does without.
    pub removals: Option<u8>,
    /// The deployments that are changed only after a person's word; none without.
    pub approval: Option<AskedFor>,
    /// The keys of persons who may say it from elsewhere, on the branch `site`; with none the branch isn't read.
    pub keys: Vec<SiteKey>,
    /// What says whether a change may be made now; nothing does without.
    pub hook: Option<Hook>,
    /// What is done with what doesn't run as it was applied; the fleet's word counts where it is stricter.
    pub drift: DriftPolicy,
}

/// A program of the site's that is asked before a change, and told the end of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// An absolute path, and never a shell.
    pub program: PathBuf,
    pub args: Vec<String>,
    /// How long it may take, from 1 s to 60 s; then it is killed with its process group.
    pub timeout: Duration,
}

/// The longest that nothing begins before windows close.
const LAST_START: SignedDuration = SignedDuration::from_hours(24);

/// How long a hook may take where the site doesn't say it.
const HOOK: Duration = Duration::from_secs(10);

/// The longest that a site may let it take.
const MAX_HOOK: Duration = Duration::from_secs(60);

/// The most keys of a site.
const MAX_KEYS: usize = 16;

/// The most characters of a key's name, which stands beside whatever it signed.
const MAX_KEY_NAME: usize = 50;

impl SiteGates {
    pub(super) fn make(fragment: GatesFragment, root: &Path) -> Result<Self, InvalidValue> {
        let hold = fragment.hold.map(|file| root.join(file));
        if let Some(file) = hold.as_deref().filter(|file| file.file_name().is_none()) {
            return Err(InvalidValue::at("gates.hold", format!("`{}` names no file", file.display())));
        }
        let removals = fragment.removals.as_deref().map(share).transpose()?;
        let windows = fragment.windows.map(windows).transpose()?;
        let (approval, keys) = fragment.approval.map(approval).transpose()?.unwrap_or_default();
        let hook = fragment.hook.map(hook).transpose()?;
        let drift = fragment.drift.as_deref().map(drift).transpose()?.unwrap_or_default();
        Ok(Self { hold, windows, removals, approval, keys, hook, drift })
    }
}

fn windows(
    WindowsFragment { zone, apply, downtime, fetch, talk, last_start, overrun }: WindowsFragment,
) -> Result<Windows, InvalidValue> {
    let zone = known_zone(&zone).ok_or_else(|| {
        InvalidValue::at("gates.windows.zone", format!("`{zone}` is no time zone such as Europe/Vienna"))
    })?;
    let last_start = last_start.as_deref().map(last_start_of).transpose()?.unwrap_or_default();
    let overrun = overrun.as_deref().map(overrun_of).transpose()?.unwrap_or_default();
    Ok(Windows { zone, apply, downtime: Rules::denied(downtime), fetch, talk, last_start, overrun })
}

fn last_start_of(text: &str) -> Result<SignedDuration, InvalidValue> {
    let time = text.parse().ok().filter(|time| (SignedDuration::from_secs(1)..=LAST_START).contains(time));
    let problem = || format!("`{text}` is no duration from 1s to 24h, such as 10m");
    time.ok_or_else(|| InvalidValue::at("gates.windows.lastStart", problem()))
}

fn overrun_of(text: &str) -> Result<Overrun, InvalidValue> {
    let words = || Overrun::TABLE.iter().map(|(word, _)| word.as_str()).collect::<Vec<_>>().join("`, `");
    let problem = || format!("`{text}` is none of `{}`", words());
    Overrun::parse(text).ok_or_else(|| InvalidValue::at("gates.windows.overrun", problem()))
}

/// A zone by its name, of those that this system has, else of those that this program brings along.
pub fn known_zone(name: &str) -> Option<TimeZone> {
    TimeZone::get(name).ok()
}

/// Whom is asked for what, and whose keys count. With keys alone the site asks for nothing of its own accord.
fn approval(fragment: ApprovalFragment) -> Result<(Option<AskedFor>, Vec<SiteKey>), InvalidValue> {
    let ApprovalFragment { names, except, keys } = fragment;
    let keys = keys.into_iter().map(site_key).collect::<Result<Vec<_>, _>>()?;
    if keys.len() > MAX_KEYS {
        return Err(in_keys(format!("lists {} keys, more than the {MAX_KEYS} allowed", keys.len())));
    }
    for (at, one) in keys.iter().enumerate() {
        if let Some(twice) = keys[..at].iter().find(|other| other.key == one.key || other.name == one.name) {
            return Err(in_keys(format!("`{}` has the key or the name of `{}`", one.name, twice.name)));
        }
    }
    if names.is_empty() && (keys.is_empty() || !except.is_empty()) {
        return Err(InvalidValue::at("gates.approval.for", "names no deployment: `for: [\"*\"]` means all"));
    }
    Ok(((!names.is_empty()).then_some(AskedFor { names, except }), keys))
}

fn in_keys(problem: String) -> InvalidValue {
    InvalidValue::at("gates.approval.keys", problem)
}

fn site_key(SiteKeyFragment { name, key }: SiteKeyFragment) -> Result<SiteKey, InvalidValue> {
    let is_name = !name.trim().is_empty() && name.chars().count() <= MAX_KEY_NAME && text::line(&name) == name;
    if !is_name {
        let problem = format!("a key's `name` is one visible line of 1 to {MAX_KEY_NAME} characters, such as j.doe");
        return Err(in_keys(problem));
    }
    let parsed = key.parse::<KeyText>().ok().filter(|key| key.as_str().starts_with("ssh-ed25519 "));
    let key = parsed.ok_or_else(|| {
        in_keys(format!("the key of `{name}` isn't the line of an `.pub` file that begins with `ssh-ed25519`"))
    })?;
    Ok(SiteKey { name, key })
}

fn hook(HookFragment { command, timeout }: HookFragment) -> Result<Hook, InvalidValue> {
    let mut words = command.into_iter();
    let program = words.next().map(PathBuf::from).filter(|program| program.is_absolute());
    let program = program.ok_or_else(|| {
        InvalidValue::at("gates.hook.command", "begins with the absolute path of a program; it is run without a shell")
    })?;
    let timeout = match timeout {
        None => Some(HOOK),
        Some(text) => parse_duration(&text).filter(|time| (Duration::from_secs(1)..=MAX_HOOK).contains(time)),
    };
    let timeout =
        timeout.ok_or_else(|| InvalidValue::at("gates.hook.timeout", "is a duration from 1s to 60s, such as 10s"))?;
    Ok(Hook { program, args: words.collect(), timeout })
}

fn drift(text: &str) -> Result<DriftPolicy, InvalidValue> {
    let words = || DriftPolicy::TABLE.iter().map(|(word, _)| word.as_str()).collect::<Vec<_>>().join("`, `");
    DriftPolicy::parse(text)
        .ok_or_else(|| InvalidValue::at("gates.drift", format!("`{text}` is none of `{}`", words())))
}

fn share(text: &str) -> Result<u8, InvalidValue> {
    let share = text.strip_suffix('%').and_then(|share| share.parse().ok()).filter(|share| *share < 100);
    share.ok_or_else(|| InvalidValue::at("gates.removals", format!("`{text}` is no share from 0% to 99%")))
}
