//! The device itself: its home, clock, secret files and room.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use repo_model::{error_chain, sort_few};
use rustix::process::{getegid, geteuid};

use super::Row;
use crate::config::{Home, Settings, SshIdentity};
use crate::decision::windows::KernelClock;
use crate::home;
use crate::reconcile::kernel_clock;
use crate::runtimes::Redactor;
use crate::runtimes::command::{self, Spec};
use crate::state::local_condition;

/// With less than this, what is fetched next may not fit.
const LITTLE: u64 = 512 << 20;

/// With less than this, the state itself may not fit.
const NONE: u64 = 64 << 20;

/// How long the service manager may take to say whether the clock is synchronised.
const ASK: Duration = Duration::from_secs(5);

/// What systemd-timesyncd leaves once it has set the clock.
const SYNCHRONISED: &str = "/run/systemd/timesync/synchronized";

/// Who this is, its settings, whether a syncer is at work, and how the last pass went.
pub(super) fn home(home: &Home) -> Vec<Row> {
    let mut rows = vec![match home::joined(home) {
        Ok(join) => Row::ok("device", format!("{}, device-syncer {}", join.device, env!("CARGO_PKG_VERSION"))),
        Err(error) => Row::failed(
            "device",
            error_chain(&error),
            "have the join file written again, and run `device-syncer init --join FILE`",
        ),
    }];
    rows.push(match Settings::read(home) {
        Ok(_) => Row::ok("settings", "device.yaml can be read"),
        Err(error) => Row::failed("settings", error_chain(&error), "device.sample.yaml shows every key with its form"),
    });
    rows.push(match home::is_at_work(home) {
        true => Row::ok("syncer", "at work"),
        false => Row::warning(
            "syncer",
            "not at work: nothing is followed",
            "`systemctl start device-syncer`, or `device-syncer run`",
        ),
    });
    let failure = local_condition::read(&home.failure());
    rows.extend(failure.map(|why| {
        Row::failed("last pass", why.to_string(), "what it names; `device-syncer once` makes another pass")
    }));
    rows
}

/// Whether the clock is right, as far as the device can tell by itself.
pub(super) fn clock(home: &Home) -> Vec<Row> {
    let now = Timestamp::now();
    let shown = format!("{now:.0}");
    let set = "set it, and have it kept by systemd-timesyncd or chrony";
    if let Some(proven) = home::time_that_is_over(home).filter(|proven| *proven > now) {
        return vec![Row::failed("clock", format!("{shown}, and {proven:.0} was proven to be over"), set)];
    }
    let needs_kernel = |settings: Settings| settings.gates.windows.is_some() && !settings.trusts_clock;
    if Settings::read(home).is_ok_and(needs_kernel) {
        let doubt = match kernel_clock::ask() {
            KernelClock::Synchronised => None,
            KernelClock::Unsynchronised => {
                Some(("the kernel doesn't say that it is synchronised", "have it kept by NTP"))
            }
            KernelClock::Unasked => {
                Some(("the kernel may not be asked whether it is synchronised", "let the container call `adjtimex`"))
            }
        };
        if let Some((why, todo)) = doubt {
            let found = format!("{shown}, and {why}: no window of the site's is open");
            return vec![Row::warning("clock", found, format!("{todo}, or say `clock: {{rtc: true}}` in device.yaml"))];
        }
    }
    vec![match is_synchronised() {
        Some(true) => Row::ok("clock", format!("{shown}, synchronised")),
        Some(false) => Row::warning("clock", format!("{shown}, not synchronised"), set),
        None => Row::ok("clock", format!("{shown}; whether it is synchronised isn't known here")),
    }]
}

/// Whether the kernel's clock is kept by another one; `None` where nobody says it.
fn is_synchronised() -> Option<bool> {
    if Path::new(SYNCHRONISED).exists() {
        return Some(true);
    }
    let spec = Spec {
        program: "timedatectl".into(),
        args: ["show", "--property", "NTPSynchronized", "--value"].map(Into::into).into(),
        env: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
        timeout: ASK,
        stdout_limit: 1024,
        redactor: Redactor::default(),
    };
    let output = command::run(&spec, &|| false).ok().filter(|output| output.status.success())?;
    match String::from_utf8_lossy(&output.stdout).trim() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

/// Whether secret files are their owner's alone, and that is who runs this.
pub(super) fn secrets(home: &Home) -> Vec<Row> {
    let (mut bad, mut count) = (Vec::new(), 0);
    for path in secret_files(home) {
        match fs::metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => bad.push(Row::failed("secrets", format!("`{}`: {error}", path.display()), RIGHTS)),
            Ok(found) if path == home.root() && Rights::of(&found).are_a_volumes(&process()) => {}
            Ok(found) => bad.extend(complaint(&path, &Rights::of(&found), &process())),
        }
        count += 1;
    }
    if bad.is_empty() {
        bad.push(Row::ok("secrets", format!("{count} files, each its owner's alone")));
    }
    bad
}

