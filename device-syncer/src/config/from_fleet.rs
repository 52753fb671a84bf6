//! What a site hands over of its policy to the fleet (`fromFleet` of `device.yaml`), and what comes of that.
//!
//! Nothing is handed over that isn't named, and nothing can be that makes the fleet root here without a bound of the site's: what a
//! stolen key says of any other key counts for nothing. Of registries it may say where mirrors are: what comes from there is held
//! against the digest, and the site's passwords, authorities and tags' meanings are none of its business.

use std::collections::{BTreeMap, BTreeSet};

use repo_artifacts::{Mirror, Mirrors};
use repo_model::envelope::{MAX_MIRROR_NAME, MAX_MIRRORED, MAX_MIRRORS};
use repo_model::{IntoMap, IntoSet};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Settings;
use super::host::{Registries, mirrors};
use super::invalid::InvalidValue;
use super::policy::{PortPolicy, SitePolicy};

/// A key of `policy` that a site may hand over; `registries` is of `device.yaml` itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FleetKey {
    Capabilities,
    Devices,
    External,
    Ports,
    Registries,
}

/// What the fleet says of what is handed over, as it is written there.
pub type FromFleet = BTreeMap<FleetKey, Value>;

impl FleetKey {
    const ALL: [Self; 5] = [Self::Ports, Self::External, Self::Capabilities, Self::Devices, Self::Registries];

    /// As it is written in `device.yaml` and by the fleet.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ports => "ports",
            Self::External => "external",
            Self::Capabilities => "capabilities",
            Self::Devices => "devices",
            Self::Registries => "registries",
        }
    }

    /// Where the site itself says it in `device.yaml`.
    pub fn place(self) -> String {
        let section = if self == Self::Registries { "" } else { "policy." };
        format!("{section}{}", self.name())
    }

    /// What counts of what the fleet says of it: what the policy says that has been merged with that, or of registries the mirrors.
    fn counts(self, policy: &SitePolicy, registries: &Registries, said: &Value) -> Value {
        match (self, &policy.ports) {
            (Self::Ports, PortPolicy::Any) => "any".into(),
            (Self::Ports, PortPolicy::Ranges(ranges)) => json!(ranges),
            (Self::External, _) => json!(policy.external),
            (Self::Capabilities, _) => json!(policy.capabilities),
            (Self::Devices, _) => json!(policy.devices),
            (Self::Registries, _) => {
                let texts = |all: Vec<Mirror>| all.iter().map(ToString::to_string).collect::<Vec<_>>();
                let of = registries.counting(policy, said).into_iter().map(|(host, all)| (host, texts(all)));
                json!({"mirrors": of.into_map()})
            }
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
            Self::Ports | Self::External | Self::Registries => true,
        }
    }
}

