//! What persons of a site approve and reject from elsewhere, on the branch `site`: only a key of that site counts, the newest
//! list, and just what it names.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use repo_model::{Digest, Trailer};
use repo_testkit::git;
use repo_testkit::hand::Draft;
use serde_json::{Value, json};

use crate::clocks::once_at;
use crate::world::{DEVICE, World};

/// The settings of a site that asks for everything, with the key of j.doe.
fn settings(world: &World) {
    world.settings(&settings_with(world, &[("j.doe", "site")]));
}

/// The same, with these keys and their names.
fn settings_with(world: &World, keys: &[(&str, &str)]) -> String {
    let key = |(name, file): &(&str, &str)| format!("{{name: {name}, key: \"{}\"}}", world.hand.public(file));
    let keys: Vec<_> = keys.iter().map(key).collect();
    format!("gates: {{approval: {{for: ['*'], keys: [{}]}}}}\n", keys.join(", "))
}

/// A device that waits for a person before it greets otherwise.
fn waiting() -> World {
    let world = World::running();
    settings(&world);
    want(&world, "servus");
    world
}

/// The fleet wants another greeting, and the device knows.
fn want(world: &World, greeting: &str) {
    world.hand.want("greeter", &world.app, greeting);
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello pending waiting-approval"]);
}

/// What waits for a person, as the device names it on `status`.
fn set(world: &World) -> String {
    let gates = world.report()["gates"].clone();
    gates[0]["set"].as_str().unwrap_or_else(|| panic!("no set in {gates}")).to_owned()
}

fn words(sets: &[&str]) -> Value {
    sets.iter().map(|set| json!({"set": set, "by": "J. Doe", "why": "line 2 is idle"})).collect()
}

/// So many hours from now.
fn hours(hours: i64) -> String {
    let at = Timestamp::now() + SignedDuration::from_hours(hours);
    format!("{at:.0}")
}

/// A list that approves these changes, for three days.
fn list(world: &World, serial: u64, approved: &[&str]) -> Value {
    json!({"layout": 1, "fleet": world.hand.fleet(), "device": DEVICE, "serial": serial, "expires": hours(72),
        "approvals": words(approved), "rejected": []})
}

/// A commit with a list, to be signed by the site's key.
fn draft(world: &World, list: &Value) -> Draft {
    let message = format!("site\n\nKind: site\nFleet: {}\nDevice: {DEVICE}", world.hand.fleet());
    let key: Option<PathBuf> = Some(world.hand.key("site"));
    let mut draft = Draft { files: BTreeMap::new(), message, parents: Vec::new(), key };
    draft.put("site.json", format!("{list}\n"));
    draft
}

fn push(world: &World, draft: &Draft) -> String {
    let commit = world.hand.commit(draft);
    world.hand.move_branch("site", &commit);
    commit
}

/// What is wrong with the list at the host, as the device says it on `status`.
fn refused(world: &World) -> Vec<String> {
    let is_ours = |one: &String| one.starts_with("SiteRefused") || one.starts_with("SecurityEvent");
    world.conditions().into_iter().filter(is_ours).collect()
}

/// What the list that this device keeps says.
fn kept(world: &World) -> Value {
    serde_json::from_slice(&fs::read(world.home().join("site.json")).expect("a list is kept")).expect("JSON")
}

/// A command prints these words.
fn assert_shows(world: &World, args: &[&str], words: &str) {
    let shown = world.syncer(args).stdout;
    assert!(shown.contains(words), "{words} in {shown}");
}

fn approve_here(world: &World) {
    let set = set(world);
    let change = set.strip_prefix("sha256:").expect("a digest");
    world.syncer(&["approve", "greeter", "--change", change, "--by", "a.roe", "--why", "here"]).good();
}

