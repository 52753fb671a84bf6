//! A fleet of any size, whose devices all look alike.

use std::ops::Deref;
use std::path::PathBuf;
use std::process::Command;

use repo_git::SigningKey;
use repo_git::repo::branches;
use repo_model::Digest;
use repo_testkit::fleet::DEPLOYMENT;
use repo_testkit::git;

use crate::stage::{Stage, run};

const AT_ONCE: &str = "\nrollout: none\n";

/// The fleet of the tests, with any number of devices.
pub(crate) struct Fleet(repo_testkit::fleet::Fleet);

impl Deref for Fleet {
    type Target = repo_testkit::fleet::Fleet;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Fleet {
    /// A fleet of `devices` with 100 deployments, of which each device has 8: two by its site of 20, four by its role of
    /// 10, one by its kind of 19, and one that all have. Nothing is published yet.
    pub(crate) fn mixed(stage: &Stage, name: &str, devices: usize) -> Self {
        let fleet = Self::new(stage, name, devices, devices);
        for number in 0..devices {
            let path = format!("devices/line-{:03}/{}.yaml", number / 50, id(number));
            let (site, role, kind) = (number % 20, number / 20 % 10, number % 19);
            let labels = format!("{{site: site-{site:02}, role: role-{role:02}, kind: kind-{kind:02}}}");
            fleet.replace(&path, "{site: graz, role: press}", &labels);
        }
        let deploy = |id: &str, selector: &str| {
            let text = format!(
                "id: {id}\napplication: {{id: hello, version: 1.0.0}}\ntargets:\n  - {selector}\nparameters:\n  greeting: hello\n"
            );
            fleet.write(&format!("deployments/{id}.yaml"), &text);
        };
        std::fs::remove_file(fleet.dir().join(DEPLOYMENT)).expect("the example");
        for (label, values, each) in [("site", 20, 2), ("role", 10, 4), ("kind", 19, 1)] {
            for (value, number) in (0..values).flat_map(|value| (0..each).map(move |number| (value, number))) {
                let value = format!("{label}-{value:02}");
                deploy(&format!("{value}-{number}"), &format!("matchLabels: {{{label}: {value}}}"));
            }
        }
        deploy(ALL, "matchExpressions: [{key: site, operator: Exists}]");
        fleet.commit("100 deployments");
        fleet
    }

    /// A fleet of `devices`, of which the first `busy` run the example; nothing is published yet. What changes goes to all of them
    /// at once, because nobody reports.
    pub(crate) fn new(stage: &Stage, name: &str, devices: usize, busy: usize) -> Self {
        let fleet = Self(made(stage, name, &[]));
        run(Command::new("rm").arg("-r").arg(fleet.dir().join("devices")));
        for number in 0..devices {
            let (id, site) = (id(number), if number < busy { "graz" } else { "linz" });
            let key = key(number).public();
            let text = format!("id: {id}\nlabels: {{site: {site}, role: press}}\nstatusKeys: [{key}]\n");
            fleet.write(&format!("devices/line-{:03}/{id}.yaml", number / 50), &text);
        }
        fleet.write("fleet.yaml", &(fleet.read("fleet.yaml") + AT_ONCE));
        fleet.commit(&format!("{devices} devices"));
        fleet
    }

    /// From now on a change of many goes wave by wave, as where nobody says otherwise.
    pub(crate) fn in_waves(&self) {
        self.replace("fleet.yaml", AT_ONCE, "");
    }

    pub(crate) fn repository(&self, number: usize) -> PathBuf {
        self.0.repository(&id(number))
    }

    /// Where a branch of a device stands, read without any program.
    pub(crate) fn tip(&self, number: usize, branch: &str) -> String {
        let [tip] = branches(&self.repository(number), [branch]).expect("readable");
        tip.expect("a branch").to_string()
    }

    /// Commits another value of the example's parameter.
    pub(crate) fn change(&self, number: usize) {
        self.change_of("hello", number);
    }

    /// Commits another value of a deployment's parameter.
    pub(crate) fn change_of(&self, deployment: &str, number: usize) {
        greet(self, &format!("deployments/{deployment}.yaml"), &format!("change {number}"));
    }

    pub(crate) fn assert_published(&self, numbers: &[usize], serial: usize) {
        for number in numbers {
            let trailers = git::git(
                &self.repository(*number),
                &["log", "-1", "--format=%(trailers:key=Serial,valueonly)", "desired"],
            );
            assert_eq!(trailers.trim(), serial.to_string(), "device {number}");
        }
    }
}

/// A new fleet whose application is in the registry; `options` are `init`'s.
pub(crate) fn made(stage: &Stage, name: &str, options: &[&str]) -> repo_testkit::fleet::Fleet {
    let fleet = repo_testkit::fleet::Fleet::at(&stage.make_dir(name));
    run(fleet.init_at(&stage.registry_for(name)).args(options));
    fleet.push_application();
    fleet
}

/// Commits another greeting in a deployment.
pub(crate) fn greet(fleet: &repo_testkit::fleet::Fleet, deployment: &str, greeting: &str) {
    let text = fleet.read(deployment);
    let line = text.lines().find(|line| line.starts_with("  greeting:")).expect("a greeting");
    fleet.write(deployment, &text.replacen(line, &format!("  greeting: {greeting}"), 1));
    fleet.commit(greeting);
}

/// The deployment of a mixed fleet that all devices have.
pub(crate) const ALL: &str = "all";

/// A device's key, with which nobody signs unless a bench does.
pub(crate) fn key(number: usize) -> SigningKey {
    SigningKey::from_seed(Digest::of(id(number).as_bytes()).as_bytes())
}

/// A device's id, which is also its repository's name.
pub(crate) fn id(number: usize) -> String {
    format!("press-{number:05}")
}
