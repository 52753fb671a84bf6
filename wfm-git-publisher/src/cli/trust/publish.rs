//! `trust publish`.

use jiff::Timestamp;
use repo_git::sign::openssh::fingerprint;
use serde_json::{Value, json};

use super::super::{OutputArgs, Place, table};
use crate::error::Failure;
use crate::operator::trust::{Emergency, PublishedRoster, publish_in_emergency, publish_roster};
use crate::repos::Unknown;

/// Makes the proposed roster the newest one
///
/// Checks that enough root keys signed it, of the version before and of its own, and commits it to control.git. A new key of
/// this home then takes the place of the old one. Devices get it with the next `publish`. Cut off anywhere, the same command
/// again completes it; with nothing left to do it ends with 0, too. While enrolments are open, open them anew afterwards
/// (`enroll open`), and write new enrolment files: they name the newest roster.
///
/// With --emergency a publisher's key is gone or stolen, and the machine with it; docs/drills/emergency.md says what comes before.
/// The roster has to drop that key. The new one signs the ledger, which is made of the devices' repositories where there is
/// none. Every secret of an account ends, and people's SSH keys: devices come back by their own key, people get a new secret
/// with `account rotate`. What a dropped key signed --since then and no ledger knows is listed, and who adopted it. Dates are
/// the word of who signed: name a time well before the theft.
///
///   wfm-git-publisher trust publish
///   wfm-git-publisher trust publish --emergency --since 2026-03-01T00:00:00Z
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct PublishArgs {
    /// A publisher's key was lost or stolen, and everything is to be issued anew
    #[arg(long, requires = "since")]
    emergency: bool,

    /// Since when somebody else may have had the key, as 2026-03-01T00:00:00Z
    #[arg(long, value_name = "TIME", requires = "emergency")]
    since: Option<Timestamp>,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(place: &Place, args: &PublishArgs) -> Result<u8, Failure> {
    let (home, now) = (place.home()?, Timestamp::now());
    let Some(since) = args.since.filter(|_| args.emergency) else {
        let published = publish_roster(&home, now)?;
        args.output.print(&page(&published, ""), || shown(&published));
        return Ok(0);
    };
    let Emergency { published, ended, unknown } = publish_in_emergency(&home, since, now)?;
    let names: Vec<_> = ended.iter().map(ToString::to_string).collect();
    let accounts = match names.as_slice() {
        [] => String::new(),
        names => format!(
            "no secret counts any more of {}: devices come back by their key, people get a new one by `account rotate`\n",
            names.join(", ")
        ),
    };
    args.output.print(&page(&published, &(accounts + &of_unknown(&unknown, since))), || {
        let mut all = shown(&published);
        all["ended"] = json!(ended);
        all["unknown"] = unknown.iter().map(as_json).collect();
        all
    });
    Ok(0)
}

fn page(published: &PublishedRoster, more: &str) -> String {
    let version = published.trust.roster.version;
    let mut text = if published.is_new {
        format!("roster {version} is published\n")
    } else {
        format!("roster {version} is published, and no newer one is proposed\n")
    };
    if let Some(key) = &published.new_key {
        text += &format!("this home signs with {key} from now on\n");
    }
    text += more;
    if published.is_new || published.new_key.is_some() {
        text += "Then: wfm-git-publisher publish      (brings it to the devices; `status` shows which have it)\n";
    }
    if !published.is_allowed {
        eprintln!(
            "warning: roster {version} doesn't allow this home's key, so that nothing can be published from here"
        );
    }
    text
}

fn shown(published: &PublishedRoster) -> Value {
    json!({
        "version": published.trust.roster.version,
        "sha256": published.trust.digest,
        "isNew": published.is_new,
        "newKey": published.new_key,
        "allowed": published.is_allowed,
    })
}

fn of_unknown(unknown: &[Unknown], since: Timestamp) -> String {
    if unknown.is_empty() {
        return format!("nothing that the keys of before signed since {since:.0} is unknown here\n");
    }
    let head = ["DEVICE", "SERIAL", "COMMIT", "SIGNED", "BY", "ADOPTED"].map(str::to_owned);
    let row = |one: &Unknown| {
        let adopted = if one.adopted { "yes" } else { "no" };
        let (serial, time, key) = match &one.signed {
            Some(signed) => (
                signed.serial.map_or_else(|| "-".to_owned(), |serial| serial.to_string()),
                format!("{:.0}", signed.time),
                fingerprint(&signed.key),
            ),
            None => ("-".to_owned(), "not here".to_owned(), "-".to_owned()),
        };
        [one.device.to_string(), serial, one.commit.to_string()[..12].to_owned(), time, key, adopted.to_owned()]
    };
    let rows: Vec<_> = std::iter::once(head).chain(unknown.iter().map(row)).collect();
    format!("\nSince {since:.0}, and no ledger knows it:\n{}\n", table(&rows))
}

fn as_json(one: &Unknown) -> Value {
    let signed = one.signed.as_ref();
    json!({
        "device": one.device,
        "commit": one.commit.to_string(),
        "serial": signed.and_then(|signed| signed.serial),
        "time": signed.map(|signed| signed.time),
        "key": signed.map(|signed| fingerprint(&signed.key)),
        "adopted": one.adopted,
    })
}
