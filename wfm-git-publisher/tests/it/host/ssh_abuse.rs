//! What strangers, neighbours and local users try over SSH.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use repo_testkit::ssh_key::keygen;
use wfm_git_host::accounts::Role;

use super::ssh::{SshSite, public};
use super::{DEVICE, OTHER, eventually, printed, said};
use crate::support::{Lab, PROGRAM, trusted_program};

#[test]
fn a_key_opens_git_and_nothing_else() {
    let site = SshSite::new();
    let key = site.device(DEVICE);
    let trace = site.site.lab.dir().join("trace");
    let touch = format!("touch {}", trace.display());
    let only_git = "this host only speaks Git";
    for command in [
        touch.as_str(),
        "sh -c id",
        "git-shell",
        "scp -t /tmp",
        &format!("git-upload-pack '/devices/press-01.git'; {touch}"),
        &format!("git-upload-pack \"/devices/press-01.git\" && {touch}"),
        &format!("git-upload-pack $({touch})"),
        &format!("git-upload-pack '/devices/press-01.git' `{touch}`"),
        &format!("git-upload-pack --exec='{touch}' '/devices/press-01.git'"),
        &format!("git-upload-pack '/devices/press-01.git'\n{touch}"),
        &format!("git-upload-pack '/{}'", "a".repeat(100_000)),
        "git-upload-archive '/devices/press-01.git'",
    ] {
        let answer = site.ask(&key, &[command]);
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        assert!(text.contains(&format!("ERR bad-request: {only_git}")), "{command}: {text} {}", said(&answer));
        assert_eq!(answer.status.code(), Some(1), "{command}");
    }
    for path in ["/devices/../control.git", "/../control.git", "//control.git", "/control.git/", "control.git", "/"] {
        let answer = site.ask(&key, &[&format!("git-upload-pack '{path}'")]);
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        assert!(text.contains("ERR not-found: there is nothing here"), "{path}: {text}");
    }
    // Nor a shell, a terminal, files, or a way into the host's network.
    let shell = site.ask(&key, &[]);
    assert!(said(&shell).contains(only_git), "{}", said(&shell));
    let terminal = site.ssh(&key).args(["-tt", &site.at.0]).output().unwrap();
    assert!(said(&terminal).contains("PTY allocation request failed"), "{}", said(&terminal));
    let files = site.ssh(&key).args(["-s", &site.at.0, "sftp"]).output().unwrap();
    assert!(said(&files).contains("subsystem request failed"), "{}", said(&files));
    let port = site.site.address.clone();
    let forward = site.ssh(&key).args(["-W", &port, &site.at.0]).output().unwrap();
    assert!(said(&forward).contains("forwarding failed"), "{}", said(&forward));
    let back = ["-o", "ExitOnForwardFailure=yes", "-N", "-R", "0:127.0.0.1:1"];
    let back = site.ssh(&key).args(back).arg(&site.at.0).output().unwrap();
    assert!(said(&back).contains("remote port forwarding failed"), "{}", said(&back));
    assert!(!trace.exists());
}

#[test]
fn only_what_may_concern_git_is_taken_from_a_client() {
    let site = SshSite::new();
    let key = site.device(DEVICE);
    let trace = site.site.lab.dir().join("trace");
    let mut command = site.ssh(&key);
    command.args(["-o", "SendEnv=GIT_* LD_* BASH_* SSH_*"]).env("GIT_PROTOCOL", "version=2:\"$(id)\"");
    command.env("GIT_TRACE", &trace).env("LD_PRELOAD", "/nonexistent").env("BASH_ENV", "/nonexistent");
    let answer = command.args([&site.at.0, "git-upload-pack '/devices/press-01.git'"]).output().unwrap();
    // The client closes its side at once, which is a good end.
    assert!(answer.stdout.starts_with(b"000eversion 2\n") && answer.status.success(), "{}", said(&answer));
    assert!(!trace.exists());
}

