//! `audit`.

mod clone;
mod report;
mod sbom;

use std::path::PathBuf;

use jiff::Timestamp;
use repo_model::{DeviceId, Digest};
pub(super) use report::{agreed_by, agreement_json};
use serde_json::json;

use super::{OutputArgs, Progress};
use crate::audit::{
    self, Archives, ArchivesError, Audit, Checkpoint, Finding, Level, Options, Record, Start, UNPROVEN,
};
use crate::error::{Failure, USER};
use crate::repos::ControlError;

/// Proves the history of device repositories, from the first commit on
///
/// Checks all that the contract says: every object's bytes, who signed each commit and whether that key was allowed by the
/// roster of then, serials, digests, trailers, and whether what a device told follows from what was published and from what it
/// told before. It needs no publisher's home and asks nobody: bare repositories are enough, the publisher's own or what
/// `git clone --mirror` made, and the first roster of the fleet, or its digest, which a join file has as trust.sha256. What
/// can't be proven this way is said, too.
///
/// With a checkpoint only what is new is judged, and history that doesn't go on from it is found. It goes forward only for
/// repositories in which nothing is wrong. Exit code 0 if nothing is wrong, 1 if something is.
///
/// What the operator archived is missing, unless --control says so, the ledger, by a publisher's signature; with --archives it is
/// read, too, where it is what the ledger noted.
///
///   wfm-git-publisher audit ../my-fleet.wfm/devices --roster roster.json
///   wfm-git-publisher audit ../my-fleet.wfm/devices --roster roster.json --checkpoint seen.json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// Bare repositories, or directories that hold them
    #[arg(required = true, value_name = "DIR")]
    directories: Vec<PathBuf>,

    /// The first roster of the fleet: its file, or sha256:… and it is looked for in the repositories
    #[arg(long, required = true, value_name = "FILE|DIGEST")]
    roster: Option<String>,

    /// Judge only what is new since this file was written, and write it anew
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,

    #[command(flatten)]
    ledger: LedgerArgs,

    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Clone(clone::Args),
    Report(report::Args),
    Sbom(sbom::Args),
}

/// What believed commits say, by device.
type Records = Vec<(DeviceId, Record)>;

/// What of history may be elsewhere.
#[derive(Debug, clap::Args)]
struct LedgerArgs {
    /// The publisher's control.git, or a clone of it, which says what was archived; `report` has it say what was decided, too
    #[arg(long, value_name = "DIR")]
    control: Option<PathBuf>,

    /// A directory with archived epochs, to be read as well
    #[arg(long, value_name = "DIR", requires = "control")]
    archives: Option<PathBuf>,
}

impl LedgerArgs {
    fn read(&self, start: &Start) -> Result<Option<Archives>, Failure> {
        let Some(control) = &self.control else { return Ok(None) };
        let read = Archives::handed_out(control, start);
        let noted = read.map_err(|error| {
            let failure = Failure::of(&error).about(control.display().to_string());
            match error {
                ArchivesError::Control(ControlError::Open(_)) => {
                    failure.hint("name the publisher's control.git, or a clone of it")
                }
                _ => failure,
            }
        })?;
        Ok(Some(match &self.archives {
            Some(directory) => noted.with_bundles(directory.clone(), std::env::temp_dir()),
            None => noted,
        }))
    }
}

/// What a command tells of, from commits that are believed.
#[derive(Debug, clap::Args)]
struct Scope {
    /// Bare repositories, or directories that hold them
    #[arg(required = true, value_name = "DIR")]
    directories: Vec<PathBuf>,

    /// The first roster of the fleet: its file, or sha256:… and it is looked for in the repositories
    #[arg(long, value_name = "FILE|DIGEST")]
    roster: String,

    /// Only what is of then or later, as 2026-03-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    from: Option<Timestamp>,

    /// Only what is of before
    #[arg(long, value_name = "TIME")]
    to: Option<Timestamp>,

    /// Only this device; may be given again
    #[arg(long, value_name = "ID")]
    device: Vec<DeviceId>,

    #[command(flatten)]
    ledger: LedgerArgs,
}

impl Scope {
    /// Audits everything, and gives what believed commits say of the devices and the time that are asked about.
    fn read(&self) -> Result<(Audit, Start, Records), Failure> {
        let start = start(&self.roster)?;
        let archives = match self.ledger.read(&start) {
            // Each of its decisions is believed or not by itself; of archives it says nothing then.
            Err(failure) if self.ledger.archives.is_none() => {
                eprint!("{failure}");
                None
            }
            read => read?,
        };
        let before = Checkpoint::new(start.digest);
        let mut audit = audited(&self.directories, (&start, archives.as_ref()), &before, true)?;
        let (from, to) = (self.from.unwrap_or(Timestamp::MIN), self.to.unwrap_or(Timestamp::MAX));
        let asked = |device: &DeviceId| self.device.is_empty() || self.device.contains(device);
        let records = std::mem::take(&mut audit.records).into_iter().filter(|(device, _)| asked(device));
        let records: Vec<_> = records.map(|(device, record)| (device, record.between(from, to))).collect();
        audit.findings.retain(|one| one.device.as_ref().is_none_or(asked));
        match self.device.iter().find(|device| !records.iter().any(|(known, _)| known == *device)) {
            Some(unknown) => {
                let text = format!("none of the repositories is of `{unknown}`, as far as one can be believed");
                Err(Failure::new(text))
            }
            None => Ok((audit, start, records)),
        }
    }
}

