//! `rollout` of `fleet.yaml` and of a deployment: how a change reaches the devices that run something already.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use repo_model::DeviceId;
use repo_model::yaml::{Field, Value};
use serde::{Deserialize, Serialize};

use super::{Device, labels};
use crate::duration;

/// What a fleet or a deployment says of how changes reach its devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RolloutRule {
    /// By this policy.
    Waves(RolloutPolicy),
    /// `none`: with the next `publish`, to everybody.
    AtOnce,
}

/// How a change reaches devices wave by wave. A record in `control.git` keeps the one that it began with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutPolicy {
    /// The waves in order, and where a person has to agree; everybody else is the last wave.
    pub waves: Vec<WaveSpec>,
    /// How long a device must stay healthy, in seconds.
    pub bake: u64,
    /// How much of a wave must be updated before the next one; at least one device.
    pub success_threshold: Percent,
    /// How many of all released devices may fail: a share is rounded down.
    pub max_failures: Amount,
    /// How long a device may make no progress once it adopted the change, in seconds.
    pub timeout: u64,
    /// How long a device may say nothing, in seconds.
    pub offline_after: u64,
    /// How many of some devices may be changed at the same time; absent means that nothing bounds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption_budget: Option<DisruptionBudget>,
}

/// An item of `waves`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum WaveSpec {
    /// So many devices in all so far; a share is rounded up.
    Total(Amount),
    /// The devices that have all of these labels.
    #[serde(rename_all = "camelCase")]
    Labels { match_labels: BTreeMap<String, String> },
    /// These devices.
    Devices { devices: BTreeSet<DeviceId> },
    /// A person has to agree to the wave that follows.
    Approve(ApproveWord),
}

/// `approve`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApproveWord {
    Approve,
}

/// A number of devices, or a share of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Amount {
    Count(u32),
    Share(Percent),
}

/// 0 % to 100 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Percent(u8);

/// At most so many devices of a group are between their release and `updated`, over all rollouts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DisruptionBudget {
    /// Labels: devices that have the same values of them are a group. A device that lacks one is in none.
    pub group_by: Vec<String>,
    pub max_unavailable: u32,
}

impl Default for RolloutPolicy {
    fn default() -> Self {
        Self {
            waves: vec![WaveSpec::Total(Amount::Count(1)), WaveSpec::Total(Amount::Share(Percent(10)))],
            bake: 300,
            success_threshold: Percent(50),
            max_failures: Amount::Share(Percent(2)),
            timeout: 3600,
            offline_after: 3600,
            disruption_budget: None,
        }
    }
}

impl RolloutPolicy {
    /// The group of a device whose changes are bounded; `None` if nothing bounds them.
    pub fn group_of(&self, device: &Device) -> Option<Vec<String>> {
        let budget = self.disruption_budget.as_ref()?;
        budget.group_by.iter().map(|label| device.labels.get(label).cloned()).collect()
    }
}

impl WaveSpec {
    /// Whether it names this device, by its labels or its id; a number names nobody.
    pub fn names(&self, device: &Device) -> bool {
        match self {
            Self::Labels { match_labels } => {
                match_labels.iter().all(|(key, value)| device.labels.get(key) == Some(value))
            }
            Self::Devices { devices } => devices.contains(&device.id),
            Self::Total(_) | Self::Approve(_) => false,
        }
    }
}

impl Amount {
    /// So many of `all`, a share rounded up.
    pub fn rounded_up(self, all: usize) -> usize {
        match self {
            Self::Count(count) => count as usize,
            Self::Share(share) => share.rounded_up(all),
        }
    }

    /// So many of `all`, a share rounded down.
    pub fn rounded_down(self, all: usize) -> usize {
        match self {
            Self::Count(count) => count as usize,
            Self::Share(Percent(percent)) => all * usize::from(percent) / 100,
        }
    }
}

impl Percent {
    /// So many of `all`, rounded up.
    pub fn rounded_up(self, all: usize) -> usize {
        (all * usize::from(self.0)).div_ceil(100)
    }
}

/// The text is no share.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a share: write 0% to 100%")]
pub struct InvalidPercent(String);

impl FromStr for Percent {
    type Err = InvalidPercent;

