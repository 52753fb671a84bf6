//! Tools of a forger who can write a repository's files, and may have keys.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use jiff::Timestamp;
use repo_git::{Commit, CommitSpec, Repo, SigningKey, TreeSource};
use repo_testkit::git::{self, command};
use repo_testkit::hand::{Draft, Hand};
use wfm_git_publisher::audit::{Audit, Checkpoint, Finding, Found, Options, Start, audit, places};

use super::honest::{DEVICES, Honest};
use crate::support::{Lab, Ran, copy};

pub(crate) const BAD: &str = DEVICES[0];
pub(crate) const GOOD: &str = DEVICES[1];

/// Repositories to be spoilt, and the untouched ones that they come from.
pub(crate) struct Forge {
    honest: Honest,
    clean: PathBuf,
    dir: PathBuf,
    pub(crate) hand: Hand,
    start: Start,
    /// What was covered when the newest state wasn't published yet.
    pub(crate) early: Checkpoint,
}

/// How a commit that was changed gets a signature.
#[derive(Clone, Copy)]
pub(crate) enum Sign<'a> {
    /// The old one stays.
    Kept,
    Removed,
    /// A key in the forger's directory, for this purpose.
    By(&'a str, &'a str),
}

impl Forge {
    pub(crate) fn new() -> Self {
        let mut honest = Honest::new();
        let start = Start::of("roster", &std::fs::read(honest.roster()).unwrap()).unwrap();
        let nothing = Checkpoint::new(start.digest);
        let all = places(&[honest.lab.home.devices()]).unwrap();
        let early = audit(all, options(&start, &nothing), &|_, _| ()).checkpoint;
        assert_eq!(early.devices.len(), 2);
        honest.go_on();
        let clean = honest.spread();
        let dir = honest.lab.dir().join("forge");
        let forge = Self { hand: Hand::at(dir.clone()), honest, clean, dir, start, early };
        forge.reset();
        let audit = forge.audit();
        assert_eq!(audit.findings, [], "a clean history");
        assert_eq!(audit.repositories.len(), 2);
        forge
    }

    /// Makes everything clean again.
    pub(crate) fn reset(&self) {
        let is_untouched = self.repository(GOOD).exists() && std::fs::read_dir(self.devices()).unwrap().count() == 2;
        if is_untouched {
            copy(&self.clean.join(format!("devices/{BAD}.git")), &self.bad());
        } else {
            copy(&self.clean, &self.dir);
            std::os::unix::fs::symlink(self.bad(), self.dir.join("repository.git")).unwrap();
        }
    }

    pub(crate) fn devices(&self) -> PathBuf {
        self.dir.join("devices")
    }

    pub(crate) fn repository(&self, device: &str) -> PathBuf {
        self.devices().join(format!("{device}.git"))
    }

    pub(crate) fn bad(&self) -> PathBuf {
        self.repository(BAD)
    }

    pub(crate) fn audit(&self) -> Audit {
        self.audit_after(&Checkpoint::new(self.start.digest))
    }

    /// A report of all of them.
    pub(crate) fn report(&self, args: &[&str]) -> Ran {
        self.command("report", args)
    }

    /// A command of the audit's on all of them.
    pub(crate) fn command(&self, command: &str, args: &[&str]) -> Ran {
        let (devices, roster) = (self.devices().display().to_string(), self.honest.roster().display().to_string());
        self.honest.lab.run(&[&["audit", command, &devices, "--roster", &roster], args].concat())
    }

