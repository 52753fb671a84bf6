//! Why a device gets what it gets: the file, line and rule behind each decision and each value.
//!
//! Pure, and over the same functions as the render, so that an explanation can't differ from what is done.

mod can_run;
mod show;

use std::collections::BTreeSet;

use repo_model::envelope::{DeploymentPolicy, IgnoredDrift, STABILISE};
use repo_model::margo::Target;
use repo_model::{DeploymentId, DeploymentName, DeviceId};
use serde::Serialize;

use crate::fleet::{
    Approval, Choice, Deployment, Device, Fleet, Place, Policy, Retired, Seconds, Selector, Setting, Windows,
    shown_source, shown_value,
};
use crate::plan::{Blocked, Code};
use crate::render::{Facts, Locks, Rendered, choose, render};

pub use can_run::{Answer, CanRun, Deployed, KnownOfDevice, ProfileFit, can_run};
pub use show::to_text;

/// One device of the fleet, with all that is known of it.
#[derive(Debug)]
pub struct DeviceContext<'a> {
    pub fleet: &'a Fleet,
    pub device: &'a Device,
    /// What is known of it from its own repository.
    pub facts: Facts<'a>,
    /// The ledger's locks, with those of the device's own tip.
    pub locks: &'a Locks,
    /// The deployments that it would get anew, or otherwise than it has them.
    pub changes: BTreeSet<DeploymentName>,
    /// Those that would be others, and that a guard holds back.
    pub held: BTreeSet<DeploymentName>,
    /// What of it can't be published.
    pub blocked: Vec<Blocked>,
    /// Why nothing is known from its repository; absent if it can be used and believed.
    pub trouble: Option<String>,
}

/// Everything about one device, or a part of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explained {
    pub device: DeviceId,
    pub file: String,
    /// Whether it shall leave everything as it is.
    pub suspended: bool,
    /// How it is taken out of service, as its file says it; absent while it is in it.
    pub retired: Option<&'static str>,
    /// Whether a key of it is known; before that nothing is published for it.
    pub enrolled: bool,
    /// Its intervals, `poll` and `report`.
    pub policy: Vec<PolicyExplained>,
    /// What it lets changes wait for; those of which something is said.
    pub gates: Vec<GateExplained>,
    /// What is said of its site's own policy; only what the site hands over counts there.
    pub site: Vec<RuleExplained>,
    /// What keeps everything that is new for it from being published.
    pub blocked: Vec<Blocked>,
    /// Why nothing is known from its repository; absent if it can be used and believed.
    pub trouble: Option<String>,
    /// Deployments that can't be used; whoever has one of them keeps it.
    pub broken: Vec<String>,
    /// The deployments that were asked for.
    pub deployments: Vec<DeploymentExplained>,
}

/// Where a part of a device's behaviour comes from.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyExplained {
    /// What it is: `poll`, `report`.
    pub name: String,
    pub seconds: u64,
    /// Everything that sets it, the strongest first; the first one counts. Empty if nothing does.
    #[serde(rename = "said")]
    pub settings: Vec<SettingExplained>,
}

/// Where a part of a device's behaviour towards one deployment, or of its site's policy, comes from.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleExplained {
    /// The key in the fleet's files: `onFailure`, `stabilise`, `drift`; of a site's policy its own, such as `ports`.
    pub name: String,
    /// What counts on the device.
    pub value: String,
    /// Everything that sets it, the strongest first; the first one counts. Empty if nothing does.
    #[serde(rename = "said")]
    pub settings: Vec<SettingExplained>,
}

/// Where something comes from that lets changes of a device wait.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GateExplained {
    /// What it is: `windows`, `approval`.
    pub name: String,
    /// Everything that sets it, the strongest first; the first one counts.
    #[serde(rename = "said")]
    pub settings: Vec<SettingExplained>,
}

/// One deployment and one device.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentExplained {
    /// The id in the fleet repository.
    pub deployment: DeploymentName,
    /// The UUID of Margo's document.
    pub deployment_id: DeploymentId,
    /// `id version` of its package.
    pub application: String,
    /// Whether the device gets it as the fleet means it now.
    pub gets: bool,
    /// Whether that, or what is new of it, can't be published.
    pub is_blocked: bool,
    /// What keeps it alone from being published.
    pub blocked: Vec<Blocked>,
    /// Which targets fit, or what excludes the device; then what is wrong.
    pub reasons: Vec<Reason>,
    /// How the device behaves towards it, if it is meant for the device.
    pub policy: Vec<RuleExplained>,
    /// The profile that is used, if the device gets it.
    pub profile: Option<Reason>,
    /// Its parameters, if the device gets it.
    pub parameters: Vec<ParameterExplained>,
}