    fn from_str(text: &str) -> Result<Self, InvalidPercent> {
        let digits = text.strip_suffix('%').filter(|digits| digits.bytes().all(|c| c.is_ascii_digit()));
        let percent = digits.and_then(|digits| digits.parse().ok()).filter(|percent| *percent <= 100);
        percent.map(Self).ok_or_else(|| InvalidPercent(text.chars().take(50).collect()))
    }
}

impl TryFrom<String> for Percent {
    type Error = InvalidPercent;

    fn try_from(text: String) -> Result<Self, InvalidPercent> {
        text.parse()
    }
}

impl From<Percent> for String {
    fn from(percent: Percent) -> Self {
        percent.to_string()
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

/// The most waves of one policy.
const MAX_WAVES: usize = 50;

pub(super) fn read(field: Field<'_>) -> Option<RolloutRule> {
    if field.node().text() == Some("none") {
        return field.string().map(|_| RolloutRule::AtOnce);
    }
    if matches!(field.node().value, Value::Scalar(_)) {
        return field.fail_hint("is neither `none` nor a mapping", "`rollout: {}` means all that is built in");
    }
    let standard = RolloutPolicy::default();
    let policy = field.mapping(|reader| {
        let waves = reader.optional("waves", waves);
        let bake = reader.optional("bake", duration::read);
        let success_threshold = reader.optional("successThreshold", Field::parse);
        let max_failures = reader.optional("maxFailures", |field| amount(field, 0));
        let timeout = reader.optional("timeout", duration::read);
        let offline_after = reader.optional("offlineAfter", duration::read);
        let disruption_budget = reader.optional("disruptionBudget", budget);
        Some(RolloutPolicy {
            waves: waves.unwrap_or(standard.waves),
            bake: bake.unwrap_or(standard.bake),
            success_threshold: success_threshold.unwrap_or(standard.success_threshold),
            max_failures: max_failures.unwrap_or(standard.max_failures),
            timeout: timeout.unwrap_or(standard.timeout),
            offline_after: offline_after.unwrap_or(standard.offline_after),
            disruption_budget,
        })
    })?;
    Some(RolloutRule::Waves(policy))
}

fn waves(field: Field<'_>) -> Option<Vec<WaveSpec>> {
    let whole = field.clone();
    let waves = field.list(wave)?;
    let is_wave = |spec: &WaveSpec| !matches!(spec, WaveSpec::Approve(_));
    if !waves.iter().any(is_wave) {
        return whole.fail_hint("has no wave before the last one", "begin with `1`; `rollout: none` is all at once");
    }
    if waves.len() > MAX_WAVES {
        return whole.fail(format!("has {} items, and {MAX_WAVES} at most", waves.len()));
    }
    Some(waves)
}

fn wave(field: Field<'_>) -> Option<WaveSpec> {
    if field.node().text() == Some("approve") {
        return Some(WaveSpec::Approve(ApproveWord::Approve));
    }
    if !matches!(field.node().value, Value::Mapping(_)) {
        return amount(field, 1).map(WaveSpec::Total);
    }
    let whole = field.clone();
    field.mapping(|reader| {
        let by_labels = reader.has("matchLabels");
        let match_labels = reader.optional("matchLabels", labels::read);
        let devices = reader.optional("devices", |field| {
            let all = field.clone().list(Field::parse::<DeviceId>)?;
            if all.is_empty() { field.fail("names no device") } else { Some(all.into_iter().collect()) }
        });
        match (by_labels, reader.has("devices")) {
            (true, false) => Some(WaveSpec::Labels { match_labels: match_labels? }),
            (false, true) => Some(WaveSpec::Devices { devices: devices? }),
            _ => whole.fail_hint("has to have either `matchLabels` or `devices`", "both are two waves"),
        }
    })
}

/// A number from `least` on, or a share.
fn amount(field: Field<'_>, least: u32) -> Option<Amount> {
    let hint = "write a number of devices, or a share such as 10%";
    match field.node().text() {
        Some(text) if text.ends_with('%') => {
            let share: Percent = field.clone().parse()?;
            match Amount::Share(share) {
                amount if least == 0 || share > Percent(0) => Some(amount),
                _ => field.fail_hint("must not be nothing", hint),
            }
        }
        _ => match field.clone().integer::<u32>()? {
            count if count >= least => Some(Amount::Count(count)),
            _ => field.fail_hint(format!("must be {least} or more"), hint),
        },
    }
}

fn budget(field: Field<'_>) -> Option<DisruptionBudget> {
    field.mapping(|reader| {
        let group_by = reader.required("groupBy", |field| {
            let all = field.clone().list(|field| {
                let text = field.clone().string()?;
                if labels::is_label_key(&text) {
                    Some(text)
                } else {
                    field.fail(format!("`{text}` is not a label's name: letters, digits and inner `. _ - /`"))
                }
            })?;
            if all.is_empty() { field.fail("names no label") } else { Some(all) }
        });
        let max_unavailable = reader.required("maxUnavailable", |field| match field.clone().integer::<u32>()? {
            0 => field.fail_hint("must be 1 or more", "nothing would ever be released; `paused: true` says that"),
            count => Some(count),
        });
        Some(DisruptionBudget { group_by: group_by?, max_unavailable: max_unavailable? })
    })
}

#[cfg(test)]
mod tests {
    use repo_model::yaml::{Strictness, read as read_yaml};

    use super::*;

    fn read(text: &str) -> Result<RolloutRule, String> {
        let found = read_yaml("fleet.yaml", text.as_bytes(), Strictness::Fleet, super::read);
        found.map(|(rule, _)| rule).map_err(|problems| problems.to_string())
    }

    #[test]
    fn what_is_left_out_is_built_in() {
        assert_eq!(read("{}"), Ok(RolloutRule::Waves(RolloutPolicy::default())));
        assert_eq!(read("none"), Ok(RolloutRule::AtOnce));
        let all = "{waves: [1, 10%], bake: 5m, successThreshold: 50%, maxFailures: 2%, timeout: 1h, offlineAfter: 1h}";
        assert_eq!(read(all), read("{}"));
    }

    #[test]
    fn a_record_keeps_a_policy_as_it_was_written() {
        let text = "{waves: [1, approve, {matchLabels: {site: graz}}, {devices: [press-07]}, 10%], maxFailures: 3, \
                    disruptionBudget: {groupBy: [line], maxUnavailable: 1}}";
        let Ok(RolloutRule::Waves(policy)) = read(text) else { panic!("{:?}", read(text)) };
        let json = serde_json::to_string(&policy.waves).unwrap();
        assert_eq!(json, r#"[1,"approve",{"matchLabels":{"site":"graz"}},{"devices":["press-07"]},"10%"]"#);
        let kept = serde_json::to_vec(&policy).unwrap();
        assert_eq!(serde_json::from_slice::<RolloutPolicy>(&kept).unwrap(), policy);
    }

    #[test]
    fn what_can_not_be_is_refused_with_its_key_and_what_to_do() {
        for (text, said) in [
            ("soon", "is neither `none` nor a mapping"),
            ("{waves: []}", "has no wave before the last one"),
            ("{waves: [approve]}", "has no wave before the last one"),
            ("{waves: [0]}", "waves[0]"),
            ("{waves: [101%]}", "`101%` is not a share"),
            ("{waves: [0%]}", "must not be nothing"),
            ("{waves: [{matchLabels: {a: b}, devices: [c]}]}", "has to have either `matchLabels` or `devices`"),
            ("{waves: [{}]}", "has to have either `matchLabels` or `devices`"),
            ("{bake: 5}", "bake"),
            ("{bakes: 5m}", "bakes"),
            ("{successThreshold: half}", "is not a share"),
            ("{disruptionBudget: {groupBy: [line], maxUnavailable: 0}}", "must be 1 or more"),
            ("{disruptionBudget: {groupBy: [], maxUnavailable: 1}}", "names no label"),
            ("{disruptionBudget: {maxUnavailable: 1}}", "groupBy"),
        ] {
            let found = read(text).expect_err(text);
            assert!(found.contains(said), "{text}: {found}");
        }
    }

    #[test]
    fn waves_are_rounded_up_and_failures_down() {
        let share = |percent| Amount::Share(Percent(percent));
        assert_eq!([9, 10, 11, 412].map(|all| share(10).rounded_up(all)), [1, 1, 2, 42]);
        assert_eq!([0, 49, 50, 99, 100].map(|all| share(2).rounded_down(all)), [0, 0, 1, 1, 2]);
        assert_eq!((Amount::Count(3).rounded_up(1), Amount::Count(0).rounded_down(100)), (3, 0));
        assert_eq!((Percent(50).rounded_up(1), Percent(50).rounded_up(42)), (1, 21));
    }
}
