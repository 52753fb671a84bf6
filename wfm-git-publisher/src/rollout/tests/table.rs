//! What a released device is: every row of the table, and each edge.

use jiff::Timestamp;
use repo_model::ErrorCode;
use repo_model::margo::State;

use super::world::{name, version};
use crate::fleet::RolloutPolicy;
use crate::rollout::{Adoption, Beat, Case, Component, DeviceState, Evidence, Judged, Meaning, Released, Report};

use DeviceState::{Deferred, Failed, Offline, Updated, Updating};

/// When the device was released, by our clock; its own is 1000 s behind.
const RELEASED: i64 = 1_000_000;
const ITS: i64 = RELEASED - 1000;

fn want() -> Option<Meaning> {
    Meaning::of([(&name("app"), version(2))])
}

fn component(state: State, code: Option<ErrorCode>) -> Component {
    Component {
        deployment: name("app"),
        name: "web".parse().unwrap(),
        wanted: true,
        state,
        code: code.map(|code| code.as_str().to_owned()),
        waits_outside: false,
    }
}

/// A device that is updated, 400 s after it was released.
fn updated() -> Evidence {
    Evidence {
        silent_for: 20,
        status: Some(Report {
            stalled: None,
            runtime_unavailable: false,
            adopted: Some(Adoption { serial: 7, meaning: want() }),
            components: vec![component(State::Installed, None)],
            done_since: Some(ITS + 50),
            moved: ITS + 50,
            moved_here: Timestamp::from_second(RELEASED + 55).ok(),
        }),
        heartbeat: Beat::Seen { time: ITS + 350, serial: 7, healthy: true },
    }
}

fn with(change: impl FnOnce(&mut Evidence, &mut Report)) -> Evidence {
    let mut evidence = updated();
    let mut report = evidence.status.take().unwrap();
    change(&mut evidence, &mut report);
    evidence.status = Some(report);
    evidence
}

fn judge(evidence: &Evidence, after: i64) -> Judged {
    let policy = RolloutPolicy::default();
    let at = Timestamp::from_second(RELEASED).unwrap();
    let released = Released { wave: 1, at, was_failing: false, promoted: false };
    let now = Timestamp::from_second(RELEASED + after).unwrap();
    let want = want();
    Case { policy: &policy, report_seconds: 300, released, want: want.as_ref(), evidence, now }.judge()
}

fn state(evidence: &Evidence, after: i64) -> DeviceState {
    judge(evidence, after).state
}

#[test]
fn updated_needs_evidence_from_after_the_change() {
    assert_eq!(state(&updated(), 400), Updated);
    // The old `installed`, from before the adoption.
    let old = with(|_, report| {
        report.adopted = Some(Adoption { serial: 6, meaning: Meaning::of([(&name("app"), version(1))]) })
    });
    assert_eq!(state(&old, 400), Updating);
    let nothing = with(|_, report| report.adopted = None);
    assert_eq!(state(&nothing, 400), Updating);
    // A later serial of another deployment's is as good.
    let later = with(|evidence, report| {
        report.adopted = Some(Adoption { serial: 9, meaning: want() });
        evidence.heartbeat = Beat::Seen { time: ITS + 350, serial: 10, healthy: true };
    });
    assert_eq!(state(&later, 400), Updated);
    let serial_alone = with(|_, report| report.components = vec![component(State::Pending, None)]);
    assert_eq!(state(&serial_alone, 400), Updating);
    let runtime = with(|_, report| report.runtime_unavailable = true);
    assert_eq!(state(&runtime, 400), Updating);
    let not_done = with(|_, report| report.done_since = None);
    assert_eq!(state(&not_done, 400), Updating);
}

#[test]
fn updated_needs_a_heartbeat_from_after_it_that_is_well_and_believed() {
    let beat = |beat| with(|evidence, _| evidence.heartbeat = beat);
    let seen = |time, serial, healthy| beat(Beat::Seen { time, serial, healthy });
    assert_eq!(state(&seen(ITS + 350, 6, true), 400), Updating);
    assert_eq!(state(&seen(ITS + 350, 7, false), 400), Updating);
    assert_eq!(state(&seen(ITS + 349, 7, true), 400), Updating, "it bakes by its own clock");
    assert_eq!(state(&updated(), 299), Updating, "and by ours");
    assert_eq!(state(&updated(), 300), Updated);
    assert_eq!(state(&beat(Beat::Unbelieved), 400), Updating);
    // Where it never sent one, or its clock went back, ours counts alone.
    assert_eq!((state(&beat(Beat::Absent), 299), state(&beat(Beat::Absent), 300)), (Updating, Updated));
    assert_eq!((state(&seen(ITS, 7, true), 299), state(&seen(ITS, 7, true), 300)), (Updating, Updated));
    assert_eq!(state(&seen(ITS, 7, false), 400), Updating);
}