#[test]
fn a_site_behind_one_address_is_not_locked_out_by_wrong_keys_or_silence() {
    let site = SshSite::new();
    let (key, stranger) = (site.device(DEVICE), site.key("stranger"));
    std::thread::scope(|scope| {
        let tries: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..5 {
                        let denied = site.ask(&stranger, &["git-upload-pack '/devices/press-01.git'"]);
                        assert!(said(&denied).contains("Permission denied"), "{}", said(&denied));
                    }
                })
            })
            .collect();
        tries.into_iter().for_each(|one| one.join().unwrap());
    });
    // Many who say nothing take one network's turns, and leave those of others.
    let (_, port) = &site.at;
    let silent: Vec<_> = (0..200).map(|_| TcpStream::connect(format!("127.0.0.1:{port}")).unwrap()).collect();
    let begin = Instant::now();
    let mut beside = site.ssh(&key);
    let answer =
        beside.args(["-b", "127.0.0.2", &site.at.0, "git-upload-pack '/devices/press-01.git'"]).output().unwrap();
    assert!(answer.status.success(), "{}", said(&answer));
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
    drop(silent);
    assert!(eventually(|| site.ask(&key, &["git-upload-pack '/devices/press-01.git'"]).status.success()));
}

#[test]
fn one_account_has_its_share_of_sessions_and_others_theirs() {
    let site = SshSite::with("  limits: {connectionsPerAccount: 6}\n");
    let (key, other) = (site.device(DEVICE), site.device(OTHER));
    let sessions: Vec<_> = (0..6).map(|_| site.session(&key, "devices/press-01.git")).collect();
    let busy = sessions.iter().filter(|(_, said)| said.starts_with("ERR busy: ") && said.contains("; retry-after=1"));
    // Each takes a connection, and a session on it.
    assert_eq!(busy.count(), 3);
    let (mut beside, _) = site.session(&other, "devices/packer-01.git");
    beside.send(&["command=ls-refs\n"]);
    assert!(beside.answer().contains("refs/heads/desired"));
    drop(sessions);
    assert!(eventually(|| site.session(&key, "devices/press-01.git").1.starts_with("version 2")));
}

#[test]
fn nonsense_and_endless_requests_end_with_a_reason_and_cost_little() {
    let site = SshSite::new();
    let key = site.device(DEVICE);
    let said_to = |bytes: &[u8]| {
        let (mut session, _) = site.session(&key, "devices/press-01.git");
        let _ = session.input.as_mut().unwrap().write_all(bytes);
        session.answer()
    };
    assert_eq!(said_to(b"zzzz"), "ERR bad-request: a pkt-line begins with something else than its length\n");
    let command = b"0014command=object-info0000";
    assert!(said_to(command).starts_with("ERR bad-request: "), "{}", said_to(command));
    assert!(said_to(b"0010command=wait0000").starts_with("ERR bad-request: "));
    let endless = [&b"0014command=ls-refs\n"[..], &b"000cno-thin\n".repeat(400_000)].concat();
    assert_eq!(said_to(&endless), "ERR bad-request: the request is larger than 4194304 bytes\n");
    let want = format!("0012command=fetch\n00010032want {}\n0009done\n0000", "1".repeat(40));
    assert!(said_to(want.as_bytes()).contains("not our ref"), "{}", said_to(want.as_bytes()));
}

