//! Whether those agreed who have to: what changed in the fleet since it was last covered, against `signers.yaml`.
//!
//! The way from the commit that was covered last to the one that is to be published is gone commit by commit, as if each of
//! them were published by itself: where all that changed so far is agreed to, what `signers.yaml` says there counts from there
//! on; what isn't has to be agreed to further on. So nobody counts who was removed on the way, or who added themself.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use repo_git::{CommitId, PublicKey};
use repo_model::problem::Problems;
use serde::Serialize;

use crate::fleet::{NotCounting, Place, SIGNERS, Signers, SigningRule};

/// The most of what isn't agreed to that is told one by one.
const MAX_TOLD: usize = 10;

/// What `signers.yaml` says in a commit.
#[derive(Debug, Clone, PartialEq)]
pub enum Written {
    /// It isn't there: nobody has to agree to anything.
    Absent,
    Good(Signers),
    /// Nothing can be covered with it: what nobody can read, nobody can keep to.
    Broken(Problems),
}

/// What stood at a path, and what stands there, as texts that are the same for the same file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub old: Option<String>,
    pub new: Option<String>,
}

/// A signed tag on a commit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Approval {
    pub key: PublicKey,
    /// The commit in whose place this one was approved, where the tag says so.
    pub published: Option<CommitId>,
}

/// A commit on the way.
#[derive(Debug, Clone)]
pub struct Step {
    pub commit: CommitId,
    /// Whose signature the commit has.
    pub signer: Option<PublicKey>,
    pub approvals: BTreeSet<Approval>,
    /// By paths in bytes, against the step before, or against what was covered last.
    pub changes: BTreeMap<Vec<u8>, Change>,
    /// What `signers.yaml` says here; absent where it is as in the step before.
    pub signers: Option<Written>,
}

/// The way from what was covered last to what is to be published.
#[derive(Debug, Clone)]
pub struct Way {
    /// What was covered last.
    pub base: CommitId,
    /// What `signers.yaml` says there.
    pub signers: Written,
    /// Oldest first. Where not every commit between is known, or `base` is none of those behind it: the last one alone.
    pub steps: Vec<Step>,
    /// Whether the last one goes on from `base`. If it doesn't, something is taken back.
    pub goes_on: bool,
}

/// Something isn't agreed to.
#[derive(Debug, Clone, PartialEq)]
pub enum NotCovered {
    /// `signers.yaml` can't be read in the commit that is to be published, or in the one that was covered last.
    Broken { commit: CommitId, problems: Problems },
    /// Too few agreed. Never empty.
    Missing(Vec<Missing>),
}

/// Too few agreed to a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Missing {
    /// The commit that changes the path first.
    pub commit: CommitId,
    pub path: String,
    /// The rule that wants it, in the file of `base`.
    pub rule: Place,
    /// The commit whose `signers.yaml` counts.
    pub base: CommitId,
    /// The commit that has to be agreed to.
    pub wanted: CommitId,
    pub need: usize,
    pub of: BTreeSet<String>,
    /// Who of them agreed.
    pub agreed: BTreeSet<String>,
    /// Whose signatures don't count, and why.
    pub others: Vec<String>,
    /// Whether the commit takes something back that was covered.
    pub takes_back: bool,
}

/// A path that differs from what was covered.
struct Open {
    change: Change,
    /// The commit that changed it first.
    by: CommitId,
}

/// Judges a way at a moment. A way without steps is covered.
pub fn judge(way: &Way, now: Timestamp) -> Result<(), NotCovered> {
    let (mut base, mut written) = (way.base, &way.signers);
    let mut open: BTreeMap<&[u8], Open> = BTreeMap::new();
    let (mut missing, mut here) = (Ok(()), &way.signers);
    for step in &way.steps {
        add(&mut open, step);
        here = step.signers.as_ref().unwrap_or(here);
        missing = at(step, (base, written), here, &open, way.goes_on, now);
        if missing.is_ok() {
            (base, written) = (step.commit, here);
            open.clear();
        }
    }
    missing
}

/// Adds what a step changes to what is open; what is as it was covered isn't open any more.
fn add<'a>(open: &mut BTreeMap<&'a [u8], Open>, step: &'a Step) {
    for (path, change) in &step.changes {
        let known = open.remove(path.as_slice());
        let old = known.as_ref().map_or(&change.old, |known| &known.change.old).clone();
        let by = known.map_or(step.commit, |known| known.by);
        if old != change.new {
            open.insert(path, Open { change: Change { old, new: change.new.clone() }, by });
        }
    }
}

