//! What an operator waits for who asks how 10,000 devices are.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use repo_git::{CommitId, CommitSpec, Expected, Person, RefMove, Repo, SigningKey, TreeSource};
use repo_model::branch::ref_name;
use repo_model::desired::{self, Desired};
use repo_model::{Branch, FileTree};
use repo_testkit::{git, publisher};
use serde_json::{Value, json};

use crate::cost::of_run;
use crate::fleet::{Fleet, id, key};
use crate::stage::{Stage, run};
use crate::{DEVICES, Line, median, shown};

const ALL_DEVICES: usize = 10 * DEVICES;
const RUNS: usize = 5;

/// How many commits each device made on `status`.
const HISTORY: usize = 5;

/// One device with what it speaks of.
struct Reporter {
    number: usize,
    repo: Repo,
    key: SigningKey,
    tip: CommitId,
    desired: Desired,
}

impl Reporter {
    fn new(fleet: &Fleet, number: usize) -> Self {
        let repo = Repo::open(&fleet.repository(number)).expect("a repository");
        let tip = repo.tip(Branch::Desired.as_str()).expect("readable").expect("published");
        let files = repo.files(tip, &repo_git::TreeLimits::default()).expect("readable");
        Self { number, key: key(number), tip, desired: desired::read(&files).expect("a state"), repo }
    }

    fn trailers(&self, kind: Branch) -> String {
        format!("Kind: {kind}\nFleet: {}\nDevice: {}\n", self.desired.envelope.fleet, id(self.number))
    }

    /// Says that all it shall have runs well, as the newest of so many commits.
    fn status(&self, time: i64, commits: usize) {
        let envelope = &self.desired.envelope;
        let adopted = json!({"serial": envelope.serial, "manifestVersion": envelope.manifest_version, "trust": 1,
            "commit": self.tip, "envelope": self.desired.envelope_digest});
        let syncer = json!({"layout": 1, "version": "0.3.0", "instance": "00000000-0000-0000-0000-000000000000",
            "adopted": adopted, "conditions": [], "holds": []});
        let mut files = FileTree::from([("syncer.json".to_owned(), bytes(&syncer))]);
        for (deployment, document) in &self.desired.deployments {
            let components = document.deployment.components.iter();
            let components: Vec<_> = components.map(|one| json!({"name": one.name, "state": "installed"})).collect();
            let said = json!({"deploymentId": deployment, "deviceId": id(self.number),
                "status": {"state": "installed"}, "components": components});
            files.insert(format!("deployments/{deployment}.json"), bytes(&said));
        }
        let trailers = self.trailers(Branch::Status);
        let message =
            format!("all is installed\n\n{trailers}Serial: {}\nDesired-Commit: {}\n", envelope.serial, self.tip);
        self.report(Branch::Status, &files, &message, time, commits);
    }

    fn heartbeat(&self, time: i64) {
        let running = |document: &desired::Document| {
            let one = json!({"state": "installed", "health": "healthy", "drift": "none", "attempts": 0});
            let components =
                document.deployment.components.iter().map(|component| (component.name.to_string(), one.clone()));
            json!({"components": components.collect::<BTreeMap<_, _>>()})
        };
        let deployments: BTreeMap<_, _> =
            self.desired.deployments.iter().map(|(id, document)| (id.to_string(), running(document))).collect();
        let time_of = Timestamp::from_second(time).expect("a moment");
        let state =
            json!({"layout": 1, "time": time_of, "serial": self.desired.envelope.serial, "deployments": deployments});
        let files = FileTree::from([("current-state.json".to_owned(), bytes(&state))]);
        self.report(
            Branch::Heartbeat,
            &files,
            &format!("a heartbeat\n\n{}", self.trailers(Branch::Heartbeat)),
            time,
            1,
        );
    }

    fn report(&self, branch: Branch, files: &FileTree, message: &str, time: i64, commits: usize) {
        let (mut batch, mut parents) = (self.repo.batch(), Vec::new());
        let author = Person { name: id(self.number), email: format!("{}@devices.invalid", id(self.number)) };
        for _ in 0..commits {
            let (author, committer) = (author.clone(), author.clone());
            let spec = CommitSpec {
                tree: TreeSource::Files(files),
                parents,
                author,
                committer,
                time,
                message: message.to_owned(),
            };
            parents = vec![batch.commit(&spec, Some(&self.key)).expect("made")];
        }
        batch.store().expect("stored");
        let new = parents.pop();
        self.repo.move_refs(&[RefMove { name: ref_name(branch), expected: Expected::Any, new }]).expect("moved");
    }
}

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

