//! Writing: a push is received in full, looked at, given to stock `git receive-pack`, synced, and only then answered.
//!
//! The commands are checked before anything is spawned; what the commits say is checked by [`crate::judge`] in the
//! `pre-receive` hook, while their objects are in quarantine.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Response, StatusCode};
use repo_git::{FetchError, FetchLimits, LockError, OpenError, ReadError, RecoverError, Repo, RepoLock};
use repo_model::branch::epoch_of;
use repo_model::{Branch, DeviceId, error_chain};
use tokio::time::timeout;

use crate::accounts::Identity;
use crate::answer::{Refusal, with_type};
use crate::body::{self, Spool};
use crate::epochs::EpochError;
use crate::fetch::{content_type, internal};
use crate::judge::{POLICY, Policy, REFUSED, SitePolicy};
use crate::limits::Limits;
use crate::process::Git;
use crate::publisher::{PolicyError, Publisher, Reason};
use crate::repos::{Hosted, ReposError};
use crate::request::Asked;
use crate::shared::Host;
use crate::wire::commands::{Commands, PackHead};
use crate::wire::path::{Service, Target};
use crate::wire::report::Report;
use crate::{epochs, hooks, janitor};

/// The most bytes that git says about a push.
const OUTPUT: u64 = 1 << 20;

/// The largest object of a device, as large as all files of a commit may be.
const OBJECT_BYTES: u64 = 16 << 20;

/// What reading everything in a push of a device may come to: some seconds of a stock git's time.
const RESOLVED_BYTES: u64 = 4 << 30;

/// How long a publisher may keep a repository before a push is turned away.
const LOCK_WAIT: std::time::Duration = std::time::Duration::from_secs(10);