    /// The command on all of them.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        let (devices, roster) = (self.devices().display().to_string(), self.honest.roster().display().to_string());
        self.honest.lab.run(&[&["audit", &devices, "--roster", &roster], args].concat())
    }

    pub(crate) fn audit_after(&self, before: &Checkpoint) -> Audit {
        audit(places(&[self.devices()]).unwrap(), options(&self.start, before), &|_, _| ())
    }

    /// The key that signs a branch.
    pub(crate) fn writer(branch: &str) -> &'static str {
        match branch {
            "status" | "heartbeat" => BAD,
            "site" => "site",
            _ => "publisher",
        }
    }

    /// Commits of a branch, the newest first.
    pub(crate) fn line(&self, branch: &str) -> Vec<String> {
        git::git(&self.bad(), &["rev-list", "--first-parent", branch]).lines().map(str::to_owned).collect()
    }

    /// Changes the raw text of the commit `back` before a branch's tip. What follows it is made anew upon it, and signed by
    /// the branch's own key.
    pub(crate) fn text(
        &self,
        branch: &str,
        back: usize,
        sign: Sign<'_>,
        change: impl FnOnce(String) -> String,
    ) -> String {
        let line = self.line(branch);
        let (payload, signature) = split(&self.hand.raw(&line[back]));
        let changed = self.signed(&change(payload), &signature, sign);
        self.put_upon(branch, &line[..back], self.hand.object("commit", changed.as_bytes()))
    }

    /// The same of its files, message and parents; it is signed by the draft's key, which is the branch's own.
    pub(crate) fn draft(&self, branch: &str, back: usize, change: impl FnOnce(&mut Draft)) -> String {
        let line = self.line(branch);
        let mut draft = self.hand.draft_of(&line[back]);
        draft.key = Some(self.dir.join(Self::writer(branch)));
        change(&mut draft);
        self.put_upon(branch, &line[..back], self.hand.commit(&draft))
    }

    /// Puts newer commits, the newest first, anew upon another one, and the branch there.
    pub(crate) fn put_upon(&self, branch: &str, newer: &[String], id: String) -> String {
        let repo = Repo::open(&self.bad()).unwrap();
        let key = SigningKey::load(&self.dir.join(Self::writer(branch))).unwrap();
        let (mut batch, mut tip) = (repo.batch(), id.parse().unwrap());
        for newer in newer.iter().rev() {
            let Commit { tree, author, committer, commit_time: time, message, .. } =
                repo.commit(newer.parse().unwrap()).unwrap();
            let (tree, parents) = (TreeSource::Existing(tree), vec![tip]);
            tip = batch.commit(&CommitSpec { tree, parents, author, committer, time, message }, Some(&key)).unwrap();
        }
        batch.store().unwrap();
        let tip = tip.to_string();
        self.hand.move_branch(branch, &tip);
        id
    }

    fn signed(&self, payload: &str, old: &str, sign: Sign<'_>) -> String {
        let signature = match sign {
            Sign::Kept => old.to_owned(),
            Sign::Removed => return payload.to_owned(),
            Sign::By(key, namespace) => {
                let signature = SigningKey::load(&self.dir.join(key)).unwrap();
                let signature = signature.sign(namespace, payload.as_bytes()).unwrap();
                format!("gpgsig {}\n", signature.trim_end().replace('\n', "\n "))
            }
        };
        let (head, message) = payload.split_once("\n\n").unwrap();
        format!("{head}\n{signature}\n{message}")
    }

    /// Puts each object into a file of its own.
    fn unpack(&self) {
        let packs = self.dir.join("packs");
        if std::fs::rename(self.bad().join("objects/pack"), &packs).is_err() {
            return;
        }
        let packs: Vec<_> = std::fs::read_dir(&packs).unwrap().map(|entry| entry.unwrap().path()).collect();
        for pack in packs.iter().filter(|pack| pack.extension().is_some_and(|extension| extension == "pack")) {
            let pack = std::fs::File::open(pack).unwrap();
            assert!(command(&self.bad()).args(["unpack-objects", "-q"]).stdin(pack).status().unwrap().success());
        }
        std::fs::remove_dir_all(self.dir.join("packs")).unwrap();
    }

    /// The file of an object.
    pub(crate) fn object(&self, rev: &str) -> PathBuf {
        self.unpack();
        let id = git::git(&self.bad(), &["rev-parse", rev]);
        let path = self.bad().join(format!("objects/{}/{}", &id[..2], &id[2..]));
        let mut permissions = std::fs::metadata(&path).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o644);
        std::fs::set_permissions(&path, permissions).unwrap();
        path
    }

    pub(crate) fn git(&self, args: &[&str]) -> String {
        git::git(&self.bad(), args)
    }

    /// The fleet that they come from.
    pub(crate) fn lab(&self) -> &Lab {
        &self.honest.lab
    }

    /// Puts what was made of the repository into the home that it comes from.
    pub(crate) fn bring_home(&self) {
        copy(&self.bad(), &self.lab().repo(BAD));
    }

    /// A file into the repository, past Git.
    pub(crate) fn put(&self, path: &str, text: &str) {
        let path = self.bad().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

fn options<'a>(start: &'a Start, before: &'a Checkpoint) -> Options<'a> {
    Options { start, before, archives: None, now: Timestamp::now(), threads: 1, keeps_records: false }
}

/// A commit without its signature, and the header that is that.
fn split(raw: &str) -> (String, String) {
    let (mut payload, mut signature, mut inside) = (String::new(), String::new(), false);
    let (head, message) = raw.split_once("\n\n").unwrap();
    for line in head.lines() {
        inside = line.starts_with("gpgsig ") || (inside && line.starts_with(' '));
        let part = if inside { &mut signature } else { &mut payload };
        part.push_str(line);
        part.push('\n');
    }
    (format!("{payload}\n{message}\n"), signature)
}

/// Writes something to a git command, and gives what it says.
pub(crate) fn feed(repository: &Path, args: &[&str], input: &str) -> String {
    let mut child = command(repository).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap().trim().to_owned()
}

type Make<'a> = Box<dyn Fn(&Forge) -> Option<String> + 'a>;

/// One forgery: what it is, the code that it has to be found by, on which branch, and how it is made. The commit that is
/// forged is given if it is one.
pub(crate) struct Forgery<'a> {
    pub(crate) name: String,
    pub(crate) code: &'static str,
    pub(crate) branch: Option<&'static str>,
    pub(crate) make: Make<'a>,
}

