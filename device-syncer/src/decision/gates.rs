//! Gates: what lets a change wait, as one table, and which of them are closed now.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use repo_model::envelope::DriftPolicy;
use repo_model::windows::{Opening, Overrun};
use repo_model::{DeploymentId, DeploymentName, Digest, ErrorCode};

use super::approval::{Approvals, ChangeSet, KnownNames, Review};
use super::failure::Failure;
use super::fetched::{self, AllFetched, Fetched};
use super::hold::Hold;
use super::hook::HookGate;
use super::windows::{Openings, Whose};

/// What a pass would change of a component, as far as gates tell it apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is installed, updated, or run by another type.
    Apply,
    /// It is updated because files of the device changed, and nothing else did: the site's own act.
    Renew,
    /// What began of its deployment is brought to its end.
    Finish,
    /// The last good set of its deployment is put back.
    RollBack,
    /// It is removed from the device.
    Remove,
    /// What was applied is put back where it is gone, stopped or never came up.
    Restore,
    /// What was applied is put back where somebody changed it.
    Revert,
    /// The fleet wants what runs restarted.
    Restart,
    /// A person at the device wants what runs restarted.
    RestartHere,
    /// What an install or update needs is fetched, where that has windows of its own.
    Fetch,
    /// The fetching of that goes on with the next component.
    FetchOn,
}

/// What can let a change wait, in the order in which they are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// The operator wants the device or the deployment left as it is.
    Suspended,
    /// The fleet doesn't list this device's key.
    Unlisted,
    /// The site holds the device or the deployment.
    Held,
    /// The device is down, as planned.
    Downtime,
    /// Fleet or site want changes in their windows only.
    Window,
    /// What drifted is only reported.
    Drift,
    /// More would go at once than the site lets go without a person.
    Removals,
    /// Fleet or site want a person's word for it.
    Approval,
    /// A program of the site's says whether it may be done now: asked while all the others are open.
    Hook,
}

impl Gate {
    const ALL: [Self; 9] = [
        Self::Suspended,
        Self::Unlisted,
        Self::Held,
        Self::Downtime,
        Self::Window,
        Self::Drift,
        Self::Removals,
        Self::Approval,
        Self::Hook,
    ];

    /// The table: whether this change waits while this gate is closed (`docs/gates.md`).
    fn concerns(self, change: Change, drift: DriftPolicy, overrun: Overrun) -> bool {
        match (self, change) {
            // It is refused while the site holds anything, and waits for nothing.
            (gate, Change::RestartHere) => gate == Self::Held,
            (Self::Suspended | Self::Held, _) => true,
            (Self::Unlisted, Change::Fetch | Change::FetchOn) => true,
            (Self::Downtime | Self::Window, Change::Fetch) => true,
            (Self::Window, Change::FetchOn) => overrun == Overrun::Component,
            (_, Change::Fetch | Change::FetchOn) => false,
            (Self::Unlisted, Change::Restore | Change::Revert) => false,
            (Self::Unlisted, _) => true,
            (Self::Downtime, Change::Apply | Change::Renew | Change::Remove | Change::Revert | Change::Restart) => true,
            (Self::Downtime, Change::Finish | Change::RollBack | Change::Restore) => false,
            (Self::Window, Change::Apply | Change::Renew | Change::Remove | Change::Restart) => true,
            (Self::Window, Change::Finish) => overrun == Overrun::Component,
            (Self::Window, Change::RollBack) => false,
            (Self::Window, Change::Restore | Change::Revert) => drift == DriftPolicy::HealInWindow,
            (Self::Approval, Change::Apply | Change::Remove) => true,
            (
                Self::Approval,
                Change::Renew | Change::Finish | Change::RollBack | Change::Restore | Change::Revert | Change::Restart,
            ) => false,
            (Self::Hook, Change::Apply | Change::Renew | Change::Remove | Change::Revert | Change::Restart) => true,
            (Self::Hook, Change::Finish | Change::RollBack | Change::Restore) => false,
            (Self::Drift, Change::Restore | Change::Revert) => drift == DriftPolicy::Report,
            (Self::Drift, _) => false,
            (Self::Removals, change) => change == Change::Remove,
        }
    }