/// A push can't be carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PushError {
    #[error("cannot open the repository")]
    Open(#[from] OpenError),
    #[error("cannot lock the repository")]
    Lock(#[from] LockError),
    #[error("cannot clear what a crash left behind")]
    Recover(#[from] RecoverError),
    #[error("git would not call the host's hooks, which are to judge the push")]
    Hooks(#[source] io::Error),
    #[error("cannot read the repository")]
    Read(#[source] ReadError),
    #[error("cannot run git")]
    Git(#[source] io::Error),
    #[error("git said nothing that can be understood: {said}")]
    Output { said: String },
    #[error("git took too long")]
    Timeout,
    #[error("cannot keep what a device said with another key")]
    Epoch(#[from] EpochError),
    #[error("cannot sync what was pushed")]
    Sync(#[source] io::Error),
    #[error(transparent)]
    Policy(PolicyError),
    #[error("cannot rebuild the damaged repository")]
    Rebuild(#[source] Reason),
    #[error("cannot read the refs")]
    Refs(#[from] ReposError),
    #[error("the work was broken off")]
    Join(#[from] tokio::task::JoinError),
}

/// Who pushes to what.
#[derive(Debug, Clone)]
pub(crate) enum Pusher {
    /// A device to its own repository.
    Device(DeviceId),
    /// A person of the site of a device to that device's repository.
    Site { account: String, device: DeviceId },
    /// An operator to the fleet repository, of which it may change these paths; all if there are none.
    Operator { account: String, paths: Vec<String> },
}

impl Pusher {
    /// Who this is, in the repository that it pushes to.
    fn of(who: &Identity, hosted: &Hosted) -> Self {
        let account = who.name.to_string();
        let is_here = |device: &&DeviceId| Target::Device(&device.repository_name()).place() == hosted.name;
        match (&who.device, who.devices.iter().find(is_here)) {
            (Some(device), _) => Self::Device(device.clone()),
            (None, Some(device)) => Self::Site { account, device: device.clone() },
            (None, None) => Self::Operator { account, paths: who.paths.clone() },
        }
    }

    /// The device to whose repository it pushes; `None` where that is the fleet's.
    fn at_device(&self) -> Option<&DeviceId> {
        match self {
            Self::Device(device) | Self::Site { device, .. } => Some(device),
            Self::Operator { .. } => None,
        }
    }

    /// The branches that it may move, and what it is called; `None` where something else decides that.
    fn branches(&self) -> Option<(&'static [Branch], &'static str)> {
        match self {
            Self::Device(_) => Some((&Branch::BY_DEVICE, "a device")),
            Self::Site { .. } => Some((&Branch::BY_SITE, "a person of the site")),
            Self::Operator { .. } => None,
        }
    }

    /// As whom it takes its turn.
    fn name(&self) -> &str {
        match self {
            Self::Device(device) => device.as_str(),
            Self::Site { account, .. } | Self::Operator { account, .. } => account,
        }
    }
}

/// `POST …/git-receive-pack`
pub(crate) async fn receive_pack(
    host: &Host,
    hosted: &Arc<Hosted>,
    asked: Asked<'_>,
) -> Result<Response<Body>, Refusal> {
    let Asked { who, headers, body, room, .. } = asked;
    let (pusher, limits) = (Pusher::of(who, hosted), &host.limits);
    let most = if pusher.at_device().is_some() { limits.push_bytes } else { limits.fleet_push_bytes };
    let spool = body::read(headers, body, most, &host.temp).await?;
    let kind = content_type(Service::ReceivePack, "result");
    let bad = |error: crate::wire::Malformed| Refusal::BadRequest(error.to_string());
    let (commands, length) = Commands::parse(&spool.head)
        .map_err(bad)?
        .ok_or_else(|| Refusal::BadRequest("the push ends before its commands do".to_owned()))?;
    if commands.commands.is_empty() {
        return Ok(with_type(StatusCode::OK, kind, Vec::new()));
    }
    if !commands.can("report-status") && !commands.can("report-status-v2") {
        return Err(Refusal::BadRequest("a push must be able to hear what became of it: report-status".to_owned()));
    }
    let pack = PackHead::parse(&spool.head[length..]).map_err(bad)?;
    let report = match denied(&pusher, &commands, pack, limits) {
        Some(reason) => Report::refused(&commands, &reason),
        None => {
            let pushed = Pushed { commands: commands.clone(), spool, pack: pack.map(|_| length) };
            let work = push(host.clone(), Arc::clone(hosted), pusher, pushed);
            // Not ended with the connection, and waited for before the host stops; until then it is in flight for its account.
            let work = async move {
                let _room = room;
                work.await
            };
            let done = host.pushes.spawn(work).await.map_err(|error| internal(hosted, &error))?;
            match done {
                Ok(report) => report,
                Err(Failed::Refused(refusal)) => return Err(refusal),
                Err(Failed::Error(PushError::Lock(LockError::Busy { .. }))) => return Err(Refusal::Busy),
                Err(Failed::Error(error)) => {
                    internal(hosted, &error);
                    Report::refused(&commands, "the host failed; its log says why")
                }
            }
        }
    };
    if !report.is_good() {
        tracing::warn!(repository = hosted.name, refused = ?report.refs, unpack = report.unpack, "a push is refused");
        host.metrics.refused_pushes.inc();
    }
    Ok(with_type(StatusCode::OK, kind, report.write(&commands)))
}

/// What the commands alone forbid.
fn denied(pusher: &Pusher, commands: &Commands, pack: Option<PackHead>, limits: &Limits) -> Option<String> {
    let (branches, who) = pusher.branches()?;
    let names = || branches.iter().map(|branch| branch.ref_name());
    let ends_epoch = |name: &str| matches!(pusher, Pusher::Device(_)) && epoch_of(name).is_some();
    for command in &commands.commands {
        if !names().any(|name| command.name == name) && !ends_epoch(&command.name) {
            return Some(format!("{who} may only push {}", names().collect::<Vec<_>>().join(" and ")));
        }
        if command.new.is_none() {
            return Some(format!("{} may not be deleted", command.name));
        }
    }
    let count = |name: &str| commands.commands.iter().filter(|command| command.name == name).count();
    if let Some(twice) = names().find(|name| count(name) > 1) {
        return Some(format!("{twice} is moved twice"));
    }
    let objects = pack.map_or(0, |pack| u64::from(pack.objects));
    (objects > limits.push_objects)
        .then(|| format!("the push holds {objects} objects, more than the {} allowed", limits.push_objects))
}

enum Failed {
    Refused(Refusal),
    Error(PushError),
}

impl<E: Into<PushError>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

/// A push that is here in full.
struct Pushed {
    commands: Commands,
    spool: Spool,
    /// Where its pack begins, if there is one.
    pack: Option<usize>,
}

async fn push(host: Host, hosted: Arc<Hosted>, pusher: Pusher, pushed: Pushed) -> Result<Report, Failed> {
    let Pushed { commands, mut spool, pack } = pushed;
    let mut written = hosted.writing.lock().await;
    let _slot = host.gate(Service::ReceivePack).enter(pusher.name()).await.map_err(Failed::Refused)?;
    let (open, publisher, recovered) = (Arc::clone(&hosted), Arc::clone(&host.publisher), written.recovered);
    let device = pusher.at_device().cloned();
    let is_device = device.is_some();
    let (repo, lock) = tokio::task::spawn_blocking(move || {
        let rebuilt_by = is_device.then_some(&*publisher);
        prepare(&open.path, recovered, rebuilt_by)
    })
    .await??;
    written.recovered = true;
    let (of, to) = (host.clone(), Arc::clone(&hosted));
    let to_status = commands.commands.iter().any(|command| command.name == Branch::Status.ref_name());
    let (repo, lock, spool, judged, full) = tokio::task::spawn_blocking(move || -> Result<_, PushError> {
        hooks::check(&of.hooks).map_err(PushError::Hooks)?;
        let mut judged = policy(&of, &pusher)?;
        let full = is_device && is_full(&to, (&repo, &lock), &of.limits);
        if let (true, Ok(_), Some(pack)) = (is_device && !full, &judged, pack)
            && let Some(reason) = too_much(&repo, &mut spool, pack, &of.limits)?
        {
            judged = Err(reason);
        }
        if let (Ok(Policy::Device(policy)), false, true) = (&judged, full, to_status) {
            epochs::keep(&repo, &|signer| policy.allows(signer))?;
        }
        // Before refs move, because whoever was told where they are may read that still.
        janitor::tidy(&to.name, &repo, &lock, janitor::MAX_PACKS);
        Ok((repo, lock, spool, judged, full))
    })
    .await??;
    let policy = match judged {
        _ if full => return Ok(Report::refused(&commands, "the repository is full; tell the operator of the host")),
        Err(reason) => return Ok(Report::refused(&commands, &reason)),
        Ok(policy) => policy,
    };
    let report = receive(&host, &hosted, &lock, &policy, &commands, spool).await;
    // What git had to leave behind when it was ended is cleared before the next push.
    written.recovered = report.is_ok();
    let report = report?;
    device.filter(|_| report.is_good()).into_iter().for_each(|device| host.publisher.pushed(device));
    let to = Arc::clone(&hosted);
    let sync = tokio::task::spawn_blocking(move || -> Result<_, PushError> {
        repo.sync_pushed_refs().map_err(PushError::Sync)?;
        to.read()?;
        drop(lock);
        Ok(())
    });
    sync.await??;
    Ok(report)
}

/// Opens and locks a repository. A device's that is damaged is rebuilt by the publisher, because nothing could be pushed
/// to it otherwise.
fn prepare(path: &Path, recovered: bool, rebuilt_by: Option<&dyn Publisher>) -> Result<(Repo, RepoLock), PushError> {
    let opened = || -> Result<_, PushError> {
        let repo = Repo::open(path)?;
        let lock = repo.try_lock(LOCK_WAIT)?;
        Ok((repo, lock))
    };
    if rebuilt_by.is_some() && !recovered {
        Repo::put_right(path, Branch::Desired.as_str())?;
    }
    let (repo, lock) = match opened() {
        Err(error @ PushError::Open(_)) => {
            rebuilt_by.ok_or(error)?.rebuild(path).map_err(PushError::Rebuild)?;
            opened()?
        }
        opened => opened?,
    };
    if recovered {
        return Ok((repo, lock));
    }
    let damaged = repo.recover(&lock)?.damaged;
    for one in &damaged {
        tracing::error!(repository = %path.display(), r#ref = one.name, reason = %one.reason, "a ref is damaged");
    }
    let Some(publisher) = rebuilt_by.filter(|_| !damaged.is_empty()) else { return Ok((repo, lock)) };
    drop((repo, lock));
    publisher.rebuild(path).map_err(PushError::Rebuild)?;
    opened()
}

/// What the hook is to check; or why there is nothing to check against.
fn policy(host: &Host, pusher: &Pusher) -> Result<Result<Policy, String>, PushError> {
    match pusher {
        Pusher::Operator { account, paths } => {
            Ok(Ok(Policy::Fleet { home: host.home.clone(), account: account.clone(), paths: paths.clone() }))
        }
        Pusher::Device(device) | Pusher::Site { device, .. } => Ok(match host.publisher.device_policy(device) {
            Err(PolicyError::Unverified(error)) => {
                tracing::error!(%device, error = error_chain(&*error), "what it shall run can't be verified");
                Err("the host can't verify what this device shall run; tell its operator".to_owned())
            }
            Err(error) => return Err(PushError::Policy(error)),
            Ok(Some(policy)) if matches!(pusher, Pusher::Site { .. }) => {
                Ok(Policy::Site(SitePolicy { fleet: policy.fleet, device: policy.device }))
            }
            Ok(Some(policy)) => Ok(Policy::Device(policy)),
            Ok(None) => Err("nothing is published for this device that names its key; enroll it first".to_owned()),
        }),
    }
}

/// Why stock git isn't given the pack of a device: it is broken, or its deltas come to more than git should resolve.
fn too_much(repo: &Repo, spool: &mut Spool, pack: usize, limits: &Limits) -> Result<Option<String>, PushError> {
    let limits = FetchLimits {
        bytes: limits.push_bytes,
        objects: u32::try_from(limits.push_objects).unwrap_or(u32::MAX),
        object_bytes: OBJECT_BYTES,
        resolved_bytes: RESOLVED_BYTES,
        timeout: Limits::RECEIVE,
    };
    let head = spool.head.get(pack..).unwrap_or_default();
    let measured = match &mut spool.rest {
        None => repo.measure_pack(head, &limits),
        Some(rest) => {
            let measured = repo.measure_pack(BufReader::new(head.chain(&*rest as &File)), &limits);
            rest.rewind().map_err(PushError::Git)?;
            measured
        }
    };
    match measured {
        Ok(()) => Ok(None),
        Err(FetchError::Read(error)) => Err(PushError::Read(error)),
        Err(refused) => Ok(Some(refused.to_string())),
    }
}

/// Whether a device's repository has as many bytes as it may have, although what no ref reaches any more is gone.
fn is_full(hosted: &Hosted, (repo, lock): (&Repo, &RepoLock), limits: &Limits) -> bool {
    let is_full = || janitor::size(&hosted.path) >= limits.repository_bytes;
    is_full() && {
        janitor::tidy(&hosted.name, repo, lock, 1);
        is_full()
    }
}

/// The conversation with stock git, which moves the refs by compare-and-swap.
async fn receive(
    host: &Host,
    hosted: &Hosted,
    lock: &RepoLock,
    policy: &Policy,
    commands: &Commands,
    spool: Spool,
) -> Result<Report, PushError> {
    let json = serde_json::to_string(policy).map_err(|error| PushError::Output { said: error.to_string() })?;
    let most = match policy {
        Policy::Device(_) | Policy::Site(_) => host.limits.push_bytes,
        Policy::Fleet { .. } => host.limits.fleet_push_bytes,
    };
    let git = Git::new(&host.path, Service::ReceivePack, &hosted.path)
        .config("core.hooksPath", host.hooks.display())
        .config("receive.maxInputSize", most)
        .environment(POLICY, json);
    let mut running = git.spawn().map_err(PushError::Git)?;
    if let Some(group) = running.group() {
        lock.note_writer(group).map_err(PushError::Git)?;
    }
    running.feed(spool.head, spool.rest);
    let Ok(finished) = timeout(Limits::RECEIVE, running.finish(OUTPUT)).await else {
        // It may hold a lock or move a ref until it is gone.
        running.kill().await;
        return Err(PushError::Timeout);
    };
    let (output, ended) = finished.map_err(PushError::Git)?;
    if ended.status.code().is_some() {
        lock.forget_writer().map_err(PushError::Git)?;
    }
    let sideband = commands.can("side-band-64k");
    let mut report = Report::parse(&output, sideband).map_err(|_| PushError::Output { said: ended.said.clone() })?;
    explain(&mut report, &ended.said);
    Ok(report)
}

/// Stock git says of every ref only that a hook declined; the hook's own words go there instead.
fn explain(report: &mut Report, said: &str) {
    let mut lines = report.messages.lines().chain(said.lines());
    let Some(reason) = lines.find_map(|line| line.trim().strip_prefix(REFUSED)) else { return };
    let reason = reason.trim().to_owned();
    for (_, result) in &mut report.refs {
        if result.as_ref().is_err_and(|text| text.ends_with("hook declined")) {
            *result = Err(reason.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::commands::Command;

    fn commands(names: &[(&str, bool)]) -> Commands {
        let id = Some("1".repeat(40).parse().unwrap());
        let command = |(name, deletes): &(&str, bool)| {
            let new = if *deletes { None } else { id };
            Command { old: id, new, name: (*name).to_owned() }
        };
        Commands { commands: names.iter().map(command).collect(), abilities: Vec::new() }
    }

    #[test]
    fn a_device_moves_its_own_branches_and_nothing_else() {
        let device = Pusher::Device("press-01".parse().unwrap());
        let limits = Limits::default();
        let check =
            |names: &[(&str, bool)], objects| denied(&device, &commands(names), Some(PackHead { objects }), &limits);
        assert_eq!(check(&[("refs/heads/status", false), ("refs/heads/heartbeat", false)], 5), None);
        for bad in ["refs/heads/desired", "refs/heads/status2", "refs/heads/Status", "refs/tags/status", "refs/status"]
        {
            assert!(
                check(&[("refs/heads/status", false), (bad, false)], 5).unwrap().contains("may only push"),
                "{bad}"
            );
        }
        assert!(check(&[("refs/heads/status", true)], 0).unwrap().contains("deleted"));
        assert!(check(&[("refs/heads/status", false); 2], 5).unwrap().contains("twice"));
        assert!(check(&[("refs/heads/status", false)], 50_000).unwrap().contains("50000 objects"));
        let site = Pusher::Site { account: "shift-2".to_owned(), device: "press-01".parse().unwrap() };
        let check = |names: &[(&str, bool)]| denied(&site, &commands(names), Some(PackHead { objects: 3 }), &limits);
        assert_eq!(check(&[("refs/heads/site", false)]), None);
        for bad in
            ["refs/heads/status", "refs/heads/desired", "refs/heads/freshness", "refs/heads/Site", "refs/tags/site"]
        {
            assert!(
                check(&[("refs/heads/site", false), (bad, false)]).unwrap().contains("may only push refs/heads/site"),
                "{bad}"
            );
        }
        assert!(check(&[("refs/heads/site", true)]).unwrap().contains("deleted"));
        let operator = Pusher::Operator { account: "olga".to_owned(), paths: Vec::new() };
        assert_eq!(denied(&operator, &commands(&[("refs/heads/main", false)]), None, &limits), None);
    }

    #[test]
    fn the_hooks_words_replace_stock_gits() {
        let refs = vec![("refs/heads/status".to_owned(), Err("pre-receive hook declined".to_owned()))];
        let messages = format!("Unpacking…\n{REFUSED} signed by a stranger\n");
        let mut report = Report { unpack: "ok".to_owned(), refs, messages };
        explain(&mut report, "");
        assert_eq!(report.refs[0].1, Err("signed by a stranger".to_owned()));
    }
}
