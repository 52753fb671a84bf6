//! What a service manager hears of a publisher that runs: real datagrams, as systemd would get them.

use std::process::{Child, Stdio};
use std::time::Duration;

use repo_testkit::service_manager::ServiceManager;
use repo_testkit::terminate;

use crate::support::Lab;

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(60);

fn start(lab: &Lab, manager: &ServiceManager, args: &[&str], watchdog: Duration) -> Child {
    let mut command = lab.command(args);
    manager.manages(&mut command, watchdog);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn end(mut child: Child) {
    terminate(&child);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_service_manager_hears_that_it_follows_what_is_wrong_and_that_it_ends() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    let manager = ServiceManager::at(&lab.dir().join("notify"));
    let child = start(&lab, &manager, &["run"], LONG);
    let said = manager.until("STATUS=");
    assert_eq!(said[0], "READY=1");
    assert!(said[1].starts_with("STATUS=commit ") && said[1].ends_with(" is published"), "{said:?}");
    let good = lab.read("fleet.yaml");
    lab.write("fleet.yaml", "id: [");
    lab.commit();
    let status = manager.until("STATUS=the pass failed").pop().unwrap();
    assert!(status.contains("fleet.yaml:1:"), "{status}");
    lab.write("fleet.yaml", good.replace("poll: 15s", "poll: 20s"));
    lab.commit();
    assert!(manager.until("STATUS=commit ").pop().unwrap().ends_with(" is published"));
    terminate(&child);
    manager.until("STOPPING=1");
    end(child);
}

#[test]
fn a_host_is_ready_when_it_listens_and_both_loops_feed_the_watchdog() {
    let lab = Lab::with(&["press-01"]);
    lab.publish_all();
    repo_git::durable::replace_file(
        &lab.home.config(),
        b"poll: 1h\nserve: {names: [localhost], listen: 127.0.0.1:0}\n",
        0o600,
    )
    .unwrap();
    for args in [["run"], ["serve"]] {
        let manager = ServiceManager::at(&lab.dir().join(args[0]));
        let child = start(&lab, &manager, &args, SHORT);
        assert_eq!(manager.until("READY"), ["READY=1"]);
        manager.hears_it_live(30);
        terminate(&child);
        manager.until("STOPPING=1");
        end(child);
    }
}
