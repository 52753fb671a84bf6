//! `logs`: what the containers of a deployment print.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use repo_model::margo::ProfileType;
use repo_model::text;
use serde::Serialize;

use super::show::json_line;
use super::{Output, OutputArgs, must_be};
use crate::config::{Home, Settings};
use crate::decision::device_state::AppliedComponent;
use crate::error::CliError;
use crate::home;
use crate::reconcile::device_files;
use crate::reconcile::encrypted::{Keys, deployments};
use crate::runtimes::{Lines, Redactor};
use crate::state::loaded;

/// Prints what the containers of a deployment print, as docker keeps it: each line with component, container and time.
///
/// Nothing in it steers a terminal, and values of device files and encrypted ones are `***`. What a chart's pods print is not asked here:
/// `kubectl logs` shows it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  device-syncer logs hello\n  device-syncer logs hello --component web --tail 1000\n  \
                        device-syncer logs hello --follow        # until Ctrl-C"
)]
pub(super) struct Args {
    /// The operator's id of the deployment, or its `deploymentId`.
    deployment: String,
    /// One component of it; all of them if left out.
    #[arg(long, value_name = "NAME")]
    component: Option<String>,
    /// The newest lines of each container that are printed.
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    tail: usize,
    /// Goes on with what is printed from now on.
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// A line, for `--output json`: one document a line.
#[derive(Debug, Serialize)]
struct LineOut<'a> {
    component: &'a str,
    /// As the engine gives it: the container, `|`, the time and what was printed.
    line: &'a str,
}

pub(super) fn run(home: &Home, args: &Args) -> Result<ExitCode, CliError> {
    must_be(home)?;
    let components = components(home, &args.deployment, args.component.as_deref())?;
    let redactor = redactor(home);
    let (sender, lines) = channel::<(String, String)>();
    let asked = Lines { tail: args.tail, follow: args.follow };
    let threads: Vec<_> = components.into_iter().map(|one| follow(home, one, asked, sender.clone())).collect();
    drop(sender);
    let mut out = std::io::stdout().lock();
    for (component, line) in lines {
        let line = redactor.clean(&line);
        let line = match args.output.output {
            Output::Text => format!("{component}  {}\n", text::line(&line)),
            Output::Json => json_line(&LineOut { component: &component, line: &line }),
        };
        match out.write_all(line.as_bytes()) {
            // Who reads wants no more; what still runs ends with this program's pipes.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
            written => {
                written.map_err(|source| CliError::Io { doing: "can't write to standard output".to_owned(), source })?
            }
        }
    }
    threads.into_iter().try_for_each(|one| one.join().unwrap_or(Ok(()))).map_err(CliError::Input)?;
    Ok(ExitCode::SUCCESS)
}

/// Sends the lines of one component from a thread of its own.
pub(super) fn follow(
    home: &Home,
    component: AppliedComponent,
    asked: Lines,
    lines: Sender<(String, String)>,
) -> thread::JoinHandle<Result<(), String>> {
    let home = home.clone();
    thread::spawn(move || {
        let name = component.name.to_string();
        of(&home, &component, &asked, &mut |line| lines.send((name.clone(), line.to_owned())).is_ok())
    })
}

/// Gives each line of one component, as it was printed.
pub(super) fn of(
    home: &Home,
    component: &AppliedComponent,
    asked: &Lines,
    each: &mut dyn FnMut(&str) -> bool,
) -> Result<(), String> {
    if component.kind != ProfileType::Compose {
        return Err(format!("`{}` is a chart: `kubectl logs` shows what its pods print", component.name));
    }
    let runtimes = home::runtimes_of(home).map_err(|error| repo_model::error_chain(&error))?;
    let compose = runtimes.compose.as_ref().ok_or("device.yaml says `docker: {use: false}`")?;
    compose.logs(&component.project, asked, each).map_err(|error| repo_model::error_chain(&error))
}

/// What is here of a deployment, or one component of it.
pub(super) fn components(home: &Home, asked: &str, component: Option<&str>) -> Result<Vec<AppliedComponent>, CliError> {
    let (device_state, _) = loaded::peek(&home.repository());
    let mut all = device_state.deployments.into_iter();
    let found = all.find(|(id, one)| one.inputs.names().any(|name| name.as_str() == asked) || id.to_string() == asked);
    let Some((_, found)) = found else {
        return Err(CliError::Input(format!(
            "no deployment `{asked}` runs here: `device-syncer status` shows which do"
        )));
    };
    let mut components = found.inputs.components;
    let names: Vec<_> = components.iter().map(|one| one.name.to_string()).collect();
    components.retain(|one| component.is_none_or(|name| one.name.as_str() == name));
    match component.filter(|_| components.is_empty()) {
        Some(name) => {
            Err(CliError::Input(format!("deployment `{asked}` has no component `{name}`; it has {}", names.join(", "))))
        }
        None => Ok(components),
    }
}

/// Knows the values of all device files, and all encrypted ones, that are long enough not to be there by chance.
pub(super) fn redactor(home: &Home) -> Redactor {
    let directory = Settings::read(home).map(|settings| settings.device_files);
    let names = directory.as_ref().ok().and_then(|directory| std::fs::read_dir(directory).ok()).into_iter().flatten();
    let values: Vec<_> = names
        .flatten()
        .filter_map(|entry| device_files::read(directory.as_ref().ok()?, entry.file_name().to_str()?).ok())
        .chain(encrypted(home))
        .filter(|value| value.len() >= SECRET)
        .collect();
    Redactor::new(values.iter().map(String::as_str))
}

/// The encrypted values of what is wanted, and of what ran well before.
fn encrypted(home: &Home) -> Vec<String> {
    let (device_state, desired) = loaded::peek(&home.repository());
    Keys::read(home).values(deployments(desired.as_ref(), &device_state))
}

/// A value that is shorter is no secret, and is found everywhere.
const SECRET: usize = 6;
