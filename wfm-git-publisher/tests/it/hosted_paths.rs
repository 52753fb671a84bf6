//! Operators whose accounts are bound to paths of the hosted fleet repository, against stock git on the other side.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Output;

use repo_testkit::git;
use wfm_git_host::accounts::Role;

use crate::host::{Login, Site, eventually, said};
use crate::hosted::hosted;

/// What Gerda may change.
const PATHS: [&str; 2] = ["devices/press-*.yaml", "deployments/graz"];

/// A hosted fleet, with Olga, who may change everything, and Gerda, who may not; each with a clone.
struct Plant {
    site: Site,
    olga: (Login, PathBuf),
    gerda: (Login, PathBuf),
}

impl Plant {
    fn new() -> Self {
        let site = Site::on(hosted(), "");
        let olga = site.login("olga", Role::Operator, None);
        let file = site.lab.dir().join("gerda.secret");
        let paths: Vec<_> = PATHS.iter().flat_map(|path| ["--path", path]).collect();
        let add = ["account", "add", "gerda", "--role", "operator", "--secret-file", file.to_str().unwrap()];
        site.lab.run(&[&add[..], &paths].concat()).good();
        let secret = fs::read_to_string(&file).unwrap().trim().to_owned();
        let gerda = Login { name: "gerda".to_owned(), secret };
        let [olga, gerda] = [(olga, "olga"), (gerda, "gerda")].map(|(login, name)| {
            let clone = site.clone(&login, "fleet.git", name);
            (login, clone)
        });
        Self { site, olga, gerda }
    }

    fn push(&self, (login, clone): &(Login, PathBuf), args: &[&str]) -> Output {
        self.site.run(clone, login, &[&["push", "origin"], args].concat())
    }

    fn refs(&self) -> String {
        git::git(&self.site.lab.home.hosted_fleet(), &["for-each-ref"])
    }

    /// Gerda's push fails for these reasons, in her terminal, and nothing has moved. Her clone is as the host has it then.
    #[track_caller]
    fn refused(&self, args: &[&str], reasons: &[&str]) {
        let before = self.refs();
        let pushed = self.push(&self.gerda, args);
        let told = said(&pushed);
        assert!(!pushed.status.success() && reasons.iter().all(|reason| told.contains(reason)), "{reasons:?}: {told}");
        assert_eq!(self.refs(), before);
        git::git(&self.gerda.1, &["reset", "--quiet", "--hard", "origin/main"]);
        git::git(&self.gerda.1, &["clean", "-dffqx"]);
    }

    #[track_caller]
    fn accepted(&self, who: &(Login, PathBuf), args: &[&str]) {
        let pushed = self.push(who, args);
        assert!(pushed.status.success(), "{}", said(&pushed));
    }
}

