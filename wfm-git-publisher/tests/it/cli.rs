//! The program as operators use it: what it prints, how it ends, what it leaves behind.

use serde_json::{Value, json};

use crate::registry::Registry;
use crate::support::{Lab, Ran, SECOND};

/// From nothing to a signed desired state, with nothing but the program, Git and a registry.
#[test]
fn a_fleet_from_nothing_to_a_published_device() {
    let registry = Registry::start();
    let lab = Lab::new();
    let fleet = lab.dir().join("plant");
    let run = |args: &[&str]| lab.run_in(lab.dir(), &[&["-C", "plant"], args].concat());
    let image = format!("busybox:1@sha256:{}", "0".repeat(64));
    lab.run_in(lab.dir(), &["init", "plant", "--name", "Plant: 2", "--registry", &registry.host, "--image", &image])
        .good();
    assert!(std::fs::read_to_string(fleet.join("fleet.yaml")).unwrap().contains("name: \"Plant: 2\""));
    run(&["validate"]).good();
    let said = run(&["app", "push", "applications/hello/1.0.0"]).good();
    let manifest = registry.digest("1.0.0").unwrap().to_string();
    assert!(said.contains(&manifest), "{said}");
    let said = run(&["device", "add", "press-01"]).good();
    assert!(said.contains("is in the fleet already"), "{said}");
    run(&["plan"]).good();
    let line = Lab::device_key("press-01").public().to_string();
    run(&["device", "enroll", "press-01", &line]).good();
    let plan = run(&["plan"]);
    let expected = format!(
        "press-01: first desired state\n+ hello\n    application: hello\n    component hello: oci://{0}/hello:1.0.0, timeout 120 s\n    \
         greeting: \"hello from the press\"\n    interval: 5\n    oci://{0}/hello:1.0.0: `publish` finds out which bytes these are\n    \
         on press-01\n",
        registry.host
    );
    assert!(plan.out.contains(&expected), "{}", plan.out);
    assert_eq!(plan.code, Some(3));
    let said = run(&["publish"]).good();
    assert!(
        said.starts_with("press-01: serial 1 (") && said.ends_with("1 published, 0 unchanged, 2 not enrolled\n"),
        "{said}"
    );
    let plan = run(&["plan"]);
    assert_eq!(
        plan.good(),
        "packer-01, press-02: not enrolled yet, nothing is published for it\n0 devices to change, 1 unchanged, 2 not enrolled\n"
    );
    let repo = lab.dir().join("plant.wfm/devices/press-01.git");
    let envelope = repo_testkit::git::git(&repo, &["show", "desired:envelope.json"]);
    let envelope: Value = serde_json::from_str(&envelope).unwrap();
    let deployment = envelope["deployments"].as_object().unwrap().values().next().unwrap();
    assert_eq!(deployment["locks"]["hello"]["manifest"], manifest.as_str());
    assert!(run(&["status"]).good().contains("the device adopted nothing yet"));

    // What a tag means is settled.
    let compose = fleet.join("applications/hello/1.0.0/compose/hello/compose.yaml");
    let text = std::fs::read_to_string(&compose).unwrap().replace("SIGKILL", "SIGTERM");
    repo_git::durable::replace_file(&compose, text.as_bytes(), 0o644).unwrap();
    let said = run(&["app", "push", "applications/hello/1.0.0"]).failed(1);
    assert!(said.contains("was published with other files") && said.contains("hint: raise the version"), "{said}");
}

