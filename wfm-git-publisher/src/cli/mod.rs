//! The command line: what can be asked, and the one place that prints and reads the environment.

mod account;
mod alert;
mod allow;
mod answer;
mod app;
mod approve;
mod archive;
mod ask;
mod asked;
mod audit;
mod backup;
mod completions;
mod deploy;
mod deployment;
mod deployment_show;
mod device;
mod device_show;
mod elsewhere;
mod enroll;
mod events;
mod explain;
mod formats;
mod grouped;
mod history;
mod hook;
mod init;
mod label;
mod log;
mod login;
mod output;
mod pending;
mod plan;
mod progress;
mod publish;
mod questions;
mod replace;
mod restart;
mod retire;
mod rollout;
mod run;
mod schema;
mod secret;
mod serve;
mod signers;
mod ssh;
mod status;
mod table;
mod terminal;
mod token;
mod trace;
mod trust;
mod validate;
mod wait;

use std::collections::BTreeSet;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use jiff::Timestamp;
use repo_git::CommitId;
use repo_model::problem::{Problem, Problems, Severity};
use repo_model::{DeviceId, text};
use serde_json::json;

use crate::config::Config;
use crate::error::{Failure, INTERNAL, warning};
use crate::fleet::{Device, Fleet, PARTS, Reading, read_on};
use crate::operator::deploy::{Target, selectors};
use crate::operator::{FleetHost, key_ends, reminders};
use crate::plan::{Allowed, Blocked};
use crate::publish::{Options, Work};
use crate::render::Artifact;
use crate::repos::{Control, FleetRepo, Home, Registries, Remotes, Rosters, StockGit};
use crate::status::{self as seen, DeviceStatus, Membership, Usable};

use self::output::{Output, OutputArgs, print, print_format, print_json, print_json_line, print_json_text, write_out};
use self::progress::Progress;
use self::table::{more_rows, table};

/// Turns a fleet repository into one signed Git repository per device
///
/// Operators describe a fleet in YAML and commit it. This program renders it for each device, shows what would change,
/// and publishes it as signed commits that devices fetch, verify and run. What devices report comes back the same way.
///
/// A new fleet, from nothing to a running container:
///
///   wfm-git-publisher init my-fleet && cd my-fleet
///   wfm-git-publisher app push applications/hello/1.0.0
///   wfm-git-publisher device add press-01 --out ../press-01.json
///   device-syncer init --join press-01.json      (on the device, which prints a line)
///   wfm-git-publisher device enroll press-01 'ssh-ed25519 AAAA… press-01'
///   wfm-git-publisher plan
///   wfm-git-publisher publish
///   wfm-git-publisher status
///
/// Exit codes: 0 done, 1 something has to be corrected, 2 wrong usage, 3 differences found (plan), 70 internal error.
/// What each command means by them is one table: docs/exit-codes.md.
#[derive(Debug, Parser)]
#[command(name = "wfm-git-publisher", version, verbatim_doc_comment)]
struct Args {
    /// The fleet repository, or any directory in it
    #[arg(short = 'C', long = "fleet", value_name = "DIR", default_value = ".", global = true)]
    fleet: PathBuf,

    /// The publisher's home; by default <fleet>.wfm beside the fleet repository
    #[arg(long, value_name = "DIR", global = true)]
    home: Option<PathBuf>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(init::Args),
    Validate(validate::Args),
    Plan(plan::Args),
    Publish(publish::Args),
    Explain(explain::ExplainArgs),
    WhyNot(explain::WhyNotArgs),
    Run(run::Args),
    Serve(serve::Args),
    #[command(subcommand)]
    Device(device::Command),
    #[command(subcommand)]
    Enroll(enroll::Command),
    #[command(subcommand)]
    Token(token::Command),
    #[command(subcommand)]
    Account(account::Command),
    #[command(subcommand)]
    Alert(alert::Command),
    #[command(subcommand)]
    App(app::Command),
    Deploy(deploy::Args),
    #[command(subcommand)]
    Deployment(deployment::Command),
    Login(login::LoginArgs),
    Logout(login::LogoutArgs),
    #[command(subcommand)]
    Secret(secret::Command),
    Status(status::Args),
    Trace(trace::Args),
    History(history::Args),
    Events(events::Args),
    #[command(subcommand)]
    Rollout(rollout::Command),
    Allow(allow::Args),
    Approve(approve::Args),
    Audit(audit::Args),
    #[command(subcommand)]
    Signers(signers::Command),
    Archive(archive::Args),
    Backup(backup::BackupArgs),
    Restore(backup::RestoreArgs),
    #[command(subcommand)]
    Trust(trust::Command),
    Schema(schema::Args),
    Completions(completions::Args),
}

