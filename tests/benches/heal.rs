//! From `docker rm --force` to the container that replaces what it removed, on real Docker.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::containers::{Label, containers, docker, real, started_at};
use crate::cost::Running;
use crate::site::Site;
use crate::stage::{Stage, text};
use crate::{Line, RUNS, median, shown};

/// Deployments beside the first one, of one container each.
const MORE: usize = 3;

/// Until a syncer has made its first pass and listens.
const LISTENS: Duration = Duration::from_secs(3);

/// How long healing may take.
const LOST: Duration = Duration::from_secs(60);

/// From when `rm` began and when it ended to the start of the new container.
#[derive(Clone, Copy)]
struct Took {
    whole: Duration,
    rest: Duration,
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64()
}

/// When one of these was started that wasn't there at that time; polled, but what the engine says is taken.
fn replaced(label: &Label, count: usize, since: f64) -> f64 {
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < LOST, "it isn't back");
        let all: Vec<_> = containers(&label.0).iter().filter_map(started_at).collect();
        match all.iter().find(|at| **at > since).filter(|_| all.len() == count) {
            Some(at) => return *at,
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn removed(label: &Label, count: usize, then: impl FnOnce()) -> Took {
    let all = containers(&label.0);
    assert_eq!(all.len(), count, "all of them run");
    let id = all[0]["Id"].as_str().expect("an id");
    let begin = now();
    docker(&["rm", "--force", id]);
    let end = now();
    then();
    let at = replaced(label, count, begin);
    let [whole, rest] = [at - begin, at - end].map(|time| Duration::from_secs_f64(time.max(0.0)));
    Took { whole, rest }
}

fn ours(stage: &Stage) -> Vec<Took> {
    let site = Site::new(stage, "heal", "serve", "", &real("docker"));
    let label = Label::of(&site);
    site.deploy_more(MORE);
    let one = |_| {
        // What was put back lately is put back again only after a pause, so each time has a syncer of its own.
        let mut syncer = site.device.command(&["run"]);
        let _running = Running(syncer.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs"));
        std::thread::sleep(LISTENS);
        removed(&label, MORE + 1, || {})
    };
    (0..RUNS).map(one).collect()
}

/// A person who types `docker compose up --detach` at once.
fn by_hand(stage: &Stage) -> Vec<Took> {
    let compose = stage.dir.path().join("heal/fleet/applications/hello/1.0.0/compose/hello/compose.yaml");
    let project = text(Command::new("mktemp").args(["-u", "bench-XXXXXX"])).to_lowercase();
    let label = Label(format!("com.docker.compose.project={project}"));
    let up = || {
        let mut command = Command::new("docker");
        command.env("GREETING", "hello").env("INTERVAL", "5");
        command.args(["compose", "-p", &project, "-f"]).arg(&compose).args(["up", "--detach", "--quiet-pull"]);
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        assert!(status.is_ok_and(|status| status.success()), "compose up");
    };
    up();
    (0..RUNS).map(|_| removed(&label, 1, up)).collect()
}

pub(crate) fn measure(stage: &Stage) -> Vec<Line> {
    let (ours, by_hand) = (ours(stage), by_hand(stage));
    let of = |all: &[Took], part: fn(&Took) -> Duration| all.iter().map(part).collect::<Vec<_>>();
    let (mine, theirs) = (of(&ours, |took| took.rest), of(&by_hand, |took| took.rest));
    let ratio = median(&mine).as_secs_f64() / median(&theirs).as_secs_f64();
    vec![
        Line::of_times("`docker rm --force` → its container runs again", &of(&ours, |took| took.whole)),
        Line::of_times("  from the end of `rm`", &mine).goal("about 1 s"),
        Line::new("  the slowest of them", shown(*mine.iter().max().expect("some")), RUNS),
        Line::of_times("  `docker compose up --detach` at once instead", &theirs),
        Line::new("  as many times as that", format!("{ratio:.1} ×"), RUNS),
    ]
}
