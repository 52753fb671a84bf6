//! The threat model says no more than tests show.

use std::path::{Path, PathBuf};

/// Every Rust source below a directory, but what is built there.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a directory").flatten() {
        let path = entry.path();
        let is_built = ["target", ".git"].iter().any(|name| entry.file_name() == *name);
        if path.is_dir() && !is_built {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn each_threat_has_a_test_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let code: String = files.iter().map(|file| std::fs::read_to_string(file).expect("a source")).collect();
    let page = std::fs::read_to_string(root.join("docs/threat-model.md")).expect("the threat model");
    let threats = page.split_once("## Workloads").expect("the first attacker").1;
    // A row's last cell names its tests, the others what is tried and what holds it back.
    let rows = threats.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| They try"));
    let mut count = 0;
    for row in rows {
        let cell = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        let names = cell.split('`').skip(1).step_by(2).filter_map(|name| name.rsplit("::").next());
        let tests: Vec<_> = names.filter(|name| !name.ends_with(".rs")).collect();
        assert!(!tests.is_empty(), "no test shows this: {row}");
        for name in tests {
            assert!(code.contains(&format!("fn {name}(")), "no test is called `{name}`: {row}");
        }
        count += 1;
    }
    assert!(count > 40, "only {count} rows were read: this test has to follow the page");
}
