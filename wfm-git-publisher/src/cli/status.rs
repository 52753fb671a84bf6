//! `status`.

mod groups;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;
use repo_git::CommitId;
use repo_model::report::{ClosedGate, Doubt, SeenList};
use repo_model::site::SiteWord;
use repo_model::{DeviceId, Digest, ErrorCode, FleetId, error_chain};
use serde::{Deserialize, Serialize};
use serde_json::json;
use wfm_git_host::ca;

use self::groups::Group;
use super::grouped::named;
use super::{Output, Place, Progress, asked, pause, questions, threads};
use crate::error::{Failure, USER};
use crate::fleet::{Fleet, counted};
use crate::operator::Answer;
use crate::operator::deploy::Target;
use crate::plan::Blocked;
use crate::publish::{Findings, check_clock};
use crate::repos::{Control, Ledger, Rosters};
use crate::rollout::Waits;
use crate::status::{
    DeviceStatus, Membership, RolloutPlace, SiteStatus, Summary, UNREACHABLE, Usable, fetch, read, waiting,
};

/// Shows what runs where, as far as signatures prove it
///
/// Per device and deployment: how it is in one word, what is desired, what the device sees running, Margo's state, the reason, and how old the
/// news is. Only reports signed by a key that the device's verified desired state allows are believed; others, and
/// whatever a signed report says that can't be so, are shown as doubts with a word and the reason. With a remote host in
/// publisher.yaml the reports are fetched from there; what can't be fetched is a doubt, too, and what was fetched before
/// is shown. Where persons of a site are asked, what waits for them stands by the name that a word for it needs, and what
/// they said from elsewhere, as far as the device believes it. What the last publish could not publish stands below, with its code, since when, and what to do.
///
///   wfm-git-publisher status
///   wfm-git-publisher status press-01 --output json
///
/// HEALTH is the first of these that is so: doubtful (can't be believed or read), unknown (never said anything), offline (said
/// nothing for longer than it may), failed, crash-looping (ends, and is started again, again and again), degraded (installed, and
/// doesn't run well), not-publishable, suspended, held (by its site), waiting (for its time, a person or another deployment),
/// updating, ready (docs/status.md says of each what to do). A device is what the worst of its deployments is. A line below sums up
/// all devices that were asked for, whichever are shown; others say for how many a rollout holds a change back, and how many wait
/// to be enrolled:
///
///   wfm-git-publisher status --failed
///   wfm-git-publisher status -l site=graz --stale
///   wfm-git-publisher status --group-by site
///   wfm-git-publisher status --group-by version
///
/// With --watch it goes on, and shows each device again whenever something of it changes; with --failed or --stale also once it is
/// none of those any more. Exit code 0 if it can be shown,
/// whatever it shows; with --exit-code 1 unless every device that was asked for is ready, and there is one. Devices that aren't
/// enrolled, are retired or left the fleet count where they are named.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Only these devices, by id; all of the fleet where none is named
    devices: Vec<DeviceId>,

    /// Only devices with these labels, as site=graz,line in (1,2),!spare
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<Target>,

    #[command(flatten)]
    picks: Picks,

    /// Count devices by a label, such as `site`, or by the `application` or `version` that is meant for them
    #[arg(long, value_name = "LABEL", conflicts_with = "watch")]
    group_by: Option<String>,

    /// Go on, and show each device again whenever something of it changes
    #[arg(long)]
    watch: bool,

    /// Exit with 1 unless every device that was asked for is ready, and there is one
    #[arg(long, conflicts_with = "watch")]
    exit_code: bool,

    /// Prints for people, or for programs
    #[arg(long, value_enum, default_value_t)]
    output: Output,

    /// The commit of the fleet
    #[arg(long, default_value = "HEAD")]
    rev: String,

    /// Ask no remote host: show what was fetched from it before
    #[arg(long)]
    cached: bool,
}

/// Which devices are shown of those that were asked for: any, where neither is said.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct Picks {
    /// Only devices that are failed, crash-looping, degraded, not-publishable or doubtful
    #[arg(long)]
    failed: bool,

    /// Only devices that are offline or unknown
    #[arg(long)]
    stale: bool,
}

