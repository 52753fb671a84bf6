//! What holds a port that something else wants, on real Docker.

use std::fs;
use std::path::Path;

use repo_testkit::ports::free_port;

use crate::docker::{CHECK, Real};
use crate::world::{App, push};

/// Publishes an application that wants this port of the machine.
fn application(directory: &Path, name: &str, port: u16) -> App {
    let compose = format!(
        "services:
  web:
    image: margo-test/busybox:1
    command: [sleep, infinity]
    ports: ['127.0.0.1:{port}:80']
    {CHECK}
"
    );
    fs::create_dir_all(directory).unwrap();
    fs::write(directory.join("compose.yaml"), compose).unwrap();
    push(directory, name, "1.0.0")
}

#[test]
fn a_port_that_is_held_by_what_can_not_be_removed_yet_is_waited_for() {
    let (real, port) = (Real::enrolled(), free_port());
    let name = format!("ports-{}", real.hand.fleet());
    let app = application(&real.path("application"), &name, port);
    real.hand.want("greeter", &app, "hello");
    real.hand.publish();
    real.once().good();
    real.syncer(&["hold", "greeter", "--by", "j.doe", "--why", "line 2 is running"]).good();
    real.hand.drop("greeter");
    real.hand.want("other", &app, "hello");
    real.hand.publish();
    for _ in 0..2 {
        real.once().ended(1);
        assert_eq!(real.states("greeter"), ["hello removing held"]);
        assert_eq!(real.states("other"), ["hello installing compose-failed"], "{}", real.message("other"));
    }
    let message = real.message("other");
    assert!(message.starts_with("tried again until all is removed"), "{message}");
    assert!(message.contains("port is already allocated") || message.contains("address already in use"), "{message}");
    let told = real.told().join("; ");
    assert_eq!(told.matches("other/hello pending > installing").count(), 1, "{told}");
    real.syncer(&["release", "greeter"]).good();
    real.once().good();
    assert_eq!(real.states("greeter"), ["hello removed"]);
    assert_eq!(real.states("other"), ["hello installed"]);
    // Now nothing is in its way any more: what fails is final.
    real.hand.want("third", &app, "hello");
    real.hand.publish();
    real.once().ended(1);
    assert_eq!(real.states("third"), ["hello failed compose-failed"]);
    assert_eq!(real.states("other"), ["hello installed"]);
}
