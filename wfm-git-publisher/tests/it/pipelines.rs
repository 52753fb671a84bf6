//! The pipelines and the hook of `docs/pipelines.md`, run as far as they can be without the hosts that they are for.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread::JoinHandle;

use repo_model::yaml::{Limits, Node, Value, parse};
use repo_testkit::git::{git, try_git};
use wfm_git_publisher::fleet::PARTS;

use crate::support::{Lab, PROGRAM, Ran};

fn file(name: &str) -> PathBuf {
    repo_testkit::root().join("docs/pipelines").join(name)
}

fn read(name: &str) -> Node {
    parse(name, &fs::read(file(name)).unwrap(), &Limits::VENDOR).unwrap_or_else(|problem| panic!("{problem}"))
}

fn at<'a>(node: &'a Node, path: &[&str]) -> &'a Node {
    path.iter().fold(node, |node, key| {
        let Value::Mapping(entries) = &node.value else { panic!("{key}: {node:?}") };
        let found = entries.iter().find(|(name, _)| matches!(&name.value, Value::Scalar(name) if name.text == *key));
        &found.unwrap_or_else(|| panic!("{key}")).1
    })
}

fn list(node: &Node) -> &[Node] {
    let Value::Sequence(items) = &node.value else { panic!("{node:?}") };
    items
}

fn text(node: &Node) -> &str {
    let Value::Scalar(scalar) = &node.value else { panic!("{node:?}") };
    &scalar.text
}

/// The commands of a step of a workflow.
fn step(workflow: &Node, job: &str, name: &str) -> String {
    let steps = list(at(workflow, &["jobs", job, "steps"]));
    let named = |step: &&Node| {
        let Value::Mapping(entries) = &step.value else { return false };
        entries.iter().any(|(key, value)| text(key) == "name" && text(value) == name)
    };
    text(at(steps.iter().find(named).unwrap(), &["run"])).to_owned()
}

/// The commands of a job of GitLab's, which are lines of one shell.
fn script(pipeline: &Node, job: &str) -> String {
    list(at(pipeline, &[job, "script"])).iter().map(|line| format!("{}\n", text(line))).collect()
}

/// A fleet with a change in a clone of its bare repository, and a copy of what a runner may have of the home.
struct Pipeline {
    lab: Lab,
    clone: PathBuf,
    home: PathBuf,
    temporary: PathBuf,
}

impl Pipeline {
    fn new(change: impl FnOnce(&Lab)) -> Self {
        let lab = Lab::with(&["press-01"]);
        lab.publish_all();
        let home = lab.dir().join("runner");
        fs::create_dir_all(home.join("keys")).unwrap();
        repo_testkit::copy(&lab.home.control(), &home.join("control.git"));
        repo_testkit::copy(lab.repo("press-01").parent().unwrap(), &home.join("devices"));
        change(&lab);
        lab.commit();
        git(lab.dir(), &["clone", "--quiet", "--bare", "fleet", "host.git"]);
        git(lab.dir(), &["clone", "--quiet", "host.git", "clone"]);
        let bin = lab.dir().join("bin");
        fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(PROGRAM, bin.join("wfm-git-publisher")).unwrap();
        let (clone, temporary) = (lab.dir().join("clone"), lab.dir().join("tmp"));
        fs::create_dir(&temporary).unwrap();
        Self { lab, clone, home, temporary }
    }

    /// A change that is good, and asks for something of a device.
    fn good() -> Self {
        Self::new(|lab| lab.edit("deployments/hello.yaml", "hello from the press", "servus"))
    }

    fn wrong() -> Self {
        Self::new(|lab| lab.edit("deployments/hello.yaml", "greeting: hello from the press", "greting: x"))
    }

    /// Runs commands as a runner does: `bash -e`, in the clone.
    fn run(&self, script: &str, env: &[(&str, &str)]) -> Ran {
        let mut command = self.command("bash");
        Ran::of(command.args(["-e", "-c", script]).envs(env.iter().copied()).output().unwrap())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (name, value) in self.lab.command(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))) {
            command.env(name, value);
        }
        let path = format!("{}:{}", self.lab.dir().join("bin").display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("WFM_HOME", &self.home).env("TMPDIR", &self.temporary).current_dir(&self.clone);
        command
    }

    fn commit(&self) -> String {
        git(&self.clone, &["rev-parse", "HEAD"])
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.clone.join(name)).unwrap()
    }
}

