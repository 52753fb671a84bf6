//! A device that has been through much: what its clone, its repository at the host and a start take after so many changes.

use repo_testkit::git;

use crate::cost::{disk, of_runs};
use crate::site::{Docker, Site};
use crate::stage::Stage;
use crate::{Line, RUNS, shown};

/// Changes of each deployment, each published and applied by itself, after which it is measured. `MARGO_BENCH_CHANGES` says how
/// many there are in the end: 10,000 take hours.
const CHANGES: usize = if cfg!(debug_assertions) { 10 } else { 500 };

/// Deployments beside the first one, so that a change makes some five commits of `status`.
const MORE: usize = 2;

pub(crate) fn measure(stage: &Stage) -> Vec<Line> {
    let asked = std::env::var("MARGO_BENCH_CHANGES").ok().and_then(|text| text.parse().ok());
    let last: usize = asked.unwrap_or(CHANGES);
    let site = Site::new(stage, "long", "serve", "", &Docker::Fake);
    let mut lines = Vec::new();
    for number in 1..=last {
        site.want_more(MORE, &format!("change {number}"));
        assert!(site.device.syncer(&["once"]).status.success(), "change {number} is applied");
        if [last / 10, last / 2, last].contains(&number) {
            let measured = lines_after(&site, number);
            // Hours may lie between these lines and the table.
            for line in &measured {
                eprintln!("{}: {}", line.what, line.value);
            }
            lines.extend(measured);
        }
    }
    lines
}

fn lines_after(site: &Site, changes: usize) -> Vec<Line> {
    let commits = |branch: &str| git::git(&site.repository(), &["rev-list", "--count", branch]);
    let kilobytes = |bytes: u64| format!("{:.0} KB", bytes as f64 / 1e3);
    let (wall, cpu) = of_runs(RUNS as u32, &site.device.command(&["once"]));
    let name = format!("after {changes} changes, {} and {} commits", commits("desired"), commits("status"));
    vec![
        Line::new(format!("{name}: the clone"), kilobytes(disk(&site.device.clone_dir())), 1).goal("≤ 2 MB"),
        Line::new("  the repository at the host", kilobytes(disk(&site.repository())), 1),
        Line::new("  a start and a pass that finds nothing to do: wall", shown(wall), RUNS).goal("≤ 100 ms"),
        Line::new("  a start and a pass that finds nothing to do: CPU", shown(cpu), RUNS),
    ]
}
