//! `audit sbom`.

use repo_model::DeviceId;

use super::Scope;
use crate::audit::sbom::{About, MISSING, Part, bill};
use crate::audit::{Record, RunComponent};
use crate::cli::{OutputArgs, print, print_format, table};
use crate::error::{Failure, USER};

/// Lists the charts, archives and images that ran, with their digests, where and when
///
/// From device repositories alone, as `audit report`: each from when the device said that the component was installed to when
/// it said something else. With --output json it is a bill of materials in CycloneDX 1.5, which scanners read; each part has a
/// property margo-gitops:ran for each place and time. An image is there if its publisher or its device locked it; what is
/// missing is said. Exit code 0 if the audit finds nothing wrong, 1 if it does; the list is there all the same.
///
///   wfm-git-publisher audit sbom ../my-fleet.wfm/devices --roster roster.json
///   wfm-git-publisher audit sbom ../my-fleet.wfm/devices --roster roster.json --output json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    #[command(flatten)]
    scope: Scope,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(args: &Args) -> Result<u8, Failure> {
    let (audit, start, records) = args.scope.read()?;
    let is_good = !audit.has_errors();
    if !is_good {
        eprintln!(
            "the audit finds something wrong, and what it speaks against isn't here: see wfm-git-publisher audit"
        );
    }
    let about = About {
        now: jiff::Timestamp::now(),
        roster: start.digest,
        is_good,
        from: args.scope.from.as_ref(),
        to: args.scope.to.as_ref(),
    };
    let json = json(&records, &about)?;
    match args.output.is_json() {
        true => print_format(&json),
        false => print(&page(&records)),
    }
    Ok(if is_good { 0 } else { USER })
}

fn json(records: &[(DeviceId, Record)], about: &About<'_>) -> Result<serde_json::Value, Failure> {
    let fail = |error: String| Failure::new(format!("cannot write the bill of materials: {error}"));
    let mut bytes = Vec::new();
    bill(records, about).output_as_json_v1_5(&mut bytes).map_err(|error| fail(error.to_string()))?;
    serde_json::from_slice(&bytes).map_err(|error| fail(error.to_string()))
}

fn page(records: &[(DeviceId, Record)]) -> String {
    let all = records.iter().flat_map(|(device, record)| record.components.iter().map(move |run| (device, run)));
    let rows = all.flat_map(|(device, run)| {
        std::iter::once(run.part()).chain(run.image_parts()).map(move |part| row(device, run, &part))
    });
    let head = ["DEVICE", "DEPLOYMENT", "COMPONENT", "SINCE", "UNTIL", "WHAT", "NAME", "VERSION", "DIGEST"];
    let table = table(&std::iter::once(head.map(str::to_owned)).chain(rows).collect::<Vec<_>>());
    let missing: String = MISSING.iter().map(|text| format!("- {text}\n")).collect();
    format!("{table}\nWhat isn't here:\n{missing}")
}

fn row(device: &DeviceId, run: &RunComponent, part: &Part) -> [String; 9] {
    let dash = || "-".to_owned();
    [
        device.to_string(),
        run.deployment.clone(),
        run.component.to_string(),
        format!("{:.0}", run.since),
        run.until.map_or_else(dash, |until| format!("{until:.0}")),
        part.kind.as_str().to_owned(),
        part.name.clone(),
        part.version.clone().unwrap_or_else(dash),
        part.digest.to_string(),
    ]
}
