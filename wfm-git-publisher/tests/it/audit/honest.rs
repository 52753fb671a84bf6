//! The repositories of a fleet whose devices report everything, made by the real publisher; the devices' half is made here, as
//! the contract says.

use std::collections::BTreeMap;
use std::path::PathBuf;

use repo_git::{CommitId, CommitSpec, Expected, Person, RefMove, Repo, SigningKey, TreeSource};
use repo_model::{Digest, FileTree, json};
use serde_json::{Value, json as value};

use crate::restore::adopted_by;
use crate::support::{BEGIN, Lab, SECOND, after, copy};

pub(crate) const DEVICES: [&str; 2] = ["press-01", "packer-01"];

/// The image of each service.
pub(crate) const IMAGE: &str = "registry.example/tools/busybox:1.36";

/// A fleet whose devices adopted all that was published.
pub(crate) struct Honest {
    pub(crate) lab: Lab,
    reporters: [Reported; 2],
    beats: i64,
}

impl Honest {
    /// One in which four states were published for press-01.
    pub(crate) fn new() -> Self {
        let lab = Lab::with(&DEVICES);
        lab.leave_images();
        let mut honest = Self { lab, reporters: DEVICES.map(Reported::new), beats: 0 };
        honest.step(|_| ());
        honest.step(|lab| lab.edit("deployments/hello.yaml", "hello from the press", "servus"));
        honest.step(|lab| {
            lab.write("deployments/second.yaml", SECOND);
            lab.edit("deployments/hello.yaml", "hello from the packer", "griaß di");
        });
        honest.step(|lab| {
            lab.remove("deployments/second.yaml");
            lab.edit("deployments/hello.yaml", "griaß di", "hoi");
        });
        honest
    }

    /// Publishes a fifth one.
    pub(crate) fn go_on(&mut self) {
        self.step(|lab| {
            lab.edit("deployments/hello.yaml", "servus", "grüezi");
            lab.edit("deployments/hello.yaml", "hoi", "moin");
        });
    }

    fn step(&mut self, change: impl FnOnce(&Lab)) {
        change(&self.lab);
        self.lab.commit();
        self.lab.publish_all();
        self.beats += 1;
        for reporter in &mut self.reporters {
            reporter.adopt(&self.lab);
            reporter.beat(&self.lab, self.beats);
        }
    }

    /// The first roster, in a file.
    pub(crate) fn roster(&self) -> PathBuf {
        let path = self.lab.dir().join("roster.json");
        let text = self.lab.git(DEVICES[0], &["show", "desired:trust/1.json"]);
        std::fs::write(&path, text + "\n").unwrap();
        path
    }

    /// All device repositories with all keys, elsewhere.
    pub(crate) fn spread(&self) -> PathBuf {
        let dir = self.lab.dir().join("spread");
        copy(&self.lab.home.devices(), &dir.join("devices"));
        copy(&self.lab.home.publisher_key(), &dir.join("publisher"));
        copy(&self.lab.home.root_key(), &dir.join("root"));
        for name in DEVICES.into_iter().chain(["stranger", "site"]) {
            Lab::device_key(name).save(&dir.join(name)).unwrap();
        }
        dir
    }
}

/// What one device told so far.
struct Reported {
    device: &'static str,
    tip: Option<CommitId>,
    /// Each deployment's state.
    states: BTreeMap<String, &'static str>,
    time: i64,
}

impl Reported {
    fn new(device: &'static str) -> Self {
        Self { device, tip: None, states: BTreeMap::new(), time: *BEGIN }
    }

    fn key(&self) -> SigningKey {
        Lab::device_key(self.device)
    }

    /// Adopts the tip of `desired`, and tells of each step until all of it runs. Before the first there is a commit with
    /// serial 0.
    fn adopt(&mut self, lab: &Lab) {
        if self.tip.is_none() {
            self.tell(lab, false, &[]);
        }
        let manifest = lab.json(self.device, "desired", "manifest.json");
        let wanted: Vec<_> = manifest["deployments"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["deploymentId"].as_str().unwrap())
            .collect();
        self.states.retain(|_, state| *state != "removed");
        let gone: Vec<_> = self.states.keys().filter(|id| !wanted.contains(&id.as_str())).cloned().collect();
        for (new, old) in [("pending", "removing"), ("installing", "removed"), ("installed", "removed")] {
            let new = wanted.iter().map(|id| ((*id).to_owned(), new));
            let steps: Vec<_> = new.chain(gone.iter().map(|id| (id.clone(), old))).collect();
            self.tell(lab, true, &steps);
        }
    }

