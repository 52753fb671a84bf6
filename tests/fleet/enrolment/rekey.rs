//! A device gets a new key by its old one, a person says yes, and nobody else comes in by that.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use repo_git::SigningKey;
use repo_git::sign::openssh::fingerprint;
use repo_model::enrolment::{Claim, Kind, Nonce, PROOF_NAMESPACE, Reveal, Start, Started, Transcript, commitment};
use repo_model::{Digest, KeyText, json};
use repo_testkit::device::Device;
use repo_testkit::{comes_within, copy, git};
use serde_json::{Value, json};

use super::replace::take_in;
use super::{Site, read, said};
use crate::audit::findings;
use crate::hosted::ID;

/// A device that came by a code, and has what was published.
pub(super) fn installed(site: &Site) -> Device {
    site.fleet.push_application();
    let device = take_in(site, ID, |code| ["device", "approve", code, "--id", ID].map(str::to_owned).to_vec());
    site.fleet.run(&["publish"]);
    device.pass();
    device
}

/// What `device-syncer rekey` says.
pub(super) fn rekey(device: &Device) -> Value {
    let output = device.syncer(&["rekey", "--output", "json"]);
    assert!(output.status.success(), "{}", said(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A person's yes to the only new key that waits.
pub(super) fn approve(site: &Site) -> String {
    let pending = site.pending();
    let number = pending["pending"][0]["number"].to_string();
    site.fleet.run(&["device", "approve", "--number", &number, "--id", ID])
}

pub(super) fn key(device: &Device, name: &str) -> SigningKey {
    SigningKey::load(&device.home().join(name)).expect("a key")
}

fn text(key: &SigningKey) -> KeyText {
    key.public().to_string().parse().expect("a key")
}

fn secret(device: &Device) -> String {
    read(&device.home().join("account.json"))["current"]["secret"].as_str().expect("a secret").to_owned()
}

/// Who signed the commits of a branch, the oldest first, each as often as it changed.
pub(super) fn signers(site: &Site, branch: &str) -> Vec<String> {
    let allowed = format!("gpg.ssh.allowedSignersFile={}", site.fleet.home().join("allowed_signers").display());
    let log = ["-c", &allowed, "log", "--reverse", "--format=%G? %GK", branch];
    let log = git::git(&site.fleet.repository(ID), &log);
    let mut all: Vec<_> = log.lines().map(|line| line.strip_prefix("G ").expect("it is signed").to_owned()).collect();
    all.dedup();
    all
}

/// Pushes a commit that says what `status` says already, signed with the key of that file, as the device's account.
fn push_status(site: &Site, device: &Device, key: &Path) -> Output {
    let clone = device.clone_dir();
    let tip = git::tip(&site.fleet.repository(ID), "status").expect("it reported");
    let message = git::git(&clone, &["log", "-1", "--format=%B", &tip]);
    let (tree, signing) = (format!("{tip}^{{tree}}"), format!("user.signingkey={}", key.display()));
    let identity = ["-c", "user.name=x", "-c", "user.email=x@device.invalid", "-c", "gpg.format=ssh", "-c", &signing];
    let commit = [&identity[..], &["commit-tree", "-S", "-p", &tip, "-m", message.trim(), &tree]].concat();
    let commit = git::git(&clone, &commit);
    let authority = site.dir.path().join("ca.pem");
    std::fs::write(&authority, site.offer().ca.expect("an authority")).expect("written");
    let secret = secret(device);
    let helper = format!("!f() {{ echo username={ID}; echo password={secret}; }}; f");
    let mut push = git::command(&clone);
    push.env("GIT_TERMINAL_PROMPT", "0").args(["-c", &format!("http.sslCAInfo={}", authority.display())]);
    push.args(["-c", "credential.helper=", "-c", &format!("credential.helper={helper}")]);
    let url = format!("{}/devices/{ID}.git", site.offer().url);
    push.args(["push", &url, &format!("{}:refs/heads/status", commit.trim())]).output().expect("git is installed")
}

#[test]
fn a_device_gets_a_new_key_by_its_old_one_which_counts_until_that_is_published_and_no_longer() {
    let site = Site::new().open();
    let (fleet, device) = (&site.fleet, installed(&site));
    let (old, instance) = (key(&device, "status.key"), std::fs::read_to_string(device.home().join("instance")));
    let instance = instance.expect("there").split(' ').next().map(str::to_owned);
    let old_secret = secret(&device);
    let thief = site.dir.path().join("thief");
    copy(&device.home(), &thief.join("home"));

    let asked = rekey(&device);
    let new = key(&device, "status.key.next");
    assert_eq!(asked, json!({ "apiVersion": "v1", "state": "waits", "fingerprint": fingerprint(&text(&new)) }));
    assert_eq!(rekey(&device), asked, "it is the same request");
    let pending = site.pending();
    let [waiting] = pending["pending"].as_array().expect("a list").as_slice() else { panic!("{pending}") };
    assert_eq!((&waiting["device"], &waiting["fingerprint"]), (&json!(ID), &asked["fingerprint"]), "{waiting}");
    let note = waiting["note"].as_str().expect("a note");
    assert!(note.contains(&format!("new key of {ID}")) && !note.contains("NOT"), "{note}");
    // Until somebody says yes, and that is published, the old one goes on.
    fleet.change("deployments/hello.yaml", "hello from the press", "servus from the press");
    fleet.run(&["publish"]);
    device.pass();
    assert!(device.environments()[0].contains("servus"));
    let number = waiting["number"].to_string();
    let other = fleet.try_run(&["device", "approve", "--number", &number, "--id", "press-02"]);
    assert_eq!(other.status.code(), Some(1));
    assert!(said(&other).contains("is a new key of `press-01`"), "{}", said(&other));
    let by_code = fleet.try_run(&["device", "approve", "0000-0000", "--id", ID]);
    assert!(said(&by_code).contains("shows the code"), "{}", said(&by_code));
    let told = approve(&site);
    assert!(told.contains(asked["fingerprint"].as_str().expect("text")), "{told}");
    assert_eq!(rekey(&device)["state"], "approved");
    let goes_on = || device.once().output().expect("it runs").status.success();
    assert!(comes_within(Duration::from_secs(60), goes_on), "{}", said(&device.once().output().expect("it runs")));
    assert!(
        comes_within(Duration::from_secs(60), || goes_on() && secret(&device) != old_secret),
        "the old secret ended"
    );
    assert_eq!(text(&key(&device, "status.key")), text(&old));

    fleet.change("deployments/hello.yaml", "servus from the press", "ciao from the press");
    fleet.run(&["publish"]);
    device.pass();
    assert!(device.environments()[0].contains("ciao"));
    assert_eq!(text(&key(&device, "status.key")), text(&new));
    let left = ["status.key.next", "rekey.json"].map(|name| device.home().join(name).exists());
    assert_eq!(left, [false, false]);
    device.pass();
    let after = std::fs::read_to_string(device.home().join("instance")).expect("there");
    assert_eq!(after.split(' ').next().map(str::to_owned), instance, "it is the same installation");

    // History: both keys, each in its time, by stock git and by the audit.
    let both = [&old, &new].map(|key| fingerprint(&text(key)));
    assert_eq!(signers(&site, "status"), both);
    assert_eq!(signers(&site, "heartbeat"), [both[1].clone()]);
    assert_eq!(findings(fleet), [""; 0]);
    let status = fleet.status(ID);
    assert_eq!((&status["doubts"], &status["conditions"]), (&json!([]), &json!([])), "{status}");
    let commits = git::git(&fleet.dir(), &["log", "--format=%B", "--grep=^Enrolled: press-01 "]);
    assert!(commits.contains(" known\nTranscript: "), "{commits}");

    // Whoever has the old key and the secret of that time is out.
    let thief = Device::at(ID, &thief);
    let out = thief.once().output().expect("it runs");
    assert_eq!(out.status.code(), Some(1));
    assert!(said(&out).contains("not-listed"), "{}", said(&out));
    let asks = thief.syncer(&["rekey"]);
    assert_eq!(asks.status.code(), Some(1));
    assert!(said(&asks).contains("not-listed"), "{}", said(&asks));
    // With the new secret, too: what the old key signs isn't taken, and what the new one signs is.
    let kept = thief.home().join("status.key");
    let refused = push_status(&site, &device, &kept);
    assert!(!refused.status.success() && said(&refused).contains("is signed by"), "{}", said(&refused));
    let taken = push_status(&site, &device, &device.home().join("status.key"));
    assert!(taken.status.success(), "{}", said(&taken));
}

/// A claim of this key for the device, in the place of that one.
fn claim(new: &SigningKey, old: &SigningKey, id: &str) -> String {
    let claim = Claim::new(text(new), Digest::of(text(new).as_str().as_bytes()), "0");
    let claim = Claim { id: Some(id.parse().expect("an id")), replaces: Some(text(old)), ..claim };
    String::from_utf8(json::to_bytes(&claim)).expect("text")
}

/// An exchange up to what would be revealed, with the proof of the old key by whoever that is.
fn begin(site: &Site, claim: String, new: &SigningKey, by: Option<&SigningKey>) -> (Started, Reveal) {
    let nonce = Nonce::new([7; 32]);
    let start = Start { layout: 1, kind: Kind::Known, commitment: commitment(&nonce, claim.as_bytes()) };
    let (status, body) = site.post("/enroll", &json::to_bytes(&start));
    assert_eq!(status, 201, "{body}");
    let started: Started = serde_json::from_str(&body).expect("what the contract says");
    let transcript = Transcript::of((&nonce, &started.nonce), claim.as_bytes(), started.offer.as_bytes());
    let proof = |key: &SigningKey| key.sign(PROOF_NAMESPACE, transcript.as_bytes()).expect("signed");
    let reveal = Reveal { nonce, claim, proof: proof(new), replaces_proof: by.map(proof), token: None };
    (started, reveal)
}

#[test]
fn nobody_asks_for_a_new_key_without_the_old_one_and_whoever_has_it_still_needs_a_person() {
    let site = Site::new().open();
    let device = installed(&site);
    let (old, new, stranger) = (key(&device, "status.key"), SigningKey::generate(), SigningKey::generate());
    let ask = |id: &str, replaces: &SigningKey, by: Option<&SigningKey>| {
        let (started, reveal) = begin(&site, claim(&new, replaces, id), &new, by);
        let (answer, again) = (site.reveal(&started, &reveal), site.reveal(&started, &reveal));
        assert_eq!(again.0, 404, "it is revealed once");
        (answer.0, answer.1.trim().to_owned())
    };
    let word = |word: &str| format!(r#"{{"error":"{word}"}}"#);
    assert_eq!(ask(ID, &old, Some(&stranger)), (403, word("proof")));
    assert_eq!(ask(ID, &old, Some(&new)), (403, word("proof")));
    assert_eq!(ask(ID, &old, None), (400, word("malformed")));
    assert_eq!(ask(ID, &stranger, Some(&stranger)), (403, word("not-listed")));
    assert_eq!(ask("press-02", &old, Some(&old)), (403, word("not-listed")));
    assert_eq!(ask("nobody", &old, Some(&old)), (403, word("not-listed")));
    assert_eq!(site.pending()["pending"], json!([]));
    // What was sent once counts in no other exchange.
    let (first, recorded) = begin(&site, claim(&new, &old, ID), &new, Some(&old));
    let (second, _) = begin(&site, claim(&new, &old, ID), &new, Some(&old));
    assert_eq!(site.reveal(&second, &recorded).1.trim(), word("proof"));
    assert_eq!(site.reveal(&first, &recorded).0, 202);
    assert_eq!(site.get(&format!("/enroll/{}", first.request)).0, 204);

    // Two have the key: the device, which was first, and a thief. A person sees both, and approves neither unseen.
    let own = rekey(&device);
    let pending = site.pending();
    let [thief, waiting] = pending["pending"].as_array().expect("a list").as_slice() else { panic!("{pending}") };
    assert_eq!(waiting["fingerprint"], own["fingerprint"]);
    for one in [thief, waiting] {
        assert!(one["note"].as_str().is_some_and(|note| note.contains("NOT: another key")), "{one}");
        let both = site.fleet.try_run(&["device", "approve", "--number", &one["number"].to_string(), "--id", ID]);
        assert_eq!(both.status.code(), Some(1));
        assert!(said(&both).contains("asks for several new keys: numbers 2, 3"), "{}", said(&both));
    }
    // He takes the places of no other device, and no more than are there.
    let more = |index: u8| {
        let new = SigningKey::from_seed(&[index; 32]);
        let (started, reveal) = begin(&site, claim(&new, &old, ID), &new, Some(&old));
        site.reveal(&started, &reveal).0
    };
    assert_eq!([1, 2, 3].map(more), [202, 202, 429]);
    for one in site.pending()["pending"].as_array().expect("a list") {
        if one["fingerprint"] != own["fingerprint"] {
            site.fleet.run(&["device", "reject", &one["number"].to_string()]);
        }
    }
    assert_eq!(site.get(&format!("/enroll/{}", first.request)).0, 409);
    assert!(site.fleet.is_clean(), "nothing is in the fleet yet");
    approve(&site);
    site.fleet.run(&["publish"]);
    let has_it =
        || device.once().output().expect("it runs").status.success() && !device.home().join("rekey.json").exists();
    assert!(comes_within(Duration::from_secs(60), has_it), "{}", said(&device.once().output().expect("it runs")));
    assert_eq!(fingerprint(&text(&key(&device, "status.key"))), own["fingerprint"].as_str().expect("text"));

    // One that was rejected is told so, and may ask once more.
    let asked = rekey(&device);
    let number = site.pending()["pending"][0]["number"].to_string();
    site.fleet.run(&["device", "reject", &number]);
    let rejected = device.syncer(&["rekey"]);
    assert_eq!(rejected.status.code(), Some(1));
    assert!(said(&rejected).contains("rejected the new key"), "{}", said(&rejected));
    assert_eq!(
        (rekey(&device), site.pending()["pending"][0]["fingerprint"].clone()),
        (asked.clone(), asked["fingerprint"].clone())
    );
    // Who was put out stays so, whichever key he asks for.
    site.fleet.run(&["account", "revoke", ID]);
    let own = key(&device, "status.key");
    let (started, reveal) = begin(&site, claim(&stranger, &own, ID), &stranger, Some(&own));
    assert_eq!(site.reveal(&started, &reveal).1.trim(), word("revoked"));
    let number = site.pending()["pending"][0]["number"].to_string();
    let revoked = site.fleet.try_run(&["device", "approve", "--number", &number, "--id", ID]);
    assert!(!revoked.status.success() && said(&revoked).contains("revoked"), "{}", said(&revoked));
}
