//! What a host is asked about its fleet: each question is a command, and its path and query are the command's arguments.

use std::num::NonZeroU16;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, CommandFactory};
use form_urlencoded::Serializer;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use repo_model::{DeploymentName, DeviceId, Digest};

use super::Args;
use crate::operator::API;

/// The description of the interface, which is answered like a question.
pub(super) const OPENAPI: &str = include_str!("../../openapi.json");

/// What is encoded in a part of a path.
const ENCODED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Options that are no part of a question: for what goes on a host is asked again and again, and it answers from what it has anyway.
const WATCH: &str = "watch";
const FOLLOW: &str = "follow";
const CACHED: &str = "cached";

/// The option with the form of an answer.
pub(super) const OUTPUT: &str = "output";

/// The option of those that tell what came since.
const AFTER: &str = "after";

/// The parameter of every question that is no option of its command: how wide the lines are in which the answer is read.
const WIDTH: &str = "width";

/// A question.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// Below [`API`]; `{name}` stands for the argument of this name.
    path: &'static str,
    command: &'static [&'static str],
    /// Whether a clone of the fleet repository has no answer of its own.
    pub(super) needs_home: bool,
    /// What is shown where its command goes on; absent where it never does.
    goes_on: Option<Shown>,
    /// Whether an operator may send along what they would push.
    takes_files: bool,
}

/// What a command shows that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    Status,
    Rollout,
    Events,
    Pending,
}

const fn question(path: &'static str, command: &'static [&'static str]) -> Question {
    Question { path, command, needs_home: true, goes_on: None, takes_files: false }
}

const fn shown(what: Shown, question: Question) -> Question {
    Question { goes_on: Some(what), ..question }
}

/// All there are.
const QUESTIONS: [Question; 17] = [
    shown(Shown::Status, question("status", &["status"])),
    Question { needs_home: false, ..question("devices", &["device", "list"]) },
    question("devices/{id}", &["device", "show"]),
    question("devices/{id}/answers", &["device", "answers"]),
    question("devices/{device}/applications", &["device", "apps"]),
    question("applications/{package}/devices", &["app", "devices"]),
    question("deployments/{id}", &["deployment", "show"]),
    question("rollouts", &["rollout", "list"]),
    shown(Shown::Rollout, question("rollouts/{number}", &["rollout", "show"])),
    question("trace/{commit}", &["trace"]),
    question("history/{device}", &["history"]),
    shown(Shown::Events, question("events", &["events"])),
    question("explain/{device}", &["explain"]),
    question("why-not/{application}/{device}", &["why-not"]),
    Question { takes_files: true, ..question("plan", &["plan"]) },
    shown(Shown::Pending, question("enrolments", &["device", "pending"])),
    question("alerts", &["alert", "list"]),
];

/// A path with its query that is no question.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoQuestion {
    #[error("there is no such question")]
    Path,
    #[error("`{0}` is no parameter of this question")]
    Parameter(String),
    #[error("the parameter `{0}` is `true` or isn't there")]
    Flag(String),
    #[error("the parameter `{0}` needs the one before it")]
    Order(String),
    #[error("the parameter `{WIDTH}` is a number from 1 to {max}", max = u16::MAX)]
    Width,
}

/// A question as the host's process gets it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Called {
    /// The command that answers it, with its arguments.
    pub(super) words: Vec<String>,
    /// How many characters the lines have in which the answer is read; `None` where nobody says.
    pub(super) width: Option<NonZeroU16>,
    /// Whether an operator may send along what they would push.
    pub(super) takes_files: bool,
}

/// The question that `device answers` asks.
pub(super) fn answers(device: &DeviceId) -> String {
    let device = utf8_percent_encode(device.as_str(), &ENCODED);
    format!("{API}devices/{device}/answers")
}

/// The question that `app devices` asks, of a version as `hello@1.0.0`.
pub(super) fn devices(package: &str) -> String {
    let package = utf8_percent_encode(package, &ENCODED);
    format!("{API}applications/{package}/devices")
}

