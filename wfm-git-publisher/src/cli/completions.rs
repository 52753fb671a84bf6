//! `completions`, and what a shell asks for then: commands, options, and the names in the fleet.

use std::any::TypeId;
use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter};
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, Shell};
use repo_git::Entry;
use repo_model::{ApplicationId, DeploymentName, DeviceId};

use super::{Place, command, threads, write_out};
use crate::error::Failure;
use crate::fleet::{SourceFile, deployment_names, device_files, read_device};
use crate::operator::app::{Origin, Version};
use crate::operator::deploy::Target;
use crate::repos::FleetRepo;

/// The program, as a shell finds it.
const PROGRAM: &str = "wfm-git-publisher";

/// Names the shell, where one asks what fits a command line.
const ASKED: &str = "WFM_GIT_PUBLISHER_COMPLETE";

/// Prints a completion script for a shell
///
/// It completes commands and options, and devices, deployments, applications and labels by the fleet's newest commit here. The
/// script asks this program, so print it anew after an update.
///
///   source <(wfm-git-publisher completions bash)
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The shell that is to complete commands
    shell: Shell,
}

pub(super) fn run(args: &Args) -> Result<u8, Failure> {
    let shells = Shells::builtins();
    let name = args.shell.to_string();
    let shell = shells.completer(&name).ok_or_else(|| Failure::new(format!("nothing is completed in `{name}`")))?;
    let mut script = Vec::new();
    shell.write_registration(ASKED, PROGRAM, PROGRAM, PROGRAM, &mut script)?;
    write_out(&String::from_utf8_lossy(&script));
    Ok(0)
}

/// Answers a shell, if one asks. It has no place for errors: then nothing fits.
pub(super) fn called() -> Option<ExitCode> {
    // Nearly nobody does, and each start passes here.
    env::var_os(ASKED)?;
    let here = env::current_dir().ok();
    let answer = CompleteEnv::with_factory(|| with_names(command())).var(ASKED).bin(PROGRAM).completer(PROGRAM);
    match answer.try_complete(env::args_os(), here.as_deref()) {
        Ok(false) => None,
        Ok(true) => Some(ExitCode::SUCCESS),
        Err(_) => Some(ExitCode::FAILURE),
    }
}

type Complete = fn(&OsStr) -> Vec<CompletionCandidate>;

/// Lets what an argument is of tell which names fit there.
fn with_names(command: clap::Command) -> clap::Command {
    let kinds: [(TypeId, Complete); 7] = [
        (TypeId::of::<DeviceId>(), devices),
        (TypeId::of::<DeploymentName>(), deployments),
        (TypeId::of::<ApplicationId>(), applications),
        (TypeId::of::<Version>(), packages),
        (TypeId::of::<Origin>(), origins),
        (TypeId::of::<Target>(), labels),
        (TypeId::of::<PathBuf>(), paths),
    ];
    let command = command.mut_args(|arg| {
        let kind = arg.get_value_parser().type_id();
        match kinds.iter().find(|(one, _)| kind == *one) {
            Some((_, names)) => arg.add(ArgValueCompleter::new(*names)),
            None => arg,
        }
    });
    command.mut_subcommands(with_names)
}

/// Devices, also for an argument whose type tells nothing of them.
pub(super) fn devices(typed: &OsStr) -> Vec<CompletionCandidate> {
    fitting(typed, device_files(&files("devices/")).into_iter().map(|(id, _)| id.into()))
}

fn deployments(typed: &OsStr) -> Vec<CompletionCandidate> {
    fitting(typed, deployment_names(&files("deployments/")).into_iter().map(Into::into))
}

fn applications(typed: &OsStr) -> Vec<CompletionCandidate> {
    fitting(typed, versions().map(|version| version.application.into()))
}

/// Applications with their versions, as `hello@1.0.0`.
fn packages(typed: &OsStr) -> Vec<CompletionCandidate> {
    fitting(typed, versions().map(|version| version.to_string()))
}

/// A package of the fleet, or one in a file or folder.
fn origins(typed: &OsStr) -> Vec<CompletionCandidate> {
    packages(typed).into_iter().chain(paths(typed)).collect()
}

/// Labels that devices have, as `site=graz`.
fn labels(typed: &OsStr) -> Vec<CompletionCandidate> {
    let files = files("devices/");
    let labels = files.iter().filter_map(|file| read_device(file).ok()).flat_map(|device| device.labels);
    fitting(typed, labels.map(|(name, value)| format!("{name}={value}")))
}

/// Files and folders, as clap completes them.
fn paths(typed: &OsStr) -> Vec<CompletionCandidate> {
    let mut paths = PathCompleter::any().complete(typed);
    // Who types `~/` means the home.
    let is_fit = |path: &str| is_word(path.strip_prefix("~/").unwrap_or(path));
    paths.retain(|path| path.get_value().to_str().is_some_and(is_fit));
    paths
}

/// Names that begin with what is typed.
fn fitting(typed: &OsStr, names: impl Iterator<Item = String>) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    let names = names.filter(|name| name.starts_with(&*typed) && is_word(name));
    names.collect::<BTreeSet<_>>().into_iter().map(CompletionCandidate::new).collect()
}

/// Whether a text is no more than a word where a shell reads it: no option, nobody's home, no pattern and no command. Scripts of
/// completion don't quote what they are given.
fn is_word(text: &str) -> bool {
    let begins = |c: char| c.is_ascii_alphanumeric() || "._/".contains(c);
    text.starts_with(begins) && text.chars().all(|c| begins(c) || "~-@+=".contains(c))
}

/// The versions of applications, which the paths of their packages tell: these may be large, and aren't read.
fn versions() -> impl Iterator<Item = Version> {
    let version = |entry: Entry| {
        let path = entry.path.strip_prefix("applications/")?.strip_suffix("/margo.yaml")?;
        let (application, version) = path.split_once('/')?;
        format!("{application}@{version}").parse().ok()
    };
    let entries = entries("applications/").map(|(_, entries)| entries).unwrap_or_default();
    entries.into_iter().filter_map(version)
}

/// The fleet's files in this folder; none where it can't be read.
fn files(folder: &str) -> Vec<SourceFile> {
    entries(folder).map(|(source, entries)| source.read(&entries, threads())).unwrap_or_default()
}

/// What the newest commit has in this folder, and the repository to read it from.
fn entries(folder: &str) -> Option<(FleetRepo, Vec<Entry>)> {
    let source = place()?.source().ok()?;
    let mut entries = source.entries(source.resolve("HEAD").ok()?).ok()?;
    entries.retain(|entry| entry.path.starts_with(folder));
    Some((source, entries))
}

/// Where the fleet is that the command line is about. Shells give its words as they are typed, so that `~` isn't a folder yet.
fn place() -> Option<Place> {
    let words = env::args_os().skip_while(|word| word != "--").skip(1);
    let matches = command().ignore_errors(true).try_get_matches_from(words).ok()?;
    let fleet = matches.get_one::<PathBuf>("fleet")?;
    let fleet = match (fleet.strip_prefix("~"), env::home_dir()) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => fleet.clone(),
    };
    Some(Place { fleet, home: None })
}