#[test]
fn what_the_sites_list_approves_is_applied_and_it_is_shown_by_whom() {
    let world = waiting();
    let message = world.message("greeter");
    let set_of_servus = set(&world);
    assert!(message.contains(&set_of_servus["sha256:".len()..][..12]), "{message}");
    world.assert_quiet();
    let commit = push(&world, &draft(&world, &list(&world, 1, &[&set_of_servus])));
    world.syncer(&["approve", "greeter"]).good();
    world.once().good();
    assert_eq!(world.greetings(), ["servus"]);
    world.assert_idle();
    let report = world.report();
    let site = &report["site"];
    assert_eq!((&site["serial"], &site["commit"], &site["key"]), (&1.into(), &commit.into(), &"j.doe".into()));
    assert_eq!(report["gates"], Value::Null);
    assert_shows(&world, &["status"], "site: its list 1, with the key of j.doe, counts until 2");
    let explained = "was approved by J. Doe in the site's list 1, with the key of j.doe: line 2 is idle";
    assert_shows(&world, &["explain", "greeter"], explained);

    // A newer revision that comes to something else waits again; one that comes to the same doesn't.
    want(&world, "ciao");
    assert_ne!(set(&world), set_of_servus);
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.once().good();
    // Whoever takes the word back takes it back of what was not done yet.
    push(&world, &draft(&world, &list(&world, 2, &[])));
    world.once().good();
    want(&world, "ciao");
    let set_of_ciao = set(&world);
    push(&world, &draft(&world, &list(&world, 3, &[&set_of_ciao])));
    push(&world, &draft(&world, &list(&world, 4, &[])));
    world.once().ended(1);
    assert_eq!(
        (world.greetings(), kept(&world)["newest"]["list"]["serial"].clone()),
        (vec!["servus".into()], 4.into())
    );
}

#[test]
fn a_host_that_shows_an_older_list_or_none_brings_nothing_back() {
    let world = waiting();
    let set = set(&world);
    let approving = draft(&world, &list(&world, 6, &[&set]));
    let old = world.hand.commit(&approving);
    push(&world, &draft(&world, &list(&world, 7, &[])));
    world.once().ended(1);
    world.hand.move_branch("site", &old);
    world.once().ended(1);
    assert_eq!(refused(&world), ["SiteRefused SerialRollback"]);
    world.assert_quiet();
    // Nor after the clone is lost, or made anew by a join file.
    fs::remove_dir_all(world.clone()).expect("removed");
    world.once().ended(1);
    world.init(&world.home());
    world.once().ended(1);
    assert_eq!(
        (world.greetings(), refused(&world)),
        (vec!["hello".to_owned()], vec!["SiteRefused SerialRollback".to_owned()])
    );
    // Two lists of one serial: the first one counts, and an auditor hears of it.
    push(&world, &draft(&world, &list(&world, 7, &[&set])));
    world.once().ended(1);
    assert_eq!((world.greetings(), refused(&world)), (vec!["hello".into()], vec!["SecurityEvent SiteForked".into()]));

    // What it withholds goes on to count: the list that was believed, until it expires.
    push(&world, &draft(&world, &list(&world, 8, &[&set])));
    world.once().good();
    git::git(&world.hand.repository(), &["update-ref", "-d", "refs/heads/site"]);
    want(&world, "ciao");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.once().good();
    assert_eq!((world.greetings(), refused(&world)), (vec!["servus".to_owned()], Vec::new()));
}

