//! The host over SSH: stock sshd, ssh and git, and libgit2 over the same stream.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use git2::transport::{Service, SmartSubtransport, SmartSubtransportStream, Transport};
use jiff::Timestamp;
use repo_testkit::ssh_key::keygen;
use repo_testkit::sshd::make_runtime_directory;
use repo_testkit::{git, ssh_key};
use wfm_git_host::accounts::{Role, SshKey, Store};

use super::waits::move_freshness;
use super::{DEVICE, OTHER, Report, Site, eventually, printed, said, start_as};
use crate::support::{Lab, trusted_program};

/// A site whose host is there over SSH, too.
pub(super) struct SshSite {
    pub(super) site: Site,
    /// `USER@ADDRESS` and the port.
    pub(super) at: (String, String),
    pub(super) program: PathBuf,
}

impl SshSite {
    pub(super) fn new() -> Self {
        Self::with("")
    }

    /// With these lines under `serve:`.
    pub(super) fn with(settings: &str) -> Self {
        let lab = Lab::with(&[DEVICE, OTHER]);
        lab.publish_all();
        let ca = Site::prepare(&lab, &format!("  ssh: {{listen: 127.0.0.1:0}}\n{settings}"));
        let program = trusted_program();
        let mut server = start_as(&lab, &program);
        let (address, at) = (server.address(), at(&server.line()));
        Self { site: Site { lab, address, ca, server }, at, program }
    }

    pub(super) fn restart(&mut self) {
        self.site.kill();
        self.site.server = start_as(&self.site.lab, &self.program);
        self.site.address = self.site.server.address();
        self.at = at(&self.site.server.line());
    }

    /// A new key, which is nobody's as yet.
    pub(super) fn key(&self, name: &str) -> PathBuf {
        let key = self.site.lab.dir().join(name);
        keygen(&key, "ed25519", "");
        key
    }

    /// Lets the owner of a key in as this device.
    pub(super) fn device(&self, device: &str) -> PathBuf {
        let key = self.key(device);
        let store = Store::new(self.site.lab.home.accounts());
        assert!(store.add_ssh_key_for_device(&device.parse().unwrap(), public(&key)).unwrap());
        key
    }

    /// Lets the owner of a key in as a person.
    pub(super) fn person(&self, name: &str, role: &str) -> PathBuf {
        let key = self.key(name);
        self.admit(&key, name, &["--role", role]);
        key
    }

    /// Lets the owner of a key in with this account, which is made if there is none.
    fn admit(&self, key: &Path, name: &str, args: &[&str]) {
        let line = ssh_key::public(key);
        let added = self.site.lab.run(&[&["account", "add", name, "--ssh-key", &line], args].concat());
        assert_eq!(added.good(), format!("{name} comes over SSH, with {}\n", public(key).fingerprint()));
    }

    pub(super) fn url(&self, repository: &str) -> String {
        format!("ssh://{}:{}/{repository}", self.at.0, self.at.1)
    }

    /// `ssh` with this key and nothing of this machine's user.
    pub(super) fn ssh(&self, key: &Path) -> Command {
        let mut command = Command::new("ssh");
        command.args(options(key)).args(["-p", &self.at.1]).stdin(Stdio::null());
        command
    }

    /// What the host says to a command.
    pub(super) fn ask(&self, key: &Path, command: &[&str]) -> Output {
        self.ssh(key).arg(&self.at.0).args(command).output().unwrap()
    }

    pub(super) fn git(&self, dir: &Path, key: &Path, args: &[&str]) -> Output {
        let mut command = git::command(dir);
        command.env("GIT_SSH_COMMAND", format!("ssh {}", options(key).join(" "))).env("GIT_TERMINAL_PROMPT", "0");
        command.args(args).output().unwrap()
    }

