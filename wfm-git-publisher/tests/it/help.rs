//! What the help promises: its examples work as they stand, its paragraphs are wrapped once, and every command that prints
//! has JSON.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use repo_model::Digest;
use repo_testkit::host::Host;
use serde_json::{Value, json};
use wfm_git_publisher::repos::Home;
use wfm_git_publisher::rollout::Phase;

use crate::catalogue::{self, package};
use crate::output::Schemas;
use crate::registry::Registry;
use crate::rollouts;
use crate::support::{Lab, Ran, trusted_program};

/// How wide help is where there is no terminal.
const WIDTH: usize = 100;

/// Every command in the order of the help, the program itself first, with its help.
fn commands(lab: &Lab) -> Vec<(Vec<String>, String)> {
    let mut all = Vec::new();
    let mut left = vec![Vec::<String>::new()];
    while let Some(command) = left.pop() {
        let mut args: Vec<&str> = command.iter().map(String::as_str).collect();
        args.push("--help");
        let help = lab.run(&args).good();
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        let names = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        let names: Vec<_> =
            names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect();
        let below = names.iter().rev().map(|name| [command.as_slice(), &[(*name).to_owned()]].concat());
        left.extend(below);
        all.push((command, help));
    }
    assert!(all.len() > 20, "{}", all.len());
    all
}

/// What is said before the options.
fn about(help: &str) -> impl Iterator<Item = &str> {
    help.lines().take_while(|line| !line.starts_with("Usage:"))
}

#[test]
fn paragraphs_are_wrapped_once_and_examples_never() {
    let lab = Lab::new();
    for (command, help) in commands(&lab) {
        let lines: Vec<_> = about(&help).collect();
        for (line, next) in lines.iter().zip(lines.iter().skip(1)) {
            assert!(line.chars().count() <= WIDTH, "{command:?}: {line}");
            let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
            if is_prose(line) && is_prose(next) {
                let word = next.split(' ').next().unwrap();
                let room = WIDTH - line.chars().count();
                assert!(room <= word.chars().count(), "{command:?}: `{word}` has room in `{line}`");
            }
        }
    }
}

/// The examples of a help text; what follows in brackets is for people.
fn examples(help: &str) -> Vec<String> {
    let begins = ["wfm-git-publisher ", "device-syncer ", "ssh ", "source "];
    let lines = about(help).filter_map(|line| line.strip_prefix("  "));
    let examples = lines.filter(|line| begins.iter().any(|begin| line.starts_with(begin)));
    examples.map(|line| line.split("   (").next().unwrap().trim().to_owned()).collect()
}

fn script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The device's side, which is another program's business here, and an end for what would run for ever.
fn tools(lab: &Lab) -> std::path::PathBuf {
    let bin = lab.dir().join("bin");
    fs::create_dir_all(&bin).unwrap();
    symlink(trusted_program(), bin.join("real")).unwrap();
    let real = bin.join("real");
    let forever = "case \" $* \" in *' run '*|*' run'*|*' serve '*|*' --follow '*|*' pending --watch '*) exec timeout --preserve-status -s TERM 6";
    script(
        &bin.join("wfm-git-publisher"),
        &format!("#!/bin/sh\n{forever} {0} \"$@\";; esac\nexec {0} \"$@\"\n", real.display()),
    );
    for (name, device) in [("device-syncer", "press-01"), ("ssh", "press-03")] {
        script(&bin.join(name), &format!("#!/bin/sh\necho '{} {device}'\n", Lab::device_key(device).public()));
    }
    bin
}

