//! `deployment show`.

use std::collections::BTreeMap;
use std::fmt;

use repo_model::report::ConditionType;
use repo_model::{DeploymentName, DeviceId, text};
use serde_json::{Value, json};

use super::grouped::grouped;
use super::status::{Asked, Seen};
use super::{AtRevision, Place, table};
use crate::error::{Failure, USER};
use crate::fleet::{Deployment, counted};
use crate::rollout::RolloutState;
use crate::status::{Apart, Counts, DeploymentRow, DeviceStatus, Health, Membership, rollouts};

/// Shows how a deployment is on all of its devices: by version, how many are how, and what differs
///
/// Devices are judged as in `status`, by what they verifiably say. VERSION is the one that the fleet means for them; DESIRED are the
/// revisions of the components in their `desired`, which another version stands in for as long as a rollout holds the change back.
/// Where a restart is asked for, a line says how many devices have done it, by their own word. Below stand those that aren't ready,
/// who are so for the same reason in one line. Devices that aren't enrolled, are retired or left the fleet are counted apart.
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
            let device = seen.fleet.devices.get(&status.device).filter(|device| deployment.is_for(device));
            let version = device.map(|device| version(deployment.on(device)));
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
    membership: Membership,
    /// How it is, where it is in service.
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
        let is_expected = row.is_none() && status.membership == Membership::Enrolled;
        let why = why.unwrap_or(if is_expected { "not published" } else { "" });
        let is_there = version.is_some() || row.is_some_and(|row| row.health != Health::Ready || row.desired.is_some());
        let mut refused = status.conditions.iter().filter(|one| one.kind == ConditionType::RequestRefused.as_str());
        let of_this = format!(" of `{id}` ");
        let refused = refused.find(|one| one.message.contains(&of_this)).map(|one| &*one.message);
        is_there.then_some(Self {
            device: &status.device,
            version,
            row,
            membership: status.membership,
            health,
            why,
            refused,
        })
    }

    /// Those in service stand before all others, whose health isn't told.
    fn state(&self) -> State {
        self.membership.out_of_service().map_or(State::Health(self.health), State::OutOfService)
    }

    fn desired(&self) -> Option<&'a str> {
        self.row?.desired.as_deref()
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "device": self.device, "version": self.version, "membership": self.membership, "health": self.health,
            "why": self.why, "refused": self.refused, "row": self.row,
        })
    }
}

/// What is said of a device in one word, the worst last.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum State {
    OutOfService(&'static str),
    Health(Health),
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfService(how) => how,
            Self::Health(health) => health.as_str(),
        })
    }
}

/// The devices for which one version is meant, and that have the same of it in their `desired`.
struct Version<'a> {
    version: Option<&'a str>,
    desired: Option<&'a str>,
    counts: Counted,
}

/// How many of them are how.
#[derive(Default)]
struct Counted {
    health: Counts,
    apart: Apart,
}

impl Version<'_> {
    fn json(&self) -> serde_json::Value {
        let Self { version, desired, counts: Counted { health, apart } } = self;
        json!({
            "version": version, "desired": desired, "devices": health.total(), "health": health,
            "notEnrolled": apart.not_enrolled, "retired": apart.retired,
        })
    }
}

fn versions<'a>(all: &[One<'a>]) -> Vec<Version<'a>> {
    let mut versions: BTreeMap<_, Counted> = BTreeMap::new();
    for one in all {
        let counts = versions.entry((one.version, one.desired().is_none(), one.desired())).or_default();
        match one.membership {
            Membership::Enrolled => counts.health.add(one.health),
            membership => counts.apart.add(membership),
        }
    }
    versions.into_iter().map(|((version, _, desired), counts)| Version { version, desired, counts }).collect()
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
            let Counted { health, apart } = &one.counts;
            let how = [health.to_string(), apart.to_string()].into_iter().filter(|one| !one.is_empty());
            [version, desired, health.total().to_string(), how.collect::<Vec<_>>().join("; ")]
        };
        let head = ["VERSION", "DESIRED", "DEVICES", "HEALTH"].map(str::to_owned);
        page += &format!("\n{}", table(&std::iter::once(head).chain(versions.iter().map(row)).collect::<Vec<_>>()));
        let rest = all.iter().filter(|one| one.health != Health::Ready || one.membership != Membership::Enrolled);
        let rest = grouped(rest.map(|one| (one.state(), one.why, one.device)));
        if rest.is_empty() { page } else { format!("{page}\n{rest}") }
    }
}

/// How many devices have done the restart that is asked for; nothing where none is.
fn restarts(all: &[One<'_>]) -> String {
    let all = all.iter().filter(|one| one.membership == Membership::Enrolled);
    let asked = all.filter_map(|one| one.row?.restarts).filter(|one| one.asked > 0);
    let (done, asked) = asked.fold((0, 0), |(done, all), one| (done + usize::from(one.is_done()), all + 1));
    if asked == 0 { String::new() } else { format!("Restart: done on {done} of {}\n", counted(asked)) }
}