/// The question that `deployment show` asks, of these devices or of all.
pub(super) fn deployment(id: &DeploymentName, devices: &[DeviceId]) -> String {
    let id = utf8_percent_encode(id.as_str(), &ENCODED);
    let devices = devices.iter().map(|device| ("devices", device.as_str()));
    format!("{API}deployments/{id}?{}", Serializer::new(String::new()).extend_pairs(devices).finish())
}

/// The question that `plan` asks.
pub(super) fn plan() -> String {
    format!("{API}plan")
}

/// The same of a commit, in a form.
pub(super) fn plan_of(rev: &str, output: &str) -> String {
    let query = Serializer::new(String::new()).append_pair("rev", rev).append_pair(OUTPUT, output).finish();
    format!("{API}plan?{query}")
}

/// The question that `rollout show` asks.
pub(super) fn rollout(number: u32) -> String {
    format!("{API}rollouts/{number}")
}

/// The same question, for what came since an answer with this cursor.
pub(super) fn after(question: &str, cursor: &Digest) -> String {
    let (path, query) = question.split_once('?').unwrap_or((question, ""));
    let others = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name != AFTER);
    let query = Serializer::new(String::new()).extend_pairs(others).append_pair(AFTER, &cursor.to_string()).finish();
    format!("{path}?{query}")
}

/// The same question without these parameters.
pub(super) fn without(question: &str, names: &[&str]) -> String {
    let (path, query) = question.split_once('?').unwrap_or((question, ""));
    let others = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| !names.contains(&name.as_ref()));
    format!("{path}?{}", Serializer::new(String::new()).extend_pairs(others).finish())
}

/// Reads a question.
pub(super) fn read(question: &str) -> Result<Called, NoQuestion> {
    let (path, query) = question.split_once('?').unwrap_or((question, ""));
    let found = QUESTIONS.iter().find_map(|one| Some((one, one.named(path)?)));
    let (question, mut positionals) = found.ok_or(NoQuestion::Path)?;
    let (arguments, mut options, mut width) = (question.arguments(), Vec::new(), None);
    for (name, value) in form_urlencoded::parse(query.as_bytes()).into_owned() {
        match arguments.iter().find(|one| name_of(one) == name && !question.has_in_path(&name)) {
            None if name == WIDTH => width = Some(value.parse().map_err(|_| NoQuestion::Width)?),
            None => return Err(NoQuestion::Parameter(name)),
            Some(one) if one.is_positional() => positionals.push((name, value)),
            Some(one) if !is_flag(one) => options.push(format!("--{name}={value}")),
            Some(_) if ["", "true"].contains(&value.as_str()) => options.push(format!("--{name}")),
            Some(_) => return Err(NoQuestion::Flag(name)),
        }
    }
    let is_formed = options.iter().any(|one| one.starts_with(&format!("--{OUTPUT}=")));
    options.extend((!is_formed).then(|| format!("--{OUTPUT}=json")));
    options.extend(question.has(CACHED).then(|| format!("--{CACHED}")));
    // What is no option is told by its place, so that none before it may be missing.
    let (mut last, mut is_over) = (vec!["--".to_owned()], false);
    for argument in arguments.iter().filter(|one| one.is_positional()) {
        let (count, name) = (last.len(), name_of(argument));
        last.extend(positionals.iter().filter(|(one, _)| one == name).map(|(_, value)| value.clone()));
        if is_over && last.len() > count {
            return Err(NoQuestion::Order(name.to_owned()));
        }
        is_over |= last.len() == count;
    }
    let command = question.command.iter().map(|word| (*word).to_owned());
    let words = command.chain(options).chain(last).collect();
    Ok(Called { words, width, takes_files: question.takes_files })
}

impl Question {
    /// The question that a command line asks, and the arguments of its command; `None` if it asks none.
    pub(super) fn meant(matches: &ArgMatches) -> Option<(&'static Self, &ArgMatches)> {
        let (mut words, mut inner) = (Vec::new(), matches);
        while let Some((word, below)) = inner.subcommand() {
            words.push(word);
            inner = below;
        }
        Some((QUESTIONS.iter().find(|one| one.command == words)?, inner))
    }

