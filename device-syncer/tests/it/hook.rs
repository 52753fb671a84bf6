//! The site's hook: asked right before a change, told the end of it, and in nobody's way.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Child;

use repo_testkit::terminate;
use serde_json::Value;

use crate::objects::two_components;
use crate::world::{World, command, finish, kill, until};

/// A hook that notes what it is asked and told, and answers as the test wants.
struct Hook {
    dir: PathBuf,
}

impl Hook {
    fn new(world: &World) -> Self {
        let dir = world.path("hook");
        fs::create_dir(&dir).expect("made");
        let hook = Self { dir };
        let script = format!(
            "#!/bin/sh\ncd {}\nline=$(tr -d '\\n')\nenv | sort > env\necho \"$line\" >> log\ncase \"$line\" in\n\
             *'\"done\"'*) exit $(cat done) ;;\nesac\n\
             case \"$line\" in *'\"greeter\"'*) [ ! -e hangs ] || {{ echo $$ > pid; sleep 1000; }} ;; esac\n\
             cat words\nexit $(cat ask)\n",
            hook.dir.display()
        );
        fs::write(hook.program(), script).expect("written");
        fs::set_permissions(hook.program(), fs::Permissions::from_mode(0o700)).expect("set");
        hook.says(1, "line 2 is filling\nmore\n");
        hook.set("done", "0");
        world.settings(&hook.settings());
        hook
    }

    fn program(&self) -> PathBuf {
        self.dir.join("line-idle")
    }

    fn settings(&self) -> String {
        format!("gates: {{hook: {{command: [{}, '$(false)'], timeout: 2s}}}}\n", self.program().display())
    }

    fn set(&self, file: &str, text: &str) {
        fs::write(self.dir.join(file), text).expect("written");
    }

    fn says(&self, code: u8, words: &str) {
        self.set("words", words);
        self.set("ask", &code.to_string());
    }