/// Runs an example as it stands, but for addresses, keys and folders of somebody else's machine, and how many wait there.
fn run(lab: &Lab, dir: &Path, example: &str, registry: &str) -> Ran {
    let mut text = example.replace("/media/usb", &lab.dir().display().to_string()).replace(":8443", ":0");
    text =
        text.replace(":2222", &format!(":{}", repo_testkit::ports::free_port())).replace("--expect 48", "--expect 0");
    text = text.replace("oci://registry.example/", &format!("oci://{registry}/"));
    text = text.replace("git+https://git.example/", &format!("git+file://{}/", lab.dir().display()));
    for device in ["press-01", "press-03"] {
        let key = Lab::device_key(device).public().to_string();
        text = text.replace(&format!("ssh-ed25519 AAAA… {device}"), &format!("{key} {device}"));
    }
    if text.contains(" init ") && !text.contains("--registry") {
        text = text.replace(
            " init my-fleet",
            &format!(" init my-fleet --registry {registry} --image busybox:1@sha256:{}", "0".repeat(64)),
        );
    }
    let mut command = Command::new("bash");
    for (name, value) in lab.command(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))) {
        command.env(name, value);
    }
    let path = format!("{}:{}", lab.dir().join("bin").display(), std::env::var("PATH").unwrap());
    command.env("PATH", path).args(["-c", &text]).current_dir(dir);
    Ran::of(command.output().unwrap())
}

#[test]
fn every_example_works_as_it_stands() {
    let (lab, registry) = (Lab::new(), Registry::start());
    tools(&lab);
    let fleet = lab.dir().join("my-fleet");
    let mut count = 0;
    for (command, help) in commands(&lab) {
        let found = examples(&help);
        let is_leaf = !help.contains("\nCommands:");
        assert!(!found.is_empty() || !is_leaf, "{command:?} has no example");
        for (number, example) in found.iter().enumerate() {
            // A new fleet is made in an empty directory.
            let empty = lab.dir().join(format!("empty-{number}"));
            let dir = match command.first().map(String::as_str) {
                None if number == 0 => lab.dir(),
                Some("init") => {
                    fs::create_dir_all(&empty).unwrap();
                    &empty
                }
                Some("run" | "serve") => lab.dir(),
                _ => &fleet,
            };
            match number {
                _ if command != ["allow"] => {}
                0 => guard(&lab, &fleet),
                // As if nobody had let it pass.
                _ => _ = repo_testkit::git::git(&fleet, &["reset", "--quiet", "--hard", "HEAD~1"]),
            }
            if example.contains(" login ") {
                // One that was never used ended when the account got another one.
                fs::remove_file(fleet.join("olga.secret")).unwrap();
                lab.run_in(&fleet, &["account", "rotate", "olga", "--secret-file", "olga.secret"]).good();
            }
            let asks = [" audit clone ", " login "].iter().any(|word| example.contains(word));
            let host = asks.then(|| host(&lab, &fleet));
            let example = host.as_ref().map_or_else(|| example.clone(), |host| example.replace(HOST, &host.url));
            let ran = run(&lab, dir, &example, &registry.host);
            drop(host);
            // What would change, and what a device doesn't get, are told by the code.
            let good: &[i32] = match command.first().map(String::as_str) {
                None if example.ends_with(" plan") => &[3],
                Some("plan") => &[0, 3],
                Some("why-not") => &[1],
                // It is stopped.
                Some("rollout") if example.ends_with(" --watch") => &[1],
                Some("publish") if example.ends_with(" --wait") => &[1],
                // It is ended by a signal.
                Some("events") if example.ends_with(" --follow") => &[143],
                Some("device") if example.ends_with(" pending --watch") => &[143],
                _ => &[0],
            };
            let code = ran.code.unwrap_or(-1);
            assert!(good.contains(&code), "{command:?}: {example}: {code}\n{}{}", ran.out, ran.err);
            count += 1;
        }
        if command.is_empty() {
            prepare(&lab, &fleet);
            packages(&lab, &fleet, &registry);
        }
    }
    assert!(count > 40, "{count}");
}

/// Whose host the examples ask.
const HOST: &str = "https://wfm.example";

/// The host of the fleet, with what an auditor got of it beforehand.
fn host(lab: &Lab, fleet: &Path) -> Host {
    if !fleet.join("secret").exists() {
        let secret = ["account", "add", "auditor", "--role", "auditor", "--secret-file", "secret"];
        lab.run_in(fleet, &secret).good();
    }
    fs::copy(fleet.with_extension("wfm").join("ca/ca.pem"), fleet.join("ca.pem")).unwrap();
    let mut command = lab.command(&["serve"]);
    command.current_dir(fleet);
    Host::start(command)
}

