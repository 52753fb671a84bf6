//! `device pending`, `device approve`, `device reject`: what waits to be enrolled, by a code or a batch token.

mod watch;

use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use repo_git::sign::openssh;
use repo_model::enrolment::{Claim, Code, Kind};
use repo_model::{DeviceId, error_chain};
use serde_json::{Value, json};
use wfm_git_host::accounts::Store;
use wfm_git_host::enrolment::{Claims, Verdict, Waiting};

use super::{OutputArgs, Place, account, enroll, label, table};
use crate::error::{Failure, USER};
use crate::fleet::{self, SourceFile, Token};
use crate::operator::{
    Batch, BatchApproval, BatchWord, Candidate, DeviceApproval, RekeyWord, TakenIn, Word, approve_batch,
    approve_device, approve_rekey, conflict, counts, rekey_note, waiting_with,
};
use crate::repos::{Control, Home};

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

/// What waits or was answered, and what there is to know of it.
struct Seen {
    now: Timestamp,
    listed: Vec<Waiting>,
    files: Vec<SourceFile>,
    /// What came by tokens, judged as an approval would.
    by_token: Vec<Candidate>,
}

impl Seen {
    fn of(place: &Place, home: &Home, listed: Vec<Waiting>, now: Timestamp) -> Result<Self, Failure> {
        let source = place.source()?;
        let files = source.files(source.resolve("HEAD")?)?;
        let by_token = by_token(home, &files, &listed)?;
        Ok(Self { now, listed, files, by_token })
    }

    /// Those that wait for a person's word.
    fn undecided(&self) -> impl Iterator<Item = &Waiting> {
        self.listed.iter().filter(|one| one.verdict.is_none())
    }

    /// As what it would be taken in that came by a token.
    fn candidate(&self, one: &Waiting) -> Option<&Candidate> {
        self.by_token.iter().find(|candidate| candidate.waiting.request == one.request)
    }
}

pub(super) fn run(place: &Place, args: &PendingArgs) -> Result<u8, Failure> {
    let (home, now, mut told) = (place.home()?, Timestamp::now(), BTreeSet::new());
    home.check()?;
    let claims = Claims::new(home.enrolments());
    let seen = Seen::of(place, &home, waiting(&claims, now, &mut told)?, now)?;
    if !args.watch || !args.output.is_json() {
        show(&claims, &seen, args.output)?;
    }
    if args.watch { watch::run(place, &home, args.output, (seen, told)) } else { Ok(0) }
}

/// Prints who waits, and who may come to.
fn show(claims: &Claims, seen: &Seen, output: OutputArgs) -> Result<(), Failure> {
    let (tokens, _) = fleet::read_tokens(&seen.files);
    let open = claims.opening()?.map(|opening| opening.until).filter(|until| seen.now < *until);
    let tokens: Vec<_> = tokens.values().filter(|token| counts(token, seen.now)).collect();
    let head = match open {
        Some(until) => format!("devices may ask to be enrolled until {until:.0}\n"),
        None if !tokens.is_empty() => String::new(),
        None => "no device may ask to be enrolled now: `enroll open --for 8h` lets them\n".to_owned(),
    };
    let of_token = |token: &&Token| format!("with the token {} until {:.0}\n", token.name, token.until);
    let head: String = std::iter::once(head).chain(tokens.iter().map(of_token)).collect();
    let undecided: Vec<_> = seen.undecided().collect();
    let body = if undecided.is_empty() { "no device waits\n".to_owned() } else { rows(seen, &undecided) };
    let waits = |kind: Kind| undecided.iter().any(|one| one.kind() == kind);
    let by_number = "\nA new key, if the device shows the same: device approve --number NUMBER --id ID\n";
    let codes = [
        waits(Kind::Code).then(|| "\nRead the code from the device: device approve CODE --id ID\n".to_owned()),
        waits(Kind::Known).then(|| by_number.to_owned()),
    ];
    let mut names: Vec<_> = undecided.iter().filter_map(|one| one.token.as_ref()).map(|by| &by.name).collect();
    names.sort();
    names.dedup();
    let names = names.into_iter().map(|name| format!("\nAll with the token {name}: device approve --token {name}\n"));
    let more: String = codes.into_iter().flatten().chain(names).collect();
    output.print(&format!("{head}{body}{more}"), || {
        let shown: Vec<_> = undecided.iter().map(|one| shown(seen, one)).collect();
        json!({ "openUntil": open, "pending": shown })
    });
    Ok(())
}