/// Whether all that is open is agreed to at this step, by what was written in `base`; `here` is what is written in the step.
fn at(
    step: &Step,
    (base, written): (CommitId, &Written),
    here: &Written,
    open: &BTreeMap<&[u8], Open>,
    goes_on: bool,
    now: Timestamp,
) -> Result<(), NotCovered> {
    let signers = match (written, here) {
        (Written::Broken(problems), _) => return Err(NotCovered::Broken { commit: base, problems: problems.clone() }),
        (Written::Good(signers), _) => signers,
        (Written::Absent, Written::Broken(problems)) => {
            return Err(NotCovered::Broken { commit: step.commit, problems: problems.clone() });
        }
        (Written::Absent, _) => return Ok(()),
    };
    let (agreed, others) = agreed(step, base, signers, goes_on, now);
    let paths = open.iter().map(|(path, open)| (String::from_utf8_lossy(path).into_owned(), open.by));
    // To go back is to say what holds, so it needs what a change of the file itself needs.
    let back = (!goes_on).then(|| (SIGNERS.to_owned(), step.commit));
    let mut missing = Vec::new();
    for (path, commit) in paths.chain(back) {
        let lacks = |rule: &&SigningRule| rule.fits(&path) && rule.of.intersection(&agreed).count() < rule.need;
        missing.extend(signers.rules.iter().filter(lacks).map(|rule| Missing {
            commit,
            path: path.clone(),
            rule: rule.place.clone(),
            base,
            wanted: step.commit,
            need: rule.need,
            of: rule.of.clone(),
            agreed: rule.of.intersection(&agreed).cloned().collect(),
            others: others.clone(),
            takes_back: !goes_on,
        }));
        if missing.len() >= MAX_TOLD {
            break;
        }
    }
    missing.truncate(MAX_TOLD);
    match here {
        _ if !missing.is_empty() => Err(NotCovered::Missing(missing)),
        Written::Broken(problems) => Err(NotCovered::Broken { commit: step.commit, problems: problems.clone() }),
        _ => Ok(()),
    }
}

/// Who agreed to a commit, and whose signature doesn't count. What is taken back was agreed to once, by its signature and
/// its tags of then; that says nothing of now, so only tags count that name what they were made in the place of.
fn agreed(
    step: &Step,
    base: CommitId,
    signers: &Signers,
    goes_on: bool,
    now: Timestamp,
) -> (BTreeSet<String>, Vec<String>) {
    let approvals = step.approvals.iter().filter(|one| goes_on || one.published == Some(base)).map(|one| one.key);
    let keys: BTreeSet<_> = step.signer.filter(|_| goes_on).into_iter().chain(approvals).collect();
    let (mut agreed, mut others) = (BTreeSet::new(), Vec::new());
    for key in keys {
        match signers.person(&key, now) {
            Ok(person) => _ = agreed.insert(person.to_owned()),
            Err(NotCounting::Unknown) => others.push(format!("{} is nobody's", key.fingerprint())),
            Err(NotCounting::OutOfTime) => others.push(format!("{} doesn't count now", key.fingerprint())),
        }
    }
    (agreed, others)
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { commit, path, rule, base, need, of, agreed, others, .. } = self;
        let list = |names: &BTreeSet<String>| names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        match self.takes_back {
            true => write!(f, "commit {commit} doesn't go on from {base}, which was covered last")?,
            false => write!(f, "commit {commit} changes `{path}`")?,
        }
        write!(f, ", and {rule}: {} of commit {base} wants {need} of {} to agree: ", rule.key, list(of))?;
        match agreed.is_empty() {
            true => f.write_str("nobody did")?,
            false => write!(f, "only {} did", list(agreed))?,
        }
        others.iter().try_for_each(|other| write!(f, "; the key {other}"))
    }
}

impl fmt::Display for NotCovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken { commit, problems } => {
                write!(f, "`{SIGNERS}` of commit {commit} can't be used")?;
                problems.errors().take(MAX_TOLD).try_for_each(|problem| write!(f, "\n{problem}"))
            }
            Self::Missing(missing) => {
                let lines: Vec<_> = missing.iter().map(ToString::to_string).collect();
                f.write_str(&lines.join("\n"))
            }
        }
    }
}

impl std::error::Error for NotCovered {}

impl NotCovered {
    /// What to do about it.
    pub fn hint(&self) -> String {
        let Self::Missing(missing) = self else { return "correct the file, and commit that".to_owned() };
        let Some(Missing { wanted, base, takes_back, .. }) = missing.first() else { return String::new() };
        let place = if *takes_back { format!(" --instead-of {base}") } else { String::new() };
        format!("who agrees says so: `wfm-git-publisher approve {wanted}{place}`")
    }
}

