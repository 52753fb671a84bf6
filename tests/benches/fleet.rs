//! A fleet of any size, whose devices all look alike.

use std::path::PathBuf;
use std::process::Command;

use repo_testkit::git;

use crate::stage::{Stage, run};

/// The fleet and its home.
pub(crate) struct Fleet<'a> {
    stage: &'a Stage,
    name: &'static str,
}

impl<'a> Fleet<'a> {
    /// A fleet of `devices` with 100 deployments, of which each device has 8: two by its site of 20, four by its role of
    /// 10, one by its kind of 19, and one that all have. Nothing is published yet.
    pub(crate) fn mixed(stage: &'a Stage, name: &'static str, devices: usize) -> Self {
        let fleet = Self::new(stage, name, devices, devices);
        for number in 0..devices {
            let path = fleet.dir().join(format!("devices/line-{:03}/{}.yaml", number / 50, id(number)));
            let (site, role, kind) = (number % 20, number / 20 % 10, number % 19);
            let text = std::fs::read_to_string(&path).expect("a device");
            let labels = format!("{{site: site-{site:02}, role: role-{role:02}, kind: kind-{kind:02}}}");
            std::fs::write(path, text.replace("{site: graz, role: press}", &labels)).expect("written");
        }
        let deploy = |id: &str, selector: &str| {
            let text = format!(
                "id: {id}\napplication: {{id: hello, version: 1.0.0}}\ntargets:\n  - {selector}\nparameters:\n  greeting: hello\n"
            );
            std::fs::write(fleet.dir().join(format!("deployments/{id}.yaml")), text).expect("written");
        };
        std::fs::remove_file(fleet.dir().join("deployments/hello.yaml")).expect("the example");
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

    /// A fleet of `devices`, of which the first `busy` run the example; nothing is published yet.
    pub(crate) fn new(stage: &'a Stage, name: &'static str, devices: usize, busy: usize) -> Self {
        let fleet = Self { stage, name };
        let mut init = Command::new(&stage.publisher);
        init.arg("init").arg(fleet.dir()).args(["--registry", &stage.registry_for(name)]);
        run(init.args(["--image", &stage.image()]));
        run(&mut fleet.command(&["app", "push", "applications/hello/1.0.0"]));
        let key = stage.dir.path().join(format!("{name}-key"));
        run(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]).arg(&key));
        let key = std::fs::read_to_string(key.with_extension("pub")).expect("a key");
        let key = key.trim();
        run(Command::new("rm").arg("-r").arg(fleet.dir().join("devices")));
        for number in 0..devices {
            let dir = fleet.dir().join(format!("devices/line-{:03}", number / 50));
            std::fs::create_dir_all(&dir).expect("made");
            let (id, site) = (id(number), if number < busy { "graz" } else { "linz" });
            // Each its own; none of them ever signs.
            let key = format!("{}{number:05}", &key[..key.len() - 5]);
            let text = format!("id: {id}\nlabels: {{site: {site}, role: press}}\nstatusKeys: [{key}]\n");
            std::fs::write(dir.join(format!("{id}.yaml")), text).expect("written");
        }
        fleet.commit(&format!("{devices} devices"));
        fleet
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.stage.dir.path().join(self.name)
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.stage.dir.path().join(format!("{}.wfm", self.name))
    }

    pub(crate) fn repository(&self, number: usize) -> PathBuf {
        self.home().join(format!("devices/{}.git", id(number)))
    }

    /// Where a branch of a device stands, read without any program.
    pub(crate) fn tip(&self, number: usize, branch: &str) -> String {
        let path = self.repository(number).join("refs/heads").join(branch);
        std::fs::read_to_string(path).expect("a branch").trim().to_owned()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.stage.publisher);
        command.arg("-C").arg(self.dir()).args(args);
        command
    }

    pub(crate) fn commit(&self, message: &str) {
        git::git(&self.dir(), &["add", "--all"]);
        git::git(&self.dir(), &["commit", "--quiet", "--message", message]);
    }

    /// Commits another value of the example's parameter.
    pub(crate) fn change(&self, number: usize) {
        self.change_of("hello", number);
    }

    /// Commits another value of a deployment's parameter.
    pub(crate) fn change_of(&self, deployment: &str, number: usize) {
        let path = self.dir().join(format!("deployments/{deployment}.yaml"));
        let text = std::fs::read_to_string(&path).expect("a deployment");
        let line = text.lines().find(|line| line.starts_with("  greeting:")).expect("a greeting");
        std::fs::write(&path, text.replacen(line, &format!("  greeting: change {number}"), 1)).expect("written");
        self.commit(&format!("change {number}"));
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

/// The deployment of a mixed fleet that all devices have.
pub(crate) const ALL: &str = "all";

/// A device's id, which is also its repository's name.
pub(crate) fn id(number: usize) -> String {
    format!("press-{number:05}")
}
