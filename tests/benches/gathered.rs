//! What many devices report at a host that isn't ours, brought here: stock `git http-backend` behind lighttpd, over HTTPS.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use repo_git::{CommitSpec, Expected, Person, RefMove, Repo, TreeSource};
use repo_model::branch::ref_name;
use repo_model::{Branch, FileTree};
use repo_testkit::foreign_host::{ForeignHost, Options};

use crate::cost::of_run;
use crate::fleet::{Fleet, id};
use crate::stage::{Stage, copy, run, timed};
use crate::{DEVICES, Line, RUNS, median, shown};

/// How often all devices report something, and how often stock Git is timed.
const CHANGES: usize = 3;
const SAMPLE: usize = 50;

/// A host at which each device of a fleet has its repository.
struct Elsewhere {
    fleet: Fleet,
    host: ForeignHost,
}

impl Elsewhere {
    fn new(stage: &Stage) -> Self {
        let fleet = Fleet::new(stage, "gathered", DEVICES, DEVICES);
        let host = ForeignHost::start(Options::default());
        let first = host.create(&format!("fleet/{}", id(0)));
        (1..DEVICES).for_each(|number| copy(&first, &host.repository(&format!("fleet/{}", id(number)))));
        let ca = host.ca();
        let settings = format!("remote:\n  url: {}/fleet/{{device}}.git\n  caFile: {}\n", host.url(), ca.display());
        std::fs::write(fleet.home().join("publisher.yaml"), settings).expect("written");
        run(&mut fleet.command(&["publish"]));
        Self { fleet, host }
    }

    fn repository(&self, number: usize) -> PathBuf {
        self.host.repository(&format!("fleet/{}", id(number)))
    }

    /// Each device moves `status` and `heartbeat`. Nobody signs what they say: it is brought here before it is judged.
    fn report(&self, time: i64) {
        for number in 0..DEVICES {
            let repo = Repo::open(&self.repository(number)).expect("a repository");
            let mut batch = repo.batch();
            let author = Person { name: id(number), email: format!("{}@devices.invalid", id(number)) };
            let moves = [Branch::Status, Branch::Heartbeat].map(|branch| {
                let tree = FileTree::from([("report.json".to_owned(), format!("{{\"time\": {time}}}\n").into_bytes())]);
                let parents = repo.tip(branch.as_str()).expect("readable").into_iter().collect();
                let message = format!("{branch} at {time}\n");
                let (tree, committer) = (TreeSource::Files(&tree), author.clone());
                let spec = CommitSpec { tree, parents, author: author.clone(), committer, time, message };
                let new = Some(batch.commit(&spec, None).expect("made"));
                RefMove { name: ref_name(branch), expected: Expected::Any, new }
            });
            batch.store().expect("stored");
            repo.move_refs(&moves).expect("moved");
        }
    }

    fn requests(&mut self) -> usize {
        self.host.requests("GET", "/info/refs") + self.host.requests("POST", "/git-upload-pack")
    }

    /// What one of the repositories takes stock Git, which asks first and fetches then.
    fn by_git(&self, stage: &Stage) -> Vec<Duration> {
        let clones = stage.make_dir("gathered-by-git");
        let clone = |number: usize| {
            let path = clones.join(id(number));
            run(Command::new("git").args(["init", "--quiet", "--bare", "--template="]).arg(&path));
            let url = format!("{}/fleet/{}.git", self.host.url(), id(number));
            let fetch = |mut git: Command| timed(git.args(["fetch", "--quiet", &url, "+refs/heads/*:refs/heads/*"]));
            fetch(self.host.git(&path));
            fetch(self.host.git(&path))
        };
        (0..SAMPLE.min(DEVICES)).map(clone).collect()
    }
}

pub(crate) fn measure(stage: &Stage) -> Vec<Line> {
    let mut elsewhere = Elsewhere::new(stage);
    let cost = |elsewhere: &Elsewhere| of_run(&mut elsewhere.fleet.command(&["status", "--output", "json"]));
    let mut changed = Vec::new();
    for number in 0..CHANGES {
        elsewhere.report(1_700_000_000 + i64::try_from(number).expect("small"));
        changed.push(cost(&elsewhere));
    }
    let before = elsewhere.requests();
    let same: Vec<_> = (0..RUNS).map(|_| cost(&elsewhere)).collect();
    let asked = (elsewhere.requests() - before) as f64 / (RUNS * DEVICES) as f64;
    let by_git = elsewhere.by_git(stage);
    let wall = |costs: &[(Duration, Duration, u64)]| costs.iter().map(|cost| cost.0).collect::<Vec<_>>();
    let cpu = median(&same.iter().map(|cost| cost.1).collect::<Vec<_>>());
    let name = format!("`status` of {DEVICES} devices at stock git-http-backend, over HTTPS");
    vec![
        Line::of_times(format!("{name}: all reported something"), &wall(&changed)).goal("≤ 60 s"),
        Line::of_times("  nothing changed", &wall(&same)),
        Line::new("  nothing changed: CPU of ours", shown(cpu), RUNS),
        Line::new("  nothing changed: requests for each device", format!("{asked:.2}"), RUNS).goal("1"),
        Line::of_times("  `git fetch` of one repository, nothing changed", &by_git),
        Line::new(
            "  the same for all, one after the other, extrapolated",
            shown(median(&by_git) * DEVICES as u32),
            SAMPLE,
        ),
    ]
}