#[test]
fn nothing_but_a_list_of_this_devices_own_site_counts() {
    let world = waiting();
    let set = set(&world);
    let good = list(&world, 1, &[&set]);
    let with = |key: &str, value: Value| {
        let mut list = good.clone();
        list[key] = value;
        draft(&world, &list)
    };
    let signed_by = |key: Option<PathBuf>| Draft { key, ..draft(&world, &good) };
    let mut with_more = draft(&world, &good);
    with_more.put("README", "x");
    let mut of_status = draft(&world, &good);
    of_status.trailer(Trailer::Kind, "status");
    let before = world.hand.commit(&draft(&world, &good));
    let with_parent = Draft { parents: vec![before], ..draft(&world, &good) };
    for (what, draft, reason) in [
        ("the publisher's key", signed_by(Some(world.hand.path("publisher"))), "SignatureInvalid"),
        ("the device's own key", signed_by(Some(world.home().join("status.key"))), "SignatureInvalid"),
        ("a key that nobody knows", signed_by(Some(world.hand.stranger())), "SignatureInvalid"),
        ("nobody", signed_by(None), "SignatureInvalid"),
        ("for another device", with("device", "press-02".into()), "WrongDevice"),
        ("for another fleet", with("fleet", "11111111-2222-4333-8444-555555555555".into()), "WrongDevice"),
        ("made for another branch", of_status, "WrongDevice"),
        ("with a file more", with_more, "Unreadable"),
        ("with a parent", with_parent, "Unreadable"),
        (
            "a link",
            {
                let mut draft = draft(&world, &good);
                draft.put_as("120000", "site.json", "/etc/passwd");
                draft
            },
            "Unreadable",
        ),
        ("a newer layout", with("layout", 2.into()), "LayoutTooNew"),
        ("expired", with("expires", hours(-1).into()), "OutOfTime"),
        ("for ever", with("expires", "9999-12-30T22:00:00Z".into()), "OutOfTime"),
        ("more than a pack may have", with("future", noise().into()), "Unavailable"),
    ] {
        push(&world, &draft);
        world.once().ended(1);
        assert_eq!(refused(&world), [format!("SiteRefused {reason}")], "{what}");
        assert_eq!(world.greetings(), ["hello"], "{what}");
        assert!(!world.home().join("site.json").exists(), "{what}");
    }
    world.assert_quiet();
    push(&world, &draft(&world, &good));
    world.once().good();
    assert_eq!((world.greetings(), refused(&world)), (vec!["servus".to_owned()], Vec::new()));
}

/// Half a megabyte that no compression makes smaller.
fn noise() -> String {
    (0..8192).map(|number: u32| Digest::of(&number.to_be_bytes()).hex()).collect()
}

#[test]
fn a_key_that_is_taken_off_counts_no_more_nor_does_its_serial() {
    let world = waiting();
    let set = set(&world);
    let both = [("j.doe", "site"), ("a.roe", "other")];
    let by_other = |serial, sets: &[&str]| Draft {
        key: Some(world.hand.key("other")),
        ..draft(&world, &list(&world, serial, sets))
    };
    world.settings(&settings_with(&world, &both));
    push(&world, &by_other(3, &[]));
    world.once().ended(1);
    // A thief locks everybody out by the highest number there is, and approves.
    world.syncer(&["hold", "--by", "a.roe", "--why", "a key was stolen"]).good();
    let highest: u64 = (1 << 53) - 1;
    push(&world, &draft(&world, &list(&world, highest, &[&set])));
    world.once().ended(1);
    assert_eq!(world.report()["site"]["serial"], highest);
    push(&world, &by_other(4, &[]));
    world.once().ended(1);
    assert_eq!(refused(&world), ["SiteRefused SerialRollback"]);
    world.settings(&settings_with(&world, &both[1..]));
    push(&world, &draft(&world, &list(&world, highest, &[&set])));
    world.syncer(&["release"]).good();
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello pending waiting-approval"]);
    assert_eq!(
        (refused(&world), &world.report()["site"]),
        (vec!["SiteRefused SignatureInvalid".to_owned()], &Value::Null)
    );
    // Its number is none any more; what the key that stays said before still is.
    push(&world, &by_other(2, &[&set]));
    world.once().ended(1);
    assert_eq!(refused(&world), ["SiteRefused SerialRollback"]);
    push(&world, &by_other(4, &[&set]));
    world.once().good();
    assert_eq!((world.greetings(), refused(&world)), (vec!["servus".to_owned()], Vec::new()));
}

