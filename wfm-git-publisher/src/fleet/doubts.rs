//! What is right by the rules and most likely not what somebody meant: selectors that no device fits, values that look
//! like secrets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use repo_model::problem::Problem;
use repo_model::{DeploymentName, DeviceId};

use super::listed::listed;
use super::selector::{Selector, Terms};
use super::values::{Given, Setting, Values};
use super::{Broken, Deployment, Device, Settings};

type Devices = BTreeMap<DeviceId, Arc<Device>>;
type Deployments = BTreeMap<DeploymentName, Arc<Deployment>>;

/// Parts of names whose values are mostly secret, without `_`, `-` and `.`.
const SECRET_NAMES: &[&str] =
    &["password", "passwd", "passphrase", "secret", "token", "apikey", "accesskey", "privatekey", "credential"];

/// Ends of names that tell of something beside a secret.
const HARMLESS_ENDS: &[&str] = &[
    "file", "path", "dir", "name", "url", "uri", "endpoint", "ttl", "timeout", "seconds", "length", "enabled", "type",
];

/// How keys begin that services give out.
const KEY_BEGINS: &[&str] = &["ghp_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "AKIA", "sk_live_"];

/// Warnings. While a device can't be read, no selector is doubted.
pub(super) fn find(
    settings: Option<&Settings>,
    devices: &Devices,
    broken: &Broken,
    deployments: &Deployments,
) -> Vec<Problem> {
    let groups = || settings.iter().flat_map(|settings| &settings.groups);
    let of_deployments = deployments
        .values()
        .flat_map(|one| one.targets.iter().chain(&one.exclude).chain(one.overrides.iter().map(|one| &one.when)));
    let are_known = broken.devices.is_empty() && broken.unidentified.is_empty() && !devices.is_empty();
    let selectors = groups().map(|group| &group.when).chain(of_deployments).filter(|_| are_known);
    let shared = settings.iter().map(|settings| &settings.defaults).chain(groups().map(|group| &group.parameters));
    let own = deployments
        .values()
        .flat_map(|one| [&one.parameters].into_iter().chain(one.overrides.iter().map(|one| &one.parameters)));
    let unfit = selectors.filter_map(|selector| fits_nobody(selector, devices));
    unfit.chain(shared.chain(own).flat_map(secrets)).collect()
}

fn fits_nobody(selector: &Selector, devices: &Devices) -> Option<Problem> {
    let Terms::Labels(labels, _) = &selector.terms else { return None };
    if devices.values().any(|device| selector.selects(device)) {
        return None;
    }
    let unfit = labels.iter().find(|(key, value)| !devices.values().any(|one| one.labels.get(*key) == Some(*value)));
    let hint = unfit.map(|(key, value)| {
        let values: BTreeSet<_> = devices.values().filter_map(|one| one.labels.get(key)).collect();
        match values.len() {
            0 => format!("no device has a label `{key}`"),
            _ => format!("no device has the label `{key}: {value}`; there is {}", listed(values.iter().take(10))),
        }
    });
    let problem = selector.place.problem("fits no device").warning();
    Some(problem.hint(hint.unwrap_or_else(|| "no device has all of this at once".to_owned())))
}

fn secrets(values: &Values) -> impl Iterator<Item = Problem> {
    values.iter().filter(|(name, given)| looks_secret(name, given)).map(|(_, given)| {
        let text = "looks like a secret, and whoever reads the fleet or the device's repository can read it";
        let hint = "encrypt it to the devices that need it: `{valueFrom: {encrypted: NAME}}` and `secret set NAME`, or let it stay on \
                    the device: `{valueFrom: {deviceFile: NAME}}`; and change it, for history keeps it";
        given.place.problem(text).warning().hint(hint)
    })
}

fn looks_secret(name: &str, given: &Given) -> bool {
    let Setting::Literal(value) = &given.setting else { return false };
    let text = value.text();
    let is_word = !text.is_empty() && text.parse::<f64>().is_err() && text.parse::<bool>().is_err();
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let is_named = SECRET_NAMES.iter().any(|part| name.contains(part));
    let is_harmless = HARMLESS_ENDS.iter().any(|end| name.ends_with(end));
    (is_word && is_named && !is_harmless) || is_key(&text)
}

/// Whether a value is a secret by its form.
fn is_key(text: &str) -> bool {
    let is_pem = text.contains("-----BEGIN ") && text.contains("PRIVATE KEY-----");
    let is_given_out = text.len() >= 20 && KEY_BEGINS.iter().any(|begin| text.starts_with(begin));
    let authority = text.split_once("://").and_then(|(_, rest)| rest.split(['/', '?', '#']).next());
    let user = authority.and_then(|authority| authority.rsplit_once('@')).map(|(user, _)| user);
    let has_password = user.and_then(|user| user.split_once(':')).is_some_and(|(_, password)| !password.is_empty());
    is_pem || is_given_out || has_password
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_known_by_its_form() {
        for text in
            ["postgres://app:hunter2@db/x", "-----BEGIN OPENSSH PRIVATE KEY-----\nabc", "ghp_0123456789abcdefghij"]
        {
            assert!(is_key(text), "{text}");
        }
        for text in ["https://host/a@b:c", "ssh://git@host/x", "http://host:80/", "ghp_", "servus", ""] {
            assert!(!is_key(text), "{text}");
        }
    }
}
