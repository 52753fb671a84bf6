//! Clones of all device repositories for an auditor, from our host: it says which there are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use repo_git::durable::{self, FileError};
use repo_git::remote::{InvalidSshAddress, SshAddress, SshProgram};
use repo_git::{
    Ancestry, CommitId, Expected, FetchError, FetchLimits, LockError, OpenError, ReadError, RefError, RefMove, Remote,
    RemoteError, Repo,
};
use repo_http::{
    Agent, CredentialError, Credentials, HttpError, InvalidUrl, Request, Settings, SettingsError, Source, Timeouts, Url,
};
use repo_model::branch::{HEADS, epoch_of, ref_name};
use repo_model::{Branch, DeviceId, error_chain};
use serde::Serialize;
use wfm_git_host::AuditIndex;

use crate::parallel;
use crate::repos::{DESIRED, USER_AGENT};

/// The file of the first roster, and that for stock Git, beside the clones.
pub const ROSTER: &str = "roster.json";
pub const ALLOWED_SIGNERS: &str = "allowed_signers";

/// The clone of the fleet repository, where the host has it; no device's is called so.
pub const FLEET: &str = "fleet";

/// The most bytes of an index: ten thousand devices, each with a hundred keys.
const INDEX: u64 = 256 << 20;

/// A history of years comes at once; an auditor's machine has room and time.
pub(super) const LIMITS: FetchLimits = FetchLimits {
    bytes: 4 << 30,
    objects: 20_000_000,
    object_bytes: 64 << 20,
    resolved_bytes: 1 << 40,
    timeout: TIMEOUTS.total,
};

/// As long as one history of years takes on a slow link.
const TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(10),
    answer: Duration::from_secs(60),
    stall: Duration::from_secs(60),
    total: Duration::from_secs(3600),
};

/// How many repositories are fetched at the same time: a host lets an account have more connections than that.
const THREADS: usize = 4;