/// A table of some that wait.
fn rows(seen: &Seen, some: &[&Waiting]) -> String {
    let head = ["NUMBER", "AGE", "FROM", "SAYS THAT IT IS", "KEY", "NOTE"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(some.iter().map(|one| row(seen, one))).collect();
    table(&rows)
}

/// What came by tokens, judged as an approval would.
fn by_token(home: &Home, files: &[SourceFile], listed: &[Waiting]) -> Result<Vec<Candidate>, Failure> {
    let mut names: Vec<_> = listed.iter().filter_map(|one| one.token.as_ref()).map(|by| by.name.clone()).collect();
    names.sort();
    names.dedup();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let (tokens, _) = fleet::read_tokens(files);
    let (accounts, roster) = (Store::new(home.accounts()), Control::read(home)?.1.newest.digest);
    let mut judged = Vec::new();
    for name in names {
        let batch = Batch { token: tokens.get(&name), files, accounts: &accounts, roster };
        judged.extend(batch.judge(waiting_with(listed.to_vec(), &name))?);
    }
    Ok(judged)
}

fn row(seen: &Seen, one: &Waiting) -> [String; 6] {
    let age = seen.now.duration_since(one.received).max(SignedDuration::ZERO);
    let age = if age.as_mins() > 0 { format!("{} min", age.as_mins()) } else { format!("{} s", age.as_secs()) };
    let (says, key, note) = match one.claim() {
        Ok(claim) => {
            let files = &seen.files;
            let other = || rekey_note(files, &seen.listed, one, &claim).or_else(|| conflict(files, &claim));
            let note = seen.candidate(one).map_or_else(|| other().unwrap_or_default(), note);
            (says(&claim), openssh::fingerprint(&claim.key), note)
        }
        Err(error) => (String::new(), String::new(), error_chain(&error)),
    };
    [one.number.to_string(), age, one.address.to_string(), says, key, note]
}

/// As what a device that came by a token would be taken in, and what is to be known of that.
fn note(Candidate { waiting, device, note, problem, .. }: &Candidate) -> String {
    let token = waiting.token.as_ref().map(|token| format!("token {}", token.name));
    let device = device.as_ref().map(|device| format!("as {device}"));
    let problem = problem.as_ref().map(|problem| format!("NOT: {problem}"));
    let parts: Vec<_> = [token, device, problem, note.clone()].into_iter().flatten().collect();
    parts.join("; ")
}

/// What a device says of itself, in short. Whoever prints it makes it harmless.
pub(super) fn says(claim: &Claim) -> String {
    let Claim { id, serial, model, hostname, .. } = claim;
    let id = id.as_ref().map(ToString::to_string);
    let parts = [id, serial.as_ref().map(|serial| format!("serial {serial}")), model.clone(), hostname.clone()];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

fn shown(seen: &Seen, one: &Waiting) -> Value {
    let (claim, candidate) = (one.claim().ok(), seen.candidate(one));
    let is_new = one.kind() == Kind::Code;
    let rekey = claim.as_ref().and_then(|claim| rekey_note(&seen.files, &seen.listed, one, claim));
    json!({
        "number": one.number,
        "received": one.received,
        "address": one.address,
        "fingerprint": fingerprint(one),
        "token": one.token.as_ref().map(|token| &token.name),
        "device": candidate.and_then(|candidate| candidate.device.as_ref()).or(one.rekeys.as_ref()),
        "note": candidate.and_then(|candidate| candidate.note.as_ref()).or(rekey.as_ref()),
        "problem": candidate.and_then(|candidate| candidate.problem.as_ref()),
        "conflict": claim.as_ref().filter(|_| is_new).and_then(|claim| conflict(&seen.files, claim)),
        "claim": claim,
    })
}

/// Of the key that it proved, unless its claim can't be read.
fn fingerprint(one: &Waiting) -> Option<String> {
    one.claim().ok().map(|claim| openssh::fingerprint(&claim.key))
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
        let why = note(one);
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
