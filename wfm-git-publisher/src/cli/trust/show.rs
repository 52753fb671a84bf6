//! `trust show`.

use std::path::Path;

use jiff::Timestamp;
use repo_git::SigningKey;
use repo_git::sign::openssh::fingerprint;
use repo_model::KeyText;
use repo_model::roster::Roster;
use serde_json::{Value, json};

use super::super::{OutputArgs, Place, table};
use crate::error::Failure;
use crate::operator::trust::{Proposal, SignedBy, certificates, changes};
use crate::repos::{Control, Home, Rosters, key_text};

/// Shows the roster: its keys, when they end, who signed which version, and what is proposed
///
/// Each key stands with its fingerprint, as `ssh-keygen -l` shows it, and the file of this home that has it. Of a proposal it
/// says what it changes, and whose signatures are missing. Exit code 0 if it can be shown.
///
///   wfm-git-publisher trust show
///   wfm-git-publisher trust show --diff 1
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct ShowArgs {
    /// Also what changed from this version to the newest
    #[arg(long, value_name = "N")]
    diff: Option<u64>,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(place: &Place, args: &ShowArgs) -> Result<u8, Failure> {
    let home = place.home()?;
    let rosters = Control::known_rosters(&home)?;
    let proposed = Proposal::read(&home, &rosters)?;
    let newest = &rosters.newest.roster;
    let since = args.diff.map(|version| {
        let found = rosters.version(version).map(|trust| changes(&trust.roster, newest));
        found.ok_or_else(|| {
            Failure::new(format!("there is no roster {version}")).hint(format!("there are 1 to {}", newest.version))
        })
    });
    let since = since.transpose()?;
    let keys = Keys::of(&home);
    let text = text(&rosters, proposed.as_ref(), since.as_deref(), &keys);
    args.output.print(&text, || json(&rosters, proposed.as_ref(), since.as_deref(), &keys));
    Ok(0)
}

/// The files of this home's keys.
struct Keys(Vec<(KeyText, &'static str)>);

impl Keys {
    fn of(home: &Home) -> Self {
        let files = [
            (home.root_key(), "keys/root"),
            (home.publisher_key(), "keys/publisher"),
            (home.next_publisher_key(), "keys/publisher.next"),
        ];
        let read = |path: &Path| key_text(SigningKey::load(path).ok()?.public());
        Self(files.into_iter().filter_map(|(path, name)| Some((read(&path)?, name))).collect())
    }

    fn file(&self, key: &KeyText) -> Option<&'static str> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, name)| *name)
    }
}

fn text(rosters: &Rosters, proposed: Option<&Proposal>, since: Option<&[String]>, keys: &Keys) -> String {
    let roster = &rosters.newest.roster;
    let Roster { version, fleet, threshold, roots, .. } = roster;
    let mut text = format!(
        "roster {version} of fleet {fleet}; it takes {threshold} of {} root keys to sign the next\n\n{}\n{}",
        roots.len(),
        table(&key_rows(roster, keys)),
        table(&version_rows(rosters)),
    );
    text += &of_host(roster);
    let lines = |changes: &[String]| changes.iter().map(|line| format!("  {line}\n")).collect::<String>();
    if let Some(since) = since {
        text += &format!("\nWhat changed up to roster {version}:\n{}", lines(since));
    }
    if let Some(proposed) = proposed {
        let changes = changes(roster, &proposed.trust.roster);
        let (next, path) = (proposed.trust.roster.version, proposed.path.display());
        text += &format!("\nProposed as roster {next}: {path}\n{}{}", lines(&changes), missing(rosters, proposed));
    }
    text
}

/// What devices are told of their host, if anything.
fn of_host(roster: &Roster) -> String {
    let Some(host) = &roster.host else { return String::new() };
    let url = host.url.iter().map(|url| format!("  at {url}\n"));
    let authorities = certificates(host).into_iter().map(|digest| format!("  authority {digest}\n"));
    let keys = host.host_keys.iter().map(|key| format!("  key {}\n", fingerprint(key)));
    format!("\nThe host:\n{}", url.chain(authorities).chain(keys).collect::<String>())
}

fn key_rows(roster: &Roster, keys: &Keys) -> Vec<[String; 4]> {
    let file = |key: &KeyText| keys.file(key).unwrap_or("-").to_owned();
    let root = |(index, key): (usize, &KeyText)| [format!("root {index}"), fingerprint(key), "-".to_owned(), file(key)];
    let publishers = roster.publishers.iter().map(|one| {
        let end = one.not_after.map_or_else(|| "for ever".to_owned(), |end| format!("{end:.0}"));
        ["publisher".to_owned(), fingerprint(&one.key), end, file(&one.key)]
    });
    let head = ["ROLE", "KEY", "UNTIL", "HERE"].map(str::to_owned);
    std::iter::once(head).chain(roster.roots.iter().enumerate().map(root)).chain(publishers).collect()
}

/// All versions with the one before, which for the first is itself.
fn versions(rosters: &Rosters) -> Vec<(Roster, SignedBy)> {
    let numbers = 1..=rosters.newest.roster.version;
    let read = numbers.filter_map(|version| {
        let after = rosters.version(version)?.roster;
        let before = if version == 1 { after.clone() } else { rosters.version(version - 1)?.roster };
        let signed = SignedBy::of(&rosters.files, &before, &after);
        Some((after, signed))
    });
    read.collect()
}

fn version_rows(rosters: &Rosters) -> Vec<[String; 6]> {
    let shown = |indexes: &[usize]| match indexes {
        [] => "-".to_owned(),
        indexes => indexes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    };
    let row = |(roster, signed): (Roster, SignedBy)| {
        [
            roster.version.to_string(),
            roster.issued.map_or_else(|| "-".to_owned(), |issued| format!("{issued:.0}")),
            format!("{} of {}", roster.threshold, roster.roots.len()),
            roster.publishers.len().to_string(),
            shown(&signed.before),
            shown(&signed.own),
        ]
    };
    let head = ["VERSION", "ISSUED", "ROOTS", "PUBLISHERS", "SIGNED BY ROOTS BEFORE", "OWN"].map(str::to_owned);
    std::iter::once(head).chain(versions(rosters).into_iter().map(row)).collect()
}

/// Whose signatures a proposal has, and how many it needs.
pub(super) fn missing(rosters: &Rosters, proposed: &Proposal) -> String {
    let (before, after) = (&rosters.newest.roster, &proposed.trust.roster);
    let signed = proposed.signed_by(before);
    let line = |roster: &Roster, signed: &[usize]| {
        let lacks: Vec<_> = roster.roots.iter().enumerate().filter(|(index, _)| !signed.contains(index)).collect();
        let lacks: String = lacks.iter().map(|(_, key)| format!("    not by {}\n", fingerprint(key))).collect();
        let (count, needed) = (signed.len(), roster.threshold);
        format!("  signed by {count} of the roots of roster {}, and needs {needed}\n{lacks}", roster.version)
    };
    line(before, &signed.before) + &line(after, &signed.own)
}

/// The same for programs.
pub(super) fn signatures(before: &Roster, proposed: &Proposal) -> Value {
    let signed = proposed.signed_by(before);
    let part = |roster: &Roster, signed: &[usize]| {
        let by: Vec<_> = signed.iter().filter_map(|index| roster.roots.get(*index)).map(fingerprint).collect();
        json!({ "by": by, "needed": roster.threshold })
    };
    json!({ "before": part(before, &signed.before), "own": part(&proposed.trust.roster, &signed.own) })
}

fn json(rosters: &Rosters, proposed: Option<&Proposal>, since: Option<&[String]>, keys: &Keys) -> Value {
    let (roster, now) = (&rosters.newest.roster, Timestamp::now());
    let roots =
        roster.roots.iter().map(|key| json!({ "key": key, "fingerprint": fingerprint(key), "file": keys.file(key) }));
    let publishers = roster.publishers.iter().map(|one| {
        let ended = one.not_after.is_some_and(|end| end <= now);
        let fingerprint = fingerprint(&one.key);
        json!({
            "key": one.key, "fingerprint": fingerprint, "notAfter": one.not_after, "ended": ended,
            "file": keys.file(&one.key),
        })
    });
    let version = |(roster, signed): (Roster, SignedBy)| {
        json!({
            "version": roster.version, "issued": roster.issued, "threshold": roster.threshold,
            "roots": roster.roots.len(), "publishers": roster.publishers.len(),
            "signedBy": { "before": signed.before, "own": signed.own },
        })
    };
    let proposal = proposed.map(|proposed| {
        json!({
            "file": proposed.path,
            "version": proposed.trust.roster.version,
            "issued": proposed.trust.roster.issued,
            "changes": changes(roster, &proposed.trust.roster),
            "signatures": signatures(roster, proposed),
            "complete": proposed.is_complete(roster),
        })
    });
    json!({
        "fleet": roster.fleet,
        "version": roster.version,
        "sha256": rosters.newest.digest,
        "threshold": roster.threshold,
        "roots": roots.collect::<Vec<_>>(),
        "publishers": publishers.collect::<Vec<_>>(),
        "host": roster.host.as_ref().map(|host| json!({
            "url": host.url, "authorities": certificates(host), "hostKeys": host.host_keys,
        })),
        "versions": versions(rosters).into_iter().map(version).collect::<Vec<_>>(),
        "proposal": proposal,
        "changes": since,
    })
}
