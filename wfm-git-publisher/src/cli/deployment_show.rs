//! `deployment show`.

use std::collections::BTreeMap;

use repo_model::report::ConditionType;
use repo_model::{DeploymentName, DeviceId, text};
use serde_json::{Value, json};

use super::grouped::grouped;
use super::status::{Asked, Seen};
use super::{AtRevision, Place, table};
use crate::error::{Failure, USER};
use crate::fleet::{Deployment, counted};
use crate::rollout::RolloutState;
use crate::status::{Counts, DeploymentRow, DeviceStatus, Health, rollouts};

/// Shows how a deployment is on all of its devices: by version, how many are how, and what differs
///
/// Devices are judged as in `status`, by what they verifiably say. VERSION is the one that the fleet means for them; DESIRED are the
/// revisions of the components in their `desired`, which another version stands in for as long as a rollout holds the change back.
/// Where a restart is asked for, a line says how many devices have done it, by their own word. Below stand those that aren't ready,
/// who are so for the same reason in one line.
///
///   wfm-git-publisher deployment show hello
///   wfm-git-publisher deployment show hello press-01 --output json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct ShowArgs {
    /// The deployment's id
    id: DeploymentName,

    /// Only these devices, by id; all that have it where none is named
    devices: Vec<DeviceId>,

    /// Ask no remote host: show what was fetched from it before
    #[arg(long)]
    cached: bool,

    #[command(flatten)]
    at: AtRevision,
}

pub(super) fn run(place: &Place, args: &ShowArgs) -> Result<u8, Failure> {
    let asked = Asked { devices: &args.devices, selector: None, rev: &args.at.rev, cached: args.cached };
    let seen = asked.see(place)?;
    let unknown = super::print_unknown(&args.devices, seen.all.iter().map(|status| &status.device));
    let open = open_rollouts(place, &args.id)?;
    let shown = Shown::of(&seen, &args.id, &open)?;
    args.at.output.print(&shown.text(), || shown.json());
    Ok(if unknown { USER } else { 0 })
}

/// What `deployment show` says for programs, of these devices or of all, at the newest commit.
pub(super) fn told(place: &Place, id: &DeploymentName, devices: &[DeviceId], cached: bool) -> Result<Value, Failure> {
    let seen = Asked { devices, selector: None, rev: "HEAD", cached }.see_unnoted(place)?;
    Ok(Shown::of(&seen, id, &open_rollouts(place, id)?)?.json())
}

/// The rollouts that bring a change of the deployment.
fn open_rollouts(place: &Place, id: &DeploymentName) -> Result<Vec<RolloutState>, Failure> {
    let open = rollouts(&place.home()?)?.open.into_values().map(|record| record.state);
    Ok(open.filter(|one| one.deployments.contains(id)).collect())
}

/// A deployment on the devices that were asked for, at one commit of the fleet.
struct Shown<'a> {
    deployment: &'a Deployment,
    open: &'a [RolloutState],
    versions: Vec<Version<'a>>,
    all: Vec<One<'a>>,
}

impl<'a> Shown<'a> {
    fn of(seen: &'a Seen, id: &DeploymentName, open: &'a [RolloutState]) -> Result<Self, Failure> {
        let deployment = seen.fleet.deployments.get(id).ok_or_else(|| {
            let failure = Failure::missing(format!("there is no usable deployment `{id}` in the fleet"));
            failure.hint("correct the id, or see `validate`")
        })?;
        let one = |status: &'a DeviceStatus| {
            let device = seen.fleet.devices.get(&status.device).filter(|device| device.is_enrolled());
            let version =
                device.filter(|device| deployment.is_for(device)).map(|device| version(deployment.on(device)));
            One::of(status, id, version)
        };
        let all: Vec<_> = seen.all.iter().filter_map(one).collect();
        Ok(Self { deployment, open, versions: versions(&all), all })
    }

    fn json(&self) -> Value {
        let Self { deployment, open, versions, all } = self;
        json!({
            "deployment": deployment.id,
            "file": deployment.place.file,
            "application": deployment.application.description.id,
            "version": deployment.application.description.version,
            "suspended": deployment.suspended,
            "rollouts": open.iter().map(|one| one.rollout).collect::<Vec<_>>(),
            "versions": versions.iter().map(Version::json).collect::<Vec<_>>(),
            "devices": all.iter().map(One::json).collect::<Vec<_>>(),
        })
    }
}