/// What the other examples take for granted: names of an operator's own.
fn prepare(lab: &Lab, fleet: &Path) {
    let home = lab.dir().join("my-fleet.wfm/publisher.yaml");
    let ssh = format!("  ssh: {{listen: \"127.0.0.1:{}\"}}\n", repo_testkit::ports::free_port());
    let alerts = "alerts: {receivers: {on-call: {command: /bin/true}}}\n";
    fs::write(home, format!("serve:\n  names: [127.0.0.1]\n  listen: 127.0.0.1:0\n{ssh}{alerts}")).unwrap();
    for args in [&["branch", "my-branch"][..], &["tag", "v12"]] {
        repo_testkit::git::git(fleet, args);
    }
    lab.run_in(fleet, &["device", "add", "spare-01", "--label", "site=linz"]).good();
    fs::write(fleet.join("press-03.json"), "{}").unwrap();
    fs::write(fleet.join("token.txt"), "a token\n").unwrap();
    fs::write(fleet.join("devices.csv"), "id,site\npress-11,graz\npress-12,linz\n").unwrap();
    rollouts::remember(&Home::at(lab.dir().join("my-fleet.wfm")), 12, Phase::Stopped, &["press-01", "press-02"]);
    wait(lab, fleet);
    roster(lab, "my-fleet");
    fs::create_dir(lab.dir().join(".ssh")).unwrap();
    fs::write(fleet.join("audit.pin"), Digest::of(b"a key").to_string()).unwrap();
    fs::write(lab.dir().join(".ssh/id_ed25519.pub"), Lab::device_key("olga").public().to_string()).unwrap();
    let key = lab.dir().join(".ssh/id_ed25519");
    Lab::device_key("olga").save(&key).unwrap();
    repo_testkit::git::git(fleet, &["config", "user.signingKey", &key.display().to_string()]);
    fs::write(fleet.join("second-root.pub"), Lab::device_key("second").public().to_string()).unwrap();
    let root = lab.dir().join("root");
    fs::copy(lab.dir().join("my-fleet.wfm/keys/root"), &root).unwrap();
    fs::set_permissions(&root, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A guard holds back that `greeter` goes from a device.
fn guard(lab: &Lab, fleet: &Path) {
    let commit = |message: &str| {
        repo_testkit::git::git(fleet, &["add", "fleet.yaml", "deployments"]);
        repo_testkit::git::git(fleet, &["commit", "--quiet", "-m", message]);
    };
    let (settings, deployment) = (fleet.join("fleet.yaml"), fleet.join("deployments/greeter.yaml"));
    fs::write(&settings, fs::read_to_string(&settings).unwrap() + "guards: {deviceRemovals: 0%}\n").unwrap();
    let text =
        "id: greeter\napplication: {id: hello, version: 1.0.0}\ntargets: [{devices: [press-01]}]\nrollout: none\n";
    fs::write(&deployment, text).unwrap();
    commit("a greeter");
    lab.run_in(fleet, &["publish", "press-01"]).good();
    fs::remove_file(deployment).unwrap();
    commit("none any more");
}

/// The first roster, as an auditor got it from somebody.
fn roster(lab: &Lab, fleet: &str) {
    let control = lab.dir().join(format!("{fleet}.wfm/control.git"));
    let text = repo_testkit::git::git(&control, &["show", "control:trust/1.json"]);
    fs::write(lab.dir().join(fleet).join("roster.json"), text + "\n").unwrap();
}

/// What a vendor gave to the operator, in a folder, an archive, a registry and a repository.
fn packages(lab: &Lab, fleet: &Path, registry: &Registry) {
    let hello = fleet.join("applications/hello/1.0.0/margo.yaml");
    let text = fs::read_to_string(hello).unwrap();
    for (dir, version) in [("vendor/hello", "1.2.0"), ("vendor/next", "1.1.0")] {
        catalogue::write(&fleet.join(dir), "margo.yaml", text.replace(" 1.0.0", &format!(" {version}")));
    }
    let next = fleet.join("vendor/next");
    catalogue::tar(&next, &fleet.join("hello-1.1.0.tar.gz"), &["."]);
    let description = fs::read(next.join("margo.yaml")).unwrap();
    let layer = serde_json::json!({
        "mediaType": "application/vnd.margo.app.description.v1+yaml",
        "digest": registry.put_blob(&description),
        "size": description.len(),
    });
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "artifactType": "application/vnd.margo.app.v1+json",
        "layers": [layer],
    });
    registry.put_manifest("1.1.0", manifest.to_string().as_bytes());
    let upstream = lab.dir().join("hello.git");
    catalogue::write(&upstream, "packages/hello/margo.yaml", description);
    for args in [&["init", "--quiet"][..], &["add", "packages"], &["commit", "--quiet", "-m", "x"], &["tag", "v1.1.0"]]
    {
        repo_testkit::git::git(&upstream, args);
    }
}

