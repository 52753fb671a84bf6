//! `explain` and `why-not`.

use jiff::Timestamp;
use repo_model::{ApplicationId, DeploymentName, DeviceId};
use serde_json::json;

use super::{AtRevision, OutputArgs, Place};
use crate::error::{Failure, USER};
use crate::explain::{DeviceContext, Explained, explain, to_text, why_not};
use crate::publish;

/// Shows why a device gets what it gets: the file, line and rule behind each decision and each value
///
/// Says the same as what `plan` and `publish` would do with the fleet at a commit, and changes nothing.
///
///   wfm-git-publisher explain press-01
///   wfm-git-publisher explain press-01 hello greeting
///   wfm-git-publisher explain press-01 --output json
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct ExplainArgs {
    /// The device, by its id such as `press-01`
    device: DeviceId,

    /// Only this deployment, also if the device doesn't get it
    deployment: Option<DeploymentName>,

    /// Only this parameter of it
    parameter: Option<String>,

    #[command(flatten)]
    how: AtRevision,
}

/// Shows why a device doesn't get an application
///
/// Lists every deployment of the application, with the reason against it, or that the device does get it. Exit code 0
/// if it gets one, 1 if it gets none, because the fleet doesn't say so or because it can't be published.
///
///   wfm-git-publisher why-not hello spare-01
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct WhyNotArgs {
    /// The application, by the id of its package
    application: ApplicationId,

    /// The device for which its values count
    device: DeviceId,

    #[command(flatten)]
    how: AtRevision,
}

pub(super) fn run(place: &Place, args: ExplainArgs) -> Result<u8, Failure> {
    let ExplainArgs { device, deployment, parameter, how } = args;
    let mut explained = in_context(place, &how, &device, |context| {
        let is_known =
            |name| context.fleet.deployments.contains_key(name) || context.fleet.broken.deployments.contains(name);
        deployment.as_ref().is_none_or(is_known).then(|| explain(&context, deployment.as_ref()))
    })?
    .ok_or_else(|| Failure::missing("there is no deployment of this id in the fleet").hint("see `validate`"))?;
    if let Some(name) = &parameter {
        let all = || explained.deployments.iter().flat_map(|one| &one.parameters);
        if !all().any(|one| one.name == *name) {
            return Err(Failure::missing(format!("`{name}` is no parameter that is used there")));
        }
        explained.deployments.iter_mut().for_each(|one| one.parameters.retain(|one| one.name == *name));
    }
    print(&explained, how.output, parameter.as_deref());
    Ok(0)
}

pub(super) fn run_why_not(place: &Place, args: WhyNotArgs) -> Result<u8, Failure> {
    let WhyNotArgs { application, device, how } = args;
    let explained = in_context(place, &how, &device, |context| why_not(&context, application.as_str()))?;
    if explained.deployments.is_empty() && explained.broken.is_empty() {
        let failure = Failure::missing(format!("no usable deployment in the fleet is of `{application}`"));
        return Err(failure.hint("write one under deployments/, or see `validate`"));
    }
    print(&explained, how.output, None);
    let comes = explained.enrolled && explained.deployments.iter().any(|one| one.gets && !one.is_blocked);
    Ok(if comes { 0 } else { USER })
}

fn in_context<T>(
    place: &Place,
    how: &AtRevision,
    device: &DeviceId,
    work: impl FnOnce(DeviceContext<'_>) -> T,
) -> Result<T, Failure> {
    let (home, source) = (place.home()?, place.seen_source(&how.rev)?);
    place.note_hosted(&how.rev, source.resolve(&how.rev)?)?;
    let work = || publish::device_context(&home, &source, &how.rev, device, Timestamp::now(), work);
    super::with_committed(place, &how.rev, work)?.ok_or_else(|| {
        let failure = Failure::missing(format!("there is no usable device `{device}` in the fleet"));
        failure.hint("correct the id, or see `validate`")
    })
}

fn print(explained: &Explained, output: OutputArgs, parameter: Option<&str>) {
    output.print(&to_text(explained, parameter), || json!(explained));
}
