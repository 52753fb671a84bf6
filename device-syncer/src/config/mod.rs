//! Settings: what `device.yaml` may say (all optional), made whole with defaults and checked.

pub mod device;
mod duration;
pub mod from_fleet;
mod gates;
mod host;
mod invalid;
mod packed;
pub mod policy;
mod secret;
mod ssh;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use repo_model::yaml;
use serde::Deserialize;

pub use device::{Device, OwnKey};
pub use duration::parse_duration;
pub use from_fleet::{FleetKey, FromFleet, Said};
pub use gates::{Hook, SiteGates, known_zone};
pub use host::{HostSettings, Registries};
pub(crate) use packed::{packed, unpack};
pub use policy::SitePolicy;
pub use ssh::{SshIdentity, SshSettings};

use self::gates::GatesFragment;
use self::host::{HostFragment, RegistriesFragment};
use self::invalid::InvalidValue;

use crate::decision::ask::Remote;
use crate::decision::capabilities::Described;

/// The commented sample that `init` writes.
pub fn sample() -> String {
    packed!("device.sample.yaml")
}

/// The JSON Schema of the settings, for editors.
pub fn schema() -> String {
    packed!("device.schema.json")
}

/// `PATH` of child processes where nothing else is said.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The user of the sandbox where nothing else is said: systemd's table of ids leaves 60706 to 61183 to nobody.
const RESOLVE_USER: u32 = 60917;

/// How long an application's containers may take to stop where nothing else is said.
const STOP_TIMEOUT: Duration = Duration::from_secs(120);

/// The longest time that containers may be given to stop.
const MAX_STOP_TIMEOUT: Duration = Duration::from_secs(600);

/// The shortest and the longest interval that a site may set.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_hours(365 * 24);

/// How long the engine may take to pull an image where nothing else is said: 900 MB at 1 Mbit/s.
const PULL_TIMEOUT: Duration = Duration::from_hours(2);

/// Where everything of one device lies.
#[derive(Debug, Clone)]
pub struct Home {
    root: PathBuf,
}

