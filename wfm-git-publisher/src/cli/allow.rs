//! `allow`.

use std::collections::{BTreeMap, BTreeSet};

use repo_model::{DeploymentName, DeviceId};
use serde::Deserialize;
use serde_json::json;

use super::{OutputArgs, Place, asked, questions};
use crate::error::Failure;
use crate::fleet::{Allowance, AllowedOnDevice};
use crate::operator::{AllowanceSaid, FleetHost, allow};
use crate::plan::{Allowed, Code, to_json};
use crate::publish;
use crate::repos::Registries;

/// Lets pass once what a guard holds back: that these deployments go, or take the place of others
///
/// Writes what the guard holds now into a file of its own, allowed/….yaml: the devices, each with the serial that it has, and these
/// deployments. Commits that; what signers.yaml says of `allowed/**` counts. The next `publish` lets it pass. It counts for the
/// state that each device has now, so once, and for nothing that the fleet takes away later: that is held again.
///
/// In a clone of a hosted fleet the host is asked what it is that guards hold, after `login`, and `git push` brings the commit.
/// `plan` shows what guards hold, and what a person let pass.
///
///   wfm-git-publisher allow greeter -m "line 2 is given up"
///   wfm-git-publisher allow greeter --device press-01 -m "moved to press-02"
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The deployments, by their ids as `plan` shows them
    #[arg(required = true)]
    deployments: Vec<DeploymentName>,

    /// Only on these devices, by id; may be given again. By default wherever a guard holds it
    #[arg(long = "device", value_name = "ID")]
    devices: Vec<DeviceId>,

    /// Why, for whoever reads the history
    #[arg(short = 'm', long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    reason: String,

    #[command(flatten)]
    output: OutputArgs,
}

/// What a plan says of all devices, as far as guards are concerned.
#[derive(Debug, Deserialize)]
struct Planned {
    devices: Vec<PlannedDevice>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlannedDevice {
    device: DeviceId,
    #[serde(default)]
    serial: Option<u64>,
    #[serde(default)]
    deployments: Vec<PlannedChange>,
    #[serde(default)]
    held_back: Vec<PlannedChange>,
}

#[derive(Debug, Deserialize)]
struct PlannedChange {
    change: String,
    deployment: DeploymentName,
    replaces: Option<DeploymentName>,
    #[serde(default)]
    guard: Option<Code>,
    #[serde(default)]
    allowed: bool,
}

pub(super) fn run(place: &Place, args: &Args) -> Result<u8, Failure> {
    let Args { deployments, devices, reason, output } = args;
    let (wanted, only) = (deployments.iter().collect(), devices.iter().collect());
    let devices = held(planned(place)?, &wanted, &only)?;
    let allowance = Allowance { reason: Some(reason.clone()), devices };
    let AllowanceSaid { file, was_there } = allow(&place.work_tree()?, &allowance)?;
    let said = if was_there { "says so already" } else { "says so now" };
    let lines = allowance.devices.iter().map(|(device, allowed)| {
        let names: Vec<_> = allowed.deployments.iter().map(ToString::to_string).collect();
        format!("  {device}, after serial {}: {}\n", allowed.serial, names.join(", "))
    });
    let text = format!("{file} {said}: this passes once\n{}{}", lines.collect::<String>(), place.next_push()?);
    output.print(&text, || {
        json!({
            "file": file,
            "wasThere": was_there,
            "reason": allowance.reason,
            "devices": allowance.devices,
        })
    });
    Ok(0)
}

/// The plan of what is published, here or as the host tells it.
fn planned(place: &Place) -> Result<Planned, Failure> {
    let home = place.home()?;
    if home.check_ledger().is_err()
        && let Some(host) = FleetHost::of_clone(&place.root()?)?
    {
        let said = asked::ask(&host, &questions::plan())?;
        eprintln!("note: asked {}", host.url());
        return asked::read(&said);
    }
    let registries = Registries::new(Default::default());
    let planned = super::with_options(&registries, None, &[], Allowed::default(), |options| {
        publish::plan(&home, &place.published_source()?, "HEAD", &options).map_err(Failure::from)
    })?;
    let devices = to_json(&planned.devices);
    serde_json::from_value(json!({ "devices": devices })).map_err(|error| Failure::new(error.to_string()))
}

impl PlannedChange {
    /// Whether a guard holds back that it goes or takes the place of another one, or would if nobody had let it pass.
    fn is_guarded(&self) -> bool {
        let is_by_guard = matches!(self.guard, Some(Code::RemovalsGuarded | Code::ReplacementGuarded));
        (is_by_guard || self.allowed) && (self.change == "remove" || self.replaces.is_some())
    }

    fn is_named(&self, names: &BTreeSet<&DeploymentName>) -> bool {
        names.contains(&self.deployment) || self.replaces.as_ref().is_some_and(|old| names.contains(old))
    }
}

/// What guards hold of these deployments, on these devices or on all, with what is replaced or replaces it.
fn held(
    planned: Planned,
    wanted: &BTreeSet<&DeploymentName>,
    only: &BTreeSet<&DeviceId>,
) -> Result<BTreeMap<DeviceId, AllowedOnDevice>, Failure> {
    let hint = "`plan` shows what guards hold back, and on which devices";
    let mut all = BTreeMap::new();
    for PlannedDevice { device, serial, deployments, held_back } in planned.devices {
        let guarded = deployments.iter().chain(&held_back).filter(|one| one.is_guarded());
        let (meant, others): (Vec<_>, Vec<_>) = guarded.partition(|one| one.is_named(wanted));
        let Some(serial) = serial.filter(|_| !meant.is_empty() && (only.is_empty() || only.contains(&device))) else {
            continue;
        };
        let deployments: BTreeSet<_> =
            meant.iter().flat_map(|one| [Some(&one.deployment), one.replaces.as_ref()]).flatten().cloned().collect();
        let goes_too =
            |one: &&&PlannedChange| one.guard == Some(Code::RemovalsGuarded) && !deployments.contains(&one.deployment);
        if let Some(other) = others.iter().find(goes_too) {
            let failure = Failure::new(format!("`{}` would go from `{device}`, too", other.deployment));
            return Err(
                failure.hint("a guard lets pass all that goes from a device, or nothing: name it, or other devices")
            );
        }
        all.insert(device, AllowedOnDevice { serial, deployments });
    }
    let is_held = |name: &DeploymentName| all.values().any(|allowed| allowed.deployments.contains(name));
    if let Some(name) = wanted.iter().find(|name| !is_held(name)) {
        return Err(Failure::new(format!("no guard holds `{name}` back")).hint(hint));
    }
    if let Some(device) = only.iter().find(|device| !all.contains_key(**device)) {
        return Err(Failure::new(format!("no guard holds any of that back on `{device}`")).hint(hint));
    }
    Ok(all)
}
