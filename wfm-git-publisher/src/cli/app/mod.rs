//! `app`: what is done with application packages.

mod add;
pub(super) mod devices;
mod diff;
mod list;
mod push;
mod remove;
mod show;

use clap::Subcommand;

use super::Place;
use crate::error::Failure;

/// What is done with application packages
///
/// `app add` brings a vendor's package into the fleet as it is, `app push` moves what you packed yourself to a registry.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Add(add::AddArgs),
    List(list::ListArgs),
    Show(show::ShowArgs),
    Diff(diff::DiffArgs),
    Devices(devices::DevicesArgs),
    Remove(remove::RemoveArgs),
    Push(push::PushArgs),
}

pub(super) fn run(place: &Place, command: Command) -> Result<u8, Failure> {
    match command {
        Command::Add(args) => add::run(place, &args),
        Command::List(args) => list::run(place, &args),
        Command::Show(args) => show::run(place, &args),
        Command::Diff(args) => diff::run(place, &args),
        Command::Devices(args) => devices::run(place, &args),
        Command::Remove(args) => remove::run(place, &args),
        Command::Push(args) => push::run(place, &args),
    }
}
