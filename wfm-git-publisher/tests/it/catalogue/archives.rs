//! Archives, also those that want to do harm.

use std::io::Write;

use super::*;

#[test]
fn an_archive_gives_the_same_package_as_its_folder() {
    let lab = Lab::new();
    let dir = package(&lab, "vendor", "1.0.0");
    lab.run(&["app", "add", text(&dir)]).good();
    let archive = lab.dir().join("counter.tar.gz");
    for what in [&["margo.yaml", "resources", "compose"][..], &["."]] {
        tar(&dir, &archive, what);
        assert_eq!(json(&lab, &["app", "add", text(&archive)])["wasThere"], true, "{what:?}");
    }
    tar(lab.dir(), &archive, &["vendor"]);
    assert_eq!(json(&lab, &["app", "add", text(&archive)])["wasThere"], true);
    let next = package(&lab, "next", "1.1.0");
    tar(&next, &archive, &["."]);
    assert_eq!(json(&lab, &["app", "add", text(&archive)])["wasThere"], false);
    assert_eq!(committed(&lab, "applications/counter/1.1.0/resources/license.txt"), LICENCE);
}

/// An entry whose header is written as it is, without the checks that a tar writer makes.
struct Raw<'a> {
    path: &'a str,
    kind: tar::EntryType,
    target: &'a str,
    bytes: &'a [u8],
}

fn file<'a>(path: &'a str, bytes: &'a [u8]) -> Raw<'a> {
    Raw { path, kind: tar::EntryType::Regular, target: "", bytes }
}

fn odd<'a>(path: &'a str, kind: tar::EntryType, target: &'a str) -> Raw<'a> {
    Raw { path, kind, target, bytes: b"" }
}

fn archive(lab: &Lab, entries: &[Raw<'_>]) -> PathBuf {
    let mut tar = tar::Builder::new(Vec::new());
    for Raw { path, kind, target, bytes } in entries {
        let mut header = tar::Header::new_gnu();
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.as_mut_bytes()[157..157 + target.len()].copy_from_slice(target.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        tar.append(&header, *bytes).unwrap();
    }
    let path = lab.dir().join("hostile.tar.gz");
    let gzip = repo_model::gzip::compress(&tar.into_inner().unwrap(), repo_model::gzip::BEST);
    fs::File::create(&path).unwrap().write_all(&gzip).unwrap();
    path
}

#[test]
fn an_archive_that_would_write_elsewhere_or_be_something_else_is_refused() {
    let lab = Lab::new();
    let margo = description("1.0.0").into_bytes();
    let nul = [0; 64];
    let hostile: &[(&[Raw<'_>], &str)] = &[
        (&[file("../../etc/x", b"")], "contains `..`"),
        (&[file("/etc/x", b"")], "is absolute"),
        (&[odd("resources/link", tar::EntryType::Symlink, "/etc")], "only files and directories"),
        (&[odd("hard", tar::EntryType::Link, "margo.yaml")], "only files and directories"),
        (&[odd("dev", tar::EntryType::Char, "")], "only files, directories and links"),
        (&[odd("fifo", tar::EntryType::Fifo, "")], "only files, directories and links"),
        (&[file("margo.yaml", b"id: other\n")], "twice"),
        (&[file("./resources//a", b"1"), file("resources/./a", b"2")], "twice"),
        (&[file("a", b""), file("a/b", b"")], "is below something"),
        (&[file("A.txt", b""), file("a.txt", b"")], "can't be told from"),
        (&[file("e\u{301}", b"")], "not NFC"),
        (&[file(".git/hooks/post-checkout", b"#!/bin/sh\n")], "part of a Git repository"),
        (&[file("sub/.GIT/config", b"")], "part of a Git repository"),
        (&[file(".gitattributes", b"* filter=x")], "would have git change files"),
        (&[file(".gitmodules", b"")], "would name repositories"),
        (&[file("a\u{1b}[2Jb", b"")], "control characters"),
        (&[file("a\u{202e}b", b"")], "can't be seen"),
        (&[file("nul", &nul)], ""),
    ];
    for (entries, why) in hostile {
        let all: Vec<_> =
            [file("margo.yaml", &margo)].into_iter().chain(entries.iter().map(|one| Raw { ..*one })).collect();
        let path = archive(&lab, &all);
        if why.is_empty() {
            lab.run(&["app", "add", text(&path), "--dry-run"]).good();
            continue;
        }
        let said = refused(&lab, &["app", "add", text(&path)]);
        assert!(said.contains(why), "{why}: {said}");
        assert!(!said.contains('\u{1b}') && !said.contains('\u{202e}'), "{said:?}");
    }
}

#[test]
fn a_bomb_is_refused_before_it_is_large() {
    let lab = Lab::new();
    let margo = description("1.0.0").into_bytes();
    let zeros = vec![0; 40 << 20];
    let said =
        refused(&lab, &["app", "add", text(&archive(&lab, &[file("margo.yaml", &margo), file("zeros", &zeros)]))]);
    assert!(said.contains("more than") && said.contains("unpacked bytes"), "{said}");
    let names: Vec<_> = (0..2100).map(|number| format!("f{number}")).collect();
    let many: Vec<_> = names.iter().map(|name| file(name, b"")).collect();
    assert!(refused(&lab, &["app", "add", text(&archive(&lab, &many))]).contains("more than 2000 entries"));
    let path = lab.dir().join("hostile.tar.gz");
    fs::write(&path, "no archive").unwrap();
    assert!(refused(&lab, &["app", "add", text(&path)]).contains("can't read the tar+gzip stream"));
    fs::write(&path, &fs::read(archive(&lab, &[file("margo.yaml", &margo)])).unwrap()[..100]).unwrap();
    assert!(refused(&lab, &["app", "add", text(&path)]).contains("cannot read the archive"));
}
