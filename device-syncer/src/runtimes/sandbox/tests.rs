use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use repo_git::durable;

use super::*;

fn settings() -> SandboxSettings {
    SandboxSettings { program: repo_testkit::program("device-syncer"), user: 60917 }
}

/// What a program comes to in the sandbox.
fn run(confinement: Confinement, directory: &Path, program: &str, args: &[&str]) -> Output {
    let mut all = Sandbox::new(settings()).arguments(confinement, Some(directory), Path::new(program));
    all.extend(args.iter().map(OsString::from));
    let spec = Spec {
        program: settings().program,
        args: all,
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        timeout: QUERY,
        stdout_limit: 10_000,
        redactor: Redactor::default(),
    };
    command::run(&spec, &|| false).unwrap()
}

fn write(path: &Path, text: &str, mode: u32) {
    durable::create_dir_all(path.parent().unwrap(), 0o755).unwrap();
    durable::replace_file(path, text.as_bytes(), mode).unwrap();
}

#[test]
fn a_tool_reads_the_files_that_it_is_given_and_nothing_else_of_the_host() {
    let dir = tempfile::tempdir().unwrap();
    let (given, key, open) = (dir.path().join("given"), dir.path().join("home/key"), dir.path().join("open"));
    write(&given.join("below/file"), "given", 0o644);
    write(&key, "canary", 0o600);
    write(&open, "canary", 0o644);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let tries = |names: &[&str]| names.iter().map(|name| format!("cat {name} && echo read;")).collect::<String>();
    let ours = tries(&[&key.display().to_string(), "/dev/fd/0/../home/key", "/proc/$PPID/environ"]);
    let others = tries(&[&open.display().to_string(), "/etc/passwd", "/proc/self/environ"]);
    let others = format!("{others} ls / && echo read; exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected");
    for confinement in CONFINEMENTS.into_iter().filter(|one| one.is_closed()) {
        let script = format!(
            "cat {DIRECTORY}/below/file; ls {DIRECTORY}; echo x >{DIRECTORY}/new && echo written; echo x >/dev/null; \
             {ours} {}",
            if confinement.landlock { &others } else { "" }
        );
        let output = run(confinement, &given, "bash", &["-c", &script]);
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert_eq!(stdout, "givenbelow\n", "{confinement:?}: {}", output.stderr);
        if confinement.user {
            let id = run(confinement, &given, "id", &[]);
            assert!(String::from_utf8_lossy(&id.stdout).starts_with("uid=60917 gid=60917 groups=60917"), "{id:?}");
        }
    }
    // And all of it would have been found.
    let output = run(Confinement::OPEN, &given, "bash", &["-c", &format!("{ours} {others}")]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(stdout.matches("read\n").count(), 7, "{}", output.stderr);
    assert!(stdout.ends_with("connected\n"), "{}", output.stderr);
}

#[test]
fn a_device_uses_the_strongest_confinement_that_it_has() {
    let sandbox = Sandbox::new(settings());
    let expected = Confinement { landlock: true, user: geteuid().is_root() };
    assert_eq!(sandbox.confinement().unwrap(), expected, "the tests need a kernel with Landlock");
    // No user has this id: what can't be had is left out, and the rest stays.
    let sandbox = Sandbox::new(SandboxSettings { user: u32::MAX, ..settings() });
    assert_eq!(sandbox.confinement().unwrap(), Confinement { landlock: true, user: false });
}

#[test]
fn a_device_that_can_have_no_sandbox_knows_it_and_a_bad_moment_is_not_taken_for_that() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("syncer");
    let sandbox = || Sandbox::new(SandboxSettings { program: program.clone(), ..settings() });
    write(
        &program,
        "#!/bin/sh\ncase \" $* \" in *' --user '*) kill -SYS $$;; *' --landlock '*) exit 124;; esac\n",
        0o755,
    );
    let found = sandbox().confinement().unwrap();
    assert_eq!((found, found.is_closed()), (Confinement::OPEN, false));
    write(&program, "#!/bin/sh\necho 'no memory' >&2; exit 125\n", 0o755);
    let error = sandbox().confinement().unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("no memory"), "{error}");
}

#[test]
fn a_sandbox_that_cannot_be_started_says_what_to_do() {
    let sandbox = Sandbox::new(SandboxSettings { program: "/nowhere/syncer".into(), ..settings() });
    let error = sandbox.confinement().unwrap_err();
    assert_eq!((error.code().as_str(), error.is_transient()), ("runtime-unavailable", true));
    assert!(error.to_string().contains("/nowhere/syncer") && error.to_string().contains("/proc"), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let output = run(CONFINEMENTS[1], dir.path(), "no-such-tool", &[]);
    assert_eq!(output.status.code(), Some(FAILED.into()));
    assert!(output.stderr.contains("no-such-tool"), "{output:?}");
    let own = dir.path().join("docker");
    write(&own, "#!/bin/sh\necho $0 $1\n", 0o700);
    let output = run(CONFINEMENTS[0], dir.path(), &own.display().to_string(), &["it"]);
    assert_eq!(output.status.code(), Some(UNSUPPORTED.into()));
    assert!(["docker`", "60917", "everybody", "docker.resolveUser"].iter().all(|word| output.stderr.contains(word)));
    std::fs::set_permissions(&own, PermissionsExt::from_mode(0o755)).unwrap();
    let output = run(CONFINEMENTS[0], dir.path(), &own.display().to_string(), &["it"]);
    assert!(output.stdout.ends_with(b" it\n"), "a script is a program: {output:?}");
}

#[test]
fn only_what_is_said_of_the_given_files_is_quoted() {
    for (output, quoted) in [
        ("validating /proc/self/fd/0/compose.yaml: a/b", Some("validating compose.yaml: a/b")),
        ("\"/proc/self/fd/0/a b/x.env\" line 3", Some("\"a b/x.env\" line 3")),
        (
            "service \"web\" has neither an image nor a build context",
            Some("service \"web\" has neither an image nor a build context"),
        ),
        ("failed to read /etc/shadow: line 1: unexpected character", None),
        ("open ~/x", None),
        ("open \"/x\"", None),
        ("https://host/x", None),
        ("compose.yaml names ../x", None),
        ("/proc/self/fd/0/../x", None),
        ("/proc/self/fd/3/x", None),
    ] {
        assert_eq!(quotable(output).as_deref(), quoted, "{output}");
    }
}
