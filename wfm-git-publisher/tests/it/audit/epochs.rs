//! The history of a device across epochs of its `status`: whole, and with something taken away, moved, forked or planted.

use repo_model::Trailer;
use repo_testkit::git::git;
use repo_testkit::hand::Draft;
use wfm_git_publisher::audit::Audit;

use super::forge::{BAD, Forge, Forgery, GOOD, Sign, all_are_found, forgery};

impl Forge {
    /// Ends an epoch with the commit `back` before the tip of `status`; what follows it is the next one, as a device
    /// makes it. Returns the commit that begins it.
    fn end_epoch(&self, number: u32, back: usize) -> String {
        let line = self.line("status");
        let end = &line[back];
        self.hand.move_branch(&format!("status-{number}"), end);
        self.begin_epoch(number + 1, end, back - 1)
    }

    /// Makes the commit `back` before the tip of `status` one that begins an epoch.
    fn begin_epoch(&self, number: u32, previous: &str, back: usize) -> String {
        self.draft("status", back, |draft| {
            draft.parents.clear();
            draft.add_trailer(Trailer::Epoch, &number.to_string());
            draft.add_trailer(Trailer::Previous, previous);
        })
    }

    /// Three epochs in the place of the one that was.
    pub(super) fn with_epochs(&self) {
        // One that begins with a transition, and one whose first commit only says again what the last one said.
        self.end_epoch(1, 9);
        let line = self.line("status");
        let end = line[4].clone();
        self.hand.move_branch("status-2", &end);
        let begin = self.hand.commit(&self.again(3, &end));
        self.put_upon("status", &line[..4], begin);
    }

    /// What says once more what the end of an epoch said, and begins the next one.
    fn again(&self, number: u32, end: &str) -> Draft {
        let mut draft = self.hand.draft_of(end);
        draft.key = Some(self.hand.path(BAD));
        draft.parents.clear();
        silence(&mut draft);
        draft.add_trailer(Trailer::Epoch, &number.to_string());
        draft.add_trailer(Trailer::Previous, end);
        draft
    }

    fn codes(&self) -> Vec<String> {
        let found = self.audit().findings.into_iter();
        found.map(|one| format!("{} {}", one.found.kind.code, one.found.branch.unwrap_or_default())).collect()
    }
}

/// Takes the transitions out of a commit's message.
fn silence(draft: &mut Draft) {
    let lines = draft.message.lines().filter(|line| !line.starts_with("State: "));
    draft.message = lines.collect::<Vec<_>>().join("\n");
}

#[test]
fn a_history_in_epochs_is_whole_and_a_checkpoint_goes_on_from_any_of_them() {
    let forge = Forge::new();
    let all = forge.line("status").len();
    let before = forge.audit();
    forge.with_epochs();
    let audit = forge.audit();
    assert_eq!(audit.findings, [], "three epochs");
    let commits = |audit: &Audit| audit.repositories.iter().map(|one| one.commits).sum::<usize>();
    assert_eq!(commits(&audit), commits(&before) + 1);
    assert_eq!(git(&forge.bad(), &["rev-list", "--count", "status", "status-1", "status-2"]), (all + 1).to_string());
    // What is new since then, with another epoch between.
    let tip = forge.hand.tip("status");
    forge.hand.move_branch("status-3", &tip);
    let begin = forge.hand.commit(&forge.again(4, &tip));
    forge.hand.move_branch("status", &begin);
    let again = forge.audit_after(&audit.checkpoint);
    assert_eq!(again.findings, [], "after a checkpoint");
    assert_eq!(commits(&again), 4 + 1 + 4, "what is new, and branches of one commit");
    // What the checkpoint covers is compared all the same.
    for (number, code) in [("1", "epoch-moved"), ("2", "epoch-missing")] {
        let name = format!("refs/heads/status-{number}");
        let stood = forge.git(&["rev-parse", &name]);
        match code {
            "epoch-moved" => forge.git(&["update-ref", &name, &format!("{stood}~1")]),
            _ => forge.git(&["update-ref", "-d", &name]),
        };
        let found = forge.audit_after(&again.checkpoint).findings;
        let codes: Vec<_> = found.iter().map(|one| one.found.kind.code).collect();
        assert!(codes.contains(&code), "{number}: {codes:?}");
        forge.git(&["update-ref", &name, &stood]);
    }
    assert_eq!(forge.audit_after(&again.checkpoint).findings, []);
}

#[test]
fn an_end_that_was_kept_and_then_gone_on_from_is_no_epoch_and_no_harm() {
    let forge = Forge::new();
    let line = forge.line("status");
    forge.hand.move_branch("status-1", &line[8]);
    assert_eq!(forge.audit().findings, []);
    // The next one that ends has the next number.
    forge.end_epoch(2, 3);
    assert_eq!(forge.audit().findings, []);
}

