//! What was begun and hasn't come to a good end: how often, who is blamed when the device goes down with it, and what is on trial.

use repo_model::{Digest, ErrorCode, IntoSet};
use serde::{Deserialize, Serialize};

use super::{AppliedComponent, DeviceState, is_compose};
use crate::decision::component::Component;
use crate::decision::deployment::DesiredDeployment;
use crate::decision::failure::Failure;

/// After so many boots that it took down with it, an input is given up.
const MAX_LOST: u32 = 3;

/// An apply that began and didn't succeed so far, or whose outcome is on trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// The input that the apply is of.
    pub input_digest: Digest,
    /// The boot during which it last began.
    pub boot_id: String,
    /// How often it began during that boot since it last came back with an answer: at most once, unless the syncer was
    /// killed.
    pub open: u32,
    /// How many boots it began in and never came back from.
    pub lost: u32,
    /// How often it came back because health took too long.
    pub timeouts: u32,
    /// It was open together with others when the device went down: it begins again when nothing else is at work. What is on
    /// trial is taken down for that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspect: bool,
    /// It succeeded, and the device may go down with it yet: it is open while a running syncer watches that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_trial: bool,
    /// How many boots it was lost in while it was on trial beside other deployments.
    #[serde(default)]
    pub lost_together: u32,
}

impl Attempt {
    /// The first one of an input, about to begin.
    pub fn new(input_digest: Digest) -> Self {
        let (boot_id, suspect, on_trial) = (String::new(), false, false);
        Self { input_digest, boot_id, open: 0, lost: 0, timeouts: 0, suspect, on_trial, lost_together: 0 }
    }

    /// Counts as open from now on, during this boot, until it comes back with an answer.
    pub fn begin(&mut self, boot_id: &str) {
        boot_id.clone_into(&mut self.boot_id);
        self.open += 1;
    }

    /// Came back with an answer; what is on trial stays open as it was before.
    pub fn close(&mut self) {
        self.open = if self.on_trial { self.open.saturating_sub(1) } else { 0 };
    }

    /// Whether it was open when the device went down.
    fn went_down(&self, boot_id: &str) -> bool {
        self.open > 0 && self.boot_id != boot_id
    }
}

impl DeviceState {
    /// The attempts at this input so far, if there were any.
    pub fn attempt(&mut self, input: &Component) -> Option<&mut Attempt> {
        self.attempts.get_mut(&input.project).filter(|attempt| attempt.input_digest == input.input_digest)
    }

    /// Blames what was open when the device went down before this boot: what was being applied, or else what was on trial. Where
    /// several deployments had something open, it can't be told which of them took it down: none is blamed, and from then on what
    /// was being applied is tried alone. So is, at the third time, what was on trial, but for charts, which can't be taken down.
    pub fn blame(&mut self, boot_id: &str) {
        let Self { attempts, deployments, .. } = self;
        let applied =
            || deployments.iter().flat_map(|(id, all)| all.inputs.components.iter().map(move |one| (*id, one)));
        let find = |project: &str| applied().find(|(_, one)| one.project == project);
        let open: Vec<_> = attempts.iter_mut().filter(|(_, attempt)| attempt.went_down(boot_id)).collect();
        let of = |project: &String| find(project).map_or_else(|| project.clone(), |(id, _)| id.to_string());
        let alone = open.iter().map(|(project, _)| of(project)).into_set().len() == 1;
        let is_applied = open.iter().any(|(_, attempt)| !attempt.on_trial);
        for (project, attempt) in open {
            attempt.open = 0;
            if attempt.on_trial && is_applied {
                continue;
            }
            attempt.lost += u32::from(alone);
            attempt.lost_together += u32::from(!alone && attempt.on_trial);
            let is_compose = || find(project).is_some_and(|(_, one)| is_compose(&one.kind));
            attempt.suspect |= !alone && (is_applied || attempt.lost_together >= MAX_LOST && is_compose());
        }
    }

    /// Why what runs of an input is removed, though it is wanted: the device goes down with it, or with it and others.
    pub fn why_taken_down(&self, input: &Component) -> Option<Failure> {
        let attempt = self.attempts.get(&input.project).filter(|one| one.input_digest == input.input_digest)?;
        let turn = || {
            Failure::new(
                ErrorCode::Queued,
                "the device went down with this and others, and each of them is tried alone",
            )
        };
        self.takes_down(input).or_else(|| (attempt.on_trial && attempt.suspect).then(turn))
    }

