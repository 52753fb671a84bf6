use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::*;

fn of(variables: &[(&str, &str)]) -> ServiceManager {
    let variables: HashMap<_, _> = variables.iter().copied().collect();
    ServiceManager::of(|name| variables.get(name).map(OsString::from))
}

/// What listens as a service manager does; a minute is for machines under load.
fn listen(path: &Path) -> UnixDatagram {
    let socket = UnixDatagram::bind(path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
}

fn heard(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 4096];
    let length = socket.recv(&mut bytes).expect("a datagram");
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
}

#[test]
fn each_thing_is_one_datagram_and_a_strangers_text_is_one_line_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = listen(&path);
    let service = of(&[("NOTIFY_SOCKET", path.to_str().unwrap())]);
    service.ready();
    service.status("hello\nREADY=0\u{1b}[2J");
    service.stopping();
    let said: Vec<_> = (0..3).map(|_| heard(&socket)).collect();
    assert_eq!(said, ["READY=1", "STATUS=hello\\nREADY=0\\u{1b}[2J", "STOPPING=1"]);
}

#[test]
fn nobody_is_told_without_a_socket_and_nothing_ends_because_nobody_hears() {
    let service = of(&[("WATCHDOG_USEC", "1000")]);
    service.ready();
    assert_eq!(block_on(service.feed_during(async { 7 })), 7);
    of(&[("NOTIFY_SOCKET", "/nowhere/notify")]).ready();
    for name in ["", "notify", "vsock:2:1234"] {
        assert!(of(&[("NOTIFY_SOCKET", name)]).socket.is_none(), "{name}");
    }
}

#[test]
fn the_watchdog_is_fed_while_work_lives_and_no_longer_than_its_last_word_holds() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = listen(&path);
    let service = of(&[("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "30000")]);
    let (ends, service) = (Arc::new(AtomicBool::new(false)), Arc::new(service));
    let (until, works) = (ends.clone(), service.clone());
    let work = thread::spawn(move || {
        block_on(works.feed_during(async {
            works.alive(Duration::from_secs(3600));
            while !until.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }));
    });
    for _ in 0..5 {
        assert_eq!(heard(&socket), "WATCHDOG=1");
    }
    // It goes on, but gives no sign any more: what was sent before is all that comes.
    service.alive(Duration::ZERO);
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut left = 0;
    while socket.recv(&mut [0; 64]).is_ok() {
        left += 1;
        assert!(left < 10, "fed without a sign of life");
    }
    service.alive(Duration::from_secs(3600));
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(heard(&socket), "WATCHDOG=1");
    ends.store(true, Ordering::Relaxed);
    work.join().unwrap();
}

#[test]
fn work_that_blocks_its_task_starves_the_watchdog() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = listen(&path);
    let service = of(&[("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "3000")]);
    service.alive(Duration::from_secs(3600));
    block_on(service.feed_during(async { thread::sleep(Duration::from_millis(200)) }));
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut [0; 64]).is_err());
}

#[test]
fn the_watchdog_of_another_process_is_not_fed() {
    let watchdog = |pid: &str| {
        let variables = [("NOTIFY_SOCKET", "@x"), ("WATCHDOG_USEC", "5000000"), ("WATCHDOG_PID", pid)];
        of(&variables).watchdog
    };
    assert_eq!(watchdog(&std::process::id().to_string()), Some(Duration::from_secs(5)));
    assert_eq!(watchdog("1"), None);
}

#[test]
fn a_watchdog_of_its_own_bites_only_who_is_not_fed() {
    let (tell, heard) = std::sync::mpsc::channel();
    let watchdog = Watchdog::begin(Duration::from_millis(300), move || tell.send(()).unwrap());
    for _ in 0..20 {
        thread::sleep(Duration::from_millis(20));
        watchdog.feed();
    }
    assert!(heard.try_recv().is_err());
    heard.recv_timeout(Duration::from_secs(60)).expect("it bites");
    let (tell, heard) = std::sync::mpsc::channel::<()>();
    drop(Watchdog::begin(Duration::from_millis(3), move || tell.send(()).unwrap()));
    assert!(heard.recv_timeout(Duration::from_secs(60)).is_err(), "nobody is left to feed it");
}

#[test]
fn the_service_managers_watchdog_counts_before_the_programs_own() {
    let (theirs, own) = (Duration::from_secs(5), Some(Duration::from_secs(300)));
    let service = of(&[("NOTIFY_SOCKET", "@x"), ("WATCHDOG_USEC", "5000000")]).or_watchdog(own);
    assert_eq!((service.watchdog(), service.is_own), (Some(theirs), false));
    let service = of(&[]).or_watchdog(own);
    assert_eq!((service.watchdog(), service.is_own), (own, true));
    assert_eq!(of(&[]).or_watchdog(None).watchdog(), None);
}
