//! One repository: its branches in the order in which each is judged by the ones before.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use repo_git::{Commit, CommitId, ReadError, Repo, TreeLimits};
use repo_model::branch::{HEADS, epoch_of};
use repo_model::desired;
use repo_model::message::Message;
use repo_model::report::Adopted;
use repo_model::roster::{Trust, roster_path};
use repo_model::{Branch, DeviceId, KeyText, Trailer};

use super::archives::Archives;
use super::checkpoint::{Covered, CoveredStatus};
use super::commit::Told;
use super::desired::DesiredJudge;
use super::epochs::Whole;
use super::finding::{
    BRANCH_MISSING, FOREIGN_REF, Found, HEAD_ELSEWHERE, HISTORY_INCOMPLETE, HISTORY_REWRITTEN, NOT_FRESH,
    OBJECT_DAMAGED, REPOSITORY_UNREADABLE, SIGNATURE_INVALID, TRUST_INVALID,
};
use super::history::{Files, Line, States};
use super::record::Record;
use super::singles::{self, AtStatus, Ground};
use super::status::{Answers, StatusJudge};
use super::{Start, chain};
use crate::repos::roster_signer;

/// What became of one repository.
#[derive(Debug, Default)]
pub(super) struct Audited {
    pub(super) device: Option<DeviceId>,
    /// How many commits were judged now, of all branches.
    pub(super) commits: usize,
    /// The serial of the newest believed state.
    pub(super) serial: Option<u64>,
    /// What the device says that it adopted, at the tip of `status`.
    pub(super) adopted: Option<u64>,
    pub(super) found: Vec<Found>,
    /// What the next audit needn't judge again.
    pub(super) covered: Option<Covered>,
    /// What was judged now and is believed, if it is kept.
    pub(super) record: Record,
}

/// Audits the repository in a directory. `covered` gives what was judged of a device before; a record is made if `keeps` says so.
pub(super) fn audit<'c>(
    path: &Path,
    start: &Start,
    covered: impl Fn(&DeviceId) -> Option<&'c Covered>,
    archives: Option<&Archives>,
    (now, keeps): (Timestamp, bool),
) -> Audited {
    let repo = match Repo::open_briefly(path) {
        Ok(repo) => repo,
        Err(error) => {
            let found = vec![Found::whole(&REPOSITORY_UNREADABLE, chain(&error))];
            return Audited { found, ..Audited::default() };
        }
    };
    let mut audit = Audit { repo: &repo, archives, now, keeps, done: Audited::default() };
    audit.surroundings(path);
    let Some(tip) = audit.tip(Branch::Desired) else {
        let others = Branch::OF_DEVICE.into_iter().filter(|branch| audit.tip(*branch).is_some()).count();
        if others > 0 {
            audit.find(Found::whole(&BRANCH_MISSING, "there is no `desired`, and there are other branches"));
        }
        return audit.done;
    };
    let line = Line::read(&repo, Branch::Desired, tip);
    audit.done.found.extend(line.broken.clone());
    let Some((device, pinned)) = audit.identity(&line, start) else { return audit.done };
    audit.done.device = Some(device.clone());
    let covered = covered(&device);
    let rewritten = covered.is_some_and(|covered| !line.commits.contains(&covered.desired));
    if let Some(covered) = covered.filter(|_| rewritten) {
        let text = format!("it doesn't go on from {}, serial {}", covered.desired, covered.serial);
        audit.find(Found::at(&HISTORY_REWRITTEN, Branch::Desired, tip, text));
    }
    audit.branches(&device, pinned, &line, covered, rewritten);
    audit.done
}

struct Audit<'a> {
    repo: &'a Repo,
    archives: Option<&'a Archives>,
    now: Timestamp,
    /// Whether there is a record.
    keeps: bool,
    done: Audited,
}

impl<'a> Audit<'a> {
    fn find(&mut self, found: Found) {
        self.done.found.push(found);
    }

    /// Where a branch stands; one that can't be read is found, and counts as absent.
    fn tip(&mut self, branch: Branch) -> Option<CommitId> {
        self.repo.tip(branch).unwrap_or_else(|error| {
            let (kind, branch) = (&OBJECT_DAMAGED, Some(branch.to_string()));
            let found = Found { kind, branch, commit: None, message: chain(&error) };
            if !self.done.found.contains(&found) {
                self.find(found);
            }
            None
        })
    }

