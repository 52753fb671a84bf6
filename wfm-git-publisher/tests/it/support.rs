//! A fleet of its own for each test: made by the real program, with stock Git as the witness.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::AtomicBool;

use jiff::{SignedDuration, Timestamp};
use repo_git::SigningKey;
use repo_model::envelope::Lock;
use repo_model::message::Message;
use repo_model::{DeviceId, Digest, Trailer};
pub(crate) use repo_testkit::copy;
use repo_testkit::git::git;
use wfm_git_publisher::config::Config;
use wfm_git_publisher::publish::{Options, Outcome, PublishError, Publisher, Resolve, Work, is_as_left, unchanged};
use wfm_git_publisher::render::Artifact;
use wfm_git_publisher::repos::{FleetRepo, Home, Remotes};

use crate::output;

/// The publisher, as Cargo built it for these tests.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_wfm-git-publisher");

/// The moment at which a test begins, in Unix seconds: never long ago, because the program itself goes by the clock.
pub(crate) static BEGIN: LazyLock<i64> = LazyLock::new(|| Timestamp::now().as_second());

/// The program where sshd runs it: root's, as is all above it, and nobody else may write there.
pub(crate) fn trusted_program() -> PathBuf {
    let built = std::fs::metadata(PROGRAM).unwrap();
    let changed = built.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    let cache = std::env::var_os("MARGO_TEST_CACHE").map_or_else(|| PathBuf::from("/run"), PathBuf::from);
    let all = cache.join("ssh-programs");
    let dir = all.join(format!("{changed}-{}", built.len()));
    let program = dir.join("wfm-git-publisher");
    if !program.exists() {
        // Those of builds before, which no test that runs now needs.
        let is_old = |path: &Path| {
            let made = path.metadata().and_then(|data| data.modified()).ok();
            made.and_then(|made| made.elapsed().ok()).is_some_and(|age| age.as_secs() > 24 * 3600)
        };
        let before = fs::read_dir(&all).into_iter().flatten().flatten().map(|entry| entry.path());
        before.filter(|path| is_old(path)).for_each(|path| _ = fs::remove_dir_all(path));
        std::fs::create_dir_all(&dir).unwrap();
        let mine = dir.join(std::process::id().to_string());
        if std::fs::hard_link(PROGRAM, &mine).is_err() {
            std::fs::copy(PROGRAM, &mine).unwrap();
        }
        std::fs::rename(&mine, &program).unwrap();
    }
    program
}

/// So many seconds after that, as documents have it.
pub(crate) fn after(seconds: i64) -> String {
    Timestamp::from_second(*BEGIN + seconds).unwrap().to_string()
}

/// A page of `docs`.
pub(crate) fn page(name: &str) -> String {
    fs::read_to_string(repo_testkit::root().join("docs").join(name)).unwrap()
}

/// The cells of each row in the tables of a page's section, where the row begins with something quoted.
pub(crate) fn cells(page: &str, section: &str) -> Vec<Vec<String>> {
    let begins = |one: &&str| one.starts_with(&format!("{section}\n"));
    let section = page.split("\n## ").find(begins).unwrap_or_else(|| panic!("no section {section:?}"));
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// A new fleet with its home.
pub(crate) struct Lab {
    dir: tempfile::TempDir,
    pub(crate) fleet: PathBuf,
    pub(crate) home: Home,
}

/// What a program said and how it ended.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// The same of these arguments, whose output for programs has to be as it is described.
    #[track_caller]
    pub(crate) fn described(args: &[&str], output: Output) -> Self {
        let ran = Self::of(output);
        output::is_as_described(args, &ran);
        ran
    }

    /// What it printed, if it did well.
    #[track_caller]
    pub(crate) fn good(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.err);
        self.out
    }

    /// What it said on standard error, if it ended with this code.
    #[track_caller]
    pub(crate) fn failed(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        self.err
    }
}

