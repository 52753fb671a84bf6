//! Homes that another version of the syncer made.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use repo_testkit::git;

use crate::world::World;

const STATE: &str = "refs/syncer/state";

impl World {
    /// Puts this as `layout.json` into the device state, or takes it away.
    pub(crate) fn lay_out(&self, layout: Option<&str>) {
        let clone = self.clone();
        let listed = git::git(&clone, &["ls-tree", STATE]);
        let mut entries: Vec<_> =
            listed.lines().filter(|line| !line.ends_with("\tlayout.json")).map(str::to_owned).collect();
        if let Some(text) = layout {
            entries.push(format!("100644 blob {}\tlayout.json", made(&clone, &["hash-object", "-w", "--stdin"], text)));
        }
        let tree = made(&clone, &["mktree"], &(entries.join("\n") + "\n"));
        let parents = git::git(&clone, &["log", "-1", "--format=%P", STATE]);
        let mut args = vec!["commit-tree", "-m", "state", &tree];
        args.extend(parents.split(' ').flat_map(|parent| ["-p", parent]));
        git::git(&clone, &["update-ref", STATE, &git::git(&clone, &args)]);
    }
}

/// The object that git makes of this.
fn made(clone: &Path, args: &[&str], input: &str) -> String {
    let mut git = git::command(clone).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    git.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    String::from_utf8(git.wait_with_output().unwrap().stdout).unwrap().trim().to_owned()
}

/// Every file below a directory, with what it holds.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => all.extend(files(&entry.path())),
            kind if kind.is_file() => {
                _ = all.insert(entry.path().display().to_string(), fs::read(entry.path()).unwrap())
            }
            _ => {}
        }
    }
    all
}

#[test]
fn a_home_that_a_newer_syncer_made_is_left_as_it_is() {
    let world = World::running();
    world.lay_out(Some("{\"layout\": 99, \"program\": \"9.1.0\\u001b[2J\", \"more\": {}}"));
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    let (before, calls) = (files(&world.home()), world.fake.calls());
    let commands: [&[&str]; 9] = [
        &["once"],
        &["run"],
        &["plan"],
        &["status"],
        &["explain", "greeter"],
        &["hold", "--by", "j.doe", "--why", "work"],
        &["retry"],
        &["doctor"],
        &["leave", "--yes"],
    ];
    for args in commands {
        let run =
            world.syncer(args).ended(78).says(&["layout 99, of device-syncer 9.1.0", "hint: install that version"]);
        assert!(!run.stderr.contains('\u{1b}'), "{run:?}");
    }
    assert!(files(&world.home()) == before, "nothing was written");
    assert_eq!(world.fake.calls(), calls);
    world.syncer(&["schema"]).good();
}

#[test]
fn the_state_of_a_syncer_before_layouts_is_read_and_gets_one() {
    let world = World::running();
    assert!(git::show(&world.clone(), STATE, "layout.json").is_some());
    world.lay_out(None);
    world.assert_idle();
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.once().good();
    let layout = String::from_utf8(git::show(&world.clone(), STATE, "layout.json").unwrap()).unwrap();
    assert!(layout.contains(env!("CARGO_PKG_VERSION")), "{layout}");
    world.assert_idle();
}
