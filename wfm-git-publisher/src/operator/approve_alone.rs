//! Devices that wait with a token whose file says `auto`: the host takes them in by itself, as a commit of the fleet that it
//! hosts. It only adds files to `devices/enrolled/`, and only where nothing speaks against any of them.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use repo_git::{BatchError, CommitId, CommitSpec, Expected, OpenError, ReadError, RefError, RefMove, Repo, TreeSource};
use repo_model::FileTree;
use wfm_git_host::Settings;
use wfm_git_host::accounts::{Store, TTL};
use wfm_git_host::enrolment::{Claims, ClaimsError};

use super::approve_batch::{TakenIn, at_head_with, plan};
use super::approve_device::{ApproveDeviceError, Taken, complete};
use super::batch::{Batch, Candidate, counts, waiting_with};
use crate::coverage::Written;
use crate::fleet::{self, SourceFile, Token};
use crate::parallel;
use crate::render::problems_of;
use crate::repos::{Control, FleetRepo, Home, SourceError, publisher};
use repo_git::LockError;
use repo_git::sign::openssh;
use repo_model::DeviceId;

/// Where their files go: nobody else's are there.
const FOLDER: &str = "devices/enrolled";

/// How long a push may keep the fleet repository.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// What became of those that wait with one token.
#[derive(Debug)]
pub struct Alone {
    pub token: String,
    pub taken: Vec<TakenIn>,
    /// Why a person has to decide on one or more of them; absent if nobody is left.
    pub left: Option<String>,
}