#[test]
fn a_removal_is_done_when_nothing_of_it_is_left() {
    let gone = |state| {
        with(|_, report| {
            report.adopted = Some(Adoption { serial: 7, meaning: None });
            report.components = vec![Component { wanted: false, ..component(state, None) }];
        })
    };
    let policy = RolloutPolicy::default();
    let at = Timestamp::from_second(RELEASED).unwrap();
    let released = Released { wave: 1, at, was_failing: false, promoted: false };
    let now = Timestamp::from_second(RELEASED + 400).unwrap();
    let state = |evidence: &Evidence| {
        Case { policy: &policy, report_seconds: 300, released, want: None, evidence, now }.judge().state
    };
    assert_eq!((state(&gone(State::Removed)), state(&gone(State::Installed))), (Updated, Updating));
    let nothing = with(|_, report| {
        report.adopted = Some(Adoption { serial: 7, meaning: None });
        report.components.clear();
    });
    assert_eq!(state(&nothing), Updated);
}

#[test]
fn what_stalls_fails_unless_it_passes() {
    for (reason, expected) in
        [("SignatureInvalid", Failed), ("AcceptedLost", Failed), ("FetchFailed", Updating), ("DiskFull", Updating)]
    {
        let stalled = with(|_, report| {
            report.stalled = Some(reason.to_owned());
            report.adopted = None;
        });
        assert_eq!(state(&stalled, 400), expected, "{reason}");
    }
}

#[test]
fn a_component_that_failed_or_was_rolled_back_fails() {
    for code in [ErrorCode::HelmFailed, ErrorCode::RolledBack] {
        let failed = with(|_, report| report.components.push(component(State::Failed, Some(code))));
        let judged = judge(&failed, 400);
        assert_eq!((judged.state, judged.why), (Failed, format!("app/web: {}", code.as_str())));
    }
    let before = with(|_, report| {
        report.components.push(component(State::Failed, None));
        report.adopted = None;
    });
    assert_eq!(state(&before, 400), Updating, "before it adopted that says nothing");
}

#[test]
fn silence_in_the_middle_of_a_change_fails_and_before_it_does_not() {
    let silent = |state, adopted: bool| {
        with(|evidence, report| {
            evidence.silent_for = 3600;
            report.components = vec![component(state, None)];
            report.done_since = None;
            if !adopted {
                report.adopted = None;
            }
        })
    };
    assert_eq!(state(&silent(State::Installing, true), 9000), Failed);
    assert_eq!(state(&silent(State::Installed, true), 9000), Failed);
    assert_eq!(state(&silent(State::Pending, true), 9000), Offline);
    assert_eq!(state(&silent(State::Installing, false), 9000), Offline);
    assert_eq!(state(&Evidence { silent_for: 3600, ..Evidence::default() }, 9000), Offline);
    // Of two components: one that is at work, or waits for nobody, and one that others hold back.
    let two = |one: (State, Option<ErrorCode>), other: (State, Option<ErrorCode>)| {
        let silent = with(|evidence, report| {
            evidence.silent_for = 3600;
            report.components = vec![component(one.0, one.1), component(other.0, other.1)];
            report.done_since = None;
        });
        (state(&silent, 9000), judge(&Evidence { silent_for: 20, ..silent }, 400).state)
    };
    let done = (State::Installed, None);
    for code in [ErrorCode::WaitingWindow, ErrorCode::WaitingApproval, ErrorCode::Held, ErrorCode::Suspended] {
        let held = (State::Pending, Some(code));
        assert_eq!(two(done, held), (Offline, Deferred), "held by its site or the fleet when it fell silent: {code:?}");
        assert_eq!(two((State::Removing, Some(code)), held), (Offline, Deferred), "what goes is held, too: {code:?}");
        assert_eq!(two((State::Pending, Some(ErrorCode::WaitingDependency)), held), (Offline, Deferred), "{code:?}");
        assert_eq!(two((State::Installing, None), held), (Failed, Updating), "the other is at work: {code:?}");
        assert_eq!(two((State::Removing, None), held), (Failed, Updating), "the other goes: {code:?}");
        assert_eq!(two((State::Pending, None), held), (Offline, Updating), "nothing began: {code:?}");
    }
    assert_eq!(two(done, (State::Pending, None)), (Failed, Updating), "the next one was its own to do");
    assert_eq!(two(done, (State::Pending, Some(ErrorCode::WaitingDependency))), (Failed, Updating));
    assert_eq!(two(done, done).0, Failed, "all of it is done, and it doesn't stay well");
    let nearly = with(|evidence, report| {
        evidence.silent_for = 3599;
        report.components = vec![component(State::Installing, None)];
    });
    assert_eq!(state(&nearly, 3000), Updating);
    // Who reports once an hour isn't silent after an hour.
    let rare = silent(State::Installing, true);
    let policy = RolloutPolicy::default();
    let at = Timestamp::from_second(RELEASED).unwrap();
    let released = Released { wave: 1, at, was_failing: false, promoted: false };
    let now = Timestamp::from_second(RELEASED + 3000).unwrap();
    let want = want();
    let case = Case { policy: &policy, report_seconds: 3600, released, want: want.as_ref(), evidence: &rare, now };
    assert_eq!(case.judge().state, Updating);
}

