//! A person of the site approves from elsewhere, as the documentation says, at our host and with both programs.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use repo_testkit::git;
use serde_json::Value;

use crate::hosted::{Hosted, ID, read};

const PAGE: &str = include_str!("../../docs/approval-by-git.md");

/// The commands of the page, word for word, from the block with these words to the one with those.
fn recipe(from: &str, to: &str) -> String {
    let blocks: Vec<_> = PAGE.split("```sh person\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let at = |words: &str| blocks.iter().position(|block| block.contains(words)).expect(words);
    blocks[at(from)..=at(to)].concat()
}

/// A person with a home of their own, stock git and ssh-keygen.
struct Person {
    home: PathBuf,
    /// What the commands of the page are told, and how git reaches the host.
    environment: Vec<(String, String)>,
}

impl Person {
    fn new(hosted: &Hosted, secret: &str) -> Self {
        let home = hosted.dir.path().join("j.doe");
        std::fs::create_dir_all(&home).expect("made");
        let join = read(&hosted.fleet.join_file(ID));
        let ca = home.join("ca.pem");
        std::fs::write(&ca, join["ca"].as_str().expect("an authority")).expect("written");
        let (repository, header) = (&join["url"], format!("Authorization: Bearer {secret}"));
        let environment = [
            ("PATH", std::env::var("PATH").expect("it is set")),
            ("HOME", home.display().to_string()),
            ("GIT_CONFIG_NOSYSTEM", "1".to_owned()),
            ("GIT_TERMINAL_PROMPT", "0".to_owned()),
            ("GIT_CONFIG_COUNT", "2".to_owned()),
            ("GIT_CONFIG_KEY_0", "http.sslCAInfo".to_owned()),
            ("GIT_CONFIG_VALUE_0", ca.display().to_string()),
            ("GIT_CONFIG_KEY_1", "http.extraHeader".to_owned()),
            ("GIT_CONFIG_VALUE_1", header),
            ("repository", repository.as_str().expect("a URL").to_owned()),
            ("device_key", hosted.device_key()),
        ];
        Self { home, environment: environment.map(|(name, value)| (name.to_owned(), value)).into() }
    }

    fn run(&self, dir: &str, set: &str, script: &str) -> Output {
        let mut bash = Command::new("bash");
        bash.args(["-c", &format!("set -eu\n{script}")]).current_dir(self.home.join(dir));
        bash.env_clear().envs(self.environment.iter().cloned()).env("set", set);
        bash.stdin(Stdio::null()).output().expect("bash runs")
    }

    #[track_caller]
    fn good(&self, dir: &str, set: &str, script: &str) -> String {
        let output = self.run(dir, set, script);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Hosted {
    /// The key that signs the device's reports, by what is published.
    fn device_key(&self) -> String {
        let envelope = git::show(&self.fleet.repository(ID), "desired", "envelope.json").expect("published");
        let envelope: Value = serde_json::from_slice(&envelope).expect("JSON");
        envelope["device"]["statusKeys"][0].as_str().expect("a key").to_owned()
    }

    fn set(&self) -> Option<String> {
        self.fleet.status(ID)["gates"][0]["set"].as_str().map(str::to_owned)
    }
}

#[test]
fn a_person_elsewhere_approves_with_stock_git_as_the_page_says_and_the_device_is_woken() {
    let mut hosted = Hosted::new();
    hosted.start_host();
    hosted.adopt_first();
    let secret = hosted.fleet.run(&["account", "add", "j.doe", "--role", "site", "--device", ID]).trim().to_owned();
    let person = Person::new(&hosted, &secret);
    let shown = person.good("", "", &recipe("ssh-keygen", "ssh-keygen"));
    let line = shown.lines().last().expect("a key").to_owned();
    hosted.device.set("gates", &format!("{{approval: {{for: ['*'], keys: [{{name: j.doe, key: \"{line}\"}}]}}}}"));
    // Nothing but a wait at the host makes it come in time.
    hosted.device.set("poll", "1h");
    hosted.device.set("report", "1h");
    hosted.start_device();
    hosted.fleet.write("deployments/hello.yaml", &greeting("servus"));
    hosted.fleet.commit("another greeting");
    hosted.until("it waits for a person", |hosted| hosted.set().is_some());
    let looked = person.good("", "", &recipe("git init", "git log"));
    let set = hosted.set().expect("it waits");
    assert!(looked.contains(&set) && looked.contains("servus"), "{looked}");
    let status = String::from_utf8_lossy(&hosted.fleet.try_run(&["status"]).stdout).into_owned();
    assert!(status.contains(&format!("hello waits for approval of {set}")), "{status}");

    let say = recipe("site.json <<END", "site.json <<END");
    person.good("press-01", &set, &say);
    hosted.until("what was approved runs", |hosted| hosted.runs("servus"));
    hosted.until("it is told", |hosted| hosted.fleet.status(ID)["site"]["serial"] == 1 && hosted.set().is_none());
    let told = hosted.fleet.status(ID)["site"].clone();
    assert_eq!((&told["key"], &told["approvals"][0]["set"]), (&"j.doe".into(), &Value::from(set.clone())), "{told}");
    let status = String::from_utf8_lossy(&hosted.fleet.try_run(&["status"]).stdout).into_owned();
    assert!(status.contains(&format!("its site approves {set} by j.doe: line 2 is idle")), "{status}");

    // The next list takes the place of this one, in one commit without parents.
    person.good("press-01", "", &recipe("git fetch", "git log"));
    person.good("press-01", &set, &say);
    let repository = hosted.fleet.repository(ID);
    assert_eq!(git::git(&repository, &["rev-list", "--count", "site"]).trim(), "1");
    hosted.until("the newer one counts", |hosted| hosted.fleet.status(ID)["site"]["serial"] == 2);
    // Who didn't look whether somebody else said something is refused, when it is something else that is said.
    let late = person.run("press-01", &format!("sha256:{}", "0".repeat(64)), &say);
    assert!(!late.status.success() && String::from_utf8_lossy(&late.stderr).contains("stale info"), "{late:?}");
}

/// The example's deployment, with another greeting.
fn greeting(greeting: &str) -> String {
    format!(
        "id: hello\napplication: {{id: hello, version: 1.0.0}}\ntargets: [{{devices: [{ID}]}}]\n\
         parameters: {{greeting: {greeting}}}\n"
    )
}
