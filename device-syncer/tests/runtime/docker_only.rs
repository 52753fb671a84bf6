//! What only real Docker, Compose and a real registry can show.

mod docker_values {
    use std::collections::BTreeMap;
    use std::process::Command;

    use device_syncer::runtimes::{Runtime, Source};
    use serde_json::Value;

    use crate::world::{CHECK, World};

    const VALUES: &[(&str, &str)] = &[
        ("VERSION", "1.10"),
        ("NORWAY", "no"),
        ("DOLLAR", "$x ${y} $$z $$$ $"),
        ("QUOTES", "a\"b'c`d\\e\\n"),
        ("LINES", "one\ntwo\r\n\ttabbed\n"),
        ("SPACES", "  inner  spaces  "),
        ("UNICODE", "Grüße 😀 \u{85}\u{2028}\u{2029}\u{feff}\u{7f}\u{1}"),
        ("EMPTY", ""),
        ("YAML", "{a: [b, *c]} # d: &e !!f |"),
        ("EQUALS", "=a=b="),
        ("HASH", "# not a comment"),
    ];

    fn compose() -> String {
        let variables: Vec<String> = VALUES.iter().map(|(name, _)| format!("{name}: '${{{name}}}'")).collect();
        format!(
            "services: {{web: {{image: 'margo-test/busybox:1', command: [sleep, '1000'], {CHECK}, environment: {{{}, \
             PINNED: \"no\", NUMBER: \"1.10\", DOLLAR_IN_FILE: 'a$$b', BOTH: 'x${{DOLLAR}}y'}}, \
             labels: {{l: '${{DOLLAR}}'}}}}}}",
            variables.join(", ")
        )
    }

    #[test]
    fn every_value_arrives_in_the_container_exactly_as_written() {
        let mut world = World::docker();
        world.archive(&[("compose.yaml", &compose())]);
        VALUES.iter().for_each(|(name, value)| world.parameter(name, value));
        world.prefetch_and_apply().unwrap();
        let container = world.identities()["web"].0.clone();
        let seen = world.ask(&["exec", &container, "env", "-0"]);
        let seen: BTreeMap<&str, &str> = seen.split('\0').filter_map(|pair| pair.split_once('=')).collect();
        for (name, value) in VALUES {
            assert_eq!(seen.get(name), Some(value), "{name}");
        }
        for (name, value) in
            [("PINNED", "no"), ("NUMBER", "1.10"), ("DOLLAR_IN_FILE", "a$b"), ("BOTH", "x$x ${y} $$z $$$ $y")]
        {
            assert_eq!(seen.get(name), Some(&value), "{name}");
        }
        let label = world.ask(&["inspect", "--format", "{{index .Config.Labels \"l\"}}", &container]);
        assert_eq!(label.trim_end_matches('\n'), "$x ${y} $$z $$$ $");
    }

    #[test]
    fn the_file_that_runs_resolves_to_itself() {
        let mut world = World::docker();
        world.archive(&[("compose.yaml", &compose())]);
        VALUES.iter().for_each(|(name, value)| world.parameter(name, value));
        world.runtime.prefetch(&world.component, Source::Anywhere, &|| false).unwrap();
        world.prefetch_and_apply().unwrap();
        let file = world.project_dir().join("compose.resolved.yaml");
        let output = Command::new("docker")
            .args(["compose", "-p", &world.component.project, "--env-file", "/dev/null", "-f"])
            .arg(&file)
            .args(["config", "--format", "json"])
            .envs(&world.settings.environment)
            .output()
            .unwrap();
        let again: Value = serde_json::from_slice(&output.stdout).unwrap();
        let written: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(again, written);
    }
}

mod docker_files {
    use std::os::unix::fs::PermissionsExt;

    use device_syncer::runtimes::{Runtime, Source};

    use crate::world::{CHECK, World};

