//! What a rollout holds back stays as it is on a device, byte for byte, and nothing goes because of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use repo_model::desired::Desired;
use repo_model::{DeploymentName, FileTree};
use wfm_git_publisher::fleet::Fleet;
use wfm_git_publisher::plan::{Change, DevicePlan, plan};
use wfm_git_publisher::render::{Facts, Locks, render};

use crate::words::{PARAMETERS, deployment, files, locks, published, read, told};

/// A fleet of these deployments, each with what it says beside its package: `app` is of one, all others are of another.
fn fleet(deployments: &[(&str, &str)]) -> Fleet {
    let one = |(id, rest): &(&str, &str)| {
        let application = if *id == "app" { "app" } else { "other" };
        (format!("deployments/{id}.yaml"), deployment(id, application, rest))
    };
    let all: Vec<_> = deployments.iter().map(one).collect();
    let all: Vec<_> = all.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let mut files = files(PARAMETERS, &all);
    files.retain(|file| !file.path.starts_with("deployments/") || all.iter().any(|(path, _)| *path == file.path));
    read(&files).0
}

fn names(names: &[&str]) -> BTreeSet<DeploymentName> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

/// What is planned for the device that has this, while these are held back.
fn planned(parent: Option<&Desired>, after: &Fleet, held: &BTreeSet<DeploymentName>, locks: &Locks) -> DevicePlan {
    let facts = Facts { parent, held: Some(held), ..Facts::default() };
    let rendered = render(after, &after.devices[&"a".parse().unwrap()], facts, locks);
    plan(&rendered, parent, &FileTree::new(), &after.broken)
}

/// What is planned, what is held back, and whether anything is told as a problem, or as left for another reason.
fn all(plan: &DevicePlan) -> (Vec<String>, Vec<String>, bool) {
    let held = |change: &Change| format!("{} {}", change.kind.as_str(), change.name);
    let is_trouble = !plan.kept.is_empty() || !plan.problems().is_empty() || plan.is_unresolved();
    (told(plan).0, plan.held.iter().map(held).collect(), is_trouble)
}

/// The document and the envelope's entry of a deployment.
fn of<'a>(parent: &'a Desired, name: &DeploymentName) -> Option<(&'a [u8], String)> {
    let (id, envelope) = parent.envelope.deployments.iter().find(|(_, one)| one.id == *name)?;
    Some((&parent.deployments[id].bytes, format!("{envelope:?}")))
}

fn to_be<'a>(plan: &'a DevicePlan, name: &DeploymentName) -> Option<(&'a [u8], String)> {
    let (id, envelope) = plan.target.deployments.iter().find(|(_, one)| one.id == *name)?;
    Some((&plan.target.documents[id], format!("{envelope:?}")))
}

#[test]
fn what_is_held_is_the_parents_bytes_and_all_else_is_as_if_nothing_were() {
    let before = fleet(&[("app", ""), ("base", ""), ("gone", "")]);
    let after = fleet(&[
        ("app", "parameters: {text: new}\n"),
        ("base", "parameters: {mode: slow}\nonFailure: last-good\n"),
        ("new", "onFailure: last-good\n"),
    ]);
    let (locks, parent) = (locks(&after), published(&before, &locks(&before)));
    let freely = planned(Some(&parent), &after, &BTreeSet::new(), &locks);
    assert_eq!(freely.changes.len(), 4);
    // `new` takes the place of `gone`, so that one of them alone is another story.
    let of_four = ["app", "base", "gone", "new"];
    for bits in 0..16_usize {
        let held: Vec<_> = of_four.into_iter().enumerate().filter(|(at, _)| bits & (1 << at) != 0).collect();
        let held = names(&held.into_iter().map(|(_, name)| name).collect::<Vec<_>>());
        let plan = planned(Some(&parent), &after, &held, &locks);
        for name in &names(&of_four) {
            let expected = if held.contains(name) { of(&parent, name) } else { to_be(&freely, name) };
            assert_eq!(to_be(&plan, name), expected, "{name} with {held:?} held");
        }
        let waiting: BTreeSet<_> = plan.held.iter().map(|change| change.name.clone()).collect();
        assert_eq!((waiting, all(&plan).2), (held.clone(), false));
        assert_eq!(
            plan.splits_replacement(),
            held.contains(&"gone".parse().unwrap()) != held.contains(&"new".parse().unwrap())
        );
        assert_eq!(plan.is_empty(), held.len() == 4);
    }
}

#[test]
fn whether_it_is_suspended_comes_at_once() {
    let before = fleet(&[("app", ""), ("base", "")]);
    let after = fleet(&[("app", "parameters: {text: new}\nsuspended: true\n"), ("base", "suspended: true\n")]);
    let (locks, parent) = (locks(&before), published(&before, &locks(&before)));
    let plan = planned(Some(&parent), &after, &names(&["app", "base"]), &locks);
    let suspended = |name: &str| format!("change {name}: suspended");
    assert_eq!(all(&plan), (vec![suspended("app"), suspended("base")], vec!["change app".to_owned()], false));
    let what: Vec<_> = plan.held[0].differences.iter().map(|one| one.what.as_str()).collect();
    assert_eq!(what, ["text"], "what comes at once isn't shown as held back");
    assert!(plan.target.deployments.values().all(|one| one.policy.suspended) && !plan.target.new_manifest);
}

#[test]
fn what_waits_for_what_is_held_waits_with_it_and_that_is_no_problem() {
    let all_held = |plan: &DevicePlan, names: &[&str]| {
        let held: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(all(plan), (vec![], held, false), "{plan:?}");
    };
    // Something new that waits for something new.
    let after = fleet(&[("app", "dependsOn: [base]\n"), ("base", "")]);
    let known = locks(&after);
    let plan = planned(None, &after, &names(&["base"]), &known);
    all_held(&plan, &["add app", "add base"]);
    assert!(plan.target.documents.is_empty());
    // Something that is there waits for it from now on.
    let parent = published(&fleet(&[("app", "")]), &known);
    let plan = planned(Some(&parent), &after, &names(&["base"]), &known);
    all_held(&plan, &["change app", "add base"]);
    assert_eq!(to_be(&plan, &"app".parse().unwrap()), of(&parent, &"app".parse().unwrap()));
    // What goes is what something held back waits for.
    let parent = published(&after, &known);
    let plan = planned(Some(&parent), &fleet(&[("app", "")]), &names(&["app"]), &known);
    all_held(&plan, &["change app", "remove base"]);
    let plan = planned(Some(&parent), &fleet(&[]), &names(&["app"]), &known);
    all_held(&plan, &["remove app", "remove base"]);
    assert_eq!(plan.target.documents.len(), 2);
    // Two of them turn round.
    let turned = fleet(&[("app", ""), ("base", "dependsOn: [app]\n")]);
    let plan = planned(Some(&parent), &turned, &names(&["app"]), &known);
    all_held(&plan, &["change app", "change base"]);
}

#[test]
fn nothing_of_a_retired_device_is_held() {
    let before = fleet(&[("app", "")]);
    let (locks, parent) = (locks(&before), published(&before, &locks(&before)));
    let mut retired = before.clone();
    let device = Arc::make_mut(retired.devices.get_mut(&"a".parse().unwrap()).unwrap());
    device.retired = Some(wfm_git_publisher::fleet::Retired::Now);
    let plan = planned(Some(&parent), &retired, &names(&["app"]), &locks);
    assert_eq!(all(&plan), (vec!["remove app: ".to_owned()], vec![], false));
}