/// The options of commands that judge the fleet at one commit.
#[derive(Debug, clap::Args)]
struct AtRevision {
    /// The commit of the fleet
    #[arg(long, default_value = "HEAD")]
    rev: String,

    #[command(flatten)]
    output: OutputArgs,
}

/// The fleet at a commit, if anything of it can be used.
fn read_fleet(source: &FleetRepo, commit: CommitId) -> Result<Fleet, Failure> {
    usable(read_on(&source.files_on(commit, threads())?, threads()))
}

/// The fleet at a commit, or where that can't be used the newest one before it that could, which is told unless the commit was
/// `noted` before.
fn usable_fleet(home: &Home, source: &FleetRepo, commit: CommitId, noted: Option<CommitId>) -> Result<Usable, Failure> {
    let usable = seen::usable_fleet(home, source, commit, &Control::read_rosters(home)?, threads())?;
    if let Some(why) = usable.unusable.as_ref().filter(|_| noted != Some(commit)) {
        let [at, by] = [commit, usable.commit].map(|commit| commit.to_string()[..12].to_owned());
        eprintln!("warning: at commit {at} {}; what is shown goes by commit {by}", text::line(&why.message));
    }
    Ok(usable)
}

fn usable(reading: Reading) -> Result<Fleet, Failure> {
    reading.fleet.ok_or_else(|| Failure::new("the fleet can't be used").problems(&reading.problems))
}

/// Reads a label of a device.
fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Tells of a device whether it has the labels that are asked for; every device where none are.
fn meant(selector: Option<&Target>) -> Result<impl Fn(&Device) -> bool, Failure> {
    let selectors = selector.map(|target| selectors(std::slice::from_ref(target))).transpose();
    let selectors =
        selectors.map_err(|problems| Failure::new("the labels can't be selected by").problems(&problems))?;
    Ok(move |device: &Device| {
        selectors.as_ref().is_none_or(|selectors| selectors.iter().any(|selector| selector.selects(device)))
    })
}

/// How long until devices are looked at again, where nobody has to be asked for them; and where a host is.
const PAUSE: Duration = Duration::from_secs(2);
const PAUSE_OF_HOST: Duration = Duration::from_secs(15);

/// Waits until devices are looked at again.
fn pause(place: &Place, cached: bool) -> Result<(), Failure> {
    std::thread::sleep(if cached || place.remotes()?.is_none() { PAUSE } else { PAUSE_OF_HOST });
    Ok(())
}

/// Registries beyond those of the settings.
#[derive(Debug, Clone, clap::Args)]
struct RegistryArgs {
    /// A registry (host or host:port) to ask without TLS; one on this machine is asked so anyway
    #[arg(long, value_name = "HOST")]
    plain_http: Vec<String>,
}

/// Runs the program; the exit code is its result.
pub fn main() -> ExitCode {
    if let Some(code) = hook::called().or_else(ssh::called).or_else(answer::called).or_else(completions::called) {
        return code;
    }
    let matches = command().get_matches();
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let place = args.place();
    ExitCode::from(code_of(|| match elsewhere::ask(&place, &matches)? {
        Some(code) => Ok(code),
        None => run(args).map_err(|failure| elsewhere::unasked(&place, failure)),
    }))
}

/// The exit code of some work; why it failed is printed.
fn code_of(work: impl FnOnce() -> Result<u8, Failure>) -> u8 {
    match panic::catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(code)) => code,
        Ok(Err(failure)) => {
            eprint!("{failure}");
            failure.exit
        }
        Err(_) => INTERNAL,
    }
}

/// The command line, with each paragraph of a help text as one line, so that it is wrapped once, for the reader's terminal.
fn command() -> clap::Command {
    reflowed(Args::command())
}

fn reflowed(command: clap::Command) -> clap::Command {
    let command = match command.get_long_about().map(ToString::to_string) {
        Some(about) => command.long_about(paragraphs(&about)),
        None => command,
    };
    command.mut_subcommands(reflowed)
}

