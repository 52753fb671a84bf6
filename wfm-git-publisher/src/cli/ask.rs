//! `device logs`, `device diagnostics`, `device retry`, `device sync`, `device answers`.

use std::time::Duration;

use jiff::Timestamp;
use repo_model::ask::{Answer, AskedWord, Outcome};
use repo_model::{DeploymentName, DeviceId, text};
use serde_json::json;

use super::{OutputArgs, Place, asked, device_show, questions, table, wait};
use crate::error::{Failure, USER};
use crate::operator::{AskedDevice, FleetHost, ask};
use crate::repos::Home;
use crate::status::{DeviceAnswers, answers, fetch};

/// Asks a device for the newest lines that a deployment's containers print
///
/// Writes that into the device's file, with a number that rises, and commits it. The device does it once, with the next publish that
/// reaches it, if its site lets it (`remote: {logs: [hello]}` in its device.yaml), and answers beside its heartbeat: 256 KiB at
/// most, without the secrets that it knows, for 24 hours, four answers a day.
///
///   wfm-git-publisher device logs press-01 hello
///   wfm-git-publisher device answers press-01
///
/// With --wait it pushes the commit, where the fleet is hosted, waits until the device answers, and prints that.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct LogsArgs {
    /// The device, by its id such as `press-01`
    id: DeviceId,

    /// The deployment, by its id such as `hello`
    deployment: DeploymentName,

    #[command(flatten)]
    ask: AskArgs,
}

/// Asks a device for what it knows of itself, as `device-syncer diagnostics` prints it
///
/// Like `device logs`; the device's site says `remote: {diagnostics: true}` in its device.yaml, and whose logs are in it.
///
///   wfm-git-publisher device diagnostics press-01
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct DiagnosticsArgs {
    /// The device, by its id such as `press-01`
    id: DeviceId,

    #[command(flatten)]
    ask: AskArgs,
}

/// Asks a device to try again what it gave up, of one deployment or of all
///
/// Like `device logs`; unless the device's site says `remote: {retry: false}`. What changes wait for they go on waiting for.
///
///   wfm-git-publisher device retry press-01
///   wfm-git-publisher device retry press-01 hello
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct RetryArgs {
    /// The device, by its id such as `press-01`
    id: DeviceId,

    /// The deployment, by its id such as `hello`; all of them where none is named
    deployment: Option<DeploymentName>,

    #[command(flatten)]
    ask: AskArgs,
}

/// Asks a device to ask its host, and to report, at once
///
/// Like `device logs`; unless the device's site says `remote: {sync: false}`.
///
///   wfm-git-publisher device sync press-01
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct SyncArgs {
    /// The device, by its id such as `press-01`
    id: DeviceId,

    #[command(flatten)]
    ask: AskArgs,
}

/// How an answer is waited for.
#[derive(Debug, clap::Args)]
struct AskArgs {
    /// Wait for the answer and print it, for so long at most, like 2m; for 10m where no time is said
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "10m", value_parser = wait::time)]
    wait: Option<Duration>,

    #[command(flatten)]
    output: OutputArgs,
}

/// Shows what a device answered to what it was asked for, as far as its signature proves it
///
/// Answers stand for 24 hours. What is in them an application printed, or the device says of itself: nothing proves that it is so.
/// Exit code 1 if the answer that is named isn't there, or says that it was refused or failed.
///
///   wfm-git-publisher device answers press-01
///   wfm-git-publisher device answers press-01 --output json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct AnswersArgs {
    /// The device, by its id such as `press-01`
    id: DeviceId,

    /// The number of one answer, which is printed whole
    number: Option<u64>,

    /// Ask no remote host: show what was fetched from it before
    #[arg(long)]
    cached: bool,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run_logs(place: &Place, LogsArgs { id, deployment, ask }: &LogsArgs) -> Result<u8, Failure> {
    run(place, id, (AskedWord::Logs, Some(deployment)), ask)
}

pub(super) fn run_diagnostics(place: &Place, DiagnosticsArgs { id, ask }: &DiagnosticsArgs) -> Result<u8, Failure> {
    run(place, id, (AskedWord::Diagnostics, None), ask)
}

pub(super) fn run_retry(place: &Place, RetryArgs { id, deployment, ask }: &RetryArgs) -> Result<u8, Failure> {
    run(place, id, (AskedWord::Retry, deployment.as_ref()), ask)
}

pub(super) fn run_sync(place: &Place, SyncArgs { id, ask }: &SyncArgs) -> Result<u8, Failure> {
    run(place, id, (AskedWord::Sync, None), ask)
}

pub(super) fn run_answers(place: &Place, args: &AnswersArgs) -> Result<u8, Failure> {
    let said = said(place, &args.id, args.cached)?.ok_or_else(wait::nowhere)?;
    match args.number {
        Some(number) => print_one(said, number, args.output),
        None => {
            args.output.print(&listed(&said), || json!(said));
            Ok(0)
        }
    }
}