    fn tell(&mut self, lab: &Lab, adopted: bool, steps: &[(String, &'static str)]) {
        let mut trailers = String::new();
        for (id, to) in steps {
            let from = self.states.insert(id.clone(), to).unwrap_or("none");
            if from != *to {
                trailers += &format!("State: {id}/* {from} > {to}\nState: {id}/hello {from} > {to}\n");
            }
        }
        let adopted = adopted.then(|| adopted_by(lab, self.device));
        let version = adopted.as_ref().map_or(0, |adopted| adopted.manifest_version);
        let about = match &adopted {
            Some(adopted) => format!("Serial: {}\nDesired-Commit: {}\n", adopted.serial, adopted.commit),
            None => "Serial: 0\n".to_owned(),
        };
        let mut syncer = value!({"layout": 1, "version": "0.3.0", "instance": instance(self.device), "conditions": [],
            "holds": []});
        if let Some(adopted) = adopted {
            syncer["adopted"] = serde_json::to_value(adopted).unwrap();
        }
        let mut tree = FileTree::from([("syncer.json".to_owned(), json::to_bytes(&syncer))]);
        for (id, state) in &self.states {
            let document = value!({"deploymentId": id, "deviceId": self.device, "adoptedManifestVersion": version,
                "status": {"state": state}, "components": [{"name": "hello", "state": state}]});
            tree.insert(format!("deployments/{id}.json"), json::to_bytes(&document));
        }
        // Locked when it was first used.
        let locked = value!({"hello": {"hello": {"image": IMAGE, "digest": Digest::of(IMAGE.as_bytes())}}});
        let running = self.states.iter().filter(|(_, state)| **state == "installed");
        let images: BTreeMap<_, _> = running.map(|(id, _)| (id, &locked)).collect();
        if !images.is_empty() {
            tree.insert("images.json".to_owned(), json::to_bytes(&images));
        }
        let parents = self.tip.into_iter().collect();
        self.time += 1;
        self.tip = Some(self.commit(lab, "status", &tree, parents, &format!("{about}{trailers}")));
    }

    /// The heartbeat, and a list of the site's.
    fn beat(&self, lab: &Lab, number: i64) {
        let component = value!({"state": "installed", "health": "healthy", "drift": "none", "attempts": 0});
        let running = self.states.iter().filter(|(_, state)| **state == "installed");
        let deployments: BTreeMap<_, Value> =
            running.map(|(id, _)| (id, value!({"components": {"hello": component}}))).collect();
        let state = value!({"layout": 1, "time": after(60 * number), "serial": lab.serial(self.device), "deployments": deployments});
        let tree = FileTree::from([("current-state.json".to_owned(), json::to_bytes(&state))]);
        self.commit(lab, "heartbeat", &tree, Vec::new(), "");
        let list = value!({"layout": 1, "fleet": fleet(lab), "device": self.device, "serial": number, "expires": after(3600),
            "approvals": [], "rejected": []});
        let tree = FileTree::from([("site.json".to_owned(), json::to_bytes(&list))]);
        self.commit(lab, "site", &tree, Vec::new(), "");
    }

    fn commit(&self, lab: &Lab, branch: &str, tree: &FileTree, parents: Vec<CommitId>, trailers: &str) -> CommitId {
        let person = Person::new(self.device, "device@wfm.invalid");
        let (fleet, device) = (fleet(lab), self.device);
        let message = format!("what {device} tells\n\nKind: {branch}\nFleet: {fleet}\nDevice: {device}\n{trailers}");
        let (author, tree) = (person.clone(), TreeSource::Files(tree));
        let spec = CommitSpec { tree, parents, author, committer: person, time: self.time, message };
        let repo = Repo::open(&lab.repo(device)).unwrap();
        let mut batch = repo.batch();
        let key = if branch == "site" { Lab::device_key("site") } else { self.key() };
        let id = batch.commit(&spec, Some(&key)).unwrap();
        batch.store().unwrap();
        let name = format!("refs/heads/{branch}");
        repo.move_refs(&[RefMove { name, expected: Expected::Any, new: Some(id) }]).unwrap();
        id
    }
}

fn fleet(lab: &Lab) -> String {
    lab.json(DEVICES[0], "desired", "envelope.json")["fleet"].as_str().unwrap().to_owned()
}

fn instance(device: &str) -> String {
    format!("8f14e45f-ceea-467f-9a5c-{:012x}", device.len())
}
