//! The guide to audits, docs/auditors.md: its blocks work as they stand, and its table is the program's.

use std::os::unix::fs::symlink;
use std::process::Command;

use wfm_git_publisher::audit::finding::TABLE;
use wfm_git_publisher::audit::{Level, UNPROVEN};

use super::honest::Honest;
use crate::support::{PROGRAM, Ran};

const PAGE: &str = include_str!("../../../../docs/auditors.md");

#[test]
fn the_guide_to_audits_works_as_it_stands() {
    let honest = Honest::new();
    let dir = honest.lab.dir().join("auditor");
    std::fs::create_dir_all(dir.join("bin")).unwrap();
    symlink(PROGRAM, dir.join("bin/wfm-git-publisher")).unwrap();
    let blocks = PAGE.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap());
    let script = blocks.collect::<String>();
    assert!(script.matches("wfm-git-publisher audit").count() > 3, "{script}");
    let ran = Ran::of(command_of(&honest, &dir, &script).output().unwrap());
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    assert_eq!(ran.out.matches("Nothing is wrong.").count(), 3, "{}", ran.out);
    // 4 states and 13 reports, all of them good by stock Git.
    let of = |who: &str| ran.out.lines().filter(|line| line.contains(&format!(" G {who} "))).count();
    assert_eq!((of("publisher"), of("press-01")), (4, 13), "{}", ran.out);
    assert!(dir.join("checkpoint.json").exists());
    // The report and the loop say the same: four times hello, once second, each since the same moment.
    let told =
        |begin: &str| ran.out.lines().filter(|line| line.starts_with(begin)).map(str::to_owned).collect::<Vec<_>>();
    let (ours, gits) = (told("| press-01 | hello | "), told("by git: "));
    assert_eq!((ours.len(), gits.len()), (4, 5), "{}", ran.out);
    let moments = |line: &String| line.split([' ', '|']).find(|word| word.starts_with("20")).unwrap()[..19].to_owned();
    let gits: Vec<_> = gits.iter().map(moments).collect();
    assert!(ours.iter().all(|line| gits.contains(&moments(line))), "{ours:?} {gits:?}");
}

fn command_of(honest: &Honest, dir: &std::path::Path, script: &str) -> Command {
    let mut command = Command::new("bash");
    for (name, value) in honest.lab.command(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))) {
        command.env(name, value);
    }
    command.env("PATH", format!("{}/bin:{}", dir.display(), std::env::var("PATH").unwrap()));
    command.env("HOST", honest.lab.home.devices());
    command.args(["-euxc", script]).current_dir(dir);
    command
}

#[test]
fn the_guide_has_each_finding_and_each_thing_that_can_not_be_proven() {
    let rows: Vec<_> = PAGE.lines().filter(|line| line.starts_with("| `")).collect();
    let expected: Vec<_> = TABLE
        .iter()
        .map(|kind| {
            let level = if kind.level == Level::Error { "error" } else { "note" };
            format!("| `{}` | {level} | {} | {} |", kind.code, kind.meaning, kind.advice)
        })
        .collect();
    assert_eq!(rows, expected);
    let section = PAGE.split("## What an audit can't prove").nth(1).unwrap().split("\n## ").next().unwrap();
    assert_eq!(section.matches("\n- ").count(), UNPROVEN.len());
}
