//! The same commits by the git CLI: what a careful shell script would do for each device.
//!
//! For each device a new bare repository; `hash-object -w --stdin-paths` once for all files; `mktree` for each tree;
//! `commit-tree` (`-S`, with ssh-keygen behind it) for `desired`, `bundle` and `freshness`; one `update-ref --stdin` for
//! the three branches. Git is told to sync everything (`core.fsync=all`). The files are ready-made, with the bytes that
//! our publisher made: rendering, comparing, verifying and the ledger of serials are not in this time, but in ours.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use repo_testkit::git;

use crate::DEVICES;
use crate::fleet::Fleet;
use crate::stage::{Stage, run};

/// How many devices, spread over the fleet; each is one run.
const SAMPLE: usize = 40;

const SCRIPT: &str = r#"
set -eu
export GIT_AUTHOR_NAME=b GIT_AUTHOR_EMAIL=b@example.invalid GIT_COMMITTER_NAME=b GIT_COMMITTER_EMAIL=b@example.invalid
git init -q --bare --template= "$2"
cd "$1"
repository=$2 key=$3
g() { git --git-dir="$repository" -c core.fsync=all -c core.fsyncMethod=fsync -c gpg.format=ssh -c "user.signingkey=$key" "$@"; }
# One process for all blobs, then one for each tree.
find desired bundle freshness -type f | LC_ALL=C sort >../files
g hash-object -w --stdin-paths <../files >../blobs
paste -d' ' ../blobs ../files >../list
tree() { # directory, further entries on standard input
    { cat; grep -E "^[0-9a-f]+ $1/[^/]+\$" ../list | while read -r blob path; do printf '100644 blob %s\t%s\n' "$blob" "${path##*/}"; done; } | g mktree
}
deployments=$(tree desired/deployments </dev/null)
trust=$(tree desired/trust </dev/null)
desired=$(printf '040000 tree %s\tdeployments\n040000 tree %s\ttrust\n' "$deployments" "$trust" | tree desired)
bundle=$(tree bundle </dev/null)
freshness=$(tree freshness </dev/null)
for branch in desired bundle freshness; do
    eval "tree=\$$branch"
    # shellcheck disable=SC2086
    commit=$(g commit-tree $4 -F "$branch.message" "$tree")
    printf 'create refs/heads/%s %s\n' "$branch" "$commit"
done | g update-ref --stdin
"#;

/// The files of some devices, as our publisher made them.
pub(crate) struct Baseline {
    dir: PathBuf,
    key: PathBuf,
    trees: Vec<String>,
}

impl Baseline {
    pub(crate) fn new(fleet: &Fleet, stage: &Stage) -> Self {
        let name = fleet.root().file_name().expect("a name").to_string_lossy().into_owned();
        let dir = stage.dir.path().join(format!("{name}-baseline"));
        let numbers = (0..SAMPLE).map(|n| n * DEVICES / SAMPLE);
        let mut trees = Vec::new();
        for number in numbers {
            let work = dir.join(number.to_string()).join("work");
            for branch in ["desired", "bundle", "freshness"] {
                let to = work.join(branch);
                std::fs::create_dir_all(&to).expect("made");
                check_out(&fleet.repository(number), branch, &to);
                let message = git::git(&fleet.repository(number), &["log", "-1", "--format=%B", branch]);
                std::fs::write(work.join(format!("{branch}.message")), message).expect("written");
            }
            trees.push(git::git(&fleet.repository(number), &["rev-parse", "desired^{tree}"]));
        }
        Self { dir, key: fleet.home().join("keys/publisher"), trees }
    }

    /// How long each device takes.
    pub(crate) fn measure(&self, signed: bool) -> Vec<Duration> {
        let each = (0..SAMPLE).map(|n| n * DEVICES / SAMPLE).zip(&self.trees);
        each.map(|(number, tree)| {
            let dir = self.dir.join(number.to_string());
            let repository = dir.join(if signed { "signed.git" } else { "unsigned.git" });
            let mut script = Command::new("sh");
            script.args(["-c", SCRIPT, "sh"]).arg(dir.join("work")).arg(&repository).arg(&self.key);
            let start = Instant::now();
            run(script.arg(if signed { "-S" } else { "" }));
            let took = start.elapsed();
            let made = git::git(&repository, &["rev-parse", "desired^{tree}"]);
            assert_eq!(&made, tree, "the git CLI makes the same tree");
            took
        })
        .collect()
    }
}

fn check_out(repository: &Path, branch: &str, to: &Path) {
    let mut archive = git::command(repository);
    let tar = to.with_extension("tar");
    run(archive.args(["archive", "--format=tar", "--output"]).arg(&tar).arg(branch));
    run(Command::new("tar").arg("-xf").arg(&tar).arg("-C").arg(to));
    std::fs::remove_file(tar).expect("removed");
}
