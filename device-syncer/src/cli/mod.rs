//! The command line.

mod logs;
mod show;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use repo_git::CommitId;
use repo_model::{error_chain, text};

use crate::config::{Home, SCHEMA};
use crate::decision::observation::Observation;
use crate::error::{CliError, DIFFERENCES, INTERNAL, USER};
use crate::home;
use crate::host::refs::Ask;
use crate::reconcile::agent;
use crate::reconcile::outcome::HostAnswer;
use crate::reconcile::preview::preview;
use crate::runtimes::sandbox;
use crate::state::requests::Requests;
use crate::state::{loaded, local_condition};

/// Applies what this device's Git repository asks for, and reports what happened.
///
/// A device is joined once (`init`), then `run` follows its repository for as long as it lives: it verifies every
/// signed desired state, plans, applies with docker compose and helm, and pushes signed status commits. It opens no port.
#[derive(Debug, Parser)]
#[command(name = "device-syncer", version, max_term_width = 100)]
pub struct Cli {
    /// The device's home: settings, keys, clone and projects.
    #[arg(long, global = true, default_value = "/var/lib/device-syncer", value_name = "DIR")]
    home: PathBuf,
    /// How logs are written to standard error.
    #[arg(long, global = true, default_value = "text", value_name = "FORM")]
    log: logs::LogForm,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    /// For people.
    #[value(alias = "table")]
    Text,
    /// For programs: texts in it are exactly what strangers wrote, so escape them before you show them.
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Makes this device's home and keys, and prints the line that enrols it.
    ///
    /// Give the line to the operator: `wfm-git-publisher device enroll ID 'LINE'`. Where the host is reached over SSH, a
    /// second line has the key with which the device asks it: give both, to `device enroll ID -`. The keys never leave the
    /// device. Running it again prints the same lines; a newer join file of this device replaces the one before, also to
    /// change between HTTPS and SSH.
    Init {
        /// The file that `wfm-git-publisher device add` wrote.
        #[arg(long, value_name = "FILE")]
        join: PathBuf,
        /// How it is printed.
        #[arg(long, default_value = "text")]
        output: Output,
    },
    /// Follows the repository until SIGTERM or SIGINT.
    Run,
    /// Makes one pass and ends. Exit code 1 if anything isn't as wanted: a service that restarts again and again or is
    /// unhealthy, too.
    Once,
    /// Prints what the next pass would do, and does nothing. Exit code 3 if it would do anything, 1 if it would not, and
    /// something isn't as wanted.
    Plan {
        /// How it is printed.
        #[arg(long, default_value = "text")]
        output: Output,
    },
    /// Prints what was accepted, what stands in the way, each component's state, and how it is now. Needs neither host nor
    /// runtime: what can't be asked is `unknown`. Exit code 0 whatever it says.
    Status {
        /// How it is printed.
        #[arg(long, default_value = "text")]
        output: Output,
    },
    /// Tries again what was given up, at the next pass.
    Retry {
        /// The operator's id of one deployment; all of them if left out.
        deployment: Option<String>,
    },
    /// Accepts a `desired` commit although its history was rewritten or its serial fell, at the next pass.
    ///
    /// For a host that lost its history and says nothing of it. Check with the operator that REV is right: `status`
    /// shows which commit is refused.
    AcceptHistory {
        /// The commit, 40 hex digits.
        rev: String,
    },
    /// Prints the JSON Schema of device.yaml, by which editors complete and check it.
    ///
    /// `init` puts it beside device.yaml as device.schema.json; after an update:
    /// `device-syncer schema > /var/lib/device-syncer/device.schema.json`.
    Schema,
    /// Becomes another program that sees one directory and the system's programs: how strangers' files are resolved.
    #[command(name = sandbox::SUBCOMMAND, hide = true)]
    ResolveInSandbox {
        /// All that the program reads besides programs: its standard input.
        #[arg(long, value_name = "DIR")]
        directory: Option<PathBuf>,
        /// Has the kernel refuse everything else.
        #[arg(long)]
        landlock: bool,
        /// User and group id of the program.
        #[arg(long, value_name = "ID")]
        user: Option<u32>,
        /// The program and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
        program: Vec<OsString>,
    },
    /// Prints completions for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// How long `status` looks at what runs.
const LOOK: Duration = Duration::from_secs(10);

/// Runs the program.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    logs::start(cli.log);
    match std::panic::catch_unwind(|| execute(cli)) {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => {
            eprint!("{}", error.render());
            ExitCode::from(USER)
        }
        Err(_) => ExitCode::from(INTERNAL),
    }
}