#[test]
fn all_versions_are_pushed_at_once_or_none_of_them_is() {
    let registry = Registry::start();
    let lab = Lab::new();
    let fleet = lab.dir().join("plant");
    lab.run_in(lab.dir(), &["init", "plant", "--registry", &registry.host]).good();
    let read = |path: &str| std::fs::read_to_string(fleet.join(path)).unwrap();
    let write = |path: &str, text: &str| {
        let path = fleet.join(path);
        repo_git::durable::create_dir_all(path.parent().unwrap(), 0o755).unwrap();
        repo_git::durable::replace_file(&path, text.as_bytes(), 0o644).unwrap();
    };
    let (margo, compose) = ("margo.yaml", "compose/hello/compose.yaml");
    let [description, good] = [margo, compose].map(|file| read(&format!("applications/hello/1.0.0/{file}")));
    write(&format!("applications/hello/1.1.0/{margo}"), &description.replace("1.0.0", "1.1.0"));
    write(
        &format!("applications/hello/1.1.0/{compose}"),
        &good.replace("SIGKILL", "SIGTERM").replacen("image:", "imgae:", 1),
    );
    // One that has only what others pushed.
    write(
        &format!("applications/other/2.0.0/{margo}"),
        &description.replace("1.0.0", "2.0.0").replace("id: hello", "id: other"),
    );
    let push = || lab.run_in(&fleet, &["app", "push", "--all", "--output", "json"]);
    let said = push().failed(1);
    assert!(said.contains("1.1.0") && said.contains("`services.hello.imgae`"), "{said}");
    assert_eq!(registry.digest("1.0.0"), None, "nothing was pushed");
    write(&format!("applications/hello/1.1.0/{compose}"), &good.replace("SIGKILL", "SIGTERM"));
    let pushed: Value = serde_json::from_str(&push().good()).unwrap();
    let names = pushed["pushed"].as_array().unwrap().iter().map(|one| one["artifact"].as_str().unwrap());
    assert_eq!(names.map(|name| name.rsplit_once(':').unwrap().1).collect::<Vec<_>>(), ["1.0.0", "1.1.0"]);
    assert!(registry.digest("1.0.0").is_some() && registry.digest("1.1.0").is_some());
    // Again: the same bytes have the same meaning. Another meaning of a tag is two, and neither is pushed.
    assert_eq!(push().good(), serde_json::to_string_pretty(&pushed).unwrap() + "\n");
    write(&format!("applications/hello/1.1.0/{margo}"), &description);
    let said = push().failed(1);
    assert!(said.contains("is in two packages with other files"), "{said}");
    lab.run_in(&fleet, &["app", "push", "--all", "applications/hello/1.0.0"]).failed(2);
}

/// A tag keeps its meaning for ever, so it gets none that no device could use.
#[test]
fn what_every_device_would_refuse_burns_no_tag() {
    let registry = Registry::start();
    let lab = Lab::new();
    let fleet = lab.dir().join("plant");
    lab.run_in(lab.dir(), &["init", "plant", "--registry", &registry.host]).good();
    let push = || lab.run_in(&fleet, &["app", "push", "applications/hello/1.0.0"]);
    let compose = fleet.join("applications/hello/1.0.0/compose/hello/compose.yaml");
    let good = std::fs::read_to_string(&compose).unwrap();
    for (text, place) in [
        ("services: [".to_owned(), "compose.yaml"),
        (good.replacen("image:", "imgae:", 1), "`services.hello.imgae`: no device allows this key"),
        (good.replacen("    image:", "    build: .\n    image:", 1), "`services.hello.build`"),
        (good.replacen("    image:", "    env_file: ../x\n    image:", 1), "the path must stay inside the archive"),
    ] {
        repo_git::durable::replace_file(&compose, text.as_bytes(), 0o644).unwrap();
        let said = push().failed(1);
        assert!(said.contains("no device would take what is in") && said.contains(place), "{said}");
        assert!(said.contains("hint: correct it: a tag keeps its meaning for ever"), "{said}");
    }
    repo_git::durable::replace_file(&compose, good.as_bytes(), 0o644).unwrap();
    let package = fleet.join("applications/hello/1.0.0/margo.yaml");
    let margo = std::fs::read_to_string(&package).unwrap();
    repo_git::durable::replace_file(&package, margo.replace("GREETING", "LD_PRELOAD").as_bytes(), 0o644).unwrap();
    let said = push().failed(1);
    assert!(said.contains("parameter `greeting`") && said.contains("steers the tools on the device"), "{said}");
    assert_eq!(registry.digest("1.0.0"), None);
    repo_git::durable::replace_file(&package, margo.as_bytes(), 0o644).unwrap();
    push().good();
    assert!(registry.digest("1.0.0").is_some());
}

