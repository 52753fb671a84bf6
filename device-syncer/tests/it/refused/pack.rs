//! Packs over the device's limits.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use repo_testkit::git;
use repo_testkit::hand::Draft;

use crate::world::{World, command, finish};

/// Every file below a directory with its size.
fn listing(directory: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(listing(&path)),
            false => found.push((path.clone(), fs::metadata(&path).unwrap().len())),
        }
    }
    found.sort();
    found
}

/// The tip has too much for these limits: nothing of it stays on the disk.
fn too_much(limits: &str, words: &[&str], change: impl FnOnce(&mut Draft)) {
    let world = World::running();
    world.settings(limits);
    world.hand.want("greeter", &world.app, "\"not this\"");
    let tip = world.hand.forge(|draft| {
        change(draft);
        draft.seal();
    });
    world.assert_refused("FetchFailed", &[words, &[&tip]].concat());
    let left = |(path, size): &(PathBuf, u64)| {
        *size > 20_000 || path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".tmp"))
    };
    assert_eq!(listing(&world.clone()).into_iter().filter(left).collect::<Vec<_>>(), []);
    assert!(git::try_git(&world.clone(), &["cat-file", "-e", &tip]).status.code() != Some(0));
    // The way from the accepted commit still leads over it: the tip alone is fetched, and that is told.
    world.assert_cured();
    assert_eq!(world.conditions(), ["AncestryUnverified ShallowHistory"]);
    world.once().good();
    assert_eq!(world.conditions(), ["AncestryUnverified ShallowHistory"]);
    world.assert_cured();
    assert_eq!(world.conditions(), Vec::<String>::new());
}

#[test]
fn a_pack_that_is_too_large() {
    let noise = repo_testkit::noise(1_200_000, 0);
    too_much("limits: {packBytes: 100000}\n", &["100000 bytes"], |draft| draft.put("noise", noise));
}

#[test]
fn a_pack_with_too_many_objects() {
    too_much("limits: {packObjects: 50}\n", &["more than the 50 allowed"], |draft| {
        (0..100).for_each(|n| draft.put(&format!("many/{n}"), n.to_string()));
    });
}

/// A `git` whose `upload-pack` tells the refs, and answers each fetch with a pack that never ends: one object of 2^34
/// bytes announced, and deflated noise. Everything else is stock Git's.
const ENDLESS: &str = r#"#!/bin/sh
[ "$1" = upload-pack ] || exec GIT "$@"
packet() { printf '%04x%s\n' $((${#1} + 5)) "$1"; }
for line in 'version 2' 'agent=endless' 'ls-refs' 'fetch=shallow'; do packet "$line"; done
printf 0000
while length=$(dd bs=1 count=4 2>/dev/null) && [ -n "$length" ]; do
    case $length in
    0000)
        if [ "$command" = command=ls-refs ]; then
            GIT -C "$3" for-each-ref --format='%(objectname) %(refname)' | while read -r line; do packet "$line"; done
            printf 0000
        else
            packet packfile
            { printf 'PACK\0\0\0\002\0\0\0\001\260\200\200\200\200\004\170\234'; gzip -1 </dev/urandom | tail -c +11; } |
                while printf 'fff0\001' && dd bs=65515 count=1 iflag=fullblock 2>/dev/null; do :; done
            exit
        fi ;;
    0001) ;;
    *)
        line=$(dd bs=1 count=$((0x$length - 4)) 2>/dev/null)
        case $line in command=*) command=$line ;; esac ;;
    esac
done
"#;

#[test]
fn a_pack_that_never_ends() {
    let world = World::running();
    world.settings("limits: {packBytes: 1000000}\n");
    world.hand.want("greeter", &world.app, "\"not this\"");
    world.hand.publish();
    let (calls, containers, before) = (world.fake.calls(), world.containers(), listing(&world.clone().join("objects")));
    let path = std::env::var("PATH").unwrap();
    let git = std::env::split_paths(&path).map(|dir| dir.join("git")).find(|git| git.exists()).unwrap();
    let bin = world.path("bin");
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("git"), ENDLESS.replace("GIT", &git.display().to_string())).unwrap();
    fs::set_permissions(bin.join("git"), fs::Permissions::from_mode(0o755)).unwrap();
    let once = || {
        let mut syncer = command(&world.home(), &["once"]);
        finish(syncer.env("PATH", format!("{}:{path}", bin.display())).spawn().unwrap())
    };
    once().ended(1).says(&["FetchFailed", "larger than the 1000000 bytes allowed", &world.hand.tip("desired")]);
    assert_eq!(world.conditions(), ["Stalled FetchFailed"]);
    assert_eq!((world.fake.calls(), world.containers()), (calls, containers));
    // What it had to say is all that is new on the disk.
    let new = listing(&world.clone())
        .into_iter()
        .filter(|(path, size)| *size > 10_000 && !before.contains(&(path.clone(), *size)));
    assert_eq!(new.collect::<Vec<_>>(), []);
    let marks = world.marks();
    once().ended(1);
    assert_eq!(world.marks(), marks, "and it is said once");
    world.once().good();
    assert_eq!(world.greetings(), ["not this"]);
    world.assert_idle();
}