    /// What is shown again and again with these arguments, for which a host is asked as often; `None` where it is asked once.
    pub(super) fn shown_on(&self, matches: &ArgMatches) -> Option<Shown> {
        let goes_on = [WATCH, FOLLOW].into_iter().any(|flag| self.has(flag) && matches.get_flag(flag));
        self.goes_on.filter(|_| goes_on)
    }

    /// Its path and query with these arguments, each as `said` turns it, for lines of this width.
    pub(super) fn asked(
        &self,
        matches: &ArgMatches,
        width: Option<NonZeroU16>,
        said: impl Fn(&str, &str) -> String,
    ) -> String {
        let values = |id: &str| {
            let raw = matches.get_raw(id).into_iter().flatten();
            raw.map(|value| said(id, &value.to_string_lossy())).collect::<Vec<_>>()
        };
        let part = |part: &str| match placeholder(part) {
            Some(id) => utf8_percent_encode(&values(id).concat(), &ENCODED).to_string(),
            None => part.to_owned(),
        };
        let path: Vec<_> = self.path.split('/').map(part).collect();
        let mut query = Serializer::new(String::new());
        for argument in self.arguments() {
            let (id, name) = (argument.get_id().as_str(), name_of(&argument));
            let is_said = name == OUTPUT || matches.value_source(id) == Some(ValueSource::CommandLine);
            match is_said && !self.has_in_path(name) {
                true if is_flag(&argument) => _ = query.append_pair(name, "true"),
                true => values(id).iter().for_each(|value| _ = query.append_pair(name, value)),
                false => {}
            }
        }
        width.into_iter().for_each(|width| _ = query.append_pair(WIDTH, &width.to_string()));
        format!("{API}{}?{}", path.join("/"), query.finish())
    }

    /// The arguments that stand in a path, with their names; `None` if it is another question's.
    fn named(&self, path: &str) -> Option<Vec<(String, String)>> {
        let (own, given): (Vec<_>, Vec<_>) =
            (self.path.split('/').collect(), path.strip_prefix(API)?.split('/').collect());
        if own.len() != given.len() {
            return None;
        }
        let mut named = Vec::new();
        for (own, given) in own.into_iter().zip(given) {
            match placeholder(own) {
                Some(name) => {
                    let value = percent_decode_str(given).decode_utf8().ok().filter(|value| !value.is_empty())?;
                    named.push((name.to_owned(), value.into_owned()));
                }
                None if own == given => {}
                None => return None,
            }
        }
        Some(named)
    }

    /// Whether an argument stands in its path.
    fn has_in_path(&self, name: &str) -> bool {
        self.path.split('/').any(|part| placeholder(part) == Some(name))
    }

    /// Whether its command has an option.
    fn has(&self, option: &str) -> bool {
        self.command_arguments().iter().any(|one| one.get_long() == Some(option))
    }

    /// The arguments that it may be asked with.
    fn arguments(&self) -> Vec<Arg> {
        let mut all = self.command_arguments();
        all.retain(|one| ![WATCH, FOLLOW, CACHED].contains(&name_of(one)));
        all
    }

    /// The arguments of its command, without those that all commands have.
    fn command_arguments(&self) -> Vec<Arg> {
        let root = Args::command();
        let found = self.command.iter().try_fold(&root, |command, word| command.find_subcommand(word));
        found.into_iter().flat_map(clap::Command::get_arguments).cloned().collect()
    }
}

/// The argument that a part of a path stands for.
fn placeholder(part: &str) -> Option<&str> {
    part.strip_prefix('{')?.strip_suffix('}')
}

/// What an argument is called in a question: as its option, or as it stands in the usage, in lower case.
fn name_of(argument: &Arg) -> &str {
    argument.get_long().unwrap_or_else(|| argument.get_id().as_str())
}

