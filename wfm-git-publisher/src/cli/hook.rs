//! This program as stock git's `pre-receive` and `update` hooks, for pushes to the host.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use repo_git::Repo;
use repo_model::text;
use wfm_git_host::HOOK;
use wfm_git_host::judge::{POLICY, Policy, Push, REFUSED, moves};

use crate::hosting::judge_fleet_push;

/// The most bytes that git tells a hook.
const MAX_INPUT: u64 = 1 << 20;

/// Runs as a hook, if the program was called as one by the host.
pub(super) fn called() -> Option<ExitCode> {
    let policy = std::env::var(POLICY).ok()?;
    let mut arguments = std::env::args_os().skip(1);
    arguments.next().filter(|first| first == HOOK)?;
    let done = match arguments.next()?.to_str()? {
        "pre-receive" => pre_receive(&policy),
        "update" => update(),
        _ => return None,
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{REFUSED} {}", text::page(&reason));
            ExitCode::FAILURE
        }
    })
}

fn pre_receive(policy: &str) -> Result<(), String> {
    let policy: Policy =
        serde_json::from_str(policy).map_err(|error| format!("the hook was told nonsense: {error}"))?;
    let mut text = String::new();
    let read = std::io::stdin().take(MAX_INPUT).read_to_string(&mut text);
    read.map_err(|error| format!("the hook can't read what is pushed: {error}"))?;
    let moves = moves(&text).ok_or("the hook doesn't understand what is pushed")?;
    let repository = repository()?;
    // A push that only deletes brings no objects, so git makes no quarantine for it.
    let quarantine = std::env::var_os("GIT_OBJECT_DIRECTORY").map_or_else(|| repository.join("objects"), PathBuf::from);
    let push = Push { repository: &repository, quarantine: &quarantine, moves: &moves };
    let notes = match &policy {
        Policy::Device(device) => device.judge(&push).map(|()| Vec::new()),
        Policy::Site(site) => site.judge(&push).map(|()| Vec::new()),
        Policy::Fleet { home, account, paths } => judge_fleet_push(home, (account, paths), &push),
    };
    notes.map_err(|error| error.to_string())?.iter().for_each(|note| eprintln!("{}", text::page(note)));
    Ok(())
}

/// The objects are accepted, and the ref is about to move: first they have to be on the disk.
fn update() -> Result<(), String> {
    let repo = Repo::open(&repository()?).map_err(|error| error.to_string())?;
    repo.sync_pushed_packs().map_err(|error| format!("the host can't sync its disk: {error}"))
}

fn repository() -> Result<PathBuf, String> {
    let path = std::env::var_os("GIT_DIR").ok_or("there is no repository")?;
    std::path::absolute(PathBuf::from(path)).map_err(|error| error.to_string())
}