macro_rules! places {
    ($($(#[$doc:meta])* $name:ident: $file:literal,)*) => {
        impl Home {
            $($(#[$doc])* pub fn $name(&self) -> PathBuf { self.root.join($file) })*
        }
    };
}

places! {
    /// The settings a person may edit.
    config: "device.yaml",
    /// Their JSON Schema, for editors.
    config_schema: "device.schema.json",
    /// What the device joined with: identity, address, pinned roster, first floor.
    join: "join.json",
    /// What a device that isn't joined yet said to its host, and its secret; gone once it joined.
    enrolment: "enrol.json",
    /// The key that signs `status` and `heartbeat`; never leaves the device.
    key: "status.key",
    /// The key that shall take its place, once a state that is accepted lists it; never leaves the device.
    next_key: "status.key.next",
    /// The one before, for as long as a value of what is wanted, or may be put back, is encrypted to it; it signs nothing, and
    /// never leaves the device.
    old_key: "status.key.old",
    /// How far a device came that asked for that key, and its secret.
    rekey: "rekey.json",
    /// The key with which a host is asked over SSH, where the site gives none; never leaves the device.
    ssh_key: "ssh.key",
    /// The one that shall take its place, which is offered as well.
    next_ssh_key: "ssh.key.next",
    /// The one before, which is offered as well: who lets it in isn't always the publisher.
    old_ssh_key: "ssh.key.old",
    /// The certificate with which a host is asked over HTTPS, and its key, where the join file says so and the site gives none; never
    /// leaves the device.
    certificate: "tls.pem",
    /// The one that shall take its place, with a new key that signs.
    next_certificate: "tls.pem.next",
    /// What this device answered to what the fleet asked for, one file for each number.
    answers: "answers",
    /// The key under which values that only the device knows enter input digests; never leaves the device.
    hmac_key: "hmac.key",
    /// The UUID of this installation, which tells two machines apart that use one identity.
    instance: "instance",
    /// The bare clone, which is the device's database.
    repository: "repository.git",
    /// The floor, outside the clone.
    floor: "floor",
    /// Held by a running syncer.
    lock: "lock",
    /// Held by every child process of a syncer, so that the next one sees what a killed one left behind.
    children: "children.lock",
    /// One directory for each compose project: its files, and what was resolved of them.
    projects: "projects",
    /// Archives and charts by digest; what is lost is fetched again. Beside them, which images this device put into the engine.
    cache: "cache",
    /// The account on the host: the secret in use, and the next or previous one.
    account: "account.json",
    /// Why the host can't be reached, while it can't.
    contact: "contact.json",
    /// Why the last pass failed, if it did.
    failure: "failure.json",
    /// Where a person said that the host is.
    moved: "moved.json",
    /// The newest roster that is believed, byte for byte.
    roster: "roster.json",
    /// When what failed is tried again.
    retries: "retries.json",
    /// What persons at the device hold.
    hold: "hold.json",
    /// What the site's hook let through, and wasn't told the end of yet.
    opened: "hook.json",
    /// What persons at the device said of changes.
    approvals: "approvals.json",
    /// The lists of the site that this device believed.
    site: "site.json",
    /// The removals that a person at the device approved.
    approved_removals: "approved-removals.json",
    /// What persons at the device asked to be restarted.
    restarts: "restart.json",
    /// The values of releases, for as long as helm reads them.
    helm_values: "helm-values",
    /// HOME of child processes, where nobody's own configuration is.
    child_home: "child-home",
}

impl Home {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }
}

/// How many deployments are worked on at once where the site doesn't say it.
const JOBS: usize = 2;

/// The most that a site may let be worked on at once.
const MAX_JOBS: usize = 16;

/// `device.yaml` as written; an absent key means its default.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Fragment {
    device_files: Option<PathBuf>,
    docker: Docker,
    helm: Option<HelmFragment>,
    host: HostFragment,
    registries: RegistriesFragment,
    policy: SitePolicy,
    from_fleet: Vec<String>,
    gates: GatesFragment,
    remote: Remote,
    clock: ClockFragment,
    poll: Option<String>,
    report: Option<String>,
    jobs: Option<usize>,
    max_timeout: Option<String>,
    limits: Limits,
    capabilities: Described,
    boot_id_file: Option<PathBuf>,
    path: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Docker {
    #[serde(rename = "use")]
    is_used: Option<bool>,
    program: Option<PathBuf>,
    compose: Option<PathBuf>,
    host: Option<String>,
    config: Option<String>,
    resolve_user: Option<u32>,
    stop_timeout: Option<String>,
    pull_timeout: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ClockFragment {
    rtc: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HelmFragment {
    program: Option<PathBuf>,
    kubeconfig: PathBuf,
    context: String,
    history_max: Option<u32>,
}

/// The section `helm` of `device.yaml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Helm {
    /// Helm 3 or 4; found in `PATH` unless it is a path.
    pub program: PathBuf,
    /// How the API server is reached.
    pub kubeconfig: PathBuf,
    pub context: String,
    /// How many revisions of a release are kept; at least 2.
    pub history_max: u32,
}

impl Helm {
    fn make(fragment: HelmFragment, root: &Path) -> Result<Self, InvalidValue> {
        let history_max = fragment.history_max.unwrap_or(10);
        if history_max < 2 {
            let problem =
                format!("`{history_max}` is less than 2: a release that a crash left under way goes back one");
            return Err(InvalidValue::at("helm.historyMax", problem));
        }
        if fragment.context.is_empty() {
            return Err(InvalidValue::at("helm.context", "is empty: it names a context of the kubeconfig"));
        }
        Ok(Self {
            program: fragment.program.unwrap_or_else(|| "helm".into()),
            kubeconfig: root.join(fragment.kubeconfig),
            context: fragment.context,
            history_max,
        })
    }
}

/// Bounds on what the host may make the device fetch and keep.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Limits {
    /// The largest pack, in bytes.
    pub pack_bytes: u64,
    /// The most objects in a pack.
    pub pack_objects: u32,
    /// The most packs in the clone before they are consolidated.
    pub packs: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { pack_bytes: 64 << 20, pack_objects: 100_000, packs: 30 }
    }
}

/// What the program runs with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the files for `valueFrom` lie.
    pub device_files: PathBuf,
    /// Whether compose components run here.
    pub uses_docker: bool,
    /// Found in `PATH` unless it is a path.
    pub docker: PathBuf,
    /// Compose's own program, in the place of `docker compose`; found in `PATH` unless it is a path.
    pub compose: Option<PathBuf>,
    /// The variables `DOCKER_*` that the client gets; the rest of the environment is not passed on.
    pub docker_env: Vec<(String, String)>,
    /// User and group id under which applications' files are resolved, where this program is root.
    pub resolve_user: u32,
    /// How long an application's containers may take to stop.
    pub stop_timeout: Duration,
    /// How long the engine may take to pull an image.
    pub pull_timeout: Duration,
    /// How charts are run, if they are.
    pub helm: Option<Helm>,
    pub path: String,
    pub host: HostSettings,
    pub registries: Registries,
    /// What applications may ask for here (section `policy`).
    pub policy: SitePolicy,
    /// The keys of it that the fleet may say, and whether it may say mirrors of registries.
    pub from_fleet: BTreeSet<FleetKey>,
    /// What the site lets changes wait for.
    pub gates: SiteGates,
    /// What the site lets the fleet ask for.
    pub remote: Remote,
    /// Whether windows are kept by this clock although the kernel doesn't say that it is synchronised.
    pub trusts_clock: bool,
    /// The site's own poll interval, before the fleet's.
    pub poll: Option<Duration>,
    /// The site's own report interval, before the fleet's.
    pub report: Option<Duration>,
    /// How many deployments are worked on at once, 1 to 16; one that takes longer than 2 minutes doesn't count.
    pub jobs: usize,
    /// The most that a document's `timeout` counts for.
    pub max_timeout: Duration,
    pub limits: Limits,
    /// What the device says of itself beyond what is found on it.
    pub capabilities: Described,
    /// Tells one boot from the next.
    pub boot_id_file: PathBuf,
}

/// Why the settings can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("can't read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The file isn't what the sample shows. The text has line and column.
    #[error("`{}` can't be used: {problem}", path.display())]
    Parse { path: PathBuf, problem: String },
}