#[cfg(test)]
mod tests {
    use repo_git::SigningKey;

    use super::*;
    use crate::fleet::SourceFile;

    const ANNA: u8 = 1;
    const BEN: u8 = 2;
    const CARL: u8 = 3;
    const MALLORY: u8 = 9;

    fn key(seed: u8) -> PublicKey {
        SigningKey::from_seed(&[seed; 32]).public()
    }

    fn commit(number: u8) -> CommitId {
        format!("{number:040}").parse().unwrap()
    }

    fn now() -> Timestamp {
        "2026-11-25T12:00:00Z".parse().unwrap()
    }

    /// Who has which key until 2026-12-01, and a rule a line: paths, how many, of whom.
    fn signers(people: &[(&str, u8)], rules: &[(&str, usize, &str)]) -> Written {
        let people: String = people
            .iter()
            .map(|(name, seed)| format!("  {name}: [{{key: {}, until: \"2026-12-01T00:00:00Z\"}}]\n", key(*seed)))
            .collect();
        let rules: String = rules
            .iter()
            .map(|(paths, need, of)| format!("  - {{paths: [\"{paths}\"], need: {need}, of: [{of}]}}\n"))
            .collect();
        let text = format!("people:\n{people}rules:\n{rules}");
        Written::Good(Signers::read(&SourceFile::plain(SIGNERS, text)).unwrap())
    }

    /// Anna may change anything, ben what is in Graz, and both have to agree to who they are.
    fn usual() -> Written {
        signers(
            &[("anna", ANNA), ("ben", BEN), ("carl", CARL)],
            &[("**", 1, "anna, ben"), ("fleet.yaml", 1, "anna"), ("signers.yaml", 2, "anna, ben, carl")],
        )
    }

    /// A commit with so much changed: path, before, after.
    fn step(number: u8, signer: Option<u8>, changes: &[(&str, Option<&str>, Option<&str>)]) -> Step {
        let text = |text: &Option<&str>| text.map(str::to_owned);
        let changes = changes
            .iter()
            .map(|(path, old, new)| (path.as_bytes().to_vec(), Change { old: text(old), new: text(new) }));
        Step {
            commit: commit(number),
            signer: signer.map(key),
            approvals: BTreeSet::new(),
            changes: changes.collect(),
            signers: Some(usual()),
        }
    }

    fn approved(mut step: Step, by: &[u8], published: Option<u8>) -> Step {
        let published = published.map(commit);
        step.approvals.extend(by.iter().map(|seed| Approval { key: key(*seed), published }));
        step
    }

    fn with(mut step: Step, signers: Written) -> Step {
        step.signers = Some(signers);
        step
    }

    fn way(steps: Vec<Step>) -> Way {
        Way { base: commit(0), signers: usual(), steps, goes_on: true }
    }

    /// What is missing: the commit, the path, and who agreed.
    fn missing(way: &Way) -> Vec<(CommitId, String, Vec<String>)> {
        match judge(way, now()) {
            Ok(()) => Vec::new(),
            Err(NotCovered::Missing(all)) => {
                all.into_iter().map(|one| (one.commit, one.path, one.agreed.into_iter().collect())).collect()
            }
            Err(broken) => panic!("{broken}"),
        }
    }

    fn assert_missing(way: &Way, expected: &[(u8, &str, &[&str])]) {
        let expected: Vec<_> = expected
            .iter()
            .map(|(number, path, agreed)| {
                (commit(*number), (*path).to_owned(), agreed.iter().map(|name| (*name).to_owned()).collect())
            })
            .collect();
        assert_eq!(missing(way), expected);
    }

    const A: &[(&str, Option<&str>, Option<&str>)] = &[("devices/a.yaml", Some("1"), Some("2"))];
    const FLEET: &[(&str, Option<&str>, Option<&str>)] = &[("fleet.yaml", Some("1"), Some("2"))];
    const FILE: &[(&str, Option<&str>, Option<&str>)] = &[(SIGNERS, Some("1"), Some("2"))];