#[test]
fn what_somebody_rejected_waits_whoever_approved_it_and_says_who_rejected_it() {
    let world = waiting();
    let set_of_servus = set(&world);
    let mut rejecting = list(&world, 1, &[]);
    rejecting["rejected"] = words(&[&set_of_servus]);
    push(&world, &draft(&world, &rejecting));
    world.once().ended(1);
    let message = world.message("greeter");
    let rejected = "was rejected by J. Doe in the site's list 1, with the key of j.doe: line 2 is idle";
    assert!(message.ends_with(rejected), "{message}");
    assert_eq!(world.report()["gates"][0]["by"], "J. Doe (key of j.doe)");
    let change = &set_of_servus["sha256:".len()..];
    let args = ["approve", "greeter", "--change", change, "--by", "a.roe", "--why", "here"];
    assert_shows(
        &world,
        &args,
        "rejected by J. Doe in the site's list, with the key of j.doe: line 2 is idle; it goes on waiting",
    );
    world.once().ended(1);
    assert_eq!(world.greetings(), ["hello"]);
    assert_shows(&world, &["explain", "greeter"], rejected);
    // Once it is left out of the list, the word at the device counts.
    push(&world, &draft(&world, &list(&world, 2, &[])));
    world.once().good();
    assert_eq!(world.greetings(), ["servus"]);

    // The other way round.
    want(&world, "ciao");
    let set_of_ciao = set(&world);
    let change = &set_of_ciao["sha256:".len()..];
    world.syncer(&["reject", "greeter", "--change", change, "--by", "a.roe", "--why", "not now"]).good();
    push(&world, &draft(&world, &list(&world, 3, &[&set_of_ciao])));
    world.once().ended(1);
    let message = world.message("greeter");
    assert!(message.contains("was rejected by a.roe at 2") && message.ends_with(": not now"), "{message}");
    assert_eq!(world.report()["gates"][0]["by"], "a.roe");
    approve_here(&world);
    world.once().good();
    assert_eq!(world.greetings(), ["ciao"]);
}

#[test]
fn a_list_ends_by_the_devices_clock_and_one_that_is_behind_what_was_proven_opens_nothing() {
    let world = waiting();
    let set = set(&world);
    push(&world, &draft(&world, &list(&world, 1, &[&set])));
    // Within its days, but for a clock that shows less than the proof of freshness that came with the state.
    once_at(&world, "2 days ago").ended(1);
    let message = world.message("greeter");
    assert!(message.contains("is in the site's list, which may be over"), "{message}");
    // A month ago it would have lived too long, and in 1970.
    for time in ["30 days ago", "1970-01-03 00:00:00"] {
        once_at(&world, time).ended(1);
        assert_eq!(world.greetings(), ["hello"], "{time}");
    }
    // After its end.
    once_at(&world, "4 days").ended(1);
    assert_eq!(world.greetings(), ["hello"]);
    world.once().good();
    assert_eq!(world.greetings(), ["servus"]);
}

#[test]
fn what_goes_by_the_sites_list_is_noted_before_it_does() {
    let world = World::running();
    world.hand.want("line", &world.app, "hello");
    world.hand.publish();
    world.once().good();
    settings(&world);
    world.hand.drop("line");
    world.hand.publish();
    world.once().ended(1);
    push(&world, &draft(&world, &list(&world, 1, &[&set(&world)])));
    world.once().good();
    assert_eq!(world.states("line"), ["hello removed"]);
    let begun = kept(&world)["begun"].clone();
    assert_eq!(begun.as_array().map(Vec::len), Some(1), "what goes is noted before it does: {begun}");
}

#[test]
fn a_device_whose_site_lists_no_keys_does_not_read_the_branch() {
    let world = World::running();
    world.settings("gates: {approval: {for: ['*']}}\n");
    want(&world, "servus");
    let commit = push(&world, &draft(&world, &list(&world, 1, &[&set(&world)])));
    world.once().ended(1);
    let has = |commit: &str| {
        git::command(&world.clone()).args(["cat-file", "-e", commit]).output().expect("git").status.success()
    };
    assert!(!has(&commit) && !world.home().join("site.json").exists());
    assert_eq!((world.greetings(), refused(&world)), (vec!["hello".to_owned()], Vec::new()));
    settings(&world);
    world.once().good();
    assert!(has(&commit));
}

