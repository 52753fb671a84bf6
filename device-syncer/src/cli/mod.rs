//! The command line: each command is a file, with its help, and exit codes that stand in `docs/exit-codes.md`.

mod accept_history;
mod approve;
mod approve_removals;
mod collect_answer;
mod diagnostics;
mod doctor;
mod enroll;
mod explain;
mod history;
mod hold;
mod init;
mod leave;
mod log;
mod logs;
mod once;
mod plan;
mod rekey;
mod resolve_in_sandbox;
mod restart;
mod retry;
mod run;
mod schema;
mod set_host;
mod show;
mod status;
mod sync_now;
mod trust;
mod watch;
mod windows;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::{generate, shells};
use serde::Serialize;

use crate::config::Home;
use crate::error::{CliError, INTERNAL};
use crate::home;
use crate::reconcile::answers;
use crate::runtimes::sandbox;
use crate::state::layout;

/// The name of this program.
const NAME: &str = "device-syncer";

/// Applies what this device's Git repository asks for, and reports what happened.
///
/// A device is joined once (`init`), then `run` follows its repository for as long as it lives: it verifies every
/// signed desired state, plans, applies with docker compose and helm, and pushes signed status commits. It opens no port.
#[derive(Debug, Parser)]
#[command(name = NAME, version, max_term_width = 100)]
pub struct Cli {
    /// The device's home: settings, keys, clone and projects.
    #[arg(long, global = true, default_value = "/var/lib/device-syncer", value_name = "DIR")]
    home: PathBuf,
    /// How logs are written to standard error.
    #[arg(long, global = true, default_value = "text", value_name = "FORM")]
    log: log::LogForm,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(init::Args),
    Enroll(enroll::Args),
    Run(run::Args),
    Once(once::Args),
    Plan(plan::Args),
    Status(status::Args),
    Explain(explain::Args),
    History(history::Args),
    Logs(logs::Args),
    Doctor(doctor::Args),
    Diagnostics(diagnostics::Args),
    SyncNow(sync_now::Args),
    Retry(retry::Args),
    Restart(restart::Args),
    Hold(hold::HoldArgs),
    Release(hold::ReleaseArgs),
    Approve(approve::Args),
    Reject(approve::RejectArgs),
    Windows(windows::Args),
    AcceptHistory(accept_history::Args),
    SetHost(set_host::Args),
    Trust(trust::Args),
    Rekey(rekey::Args),
    Leave(leave::Args),
    Schema(schema::Args),
    #[command(name = sandbox::SUBCOMMAND, hide = true)]
    ResolveInSandbox(resolve_in_sandbox::Args),
    #[command(name = answers::SUBCOMMAND, hide = true)]
    CollectAnswer(collect_answer::Args),
    /// Prints completions for a shell.
    #[command(after_help = "Examples:\n  source <(device-syncer completions bash)")]
    Completions {
        /// The shell that is to complete commands.
        shell: Shell,
    },
}

impl Command {
    /// Whether it reads or writes anything of the home.
    fn has_home(&self) -> bool {
        !matches!(self, Self::Schema(_) | Self::ResolveInSandbox(_) | Self::Completions { .. })
    }
}

/// A shell that completes commands: those that Linux devices have.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Fish,
    Zsh,
}

/// Prints the completions of this program for a shell.
fn print_completions(shell: Shell) {
    let (mut command, mut out) = (Cli::command(), std::io::stdout());
    match shell {
        Shell::Bash => generate(shells::Bash, &mut command, NAME, &mut out),
        Shell::Fish => generate(shells::Fish, &mut command, NAME, &mut out),
        Shell::Zsh => generate(shells::Zsh, &mut command, NAME, &mut out),
    }
}

/// The option of every command that prints.
#[derive(Debug, Clone, Copy, clap::Args)]
struct OutputArgs {
    /// Prints for people, or for programs.
    #[arg(long, default_value = "text")]
    output: Output,
}

