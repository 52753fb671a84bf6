//! `device pending`, `device approve`, `device reject`: what waits to be enrolled, by a code or a batch token.

mod view;
mod watch;

use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::Timestamp;
use repo_model::enrolment::{Claim, Code};
use repo_model::{DeviceId, error_chain};
use serde_json::json;
use wfm_git_host::enrolment::{Claims, Verdict, Waiting};

use self::view::{Pending, View};
pub(super) use self::watch::watcher;
use super::{OutputArgs, Place, account, enroll, label, table};
use crate::error::{Failure, USER};
use crate::operator::{
    BatchApproval, BatchWord, Candidate, DeviceApproval, RekeyWord, TakenIn, Word, approve_batch, approve_device,
    approve_rekey,
};
use crate::repos::Home;

/// Lists the devices that wait for a person's word
///
/// What a device says of itself is its own word; only that it has the key was proven. The code isn't shown: it is read from
/// the device, because whoever copies it from here compares nothing. Of a device that came by a batch token it says as what
/// it would be taken in. A device that asks for a new key (`device-syncer rekey`) proved its old one, and needs no code.
///
///   wfm-git-publisher device pending
///
/// With --watch it goes on until it is interrupted, and shows who comes to wait, and what becomes of whom; with --output json each of
/// that is one JSON object on a line, also who waits already.
///
///   wfm-git-publisher device pending --watch
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct PendingArgs {
    /// Go on, and show who comes to wait, and what becomes of whom
    #[arg(long)]
    watch: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// Takes in the device that shows this code, or all that wait with a batch token; or a device's new key
///
/// Read the code from the device itself: that it is the same here says that nobody is between the two. Writes the
/// device's file with its key and commits it, makes its repository and its account, and answers the device, which then has
/// what a join file would have brought. Run it again if it was cut off. The next `publish` gives the device its first
/// desired state.
///
///   wfm-git-publisher device approve K4TX-9QHM --id press-07 --label site=graz
///
/// With --token all that came by that token are taken in as one commit, with the ids and labels that it says; look at them with
/// `device pending` before. Whoever can't be taken in is named with the reason, and the exit code is 1 then.
///
///   wfm-git-publisher device approve --token graz --expect 48
///
/// With --number a device that is in the fleet gets the new key that it asked for with its old one. Compare the fingerprint with
/// what `device-syncer rekey` shows there. The old secret of its account ends at once, and the old key with the next `publish`.
///
///   wfm-git-publisher device approve --number 6 --id press-07
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct ApproveArgs {
    /// What the device shows; case and dashes don't count
    #[arg(required_unless_present_any = ["token", "number"], requires = "id")]
    code: Option<Code>,

    /// The new key that `device pending` shows with this number
    #[arg(long, value_name = "NUMBER", requires = "id", conflicts_with_all = ["code", "token", "labels", "ttl"])]
    number: Option<u64>,

    /// As which device: letters, digits and `. _ ~ -`, in parts divided by `/`
    #[arg(long, value_name = "ID")]
    id: Option<DeviceId>,

    /// All that wait with this token
    #[arg(long, value_name = "NAME", conflicts_with_all = ["code", "id", "labels"])]
    token: Option<String>,

    /// How many new ones `device pending` showed: with more or fewer nobody is taken in, so that none comes unseen in between
    #[arg(long, value_name = "COUNT", requires = "token")]
    expect: Option<usize>,

    /// A label, of a device that isn't in the fleet yet; may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,

    /// How long the secret of the device's account is valid, like 90d or 12h, or `never`; the device renews it in time
    #[arg(long, value_name = "TIME", default_value = "90d", value_parser = account::ttl)]
    ttl: account::Ttl,

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

/// What waits, the oldest first. What can't be read is told, unless it was before, and hides no other.
fn waiting(claims: &Claims, now: Timestamp, told: &mut BTreeSet<String>) -> Result<Vec<Waiting>, Failure> {
    let (listed, broken) = claims.list(now)?;
    for error in broken {
        let error = error_chain(&error);
        if told.insert(error.clone()) {
            eprintln!("warning: {}", repo_model::text::line(&error));
        }
    }
    Ok(listed)
}

/// How many devices wait for a person's word.
pub(super) fn undecided(home: &Home, now: Timestamp) -> Result<usize, Failure> {
    let listed = waiting(&Claims::new(home.enrolments()), now, &mut BTreeSet::new())?;
    Ok(listed.iter().filter(|one| one.verdict.is_none()).count())
}

pub(super) fn run(place: &Place, args: &PendingArgs) -> Result<u8, Failure> {
    let (home, now, mut told) = (place.home()?, Timestamp::now(), BTreeSet::new());
    home.check()?;
    let listed = waiting(&Claims::new(home.enrolments()), now, &mut told)?;
    let view = View::of(place, &home, &listed, now)?;
    if args.watch {
        return watch::run(place, &home, args.output.output, (view, listed, told));
    }
    args.output.print(&view.page(now), || json!(view));
    Ok(0)
}

/// What a device says of itself, in short. Whoever prints it makes it harmless.
pub(super) fn says(claim: &Claim) -> String {
    let Claim { id, serial, model, hostname, .. } = claim;
    let id = id.as_ref().map(ToString::to_string);
    let parts = [id, serial.as_ref().map(|serial| format!("serial {serial}")), model.clone(), hostname.clone()];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

pub(super) fn run_approve(place: &Place, args: ApproveArgs) -> Result<u8, Failure> {
    let (home, serve) = (place.home()?, enroll::serve(place)?);
    let ApproveArgs { code, number, id, token, expect, labels, ttl, output } = args;
    if let Some(token) = token {
        let word = BatchWord { token, expect, ttl: ttl.0 };
        let approval = approve_batch(&place.work_tree()?, &home, &serve, &word, Timestamp::now())?;
        return tell_batch(place, &word.token, &approval, output);
    }
    if let (Some(number), Some(device)) = (number, id.clone()) {
        let word = RekeyWord { number, device };
        let approval = approve_rekey(&place.work_tree()?, &home, &serve, &word, Timestamp::now())?;
        let said = if approval.was_there { "was given its new key before," } else { "is given its new key," };
        return tell(place, &word.device, &approval, (said, "its old key ends with the next publish\n"), output);
    }
    let (Some(code), Some(id)) = (code, id) else { return Err(Failure::new("CODE and --id belong together")) };
    let word = Word { code, device: id, labels: labels.into_iter().collect(), ttl: ttl.0, replace: false };
    let approval = approve_device(&place.work_tree()?, &home, &serve, &word, Timestamp::now())?;
    let said = if approval.was_there { "was approved before with" } else { "is approved with" };
    tell(place, &word.device, &approval, (said, ""), output)
}

/// Says which device was taken in by which key; after what it said of itself comes `also`, in lines.
pub(super) fn tell(
    place: &Place,
    device: &DeviceId,
    approval: &DeviceApproval,
    (said, also): (&str, &str),
    output: OutputArgs,
) -> Result<u8, Failure> {
    let DeviceApproval { file, fingerprint, claim, was_there, .. } = approval;
    let text = format!(
        "{device} {said} {fingerprint} ({file})\nit said that it is: {}\n{also}{}",
        repo_model::text::cell(&says(claim)),
        place.next_push()?,
    );
    output.print(&text, || {
        json!({
            "device": device, "file": file, "fingerprint": fingerprint, "claim": claim, "wasThere": was_there,
        })
    });
    Ok(0)
}

fn tell_batch(place: &Place, token: &str, approval: &BatchApproval, output: OutputArgs) -> Result<u8, Failure> {
    let BatchApproval { taken, left } = approval;
    let row = |one: &TakenIn| {
        let serial = one.serial.clone().unwrap_or_else(|| "-".to_owned());
        [one.device.to_string(), serial, one.fingerprint.clone(), one.note.clone().unwrap_or_default()]
    };
    let head = ["DEVICE", "SAYS ITS SERIAL IS", "KEY", "NOTE"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(taken.iter().map(row)).collect();
    let body = match taken.is_empty() {
        true => format!("no device that waits with the token {token} is taken in\n"),
        false => format!("{}{}", table(&rows), place.next_push()?),
    };
    let not = |one: &Candidate| {
        let why = Pending::of(&one.waiting, &[], &[], std::slice::from_ref(one)).remark();
        format!("number {} is left: {}\n", one.waiting.number, repo_model::text::line(&why))
    };
    let left_out: String = left.iter().map(not).collect();
    output.print(&format!("{body}{left_out}"), || {
        let taken = taken.iter().map(|one| {
            json!({
                "device": one.device, "file": one.file, "fingerprint": one.fingerprint, "serial": one.serial, "note": one.note,
            })
        });
        let left = left.iter().map(|one| {
            json!({ "number": one.waiting.number, "device": one.device, "problem": one.problem, "claim": one.claim })
        });
        json!({ "token": token, "approved": taken.collect::<Vec<_>>(), "left": left.collect::<Vec<_>>() })
    });
    Ok(if left.is_empty() { 0 } else { USER })
}

pub(super) fn run_reject(place: &Place, args: &RejectArgs) -> Result<u8, Failure> {
    let (home, now) = (place.home()?, Timestamp::now());
    home.check()?;
    let claims = Claims::new(home.enrolments());
    let is_meant = |one: &Waiting| Some(one.number) == args.number || Some(one.address) == args.address;
    let all = waiting(&claims, now, &mut BTreeSet::new())?;
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
