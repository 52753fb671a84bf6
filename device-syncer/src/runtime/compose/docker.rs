//! How docker is called.

use std::ffi::OsString;
use std::path::Path;

use super::ComposeSettings;
use crate::runtime::client::{Client, Tool, environment};

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
    let mut env = environment([
        ("PATH", settings.path.clone().into()),
        ("HOME", settings.home.clone().into_os_string()),
        // Nothing is fetched while a file is resolved (compose 2.40: `pkg/remote`).
        ("COMPOSE_EXPERIMENTAL_GIT_REMOTE", "false".into()),
        ("COMPOSE_EXPERIMENTAL_OCI_REMOTE", "false".into()),
    ]);
    env.extend(settings.environment.clone());
    Client { tool: &DOCKER, program: settings.docker.clone(), env, always: Vec::new() }
}

/// `compose` for one project, before the verb. Without a file compose knows a project by its labels alone.
pub(super) fn compose(project: &str, file: Option<(&Path, &Path, &Path)>) -> Vec<OsString> {
    let mut args: Vec<OsString> = ["compose", "--ansi", "never", "-p", project].map(OsString::from).into();
    if let Some((file, directory, env_file)) = file {
        let options = [("-f", file), ("--project-directory", directory), ("--env-file", env_file)];
        args.extend(options.into_iter().flat_map(|(option, path)| [option.into(), path.into()]));
    }
    args
}
