//! The table of exit codes in docs/exit-codes.md, each row against a real run.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

use std::collections::BTreeMap;

use jiff::Timestamp;
use repo_model::Digest;
use wfm_git_host::accounts::{Role, Store};
use wfm_git_publisher::rollout::Phase;

use crate::api::Elsewhere;
use crate::catalogue::{self, package};
use crate::follow::Running;
use crate::rollouts;
use crate::support::{BEGIN, Lab};

/// The rows of the program's section: command and case, and the code.
fn documented() -> BTreeMap<(String, String), i32> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/exit-codes.md")).unwrap();
    let section = page.split("\n## ").find(|section| section.starts_with("`wfm-git-publisher`")).unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [command, case, code] = cells[..] else { panic!("{row}") };
        ((command.trim_matches('`').to_owned(), case.to_owned()), code.parse().unwrap())
    })
    .collect()
}

/// One published device.
fn good() -> Lab {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    lab
}

/// The same with a command that is told of alerts.
fn receiver(program: &str) -> Lab {
    let lab = good();
    let settings = format!("alerts: {{receivers: {{on-call: {{command: {program}}}}}}}\n");
    std::fs::write(lab.home.config(), settings).unwrap();
    lab
}

/// The same with a commit upon it.
fn after(change: impl FnOnce(&Lab)) -> Lab {
    let lab = good();
    change(&lab);
    lab.commit();
    lab
}

fn differing() -> Lab {
    after(|lab| lab.edit("deployments/hello.yaml", "hello from the press", "servus"))
}

fn broken() -> Lab {
    after(|lab| lab.edit("deployments/hello.yaml", "greeting: hello from the press", "greting: x"))
}

fn guarded() -> Lab {
    after(|lab| lab.edit("deployments/hello.yaml", "id: hello\n", "id: hello-anew\n"))
}

/// The file of a key beside the fleet.
fn anna(lab: &Lab) -> String {
    let path = lab.dir().join("anna");
    Lab::device_key("anna").save(&path).unwrap();
    std::fs::write(lab.dir().join("anna.pub"), Lab::device_key("anna").public().to_string()).unwrap();
    path.display().to_string()
}

/// A change that anna should have signed.
fn unagreed() -> Lab {
    let lab = good();
    lab.run(&["signers", "init", "--name", "anna", "--key", &anna(&lab)]).good();
    lab.publish_all();
    lab.edit("deployments/hello.yaml", "hello from the press", "servus");
    lab.commit();
    lab
}

fn root_key(lab: &Lab) -> String {
    lab.home.root_key().display().to_string()
}

/// A roster that nobody signed so far.
fn proposed() -> Lab {
    let lab = good();
    lab.run(&["trust", "propose", "--new-publisher"]).good();
    lab
}

/// A rollout that stopped.
fn stopped() -> Lab {
    let lab = good();
    rollouts::remember(&lab.home, 12, Phase::Stopped, &["press-01"]);
    lab
}

fn unfound() -> Lab {
    let lab = Lab::with(&["press-01"]);
    assert!(!lab.publish_with(*BEGIN, &|_| Err("the registry is away".into())).is_complete());
    lab
}

fn left() -> Lab {
    after(|lab| {
        let (name, id) = ("press-01".parse().unwrap(), Some("press-01".parse().unwrap()));
        Store::new(lab.home.accounts()).add(&name, Role::Device, id, None, Timestamp::now()).unwrap();
        lab.remove("devices/press-01.yaml");
    })
}

fn code(lab: &Lab, args: &[&str]) -> i32 {
    lab.run(args).code.unwrap()
}

fn audited(lab: &Lab) -> i32 {
    lab.write("../roster.json", lab.git("press-01", &["show", "desired:trust/1.json"]) + "\n");
    code(lab, &["audit", &lab.home.devices().display().to_string(), "--roster", "../roster.json"])
}

const EMERGENCY: [&str; 5] = ["trust", "publish", "--emergency", "--since", "2020-01-01T00:00:00Z"];