#[test]
fn a_push_that_never_ends_or_is_none_is_refused_and_moves_nothing() {
    let site = SshSite::with("  limits: {pushBytes: 65536}\n");
    let key = site.device(DEVICE);
    let push = |pack: &[u8]| {
        let mut command = site.ssh(&key);
        command.args([&site.at.0, "git-receive-pack '/devices/press-01.git'"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let bytes = super::push_of(&"1".repeat(40), pack);
        let mut input = child.stdin.take().unwrap();
        let _ = input.write_all(&bytes);
        // Its side stays open: the host finds the end by itself.
        let mut output = String::new();
        let mut out = child.stdout.take().unwrap();
        let _ = out.read_to_string(&mut output);
        drop(input);
        let _ = child.wait();
        output
    };
    let large = [&b"PACK\0\0\0\x02\0\0\0\x01\xb0\x80\x80\x28"[..], &[0x78, 0x01], &[0; 200_000]].concat();
    for pack in [&b"KCAPxxxxxxxxxxxx"[..], &large, b"PACK\0\0\0\x02\0\0\0\x01\x35garbage"] {
        let output = push(pack);
        assert!(!output.contains("ok refs/heads/status"), "{output}");
        assert!(output.contains("ng refs/heads/status") || output.contains("ERR "), "{output}");
    }
    assert_eq!(site.site.lab.tip(DEVICE, "status"), None);
}

#[test]
fn an_sshd_that_is_killed_ends_one_connection_and_no_other() {
    let site = SshSite::new();
    let (key, other) = (site.device(DEVICE), site.device(OTHER));
    let (mut first, _) = site.session(&key, "devices/press-01.git");
    let before = sshds(&site);
    let (mut second, _) = site.session(&other, "devices/packer-01.git");
    for sshd in sshds(&site).iter().filter(|one| !before.contains(one)) {
        let _ = Command::new("kill").args(["-9", &sshd.to_string()]).status();
    }
    assert_eq!(second.answer(), "");
    first.send(&["command=ls-refs\n"]);
    assert!(first.answer().contains("refs/heads/desired"));
    assert!(site.session(&other, "devices/packer-01.git").1.starts_with("version 2"));
}

/// The processes of the host that are sshd's.
fn sshds(site: &SshSite) -> Vec<u32> {
    let children = format!("/proc/{0}/task/{0}/children", site.site.pid());
    // Whichever thread started them.
    let threads = std::fs::read_dir(format!("/proc/{}/task", site.site.pid())).unwrap().flatten();
    let of = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
    let all = threads.map(of).collect::<String>() + &std::fs::read_to_string(children).unwrap_or_default();
    let mut all: Vec<u32> = all.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn the_socket_believes_sshds_user_and_no_other() {
    // Where others can go, and see the socket.
    let place = tempfile::tempdir_in("/run").unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let socket = place.path().join("host.sock");
    let program = place.path().join("helper");
    if std::fs::hard_link(PROGRAM, &program).is_err() {
        std::fs::copy(PROGRAM, &program).unwrap();
    }
    let ssh = format!("  ssh: {{url: \"ssh://nobody@x\", user: nobody, socket: {}}}\n", socket.display());
    let site = super::Site::with(&ssh);
    let store = wfm_git_host::accounts::Store::new(site.lab.home.accounts());
    let key = site.lab.dir().join("key");
    keygen(&key, "ed25519", "");
    store.add_ssh_key_for_device(&DEVICE.parse().unwrap(), public(&key)).unwrap();
    let key = public(&key).key;
    let ask = |user: u32| {
        let mut command = Command::new(&program);
        command.arg("ssh-auth").arg(&socket).args(key.as_str().split(' ')).current_dir("/").uid(user);
        command.output().unwrap()
    };
    for believed in [0, 65_534] {
        let line = printed(&ask(believed));
        assert!(line.starts_with("restrict,command=\"") && line.ends_with(key.as_str()), "{line}");
    }
    let sent_away = ask(1);
    assert!(!sent_away.status.success() && sent_away.stdout.is_empty(), "{}", said(&sent_away));
    // One who says nothing holds up nobody, and one who talks too much is cut off.
    let _silent: Vec<_> = (0..50).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let mut talker = UnixStream::connect(&socket).unwrap();
    let _ = talker.write_all(&vec![b'x'; 100_000]);
    assert_eq!(talker.read(&mut [0]).unwrap_or(0), 0);
    printed(&ask(0));
    let auditor = site.login("aud", Role::Auditor, None);
    assert_eq!(site.get("/metrics", Some(&auditor)).status, 200);
    let (_, log) = site.stop();
    assert!(log.contains("sent away from the socket") && !socket.exists(), "{log}");
}

#[test]
fn helpers_start_quickly_and_say_nothing_of_the_home() {
    let program = trusted_program();
    let begin = Instant::now();
    let answer = Command::new(&program).args(["ssh-serve", "/nowhere/x"]).env_remove("SSH_ORIGINAL_COMMAND").output();
    let answer = answer.unwrap();
    assert!(!answer.status.success() && answer.stdout.is_empty(), "{}", said(&answer));
    assert!(begin.elapsed() < Duration::from_secs(5));
    for shell in ["bash", "zsh", "fish"] {
        let script = printed(&Command::new(&program).args(["completions", shell]).output().unwrap());
        assert!(!script.contains("ssh-auth") && !script.contains("ssh-serve"), "{shell}");
    }
}

#[test]
fn a_socket_that_sshds_user_could_not_reach_is_refused_before_a_client_finds_out() {
    let lab = Lab::with(&[DEVICE]);
    let settings = |socket: &str| {
        let text = format!("serve:\n  names: [localhost]\n  ssh: {{url: \"ssh://nobody@x\", user: nobody{socket}}}\n");
        std::fs::write(lab.home.config(), text).unwrap();
    };
    settings("");
    for command in ["validate", "serve"] {
        let said = lab.run(&[command]).failed(1);
        assert!(
            said.contains("user `nobody` can't reach the socket `") && said.contains("is closed to others"),
            "{said}"
        );
        assert!(said.contains("hint: set `serve: ssh: socket:` in publisher.yaml to a place outside"), "{said}");
    }
    settings(", socket: /run/wfm-git-publisher/host.sock");
    lab.run(&["validate"]).good();
}