pub(crate) fn measure(stage: &Stage) -> Vec<Line> {
    let fleet = Fleet::mixed(stage, "asked", ALL_DEVICES);
    run(&mut fleet.command(&["publish"]));
    let reporters = |numbers: std::ops::Range<usize>| numbers.map(|number| Reporter::new(&fleet, number));
    let now = || Timestamp::now().as_second();
    for reporter in reporters(0..ALL_DEVICES) {
        reporter.status(now(), HISTORY);
        reporter.heartbeat(now());
    }
    let index = fleet.home().join("index/status");
    // What was touched just now could be touched again without showing it.
    std::thread::sleep(Duration::from_secs(3));
    let ask = |args: &[&str]| of_run(&mut fleet.command(&[&["status"], args].concat()));
    let wall = |runs: Vec<(Duration, Duration, u64)>| runs.into_iter().map(|cost| cost.0).collect::<Vec<_>>();
    let anew = |_| {
        let _ = std::fs::remove_file(&index);
        ask(&["--output", "json"])
    };
    let rebuilt = wall((0..RUNS).map(anew).collect());
    let same = wall((0..RUNS).map(|_| ask(&["--output", "json"])).collect());
    let summed = wall((0..RUNS).map(|_| ask(&["--group-by", "site"])).collect());
    let one = wall((0..RUNS).map(|_| ask(&[&id(0)])).collect());
    let changed = |_| {
        reporters(0..ALL_DEVICES / 20).for_each(|reporter| reporter.heartbeat(now()));
        std::thread::sleep(Duration::from_secs(3));
        ask(&["--output", "json"])
    };
    let some = wall((0..RUNS).map(changed).collect());
    let questions = QUESTIONS.map(|question| asked_of_host(&fleet, question));
    let size = std::fs::metadata(&index).map_or(0, |meta| meta.len()) / ALL_DEVICES as u64;
    let name = format!("`status` of {ALL_DEVICES} devices, 8 deployments on each");
    let mut lines = vec![
        Line::new(format!("{name}: each repository is read"), shown(median(&rebuilt)), RUNS),
        Line::of_times("  nothing moved since", &same).goal("≤ 0.5 s"),
        Line::of_times("  the same, counted by site", &summed).goal("≤ 0.5 s"),
        Line::of_times("  the same, of one device", &one),
        Line::of_times("  a twentieth of the devices reported since", &some),
        Line::new("  the index, for each device", format!("{size} bytes"), 1),
    ];
    lines.extend(questions);
    lines
}

/// What a host is asked about all devices.
const QUESTIONS: [&str; 6] =
    ["status", "status?output=text&width=80", "plan", "devices", "events?since=1m", "events?since=2d"];

/// What a question costs the process that the host has for it. The goal is a tenth of what it may take: two minutes and 8 GiB.
fn asked_of_host(fleet: &Fleet, question: &str) -> Line {
    let (home, path) = (fleet.home(), format!("/api/v1/{question}"));
    if !home.join("fleet.git").exists() {
        git::git(&fleet.dir(), &["clone", "--quiet", "--bare", ".", &home.join("fleet.git").display().to_string()]);
    }
    let command = || {
        let mut command = publisher();
        command.arg("answer").arg(&home).arg(&path);
        command
    };
    let bytes = run(&mut command()).stdout.len();
    let costs: Vec<_> = (0..RUNS).map(|_| of_run(&mut command())).collect();
    let (wall, memory) = (costs.iter().map(|cost| cost.0).collect::<Vec<_>>(), costs.iter().map(|cost| cost.2).max());
    let value =
        format!("{}, {} MB, {:.1} MB of answer", shown(median(&wall)), memory.unwrap_or(0) / 1024, bytes as f64 / 1e6);
    Line::new(format!("`GET {path}` of these devices"), value, RUNS).goal("≤ 12 s, ≤ 800 MB")
}