/// When the operator's own certificate ends; what ends soon is told.
fn certificate(place: &Place) -> Result<Option<Timestamp>, Failure> {
    let Some(path) = place.config()?.serve.and_then(|serve| serve.certificate) else { return Ok(None) };
    let expires = ca::file_expires(&path);
    if let Some(expires) = expires.filter(|expires| *expires < Timestamp::now() + ca::SOON) {
        eprintln!("warning: the host's certificate `{}` ends at {expires}; replace it before that", path.display());
    }
    Ok(expires)
}

/// What there is to say of the devices that were asked for.
pub(super) struct Seen {
    pub(super) fleet: Fleet,
    /// The one that was asked for.
    pub(super) commit: CommitId,
    /// The newest one up to it of which the fleet can be used: it goes by that.
    by: CommitId,
    /// Why that is another one.
    unusable: Option<Blocked>,
    pub(super) control: (Ledger, Rosters),
    pub(super) all: Vec<DeviceStatus>,
}

/// Which devices are looked at, and how.
pub(super) struct Asked<'a> {
    /// All of the fleet where none is named.
    pub(super) devices: &'a [DeviceId],
    pub(super) selector: Option<&'a Target>,
    pub(super) rev: &'a str,
    /// Whether no host is asked.
    pub(super) cached: bool,
}

impl Asked<'_> {
    pub(super) fn see(&self, place: &Place) -> Result<Seen, Failure> {
        self.see_since(place, None)
    }

    /// The same without a word about which commit that is.
    pub(super) fn see_unnoted(&self, place: &Place) -> Result<Seen, Failure> {
        let commit = place.published_source()?.resolve(self.rev)?;
        self.see_since(place, Some(commit))
    }

    /// The same, where what is shown of this commit was noted before.
    fn see_since(&self, place: &Place, noted: Option<CommitId>) -> Result<Seen, Failure> {
        let source = place.published_source()?;
        let commit = source.resolve(self.rev)?;
        if noted != Some(commit) {
            place.note_hosted(self.rev, commit)?;
        }
        let progress = Progress::start("reading the fleet");
        let (home, asks) = (place.home()?, self.filter()?);
        let Usable { fleet, commit: by, unusable } = super::usable_fleet(&home, &source, commit, noted)?;
        let asked = |device: &DeviceId| asks(&fleet, device);
        let unreachable = self.fetch(place, &fleet, &asked, &progress)?;
        progress.at("reading what devices reported");
        let control = Control::read(&home)?;
        let all = read(&home, &control, &fleet, &asked, unreachable, threads(), Timestamp::now());
        Ok(Seen { fleet, commit, by, unusable, control, all })
    }

    /// Tells which devices are asked for.
    pub(super) fn filter(&self) -> Result<impl Fn(&Fleet, &DeviceId) -> bool, Failure> {
        let is_meant = super::meant(self.selector)?;
        Ok(move |fleet: &Fleet, device: &DeviceId| {
            let is_named = self.devices.is_empty() || self.devices.contains(device);
            is_named && fleet.device(device).map_or(self.selector.is_none(), &is_meant)
        })
    }

    /// Fetches what these devices reported where they talk to another host; of which of them that can't be, and why.
    pub(super) fn fetch(
        &self,
        place: &Place,
        fleet: &Fleet,
        asked: &impl Fn(&DeviceId) -> bool,
        progress: &Progress,
    ) -> Result<BTreeMap<DeviceId, Doubt>, Failure> {
        let Some(remotes) = place.remotes()?.filter(|_| !self.cached) else { return Ok(BTreeMap::new()) };
        let devices = fleet.devices.keys().filter(|id| asked(id)).cloned();
        let show = |done, all| progress.show("fetching reports of", "devices", done, all);
        let fetched = fetch(&place.home()?, &remotes, fleet, devices, &show)?;
        let failed = fetched.into_iter().filter_map(|(device, result)| Some((device, result.err()?)));
        Ok(failed.map(|(device, error)| (device, Doubt::new(UNREACHABLE, error_chain(&error)))).collect())
    }
}

impl Args {
    fn see(&self, place: &Place, noted: Option<CommitId>) -> Result<Seen, Failure> {
        let Self { devices, selector, rev, cached, .. } = self;
        Asked { devices, selector: selector.as_ref(), rev, cached: *cached }.see_since(place, noted)
    }
}