    /// What lies beside the branches.
    fn surroundings(&mut self, path: &Path) {
        if std::fs::metadata(path.join("shallow")).is_ok_and(|file| file.len() > 0) {
            self.find(Found::whole(&HISTORY_INCOMPLETE, "it is a shallow clone"));
        }
        let head = std::fs::read_to_string(path.join("HEAD")).unwrap_or_default();
        if head.trim() != format!("ref: {}", Branch::Desired.ref_name()) {
            let said: String = head.trim().chars().take(100).collect();
            self.find(Found::whole(&HEAD_ELSEWHERE, format!("`HEAD` is `{said}`")));
        }
        match self.repo.references("refs/") {
            Ok(refs) => {
                let is_of_device = |name: &str| Branch::OF_DEVICE.iter().any(|branch| branch.ref_name() == name);
                // Epochs are compared with `status`.
                let is_foreign = |name: &str| !is_of_device(name) && epoch_of(name).is_none();
                for (name, commit) in refs.into_iter().filter(|(name, _)| is_foreign(name)) {
                    let branch = name.strip_prefix(HEADS).unwrap_or(&name).to_owned();
                    let message = format!("`{name}` is no ref of a device repository");
                    self.find(Found { kind: &FOREIGN_REF, branch: Some(branch), commit: Some(commit), message });
                }
            }
            Err(error) => self.find(Found::whole(&OBJECT_DAMAGED, chain(&error))),
        }
    }

    /// Whose repository it is, by the oldest commit that a publisher signed, and the roster that is trusted.
    fn identity(&mut self, line: &Line<'_>, start: &Start) -> Option<(DeviceId, Trust)> {
        let mut pinned = start.trust.clone();
        let (mut why, mut damaged) = ("no commit of `desired` can be read".to_owned(), Vec::new());
        for id in &line.commits {
            let files = match self.repo.files(*id, &TreeLimits::default()) {
                Ok(files) => files,
                Err(error) => {
                    damaged.push(Found::tree(Branch::Desired, *id, &error));
                    continue;
                }
            };
            if pinned.is_none() {
                pinned = start.find(&files);
            }
            let Some(trust) = &pinned else {
                why = format!("`desired` holds no roster with the digest {}", start.digest);
                continue;
            };
            let followed = trust.follow(&files, &roster_signer);
            let signer = line.commit(*id).ok().and_then(|commit| commit.signer().ok()?.to_string().parse().ok());
            let is_ours = |trust: &Trust, key: &KeyText| trust.roster.publishers.iter().any(|one| one.key == *key);
            match (followed, signer) {
                (Err(error), _) => why = error.to_string(),
                (Ok(trust), Some(key)) if is_ours(&trust, &key) => match desired::read(&files) {
                    Ok(desired) => return Some((desired.envelope.device.id, pinned?)),
                    Err(refusal) => why = refusal.message,
                },
                (Ok(_), _) => why = "no commit of `desired` is signed by a publisher of this fleet".to_owned(),
            }
        }
        self.done.found.extend(damaged);
        self.find(Found::whole(&TRUST_INVALID, format!("nothing here can be believed: {why}")));
        None
    }

    fn branches(
        &mut self,
        device: &DeviceId,
        pinned: Trust,
        line: &Line<'_>,
        covered: Option<&Covered>,
        rewritten: bool,
    ) {
        let going_on = covered.filter(|_| !rewritten);
        let Some((mut judge, begin)) = self.begin(device, pinned, line, going_on) else { return };
        let mut states = States::new(self.repo, &line.commits, begin);
        let (mut files, keeps) = (Files::new(self.repo), self.keeps);
        for id in &line.commits[begin..] {
            let mut record = std::mem::take(&mut self.done.record);
            let judged = self.told(Branch::Desired, (*id, line.commit(*id)), &mut files, |told| {
                let (published, found) = judge.judge(told);
                published.iter().filter(|_| keeps).for_each(|published| record.publish(told, published));
                (published, found)
            });
            self.done.record = record;
            if let Some((published, found)) = judged {
                self.done.found.extend(found);
                published.into_iter().for_each(|published| states.add(published));
            }
        }
        let Some(tip) = states.newest() else { return };
        self.done.serial = Some(tip.named.serial);
        let ground = Ground { device, trust: &judge.trust, tip: &tip, now: self.now };
        let (status, epochs) = self.status(ground, &states, &judge, (covered, rewritten));
        self.bundle(ground, &states);
        let freshness = self.freshness(ground, &states, covered);
        let heartbeat = self.heartbeat(ground, &status, covered);
        let site = self.site(ground, covered);
        self.done.adopted = status.adopted().map(|adopted| adopted.serial);
        let newest = line.commits.last().copied().filter(|newest| *newest == tip.commit);
        let (serial, manifest) = (judge.serial, judge.manifest);
        self.done.covered = newest.zip(serial.1.zip(manifest.1)).map(|(desired, (envelope, digest))| Covered {
            desired,
            serial: serial.0,
            envelope,
            manifest_version: manifest.0,
            manifest: digest,
            roster: judge.trust.roster.version,
            lost: judge.lost,
            status: status.covered(&states),
            epochs,
            freshness,
            heartbeat,
            site,
        });
    }