pub(super) fn run(args: &Args) -> Result<u8, Failure> {
    match &args.command {
        Some(Command::Clone(args)) => return clone::run(args),
        Some(Command::Report(args)) => return report::run(args),
        Some(Command::Sbom(args)) => return sbom::run(args),
        None => (),
    }
    let start = start(args.roster.as_deref().unwrap_or_default())?;
    let before = match &args.checkpoint {
        Some(path) => Checkpoint::read(path, start.digest)?,
        None => Checkpoint::new(start.digest),
    };
    let archives = args.ledger.read(&start)?;
    let audit = audited(&args.directories, (&start, archives.as_ref()), &before, false)?;
    if let Some(path) = &args.checkpoint {
        audit.checkpoint.write(path)?;
    }
    args.output.print(&page(&audit), || {
        json!({
            "roster": start.digest,
            "good": !audit.has_errors(),
            "repositories": audit.repositories,
            "findings": audit.findings,
            "unproven": UNPROVEN,
        })
    });
    Ok(if audit.has_errors() { USER } else { 0 })
}

/// Audits the repositories in these directories.
fn audited(
    directories: &[PathBuf],
    (start, archives): (&Start, Option<&Archives>),
    before: &Checkpoint,
    keeps_records: bool,
) -> Result<Audit, Failure> {
    let places = audit::places(directories)?;
    let (now, progress) = (Timestamp::now(), Progress::start("reading repositories"));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let options = Options { start, before, archives, now, threads, keeps_records };
    Ok(audit::audit(places, options, &|done, all| progress.show("auditing", "repositories", done, all)))
}

/// The roster that the command line names.
pub(super) fn start(roster: &str) -> Result<Start, Failure> {
    if let Ok(digest) = roster.parse::<Digest>() {
        return Ok(Start::digest(digest));
    }
    let hint = "take it from a join file's `trust`, or: git show desired:trust/1.json, and have the operator confirm its digest";
    let bytes = std::fs::read(roster);
    let bytes =
        bytes.map_err(|error| Failure::new(format!("cannot read the roster `{roster}`: {error}")).hint(hint))?;
    Start::of(roster, &bytes).map_err(|error| Failure::of(&error).hint(hint))
}

fn page(audit: &Audit) -> String {
    let dash = || "-".to_owned();
    let number = |number: Option<u64>| number.map_or_else(dash, |number| number.to_string());
    let rows = audit.repositories.iter().map(|row| {
        let device = row.device.as_ref().map_or_else(dash, ToString::to_string);
        [row.repository.clone(), device, row.commits.to_string(), number(row.desired), number(row.adopted)]
    });
    let head = ["REPOSITORY", "DEVICE", "COMMITS", "DESIRED", "ADOPTED"].map(str::to_owned);
    let table = super::table(&std::iter::once(head).chain(rows).collect::<Vec<_>>());
    let of = |level| audit.findings.iter().filter(move |finding| finding.found.kind.level == level);
    let section = |title: &str, level| {
        let findings: Vec<_> = of(level).collect();
        if findings.is_empty() { String::new() } else { format!("\n{title}:\n{}", findings_table(&findings)) }
    };
    let wrong = of(Level::Error).count();
    let verdict = if wrong == 0 { "Nothing is wrong.".to_owned() } else { format!("{wrong} findings.") };
    let unproven: String = UNPROVEN.iter().map(|text| format!("- {text}\n")).collect();
    let (errors, notes) = (section("Wrong", Level::Error), section("To be known", Level::Note));
    format!("{table}{errors}{notes}\n{verdict} What this can't prove:\n{unproven}")
}

fn findings_table(findings: &[&Finding]) -> String {
    let row = |finding: &&Finding| {
        let found = &finding.found;
        let device = finding.device.as_ref().map_or_else(|| finding.repository.clone(), ToString::to_string);
        let commit = found.commit.map_or_else(|| "-".to_owned(), |id| id.to_string()[..12].to_owned());
        let branch = found.branch.clone().unwrap_or_else(|| "-".to_owned());
        [found.kind.code.to_owned(), device, branch, commit, format!("{}; {}", found.message, found.kind.advice)]
    };
    let head = ["CODE", "DEVICE", "BRANCH", "COMMIT", "WHAT"].map(str::to_owned);
    super::table(&std::iter::once(head).chain(findings.iter().map(row)).collect::<Vec<_>>())
}