    /// A session that stays open, in protocol v2, behind its advertisement.
    pub(super) fn session(&self, key: &Path, repository: &str) -> (Session, String) {
        let mut command = self.ssh(key);
        command.args(["-o", "SendEnv=GIT_PROTOCOL"]).env("GIT_PROTOCOL", "version=2");
        command.args([&self.at.0, &format!("git-upload-pack '/{repository}'")]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let mut session = Session { child, input, output };
        let advertisement = session.answer();
        (session, advertisement)
    }
}

/// The options of `ssh` for a key.
pub(super) fn options(key: &Path) -> Vec<String> {
    let key = key.display().to_string();
    let settings = ["BatchMode=yes", "IdentitiesOnly=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null"];
    let settings = settings.into_iter().chain(["LogLevel=ERROR"]).flat_map(|one| ["-o".to_owned(), one.to_owned()]);
    ["-F", "/dev/null", "-i", &key].map(str::to_owned).into_iter().chain(settings).collect()
}

fn at(line: &str) -> (String, String) {
    let (at, port) = line.strip_prefix("ssh://").and_then(|rest| rest.rsplit_once(':')).expect("it listens for SSH");
    (at.to_owned(), port.to_owned())
}

pub(super) fn public(key: &Path) -> SshKey {
    SshKey::new(ssh_key::public(key).parse().unwrap(), None, Timestamp::now()).unwrap()
}

/// A conversation by hand.
pub(super) struct Session {
    pub(super) child: Child,
    pub(super) input: Option<ChildStdin>,
    output: ChildStdout,
}

impl Session {
    /// Sends lines as pkt-lines, `|` as a delimiter, and a flush.
    pub(super) fn send(&mut self, lines: &[&str]) {
        let mut bytes = Vec::new();
        for line in lines {
            match *line {
                "|" => bytes.extend(b"0001"),
                line => bytes.extend(format!("{:04x}{line}", line.len() + 4).as_bytes()),
            }
        }
        bytes.extend(b"0000");
        self.input.as_mut().unwrap().write_all(&bytes).unwrap();
    }

    /// An answer up to its flush, or to the end, as lines.
    pub(super) fn answer(&mut self) -> String {
        let mut text = String::new();
        loop {
            let mut length = [0; 4];
            if self.output.read_exact(&mut length).is_err() {
                return text;
            }
            let length = usize::from_str_radix(std::str::from_utf8(&length).unwrap(), 16).unwrap();
            if length == 0 {
                return text;
            }
            let mut line = vec![0; length - 4];
            self.output.read_exact(&mut line).unwrap();
            text.push_str(&String::from_utf8_lossy(&line));
        }
    }

    /// Ends it in good order; its exit status.
    pub(super) fn end(mut self) -> Option<i32> {
        drop(self.input.take());
        self.child.wait().unwrap().code()
    }

