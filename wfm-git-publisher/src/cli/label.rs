//! `device label`.

use std::collections::BTreeMap;
use std::str::FromStr;

use clap_complete::engine::ArgValueCompleter;
use repo_model::DeviceId;
use serde_json::json;

use super::{OutputArgs, Place, completions, meant};
use crate::error::Failure;
use crate::fleet;
use crate::operator::deploy::Target;
use crate::operator::{LabelChanges, Labelled, label};
use crate::repos::work_tree;

/// Gives devices labels, or takes them away
///
/// Writes them into the devices' files, comments stay, and commits that: one commit for all devices. `NAME-` takes a label away. A
/// label that a device has with another value is changed with --overwrite only. Nothing is written unless it can be done for all
/// of them. What a label's change means for each device, `plan` shows.
///
///   wfm-git-publisher device label press-01 shift=late ring=canary
///   wfm-git-publisher device label press-01 ring-
///   wfm-git-publisher device label -l site=graz shift=early --overwrite
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct LabelArgs {
    /// Devices by their ids, and labels as NAME=VALUE, or NAME- to take one away
    #[arg(required = true, value_name = "ID|NAME=VALUE|NAME-", add = ArgValueCompleter::new(completions::devices))]
    words: Vec<String>,

    /// All devices with these labels, as site=graz,line in (1,2)
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<Target>,

    /// Change what a label is now
    #[arg(long)]
    overwrite: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// One of the words: a device, or what becomes of a label.
enum Word {
    Device(DeviceId),
    Label(String, Option<String>),
}

impl FromStr for Word {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match (word.split_once('='), word.strip_suffix('-')) {
            (Some((name, value)), _) => Ok(Self::Label(name.to_owned(), Some(value.to_owned()))),
            (None, Some(name)) => Ok(Self::Label(name.to_owned(), None)),
            (None, None) => word.parse().map(Self::Device).map_err(|error| format!("`{word}`: {error}")),
        }
    }
}

pub(super) fn run(place: &Place, args: &LabelArgs) -> Result<u8, Failure> {
    let root = place.work_tree()?;
    let (mut devices, mut changes) = (Vec::new(), LabelChanges::new());
    for word in &args.words {
        match word.parse().map_err(Failure::new)? {
            Word::Device(device) => devices.push(device),
            Word::Label(name, value) => _ = changes.insert(name, value),
        }
    }
    if changes.is_empty() {
        return Err(Failure::new("no label is named").hint("give it as NAME=VALUE, or as NAME- to take it away"));
    }
    if let Some(target) = &args.selector {
        let reading = fleet::read(&work_tree(&root)?);
        let is_meant = meant(Some(target))?;
        let all = reading.fleet.iter().flat_map(|fleet| fleet.devices.values());
        devices.extend(all.filter(|device| is_meant(device)).map(|device| device.id.clone()));
    }
    devices.sort();
    devices.dedup();
    if devices.is_empty() {
        return Err(match &args.selector {
            Some(selector) => Failure::new(format!("no device has the labels {selector}")),
            None => Failure::new("no device is named").hint("name them by their ids, or with -l site=graz"),
        });
    }
    let done = label(&root, &devices, &changes, args.overwrite)?;
    let said = |one: &Labelled| {
        let what = if one.was_there { "is labelled so already" } else { "is labelled" };
        format!("{} {what} ({})\n", one.device, one.file)
    };
    let text = done.iter().map(said).collect::<String>() + place.next_push()?;
    args.output.print(&text, || {
        let shown = |one: &Labelled| json!({ "device": one.device, "file": one.file, "wasThere": one.was_there });
        let labels: BTreeMap<_, _> = changes.iter().collect();
        json!({ "labels": labels, "devices": done.iter().map(shown).collect::<Vec<_>>() })
    });
    Ok(0)
}