    #[test]
    fn all_rules_that_fit_a_path_count_and_each_wants_so_many_different_people() {
        assert_missing(&way(vec![]), &[]);
        assert_missing(&way(vec![step(1, Some(BEN), A)]), &[]);
        assert_missing(&way(vec![step(1, None, A)]), &[(1, "devices/a.yaml", &[])]);
        assert_missing(&way(vec![step(1, Some(MALLORY), A)]), &[(1, "devices/a.yaml", &[])]);
        // The rule for everything would do, the one for this file doesn't.
        assert_missing(&way(vec![step(1, Some(BEN), FLEET)]), &[(1, "fleet.yaml", &[])]);
        assert_missing(&way(vec![step(1, Some(ANNA), FILE)]), &[(1, SIGNERS, &["anna"])]);
        assert_missing(&way(vec![approved(step(1, Some(ANNA), FILE), &[CARL], None)]), &[]);
        // Twice the same person is one: the second key that agrees is the same person's.
        assert_missing(&way(vec![approved(step(1, Some(ANNA), FILE), &[ANNA], None)]), &[(1, SIGNERS, &["anna"])]);
        // Carl has to agree to nothing here, and counts only where he is named.
        assert_missing(&way(vec![step(1, Some(CARL), A)]), &[(1, "devices/a.yaml", &[])]);
    }

    #[test]
    fn each_commit_is_its_signers_and_the_last_word_covers_all_before_it() {
        let line = |last| way(vec![step(1, Some(BEN), A), step(2, Some(ANNA), FLEET), step(3, last, &[])]);
        // Each by itself is agreed to, so an unsigned commit without a change takes nothing away.
        assert_missing(&line(None), &[]);
        // What an unsigned commit brought is agreed to by who signs later on, or by a tag.
        let brought = |last| way(vec![step(1, None, FLEET), last]);
        assert_missing(&brought(step(2, Some(ANNA), &[])), &[]);
        assert_missing(&brought(step(2, Some(BEN), A)), &[(1, "fleet.yaml", &[])]);
        assert_missing(&brought(approved(step(2, None, &[]), &[ANNA], None)), &[]);
        // A tag on another commit says nothing of this one.
        let early = way(vec![approved(step(1, None, A), &[ANNA], None), step(2, None, FLEET)]);
        assert_missing(&early, &[(2, "fleet.yaml", &[]), (2, "fleet.yaml", &[])]);
        // What was taken back on the way isn't there.
        let back = way(vec![step(1, None, FLEET), step(2, None, &[("fleet.yaml", Some("2"), Some("1"))])]);
        assert_missing(&back, &[]);
    }

    #[test]
    fn a_merge_is_asked_about_all_that_it_brings() {
        // As seen along its first parent: all that the branch did, and the old file that it brings back.
        let brought: &[_] = &[("devices/a.yaml", Some("1"), Some("2")), ("fleet.yaml", Some("3"), Some("1"))];
        assert_missing(
            &way(vec![step(1, None, brought)]),
            &[(1, "devices/a.yaml", &[]), (1, "fleet.yaml", &[]), (1, "fleet.yaml", &[])],
        );
        assert_missing(&way(vec![step(1, Some(BEN), brought)]), &[(1, "fleet.yaml", &[])]);
        assert_missing(&way(vec![approved(step(1, Some(BEN), brought), &[ANNA], None)]), &[]);
    }

    #[test]
    fn a_file_that_moves_out_of_a_protected_path_is_a_change_of_that_path() {
        let signers = signers(&[("anna", ANNA), ("ben", BEN)], &[("plc/**", 1, "anna"), ("signers.yaml", 1, "anna")]);
        let moved: &[_] = &[("plc/a.yaml", Some("1"), None), ("free/a.yaml", None, Some("1"))];
        let moves = |by| Way { signers: signers.clone(), ..way(vec![step(1, Some(by), moved)]) };
        assert_missing(&moves(BEN), &[(1, "plc/a.yaml", &[])]);
        assert_missing(&moves(ANNA), &[]);
        // A link in the place of the directory.
        let link = Way { signers, ..way(vec![step(1, Some(BEN), &[("plc", None, Some("link"))])]) };
        assert_missing(&link, &[(1, "plc", &[])]);
    }

    #[test]
    fn who_adds_themself_or_was_removed_counts_for_nothing() {
        let with_mallory = signers(
            &[("anna", ANNA), ("mallory", MALLORY)],
            &[("**", 1, "anna, mallory"), ("signers.yaml", 1, "mallory")],
        );
        let added = with(step(1, Some(MALLORY), FILE), with_mallory.clone());
        let next = with(step(2, Some(MALLORY), A), with_mallory.clone());
        let own = way(vec![added, next.clone()]);
        assert_missing(&own, &[(2, "devices/a.yaml", &[]), (1, SIGNERS, &[]), (1, SIGNERS, &[])]);
        // Those who may add somebody do, and then that one counts.
        let agreed = with(approved(step(1, Some(ANNA), FILE), &[BEN], None), with_mallory);
        assert_missing(&way(vec![agreed, next]), &[]);
        let without_ben = signers(&[("anna", ANNA)], &[("**", 1, "anna")]);
        let removed = with(approved(step(1, Some(ANNA), FILE), &[BEN], None), without_ben.clone());
        let late = with(step(2, Some(BEN), A), without_ben.clone());
        assert_missing(&way(vec![removed.clone(), late.clone()]), &[(2, "devices/a.yaml", &[])]);
        // As long as it isn't agreed that he is removed, he isn't.
        let alone = with(step(1, Some(BEN), FILE), without_ben);
        assert_missing(&way(vec![alone, late]), &[(1, SIGNERS, &["ben"])]);
    }