/// Reads `fromFleet`, beside the site's own words that bound it.
pub(super) fn read(
    names: &[String],
    policy: &SitePolicy,
    registries: &Registries,
) -> Result<BTreeSet<FleetKey>, InvalidValue> {
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
        if key == FleetKey::Registries && registries.mirrors.only {
            let problem = "`registries` can't be handed over beside `registries.mirrorsOnly`, by which a mirror is believed \
                for what a tag means: leave one of them out";
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
            FleetKey::Registries => mirrors_said(value).is_some(),
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

/// What the fleet says of keys that a site hands over.
pub fn shown(settings: &Settings, said: &BTreeMap<String, Value>) -> BTreeMap<FleetKey, Said> {
    let from_fleet = counting(&settings.from_fleet, said);
    let policy = settings.policy.with_fleet(&from_fleet);
    let one = |(key, said): (FleetKey, Value)| {
        let counts = key.counts(&policy, &settings.registries, &said);
        (key, Said { said, counts })
    };
    from_fleet.into_iter().map(one).into_map()
}

/// The mirrors that a fleet names, if that can be read: nothing else that it says of registries is.
fn mirrors_said(said: &Value) -> Option<BTreeMap<String, Vec<Mirror>>> {
    let said: BTreeMap<String, Vec<String>> = parse(said.get("mirrors")?)?;
    let is_within = |(registry, all): (&String, &Vec<String>)| {
        all.len() <= MAX_MIRRORS && all.iter().chain([registry]).all(|name| name.len() <= MAX_MIRROR_NAME)
    };
    let is_read = said.len() <= MAX_MIRRORED && said.iter().all(is_within);
    mirrors(said, false).ok().filter(|_| is_read).map(|all| all.of)
}

fn parse<T: DeserializeOwned>(value: &Value) -> Option<T> {
    serde_json::from_value(value.clone()).ok()
}

impl Settings {
    /// The mirrors of registries: the site's, and what counts of what the fleet says.
    pub fn mirrors(&self, from_fleet: &FromFleet) -> Mirrors {
        let mut mirrors = self.registries.mirrors.clone();
        if let Some(said) = from_fleet.get(&FleetKey::Registries) {
            mirrors.of.extend(self.registries.counting(&self.policy, said));
        }
        mirrors
    }
}

impl Registries {
    /// What counts of the mirrors that the fleet names: those of registries of which the site names none itself, which are asked
    /// with TLS unless they are on this machine, and where the site lets images, archives and charts come from. Else what
    /// a stolen key locks would come from anywhere under a name that the site admits.
    fn counting(&self, policy: &SitePolicy, said: &Value) -> BTreeMap<String, Vec<Mirror>> {
        let counts = |one: &Mirror| {
            let has_tls = one.is_loopback() || !self.plain_http.iter().any(|host| host == one.host());
            has_tls && policy.admits_all_below(&one.to_string())
        };
        let of_registry = |(registry, mirrors): (String, Vec<Mirror>)| {
            let counting: Vec<_> = mirrors.into_iter().filter(counts).collect();
            (!counting.is_empty() && !self.mirrors.of.contains_key(&registry)).then_some((registry, counting))
        };
        mirrors_said(said).unwrap_or_default().into_iter().filter_map(of_registry).into_map()
    }
}

impl SitePolicy {
    /// Whether the site lets whatever is below a place, `host[:port]` and a path, come from there.
    fn admits_all_below(&self, place: &str) -> bool {
        let all = [(&self.images, ""), (&self.archives, "oci://"), (&self.charts, "oci://")];
        all.into_iter().all(|(patterns, scheme)| {
            let name = format!("{scheme}{place}/");
            patterns.as_ref().is_none_or(|patterns| patterns.iter().any(|one| one.means_all_below(&name)))
        })
    }

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
                FleetKey::Registries => {}
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
    use super::super::Home;
    use super::*;

    fn site(policy: Value) -> SitePolicy {
        serde_json::from_value(policy).unwrap()
    }

    fn merged(policy: Value, handed: &[&str], said: Value) -> SitePolicy {
        let policy = site(policy);
        let names: Vec<_> = handed.iter().map(|name| (*name).to_owned()).collect();
        let handed = read(&names, &policy, &Registries::default()).unwrap();
        policy.with_fleet(&counting(&handed, &serde_json::from_value(said).unwrap()))
    }

    fn read_beside(name: &str, policy: &SitePolicy) -> Result<BTreeSet<FleetKey>, InvalidValue> {
        read(&[name.to_owned()], policy, &Registries::default())
    }

    /// The mirrors that count where a site hands them over and says this besides.
    fn mirrors_counting(site: &str, said: Value) -> Value {
        let settings = Settings::parse(&format!("fromFleet: [registries]\n{site}"), &Home::new("/x")).unwrap();
        let said = BTreeMap::from([("registries".to_owned(), said)]);
        let mirrors = settings.mirrors(&counting(&settings.from_fleet, &said));
        let shown = shown(&settings, &said).remove(&FleetKey::Registries).map(|said| said.counts);
        let texts = |all: &Vec<Mirror>| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        let all: BTreeMap<_, _> = mirrors.of.iter().map(|(of, all)| (of.clone(), texts(all))).collect();
        let own = settings.registries.mirrors.of;
        let of_fleet: BTreeMap<_, _> = all.iter().filter(|(of, _)| !own.contains_key(*of)).collect();
        assert_eq!(shown.unwrap_or(json!({"mirrors": {}})), json!({"mirrors": of_fleet}), "what counts is shown");
        json!(all)
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
        let refused = |name: &str, policy: Value| read_beside(name, &site(policy)).unwrap_err().problem;
        let all = ["ports", "external", "registries"];
        assert!(all.into_iter().all(|name| read_beside(name, &site(json!({}))).is_ok()));
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

    #[test]
    fn a_stolen_key_may_name_mirrors_of_registries_of_which_the_site_names_none_and_nothing_else_of_them() {
        let said = json!({
            "mirrors": {"docker.io": ["m.plant.local:5000/vendor", "evil.example"], "r.example": ["evil.example"]},
            "plainHttp": ["evil.example"], "accounts": {"evil.example": {"user": "a", "password": "b"}}, "mirrorsOnly": true,
        });
        let both = json!({"docker.io": ["m.plant.local:5000/vendor", "evil.example"], "r.example": ["evil.example"]});
        assert_eq!(mirrors_counting("", said.clone()), both);
        let own = "registries: {mirrors: {r.example: [own.plant.local]}}\n";
        let expected =
            json!({"docker.io": ["m.plant.local:5000/vendor", "evil.example"], "r.example": ["own.plant.local"]});
        assert_eq!(mirrors_counting(own, said.clone()), expected, "the site has the last word");
        let settings = Settings::parse(own, &Home::new("/x")).unwrap();
        let said = BTreeMap::from([("registries".to_owned(), said)]);
        assert_eq!(
            settings.mirrors(&counting(&settings.from_fleet, &said)),
            settings.registries.mirrors,
            "nothing is handed over"
        );
    }

    #[test]
    fn a_mirror_of_the_fleets_counts_with_tls_or_on_this_machine_and_where_the_site_lets_things_come_from() {
        let said = |mirror: &str| json!({"mirrors": {"r.example": [mirror, "127.0.0.1:5000"]}});
        let clear = "registries: {plainHttp: [\"m.plant.local:5000\", \"127.0.0.1:5000\"]}\n";
        let this_machine = json!({"r.example": ["127.0.0.1:5000"]});
        assert_eq!(mirrors_counting(clear, said("m.plant.local:5000/x")), this_machine);
        assert_eq!(
            mirrors_counting(clear, said("m.plant.local/x")),
            json!({"r.example": ["m.plant.local/x", "127.0.0.1:5000"]})
        );
        let here = json!({"r.example": ["m.plant.local/x"]});
        for (policy, counts) in [
            ("{images: [\"m.plant.local/**\"]}", true),
            ("{images: [\"r.example/**\", \"m.plant.local/x/**\"]}", true),
            ("{images: [\"**\"], archives: [\"oci://m.plant.local/x/**\"], charts: [\"oci://m.plant.local**\"]}", true),
            ("{images: [\"r.example/**\"]}", false),
            ("{archives: [\"oci://r.example/**\"]}", false),
            ("{charts: []}", false),
            ("{images: [\"**\"], archives: [\"m.plant.local/**\"]}", false),
            ("{images: [\"m.plant.local/x/*\", \"m.plant.local/x/y/**\", \"m.plant.local/x\"]}", false),
        ] {
            let policy = format!("policy: {policy}\n");
            let found = mirrors_counting(&policy, json!({"mirrors": {"r.example": ["m.plant.local/x"]}}));
            assert_eq!(found, if counts { here.clone() } else { json!({}) }, "{policy}");
        }
    }

    #[test]
    fn mirrors_that_can_not_be_read_or_are_too_many_or_too_long_are_as_if_none_was_named() {
        let many = |count: usize| (0..count).map(|one| (format!("r{one}.example"), json!(["m.example"]))).into_map();
        let full = |count: usize| mirrors_counting("", json!({"mirrors": many(count)})).as_object().unwrap().len();
        assert_eq!((full(MAX_MIRRORED), full(MAX_MIRRORED + 1)), (MAX_MIRRORED, 0));
        let length = |length: usize| json!(["m".repeat(length)]);
        let of = |mirrors: Value| mirrors_counting("", json!({"mirrors": {"r.example": mirrors}}));
        for good in [json!(["a", "b", "c", "d"]), length(MAX_MIRROR_NAME)] {
            assert_eq!(of(good.clone()), json!({"r.example": good}));
        }
        let bad =
            [json!([]), json!(["a", "b", "c", "d", "e"]), length(MAX_MIRROR_NAME + 1), json!(["oci://a"]), json!("a")];
        for bad in
            bad.into_iter().chain([json!([7]), json!(null), json!(["a/../b"]), json!(["user@a"]), json!(["a b"])])
        {
            assert_eq!(of(bad.clone()), json!({}), "{bad}");
        }
        for bad in [json!({}), json!([]), json!("any"), json!({"mirrors": []}), json!({"mirrors": {"a/b": ["c"]}})] {
            assert_eq!(mirrors_counting("", bad.clone()), json!({}), "{bad}");
        }
    }

    #[test]
    fn where_the_sites_mirrors_stand_for_registries_the_fleet_names_none() {
        let text = "fromFleet: [registries]\nregistries: {mirrors: {r.example: [m.example]}, mirrorsOnly: true}\n";
        let problem = Settings::parse(text, &Home::new("/x")).unwrap_err();
        assert!(problem.contains("device.yaml:1:1") && problem.contains("`registries.mirrorsOnly`"), "{problem}");
    }
}