/// Why something is as it is, and where that is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    pub text: String,
    pub place: Option<Place>,
}

/// Where the value of one parameter comes from.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ParameterExplained {
    pub name: String,
    /// The value on the device; absent if it is left out.
    pub value: Option<String>,
    /// Everything that sets it, the strongest first; the first one counts. Empty if nothing does.
    #[serde(rename = "said")]
    pub settings: Vec<SettingExplained>,
    /// Where it goes: `pointer in components`.
    pub targets: Vec<String>,
}

/// One place that sets a parameter or a part of the behaviour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SettingExplained {
    /// The value, as it is written.
    pub what: String,
    /// What kind of place it is: the device, a group, the package and so on.
    pub rule: String,
    pub place: Option<Place>,
}

impl Reason {
    fn new(text: impl Into<String>, place: Option<&Place>) -> Self {
        Self { text: text.into(), place: place.cloned() }
    }
}

/// Explains what a device gets; with a name only that deployment, also if the device doesn't get it.
pub fn explain(context: &DeviceContext<'_>, only: Option<&DeploymentName>) -> Explained {
    let DeviceContext { fleet, device, .. } = context;
    let has = |name: &DeploymentName| {
        context.facts.parent.is_some_and(|parent| parent.envelope.deployments.values().any(|one| one.id == *name))
    };
    let broken = |name: &&DeploymentName| only.map_or(has(name), |only| only == *name);
    let broken = fleet.broken.deployments.iter().filter(broken).map(ToString::to_string).collect();
    of_device(context, broken, |one| only.map_or(one.is_for(device), |name| one.id == *name))
}

/// Explains for every deployment of an application why a device doesn't get it, or that it does.
pub fn why_not(context: &DeviceContext<'_>, application: &str) -> Explained {
    // Whose application they are isn't known.
    let broken = &context.fleet.broken;
    let broken =
        broken.deployments.iter().map(ToString::to_string).chain(broken.unidentified.iter().cloned()).collect();
    of_device(context, broken, |one| one.application.description.id.as_str() == application)
}

fn of_device(context: &DeviceContext<'_>, broken: Vec<String>, is_asked: impl Fn(&Deployment) -> bool) -> Explained {
    let DeviceContext { fleet, device, facts, locks, blocked, trouble, .. } = context;
    let rendered = render(fleet, device, *facts, locks);
    let asked = fleet.deployments.values().filter(|one| is_asked(one));
    Explained {
        device: device.id.clone(),
        file: device.file.clone(),
        suspended: device.suspended,
        retired: device.retired.map(Retired::as_str),
        enrolled: device.is_enrolled(),
        policy: policy(fleet, device),
        gates: gates(fleet, device),
        site: for_site(fleet, device),
        blocked: blocked.iter().filter(|one| is_of_all(one)).cloned().collect(),
        trouble: trouble.clone(),
        broken,
        deployments: asked.map(|one| explain_deployment(context, one.on(device), &rendered)).collect(),
    }
}

/// Whether it is told of the device as a whole.
fn is_of_all(blocked: &Blocked) -> bool {
    blocked.deployment.is_none() || blocked.code.is_of_all()
}

/// Whether it keeps everything that is new from being published; a guard about removals keeps back only those.
fn holds_all(blocked: &Blocked) -> bool {
    is_of_all(blocked) && blocked.code != Code::RemovalsGuarded
}

fn policy(fleet: &Fleet, device: &Device) -> Vec<PolicyExplained> {
    let holds = device.policy_in(fleet);
    let explained = |name: &str, seconds: Option<u64>, key: fn(&Policy) -> Option<&Seconds>| {
        let settings = device.policies(fleet).filter_map(|(rule, policy)| {
            let Seconds(seconds, place) = key(policy)?;
            Some(SettingExplained { what: format!("{seconds} s"), rule, place: Some(place.clone()) })
        });
        PolicyExplained { name: name.to_owned(), seconds: seconds.unwrap_or_default(), settings: settings.collect() }
    };
    vec![
        explained("poll", holds.poll_seconds, |policy| policy.poll.as_ref()),
        explained("report", holds.report_seconds, |policy| policy.report.as_ref()),
    ]
}