impl Lab {
    /// A fleet as `init` makes it.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let fleet = dir.path().join("fleet");
        let lab = Self { home: Home::beside(&fleet), dir, fleet };
        lab.run_in(lab.dir.path(), &["init", "fleet", "--registry", "registry.example"]).good();
        lab
    }

    /// The same with these devices enrolled.
    pub(crate) fn with(devices: &[&str]) -> Self {
        let lab = Self::new();
        devices.iter().for_each(|device| lab.enroll(device));
        lab
    }

    /// The same place with another fleet in it.
    pub(crate) fn moved_to(self, name: &str) -> Self {
        let fleet = self.dir.path().join(name);
        Self { home: Home::beside(&fleet), fleet, ..self }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The program, hermetic.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.dir.path()).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "Olga").env(format!("GIT_{who}_EMAIL"), "olga@example.invalid");
        }
        command.current_dir(&self.fleet).args(args).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.run_in(&self.fleet, args)
    }

    pub(crate) fn run_in(&self, dir: &Path, args: &[&str]) -> Ran {
        Ran::described(args, self.command(args).current_dir(dir).output().unwrap())
    }

    /// The same in the fleet's folder, with this on its standard input.
    pub(crate) fn run_told(&self, args: &[&str], input: &[u8]) -> Ran {
        self.run_told_in(&self.fleet, args, input)
    }

    pub(crate) fn run_told_in(&self, dir: &Path, args: &[&str], input: &[u8]) -> Ran {
        let mut command = self.command(args);
        command.current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Who refuses what it is asked for reads nothing.
        let _ = child.stdin.take().unwrap().write_all(input);
        Ran::described(args, child.wait_with_output().unwrap())
    }

    /// Runs a line of a shell on a terminal that `script` makes, with this typed; what is seen there.
    pub(crate) fn on_terminal(&self, line: &str, typed: &str) -> Ran {
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--command", line, "/dev/null"]).env_clear();
        for (name, value) in self.command(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))) {
            command.env(name, value);
        }
        command.current_dir(&self.fleet).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("script, of bsdutils");
        child.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
        Ran::of(child.wait_with_output().unwrap())
    }

    /// A device's key, always the same for its name.
    pub(crate) fn device_key(device: &str) -> SigningKey {
        SigningKey::from_seed(Digest::of(device.as_bytes()).as_bytes())
    }

    pub(crate) fn enroll(&self, device: &str) {
        self.run(&["device", "add", device]).good();
        let line = format!("{} {device}", Self::device_key(device).public());
        self.run(&["device", "enroll", device, &line]).good();
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.fleet.join(path)
    }

    pub(crate) fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    /// Replaces text that must be there.
    #[track_caller]
    pub(crate) fn edit(&self, path: &str, from: &str, to: &str) {
        let text = self.read(path);
        assert!(text.contains(from), "{path}: {text}");
        self.write(path, text.replacen(from, to, 1));
    }

    /// Removes the second deployment, and excludes press-01 from the first one.
    #[track_caller]
    pub(crate) fn take_everything_from_press_01(&self) {
        self.remove("deployments/second.yaml");
        let example = "# exclude:\n#   - matchLabels: {role: spare}";
        self.edit("deployments/hello.yaml", example, "exclude:\n  - devices: [press-01]");
    }

    pub(crate) fn remove(&self, path: &str) {
        fs::remove_file(self.path(path)).unwrap();
    }

    pub(crate) fn rename(&self, from: &str, to: &str) {
        fs::create_dir_all(self.path(to).parent().unwrap()).unwrap();
        fs::rename(self.path(from), self.path(to)).unwrap();
    }

    /// Leaves images to the devices, as no registry of the test has them.
    pub(crate) fn leave_images(&self) {
        let settings = self.read("fleet.yaml");
        self.write("fleet.yaml", settings + "images: {lockedByDevices: [\"*\"]}\n");
    }

    /// Commits everything in the fleet's work tree.
    pub(crate) fn commit(&self) -> String {
        git(&self.fleet, &["add", "--all"]);
        git(&self.fleet, &["commit", "--quiet", "--allow-empty", "--message", "a change"]);
        git(&self.fleet, &["rev-parse", "HEAD"])
    }

    /// Publishes with a registry that knows every tag.
    #[track_caller]
    pub(crate) fn publish(&self) -> Outcome {
        self.publish_at(*BEGIN)
    }

    /// Publishes at this second, whatever speaks against it; `clock_is_right`: a person's word.
    pub(crate) fn try_publish_at(&self, second: i64, clock_is_right: bool) -> Result<Outcome, PublishError> {
        self.with_options(second, &|artifact| Ok(lock(artifact).into()), &[], |mut options| {
            options.allowed.clock = clock_is_right;
            let source = FleetRepo::open(&self.fleet).unwrap();
            Publisher::open(&self.home, options.now).unwrap().publish(&source, "HEAD", &options)
        })
    }

    #[track_caller]
    pub(crate) fn publish_at(&self, second: i64) -> Outcome {
        self.publish_with(second, &|artifact| Ok(lock(artifact).into()))
    }

    #[track_caller]
    pub(crate) fn publish_with(&self, second: i64, resolve: Resolve<'_>) -> Outcome {
        self.publish_from(&self.fleet, second, resolve, &[])
    }

    /// Publishes what is pushed to the hosted fleet repository.
    #[track_caller]
    pub(crate) fn publish_hosted(&self) -> Outcome {
        self.publish_from(&self.home.hosted_fleet(), *BEGIN, &|artifact| Ok(lock(artifact).into()), &[])
    }

    /// Publishes, replacing the foreign tips of these devices.
    #[track_caller]
    pub(crate) fn reclaim(&self, devices: &[&str]) -> Outcome {
        self.publish_from(&self.fleet, *BEGIN, &|artifact| Ok(lock(artifact).into()), devices)
    }

    /// Publishes with the home's settings.
    #[track_caller]
    fn publish_from(&self, fleet: &Path, second: i64, resolve: Resolve<'_>, reclaim: &[&str]) -> Outcome {
        self.with_options(second, resolve, reclaim, |options| {
            let source = FleetRepo::open(fleet).unwrap();
            Publisher::open(&self.home, options.now).unwrap().publish(&source, "HEAD", &options).unwrap()
        })
    }

    /// Whether it is known without a pass that there is nothing to do.
    pub(crate) fn is_unchanged_at(&self, second: i64) -> bool {
        let unknown: Resolve<'_> = &|artifact| panic!("{artifact} is asked for");
        self.with_options(second, unknown, &[], |options| {
            let source = FleetRepo::open(&self.fleet).unwrap();
            let outcome = unchanged(&self.home, &source, "HEAD", &options);
            outcome.inspect(|outcome| assert!(outcome.is_complete(), "{outcome:?}")).is_some()
        })
    }

    /// Whether `run` would make no pass now, although the last one may have had something to say.
    pub(crate) fn is_as_left_at(&self, second: i64) -> bool {
        let commit = FleetRepo::open(&self.fleet).unwrap().resolve("HEAD").unwrap();
        is_as_left(&self.home, commit, Timestamp::from_second(second).unwrap(), 2)
    }

    fn with_options<T>(
        &self,
        second: i64,
        resolve: Resolve<'_>,
        reclaim: &[&str],
        work: impl FnOnce(Options<'_>) -> T,
    ) -> T {
        let now = Timestamp::from_second(second).unwrap();
        let (stop, progress) = (AtomicBool::new(false), |_: Work, _: usize, _: usize| {});
        let settings = Config::load(&self.home.config()).unwrap().remote;
        let remotes = settings.map(|settings| Remotes::new(settings).unwrap());
        let reclaim = reclaim.iter().map(|device| device.parse().unwrap()).collect();
        let (progress, remotes) = (&progress, remotes.as_ref());
        let (allowed, stop) = (Default::default(), &stop);
        work(Options { now, devices: None, allowed, resolve, threads: 2, stop, progress, remotes, reclaim })
    }

    /// Publishes; everything must have gone well.
    #[track_caller]
    pub(crate) fn publish_all(&self) -> Outcome {
        let outcome = self.publish();
        assert!(outcome.is_complete(), "{outcome:?}");
        outcome
    }

    pub(crate) fn repo(&self, device: &str) -> PathBuf {
        self.home.device(&device.parse::<DeviceId>().unwrap())
    }

    /// What a device reported came here so many seconds ago.
    pub(crate) fn was_heard(&self, device: &str, seconds: i64) {
        for branch in ["refs/heads/status", "refs/heads/heartbeat"] {
            if self.repo(device).join(branch).exists() {
                self.was_written(device, branch, seconds);
            }
        }
    }

    /// A file of a device's repository was written so many seconds ago.
    pub(crate) fn was_written(&self, device: &str, file: &str, seconds: i64) {
        let moment = Timestamp::now() - SignedDuration::from_secs(seconds);
        let file = fs::File::options().write(true).open(self.repo(device).join(file)).unwrap();
        file.set_modified(moment.into()).unwrap();
    }

    pub(crate) fn git(&self, device: &str, args: &[&str]) -> String {
        git(&self.repo(device), args)
    }

    /// Leaves so many loose objects in a device's repository that whoever writes it next makes its packs one.
    pub(crate) fn scatter(&self, device: &str) {
        let objects = self.dir().join("objects");
        fs::create_dir_all(&objects).unwrap();
        let paths: Vec<_> = (0..45).map(|number| objects.join(number.to_string())).collect();
        paths.iter().for_each(|path| fs::write(path, path.display().to_string()).unwrap());
        let paths: Vec<_> = paths.iter().map(|path| path.to_str().unwrap()).collect();
        self.git(device, &[&["hash-object", "-w"], &paths[..]].concat());
    }

    /// Whether its packs were made one since.
    pub(crate) fn is_tidy(&self, device: &str) -> bool {
        self.git(device, &["count-objects", "-v"]).contains("count: 0\n")
    }

    /// The tip of a branch of a device's repository.
    pub(crate) fn tip(&self, device: &str, branch: &str) -> Option<String> {
        repo_testkit::git::tip(&self.repo(device), branch)
    }

    /// All branches of a device's repository.
    pub(crate) fn refs(&self, device: &str) -> String {
        self.git(device, &["for-each-ref"])
    }

    /// Subjects of `desired`, the newest first.
    pub(crate) fn subjects(&self, device: &str) -> Vec<String> {
        self.git(device, &["log", "--format=%s", "desired"]).lines().map(str::to_owned).collect()
    }

    /// The message of a commit.
    pub(crate) fn message(&self, device: &str, rev: &str) -> Message {
        Message::parse(&self.git(device, &["log", "-1", "--format=%B", rev]))
    }

    /// A trailer of the tip of `desired`.
    #[track_caller]
    pub(crate) fn trailer(&self, device: &str, key: Trailer) -> String {
        self.message(device, "desired").get(key).unwrap_or_else(|| panic!("no single {key}")).to_owned()
    }

    pub(crate) fn serial(&self, device: &str) -> u64 {
        self.trailer(device, Trailer::Serial).parse().unwrap()
    }

    /// A file of the tip of a branch, as JSON.
    pub(crate) fn json(&self, device: &str, branch: &str, path: &str) -> serde_json::Value {
        serde_json::from_str(&self.git(device, &["show", &format!("{branch}:{path}")])).unwrap()
    }

    /// The documents of the tip by the operators' ids.
    pub(crate) fn documents(&self, device: &str) -> BTreeMap<String, String> {
        let envelope = self.json(device, "desired", "envelope.json");
        let all = envelope["deployments"].as_object().unwrap();
        all.iter()
            .map(|(id, one)| {
                let text = self.git(device, &["show", &format!("desired:deployments/{id}.yaml")]);
                (one["id"].as_str().unwrap().to_owned(), text)
            })
            .collect()
    }

    pub(crate) fn control(&self, args: &[&str]) -> String {
        git(&self.home.control(), args)
    }

    /// A device's entry of the ledger.
    pub(crate) fn ledger(&self, device: &str) -> serde_json::Value {
        let files = self.control(&["ls-tree", "-r", "--name-only", "control", "ledger/"]);
        let name = format!("/{}.json", device.parse::<DeviceId>().unwrap().repository_name());
        let path = files.lines().find(|path| path.ends_with(&name)).unwrap();
        serde_json::from_str(&self.control(&["show", &format!("control:{path}")])).unwrap()
    }
}

/// What every tag means here.
pub(crate) fn lock(artifact: &Artifact) -> Lock {
    let digest = Digest::of(artifact.to_string().as_bytes());
    Lock { manifest: digest, content: digest }
}

/// A second deployment beside `hello`.
pub(crate) const SECOND: &str = "id: second\n\
    application: {id: hello, version: 1.0.0}\n\
    targets: [{matchLabels: {site: graz}}]\n\
    parameters: {greeting: servus}\n";