#[test]
fn what_a_host_kept_of_a_device_that_knows_no_epochs_is_verified_and_noted() {
    let forge = Forge::new();
    let line = forge.line("status");
    // The device has another key from its newest state on: its commits begin anew, without a word of the old ones.
    let key = forge.hand.public("newer");
    forge.draft("desired", 0, |draft| {
        draft.json("envelope.json", |envelope| envelope["device"]["statusKeys"] = serde_json::json!([key]));
        draft.seal_trailers();
    });
    let found = forge.codes();
    assert!(found.contains(&"signature-invalid status".to_owned()), "{found:?}");
    let end = line.iter().position(|id| forge.git(&["log", "-1", "--format=%B", id]).contains("Serial: 4")).unwrap();
    forge.hand.move_branch("status-1", &line[end]);
    let desired = forge.hand.tip("desired");
    let mut draft = forge.hand.draft_of(&line[0]);
    draft.key = Some(forge.hand.key("newer"));
    draft.parents.clear();
    silence(&mut draft);
    draft.trailer(Trailer::DesiredCommit, &desired);
    let bytes = repo_testkit::git::show(&forge.bad(), "desired", "envelope.json").unwrap();
    draft.json("syncer.json", |syncer| {
        syncer["adopted"]["commit"] = desired.as_str().into();
        syncer["adopted"]["envelope"] = repo_model::Digest::of(&bytes).to_string().into();
    });
    let id = |path: &String| path.strip_prefix("deployments/")?.strip_suffix(".json").map(str::to_owned);
    let ids: Vec<_> = draft.files.keys().filter_map(id).collect();
    for id in ids {
        let document: serde_json::Value = serde_json::from_str(&draft.text(&format!("deployments/{id}.json"))).unwrap();
        let state = document["status"]["state"].as_str().unwrap().to_owned();
        draft.add_trailer(Trailer::State, &format!("{id}/* none > {state}"));
        draft.add_trailer(Trailer::State, &format!("{id}/hello none > {state}"));
    }
    let begin = forge.hand.commit(&draft);
    forge.hand.move_branch("status", &begin);
    forge.git(&["update-ref", "-d", "refs/heads/heartbeat"]);
    let found: Vec<_> = forge.codes().into_iter().filter(|one| one.contains("status")).collect();
    assert_eq!(found, ["epoch-unsigned status-1"]);
    // Once more of it is read as it ever was.
    forge.git(&["update-ref", "refs/heads/status-1", &format!("{}~1", line[end])]);
    assert!(forge.codes().contains(&"epoch-unsigned status-1".to_owned()), "its end can't be known");
}

/// With three epochs, and one thing wrong.
fn wrong(
    name: &'static str,
    code: &'static str,
    branch: impl Into<Option<&'static str>>,
    make: impl Fn(&Forge) + 'static,
) -> Forgery<'static> {
    forgery(name, code, branch, move |forge| {
        forge.with_epochs();
        make(forge);
        None
    })
}

fn forgeries() -> Vec<Forgery<'static>> {
    let at = |forge: &Forge, branch: &str, rev: &str| {
        let id = forge.git(&["rev-parse", rev]);
        forge.hand.move_branch(branch, &id);
    };
    vec![
        wrong("the newest epoch is withheld", "epoch-missing", "status-2", |forge| {
            forge.git(&["update-ref", "-d", "refs/heads/status-2"]);
        }),
        wrong("the oldest epoch is withheld", "epoch-missing", "status-1", |forge| {
            forge.git(&["update-ref", "-d", "refs/heads/status-1"]);
        }),
        wrong("the end of an epoch is withheld", "epoch-moved", "status-1", move |forge| {
            at(forge, "status-1", "status-1~1")
        }),
        wrong("two epochs change places", "epoch-moved", "status-2", move |forge| {
            let first = forge.hand.tip("status-1");
            at(forge, "status-1", "status-2");
            forge.hand.move_branch("status-2", &first);
        }),
        wrong("another device's status is an epoch", "epoch-moved", "status-1", |forge| {
            let from = forge.repository(GOOD).display().to_string();
            forge.git(&["fetch", "--quiet", &from, "+status:status-1"]);
        }),
        wrong("an epoch goes on after its end", "epoch-moved", "status-2", |forge| {
            let mut draft = forge.hand.draft_of(&forge.hand.tip("status-2"));
            (draft.key, draft.parents) = (Some(forge.hand.path(BAD)), vec![forge.hand.tip("status-2")]);
            let more = forge.hand.commit(&draft);
            forge.hand.move_branch("status-2", &more);
        }),
        wrong("an epoch begins twice", "epoch-forked", "status-3", |forge| {
            let mut draft = forge.hand.draft_of(&forge.hand.tip("status-2"));
            (draft.key, draft.parents) = (Some(forge.hand.path(BAD)), Vec::new());
            draft.add_trailer(Trailer::Epoch, "3");
            draft.add_trailer(Trailer::Previous, &forge.hand.tip("status-2"));
            let again = forge.hand.commit(&draft);
            forge.hand.move_branch("status-3", &again);
        }),
        wrong("an epoch that nothing leads to", "foreign-ref", "status-7", move |forge| {
            at(forge, "status-7", "desired")
        }),
        forgery("an epoch of a device that has none", "foreign-ref", "status-1", move |forge| {
            at(forge, "status-1", "freshness");
            None
        }),
        wrong("a stranger begins the newest epoch", "signature-invalid", "status", |forge| {
            let back = forge.line("status").len() - 1;
            forge.text("status", back, Sign::By("stranger", "git"), |text| text);
        }),
        wrong("a commit of an old epoch is unsigned, and what follows made anew", "epoch-moved", "status-1", |forge| {
            let mut draft = forge.hand.draft_of(&forge.git(&["rev-parse", "status-1~1"]));
            draft.key = None;
            let unsigned = forge.hand.commit(&draft);
            let newest = forge.hand.tip("status-1");
            forge.put_upon("status-1", &[newest], unsigned);
        }),
    ]
}

#[test]
fn what_is_taken_from_an_epoch_moved_forked_or_planted_is_found() {
    all_are_found(&Forge::new(), &forgeries());
}
