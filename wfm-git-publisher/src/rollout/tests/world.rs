//! A fleet that isn't there: devices that follow what is published, each in its own way, and a clock.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use repo_model::margo::State;
use repo_model::{DeploymentName, DeviceId, Digest, ErrorCode};

use crate::fleet::{Fleet, SourceFile, read};
use crate::rollout::{
    Adoption, Beat, Component, Difference, Evidence, Facts, Look, Meaning, Phase, Proposal, Record, Report, Standing,
    look,
};

/// How a device takes a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nature {
    Well,
    /// It is switched off.
    Off,
    /// It adopts a change and is never heard of again.
    Dies,
    Fails,
    /// It says that all is installed, and restarts in a circle.
    Circles,
    /// It refuses what is new, and runs what it has.
    Stalls,
    /// Its site holds it.
    Held,
    /// Nothing can be published for it.
    Blocked,
}

/// What a device has and says.
#[derive(Debug, Clone)]
pub(super) struct Sim {
    pub(super) nature: Nature,
    /// What its tip has, by deployment.
    pub(super) tip: BTreeMap<DeploymentName, Digest>,
    pub(super) adopted: BTreeMap<DeploymentName, Digest>,
    adopted_at: i64,
    serial: u64,
    /// Since when it says nothing.
    silent_since: Option<i64>,
}

/// All of it.
pub(super) struct World {
    files: BTreeMap<String, String>,
    pub(super) fleet: Fleet,
    pub(super) devices: BTreeMap<DeviceId, Sim>,
    /// What the fleet means for each device.
    pub(super) wants: BTreeMap<DeviceId, BTreeMap<DeploymentName, Digest>>,
    pub(super) records: BTreeMap<u32, Record>,
    pub(super) ended: BTreeMap<u32, Record>,
    pub(super) now: Timestamp,
    pub(super) refuses: Option<&'static str>,
    pub(super) replaces: BTreeSet<(DeploymentName, DeploymentName)>,
    /// Every decision, as `12 release 1`.
    pub(super) decided: Vec<String>,
    pub(super) next_number: u32,
}

pub(super) const REPORT: i64 = 300;

pub(super) fn device(text: impl AsRef<str>) -> DeviceId {
    text.as_ref().parse().unwrap()
}

pub(super) fn name(text: &str) -> DeploymentName {
    text.parse().unwrap()
}

/// `press-01` and so on.
pub(super) fn press(number: usize) -> DeviceId {
    device(format!("press-{number:02}"))
}

impl World {
    /// Devices `press-01` and so on, in lines of ten, with version 1 of the deployment `app`, and the fleet's policy.
    pub(super) fn of(count: usize, policy: &str) -> Self {
        let mut world = Self {
            files: BTreeMap::new(),
            fleet: parse(&base(policy)),
            devices: BTreeMap::new(),
            wants: BTreeMap::new(),
            records: BTreeMap::new(),
            ended: BTreeMap::new(),
            now: "2026-11-22T10:00:00Z".parse().unwrap(),
            refuses: None,
            replaces: BTreeSet::new(),
            decided: Vec::new(),
            next_number: 12,
        };
        world.files = base(policy);
        for number in 1..=count {
            world.insert(&press(number), &format!("line: l{}", number.div_ceil(10)));
        }
        world.fleet = parse(&world.files);
        for number in 1..=count {
            let app = BTreeMap::from([(name("app"), version(1))]);
            let sim = world.devices.get_mut(&press(number)).unwrap();
            (sim.tip, sim.adopted) = (app.clone(), app);
            world.want(&press(number), "app", Some(1));
        }
        world
    }

    /// The same, in which `app` changes for all, and the first device has got the change.
    pub(super) fn begun(count: usize, policy: &str) -> (Self, DeviceId) {
        let mut world = Self::of(count, policy);
        world.want_all("app", Some(2));
        world.pass();
        let first = world.ordered(12)[0].clone();
        (world, first)
    }

    pub(super) fn add(&mut self, id: &DeviceId, labels: &str) {
        self.insert(id, labels);
        self.fleet = parse(&self.files);
    }

    fn insert(&mut self, id: &DeviceId, labels: &str) {
        let nothing = BTreeMap::new();
        let sim = Sim {
            nature: Nature::Well,
            tip: nothing.clone(),
            adopted: nothing,
            adopted_at: self.now.as_second() - 100_000,
            serial: 1,
            silent_since: None,
        };
        self.devices.insert(id.clone(), sim);
        self.files.insert(format!("devices/{id}.yaml"), format!("id: {id}\nlabels: {{{labels}}}\n"));
    }

    /// Writes a file of the fleet.
    pub(super) fn write(&mut self, path: &str, text: &str) {
        if self.files.get(path).is_some_and(|present| present == text) {
            return;
        }
        self.files.insert(path.to_owned(), text.to_owned());
        self.fleet = parse(&self.files);
    }