/// The form of what a command prints.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    /// Tables and sentences, for people.
    #[value(alias = "table")]
    Text,
    /// For programs: texts in it are exactly what strangers wrote, so escape them before you show them.
    Json,
}

impl OutputArgs {
    /// Prints a result in the one form or in the other.
    fn print(self, text: impl FnOnce() -> String, json: impl FnOnce() -> String) -> Result<(), CliError> {
        print(&match self.output {
            Output::Text => text(),
            Output::Json => json(),
        })
    }
}

/// Runs the program and gives its exit code.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    log::start(cli.log);
    match std::panic::catch_unwind(|| execute(cli)) {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => {
            eprint!("{}", error.render());
            ExitCode::from(error.code())
        }
        Err(_) => ExitCode::from(INTERNAL),
    }
}

fn execute(cli: Cli) -> Result<ExitCode, CliError> {
    let failed = |source| CliError::Io { doing: "can't find the home".to_owned(), source };
    let home = Home::new(std::path::absolute(&cli.home).map_err(failed)?);
    if cli.command.has_home() {
        layout::check(&home)?;
    }
    match cli.command {
        Command::Init(args) => init::run(&home, &args),
        Command::Enroll(args) => enroll::run(&home, &args),
        Command::Run(args) => run::run(home, &args),
        Command::Once(args) => once::run(home, &args),
        Command::Plan(args) => plan::run(home, &args),
        Command::Status(args) => status::run(&home, &args),
        Command::Explain(args) => explain::run(home, &args),
        Command::History(args) => history::run(&home, &args),
        Command::Logs(args) => logs::run(&home, &args),
        Command::Doctor(args) => doctor::run(&home, &args),
        Command::Diagnostics(args) => diagnostics::run(&home, &args),
        Command::SyncNow(args) => sync_now::run(&home, &args),
        Command::Retry(args) => retry::run(&home, &args),
        Command::Restart(args) => restart::run(&home, &args),
        Command::Hold(args) => hold::hold(&home, &args),
        Command::Release(args) => hold::release(&home, &args),
        Command::Approve(args) => approve::run(&home, &args),
        Command::Reject(args) => approve::reject(&home, &args),
        Command::Windows(args) => windows::run(&home, &args),
        Command::SetHost(args) => set_host::run(&home, &args),
        Command::Trust(args) => trust::run(&home, &args),
        Command::Rekey(args) => rekey::run(&home, &args),
        Command::Leave(args) => leave::run(&home, &args),
        Command::AcceptHistory(args) => accept_history::run(&home, &args),
        Command::Schema(args) => schema::run(&args),
        Command::CollectAnswer(args) => collect_answer::run(&home, &args),
        Command::ResolveInSandbox(args) => Ok(resolve_in_sandbox::run(args)),
        Command::Completions { shell } => {
            print_completions(shell);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn print(text: &str) -> Result<(), CliError> {
    let written = std::io::stdout().write_all(text.as_bytes());
    written.map_err(|source| CliError::Io { doing: "can't write to standard output".to_owned(), source })
}

/// Fails unless `init --join` made the home.
fn must_be(home: &Home) -> Result<(), CliError> {
    match home.join().exists() {
        true => Ok(()),
        false => Err(home::HomeError::NotInitialised { path: home.root().to_owned() }.into()),
    }
}

/// Leaves a request for the next pass, and prints for programs what is asked for.
fn request(
    home: &Home,
    output: OutputArgs,
    asked: &impl Serialize,
    ask: impl FnOnce(&Home) -> std::io::Result<()>,
) -> Result<ExitCode, CliError> {
    must_be(home)?;
    ask(home).map_err(|source| CliError::Io { doing: "can't leave the request".to_owned(), source })?;
    print_noted(output, asked)
}

/// Tells that something is noted for the next pass.
fn print_noted(output: OutputArgs, asked: &impl Serialize) -> Result<ExitCode, CliError> {
    let text = || "noted; the next pass does it (`device-syncer once`, or the running one)\n".to_owned();
    output.print(text, || show::json(asked))?;
    Ok(ExitCode::SUCCESS)
}