impl Picks {
    /// Those that are to be shown.
    fn of(self, all: Vec<DeviceStatus>) -> Vec<DeviceStatus> {
        all.into_iter().filter(|status| self.shows(status)).collect()
    }

    /// Whether a device is one of those to be shown.
    fn shows(self, status: &DeviceStatus) -> bool {
        let is_enrolled = status.membership == Membership::Enrolled;
        let is_any = !self.failed && !self.stale;
        is_any || is_enrolled && (self.failed && status.health.is_failed() || self.stale && status.health.is_stale())
    }
}

/// What is printed for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Page<'a> {
    fleet: FleetId,
    commit: CommitId,
    name: &'a str,
    certificate_expires: Option<Timestamp>,
    publisher_key_ends: Option<Timestamp>,
    clock: Option<String>,
    summary: &'a Summary,
    /// How many devices wait to be enrolled.
    pending: usize,
    /// What rollouts waited for at the last look.
    rollouts: &'a [Waits],
    blocked: &'a [Blocked],
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<&'a [Group]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<&'a [DeviceStatus]>,
}

/// What is shown of devices, and again with `--watch`.
#[derive(Deserialize)]
struct Shown {
    /// Of all that were asked for.
    summary: Summary,
    devices: Vec<DeviceStatus>,
}

/// What is shown below it for people.
#[derive(Deserialize)]
struct Below {
    pending: usize,
    #[serde(default)]
    rollouts: Vec<Waits>,
    blocked: Vec<Blocked>,
}

impl Below {
    fn read(place: &Place, seen: &mut Seen, now: Timestamp) -> Result<Self, Failure> {
        let (home, ledger) = (place.home()?, &seen.control.0);
        let blocked = Findings::read(&home).of_all_with(seen.unusable.take());
        let rollouts = waiting(&home, &ledger.rollouts, now).into_values().collect();
        Ok(Self { pending: super::pending::undecided(&home, now)?, rollouts, blocked })
    }

    /// Whether it says the same, whatever becomes of single devices meanwhile.
    fn is_same(&self, other: &Self) -> bool {
        let reasons =
            |below: &Self| below.rollouts.iter().map(|one| (one.rollout, one.why.clone())).collect::<Vec<_>>();
        self.pending == other.pending && self.blocked == other.blocked && reasons(self) == reasons(other)
    }
}

pub(super) fn run(place: &Place, args: &Args) -> Result<u8, Failure> {
    let (home, mut seen) = (place.home()?, args.see(place, None)?);
    let unknown = super::print_unknown(&args.devices, seen.all.iter().map(|status| &status.device));
    let out_of_service = super::print_out_of_service(&args.devices, args.selector.as_ref(), &seen.all);
    let certificate = certificate(place)?;
    let now = Timestamp::now();
    let (ledger, rosters) = &seen.control;
    let key_ends = super::remind(&home, rosters, now);
    let clock = check_clock(&home, &seen.fleet, ledger, rosters, now);
    if let Some(error) = &clock {
        eprint!("{}", Failure::of(error));
    }
    let below = Below::read(place, &mut seen, now)?;
    let shown = Shown { summary: Summary::of(&seen.all), devices: args.picks.of(seen.all) };
    let groups = args.group_by.as_ref().map(|by| groups::of(&seen.fleet, &shown.devices, by));
    match args.output {
        Output::Json => super::print_json(&Page {
            fleet: seen.fleet.settings.id,
            commit: seen.by,
            name: &seen.fleet.settings.name,
            certificate_expires: certificate,
            publisher_key_ends: key_ends,
            clock: clock.as_ref().map(ToString::to_string),
            summary: &shown.summary,
            pending: below.pending,
            rollouts: &below.rollouts,
            blocked: &below.blocked,
            groups: groups.as_deref(),
            devices: groups.is_none().then_some(&shown.devices),
        }),
        Output::Text => {
            let rows = groups.map_or_else(|| table(&shown.devices), |groups| groups::table(&groups));
            super::print(&page(&rows, &shown, &below));
        }
    }
    if args.watch {
        return watch(place, args, seen.commit, Watched::new(args.picks, shown, below));
    }
    let is_ready = shown.summary.is_ready() && clock.is_none() && !out_of_service;
    Ok(if unknown || args.exit_code && !is_ready { USER } else { 0 })
}