    pub(super) fn words(&mut self, rollout: u32, text: &str) {
        self.write(&format!("rollouts/{rollout}.yaml"), text);
    }

    /// The fleet means this version for a device; `None`: nothing.
    pub(super) fn want(&mut self, device: &DeviceId, deployment: &str, number: Option<u32>) {
        let wants = self.wants.entry(device.clone()).or_default();
        match number {
            Some(number) => _ = wants.insert(name(deployment), version(number)),
            None => _ = wants.remove(&name(deployment)),
        }
    }

    pub(super) fn want_all(&mut self, deployment: &str, number: Option<u32>) {
        let all: Vec<_> = self.devices.keys().cloned().collect();
        all.iter().for_each(|device| self.want(device, deployment, number));
    }

    pub(super) fn nature(&mut self, device: &DeviceId, nature: Nature) {
        let now = self.now.as_second();
        let sim = self.devices.get_mut(device).unwrap();
        sim.nature = nature;
        sim.silent_since = (nature == Nature::Off).then_some(now - 100_000);
        if nature == Nature::Well {
            sim.adopted_at = now;
        }
    }

    /// A person retires a device, which is no difference of anybody's any more.
    pub(super) fn retire(&mut self, device: &DeviceId) {
        let path = format!("devices/{device}.yaml");
        let text = self.files[&path].clone();
        if !self.is_retired(device) {
            self.write(&path, &format!("{text}retired: when-empty\n"));
        }
    }

    pub(super) fn is_retired(&self, device: &DeviceId) -> bool {
        self.fleet.devices.get(device).is_some_and(|device| device.retired.is_some())
    }

    fn standing(&self, id: &DeviceId) -> Standing {
        if self.is_retired(id) {
            return Standing::Complete;
        }
        let (sim, none) = (&self.devices[id], BTreeMap::new());
        let wants = self.wants.get(id).unwrap_or(&none);
        let blocked = (sim.nature == Nature::Blocked).then(|| "a tag isn't resolved".to_owned());
        let names: BTreeSet<_> = sim.tip.keys().chain(wants.keys()).cloned().collect();
        let of = |name: DeploymentName| {
            let (had, want) = (sim.tip.get(&name).copied(), wants.get(&name).copied());
            let blocked = blocked.clone().filter(|_| had != want);
            (name, Difference { had, want, blocked })
        };
        Standing::Compared { deployments: names.into_iter().map(of).collect(), is_bare: sim.tip.is_empty() }
    }

    /// One look; nothing of it is done.
    pub(super) fn look(&self) -> Look {
        let asked = RefCell::new(Vec::new());
        let evidence = |record: &Record, device: &DeviceId| {
            asked.borrow_mut().push(device.clone());
            self.devices.get(device).map(|sim| sim.evidence(record, self.now)).unwrap_or_default()
        };
        let refused = |_: &Proposal<'_>| self.refuses.map(str::to_owned);
        let facts = Facts {
            fleet: &self.fleet,
            fleet_commit: "4be1".to_owned(),
            operator_key: "unverified".to_owned(),
            devices: self.devices.keys().map(|id| (id.clone(), self.standing(id))).collect(),
            replaces: self.replaces.clone(),
            not_pushed: BTreeMap::new(),
            evidence: &evidence,
            refused: &refused,
            allowed: BTreeSet::new(),
            next_number: self.next_number,
        };
        look(&self.records, &facts, self.now)
    }

    /// A look, what it decides, and what is published then, as a pass does it. Who is well follows at once.
    pub(super) fn pass(&mut self) -> Look {
        let look = self.look();
        for one in &look.decided {
            let number = one.record.number();
            self.decided.push(format!("{number} {}", one.decision));
            self.next_number = self.next_number.max(number + 1);
            if one.record.state.state.is_finished() {
                self.ended.insert(number, one.record.clone());
            }
        }
        self.records.clone_from(&look.records);
        let fleet = &self.fleet;
        let serves = |id: &DeviceId| fleet.devices.get(id).is_none_or(|device| device.retired.is_none());
        for (id, sim) in self.devices.iter_mut().filter(|(id, _)| serves(id)) {
            let (none, held) = (BTreeMap::new(), look.held.get(id));
            let wants = self.wants.get(id).unwrap_or(&none);
            if sim.nature == Nature::Blocked || look.lost.contains_key(id) {
                continue;
            }
            let names: BTreeSet<_> = sim.tip.keys().chain(wants.keys()).cloned().collect();
            for name in names.iter().filter(|name| held.is_none_or(|held| !held.contains_key(*name))) {
                match wants.get(name) {
                    Some(digest) => _ = sim.tip.insert(name.clone(), *digest),
                    None => _ = sim.tip.remove(name),
                }
            }
            if sim.tip != sim.adopted && ![Nature::Off, Nature::Stalls].contains(&sim.nature) {
                (sim.adopted, sim.adopted_at) = (sim.tip.clone(), self.now.as_second());
                sim.serial += 1;
                if sim.nature == Nature::Dies {
                    sim.silent_since = Some(self.now.as_second());
                }
            }
        }
        look
    }

