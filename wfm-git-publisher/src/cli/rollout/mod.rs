//! `rollout`: how changes reach devices wave by wave, and what persons say of it.

mod list;
mod say;
mod show;

use clap::Subcommand;

use super::Place;
use crate::error::Failure;
pub(super) use show::watcher;

/// Shows how changes reach devices wave by wave, and says what a person decides about that
///
/// A fleet that has `rollout` in fleet.yaml, or a deployment that has, doesn't change many running devices at once: each
/// `publish` looks what the devices so far verifiably say, and releases the next wave. What a person says of a rollout is
/// a file of the fleet, rollouts/NUMBER.yaml; these commands write and commit it.
#[derive(Debug, Subcommand)]
#[command(verbatim_doc_comment)]
pub(super) enum Command {
    List(list::ListArgs),
    Show(show::ShowArgs),
    Pause(say::PauseArgs),
    Approve(say::ApproveArgs),
    Resume(say::ResumeArgs),
    Promote(say::PromoteArgs),
}

pub(super) fn run(place: &Place, command: Command) -> Result<u8, Failure> {
    match command {
        Command::List(args) => list::run(place, &args),
        Command::Show(args) => show::run(place, &args),
        Command::Pause(args) => say::pause(place, &args),
        Command::Approve(args) => say::approve(place, &args),
        Command::Resume(args) => say::resume(place, &args),
        Command::Promote(args) => say::promote(place, &args),
    }
}