fn run(
    place: &Place,
    id: &DeviceId,
    (what, deployment): (AskedWord, Option<&DeploymentName>),
    args: &AskArgs,
) -> Result<u8, Failure> {
    let root = place.work_tree()?;
    // A device that can't be heard now may be asked all the same.
    let known = said(place, id, true);
    if args.wait.is_some() && matches!(known, Ok(None)) {
        return Err(wait::nowhere());
    }
    let done = known.ok().flatten().and_then(|said| said.asked).unwrap_or(0);
    let AskedDevice { ask, file } = ask(&root, id, what, deployment, done)?;
    let (number, next) = (ask.number, place.next_push()?);
    let Some(time) = args.wait else {
        let text = format!(
            "{id} is asked: {ask} ({file})\nThe answer: wfm-git-publisher device answers {id} {number}\n{next}"
        );
        args.output.print(&text, || json!({ "device": id, "file": file, "ask": ask }));
        return Ok(0);
    };
    place.push()?;
    eprintln!("note: {id} is asked: {ask}; waiting for its answer");
    // It comes once the commit is published and the device has heard of it.
    let has_it = |said: &DeviceAnswers| said.answers.iter().any(|answer| answer.number == number);
    let said = wait::until(place, time, || said(place, id, false), has_it)?.ok_or_else(|| not_yet(id, number))?;
    print_one(said, number, args.output)
}

/// Why there is no such answer.
fn missing(said: &DeviceAnswers, number: u64) -> Failure {
    let id = &said.device;
    match said.asked {
        Some(asked) if asked >= number => Failure::new(format!("{id} has no answer {number}, though it is done with {asked}"))
            .hint("answers stand for 24 hours, of refusals only the newest one, and a device that joined anew does nothing for a number that it finds; ask again"),
        Some(_) => not_yet(id, number),
        None => Failure::new(format!("{id} doesn't say that it answers anything")).hint("device-syncer does since version 0.3"),
    }
}

fn not_yet(id: &DeviceId, number: u64) -> Failure {
    Failure::new(format!("{id} hasn't answered {number} yet"))
        .hint("it does once that is published and reaches it: `device show` tells when it was heard, and `plan` what isn't published")
}

/// What a device answers; `None` where neither the publisher's home is here nor a host can be asked.
fn said(place: &Place, id: &DeviceId, cached: bool) -> Result<Option<DeviceAnswers>, Failure> {
    let home: Home = place.home()?;
    if home.check_ledger().is_err() {
        let Some(host) = FleetHost::of_clone(&place.root()?)? else { return Ok(None) };
        return asked::read(&asked::ask(&host, &questions::answers(id))?).map(Some);
    }
    let source = place.published_source()?;
    let fleet = super::read_fleet(&source, source.resolve("HEAD")?)?;
    if let Some(remotes) = place.remotes()?.filter(|_| !cached) {
        fetch(&home, &remotes, &fleet, std::iter::once(id.clone()), &|_, _| ())?;
    }
    if !fleet.devices.contains_key(id) && !fleet.broken.devices.contains(id) {
        return Err(device_show::unknown(id));
    }
    Ok(Some(answers(&home, id, fleet.device(id), Timestamp::now())?))
}

/// Prints one answer whole, and returns the exit code that it means.
fn print_one(mut said: DeviceAnswers, number: u64, output: OutputArgs) -> Result<u8, Failure> {
    let Some(at) = said.answers.iter().position(|answer| answer.number == number) else {
        return Err(missing(&said, number));
    };
    said.answers = vec![said.answers.swap_remove(at)];
    output.print(&page(&said.answers[0]), || json!(said));
    Ok(if said.answers[0].outcome == Outcome::Done { 0 } else { USER })
}

/// What was asked for, in a few words.
fn what(answer: &Answer) -> String {
    let deployment = answer.deployment.iter().map(|name| format!(" {name}")).collect::<String>();
    text::line(&answer.what) + &deployment
}

fn page(answer: &Answer) -> String {
    let reason = answer.reason.iter().map(|reason| format!(": {}", text::line(reason))).collect::<String>();
    let (number, time, outcome) = (answer.number, answer.time, text::line(&answer.outcome));
    let mut page = format!("{number} ({}): {outcome} at {time:.0}{reason}\n", what(answer));
    let logs = answer.logs.iter().flatten();
    let lines = logs.flat_map(|(name, lines)| lines.iter().map(move |line| format!("{name}  {}\n", text::line(line))));
    page.extend(lines);
    page.extend(answer.diagnostics.iter().map(|found| text::json(&format!("{found:#}\n"))));
    page
}

fn listed(said: &DeviceAnswers) -> String {
    let head = ["NUMBER", "WHAT", "OUTCOME", "TIME", "REASON"].map(str::to_owned);
    let row = |answer: &Answer| {
        let reason = answer.reason.clone().unwrap_or_default();
        [answer.number.to_string(), what(answer), answer.outcome.clone(), format!("{:.0}", answer.time), reason]
    };
    let rows: Vec<_> = std::iter::once(head).chain(said.answers.iter().map(row)).collect();
    let doubts = said.doubts.iter().map(|doubt| format!("doubtful: {}: {}\n", doubt.code, text::line(&doubt.message)));
    let asked = said.asked.map_or_else(|| "nothing that it says".to_owned(), |asked| asked.to_string());
    let answers = if said.answers.is_empty() { "no answer stands\n".to_owned() } else { table(&rows) };
    format!("{}: done with {asked}\n{answers}{}", said.device, doubts.collect::<String>())
}