/// The same text with one line for each paragraph; what is indented stays as it is.
fn paragraphs(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in text.lines() {
        let is_prose = !line.is_empty() && !line.starts_with(' ');
        match lines.last_mut().filter(|_| is_open && is_prose) {
            Some(last) => last.extend([" ", line]),
            None => lines.push(line.to_owned()),
        }
        is_open = is_prose;
    }
    lines.join("\n")
}

fn run(args: Args) -> Result<u8, Failure> {
    let place = args.place();
    match args.command {
        Command::Init(args) => init::run(&place, args),
        Command::Validate(args) => validate::run(&place, &args),
        Command::Plan(args) => plan::run(&place, args),
        Command::Publish(args) => publish::run(&place, args),
        Command::Explain(args) => explain::run(&place, args),
        Command::WhyNot(args) => explain::run_why_not(&place, args),
        Command::Run(args) => run::run(&place, &args),
        Command::Serve(args) => serve::run(&place, &args),
        Command::Device(command) => device::run(&place, command),
        Command::Enroll(command) => enroll::run(&place, command),
        Command::Token(command) => token::run(&place, command),
        Command::Account(command) => account::run(&place, command),
        Command::Alert(command) => alert::run(&place, command),
        Command::App(command) => app::run(&place, command),
        Command::Deploy(args) => deploy::run(&place, &args),
        Command::Deployment(command) => deployment::run(&place, command),
        Command::Login(args) => login::login(&place, &args),
        Command::Logout(args) => login::logout(&place, &args),
        Command::Secret(command) => secret::run(&place, command),
        Command::Status(args) => status::run(&place, &args),
        Command::Trace(args) => trace::run(&place, &args),
        Command::History(args) => history::run(&place, &args),
        Command::Events(args) => events::run(&place, &args),
        Command::Rollout(command) => rollout::run(&place, command),
        Command::Allow(args) => allow::run(&place, &args),
        Command::Approve(args) => approve::run(&place, &args),
        Command::Archive(args) => archive::run(&place, &args),
        Command::Backup(args) => backup::run(&place, &args),
        Command::Restore(args) => backup::run_restore(&place, &args),
        Command::Audit(args) => audit::run(&args),
        Command::Signers(command) => signers::run(&place, &command),
        Command::Trust(command) => trust::run(&place, command),
        Command::Schema(args) => schema::run(&place, &args),
        Command::Completions(args) => completions::run(&args),
    }
}

/// Where the fleet and its home are, as the command line says.
struct Place {
    fleet: PathBuf,
    home: Option<PathBuf>,
}

impl Args {
    fn place(&self) -> Place {
        Place { fleet: self.fleet.clone(), home: self.home.clone() }
    }
}

impl Place {
    /// The fleet's work tree: the directory with `.git` that holds the one that was named; a bare repository is its own,
    /// and a publisher's home stands for the one that it hosts.
    fn root(&self) -> Result<PathBuf, Failure> {
        let absolute = std::fs::canonicalize(&self.fleet)
            .map_err(|error| Failure::new(format!("cannot use `{}`: {error}", self.fleet.display())))?;
        let hosted = Home::at(&absolute).hosted_fleet();
        if hosted.is_dir() {
            return Ok(hosted);
        }
        let root = absolute.ancestors().find(|path| path.join(".git").exists()).map(Path::to_owned);
        Ok(root.unwrap_or(absolute))
    }

    fn home(&self) -> Result<Home, Failure> {
        match &self.home {
            Some(home) => Ok(Home::at(std::path::absolute(home)?)),
            None => Ok(Home::of(&self.root()?)),
        }
    }

    fn source(&self) -> Result<FleetRepo, Failure> {
        Ok(FleetRepo::open(&self.root()?)?)
    }

    /// What gets published: the hosted fleet repository if there is one, and not what isn't pushed to it yet.
    fn published(&self) -> Result<PathBuf, Failure> {
        let hosted = self.home()?.hosted_fleet();
        if hosted.is_dir() { Ok(hosted) } else { self.root() }
    }

    fn published_source(&self) -> Result<FleetRepo, Failure> {
        Ok(FleetRepo::open(&self.published()?)?)
    }

