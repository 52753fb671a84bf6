//! What a plan says of one device: one statement for each change, setting and refusal.

use repo_model::text;

use super::difference::difference_text;
use super::shown::{GONE, GONE_HINT, Shown};
use super::{Blocked, Change, ChangeKind, DevicePlan};

/// What a statement is about; what a person has to look at comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatementKind {
    /// Something can't be published, or a guard holds it back.
    Refused,
    Removed,
    /// The whole device is left as it is, or left the fleet.
    Left,
    /// A deployment takes the place of another one.
    Replaced,
    Changed,
    /// The device gets its first state.
    First,
    Added,
    Setting,
    /// A rollout or a guard holds it back.
    Held,
    /// A deployment is left as it is.
    Kept,
    NotEnrolled,
}

/// One thing that a plan says of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Statement {
    pub kind: StatementKind,
    /// One line, which is the same on each device where it means the same.
    pub line: String,
    /// What exactly; nothing where the line says all.
    pub details: Vec<Detail>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Detail {
    /// What has another value: a parameter, a component; absent where it isn't a value.
    pub what: Option<String>,
    pub text: String,
}

impl StatementKind {
    /// Whether it is about the device as a whole.
    pub fn is_of_device(self) -> bool {
        matches!(self, Self::Left | Self::First | Self::NotEnrolled)
    }
}

impl Statement {
    fn new(kind: StatementKind, line: impl Into<String>) -> Self {
        Self { kind, line: line.into(), details: Vec::new() }
    }

    fn of_change(change: &Change) -> Self {
        let (kind, sign) = match change.kind {
            ChangeKind::Add if change.replaces.is_some() => (StatementKind::Replaced, '+'),
            ChangeKind::Add => (StatementKind::Added, '+'),
            ChangeKind::Change => (StatementKind::Changed, '~'),
            ChangeKind::Remove => (StatementKind::Removed, '-'),
        };
        let allowed = if change.allowed { ", let pass by a person" } else { "" };
        let line = format!("{sign} {}{}{allowed}", change.name, replaces(change));
        Self { details: details(change), ..Self::new(kind, line) }
    }

    fn of_held(change: &Change) -> Self {
        let by = change.guard.map(|code| format!(" by a guard ({code})")).unwrap_or_default();
        let line = format!("= {}: held back{by}: {}{}", change.name, change.kind.as_str(), replaces(change));
        Self { details: details(change), ..Self::new(StatementKind::Held, line) }
    }

    fn of_blocked(blocked: &Blocked) -> Self {
        let Blocked { deployment, code, since, message, hint, .. } = blocked;
        let name = deployment.iter().map(|name| format!("{name} ")).collect::<String>();
        let since = since.map(|since| format!(" since {since:.0}")).unwrap_or_default();
        let line = format!("! {name}not published: {} ({code}{since})", text::line(message));
        let hint = hint.iter().map(|hint| Detail { what: None, text: text::line(hint) });
        Self { details: hint.collect(), ..Self::new(StatementKind::Refused, line) }
    }
}

/// What it takes the place of, if it does.
fn replaces(change: &Change) -> String {
    change.replaces.as_ref().map(|old| format!(" (replaces {old}: data not carried)")).unwrap_or_default()
}

fn details(change: &Change) -> Vec<Detail> {
    let differences =
        change.differences.iter().map(|one| Detail { what: Some(text::line(&one.what)), text: difference_text(one) });
    let unresolved = change.unresolved.iter().map(|artifact| {
        let artifact = text::line(&artifact.to_string());
        Detail { what: None, text: format!("{artifact}: `publish` finds out which bytes these are") }
    });
    differences.chain(unresolved).collect()
}

/// Everything that there is to say of a device, in the order in which it is told of the device alone.
pub(super) fn statements(shown: &Shown) -> Vec<Statement> {
    let left = |line: &str| vec![Statement::new(StatementKind::Left, line)];
    match shown {
        Shown::UpToDate(..) | Shown::Retired(_) => Vec::new(),
        Shown::Plan(plan, _) if plan.is_empty() && plan.kept.is_empty() && plan.held.is_empty() => Vec::new(),
        Shown::Plan(plan, blocked) => of_plan(plan, blocked),
        Shown::NotEnrolled(_) => {
            vec![Statement::new(StatementKind::NotEnrolled, "not enrolled yet, nothing is published for it")]
        }
        Shown::Broken(_) => left("left as it is, because its file is broken"),
        Shown::Failed(..) => left("left as it is, because its repository can't be believed"),
        Shown::Gone(_, account) => {
            let account = account.iter().map(|name| format!("; its account `{name}` ends with `publish`"));
            let line = format!("{GONE}{}", account.collect::<String>());
            let hint = Detail { what: None, text: GONE_HINT.to_owned() };
            vec![Statement { details: vec![hint], ..Statement::new(StatementKind::Left, line) }]
        }
    }
}

fn of_plan(plan: &DevicePlan, blocked: &[Blocked]) -> Vec<Statement> {
    let setting = |line: String| Statement::new(StatementKind::Setting, format!("~ {line}"));
    let first = plan.serial.is_none().then(|| Statement::new(StatementKind::First, "first desired state"));
    let kept = plan.kept.iter().filter(|name| !plan.awaits(name)).map(|name| {
        let why = "left as it is, because something is wrong with it, or with what waits for it";
        Statement::new(StatementKind::Kept, format!("= {name}: {why}"))
    });
    let refused = blocked.iter().filter(|one| !one.is_shown_as_problem());
    first
        .into_iter()
        .chain(plan.lags_behind.map(|serial| setting(lags_behind(serial))))
        .chain(plan.changes.iter().map(Statement::of_change))
        .chain(plan.settings.iter().map(|one| setting(difference_text(one))))
        .chain(plan.held.iter().map(Statement::of_held))
        .chain(kept)
        .chain(refused.map(Statement::of_blocked))
        .collect()
}

fn lags_behind(serial: u64) -> String {
    format!("published anew: its repository was restored, and doesn't know serial {serial}")
}