/// Answers one request, and gives it back: its first line and headers, and its body.
fn host() -> (String, JoinHandle<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
        }
        let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap()];
        if head.to_lowercase().contains("expect: 100-continue") {
            reader.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
        }
        reader.read_exact(&mut body).unwrap();
        reader.get_mut().write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
        (head, String::from_utf8(body).unwrap())
    });
    (url, answer)
}

const CHANGE: &str = "| `~ hello` | `greeting: \"hello from the press\" → \"servus\"` | `press-01` |";

#[test]
fn githubs_workflow_marks_lines_and_comments_the_plan() {
    let workflow = read("github.yml");
    let (good, wrong) = (Pipeline::good(), Pipeline::wrong());
    let validate = step(&workflow, "validate", "Validate");
    assert_eq!(good.run(&validate, &[]).code, Some(0));
    let ran = wrong.run(&validate, &[]);
    assert!(
        ran.code == Some(1) && ran.out.starts_with("::error file=deployments/hello.yaml,line=22,"),
        "{}{}",
        ran.out,
        ran.err
    );
    for one in [&good, &wrong] {
        one.run(&step(&workflow, "validate", "Validate for code scanning"), &[]).good();
        assert!(one.read("fleet.sarif").contains("\"2.1.0\""));
    }
    // What `gh` is asked for; GitHub itself isn't here.
    let bin = good.lab.dir().join("bin/gh");
    fs::write(&bin, "#!/bin/sh\nprintf '%s\\n' \"$@\" > gh-args\n").unwrap();
    fs::set_permissions(&bin, fs::Permissions::from_mode(0o755)).unwrap();
    let (plan, commit) = (step(&workflow, "plan", "Plan"), good.commit());
    let env = [
        ("GITHUB_SHA", commit.as_str()),
        ("GITHUB_STEP_SUMMARY", "summary.md"),
        ("GITHUB_REPOSITORY", "plant/fleet"),
        ("NUMBER", "7"),
    ];
    let ran = good.run(&plan, &env);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    assert!(good.read("summary.md").contains(CHANGE), "{}", good.read("summary.md"));
    assert_eq!(
        good.read("gh-args"),
        "pr\ncomment\n7\n--repo\nplant/fleet\n--body-file\nplan.md\n--edit-last\n--create-if-none\n"
    );
}

#[test]
fn gitlabs_pipeline_has_results_of_tests_and_a_note_also_where_the_plan_is_refused() {
    let pipeline = read("gitlab.yml");
    let good = Pipeline::good();
    good.run(&script(&pipeline, "validate"), &[]).good();
    let wrong = Pipeline::wrong();
    assert_eq!(wrong.run(&script(&pipeline, "validate"), &[]).code, Some(1));
    assert!(wrong.read("fleet.xml").contains("<failure type=\"fleet-invalid\""));
    for (pipeline_run, code, words) in
        [(&good, 0, CHANGE), (&wrong, 1, "| **error** | `deployments/hello.yaml:22:12` |")]
    {
        let (url, answer) = host();
        let commit = pipeline_run.commit();
        let env = [
            ("CI_COMMIT_SHA", commit.as_str()),
            ("COMMENT_TOKEN", "s3cret"),
            ("CI_API_V4_URL", url.as_str()),
            ("CI_PROJECT_ID", "3"),
            ("CI_MERGE_REQUEST_IID", "7"),
        ];
        let ran = pipeline_run.run(&script(&pipeline, "plan"), &env);
        assert_eq!(ran.code, Some(code), "{}{}", ran.out, ran.err);
        let (head, body) = answer.join().unwrap();
        assert!(
            head.starts_with("POST /projects/3/merge_requests/7/notes HTTP/1.1\r\n")
                && head.contains("PRIVATE-TOKEN: s3cret"),
            "{head}"
        );
        let sent = format!("{body}&").replace('+', "%20");
        assert!(sent.starts_with("body=") && decoded(&sent).contains(words), "{}", decoded(&sent));
    }
}

/// A form's text as it was before it was encoded.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        let code = others
            .get(..2)
            .filter(|_| *first == b'%')
            .and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &others[2..] } else { others };
    }
    String::from_utf8(bytes).unwrap()
}

