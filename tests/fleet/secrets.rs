//! Secrets stay where they belong: searched for in every object of every repository, in all that is said, in every
//! file and in every process's arguments; and found when they are put there.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use repo_testkit::fake_docker::FakeDocker;
use repo_testkit::{git, terminate};

use crate::site::Site;
use repo_testkit::device::Device;
use repo_testkit::fleet::{DEPLOYMENT, Fleet};

/// What may be seen nowhere, in every form in which it could be.
pub(crate) struct Secret {
    pub(crate) name: &'static str,
    forms: Vec<Vec<u8>>,
}

impl Secret {
    /// As it is, in hexadecimal digits, and in base64 at any place of a longer text.
    pub(crate) fn new(name: &'static str, bytes: &[u8]) -> Self {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut forms = vec![bytes.to_vec(), hex.to_uppercase().into_bytes(), hex.into_bytes()];
        // Whole groups of three bytes look the same whatever stands before and after them.
        forms.extend((0..3).map(|skip| base64(&bytes[skip..skip + (bytes.len() - skip) / 3 * 3])));
        Self { name, forms }
    }

    pub(crate) fn is_in(&self, text: &[u8]) -> bool {
        let text = searchable(text);
        self.forms.iter().any(|form| text.contains(&searchable(form)))
    }

    pub(crate) fn forms(&self) -> &[Vec<u8>] {
        &self.forms
    }
}

/// Each byte as a character: the search in texts is the one that is fast in a test, too, where logs are long.
fn searchable(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// The 32 secret bytes of an Ed25519 key as OpenSSH keeps it.
fn seed(key: &Path) -> Vec<u8> {
    let pem = std::fs::read_to_string(key).expect("a key");
    let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), body).expect("written");
    let decoded = Command::new("base64").arg("-d").arg(file.path()).output().expect("base64 runs").stdout;
    // The last string is 64 bytes long: the seed, then the public key.
    let at = decoded.windows(4).rposition(|window| window == [0, 0, 0, 64]).expect("a private key");
    decoded[at + 4..at + 36].to_vec()
}

fn base64(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |three: &[u8]| {
        let bits = u32::from(three[0]) << 16 | u32::from(three[1]) << 8 | u32::from(three[2]);
        [18, 12, 6, 0].map(|shift| DIGITS[(bits >> shift & 63) as usize])
    };
    bytes.chunks_exact(3).flat_map(group).collect()
}

/// All that could be seen by somebody who mustn't see a secret.
struct Search<'a> {
    site: &'a Site,
    secrets: Vec<Secret>,
    /// What every command printed, and every log.
    said: Vec<(String, Vec<u8>)>,
    /// The arguments of every process, while something was applied.
    arguments: Vec<u8>,
}

impl Search<'_> {
    fn hear(&mut self, what: &str, output: Output) -> Output {
        self.said.push((what.to_owned(), [output.stdout.clone(), output.stderr.clone()].concat()));
        output
    }

    /// Runs a command of the publisher that must succeed, with all logs on.
    fn publisher(&mut self, args: &[&str]) {
        let output = self.site.fleet.command(args).env("RUST_LOG", "trace").output().expect("the publisher runs");
        let output = self.hear(&format!("wfm-git-publisher {args:?}"), output);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Runs the device's syncer with all logs on.
    fn syncer(&mut self, device: &Device, args: &[&str], code: i32) {
        for form in ["text", "json"] {
            let mut command = device.command(&[&["--log", form], args].concat());
            let output = command.env("DEVICE_SYNCER_LOG", "trace").output().expect("the syncer runs");
            let output = self.hear(&format!("device-syncer {args:?}"), output);
            assert_eq!(output.status.code(), Some(code), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }

    fn repositories(&self) -> Vec<PathBuf> {
        let fleet = &self.site.fleet;
        let devices = std::fs::read_dir(fleet.home().join("devices")).expect("listed").flatten();
        let clones = self.site.devices.iter().map(Device::clone_dir);
        devices.map(|entry| entry.path()).chain([fleet.dir(), fleet.control()]).chain(clones).collect()
    }

    /// Everything that leaks, and where.
    fn leaks(&self) -> Vec<String> {
        let mut leaks = Vec::new();
        let mut look = |place: String, text: &[u8]| {
            let found = self.secrets.iter().filter(|secret| secret.is_in(text));
            leaks.extend(found.map(|secret| format!("{} in {place}", secret.name)));
        };
        for repository in self.repositories() {
            let all = git::try_git(&repository, &["cat-file", "--batch-all-objects", "--batch", "--unordered"]);
            assert!(all.status.success() && all.stdout.len() > 1000, "{}: no objects", repository.display());
            look(format!("an object of {}", repository.display()), &all.stdout);
        }
        self.said.iter().for_each(|(what, text)| look(format!("what {what} said"), text));
        look("the arguments of a process".to_owned(), &self.arguments);
        for path in files(self.site.dir.path()).iter().filter(|path| !is_at_home(path)) {
            look(path.display().to_string(), &std::fs::read(path).unwrap_or_default());
        }
        leaks
    }
}

impl Search<'_> {
    /// This secret is found here, and no other one anywhere.
    fn assert_finds(&self, name: &str, place: &str) {
        let leaks = self.leaks();
        assert!(leaks.contains(&format!("{name} in {place}")), "{name}, planted in {place}: {leaks:?}");
        assert!(leaks.iter().all(|leak| leak.starts_with(name)), "{name}, planted in {place}: {leaks:?}");
    }
}

/// Where secrets belong: the keys' own files, the device's value, and what runs on the device with it.
fn is_at_home(path: &Path) -> bool {
    let path = path.display().to_string();
    ["/keys/", "/status.key", "/hmac.key", "/device-files/", "/projects/", "/docker/"]
        .iter()
        .any(|place| path.contains(place))
}

/// All files below a directory; not what links lead to, as a host's hooks do to the whole program.
pub(crate) fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for path in std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()) {
        match path {
            link if link.is_symlink() => {}
            dir if dir.is_dir() => all.extend(files(&dir)),
            file => all.push(file),
        }
    }
    all
}

