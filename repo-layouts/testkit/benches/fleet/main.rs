//! What publishing to 1,000 devices costs beside the git CLI, and what an idle device costs. Prints one table.
//!
//! All times are wall-clock, of the release binaries, on a file system that is named; whatever is published is synced
//! to the disk before it counts. Needs the registry of the tests, and starts it where it isn't there.
#![allow(clippy::disallowed_methods, reason = "a bench writes its own files as it likes")]

mod baseline;
mod device;
mod publish;
mod stage;

use std::time::Duration;

/// How many devices the fleet has.
const DEVICES: usize = 1000;

/// One line of the table.
struct Line {
    what: String,
    value: String,
    runs: usize,
}

impl Line {
    fn new(what: impl Into<String>, value: impl Into<String>, runs: usize) -> Self {
        Self { what: what.into(), value: value.into(), runs }
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
    if seconds >= 1.0 { format!("{seconds:.2} s") } else { format!("{:.1} ms", seconds * 1000.0) }
}

fn print(lines: &[Line]) {
    let width = |of: fn(&Line) -> usize| lines.iter().map(of).max().unwrap_or(0);
    let (what, value) = (width(|line| line.what.chars().count()), width(|line| line.value.chars().count()));
    println!("\n{:what$}  {:>value$}  runs", "what (median)", "value");
    for line in lines {
        println!("{:what$}  {:>value$}  {:>4}", line.what, line.value, line.runs);
    }
}

fn main() {
    let stage = stage::Stage::new();
    println!("{} cores, {} on {}", stage::cores(), stage.dir.path().display(), stage.file_system());
    let mut lines = publish::measure(&stage);
    lines.extend(device::measure(&stage));
    print(&lines);
}
