//! `device show`.

use jiff::Timestamp;
use repo_git::PublicKey;
use repo_model::{DeviceId, KeyText, text};
use serde_json::json;
use wfm_git_host::accounts::{Account, AccountName, Store};

use super::account::state;
use super::status::{Asked, blocked_table, remarks, shown_age};
use super::{AtRevision, Place, table};
use crate::error::Failure;
use crate::fleet::{Device, Fleet};
use crate::publish::Findings;
use crate::repos::Home;
use crate::status::{DeviceStatus, DeviceView, Membership, RolloutPlace, view};

/// Shows all there is to say of one device: what is wanted, what runs and since when, and who it is
///
/// What it says itself counts as far as signatures prove it, as in `status`; SINCE is by its own clock. Keys are those of its file
/// in the fleet, by their fingerprints.
///
///   wfm-git-publisher device show press-01
///   wfm-git-publisher device show press-01 --output json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct ShowArgs {
    /// The device, by its id such as `press-01`
    id: DeviceId,

    /// Ask no remote host: show what was fetched from it before
    #[arg(long)]
    cached: bool,

    #[command(flatten)]
    at: AtRevision,
}

/// What is shown.
struct Shown<'a> {
    fleet: &'a Fleet,
    /// Its file; absent if it is in the fleet no more, or its file can't be read.
    device: Option<&'a Device>,
    status: &'a DeviceStatus,
    view: DeviceView,
    account: Option<Account>,
    now: Timestamp,
}

pub(super) fn run(place: &Place, args: &ShowArgs) -> Result<u8, Failure> {
    let (home, now, devices) = (place.home()?, Timestamp::now(), [args.id.clone()]);
    let seen = Asked { devices: &devices, selector: None, rev: &args.at.rev, cached: args.cached }.see(place)?;
    let status = seen.all.first().ok_or_else(|| unknown(&args.id))?;
    let device = seen.fleet.device(&args.id);
    let view = view(&home, device, status)?;
    let account = account(&home, &args.id);
    let shown = Shown { fleet: &seen.fleet, device, status, view, account, now };
    let text = shown.text() + &blocked_table(Findings::read(&home).of_each().chain(&status.blocked));
    args.at.output.print(&text, || shown.json());
    Ok(0)
}

/// There is no such device.
pub(super) fn unknown(device: &DeviceId) -> Failure {
    Failure::missing(format!("there is no device `{device}` in the fleet"))
        .hint("`device list` lists those that there are")
}

/// The device's account on this host; `None` if it has none, or that can't be read.
fn account(home: &Home, device: &DeviceId) -> Option<Account> {
    let account = Store::new(home.accounts()).read(&AccountName::of(device)).ok()??;
    (account.device.as_ref() == Some(device)).then_some(account)
}

/// The fingerprints of keys; of one that isn't of a known kind its text.
fn fingerprints(keys: &[KeyText]) -> Vec<String> {
    let of =
        |key: &KeyText| key.to_string().parse::<PublicKey>().map_or_else(|_| key.to_string(), |key| key.fingerprint());
    keys.iter().map(of).collect()
}

impl Shown<'_> {
    /// The groups of the fleet that mean the device.
    fn groups(&self) -> Vec<&str> {
        let groups = self.fleet.settings.groups.iter();
        let of =
            |device: &Device| groups.filter(|group| group.when.selects(device)).map(|group| &*group.name).collect();
        self.device.map(of).unwrap_or_default()
    }

    fn json(&self) -> serde_json::Value {
        let device = self.device;
        json!({
            "device": self.status.device,
            "file": device.map(|device| &device.file),
            "labels": device.map(|device| &device.labels),
            "groups": self.groups(),
            "suspended": device.map(|device| device.suspended),
            "statusKeys": device.map(|device| fingerprints(&device.status_keys)),
            "sshKeys": device.map(|device| fingerprints(&device.ssh_keys)),
            "token": device.and_then(|device| device.enrolled_by.as_ref()).map(|by| &by.token),
            "account": self.account.as_ref().map(|one| json!({ "name": one.name, "state": state(one, self.now) })),
            "rollouts": self.view.rollouts,
            "since": self.view.since,
            "status": self.status,
        })
    }

    fn text(&self) -> String {
        let line = |name: &str, what: String| format!("{:<12}{}\n", format!("{name}:"), text::line(&what));
        let status = self.status;
        let heard = status.heard_age.map_or_else(|| "never".to_owned(), |age| format!("{} ago", shown_age(age)));
        let serial = |serial: Option<u64>| serial.map_or_else(|| "none".to_owned(), |serial| serial.to_string());
        let how = status.membership.out_of_service().unwrap_or(status.health.as_str());
        let mut page = format!("{}: {how}\n", status.device);
        page += &line("last heard", heard);
        let (wanted, accepted) = (serial(status.desired_serial), serial(status.adopted_serial));
        page += &line("serial", format!("{wanted} published, {accepted} accepted"));
        if let Some(device) = self.device {
            let labels: Vec<_> = device.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let token = device.enrolled_by.as_ref().map(|by| format!(", by the token {}", by.token));
            let keys = [
                ("labels", labels),
                ("groups", self.groups().into_iter().map(str::to_owned).collect()),
                ("key", fingerprints(&device.status_keys)),
                ("SSH key", fingerprints(&device.ssh_keys)),
            ];
            page += &line("file", device.file.clone() + &token.unwrap_or_default());
            page.extend(keys.iter().filter(|(_, all)| !all.is_empty()).map(|(name, all)| line(name, all.join(", "))));
        }
        page.extend(self.account.iter().map(|one| line("account", format!("{}, {}", one.name, state(one, self.now)))));
        page.extend(self.view.rollouts.iter().map(|one| line("rollout", place_in(one))));
        let rows: Vec<_> = self.rows().collect();
        if !rows.is_empty() {
            let head = ["DEPLOYMENT", "HEALTH", "DESIRED", "ACTUAL", "STATE", "SINCE", "REASON"].map(str::to_owned);
            page += &format!("\n{}", table(&std::iter::once(head).chain(rows).collect::<Vec<_>>()));
        }
        let remarks: Vec<_> = remarks(status).iter().map(|one| text::line(one) + "\n").collect();
        if remarks.is_empty() { page } else { page + "\n" + &remarks.concat() }
    }

    fn rows(&self) -> impl Iterator<Item = [String; 7]> {
        let dash = || "-".to_owned();
        let is_in_service = self.status.membership == Membership::Enrolled;
        self.status.deployments.iter().map(move |row| {
            let since = self.view.since.get(&row.deployment_id);
            [
                row.deployment.clone(),
                if is_in_service { row.health.to_string() } else { dash() },
                row.desired.clone().unwrap_or_else(|| "(gone)".to_owned()),
                row.actual.clone().unwrap_or_else(dash),
                row.state.clone().unwrap_or_else(dash),
                since.map_or_else(dash, |since| format!("{:.0}", since.time)),
                row.reason.clone().unwrap_or_default(),
            ]
        })
    }
}

/// What a rollout does with the device.
fn place_in(one: &RolloutPlace) -> String {
    let how = match one.released {
        Some(at) if one.wave == 0 => format!("counts in its budget, because of what came to it at {at:.0}"),
        Some(at) => format!("released at {at:.0} with wave {} of {}", one.wave, one.last_wave),
        None => format!("holds it back, for wave {} of {}", one.wave, one.last_wave),
    };
    format!("{} ({}): {how}", one.rollout, one.state.as_str())
}
