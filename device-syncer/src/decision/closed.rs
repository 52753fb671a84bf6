//! The gates that are closed, as the device reports them: what is held, and what waits for something else.

use std::collections::BTreeMap;

use jiff::Timestamp;
use repo_model::report::ClosedGate;
use repo_model::{DeploymentId, DeploymentName, ErrorCode, IntoMap, sort_few};

use super::approval::{Review, Waits};
use super::deployment::DesiredDeployment;
use super::failure::{Failure, one_line};
use super::fetched::{self, AllFetched, Fetched};
use super::gates::{self, Gates};
use super::hold::{Hold, HoldByPerson};
use super::plan::{Action, Plan};
use super::status::Report;

/// The most gates that are reported; those of the first deployments by id, and holds of the whole device before them.
const MOST: usize = 1000;

/// What is closed now. What was reported `before` keeps its moment.
pub fn closed(plan: &Plan, gates: &Gates, before: &[ClosedGate], now: Timestamp) -> Vec<ClosedGate> {
    // A second is enough, for ever.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let since = |deployment: Option<DeploymentId>, code: &str| {
        let known = before.iter().find(|one| (one.deployment, one.code.as_str()) == (deployment, code));
        known.map_or(now, |known| known.since)
    };
    let held = gates.holds.iter().filter_map(|hold| of_hold(hold, plan, since(None, ErrorCode::Held.as_str())));
    let waits = waiting(plan).into_iter().map(|((id, code), (name, why))| {
        let asked = gates.approvals.as_ref().zip(plan.changes.get(&id));
        // What is only put back waits for other gates of the same code, and for no person.
        let asked = asked
            .filter(|(all, change)| all.why_closed(name, change).is_some_and(|words| why.message.contains(&words)));
        let asked = asked.and_then(|(approvals, change)| approvals.waits(name, change));
        // Where too many would go, a person is asked for each of them.
        let asked = asked.or_else(|| {
            let change = plan.changes.get(&id).filter(|_| gates::is_of_too_many(&why.message))?;
            let said = gates.approvals.as_ref()?.said(change).ok().flatten();
            let is_asked = said.is_none_or(|said| said.review() == Review::Rejected);
            is_asked.then(|| Waits { set: change.digest(), rejected: said })
        });
        ClosedGate {
            deployment: Some(id),
            code: code.to_owned(),
            since: since(Some(id), code),
            until: gates.window_opens(code, Some(id)),
            text: one_line(&why.message),
            by: asked.and_then(|waits| waits.rejected).map(|said| said.by()),
            set: asked.map(|waits| waits.set),
        }
    });
    let mut all: Vec<_> = held.chain(waits).collect();
    sort_few(&mut all, |a, b| (a.deployment, &a.code, a.since).cmp(&(b.deployment, &b.code, b.since)));
    all.truncate(MOST);
    all
}

/// What was found missing, or couldn't be fetched, as `status` tells: so that is said once, however often a syncer begins anew.
pub fn fetched_before(report: &Report, wanted: &[DesiredDeployment], now: Timestamp) -> AllFetched {
    let parts = wanted.iter().flat_map(|one| one.components.iter().map(move |part| (one.id, part)));
    let known = parts.filter_map(|(id, part)| {
        let message = &report.get(id, &part.name)?.failure.as_ref().filter(|why| gates::is_why(why))?.message;
        let known = match message.split_once(fetched::FAILED) {
            Some((_, reason)) => Fetched::Failed { reason: reason.to_owned(), since: now },
            None if message.starts_with(fetched::WAITS) => Fetched::Missing,
            None => return None,
        };
        Some((part.input.as_ref().ok()?.input_digest, known))
    });
    known.into_map()
}

/// A hold is reported whether anything waits for it or not, so that none is forgotten.
fn of_hold(hold: &Hold, plan: &Plan, seen: Timestamp) -> Option<ClosedGate> {
    let (deployment, since, until, words, by) = match hold {
        Hold::File { why, .. } => (None, seen, None, why, None),
        Hold::Person(HoldByPerson { deployment, id, by, why, since, until, .. }) => {
            let of = match deployment {
                None => None,
                // What isn't known here holds nothing yet.
                Some(name) => {
                    Some(id.or_else(|| plan.deployments.iter().find(|one| one.name == *name).map(|one| one.id))?)
                }
            };
            (of, *since, *until, why, Some(one_line(by)))
        }
    };
    Some(ClosedGate {
        deployment,
        code: ErrorCode::Held.to_string(),
        since,
        until,
        text: one_line(words),
        by,
        set: None,
    })
}

