//! `init`.

use std::net::SocketAddr;
use std::path::PathBuf;

use jiff::Timestamp;
use repo_model::FleetId;
use serde_json::json;
use uuid::Uuid;

use super::{OutputArgs, Place};
use crate::config;
use crate::error::Failure;
use crate::operator::{InitOptions, init, moving};
use crate::repos::Home;

/// Makes a new fleet: a repository with a working example, and the publisher's home beside it
///
/// The repository gets a commented compose application, three devices with labels and one deployment. The home
/// (DIR.wfm) gets a root key, a publisher key and the publisher's ledger; nothing secret is ever in the repository. With
/// --host the fleet is served over HTTPS by `run`, with a certificate of the fleet's own authority. With --hosted the
/// fleet repository is served there, too: what operators push to it is validated, and what is accepted is published.
///
///   wfm-git-publisher init my-fleet
///   wfm-git-publisher init my-fleet --host wfm.plant.example
///   wfm-git-publisher init plant-2 --registry registry.example:5000
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

    /// A name or address of the host that will serve the fleet over HTTPS; may be repeated, the first goes into join files
    #[arg(long = "host", value_name = "NAME", value_parser = host)]
    hosts: Vec<String>,

    /// Where that host accepts connections
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8443", requires = "hosts")]
    listen: SocketAddr,

    /// Host the fleet repository itself, too, for operators at other machines: the new directory becomes a clone of it
    #[arg(long, requires = "hosts")]
    hosted: bool,

    /// The image that the example runs
    #[arg(long, default_value = "busybox:1.36")]
    image: String,

    #[command(flatten)]
    output: OutputArgs,
}

fn host(text: &str) -> Result<String, String> {
    let wrong = || format!("`{text}` is no host name and no IP address");
    config::is_host_name(text).then(|| text.to_owned()).ok_or_else(wrong)
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
    let id: FleetId = Uuid::new_v4().into();
    let serve = (!args.hosts.is_empty()).then(|| config::serve_section(args.listen, &args.hosts));
    let options = InitOptions {
        name,
        id,
        registry: args.registry,
        image: args.image,
        serve,
        hosted: args.hosted,
        now: Timestamp::now(),
    };
    let made = init(&dir, home, &options)?;
    let text = format!(
        "fleet: {}\nhome:  {}\n\n\
         Next: look around in {}, then\n  \
         wfm-git-publisher -C {} app push applications/hello/1.0.0\n  \
         wfm-git-publisher -C {} device add press-01\n\n\
         The root key lies on this machine. It alone can replace a stolen publisher's key, so take it off now:\n  {}\n\
         Publishing doesn't need it. The publisher's key counts for 400 days; `status` tells 90 days before.\n",
        made.fleet.display(),
        made.home.root().display(),
        made.fleet.join("README.md").display(),
        args.dir.display(),
        args.dir.display(),
        moving(&made.home),
    );
    let json = || json!({ "id": id, "fleet": made.fleet, "home": made.home.root(), "rootKey": made.home.root_key() });
    args.output.print(&text, json);
    Ok(0)
}