    /// The fleet to look at: `HEAD` is what `publish` publishes; another revision may also be one that isn't pushed yet.
    fn seen_source(&self, rev: &str) -> Result<FleetRepo, Failure> {
        let published = self.published_source()?;
        if rev == "HEAD" || published.resolve(rev).is_ok() { Ok(published) } else { self.source() }
    }

    /// Says which commit of a hosted fleet this is about, and which commits here it doesn't know yet.
    fn note_hosted(&self, rev: &str, commit: CommitId) -> Result<(), Failure> {
        let (hosted, root) = (self.home()?.hosted_fleet(), self.root()?);
        if !hosted.is_dir() {
            return Ok(());
        }
        eprintln!("note: at commit {} of the hosted fleet, `{}`", &commit.to_string()[..12], hosted.display());
        if rev == "HEAD" && root != hosted {
            eprint!("{}", unpushed(&root, commit));
        }
        Ok(())
    }

    /// The work tree, for what edits files in it.
    fn work_tree(&self) -> Result<PathBuf, Failure> {
        let root = self.root()?;
        if root.join(".git").exists() {
            return Ok(root);
        }
        let failure = Failure::new(format!("`{}` has no work tree", root.display()));
        Err(failure.hint("work in a clone of it, and name that with -C, and this home with --home"))
    }

    /// What is still to be done after a commit, if the fleet repository is hosted.
    fn next_push(&self) -> Result<&'static str, Failure> {
        let is_hosted = self.home()?.hosted_fleet().is_dir() || FleetHost::of_clone(&self.root()?)?.is_some();
        Ok(if is_hosted { "Then: git push\n" } else { "" })
    }

    /// Pushes what was committed, if the fleet repository is hosted.
    fn push(&self) -> Result<(), Failure> {
        if !self.next_push()?.is_empty() {
            StockGit::new(&self.root()?).run(&["push"])?;
        }
        Ok(())
    }

    fn config(&self) -> Result<Config, Failure> {
        Ok(Config::load(&self.home()?.config())?)
    }

    /// The host that devices talk to, where it isn't this one.
    fn remotes(&self) -> Result<Option<Remotes>, Failure> {
        Ok(self.config()?.remote.map(Remotes::new).transpose()?)
    }

    fn registries(&self, args: &RegistryArgs) -> Result<Registries, Failure> {
        Ok(Registries::new(self.config()?.registry_settings(&args.plain_http)?))
    }
}

/// The most commits that are named one by one.
const MAX_NAMED: usize = 10;

/// Which commits of the work tree are not in the hosted fleet, whose newest commit this is.
fn unpushed(root: &Path, newest: CommitId) -> String {
    let range = format!("{newest}..HEAD");
    let Ok(log) = StockGit::new(root).run(&["log", "--format=%h %s", &range, "--"]) else {
        return "note: the hosted fleet has commits that are not here: git pull\n".to_owned();
    };
    let commits: Vec<_> = log.lines().map(text::line).collect();
    let what = match commits.len() {
        0 => return String::new(),
        1 => "1 commit here is".to_owned(),
        count => format!("{count} commits here are"),
    };
    let named = commits.iter().take(MAX_NAMED).map(|commit| format!("  {commit}\n")).collect::<String>();
    format!("note: {what} not pushed, and only what is pushed counts: git push\n{named}")
}

/// Does something with what is committed, and says meanwhile that there is more if there is; in a large fleet looking for
/// that takes longer than finding that nothing is to be done.
fn with_committed<T>(place: &Place, rev: &str, work: impl FnOnce() -> T) -> T {
    let parts = [&["status", "--porcelain", "--"][..], &PARTS].concat();
    let root = (rev == "HEAD").then(|| place.root().ok()).flatten();
    let changed = || root.is_some_and(|root| StockGit::new(&root).run(&parts).is_ok_and(|text| !text.is_empty()));
    std::thread::scope(|scope| {
        let changed = scope.spawn(changed);
        let done = work();
        if changed.join().unwrap_or_default() {
            eprintln!("note: there are changes that are not committed, and only commits count");
        }
        done
    })
}

