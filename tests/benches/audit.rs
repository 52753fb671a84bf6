//! An audit of a fleet's whole history: `AUDIT_DEVICES` repositories (1,000) of `AUDIT_COMMITS` commits (500) each, of which one in
//! five is a new state, and the others are the reports that answer it. The goal is for the whole; with fewer it is scaled.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use jiff::Timestamp;
use repo_git::{Batch, CommitId, CommitSpec, Expected, Person, RefMove, Repo, SigningKey, TreeSource};
use repo_model::desired::assemble;
use repo_model::envelope::Envelope;
use repo_model::freshness::Freshness;
use repo_model::{Branch, DeploymentId, DeviceId, Digest, FileTree, FleetId, branch::ref_name, json};
use serde_json::{Value, json as value};

use crate::stage::{Stage, cores, run, timed};
use crate::{Line, median, shown};

/// How often it is measured.
const RUNS: usize = 3;

/// What the goal is for.
const GOAL: (u64, u64, u64) = (1000, 500, 60);

/// The fleet, and the installation on each device.
const FLEET: &str = "5d3f7d5e-7a3a-4c3a-9a57-1c1f6a3f9f10";

/// Reports that answer one state.
const REPORTS: [&str; 4] = ["pending", "installing", "failed", "installed"];

fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().map_or(usual, |text| text.parse().expect("a number"))
}

pub(crate) fn measure(stage: &Stage) -> Vec<Line> {
    let (devices, commits) = (setting("AUDIT_DEVICES", GOAL.0), setting("AUDIT_COMMITS", GOAL.1));
    let (dir, fleet) = (stage.make_dir("audit"), FLEET.parse::<FleetId>().expect("a UUID"));
    let publisher = SigningKey::from_seed(&[1; 32]);
    let roster = json::to_bytes(&value!({"version": 1, "fleet": fleet, "threshold": 1,
        "roots": [SigningKey::from_seed(&[2; 32]).public()], "publishers": [{"key": publisher.public()}]}));
    for number in 0..devices {
        let device: DeviceId = format!("press-{number:04}").parse().expect("an id");
        let path = dir.join(format!("{device}.git"));
        let history = History { fleet, device, publisher: &publisher, roster: &roster };
        history.write(&path, commits / (1 + REPORTS.len() as u64));
    }
    let clone = dir.join("press-0000.git");
    run(Command::new("git").arg("-C").arg(&clone).args(["fsck", "--full"]));
    let (digest, checkpoint) = (Digest::of(&roster).to_string(), dir.join("checkpoint.json"));
    let command = |threads: &str, more: &[&str]| {
        let mut command = Command::new("taskset");
        command.args(["-c", threads]).arg(&stage.publisher).arg("audit").arg(&dir).args(["--roster", &digest]);
        command.args(more);
        command
    };
    let all = format!("0-{}", cores() - 1);
    let whole: Vec<_> = (0..RUNS).map(|_| timed(&mut command(&all, &[]))).collect();
    let one = [timed(&mut command("0", &[]))];
    let file = checkpoint.display().to_string();
    timed(&mut command(&all, &["--checkpoint", &file]));
    let again: Vec<_> = (0..RUNS).map(|_| timed(&mut command(&all, &["--checkpoint", &file]))).collect();
    let share = (GOAL.0 * GOAL.1) as f64 / (devices * commits) as f64;
    let scaled = median(&whole).mul_f64(share);
    let name = format!("audit {devices} devices × {commits} commits");
    vec![
        Line::of_times(format!("{name}, {} cores", cores()), &whole),
        Line::new(format!("the same for {} × {}, scaled", GOAL.0, GOAL.1), shown(scaled), RUNS)
            .goal(format!("≤ {} s", GOAL.2)),
        Line::of_times(format!("{name}, one core"), &one),
        Line::of_times(format!("{name}, nothing new since a checkpoint"), &again),
    ]
}

/// One device's repository.
struct History<'a> {
    fleet: FleetId,
    device: DeviceId,
    publisher: &'a SigningKey,
    roster: &'a [u8],
}