    /// What `status` says of what waits for it.
    pub fn code(self) -> ErrorCode {
        match self {
            Self::Suspended => ErrorCode::Suspended,
            Self::Unlisted => ErrorCode::Queued,
            Self::Held => ErrorCode::Held,
            Self::Downtime => ErrorCode::WaitingDowntime,
            Self::Window => ErrorCode::WaitingWindow,
            Self::Drift => ErrorCode::Drifted,
            Self::Removals | Self::Approval => ErrorCode::WaitingApproval,
            Self::Hook => ErrorCode::WaitingPolicy,
        }
    }
}

/// Whether this is why something waits for a gate. What is `queued` waits for its turn as well.
pub fn is_why(failure: &Failure) -> bool {
    Gate::ALL.iter().any(|gate| failure.code == gate.code() && *gate != Gate::Unlisted)
}

/// Whom a change is about, as far as that is known.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub deployment: Option<DeploymentId>,
    /// The operator's id of it.
    pub name: Option<&'a DeploymentName>,
    /// Whether the operator wants this deployment left as it is.
    pub is_suspended: bool,
    /// What is done where it doesn't run as it was applied: the stricter word of fleet and site.
    pub drift: DriftPolicy,
    /// All that is to be changed of this deployment; `None` of what is put back while more isn't known.
    pub change: Option<&'a ChangeSet>,
}

/// Which gates are closed at the moment of a pass.
#[derive(Debug, Clone, Default)]
pub struct Gates {
    /// Whether the operator wants the whole device left as it is.
    pub is_suspended: bool,
    /// Whether the fleet doesn't list this device's key.
    pub is_unlisted: bool,
    pub holds: Vec<Hold>,
    /// What the windows of fleet and site say of the moment of the pass.
    pub openings: Openings,
    /// The same for deployments that have windows of their own.
    pub own_openings: BTreeMap<DeploymentId, Openings>,
    /// The site's word on what doesn't run as it was applied.
    pub drift: DriftPolicy,
    /// How much may go at once.
    pub removals: Option<RemovalLimit>,
    /// The deployments of which too many would go.
    pub too_many: BTreeSet<DeploymentId>,
    /// For whose changes a person is asked, and what persons said.
    pub approvals: Option<Approvals>,
    /// What the site's hook said no to, where there is one.
    pub hook: Option<HookGate>,
    /// What is known of what changes need, where that is fetched in windows of its own.
    pub fetched: AllFetched,
    /// Whether the site doesn't let the fleet have anything restarted.
    pub refuses_restarts: bool,
}

/// What the site lets go without a person.
#[derive(Debug, Clone, Default)]
pub struct RemovalLimit {
    /// The share of all deployments that may go at once, in percent; two may in any case.
    pub share: u8,
    /// The deployments that a person let go beyond that (`approved-removals.json`).
    pub approved: BTreeSet<DeploymentId>,
    /// Those that went within 24 hours, and that nobody had seen before.
    pub recent: BTreeSet<DeploymentId>,
}

/// Why the removal of a deployment waits, behind how many would go.
const TOO_MANY: &str = "deployments would go at once";

/// Whether this is why something waits: that too many deployments would go.
pub(super) fn is_of_too_many(message: &str) -> bool {
    message.contains(TOO_MANY)
}

/// So many deployments may go at once whatever their share is.
const FEW: usize = 2;

impl Gates {
    /// What is known here of deployments, whatever they are called now.
    pub fn know(&mut self, names: impl FnOnce() -> KnownNames) {
        if let Some(approvals) = &mut self.approvals {
            approvals.names = names();
        }
    }

