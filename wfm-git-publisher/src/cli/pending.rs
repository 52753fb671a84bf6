//! `device pending`, `device approve`, `device reject`: what waits to be enrolled by a code.

use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use repo_git::sign::openssh;
use repo_model::enrolment::{Claim, Code};
use repo_model::{DeviceId, error_chain};
use serde_json::{Value, json};
use wfm_git_host::enrolment::{Claims, Verdict, Waiting};

use super::{OutputArgs, Place, account, enroll, label, table};
use crate::error::Failure;
use crate::fleet::SourceFile;
use crate::operator::{Word, approve_device, conflict};

/// Lists the devices that wait for a person's word
///
/// What a device says of itself is its own word; only that it has the key was proven. The code isn't shown: it is read from
/// the device, because whoever copies it from here compares nothing.
///
///   wfm-git-publisher device pending
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct PendingArgs {
    #[command(flatten)]
    output: OutputArgs,
}

/// Takes in the device that shows this code
///
/// Read the code from the device itself: that it is the same here says that nobody is between the two. Writes the
/// device's file with its key and commits it, makes its repository and its account, and answers the device, which then has
/// what a join file would have brought. Run it again if it was cut off. The next `publish` gives the device its first
/// desired state.
///
///   wfm-git-publisher device approve K4TX-9QHM --id press-07 --label site=graz
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct ApproveArgs {
    /// What the device shows; case and dashes don't count
    code: Code,

    /// As which device: letters, digits and `. _ ~ -`, in parts divided by `/`
    #[arg(long, value_name = "ID")]
    id: DeviceId,

    /// A label, of a device that isn't in the fleet yet; may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,

    /// How long the secret of the device's account is valid, like 90d or 12h, or `never`; the device renews it in time
    #[arg(long, value_name = "TIME", default_value = "90d", value_parser = account::ttl)]
    ttl: account::Ttl,

    /// Replace the keys and secrets that are there: for a new disk, or new hardware under an old id
    #[arg(long)]
    replace: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// Turns away devices that wait
///
/// The device is told, and stops asking; a person at it may let it ask anew.
///
///   wfm-git-publisher device reject 3
///   wfm-git-publisher device reject --address 10.1.7.20
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct RejectArgs {
    /// The number that `device pending` shows
    #[arg(required_unless_present = "address")]
    number: Option<u64>,

    /// All that came from there
    #[arg(long, value_name = "ADDRESS", conflicts_with = "number")]
    address: Option<IpAddr>,

    #[command(flatten)]
    output: OutputArgs,
}

/// What waits, the oldest first. What can't be read is told, and hides no other.
fn waiting(claims: &Claims, now: Timestamp) -> Result<Vec<Waiting>, Failure> {
    let (listed, broken) = claims.list(now)?;
    for error in broken {
        eprintln!("warning: {}", repo_model::text::line(&error_chain(&error)));
    }
    Ok(listed)
}

pub(super) fn run(place: &Place, args: &PendingArgs) -> Result<u8, Failure> {
    let (home, now) = (place.home()?, Timestamp::now());
    home.check()?;
    let claims = Claims::new(home.enrolments());
    let listed = waiting(&claims, now)?;
    let source = place.source()?;
    let files = source.files(source.resolve("HEAD")?)?;
    let open = claims.opening()?.map(|opening| opening.until).filter(|until| now < *until);
    let undecided: Vec<_> = listed.iter().filter(|one| one.verdict.is_none()).collect();
    let head = match open {
        Some(until) => format!("devices may ask to be enrolled until {until:.0}\n"),
        None => "no device may ask to be enrolled now: `enroll open --for 8h` lets them\n".to_owned(),
    };
    let mut rows = vec![["NUMBER", "AGE", "FROM", "SAYS THAT IT IS", "KEY", "NOTE"].map(str::to_owned)];
    rows.extend(undecided.iter().map(|one| row(one, &files, now)));
    let body = if undecided.is_empty() { "no device waits\n".to_owned() } else { table(&rows) };
    let more = if undecided.is_empty() { "" } else { "\nRead the code from the device: device approve CODE --id ID\n" };
    args.output.print(
        &format!("{head}{body}{more}"),
        || json!({ "openUntil": open, "pending": undecided.iter().map(|one| shown(one, &files)).collect::<Vec<_>>() }),
    );
    Ok(0)
}

fn row(one: &Waiting, files: &[SourceFile], now: Timestamp) -> [String; 6] {
    let age = now.duration_since(one.received).max(SignedDuration::ZERO);
    let age = if age.as_mins() > 0 { format!("{} min", age.as_mins()) } else { format!("{} s", age.as_secs()) };
    let (says, key, note) = match one.claim() {
        Ok(claim) => (says(&claim), openssh::fingerprint(&claim.key), conflict(files, &claim).unwrap_or_default()),
        Err(error) => (String::new(), String::new(), error_chain(&error)),
    };
    [one.number.to_string(), age, one.address.to_string(), says, key, note]
}

/// What a device says of itself, in short. Whoever prints it makes it harmless.
fn says(claim: &Claim) -> String {
    let Claim { id, serial, model, hostname, .. } = claim;
    let id = id.as_ref().map(ToString::to_string);
    let parts = [id, serial.as_ref().map(|serial| format!("serial {serial}")), model.clone(), hostname.clone()];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

fn shown(one: &Waiting, files: &[SourceFile]) -> Value {
    let claim = one.claim().ok();
    json!({
        "number": one.number,
        "received": one.received,
        "address": one.address,
        "fingerprint": claim.as_ref().map(|claim| openssh::fingerprint(&claim.key)),
        "conflict": claim.as_ref().and_then(|claim| conflict(files, claim)),
        "claim": claim,
    })
}

pub(super) fn run_approve(place: &Place, args: ApproveArgs) -> Result<u8, Failure> {
    let (home, serve) = (place.home()?, enroll::serve(place)?);
    let ApproveArgs { code, id, labels, ttl, replace, output } = args;
    let word = Word { code, device: id, labels: labels.into_iter().collect(), ttl: ttl.0, replace };
    let approval = approve_device(&place.work_tree()?, &home, &serve, &word, Timestamp::now())?;
    let said = if approval.was_there { "was approved before" } else { "is approved" };
    let text = format!(
        "{} {said} with {} ({})\nit said that it is: {}\n{}",
        word.device,
        approval.fingerprint,
        approval.file,
        repo_model::text::cell(&says(&approval.claim)),
        place.next_push()?,
    );
    output.print(&text, || {
        json!({
            "device": word.device,
            "file": approval.file,
            "fingerprint": approval.fingerprint,
            "claim": approval.claim,
            "wasThere": approval.was_there,
        })
    });
    Ok(0)
}

pub(super) fn run_reject(place: &Place, args: &RejectArgs) -> Result<u8, Failure> {
    let (home, now) = (place.home()?, Timestamp::now());
    home.check()?;
    let claims = Claims::new(home.enrolments());
    let is_meant = |one: &Waiting| Some(one.number) == args.number || Some(one.address) == args.address;
    let all = waiting(&claims, now)?;
    let meant: Vec<_> = all.into_iter().filter(|one| one.verdict.is_none() && is_meant(one)).collect();
    if meant.is_empty() {
        return Err(Failure::new("no such device waits").hint("`device pending` shows which do"));
    }
    let mut numbers = Vec::new();
    for one in meant {
        let number = one.number;
        if matches!(claims.decide(one, Verdict::Rejected { at: now })?, Verdict::Rejected { .. }) {
            numbers.push(number);
        }
    }
    let named = numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    args.output.print(&format!("rejected: {named}\n"), || json!({ "rejected": numbers }));
    Ok(0)
}