fn version(deployment: &Deployment) -> &str {
    &deployment.application.description.version
}

/// The deployment on one device.
struct One<'a> {
    device: &'a DeviceId,
    /// The version that the fleet means for it; absent if the device shall have it no more.
    version: Option<&'a str>,
    /// Absent where its `desired` hasn't it and it doesn't report it.
    row: Option<&'a DeploymentRow>,
    health: Health,
    why: &'a str,
    /// Why its site doesn't let it be restarted, by the device's own word; absent where nothing of that kind is refused.
    refused: Option<&'a str>,
}

impl<'a> One<'a> {
    /// `None` if it neither is for the device nor was.
    fn of(status: &'a DeviceStatus, id: &DeploymentName, version: Option<&'a str>) -> Option<Self> {
        let row = status.deployments.iter().find(|row| row.deployment == id.as_str());
        let blocked = status.blocked.iter().find(|one| one.deployment.as_ref().is_none_or(|name| name == id));
        let health = row.map_or_else(
            || if blocked.is_some() { Health::NotPublishable } else { Health::Updating },
            |row| row.health,
        );
        let why = blocked.map(|one| &*one.message).or_else(|| row?.reason.as_deref());
        let why = why.unwrap_or(if row.is_some() { "" } else { "not published" });
        let is_there = version.is_some() || row.is_some_and(|row| row.health != Health::Ready || row.desired.is_some());
        let mut refused = status.conditions.iter().filter(|one| one.kind == ConditionType::RequestRefused.as_str());
        let of_this = format!(" of `{id}` ");
        let refused = refused.find(|one| one.message.contains(&of_this)).map(|one| &*one.message);
        is_there.then_some(Self { device: &status.device, version, row, health, why, refused })
    }

    fn desired(&self) -> Option<&'a str> {
        self.row?.desired.as_deref()
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "device": self.device, "version": self.version, "health": self.health, "why": self.why,
            "refused": self.refused, "row": self.row,
        })
    }
}

/// The devices for which one version is meant, and that have the same of it in their `desired`.
struct Version<'a> {
    version: Option<&'a str>,
    desired: Option<&'a str>,
    health: Counts,
}

impl Version<'_> {
    fn json(&self) -> serde_json::Value {
        let Self { version, desired, health } = self;
        json!({ "version": version, "desired": desired, "devices": health.total(), "health": health })
    }
}

fn versions<'a>(all: &[One<'a>]) -> Vec<Version<'a>> {
    let mut versions: BTreeMap<_, Counts> = BTreeMap::new();
    for one in all {
        versions.entry((one.version, one.desired())).or_default().add(one.health);
    }
    versions.into_iter().map(|((version, desired), health)| Version { version, desired, health }).collect()
}

impl Shown<'_> {
    fn text(&self) -> String {
        let Self { deployment, open, versions, all } = self;
        let application = &deployment.application.description;
        let suspended = if deployment.suspended { ", suspended" } else { "" };
        let mut page =
            format!("{}: {}@{}{suspended}\n", deployment.id, application.id, text::line(&application.version));
        page += &format!("{}\n", text::line(&deployment.place.file));
        page.extend(open.iter().map(|one| format!("Rollout {} ({})\n", one.rollout, one.state.as_str())));
        page += &restarts(all);
        let row = |one: &Version<'_>| {
            let version = one.version.unwrap_or("(gone)").to_owned();
            let desired = one.desired.unwrap_or("-").to_owned();
            [version, desired, one.health.total().to_string(), one.health.to_string()]
        };
        let head = ["VERSION", "DESIRED", "DEVICES", "HEALTH"].map(str::to_owned);
        page += &format!("\n{}", table(&std::iter::once(head).chain(versions.iter().map(row)).collect::<Vec<_>>()));
        let rest = all.iter().filter(|one| one.health != Health::Ready);
        let rest = grouped(rest.map(|one| (one.health, one.why, one.device)));
        if rest.is_empty() { page } else { format!("{page}\n{rest}") }
    }
}

/// How many devices have done the restart that is asked for; nothing where none is.
fn restarts(all: &[One<'_>]) -> String {
    let asked = all.iter().filter_map(|one| one.row?.restarts).filter(|one| one.asked > 0);
    let (done, asked) = asked.fold((0, 0), |(done, all), one| (done + usize::from(one.is_done()), all + 1));
    if asked == 0 { String::new() } else { format!("Restart: done on {done} of {}\n", counted(asked)) }
}