fn gates(fleet: &Fleet, device: &Device) -> Vec<GateExplained> {
    let windows = device.policies(fleet).filter_map(|(rule, policy)| {
        let Windows { policy, place } = policy.windows.as_ref()?;
        Some(SettingExplained { what: policy.to_string(), rule, place: Some(place.clone()) })
    });
    let approval = device.policies(fleet).filter_map(|(rule, policy)| {
        let Approval(word, place) = policy.approval.as_ref()?;
        Some(SettingExplained { what: word.to_string(), rule, place: Some(place.clone()) })
    });
    let gate = |name: &str, settings| GateExplained { name: name.to_owned(), settings };
    let all = [gate("windows", windows.collect()), gate("approval", approval.collect())];
    all.into_iter().filter(|gate| !gate.settings.is_empty()).collect()
}

fn for_site(fleet: &Fleet, device: &Device) -> Vec<RuleExplained> {
    let explained = |(key, value): (String, serde_json::Value)| {
        let settings = device.policies(fleet).filter_map(|(rule, policy)| {
            let (value, place) = policy.site.get(key.as_str())?;
            Some(SettingExplained { what: value.to_string(), rule, place: Some(place.clone()) })
        });
        RuleExplained { settings: settings.collect(), value: value.to_string(), name: key }
    };
    device.policy_in(fleet).site.into_iter().map(explained).collect()
}

fn explain_deployment(
    context: &DeviceContext<'_>,
    deployment: &Deployment,
    rendered: &Rendered,
) -> DeploymentExplained {
    let DeviceContext { fleet, device, facts, .. } = *context;
    let id = DeploymentId::derive(fleet.settings.id, &deployment.id, &device.id);
    let description = &deployment.application.description;
    let found = rendered.deployments.get(&id);
    let retired = device.retired.map(|_| Reason::new("the device is retired, and nothing is for it", None));
    let mut reasons: Vec<_> = retired.into_iter().chain(selection(device, deployment)).collect();
    let problems = rendered.left.get(&deployment.id).into_iter().flat_map(|left| left.problems.iter());
    reasons.extend(problems.map(|problem| Reason::new(problem.to_string(), None)));
    if let (None, true, Some(parent)) = (found, deployment.is_for(device), facts.parent)
        && parent.deployments.contains_key(&id)
    {
        reasons.push(Reason::new(format!("it keeps what it has (serial {})", parent.envelope.serial), None));
    }
    if let (true, Some((index, place))) = (deployment.is_for(device), deployment.version_by(device)) {
        reasons.push(Reason::new(format!("overrides[{index}] gives it version {}", description.version), Some(place)));
    }
    if deployment.suspended {
        reasons.push(Reason::new("it is suspended: devices leave what they have of it", Some(&deployment.place)));
    }
    if let Some(Windows { policy, place }) = &deployment.policy.windows {
        reasons.push(Reason::new(format!("it has windows of its own: {policy}"), Some(place)));
    }
    if let Some(Approval(word, place)) = &deployment.policy.approval {
        reasons.push(Reason::new(format!("its own word on approval: {word}"), Some(place)));
    }
    for (name, place) in &deployment.depends_on {
        reasons.push(Reason::new(format!("it waits for `{name}`"), Some(place)));
    }
    if let Some((number, place)) = deployment.restart_on(device) {
        reasons.push(Reason::new(format!("what runs of it is restarted once for the number {number}"), Some(place)));
    }
    // Also of one that is left as it is because of a parameter: it is explained then more than ever.
    let profile = deployment.is_for(device).then(|| choose(deployment, id, facts).ok()).flatten();
    let profile = profile.map(|profile| {
        let by = match deployment.profile {
            Choice::Auto(_) => "by `auto`, kept while it fits",
            Choice::Named(_) if deployment.application.profiles.len() == 1 => "the only one",
            Choice::Named(_) => "named",
        };
        (profile, Reason::new(format!("{} ({by})", profile.description.id), Some(&profile.place)))
    });
    let parameters = profile.iter().flat_map(|(profile, _)| &profile.parameters);
    let parameters = parameters.map(|(name, targets)| parameter(fleet, device, deployment, (name, targets), rendered));
    // What is wrong in the fleet's files is among the reasons already.
    let own = |one: &&Blocked| {
        one.deployment.as_ref() == Some(&deployment.id) && !is_of_all(one) && !one.is_shown_as_problem()
    };
    let blocked: Vec<_> = context.blocked.iter().filter(own).cloned().collect();
    let is_held = context.held.contains(&deployment.id)
        || context.changes.contains(&deployment.id) && context.blocked.iter().any(holds_all);
    DeploymentExplained {
        deployment: deployment.id.clone(),
        deployment_id: id,
        application: format!("{} {}", description.id, description.version),
        gets: found.is_some(),
        is_blocked: is_held || !blocked.is_empty(),
        blocked,
        reasons,
        policy: if deployment.is_for(device) { rules(fleet, device, deployment) } else { Vec::new() },
        parameters: parameters.collect(),
        profile: profile.map(|(_, reason)| reason),
    }
}

