//! The publisher's disk has no room: an error that says so, whole repositories, and with room the same command does it.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use repo_testkit::git::git;

use crate::support::Lab;

/// A small file system in memory in the place of the publisher's home; gone when dropped.
struct SmallHome(PathBuf);

impl SmallHome {
    fn new(lab: &Lab) -> Self {
        let (home, kept) = (lab.home.root().to_owned(), lab.dir().join("kept"));
        let run = |program: &str, args: &[&str]| {
            let output = Command::new(program).args(args).output().unwrap();
            assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        };
        let (home_text, kept_text) = (home.display().to_string(), kept.display().to_string());
        run("cp", &["-a", &home_text, &kept_text]);
        run("mount", &["-t", "tmpfs", "-o", "size=4m,mode=0700", "publisher-it", &home_text]);
        let small = Self(home);
        run("cp", &["-a", &format!("{kept_text}/."), &home_text]);
        small
    }

    fn fill(&self) -> PathBuf {
        let path = self.0.join("ballast");
        let mut ballast = fs::File::create(&path).unwrap();
        while ballast.write_all(&[b'x'; 4096]).is_ok() {}
        path
    }
}

impl Drop for SmallHome {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_named_and_what_was_published_stays() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    let home = SmallHome::new(&lab);
    let before = (lab.refs("press-01"), lab.control(&["rev-parse", "control"]));
    let ballast = home.fill();
    lab.edit("deployments/hello.yaml", "hello from the press", "servus");
    lab.commit();
    for _ in 0..2 {
        let said = lab.run(&["publish"]).failed(1);
        assert!(said.contains("No space left on device") && said.contains("hint: disk-full: make room"), "{said}");
        assert_eq!((lab.refs("press-01"), lab.control(&["rev-parse", "control"])), before);
    }
    fs::remove_file(ballast).unwrap();
    lab.run(&["publish"]).good();
    assert_eq!(lab.serial("press-01"), 2);
    git(&lab.repo("press-01"), &["fsck", "--strict"]);
}