    #[test]
    fn configs_and_env_files_of_the_archive_arrive_and_changes_are_noticed() {
        let mut world = World::docker();
        let text =
            "services: {web: {image: 'margo-test/busybox:1', command: [sleep, '1000'], env_file: app.env, CHECK, \
            configs: [inline, file], secrets: [key], environment: {FROM_DOT_ENV: '${DOT}'}}, \
            other: {image: 'margo-test/busybox:1', command: [sleep, '1000'], CHECK}}\n\
            configs: {inline: {content: 'hello ${NAME}'}, file: {file: ./conf.txt}}\nsecrets: {key: {file: key.txt}}"
                .replace("CHECK", CHECK);
        let archive = |world: &mut World, conf: &str| {
            let files = [
                ("compose.yaml", &*text),
                ("app.env", "A=b c"),
                ("conf.txt", conf),
                ("key.txt", "k"),
                (".env", "DOT=dot"),
            ];
            world.archive(&files);
        };
        archive(&mut world, "one");
        world.parameter("NAME", "you");
        world.prefetch_and_apply().unwrap();
        let first = world.identities();
        let shell = "cat /inline /file /run/secrets/key; echo $A $FROM_DOT_ENV";
        assert_eq!(world.ask(&["exec", &first["web"].0, "sh", "-c", shell]), "hello youonekb c dot\n");
        archive(&mut world, "two");
        world.prefetch_and_apply().unwrap();
        let second = world.identities();
        assert_eq!(world.ask(&["exec", &second["web"].0, "cat", "/file"]), "two");
        world.parameter("NAME", "all");
        world.prefetch_and_apply().unwrap();
        let third = world.identities();
        assert_eq!(world.ask(&["exec", &third["web"].0, "cat", "/inline"]), "hello all");
        assert!(first["other"] == second["other"] && second["other"] == third["other"]);
        assert!(first["web"].0 != second["web"].0 && second["web"].0 != third["web"].0);
    }