#[test]
fn a_plan_shows_each_value_old_and_new() {
    let lab = Lab::with(&["press-01", "packer-01"]);
    lab.publish_all();
    lab.edit("deployments/hello.yaml", "hello from the press", "\"1.10\"");
    lab.edit("deployments/hello.yaml", "  # token:", "  token:");
    lab.edit("deployments/hello.yaml", "interval: 10", "interval: 12");
    lab.edit("fleet.yaml", "report: 5m", "report: 1h");
    lab.write("deployments/second.yaml", SECOND.replace("{site: graz}", "{role: packer}"));
    lab.commit();
    let plan = lab.run(&["plan"]);
    assert_eq!(plan.code, Some(3));
    assert_eq!(
        plan.out,
        "~ hello
    interval: 10 → 12
    on packer-01
    token: file hello-token of the device
    on packer-01, press-01
    greeting: \"hello from the press\" → \"1.10\"
    on press-01
+ second
    application: hello
    component hello: oci://registry.example/hello:1.0.0, timeout 120 s
    greeting: \"servus\"
    interval: 5
    archive of hello: sha256:3f3eb4c3f8a0e1fe5a0e2ba9aa7a5b2f4fd3e7ef8db77d31bd2fc6e9e2a7aaf5
    on packer-01
~ policy report: 300 s → 3600 s
    on packer-01, press-01
press-02: not enrolled yet, nothing is published for it
2 devices to change, 0 unchanged, 1 not enrolled
"
        .replace(
            "sha256:3f3eb4c3f8a0e1fe5a0e2ba9aa7a5b2f4fd3e7ef8db77d31bd2fc6e9e2a7aaf5",
            &repo_model::Digest::of(b"oci://registry.example/hello:1.0.0").to_string()
        )
    );
    let json: Value = serde_json::from_str(&lab.run(&["plan", "press-01", "--output", "json"]).out).unwrap();
    let device = &json["devices"][0];
    assert_eq!((&device["device"], &device["state"]), (&"press-01".into(), &"changed".into()));
    assert_eq!(
        device["deployments"][0]["differences"][0],
        serde_json::json!({ "what": "greeting", "old": "\"hello from the press\"", "new": "\"1.10\"" })
    );
    assert_eq!(json["devices"].as_array().unwrap().len(), 1);
    lab.publish_all();
    assert_eq!(lab.run(&["plan"]).code, Some(0));
}

#[test]
fn a_plan_reads_the_commit_and_never_the_work_tree() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    lab.edit("deployments/hello.yaml", "hello from the press", "servus");
    let plan = lab.run(&["plan"]);
    let note = "note: there are changes that are not committed, and only commits count\n";
    assert!(plan.err.ends_with(note), "{}", plan.err);
    assert_eq!(plan.code, Some(0));
    lab.run(&["publish"]).good();
    assert_eq!(lab.serial("press-01"), 1);
    lab.commit();
    assert_eq!(lab.run(&["plan"]).code, Some(3));
    assert_eq!(lab.run(&["plan", "--rev", "HEAD~1"]).code, Some(0));
    assert!(lab.run(&["plan", "--rev", "nowhere"]).failed(1).contains("there is no revision `nowhere`"));
}

#[test]
fn all_problems_are_shown_at_once_in_one_form() {
    let lab = Lab::new();
    lab.edit("devices/press-01.yaml", "line: \"1\"", "line: 1");
    lab.edit("deployments/hello.yaml", "greeting: hello from the press", "greting: x");
    let said = lab.run(&["validate"]).failed(1);
    assert_eq!(
        said,
        "error: the fleet has 2 problems
caused by: deployments/hello.yaml:22:12: parameters.greting: hello has no parameter `greting`
hint: it has `greeting`, `interval`, `token`
caused by: devices/press-01.yaml:8:9: labels.line: is an integer, expected a string
hint: write \"1\" in quotes if it is meant as text
"
    );
    assert!(lab.run(&["validate", "--rev", "HEAD"]).good().contains("all right"), "the commit has no problem");
}

#[test]
fn missing_ids_are_written_from_the_names_of_the_files() {
    let lab = Lab::new();
    lab.write("devices/line-3/press-07.yaml", "# the new one\n\nlabels: {site: graz}\n");
    lab.write("deployments/Good_Morning.yaml", SECOND.replace("id: second\n", ""));
    lab.write("devices/press-01-copy/press-01.yaml", "labels: {}\n");
    lab.run(&["validate"]).failed(1);
    let ran = lab.run(&["validate", "--fix"]);
    assert!(
        ran.err.contains("devices/press-01-copy/press-01.yaml:1:1: id: is missing"),
        "that id is taken: {}",
        ran.err
    );
    assert_eq!(lab.read("devices/line-3/press-07.yaml"), "# the new one\n\nid: press-07\nlabels: {site: graz}\n");
    assert!(lab.read("deployments/Good_Morning.yaml").starts_with("id: good-morning\n"));
    lab.remove("devices/press-01-copy/press-01.yaml");
    lab.run(&["validate"]).good();
}