    /// Why this change waits, if it does: the code of the first closed gate, and the words of all.
    pub fn closed(&self, change: Change, of: Subject<'_>) -> Option<Failure> {
        let concerned = Gate::ALL.into_iter().filter(|gate| self.concerns(*gate, change, of) && *gate != Gate::Hook);
        let mut closed: Vec<_> = concerned.filter_map(|gate| Some((gate, self.words(gate, change, of)?))).collect();
        if closed.is_empty() && self.concerns(Gate::Hook, change, of) {
            closed.extend(self.words(Gate::Hook, change, of).map(|words| (Gate::Hook, words)));
        }
        let code = closed.first()?.0.code();
        let words: Vec<_> = closed.into_iter().map(|(_, words)| words).collect();
        Some(Failure::new(code, words.join("; ")))
    }

    /// Whether the site's hook has to allow this change, and nothing else holds it back.
    pub fn asks_hook(&self, change: Change, of: Subject<'_>) -> bool {
        let is_open = |gate: Gate| {
            gate == Gate::Hook || !self.concerns(gate, change, of) || self.words(gate, change, of).is_none()
        };
        self.hook.is_some()
            && self.concerns(Gate::Hook, change, of)
            && of.change.is_some()
            && Gate::ALL.into_iter().all(is_open)
    }

    /// Whether what changes of this need is fetched at other times than they are made.
    pub fn fetches_ahead(&self, of: Subject<'_>) -> bool {
        self.openings_of(of.deployment).fetch.is_some()
    }

    /// Why what a change needs can't be fetched now, where some of it isn't here.
    pub fn lacks(&self, input: Digest, of: Subject<'_>) -> Option<Failure> {
        let is_missing = self.fetched.get(&input) == Some(&Fetched::Missing);
        if is_missing && self.fetches_ahead(of) { self.closed(Change::Fetch, of) } else { None }
    }

    /// Whether persons let this deployment go: with others at the device, or its own change, from elsewhere too.
    pub(super) fn lets_go(&self, id: DeploymentId, changes: &BTreeMap<DeploymentId, ChangeSet>) -> bool {
        let said = || self.approvals.as_ref()?.said(changes.get(&id)?).ok()?;
        let is_approved = self.removals.as_ref().is_some_and(|limit| limit.approved.contains(&id));
        is_approved || said().is_some_and(|said| said.review() == Review::Approved)
    }

    /// The same, where these would go of `all` deployments that are here, or were until lately. What went lately counts with them.
    pub(super) fn with_going(
        &self,
        going: BTreeSet<DeploymentId>,
        all: usize,
        changes: &BTreeMap<DeploymentId, ChangeSet>,
    ) -> Self {
        let is_over = self.removals.as_ref().is_some_and(|limit| {
            let count = going.union(&limit.recent).count();
            let is_many = count > FEW && count * 100 > all * usize::from(limit.share);
            is_many && !going.iter().all(|id| self.lets_go(*id, changes))
        });
        Self { too_many: if is_over { going } else { BTreeSet::new() }, ..self.clone() }
    }

    /// Whether the site holds this deployment.
    pub fn is_held(&self, of: Subject<'_>) -> bool {
        self.holds.iter().any(|hold| hold.is_of(of.deployment, of.name))
    }

    /// When the first of them opens by itself.
    pub fn open_next(&self) -> Option<Timestamp> {
        let all = std::iter::once(&self.openings).chain(self.own_openings.values());
        let opens =
            all.flat_map(|one| [Some(one.downtime), Some(one.apply), one.fetch]).flatten().filter_map(Opening::opens);
        self.holds.iter().filter_map(Hold::until).chain(opens).min()
    }

    /// When the window or downtime that this code speaks of opens by itself, if that is known.
    pub fn window_opens(&self, code: &str, of: Option<DeploymentId>) -> Option<Timestamp> {
        let openings = self.openings_of(of);
        match ErrorCode::parse(code)? {
            ErrorCode::WaitingWindow if openings.doubt.is_none() => match openings.apply {
                // Then it waits for what it needs.
                Opening::Open(_) => openings.fetch?.opens(),
                apply => apply.opens(),
            },
            ErrorCode::WaitingDowntime => openings.downtime.opens(),
            _ => None,
        }
    }

