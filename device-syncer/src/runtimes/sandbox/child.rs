//! The process that enters the sandbox and becomes the tool there.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, Scope, path_beneath_rules,
};
use rustix::fs::{Mode, OFlags, open};
use rustix::thread::set_no_new_privs;

/// Where a system keeps programs and the libraries that they load: read by the tool, and executed.
const PROGRAMS: &[&str] = &[
    "/bin",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/sbin",
    "/usr/bin",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/local/bin",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/local/libexec",
    "/usr/local/sbin",
    "/usr/sbin",
    "/etc/ld.so.cache",
];

/// The newest rules that this program knows; an older kernel enforces those that it has, reading among them in any case.
const NEWEST: ABI = ABI::V10;

/// What this process confines itself to, and becomes.
#[derive(Debug)]
pub struct Entry {
    /// The tool's standard input, and all that it reads besides programs.
    pub directory: Option<PathBuf>,
    /// Whether the kernel refuses everything else.
    pub landlock: bool,
    /// The tool's user and group id, if not those of this process.
    pub user: Option<u32>,
    /// The tool: a path, or a name that is looked for in `PATH`.
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

/// Why the tool can't be started in the sandbox.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("can't open `{}` for the sandbox", path.display())]
    Open { path: PathBuf, source: io::Error },
    /// The kernel doesn't know Landlock, or was started without it.
    #[error("the kernel doesn't take the sandbox's rules")]
    Landlock(#[from] RulesetError),
    /// This process may not become that user, or that user may not execute the tool.
    #[error("can't start `{}` as user {user} (`docker.resolveUser`): is it executable for everybody?", program.display())]
    User { program: PathBuf, user: u32, source: io::Error },
    /// The tool can't be started.
    #[error("can't start `{}` in the sandbox", program.display())]
    Start { program: PathBuf, source: io::Error },
}

impl SandboxError {
    /// Whether the device can't have this sandbox at any time, rather than now.
    pub fn is_unsupported(&self) -> bool {
        use io::ErrorKind::{InvalidInput, PermissionDenied};
        match self {
            // What the kernel must have wasn't there; anything else is a moment's trouble.
            Self::Landlock(error) => matches!(error, RulesetError::HandleAccesses(_)),
            Self::User { source, .. } => matches!(source.kind(), InvalidInput | PermissionDenied),
            Self::Open { .. } | Self::Start { .. } => false,
        }
    }
}

/// Becomes the tool; returns only if that fails. The process must have no thread besides this one.
pub fn enter(entry: Entry) -> SandboxError {
    match prepare(&entry) {
        Ok((mut command, _program)) => {
            let (source, program) = (command.exec(), entry.program);
            match entry.user {
                Some(user) => SandboxError::User { program, user, source },
                None => SandboxError::Start { program, source },
            }
        }
        Err(error) => error,
    }
}

/// The tool as a command, and the open file that it is started from.
fn prepare(entry: &Entry) -> Result<(Command, OwnedFd), SandboxError> {
    // Both are opened before rights are given up, so neither needs to lie where the tool's user may go.
    let program = find(&entry.program)?;
    let directory = entry.directory.as_deref().map(|path| opened(path, OFlags::DIRECTORY | OFlags::CLOEXEC));
    let directory = directory.transpose()?;
    set_no_new_privs(true)
        .map_err(|error| SandboxError::Start { program: entry.program.clone(), source: error.into() })?;
    if entry.landlock {
        confine(&program, directory.as_ref())?;
    }
    let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
    command.arg0(&entry.program).args(&entry.args).stdin(directory.map_or_else(Stdio::null, Stdio::from));
    if let Some(user) = entry.user {
        // Drops the supplementary groups, too.
        command.uid(user).gid(user);
    }
    Ok((command, program))
}

/// Lets this process read the directory and programs, execute programs, and nothing else.
fn confine(program: &OwnedFd, directory: Option<&OwnedFd>) -> Result<(), RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let run = AccessFs::Execute | AccessFs::ReadFile;
    let null = AccessFs::ReadFile | AccessFs::WriteFile;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?
        .add_rules(path_beneath_rules(PROGRAMS, read | run))?
        .add_rules(path_beneath_rules(["/dev/null"], null))?
        .add_rule(PathBeneath::new(program, run))?;
    if let Some(directory) = directory {
        rules = rules.add_rule(PathBeneath::new(directory, read))?;
    }
    rules.restrict_self().map(drop)
}

/// Opens the tool. The descriptor stays open in it, because an interpreter opens its script by that.
fn find(program: &Path) -> Result<OwnedFd, SandboxError> {
    if program.components().count() > 1 {
        return opened(program, OFlags::empty());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|directory| directory.join(program)).find(|path| path.is_file());
    opened(found.as_deref().unwrap_or(program), OFlags::empty())
}

fn opened(path: &Path, flags: OFlags) -> Result<OwnedFd, SandboxError> {
    let failed = |error: rustix::io::Errno| SandboxError::Open { path: path.to_owned(), source: error.into() };
    open(path, OFlags::PATH | flags, Mode::empty()).map_err(failed)
}