#[test]
fn what_is_only_read_once_there_is_an_id_is_put_right_with_it_and_told_to_programs() {
    let lab = Lab::new();
    lab.edit("deployments/hello.yaml", "id: hello\n", "");
    lab.edit("deployments/hello.yaml", "greeting: hello from the press", "greting: servus");
    lab.edit("deployments/hello.yaml", "interval: 10", "interval: \"10\"");
    let fixed = |ran: Ran| serde_json::from_str::<Value>(&ran.good()).unwrap()["fixed"].take();
    let told = json!([
        { "file": "deployments/hello.yaml", "what": "wrote its id" },
        { "file": "deployments/hello.yaml", "what": "overrides[0].parameters.interval: wrote 10 for \"10\"" },
        { "file": "deployments/hello.yaml", "what": "parameters.greting: wrote greeting for greting" },
    ]);
    let mut all = fixed(lab.run(&["validate", "--fix", "--output", "json"]));
    all.as_array_mut().unwrap()[1..].sort_by_key(|one| one["what"].to_string());
    assert_eq!(all, told);
    let text = lab.read("deployments/hello.yaml");
    assert!(
        text.contains("id: hello\n") && text.contains("greeting: servus") && text.contains("interval: 10"),
        "{text}"
    );
    assert_eq!(
        fixed(lab.run(&["validate", "--fix", "--output", "json"])),
        json!([]),
        "nothing is left for a second run"
    );
}

#[test]
fn what_can_be_meant_in_one_way_only_is_put_right_and_nothing_else_is() {
    let lab = Lab::new();
    lab.edit("fleet.yaml", "  poll: 15s", "  polll: 15s");
    lab.edit("devices/press-01.yaml", "line: \"1\"", "line: 1");
    lab.edit("deployments/hello.yaml", "greeting: hello from the packer", "greting: yes # or no");
    lab.edit("deployments/hello.yaml", "interval: 10", "interval: '10'");
    lab.edit("deployments/hello.yaml", "# suspended: true", "suspended: \"true\"");
    let (old, new) = ("devices/press-02.yml", "devices/press-02.yaml");
    lab.write(old, lab.read(new));
    lab.remove(new);
    // A time has a unit, so this isn't right in quotes either, and nobody but the vendor changes a package.
    lab.edit("fleet.yaml", "report: 5m ", "report: 5 ");
    lab.edit("applications/hello/1.0.0/margo.yaml", "catalog:", "catlog:");
    let package = lab.read("applications/hello/1.0.0/margo.yaml");
    let ran = lab.run(&["validate", "--fix"]);
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    assert_eq!(lab.read("applications/hello/1.0.0/margo.yaml"), package);
    lab.edit("applications/hello/1.0.0/margo.yaml", "catlog:", "catalog:");
    let fixed = lab.run(&["validate", "--fix"]);
    assert!(fixed.err.starts_with("error: the fleet has 1 problem\ncaused by: fleet.yaml:"), "{}", fixed.err);
    assert!(fixed.err.contains(": policy.report: is an integer, expected a string\n"), "{}", fixed.err);
    let mut told: Vec<_> = ran.out.lines().chain(fixed.out.lines()).collect();
    told.sort_unstable();
    assert_eq!(
        told,
        [
            "deployments/hello.yaml: overrides[0].parameters.greting: wrote \"yes\" for yes",
            "deployments/hello.yaml: overrides[0].parameters.greting: wrote greeting for greting",
            "deployments/hello.yaml: overrides[0].parameters.interval: wrote 10 for '10'",
            "deployments/hello.yaml: suspended: wrote true for \"true\"",
            "devices/press-01.yaml: labels.line: wrote \"1\" for 1",
            "devices/press-02.yaml: was devices/press-02.yml",
            "fleet.yaml: policy.polll: wrote poll for polll",
        ]
    );
    lab.edit("fleet.yaml", "report: 5 ", "report: 5m ");
    lab.run(&["validate"]).good();
    // The words are those of before, but for what was put right.
    for (file, was, is) in [
        ("deployments/hello.yaml", "greeting: \"yes\" # or no", "greeting: hello from the packer"),
        ("deployments/hello.yaml", "\nsuspended: true", "\n# suspended: true"),
    ] {
        lab.edit(file, was, is);
    }
    assert_eq!(repo_testkit::git::git(&lab.fleet, &["status", "--porcelain"]), "");
}

