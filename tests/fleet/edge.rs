//! A device that runs a chart, and what must come of whatever cut it off.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use repo_model::DeploymentId;
use repo_testkit::cluster::{Cluster, Revision};
use repo_testkit::invariants::World;
use repo_testkit::{chart, git, program};
use tempfile::TempDir;

use crate::site::registry_name;
use repo_testkit::device::Device;
use repo_testkit::fleet::{DEPLOYMENT, Fleet};
use repo_testkit::registry;

const DEVICE: &str = "press-01";

const APPLICATION: &str = "id: settings
metadata: {name: Settings, version: 1.0.0}
deploymentProfiles:
  - id: cluster
    type: helm
    components: [{name: settings, properties: {repository: \"CHART\", revision: 1.0.0, timeout: 1m}}]
parameters:
  greeting: {value: hello, targets: [{pointer: greeting, components: [settings]}]}
  hooks:
    targets:
      - {pointer: hooks.pre-install, components: [settings]}
      - {pointer: hooks.pre-upgrade, components: [settings]}
      - {pointer: hooks.post-delete, components: [settings]}
";

const OBJECT: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}}
data: {greeting: {{ quote .Values.greeting }}}
";

/// In helm's place: a call that changes a release is written down with its end, and is a point at which the power can be
/// cut, also while helm works (`during`: once the API shows that it does).
const WRAPPER: &str = r#"
verb=$1
reach() {
    [ ! -e "$dir/trace" ] || echo "helm.$verb $1" >>"$dir/trace"
    [ "$(cat "$dir/cut" 2>/dev/null)" = "helm.$verb:$1:1" ]
}
cut() { rm "$dir/cut" && exec "$power_cut" "$volume" "$PPID"; }
under_way() { $kubectl get secrets -n "$namespace" -l "status in ($states)" -o name; }
case $verb in
upgrade) states=pending-install,pending-upgrade ;;
uninstall) states=uninstalling ;;
rollback) states=pending-rollback ;;
*) exec "$helm" "$@" ;;
esac
echo "$verb" >>"$dir/calls"
! reach before || cut
if [ "$(cat "$dir/cut" 2>/dev/null)" = "helm.$verb:during:1" ]; then
    "$helm" "$@" &
    until under_way | grep -q .; do kill -0 $! || exit 1; done
    kill -9 $!
    cut
fi
"$helm" "$@"
code=$?
echo "$verb $code" >>"$dir/calls"
! reach after || cut
exit $code
"#;

/// What a pass is to do when it is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    Install,
    Change,
    Remove,
}

pub(crate) const DEEDS: [Deed; 3] = [Deed::Install, Deed::Change, Deed::Remove];

impl Deed {
    /// What `status` tells of it, each once and in this order, after what it told last.
    fn transitions(self, last: Option<&String>) -> Vec<String> {
        let from = last.map_or("none", |last| last.rsplit(' ').next().unwrap_or_default());
        match self {
            Self::Install | Self::Change => {
                let pending = format!("{from} > pending queued");
                vec![pending, "pending > installing".to_owned(), "installing > installed".to_owned()]
            }
            Self::Remove => vec![format!("{from} > removing"), "removing > removed".to_owned()],
        }
    }
}

/// A device whose home is below `root`, with one chart at most; everything else is on other machines.
pub(crate) struct Edge {
    dir: TempDir,
    fleet: Fleet,
    pub(crate) device: Device,
    cluster: Cluster,
    pub(crate) root: PathBuf,
    release: String,
}

