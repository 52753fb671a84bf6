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

/// A docker client for one daemon.
pub(super) fn client(settings: &ComposeSettings) -> Client {
    let mut env = base(settings);
    env.extend(settings.environment.clone());
    Client { tool: &DOCKER, program: settings.docker.clone(), env, always: Vec::new(), ends: Arc::default() }
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
    Client { tool: &DOCKER, program: program.to_owned(), env, always: Vec::new(), ends: Arc::default() }
}

/// What resolves files, with the first of its arguments: docker, or, where the plugin is in `docker.config`, which may
/// hold passwords, the plugin itself.
pub(super) fn resolving(settings: &ComposeSettings) -> (PathBuf, &'static [&'static str]) {
    let config = settings.environment.get(OsStr::new("DOCKER_CONFIG"));
    let plugin = config.map(|config| Path::new(config).join("cli-plugins/docker-compose"));
    match plugin.filter(|plugin| plugin.is_file()) {
        Some(plugin) => (plugin, &[]),
        None => (settings.docker.clone(), &["compose"]),
    }
}

/// `compose` for one project, before the verb. Without a file compose knows a project by its labels alone.
pub(super) fn compose(project: &str, file: Option<(&Path, &Path, &Path)>) -> Vec<OsString> {
    let mut args = vec!["compose".into()];
    args.extend(options(project, file));
    args
}

/// The arguments behind `docker compose`.
pub(super) fn options(project: &str, file: Option<(&Path, &Path, &Path)>) -> Vec<OsString> {
    let mut args: Vec<OsString> = ["--ansi", "never", "-p", project].map(OsString::from).into();
    if let Some((file, directory, env_file)) = file {
        let options = [("-f", file), ("--project-directory", directory), ("--env-file", env_file)];
        args.extend(options.into_iter().flat_map(|(option, path)| [option.into(), path.into()]));
    }
    args
}