/// What waits for a gate that is no hold, once for each deployment and gate.
fn waiting(plan: &Plan) -> BTreeMap<(DeploymentId, &str), (Option<&DeploymentName>, &Failure)> {
    let applies = plan.deployments.iter().flat_map(|one| {
        one.components.iter().filter_map(|part| match &part.action {
            Action::Wait(why) => Some((one.id, Some(&one.name), why)),
            _ => None,
        })
    });
    let removals =
        plan.held.iter().filter_map(|held| Some((held.removal.deployment?, held.removal.name.as_ref(), held.gate()?)));
    let all = applies.chain(removals).filter(|(.., why)| gates::is_why(why) && why.code != ErrorCode::Held.as_str());
    all.map(|(id, name, why)| ((id, why.code.as_str()), (name, why))).into_map()
}

#[cfg(test)]
mod tests {
    use repo_model::text;
    use repo_model::windows::Opening;

    use super::*;
    use crate::decision::device_state::DeviceState;
    use crate::decision::windows::Openings;
    use crate::testing::{id, wanted};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn plan(gates: &Gates) -> Plan {
        let all = [wanted("a", &[("x", "1"), ("y", "1")]), wanted("b", &[("x", "!parameter-invalid")])];
        Plan::make(Some(&all), &DeviceState::default(), &[], &[].into(), gates)
    }

    #[test]
    fn what_waits_is_told_once_for_each_deployment_since_it_began_to_wait() {
        let opens = at("2026-11-28T01:04:12Z");
        let openings = Openings { apply: Opening::Closed(opens), ..Openings::default() };
        let gates = Gates { openings, ..Gates::default() };
        let (first, later) = (at("2026-11-23T15:00:00.7Z"), at("2026-11-23T16:00:00Z"));
        let told = closed(&plan(&gates), &gates, &[], first);
        let expected = ClosedGate {
            deployment: Some(id("a")),
            code: "waiting-window".to_owned(),
            since: at("2026-11-23T15:00:00Z"),
            until: Some(opens),
            text: "waits for a window, until 2026-11-28T01:04:12Z".to_owned(),
            by: None,
            set: None,
        };
        assert_eq!(told, [expected]);
        assert_eq!(closed(&plan(&gates), &gates, &told, later), told, "since it began");
        let downtime = Openings { downtime: Opening::NeverOpens, apply: Opening::Closed(opens), ..Openings::default() };
        let both = Gates { openings: downtime, ..Gates::default() };
        let now = closed(&plan(&both), &both, &told, later);
        assert_eq!(
            (now[0].code.as_str(), now[0].since, now[0].until),
            ("waiting-downtime", later, None),
            "another gate"
        );
        assert_eq!(closed(&plan(&Gates::default()), &Gates::default(), &told, later), []);
    }

    #[test]
    fn no_more_are_told_than_the_most_and_holds_of_the_whole_device_are_among_them() {
        let all: Vec<_> = (0..=MOST).map(|number| wanted(&format!("d{number}"), &[("x", "1")])).collect();
        let hold = Hold::File { file: "/run/busy".to_owned(), why: "busy".to_owned() };
        let openings = Openings { apply: Opening::NeverOpens, ..Openings::default() };
        let gates = Gates { openings, ..Gates::default() };
        let plan = Plan::make(Some(&all), &DeviceState::default(), &[], &[].into(), &gates);
        let told = closed(&plan, &Gates { holds: vec![hold], ..gates }, &[], at("2026-11-23T15:00:00Z"));
        assert_eq!((told.len(), told[0].deployment, told[1].code.as_str()), (MOST, None, "waiting-window"));
    }

    #[test]
    fn a_hold_is_told_with_who_and_since_when_whether_anything_waits_or_not() {
        let since = at("2026-11-20T07:00:00Z");
        let hold = |deployment: Option<&str>| {
            let deployment = deployment.map(|name| name.parse().unwrap());
            let (by, why) = ("j.doe".to_owned(), "\u{1b}[2Jline 2".to_owned());
            Hold::Person(HoldByPerson { deployment, id: None, by, why, since, until: None, now: false })
        };
        let file = Hold::File { file: "/run/busy".to_owned(), why: "the site's file says: busy".to_owned() };
        let gates = Gates { holds: vec![hold(None), hold(Some("a")), hold(Some("nobody")), file], ..Gates::default() };
        let now = at("2026-11-23T15:00:00Z");
        let told = closed(&plan(&gates), &gates, &[], now);
        let short: Vec<_> = told.iter().map(|one| (one.deployment, one.since, one.by.as_deref())).collect();
        assert_eq!(short, [(None, since, Some("j.doe")), (None, now, None), (Some(id("a")), since, Some("j.doe"))]);
        assert!(told.iter().all(|one| one.code == "held" && text::line(&one.text) == one.text), "{told:?}");
        assert_eq!(closed(&Plan::default(), &gates, &told, now).len(), 2, "nothing waits");
    }
}
