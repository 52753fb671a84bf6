//! Backups of the home: what is in one, and that no other file is taken for one.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::support::Lab;

struct Place {
    lab: Lab,
    file: PathBuf,
    target: PathBuf,
}

impl Place {
    fn new() -> Self {
        let lab = Lab::with(&["press-01", "press-02"]);
        lab.publish();
        let (file, target) = (lab.dir().join("backup.tar"), lab.dir().join("restored.wfm"));
        Self { lab, file, target }
    }

    fn back_up(&self) -> String {
        self.lab.run(&["backup", &self.file.display().to_string()]).good()
    }

    fn restore(&self) -> crate::support::Ran {
        let (file, target) = (self.file.display().to_string(), self.target.display().to_string());
        self.lab.run(&["--home", &target, "restore", &file])
    }

    /// A restore that fails leaves nothing.
    fn refuses(&self, what: &str) -> String {
        let said = self.restore().failed(1);
        assert!(!self.target.exists(), "{what}");
        let left = fs::read_dir(self.lab.dir()).unwrap().flatten().map(|entry| entry.file_name());
        let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with(".tmp-")).collect();
        assert!(left.is_empty(), "{what}: {left:?}");
        said
    }

    /// A restore over a home leaves that as it is.
    fn refuses_over(&self) -> String {
        let before = fs::read(self.target.join("publisher.yaml")).unwrap();
        let said = self.restore().failed(1);
        assert_eq!(fs::read(self.target.join("publisher.yaml")).unwrap(), before);
        said
    }
}

/// The names in an archive, without its list.
fn names(file: &Path) -> BTreeSet<String> {
    let mut archive = tar::Archive::new(fs::File::open(file).unwrap());
    let names = archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string());
    names.collect()
}

#[test]
fn a_backup_has_what_can_not_be_made_anew_and_no_root_key() {
    let place = Place::new();
    let home = place.lab.dir().join("fleet.wfm");
    symlink("/etc/passwd", home.join("accounts/passwd.json")).unwrap();
    fs::write(place.file.with_extension("tar.before"), "").unwrap();
    let said = place.back_up();
    assert!(said.contains("It holds the publisher's key") && said.contains("passwd.json` is a link"), "{said}");
    assert_eq!(fs::metadata(&place.file).unwrap().permissions().mode() & 0o777, 0o600);
    let names = names(&place.file);
    for name in ["keys/publisher", "control.git/HEAD", "devices/press-01.git/HEAD", "publisher.yaml", "allowed_signers"]
    {
        assert!(names.contains(name), "{name}: {names:?}");
    }
    let is_left_out = |name: &&String| {
        ["keys/root", "index/", "join/", "lock"].iter().any(|one| name.starts_with(one)) || name.ends_with(".lock")
    };
    let found: Vec<_> = names.iter().filter(is_left_out).filter(|name| *name != "keys/root.pub").collect();
    assert!(found.is_empty(), "{found:?}");
    fs::remove_file(home.join("accounts/passwd.json")).unwrap();
    let said = place.restore().good();
    assert!(said.contains("with 2 devices\n"), "{said}");
    let modes = |path: &str| fs::metadata(place.target.join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((modes("keys/publisher"), modes("keys"), modes("devices/press-01.git")), (0o600, 0o700, 0o700));
    // The restored home publishes on: nothing is different, and the next change is one commit.
    let home = place.target.display().to_string();
    let run = |args: &[&str]| place.lab.run(&[&["--home", &home], args].concat());
    assert!(run(&["plan"]).good().contains("nothing"), "nothing is different");
    assert!(place.refuses_over().contains("exists, and nothing is restored over it"));
}

#[test]
fn what_was_cut_off_or_changed_is_no_backup_and_leaves_nothing() {
    let place = Place::new();
    place.back_up();
    let whole = fs::read(&place.file).unwrap();
    for part in [0, 100, 511, 512, 4096, whole.len() / 2, whole.len() - 2048] {
        fs::write(&place.file, &whole[..part]).unwrap();
        let said = place.refuses(&format!("{part} bytes"));
        assert!(said.contains("is not a whole backup"), "{part}: {said}");
    }
    // One bit of the publisher's key.
    let key = fs::read(place.lab.dir().join("fleet.wfm/keys/publisher")).unwrap();
    let at = whole.windows(key.len()).position(|window| window == key).unwrap();
    let mut changed = whole.clone();
    changed[at + key.len() / 2] ^= 1;
    fs::write(&place.file, &changed).unwrap();
    let said = place.refuses("a bit");
    assert!(said.contains("`keys/publisher` is missing, or isn't what was backed up"), "{said}");
    fs::write(&place.file, &whole).unwrap();
    place.restore().good();
}

/// The same archive with one entry more in front.
fn with_entry(whole: &[u8], path: &str, kind: tar::EntryType, bytes: &[u8]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(bytes.len() as u64);
    header.set_mode(0o600);
    if kind == tar::EntryType::Symlink {
        header.set_link_name("/etc").unwrap();
    }
    // As somebody writes it who isn't our library.
    header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
    header.set_cksum();
    builder.append(&header, bytes).unwrap();
    let mut archive = builder.into_inner().unwrap();
    archive.truncate(archive.len() - 1024);
    archive.extend_from_slice(whole);
    archive
}

#[test]
fn an_archive_that_somebody_made_leads_out_of_the_home_by_no_name_and_no_link() {
    let place = Place::new();
    place.back_up();
    let whole = fs::read(&place.file).unwrap();
    let outside = place.lab.dir().join("outside");
    for (path, kind) in [
        ("../outside", tar::EntryType::Regular),
        ("keys/../../outside", tar::EntryType::Regular),
        ("devices", tar::EntryType::Symlink),
        ("more", tar::EntryType::Regular),
        ("pipe", tar::EntryType::Fifo),
        ("keys/publisher", tar::EntryType::Regular),
    ] {
        fs::write(&place.file, with_entry(&whole, path, kind, b"")).unwrap();
        let said = place.refuses(path);
        assert!(!outside.exists(), "{path}");
        assert!(said.contains("is not a whole backup") || said.contains("cannot write"), "{path}: {said}");
    }
}

/// Whoever writes a repository holds its lock; what is backed up meanwhile is one state of it, whole.
#[test]
fn repositories_that_are_written_meanwhile_are_backed_up_whole() {
    let place = Place::new();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for _ in 0..40 {
                place.lab.edit("deployments/hello.yaml", "greeting: ", "greeting: again ");
                place.lab.commit();
                place.lab.publish();
            }
        });
        let mut rounds = 0;
        while !writer.is_finished() {
            place.back_up();
            place.restore().good();
            for repository in ["control.git", "devices/press-01.git"] {
                let path = place.target.join(repository);
                let tip = repo_testkit::git::git(&path, &["for-each-ref", "--format=%(objectname)"]);
                assert!(!tip.is_empty(), "{repository} in round {rounds}");
                repo_testkit::git::git(&path, &["fsck", "--strict", "--no-dangling"]);
            }
            fs::remove_dir_all(&place.target).unwrap();
            rounds += 1;
        }
        assert!(rounds > 1, "{rounds}");
    });
}