const RIGHTS: &str = "they have to be readable by the user that runs the syncer, and by nobody else";

/// Whose a file is, and what others may do with it.
#[derive(Debug, Clone, Copy)]
struct Rights {
    user: u32,
    group: u32,
    mode: u32,
}

/// The effective user and group of this process.
struct Process {
    user: u32,
    group: u32,
}

fn process() -> Process {
    Process { user: geteuid().as_raw(), group: getegid().as_raw() }
}

impl Rights {
    fn of(found: &fs::Metadata) -> Self {
        Self { user: found.uid(), group: found.gid(), mode: found.mode() & 0o7777 }
    }

    /// Whether these are the rights of a volume that the kubelet gave to the group of a pod (`fsGroup`): it stays root's, so
    /// nobody in the pod can close it, and with other rights the kubelet would open all files in it to that group.
    fn are_a_volumes(&self, to: &Process) -> bool {
        self.user == 0
            && to.user != 0
            && self.group == to.group
            && self.mode & 0o2070 == 0o2070
            && self.mode & 0o002 == 0
    }
}

fn complaint(path: &Path, rights: &Rights, own: &Process) -> Option<Row> {
    let (mode, path) = (rights.mode & 0o777, path.display());
    if mode & 0o077 != 0 {
        return Some(Row::failed("secrets", format!("`{path}` has mode {mode:03o}"), format!("chmod go-rwx '{path}'")));
    }
    let is_strange = rights.user != own.user && own.user != 0;
    let found = || format!("`{path}` is user {}'s, and this is user {}", rights.user, own.user);
    is_strange.then(|| Row::failed("secrets", found(), RIGHTS))
}

/// What only its owner may read: the keys of the home, and what device.yaml names.
fn secret_files(home: &Home) -> Vec<PathBuf> {
    let mut files = vec![home.root().to_owned(), home.key(), home.hmac_key(), home.ssh_key(), home.account()];
    files.extend([home.certificate(), home.next_certificate()]);
    files.extend([home.next_key(), home.old_key(), home.rekey(), home.next_ssh_key(), home.old_ssh_key()]);
    let Ok(settings) = Settings::read(home) else { return files };
    files.extend(settings.host.secrets.iter().cloned());
    files.extend(settings.host.client_certificate.iter().map(|one| one.key.clone()));
    if let SshIdentity::File { path, .. } = &settings.host.ssh.identity {
        files.push(path.clone());
    }
    sort_few(&mut files, Ord::cmp);
    files.dedup();
    files
}

/// Room for the home, and for images and containers.
pub(super) fn room(home: &Home) -> Vec<Row> {
    let images = home::runtimes_of(home).ok().and_then(|runtimes| runtimes.data_root());
    let places = [("room: home", Some(home.root().to_owned())), ("room: images", images)];
    places.into_iter().filter_map(|(check, path)| Some(room_at(check, &path?))).collect()
}

fn room_at(check: &str, path: &Path) -> Row {
    let shown = path.display();
    let stat = match rustix::fs::statvfs(path) {
        Ok(stat) => stat,
        Err(error) => return Row::failed(check, format!("`{shown}`: {error}"), "look at its disk"),
    };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let found = format!("{} MiB free in `{shown}`", free >> 20);
    let more = "make room: what runs keeps running, and nothing new may fit";
    // A file system without a fixed number of files says 0 of 0.
    let has_files = stat.f_files == 0 || stat.f_favail > stat.f_files / 100;
    match free {
        ..NONE => Row::failed(check, found, more),
        NONE..LITTLE => Row::warning(check, found, more),
        _ if !has_files => Row::warning(check, format!("{found}, and hardly a file more ({})", stat.f_favail), more),
        _ => Row::ok(check, found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: Process = Process { user: 65532, group: 65532 };

    #[test]
    fn a_pods_volume_may_be_its_groups_and_nothing_else_may() {
        let volume = Rights { user: 0, group: 65532, mode: 0o2775 };
        assert!(volume.are_a_volumes(&POD));
        for other in [
            Rights { user: 65532, ..volume },
            Rights { group: 0, ..volume },
            Rights { mode: 0o2777, ..volume },
            Rights { mode: 0o775, ..volume },
            Rights { mode: 0o2755, ..volume },
        ] {
            assert!(!other.are_a_volumes(&POD), "{other:?}");
        }
        assert!(
            !Rights { group: 0, ..volume }.are_a_volumes(&Process { user: 0, group: 0 }),
            "root can close its home"
        );
    }

    #[test]
    fn a_secret_that_the_kubelet_opened_to_the_pods_group_is_told() {
        let key = Rights { user: 65532, group: 65532, mode: 0o660 };
        assert!(complaint(Path::new("status.key"), &key, &POD).is_some());
        assert!(complaint(Path::new("status.key"), &Rights { mode: 0o600, ..key }, &POD).is_none());
        assert!(complaint(Path::new("status.key"), &Rights { user: 0, mode: 0o600, ..key }, &POD).is_some());
    }
}
