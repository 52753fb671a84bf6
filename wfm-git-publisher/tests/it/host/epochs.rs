//! Epochs of `status`: what a device said stays, whatever it, another key of it, or a thief pushes.

use repo_git::SigningKey;
use repo_testkit::git;

use super::pushes::Pusher;
use super::{DEVICE, Site, printed, said};
use crate::support::Lab;

/// What begins an epoch after this commit.
fn begins(number: u32, previous: &str) -> String {
    format!("Epoch: {number}\nPrevious: {previous}")
}

impl Pusher {
    /// A commit of `status` by this key with more trailers.
    fn tell(&self, key: &SigningKey, parents: &[&str], more: &str) -> String {
        let fleet = self.site.lab.json(DEVICE, "desired", "envelope.json")["fleet"].as_str().unwrap().to_owned();
        let message = format!("report\n\nKind: status\nFleet: {fleet}\nDevice: {DEVICE}\n{more}");
        let tree = self.commit("status", &[], &format!("{parents:?} {more}"));
        let tree = git::git(&self.clone, &["rev-parse", &format!("{tree}^{{tree}}")]);
        let file = self.site.lab.dir().join("teller.key");
        let _ = std::fs::remove_file(&file);
        key.save(&file).unwrap();
        let mut command = git::command(&self.clone);
        command.args(["-c", "gpg.format=ssh", "-c", &format!("user.signingkey={}", file.display())]);
        command.args(["commit-tree", "-S", &tree, "-m", message.trim_end()]);
        command.args(parents.iter().flat_map(|parent| ["-p", parent]));
        printed(&command.output().unwrap())
    }

    /// Adds so many commits to a tip, and pushes them.
    fn grow(&self, tip: Option<&str>, commits: u32) -> String {
        let mut tip = tip.map(str::to_owned);
        for number in 0..commits {
            let parents: Vec<_> = tip.iter().map(String::as_str).collect();
            tip = Some(self.tell(&self.key, &parents, &format!("Serial: {number}")));
        }
        let tip = tip.unwrap();
        self.accepted(&format!("{tip}:refs/heads/status"));
        tip
    }

    /// The fleet lists another key for the device.
    fn publish_for(&self, key: &SigningKey) {
        let line = format!("{} {DEVICE}", key.public());
        self.site.lab.run(&["device", "enroll", DEVICE, &line, "--replace"]).good();
        self.site.lab.publish_all();
    }
}

#[test]
fn an_epoch_ends_where_the_device_keeps_it_and_stays() {
    let pusher = Pusher::on(Site::with_short_epochs());
    let first = pusher.grow(None, 1);
    pusher.refused(&format!("{first}:refs/heads/status-1"), "an epoch has 6 commits at least, and this one 1");
    let early = pusher.tell(&pusher.key, &[], &begins(2, &first));
    pusher.refused(&format!("+{early}:refs/heads/status"), "or push it to refs/heads/status-1 first");
    let end = pusher.grow(Some(&first), 5);
    let begin = pusher.tell(&pusher.key, &[], &begins(2, &end));
    pusher.refused(&format!("+{begin}:refs/heads/status"), "or push it to refs/heads/status-1 first");
    pusher.refused(&format!("{first}:refs/heads/status-1"), "doesn't stand at");
    pusher.refused(&format!("{end}:refs/heads/status-2"), "`status` is in epoch 1");
    for other in ["status-0", "status-01", "status-x"] {
        pusher.refused(&format!("{end}:refs/heads/{other}"), "a device may only push");
    }
    pusher.accepted(&format!("{end}:refs/heads/status-1"));
    pusher.refused(&format!("{end}:refs/heads/status-2"), "is kept as refs/heads/status-1");
    for wrong in [begins(3, &end), begins(2, &first), format!("{}\nEpoch: 2", begins(2, &end)), "Serial: 1".to_owned()]
    {
        let wrong = pusher.tell(&pusher.key, &[], &wrong);
        pusher.refused(&format!("+{wrong}:refs/heads/status"), "doesn't begin epoch 2");
    }
    pusher.refused(&format!("+{first}:refs/heads/status"), "doesn't begin epoch 2");
    // With more commits upon it, as after a while without the host.
    let more = pusher.tell(&pusher.key, &[&begin], "Serial: 9");
    pusher.accepted(&format!("+{more}:refs/heads/status"));
    // Nobody moves or deletes what ended, and the next one is as long.
    pusher.refused(&format!("+{more}:refs/heads/status-1"), "it stays as it is");
    pusher.refused(":refs/heads/status-1", "may not be deleted");
    pusher.refused(&format!("{more}:refs/heads/status-2"), "6 commits at least, and this one 2");
    let end = pusher.grow(Some(&more), 4);
    pusher.accepted(&format!("{end}:refs/heads/status-2"));
    // One that goes on after it kept an end ends later, by another number.
    let later = pusher.grow(Some(&end), 1);
    pusher.refused(&format!("{later}:refs/heads/status-3"), "6 commits at least, and this one 1");
    let later = pusher.grow(Some(&later), 5);
    pusher.accepted(&format!("{later}:refs/heads/status-3"));
    let begin = pusher.tell(&pusher.key, &[], &begins(4, &later));
    pusher.accepted(&format!("+{begin}:refs/heads/status"));
    assert_eq!(git::git(&pusher.repository(), &["rev-list", "--count", "status-1", "status-2", "status-3"]), "18");
}