/// What is shown for people, with these rows.
fn page(rows: &str, Shown { summary, devices }: &Shown, Below { pending, rollouts, blocked }: &Below) -> String {
    let blocked = blocked_table(blocked.iter().chain(devices.iter().flat_map(|status| &status.blocked)));
    format!("{rows}\n{}{}{}{blocked}", sum(summary), waits(rollouts), enrolling(*pending))
}

/// A line for each rollout that waits.
fn waits(rollouts: &[Waits]) -> String {
    rollouts.iter().map(|waits| format!("rollout {} {waits}\n", waits.rollout)).collect()
}

/// All devices in one line, and in another one how many of them wait for a rollout, if any do.
fn sum(summary: &Summary) -> String {
    match summary.held_back() {
        0 => format!("{summary}\n"),
        devices => format!("{summary}\nheld back by rollouts: {} (wfm-git-publisher rollout list)\n", counted(devices)),
    }
}

/// Says how many devices wait for a person's word, if any do.
fn enrolling(pending: usize) -> String {
    let shown = || format!("waiting to be enrolled: {} (wfm-git-publisher device pending)\n", counted(pending));
    if pending == 0 { String::new() } else { shown() }
}

/// Shows what changes from now on, until it is interrupted.
fn watch(place: &Place, args: &Args, mut commit: CommitId, mut watched: Watched) -> Result<u8, Failure> {
    loop {
        pause(place, args.cached)?;
        let mut seen = args.see(place, Some(commit))?;
        commit = seen.commit;
        let below = Below::read(place, &mut seen, Timestamp::now())?;
        let now = Shown { summary: Summary::of(&seen.all), devices: seen.all };
        watched.print_new(now, below, args.output);
    }
}

/// Prints what a host answers, and asks it again for what changed: from then on of all devices, because one that is well again is none of
/// those that failed.
pub(super) fn watcher(
    question: &str,
    picks: Picks,
    form: Output,
) -> impl FnMut(&Answer) -> Result<asked::Next, Failure> {
    let (question, mut watched) = (questions::without(question, &["failed", "stale"]), None::<Watched>);
    move |answer| {
        let (shown, below) = (asked::read::<Shown>(answer)?, asked::read::<Below>(answer)?);
        match (&mut watched, form) {
            (Some(watched), form) => watched.print_new(shown, below, form),
            (None, form) => {
                match form {
                    Output::Json => super::print_json_text(&answer.output),
                    Output::Text => super::print(&page(&table(&shown.devices), &shown, &below)),
                }
                watched = Some(Watched::new(picks, shown, below));
            }
        }
        Ok(asked::Next::Continue(question.clone()))
    }
}

/// What whoever watches was shown last.
struct Watched {
    picks: Picks,
    /// Without ages.
    devices: BTreeMap<DeviceId, DeviceStatus>,
    below: Below,
}

impl Watched {
    fn new(picks: Picks, shown: Shown, below: Below) -> Self {
        let timeless = |status: DeviceStatus| (status.device.clone(), status.without_ages());
        Self { picks, devices: shown.devices.into_iter().map(timeless).collect(), below }
    }

    /// Prints of all devices those of which something else is so than before, also where that is why they are none of those that are
    /// picked any more; which ones aren't asked for any more; and what is below, if that is something else.
    fn print_new(&mut self, Shown { summary, devices }: Shown, below: Below, form: Output) {
        let left: BTreeSet<_> = self.devices.keys().cloned().collect();
        let here: BTreeSet<_> = devices.iter().map(|status| status.device.clone()).collect();
        let left: Vec<_> = left.difference(&here).cloned().collect();
        let is_new = |status: &&DeviceStatus| {
            let before = self.devices.get(&status.device);
            (before.is_some() || self.picks.shows(status)) && before != Some(&status.without_ages())
        };
        let changed: Vec<_> = devices.iter().filter(is_new).collect();
        let is_other = !below.is_same(&self.below);
        let is_mended = below.blocked.is_empty() && !self.below.blocked.is_empty();
        match form {
            _ if changed.is_empty() && left.is_empty() && !is_other => {}
            Output::Json => super::print_json(&json!({
                "summary": summary, "pending": below.pending, "rollouts": below.rollouts, "blocked": below.blocked,
                "devices": changed, "left": left,
            })),
            Output::Text => {
                super::print(&news(&summary, &changed, &left));
                match is_mended {
                    true => super::print("what could not be published, and is about no single device, is over\n"),
                    false if is_other => {
                        super::print(&(enrolling(below.pending) + &waits(&below.rollouts)));
                        super::print(&blocked_table(below.blocked.iter()));
                    }
                    false => {}
                }
            }
        }
        let picked = devices.into_iter().filter(|status| self.picks.shows(status));
        let shown = Shown { summary, devices: picked.collect() };
        *self = Self::new(self.picks, shown, below);
    }
}