    /// The judge of `desired` at the first commit that it has to judge.
    fn begin<'d>(
        &mut self,
        device: &'d DeviceId,
        pinned: Trust,
        line: &Line<'_>,
        covered: Option<&Covered>,
    ) -> Option<(DesiredJudge<'d>, usize)> {
        let Some(covered) = covered else { return Some((DesiredJudge::new(device, pinned), 0)) };
        let place = line.commits.iter().position(|id| *id == covered.desired)?;
        let again = || -> Result<_, String> {
            let files = self.repo.files(covered.desired, &TreeLimits::default()).map_err(|error| chain(&error))?;
            let desired = desired::read(&files).map_err(|refusal| refusal.message)?;
            let path = roster_path(covered.roster);
            let bytes = files.get(&path).ok_or_else(|| format!("`{path}` is missing"))?;
            let trust = Trust::pin(&path, bytes, pinned.roster.fleet).map_err(|error| error.to_string())?;
            Ok((desired, trust))
        };
        match again() {
            Ok((desired, trust)) => {
                let (serial, manifest) =
                    ((covered.serial, covered.envelope), (covered.manifest_version, covered.manifest));
                let mut judge = DesiredJudge::new(device, trust).after(serial, manifest, &desired);
                judge.lost.extend(covered.lost.iter().copied());
                Some((judge, place + 1))
            }
            Err(why) => {
                let text = format!("what the checkpoint covers can't be read: {why}");
                self.find(Found::at(&OBJECT_DAMAGED, Branch::Desired, covered.desired, text));
                None
            }
        }
    }

    /// Lets a commit be judged that was read; `None` if it couldn't be, which is found. A tree that can't is found, too,
    /// and whoever signed it.
    fn told<T>(
        &mut self,
        branch: Branch,
        (id, commit): (CommitId, Result<Cow<'_, Commit>, ReadError>),
        files: &mut Files<'_>,
        judge: impl FnOnce(&Told<'_>) -> T,
    ) -> Option<T> {
        self.done.commits += 1;
        let commit = match commit {
            Ok(commit) => commit,
            Err(error) => {
                self.find(Found::unreadable(branch, id, &error));
                return None;
            }
        };
        match files.of(&commit) {
            Ok(files) => Some(judge(&Told::of(branch, &commit, files))),
            Err(error) => {
                if let Err(error) = commit.signer() {
                    self.find(Found::at(&SIGNATURE_INVALID, branch, id, chain(&error)));
                }
                self.find(Found::tree(branch, id, &error));
                None
            }
        }
    }

    /// Reads the only commit of a branch and lets it be judged.
    fn single<T>(&mut self, branch: Branch, judge: impl FnOnce(&Told<'_>) -> T) -> Option<T> {
        let tip = self.tip(branch)?;
        self.told(branch, (tip, self.repo.commit(tip).map(Cow::Owned)), &mut Files::new(self.repo), judge)
    }

    /// Judges `status` across its epochs; also returns where these ended.
    fn status(
        &mut self,
        Ground { device, tip: newest, .. }: Ground<'_>,
        states: &States<'_>,
        desired: &DesiredJudge<'_>,
        (covered, rewritten): (Option<&Covered>, bool),
    ) -> (Status, BTreeMap<u32, CommitId>) {
        let before = covered.and_then(|covered| covered.status.as_ref());
        let tip = self.tip(Branch::Status);
        let gone = self.archives.map(|archives| archives.of(self.repo, device)).unwrap_or_default();
        let repo = gone.repo.as_ref().unwrap_or(self.repo);
        let whole = Whole::read((repo, &gone), tip, covered.filter(|_| !rewritten));
        self.done.found.extend(whole.iter().flat_map(|whole| whole.found.iter().cloned()));
        let Some((tip, whole)) = tip.zip(whole) else {
            if let Some(before) = before {
                let text = format!("it is gone, and stood at {}", before.commit);
                self.find(Found { branch: Some(Branch::Status.to_string()), ..Found::whole(&HISTORY_REWRITTEN, text) });
            }
            return Default::default();
        };
        let line = &whole.line;
        self.done.found.extend(line.broken.clone());
        let place = before.and_then(|before| line.commits.iter().position(|id| *id == before.commit));
        if let Some(before) = before.filter(|_| place.is_none()) {
            let unread = if gone.unread.is_empty() { "" } else { ", unless an archive has that which isn't read" };
            let text = format!("it doesn't go on from {}{unread}", before.commit);
            self.find(Found::at(&HISTORY_REWRITTEN, Branch::Status, tip, text));
        }
        // What was judged by states that aren't there any more is judged anew.
        let place = place.filter(|_| !rewritten);
        let mut files = Files::new(repo);
        let mut judge = match before.zip(place) {
            Some((before, place)) => {
                let at = before.newest.and_then(|newest| states.place(newest));
                let instances = (before.serial, before.instances.clone());
                let id = line.commits[place];
                let again = |told: &Told<'_>| StatusJudge::after(told, device, at, instances);
                let judge = self.told(Branch::Status, (id, line.commit(id)), &mut files, again).unwrap_or_default();
                // It was judged before.
                self.done.commits -= 1;
                judge
            }
            None => StatusJudge::default(),
        };
        let begin = place.map_or(0, |place| place + 1);
        let (new, fleet) = (&line.commits[begin..], desired.trust.roster.fleet);
        let answered = answered(line, new);
        let (mut last, keeps) = (Answers::Unknown, self.keeps);
        for (place, (id, (own, judged_by))) in (begin..).zip(new.iter().zip(answered)) {
            let answers = |id: Option<CommitId>| id.map_or(Answers::Unknown, |id| states.answers(id));
            let by = answers(judged_by);
            let keys = by.published().map_or(&newest.keys, |published| &published.keys);
            // Of an epoch that ended before anything was adopted no commit says which keys there were.
            let had = |key: &KeyText| states.newest_first().find(|state| state.keys.contains(key));
            let signer = || line.commit(*id).ok().and_then(|commit| commit.signer().ok()?.to_string().parse().ok());
            let then = (own.is_none() && whole.has_ended(place)).then(signer).flatten().and_then(|key| had(&key));
            let keys = then.as_ref().map_or(keys, |state| &state.keys);
            let mut record = std::mem::take(&mut self.done.record);
            let judged = self.told(Branch::Status, (*id, line.commit(*id)), &mut files, |told| {
                let own = match own {
                    Some(_) if own == judged_by => by.clone(),
                    own => answers(own),
                };
                let serial = told.message.number(Trailer::Serial).unwrap_or(0);
                let is_lost = desired.lost.iter().any(|(from, to)| (*from..=*to).contains(&serial));
                let own = if is_lost && matches!(own, Answers::Unknown) { Answers::Lost } else { own };
                let (status, found) = judge.judge(told, (fleet, device), keys, &own);
                status.iter().filter(|_| keeps).for_each(|status| record.report(told, status, own.published()));
                last = own;
                found
            });
            self.done.record = record;
            let branch = Some(whole.branch(place).to_owned());
            self.done.found.extend(judged.into_iter().flatten().map(|found| Found { branch: branch.clone(), ..found }));
        }
        if new.is_empty() {
            let named = line.commits.last().and_then(|id| named(&*line.commit(*id).ok()?));
            last = named.map_or(Answers::Unknown, |id| states.answers(id));
        }
        (Status { judge, last, tip: Some(tip) }, whole.kept)
    }

    fn bundle(&mut self, ground: Ground<'_>, states: &States<'_>) {
        let all: Vec<_> = states.newest_first().collect();
        match self.single(Branch::Bundle, |told| singles::bundle(told, ground, all.iter().map(|state| &**state))) {
            Some(found) => self.done.found.extend(found),
            None if ground.tip.bundle.is_some() && self.tip(Branch::Bundle).is_none() => {
                self.find(Found::whole(&BRANCH_MISSING, "there is no `bundle`, and `manifest.json` names one"));
            }
            None => {}
        }
    }

    fn freshness(&mut self, ground: Ground<'_>, states: &States<'_>, covered: Option<&Covered>) -> Option<Timestamp> {
        let before = covered.and_then(|covered| covered.freshness);
        let judged = self.single(Branch::Freshness, |told| {
            let (proof, mut found) = singles::freshness(told, ground, |id| states.answers(id));
            let issued = proof.map(|proof| proof.issued);
            found.extend(singles::went_back(told, "time", issued.as_ref(), before.as_ref()));
            (issued, found)
        });
        match judged {
            Some((issued, found)) => {
                self.done.found.extend(found);
                issued
            }
            None => {
                let text = "there is no proof of freshness";
                self.find(Found { branch: Some(Branch::Freshness.to_string()), ..Found::whole(&NOT_FRESH, text) });
                None
            }
        }
    }

    fn heartbeat(&mut self, ground: Ground<'_>, status: &Status, covered: Option<&Covered>) -> Option<Timestamp> {
        let before = covered.and_then(|covered| covered.heartbeat);
        let published = status.last.published();
        let at = AtStatus {
            keys: published.map_or(&[], |published| &published.keys),
            last: status.judge.last.as_ref().and_then(|(time, adopted)| Some((*time, adopted.as_ref()?))),
            published,
        };
        let judged = self.single(Branch::Heartbeat, |told| {
            let (time, mut found) = singles::heartbeat(told, ground, at);
            found.extend(singles::went_back(told, "time", time.as_ref(), before.as_ref()));
            (time, found)
        });
        let (time, found) = judged?;
        self.done.found.extend(found);
        if status.tip.is_none() {
            self.find(Found::whole(&BRANCH_MISSING, "there is a `heartbeat`, and no `status`"));
        }
        time
    }

    fn site(&mut self, ground: Ground<'_>, covered: Option<&Covered>) -> Option<u64> {
        let before = covered.and_then(|covered| covered.site);
        let judged = self.single(Branch::Site, |told| {
            let (serial, mut found) = singles::site(told, ground);
            found.extend(singles::went_back(told, "serial", serial.as_ref(), before.as_ref()));
            (serial, found)
        });
        let (serial, found) = judged?;
        self.done.found.extend(found);
        serial
    }
}

/// How `status` stands at its tip.
struct Status {
    judge: StatusJudge,
    /// What the tip answers.
    last: Answers,
    tip: Option<CommitId>,
}

impl Default for Status {
    fn default() -> Self {
        Self { judge: StatusJudge::default(), last: Answers::Unknown, tip: None }
    }
}

impl Status {
    fn adopted(&self) -> Option<&Adopted> {
        self.judge.last.as_ref()?.1.as_ref()
    }

    fn covered(&self, states: &States<'_>) -> Option<CoveredStatus> {
        let (serial, instances) = self.judge.instances.clone();
        let newest = self.judge.newest.and_then(|place| states.commit(place));
        Some(CoveredStatus { commit: self.tip?, newest, serial, instances })
    }
}

/// The commit of `desired` that a commit of `status` names.
fn named(commit: &Commit) -> Option<CommitId> {
    Message::parse(&commit.message).get(Trailer::DesiredCommit)?.parse().ok()
}

/// For each commit of `status`, the oldest first, the commit of `desired` that it names, and the one that it is judged by: its
/// own, or with serial 0 that of the first one that follows with a serial.
fn answered(line: &Line<'_>, commits: &[CommitId]) -> Vec<(Option<CommitId>, Option<CommitId>)> {
    let mut later = None;
    let of = |id: &CommitId| {
        let own = line.commit(*id).ok().and_then(|commit| named(&commit));
        later = own.or(later);
        (own, later)
    };
    let mut all: Vec<_> = commits.iter().rev().map(of).collect();
    all.reverse();
    all
}
