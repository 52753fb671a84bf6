//! An explanation as text for people.

use std::fmt::Write;

use repo_model::text::line;

use super::{
    DeploymentExplained, Explained, GateExplained, ParameterExplained, PolicyExplained, Reason, RuleExplained,
    SettingExplained,
};
use crate::fleet::Place;
use crate::plan::Blocked;

/// The explanation; with a name only that parameter of each deployment.
pub fn to_text(explained: &Explained, parameter: Option<&str>) -> String {
    let Explained {
        device,
        file,
        suspended,
        retired,
        enrolled,
        policy,
        gates,
        site,
        blocked,
        trouble,
        broken,
        deployments,
    } = explained;
    let mut text = format!("{device} ({})\n", line(file));
    if let Some(how) = retired {
        text += &format!("  retired ({how}): nothing is for it, whatever selects it\n");
    }
    if *suspended {
        text += "  suspended: the device leaves everything as it is\n";
    }
    if !enrolled {
        text += "  not enrolled: nothing is published for it yet\n";
    }
    if let Some(trouble) = trouble {
        let _ = writeln!(text, "  its repository tells nothing of it: {}", line(trouble));
    }
    blocked.iter().for_each(|one| blocked_text(&mut text, "  ", one));
    for PolicyExplained { name, seconds, settings } in policy.iter().filter(|_| parameter.is_none()) {
        let _ = writeln!(
            text,
            "  {name}: {seconds} s{}",
            if settings.is_empty() { " (where nothing is said)" } else { "" }
        );
        settings_text(&mut text, "      ", settings);
    }
    for GateExplained { name, settings } in gates.iter().filter(|_| parameter.is_none()) {
        let _ = writeln!(text, "  {name}:");
        settings_text(&mut text, "      ", settings);
    }
    for RuleExplained { name, value, settings } in site.iter().filter(|_| parameter.is_none()) {
        let _ = writeln!(text, "  site {name}: {}, if the site hands it over", line(value));
        settings_text(&mut text, "      ", settings);
    }
    for name in broken {
        let _ = writeln!(text, "  ? {name}: can't be used, see `validate`; whoever has it keeps it");
    }
    for deployment in deployments {
        deployment_text(&mut text, deployment, parameter);
    }
    if deployments.is_empty() && broken.is_empty() {
        text += "  nothing\n";
    }
    text
}

fn deployment_text(text: &mut String, deployment: &DeploymentExplained, only: Option<&str>) {
    let DeploymentExplained {
        deployment: name, application, gets, blocked, reasons, policy, profile, parameters, ..
    } = deployment;
    let _ = writeln!(text, "  {} {name} ({application})", if *gets { '+' } else { '-' });
    for Reason { text: why, place } in reasons {
        let _ = writeln!(text, "      {}{}", line(why), at(place.as_ref()));
    }
    blocked.iter().for_each(|one| blocked_text(text, "      ", one));
    let said = policy.iter().filter(|one| only.is_none() && !one.settings.is_empty());
    for RuleExplained { name, value, settings } in said {
        let _ = writeln!(text, "      {name}: {value}");
        settings_text(text, "          ", settings);
    }
    if let Some(Reason { text: id, place }) = profile {
        let _ = writeln!(text, "      profile {}{}", line(id), at(place.as_ref()));
    }
    for parameter in parameters.iter().filter(|one| only.is_none_or(|name| one.name == name)) {
        parameter_text(text, parameter);
    }
}

fn blocked_text(text: &mut String, indent: &str, blocked: &Blocked) {
    let Blocked { code, since, message, hint, .. } = blocked;
    let since = since.map(|since| format!(" since {since:.0}")).unwrap_or_default();
    let hint = hint.iter().map(|hint| format!("; {}", line(hint))).collect::<String>();
    let _ = writeln!(text, "{indent}not published: {}{hint} ({code}{since})", line(message));
}

fn parameter_text(text: &mut String, parameter: &ParameterExplained) {
    let ParameterExplained { name, value, settings, targets } = parameter;
    let value = value.as_deref().unwrap_or("left out");
    let _ = writeln!(text, "      {}: {} → {}", line(name), line(value), line(&targets.join("; ")));
    settings_text(text, "          ", settings);
}

fn settings_text(text: &mut String, indent: &str, settings: &[SettingExplained]) {
    for (index, SettingExplained { what, rule, place }) in settings.iter().enumerate() {
        let counts = if index == 0 { "by" } else { "over" };
        let _ = writeln!(text, "{indent}{counts} {}: {}{}", line(rule), line(what), at(place.as_ref()));
    }
}

fn at(place: Option<&Place>) -> String {
    place.map(|place| format!("  [{}]", line(&place.to_string()))).unwrap_or_default()
}