/// Another home of the devices' repositories as they are.
fn of_clones(lab: &Lab) -> i32 {
    lab.write("../roster.json", lab.git("press-01", &["show", "desired:trust/1.json"]) + "\n");
    let clones = lab.home.devices().display().to_string();
    code(lab, &["--home", "../other.wfm", "restore", "--clones", &clones, "--roster", "../roster.json"])
}

#[test]
fn each_code_in_the_documentation_is_that_of_a_real_run() {
    let runs: &[(&str, &str, &dyn Fn() -> i32)] = &[
        ("validate", "nothing is wrong", &|| code(&good(), &["validate"])),
        ("validate", "a file is wrong", &|| code(&broken(), &["validate"])),
        ("validate", "`plan` would refuse what it says", &|| code(&guarded(), &["validate"])),
        ("plan", "every device has what the fleet says", &|| code(&good(), &["plan"])),
        ("plan", "something differs, and `publish` would do it", &|| code(&differing(), &["plan"])),
        ("plan", "a device left the fleet, and its account still counts", &|| code(&left(), &["plan"])),
        ("plan", "a guard holds something back", &|| code(&guarded(), &["plan"])),
        ("plan", "the last `publish` could not find an archive, a chart or an image", &|| code(&unfound(), &["plan"])),
        ("plan", "a file is wrong", &|| code(&broken(), &["plan"])),
        ("publish", "every device has what the fleet says", &|| code(&differing(), &["publish"])),
        ("publish", "something can't be published; everything else was", &|| code(&guarded(), &["publish"])),
        ("publish", "with `--wait`: a rollout has stopped", &|| {
            code(&crate::waves::stopped().0, &["publish", "--wait"])
        }),
        ("status", "it can be shown, whatever it shows", &|| code(&unfound(), &["status"])),
        ("status", "a device that was asked for isn't in the fleet", &|| code(&good(), &["status", "press-99"])),
        ("status", "with `--exit-code`: a device that was asked for isn't ready", &|| {
            code(&good(), &["status", "--exit-code"])
        }),
        ("status", "with `--exit-code`: a device that is named isn't enrolled", &|| {
            code(&good(), &["status", "press-02", "--exit-code"])
        }),
        ("status", "with `--exit-code`: no device has the labels that were asked for", &|| {
            code(&good(), &["status", "-l", "site=typo", "--exit-code"])
        }),
        ("login", "the host knows the account", &|| Elsewhere::new().login_as_olga().code.unwrap()),
        ("login", "the host doesn't know the account, or answers no questions", &|| {
            Elsewhere::new().login("a-guess").code.unwrap()
        }),
        ("logout", "the clone asks no host any more, whether or not it did before", &|| code(&good(), &["logout"])),
        ("alert list", "it can be shown, whatever it shows", &|| code(&unfound(), &["alert", "list"])),
        ("alert test", "the receiver took the event", &|| code(&receiver("/bin/true"), &["alert", "test", "on-call"])),
        ("alert test", "the receiver isn't there, or doesn't take it", &|| {
            let missing = code(&good(), &["alert", "test", "on-call"]);
            missing.min(code(&receiver("/bin/false"), &["alert", "test", "on-call"]))
        }),
        ("trace", "it can be shown, whatever it shows", &|| code(&unfound(), &["trace"])),
        ("trace", "with `--exit-code`: a device that the commit is for doesn't have it, or isn't heard", &|| {
            code(&good(), &["trace", "--exit-code"])
        }),
        ("trace", "with `--exit-code`: a device that is named isn't enrolled", &|| {
            code(&good(), &["trace", "--device", "press-02", "--exit-code"])
        }),
        ("trace", "with `--exit-code`: no device has the labels that were asked for", &|| {
            code(&good(), &["trace", "-l", "site=typo", "--exit-code"])
        }),
        ("history", "all of the device's history can be believed", &|| code(&good(), &["history", "press-01"])),
        ("history", "an audit finds something wrong in it", &|| {
            let lab = good();
            lab.git("press-01", &["tag", "v1", "desired"]);
            code(&lab, &["history", "press-01"])
        }),
        ("history", "nothing was ever published for the device", &|| code(&good(), &["history", "press-99"])),
        ("events", "it can be shown, whatever it shows", &|| code(&unfound(), &["events"])),
        ("events", "a device that was asked for isn't in the fleet", &|| code(&good(), &["events", "press-99"])),
        ("events", "the cursor isn't known any more", &|| {
            code(&good(), &["events", "--after", &Digest::of(b"").to_string()])
        }),
        ("device show", "it can be shown, whatever it shows", &|| code(&unfound(), &["device", "show", "press-01"])),
        ("device show", "the device isn't in the fleet, and never was", &|| {
            code(&good(), &["device", "show", "press-99"])
        }),
        ("device answers", "it can be shown, whatever it shows", &|| code(&good(), &["device", "answers", "press-01"])),
        ("device answers", "the answer that is named isn't there, or says `refused` or `failed`", &|| {
            code(&good(), &["device", "answers", "press-01", "7"])
        }),
        ("device logs", "it is committed", &|| code(&good(), &["device", "logs", "press-01", "hello"])),
        ("device logs", "with `--wait`: the answer didn't come, or says `refused` or `failed`", &|| {
            code(&good(), &["device", "logs", "press-01", "hello", "--wait=0s"])
        }),
        ("deployment show", "it can be shown, whatever it shows", &|| {
            code(&unfound(), &["deployment", "show", "hello"])
        }),
        ("deployment show", "the deployment isn't in the fleet, or a device that was asked for isn't", &|| {
            let device = code(&good(), &["deployment", "show", "hello", "press-99"]);
            device.min(code(&good(), &["deployment", "show", "other"]))
        }),
        ("deployment restart", "it is committed", &|| code(&good(), &["deployment", "restart", "hello", "-m", "why"])),
        (
            "deployment restart",
            "with `--wait`: a device hasn't done it when the time is over, or never says so",
            &|| code(&good(), &["deployment", "restart", "hello", "-m", "why", "--wait=0s"]),
        ),
        ("rollout list", "it can be shown, whatever it shows", &|| code(&good(), &["rollout", "list"])),
        ("rollout show", "it can be shown, whatever it shows", &|| code(&stopped(), &["rollout", "show", "12"])),
        ("rollout show", "it stopped, and is watched", &|| code(&stopped(), &["rollout", "show", "12", "--watch"])),
        ("rollout show", "there is no such rollout", &|| code(&good(), &["rollout", "show", "12"])),
        ("rollout resume", "it is said, now or before", &|| {
            let lab = stopped();
            code(&lab, &["rollout", "resume", "12"]).max(code(&lab, &["rollout", "resume", "12"]))
        }),
        ("rollout pause", "the rollout ended, or isn't there", &|| code(&good(), &["rollout", "pause", "12"])),
        ("rollout approve", "no wave that is to come needs anybody's word", &|| {
            code(&stopped(), &["rollout", "approve", "12"])
        }),
        ("allow", "it is let pass, now or before", &|| {
            let lab = guarded();
            let word = ["allow", "hello-anew", "-m", "begins anew"];
            code(&lab, &word).max(code(&lab, &word))
        }),
        ("allow", "no guard holds it back", &|| code(&good(), &["allow", "hello", "-m", "moved"])),
        ("explain", "it can be explained", &|| code(&broken(), &["explain", "press-01"])),
        ("explain", "the device or the deployment isn't in the fleet", &|| code(&good(), &["explain", "press-99"])),
        ("why-not", "the device gets the application", &|| code(&good(), &["why-not", "hello", "press-01"])),
        ("why-not", "the fleet doesn't mean the device", &|| {
            let lab = after(|lab| lab.write("devices/spare-01.yaml", "id: spare-01\n"));
            code(&lab, &["why-not", "hello", "spare-01"])
        }),
        ("why-not", "it can't be published", &|| code(&unfound(), &["why-not", "hello", "press-01"])),
        ("app push", "what it would pack is refused by every device", &|| {
            let lab = after(|lab| lab.write("applications/hello/1.0.0/compose/hello/compose.yaml", "services: ["));
            code(&lab, &["app", "push", "applications/hello/1.0.0"])
        }),
        ("app add", "the package is in the fleet, now or before", &|| {
            let lab = good();
            let dir = package(&lab, "vendor", "1.0.0").display().to_string();
            code(&lab, &["app", "add", &dir]).max(code(&lab, &["app", "add", &dir]))
        }),
        ("app add", "the package is refused, or the version is there with other files", &|| {
            let (lab, other) =
                (good(), |dir: &std::path::Path| catalogue::write(dir, "resources/license.txt", "other"));
            let dir = package(&lab, "vendor", "1.0.0");
            assert_eq!(code(&lab, &["app", "add", &dir.display().to_string()]), 0);
            other(&dir);
            code(&lab, &["app", "add", &dir.display().to_string()])
        }),
        ("app list", "every package can be read", &|| code(&good(), &["app", "list"])),
        ("app list", "a package can't be read; the others are shown", &|| {
            code(&after(|lab| lab.write("applications/bad/1/margo.yaml", "id: [")), &["app", "list"])
        }),
        ("app diff", "it can be shown, whatever it shows", &|| {
            let lab = good();
            let dir = package(&lab, "vendor", "1.0.0").display().to_string();
            code(&lab, &["app", "diff", "hello@1.0.0", &dir])
        }),
        ("app devices", "it can be told of each device, whatever is told", &|| {
            code(&good(), &["app", "devices", "hello"])
        }),
        ("app devices", "the version isn't in the fleet", &|| code(&good(), &["app", "devices", "hello@9"])),
        ("device apps", "it can be told of each version, whatever is told", &|| {
            code(&good(), &["device", "apps", "press-01"])
        }),
        ("device apps", "the device isn't in the fleet", &|| code(&good(), &["device", "apps", "press-99"])),
        ("app remove", "the version is removed", &|| {
            let lab = good();
            lab.run(&["app", "add", &package(&lab, "vendor", "1.0.0").display().to_string()]).good();
            code(&lab, &["app", "remove", "counter@1.0.0"])
        }),
        ("app remove", "the version is used, or isn't there", &|| code(&good(), &["app", "remove", "hello@1.0.0"])),
        ("deploy", "the file is written and committed", &|| {
            code(&good(), &["deploy", "hello", "--name", "b", "--targets", "*", "--yes"])
        }),
        ("deploy", "`validate` would refuse it, or the deployment is there", &|| {
            let wrong = ["deploy", "hello", "--name", "b", "--targets", "*", "--set", "interval=0", "--yes"];
            code(&good(), &wrong).min(code(&good(), &["deploy", "hello", "--targets", "*", "--yes"]))
        }),
        ("deploy", "nobody says yes", &|| code(&good(), &["deploy", "hello", "--name", "b", "--targets", "*"])),
        ("deploy edit", "the file is written and committed, or says so already", &|| {
            let (lab, args) = (good(), ["deploy", "edit", "hello", "--set", "interval=7", "--yes"]);
            code(&lab, &args).max(code(&lab, &args))
        }),
        ("deploy edit", "the deployment isn't there, or its file can't be edited", &|| {
            code(&good(), &["deploy", "edit", "none", "--yes"])
        }),
        ("plan", "who has to agree didn't (signers.yaml)", &|| code(&unagreed(), &["plan"])),
        ("publish", "who has to agree didn't (signers.yaml)", &|| code(&unagreed(), &["publish"])),
        ("approve", "the commit is approved, now or before", &|| {
            let lab = unagreed();
            let first = code(&lab, &["approve", "--key", "../anna"]);
            first.max(code(&lab, &["approve", "--key", "../anna"]))
        }),
        ("approve", "there is no key to sign with", &|| code(&good(), &["approve"])),
        ("audit", "nothing is wrong", &|| audited(&good())),
        ("audit", "something is wrong", &|| {
            let lab = good();
            lab.git("press-01", &["tag", "v1", "desired"]);
            audited(&lab)
        }),
        ("signers init", "the file is made", &|| {
            let lab = good();
            code(&lab, &["signers", "init", "--key", &anna(&lab)])
        }),
        ("signers init", "the file is there already", &|| code(&unagreed(), &["signers", "init", "--key", "../anna"])),
        ("archive", "all that is old is archived, also if nothing is", &|| {
            code(&good(), &["archive", "--to", "../archives"])
        }),
        ("archive", "nothing was ever published for the device", &|| {
            code(&good(), &["archive", "press-99", "--to", "../archives"])
        }),
        ("archive list", "it can be shown, whatever it shows", &|| code(&good(), &["archive", "list"])),
        ("backup", "the archive is whole", &|| code(&good(), &["backup", "../backup.tar"])),
        ("backup", "there is no home with a ledger", &|| {
            code(&good(), &["--home", "../none.wfm", "backup", "../backup.tar"])
        }),
        ("restore", "the home is made", &|| {
            let lab = good();
            lab.run(&["backup", "../backup.tar"]).good();
            code(&lab, &["--home", "../other.wfm", "restore", "../backup.tar"])
        }),
        ("restore", "the archive isn't whole, or something is at the home's place", &|| {
            let lab = good();
            lab.run(&["backup", "../backup.tar"]).good();
            code(&lab, &["restore", "../backup.tar"])
        }),
        ("restore --clones", "the audit accepts them", &|| of_clones(&good())),
        ("restore --clones", "the audit refuses one of them", &|| {
            let lab = good();
            lab.git("press-01", &["tag", "v1", "desired"]);
            of_clones(&lab)
        }),
        ("trust publish", "the roster is published, or was before", &|| {
            let lab = proposed();
            code(&lab, &["trust", "sign", "--key", &root_key(&lab)]);
            let first = code(&lab, &["trust", "publish"]);
            first.max(code(&lab, &["trust", "publish"]))
        }),
        ("trust publish", "too few root keys signed", &|| code(&proposed(), &["trust", "publish"])),
        ("trust publish --emergency", "the roster is published, or was before, whatever is listed", &|| {
            let lab = good();
            let old = lab.home.publisher_key().display().to_string();
            lab.run(&["trust", "propose", "--new-publisher", "--drop-publisher", &old]).good();
            code(&lab, &["trust", "sign", "--key", &root_key(&lab)]);
            let first = code(&lab, &EMERGENCY);
            first.max(code(&lab, &EMERGENCY))
        }),
        ("trust publish --emergency", "the roster drops no key, or lists no new one of this home", &|| {
            let lab = proposed();
            code(&lab, &["trust", "sign", "--key", &root_key(&lab)]);
            code(&lab, &EMERGENCY)
        }),
        ("trust sign", "the key is no root key", &|| {
            let lab = proposed();
            code(&lab, &["trust", "sign", "--key", &anna(&lab)])
        }),
        ("trust propose", "nothing would change", &|| code(&good(), &["trust", "propose"])),
        ("trust export", "there is no newer roster", &|| {
            code(&good(), &["trust", "export", "--out", "../rosters.json", "--from", "1"])
        }),
        ("trust switch", "there is no other authority, or no roster names it", &|| code(&good(), &["trust", "switch"])),
        ("run", "it was told to end (SIGTERM, SIGINT)", &|| {
            let (lab, running) = (good(), Running::start);
            let running = running(&lab, &[]);
            std::thread::sleep(std::time::Duration::from_secs(5));
            running.stop().code.unwrap()
        }),
        ("any", "wrong usage", &|| code(&good(), &["plan", "a b"])),
        ("any", "there is no publisher's home", &|| code(&good(), &["status", "--home", "nowhere"])),
        ("any", "there is no such revision", &|| code(&good(), &["plan", "--rev", "nowhere"])),
    ];
    let key = |command: &str, case: &str| (command.to_owned(), case.to_owned());
    let found: BTreeMap<_, _> = runs.iter().map(|(command, case, run)| (key(command, case), run())).collect();
    assert_eq!(found, documented());
}
