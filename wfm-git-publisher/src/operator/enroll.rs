//! Enrolment: a device's public keys go into its file in the fleet repository, and the keys with which it asks into its account here.

use std::path::Path;

use jiff::Timestamp;
use repo_git::{KeyError, PublicKey};
use repo_model::digest::InvalidDigest;
use repo_model::key::InvalidKey;
use repo_model::{DeviceId, Digest, KeyText};
use wfm_git_host::accounts::{AccountError, AccountName, Credential, Fate, InvalidSshKey, SshKey, Store};

use super::allowed_signers::allow;
use super::device_file::{Changed, DeviceFile, DeviceFileError, Edit};
use super::edit;
use crate::fleet::{self, Content, Device, SourceFile};
use crate::repos::{Home, HomeError, key_text};

/// What `device enroll` noted and committed.
#[derive(Debug)]
pub struct Enrolled {
    /// The path of the device's file in the fleet repository.
    pub file: String,
    /// The status key's fingerprint: `SHA256:…`, as `ssh-keygen -l` shows it.
    pub fingerprint: String,
    /// The SSH key's, if one was given.
    pub ssh_fingerprint: Option<String>,
    /// The digest of the certificate's key, if one was given.
    pub certificate: Option<Digest>,
    /// Whether the keys were there already.
    pub was_there: bool,
}

/// The lines that `device-syncer init` prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lines {
    /// The key that signs what the device says.
    pub status: String,
    /// The key with which it asks a host over SSH.
    pub ssh: Option<String>,
    /// The digest of the key of the certificate with which it asks over HTTPS, and what follows it.
    pub certificate: Option<String>,
}

impl Lines {
    /// Finds them in what was printed, whatever stands around them; `None` if there are two of one kind. An SSH key's
    /// comment is the device's id and `ssh`.
    pub fn find(text: &str) -> Option<Self> {
        let is_key = |line: &&str| ["ssh-", "ecdsa-", "sk-"].iter().any(|head| line.starts_with(head));
        let is_ssh = |line: &&str| line.split_whitespace().skip(3).last() == Some("ssh");
        let lines = || text.lines().map(str::trim);
        let (ssh, status): (Vec<_>, Vec<_>) = lines().filter(is_key).partition(is_ssh);
        let certificate: Vec<_> = lines().filter(|line| line.starts_with("sha256:")).collect();
        let (ssh, certificate) = (at_most_one(&ssh)?, at_most_one(&certificate)?);
        // Whatever it is, it is named when it is read as a key.
        let status = at_most_one(&status)?.unwrap_or_else(|| text.trim().to_owned());
        Some(Self { status, ssh, certificate })
    }
}

/// The line, if there is one; `None` if there are more.
fn at_most_one(lines: &[&str]) -> Option<Option<String>> {
    match lines {
        [] => Some(None),
        [line] => Some(Some((*line).to_owned())),
        _ => None,
    }
}

