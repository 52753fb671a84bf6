//! The configuration of the stock sshd that is started for each connection, and the check that it will work.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use repo_git::durable;

use super::helper::AUTH;

/// The configuration beside the host keys.
const CONFIG: &str = "sshd_config";

/// Where sshd is looked for besides the search path, which users other than root often have without it.
const USUAL: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

/// Where sshd keeps its unprivileged half when it runs as root.
const PRIVSEP: &str = "/run/sshd";

/// How long a client may take until it has shown its key.
pub(super) const GRACE_SECONDS: u64 = 20;

/// What not every sshd knows: since 9.1 and since 9.2.
const OPTIONAL: [&str; 2] = ["RequiredRSASize 2048", "UnusedConnectionTimeout 1m"];

/// sshd can't be started as it is needed.
#[derive(Debug, thiserror::Error)]
pub enum SshdError {
    /// `sshd` isn't where programs are found.
    #[error("there is no sshd on this machine")]
    None,
    /// It would not call this program.
    #[error("sshd would not call `{}`: {why}", path.display())]
    Program {
        /// This program, or a directory above it.
        path: PathBuf,
        why: &'static str,
    },
    /// A path has characters that its configuration can't have.
    #[error("`{}` can't stand in the configuration of sshd: use letters, digits and `. _ - + /`", .0.display())]
    Path(PathBuf),
    /// Its shell runs no command.
    #[error("user `{user}` has the shell `{shell}`, which runs no command")]
    Shell { user: String, shell: String },
    /// Its configuration can't be written, or it can't be run.
    #[error("cannot use `{}`", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// It doesn't like the configuration.
    #[error("sshd refuses the configuration `{}`: {said}", path.display())]
    Refused {
        path: PathBuf,
        /// What it said.
        said: String,
    },
}

/// An sshd that works, and its configuration.
#[derive(Debug)]
pub(crate) struct Sshd {
    pub(super) program: PathBuf,
    pub(super) config: PathBuf,
}

/// What the configuration is made of.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    /// This program, which sshd calls.
    pub(crate) helper: &'a Path,
    pub(crate) socket: &'a Path,
    pub(crate) host_key: &'a Path,
    /// As whom clients are let in.
    pub(crate) user: &'a str,
    /// What that user's commands are run by.
    pub(crate) shell: &'a str,
}

impl Sshd {
    /// Writes the configuration into this directory, and has sshd check it.
    pub(crate) fn prepare(dir: &Path, parts: &Parts<'_>, search: &OsStr) -> Result<Self, SshdError> {
        let program = find(search).ok_or(SshdError::None)?;
        for path in [parts.helper, parts.socket, parts.host_key] {
            if !is_plain(path) {
                return Err(SshdError::Path(path.to_owned()));
            }
        }
        trusted(parts.helper)?;
        if ["nologin", "false"].iter().any(|none| parts.shell.ends_with(none)) {
            return Err(SshdError::Shell { user: parts.user.to_owned(), shell: parts.shell.to_owned() });
        }
        if crate::user::own() == 0 {
            let failed = |source| SshdError::Io { path: PRIVSEP.into(), source };
            durable::create_dir_all(Path::new(PRIVSEP), 0o755).map_err(failed)?;
        }
        let this = Self { program, config: dir.join(CONFIG) };
        let mut text = config(parts);
        this.check(&text)?;
        for line in OPTIONAL {
            let more = format!("{text}{line}\n");
            if this.check(&more).is_ok() {
                text = more;
            }
        }
        this.check(&text)?;
        Ok(this)
    }

    fn check(&self, text: &str) -> Result<(), SshdError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| SshdError::Io { path, source }
        };
        durable::replace_file(&self.config, text.as_bytes(), 0o600).map_err(failed(&self.config))?;
        let mut command = Command::new(&self.program);
        command.arg("-t").arg("-f").arg(&self.config).stdin(Stdio::null());
        let tried = command.output().map_err(failed(&self.program))?;
        if tried.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&tried.stderr).trim().to_owned();
        Err(SshdError::Refused { path: self.config.clone(), said })
    }
}

/// The configuration that every sshd of these years knows. What the host decides, it doesn't.
fn config(parts: &Parts<'_>) -> String {
    let Parts { helper, socket, host_key, user, .. } = parts;
    let (helper, socket, host_key) = (helper.display(), socket.display(), host_key.display());
    format!(
        "# Made anew at each start.\n\
         HostKey {host_key}\n\
         PidFile none\n\
         AllowUsers {user}\n\
         PermitRootLogin forced-commands-only\n\
         AuthenticationMethods publickey\n\
         PasswordAuthentication no\n\
         KbdInteractiveAuthentication no\n\
         HostbasedAuthentication no\n\
         AuthorizedKeysFile none\n\
         AuthorizedKeysCommand {helper} {AUTH} {socket} %t %k\n\
         AuthorizedKeysCommandUser {user}\n\
         LoginGraceTime {GRACE_SECONDS}\n\
         MaxSessions 8\n\
         DisableForwarding yes\n\
         PermitTTY no\n\
         PermitUserRC no\n\
         PermitUserEnvironment no\n\
         AcceptEnv GIT_PROTOCOL\n\
         # Else bash reads its files for each command, as it does for people.\n\
         SetEnv SHLVL=2\n\
         Compression no\n\
         UseDNS no\n\
         ClientAliveInterval 60\n\
         ClientAliveCountMax 3\n\
         LogLevel INFO\n"
    )
}

/// Whether a path means nothing but itself to sshd and to a shell.
fn is_plain(path: &Path) -> bool {
    path.is_absolute()
        && path.to_str().is_some_and(|text| text.bytes().all(|c| c.is_ascii_alphanumeric() || b"/._+-".contains(&c)))
}

/// Refuses a program that others than root could replace: sshd doesn't run such a one.
fn trusted(program: &Path) -> Result<(), SshdError> {
    for path in program.ancestors() {
        let refused = |why| SshdError::Program { path: path.to_owned(), why };
        let meta = fs::metadata(path).map_err(|source| SshdError::Io { path: path.to_owned(), source })?;
        if meta.uid() != 0 {
            return Err(refused("it doesn't belong to root"));
        }
        if meta.mode() & 0o022 != 0 {
            return Err(refused("others than root may write it"));
        }
    }
    Ok(())
}

fn find(search: &OsStr) -> Option<PathBuf> {
    let dirs = std::env::split_paths(search).chain(USUAL.map(PathBuf::from));
    dirs.filter(|dir| dir.is_absolute()).map(|dir| dir.join("sshd")).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_means_more_than_itself_is_refused() {
        assert!(is_plain(Path::new("/usr/bin/wfm-git-publisher")));
        for bad in ["/a b", "/a%u", "/a'b", "/a\"b", "/a;b", "/a$b", "/a\nb", "a", "/ä"] {
            assert!(!is_plain(Path::new(bad)), "{bad}");
        }
    }

    #[test]
    fn a_program_that_others_could_replace_is_refused() {
        assert!(trusted(Path::new("/usr/bin/env")).is_ok());
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let refused = trusted(&dir.path().join("..").join("tmp"));
        assert!(refused.is_err());
        assert!(trusted(dir.path()).is_err());
    }
}