#[test]
fn what_another_key_said_is_kept_by_the_host_whoever_replaces_it_and_however_short_it_is() {
    let mut pusher = Pusher::on(Site::with_short_epochs());
    let old = pusher.grow(None, 2);
    let (thief, new) = (std::mem::replace(&mut pusher.key, SigningKey::generate()), Lab::device_key("new"));
    pusher.key = new.clone();
    pusher.publish_for(&new);
    // The old machine, should its secret count still: neither goes on, nor ends, nor begins anything.
    for (parents, more) in [(vec![old.as_str()], String::new()), (vec![], begins(2, &old))] {
        let theirs = pusher.tell(&thief, &parents, &more);
        let pushed = pusher.push(&[&format!("+{theirs}:refs/heads/status")]);
        assert!(
            !pushed.status.success() && said(&pushed).contains("which is no key of this device"),
            "{}",
            said(&pushed)
        );
        assert_eq!(pusher.tip("status"), Some(old.clone()));
    }
    // A machine of before epochs replaces what isn't its own, without a word of them.
    let first = pusher.tell(&new, &[], "Serial: 1");
    pusher.accepted(&format!("+{first}:refs/heads/status"));
    assert_eq!((pusher.tip("status-1"), pusher.tip("status")), (Some(old.clone()), Some(first.clone())));
    // Its own it doesn't replace.
    let again = pusher.tell(&new, &[], "Serial: 2");
    pusher.refused(&format!("+{again}:refs/heads/status"), "or push it to refs/heads/status-2 first");
    // The next one knows them.
    let newest = Lab::device_key("newest");
    pusher.publish_for(&newest);
    pusher.key = newest.clone();
    pusher.accepted(&format!("{first}:refs/heads/status-2"));
    pusher.refused(&format!("{first}:refs/heads/status-3"), "is kept as refs/heads/status-2");
    let begin = pusher.tell(&newest, &[], &begins(3, &first));
    pusher.accepted(&format!("+{begin}:refs/heads/status"));
    let kept = ["status-1", "status-2", "status"].map(|branch| pusher.tip(branch).unwrap());
    assert_eq!(kept, [old, first, begin]);
}

#[test]
fn a_repository_that_is_made_anew_keeps_its_epochs() {
    let mut pusher = Pusher::on(Site::with_short_epochs());
    let end = pusher.grow(None, 6);
    pusher.accepted(&format!("{end}:refs/heads/status-1"));
    let begin = pusher.tell(&pusher.key, &[], &begins(2, &end));
    pusher.accepted(&format!("+{begin}:refs/heads/status"));
    let second = pusher.tell(&pusher.key, &[&begin], "Serial: 2");
    pusher.accepted(&format!("{second}:refs/heads/status"));
    repo_testkit::faults::damage::flip_object(&pusher.repository(), &second);
    pusher.site.restart();
    let third = pusher.tell(&pusher.key, &[&second], "Serial: 3");
    let refspec = format!("{third}:refs/heads/status");
    // It goes by what the host showed before it looked.
    assert!(!pusher.push(&[&refspec]).status.success());
    let pushed = pusher.push(&[&refspec]);
    assert!(pushed.status.success(), "{}", said(&pushed));
    assert_eq!((pusher.tip("status-1"), pusher.tip("status")), (Some(end), Some(third)));
    assert!(pusher.repository().with_extension("damaged").exists());
}
