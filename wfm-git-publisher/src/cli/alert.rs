//! `alert list`, `alert test`.

use std::collections::BTreeMap;

use clap::Subcommand;
use jiff::Timestamp;
use serde_json::json;

use super::{OutputArgs, Place, table, threads};
use crate::alerts::{self, Alerts, Known};
use crate::config;
use crate::error::Failure;
use crate::repos::Control;

/// Shows what needs somebody, and who was told
///
/// Who is told stands in the section `alerts:` of publisher.yaml; `run` and `serve` tell them. docs/alerts.md has the kinds
/// of alerts, what is sent, and how a receiver checks that it is from here.
#[derive(Debug, Subcommand)]
#[command(verbatim_doc_comment)]
pub(super) enum Command {
    List(ListArgs),
    Test(TestArgs),
}

/// Lists what fires now, and what each receiver was told of it
///
/// What has to be so for some time before it is told is `pending` until then. What a receiver doesn't want to hear of
/// isn't shown for it.
///
///   wfm-git-publisher alert list
///   wfm-git-publisher alert list --output json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct ListArgs {
    #[command(flatten)]
    output: OutputArgs,
}

/// Sends a receiver an event that means nothing, to see whether it hears it
///
/// Exit code 0 once the receiver took it.
///
///   wfm-git-publisher alert test on-call
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct TestArgs {
    /// The receiver's name in publisher.yaml
    receiver: String,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(place: &Place, command: Command) -> Result<u8, Failure> {
    match command {
        Command::List(args) => list(place, &args),
        Command::Test(args) => test(place, &args),
    }
}

/// Tells whoever the settings name, for as long as this process lives.
pub(super) fn start(place: &Place, rev: &str, settings: Option<config::Alerts>) -> Result<(), Failure> {
    if let Some(settings) = settings {
        alerts(place, rev)?.start(settings);
    }
    Ok(())
}

fn alerts(place: &Place, rev: &str) -> Result<Alerts, Failure> {
    Ok(Alerts { fleet: place.published()?, rev: rev.to_owned(), home: place.home()?, threads: threads() })
}

fn list(place: &Place, args: &ListArgs) -> Result<u8, Failure> {
    let alerts = alerts(place, "HEAD")?;
    let (_, firing) = alerts.look(Timestamp::now())?;
    let receivers: BTreeMap<_, _> = match place.config()?.alerts {
        Some(settings) => alerts.told(&settings)?.into_iter().collect(),
        None => BTreeMap::new(),
    };
    let known = |key: &str| {
        let each = receivers.iter().filter_map(|(name, told)| Some((name, told.as_ref()?.alerts.get(key)?)));
        each.collect::<BTreeMap<_, _>>()
    };
    let mut rows = vec![["ALERT", "ABOUT", "TOLD", "WHY"].map(str::to_owned)];
    rows.extend(firing.iter().map(|(key, alert)| {
        let how = |(name, known): (&&String, &&Known)| {
            if known.told { name.to_string() } else { format!("{name} (pending)") }
        };
        let told = known(key).iter().map(how).collect::<Vec<_>>().join(", ");
        [alert.alert.to_string(), alert.subject.clone(), told, alert.message.clone()]
    }));
    let text = if firing.is_empty() { "nothing fires\n".to_owned() } else { table(&rows) };
    args.output.print(&text, || {
        let each = firing.iter().map(|(key, alert)| {
            let told = known(key).into_iter().map(|(name, known)| (name, json!({"since": known.since, "told": known.told})));
            json!({ "alert": alert.alert, "subject": alert.subject, "device": alert.device, "deployment": alert.deployment,
                "rollout": alert.rollout, "message": alert.message, "receivers": told.collect::<BTreeMap<_, _>>() })
        });
        json!({ "alerts": each.collect::<Vec<_>>() })
    });
    Ok(0)
}

fn test(place: &Place, args: &TestArgs) -> Result<u8, Failure> {
    // Without it nobody knows the receivers.
    place.home()?.check()?;
    let settings = place.config()?.alerts;
    let receivers = settings.map(|settings| settings.receivers).unwrap_or_default();
    let Some(receiver) = receivers.get(&args.receiver) else {
        let known: Vec<_> = receivers.keys().map(String::as_str).collect();
        let failure = Failure::new(format!("publisher.yaml has no receiver `{}`", args.receiver));
        return Err(failure.hint(match &known[..] {
            [] => "name some in its section `alerts:`; docs/alerts.md says how".to_owned(),
            known => format!("it has {}", known.join(", ")),
        }));
    };
    let rosters = Control::read_rosters(&place.home()?)?;
    alerts::test(rosters.fleet(), &args.receiver, receiver, Timestamp::now())?;
    let text = format!("{} took a test event\n", args.receiver);
    args.output.print(&text, || json!({ "receiver": args.receiver, "taken": true }));
    Ok(0)
}