#[test]
fn no_progress_fails_by_its_clock_and_ours_and_an_adoption_that_does_not_come_is_offline() {
    let at_work = |beat: i64| {
        with(|evidence, report| {
            evidence.heartbeat = Beat::Seen { time: beat, serial: 7, healthy: false };
            report.components = vec![component(State::Installing, None)];
        })
    };
    let (moved, here) = (ITS + 50, 55);
    assert_eq!(state(&at_work(moved + 3600), here + 3599), Updating);
    assert_eq!(state(&at_work(moved + 3599), here + 3600), Updating);
    assert_eq!(state(&at_work(moved + 3600), here + 3600), Failed);
    assert_eq!(state(&at_work(moved - 1), here + 3600), Failed, "its clock went back: ours alone");
    let heard = with(|_, report| report.adopted = None);
    assert_eq!((state(&heard, 3599), state(&heard, 3600)), (Updating, Offline));
}

#[test]
fn what_its_site_holds_back_is_deferred() {
    let pending = |code| with(|_, report| report.components = vec![component(State::Pending, Some(code))]);
    for code in [
        ErrorCode::WaitingWindow,
        ErrorCode::WaitingApproval,
        ErrorCode::WaitingPolicy,
        ErrorCode::WaitingDowntime,
        ErrorCode::Held,
        ErrorCode::Suspended,
    ] {
        assert_eq!(state(&pending(code), 100_000), Deferred, "{}", code.as_str());
    }
    assert_eq!(state(&pending(ErrorCode::Queued), 400), Updating);
    assert_eq!(state(&pending(ErrorCode::WaitingDependency), 400), Updating);
    let outside = with(|_, report| {
        let waits = component(State::Pending, Some(ErrorCode::WaitingDependency));
        report.components = vec![Component { waits_outside: true, ..waits }];
    });
    assert_eq!(state(&outside, 400), Deferred);
    let removal = with(|_, report| report.components = vec![component(State::Removing, Some(ErrorCode::Suspended))]);
    assert_eq!(state(&removal, 400), Deferred);
    let one_at_work = with(|_, report| {
        report.components = vec![component(State::Pending, Some(ErrorCode::Held)), component(State::Installing, None)];
    });
    assert_eq!(state(&one_at_work, 400), Updating);
    let behind_it = with(|_, report| {
        let waits = component(State::Pending, Some(ErrorCode::WaitingDependency));
        report.components = vec![component(State::Pending, Some(ErrorCode::Held)), waits];
    });
    assert_eq!(state(&behind_it, 400), Deferred);
}

#[test]
fn it_says_when_time_alone_may_change_something() {
    let after = |judged: Judged| judged.again.map(|moment| moment.as_second() - RELEASED);
    assert_eq!(after(judge(&updated(), 200)), Some(300));
    let heard = with(|_, report| report.adopted = None);
    assert_eq!(after(judge(&heard, 400)), Some(3600));
    assert_eq!(after(judge(&updated(), 400)), None);
}