    #[test]
    fn files_that_may_hold_secrets_are_for_us_alone() {
        let mut world = World::docker();
        world.app("hello");
        world.prefetch_and_apply().unwrap();
        for file in ["compose.resolved.yaml", "marker.json"] {
            let mode = std::fs::metadata(world.project_dir().join(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
        let staging = world.settings.cache_dir.join("staging");
        assert_eq!(std::fs::read_dir(staging).unwrap().count(), 0);
    }

    #[test]
    fn what_compose_would_read_elsewhere_is_refused_before_it_does() {
        let mut world = World::docker();
        for (text, code) in [
            ("services: {a: {image: i, env_file: /etc/passwd}}", "artifact-invalid"),
            ("include: ['oci://registry.invalid/x']\nservices: {a: {image: i}}", "artifact-invalid"),
            ("services: {a: {image: i, build: .}}", "policy-denied"),
            ("services: {a: {image: i, container_name: foreign}}", "policy-denied"),
            ("services: {a: {provider: {type: sh}}}", "policy-denied"),
            ("services: {a: {image: i, use_api_socket: true}}", "policy-denied"),
            (
                "services: {a: {image: i, volumes: ['vol:/v']}}\nvolumes: {vol: {driver_opts: {type: none, o: bind, device: /}}}",
                "policy-denied",
            ),
            (
                "services: {a: {image: i, networks: [n]}}\nnetworks: {n: {external: true, name: bridge}}",
                "policy-denied",
            ),
            ("services: {a: {image: i, labels: {device-syncer.fleet: x}}}", "policy-denied"),
            ("services: {a: {image: i, ports: ['80:80']}}", "policy-denied"),
            ("services: {a: {image: i, nonsense: 1}}", "artifact-invalid"),
            ("services: {a: {image: '${MISSING:?must be set}'}}", "artifact-invalid"),
            ("services: {}", "artifact-invalid"),
        ] {
            world.archive(&[("compose.yaml", text)]);
            let error = world.runtime.prefetch(&world.component, Source::Anywhere, &|| false).unwrap_err();
            assert_eq!((error.code().as_str(), error.is_transient()), (code, false), "{text}: {error}");
        }
        assert!(!world.project_dir().exists());
    }

    #[test]
    fn what_a_site_does_not_admit_is_refused_as_compose_resolves_it() {
        let mut world = World::docker();
        let policy = "{images: ['margo-test/*'], ceilings: {memory: 64Mi, cpus: 0.5}}";
        let policy = serde_yaml::from_str(policy).unwrap();
        world.settings.policy = policy;
        world.restart();
        let within = "mem_limit: 64m, cpus: 0.5";
        for (service, reason) in [
            (format!("image: 'busybox:1', {within}"), "image: busybox isn't among `policy.images`"),
            (format!("image: '${{MISSING:-evil.example/a}}:1', {within}"), "image: evil.example/a isn't among"),
            ("image: 'margo-test/busybox:1', cpus: 0.5".to_owned(), "memory: without a limit, and so over"),
            ("image: 'margo-test/busybox:1', cpus: 0.5, mem_limit: 65m".to_owned(), "memory: over `policy.ceilings"),
            ("image: 'margo-test/busybox:1', mem_limit: 64m, cpus: 0.6".to_owned(), "cpus: over `policy.ceilings"),
            (
                "image: 'margo-test/busybox:1', deploy: {resources: {limits: {memory: 64m, cpus: '0.6'}}}".to_owned(),
                "cpus: over `policy.ceilings",
            ),
        ] {
            world.archive(&[("compose.yaml", &format!("services: {{a: {{{service}}}}}"))]);
            let error = world.runtime.prefetch(&world.component, Source::Anywhere, &|| false).unwrap_err();
            assert_eq!((error.code().as_str(), error.is_transient()), ("policy-denied", false), "{service}: {error}");
            assert!(error.to_string().contains(reason), "{service}: {error}");
        }
        for within in [within, "deploy: {resources: {limits: {memory: 64m, cpus: '0.5'}}}"] {
            let text = format!("services: {{a: {{image: 'margo-test/busybox:1', {within}}}}}");
            world.archive(&[("compose.yaml", &text)]);
            world.runtime.prefetch(&world.component, Source::Anywhere, &|| false).unwrap();
        }
    }
}

mod docker_up {
    use device_syncer::decision::observation::Condition;
    use device_syncer::runtimes::{Cancel, Runtime, RuntimeError, Source};

    use crate::world::{CHECK, World};

    #[test]
    fn an_up_that_is_ended_halfway_is_completed_by_the_next_apply() {
        let mut world = World::docker();
        let text =
            "services:\n  slow: {image: 'margo-test/busybox:1', command: [sh, -c, 'sleep 3; touch /up; sleep 1000'], \
            healthcheck: {test: [CMD, test, -e, /up], interval: 1s, retries: 100}}\n  \
            next: {image: 'margo-test/busybox:1', command: [sleep, '1000'], CHECK, \
            depends_on: {slow: {condition: service_healthy}}}"
                .replace("CHECK", CHECK);
        world.archive(&[("compose.yaml", &text)]);
        let prepared = world.runtime.prefetch(&world.component, Source::Anywhere, &|| false).unwrap();
        let begun =
            || !world.ask(&["ps", "--quiet", "--filter", &format!("name={}", world.component.project)]).is_empty();
        let error = world.runtime.apply(&prepared, &Cancel::whatever(&begun)).unwrap_err();
        assert!(matches!(error, RuntimeError::Cancelled), "{error}");
        assert_eq!(world.observed().unwrap().input_digest, None, "half made");
        let slow = world.identities()["slow"].clone();
        world.prefetch_and_apply().unwrap();
        let found = world.observed().unwrap();
        assert_eq!((found.condition, found.input_digest), (Condition::Running, Some(world.component.input_digest)));
        assert_eq!(world.identities()["slow"], slow, "what was made already stays");
    }

    #[test]
    fn a_dependency_that_never_gets_healthy_is_named() {
        let mut world = World::docker();
        let text = "services:\n  sick: {image: 'margo-test/busybox:1', \
            healthcheck: {test: [CMD, 'false'], interval: 1s, retries: 1}}\n  \
            next: {image: 'margo-test/busybox:1', depends_on: {sick: {condition: service_healthy}}}";
        world.archive(&[("compose.yaml", text)]);
        let error = world.prefetch_and_apply().unwrap_err();
        assert_eq!(error.code().as_str(), "health-timeout", "{error}");
        assert!(error.to_string().contains("`sick`") && error.to_string().contains("unhealthy"), "{error}");
    }

    #[test]
    fn what_the_engine_refuses_is_permanent_and_said_as_it_was() {
        let mut world = World::docker();
        world.archive(&[("compose.yaml", "services: {web: {image: 'margo-test/busybox:1', command: [/nowhere]}}")]);
        let error = world.prefetch_and_apply().unwrap_err();
        assert_eq!((error.code().as_str(), error.is_transient()), ("compose-failed", false), "{error}");
        assert!(error.to_string().contains("/nowhere"), "{error}");
        assert_eq!(world.observed().unwrap().input_digest, None);
    }
}

mod docker_registry {
    use repo_artifacts::{Lock, Reference, Registry, RegistryError, Settings, pack};
    use repo_model::Digest;

    use device_syncer::runtimes::{Runtime, Source};

    use crate::world::{World, needed};

    fn setup(world: &mut World) -> (Registry, Reference) {
        let host = needed("MARGO_TEST_REGISTRY");
        world.settings.registry = Settings { plain_http: [host.clone()].into(), ..Settings::default() };
        world.restart();
        world.component.repository = format!("oci://{host}/device-syncer/{}", world.component.project);
        world.component.lock = None;
        let reference = Reference::parse(&world.component.repository, &world.component.revision).unwrap();
        (Registry::new(world.settings.registry.clone()), reference)
    }

    fn archive(text: &str) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        repo_git::durable::replace_file(&dir.path().join("compose.yaml"), text.as_bytes(), 0o644).unwrap();
        pack(dir.path(), "app").unwrap()
    }

    #[test]
    fn a_tag_means_what_it_meant_when_it_was_locked() {
        let mut world = World::docker();
        let (registry, reference) = setup(&mut world);
        let lock = registry.push(&reference, archive("services: {web: {image: 'margo-test/busybox:1'}}")).unwrap();
        assert_eq!(registry.resolve(&reference).unwrap(), lock);
        let moved = registry.push(&reference, archive("services: {web: {image: 'margo-test/busybox:2'}}")).unwrap();
        assert_ne!(moved, lock);
        world.component.lock = Some(lock);
        let prepared = world.runtime.prefetch(&world.component, Source::Anywhere, &|| false).unwrap();
        assert_eq!(prepared.content(), lock.content);
        let lies = Lock { content: Digest::of(b"other"), ..lock };
        world.component.lock = Some(lies);
        let error = world.runtime.prefetch(&world.component, Source::Anywhere, &|| false).unwrap_err();
        assert_eq!(error.code().as_str(), "artifact-digest-changed", "{error}");
    }

    #[test]
    fn a_full_cache_needs_no_registry() {
        let mut world = World::docker();
        let (registry, reference) = setup(&mut world);
        let lock = registry.push(&reference, archive("services: {web: {image: 'margo-test/busybox:1'}}")).unwrap();
        world.component.lock = Some(lock);
        world.runtime.prefetch(&world.component, Source::Anywhere, &|| false).unwrap();
        world.component.repository = "oci://127.0.0.1:1/gone".to_owned();
        world.runtime.prefetch(&world.component, Source::Anywhere, &|| false).unwrap();
        world.runtime.prune_cache(&[lock.content].into()).unwrap();
        world.runtime.prefetch(&world.component, Source::Anywhere, &|| false).unwrap();
        world.runtime.prune_cache(&Default::default()).unwrap();
        let error = world.runtime.prefetch(&world.component, Source::Anywhere, &|| false).unwrap_err();
        assert_eq!((error.code().as_str(), error.is_transient()), ("artifact-unavailable", true), "{error}");
    }

    #[test]
    fn what_is_not_there_or_not_an_archive_is_an_error() {
        let mut world = World::docker();
        let (registry, reference) = setup(&mut world);
        let error = world.runtime.prefetch(&world.component, Source::Anywhere, &|| false).unwrap_err();
        assert_eq!((error.code().as_str(), error.is_transient()), ("artifact-unavailable", true), "{error}");
        assert!(matches!(registry.resolve(&reference), Err(RegistryError::NotFound { .. })));
        registry.push(&reference, b"not an archive".to_vec()).unwrap();
        let error = world.runtime.prefetch(&world.component, Source::Anywhere, &|| false).unwrap_err();
        assert_eq!((error.code().as_str(), error.is_transient()), ("artifact-invalid", false), "{error}");
        let tiny = Registry::new(Settings { max_layer: 5, ..world.settings.registry.clone() });
        assert!(matches!(tiny.pull(&reference, None), Err(RegistryError::Invalid { .. })));
        world.component.repository = "oci://127.0.0.1:1/none".to_owned();
        let error = world.runtime.prefetch(&world.component, Source::Anywhere, &|| false).unwrap_err();
        assert_eq!((error.code().as_str(), error.is_transient()), ("artifact-unavailable", true), "{error}");
    }
}

/// What the engine itself says of where its data are.
mod docker_capabilities {
    use crate::world::World;

    #[test]
    fn docker_tells_where_it_keeps_what_takes_the_storage() {
        let root = World::docker().runtime.data_root().expect("docker's directory can be seen from here");
        assert!(root.join("volumes").is_dir(), "{}", root.display());
    }
}

/// An engine that is reached over TCP is asked by `docker`.
mod docker_engine {
    use std::io::copy;
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::thread;

    use crate::world::{CHECK, World, needed};

    /// Lets whoever connects talk to the engine.
    fn over_tcp() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let host = needed("DOCKER_HOST");
        let socket = host.strip_prefix("unix://").unwrap().to_owned();
        let between = |from: TcpStream, to: UnixStream| {
            let (mut back, mut answers) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            thread::spawn(move || {
                let _ = copy(&mut &from, &mut &to);
                let _ = to.shutdown(Shutdown::Write);
            });
            thread::spawn(move || {
                let _ = copy(&mut answers, &mut back);
                let _ = back.shutdown(Shutdown::Both);
            });
        };
        thread::spawn(move || {
            listener.incoming().flatten().for_each(|from| between(from, UnixStream::connect(&socket).unwrap()));
        });
        format!("tcp://{address}")
    }

    #[test]
    fn what_is_seen_is_the_same_whether_the_engine_is_asked_itself_or_by_docker() {
        let mut world = World::docker();
        let service = |more: &str| format!("{{image: 'margo-test/busybox:1', command: [sleep, '1000'], {more}}}");
        let services = format!(
            "services: {{web: {}, done: {}, odd: {}}}\nvolumes: {{kept: {{}}}}\n",
            service(&format!("{CHECK}, volumes: ['./data:/data', 'kept:/kept']")),
            service("network_mode: none, entrypoint: [sh, -c, 'exit 0'], restart: 'no'"),
            service(&format!("{CHECK}, labels: {{odd: \"\\\"\\n{{{{\\\\äöü😀\"}}")),
        );
        world.archive(&[("compose.yaml", &services), ("data/a.txt", "a")]);
        world.prefetch_and_apply().unwrap();
        let (seen, root, versions) = (world.observed(), world.runtime.data_root(), world.runtime.versions());
        let identities = world.identities();
        world.settings.environment.insert("DOCKER_HOST".into(), over_tcp().into());
        world.restart();
        assert_eq!(world.observed(), seen);
        assert_eq!((world.runtime.data_root(), world.runtime.versions()), (root, versions));
        world.prefetch_and_apply().unwrap();
        let (mut before, mut after) = (identities, world.identities());
        // `up` runs what has ended once more.
        assert!(before.remove("done").is_some() && after.remove("done").is_some());
        assert_eq!(after, before, "ownership, mounts and images are seen alike");
    }
}
