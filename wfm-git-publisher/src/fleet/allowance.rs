//! `allowed/*.yaml`: what persons let pass of what guards hold.

use std::collections::{BTreeMap, BTreeSet};

use repo_model::problem::Problems;
use repo_model::yaml::{Field, Reader};
use repo_model::{DeploymentName, DeviceId, IntoMap};
use serde::Serialize;

use super::file::{Role, SourceFile, decode};

/// What a person lets pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Allowance {
    /// What the person gave as the reason, for auditors; absent where a file that was written by hand has none.
    pub reason: Option<String>,
    pub devices: BTreeMap<DeviceId, AllowedOnDevice>,
}

/// What a person lets pass on one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AllowedOnDevice {
    /// That of the state on the device's `desired` that they may go from. A serial is given once, so this counts once.
    pub serial: u64,
    /// May go, or take each other's place.
    pub deployments: BTreeSet<DeploymentName>,
}

/// What persons let pass, by the device and the serial of its state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allowances(BTreeMap<(DeviceId, u64), BTreeSet<DeploymentName>>);

impl Allowances {
    /// Reads all of them. One that can't be read lets nothing pass.
    pub(super) fn read(files: &[&SourceFile], problems: &mut Problems) -> Self {
        let ours = files.iter().filter(|file| Role::of(&file.path) == Some(Role::Allowance));
        let mut all = Self::default();
        for (device, allowed) in ours.filter_map(|file| read(file, problems)).flat_map(|one| one.devices) {
            all.0.entry((device, allowed.serial)).or_default().extend(allowed.deployments);
        }
        all
    }

    /// What may go from a device whose state has this serial.
    pub fn of(&self, device: &DeviceId, serial: u64) -> Option<&BTreeSet<DeploymentName>> {
        self.0.get(&(device.clone(), serial))
    }
}

/// Reads one file on its own.
pub fn read_allowance(file: &SourceFile) -> Result<Allowance, Problems> {
    let mut problems = Problems::default();
    read(file, &mut problems).ok_or(problems)
}

fn read(file: &SourceFile, problems: &mut Problems) -> Option<Allowance> {
    decode::<String, _>(file, problems, document).good()
}

fn document(reader: &mut Reader<'_>) -> Option<Allowance> {
    let reason = reader.optional("reason", Field::string);
    let devices = reader.required("devices", |field| field.entries(|id, field| Some((id.parse().ok(), field))))?;
    let devices: Option<Vec<_>> = devices.into_values().map(|(id, field)| one(id, field)).collect();
    Some(Allowance { reason, devices: devices?.into_map() })
}

fn one(id: Option<DeviceId>, field: Field<'_>) -> Option<(DeviceId, AllowedOnDevice)> {
    let Some(id) = id else { return field.fail("stands under a key that is no id of a device") };
    let allowed = field.mapping(|reader| {
        let serial = reader.required("serial", Field::integer);
        let deployments = reader.required("deployments", |field| field.list(Field::parse));
        Some(AllowedOnDevice { serial: serial?, deployments: deployments?.into_iter().collect() })
    });
    Some((id, allowed?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(files: &[(&str, &str)]) -> (Allowances, String) {
        let files: Vec<_> = files.iter().map(|(path, text)| SourceFile::plain(*path, *text)).collect();
        let mut problems = Problems::default();
        let all = Allowances::read(&files.iter().collect::<Vec<_>>(), &mut problems);
        (all, problems.to_string())
    }

    #[test]
    fn what_is_allowed_counts_for_one_device_with_one_serial() {
        let one = "reason: it is moved\ndevices: {press-01: {serial: 7, deployments: [hello]}}\n";
        let two = "devices: {press-01: {serial: 7, deployments: [second]}, packer-01: {serial: 3, deployments: []}}\n";
        let (all, problems) = read_all(&[("allowed/one.yaml", one), ("allowed/line-2/two.yaml", two)]);
        assert_eq!(problems, "");
        let of = |device: &str, serial| {
            all.of(&device.parse().unwrap(), serial).map(|names| names.iter().map(ToString::to_string).collect())
        };
        assert_eq!(of("press-01", 7), Some(vec!["hello".to_owned(), "second".to_owned()]));
        assert_eq!((of("press-01", 8), of("press-02", 7), of("packer-01", 3)), (None, None, Some(vec![])));
    }

    #[test]
    fn what_can_not_be_read_lets_nothing_pass_and_says_where() {
        for (text, said) in [
            ("{}", "devices"),
            ("devices: {press-01: {deployments: [hello]}}", "serial"),
            ("devices: {press-01: {serial: 7}}", "deployments"),
            ("devices: {press-01: {serial: -7, deployments: [hello]}}", "serial"),
            ("devices: {\"press 01\": {serial: 7, deployments: [hello]}}", "devices.press 01"),
            ("devices: {press-01: {serial: 7, deployments: [hello]}}\nuntil: tomorrow", "until"),
        ] {
            let (all, problems) = read_all(&[("allowed/one.yaml", text)]);
            assert_eq!(all, Allowances::default(), "{text}");
            assert!(problems.contains("allowed/one.yaml") && problems.contains(said), "{text}: {problems}");
        }
    }
}
