//! `init`.

use std::path::PathBuf;

use jiff::Timestamp;
use uuid::Uuid;

use super::Place;
use crate::error::Failure;
use crate::host::Home;
use crate::operator::{InitOptions, init};

/// Makes a new fleet: a repository with a working example, and the publisher's home beside it
///
/// The repository gets a commented compose application, three devices with labels and one deployment. The home
/// (DIR.wfm) gets a root key, a publisher key and the publisher's memory; nothing secret is ever in the repository.
///
///   wfm-git-publisher init my-fleet
///   wfm-git-publisher init plant-2 --registry registry.example:5000 --image registry.example:5000/busybox:1.36
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// A new or empty directory
    dir: PathBuf,

    /// The fleet's name; by default the directory's
    #[arg(long)]
    name: Option<String>,

    /// The registry that the example's archive is pushed to
    #[arg(long, value_name = "HOST:PORT", default_value = "localhost:5000")]
    registry: String,

    /// The image that the example runs
    #[arg(long, default_value = "busybox:1.36")]
    image: String,
}

pub(super) fn run(place: &Place, args: Args) -> Result<u8, Failure> {
    let dir = std::path::absolute(&args.dir)?;
    let home = match &place.home {
        Some(home) => Home::at(std::path::absolute(home)?),
        None => Home::beside(&dir),
    };
    let named = dir.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = args.name.or(named).unwrap_or_else(|| "my-fleet".to_owned());
    if name.is_empty() || name.len() > 100 || name.chars().any(char::is_control) {
        return Err(Failure::new("a fleet's name has 1 to 100 characters").hint("choose one with --name"));
    }
    let id = Uuid::new_v4().into();
    let options = InitOptions { name, id, registry: args.registry, image: args.image, now: Timestamp::now() };
    let made = init(&dir, home, &options)?;
    super::print(&format!(
        "fleet: {}\nhome:  {}\n\n\
         Next: look around in {}, then\n  \
         wfm-git-publisher -C {} app push applications/hello/1.0.0\n  \
         wfm-git-publisher -C {} device add press-01\n\n\
         Keep {} off this machine once you are done trying: publishing doesn't need it.\n",
        made.fleet.display(),
        made.home.root().display(),
        made.fleet.join("README.md").display(),
        args.dir.display(),
        args.dir.display(),
        made.home.root_key().display(),
    ));
    Ok(0)
}