impl Edge {
    /// A device with nothing to run.
    pub(crate) fn new(helm: &str, root: &Path) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let name = registry_name(dir.path());
        let fleet = Fleet::init(dir.path(), &name);
        let chart = format!("{name}/charts/settings");
        let hooks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/charts/web/templates/hooks.yaml");
        let hooks = std::fs::read_to_string(hooks).expect("a template");
        let files =
            [("values.yaml", "hooks: {}\n"), ("templates/object.yaml", OBJECT), ("templates/hooks.yaml", &hooks)];
        chart::push(&registry(), &chart, "1.0.0", &chart::pack("settings", "1.0.0", &files), None);
        let chart = format!("oci://{}/{chart}", registry());
        fleet.write("applications/settings/1.0.0/margo.yaml", &APPLICATION.replace("CHART", &chart));
        std::fs::remove_file(fleet.dir().join(DEPLOYMENT)).expect("removed");
        fleet.commit("a chart, and nothing that runs yet");
        let cluster = Cluster::new(helm, format!("crash-{name}"));
        let device = Device::with_docker(&fleet, DEVICE, root, "{use: false}");
        let release = release(&fleet);
        let edge = Self { dir, fleet, device, cluster, root: root.to_owned(), release };
        // Packs are put together in the tests of compose.
        edge.device.set("limits", "{packs: 1000}");
        edge.device.set("helm", &edge.cluster.settings(&edge.wrap()));
        edge.fleet.run(&["publish"]);
        edge.assert_converges("at first");
        edge
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Puts the script in helm's place.
    fn wrap(&self) -> PathBuf {
        let kubectl = self.cluster.kubectl([""; 0]);
        let kubectl = [kubectl.get_program()].into_iter().chain(kubectl.get_args()).map(|word| word.to_string_lossy());
        let variables = [
            ("dir", self.dir.path().display().to_string()),
            ("volume", self.root.display().to_string()),
            ("namespace", self.cluster.namespace().to_owned()),
            ("helm", self.cluster.program().display().to_string()),
            ("kubectl", kubectl.collect::<Vec<_>>().join(" ")),
            ("power_cut", program("power-cut").display().to_string()),
        ];
        let head: String = variables.iter().map(|(name, value)| format!("{name}='{value}'\n")).collect();
        let path = self.path("helm");
        std::fs::write(&path, format!("#!/bin/sh\n{head}{WRAPPER}")).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).expect("set");
        path
    }

    /// The calls of helm that change something, each with its end if it came to one.
    fn calls(&self) -> Vec<String> {
        let calls = std::fs::read_to_string(self.path("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }

    /// The states that the host was told, from one to another, in their order; those of the deployment as a whole left out.
    fn told(&self) -> Vec<String> {
        let host = self.fleet.repository(DEVICE);
        let log = git::git(&host, &["log", "--reverse", "--format=%(trailers:key=State,valueonly)", "status"]);
        log.lines().filter_map(|line| line.split_once("/settings ")).map(|(_, states)| states.to_owned()).collect()
    }

    /// The operator's word: what the chart greets with, and how its hooks are.
    fn publish(&self, deed: Deed, greeting: &str, hooks: Option<&str>) {
        const PATH: &str = "deployments/settings.yaml";
        let hooks = hooks.map(|hooks| format!("  hooks: {hooks}\n")).unwrap_or_default();
        let deployment = format!(
            "id: settings\napplication: {{id: settings, version: 1.0.0}}\nprofile: cluster\nnamespace: {}\ntargets: \
             [{{devices: [{DEVICE}]}}]\nparameters:\n  greeting: {greeting}\n{hooks}",
            self.cluster.namespace()
        );
        match deed {
            Deed::Install | Deed::Change => self.fleet.write(PATH, &deployment),
            Deed::Remove => std::fs::remove_file(self.fleet.dir().join(PATH)).expect("removed"),
        }
        self.fleet.commit(&format!("{deed:?} {greeting}"));
        self.fleet.run(&["publish", "--allow-removals"]);
    }

    /// What must hold at any time, and at the cluster once all is done.
    fn assert_whole(&self, converged: bool, when: &str) {
        let (host, home) = (self.fleet.repository(DEVICE), self.device.home());
        let (host, device, cluster) = (Some(&*host), Some(&*home), converged.then_some(&self.cluster));
        World { host, device, cluster, converged, ..World::default() }.assert_whole(when);
    }

    /// Passes until all is as wanted, at most three; then one more, which must do nothing.
    fn assert_converges(&self, when: &str) {
        let mut said = String::new();
        let good = (0..3).any(|_| {
            let output = self.device.syncer(&["once"]);
            said = String::from_utf8_lossy(&output.stderr).into_owned();
            output.status.success()
        });
        assert!(good, "{when}: it doesn't converge: {said}");
        self.assert_whole(true, when);
        let before = (self.device.marks(), self.calls());
        self.device.pass();
        assert_eq!((self.device.marks(), self.calls()), before, "{when}: a pass with nothing to do did something");
    }

    /// A deed that `interrupt` cuts off, and what must come of it.
    pub(crate) fn round(&self, deed: Deed, greeting: &str, hooks: Option<&str>, when: &str, interrupt: impl FnOnce()) {
        let (calls, told) = (self.calls(), self.told());
        self.publish(deed, greeting, hooks);
        interrupt();
        self.assert_whole(false, when);
        self.assert_converges(when);
        let is_wanted = deed != Deed::Remove;
        let (end, objects) = match is_wanted {
            true => ("upgrade 0", vec![format!("configmap/{}", self.release)]),
            false => ("uninstall 0", Vec::new()),
        };
        let calls = &self.calls()[calls.len()..];
        // The end may be known to the API alone.
        let after_end = calls.iter().position(|call| call == end).map_or(0, |place| calls.len() - place - 1);
        assert_eq!(after_end, 0, "{when}: what helm had done was done again: {calls:?}");
        assert_eq!(self.cluster.values(&self.release)["greeting"].as_str(), is_wanted.then_some(greeting), "{when}");
        let history = self.cluster.history(&self.release);
        assert_eq!(history.last().is_some_and(is_complete), is_wanted, "{when}: {history:?}");
        assert_eq!(self.cluster.objects("configmaps"), objects, "{when}");
        assert_eq!(self.told()[told.len()..], deed.transitions(told.last()), "{when}");
    }

    /// All deeds one after the other, uncut.
    pub(crate) fn cycle(&self, name: &str, mut pass: impl FnMut(Deed)) {
        for deed in DEEDS {
            let greeting = format!("{name} {deed:?}");
            self.round(deed, &greeting, None, &greeting, || pass(deed));
        }
    }
}

/// The name of the chart's release on the device.
fn release(fleet: &Fleet) -> String {
    let join = std::fs::read(fleet.join_file(DEVICE)).expect("a join file");
    let join: serde_json::Value = serde_json::from_slice(&join).expect("JSON");
    let fleet = join["fleet"].as_str().expect("a fleet").parse().expect("a UUID");
    let (name, device) = ("settings".parse().expect("a name"), DEVICE.parse().expect("an id"));
    DeploymentId::derive(fleet, &name, &device).runtime_name(&"settings".parse().expect("a name"))
}

/// Whether helm came to its end.
fn is_complete(revision: &Revision) -> bool {
    revision.status == "deployed" && revision.description.starts_with("device-syncer ")
}