/// Devices that wait to be enrolled, two of which show the codes of the examples.
fn wait(lab: &Lab, fleet: &Path) {
    let file = lab.dir().join("offer.json");
    lab.run_in(fleet, &["enroll", "file", "--out", file.to_str().unwrap()]).good();
    let offer: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let token =
        ["token", "create", "graz", "--count", "50", "--for", "7d", "--id", "graz-{serial}", "--out", "graz.json"];
    lab.run_in(fleet, &token).good();
    let dir = fleet.with_extension("wfm").join("enroll");
    fs::create_dir_all(&dir).unwrap();
    for (number, code, address) in [
        (1, "9935d4de34", "10.1.7.1"),
        (3, "0000000003", "10.1.7.3"),
        (4, "0000000004", "10.1.7.20"),
        (5, "3d05b6a30c", "10.1.7.5"),
        (6, "0000000006", "10.1.7.1"),
    ] {
        let account = format!("sha256:{number:064x}");
        let key = Lab::device_key(&format!("waits-{number}")).public().to_string();
        let mut claim = serde_json::json!({ "layout": 1, "key": key, "account": account, "version": "0.3.0" });
        // The device that is taken in as number 1 asks for a new key.
        let rekeys = (number == 6).then_some("press-07");
        if rekeys.is_some() {
            claim["replaces"] = Lab::device_key("waits-1").public().to_string().into();
        }
        let waiting = serde_json::json!({
            "layout": 1,
            "request": format!("{number:032x}"),
            "number": number,
            "received": jiff::Timestamp::now(),
            "address": address,
            "claim": claim.to_string(),
            "transcript": format!("sha256:{code}{}", "0".repeat(54)),
            "roster": offer["trust"]["sha256"],
            "rekeys": rekeys,
        });
        fs::write(dir.join(format!("{number:032x}.json")), waiting.to_string()).unwrap();
    }
}