    pub(super) fn wait(&mut self, site: &Site) {
        let tip = |branch| format!("{branch} {}\n", site.lab.tip(DEVICE, branch).unwrap());
        self.send(&["command=wait\n", "|", &tip("desired"), &tip("freshness"), "seconds 60\n"]);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const LS_REFS: &[&str] = &["command=ls-refs\n", "|", "ref-prefix refs/heads/desired\n"];

#[test]
fn stock_git_clones_fetches_and_pushes_over_ssh_in_every_version() {
    let site = SshSite::new();
    let (key, dir) = (site.device(DEVICE), site.site.lab.dir().to_owned());
    let url = site.url("devices/press-01.git");
    let mut parent: Option<String> = None;
    for version in ["0", "1", "2"] {
        let protocol = format!("protocol.version={version}");
        let clone = dir.join(format!("clone-{version}"));
        let name = clone.display().to_string();
        printed(&site.git(&dir, &key, &["-c", &protocol, "clone", "-q", &url, &name]));
        let shallow = dir.join(format!("shallow-{version}")).display().to_string();
        printed(&site.git(&dir, &key, &["-c", &protocol, "clone", "-q", "--depth=1", &url, &shallow]));
        assert_eq!(git::git(Path::new(&shallow), &["rev-list", "--count", "HEAD"]), "1");
        // What it has is known to both, and what comes is less than all.
        site.site.lab.edit("deployments/hello.yaml", "greeting:", &format!("greeting: v{version} #"));
        site.site.lab.commit();
        site.site.lab.publish_all();
        printed(&site.git(&clone, &key, &["-c", &protocol, "fetch", "-q", "origin"]));
        assert_eq!(Some(git::git(&clone, &["rev-parse", "origin/desired"])), site.site.lab.tip(DEVICE, "desired"));
        git::git(&clone, &["fsck", "--strict"]);
        let signer = Lab::device_key(DEVICE);
        let parents: Vec<&str> = parent.iter().map(String::as_str).collect();
        let report = Report { device: DEVICE, kind: "status", parents: &parents, signer: Some(&signer) };
        let status = report.commit(&site.site, &clone, version);
        let push = |refspec: &str| site.git(&clone, &key, &["-c", &protocol, "push", &url, refspec]);
        let refused = push(&format!("+{status}:refs/heads/desired"));
        assert!(!refused.status.success() && said(&refused).contains("a device may only push"), "{}", said(&refused));
        printed(&push(&format!("{status}:refs/heads/status")));
        assert_eq!(site.site.lab.tip(DEVICE, "status"), Some(status.clone()), "v{version}");
        parent = Some(status);
    }
    let (_, log) = site.site.stop();
    assert!(log.contains("transport=\"ssh\"") && log.contains("action=\"receive-pack\" status=200"), "{log}");
}

#[test]
fn each_role_has_over_ssh_what_it_has_over_https() {
    let site = SshSite::new();
    let (device, auditor, operator) =
        (site.device(DEVICE), site.person("aud", "auditor"), site.person("olga", "operator"));
    let (dir, fleet) = (site.site.lab.dir().to_owned(), site.site.lab.home.hosted_fleet());
    git::git(&dir, &["clone", "-q", "--bare", "fleet", &fleet.display().to_string()]);
    let list = |key: &Path, repository: &str| site.git(&dir, key, &["ls-remote", &site.url(repository)]);
    for repository in ["devices/packer-01.git", "control.git", "fleet.git", "devices/nobody.git", "accounts/aud.json"] {
        let hidden = list(&device, repository);
        assert!(said(&hidden).contains("not-found: there is nothing here"), "{repository}: {}", said(&hidden));
    }
    for repository in ["devices/press-01.git", "devices/packer-01.git", "control.git", "fleet.git"] {
        for key in [&auditor, &operator] {
            printed(&list(key, repository));
        }
    }
    let (work, url) = (&site.site.lab.fleet, site.url("fleet.git"));
    site.site.lab.edit("deployments/hello.yaml", "greeting:", "greeting: new #");
    let commit = site.site.lab.commit();
    let push = |key: &Path, to: &str| site.git(work, key, &["push", to, "HEAD:refs/heads/main"]);
    let refused = push(&auditor, &url);
    assert!(said(&refused).contains("forbidden: only operators may push"), "{}", said(&refused));
    let refused = push(&operator, &site.url("control.git"));
    assert!(said(&refused).contains("forbidden: only the publisher writes"), "{}", said(&refused));
    printed(&push(&operator, &url));
    assert_eq!(git::git(&fleet, &["rev-parse", "refs/heads/main"]), commit.to_string());
    // An operator's push is judged as over HTTPS, too.
    site.site.lab.edit("deployments/hello.yaml", "greeting:", "greeting: [ #");
    site.site.lab.commit();
    let refused = push(&operator, &url);
    assert!(!refused.status.success() && said(&refused).contains("problem"), "{}", said(&refused));
}

#[test]
fn an_operator_whose_account_is_bound_to_paths_pushes_over_ssh_within_them_and_nowhere_else() {
    let site = SshSite::new();
    let (lab, fleet) = (&site.site.lab, site.site.lab.home.hosted_fleet());
    git::git(lab.dir(), &["clone", "-q", "--bare", "fleet", &fleet.display().to_string()]);
    let bound = ["--role", "operator", "--path", "devices/press-*.yaml", "--path", "deployments/graz"];
    let [key, second] = ["gerda", "second"].map(|name| site.key(name));
    site.admit(&key, "gerda", &bound);
    // A second key, added without a word of paths, opens nothing else.
    site.admit(&second, "gerda", &bound[..2]);
    let change = |path: &str, from: &str| {
        lab.edit(path, from, &format!("# by gerda\n{from}"));
        lab.commit().to_string()
    };
    let push = |key: &Path| site.git(&lab.fleet, key, &["push", &site.url("fleet.git"), "HEAD:refs/heads/main"]);
    let main = || git::git(&fleet, &["rev-parse", "refs/heads/main"]);
    let inside = change("devices/press-01.yaml", "id: press-01");
    printed(&push(&key));
    assert_eq!(main(), inside);
    let outside = change("devices/packer-01.yaml", "id: packer-01");
    // A later commit that takes it back doesn't hide it.
    git::git(&lab.fleet, &["revert", "--no-edit", "HEAD"]);
    for key in [&key, &second] {
        let (pushed, changes) = (push(key), format!("commit {outside} changes `devices/packer-01.yaml`"));
        let rule = "the account gerda may change `devices/press-*.yaml`, `deployments/graz` and nothing else";
        let told = said(&pushed);
        assert!(!pushed.status.success() && told.contains(&changes) && told.contains(rule), "{told}");
        assert_eq!(main(), inside);
    }
    // A running host goes by other paths at once.
    lab.run(&["account", "paths", "gerda", "--path", "devices"]).good();
    assert!(eventually(|| push(&key).status.success()));
    assert_eq!(main(), git::git(&lab.fleet, &["rev-parse", "HEAD"]));
}

#[test]
fn one_session_answers_polls_and_waits_and_a_request_ends_a_wait() {
    let site = SshSite::new();
    let (key, auditor) = (site.device(DEVICE), site.site.login("aud", Role::Auditor, None));
    let (mut session, advertisement) = site.session(&key, "devices/press-01.git");
    assert!(
        advertisement.starts_with("version 2\n") && advertisement.ends_with("wait=300\nwait-site\n"),
        "{advertisement}"
    );
    let tip = |branch| site.site.lab.tip(DEVICE, branch).unwrap();
    for _ in 0..3 {
        session.send(LS_REFS);
        assert_eq!(session.answer(), format!("{} refs/heads/desired\n", tip("desired")));
    }
    session.wait(&site.site);
    assert!(eventually(|| site.site.waiters(&auditor) == 1));
    session.send(LS_REFS);
    assert_eq!(session.answer(), "nothing\n");
    assert_eq!(session.answer(), format!("{} refs/heads/desired\n", tip("desired")));
    assert!(eventually(|| site.site.waiters(&auditor) == 0));
    session.wait(&site.site);
    assert!(eventually(|| site.site.waiters(&auditor) == 1));
    move_freshness(&site.site);
    assert_eq!(session.answer(), "moved jitter=0\n");
    // One that knows less is told at once; one that is patient for a moment hears of nothing.
    session.send(&[
        "command=wait\n",
        "|",
        &format!("desired {}\n", "0".repeat(40)),
        &format!("freshness {}\n", "0".repeat(40)),
    ]);
    assert!(session.answer().starts_with("moved jitter="));
    let tips = ["desired", "freshness"].map(|branch| format!("{branch} {}\n", tip(branch)));
    session.send(&["command=wait\n", "|", &tips[0], &tips[1], "seconds 1\n"]);
    assert_eq!(session.answer(), "nothing\n");
    assert_eq!(session.end(), Some(0));
    // The fleet has no device to wait for.
    let fleet = site.site.lab.home.hosted_fleet();
    git::git(site.site.lab.dir(), &["clone", "-q", "--bare", "fleet", &fleet.display().to_string()]);
    let operator = site.person("olga", "operator");
    let (mut session, advertisement) = site.session(&operator, "fleet.git");
    assert!(!advertisement.contains("wait="), "{advertisement}");
    session.wait(&site.site);
    assert_eq!(session.answer(), "ERR not-found: there is nothing here\n");
    assert_eq!(session.end(), Some(1));
}

#[test]
fn a_key_that_ends_is_out_at_once_with_all_its_sessions() {
    let site = SshSite::new();
    let (key, other) = (site.device(DEVICE), site.device(OTHER));
    let (mut waiting, _) = site.session(&key, "devices/press-01.git");
    let (mut idle, _) = site.session(&key, "devices/press-01.git");
    let (mut beside, _) = site.session(&other, "devices/packer-01.git");
    waiting.wait(&site.site);
    let store = Store::new(site.site.lab.home.accounts());
    store.revoke(&DEVICE.parse().unwrap(), Timestamp::now()).unwrap();
    for session in [&mut waiting, &mut idle] {
        assert_eq!(session.answer(), "ERR unauthorized: an account is needed\n");
    }
    assert_eq!((waiting.end(), idle.end()), (Some(1), Some(1)));
    beside.send(LS_REFS);
    assert!(beside.answer().ends_with("refs/heads/desired\n"));
    let denied = site.ask(&key, &["git-upload-pack '/devices/press-01.git'"]);
    assert!(said(&denied).contains("Permission denied (publickey)"), "{}", said(&denied));
    let stranger = site.key("stranger");
    let denied = site.ask(&stranger, &["git-upload-pack '/devices/press-01.git'"]);
    assert!(said(&denied).contains("Permission denied (publickey)"), "{}", said(&denied));
}

#[test]
fn a_host_that_stops_or_was_killed_ends_its_sessions_and_is_there_again() {
    let mut site = SshSite::new();
    let key = site.device(DEVICE);
    let (mut waiting, _) = site.session(&key, "devices/press-01.git");
    waiting.wait(&site.site);
    std::thread::sleep(std::time::Duration::from_millis(300));
    site.restart();
    assert_eq!(waiting.answer(), "");
    assert_eq!(waiting.end(), Some(1));
    let (mut waiting, _) = site.session(&key, "devices/press-01.git");
    waiting.wait(&site.site);
    std::thread::sleep(std::time::Duration::from_millis(300));
    site.site.terminate();
    assert_eq!(waiting.answer(), "ERR stopping: the host is about to stop; retry-after=2\n");
}

/// The first block of this kind in the document about SSH.
fn documented(kind: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ssh.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, block) = text.split_once(&format!("```{kind}\n")).unwrap();
    block.split_once("```").unwrap().0.to_owned()
}

#[test]
fn the_configuration_of_the_documents_serves_and_bears_a_restart_of_the_host() {
    let lab = Lab::with(&[DEVICE, OTHER]);
    lab.publish_all();
    let (socket, keys) = (lab.dir().join("host.sock").display().to_string(), lab.home.ssh().display().to_string());
    let own = Command::new("id").arg("-un").output().unwrap();
    let user = printed(&own);
    let here = |text: &str| text.replace("wfm-ssh", &user).replace("/run/wfm-git-publisher/host.sock", &socket);
    let settings = here(&documented("yaml")).replace("serve:\n  names: [wfm.plant.example]\n", "");
    let ca = Site::prepare(&lab, &settings);
    let program = trusted_program();
    let mut server = start_as(&lab, &program);
    let address = server.address();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let config = here(&documented("sshd_config"))
        .replace("Port 2222", &format!("Port {port}\nListenAddress 127.0.0.1"))
        .replace("/usr/bin/wfm-git-publisher", &program.display().to_string())
        .replace("/var/lib/wfm/fleet.wfm/ssh", &keys);
    let place = lab.dir().join("sshd_config");
    std::fs::write(&place, config).unwrap();
    make_runtime_directory();
    let mut sshd = Command::new("/usr/sbin/sshd");
    let sshd = sshd.args(["-D", "-e", "-f"]).arg(&place).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let _ended_in_any_case = Stream(sshd);
    let at = (format!("{user}@127.0.0.1"), port);
    let mut site = SshSite { site: Site { lab, address, ca, server }, at, program };
    let key = site.device(DEVICE);
    let list = |site: &SshSite| site.git(site.site.lab.dir(), &key, &["ls-remote", &site.url("devices/press-01.git")]);
    assert!(eventually(|| list(&site).status.success()));
    let (mut session, advertisement) = site.session(&key, "devices/press-01.git");
    assert!(advertisement.ends_with("wait=300\nwait-site\n"), "{advertisement}");
    session.wait(&site.site);
    site.site.kill();
    assert_eq!((session.answer(), session.end()), (String::new(), Some(1)));
    // Who comes while it is started anew is let in as soon as it is there.
    std::thread::scope(|scope| {
        let early = scope.spawn(|| list(&site));
        std::thread::sleep(std::time::Duration::from_millis(500));
        let _again = start_as(&site.site.lab, &site.program);
        printed(&early.join().unwrap());
    });
}

/// libgit2 over stock ssh: it speaks protocol v0 step by step, and leaves its side open behind a push.
#[derive(Clone)]
struct OverSsh {
    arguments: Vec<String>,
}

struct Stream(Child);

impl SmartSubtransport for OverSsh {
    fn action(&self, _url: &str, service: Service) -> Result<Box<dyn SmartSubtransportStream>, git2::Error> {
        let program = match service {
            Service::UploadPackLs | Service::UploadPack => "git-upload-pack",
            Service::ReceivePackLs | Service::ReceivePack => "git-receive-pack",
        };
        let mut command = Command::new("ssh");
        command.args(&self.arguments).arg(format!("{program} '/devices/press-01.git'"));
        Ok(Box::new(Stream(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())))
    }