fn listed(ignored: &[IgnoredDrift]) -> String {
    let all: Vec<_> = ignored.iter().map(ToString::to_string).collect();
    if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
}

fn rules(fleet: &Fleet, device: &Device, deployment: &Deployment) -> Vec<RuleExplained> {
    let DeploymentPolicy { on_failure, stabilise_seconds, drift, drift_ignore, .. } =
        deployment.policy_on(fleet, device);
    let explained = |name: &str, value: String, key: fn(&Policy) -> Option<(String, &Place)>| {
        let settings = deployment.policies(fleet, device).filter_map(|(rule, policy)| {
            let (what, place) = key(policy)?;
            Some(SettingExplained { what, rule, place: Some(place.clone()) })
        });
        RuleExplained { name: name.to_owned(), value, settings: settings.collect() }
    };
    let mut rules = vec![
        explained("onFailure", on_failure.to_string(), |policy| {
            policy.on_failure.as_ref().map(|(word, place)| (word.to_string(), place))
        }),
        explained("stabilise", format!("{} s", stabilise_seconds.unwrap_or(STABILISE)), |policy| {
            policy.stabilise.as_ref().map(|Seconds(seconds, place)| (format!("{seconds} s"), place))
        }),
        explained("drift", drift.to_string(), |policy| {
            policy.drift.as_ref().map(|(word, place)| (word.to_string(), place))
        }),
    ];
    // Few fleets say any.
    let ignored = explained("driftIgnore", listed(&drift_ignore), |policy| {
        policy.drift_ignore.as_ref().map(|(all, place)| (listed(all), place))
    });
    rules.extend(Some(ignored).filter(|ignored| !ignored.settings.is_empty()));
    rules
}

/// Which target means the device, or why none does.
fn selection(device: &Device, deployment: &Deployment) -> Vec<Reason> {
    let Some(target) = deployment.target(device) else {
        let lacks = |selector: &Selector| {
            let why = selector.lacks(device).unwrap_or_else(|| "it doesn't mean the device".to_owned());
            Reason::new(format!("no target: {why}"), Some(&selector.place))
        };
        return deployment.targets.iter().map(lacks).collect();
    };
    let mut reasons = vec![Reason::new("a target means the device", Some(&target.place))];
    if let Some(exclusion) = deployment.exclusion(device) {
        reasons.push(Reason::new("`exclude` takes the device out again", Some(&exclusion.place)));
    }
    reasons
}

fn parameter(
    fleet: &Fleet,
    device: &Device,
    deployment: &Deployment,
    (name, targets): (&str, &[Target]),
    rendered: &Rendered,
) -> ParameterExplained {
    let id = DeploymentId::derive(fleet.settings.id, &deployment.id, &device.id);
    let found = rendered.deployments.get(&id);
    let literal = found.and_then(|one| one.document.parameters.get(name)).map(|one| shown_value(&one.value));
    let from_device = || {
        let from = found?.envelope.values_from.get(name)?;
        Some(shown_source(&from.source))
    };
    let layers = fleet.layers(deployment, device);
    let settings = layers.of(name).map(|(rule, given)| {
        let what = match &given.setting {
            Setting::Literal(value) => shown_value(value),
            Setting::Template(template) => format!("template {}", template.source()),
            Setting::DeviceFile(file) => format!("file {file} of the device"),
            Setting::Encrypted(name) => format!("secret {name}"),
        };
        SettingExplained { what, rule: rule.to_string(), place: Some(given.place.clone()) }
    });
    let application = &deployment.application;
    let default = application.description.parameters.get(name).and_then(|one| one.default.as_ref());
    let default = default.map(|value| SettingExplained {
        what: shown_value(value),
        rule: crate::fleet::Rule::Package.to_string(),
        place: application.default_place(name).cloned(),
    });
    let shown = |target: &Target| {
        let components: Vec<_> = target.components.iter().map(|name| name.as_str()).collect();
        format!("{} in {}", target.pointer, components.join(", "))
    };
    ParameterExplained {
        name: name.to_owned(),
        value: literal.or_else(from_device),
        settings: settings.chain(default).collect(),
        targets: targets.iter().map(shown).collect(),
    }
}