fn execute(cli: Cli) -> Result<ExitCode, CliError> {
    let home = Home::new(
        std::path::absolute(&cli.home)
            .map_err(|source| CliError::Io { doing: "can't find the home".to_owned(), source })?,
    );
    match cli.command {
        Command::Init { join, output } => {
            let enrolment = home::init(&home, &join)?;
            print(&match output {
                Output::Text => show::enrolment(&enrolment),
                Output::Json => show::json(&show::EnrolmentOut::of(&enrolment)),
            })?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Run => run(home),
        Command::Once => once(home),
        Command::Plan { output } => plan(home, output),
        Command::Status { output } => status(&home, output),
        Command::Retry { deployment } => {
            let name = deployment.as_deref();
            request(&home, |home| Requests::ask_retry(home, name))
        }
        Command::AcceptHistory { rev } => {
            let commit: CommitId =
                rev.parse().map_err(|error: repo_git::InvalidId| CliError::Input(error.to_string()))?;
            request(&home, |home| Requests::ask_accept_history(home, commit))
        }
        Command::Schema => {
            print(SCHEMA)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::ResolveInSandbox { directory, landlock, user, program } => {
            let mut words = program.into_iter();
            let program = words.next().unwrap_or_default().into();
            let error = sandbox::enter(sandbox::Entry { directory, landlock, user, program, args: words.collect() });
            eprintln!("{}", error_chain(&error));
            Ok(ExitCode::from(if error.is_unsupported() { sandbox::UNSUPPORTED } else { sandbox::FAILED }))
        }
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "device-syncer", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn print(text: &str) -> Result<(), CliError> {
    let written = std::io::stdout().write_all(text.as_bytes());
    written.map_err(|source| CliError::Io { doing: "can't write to standard output".to_owned(), source })
}

fn run(home: Home) -> Result<ExitCode, CliError> {
    let (syncer, _locks) = home::open(home)?;
    let failed = |source| CliError::Io { doing: "can't start the loop".to_owned(), source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    tracing::info!(device = %syncer.device.join.device, "following");
    runtime.block_on(agent::run(syncer)).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}

fn once(home: Home) -> Result<ExitCode, CliError> {
    let (mut syncer, _locks) = home::open(home)?;
    let outcome = syncer.pass(Ask::Host, &|| false)?;
    for problem in outcome.problems.iter().cloned().chain(outcome.not_ready.iter().map(ToString::to_string)) {
        eprintln!("{}", text::lines(&problem));
    }
    if outcome.host == HostAnswer::Unreachable {
        eprintln!("the host can't be reached: {}", syncer.device.join.url);
    }
    Ok(if outcome.is_up_to_date() { ExitCode::SUCCESS } else { ExitCode::from(USER) })
}

fn plan(home: Home, output: Output) -> Result<ExitCode, CliError> {
    let (syncer, _locks) = home::open(home)?;
    let preview = preview(&syncer)?;
    print(&match output {
        Output::Text => show::plan(&preview),
        Output::Json => show::json(&show::PlanOut::of(&preview)),
    })?;
    Ok(match (preview.plan.is_in_sync(), preview.plan.is_as_wanted() && preview.conditions.is_empty()) {
        (false, _) => ExitCode::from(DIFFERENCES),
        (true, false) => ExitCode::from(USER),
        (true, true) => ExitCode::SUCCESS,
    })
}

/// Reads the device state without the lock: a running syncer isn't disturbed.
fn status(home: &Home, output: Output) -> Result<ExitCode, CliError> {
    if !home.join().exists() {
        return Err(home::HomeError::NotInitialised { path: home.root().to_owned() }.into());
    }
    let (device_state, desired) = loaded::peek(&home.repository());
    let observation =
        observe(home).inspect_err(|reason| eprintln!("how what runs is can't be told: {}", text::lines(reason)));
    let (host, pass) = (local_condition::read(&home.contact()), local_condition::read(&home.failure()));
    let status =
        show::StatusOut::of(&device_state, desired.as_ref(), observation.as_ref().ok()).with_trouble(host, pass);
    // What can't be read is said by `observe`.
    let status = status.at_host(home::host_of(home).ok());
    print(&match output {
        Output::Text => show::status(&status),
        Output::Json => show::json(&status),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// What runs now, unless that takes too long to find out.
fn observe(home: &Home) -> Result<Observation, String> {
    let runtimes = home::runtimes_of(home).map_err(|error| error_chain(&error))?;
    let (found, looked) = mpsc::channel();
    // It may be left behind: it only asks.
    std::thread::spawn(move || found.send(runtimes.observe()));
    looked.recv_timeout(LOOK).map_err(|_| format!("the runtime doesn't answer within {} s", LOOK.as_secs()))
}

fn request(home: &Home, ask: impl FnOnce(&Home) -> std::io::Result<()>) -> Result<ExitCode, CliError> {
    if !home.join().exists() {
        return Err(home::HomeError::NotInitialised { path: home.root().to_owned() }.into());
    }
    ask(home).map_err(|source| CliError::Io { doing: "can't leave the request".to_owned(), source })?;
    print("noted; the next pass does it (`device-syncer once`, or the running one)\n")?;
    Ok(ExitCode::SUCCESS)
}
