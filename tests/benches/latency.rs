//! From a commit in the fleet to its container, on real Docker; what docker itself takes is told apart.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use repo_testkit::foreign_host::{ForeignHost, Options};
use repo_testkit::git;
use serde_json::Value;

use crate::containers::{self, Label, containers, started_at};
use crate::cost::Running;
use crate::site::Site;
use crate::stage::{Stage, run, text};
use crate::{Line, RUNS, median, shown};

/// How long a change may take.
const LOST: Duration = Duration::from_secs(60);

/// The pause of the shell loop, in seconds: far shorter than anybody would choose.
const PAUSE: &str = "1";

/// Docker's command line behind a program that writes down when each call began and ended.
struct Clocked {
    program: PathBuf,
    log: PathBuf,
}

/// When a call of docker began and ended, in seconds since 1970, and what it was.
struct Call {
    begin: f64,
    end: f64,
    what: String,
}

/// How long a change took, and what of that was docker's.
#[derive(Clone, Copy)]
struct Took {
    all: Duration,
    docker: Duration,
    /// Of the call that starts the container alone.
    up: Duration,
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

    fn calls(&self) -> Vec<Call> {
        let text = fs::read_to_string(&self.log).expect("a log");
        let call = |line: &str| {
            let mut words = line.splitn(3, ' ');
            let mut time = || words.next()?.parse().ok();
            let (begin, end) = (time()?, time()?);
            Some(Call { begin, end, what: words.next()?.to_owned() })
        };
        text.lines().filter_map(call).collect()
    }

    /// Waits until a container with this label says `greeting`, and gives when it was started.
    fn started(&self, since: f64, label: &str, greeting: &str) -> f64 {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < LOST, "`{greeting}` never came");
            std::thread::sleep(Duration::from_millis(10));
            // The engine is only asked when it has something to tell.
            if !self.calls().iter().any(|call| call.begin > since && is_up(call)) {
                continue;
            }
            if let Some(at) = containers(label).iter().find_map(|one| started_with(one, greeting)) {
                return at;
            }
        }
    }

    fn took(&self, since: f64, label: &str, greeting: &str) -> Took {
        let at = self.started(since, label, greeting);
        let calls = self.calls();
        let within = calls.iter().filter(|call| call.end > since && call.begin < at);
        let mut spans: Vec<_> = within.clone().map(|call| (call.begin.max(since), call.end.min(at))).collect();
        spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut docker, mut until) = (0.0, since);
        for (begin, end) in spans {
            docker += (end - begin.max(until)).max(0.0);
            until = until.max(end);
        }
        let up = within.filter(|call| is_up(call)).map(|call| call.end.min(at) - call.begin.max(since)).sum();
        let [all, docker, up] = [at - since, docker, up].map(Duration::from_secs_f64);
        Took { all, docker, up }
    }
}

fn is_up(call: &Call) -> bool {
    call.what.split(' ').any(|word| word == "up")
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

fn ours(stage: &Stage) -> Vec<Took> {
    let clocked = Clocked::new(&stage.dir.path().join("clocked"));
    let docker = containers::real(&clocked.program.display().to_string());
    let site = Site::new(stage, "latency", "run", "", &docker);
    let label = Label::of(&site);
    let mut syncer = site.device.command(&["run"]);
    let _running = Running(syncer.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs"));
    std::thread::sleep(Duration::from_secs(3));
    let branch = git::git(&site.fleet.dir(), &["symbolic-ref", "HEAD"]);
    let branch = site.fleet.dir().join(".git").join(branch);
    let one = |number| {
        let greeting = site.change(number);
        let took = clocked.took(moved_at(&branch), &label.0, &greeting);
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
        let took = clocked.took(moved_at(&branch), &label.0, &greeting);
        std::thread::sleep(Duration::from_millis(500));
        took
    };
    (0..RUNS).map(one).collect()
}

pub(crate) fn measure(stage: &Stage) -> Vec<Line> {
    let (ours, theirs) = (ours(stage), by_shell(stage));
    let line = |what: &str, times: &[Took], of: fn(&Took) -> Duration| {
        let times: Vec<_> = times.iter().map(of).collect();
        Line::new(format!("commit → container, {what}"), shown(median(&times)), times.len())
    };
    let beyond = |took: &Took| took.all.saturating_sub(took.docker);
    let beyond_up = |took: &Took| took.all.saturating_sub(took.up);
    let shell = format!("shell loop, {PAUSE} s pause");
    vec![
        line("publisher and syncer", &ours, |took| took.all),
        line("publisher and syncer: docker's own, all of its calls", &ours, |took| took.docker),
        line("publisher and syncer: docker's own, `compose up` alone", &ours, |took| took.up),
        line("publisher and syncer: beyond `compose up` alone", &ours, beyond_up).goal("≤ 120 ms"),
        line("publisher and syncer: beyond docker's", &ours, beyond).goal("≤ 100 ms"),
        line(&shell, &theirs, |took| took.all),
        line(&format!("{shell}: docker's own, `compose up` alone"), &theirs, |took| took.docker),
        line(&format!("{shell}: beyond docker's"), &theirs, beyond),
    ]
}