impl Settings {
    /// Reads `device.yaml` of a home.
    pub fn read(home: &Home) -> Result<Self, ConfigError> {
        let path = home.config();
        let text = fs::read_to_string(&path).map_err(|source| ConfigError::Read { path: path.clone(), source })?;
        Self::parse(&text, home).map_err(|problem| ConfigError::Parse { path, problem })
    }

    /// The settings that `text` gives in this home. The problem has the line and the key of the first thing that can't be.
    pub fn parse(text: &str, home: &Home) -> Result<Self, String> {
        let (file, bytes, limits) = ("device.yaml", text.as_bytes(), &yaml::Limits::VENDOR);
        let read = yaml::deserialize(file, bytes, limits).and_then(|fragment| {
            let made = Self::make(fragment.unwrap_or_default(), home);
            made.map_err(|invalid| invalid.in_file(file, yaml::place_of(bytes, limits, &invalid.key)))
        });
        read.map_err(|problem| {
            let hint = problem.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
            format!("{problem}{hint}")
        })
    }

    fn make(fragment: Fragment, home: &Home) -> Result<Self, InvalidValue> {
        let interval = |name: &str, text: Option<String>| match text {
            None => Ok(None),
            Some(text) => match parse_duration(&text) {
                Some(duration) if (SHORTEST..=LONGEST).contains(&duration) => Ok(Some(duration)),
                _ => Err(InvalidValue::at(
                    name,
                    format!("`{text}` is not a duration of 1s at least and a year at most, like 15s, 5m or 1h"),
                )),
            },
        };
        let resolve_user = fragment.docker.resolve_user.unwrap_or(RESOLVE_USER);
        if resolve_user == 0 || resolve_user == u32::MAX {
            let problem = format!("`{resolve_user}` is not the id of a user that owns nothing, and not root");
            return Err(InvalidValue::at("docker.resolveUser", problem));
        }
        fragment.capabilities.check().map_err(|problem| InvalidValue::at("capabilities", problem))?;
        let stop_timeout = interval("docker.stopTimeout", fragment.docker.stop_timeout)?.unwrap_or(STOP_TIMEOUT);
        if stop_timeout > MAX_STOP_TIMEOUT {
            let problem = "it is at most 10m: whatever waits for the removal waits as long";
            return Err(InvalidValue::at("docker.stopTimeout", problem));
        }
        let pull_timeout = interval("docker.pullTimeout", fragment.docker.pull_timeout)?.unwrap_or(PULL_TIMEOUT);
        let jobs = fragment.jobs.unwrap_or(JOBS);
        if !(1..=MAX_JOBS).contains(&jobs) {
            return Err(InvalidValue::at("jobs", format!("`{jobs}` is not between 1 and {MAX_JOBS}")));
        }
        let registries = Registries::make(fragment.registries, home.root())?;
        let docker_env = [("DOCKER_HOST", fragment.docker.host), ("DOCKER_CONFIG", fragment.docker.config)];
        Ok(Self {
            device_files: home.root().join(fragment.device_files.unwrap_or_else(|| "device-files".into())),
            uses_docker: fragment.docker.is_used.unwrap_or(true),
            helm: fragment.helm.map(|helm| Helm::make(helm, home.root())).transpose()?,
            docker: fragment.docker.program.unwrap_or_else(|| "docker".into()),
            compose: fragment.docker.compose,
            stop_timeout,
            pull_timeout,
            docker_env: docker_env.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect(),
            resolve_user,
            path: fragment.path.unwrap_or_else(|| PATH.to_owned()),
            host: HostSettings::make(fragment.host, home)?,
            from_fleet: from_fleet::read(&fragment.from_fleet, &fragment.policy, &registries)?,
            registries,
            policy: fragment.policy,
            gates: SiteGates::make(fragment.gates, home.root())?,
            remote: fragment.remote,
            trusts_clock: fragment.clock.rtc,
            poll: interval("poll", fragment.poll)?,
            report: interval("report", fragment.report)?,
            jobs,
            max_timeout: interval("maxTimeout", fragment.max_timeout)?.unwrap_or(Duration::MAX),
            limits: fragment.limits,
            capabilities: fragment.capabilities,
            boot_id_file: fragment.boot_id_file.unwrap_or_else(|| "/proc/sys/kernel/random/boot_id".into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_is_valid_and_says_the_defaults() {
        let home = Home::new("/var/lib/device-syncer");
        let all_of_it: String =
            sample().lines().map(|line| format!("{}\n", line.strip_prefix("#: ").unwrap_or(line))).collect();
        let default = Settings::parse("", &home).unwrap();
        let sample = Settings::parse(&sample(), &home).unwrap();
        assert_eq!(format!("{sample:?}"), format!("{default:?}"));
        let full = Settings::parse(&all_of_it, &home).unwrap();
        assert_eq!((full.poll, full.max_timeout), (Some(Duration::from_secs(15)), Duration::from_secs(1800)));
        assert!(full.policy.privileged);
        let kubernetes = full.policy.kubernetes.unwrap();
        assert_eq!(
            (kubernetes.node_ports, kubernetes.cluster_scoped),
            (vec![(30000, 30100)], vec!["ClusterRole".into()])
        );
        assert_eq!(full.helm.unwrap().kubeconfig, Path::new("/var/lib/device-syncer/kubeconfig"));
    }

    fn validator() -> jsonschema::Validator {
        let schema: serde_json::Value = serde_json::from_str(&schema()).unwrap();
        assert!(jsonschema::meta::is_valid(&schema));
        jsonschema::validator_for(&schema).unwrap()
    }

    fn json(text: &str) -> serde_json::Value {
        serde_yaml::from_str(text).unwrap()
    }

    #[test]
    fn the_schema_takes_what_our_own_reading_takes() {
        let home = Home::new("/x");
        let full: String =
            sample().lines().map(|line| format!("{}\n", line.strip_prefix("#: ").unwrap_or(line))).collect();
        let bearer = "host: {bearer: {systemd: token}, proxy: {url: \"http://p\"}}\n";
        let over_ssh = "host: {sshKey: k, sshKeyPassphrase: {systemd: p}, knownHosts: [/etc/ssh/ssh_known_hosts]}\n";
        let agent = format!("host: {{sshAgent: /run/agent, pin: 'SHA256:{}'}}\n", "a".repeat(43));
        let rest = "bootIdFile: /b\npolicy: {ports: any}\ncapabilities: {labels: {a: true, b: [1, x]}}\n";
        let helm = "helm: {kubeconfig: k, context: c}\n";
        for text in ["", &sample(), &full, "poll: 1 hour 5 min\n", bearer, over_ssh, &agent, rest, helm] {
            Settings::parse(text, &home).unwrap();
            let value = json(text);
            let errors: Vec<_> = validator().iter_errors(&value).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{text}: {errors:?}");
        }
    }

    #[test]
    fn what_is_no_yaml_is_told_in_our_words() {
        for (text, words) in [
            ("poll: [15s\n", vec!["device.yaml:1:7", "`[` is not closed"]),
            ("poll: 15s\n\thost: {}\n", vec!["device.yaml:", "a tab"]),
            ("poll: 'a\n", vec!["device.yaml:2:1", "indented"]),
        ] {
            let problem = Settings::parse(text, &Home::new("/x")).unwrap_err();
            assert!(words.iter().all(|word| problem.contains(word)), "{problem}");
        }
    }

    #[test]
    fn a_mistake_is_named_with_its_line() {
        let home = Home::new("/x");
        let schema = validator();
        for (text, words) in [
            ("poll: 15s\nrepot: 5m\n", vec!["device.yaml:2:1: repot: "]),
            ("poll: soon\n", vec!["device.yaml:1:1: poll: `soon`"]),
            ("report: 5m\npoll: 0s\n", vec!["device.yaml:2:1: poll: ", "1s at least"]),
            ("poll: 9999999h\n", vec!["device.yaml:1:1: poll: ", "a year at most"]),
            ("jobs: 0\n", vec!["device.yaml:1:1: jobs: `0`"]),
            ("maxTimeout: soon\n", vec!["device.yaml:1:1: maxTimeout: `soon`"]),
            (
                "gates:\n  windows:\n    zone: Nowhere/City\n",
                vec!["device.yaml:3:5: gates.windows.zone: `Nowhere/City`"],
            ),
            ("gates: {removals: all}\n", vec!["device.yaml:1:9: gates.removals: `all`"]),
            ("gates:\n  approval:\n    for: []\n", vec!["device.yaml:3:5: gates.approval.for: "]),
            ("remote:\n  logs: ['']\n", vec!["device.yaml:2:10: remote.logs", "an empty pattern means nothing"]),
            ("remote: {logs: all}\n", vec!["device.yaml:1:10: remote.logs: "]),
            ("docker: [a]\n", vec!["device.yaml:1:1: docker: ", "expected a mapping"]),
            ("docker: {stopTimeout: 1h}\n", vec!["docker.stopTimeout", "at most 10m"]),
            ("docker: {pullTimeout: soon}\n", vec!["device.yaml:1:10: docker.pullTimeout: `soon`"]),
            ("helm: {kubeconfig: k}\n", vec!["context"]),
            ("helm: {kubeconfig: k, context: c, historyMax: 1}\n", vec!["historyMax", "less than 2"]),
            ("docker: {resolveUser: 0}\n", vec!["docker.resolveUser", "not root"]),
            ("host: {password: x}\n", vec!["password"]),
            ("host: {bearer: {file: a}, account: {user: u, password: {env: X}}}\n", vec!["exclude each other"]),
            ("host: {proxy: {url: \"http://u:p@proxy\"}}\n", vec!["proxy.url", "credential"]),
            ("host: {proxy: {url: \"http://proxy\", user: u}}\n", vec!["both"]),
            ("host: {pin: abc}\n", vec!["host.pin"]),
            ("host: {pin: 'SHA256:abc'}\n", vec!["host.pin", "ssh-keygen -l"]),
            ("host: {sshKey: k, sshAgent: a}\n", vec!["host.sshKey", "exclude each other"]),
            ("host: {sshKeyPassphrase: {file: p}}\n", vec!["host.sshKeyPassphrase", "host.sshKey"]),
            ("host: {timeouts: {stall: 1ms}}\n", vec!["stall", "100ms"]),
            ("registries: {mirrorsOnly: true}\n", vec!["mirrorsOnly", "registries.mirrors"]),
            ("registries: {mirrors: {a.example/x: [b]}}\n", vec!["registries.mirrors", "`a.example/x`", "host[:port]"]),
            ("registries: {mirrors: {a.example: []}}\n", vec!["registries.mirrors.a.example", "no mirror"]),
            ("registries: {mirrors: {a.example: [\"oci://b/c\"]}}\n", vec!["a.example", "`oci://b/c`", "host[:port]"]),
        ] {
            let problem = Settings::parse(text, &home).unwrap_err();
            // How long something takes, and which zones there are, no pattern tells.
            let is_length = ["poll: ", "timeouts", "Timeout: ", "zone: "].iter().any(|word| text.contains(word));
            assert!(!schema.is_valid(&json(text)) || is_length, "{text}");
            for word in words {
                assert!(problem.contains(word), "{word} in {problem}");
            }
        }
    }
}