#[test]
fn enrolment_keeps_what_people_wrote() {
    let lab = Lab::new();
    let before = lab.read("devices/press-01.yaml");
    lab.enroll("press-01");
    let key = Lab::device_key("press-01").public();
    assert_eq!(lab.read("devices/press-01.yaml"), format!("{before}statusKeys:\n  - {key}\n"));
    assert_eq!(repo_testkit::git::git(&lab.fleet, &["status", "--porcelain"]), "");
    let subject = repo_testkit::git::git(&lab.fleet, &["log", "-1", "--format=%s"]);
    assert_eq!(subject, format!("press-01: enroll {}", key.fingerprint()));
    let said = lab.run(&["device", "enroll", "press-01", &key.to_string()]).good();
    assert!(said.contains("is enrolled already"), "{said}");
    for (id, line, expected) in [
        ("press-09", key.to_string(), "hint: add it first: device add press-09"),
        ("press-02", "ssh-ed25519 AAAA".to_owned(), "the line is not the one that `device-syncer init` prints"),
        ("press-02", "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQC7".to_owned(), "the line is not the one"),
        ("press-02", key.to_string(), "that is the key of `press-01`, in `devices/press-01.yaml`"),
    ] {
        let said = lab.run(&["device", "enroll", id, &line]).failed(1);
        assert!(said.contains(expected), "{said}");
    }
    lab.edit("devices/press-02.yaml", "role: press", "role: other");
    let other = Lab::device_key("press-02").public();
    let said = lab.run(&["device", "enroll", "press-02", &other.to_string()]).failed(1);
    assert!(said.contains("has changes that are not committed"), "{said}");
}

#[test]
fn a_line_is_read_from_standard_input_too() {
    let lab = Lab::new();
    let mut command = lab.command(&["device", "enroll", "press-01", "-"]);
    command.stdin(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let text = format!("some words first\n{} press-01\n", Lab::device_key("press-01").public());
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(lab.read("devices/press-01.yaml").contains("statusKeys:\n  - ssh-ed25519 "));
}

#[test]
fn a_new_device_gets_a_file_a_repository_and_a_join_file() {
    let lab = Lab::new();
    let out = lab.dir().join("usb.json");
    lab.run(&[
        "device",
        "add",
        "line-4/Press~1",
        "--label",
        "site=graz",
        "--label",
        "line=4",
        "--out",
        out.to_str().unwrap(),
    ])
    .good();
    let text = lab.read("devices/line-4/Press~1.yaml");
    assert_eq!(text, "id: \"line-4/Press~1\"\nlabels:\n  \"line\": \"4\"\n  \"site\": \"graz\"\n");
    let join: repo_model::join::Join = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    let repo = lab.repo("line-4/Press~1");
    assert_eq!((join.url.as_str(), join.layout), (repo.to_str().unwrap(), 1));
    assert_eq!((join.floor.serial, join.floor.manifest_version, join.trust.version), (0, 0, 1));
    assert_eq!(join.trust.sha256, repo_model::Digest::of(join.trust.roster.as_bytes()));
    assert_eq!(repo_testkit::git::git(&repo, &["symbolic-ref", "HEAD"]), "refs/heads/desired");
    let said = lab.run(&["device", "add", "press-01", "--label", "a=b"]).failed(1);
    assert!(said.contains("`press-01` is in the fleet already: devices/press-01.yaml"), "{said}");
    let said = lab.run(&["device", "add", "bad", "--label", "a=b c"]).failed(1);
    assert!(said.contains("must be at most 63 letters"), "{said}");
    let listed = lab.run(&["device", "list"]).good();
    let rows: Vec<_> = listed
        .lines()
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>())
        .collect();
    assert_eq!(rows[0], ["DEVICE", "STATE", "LABELS"], "{listed}");
    assert!(rows.contains(&vec!["line-4/Press~1", "not enrolled", "line=4,site=graz"]), "{listed}");
}

#[test]
fn a_join_file_pins_what_was_published_so_far() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    lab.edit("deployments/hello.yaml", "hello from the press", "servus");
    lab.commit();
    lab.publish_all();
    lab.run(&["device", "add", "press-01"]).good();
    let join = std::fs::read(lab.home.join(&"press-01".parse().unwrap())).unwrap();
    let join: repo_model::join::Join = serde_json::from_slice(&join).unwrap();
    assert_eq!((join.floor.serial, join.floor.manifest_version), (2, 2));
}