impl History<'_> {
    /// Writes so many states, each with the reports that answer it.
    fn write(&self, path: &Path, states: u64) {
        let repo = Repo::create(path, Branch::Desired).expect("made");
        let key = SigningKey::from_seed(Digest::of(self.device.as_str().as_bytes()).as_bytes());
        let id = DeploymentId::derive(self.fleet, &"hello".parse().expect("a name"), &self.device);
        let (mut batch, mut desired, mut status, mut state) = (repo.batch(), None, None, "none");
        let (mut bundle, mut freshness) = (None, None);
        for serial in 1..=states {
            let documents = BTreeMap::from([(id, document(id, &self.device, serial))]);
            let trust = FileTree::from([("trust/1.json".to_owned(), self.roster.to_vec())]);
            let made = assemble(self.envelope(id, serial, &key), &documents, &trust);
            let about = format!("Serial: {serial}\n");
            let change = if serial == 1 { "add" } else { "change" };
            let trailers = format!(
                "{about}Manifest-Version: {serial}\nManifest-Digest: {}\nEnvelope-Digest: {}\nDeployment: {change} hello {id} {}\n",
                made.manifest_digest,
                made.envelope_digest,
                "0".repeat(40)
            );
            let commit =
                |batch: &mut Batch<'_>, branch, tree: &FileTree, parent: Option<CommitId>, key, trailers: &str| {
                    self.commit(batch, (branch, serial), tree, parent, key, trailers)
                };
            let tip = commit(&mut batch, Branch::Desired, &made.tree, desired, self.publisher, &trailers);
            desired = Some(tip);
            if serial == states {
                bundle = Some(commit(&mut batch, Branch::Bundle, &made.bundle, None, self.publisher, &about));
                let now = Timestamp::now();
                let proof = Freshness {
                    fleet: self.fleet,
                    device: self.device.clone(),
                    tip: tip.to_string(),
                    envelope_digest: made.envelope_digest,
                    serial,
                    issued: now,
                    expires: now + jiff::SignedDuration::from_hours(24),
                };
                let tree = FileTree::from([("freshness.json".to_owned(), json::to_bytes(&proof))]);
                freshness = Some(commit(&mut batch, Branch::Freshness, &tree, None, self.publisher, &about));
            }
            for to in REPORTS {
                let tree = self.report(id, (serial, to), &tip.to_string(), made.envelope_digest);
                let steps = format!("State: {id}/* {state} > {to}\nState: {id}/hello {state} > {to}\n");
                let trailers = format!("{about}Desired-Commit: {tip}\n{steps}");
                status = Some(commit(&mut batch, Branch::Status, &tree, status, &key, &trailers));
                state = to;
            }
        }
        batch.store().expect("stored");
        let branches = [Branch::Desired, Branch::Bundle, Branch::Freshness, Branch::Status];
        let moves = branches.into_iter().zip([desired, bundle, freshness, status]).map(|(branch, new)| RefMove {
            name: ref_name(branch),
            expected: Expected::Any,
            new,
        });
        repo.move_refs(&moves.collect::<Vec<_>>()).expect("moved");
    }

    fn envelope(&self, id: DeploymentId, serial: u64, key: &SigningKey) -> Envelope {
        let digest = Digest::of(b"archive").to_string();
        let envelope = value!({"layout": 1, "fleet": self.fleet, "serial": serial, "manifestVersion": serial, "files": {},
            "device": {"id": self.device, "statusKeys": [key.public()]}, "policy": {"pollSeconds": 15, "reportSeconds": 60},
            "deployments": {id.to_string(): {"id": "hello",
                "locks": {"hello": {"manifest": digest, "content": digest}}}}});
        serde_json::from_value(envelope).expect("an envelope")
    }

    fn report(&self, id: DeploymentId, (serial, state): (u64, &str), tip: &str, envelope: Digest) -> FileTree {
        let adopted =
            value!({"serial": serial, "manifestVersion": serial, "trust": 1, "commit": tip, "envelope": envelope});
        let syncer = value!({"layout": 1, "version": "0.3.0", "instance": FLEET, "adopted": adopted, "conditions": [],
            "holds": []});
        let component: Value = value!({"name": "hello", "state": state});
        let document = value!({"deploymentId": id, "deviceId": self.device, "adoptedManifestVersion": serial,
            "status": {"state": state}, "components": [component]});
        FileTree::from([
            ("syncer.json".to_owned(), json::to_bytes(&syncer)),
            (format!("deployments/{id}.json"), json::to_bytes(&document)),
        ])
    }

    fn commit(
        &self,
        batch: &mut Batch<'_>,
        (branch, serial): (Branch, u64),
        tree: &FileTree,
        parent: Option<CommitId>,
        key: &SigningKey,
        trailers: &str,
    ) -> CommitId {
        let person = Person::new(self.device.as_str(), "bench@wfm.invalid");
        let (fleet, device) = (self.fleet, &self.device);
        let message = format!("serial {serial}\n\nKind: {branch}\nFleet: {fleet}\nDevice: {device}\n{trailers}");
        let (author, parents, tree) = (person.clone(), parent.into_iter().collect(), TreeSource::Files(tree));
        let spec = CommitSpec { tree, parents, author, committer: person, time: 1_700_000_000, message };
        batch.commit(&spec, Some(key)).expect("made")
    }
}

fn document(id: DeploymentId, device: &DeviceId, serial: u64) -> Vec<u8> {
    format!(
        "id: \"{id}\"\nmetadata:\n  name: hello\n  namespace: default\n  deviceId: \"{device}\"\nspec:\n  applicationId: hello\n  \
         deploymentProfile:\n    type: compose\n    components:\n      - name: hello\n        properties:\n          \
         repository: \"oci://registry.example/hello\"\n          revision: \"1.0.{serial}\"\n          timeout: 1m\n  \
         parameters:\n    greeting:\n      value: hello {serial}\n      targets:\n        - pointer: GREETING\n          \
         components: [hello]\n"
    )
    .into_bytes()
}
