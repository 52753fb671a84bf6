//! What a site hands over of its policy to the fleet (`fromFleet` of `device.yaml`), and what comes of that.
//!
//! Nothing is handed over that isn't named, and nothing can be that makes the fleet root here without a bound of the site's: what a
//! stolen key says of any other key counts for nothing.

use std::collections::{BTreeMap, BTreeSet};

use repo_model::{IntoMap, IntoSet};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::invalid::InvalidValue;
use super::policy::{PortPolicy, SitePolicy};

/// A key of `policy` that a site may hand over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FleetKey {
    Ports,
    External,
    Capabilities,
    Devices,
}

/// What the fleet says of what is handed over, as it is written there.
pub type FromFleet = BTreeMap<FleetKey, Value>;

impl FleetKey {
    const ALL: [Self; 4] = [Self::Ports, Self::External, Self::Capabilities, Self::Devices];

    /// As it is written in `device.yaml` and by the fleet.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ports => "ports",
            Self::External => "external",
            Self::Capabilities => "capabilities",
            Self::Devices => "devices",
        }
    }

    /// What a policy says of it.
    fn of(self, policy: &SitePolicy) -> Value {
        match (self, &policy.ports) {
            (Self::Ports, PortPolicy::Any) => "any".into(),
            (Self::Ports, PortPolicy::Ranges(ranges)) => json!(ranges),
            (Self::External, _) => json!(policy.external),
            (Self::Capabilities, _) => json!(policy.capabilities),
            (Self::Devices, _) => json!(policy.devices),
        }
    }

    /// Whether somebody who may say it without a bound is root on the machine.
    fn needs_bound(self) -> bool {
        matches!(self, Self::Capabilities | Self::Devices)
    }

    fn is_bounded(self, policy: &SitePolicy) -> bool {
        match self {
            Self::Capabilities => !policy.capabilities.is_empty(),
            Self::Devices => !policy.devices.is_empty(),
            Self::Ports | Self::External => true,
        }
    }
}

/// Reads `fromFleet`, beside the policy that bounds it.
pub(super) fn read(names: &[String], policy: &SitePolicy) -> Result<BTreeSet<FleetKey>, InvalidValue> {
    let mut handed = BTreeSet::new();
    for name in names {
        let key = FleetKey::ALL.into_iter().find(|key| key.name() == name).ok_or_else(|| unknown(name))?;
        if key.needs_bound() && !key.is_bounded(policy) {
            let problem = format!(
                "`{name}` needs a bound: who may say `{name}` without one is root on this machine; write the most that the \
                 fleet may say into `policy.{name}`"
            );
            return Err(InvalidValue::at("fromFleet", problem));
        }
        handed.insert(key);
    }
    Ok(handed)
}

fn unknown(name: &str) -> InvalidValue {
    let all = FleetKey::ALL.map(FleetKey::name).join("`, `");
    let problem = match name {
        "privileged" | "hostNamespaces" | "hostPaths" => format!(
            "`{name}` can't be handed over, because who says it is root on this machine: write it into `policy` \
             yourself; what can be is `{all}`"
        ),
        _ => format!("`{name}` is none of `{all}`"),
    };
    InvalidValue::at("fromFleet", problem)
}

/// What counts of what the fleet says: what is handed over and can be read. The rest is as if it weren't said.
pub fn counting(handed: &BTreeSet<FleetKey>, said: &BTreeMap<String, Value>) -> FromFleet {
    let value = |key: &FleetKey| {
        let value = said.get(key.name())?;
        let is_readable = match key {
            FleetKey::Ports => parse::<PortPolicy>(value).is_some(),
            FleetKey::External | FleetKey::Capabilities | FleetKey::Devices => {
                parse::<BTreeSet<String>>(value).is_some()
            }
        };
        is_readable.then(|| (*key, value.clone()))
    };
    handed.iter().filter_map(value).into_map()
}

/// What the fleet says of one key, and what of that counts, for people and programs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Said {
    pub said: Value,
    pub counts: Value,
}

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { said, counts } = self;
        if said == counts { write!(f, "{counts}") } else { write!(f, "{counts} of {said}") }
    }
}

/// What the fleet says of keys that a site hands over, by their names.
pub fn shown(
    handed: &BTreeSet<FleetKey>,
    policy: &SitePolicy,
    said: &BTreeMap<String, Value>,
) -> BTreeMap<&'static str, Said> {
    let from_fleet = counting(handed, said);
    let counts = policy.with_fleet(&from_fleet);
    let one = |(key, said): (&FleetKey, &Value)| (key.name(), Said { said: said.clone(), counts: key.of(&counts) });
    from_fleet.iter().map(one).into_map()
}

fn parse<T: DeserializeOwned>(value: &Value) -> Option<T> {
    serde_json::from_value(value.clone()).ok()
}

impl SitePolicy {
    /// The policy with what the fleet says of it; where the site says something of the same key, that is the most that counts.
    pub fn with_fleet(&self, from_fleet: &FromFleet) -> Self {
        let mut policy = self.clone();
        for (key, value) in from_fleet {
            let names = || parse::<BTreeSet<String>>(value).unwrap_or_default();
            match key {
                FleetKey::Ports => {
                    policy.ports = within(&self.ports, parse(value).unwrap_or_default());
                }
                FleetKey::External if self.external.is_empty() => policy.external = names(),
                FleetKey::External => policy.external = names().intersection(&self.external).cloned().collect(),
                FleetKey::Capabilities => policy.capabilities = capabilities(&self.capabilities, names()),
                FleetKey::Devices => {
                    let is_within = |one: &String| self.devices.iter().any(|bound| covers(bound, one));
                    policy.devices = names().into_iter().filter(is_within).collect();
                }
            }
        }
        policy
    }
}