    /// Whether a deployment, or whatever has no windows of its own, is in a downtime whose end is known.
    pub fn is_down(&self, of: Option<DeploymentId>) -> bool {
        let Openings { downtime, doubt, .. } = self.openings_of(of);
        matches!(downtime, Opening::Closed(_)) && doubt.is_none()
    }

    /// What windows say of a deployment.
    pub fn openings_of(&self, of: Option<DeploymentId>) -> &Openings {
        of.and_then(|id| self.own_openings.get(&id)).unwrap_or(&self.openings)
    }

    fn concerns(&self, gate: Gate, change: Change, of: Subject<'_>) -> bool {
        gate.concerns(change, of.drift, self.openings_of(of.deployment).overrun)
    }

    /// Why a gate is closed, if it is.
    fn words(&self, gate: Gate, change: Change, of: Subject<'_>) -> Option<String> {
        match gate {
            Gate::Suspended if self.is_suspended => Some("the operator suspended this device".to_owned()),
            Gate::Suspended if of.is_suspended => Some("the operator suspended this deployment".to_owned()),
            Gate::Unlisted if self.is_unlisted => {
                Some("waits until the fleet lists this device's key again".to_owned())
            }
            Gate::Held => {
                let hold = self.holds.iter().find(|hold| hold.is_of(of.deployment, of.name))?;
                Some(hold.message())
            }
            Gate::Downtime => {
                let Openings { downtime, whose, .. } = self.openings_of(of.deployment);
                closed(*downtime, "waits for the end of a downtime", *whose)
            }
            Gate::Drift => {
                let name = of.name.map(|name| format!(" {name}")).unwrap_or_default();
                Some(format!("it doesn't run as it was applied: `device-syncer retry{name}` puts it back"))
            }
            Gate::Window => {
                let Openings { apply, fetch, doubt, whose, .. } = self.openings_of(of.deployment);
                let (opening, waits) = match change {
                    Change::Fetch | Change::FetchOn => ((*fetch)?, fetched::WAITS),
                    _ => (*apply, "waits for a window"),
                };
                let doubt = doubt.as_ref().map(|doubt| doubt.message());
                doubt.or_else(|| closed(opening, waits, *whose))
            }
            Gate::Removals => of.deployment.filter(|id| self.too_many.contains(id)).map(|_| {
                let count = self.too_many.len();
                let went = self.removals.iter().flat_map(|limit| limit.recent.difference(&self.too_many)).count();
                let went = if went > 0 { format!(", and {went} went within 24 hours") } else { String::new() };
                format!("{count} {TOO_MANY}{went}: `device-syncer approve --removals` lets them")
            }),
            Gate::Approval => self.approvals.as_ref()?.why_closed(of.name, of.change?),
            Gate::Hook => self.hook.as_ref()?.why_closed(of.deployment?, of.change?.digest()),
            Gate::Suspended | Gate::Unlisted => None,
        }
    }
}

