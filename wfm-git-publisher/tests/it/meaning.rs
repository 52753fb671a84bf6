//! Same meaning, no commit; and where something changes, what doesn't keeps its bytes.

use repo_git::{CommitSpec, Expected, Person, RefMove, Repo, SigningKey, TreeLimits, TreeSource};
use repo_model::Trailer;
use repo_model::desired::{assemble, read};
use repo_model::message::Message;

use crate::support::{Lab, SECOND};

/// Everything that publishing could change.
fn state(lab: &Lab) -> String {
    lab.refs("press-01") + &lab.control(&["for-each-ref"])
}

#[test]
fn other_bytes_with_the_same_meaning_make_no_commit() {
    let lab = Lab::with(&["press-01"]);
    lab.write("deployments/second.yaml", SECOND);
    lab.commit();
    lab.publish_all();
    let before = state(&lab);
    // Flow style, another order, quotes, comments; and every file somewhere else.
    let key = Lab::device_key("press-01").public();
    lab.remove("deployments/hello.yaml");
    lab.write(
        "deployments/a/b/renamed.yaml",
        "{overrides: [{parameters: {interval: 10, greeting: 'hello from the packer'}, when: {matchLabels: {role: packer}}}],\n\
         parameters: {greeting: \"hello from the press\"}, # why not\n targets: [matchLabels: {site: graz}],\n\
         application: {version: \"1.0.0\", id: hello}, id: hello}",
    );
    lab.rename("deployments/second.yaml", "deployments/zzz.yaml");
    lab.remove("devices/press-01.yaml");
    lab.write(
        "devices/line 1/p.yaml",
        format!("statusKeys: ['{key} with a comment']\nlabels: {{role: press, line: '1', site: graz}}\nid: press-01\n"),
    );
    lab.edit("fleet.yaml", "poll: 15s", "poll: \"15s\"");
    lab.commit();
    assert_eq!(lab.publish_all().published(), 0);
    assert_eq!(state(&lab), before);
    assert_eq!(lab.publish_all().published(), 0);
    assert_eq!(state(&lab), before);
}

#[test]
fn a_changed_policy_leaves_the_manifest_alone() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    let before = (lab.documents("press-01"), lab.git("press-01", &["show", "desired:manifest.json"]));
    lab.edit("fleet.yaml", "poll: 15s", "poll: 20s");
    lab.commit();
    lab.publish_all();
    assert_eq!(lab.subjects("press-01")[0], "policy poll changes (serial 2)");
    assert_eq!((lab.documents("press-01"), lab.git("press-01", &["show", "desired:manifest.json"])), before);
    assert_eq!(lab.json("press-01", "desired", "envelope.json")["policy"]["pollSeconds"], 20);
    assert_eq!(lab.trailer("press-01", Trailer::ManifestVersion), "1");
}

#[test]
fn a_device_that_lost_its_key_gets_a_state_without_it() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    let text = lab.read("devices/press-01.yaml");
    lab.write("devices/press-01.yaml", text.split("\nstatusKeys:").next().unwrap());
    lab.commit();
    lab.publish_all();
    assert_eq!(lab.subjects("press-01")[0], "status keys changes (serial 2)");
    let keys = &lab.json("press-01", "desired", "envelope.json")["device"]["statusKeys"];
    assert_eq!(keys.as_array().unwrap().len(), 0, "its word counts no more");
}

/// Publishes the tip's documents anew as another version of this program might have written them.
fn plant(lab: &Lab, other_bytes: impl Fn(Vec<u8>) -> Vec<u8>, other_manifest: bool) {
    let repo = Repo::open(&lab.repo("press-01")).unwrap();
    let tip = repo.tip("desired").unwrap().unwrap();
    let files = repo.files(tip, &TreeLimits::default()).unwrap();
    let trust = files.iter().filter(|(path, _)| path.starts_with("trust/")).map(|(p, b)| (p.clone(), b.clone()));
    let desired = read(&files).unwrap();
    let documents = desired.deployments.iter().map(|(id, one)| (*id, other_bytes(one.bytes.clone()))).collect();
    let mut assembled = assemble(desired.envelope, &documents, &trust.collect());
    if other_manifest {
        let bytes = assembled.tree.get_mut("manifest.json").unwrap();
        *bytes = String::from_utf8(bytes.clone()).unwrap().replace("\"sizeBytes\"", " \"sizeBytes\"").into_bytes();
        assembled.envelope.files.insert("manifest.json".into(), repo_model::Digest::of(bytes));
        let envelope = repo_model::json::to_bytes(&assembled.envelope);
        assembled.envelope_digest = repo_model::Digest::of(&envelope);
        assembled.tree.insert("envelope.json".into(), envelope);
    }
    let message = Message::parse(&repo.commit(tip).unwrap().message);
    let message =
        message.trailers().iter().fold(Message::new("planted"), |planted, (key, value)| match Trailer::parse(key) {
            Some(Trailer::EnvelopeDigest) => planted.trailer(key, assembled.envelope_digest),
            _ => planted.trailer(key, value),
        });
    let person = Person::new("wfm-git-publisher", "publisher@wfm.invalid");
    let spec = CommitSpec {
        tree: TreeSource::Files(&assembled.tree),
        parents: vec![],
        author: person.clone(),
        committer: person,
        time: 0,
        message: message.to_string(),
    };
    let mut batch = repo.batch();
    let key = SigningKey::load(&lab.home.publisher_key()).unwrap();
    let new = batch.commit(&spec, Some(&key)).unwrap();
    batch.store().unwrap();
    let name = "refs/heads/desired".to_owned();
    repo.move_refs(&[RefMove { name, expected: Expected::At(tip), new: Some(new) }]).unwrap();
}

#[test]
fn documents_of_another_version_of_this_program_keep_their_bytes() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    plant(&lab, |bytes| [b"# by another serialiser\n", &bytes[..]].concat(), false);
    let planted = lab.tip("press-01", "desired");
    assert_eq!(lab.publish_all().published(), 0);
    assert_eq!(lab.tip("press-01", "desired"), planted);
    lab.write("deployments/second.yaml", SECOND);
    lab.commit();
    lab.publish_all();
    assert!(lab.documents("press-01")["hello"].starts_with("# by another serialiser\n"));
    assert_eq!(lab.subjects("press-01")[0], "second: add (serial 2)");
}

/// One `manifestVersion` never has two contents, because devices refuse that as a replay.
#[test]
fn a_manifest_with_other_bytes_gets_another_version() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    plant(&lab, |bytes| bytes, true);
    lab.edit("fleet.yaml", "poll: 15s", "poll: 20s");
    lab.commit();
    lab.publish_all();
    assert_eq!(lab.trailer("press-01", Trailer::ManifestVersion), "2");
}
