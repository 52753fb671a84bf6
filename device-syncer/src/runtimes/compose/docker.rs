//! How docker is called.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::settings::ComposeSettings;
use crate::runtimes::client::{Client, Tool, environment};

/// Says that its daemon is gone, or goes while it works, in these words from docker 20.10 to 28.
pub(super) static DOCKER: Tool = Tool {
    name: "docker",
    stdout_limit: 32 << 20,
    unavailable: &[
        "Cannot connect to the Docker daemon",
        "error during connect",
        "Is the docker daemon running",
        "unexpected EOF",
        "server is shutting down",
        "context canceled",
    ],
    probe: &["version", "--format", "{{.Server.Version}}"],
};

/// The docker client, unless the settings name another one.
const DEFAULT: &str = "docker";

/// Where packages put the plugins of docker's client, in the order in which it looks (docker/cli,
/// `cli-plugins/manager/manager_unix.go`).
const PLUGINS: [&str; 4] = [
    "/usr/local/lib/docker/cli-plugins",
    "/usr/local/libexec/docker/cli-plugins",
    "/usr/lib/docker/cli-plugins",
    "/usr/libexec/docker/cli-plugins",
];

/// A docker client for one daemon.
pub(super) fn client(settings: &ComposeSettings) -> Client {
    let mut env = base(settings);
    env.extend(settings.environment.clone());
    let program = settings.docker.clone();
    Client { tool: &DOCKER, program, env, first: Vec::new(), always: Vec::new(), ends: Arc::default() }
}

/// The same for Compose: its own program where that is known, and else docker.
pub(super) fn compose_client(settings: &ComposeSettings, docker: &Client) -> Client {
    let is_default = settings.docker == Path::new(DEFAULT);
    let found = settings.compose.clone().or_else(|| is_default.then(|| plugin(settings, &PLUGINS)).flatten());
    match found {
        Some(program) => Client { program, ..docker.clone() },
        None => Client { first: vec!["compose".into()], ..docker.clone() },
    }
}

fn base(settings: &ComposeSettings) -> Vec<(OsString, OsString)> {
    environment([
        ("PATH", settings.path.clone().into()),
        ("HOME", settings.home.clone().into_os_string()),
        ("TMPDIR", settings.home.clone().into_os_string()),
        // Nothing is fetched while a file is resolved (compose 2.40: `pkg/remote`).
        ("COMPOSE_EXPERIMENTAL_GIT_REMOTE", "false".into()),
        ("COMPOSE_EXPERIMENTAL_OCI_REMOTE", "false".into()),
    ])
}

/// The client that resolves files in the sandbox. Resolving needs no engine and no account of a registry, so it gets
/// neither's place.
pub(super) fn resolver(settings: &ComposeSettings, program: &Path) -> Client {
    let mut env = base(settings);
    env.extend(environment([
        ("DOCKER_HOST", "unix:///nonexistent/docker.sock".into()),
        ("DOCKER_CONFIG", "/nonexistent".into()),
    ]));
    let program = program.to_owned();
    Client { tool: &DOCKER, program, env, first: Vec::new(), always: Vec::new(), ends: Arc::default() }
}

/// What resolves files, with the first of its arguments: what runs Compose, and, where the plugin is in `docker.config`,
/// which may hold passwords, the plugin itself.
pub(super) fn resolving(settings: &ComposeSettings, compose: &Client) -> (PathBuf, Vec<OsString>) {
    match plugin(settings, &[]).filter(|_| settings.compose.is_none()) {
        Some(plugin) => (plugin, Vec::new()),
        None => (compose.program.clone(), compose.first.clone()),
    }
}

/// Compose as a plugin of docker's, in the configuration's directory or else in the first of these that has it.
fn plugin(settings: &ComposeSettings, directories: &[&str]) -> Option<PathBuf> {
    let config =
        settings.environment.get(OsStr::new("DOCKER_CONFIG")).map(|config| Path::new(config).join("cli-plugins"));
    let directories = directories.iter().map(PathBuf::from);
    config.into_iter().chain(directories).map(|directory| directory.join("docker-compose")).find(|file| file.is_file())
}

/// Compose's arguments for one project, before the verb. Without a file it knows a project by its labels alone.
pub(super) fn options(project: &str, file: Option<(&Path, &Path, &Path)>) -> Vec<OsString> {
    let mut args: Vec<OsString> = ["--ansi", "never", "-p", project].map(OsString::from).into();
    if let Some((file, directory, env_file)) = file {
        let options = [("-f", file), ("--project-directory", directory), ("--env-file", env_file)];
        args.extend(options.into_iter().flat_map(|(option, path)| [option.into(), path.into()]));
    }
    args
}

#[cfg(test)]
mod tests {
    use repo_git::durable;

    use super::*;
    use crate::runtimes::compose::testing::settings;

    #[test]
    fn compose_runs_by_itself_unless_somebody_chose_another_docker() {
        let dir = tempfile::tempdir().unwrap();
        let plugin = dir.path().join("cli-plugins/docker-compose");
        durable::create_dir_all(&dir.path().join("cli-plugins"), 0o755).unwrap();
        durable::replace_file(&plugin, b"", 0o755).unwrap();
        let calls = |change: fn(&mut ComposeSettings)| {
            let mut settings = settings(dir.path());
            settings.environment = [("DOCKER_CONFIG".into(), dir.path().into())].into();
            change(&mut settings);
            let compose = compose_client(&settings, &client(&settings));
            let resolving = resolving(&settings, &compose);
            ((compose.program, compose.first), resolving)
        };
        let docker = |program: &str| (PathBuf::from(program), vec![OsString::from("compose")]);
        let itself = |program: &Path| (program.to_owned(), Vec::new());

        assert_eq!(calls(|_| ()), (itself(&plugin), itself(&plugin)));
        assert_eq!(calls(|all| all.docker = "/opt/docker".into()), (docker("/opt/docker"), itself(&plugin)));
        let chosen = calls(|all| (all.docker, all.compose) = ("/opt/docker".into(), Some("/opt/compose".into())));
        assert_eq!(chosen, (itself(Path::new("/opt/compose")), itself(Path::new("/opt/compose"))));
        durable::remove_file(&plugin).unwrap();
        assert_eq!(calls(|all| all.docker = "/opt/docker".into()), (docker("/opt/docker"), docker("/opt/docker")));
    }
}