/// Why something waits for windows, if it does.
fn closed(opening: Opening, waits: &str, whose: Whose) -> Option<String> {
    match opening {
        Opening::Open(_) => None,
        Opening::Closed(opens) => Some(format!("{waits}, until {opens:.0}")),
        Opening::NeverOpens => Some(format!("{waits}, and by {whose} none comes within 400 days")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use repo_model::IntoMap;

    use super::*;
    use crate::decision::approval::{AskedFor, FleetAsks, SiteWords, Word};
    use crate::decision::pattern::Pattern;
    use crate::decision::windows::Doubt;
    use crate::testing::id;

    /// The table of the documentation: changes down, gates across.
    const PAGE: &str = include_str!("../../../docs/gates.md");

    const CHANGES: [(&str, Change); 11] = [
        ("install, update, run by another type", Change::Apply),
        ("update because files of the device changed, and nothing else", Change::Renew),
        ("finish what began", Change::Finish),
        ("put back the last good set", Change::RollBack),
        ("remove", Change::Remove),
        ("put back what is gone, stopped or never came up", Change::Restore),
        ("put back what somebody changed", Change::Revert),
        ("restart, as the fleet asks", Change::Restart),
        ("restart, as a person at the device asks", Change::RestartHere),
        ("fetch what an install or update needs, where `fetch` says when", Change::Fetch),
        ("go on fetching it, with the next component", Change::FetchOn),
    ];

    fn held() -> Hold {
        Hold::File { file: "/run/busy".to_owned(), why: "line 2".to_owned() }
    }

    static CHANGE: LazyLock<ChangeSet> = LazyLock::new(|| ChangeSet::removal(id("a")));

    /// Only this gate is closed.
    fn only(gate: Gate) -> Gates {
        let holds = if gate == Gate::Held { vec![held()] } else { Vec::new() };
        let closed = |one: Gate| if gate == one { Opening::NeverOpens } else { Opening::Open(None) };
        let (downtime, apply) = (closed(Gate::Downtime), closed(Gate::Window));
        let openings = Openings { downtime, apply, fetch: Some(apply), ..Openings::default() };
        let too_many = if gate == Gate::Removals { [id("a")].into() } else { BTreeSet::new() };
        let (is_suspended, is_unlisted) = (gate == Gate::Suspended, gate == Gate::Unlisted);
        let drift = DriftPolicy::Heal;
        let all = AskedFor { names: vec![Pattern::try_from("**".to_owned()).unwrap()], except: Vec::new() };
        let approvals = (gate == Gate::Approval).then(|| Approvals {
            asked_for: all,
            names: Default::default(),
            fleet_asks: FleetAsks::default(),
            words: Ok(Vec::new()),
            site: Ok(SiteWords::default()),
        });
        let no = (CHANGE.digest(), "the line is filling".to_owned());
        let hook = (gate == Gate::Hook).then(|| HookGate { closed: [(id("a"), no)].into() });
        Gates { is_suspended, is_unlisted, holds, openings, drift, too_many, approvals, hook, ..Gates::default() }
    }

    fn nobody() -> Subject<'static> {
        let drift = DriftPolicy::Heal;
        Subject { deployment: Some(id("a")), name: None, is_suspended: false, drift, change: Some(&CHANGE) }
    }

    fn cells(row: &str) -> Vec<&str> {
        row.trim_matches('|').split('|').map(str::trim).collect()
    }

    #[test]
    fn every_cell_of_the_table_in_the_documentation() {
        let mut rows =
            PAGE.lines().skip_while(|line| !line.starts_with("| Change")).take_while(|line| line.starts_with('|'));
        let head = cells(rows.next().expect("a head"));
        let codes: Vec<_> = head[1..].iter().map(|cell| cell.split('`').nth(1).expect("a code")).collect();
        assert_eq!(codes, Gate::ALL.map(|gate| gate.code().as_str()), "in the order in which they are asked");
        let rows: Vec<_> = rows.skip(1).map(cells).collect();
        assert_eq!(rows.iter().map(|row| row[0]).collect::<Vec<_>>(), CHANGES.map(|(name, _)| name));
        for (row, (name, change)) in rows.iter().zip(CHANGES) {
            assert_eq!(row.len(), head.len(), "{name}");
            for (cell, gate) in row[1..].iter().zip(Gate::ALL) {
                let code = |drift, overrun| {
                    let mut gates = only(gate);
                    gates.openings.overrun = overrun;
                    Some(gates.closed(change, Subject { drift, ..nobody() })?.code)
                };
                let waits = Some(gate.code().to_string());
                let plain = (DriftPolicy::Heal, Overrun::Deployment);
                let expected = match *cell {
                    "waits" | "refused" => waits,
                    "–" => None,
                    word => {
                        let word = word.trim_matches('`');
                        let overrun = Overrun::parse(word).map(|overrun| (plain.0, overrun));
                        let said = overrun.or_else(|| Some((DriftPolicy::parse(word)?, plain.1)));
                        let (drift, overrun) = said.expect("a word on drift or overrun");
                        assert_eq!(code(drift, overrun), waits, "{name} while {gate:?} and {word}");
                        None
                    }
                };
                assert_eq!(code(plain.0, plain.1), expected, "{name} while {gate:?}");
                if !cell.starts_with('`') {
                    assert_eq!(code(DriftPolicy::Heal, Overrun::Component), expected, "{name} while {gate:?}");
                }
            }
            assert_eq!(Gates::default().closed(change, nobody()), None);
        }
    }

    #[test]
    fn the_first_closed_gate_gives_the_code_and_all_have_their_words() {
        let all = Gates { is_suspended: true, is_unlisted: true, holds: vec![held()], ..Gates::default() };
        let failure = all.closed(Change::Apply, nobody()).unwrap();
        let words = "the operator suspended this device; waits until the fleet lists this device's key again; line 2";
        assert_eq!((failure.code.as_str(), failure.message.as_str()), (ErrorCode::Suspended.as_str(), words));
        let mine = Subject { is_suspended: true, ..nobody() };
        let failure = only(Gate::Held).closed(Change::Restore, mine).unwrap();
        assert_eq!(failure.message, "the operator suspended this deployment; line 2");
        assert_eq!(Gates { is_unlisted: true, ..all }.closed(Change::Revert, nobody()).unwrap().code, "suspended");
    }

    #[test]
    fn the_sites_hook_is_asked_for_what_nothing_else_holds_back_and_its_no_is_for_that_change() {
        let hook = only(Gate::Hook);
        let other = ChangeSet::removal(id("b"));
        assert_eq!(hook.closed(Change::Apply, Subject { change: Some(&other), ..nobody() }), None, "a newer change");
        let why = hook.closed(Change::Remove, nobody()).unwrap();
        assert_eq!(why.message, "the site's hook says: the line is filling");
        assert!(hook.asks_hook(Change::Apply, nobody()) && hook.asks_hook(Change::Revert, nobody()));
        assert!(!hook.asks_hook(Change::Finish, nobody()) && !hook.asks_hook(Change::Restore, nobody()));
        let held = Gates { holds: vec![held()], ..hook.clone() };
        assert!(!held.asks_hook(Change::Apply, nobody()) && !Gates::default().asks_hook(Change::Apply, nobody()));
        assert_eq!(held.closed(Change::Apply, nobody()).unwrap().code, "held");
        let open = Gates { hook: Some(HookGate::default()), ..Gates::default() };
        assert_eq!(open.closed(Change::Apply, nobody()), None, "it isn't known to say no");
        assert!(open.asks_hook(Change::Apply, nobody()));
    }

    #[test]
    fn a_window_says_when_it_opens_and_the_first_gate_that_does_makes_a_pass_due() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let (soon, later) = (at("2026-11-28T01:04:12Z"), at("2026-12-01T00:00:00Z"));
        let openings =
            Openings { apply: Opening::Closed(soon), downtime: Opening::Closed(later), ..Openings::default() };
        let gates = Gates { openings, ..Gates::default() };
        let failure = gates.closed(Change::Apply, nobody()).unwrap();
        let words = "waits for the end of a downtime, until 2026-12-01T00:00:00Z; waits for a window, until 2026-11-28T01:04:12Z";
        assert_eq!((failure.code.as_str(), failure.message.as_str()), (ErrorCode::WaitingDowntime.as_str(), words));
        assert_eq!(gates.open_next(), Some(soon));
        let apply = Opening::Open(Some(later));
        let behind = Openings { apply, doubt: Some(Doubt::ClockIsBehind), ..Openings::default() };
        let failure = Gates { openings: behind, ..Gates::default() }.closed(Change::Remove, nobody()).unwrap();
        assert!(failure.code == ErrorCode::WaitingWindow && failure.message.contains("clock"), "{failure:?}");
    }

    #[test]
    fn more_than_the_share_and_more_than_two_wait_for_a_person_who_approved_all_of_them() {
        let going = |names: &[&str]| names.iter().map(|name| id(name)).collect::<BTreeSet<_>>();
        let waits = |share: Option<u8>, approved: &[&str], names: &[&str], all: usize| {
            let limit = share.map(|share| RemovalLimit { share, approved: going(approved), ..RemovalLimit::default() });
            let gates = Gates { removals: limit, ..Gates::default() }.with_going(going(names), all, &BTreeMap::new());
            assert_eq!(gates.closed(Change::Apply, nobody()), None);
            gates.closed(Change::Remove, nobody()).map(|failure| failure.code)
        };
        let code = Some(ErrorCode::WaitingApproval.to_string());
        for (share, approved, names, all, expected) in [
            (None, &[][..], &["a", "b", "c"][..], 3, None),
            (Some(50), &[], &["a", "b", "c"], 5, code.clone()),
            (Some(50), &[], &["a", "b", "c"], 6, None),
            (Some(0), &[], &["a", "b"], 2, None),
            (Some(0), &[], &["a", "b", "c"], 300, code.clone()),
            (Some(50), &["a", "b", "c", "d"], &["a", "b", "c"], 3, None),
            (Some(50), &["a", "b", "d"], &["a", "b", "c"], 3, code),
        ] {
            assert_eq!(waits(share, approved, names, all), expected, "{share:?} {approved:?} {names:?} of {all}");
        }
        let other = Subject { deployment: None, ..nobody() };
        let gates = Gates { removals: Some(RemovalLimit::default()), ..Gates::default() };
        let gates = gates.with_going(going(&["a", "b", "c"]), 3, &BTreeMap::new());
        assert_eq!(gates.closed(Change::Remove, other), None, "a part of what stays, and what is nobody's");
    }

    #[test]
    fn what_went_within_a_day_counts_with_what_would_go() {
        let ids = |names: &[&str]| names.iter().map(|name| id(name)).collect::<BTreeSet<_>>();
        let waits = |share, recent: &[&str], approved: &[&str], names: &[&str], all| {
            let limit = RemovalLimit { share, approved: ids(approved), recent: ids(recent) };
            let gates = Gates { removals: Some(limit), ..Gates::default() };
            gates.with_going(ids(names), all, &BTreeMap::new()).closed(Change::Remove, nobody()).map(|why| why.message)
        };
        let two =
            "1 deployments would go at once, and 2 went within 24 hours: `device-syncer approve --removals` lets them";
        assert_eq!(waits(0, &["x", "y"], &[], &["a"], 300).as_deref(), Some(two));
        assert_eq!(waits(50, &["x", "y"], &[], &["a"], 6), None, "half of them is let go");
        assert!(waits(50, &["x", "y"], &[], &["a", "b"], 6).is_some());
        assert_eq!(waits(0, &["a", "b"], &[], &["a", "b"], 4), None, "they are on their way");
        assert_eq!(waits(0, &["x", "y"], &["a"], &["a"], 4), None, "a person has seen it");
        assert_eq!(waits(0, &["x", "y"], &[], &[], 4), None);
    }

    #[test]
    fn a_word_for_the_change_of_each_lets_many_go_and_none_for_one_of_them_holds_all() {
        let all = ["a", "b", "c"].map(id);
        let changes = all.map(|id| (id, ChangeSet::removal(id))).into_map();
        let waits = |said: &[(DeploymentId, Review)]| {
            let word = |(id, review): &(DeploymentId, Review)| Word {
                review: *review,
                change: ChangeSet::removal(*id),
                by: "j.doe".to_owned(),
                why: "given up".to_owned(),
                at: Timestamp::UNIX_EPOCH,
            };
            let words = Ok(said.iter().map(word).collect());
            let (asked_for, fleet_asks) = (AskedFor::default(), FleetAsks::default());
            let (names, site) = (Default::default(), Ok(SiteWords::default()));
            let approvals = Some(Approvals { asked_for, names, fleet_asks, words, site });
            let gates = Gates { removals: Some(RemovalLimit::default()), approvals, ..Gates::default() };
            gates.with_going(all.into(), 3, &changes).closed(Change::Remove, nobody()).is_some()
        };
        let [a, b, c] = all;
        assert!(!waits(&[a, b, c].map(|id| (id, Review::Approved))));
        assert!(waits(&[a, b].map(|id| (id, Review::Approved))));
        assert!(waits(&[(a, Review::Approved), (b, Review::Approved), (c, Review::Rejected)]));
        assert!(waits(&[]));
    }
}
