//! Power cuts of a running host while a device renews its secret: whatever the host told is true afterwards.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use repo_http::{Agent, Credential, Request, Settings, Url};
use repo_testkit::faults::power::{VOLUME_VARIABLE, Volume};
use repo_testkit::{comes_within, program, terminate};
use serde_json::Value;
use tempfile::TempDir;

use repo_testkit::fleet::Fleet;
use repo_testkit::host::Host;
use repo_testkit::{copy, text};

const DEVICE: &str = "press-01";

/// A host that runs, and a device that asks it.
struct Caller {
    host: Host,
    agent: Agent,
}

impl Caller {
    fn start(fleet: &Fleet, environment: &[(&str, String)]) -> Self {
        let host = fleet.serve(environment);
        let authority = std::fs::read_to_string(fleet.home().join("ca/ca.pem")).unwrap_or_default();
        let settings = Settings { authorities: vec![authority], ..Settings::default() };
        // A volume that was cut has no authority to read.
        let agent = Agent::new(&settings).or_else(|_| Agent::new(&Settings::default())).expect("an agent");
        Self { host, agent }
    }

    /// What it answers, if it does.
    fn ask(&self, path: &str, body: Option<&[u8]>, secret: &str) -> Option<Value> {
        let listened = !self.host.url.is_empty();
        let url = listened.then(|| Url::parse(&format!("{}{path}", self.host.url)).expect("a URL"))?;
        let credential = Credential::Bearer(secret.to_owned());
        let request = Request { credential: &credential, body, ..Request::get(&url) };
        serde_json::from_slice(&self.agent.send(&request).ok()?.body.bytes(10_000).ok()?).ok()
    }

    fn knows(&self, secret: &str) -> bool {
        self.ask("/account", None, secret).is_some()
    }

    /// The device's next secret, and whether the host let it in with that one.
    fn renew(&self, secret: &str) -> Option<(String, bool)> {
        let next = self.ask("/account/renew", Some(b""), secret)?["secret"].as_str()?.to_owned();
        let used = self.knows(&next);
        Some((next, used))
    }
}

/// The secrets that the account's file has, of which some were used.
fn records(fleet: &Fleet) -> Vec<Value> {
    let file = std::fs::read(fleet.home().join(format!("accounts/{DEVICE}.json"))).expect("an account");
    let account: Value = serde_json::from_slice(&file).expect("JSON");
    account["secrets"].as_array().expect("a list").clone()
}

fn until(what: &str, so: impl Fn() -> bool) {
    assert!(comes_within(Duration::from_secs(90), so), "{what}");
}

/// A renewal with all that follows from it, on an uncut host: the points that it passes.
fn points(fleet: &Fleet, secret: &str) -> BTreeSet<String> {
    let trace = tempfile::NamedTempFile::new().expect("a file");
    let mut caller = Caller::start(fleet, &[("SYNC_TRACE", trace.path().display().to_string())]);
    assert!(caller.renew(secret).expect("renewed").1);
    until("the old secret ends", || !caller.knows(secret));
    terminate(&caller.host.child);
    caller.host.child.wait().expect("it ends");
    let text = std::fs::read_to_string(trace.path()).expect("a trace");
    let mut counts = std::collections::BTreeMap::<&str, u32>::new();
    let mut points = BTreeSet::new();
    for line in text.lines() {
        let count = counts.entry(line).or_default();
        *count += 1;
        points.insert(format!("{}:{count}", line.replace(' ', ":")));
    }
    points
}

#[test]
fn power_cuts_of_a_host_while_a_device_renews_leave_it_what_it_was_told() {
    let dir = TempDir::new().expect("a temporary directory");
    let kept = Fleet::at(dir.path());
    text(kept.init_command("renewals").args(["--host", "127.0.0.1"]).output().expect("the publisher runs"));
    let settings = "serve:\n  names: [127.0.0.1]\n  listen: 127.0.0.1:0\n";
    std::fs::write(kept.home().join("publisher.yaml"), settings).expect("written");
    kept.run(&["device", "add", DEVICE]);
    let join: Value =
        serde_json::from_slice(&std::fs::read(kept.join_file(DEVICE)).expect("a join file")).expect("JSON");
    let secret = join["account"]["secret"].as_str().expect("a secret").to_owned();
    let caller = Caller::start(&kept, &[]);
    assert!(caller.knows(&secret));
    until("its use is noted", || !records(&kept)[0]["confirmed"].is_null());
    drop(caller);
    let prepare = |root: &Path| {
        for part in ["fleet", "fleet.wfm"] {
            copy(&dir.path().join(part), &root.join(part));
        }
        text(Command::new("sync").arg("-f").arg(root).output().expect("sync runs"));
        Fleet::at(root)
    };
    let scratch = TempDir::new().expect("a temporary directory");
    let (mut before, mut after) = (BTreeSet::new(), BTreeSet::new());
    for point in points(&prepare(scratch.path()), &secret) {
        let volume = Volume::new(16).expect("a volume");
        let fleet = prepare(&volume.path());
        let environment = [
            ("SYNC_CUT", point.clone()),
            ("SYNC_CUT_COMMAND", program("power-cut").display().to_string()),
            (VOLUME_VARIABLE, volume.path().display().to_string()),
        ];
        let mut caller = Caller::start(&fleet, &environment);
        let told = caller.renew(&secret);
        // What follows from the use of the new one is written behind the answer.
        let _ = caller.host.child.wait();
        drop(caller);
        volume.reboot().expect("rebooted");

        let caller = Caller::start(&fleet, &[]);
        let now = match &told {
            None => &secret,
            Some((next, _)) => next,
        };
        assert!(caller.knows(now), "{point}: what the device has doesn't count any more");
        let (again, used) = caller.renew(now).unwrap_or_else(|| panic!("{point}: it can't renew"));
        assert!(used, "{point}");
        until("the older one ends", || !caller.knows(now));
        assert!(caller.knows(&again) && records(&fleet).len() == 1, "{point}");
        if told.is_none() {
            before.insert(point)
        } else {
            after.insert(point)
        };
    }
    // Both what the device is told and what follows from its use were cut at each step of replacing a file.
    for step in ["file.data", "file.rename", "file.dir"]
        .iter()
        .flat_map(|name| [format!("{name}:before"), format!("{name}:after")])
    {
        for cuts in [&before, &after] {
            assert!(cuts.iter().any(|point| point.starts_with(&step)), "{step}: {before:?}, {after:?}");
        }
    }
}
