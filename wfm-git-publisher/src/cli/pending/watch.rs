//! `device pending --watch`: who comes to wait, and what becomes of those that did.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};
use wfm_git_host::enrolment::{Claims, Waiting};

use super::view::{Answered, Pending, Request, View, Word, rows};
use super::waiting;
use crate::cli::{Output, Place, asked, pause, print, print_json_line};
use crate::error::Failure;
use crate::operator::Answer;
use crate::repos::Home;

/// Shows what changes from now on, until it is interrupted.
pub(super) fn run(
    place: &Place,
    home: &Home,
    form: Output,
    (view, mut listed, mut told): (View, Vec<Waiting>, BTreeSet<String>),
) -> Result<u8, Failure> {
    let claims = Claims::new(home.enrolments());
    let mut watched = Watched { form, before: None };
    watched.show(view);
    loop {
        // What waits is here, wherever devices' repositories are.
        pause(place, true)?;
        let now = Timestamp::now();
        let newer = waiting(&claims, now, &mut told)?;
        if newer != listed {
            watched.show(View::of(place, home, &newer, now)?);
            listed = newer;
        }
    }
}

/// Prints what a host answers as `--watch` does.
pub(in crate::cli) fn watcher(question: &str, form: Output) -> impl FnMut(&Answer) -> Result<asked::Next, Failure> {
    let mut watched = Watched { form, before: None };
    move |answer| {
        watched.show(asked::read(answer)?);
        Ok(asked::Next::Continue(question.to_owned()))
    }
}

/// What was seen last.
struct Watched {
    form: Output,
    before: Option<View>,
}

impl Watched {
    /// Prints what is new; the first time all that there is.
    fn show(&mut self, view: View) {
        let now = Timestamp::now();
        match (&self.before, self.form) {
            (None, Output::Text) => print(&view.page(now)),
            (None, Output::Json) => view.pending.iter().for_each(|one| print_json_line(&came(one))),
            (Some(before), form) => Changes::between(before, &view).print(form, now),
        }
        self.before = Some(view);
    }
}

/// What became of those that waited, and who came.
struct Changes<'a> {
    answered: Vec<&'a Answered>,
    /// Those whose time was over, or whose key asked anew.
    over: Vec<&'a Request>,
    new: Vec<&'a Pending>,
}

impl<'a> Changes<'a> {
    fn between(before: &'a View, after: &'a View) -> Self {
        let waited = |request: &Request| before.pending.iter().any(|one| one.request == *request);
        let waits = |request: &Request| after.pending.iter().any(|one| one.request == *request);
        let was_answered = |request: &Request| before.answered.iter().any(|one| one.request == *request);
        let is_answered = |request: &Request| after.answered.iter().any(|one| one.request == *request);
        let requests = before.pending.iter().map(|one| &one.request);
        Self {
            // Also who came and was answered between two looks.
            answered: after.answered.iter().filter(|one| !was_answered(&one.request)).collect(),
            over: requests.filter(|one| !waits(one) && !is_answered(one)).collect(),
            new: after.pending.iter().filter(|one| !waited(&one.request)).collect(),
        }
    }

    fn print(&self, form: Output, now: Timestamp) {
        let Self { answered, over, new } = self;
        match form {
            Output::Json => {
                answered.iter().for_each(|one| print_json_line(&one.event()));
                over.iter().for_each(|one| print_json_line(&event("over", one, &Value::Null)));
                new.iter().for_each(|one| print_json_line(&came(one)));
            }
            Output::Text => {
                let answered = answered.iter().map(|one| one.said());
                let over = over.iter().map(|one| format!("{} waits no longer\n", one.number));
                let new = if new.is_empty() { String::new() } else { format!("\n{}", rows(new, now)) };
                print(&answered.chain(over).chain([new]).collect::<String>());
            }
        }
    }
}

impl Answered {
    fn said(&self) -> String {
        let number = self.request.number;
        match (self.answer, &self.device) {
            (Word::Approved, Some(device)) => format!("{number} is approved as {device}\n"),
            (Word::Approved, None) => format!("{number} is approved\n"),
            (Word::Rejected, _) => format!("{number} is rejected\n"),
        }
    }

    fn event(&self) -> Value {
        let word = match self.answer {
            Word::Approved => "approved",
            Word::Rejected => "rejected",
        };
        event(word, &self.request, &json!(self.device))
    }
}

fn event(event: &str, Request { number, fingerprint, .. }: &Request, device: &Value) -> Value {
    json!({ "event": event, "number": number, "fingerprint": fingerprint, "device": device })
}

/// One that waits, as it came.
fn came(one: &Pending) -> Value {
    let mut shown = json!(one);
    shown["event"] = "waiting".into();
    shown
}