#[test]
fn every_command_that_prints_has_json() {
    let registry = Registry::start();
    let lab = Lab::new();
    let image = format!("busybox:1@sha256:{}", "0".repeat(64));
    let line = format!("{} press-01", Lab::device_key("press-01").public());
    let key = lab.dir().join("key").display().to_string();
    Lab::device_key("anna").save(key.as_ref()).unwrap();
    fs::write(lab.dir().join("key.pub"), Lab::device_key("anna").public().to_string()).unwrap();
    let vendor = package(&lab, "vendor", "1.0.0").display().to_string();
    let vendor = vendor.as_str();
    let init = ["init", "plant", "--registry", &registry.host, "--image", &image];
    let table: &[(&[&str], &str)] = &[
        (&init, "/home"),
        (&["app", "push", "applications/hello/1.0.0"], "/pushed/0/manifest"),
        (&["app", "add", vendor], "/folder"),
        (&["app", "list"], "/applications/0/usedBy"),
        (&["app", "show", "counter"], "/profiles/0/needs"),
        (&["app", "diff", "hello@1.0.0", vendor], "/differences/0/what"),
        (&["app", "devices", "counter"], "/devices/0/answer"),
        (&["app", "remove", "counter@1.0.0"], "/folder"),
        (&["device", "add", "press-01"], "/joinFile"),
        (&["device", "enroll", "press-01", &line], "/fingerprint"),
        (&["device", "join", "press-01"], "/joinFile"),
        (&["deploy", "hello", "--name", "second", "--device", "press-01", "--yes"], "/questions/0/section"),
        (&["deploy", "edit", "second", "--set", "interval=7", "--yes"], "/text"),
        (&["device", "list"], "/devices/0/labels"),
        (&["alert", "list"], "/alerts"),
        (&["alert", "test", "on-call"], "/taken"),
        (&["device", "show", "press-01"], "/status/health"),
        (&["deployment", "show", "hello"], "/versions"),
        (&["device", "pending"], "/pending"),
        (&["enroll", "close"], "/until"),
        (
            &["token", "create", "linz", "--count", "5", "--for", "7d", "--id", "linz-{serial}", "--out", "linz.json"],
            "/file",
        ),
        (&["token", "list"], "/tokens/0/waiting"),
        (&["token", "revoke", "linz"], "/file"),
        (&["device", "approve", "K4TX-9QHM", "--id", "press-07"], "/fingerprint"),
        (&["device", "approve", "--token", "graz"], "/approved"),
        (&["device", "replace", "press-02", "7M2V-D8RC"], "/fingerprint"),
        (&["device", "reject", "3"], "/rejected/0"),
        (&["enroll", "open", "--for", "8h"], "/from"),
        (&["enroll", "file", "--out", "enroll.json"], "/pin"),
        (&["device", "apps", "press-01"], "/applications/0/answer"),
        (&["validate"], "/problems"),
        (&["plan"], "/devices/0/state"),
        (&["publish"], "/devices/0/state"),
        (&["status"], "/devices/0/deployments"),
        (&["login", HOST, "--user", "auditor", "--secret-file", "secret", "--ca-file", "ca.pem"], "/host"),
        (&["logout"], "/host"),
        (
            &["audit", "clone", HOST, "clones", "--secret-file", "secret", "--ca-file", "ca.pem"],
            "/repositories/0/outcome",
        ),
        (&["trace"], "/devices/0/state"),
        (&["history", "press-01"], "/events/0/event"),
        (&["events", "press-01"], "/events/0/event"),
        (&["audit", "../plant.wfm/devices", "--roster", "roster.json"], "/repositories/0/desired"),
        (&["audit", "report", "../plant.wfm/devices", "--roster", "roster.json"], "/devices/0/record"),
        (&["audit", "sbom", "../plant.wfm/devices", "--roster", "roster.json"], "/bomFormat"),
        (&["explain", "press-01"], "/deployments/0/parameters"),
        (&["why-not", "hello", "press-01"], "/deployments/0/gets"),
        (&["account", "add", "olga", "--role", "operator"], "/secret"),
        (&["account", "rotate", "olga"], "/secret"),
        (&["account", "paths", "olga", "--path", "devices/graz"], "/paths"),
        (&["account", "list"], "/accounts/0/state"),
        (&["account", "revoke", "olga"], "/account"),
        (&["schema", "--write"], "/written/0"),
        (&["signers", "init", "--key", &key], "/person"),
        (&["approve", "--key", &key], "/tag"),
        (&["archive", "--to", "../archives"], "/devices"),
        (&["archive", "list"], "/archived"),
        (&["backup", "../plant.tar"], "/repositories"),
        (&["--home", "../restored.wfm", "restore", "../plant.tar"], "/devices"),
        (&["trust", "show"], "/publishers/0/fingerprint"),
        (&["trust", "propose", "--new-publisher", "--new-authority"], "/changes/0"),
        (&["trust", "sign", "--key", "../plant.wfm/keys/root"], "/signatures/own/by/0"),
        (&["trust", "publish"], "/newKey"),
        (&["trust", "switch"], "/authority"),
        (&["trust", "export", "--out", "rosters.json"], "/file"),
        (&["trust", "offline", "."], "/fingerprint"),
        (&["rollout", "list"], "/rollouts/0/state"),
        (&["rollout", "show", "12"], "/devices/press-01/state"),
        (&["rollout", "pause", "12"], "/words/paused"),
        (&["rollout", "approve", "12"], "/words/approved"),
        (&["rollout", "resume", "12"], "/words/resumed"),
        (&["rollout", "promote", "12"], "/words/promoted"),
        (&["allow", "greeter", "-m", "moved"], "/file"),
        (&["secret", "set", "hello-token", "--device", "press-01"], "/encrypted/0"),
        (&["secret", "rotate", "hello-token"], "/encrypted/0"),
        (&["secret", "list"], "/secrets/0"),
        (&["device", "label", "press-01", "ring=canary"], "/devices/0/file"),
        (&["device", "logs", "press-01", "hello"], "/ask/number"),
        (&["device", "diagnostics", "press-01"], "/ask/number"),
        (&["device", "retry", "press-01"], "/ask/number"),
        (&["device", "sync", "press-01"], "/ask/number"),
        (&["device", "restart", "press-01", "hello", "-m", "it leaks"], "/restart"),
        (&["deployment", "restart", "hello", "-m", "it leaks"], "/restart"),
        (&["device", "answers", "press-01"], "/answers"),
        (&["device", "retire", "press-01"], "/retired"),
    ];
    let (plant, schemas, all) = (lab.dir().join("plant"), Schemas::read(), commands(&lab));
    let mut tried = BTreeSet::new();
    for (args, pointer) in table {
        let dir = if args[0] == "init" { lab.dir() } else { &plant };
        if args[0] == "audit" {
            roster(&lab, "plant");
        }
        if args == &["rollout", "list"] {
            rollouts::remember(&Home::at(lab.dir().join("plant.wfm")), 12, Phase::Stopped, &["press-01", "press-02"]);
        }
        if args[0] == "allow" {
            guard(&lab, &plant);
        }
        if args.contains(&"K4TX-9QHM") {
            wait(&lab, &plant);
        }
        let settings = match args {
            ["alert", "test", ..] => "alerts: {receivers: {on-call: {command: /bin/true}}}\n",
            ["token", "create", ..] => "serve:\n  names: [127.0.0.1]\n  listen: 127.0.0.1:0\n",
            _ => "",
        };
        if !settings.is_empty() {
            let file = lab.dir().join("plant.wfm/publisher.yaml");
            let before = fs::read_to_string(&file).unwrap_or_default();
            fs::write(&file, before + settings).unwrap();
        }
        let host = args.contains(&HOST).then(|| host(&lab, &plant));
        let url = host.as_ref().map_or(HOST, |host| host.url.as_str());
        let args: Vec<_> = args.iter().map(|arg| if *arg == HOST { url } else { arg }).collect();
        let ran = lab.run_told_in(dir, &[&args, &["--output", "json"][..]].concat(), b"a value\n");
        let json: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{args:?}: {}{}", ran.out, ran.err));
        assert!(json.pointer(pointer).is_some(), "{args:?}: {json}");
        let names = all.iter().map(|(words, _)| words.join(" ")).filter(|name| !name.is_empty());
        let line = format!("{} ", args.join(" ").replace("--home ../restored.wfm ", ""));
        tried.extend(names.filter(|name| line.starts_with(&format!("{name} "))));
    }
    for (command, help) in all.into_iter().filter(|(_, help)| !help.contains("\nCommands:")) {
        let has_json = help.contains("--output <OUTPUT>");
        // Those that run for ever log JSON, and completions are a shell's.
        let is_exempt = ["run", "serve", "completions"].contains(&command[0].as_str());
        let words: Vec<_> = command.iter().map(String::as_str).collect();
        let name = words.join(" ");
        assert!(has_json != is_exempt && (is_exempt || tried.contains(&name)), "`{name}` isn't tried");
        let schema = schemas.of(&words);
        assert!(schema.is_some() == (has_json && name != "audit sbom"), "`{name}` has a schema");
        assert!(schema.is_none_or(|schema| !schema.is_valid(&json!({ "apiVersion": "v1" }))), "`{name}` says nothing");
    }
}