/// The arguments of every process there is now.
fn arguments() -> Vec<u8> {
    each_arguments().into_iter().collect::<Vec<_>>().concat()
}

/// The same, for each process.
pub(crate) fn each_arguments() -> BTreeSet<Vec<u8>> {
    let processes = std::fs::read_dir("/proc").expect("listed").flatten();
    processes.map(|process| std::fs::read(process.path().join("cmdline")).unwrap_or_default()).collect()
}

/// Gives a secret of the fleet its value, as `secret` does with this word and more.
pub(crate) fn give(fleet: &Fleet, args: &[&str], value: &str) -> Output {
    let mut command = fleet.command(&[&["secret"], args].concat());
    command.env("RUST_LOG", "trace").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the publisher runs");
    child.stdin.take().expect("piped").write_all(value.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("ended");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    assert!(repo_testkit::comes_within(Duration::from_secs(60), is_so), "{what} didn't come about");
}

/// What is in both values that are encrypted to the device.
const ENCRYPTED: &str = "canary-4b5a6978-greeting-that-only-the-device-reads";
const GREETING: &str = "canary-4b5a6978-greeting-that-only-the-device-reads, today";
const GREETING_OF_NEXT_WEEK: &str = "canary-4b5a6978-greeting-that-only-the-device-reads, next week";

/// Every program of ours says everything while this goes on; then something fails, and says why.
fn live(search: &mut Search<'_>, device: &Device, token: &str) {
    let (fleet, docker): (&Fleet, _) = (&search.site.fleet, FakeDocker::new(device.docker_dir()));
    search.publisher(&["validate"]);
    search.publisher(&["publish"]);
    docker.set("hang-up", "");
    let log = search.site.dir.path().join("syncer.log");
    let mut once = device.once();
    once.env("DEVICE_SYNCER_LOG", "trace").stderr(File::create(&log).expect("made"));
    let mut child = once.spawn().expect("the syncer runs");
    until("an apply", || device.calls().contains("create "));
    search.arguments = arguments();
    assert!(search.arguments.windows(7).any(|window| window == b"compose"), "an apply goes on");
    docker.unset("hang-up");
    assert!(child.wait().expect("waited").success());
    search.said.push(("a pass".to_owned(), std::fs::read(&log).expect("a log")));
    let environments = device.environments();
    for value in [token, GREETING] {
        assert!(environments.iter().any(|one| one.contains(value)), "the value reached its container");
    }

    // Docker repeats the value in an error, as compose does with what it can't use.
    let given = give(fleet, &["rotate", "greeting"], GREETING_OF_NEXT_WEEK);
    search.said.push(("secret rotate".to_owned(), [given.stdout, given.stderr].concat()));
    let log = search.site.dir.path().join("publisher.log");
    let mut run = fleet.command(&["run"]);
    let mut run = run.env("RUST_LOG", "trace").stderr(File::create(&log).expect("made")).spawn().expect("it runs");
    until("another serial", || fleet.serial(&device.id) == 2);
    terminate(&run);
    assert!(run.wait().expect("waited").success());
    search.said.push(("run".to_owned(), std::fs::read(&log).expect("a log")));
    search.syncer(device, &["plan"], 3);
    docker.set("fail-up", &format!("invalid interpolation of \"{token}\", \"{GREETING_OF_NEXT_WEEK}\""));
    let output = device.once().env("DEVICE_SYNCER_LOG", "trace").output().expect("the syncer runs");
    assert_eq!(search.hear("a failing pass", output).status.code(), Some(1));
    search.publisher(&["status", "--output", "json"]);
    search.syncer(device, &["retry"], 0);
    search.syncer(device, &["once"], 0);
    search.syncer(device, &["status"], 0);
    search.syncer(
        device,
        &["diagnostics", "--out", &search.site.dir.path().join("diagnostics").display().to_string()],
        0,
    );

    // A device file that can't be used is named, and not shown.
    std::fs::write(device.home().join("device-files/hello-token"), [token.as_bytes(), &[0, 255]].concat())
        .expect("written");
    search.syncer(device, &["once"], 1);
    search.publisher(&["status"]);
}

#[test]
fn no_secret_is_in_any_object_log_error_file_or_argument_and_the_search_finds_those_that_are_planted() {
    let site = Site::new(&["press-01"]);
    let (fleet, device) = (&site.fleet, site.device("press-01"));
    let token = "canary-0f1e2d3c-token-that-stays-on-the-device";
    std::fs::write(device.home().join("device-files/hello-token"), format!("{token}\n")).expect("written");
    fleet.change(DEPLOYMENT, "  # token: {valueFrom", "  token: {valueFrom");
    fleet.change(DEPLOYMENT, "greeting: hello from the press", "greeting: {valueFrom: {encrypted: greeting}}");
    let given = give(fleet, &["set", "greeting"], GREETING);
    let keys = fleet.home().join("keys");
    let secrets = vec![
        Secret::new("the root key", &seed(&keys.join("root"))),
        Secret::new("the publisher's key", &seed(&keys.join("publisher"))),
        Secret::new("the device's key", &seed(&device.home().join("status.key"))),
        Secret::new("the digests' key", &std::fs::read(device.home().join("hmac.key")).expect("a key")),
        Secret::new("a device's value", token.as_bytes()),
        Secret::new("an encrypted value", ENCRYPTED.as_bytes()),
    ];
    let said = vec![("secret set".to_owned(), [given.stdout, given.stderr].concat())];
    let mut search = Search { site: &site, secrets, said, arguments: Vec::new() };
    for key in ["root", "publisher"] {
        assert!(search.secrets.iter().any(|secret| secret.is_in(&seed(&keys.join(key)))), "the search knows {key}");
    }
    live(&mut search, device, token);
    assert_eq!(search.leaks(), Vec::<String>::new());
    plant_leaks(&mut search);
}

/// Puts every secret, in another form each, where it doesn't belong; each must be found.
fn plant_leaks(search: &mut Search<'_>) {
    search.said.clear();
    for number in 0..search.secrets.len() {
        let (name, forms) = (search.secrets[number].name, search.secrets[number].forms.clone());
        for (form, bytes) in forms.into_iter().enumerate() {
            let file = search.site.dir.path().join("planted");
            std::fs::write(&file, [b"a ".as_slice(), &bytes, b" b"].concat()).expect("written");
            search.assert_finds(name, &file.display().to_string());
            // An object that no ref reaches any more is an object, too.
            let repository = search.repositories().swap_remove(form % search.repositories().len());
            let object = git::git(&repository, &["hash-object", "-w", &file.display().to_string()]);
            std::fs::remove_file(&file).expect("removed");
            search.assert_finds(name, &format!("an object of {}", repository.display()));
            let git_dir = git::git(&repository, &["rev-parse", "--absolute-git-dir"]);
            std::fs::remove_file(Path::new(&git_dir).join("objects").join(&object[..2]).join(&object[2..]))
                .expect("removed");
            search.said.push(("somebody".to_owned(), bytes.clone()));
            search.assert_finds(name, "what somebody said");
            search.said.pop();
            if let Ok(argument) = String::from_utf8(bytes) {
                let before = std::mem::take(&mut search.arguments);
                let mut process = Command::new("sleep");
                let mut process = process.arg0(argument).arg("60").spawn().expect("sleep runs");
                // The kernel lets the parent go on a little before the child's arguments can be read.
                let own = PathBuf::from(format!("/proc/{}/cmdline", process.id()));
                until("arguments", || std::fs::read(&own).is_ok_and(|text| text.ends_with(b"\x0060\x00")));
                search.arguments = arguments();
                process.kill().and_then(|()| process.wait()).expect("ended");
                search.assert_finds(name, "the arguments of a process");
                search.arguments = before;
            }
        }
    }
}