pub(crate) fn forgery<'a>(
    name: impl Into<String>,
    code: &'static str,
    branch: impl Into<Option<&'static str>>,
    make: impl Fn(&Forge) -> Option<String> + 'a,
) -> Forgery<'a> {
    Forgery { name: name.into(), code, branch: branch.into(), make: Box::new(make) }
}

/// Makes each of them alone, and looks whether it is found, where it is, and nothing is found of the neighbour.
#[track_caller]
pub(crate) fn all_are_found(forge: &Forge, forgeries: &[Forgery<'_>]) {
    let missed = forgeries.iter().filter_map(|forgery| {
        forge.reset();
        let commit = (forgery.make)(forge);
        let audit = forge.audit();
        let is_found = audit.findings.iter().any(|finding| forgery.is(finding, commit.as_deref()));
        (!is_found || is_of_others(&audit))
            .then(|| format!("{}: {}: {:#?}", forgery.name, forgery.code, audit.findings))
    });
    assert_eq!(missed.collect::<Vec<_>>(), [""; 0], "of {} forgeries", forgeries.len());
}

/// The same of what is signed; and whoever has a checkpoint of before the newest state finds it there, too, or that history was
/// rewritten.
#[track_caller]
pub(crate) fn all_are_found_after_a_checkpoint(forge: &Forge, forgeries: &[Forgery<'_>]) {
    all_are_found(forge, forgeries);
    let missed = forgeries.iter().filter_map(|forgery| {
        forge.reset();
        let commit = (forgery.make)(forge);
        let audit = forge.audit_after(&forge.early);
        let is_it = |finding: &Finding| {
            forgery.is(finding, commit.as_deref()) || finding.found.kind.code == "history-rewritten"
        };
        let is_found = audit.findings.iter().any(is_it);
        (!is_found || is_of_others(&audit))
            .then(|| format!("{}: {}: {:#?}", forgery.name, forgery.code, audit.findings))
    });
    assert_eq!(missed.collect::<Vec<_>>(), [""; 0], "after a checkpoint, of {} forgeries", forgeries.len());
}

impl Forgery<'_> {
    fn is(&self, finding: &Finding, commit: Option<&str>) -> bool {
        let Found { kind, branch, commit: at, .. } = &finding.found;
        let is_there = self.branch.is_none_or(|wanted| branch.as_deref() == Some(wanted));
        let is_at = commit.is_none_or(|commit| at.is_some_and(|at| at.to_string() == commit));
        kind.code == self.code && is_there && is_at
    }
}

fn is_of_others(audit: &Audit) -> bool {
    audit.findings.iter().any(|one| one.device.as_ref().is_some_and(|device| device.as_str() == GOOD))
}