    /// What it was asked and told, in order.
    fn heard(&self) -> Vec<Value> {
        let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// The same, in short.
    fn phases(&self) -> Vec<String> {
        let short = |one: &Value| {
            let word = |key: &str| one[key].as_str().map(|word| format!(" {word}")).unwrap_or_default();
            format!("{}{}{}{}", &word("phase")[1..], word("deployment"), word("change"), word("state"))
        };
        self.heard().iter().map(short).collect()
    }
}

#[test]
fn a_change_waits_until_the_sites_hook_lets_it_and_the_hook_is_told_the_end() {
    let world = World::running();
    let hook = Hook::new(&world);
    world.once().good();
    world.syncer(&["hold", "--by", "j.doe", "--why", "line 2"]).good();
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(hook.phases(), [""; 0], "it isn't asked while another gate is closed");
    world.syncer(&["release"]).good();
    world.once().ended(1);
    assert_eq!(world.states("greeter"), ["hello pending waiting-policy"]);
    assert_eq!(world.message("greeter"), "the site's hook says: line 2 is filling");
    assert_eq!((hook.phases(), world.greetings()), (vec!["ask greeter apply".to_owned()], vec!["hello".to_owned()]));
    let environment = fs::read_to_string(hook.dir.join("env")).expect("it was asked");
    let names: Vec<_> = environment.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    assert_eq!(names, ["OLDPWD", "PATH", "PWD"], "and what sh adds");

    hook.says(0, "");
    world.once().good();
    assert_eq!(
        (world.greetings(), world.states("greeter")),
        (vec!["servus".to_owned()], vec!["hello installed".to_owned()])
    );
    assert_eq!(hook.phases()[1..], ["ask greeter apply", "done greeter installed"]);
    let heard = hook.heard();
    assert_eq!((&heard[0]["set"], &heard[1]["set"]), (&heard[2]["set"], &heard[2]["set"]));
    assert_eq!(heard[2]["deploymentId"], world.hand.deployment_id("greeter").to_string());
    world.assert_idle();

    // What is put back needs no leave; what goes does.
    hook.says(1, "");
    world.stop_all();
    world.once().good();
    world.hand.drop("greeter");
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(world.message("greeter"), "the site's hook says: no");
    hook.says(0, "");
    world.once().good();
    assert_eq!(world.containers(), [""; 0]);
    assert_eq!(hook.phases()[3..], ["ask greeter remove", "ask greeter remove", "done greeter removed"]);
}

#[test]
fn the_end_is_told_after_a_crash_as_well() {
    let world = World::running();
    let hook = Hook::new(&world);
    hook.says(0, "");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    world.fake.set("hang-up", &world.project("greeter"));
    let mut syncer = command(&world.home(), &["run"]).spawn().expect("it starts");
    until("it hangs", || world.states("greeter") == ["hello installing"]);
    kill(&mut syncer);
    world.fake.unset("hang-up");
    hook.says(1, "line 2 is filling");
    world.fake.set("unavailable", "");
    world.once().ended(1);
    assert_eq!(hook.phases(), ["ask greeter apply"], "nobody knows what is left to do");
    world.fake.unset("unavailable");
    hook.set("done", "1");
    world.once().good();
    assert_eq!(world.greetings(), ["servus"], "what began isn't asked for again");
    assert_eq!(hook.phases(), ["ask greeter apply", "done greeter installed"]);
    // It didn't hear of it, so it is told once more, and then no more.
    hook.set("done", "0");
    world.once().good();
    world.once().good();
    assert_eq!(hook.phases()[2..], ["done greeter installed"]);
}

#[test]
fn the_end_is_told_only_when_what_a_hold_keeps_back_of_it_is_done_as_well() {
    let world = World::running();
    let hook = Hook::new(&world);
    hook.says(0, "");
    world.add_settings("poll: 1h\nreport: 1h\n");
    world.hand.want("greeter", &world.app, "servus");
    two_components(&world);
    world.hand.publish();
    world.fake.set("hang-up", &world.project("greeter"));
    let syncer = command(&world.home(), &["run"]).spawn().expect("it starts");
    until("it hangs", || world.states("greeter").first().is_some_and(|state| state == "hello installing"));
    world.syncer(&["hold", "--by", "j.doe", "--why", "line 2"]).good();
    until("it is heard of", || world.report()["gates"][0]["code"] == "held");
    world.fake.unset("hang-up");
    until("it is half done", || world.states("greeter") == ["hello installed", "second pending held"]);
    terminate(&syncer);
    finish(syncer).good();
    assert_eq!(hook.phases(), ["ask greeter apply"], "the other half is applied later, and not asked for again");
    world.syncer(&["release"]).good();
    world.once().good();
    assert_eq!(hook.phases(), ["ask greeter apply", "done greeter installed"]);
}

#[test]
fn the_end_is_told_of_what_failed_before_another_component() {
    let world = World::running();
    let hook = Hook::new(&world);
    hook.says(0, "");
    world.hand.want("greeter", &world.app, "servus");
    two_components(&world);
    world.hand.publish();
    world.fake.set("fail-up", "no such option");
    world.once().ended(1);
    assert_eq!(hook.phases(), ["ask greeter apply", "done greeter failed"]);
}

#[test]
fn a_hook_that_hangs_or_fails_closes_the_gate_and_holds_nobody_else_back() {
    let world = World::running();
    let hook = Hook::new(&world);
    hook.says(0, "");
    hook.set("hangs", "");
    world.hand.want("greeter", &world.app, "servus");
    world.hand.want("other", &world.app, "hello");
    world.hand.publish();
    world.once().ended(1);
    assert_eq!(world.states("other"), ["hello installed"]);
    assert_eq!(world.states("greeter"), ["hello pending waiting-policy"]);
    assert_eq!(world.message("greeter"), "the site's hook says: it gave no answer");
    assert_eq!(world.conditions(), ["HookFailed NoAnswer"]);
    let pid = fs::read_to_string(hook.dir.join("pid")).expect("it began");
    until("it is gone", || !Path::new("/proc").join(pid.trim()).exists());
    fs::remove_file(hook.dir.join("hangs")).expect("removed");
    for code in [2, 126, 255] {
        hook.says(code, "yes");
        world.once().ended(1);
        assert_eq!(world.states("greeter"), ["hello pending waiting-policy"], "{code}");
        assert_eq!(world.conditions(), ["HookFailed NoAnswer"], "{code}");
    }
    fs::set_permissions(hook.program(), fs::Permissions::from_mode(0o600)).expect("set");
    world.once().ended(1).says(&["can't start `"]);
    fs::set_permissions(hook.program(), fs::Permissions::from_mode(0o700)).expect("set");
    hook.says(0, "");
    world.once().good();
    assert!(world.greetings().contains(&"servus".to_owned()) && world.conditions().is_empty());
}

/// A syncer that runs, and whose hook says no to a new greeting. Nothing else makes it begin a pass soon.
fn refused_while_running() -> (World, Hook, Child) {
    let world = World::running();
    let hook = Hook::new(&world);
    world.settings(&format!("{}poll: 1h\nreport: 1h\n", hook.settings()));
    world.hand.want("greeter", &world.app, "servus");
    world.hand.publish();
    let syncer = command(&world.home(), &["run"]).spawn().expect("it starts");
    until("it waits", || world.states("greeter") == ["hello pending waiting-policy"]);
    (world, hook, syncer)
}

#[test]
fn a_running_syncer_asks_again_after_half_a_minute() {
    let (world, hook, syncer) = refused_while_running();
    hook.says(0, "");
    until("it goes on", || world.greetings() == ["servus"]);
    until("it is told", || hook.phases().len() > 2);
    assert_eq!(hook.phases(), ["ask greeter apply", "ask greeter apply", "done greeter installed"]);
    terminate(&syncer);
    finish(syncer).good();
}

#[test]
fn a_hook_that_the_site_takes_away_holds_nothing_back_any_more() {
    let (world, hook, syncer) = refused_while_running();
    world.settings("poll: 1h\nreport: 1h\n");
    until("it goes on", || world.greetings() == ["servus"]);
    terminate(&syncer);
    finish(syncer).good();
    assert_eq!(hook.phases(), ["ask greeter apply"]);
}

#[test]
fn a_mistake_in_the_hook_is_named() {
    let world = World::running();
    let mistakes = [
        ("{command: []}", "gates.hook.command: begins with the absolute path"),
        ("{command: [line-idle]}", "gates.hook.command: begins with the absolute path"),
        ("{command: [/x], timeout: 2m}", "gates.hook.timeout: is a duration from 1s to 60s"),
        ("{command: /x}", "hook"),
        ("{}", "command"),
    ];
    world.assert_mistakes(&["once"], |hook| format!("gates: {{hook: {hook}}}\n"), &mistakes);
}