/// No repository can be cloned, because the host doesn't say which there are, or isn't the one of before.
#[derive(Debug, thiserror::Error)]
pub enum CloneError {
    #[error("cannot use the host's URL")]
    Url(#[from] InvalidUrl),
    #[error("cannot use the settings of the host")]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Credential(#[from] CredentialError),
    #[error("cannot use the host's URL")]
    Ssh(#[from] InvalidSshAddress),
    #[error("cannot ask the host which repositories there are")]
    Index(#[from] HttpError),
    #[error("cannot ask the host which repositories there are")]
    IndexOverSsh(#[from] RemoteError),
    /// It isn't what our host answers.
    #[error("the host doesn't say which repositories there are")]
    Answer(#[from] serde_json::Error),
    #[error("the host says which repositories there are in layout {0}, and this program knows {layout}", layout = AuditIndex::LAYOUT)]
    Layout(u64),
    /// Everything that was audited before was believed by another one.
    #[error("the host shows another first roster than `{}`", path.display())]
    Roster { path: PathBuf },
}

/// One repository can't be cloned, or fetched anew. What was there before stays.
#[derive(Debug, thiserror::Error)]
enum CopyError {
    #[error("cannot use its address")]
    Ssh(#[from] InvalidSshAddress),
    #[error("cannot read it at the host")]
    Remote(#[from] RemoteError),
    #[error("cannot fetch from it")]
    Fetch(#[from] FetchError),
    #[error("cannot open the clone")]
    Open(#[from] OpenError),
    #[error("cannot lock the clone")]
    Lock(#[from] LockError),
    #[error("cannot read the clone")]
    Read(#[from] ReadError),
    #[error("cannot move a branch of the clone")]
    Ref(#[from] RefError),
}

/// Our host, and who asks it.
#[derive(Debug, Clone)]
pub struct Host(Way);

/// The transport by which a host is asked, with what it needs to let the auditor in.
#[derive(Debug, Clone)]
enum Way {
    Https {
        agent: Agent,
        url: Url,
        credentials: Credentials,
    },
    /// By this machine's own `ssh`; the URL is without a path.
    Ssh {
        program: SshProgram,
        url: String,
    },
}

/// What our host answers over SSH as it answers `GET /audit`.
const AUDIT: &str = "wfm-audit";

impl Host {
    /// The host at `https://name[:port]`. `authorities` are the only ones that are trusted, if there are any; the secret
    /// is an auditor's. Nothing is asked yet.
    ///
    /// # Errors
    /// The URL is none, or the authorities can't be read.
    pub fn new(url: &str, authorities: Option<&Path>, secret: Source) -> Result<Self, CloneError> {
        let read = |path: &Path| std::fs::read_to_string(path).map_err(FileError::read(path));
        let settings = Settings {
            authorities: authorities.map(read).transpose()?.into_iter().collect(),
            timeouts: TIMEOUTS,
            user_agent: USER_AGENT.to_owned(),
            ..Settings::default()
        };
        let credentials = Credentials::bearer(secret);
        Ok(Self(Way::Https { agent: Agent::new(&settings)?, url: Url::parse(url)?, credentials }))
    }

    /// The host at `ssh://user@name[:port]`, by this program and its first arguments, with this private key or those that
    /// it finds itself. Nothing is asked yet.
    ///
    /// # Errors
    /// The URL isn't `ssh://USER@HOST[:PORT]`.
    pub fn over_ssh(url: &str, command: Vec<String>, identity: Option<PathBuf>) -> Result<Self, CloneError> {
        let url = url.trim_end_matches('/').to_owned();
        SshAddress::parse(&format!("{url}/{FLEET}.git"))?;
        Ok(Self(Way::Ssh { program: SshProgram { command, identity, timeouts: TIMEOUTS }, url }))
    }

    /// Which repositories there are, and what their commits are checked by: the host's word.
    ///
    /// # Errors
    /// The host can't be asked, refuses, or is another program.
    pub fn index(&self) -> Result<AuditIndex, CloneError> {
        let bytes = match &self.0 {
            Way::Https { agent, url, credentials } => {
                let (url, credential) = (url.at_host("audit"), credentials.get()?);
                let expects = Some("application/json");
                agent.send(&Request { credential: &credential, expects, ..Request::get(&url) })?.body.bytes(INDEX)?
            }
            Way::Ssh { program, url } => {
                let address = SshAddress::parse(&format!("{url}/{FLEET}.git"))?;
                program.ask(&address, AUDIT, INDEX, TIMEOUTS.total)?
            }
        };
        let index: AuditIndex = serde_json::from_slice(&bytes)?;
        match index.layout {
            AuditIndex::LAYOUT => Ok(index),
            other => Err(CloneError::Layout(other)),
        }
    }

    fn repository(&self, device: &DeviceId) -> Result<Remote, CopyError> {
        self.at(&format!("devices/{}.git", device.repository_name()))
    }

    fn at(&self, path: &str) -> Result<Remote, CopyError> {
        Ok(match &self.0 {
            Way::Https { agent, url, credentials } => {
                Remote::https(url.at_host(path), agent.clone(), credentials.clone())
            }
            Way::Ssh { program, url } => {
                Remote::ssh_program(SshAddress::parse(&format!("{url}/{path}"))?, program.clone())
            }
        })
    }
}

/// What came of one repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Copied {
    pub device: DeviceId,
    /// The name of its directory, `<repository name>.git`.
    pub repository: String,
    pub outcome: Outcome,
    /// Branches of which history doesn't go on from where it stood here. The old commits stay until Git's `gc`.
    pub rewritten: Vec<String>,
    /// Why it is as it was before.
    pub error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Cloned,
    Fetched,
    /// Each ref stood where it stands at the host.
    Current,
    Failed,
}

impl Outcome {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cloned => "cloned",
            Self::Fetched => "fetched",
            Self::Current => "current",
            Self::Failed => "failed",
        }
    }
}

/// Keeps what an audit begins with beside the clones. The roster is taken once, and never replaced.
///
/// # Errors
/// The host shows another roster than before, or a file can't be written.
pub fn keep(index: &AuditIndex, into: &Path) -> Result<(), CloneError> {
    durable::create_dir_all(into, 0o700).map_err(FileError::write(into))?;
    let path = into.join(ROSTER);
    match std::fs::read(&path) {
        Ok(kept) if kept == index.roster.as_bytes() => {}
        Ok(_) => return Err(CloneError::Roster { path }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            durable::replace_file(&path, index.roster.as_bytes(), 0o600).map_err(FileError::write(&path))?;
        }
        Err(error) => return Err(FileError::read(&path)(error).into()),
    }
    let path = into.join(ALLOWED_SIGNERS);
    durable::replace_file(&path, index.allowed_signers.as_bytes(), 0o600).map_err(FileError::write(&path))?;
    Ok(())
}

/// Clones each repository into a directory, or fetches what is new. `progress` is told how many are done of how many. One
/// that fails holds up no other one.
pub fn clone(
    host: &Host,
    devices: Vec<DeviceId>,
    into: &Path,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Vec<Copied> {
    let (all, done) = (devices.len(), AtomicUsize::new(0));
    parallel::map(devices, THREADS, |device| {
        let repository = format!("{}.git", device.repository_name());
        let copied = host.repository(&device).and_then(|remote| copy(&remote, &into.join(&repository)));
        progress(done.fetch_add(1, Ordering::Relaxed) + 1, all);
        let (outcome, rewritten, error) = match copied {
            Ok((outcome, rewritten)) => (outcome, rewritten, None),
            Err(error) => (Outcome::Failed, Vec::new(), Some(error_chain(&error))),
        };
        Copied { device, repository, outcome, rewritten, error }
    })
}

/// Clones the fleet repository, or fetches what is new, by which a report says who agreed to what.
///
/// # Errors
/// Why it is as it was before.
pub fn clone_fleet(host: &Host, into: &Path) -> Result<Outcome, String> {
    let copied = host.at(&format!("{FLEET}.git")).and_then(|remote| copy(&remote, &into.join(FLEET)));
    copied.map(|(outcome, _)| outcome).map_err(|error| error_chain(&error))
}

/// Makes the refs of a clone those of the host, whatever they are called: an audit says which ones don't belong there. Ends of
/// epochs that the host doesn't have any more stay.
fn copy(remote: &Remote, path: &Path) -> Result<(Outcome, Vec<String>), CopyError> {
    let there = remote.refs(&["refs/"])?;
    let is_new = !path.exists();
    let repo = Repo::create(path, DESIRED)?;
    let _lock = repo.lock()?;
    let here: BTreeMap<String, CommitId> = repo.references("refs/")?.into_iter().collect();
    let haves: Vec<_> = here.values().copied().collect();
    let wants: Vec<_> = there.values().copied().filter(|tip| !haves.contains(tip)).collect();
    if !wants.is_empty() {
        remote.fetch(&repo, &wants, &haves, false, &LIMITS)?;
    }
    let goes_on = |name: &str, old: CommitId| {
        let on = |new: &CommitId| matches!(repo.is_ancestor(old, *new), Ok(Ancestry::Yes));
        let is_kept = || there.iter().any(|(other, end)| epoch_of(other).is_some() && on(end));
        // An epoch that ended stays where it is; `status` goes on from one.
        match epoch_of(name) {
            Some(_) => false,
            None => there.get(name).is_some_and(on) || name == Branch::Status.ref_name() && is_kept(),
        }
    };
    let stays = |name: &str| {
        [DESIRED, Branch::Status.as_str()].map(ref_name).contains(&name.to_owned()) || epoch_of(name).is_some()
    };
    // It may be archived at the host; the audit asks the ledger, and what is here is as good.
    let is_kept = |name: &str| epoch_of(name).is_some() && !there.contains_key(name);
    let moved = here.iter().filter(|(name, old)| stays(name) && !is_kept(name) && there.get(*name) != Some(*old));
    let rewritten = moved.filter(|(name, old)| !goes_on(name, **old));
    let rewritten = rewritten.filter_map(|(name, _)| name.strip_prefix(HEADS).map(str::to_owned)).collect();
    let moved = there.iter().filter(|(name, tip)| here.get(*name) != Some(tip));
    let moved = moved.map(|(name, tip)| RefMove { name: name.clone(), expected: Expected::Any, new: Some(*tip) });
    let gone = here.keys().filter(|name| !there.contains_key(*name) && !is_kept(name));
    let gone = gone.map(|name| RefMove { name: name.clone(), expected: Expected::Any, new: None });
    let moves: Vec<_> = moved.chain(gone).collect();
    repo.move_refs(&moves)?;
    let outcome = match moves.is_empty() {
        _ if is_new => Outcome::Cloned,
        true => Outcome::Current,
        false => Outcome::Fetched,
    };
    Ok((outcome, rewritten))
}