    pub(super) fn wait(&mut self, seconds: i64) {
        self.now = Timestamp::from_second(self.now.as_second() + seconds).unwrap();
    }

    /// Passes, each time when the one before said that something may change, until nothing more is decided.
    pub(super) fn run(&mut self) -> Look {
        for _ in 0..200 {
            let before = self.decided.len();
            let look = self.pass();
            match look.again {
                Some(moment) => self.now = moment,
                None if self.decided.len() > before => self.wait(1),
                None => return look,
            }
        }
        panic!("it never ends: {:?}", self.decided)
    }

    /// Who has this version of `app` in its `desired`.
    pub(super) fn with(&self, number: u32) -> BTreeSet<DeviceId> {
        let has = |sim: &Sim| sim.tip.get(&name("app")) == Some(&version(number));
        self.devices.iter().filter(|(_, sim)| has(sim)).map(|(id, _)| id.clone()).collect()
    }

    pub(super) fn phase(&self, rollout: u32) -> Phase {
        let record = self.records.get(&rollout).or(self.ended.get(&rollout)).expect("a rollout");
        record.state.state
    }

    /// The devices in the order of a rollout.
    pub(super) fn ordered(&self, rollout: u32) -> Vec<DeviceId> {
        let all = self.devices.keys().map(|device| (device, crate::rollout::Order::Normal));
        super::super::waves::ordered(rollout, all).into_iter().cloned().collect()
    }
}

impl Sim {
    fn evidence(&self, record: &Record, now: Timestamp) -> Evidence {
        let ours = |all: &BTreeMap<DeploymentName, Digest>| {
            let ours = all.iter().filter(|(name, _)| record.state.deployments.contains(*name));
            ours.map(|(name, digest)| (name.clone(), *digest)).collect::<BTreeMap<_, _>>()
        };
        let adopted = ours(&self.adopted);
        let (state, code) = match self.nature {
            Nature::Fails => (State::Failed, Some(ErrorCode::HelmFailed)),
            Nature::Held => (State::Pending, Some(ErrorCode::Held)),
            Nature::Dies => (State::Installing, None),
            _ => (State::Installed, None),
        };
        let component = |deployment: &DeploymentName| Component {
            deployment: deployment.clone(),
            name: "web".parse().unwrap(),
            wanted: true,
            state,
            code: code.map(|code| code.as_str().to_owned()),
            waits_outside: false,
        };
        let silent_for = self.silent_since.map_or(0, |since| now.as_second() - since);
        let last = self.silent_since.unwrap_or(now.as_second());
        let report = Report {
            stalled: (self.nature == Nature::Stalls).then(|| "SignatureInvalid".to_owned()),
            runtime_unavailable: false,
            adopted: Some(Adoption {
                serial: self.serial,
                meaning: Meaning::of(adopted.iter().map(|(name, digest)| (name, *digest))),
            }),
            components: adopted.keys().map(component).collect(),
            done_since: (state == State::Installed).then_some(self.adopted_at),
            moved: self.adopted_at,
            moved_here: Timestamp::from_second(self.adopted_at).ok(),
        };
        Evidence {
            silent_for: u64::try_from(silent_for).unwrap_or(0),
            status: Some(report),
            heartbeat: Beat::Seen { time: last, serial: self.serial, healthy: self.nature != Nature::Circles },
        }
    }
}

/// What a version means.
pub(super) fn version(number: u32) -> Digest {
    Digest::of(&number.to_be_bytes())
}

fn base(policy: &str) -> BTreeMap<String, String> {
    let id = "b0ecbe35-21cf-41d1-9ea8-b18a1dd0f461";
    let package = include_str!("../../../../repo-layouts/fleet/applications/hello/1.0.0/margo.yaml");
    let settings = format!("id: {id}\nname: works\npolicy: {{report: {REPORT}s}}\nrollout: {policy}\n");
    let settings = settings.replace("report: 300s", "report: 5m");
    BTreeMap::from([
        ("fleet.yaml".to_owned(), settings),
        ("applications/hello/1.0.0/margo.yaml".to_owned(), package.to_owned()),
    ])
}

fn parse(files: &BTreeMap<String, String>) -> Fleet {
    let files: Vec<_> = files.iter().map(|(path, text)| SourceFile::plain(path, text.as_bytes())).collect();
    let reading = read(&files);
    reading.fleet.unwrap_or_else(|| panic!("{}", reading.problems))
}