#[test]
fn nothing_that_exists_is_overwritten_by_init() {
    let lab = Lab::new();
    let said = lab.run_in(lab.dir(), &["init", "fleet"]).failed(1);
    assert!(said.contains("exists and is not empty"), "{said}");
    lab.run_in(lab.dir(), &["init", "fleet", "--home", "other"]).failed(1);
    lab.run_in(lab.dir(), &["init", "new", "--home", "fleet.wfm"]).failed(1);
    assert!(!lab.dir().join("new").exists() && !lab.dir().join("other").exists());
}

#[test]
fn the_first_commit_needs_no_identity() {
    let lab = Lab::new();
    let mut command = lab.command(&["init", "anonymous"]);
    for name in ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"] {
        command.env_remove(name);
    }
    assert!(command.current_dir(lab.dir()).output().unwrap().status.success());
    let log = repo_testkit::git::git(&lab.dir().join("anonymous"), &["log", "--format=%s"]);
    assert_eq!(log, "anonymous: a new fleet");
}

#[test]
fn wrong_usage_ends_with_2_and_a_missing_home_with_a_hint() {
    let lab = Lab::new();
    assert_eq!(lab.run(&["frobnicate"]).code, Some(2));
    assert_eq!(lab.run(&["plan", "a b"]).code, Some(2));
    let said = lab.run(&["plan", "--home", "nowhere"]).failed(1);
    assert!(
        said.contains("there is no publisher's home at") && said.contains("hint: make a fleet with `init`"),
        "{said}"
    );
    let said = lab.run_in(lab.dir(), &["validate"]).failed(1);
    assert!(said.contains("fleet.yaml: is missing"), "{said}");
    let said = lab.run(&["plan", "press-99"]).failed(1);
    assert!(said.contains("there is no device `press-99` in the fleet"), "{said}");
}

#[test]
fn help_teaches_every_command() {
    let lab = Lab::new();
    for command in [
        &["init"][..],
        &["validate"],
        &["plan"],
        &["publish"],
        &["run"],
        &["device", "add"],
        &["device", "enroll"],
        &["app", "push"],
        &["status"],
    ] {
        let help = lab.run(&[command, &["--help"]].concat()).good();
        assert!(help.contains("  wfm-git-publisher "), "{command:?} has an example: {help}");
    }
    assert!(lab.run(&["completions", "bash"]).good().contains("wfm-git-publisher"));
}

/// The same fleet, published by the program in nine other surroundings, is the same to the last bit.
#[test]
fn surroundings_change_no_byte() {
    let lab = Lab::with(&["press-01", "packer-01"]);
    lab.write("deployments/second.yaml", SECOND);
    lab.commit();
    // The meaning of the tag is known, so that no registry is asked.
    lab.publish_all();
    for device in ["press-01", "packer-01"] {
        repo_git::durable::rename(&lab.repo(device), &lab.dir().join(device)).unwrap();
    }
    lab.control(&["update-ref", "refs/heads/control", "control~1"]);
    let clean = lab.dir().join("clean.wfm");
    crate::support::copy(lab.home.root(), &clean);
    let mut seen = std::collections::BTreeSet::new();
    let surroundings = ["UTC", "Europe/Vienna", "Asia/Kathmandu", "America/St_Johns", "Pacific/Apia"];
    for (turn, zone) in surroundings.iter().cycle().take(10).enumerate() {
        let home = lab.dir().join(format!("turn-{turn}.wfm"));
        crate::support::copy(&clean, &home);
        let locale = ["C", "de_AT.UTF-8", "tr_TR.UTF-8"][turn % 3];
        let (umask, processors) = (["0022", "0077", "0000"][turn % 3], if turn % 2 == 0 { "0" } else { "0-63" });
        let script = format!("umask {umask}; exec taskset -c {processors} \"$0\" --home \"$1\" publish");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script, crate::support::PROGRAM]).arg(&home).current_dir(&lab.fleet);
        shell.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        shell.env("TZ", zone).env("LC_ALL", locale).env("HOME", &home).env("GIT_CONFIG_GLOBAL", "/dev/null");
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for device in ["press-01", "packer-01"] {
            let repo = home.join(format!("devices/{device}.git"));
            let trees = repo_testkit::git::git(&repo, &["rev-parse", "desired^{tree}", "bundle^{tree}"]);
            seen.insert((device, trees));
        }
    }
    assert_eq!(seen.len(), 2, "one pair of trees for each device: {seen:?}");
}