fn is_flag(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::SetTrue)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::cli::command;
    use crate::operator::{API_VERSION, OPENAPI_PATH};

    fn asked(line: &str, width: Option<NonZeroU16>) -> String {
        let matches = command().try_get_matches_from(line.split(' ')).unwrap();
        let (question, own) = Question::meant(&matches).unwrap();
        question.asked(own, width, |_, value| value.to_owned())
    }

    fn words(question: &str) -> Result<Vec<String>, NoQuestion> {
        read(question).map(|called| called.words)
    }

    #[test]
    fn a_command_line_becomes_a_question_and_is_the_same_command_again() {
        for (line, path, same) in [
            ("w status", "/api/v1/status?output=text", "status --output=text --cached --"),
            (
                "w status a b/c -l site=graz,!spare --failed --output json",
                "/api/v1/status?devices=a&devices=b%2Fc&selector=site%3Dgraz%2C%21spare&failed=true&output=json",
                "status --selector=site=graz,!spare --failed --output=json --cached -- a b/c",
            ),
            (
                "w device show Press/01",
                "/api/v1/devices/Press%2F01?output=text",
                "device show --output=text --cached -- Press/01",
            ),
            ("w trace", "/api/v1/trace/HEAD?output=text", "trace --output=text --cached -- HEAD"),
            (
                "w explain press-01 hello greeting",
                "/api/v1/explain/press-01?deployment=hello&parameter=greeting&output=text",
                "explain --output=text -- press-01 hello greeting",
            ),
            (
                "w events -l role=press",
                "/api/v1/events?selector=role%3Dpress&output=text",
                "events --selector=role=press --output=text --cached --",
            ),
            ("w events --follow", "/api/v1/events?output=text", "events --output=text --cached --"),
            ("w status --watch", "/api/v1/status?output=text", "status --output=text --cached --"),
            ("w why-not hello a", "/api/v1/why-not/hello/a?output=text", "why-not --output=text -- hello a"),
        ] {
            assert_eq!(asked(line, None), path);
            assert_eq!(words(path).unwrap().join(" "), same);
        }
    }

    #[test]
    fn what_goes_on_a_host_is_asked_for_again_and_again_where_it_can_be() {
        for (line, expected) in [
            ("w status", None),
            ("w status --watch", Some(Shown::Status)),
            ("w rollout show 12 --watch", Some(Shown::Rollout)),
            ("w events -f", Some(Shown::Events)),
            ("w rollout list", None),
            ("w device pending", None),
            ("w device pending --watch", Some(Shown::Pending)),
        ] {
            let matches = command().try_get_matches_from(line.split(' ')).unwrap();
            let (question, own) = Question::meant(&matches).unwrap();
            assert_eq!(question.shown_on(own), expected, "{line}");
        }
        for question in &QUESTIONS {
            assert_eq!(question.has(WATCH) || question.has(FOLLOW), question.goes_on.is_some(), "{}", question.path);
        }
    }

    #[test]
    fn what_came_since_is_asked_by_the_newest_cursor() {
        let (first, second) = (Digest::of(b"1"), Digest::of(b"2"));
        let question = asked(&format!("w events --since 2h --follow --after {first} a"), None);
        let common = "events --since=2h --output=text --cached";
        for (question, cursor) in [(question.clone(), first), (after(&question, &second), second)] {
            let mut words = words(&question).unwrap();
            let at = words.iter().position(|word| *word == format!("--after={cursor}")).expect("a cursor");
            words.remove(at);
            assert_eq!(words.join(" "), format!("{common} -- a"));
        }
    }

    #[test]
    fn how_wide_the_readers_lines_are_is_said_beside_the_arguments_of_the_command() {
        let path = asked("w device show press-01", NonZeroU16::new(80));
        assert_eq!(path, "/api/v1/devices/press-01?output=text&width=80");
        let called = read(&path).unwrap();
        assert_eq!(called.words.join(" "), "device show --output=text --cached -- press-01");
        assert_eq!(called.width, NonZeroU16::new(80));
        for width in ["", "0", "-80", "65536", "wide"] {
            assert_eq!(words(&format!("/api/v1/status?width={width}")), Err(NoQuestion::Width), "{width}");
        }
    }

    #[test]
    fn nothing_but_the_arguments_of_a_question_reaches_its_command() {
        for (path, expected) in [
            ("/api/v1/", NoQuestion::Path),
            ("/api/v2/status", NoQuestion::Path),
            ("/api/v1/status/", NoQuestion::Path),
            ("/api/v1/publish", NoQuestion::Path),
            ("/api/v1/devices/%ff", NoQuestion::Path),
            ("/api/v1/devices/", NoQuestion::Path),
            ("/api/v1/status?home=/etc", NoQuestion::Parameter("home".to_owned())),
            ("/api/v1/status?fleet=/etc", NoQuestion::Parameter("fleet".to_owned())),
            ("/api/v1/status?watch", NoQuestion::Parameter("watch".to_owned())),
            ("/api/v1/events?follow", NoQuestion::Parameter("follow".to_owned())),
            ("/api/v1/status?cached", NoQuestion::Parameter("cached".to_owned())),
            ("/api/v1/status?help", NoQuestion::Parameter("help".to_owned())),
            ("/api/v1/devices/a?id=b", NoQuestion::Parameter("id".to_owned())),
            ("/api/v1/status?failed=no", NoQuestion::Flag("failed".to_owned())),
            ("/api/v1/explain/a?parameter=p", NoQuestion::Order("parameter".to_owned())),
        ] {
            assert_eq!(words(path), Err(expected), "{path}");
        }
        let option = words("/api/v1/status?devices=--home%3D/etc&rev=--watch").unwrap();
        assert_eq!(option, ["status", "--rev=--watch", "--output=json", "--cached", "--", "--home=/etc"]);
    }

    #[test]
    fn the_description_has_each_question_with_all_of_its_parameters() {
        let openapi: Value = serde_json::from_str(OPENAPI).unwrap();
        let server = openapi["servers"][0]["url"].as_str().unwrap();
        assert_eq!(format!("{server}/"), API);
        assert_eq!(openapi["components"]["schemas"]["Result"]["properties"]["apiVersion"]["const"], API_VERSION);
        let mut described: BTreeSet<_> = openapi["paths"].as_object().unwrap().keys().cloned().collect();
        assert!(described.remove(OPENAPI_PATH.strip_prefix(server).unwrap()));
        for question in &QUESTIONS {
            let path = format!("/{}", question.path);
            assert!(described.remove(&path), "{path}");
            let operation = &openapi["paths"][&path]["get"];
            let referred = |one: &Value| match one["$ref"].as_str() {
                Some(name) => openapi.pointer(&name[1..]).unwrap().clone(),
                None => one.clone(),
            };
            let parameters: Vec<_> = operation["parameters"].as_array().unwrap().iter().map(referred).collect();
            let shape = |one: &Value| {
                let schema = &one["schema"];
                let values =
                    schema["enum"].as_array().into_iter().flatten().map(|value| value.as_str().unwrap().to_owned());
                (
                    one["name"].as_str().unwrap().to_owned(),
                    one["in"].as_str().unwrap().to_owned(),
                    schema["type"].as_str().unwrap().to_owned(),
                    values.collect::<Vec<_>>(),
                )
            };
            let found: BTreeSet<_> = parameters.iter().map(shape).collect();
            let mut expected: BTreeSet<_> = question
                .arguments()
                .iter()
                .map(|one| {
                    let name = name_of(one).to_owned();
                    let place = if path.contains(&format!("{{{name}}}")) { "path" } else { "query" };
                    let kind = match one.get_action() {
                        ArgAction::SetTrue => "boolean",
                        ArgAction::Append => "array",
                        _ if ["number", "limit"].contains(&name.as_str()) => "integer",
                        _ => "string",
                    };
                    let values = if name == OUTPUT { one.get_possible_values() } else { Vec::new() };
                    (
                        name,
                        place.to_owned(),
                        kind.to_owned(),
                        values.iter().map(|value| value.get_name().to_owned()).collect(),
                    )
                })
                .collect();
            expected.insert((WIDTH.to_owned(), "query".to_owned(), "integer".to_owned(), Vec::new()));
            assert_eq!(found, expected, "{path}");
            let sent = &openapi["paths"][&path]["post"];
            assert_eq!(sent.is_object(), question.takes_files, "{path}");
            assert!(!question.takes_files || sent["parameters"] == operation["parameters"], "{path}");
        }
        assert!(described.is_empty(), "{described:?}");
    }
}
