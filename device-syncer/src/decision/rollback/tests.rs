use std::collections::BTreeSet;

use repo_model::Digest;
use repo_model::envelope::{ComponentLock, Lock, ValueFrom};
use repo_model::margo::ProfileType;

use super::*;
use crate::decision::device_state::{AppliedComponent, FailedInput};
use crate::decision::gates::Gates;
use crate::decision::plan::{Action, Plan};
use crate::testing::{component, id, input_digest, observed, project, wanted};

fn document(version: &str) -> Vec<u8> {
    format!(
        "id: {}\nmetadata: {{name: title, namespace: default, deviceId: press-01}}\nspec:\n  applicationId: app\n  \
         deploymentProfile:\n    type: compose\n    components:\n      - name: x\n        properties: {{repository: \
         \"oci://registry.invalid/app\", revision: {version}.0.0}}\n  parameters: {{}}\n",
        id("a")
    )
    .into_bytes()
}

fn envelope(version: &str) -> EnvelopeDeployment {
    let digest = Digest::of(version.as_bytes());
    let lock = ComponentLock::from(Lock { manifest: digest, content: digest });
    let envelope = serde_json::json!({"id": "a", "policy": {"onFailure": "last-good", "stabiliseSeconds": 60}});
    let mut envelope: EnvelopeDeployment = serde_json::from_value(envelope).unwrap();
    envelope.locks.insert(component("x"), lock);
    envelope
}