/// The ports that both allow; a site that allows none has said nothing.
fn within(site: &PortPolicy, fleet: PortPolicy) -> PortPolicy {
    match (site, fleet) {
        (PortPolicy::Any, fleet) => fleet,
        (PortPolicy::Ranges(site), fleet) if site.is_empty() => fleet,
        (site, PortPolicy::Any) => site.clone(),
        (PortPolicy::Ranges(site), PortPolicy::Ranges(fleet)) => {
            let both = |(a, b): (&(u16, u16), &(u16, u16))| (a.0.max(b.0), a.1.min(b.1));
            let pairs = site.iter().flat_map(|a| fleet.iter().map(move |b| (a, b)));
            PortPolicy::Ranges(pairs.map(both).filter(|(first, last)| first <= last).collect())
        }
    }
}

fn capabilities(site: &BTreeSet<String>, fleet: BTreeSet<String>) -> BTreeSet<String> {
    if site.contains("ALL") {
        fleet
    } else if fleet.contains("ALL") {
        site.clone()
    } else {
        fleet.intersection(site).cloned().into_set()
    }
}

/// Whether everything that the one path, or prefix, of a device means is meant by the site's.
fn covers(site: &str, fleet: &str) -> bool {
    match site.strip_suffix('*') {
        Some(prefix) => fleet.strip_suffix('*').unwrap_or(fleet).starts_with(prefix),
        None => site == fleet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(policy: Value) -> SitePolicy {
        serde_json::from_value(policy).unwrap()
    }

    fn merged(policy: Value, handed: &[&str], said: Value) -> SitePolicy {
        let policy = site(policy);
        let names: Vec<_> = handed.iter().map(|name| (*name).to_owned()).collect();
        let handed = read(&names, &policy).unwrap();
        policy.with_fleet(&counting(&handed, &serde_json::from_value(said).unwrap()))
    }

    #[test]
    fn a_stolen_key_gains_only_what_the_site_handed_over() {
        let everything = json!({
            "privileged": true, "hostNamespaces": true, "capabilities": ["ALL"], "devices": ["/dev/*", "/dev/sda"],
            "hostPaths": [{"path": "/", "writable": true}], "ports": "any", "external": ["plant"], "images": ["**"],
        });
        assert_eq!(merged(json!({}), &[], everything.clone()), site(json!({})), "nothing is handed over");
        let own = json!({"capabilities": ["NET_ADMIN"], "devices": ["/dev/ttyUSB*"], "images": ["r.plant.local/**"]});
        assert_eq!(
            merged(own.clone(), &["ports"], everything.clone()),
            SitePolicy { ports: PortPolicy::Any, ..site(own.clone()) }
        );
        let all = ["ports", "external", "capabilities", "devices"];
        let expected = SitePolicy {
            ports: PortPolicy::Any,
            external: BTreeSet::from(["plant".to_owned()]),
            devices: BTreeSet::new(),
            ..site(own.clone())
        };
        assert_eq!(merged(own, &all, everything), expected, "not a device beyond the site's");
    }

    #[test]
    fn what_the_site_says_itself_is_the_most_that_counts() {
        for (own, said, expected) in [
            (
                json!({"ports": [[8000, 8099]]}),
                json!({"ports": [[80, 80], [8090, 9000]]}),
                json!({"ports": [[8090, 8099]]}),
            ),
            (json!({"ports": [[8000, 8099]]}), json!({"ports": "any"}), json!({"ports": [[8000, 8099]]})),
            (json!({"ports": "any"}), json!({"ports": [[80, 80]]}), json!({"ports": [[80, 80]]})),
            (json!({}), json!({"ports": [[80, 80]]}), json!({"ports": [[80, 80]]})),
            (json!({"ports": [[1, 2]]}), json!({}), json!({"ports": [[1, 2]]})),
            (json!({"ports": [[1, 2]]}), json!({"ports": "all of them"}), json!({"ports": [[1, 2]]})),
            (json!({"external": ["a", "b"]}), json!({"external": ["b", "c"]}), json!({"external": ["b"]})),
            (json!({}), json!({"external": ["c"]}), json!({"external": ["c"]})),
        ] {
            assert_eq!(merged(own.clone(), &["ports", "external"], said.clone()), site(expected), "{own} {said}");
        }
        let own = json!({"devices": ["/dev/ttyUSB*", "/dev/null"], "capabilities": ["NET_ADMIN", "SYS_TIME"]});
        let said = json!({"devices": ["/dev/ttyUSB1", "/dev/tty*", "/dev/null", "/dev/null0", "*"],
            "capabilities": ["SYS_TIME", "SYS_ADMIN"]});
        let expected = json!({"devices": ["/dev/ttyUSB1", "/dev/null"], "capabilities": ["SYS_TIME"]});
        assert_eq!(merged(own, &["devices", "capabilities"], said), site(expected));
    }

    #[test]
    fn what_would_make_the_fleet_root_needs_a_bound_or_is_refused() {
        let refused = |name: &str, policy: Value| read(&[name.to_owned()], &site(policy)).unwrap_err().problem;
        for name in ["privileged", "hostNamespaces", "hostPaths"] {
            assert!(refused(name, json!({})).contains("root on this machine: write it into `policy` yourself"));
        }
        for name in ["devices", "capabilities"] {
            assert!(
                refused(name, json!({}))
                    .contains(&format!("write the most that the fleet may say into `policy.{name}`"))
            );
        }
        assert!(refused("gates", json!({})).contains("is none of `ports`, `external`, `capabilities`, `devices`"));
        assert!(refused("*", json!({})).contains("is none of"));
    }
}
