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

/// The publisher and the syncer, both of which run.
struct Ours {
    // Ended first: else what the others take away is put back.
    _running: Running,
    starts: Starts,
    label: Label,
    site: Site,
    /// Where the branch that is published lies.
    branch: PathBuf,
}

impl Ours {
    fn start(stage: &Stage) -> Self {
        let site = Site::new(stage, "latency", "run", "", &containers::real("docker"));
        let label = Label::of(&site);
        let starts = Starts::of(&label.0);
        let mut syncer = site.device.command(&["run"]);
        let running = Running(syncer.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs"));
        let branch = git::git(&site.fleet.dir(), &["symbolic-ref", "HEAD"]);
        let branch = site.fleet.dir().join(".git").join(branch);
        Self { _running: running, starts, label, site, branch }
    }

    fn change(&self, number: usize) -> Duration {
        let greeting = self.site.change(number);
        Duration::from_secs_f64(self.starts.started(&self.label.0, &greeting) - moved_at(&self.branch))
    }
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
struct Shell {
    _running: Running,
    starts: Starts,
    label: Label,
    clocked: Clocked,
    host: ForeignHost,
    url: String,
    work: PathBuf,
    branch: PathBuf,
}

impl Shell {
    /// Of the application of ours, which is there already.
    fn start(stage: &Stage) -> Self {
        let dir = stage.dir.path().join("shell");
        let clocked = Clocked::new(&dir);
        let (host, work, device) = (ForeignHost::start(Options::default()), dir.join("work"), dir.join("device"));
        let branch = host.create("site").join("refs/heads/main");
        let url = format!("{}/site.git", host.url());
        fs::create_dir_all(&work).expect("made");
        git::git(&work, &["init", "-q", "-b", "main"]);
        let compose = stage.dir.path().join("latency/fleet/applications/hello/1.0.0/compose/hello/compose.yaml");
        fs::copy(compose, work.join("compose.yaml")).expect("copied");
        let project = text(Command::new("mktemp").args(["-u", "bench-XXXXXX"])).to_lowercase();
        let label = Label(format!("com.docker.compose.project={project}"));
        push(&host, &work, &url, "first");
        run(host.git(&dir).args(["clone", "-q", &url, "device"]));
        let starts = Starts::of(&label.0);
        let git = host.git(&device);
        let mut script = Command::new("bash");
        script.args(["-c", LOOP, "bash"]).arg(&device).arg(&clocked.program).args([&project, PAUSE]);
        for (name, value) in git.get_envs() {
            script.env(name, value.unwrap_or_default());
        }
        let running = Running(script.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs"));
        Self { _running: running, starts, label, clocked, host, url, work, branch }
    }

    fn change(&self, number: usize) -> Took {
        let greeting = format!("change {number}");
        push(&self.host, &self.work, &self.url, &greeting);
        let at = self.starts.started(&self.label.0, &greeting);
        // Until the end of the call is written down.
        std::thread::sleep(Duration::from_millis(500));
        self.clocked.took(moved_at(&self.branch), at)
    }
}

fn push(host: &ForeignHost, work: &Path, url: &str, greeting: &str) {
    fs::write(work.join(".env"), format!("GREETING={greeting}\nINTERVAL=5\n")).expect("written");
    git::git(work, &["add", "--all"]);
    git::git(work, &["commit", "-q", "-m", greeting]);
    run(host.git(work).args(["push", "-q", url, "main"]));
}

/// Until what was changed is told, and everybody waits again.
fn rest() {
    std::thread::sleep(Duration::from_secs(3));
}

pub(crate) fn measure(stage: &Stage) -> Vec<Line> {
    let ours = Ours::start(stage);
    let shell = Shell::start(stage);
    rest();
    let (mut our_times, mut theirs) = (Vec::new(), Vec::new());
    // By turns, because an engine isn't as quick at each moment.
    for number in 0..RUNS {
        our_times.push(ours.change(number));
        rest();
        theirs.push(shell.change(number));
        rest();
    }
    let ours = our_times;
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
