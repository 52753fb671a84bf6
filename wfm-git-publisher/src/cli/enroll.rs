//! `enroll open`, `enroll close`, `enroll file`.

use std::path::PathBuf;

use clap::Subcommand;
use jiff::{SignedDuration, Timestamp};
use repo_git::durable::{self, FileError};
use repo_model::enrolment::Pin;
use repo_model::envelope::LAYOUT;
use serde_json::json;
use wfm_git_host::Settings;
use wfm_git_host::enrolment::{Claims, Opening, Range};

use super::{OutputArgs, Place, account};
use crate::error::Failure;
use crate::operator::offer;

/// Whether devices that nobody knows may ask to be enrolled here, and what they need for it
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Open(OpenArgs),
    Close(CloseArgs),
    File(FileArgs),
}

/// Lets devices ask to be enrolled, for a while
///
/// A device that runs `device-syncer enroll` then shows a code, and waits until somebody who read it there says
/// `device approve CODE --id ID` here. Nothing that a device says is believed before. Enrolments end by themselves; what
/// waits already may still be approved. Open them anew after the fleet's keys changed. The host needn't be restarted.
///
///   wfm-git-publisher enroll open --for 8h
///   wfm-git-publisher enroll open --for 30m --from 10.1.0.0/16
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct OpenArgs {
    /// How long, like 30m or 8h; 31d at most
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    time: SignedDuration,

    /// Where devices may come from, like 10.1.0.0/16; may be repeated. By default everywhere
    #[arg(long, value_name = "ADDRESSES")]
    from: Vec<Range>,

    #[command(flatten)]
    output: OutputArgs,
}

/// Lets no device ask to be enrolled any more
///
/// What waits already may still be approved.
///
///   wfm-git-publisher enroll close
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct CloseArgs {
    #[command(flatten)]
    output: OutputArgs,
}

/// Writes the file by which devices find this host and recognise it
///
/// It is the same for every device and holds nothing secret: put it into an image, on a stick, into cloud-init. Whoever can
/// replace it on its way decides which host the device believes. `device-syncer enroll --from FILE` reads it.
///
///   wfm-git-publisher enroll file --out enroll.json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct FileArgs {
    /// Where the file goes
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    #[command(flatten)]
    output: OutputArgs,
}

fn time(text: &str) -> Result<SignedDuration, String> {
    let time = account::ttl(text)?.0.and_then(|time| SignedDuration::try_from(time).ok());
    time.filter(|time| *time <= SignedDuration::from_hours(31 * 24)).ok_or_else(|| "31d at most".to_owned())
}

pub(super) fn run(place: &Place, command: Command) -> Result<u8, Failure> {
    match command {
        Command::Open(args) => open(place, args),
        Command::Close(args) => close(place, &args),
        Command::File(args) => file(place, &args),
    }
}

/// The host's settings; devices that talk to another host don't enrol here.
pub(super) fn serve(place: &Place) -> Result<Settings, Failure> {
    place.home()?.check()?;
    let config = place.config()?;
    if config.remote.is_some() {
        return Err(Failure::new("devices talk to another host, and enrol by a join file")
            .hint("`device add` writes the join file, `device enroll` takes the line that comes back"));
    }
    Ok(config.required_serve()?.clone())
}

fn open(place: &Place, args: OpenArgs) -> Result<u8, Failure> {
    let (home, now) = (place.home()?, Timestamp::now());
    let offer = offer(&home, &serve(place)?, now)?;
    let until = now.checked_add(args.time).map_err(|_| Failure::new("that is longer than time lasts"))?;
    let text = String::from_utf8(offer.offer()).map_err(|_| Failure::new("the offer isn't text"))?;
    let opening = Opening { layout: LAYOUT, until, from: args.from, offer: text };
    Claims::new(home.enrolments()).open(Some(&opening))?;
    let from: Vec<_> = opening.from.iter().map(ToString::to_string).collect();
    let whom = if from.is_empty() { "everywhere".to_owned() } else { from.join(", ") };
    let text = format!(
        "devices from {whom} may ask to be enrolled until {until:.0}\n\n\
         On the device: device-syncer enroll --from FILE      (FILE: wfm-git-publisher enroll file --out FILE)\n\
         Then here:     wfm-git-publisher device approve CODE --id ID\n"
    );
    args.output.print(&text, || json!({ "until": until, "from": from }));
    Ok(0)
}

fn close(place: &Place, args: &CloseArgs) -> Result<u8, Failure> {
    let home = place.home()?;
    home.check()?;
    Claims::new(home.enrolments()).open(None)?;
    args.output.print("no device may ask to be enrolled\n", || json!({ "until": null }));
    Ok(0)
}

fn file(place: &Place, args: &FileArgs) -> Result<u8, Failure> {
    let offer = offer(&place.home()?, &serve(place)?, Timestamp::now())?;
    let path = std::path::absolute(&args.out)?;
    durable::replace_file(&path, &offer.offer(), 0o644).map_err(FileError::write(&path))?;
    let pin = Pin::of(offer.trust.sha256).to_string();
    let text = format!("{}\nfor {}, roster {} ({pin})\n", path.display(), offer.url, offer.trust.version);
    args.output.print(&text, || json!({ "file": path, "url": offer.url, "version": offer.trust.version, "pin": pin }));
    Ok(0)
}