    fn close(&self) -> Result<(), git2::Error> {
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.stdout.as_mut().unwrap().read(buffer)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.stdin.as_mut().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[expect(unsafe_code, reason = "git2 offers it in no other way")]
fn libgit2_fetches_and_pushes_over_ssh_and_is_refused_with_a_reason() {
    let site = SshSite::new();
    let key = site.device(DEVICE);
    let arguments = [options(&key), vec!["-p".to_owned(), site.at.1.clone(), site.at.0.clone()]].concat();
    let over_ssh = OverSsh { arguments };
    // SAFETY: once, before libgit2 is used in this process: each test has one of its own.
    let registered =
        unsafe { git2::transport::register("wire", move |remote| Transport::smart(remote, false, over_ssh.clone())) };
    registered.unwrap();
    let dir = site.site.lab.dir().join("libgit2.git");
    let repository = git2::Repository::init_bare(&dir).unwrap();
    let fetch = || {
        let mut remote = repository.remote_anonymous("wire://x").unwrap();
        remote.fetch(&["refs/heads/*:refs/heads/*"], None, None).unwrap();
        assert_eq!(git::tip(&dir, "desired"), site.site.lab.tip(DEVICE, "desired"));
    };
    fetch();
    // Behind many commits of its own it says what it has, again and again.
    let mut tip = git::tip(&dir, "desired").unwrap();
    for number in 0..80 {
        tip = git::git(&dir, &["commit-tree", &format!("{tip}^{{tree}}"), "-p", &tip, "-m", &number.to_string()]);
    }
    git::git(&dir, &["update-ref", "refs/heads/mine", &tip]);
    site.site.lab.edit("deployments/hello.yaml", "greeting:", "greeting: new #");
    site.site.lab.commit();
    site.site.lab.publish_all();
    fetch();
    git::git(&dir, &["fsck", "--strict"]);
    let commit = site.site.first_status(&dir, "1");
    git::git(&dir, &["update-ref", "refs/heads/status", &commit]);
    let push = |refspec: &str| super::clients::libgit2_push(&repository, refspec);
    let refused = push("refs/heads/status:refs/heads/main");
    assert_eq!(refused.as_deref(), Some("a device may only push refs/heads/status and refs/heads/heartbeat"));
    assert_eq!(push("refs/heads/status:refs/heads/status"), None);
    assert_eq!(site.site.lab.tip(DEVICE, "status"), Some(commit));
}
