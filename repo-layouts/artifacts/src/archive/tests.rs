#![allow(clippy::disallowed_methods, reason = "test files need no durability")]

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

/// An entry whose header is written as it is, without the checks that a tar writer makes.
struct Raw<'a>(&'a str, EntryType, u32, &'a str, &'a [u8]);

fn file<'a>(path: &'a str, text: &'a str) -> Raw<'a> {
    Raw(path, EntryType::Regular, 0o644, "", text.as_bytes())
}

fn link<'a>(path: &'a str, target: &'a str) -> Raw<'a> {
    Raw(path, EntryType::Symlink, 0o777, target, b"")
}

fn hard<'a>(path: &'a str, target: &'a str) -> Raw<'a> {
    Raw(path, EntryType::Link, 0o644, target, b"")
}

fn gzip(entries: &[Raw<'_>]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for Raw(path, kind, mode, target, bytes) in entries {
        let mut header = tar::Header::new_gnu();
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.as_mut_bytes()[157..157 + target.len()].copy_from_slice(target.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(*mode);
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        tar.append(&header, *bytes).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

fn read(entries: &[Raw<'_>]) -> Result<Archive, ArchiveError> {
    Archive::read(&gzip(entries), &Limits::default())
}

/// With a good `compose.yaml` besides.
fn refused(entries: Vec<Raw<'_>>) -> String {
    let mut all = vec![file("app/compose.yaml", "{}")];
    all.extend(entries);
    read(&all).unwrap_err().to_string()
}

#[test]
fn a_good_archive_loses_its_top_directory_and_nothing_else() {
    let archive = read(&[
        Raw("./", EntryType::Directory, 0o755, "", b""),
        Raw("./app/", EntryType::Directory, 0o755, "", b""),
        file("./app/compose.yaml", "services"),
        Raw("app/run.sh", EntryType::Regular, 0o6755, "", b"#!"),
        file("app/deep/er/x", "1"),
        Raw("app/empty/", EntryType::Directory, 0o1777, "", b""),
    ])
    .unwrap();
    let files: Vec<_> = archive.files().iter().map(|(path, file)| (path.as_str(), file.mode)).collect();
    assert_eq!(files, [("compose.yaml", 0o644), ("deep/er/x", 0o644), ("run.sh", 0o755)]);
    assert_eq!(archive.dirs().iter().collect::<Vec<_>>(), ["deep", "deep/er", "empty"]);
    assert_eq!(&*archive.files()["compose.yaml"].bytes, b"services");
}

#[test]
fn the_vectors_for_other_implementations_hold_here() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/vectors/archives.json");
    let vectors: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let octal = |value: &serde_json::Value| u32::from_str_radix(&text(value), 8).unwrap_or(0o777);
    for case in vectors["archives"].as_array().unwrap() {
        let entries: Vec<_> = case["entries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| {
                let kind = match text(&entry["type"]).as_str() {
                    "file" => EntryType::Regular,
                    "dir" => EntryType::Directory,
                    "link" => EntryType::Symlink,
                    "hard" => EntryType::Link,
                    _ => EntryType::Fifo,
                };
                (text(&entry["path"]), kind, octal(&entry["mode"]), text(&entry["target"]), text(&entry["text"]))
            })
            .collect();
        let entries: Vec<_> = entries
            .iter()
            .map(|(path, kind, mode, target, text)| Raw(path, *kind, *mode, target, text.as_bytes()))
            .collect();
        let files = read(&entries).ok().map(|archive| {
            let file = |file: &File| {
                let text = String::from_utf8_lossy(&file.bytes).into_owned();
                serde_json::json!({"mode": format!("{:o}", file.mode), "text": text})
            };
            archive.files().iter().map(|(path, one)| (path.clone(), file(one))).collect::<serde_json::Value>()
        });
        assert_eq!(serde_json::json!(files), case["files"], "{}", case["what"]);
    }
}

#[test]
fn whatever_is_not_below_one_directory_is_refused() {
    let two = [file("a/compose.yaml", ""), file("b/compose.yaml", "")];
    assert!(matches!(read(&two), Err(ArchiveError::TopLevel(found)) if found == ["a", "b"]));
    assert!(matches!(read(&[file("compose.yaml", "")]), Err(ArchiveError::TopLevel(_))));
    assert!(matches!(read(&[link("app", "/etc")]), Err(ArchiveError::TopLevel(_))));
    assert!(matches!(read(&[]), Err(ArchiveError::TopLevel(found)) if found.is_empty()));
    for name in ["app/compose.yml", "app/sub/compose.yaml", "app/Compose.yaml", "app/compose.yaml/x"] {
        assert!(matches!(read(&[file(name, "")]), Err(ArchiveError::NoCompose)), "{name}");
    }
}

#[test]
fn traps_are_refused_by_name() {
    let long = format!("app/{}", "x/".repeat(40));
    for (entry, words) in [
        (file("/app/x", ""), "absolute"),
        (file("app/../../x", ""), ".."),
        (file("../x", ""), ".."),
        (file("app/a\nb", ""), "control"),
        (file(&long, ""), "too long"),
        (file("app/compose.yaml", ""), "twice"),
        (link("app/l", "/etc/passwd"), "absolute"),
        (link("app/l", "../x"), "leaves"),
        (link("app/l", "../../app/compose.yaml"), "leaves"),
        (link("app/l", "nowhere"), "nowhere"),
        (link("app/l", "compose.yaml/.."), "nowhere"),
        (link("app/l", "l"), "circle"),
        (link("app/l", ".."), "leaves"),
        (link("app/l", "."), "circle"),
        (hard("app/h", "/etc/passwd"), "absolute"),
        (hard("app/h", "../etc/passwd"), "leaves"),
        (hard("app/h", "other/compose.yaml"), "leaves"),
        (Raw("app/d", EntryType::Char, 0o644, "", b""), "only files"),
        (Raw("app/d", EntryType::Block, 0o644, "", b""), "only files"),
        (Raw("app/d", EntryType::Fifo, 0o644, "", b""), "only files"),
    ] {
        let (path, problem) = (entry.0, refused(vec![entry]));
        assert!(problem.contains(words), "{path}: {problem}");
    }
    assert!(
        refused(vec![link("app/l", "deep"), file("app/deep/x", ""), file("app/l/x", "")]).contains("not a directory")
    );
    assert!(refused(vec![file("app/compose.yaml/x", "")]).contains("not a directory"));
}

#[test]
fn a_link_that_climbs_out_through_another_link_is_refused() {
    // By the text, `a/b/c/up/../..` is `a/b`: but `up` is really `s`, one below the top directory.
    let entries = vec![file("app/s/x", ""), link("app/a/b/c/up", "../../../s"), link("app/out", "a/b/c/up/../..")];
    assert!(refused(entries).contains("leaves"));
}

#[test]
fn links_inside_become_copies() {
    let archive = read(&[
        file("app/compose.yaml", "{}"),
        file("app/v2/conf", "two"),
        link("app/current", "v2"),
        link("app/v2/again", "./conf"),
        link("app/far", "current/../v2/again"),
        hard("app/hard", "app/v2/conf"),
    ])
    .unwrap();
    for path in ["current/conf", "current/again", "v2/again", "far", "hard"] {
        assert_eq!(&*archive.files()[path].bytes, b"two", "{path}");
    }
    assert!(archive.dirs().contains("current"));
}

#[test]
fn bombs_are_errors() {
    let limits = Limits { entries: 20, bytes: 4 << 20, ratio: 10 };
    let zeros = vec![0; 3 << 20];
    let small = [file("app/compose.yaml", "{}"), Raw("app/zeros", EntryType::Regular, 0o644, "", &zeros)];
    let by_ratio = Archive::read(&gzip(&small), &limits).unwrap_err();
    assert!(matches!(by_ratio, ArchiveError::TooBig { what: "unpacked bytes", .. }), "{by_ratio}");
    assert!(Archive::read(&gzip(&small), &Limits { ratio: 10_000, ..limits }).is_ok());
    let by_bytes = Archive::read(&gzip(&small), &Limits { ratio: 10_000, bytes: 1 << 20, ..limits });
    assert!(matches!(by_bytes, Err(ArchiveError::TooBig { what: "unpacked bytes", .. })));
    let names: Vec<String> = (0..30).map(|n| format!("app/{n}")).collect();
    let many: Vec<_> = names.iter().map(|name| file(name, "")).collect();
    assert!(matches!(Archive::read(&gzip(&many), &limits), Err(ArchiveError::TooBig { what: "entries", .. })));
    // Each link doubles what the one before it brings.
    let doubling = [
        file("app/compose.yaml", "{}"),
        file("app/a/x", ""),
        link("app/b/1", "../a"),
        link("app/b/2", "../a"),
        link("app/c/1", "../b"),
        link("app/c/2", "../b"),
        link("app/d/1", "../c"),
        link("app/d/2", "../c"),
    ];
    assert!(matches!(Archive::read(&gzip(&doubling), &limits), Err(ArchiveError::TooBig { what: "entries", .. })));
    // One file, linked often: the copies share it in memory, and not on a disk.
    let bytes = vec![7; 1 << 20];
    let linked = [
        file("app/compose.yaml", "{}"),
        Raw("app/x", EntryType::Regular, 0o644, "", &bytes),
        link("app/1", "x"),
        link("app/2", "x"),
        link("app/3", "x"),
        link("app/4", "x"),
    ];
    let linked = Archive::read(&gzip(&linked), &Limits { ratio: 10_000, ..limits });
    assert!(matches!(linked, Err(ArchiveError::TooBig { what: "bytes", .. })));
}

#[test]
fn what_is_no_archive_is_an_error() {
    let good = gzip(&[file("app/compose.yaml", "{}")]);
    assert!(Archive::read(&good[..good.len() / 2], &Limits::default()).is_err());
    let mut noise = GzEncoder::new(Vec::new(), Compression::fast());
    noise.write_all(&[1; 2048]).unwrap();
    assert!(Archive::read(&noise.finish().unwrap(), &Limits::default()).is_err());
    assert!(Archive::read(b"", &Limits::default()).is_err());
    assert!(Archive::read(b"plain", &Limits::default()).is_err());
}

#[test]
fn packing_is_deterministic_and_read_back() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("conf")).unwrap();
    for (path, text) in [("compose.yaml", "{}"), ("conf/a", "1")] {
        std::fs::write(dir.path().join(path), text).unwrap();
    }
    let first = crate::pack(dir.path(), "app").unwrap();
    std::fs::write(dir.path().join("compose.yaml"), "{}").unwrap();
    assert_eq!(crate::pack(dir.path(), "app").unwrap(), first);
    let archive = Archive::read(&first, &Limits::default()).unwrap();
    assert_eq!(archive.files().keys().collect::<Vec<_>>(), ["compose.yaml", "conf/a"]);
}