/// A device can't be enrolled.
#[derive(Debug, thiserror::Error)]
pub enum EnrollError {
    /// The line isn't a key.
    #[error("the line is not the one that `device-syncer init` prints")]
    Key(#[source] KeyError),
    /// The SSH key's line isn't a key.
    #[error("the line of the SSH key is not the one that `device-syncer init` prints")]
    SshKey(#[source] InvalidKey),
    /// The SSH key is of a kind that nobody may come with.
    #[error(transparent)]
    SshKind(#[from] InvalidSshKey),
    /// The keys that sign and that ask are one and the same.
    #[error("both lines have the same key: what asks a host isn't what signs `status`")]
    OneKey,
    /// The certificate's line isn't a digest.
    #[error("the line of the certificate is not the one that `device-syncer init` prints")]
    Certificate(#[source] InvalidDigest),
    /// A certificate lets in here only, and this is no host.
    #[error("this publisher is no host, and a certificate lets a device into nothing else")]
    NoHost,
    /// It comes with another certificate already; only `--replace` takes that away.
    #[error("`{device}` comes with another certificate, whose key is {key}")]
    OtherCertificate { device: DeviceId, key: Digest },
    /// The device's account here can't be changed. Its file in the fleet has the keys.
    #[error("cannot put the device's key into its account")]
    Account(#[from] AccountError),
    #[error(transparent)]
    File(#[from] DeviceFileError),
    /// Nobody meant it to come back.
    #[error("`{0}` is retired")]
    Retired(DeviceId),
    /// It has another key already; only `--replace` takes that away.
    #[error("`{device}` is enrolled with another key")]
    OtherKey { device: DeviceId },
    /// It is another device's key.
    #[error("that is the key of `{owner}`, in `{file}`")]
    Taken { owner: DeviceId, file: String },
    #[error("cannot add the key to `allowed_signers`")]
    Signers(#[source] HomeError),
}

/// The keys that a device is enrolled with.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    status: KeyText,
    ssh: Vec<KeyText>,
}

/// Puts the keys of the lines into the device's file and commits that, and the SSH key and the digest of the certificate's key
/// into its account at the host with these accounts, if there is one. Other keys are replaced only if `replace` says so. An SSH
/// key ends with the status key that it came with.
pub fn enroll(
    root: &Path,
    home: &Home,
    accounts: Option<&Store>,
    device: &DeviceId,
    lines: &Lines,
    replace: bool,
) -> Result<Enrolled, EnrollError> {
    let public: PublicKey = lines.status.parse().map_err(EnrollError::Key)?;
    let status = key_text(public).ok_or_else(|| DeviceFileError::NoDevice(device.clone()))?;
    let now = Timestamp::now();
    let ssh = lines.ssh.as_ref().map(|line| line.parse().map_err(EnrollError::SshKey)).transpose()?;
    let ssh = ssh.map(|key| SshKey::new(key, Some(status.clone()), now)).transpose()?;
    if ssh.as_ref().is_some_and(|ssh| ssh.key == status) {
        return Err(EnrollError::OneKey);
    }
    let certificate = match &lines.certificate {
        Some(line) => Some(certificate(accounts.ok_or(EnrollError::NoHost)?, device, line, replace)?),
        None => None,
    };
    let ssh_fingerprint = ssh.as_ref().map(SshKey::fingerprint);
    let mut enrolled = in_file(root, device, (&status, ssh.as_ref().map(|ssh| &ssh.key)), replace, |keys| {
        let ssh = ssh_fingerprint.iter().filter(|_| !keys.ssh.is_empty());
        let ssh: String = ssh.map(|fingerprint| format!(", over SSH {fingerprint}")).collect();
        format!("{device}: enroll {}{ssh}", public.fingerprint())
    })?;
    (enrolled.fingerprint, enrolled.ssh_fingerprint) = (public.fingerprint(), ssh_fingerprint);
    enrolled.certificate = certificate;
    add_signer(home, device, &status)?;
    if let (Some(accounts), Some(ssh)) = (accounts, ssh) {
        // The new one first: a device that has both is let in at any moment.
        accounts.add_ssh_key_for_device(device, ssh.clone())?;
        accounts.judge_ssh_keys(&AccountName::of(device), now, |known| match known.enrolled_with {
            Some(_) if known.key != ssh.key => Fate::Goes,
            _ => Fate::Counts,
        })?;
    }
    if let (Some(accounts), Some(key)) = (accounts, certificate) {
        accounts.take_for_device(device, Credential::Certificate(key), None, now)?;
    }
    Ok(enrolled)
}

/// The digest of the certificate's key that a line has, where the device may come with that from now on.
fn certificate(accounts: &Store, device: &DeviceId, line: &str, replace: bool) -> Result<Digest, EnrollError> {
    let key = line.split_whitespace().next().unwrap_or_default().parse().map_err(EnrollError::Certificate)?;
    let name = AccountName::of(device);
    accounts.check_free(&Credential::Certificate(key), &name)?;
    match accounts.read(&name)?.and_then(|account| account.certificate) {
        Some(known) if known.sha256 != key && !replace => {
            Err(EnrollError::OtherCertificate { device: device.clone(), key: known.sha256 })
        }
        _ => Ok(key),
    }
}

/// Puts the keys into the device's file, and commits it with a message about them.
pub(super) fn in_file(
    root: &Path,
    device: &DeviceId,
    (status, ssh): (&KeyText, Option<&KeyText>),
    replace: bool,
    message: impl Fn(&Keys) -> String,
) -> Result<Enrolled, EnrollError> {
    let found = DeviceFile::open(root, device)?;
    let before = &found.before;
    if before.retired.is_some() {
        return Err(EnrollError::Retired(device.clone()));
    }
    let has_status = before.status_keys == [status.clone()];
    let keys = Keys {
        status: status.clone(),
        ssh: match ssh {
            Some(ssh) => vec![ssh.clone()],
            // What came with a status key that is replaced ends with it.
            None if has_status => before.ssh_keys.clone(),
            None => Vec::new(),
        },
    };
    let texts = |keys: &[KeyText]| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
    let edit = Edit {
        key: "statusKeys",
        text: &|text| {
            let text = edit::set_list(text, "statusKeys", &texts(std::slice::from_ref(&keys.status)))?;
            edit::set_list(&text, "sshKeys", &texts(&keys.ssh))
        },
        meaning: &|before| Device { status_keys: vec![keys.status.clone()], ssh_keys: keys.ssh.clone(), ..before },
        message: &message(&keys),
    };
    if !found.means(&edit) {
        let has_others =
            before.is_enrolled() && !has_status || !before.ssh_keys.is_empty() && before.ssh_keys != keys.ssh;
        if has_others && !replace {
            return Err(EnrollError::OtherKey { device: device.clone() });
        }
        for key in std::iter::once(&keys.status).chain(&keys.ssh) {
            if let Some((owner, file)) = owner(&found.files, Some(device), key) {
                return Err(EnrollError::Taken { owner, file });
            }
        }
    }
    let Changed { file, was_there } = found.change(&edit)?;
    Ok(Enrolled { file, fingerprint: String::new(), ssh_fingerprint: None, certificate: None, was_there })
}

/// The device that has the key, if it is another one, and its file.
pub(super) fn owner(files: &[SourceFile], device: Option<&DeviceId>, key: &KeyText) -> Option<(DeviceId, String)> {
    let names = |file: &&SourceFile| match &file.content {
        Content::Plain(bytes) => String::from_utf8_lossy(bytes).contains(key.as_str()),
        Content::Refused(..) => false,
    };
    let mut others = files.iter().filter(names).filter_map(|file| fleet::read_device(file).ok());
    let has = |other: &Device| other.status_keys.contains(key) || other.ssh_keys.contains(key);
    let other = others.find(|other| Some(&other.id) != device && has(other))?;
    Some((other.id, other.file))
}

/// Lets `git log --show-signature` name the device, where the publisher's home is here. The old lines stay: they verify what was signed
/// before.
pub(super) fn add_signer(home: &Home, device: &DeviceId, key: &KeyText) -> Result<(), EnrollError> {
    if !home.root().exists() {
        return Ok(());
    }
    allow(home, [format!("{device} namespaces=\"git\" {key}")]).map_err(EnrollError::Signers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_found_in_what_was_printed_and_two_of_one_kind_are_none() {
        let (status, ssh) = ("ssh-ed25519 AAAAB press-01", "ecdsa-sha2-nistp256 AAAAC press-01 ssh");
        let found = |text: &str| Lines::find(text);
        let lines = |ssh: Option<&str>| {
            Some(Lines { status: status.to_owned(), ssh: ssh.map(str::to_owned), certificate: None })
        };
        assert_eq!(found(&format!("warning: x\n {status} \n{ssh}\n")), lines(Some(ssh)));
        assert_eq!(found(&format!("{ssh}\n{status}\n")), lines(Some(ssh)));
        assert_eq!(found(status), lines(None));
        assert_eq!(found("ssh-ed25519 AAAAB ssh").map(|lines| lines.ssh), Some(None));
        let tls = "sha256:00 press-01 tls";
        let both = Lines { certificate: Some(tls.to_owned()), ..lines(None).unwrap() };
        assert_eq!(found(&format!("{status}\n{tls}\n")), Some(both));
        assert_eq!(found(&format!("{status}\n{tls}\n{tls}")), None);
        assert_eq!(found(&format!("{status}\n{status}")), None);
        assert_eq!(found(&format!("{status}\n{ssh}\n{ssh}")), None);
        assert_eq!(found("nothing\n").map(|lines| lines.status), Some("nothing".to_owned()));
    }
}
