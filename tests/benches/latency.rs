//! From a commit in the fleet to its container, on real Docker; what docker itself takes is told apart.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use repo_testkit::foreign_host::{ForeignHost, Options};
use repo_testkit::git;
use serde_json::Value;

use crate::containers::{self, Label, containers, started_at};
use crate::cost::Running;
use crate::site::Site;
use crate::stage::{Stage, run, text};
use crate::{Line, RUNS, median};

/// How long a change may take.
const LOST: Duration = Duration::from_secs(60);

/// The pause of the shell loop, in seconds: far shorter than anybody would choose.
const PAUSE: &str = "1";

/// Docker's command line behind a program that writes down when each call began.
struct Clocked {
    program: PathBuf,
    log: PathBuf,
}

/// How long a change took, and what of that was docker's.
#[derive(Clone, Copy)]
struct Took {
    all: Duration,
    docker: Duration,
}

/// Says whenever the engine starts a container with this label.
struct Starts {
    _events: Running,
    started: Receiver<String>,
}

impl Starts {
    fn of(label: &str) -> Self {
        let mut events = Command::new("docker");
        events.args([
            "events",
            "--filter",
            "event=start",
            "--filter",
            &format!("label={label}"),
            "--format",
            "{{.ID}}",
        ]);
        let mut events = events.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("docker is installed");
        let lines = BufReader::new(events.stdout.take().expect("piped")).lines();
        let (send, started) = channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| send.send(line)));
        Self { _events: Running(events), started }
    }

    /// Waits for a container that says `greeting`, and gives when it was started.
    fn started(&self, label: &str, greeting: &str) -> f64 {
        loop {
            self.started.recv_timeout(LOST).unwrap_or_else(|_| panic!("`{greeting}` never came"));
            if let Some(at) = containers(label).iter().find_map(|one| started_with(one, greeting)) {
                return at;
            }
        }
    }
}

impl Clocked {
    fn new(dir: &Path) -> Self {
        fs::create_dir_all(dir).expect("made");
        let (program, log) = (dir.join("docker"), dir.join("calls"));
        let real = text(Command::new("sh").args(["-c", "command -v docker"]));
        // A script would take longer to begin than what is measured here.
        fs::copy(repo_testkit::program("clocked"), &program).expect("copied");
        fs::write(dir.join("real"), real).and_then(|()| fs::write(&log, "")).expect("written");
        Self { program, log }
    }

    /// When each call began, in seconds since 1970.
    fn begins(&self) -> Vec<f64> {
        let text = fs::read_to_string(&self.log).expect("a log");
        text.lines().filter_map(|line| line.split(' ').next()?.parse().ok()).collect()
    }

    /// How long it took from then until a container was started at that moment, by one call.
    fn took(&self, since: f64, at: f64) -> Took {
        let up = self.begins().into_iter().find(|begin| (since..at).contains(begin)).expect("docker was called");
        let [all, docker] = [at - since, at - up].map(Duration::from_secs_f64);
        Took { all, docker }
    }
}

/// When a file was last moved to its place.
fn moved_at(file: &Path) -> f64 {
    let meta = file.metadata().expect("a branch");
    meta.ctime() as f64 + meta.ctime_nsec() as f64 / 1e9
}

fn started_with(container: &Value, greeting: &str) -> Option<f64> {
    let environment = container["Config"]["Env"].as_array()?;
    let wanted = format!("GREETING={greeting}");
    started_at(container).filter(|_| environment.iter().any(|one| *one == wanted.as_str()))
}

