//! `leave`.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use repo_git::durable;
use repo_model::{DeviceId, error_chain, text};
use serde::Serialize;

use super::show::json;
use super::{Output, OutputArgs, must_be, print};
use crate::config::{Home, Settings};
use crate::decision::device_state::AppliedComponent;
use crate::error::CliError;
use crate::home;
use crate::runtimes::Runtimes;
use crate::state::hold::Holds;
use crate::state::loaded;

/// How long the removal of one component may take, besides the time that its containers have for stopping.
const REMOVAL: Duration = Duration::from_secs(120);

/// Ends this device's membership in its fleet: its keys, its account and its clone go, and it follows nobody any more.
///
/// What was deployed runs on, unless `--remove` is given; then it is ended and removed first. Volumes, the applications' own files
/// (`projects`), `device.yaml` and device files stay in any case. It asks before. End the syncer before (`systemctl disable
/// --now device-syncer`), and have the operator take the device out of the fleet: it can't sign anything afterwards.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  device-syncer leave                 # shows what goes and what stays, and asks\n  \
                        device-syncer leave --remove --yes  # for scripts"
)]
pub(super) struct Args {
    /// Ends and removes everything that was deployed here.
    #[arg(long)]
    remove: bool,
    /// Begins without asking whether it is meant, as a script needs it.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// Who left, for programs.
#[derive(Debug, Serialize)]
struct Left<'a> {
    device: &'a DeviceId,
    /// What was deployed here, as `deployment/component`.
    components: Vec<&'a str>,
    /// Whether that was ended and removed; it runs on otherwise.
    removed: bool,
}

pub(super) fn run(home: &Home, args: &Args) -> Result<ExitCode, CliError> {
    must_be(home)?;
    let _locks = home::lock(home)?;
    let device = home::joined(home)?.device;
    let parts = parts(home);
    let lines: String = parts.iter().map(|part| format!("- {}\n", part.name)).collect();
    let fate = match (parts.is_empty(), args.remove) {
        (true, _) => "Nothing was deployed here.\n".to_owned(),
        (false, true) => format!("These are ended and removed; their volumes and files stay:\n{lines}"),
        (false, false) => format!("These run on, and nobody looks after them (`--remove` ends them):\n{lines}"),
    };
    let intent =
        || format!("`{device}` leaves its fleet: keys, account and clone in `{}` go.\n{fate}", home.root().display());
    match args.output.output {
        Output::Text => print(&intent())?,
        Output::Json if args.yes => {}
        Output::Json => return Err(nobody()),
    }
    if !args.yes {
        ask()?;
    }
    if args.remove {
        remove(home, &parts)?;
    }
    forget(home)?;
    let text = || {
        format!(
            "left. `device.yaml`, `device-files` and `projects` stay in `{}`. Have the operator take `{device}` out of the fleet.\n",
            home.root().display()
        )
    };
    let components = parts.iter().map(|part| part.name.as_str()).collect();
    let left = Left { device: &device, components, removed: args.remove };
    args.output.print(text, || json(&left))?;
    Ok(ExitCode::SUCCESS)
}

/// Something that was deployed.
struct Part {
    /// `deployment/component`, as it is printed.
    name: String,
    component: AppliedComponent,
}

/// All that was deployed and not removed since.
fn parts(home: &Home) -> Vec<Part> {
    let (device_state, desired) = loaded::peek(&home.repository());
    let all = device_state.deployments.iter().flat_map(|(id, one)| {
        let name = device_state.name_of(*id, desired.as_ref());
        let part = move |component: &AppliedComponent| Part {
            name: text::cell(&format!("{name}/{}", component.name)),
            component: component.clone(),
        };
        one.inputs.components.iter().map(part)
    });
    all.collect()
}

fn nobody() -> CliError {
    CliError::Input("nobody can be asked here: `--yes` says it".to_owned())
}

fn ask() -> Result<(), CliError> {
    if !io::stdin().is_terminal() {
        return Err(nobody());
    }
    let failed = |source| CliError::Io { doing: "can't ask".to_owned(), source };
    print("Go on? Type yes: ")?;
    io::stdout().flush().map_err(failed)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(failed)?;
    match answer.trim() {
        "yes" => Ok(()),
        _ => Err(CliError::Input("nothing was changed".to_owned())),
    }
}

/// Removes them, those first that were applied last. One that can't be removed leaves the device as a member, so that this can
/// be said again.
fn remove(home: &Home, parts: &[Part]) -> Result<(), CliError> {
    let file = Settings::read(home).ok().and_then(|settings| settings.gates.hold);
    if let Some(hold) = Holds::default().read(home, file.as_deref(), &home::clocks(home)).first() {
        return Err(CliError::Input(format!("nothing is removed while it is held {}", hold.message())));
    }
    let runtimes = home::runtimes_of(home)?;
    for Part { name, component } in parts.iter().rev() {
        runtimes.remove(component.kind, &component.project, REMOVAL, &|| false).map_err(|error| {
            let why = error_chain(&error);
            CliError::Input(format!("`{name}` can't be removed, and the device is still a member: {why}"))
        })?;
        print(&format!("removed: {name}\n"))?;
    }
    Ok(())
}

/// Takes down all that makes this a device of its fleet. The join file goes last: until then this can be said again.
fn forget(home: &Home) -> Result<(), CliError> {
    let root = home.root();
    let failed = |source| CliError::Io { doing: format!("can't take down `{}`", root.display()), source };
    for directory in
        [home.repository(), root.join("repository.damaged"), home.cache(), home.helm_values(), home.answers()]
    {
        durable::remove_dir_all(&directory).map_err(failed)?;
    }
    let keys = [
        home.key(),
        home.next_key(),
        home.old_key(),
        home.rekey(),
        home.ssh_key(),
        home.next_ssh_key(),
        home.old_ssh_key(),
        home.certificate(),
        home.next_certificate(),
        home.hmac_key(),
        home.account(),
        home.instance(),
        home.enrolment(),
    ];
    let notes = [
        home.contact(),
        home.failure(),
        home.retries(),
        home.hold(),
        home.opened(),
        home.approvals(),
        home.approved_removals(),
        home.site(),
        home.moved(),
        home.roster(),
    ];
    for file in keys.into_iter().chain(notes).chain([home.floor(), home.join()]) {
        durable::remove_file(&file).map_err(failed)?;
    }
    Ok(())
}