/// What is new of devices, for people.
fn news(summary: &Summary, changed: &[&DeviceStatus], left: &[DeviceId]) -> String {
    let rows = if changed.is_empty() { String::new() } else { format!("{}\n", table(changed.iter().copied())) };
    let left = left.iter().map(|device| format!("{device} isn't asked for any more\n")).collect::<String>();
    format!("\n{rows}{left}{}{}", sum(summary), blocked_table(changed.iter().flat_map(|status| &status.blocked)))
}

/// The most conditions and doubts of a device that are shown.
const MAX_REMARKS: usize = 20;

/// The most deployments of a device that are shown although it shall not have them.
const MAX_GONE: usize = 20;

const HEAD: [&str; 8] = ["DEVICE", "DEPLOYMENT", "HEALTH", "DESIRED", "ACTUAL", "STATE", "AGE", "REASON"];

fn table<'a>(all: impl IntoIterator<Item = &'a DeviceStatus>) -> String {
    let rows: Vec<_> = [HEAD.map(Cow::from)].into_iter().chain(all.into_iter().flat_map(device_rows)).collect();
    super::table(&rows)
}

/// What can't be published: one line for each reason, however many devices have it.
pub(super) fn blocked_table<'a>(blocked: impl Iterator<Item = &'a Blocked>) -> String {
    let (mut places, mut groups) = (HashMap::new(), Vec::<Vec<&Blocked>>::new());
    for one in blocked {
        let reason = (&one.deployment, one.code, &one.message, &one.hint, one.device.is_some());
        let place = *places.entry(reason).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    let head = ["DEVICE", "DEPLOYMENT", "CODE", "SINCE", "REASON"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(groups.iter().filter_map(|group| blocked_row(group))).collect();
    if groups.is_empty() { String::new() } else { format!("\nNot published:\n{}", super::table(&rows)) }
}

/// Those that have one reason, since the first of them had it.
fn blocked_row(group: &[&Blocked]) -> Option<[String; 5]> {
    let one = group.first()?;
    let devices: Vec<_> = group.iter().filter_map(|one| one.device.as_ref()).collect();
    let dash = || "-".to_owned();
    let which = match devices.as_slice() {
        [] if one.deployment.is_some() => dash(),
        [] => "(all)".to_owned(),
        [device] => device.to_string(),
        devices => format!("{}: {}", counted(devices.len()), named(devices)),
    };
    let why = one.hint.as_ref().map_or_else(|| one.message.clone(), |hint| format!("{}; {hint}", one.message));
    Some([
        which,
        one.deployment.as_ref().map_or_else(dash, ToString::to_string),
        one.code.to_string(),
        group.iter().filter_map(|one| one.since).min().map_or_else(dash, |since| format!("{since:.0}")),
        why,
    ])
}

fn device_rows(status: &DeviceStatus) -> Vec<[Cow<'_, str>; 8]> {
    let device = status.device.as_str();
    let (wanted, gone): (Vec<_>, Vec<_>) = status.deployments.iter().partition(|row| row.desired.is_some());
    let shown = wanted.iter().chain(gone.iter().take(MAX_GONE)).map(|row| {
        [
            device.into(),
            row.deployment.as_str().into(),
            row.health.as_str().into(),
            row.desired.as_deref().unwrap_or("(gone)").into(),
            row.actual.as_deref().unwrap_or("-").into(),
            row.state.as_deref().unwrap_or("-").into(),
            row.age.map_or("-".into(), |age| shown_age(age).into()),
            row.reason.as_deref().unwrap_or_default().into(),
        ]
    });
    let mut rows: Vec<_> = shown.collect();
    let health = match status.membership {
        Membership::Enrolled => status.health.as_str(),
        Membership::NotEnrolled | Membership::Retired | Membership::Gone => "-",
    };
    let remark = |text: String| {
        let [device, health, dash] = [device, health, "-"].map(Cow::from);
        [device, dash.clone(), health, dash.clone(), dash.clone(), dash.clone(), dash, text.into()]
    };
    match status.membership {
        Membership::NotEnrolled => rows.push(remark("not enrolled".to_owned())),
        Membership::Retired | Membership::Gone => {}
        Membership::Enrolled if status.desired_serial.is_none() && status.doubts.is_empty() => {
            rows.push(remark("nothing published yet".to_owned()));
        }
        Membership::Enrolled if rows.is_empty() => rows.push(remark(String::new())),
        Membership::Enrolled => {}
    }
    rows.extend(status.held_by.iter().map(held_back).chain(remarks(status)).map(&remark));
    rows
}

/// What a rollout does with a device that waits for it.
fn held_back(RolloutPlace { rollout, state, wave, last_wave, .. }: &RolloutPlace) -> String {
    format!("held back by rollout {rollout} ({}), wave {wave} of {last_wave}", state.as_str())
}

/// What there is to say of a device as a whole.
pub(super) fn remarks(status: &DeviceStatus) -> Vec<String> {
    let gone = status.deployments.iter().filter(|row| row.desired.is_none()).count();
    let conditions = status.conditions.iter().map(|one| format!("{} {}: {}", one.kind, one.reason, one.message));
    let holds = status.gates.iter().filter(|gate| gate.code == ErrorCode::Held.as_str()).map(|gate| hold(gate, status));
    let asked = status.gates.iter().filter_map(|gate| Some(asked(gate, gate.set?, status)));
    let site = status.site.iter().flat_map(site);
    let doubts = status.doubts.iter().map(|doubt| format!("doubtful: {doubt}"));
    let hidden =
        gone.checked_sub(MAX_GONE + 1).map(|more| format!("{} more that are gone, see --output json", more + 1));
    // What a device says at length hides no doubt about it.
    let mut rest = hidden.into_iter().chain(doubts).chain(holds).chain(asked).chain(site).chain(conditions);
    let mut remarks = status.remarks.clone();
    remarks.extend(rest.by_ref().take(MAX_REMARKS));
    let more = rest.count();
    if more > 0 {
        remarks.push(format!("and {more} more, see --output json"));
    }
    remarks
}

/// What a person of the site is asked for, by the name that a word for it needs.
fn asked(gate: &ClosedGate, set: Digest, status: &DeviceStatus) -> String {
    let row = status.deployments.iter().find(|row| Some(row.deployment_id) == gate.deployment);
    let by = gate.by.as_ref().map(|by| format!("; rejected by {by}")).unwrap_or_default();
    format!("{} waits for approval of {set}{by}", row.map_or("?", |row| &row.deployment))
}

/// What persons of the site said from elsewhere, a line for each word.
fn site(SiteStatus { seen, approvals, rejected }: &SiteStatus) -> Vec<String> {
    let SeenList { serial, expires, key, .. } = seen;
    let words = |what: &str, words: &Option<Vec<SiteWord>>| {
        let line = |one: &SiteWord| format!("its site {what} {} by {}: {}", one.set, one.by, one.why);
        words.iter().flatten().map(line).collect::<Vec<_>>()
    };
    let list = format!("its site's list is {serial}, with the key of {key}, until {expires:.0}");
    [vec![list], words("approves", approvals), words("rejects", rejected)].concat()
}

/// What the site holds. What else changes wait for is the reason of their deployments.
fn hold(gate: &ClosedGate, status: &DeviceStatus) -> String {
    let named = |id| status.deployments.iter().find(|row| row.deployment_id == id).map(|row| row.deployment.clone());
    let of = gate.deployment.map_or("everything".to_owned(), |id| named(id).unwrap_or_else(|| id.to_string()));
    let by = gate.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    let until = gate.until.map(|until| format!(" until {until:.0}")).unwrap_or_default();
    format!("{of} is held{by} since {:.0}{until}: {}", gate.since, gate.text)
}

/// An age in its largest unit.
pub(super) fn shown_age(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}