/// Does something with the options of a pass for these devices.
fn with_options<T>(
    registries: &Registries,
    remotes: Option<&Remotes>,
    devices: &[DeviceId],
    allowed: Allowed,
    work: impl FnOnce(Options<'_>) -> T,
) -> T {
    let resolve = |artifact: &Artifact| registries.resolve(artifact).map_err(Into::into);
    let (stop, progress) = (AtomicBool::new(false), Progress::start("reading the fleet"));
    work(Options {
        now: Timestamp::now(),
        devices: (!devices.is_empty()).then(|| devices.iter().cloned().collect::<BTreeSet<_>>()),
        allowed,
        resolve: &resolve,
        threads: threads(),
        stop: &stop,
        progress: &|work, done, all| progress.show(at(work), "devices", done, all),
        remotes,
        reclaim: BTreeSet::new(),
    })
}

/// What a pass does with devices, for people.
fn at(work: Work) -> &'static str {
    match work {
        Work::Compare => "comparing",
        Work::Publish => "publishing",
        Work::Mirror => "mirroring",
    }
}

/// Threads mostly wait for the disk: with four for each core, publishing 1,000 devices took a third less time than with
/// one (two cores, ext4).
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).saturating_mul(4).min(16)
}

/// Text as HTML and XML have it, which is no markup there.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}

/// Prints what is wrong in the fleet: warnings as they are, errors as the causes of one failure.
fn print_problems(problems: &Problems, what: &str) {
    for problem in problems.warnings() {
        eprint!("{}", warning(problem));
    }
    let count = problems.errors().count();
    if count > 0 {
        let noun = if count == 1 { "1 problem".to_owned() } else { format!("{count} problems") };
        eprint!("{}", Failure::new(format!("{what} has {noun}")).problems(problems));
    }
}

/// What can't be published, as an error.
fn blocked_failure(blocked: &Blocked) -> Failure {
    let names = [
        blocked.device.as_ref().map(|id| format!("device `{id}`")),
        blocked.deployment.as_ref().map(|name| format!("`{name}`")),
    ];
    let about = names.into_iter().flatten().collect::<Vec<_>>().join(": ");
    let failure = Failure::new(blocked.message.clone()).about(about);
    match &blocked.hint {
        Some(hint) => failure.hint(hint.clone()),
        None => failure,
    }
}

/// Problems as `--output json` has them: what isn't known is `null`.
fn problems_json(problems: &Problems) -> serde_json::Value {
    let shown = |one: &Problem| {
        let severity = if one.severity == Severity::Error { "error" } else { "warning" };
        json!({
            "severity": severity,
            "file": one.file,
            "line": one.line,
            "column": one.column,
            "key": one.key,
            "message": one.message,
            "hint": one.hint,
        })
    };
    problems.iter().map(shown).collect()
}

/// Reminds of what a person has to do for the fleet's keys; when the publisher's ends.
fn remind(home: &Home, rosters: &Rosters, now: Timestamp) -> Option<Timestamp> {
    reminders(home, rosters, now).iter().for_each(|problem| eprint!("{}", warning(problem)));
    key_ends(home, rosters)
}

/// Tells which of the devices that were asked for aren't there; whether there are any.
fn print_unknown<'a>(asked: &[DeviceId], known: impl Iterator<Item = &'a DeviceId>) -> bool {
    let known: BTreeSet<_> = known.collect();
    let unknown = asked.iter().filter(|id| !known.contains(id));
    unknown.map(|id| eprint!("{}", Failure::new(format!("there is no device `{id}` in the fleet")))).count() > 0
}

/// Tells, of devices that were asked for by their ids, which ones aren't in service, and of labels that no device has them; whether any of
/// that is so. Ids of no device at all are told elsewhere.
fn print_out_of_service(asked: &[DeviceId], selector: Option<&Target>, all: &[DeviceStatus]) -> bool {
    let out = all.iter().filter(|status| asked.contains(&status.device)).filter_map(|status| {
        let how = match status.membership {
            Membership::Enrolled => return None,
            Membership::NotEnrolled => "isn't enrolled",
            Membership::Retired => "is retired",
            Membership::Gone => "left the fleet",
        };
        Some(format!("note: {} {how}", status.device))
    });
    let nobody = selector.filter(|_| all.is_empty() && asked.is_empty());
    let nobody = nobody.map(|labels| format!("note: no device has the labels {}", text::line(&labels.to_string())));
    out.chain(nobody).map(|line| eprintln!("{line}")).count() > 0
}

/// Says why nothing is removed.
fn print_unidentified(files: &[String]) {
    if !files.is_empty() {
        eprintln!(
            "note: nothing is removed from any device, because it can't be told what {} is about",
            text::line(&files.join(", "))
        );
    }
}