    #[test]
    fn a_key_counts_in_its_time_by_the_clock_and_not_by_the_commit() {
        let way = way(vec![step(1, Some(ANNA), A)]);
        assert_eq!(judge(&way, now()), Ok(()));
        let Err(NotCovered::Missing(missing)) = judge(&way, "2026-12-01T00:00:00Z".parse().unwrap()) else {
            panic!("a key whose time is over counts");
        };
        assert!(missing[0].to_string().ends_with(&format!("the key {} doesn't count now", key(ANNA).fingerprint())));
    }

    #[test]
    fn what_takes_something_back_needs_tags_that_say_in_whose_place() {
        let back = |step: Step| Way { goes_on: false, ..way(vec![step]) };
        // Signature and tags of then are worth nothing, nor is a tag in the place of something else.
        for old in [None, Some(7)] {
            let replayed = back(approved(step(1, Some(ANNA), A), &[ANNA, BEN], old));
            assert_missing(&replayed, &[(1, "devices/a.yaml", &[]), (1, SIGNERS, &[]), (1, SIGNERS, &[])]);
        }
        assert_missing(&back(approved(step(1, None, A), &[ANNA], Some(0))), &[(1, SIGNERS, &["anna"])]);
        assert_missing(&back(approved(step(1, None, &[]), &[ANNA, BEN], Some(0))), &[]);
        // Also where the trees are the same.
        assert_missing(&back(step(1, Some(ANNA), &[])), &[(1, SIGNERS, &[]), (1, SIGNERS, &[])]);
    }

    #[test]
    fn the_file_goes_only_as_it_says_itself_and_a_broken_one_never_counts() {
        let gone: &[_] = &[(SIGNERS, Some("1"), None)];
        let free = with(step(2, None, A), Written::Absent);
        let alone = with(step(1, Some(ANNA), gone), Written::Absent);
        assert_missing(
            &way(vec![alone, free.clone()]),
            &[(2, "devices/a.yaml", &[]), (1, SIGNERS, &[]), (1, SIGNERS, &[])],
        );
        let both = with(approved(step(1, Some(ANNA), gone), &[CARL], None), Written::Absent);
        assert_missing(&way(vec![both, free.clone()]), &[]);
        let problems = Signers::read(&SourceFile::plain(SIGNERS, "people: 1")).unwrap_err();
        let broken = with(approved(step(1, Some(ANNA), FILE), &[BEN], None), Written::Broken(problems.clone()));
        assert!(
            matches!(judge(&way(vec![broken.clone()]), now()), Err(NotCovered::Broken { commit: at, .. }) if at == commit(1))
        );
        // Put right by the same people, it never was anything.
        let mended = approved(step(2, Some(ANNA), &[(SIGNERS, Some("2"), Some("1"))]), &[BEN], None);
        assert_missing(&way(vec![broken.clone(), mended]), &[]);
        // And where nobody had to agree before, a broken one says so at once.
        let first = Way { signers: Written::Absent, ..way(vec![broken]) };
        assert!(matches!(judge(&first, now()), Err(NotCovered::Broken { .. })));
        let unreadable = Way { signers: Written::Broken(problems), ..way(vec![free]) };
        assert!(matches!(judge(&unreadable, now()), Err(NotCovered::Broken { commit: at, .. }) if at == commit(0)));
    }

    #[test]
    fn the_refusal_names_rule_path_and_commit_and_what_to_do() {
        let error = judge(&way(vec![approved(step(1, None, FILE), &[BEN, MALLORY], None)]), now()).unwrap_err();
        let (one, base) = (commit(1), commit(0));
        let text = error.to_string();
        let begin = format!("commit {one} changes `signers.yaml`, and signers.yaml:");
        assert!(text.starts_with(&begin) && text.contains(&format!("rules[2] of commit {base}")), "{text}");
        assert!(text.contains("wants 2 of anna, ben, carl to agree: only ben did; the key SHA256:"), "{text}");
        assert_eq!(error.hint(), format!("who agrees says so: `wfm-git-publisher approve {one}`"));
    }
}
