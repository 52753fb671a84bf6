//! This program as sshd calls it: `ssh-auth` for each key that a client offers, and `ssh-serve` in the place of the command
//! that it asks for. Like the hooks, these are no commands for people, and nothing of the command line is set up for them.

use std::process::ExitCode;

use wfm_git_host::ssh::helper::{self, AUTH, SERVE, Serve};

/// The longest command that is passed on; the host refuses it.
const MAX_COMMAND: usize = 4096;

/// Asks the running host, if the program was called by sshd.
pub(super) fn called() -> Option<ExitCode> {
    let mut arguments = std::env::args();
    let program = arguments.next()?;
    let done = match arguments.next()?.as_str() {
        AUTH => auth(&program, &arguments.collect::<Vec<_>>()),
        SERVE => serve(&arguments.collect::<Vec<_>>()),
        _ => return None,
    };
    Some(done.unwrap_or_else(|reason| {
        eprintln!("{reason}");
        ExitCode::FAILURE
    }))
}

fn auth(program: &str, arguments: &[String]) -> Result<ExitCode, String> {
    let [socket, algorithm, base64] = arguments else { return Err(wrong()) };
    // A key that nobody has is no failure: sshd gets no line, and asks for the next one.
    let line = helper::auth(program, socket, algorithm, base64).map_err(|error| unreachable(&error))?;
    super::print(&line.unwrap_or_default());
    Ok(ExitCode::SUCCESS)
}

fn serve(arguments: &[String]) -> Result<ExitCode, String> {
    let [socket, key] = arguments else { return Err(wrong()) };
    let variable = |name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let mut command = variable("SSH_ORIGINAL_COMMAND").ok_or("this host only speaks Git")?;
    if command.len() > MAX_COMMAND {
        command = String::new();
    }
    let client = variable("SSH_CONNECTION");
    let protocol = variable("GIT_PROTOCOL").filter(|protocol| protocol.len() <= MAX_COMMAND);
    let serve = Serve { key: key.clone(), command, protocol, client };
    helper::serve(socket, serve).map(ExitCode::from).map_err(|error| unreachable(&error))
}

fn unreachable(error: &std::io::Error) -> String {
    format!("the host can't be asked: {error}")
}

fn wrong() -> String {
    "sshd calls this as the host's own configuration says, and nobody else does".to_owned()
}