#[test]
fn a_list_that_is_kept_and_can_not_be_read_approves_nothing_and_says_what_to_do() {
    let world = waiting();
    push(&world, &draft(&world, &list(&world, 1, &[&set(&world)])));
    for content in ["", "{", "{\"bounds\": {}, \"more\": 1}"] {
        fs::write(world.home().join("site.json"), content).expect("written");
        world.once().ended(1);
        let message = world.message("greeter");
        assert!(message.starts_with("nothing counts as approved, because `"), "{message}");
        assert_eq!(refused(&world), ["SiteRefused Unavailable"], "{content}");
        // Nor what was said at the device: who knows whether somebody rejected it.
        approve_here(&world);
        world.once().ended(1);
    }
    assert_eq!(world.greetings(), ["hello"]);
    fs::remove_file(world.home().join("site.json")).expect("removed");
    world.once().good();
    assert_eq!(world.greetings(), ["servus"]);
}

#[test]
fn mistakes_around_the_sites_keys_are_named() {
    let world = World::running();
    let key = world.hand.public("site");
    let mistakes = [
        ("[{name: j.doe}]".to_owned(), "key"),
        ("[{name: j.doe, key: AAAA}]".to_owned(), "the key of `j.doe` isn't the line of an `.pub` file"),
        (format!("[{{name: j.doe, key: \"{}\"}}]", key.replace("ed25519", "rsa")), "`ssh-ed25519`"),
        (format!("[{{name: ' ', key: \"{key}\"}}]"), "one visible line"),
        (format!("[{{name: a, key: \"{key}\"}}, {{name: b, key: \"{key}\"}}]"), "has the key or the name of `a`"),
    ];
    let mistakes: Vec<_> = mistakes.iter().map(|(value, words)| (value.as_str(), *words)).collect();
    world.assert_mistakes(&["once"], |keys| format!("gates: {{approval: {{for: ['*'], keys: {keys}}}}}\n"), &mistakes);
    world.assert_mistakes(
        &["once"],
        |keys| format!("gates: {{approval: {{keys: {keys}}}}}\n"),
        &[("[]", "gates.approval.for: names no deployment")],
    );
}

#[test]
fn what_a_sites_limit_on_removals_holds_goes_when_the_list_names_each_of_them() {
    let world = World::running();
    for name in ["other", "third"] {
        world.hand.want(name, &world.app, "hello");
    }
    world.hand.publish();
    let key = format!("{{name: j.doe, key: \"{}\"}}", world.hand.public("site"));
    world.settings(&format!("gates: {{removals: 0%, approval: {{keys: [{key}]}}}}\n"));
    world.once().good();
    let containers = world.containers();
    for name in ["greeter", "other", "third"] {
        world.hand.drop(name);
    }
    world.hand.publish();
    world.once().ended(1);
    let gates = |field: &str| -> Vec<String> {
        let gates = world.report()["gates"].clone();
        let all = gates.as_array().unwrap_or_else(|| panic!("no gates in {gates}"));
        all.iter().filter_map(|gate| gate[field].as_str().map(str::to_owned)).collect()
    };
    let sets = gates("set");
    assert_eq!(sets.len(), 3, "{sets:?}");
    let [first, second, third] = [0, 1, 2].map(|at: usize| sets[at].as_str());

    // Two of three are no word for all three, and a rejection counts first.
    push(&world, &draft(&world, &list(&world, 1, &[first, second])));
    world.once().ended(1);
    assert_eq!((world.containers(), gates("set")), (containers.clone(), vec![third.to_owned()]));
    let mut rejecting = list(&world, 2, &[first, second, third]);
    rejecting["rejected"] = words(&[third]);
    push(&world, &draft(&world, &rejecting));
    world.once().ended(1);
    assert_eq!((world.containers(), gates("by")), (containers, vec!["J. Doe (key of j.doe)".to_owned()]));

    push(&world, &draft(&world, &list(&world, 3, &[first, second, third])));
    world.once().good();
    assert_eq!(world.containers(), [""; 0]);
}