    /// Why an input is given up: the device went down with it again and again.
    pub fn takes_down(&self, input: &Component) -> Option<Failure> {
        let attempt = self.attempts.get(&input.project).filter(|one| one.input_digest == input.input_digest)?;
        let lost = attempt.lost;
        let text = || {
            format!(
                "the device went down {lost} times while this was applied or had just begun to run, so it isn't tried again"
            )
        };
        (lost >= MAX_LOST).then(|| Failure::new(ErrorCode::CrashLoop, text()))
    }

    /// Closes the attempt at what runs as it is wanted. What was just applied goes on trial where a syncer watches it during this
    /// boot; not so what ran well before.
    pub fn try_out(&mut self, wanted: &DesiredDeployment, input: &Component, watched: Option<&str>) {
        let is_known = self.applied_digest(&input.project) == Some(input.input_digest);
        let good = self.good_sets.get(&wanted.id).map(|good| &good.inputs.inputs);
        let is_good = wanted.rolled_back.is_some() || good.is_some_and(|good| good.contains(&input.input_digest));
        let attempt = self.attempts.remove(&input.project).filter(|one| one.input_digest == input.input_digest);
        let Some(attempt) = attempt.filter(|one| one.on_trial || !(is_known || is_good || watched.is_none())) else {
            return;
        };
        let begun = |boot_id: &str| {
            let mut new = Attempt { lost: attempt.lost, on_trial: true, ..Attempt::new(input.input_digest) };
            new.begin(boot_id);
            new
        };
        let attempt = watched.filter(|_| !attempt.on_trial).map(begun).unwrap_or(attempt);
        self.attempts.insert(input.project.clone(), attempt);
    }

    /// Opens what is on trial, from when a syncer watches it during this boot.
    pub fn watch(&mut self, boot_id: &str) {
        let trials = self.attempts.values_mut().filter(|one| one.on_trial && one.open == 0);
        trials.for_each(|attempt| attempt.begin(boot_id));
    }

    /// Closes what is on trial: nobody watches it any more, and the device is maybe switched off.
    pub fn unwatch(&mut self) {
        self.attempts.values_mut().filter(|one| one.on_trial).for_each(|attempt| attempt.open = 0);
    }

    /// Whether something of another deployment is on trial, and watched.
    pub fn is_tried_beside(&self, wanted: &DesiredDeployment) -> bool {
        let is_own = |project: &str| wanted.components.iter().any(|one| one.project == project);
        self.attempts.iter().any(|(project, one)| one.on_trial && one.open > 0 && !is_own(project))
    }

    /// Forgets attempts at, and failures of what a deployment wants. What is at work during this boot stays open, and is counted anew.
    pub fn forget_failures(&mut self, wanted: &DesiredDeployment, boot_id: &str) {
        // A syncer before this noted no end.
        if self.set_failure(wanted).is_some() {
            self.note_ended(wanted);
        }
        self.rollbacks.remove(&wanted.id);
        for component in &wanted.components {
            self.failed_inputs.remove(&component.project);
        }
        self.forget_attempts(boot_id, |project| wanted.components.iter().any(|one| one.project == project));
    }

    /// Forgets all attempts and failures. What is at work during this boot stays open, and is counted anew.
    pub fn forget_all_failures(&mut self, boot_id: &str) {
        for applied in self.deployments.values_mut() {
            let has_failed = |one: &AppliedComponent| self.failed_inputs.contains_key(&one.project);
            applied.inputs.ended |= applied.inputs.components.iter().any(has_failed);
        }
        self.failed_inputs.clear();
        self.rollbacks.clear();
        self.forget_attempts(boot_id, |_| true);
    }

    /// Only what was on trial is let go while it is open: the others would be nobody's, and their next failure final.
    fn forget_attempts(&mut self, boot_id: &str, is_of: impl Fn(&str) -> bool) {
        self.attempts.retain(|project, attempt| {
            let is_kept = !is_of(project);
            let is_at_work = attempt.open > 0 && attempt.boot_id == boot_id && !attempt.on_trial;
            if !is_kept && is_at_work {
                *attempt =
                    Attempt { boot_id: boot_id.to_owned(), open: attempt.open, ..Attempt::new(attempt.input_digest) };
            }
            is_kept || is_at_work
        });
    }
}