/// Nobody can be taken in now.
#[derive(Debug, thiserror::Error)]
pub enum ApproveAloneError {
    #[error("cannot use what waits to be enrolled")]
    Claims(#[from] ClaimsError),
    #[error("cannot read the hosted fleet")]
    Source(#[from] SourceError),
    #[error("cannot open the hosted fleet")]
    Open(#[from] OpenError),
    #[error("cannot read the hosted fleet")]
    Read(#[from] ReadError),
    #[error("somebody writes the hosted fleet")]
    Lock(#[from] LockError),
    #[error("cannot store a commit in the hosted fleet")]
    Store(#[from] BatchError),
    #[error("cannot move the branch of the hosted fleet")]
    Move(#[from] RefError),
    #[error("cannot take a device in")]
    Device(#[source] Box<ApproveDeviceError>),
}

impl From<ApproveDeviceError> for ApproveAloneError {
    fn from(error: ApproveDeviceError) -> Self {
        Self::Device(Box::new(error))
    }
}

/// One that is taken in.
struct Planned {
    device: DeviceId,
    file: String,
    candidate: Candidate,
}

/// Takes in those that wait with tokens of the hosted fleet that say `auto`. Cut off, the same again completes it.
pub fn approve_alone(home: &Home, serve: &Settings, now: Timestamp) -> Result<Vec<Alone>, ApproveAloneError> {
    let claims = Claims::new(home.enrolments());
    let (waiting, _) = claims.list(now)?;
    let named: BTreeSet<_> = waiting
        .iter()
        .filter(|one| one.verdict.is_none())
        .filter_map(|one| Some(one.token.as_ref()?.name.clone()))
        .collect();
    if named.is_empty() || !home.hosted_fleet().is_dir() {
        return Ok(Vec::new());
    }
    let mut done = Vec::new();
    for name in named {
        // Anew for each, because each makes a commit.
        let source = FleetRepo::open(&home.hosted_fleet())?;
        let head = source.resolve("HEAD")?;
        let files = source.files(head)?;
        let token = fleet::read_tokens(&files).0.remove(&name).filter(|token| token.auto && counts(token, now));
        let Some(token) = token else { continue };
        let waiting = waiting_with(waiting.clone(), &name);
        let alone = Fleet { home, source: &source, head, files: &files };
        done.push(alone.take_in(&token, &claims, waiting, serve, now)?);
    }
    Ok(done)
}

/// The hosted fleet as it stands.
struct Fleet<'a> {
    home: &'a Home,
    source: &'a FleetRepo,
    head: CommitId,
    files: &'a [SourceFile],
}

impl Fleet<'_> {
    fn take_in(
        &self,
        token: &Token,
        claims: &Claims,
        waiting: Vec<wfm_git_host::enrolment::Waiting>,
        serve: &Settings,
        now: Timestamp,
    ) -> Result<Alone, ApproveAloneError> {
        let Self { home, files, .. } = *self;
        let (ledger, rosters) = Control::read(home).map_err(ApproveDeviceError::from)?;
        let accounts = Store::new(home.accounts());
        let batch = Batch { token: Some(token), files, accounts: &accounts, roster: rosters.newest.digest };
        let (mut planned, mut new, mut lines, mut left) = (Vec::new(), FileTree::new(), String::new(), None);
        let exists = |path: &str| files.iter().any(|file| file.path == path);
        for candidate in batch.judge(waiting)? {
            let problem = match candidate.device.clone().filter(|_| candidate.problem.is_none()) {
                None => candidate.problem.clone(),
                Some(device) => match plan(FOLDER, token, device, &candidate, &exists) {
                    Ok((device, file, text, trailers)) => {
                        if let Some(text) = text {
                            new.insert(file.clone(), text.into_bytes());
                            lines += &trailers;
                        }
                        planned.push(Planned { device, file, candidate });
                        continue;
                    }
                    Err(problem) => Some(problem),
                },
            };
            left = left.or(problem);
        }
        let refused = self.refused(token, &new)?;
        if refused.is_some() {
            planned.retain(|one| !new.contains_key(&one.file));
            new.clear();
        }
        if !new.is_empty() {
            self.commit(token, &new, &lines, now)?;
        }
        let mut taken = Vec::new();
        for Planned { device, file, candidate: Candidate { waiting, claim, note, .. } } in planned {
            let given =
                Taken { device: &device, ttl: Some(Some(TTL)), home, serve, ledger: &ledger, rosters: &rosters };
            complete(claims, waiting, &claim, &given, now)?;
            let fingerprint = openssh::fingerprint(&claim.key);
            taken.push(TakenIn { device, file, fingerprint, serial: claim.serial, note });
        }
        Ok(Alone { token: token.name.clone(), taken, left: refused.or(left) })
    }

    /// Why a person has to decide on these.
    fn refused(&self, token: &Token, new: &FileTree) -> Result<Option<String>, ApproveAloneError> {
        if new.is_empty() {
            return Ok(None);
        }
        let count = at_head_with(self.files, &token.name);
        if count + new.len() > token.count as usize {
            let places = (token.count as usize).saturating_sub(count);
            return Ok(Some(format!("{} wait, and it is for {places} more", new.len())));
        }
        let wanted = match self.source.written(self.head)? {
            Written::Absent => false,
            Written::Broken(_) => true,
            Written::Good(signers) => new.keys().any(|path| signers.rules.iter().any(|rule| rule.fits(path))),
        };
        if wanted {
            return Ok(Some(format!("signers.yaml wants somebody to agree to files in {FOLDER}")));
        }
        let with = new.iter().map(|(path, bytes)| SourceFile::plain(path, bytes.clone()));
        let files: Vec<_> = self.files.iter().cloned().chain(with).collect();
        let fleet::Reading { fleet, mut problems } = fleet::read(&files);
        problems.extend(fleet.iter().flat_map(|fleet| problems_of(fleet, parallel::cores())));
        Ok(problems.errors().next().map(|problem| format!("the fleet would be wrong with them: {problem}")))
    }

    /// One commit upon the branch of `HEAD`, unless somebody pushed meanwhile.
    fn commit(&self, token: &Token, new: &FileTree, lines: &str, now: Timestamp) -> Result<(), ApproveAloneError> {
        let repo = Repo::open(&self.home.hosted_fleet())?;
        let _lock = repo.try_lock(LOCK_WAIT)?;
        let branch = repo.advertisement()?.into_iter().find_map(|one| one.symref.filter(|_| one.name == "HEAD"));
        let what = fleet::counted(new.len());
        let mut batch = repo.batch();
        let tree = batch.tree_upon(repo.commit(self.head)?.tree, new)?;
        let spec = CommitSpec {
            tree: TreeSource::Existing(tree),
            parents: vec![self.head],
            author: publisher(),
            committer: publisher(),
            time: now.as_second(),
            message: format!("enroll {what} by the token {}, without a person\n\n{lines}", token.name),
        };
        let commit = batch.commit(&spec, None)?;
        batch.store()?;
        let name = branch.unwrap_or_else(|| "HEAD".to_owned());
        repo.move_refs(&[RefMove { name, expected: Expected::At(self.head), new: Some(commit) }])?;
        Ok(())
    }
}