#[test]
fn giteas_workflow_validates_and_comments_the_plan() {
    let workflow = read("gitea.yml");
    let good = Pipeline::good();
    good.run(&step(&workflow, "validate", "Validate"), &[]).good();
    assert_eq!(Pipeline::wrong().run(&step(&workflow, "validate", "Validate"), &[]).code, Some(1));
    let (url, answer) = host();
    let commit = good.commit();
    let env = [
        ("GITHUB_SHA", commit.as_str()),
        ("TOKEN", "s3cret"),
        ("GITHUB_SERVER_URL", url.as_str()),
        ("GITHUB_REPOSITORY", "plant/fleet"),
        ("NUMBER", "7"),
    ];
    let ran = good.run(&step(&workflow, "plan", "Plan"), &env);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    let (head, body) = answer.join().unwrap();
    assert!(
        head.starts_with("POST /api/v1/repos/plant/fleet/issues/7/comments HTTP/1.1\r\n")
            && head.contains("Authorization: token s3cret"),
        "{head}"
    );
    let body: BTreeMap<String, String> = serde_json::from_str(&body).unwrap();
    assert!(body["body"].contains(CHANGE), "{body:?}");
}

#[test]
fn the_hook_refuses_a_commit_by_what_is_staged_and_not_by_what_lies_around() {
    let pipeline = Pipeline::good();
    let hook = pipeline.clone.join(".git/hooks/pre-commit");
    fs::copy(file("pre-commit"), &hook).unwrap();
    let deployment = pipeline.clone.join("deployments/hello.yaml");
    let good = pipeline.read("deployments/hello.yaml");
    let write = |text: String| fs::write(&deployment, text).unwrap();
    let commit = |args: &[&str]| {
        Ran::of(pipeline.command("git").args(["commit", "--quiet", "-m", "x"]).args(args).output().unwrap())
    };
    let head = pipeline.commit();
    write(good.replace("greeting: servus", "greting: x"));
    for home in [true, false] {
        let mut command = pipeline.command("git");
        if !home {
            command.env_remove("WFM_HOME");
        }
        let ran = Ran::of(command.args(["commit", "--quiet", "--all", "-m", "x"]).output().unwrap());
        assert!(
            ran.code == Some(1) && ran.err.contains("deployments/hello.yaml:22:12: parameters.greting: "),
            "{}",
            ran.err
        );
        assert_eq!(ran.err.contains("there is no publisher's home here"), !home, "{}", ran.err);
    }
    assert_eq!(pipeline.commit(), head);
    // What is staged is right, and what isn't is nobody's business yet.
    write(good.replace("servus", "griass di"));
    git(&pipeline.clone, &["add", "--all"]);
    write("id: [\n".to_owned());
    commit(&[]).good();
    assert_ne!(pipeline.commit(), head);
    write(good.replace("servus", "baba"));
    commit(&["--all"]).good();
    assert!(try_git(&pipeline.clone, &["diff", "--quiet"]).status.success());
    assert_eq!(fs::read_dir(&pipeline.temporary).unwrap().count(), 0);
}

#[test]
fn the_hooks_entry_for_pre_commit_is_a_command_that_works() {
    let config = read("pre-commit-config.yaml");
    let hook = &list(at(&list(at(&config, &["repos"]))[0], &["hooks"]))[0];
    assert_eq!(Pipeline::good().run(text(at(hook, &["entry"])), &[]).code, Some(0));
    assert_eq!(Pipeline::wrong().run(text(at(hook, &["entry"])), &[]).code, Some(1));
    let files = regex::Regex::new(text(at(hook, &["files"]))).unwrap();
    // Whatever a fleet is read from, also where a link or a submodule lies in the place of a folder.
    for part in PARTS {
        let inside = [part.to_owned(), format!("{part}/graz/press-01.yaml")];
        let paths = if part.ends_with(".yaml") { &inside[..1] } else { &inside[..] };
        assert!(paths.iter().all(|path| files.is_match(path)), "{part}");
    }
    for (path, is_ours) in
        [("signers.yml", true), ("README.md", false), ("notes/devices/x", false), ("secrets.md", false)]
    {
        assert_eq!(files.is_match(path), is_ours, "{path}");
    }
}

#[test]
fn plan_says_of_each_part_of_a_fleet_that_it_is_not_committed() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    let note = "note: there are changes that are not committed";
    assert!(!lab.run(&["plan"]).err.contains(note));
    for part in PARTS {
        let path = if part.ends_with(".yaml") { part.to_owned() } else { format!("{part}/x/y.yaml") };
        let before = lab.path(&path).exists().then(|| lab.read(&path));
        lab.write(&path, before.clone().unwrap_or_default() + "# x\n");
        assert!(lab.run(&["plan"]).err.contains(note), "{part}");
        match before {
            Some(before) => lab.write(&path, before),
            None => lab.remove(&path),
        }
    }
    lab.write("notes.md", "x");
    assert!(!lab.run(&["plan"]).err.contains(note));
}
