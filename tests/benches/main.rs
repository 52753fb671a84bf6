//! What publishing, asking, waiting and being idle cost, each beside what others do for it, measured in the same run.
//! Prints one table; goals stand beside the figures, and nothing fails when one is missed.
//!
//! All times are wall-clock unless CPU is said, of the release binaries, on a file system that is named; whatever is
//! published is synced to the disk before it counts. Clients, hosts and loads share this machine, on loopback. Needs the
//! registry, Docker and tools of the tests. Arguments name the groups to measure; none means all.
#![allow(clippy::disallowed_methods, reason = "a bench writes its own files as it likes")]

mod asked;
mod audit;
mod baseline;
mod cgroup;
mod containers;
mod cost;
mod crowd;
mod day;
mod device;
mod epochs;
mod fleet;
mod flood;
mod floor;
mod gathered;
mod heal;
mod host;
mod idle;
mod latency;
mod libgit2;
mod load;
mod long;
mod poll;
mod publish;
mod quiet;
mod rest;
mod scale;
mod served;
mod site;
mod small;
mod ssh;
mod stage;
mod waiting;
mod week;

use std::os::unix::process::CommandExt;
use std::time::Duration;

/// How many devices the fleet has. A build that isn't optimised only tries the bench itself.
const DEVICES: usize = if cfg!(debug_assertions) { 100 } else { 1000 };

/// How often each is measured, where nothing else is said.
const RUNS: usize = 10;

/// Measures some figures.
type Measure = fn(&stage::Stage) -> Vec<Line>;

/// What can be measured alone.
const GROUPS: [(&str, Measure); 20] = [
    ("publish", publish::measure),
    ("scale", scale::measure),
    ("device", device::measure),
    ("poll", poll::measure),
    ("served", served::measure),
    ("flood", flood::measure),
    ("waiting", waiting::measure),
    ("ssh", ssh::measure),
    ("latency", latency::measure),
    ("day", day::measure),
    ("idle", idle::measure),
    ("quiet", quiet::measure),
    ("heal", heal::measure),
    ("week", week::measure),
    ("small", small::measure),
    ("long", long::measure),
    ("epochs", epochs::measure),
    ("audit", audit::measure),
    ("gathered", gathered::measure),
    ("asked", asked::measure),
];

/// One line of the table.
struct Line {
    what: String,
    value: String,
    runs: usize,
    goal: String,
}

impl Line {
    fn new(what: impl Into<String>, value: impl Into<String>, runs: usize) -> Self {
        Self { what: what.into(), value: value.into(), runs, goal: String::new() }
    }

    /// What the value should be.
    fn goal(self, goal: impl Into<String>) -> Self {
        Self { goal: goal.into(), ..self }
    }

    /// The median of some times.
    fn of_times(what: impl Into<String>, times: &[Duration]) -> Self {
        Self::new(what, shown(median(times)), times.len())
    }
}

fn median<T: Copy + Ord>(values: &[T]) -> T {
    let mut values = values.to_vec();
    values.sort();
    values[values.len() / 2]
}

fn shown(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        1.0.. => format!("{seconds:.2} s"),
        0.001.. => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{:.3} ms", seconds * 1e3),
    }
}

fn print(lines: &[Line]) {
    let width = |of: fn(&Line) -> usize| lines.iter().map(of).max().unwrap_or(0);
    let (what, value) = (width(|line| line.what.chars().count()), width(|line| line.value.chars().count()));
    println!("\n{:what$}  {:>value$}  runs  goal", "what (median)", "value");
    for line in lines {
        println!(
            "{}",
            format!("{:what$}  {:>value$}  {:>4}  {}", line.what, line.value, line.runs, line.goal).trim_end()
        );
    }
}

/// The load of the last minute, and how many tasks run: whoever reads the figures must know.
fn load_average() -> String {
    std::fs::read_to_string("/proc/loadavg").expect("Linux").trim().to_owned()
}

/// The syncer's code in this process starts this program anew as its sandbox, in which the real one takes its place.
fn become_sandbox() {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    if args.first().is_some_and(|word| word == device_syncer::runtimes::sandbox::SUBCOMMAND) {
        let error = std::process::Command::new(repo_testkit::program("device-syncer")).args(args).exec();
        panic!("the syncer starts: {error}");
    }
}

fn main() {
    become_sandbox();
    let asked: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let names = GROUPS.map(|(name, _)| name);
    if let Some(unknown) = asked.iter().find(|word| !names.contains(&word.as_str())) {
        eprintln!("there is no `{unknown}` to measure, only: {}", names.join(" "));
        std::process::exit(2);
    }
    let stage = stage::Stage::new();
    println!("{} cores, {} on {}", stage::cores(), stage.dir.path().display(), stage.file_system());
    let mut lines = Vec::new();
    for (name, measure) in GROUPS {
        if asked.is_empty() || asked.iter().any(|word| word == name) {
            let (start, before) = (std::time::Instant::now(), load_average());
            lines.extend(measure(&stage));
            println!("{name}: {}, load {before} before, {} after", shown(start.elapsed()), load_average());
        }
    }
    print(&lines);
}
