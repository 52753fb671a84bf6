//! A device of 512 MiB with two jobs at work, one of compose and one of helm: what the syncer and all that it starts take.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use repo_testkit::cluster::{Cluster, HELM_4};
use repo_testkit::{chart, registry};

use crate::cgroup::ControlGroup;
use crate::containers::{Label, real};
use crate::cost::Running;
use crate::site::Site;
use crate::stage::Stage;
use crate::{Line, RUNS, median};

/// The memory that syncer and children have together.
const LIMIT: u64 = 512 << 20;

/// Longer than what was applied is waited for without any process.
const REST: Duration = Duration::from_secs(10);

/// How long both may take.
const LOST: Duration = Duration::from_secs(120);

const APPLICATION: &str = "id: chart
metadata: {name: Chart, version: 1.0.0}
deploymentProfiles:
  - id: cluster
    type: helm
    components:
      - {name: web, properties: {repository: \"CHART\", revision: 1.0.0, timeout: 2m0s}}
parameters:
  greeting: {value: hello, targets: [{pointer: greeting, components: [web]}]}
";

/// The most that was seen at once while both were changed.
struct Peak {
    memory: u64,
    processes: usize,
}

/// Gives the device a chart beside its project.
fn with_a_chart(site: &Site, stage: &Stage, cluster: &Cluster) {
    let path = site.device.home().join("device.yaml");
    let settings = std::fs::read_to_string(&path).expect("settings");
    let helm = cluster.settings(cluster.program());
    std::fs::write(path, format!("{settings}poll: 1m\nhelm: {helm}\n")).expect("written");
    site.device.syncer(&["once"]);
    let place = stage.registry_for("small");
    let name = place.strip_prefix(&format!("{}/", registry())).expect("a name");
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/charts/web");
    chart::push(&registry(), &format!("{name}/charts/web"), "1.0.0", &chart::pack_dir(&web), None);
    let fleet = &site.fleet;
    let chart = format!("oci://{place}/charts/web");
    fleet.write("applications/chart/1.0.0/margo.yaml", &APPLICATION.replace("CHART", &chart));
    let deployment = format!(
        "id: chart\napplication: {{id: chart, version: 1.0.0}}\nnamespace: {}\ntargets: [{{devices: [press-01]}}]\n\
         parameters:\n  greeting: first\n",
        cluster.namespace()
    );
    fleet.write("deployments/chart.yaml", &deployment);
    fleet.commit("a chart");
    site.publish();
    assert!((0..3).any(|_| site.device.syncer(&["once"]).status.success()), "it converges");
}

fn change_both(site: &Site, number: usize) {
    let path = "deployments/chart.yaml";
    let text = site.fleet.read(path);
    let line = text.lines().find(|line| line.starts_with("  greeting:")).expect("a greeting");
    site.fleet.write(path, &text.replace(line, &format!("  greeting: change {number}")));
    site.change(number);
    site.publish();
}

/// Watches until both were changed, and nothing has been at work for a while.
fn peak(site: &Site, group: &ControlGroup) -> Peak {
    let (start, mut peak) = (Instant::now(), Peak { memory: 0, processes: 0 });
    let mut busy = Instant::now();
    while peak.processes < 2 || busy.elapsed() < REST {
        assert!(start.elapsed() < LOST, "nothing is applied, or no end comes");
        let processes = group.processes();
        if processes > 1 {
            busy = Instant::now();
        }
        peak.memory = peak.memory.max(group.memory());
        peak.processes = peak.processes.max(processes);
        std::thread::sleep(Duration::from_millis(3));
    }
    let status = site.fleet.status("press-01");
    let all = status["deployments"].as_array().expect("a list");
    assert!(all.len() == 2 && all.iter().all(|one| one["state"] == "installed"), "{status}");
    peak
}

pub(crate) fn measure(stage: &Stage) -> Vec<Line> {
    let site = Site::new(stage, "small", "serve", "", &real("docker"));
    let _label = Label::of(&site);
    let cluster = Cluster::new(HELM_4, format!("bench-{}", std::process::id()));
    with_a_chart(&site, stage, &cluster);
    let group = ControlGroup::new("small");
    group.limit_memory(LIMIT);
    let mut syncer = group.command(&site.device.command(&["run"]));
    let running = Running(syncer.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs"));
    std::thread::sleep(Duration::from_secs(5));
    let rest = running.process().pss() * 1024;
    let one = |number| {
        change_both(&site, number);
        peak(&site, &group)
    };
    let peaks: Vec<_> = (0..RUNS).map(one).collect();
    let mib = |bytes: u64| format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20));
    let memory: Vec<_> = peaks.iter().map(|peak| peak.memory).collect();
    let processes: Vec<_> = peaks.iter().map(|peak| peak.processes).collect();
    let name = "512 MiB, a project and a release changed at once";
    vec![
        Line::new(format!("{name}: the most memory of syncer and children"), mib(median(&memory)), RUNS)
            .goal("≤ 512 MiB"),
        Line::new("  the highest of all runs", mib(*memory.iter().max().expect("some")), RUNS),
        Line::new("  the syncer alone at rest before (PSS)", mib(rest), 1),
        Line::new("  charged at the most, with files that were read", mib(group.peak_memory()), 1),
        Line::new("  ended by the kernel for want of memory", group.killed().to_string(), RUNS).goal("0"),
        Line::new("  the most processes at once", median(&processes).to_string(), RUNS),
        Line::new("  the most threads at once, of all", group.peak_threads().to_string(), 1),
    ]
}
