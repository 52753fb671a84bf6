//! `app diff`.

use repo_model::text;
use serde_json::{Value, json};

use super::super::{OutputArgs, Place, Progress, RegistryArgs};
use crate::error::Failure;
use crate::fleet::{Application, Package};
use crate::operator::app::{AppError, Got, Origin, Places, get};
use crate::plan::{difference_text, of_packages};

/// Shows what is different between two packages, before the newer one is added or deployed
///
/// Profiles and parameters that come, go or change, what profiles ask of a device, vendor, licence, and files. Each side is
/// one of the fleet's (APP@VERSION), a folder, a .tar.gz of one, or an address as for `app add`. Exit code 0, whatever differs.
///
///   wfm-git-publisher app diff hello@1.0.0 hello-1.1.0.tar.gz
///   wfm-git-publisher app diff hello@1.0.0 vendor/hello --output json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(in crate::cli) struct DiffArgs {
    /// The package to begin with
    #[arg(value_name = "OLD")]
    old: Origin,

    /// The package to compare with it
    #[arg(value_name = "NEW")]
    new: Origin,

    /// The commit of the fleet
    #[arg(long, default_value = "HEAD")]
    rev: String,

    #[command(flatten)]
    registry: RegistryArgs,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(place: &Place, args: &DiffArgs) -> Result<u8, Failure> {
    let source = place.source()?;
    let commit = source.resolve(&args.rev)?;
    let registries = place.registries(&args.registry)?;
    let places = Places { fleet: &source, commit, registries: &registries };
    let read = |origin: &Origin| -> Result<(Application, Package), AppError> {
        let Got { package, from, .. } = get(origin, &places)?;
        match package.read(&from) {
            Ok((application, _)) => Ok((application, package)),
            Err(problems) => Err(AppError::Refused { from, problems }),
        }
    };
    let progress = Progress::start("fetching the packages");
    let (old, new) = (read(&args.old)?, read(&args.new)?);
    drop(progress);
    let all = of_packages((&old.0, &old.1), (&new.0, &new.1));
    let [from, to] = [&old, &new].map(|(application, _)| {
        let (id, version) = application.key();
        format!("{id}@{version}")
    });
    let mut page = format!("{} → {}\n", text::line(&from), text::line(&to));
    for one in &all {
        let sign = match (&one.old, &one.new) {
            (None, _) => '+',
            (_, None) => '-',
            _ => '~',
        };
        page.push_str(&format!("  {sign} {}\n", difference_text(one)));
    }
    if all.is_empty() {
        page.push_str("  nothing is different\n");
    }
    let side = |application: &Application| -> Value {
        json!({ "application": application.description.id, "version": application.description.version })
    };
    args.output.print(&page, || json!({ "old": side(&old.0), "new": side(&new.0), "differences": all }));
    Ok(0)
}