fn edit(clone: &Path, path: &str, from: &str, to: &str) {
    let path = clone.join(path);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

fn commit(clone: &Path) -> String {
    git::git(clone, &["add", "--all"]);
    git::git(clone, &["commit", "--quiet", "--message", "a change"]);
    git::git(clone, &["rev-parse", "HEAD"])
}

#[test]
fn a_push_that_changes_anything_else_is_refused_with_rule_path_and_commit() {
    let plant = Plant::new();
    let clone = plant.gerda.1.clone();
    let press = fs::read_to_string(clone.join("devices/press-02.yaml")).unwrap();
    edit(&clone, "devices/press-01.yaml", "id: press-01", "id: press-01   # hers");
    fs::create_dir(clone.join("deployments/graz")).unwrap();
    fs::write(clone.join("deployments/graz/note.md"), "hers\n").unwrap();
    commit(&clone);
    plant.accepted(&plant.gerda, &["main"]);
    // Changed, made, deleted, moved out of what is hers or into it, or made executable.
    edit(&clone, "fleet.yaml", "What people call it", "Hers");
    let id = commit(&clone);
    plant.refused(
        &["main"],
        &[
            &format!("commit {id} changes `fleet.yaml`"),
            "the account gerda may change `devices/press-*.yaml`, `deployments/graz` and nothing else (its `paths`)",
            "hint: whoever may change all of it pushes this",
        ],
    );
    fs::write(clone.join("deployments/graz.yaml"), "id: x\n").unwrap();
    commit(&clone);
    plant.refused(&["main"], &["changes `deployments/graz.yaml`"]);
    git::git(&clone, &["rm", "--quiet", "deployments/hello.yaml"]);
    commit(&clone);
    plant.refused(&["main"], &["changes `deployments/hello.yaml`"]);
    for (from, to) in
        [("deployments/hello.yaml", "deployments/graz/hello.yaml"), ("devices/press-02.yaml", "devices/linz-02.yaml")]
    {
        git::git(&clone, &["mv", from, to]);
        commit(&clone);
        let outside = if from.contains("press") { to } else { from };
        plant.refused(&["main"], &[&format!("changes `{outside}`")]);
    }
    git::git(&clone, &["update-index", "--chmod=+x", "fleet.yaml"]);
    git::git(&clone, &["commit", "--quiet", "--message", "x"]);
    plant.refused(&["main"], &["changes `fleet.yaml`"]);
    // A link or a submodule in the place of what isn't hers, or of the folder that hers is in.
    fs::remove_file(clone.join("deployments/hello.yaml")).unwrap();
    symlink("graz/note.md", clone.join("deployments/hello.yaml")).unwrap();
    commit(&clone);
    plant.refused(&["main"], &["changes `deployments/hello.yaml`"]);
    fs::rename(clone.join("deployments"), clone.join("hers")).unwrap();
    symlink("hers", clone.join("deployments")).unwrap();
    commit(&clone);
    plant.refused(&["main"], &["changes `deployments`"]);
    let head = git::git(&clone, &["rev-parse", "HEAD"]);
    git::git(&clone, &["update-index", "--add", "--cacheinfo", &format!("160000,{head},applications/other")]);
    git::git(&clone, &["commit", "--quiet", "--message", "x"]);
    plant.refused(&["main"], &["changes `applications/other`"]);
    assert_eq!(fs::read_to_string(clone.join("devices/press-02.yaml")).unwrap(), press);
}

#[test]
fn what_a_later_commit_takes_back_another_branch_has_or_a_merge_brings_is_judged_too() {
    let plant = Plant::new();
    let (clone, other) = (plant.gerda.1.clone(), plant.olga.1.clone());
    // Taken back in the same push.
    edit(&clone, "fleet.yaml", "What people call it", "Hers");
    let id = commit(&clone);
    git::git(&clone, &["revert", "--no-edit", "HEAD"]);
    plant.refused(&["main"], &[&format!("commit {id} changes `fleet.yaml`")]);
    // On a branch that isn't published, by a tag, or by a tag on a tag, whose commits nobody would look at.
    edit(&clone, "fleet.yaml", "What people call it", "Hers");
    commit(&clone);
    plant.refused(&["HEAD:refs/heads/wip"], &["refs/heads/wip", "changes `fleet.yaml`"]);
    edit(&clone, "fleet.yaml", "What people call it", "Hers");
    commit(&clone);
    git::git(&clone, &["tag", "-m", "x", "v1"]);
    plant.refused(&["v1"], &["refs/tags/v1", "changes `fleet.yaml`"]);
    git::git(&clone, &["tag", "-m", "x", "v2", "v1"]);
    plant.refused(&["v2"], &["refs/tags/v2", "pushes commits and tags on them"]);
    // A merge takes over what others changed elsewhere and the host has…
    edit(&clone, "devices/press-01.yaml", "id: press-01", "id: press-01   # hers");
    commit(&clone);
    edit(&other, "fleet.yaml", "The fleet itself", "The fleet # olga's");
    commit(&other);
    plant.accepted(&plant.olga, &["main"]);
    plant.site.run(&clone, &plant.gerda.0, &["fetch", "--quiet", "origin"]);
    git::git(&clone, &["merge", "--quiet", "--no-edit", "origin/main"]);
    plant.accepted(&plant.gerda, &["main"]);
    // …and doesn't throw it away, bring what isn't published, or change something itself.
    plant.site.run(&other, &plant.olga.0, &["pull", "--quiet"]);
    edit(&other, "fleet.yaml", "# olga's", "# olga's, too");
    commit(&other);
    plant.accepted(&plant.olga, &["main"]);
    edit(&clone, "devices/press-01.yaml", "# hers", "# hers, too");
    commit(&clone);
    plant.site.run(&clone, &plant.gerda.0, &["fetch", "--quiet", "origin"]);
    git::git(&clone, &["merge", "--quiet", "--no-edit", "--strategy=ours", "origin/main"]);
    let merge = git::git(&clone, &["rev-parse", "HEAD"]);
    plant.refused(&["main"], &[&format!("commit {merge} changes `fleet.yaml`")]);
    edit(&other, "fleet.yaml", "# olga's, too", "# work");
    commit(&other);
    plant.accepted(&plant.olga, &["HEAD:refs/heads/olgas"]);
    plant.site.run(&clone, &plant.gerda.0, &["fetch", "--quiet", "origin"]);
    git::git(&clone, &["merge", "--quiet", "--no-ff", "--no-edit", "origin/olgas"]);
    plant.refused(&["main"], &["changes `fleet.yaml`"]);
    edit(&clone, "devices/press-01.yaml", "# hers", "# hers, again");
    commit(&clone);
    git::git(&clone, &["checkout", "--quiet", "-b", "side", "origin/main"]);
    edit(&clone, "devices/press-02.yaml", "id: press-02", "id: press-02   # hers");
    commit(&clone);
    git::git(&clone, &["merge", "--quiet", "--no-commit", "main"]);
    edit(&clone, "fleet.yaml", "What people call it", "Hers");
    commit(&clone);
    plant.refused(&["side:main"], &["changes `fleet.yaml`"]);
}

#[test]
fn a_running_host_goes_by_other_paths_at_once_and_by_none_that_it_cant_read() {
    let plant = Plant::new();
    let (lab, clone) = (&plant.site.lab, plant.gerda.1.clone());
    assert!(lab.run(&["account", "list"]).good().contains("devices/press-*.yaml, deployments/graz"));
    edit(&clone, "fleet.yaml", "What people call it", "Hers");
    commit(&clone);
    assert!(!plant.push(&plant.gerda, &["main"]).status.success());
    assert_eq!(lab.run(&["account", "paths", "gerda", "--all"]).good(), "gerda may change everything\n");
    assert!(eventually(|| plant.push(&plant.gerda, &["main"]).status.success()));
    // A pattern that only a newer version knows is no door.
    let file = lab.home.accounts().join("gerda.json");
    lab.run(&["account", "paths", "gerda", "--path", "devices"]).good();
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("\"devices\"", "\"devices/[a-z]\"")).unwrap();
    edit(&clone, "devices/press-01.yaml", "id: press-01", "id: press-01   # hers");
    commit(&clone);
    assert!(eventually(|| said(&plant.push(&plant.gerda, &["main"])).contains("nothing else")));
    for (args, why) in [
        (&["account", "paths", "gerda", "--path", "../x"][..], "is no pattern of paths"),
        (&["account", "add", "ann", "--role", "auditor", "--path", "devices"], "only an operator's account has --path"),
    ] {
        let ran = lab.run(args);
        assert!(ran.code != Some(0) && ran.err.contains(why), "{args:?}: {}", ran.err);
    }
    plant.site.login("audit", Role::Auditor, None);
    let text = lab.run(&["account", "paths", "audit", "--path", "devices"]).failed(1);
    assert!(text.contains("isn't an operator's"), "{text}");
}