fn with_values<T>(make: impl FnOnce(&DeviceValues<'_>) -> T) -> T {
    let types = BTreeSet::from([ProfileType::Compose]);
    let read = |_: &str| Err(Failure::new(ErrorCode::ParameterInvalid, "no such file"));
    let admission = &Default::default();
    let (decrypt, max_timeout) = (&read, Duration::MAX);
    let (types, read) = (&types, &read);
    make(&DeviceValues { types, capabilities: None, read, decrypt, hmac_key: b"key", admission, max_timeout })
}

/// The deployment in this version, as an envelope with `last-good` gives it.
fn set(version: &str) -> DesiredDeployment {
    let document = read_document(id("a"), &document(version)).unwrap();
    with_values(|values| resolve_deployment(id("a"), &document, &envelope(version), values))
}

fn input(one: &DesiredDeployment) -> &Component {
    one.components[0].input.as_ref().unwrap()
}

fn applied(one: &DesiredDeployment) -> AppliedComponent {
    let (input_digest, kind) = (Some(input(one).input_digest), ProfileType::Compose);
    AppliedComponent { name: component("x"), project: project("a", "x"), kind, input_digest }
}

/// Version 1 ran well, and version 2 failed for good.
fn failed() -> DeviceState {
    let (one, two) = (set("1"), set("2"));
    let mut state = DeviceState::default();
    state.note(&one, applied(&one));
    state.note_good(&one, &envelope("1"));
    let failure = Failure::new(ErrorCode::ComposeFailed, "it said no");
    let bad = FailedInput { input_digest: input(&two).input_digest, failure };
    state.failed_inputs.insert(project("a", "x"), bad);
    state
}

/// What a pass makes of it.
fn pass(state: &mut DeviceState, wanted: DesiredDeployment, against: Option<&str>) -> DesiredDeployment {
    let mut wanted = [wanted];
    state.forget_sets(&wanted);
    if state.is_on_trial(&wanted[0])
        && let Some(why) = state.set_failure(&wanted[0])
    {
        state.note_bad(&wanted[0], why, against.map(str::to_owned));
    }
    with_values(|values| state.with_last_good(&mut wanted, values));
    state.keep_only(&wanted);
    let [wanted] = wanted;
    wanted
}

fn action(state: &DeviceState, wanted: &DesiredDeployment, found: &[Observed]) -> Action {
    let plan = Plan::make(Some(std::slice::from_ref(wanted)), state, found, &BTreeSet::new(), &Gates::default());
    assert!(plan.removals.is_empty() && plan.held.is_empty(), "{plan:?}");
    plan.deployments[0].components[0].action.clone()
}

#[test]
fn the_last_good_set_is_planned_instead_of_one_that_failed_until_another_is_wanted() {
    let mut state = failed();
    let instead = pass(&mut state, set("2"), None);
    assert_eq!(instead.set(), set("1").set());
    let said = instead.rolled_back.clone().unwrap();
    assert_eq!(said.code, "rolled-back");
    let words = "what ran before runs instead, because of compose-failed: component `x`: it said no";
    assert_eq!(said.message, words);
    // Version 2 is half there: version 1 is applied.
    let half = observed("a", "x", None, Condition::Missing);
    assert!(matches!(action(&state, &instead, &[half]), Action::Apply { input, .. } if input.revision == "1.0.0"));
    let runs = observed("a", "x", Some(input(&instead).input_digest), Condition::Running);
    assert!(matches!(action(&state, &instead, &[runs]), Action::Keep));
    // Again and again, also after a restart.
    let mut state = DeviceState::of_tree(&state.to_tree()).unwrap();
    for _ in 0..3 {
        assert_eq!(pass(&mut state, set("2"), None).set(), set("1").set());
    }
    assert_eq!(pass(&mut state, set("3"), None).set(), set("3").set());
    assert!(state.rollbacks.is_empty(), "version 2 has its chance again");
    assert_eq!(pass(&mut state, set("2"), None).set(), set("2").set());
}

#[test]
fn what_is_put_back_heals_and_a_failure_to_put_it_back_is_final() {
    let mut state = failed();
    let instead = pass(&mut state, set("2"), None);
    let stopped = Condition::Stopped("exited with 3".to_owned());
    let stopped = observed("a", "x", Some(input(&instead).input_digest), stopped);
    assert!(matches!(action(&state, &instead, &[stopped]), Action::Restore { .. }));
    let failure = Failure::new(ErrorCode::ComposeFailed, "no again");
    let bad = FailedInput { input_digest: input(&instead).input_digest, failure };
    state.failed_inputs.insert(project("a", "x"), bad);
    let again = pass(&mut state, set("2"), None);
    assert_eq!(again.set(), set("1").set(), "there is no rollback of a rollback");
    let half = observed("a", "x", None, Condition::Missing);
    let Action::Fail(failure) = action(&state, &again, &[half]) else { panic!("it is tried again") };
    assert_eq!(failure.code, "rollback-failed");
    assert!(failure.message.ends_with("compose-failed: no again"), "{}", failure.message);
}

#[test]
fn nothing_is_put_back_where_nothing_ran_well_or_something_speaks_against_it_or_nobody_asked() {
    let mut state = failed();
    state.good_sets.clear();
    let words = |state: &DeviceState, wanted: &DesiredDeployment| match action(state, wanted, &[]) {
        Action::Fail(failure) => (failure.code, failure.message),
        other => panic!("{other:?}"),
    };
    let wanted = pass(&mut state, set("2"), None);
    let (code, text) = words(&state, &wanted);
    assert_eq!((wanted.set(), code.as_str()), (set("2").set(), "compose-failed"));
    assert_eq!(text, "it said no; what ran before isn't put back: nothing of it ran well here for long enough before");
    let mut state = failed();
    let wanted = pass(&mut state, set("2"), Some("a hook has begun"));
    assert_eq!(words(&state, &wanted).1, "it said no; what ran before isn't put back: a hook has begun");
    assert_eq!(pass(&mut state, set("2"), None).set(), set("2").set(), "it was decided");
    let anyway = DesiredDeployment { on_failure: OnFailure::LastGoodAnyway, ..set("2") };
    assert!(state.is_on_trial(&anyway) && !state.is_on_trial(&set("2")));
    assert_eq!(pass(&mut state, anyway, None).set(), set("1").set(), "it is decided anew");
    let mut state = failed();
    let wanted = pass(&mut state, DesiredDeployment { on_failure: OnFailure::Hold, ..set("2") }, None);
    assert_eq!((wanted.set(), words(&state, &wanted).1), (set("2").set(), "it said no".to_owned()));
    assert!(state.good_sets.is_empty(), "only what is rolled back keeps two sets");
}

#[test]
fn a_set_is_on_trial_until_it_is_good_or_bad_and_a_person_can_let_it_be_tried_again() {
    let mut state = DeviceState::default();
    assert!(state.is_on_trial(&set("1")));
    assert!(!state.is_on_trial(&wanted("a", &[("x", "1")])), "its policy is to be left as it is");
    state.note_good(&set("1"), &envelope("1"));
    assert!(!state.is_on_trial(&set("1")) && state.is_on_trial(&set("2")));
    let mut state = failed();
    let instead = pass(&mut state, set("2"), None);
    assert!(!state.is_on_trial(&instead) && !state.is_on_trial(&set("2")));
    state.forget_failures(&instead, "boot");
    assert!(state.is_on_trial(&set("2")));
    assert_eq!(pass(&mut state, set("2"), None).set(), set("2").set());
}

#[test]
fn what_runs_is_left_alone_where_the_good_set_can_not_be_made_any_more() {
    let mut state = failed();
    pass(&mut state, set("2"), None);
    // As if a file of the device had other contents since.
    let other = Digest::of(b"other");
    state.good_sets.get_mut(&id("a")).unwrap().inputs.set = other;
    state.rollbacks.get_mut(&id("a")).unwrap().instead = Instead::LastGood(other);
    let left = pass(&mut state, set("2"), None);
    let half = observed("a", "x", None, Condition::Missing);
    let Action::Fail(failure) = action(&state, &left, &[half]) else { panic!("something is done") };
    assert_eq!(failure.code, "rollback-failed");
    assert!(failure.message.contains("a file of this device"), "{}", failure.message);
}

#[test]
fn a_deployment_is_well_when_all_of_it_is_and_ill_when_anything_is() {
    let pair = wanted("a", &[("x", "1"), ("y", "1")]);
    let of = |y: Option<Condition>| {
        let digest = |name: &str| Some(input_digest("a", name, "1"));
        let mut found = vec![observed("a", "x", digest("x"), Condition::Running)];
        found.extend(y.map(|condition| observed("a", "y", digest("y"), condition)));
        SetHealth::of(&pair, &Observation { found, ..Observation::default() })
    };
    assert_eq!(of(Some(Condition::Running)), SetHealth::Healthy);
    let unhealthy = Condition::Degraded("service `web` is unhealthy".to_owned());
    assert_eq!(of(Some(unhealthy)), SetHealth::Unhealthy("`y`: service `web` is unhealthy".to_owned()));
    for unknown in [None, Some(Condition::Starting), Some(Condition::Missing), Some(Condition::Unknown(String::new()))]
    {
        assert_eq!(of(unknown.clone()), SetHealth::Unknown, "{unknown:?}");
    }
    let found = vec![observed("a", "x", Some(input_digest("a", "x", "0")), Condition::Degraded("old".to_owned()))];
    let observation = Observation { found, ..Observation::default() };
    assert_eq!(SetHealth::of(&wanted("a", &[("x", "1")]), &observation), SetHealth::Unknown, "another set runs");
}

#[test]
fn what_ran_well_lasts_and_a_word_that_is_not_known_means_the_least_action() {
    let mut state = failed();
    state.note_bad(&set("2"), Failure::new(ErrorCode::ComposeFailed, "no"), None);
    let tree = state.to_tree();
    assert_eq!(DeviceState::of_tree(&tree).unwrap(), state);
    let mut remains = tree.clone();
    remains.insert(format!("deployments/{}/last-good/set.json", id("a")), b"{".to_vec());
    assert!(DeviceState::of_remains(remains).good_sets.is_empty());
    let policy = serde_json::json!({"id": "a", "policy": {"onFailure": "later-word"}});
    assert_eq!(serde_json::from_value::<EnvelopeDeployment>(policy).unwrap().policy.on_failure, OnFailure::Hold);
}

#[test]
fn a_good_set_whose_values_are_only_encrypted_anew_is_the_same_set_with_the_newer_ones() {
    let (one, mut anew, mut state) = (set("1"), envelope("1"), DeviceState::default());
    state.note_good(&one, &envelope("1"));
    let from: ValueFrom =
        serde_json::from_value(serde_json::json!({"encrypted": "to a new key", "targets": []})).unwrap();
    anew.values_from.insert("password".to_owned(), from);
    let known = |state: &DeviceState| state.good_sets[&one.id].inputs.envelope.clone();
    state.note_encrypted_anew(&set("2"), &anew);
    assert_eq!(known(&state), envelope("1"), "another set is another one's business");
    state.note_encrypted_anew(&one, &anew);
    assert_eq!(known(&state), anew);
}