fn ours(stage: &Stage) -> Vec<Duration> {
    let site = Site::new(stage, "latency", "run", "", &containers::real("docker"));
    let label = Label::of(&site);
    let starts = Starts::of(&label.0);
    let mut syncer = site.device.command(&["run"]);
    let _running = Running(syncer.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs"));
    std::thread::sleep(Duration::from_secs(3));
    let branch = git::git(&site.fleet.dir(), &["symbolic-ref", "HEAD"]);
    let branch = site.fleet.dir().join(".git").join(branch);
    let one = |number| {
        let greeting = site.change(number);
        let took = Duration::from_secs_f64(starts.started(&label.0, &greeting) - moved_at(&branch));
        // Until it is told, and the device waits again.
        std::thread::sleep(Duration::from_secs(2));
        took
    };
    (0..RUNS).map(one).collect()
}

const LOOP: &str = r#"
cd "$1"
while :; do
    git fetch -q origin main
    if [ "$(git rev-parse FETCH_HEAD)" != "$(git rev-parse HEAD)" ]; then
        git reset -q --hard FETCH_HEAD
        "$2" compose -p "$3" up -d --quiet-pull
    fi
    sleep "$4"
done
"#;

/// What many do: a loop of `git fetch` and `docker compose up -d`, at a stock Git host.
fn by_shell(stage: &Stage) -> Vec<Took> {
    let dir = stage.dir.path().join("shell");
    let clocked = Clocked::new(&dir);
    let (host, work, device) = (ForeignHost::start(Options::default()), dir.join("work"), dir.join("device"));
    let branch = host.create("site").join("refs/heads/main");
    let url = format!("{}/site.git", host.url());
    fs::create_dir_all(&work).expect("made");
    git::git(&work, &["init", "-q", "-b", "main"]);
    let compose = stage.dir.path().join("latency/fleet/applications/hello/1.0.0/compose/hello/compose.yaml");
    fs::copy(compose, work.join("compose.yaml")).expect("copied");
    let push = |greeting: &str| {
        fs::write(work.join(".env"), format!("GREETING={greeting}\nINTERVAL=5\n")).expect("written");
        git::git(&work, &["add", "--all"]);
        git::git(&work, &["commit", "-q", "-m", greeting]);
        run(host.git(&work).args(["push", "-q", &url, "main"]));
    };
    push("first");
    run(host.git(&dir).args(["clone", "-q", &url, "device"]));
    let project = text(Command::new("mktemp").args(["-u", "bench-XXXXXX"])).to_lowercase();
    let label = Label(format!("com.docker.compose.project={project}"));
    let starts = Starts::of(&label.0);
    let mut script = host.git(&device);
    let environment: Vec<_> =
        script.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
    script = Command::new("bash");
    script.args(["-c", LOOP, "bash"]).arg(&device).arg(&clocked.program).args([&project, PAUSE]);
    for (name, value) in environment {
        script.env(name, value.unwrap_or_default());
    }
    let _running = Running(script.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs"));
    let one = |number| {
        let greeting = format!("change {number}");
        push(&greeting);
        let at = starts.started(&label.0, &greeting);
        // Until the end of the call is written down.
        std::thread::sleep(Duration::from_millis(500));
        clocked.took(moved_at(&branch), at)
    };
    (0..RUNS).map(one).collect()
}

pub(crate) fn measure(stage: &Stage) -> Vec<Line> {
    let (ours, theirs) = (ours(stage), by_shell(stage));
    let [all, docker]: [Vec<_>; 2] =
        [|took: &Took| took.all, |took: &Took| took.docker].map(|of| theirs.iter().map(of).collect());
    let beyond: Vec<_> = theirs.iter().map(|took| took.all.saturating_sub(took.docker)).collect();
    let up = median(&docker);
    let ours_beyond: Vec<_> = ours.iter().map(|all| all.saturating_sub(up)).collect();
    let line = |what: &str, times: &[Duration]| Line::of_times(format!("commit → container, {what}"), times);
    let shell = format!("shell loop, {PAUSE} s pause");
    vec![
        line(&shell, &all),
        line(&format!("{shell}: its `docker compose up` alone"), &docker),
        line(&format!("{shell}: beyond that"), &beyond),
        line("publisher and syncer", &ours),
        line("publisher and syncer: beyond the shell loop's `docker compose up`", &ours_beyond).goal("≤ 120 ms"),
    ]
}
