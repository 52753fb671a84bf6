//! Labels of devices: their files say them, as one commit for all.

use std::collections::BTreeMap;
use std::path::Path;

use repo_model::DeviceId;
use repo_model::problem::Problems;

use super::deploy::yaml_word;
use super::device_file::{DeviceFile, DeviceFileError, Edit};
use super::edit::{remove_entry, set_entry, set_word};
use crate::fleet::{Device, SourceFile, read_device};
use crate::repos::{GitError, StockGit};

/// What becomes of labels, by their names: a value, or nothing where the label goes.
pub type LabelChanges = BTreeMap<String, Option<String>>;

/// A device whose labels are as they shall be.
#[derive(Debug)]
pub struct Labelled {
    pub device: DeviceId,
    /// The path of its file in the fleet repository.
    pub file: String,
    /// Whether that was so already.
    pub was_there: bool,
}

/// Labels can't be changed.
#[derive(Debug, thiserror::Error)]
pub enum LabelError {
    /// What no device may have.
    #[error("these are no labels")]
    Labels(Problems),
    /// Somebody might rely on it.
    #[error("`{device}` has the label `{label}` already, with another value: `{value}`")]
    Present { device: DeviceId, label: String, value: String },
    #[error(transparent)]
    File(#[from] DeviceFileError),
    #[error("cannot commit the devices' files")]
    Git(#[from] GitError),
}

/// Changes labels of devices: nothing is written unless it can be done for all of them. `overwrite`: whether a label may get
/// another value than it has. The same again completes what was cut off.
pub fn label(
    root: &Path,
    devices: &[DeviceId],
    changes: &LabelChanges,
    overwrite: bool,
) -> Result<Vec<Labelled>, LabelError> {
    check(changes)?;
    let message = message(devices, changes);
    let mut planned = Vec::new();
    for device in devices {
        let file = DeviceFile::open(root, device)?;
        let before = file.before.labels.clone();
        let other = |(name, value): &(&String, &Option<String>)| {
            before.get(*name).is_some_and(|now| value.as_ref().is_some_and(|value| value != now))
        };
        if let Some((label, _)) = changes.iter().find(other).filter(|_| !overwrite) {
            let (device, label, value) = (device.clone(), label.clone(), before[label].clone());
            return Err(LabelError::Present { device, label, value });
        }
        let after = changed(&before, changes);
        let edit = Edit {
            key: "labels",
            text: &|text| edited(text, &after, changes),
            meaning: &|device| Device { labels: changed(&device.labels, changes), ..device },
            message: &message,
        };
        planned.push((device.clone(), file.plan(&edit)?));
    }
    for (_, file) in &planned {
        file.write(root).map_err(DeviceFileError::File)?;
    }
    let files: Vec<_> = planned.iter().filter(|(_, file)| file.is_to_be_committed()).collect();
    if !files.is_empty() {
        let files: Vec<_> = files.iter().map(|(_, file)| file.file.as_str()).collect();
        StockGit::new(root).commit(&files, &message)?;
    }
    let done = planned.into_iter();
    Ok(done.map(|(device, one)| Labelled { device, was_there: one.edited.is_none(), file: one.file }).collect())
}

/// Whether a device may have them.
fn check(changes: &LabelChanges) -> Result<(), LabelError> {
    let all = changes.iter().map(|(name, value)| (name.clone(), value.clone().unwrap_or_default())).collect();
    let text = format!("id: x\nlabels: {}\n", flow(&all));
    let read = read_device(&SourceFile::plain("the labels", text.as_str()));
    read.map(drop).map_err(LabelError::Labels)
}

fn changed(before: &BTreeMap<String, String>, changes: &LabelChanges) -> BTreeMap<String, String> {
    let mut after = before.clone();
    for (name, value) in changes {
        match value {
            Some(value) => _ = after.insert(name.clone(), value.clone()),
            None => _ = after.remove(name),
        }
    }
    after
}

/// The text with these labels: line by line where they stand so, else all of them on one.
fn edited(text: &str, after: &BTreeMap<String, String>, changes: &LabelChanges) -> Option<String> {
    let by_lines = changes.iter().try_fold(text.to_owned(), |text, (name, value)| match value {
        Some(value) => set_entry(&text, "labels", &yaml_word(name), &yaml_word(value)),
        None => remove_entry(&text, "labels", name).or(Some(text)),
    });
    let is_right =
        |text: &String| read_device(&SourceFile::plain("x", text.as_str())).is_ok_and(|device| device.labels == *after);
    // Where the last line went, nothing stands below `labels:` any more.
    let at_once = |text: &str| set_word(text, "labels", &flow(after));
    let emptied = by_lines.as_deref().filter(|_| after.is_empty()).and_then(at_once);
    by_lines.filter(is_right).or_else(|| emptied.filter(is_right)).or_else(|| at_once(text))
}

fn flow(labels: &BTreeMap<String, String>) -> String {
    let labels = labels.iter().map(|(name, value)| format!("{}: {}", yaml_word(name), yaml_word(value)));
    format!("{{{}}}", labels.collect::<Vec<_>>().join(", "))
}

fn message(devices: &[DeviceId], changes: &LabelChanges) -> String {
    let words = changes.iter().map(|(name, value)| match value {
        Some(value) => format!("{name}={value}"),
        None => format!("{name}-"),
    });
    let words = words.collect::<Vec<_>>().join(" ");
    match devices {
        [device] => format!("{device}: label {words}"),
        devices => format!("label {} devices: {words}", devices.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(text: &str, changes: &[(&str, Option<&str>)]) -> Option<String> {
        let before = read_device(&SourceFile::plain("x", text)).expect("a device").labels;
        let changes = changes
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.map(str::to_owned)))
            .collect::<LabelChanges>();
        edited(text, &changed(&before, &changes), &changes)
    }

    #[test]
    fn only_the_lines_of_the_labels_change() {
        let block = "id: a # who\nlabels:\n  # where\n  site: graz  # since May\n  line: \"1\"\npolicy: {}\n";
        let line = [("line", Some("2"))];
        assert_eq!(made(block, &line).as_deref(), Some(&*block.replace("\"1\"", "\"2\"")));
        assert_eq!(made(block, &[("line", None)]).as_deref(), Some(&*block.replace("  line: \"1\"\n", "")));
        let more = made(block, &[("role", Some("press"))]);
        assert_eq!(more.as_deref(), Some(&*block.replace("\"1\"\n", "\"1\"\n  role: press\n")));
        let flow = "id: a\nlabels: {site: graz, line: \"1\"} # x\n";
        assert_eq!(made(flow, &line).as_deref(), Some("id: a\nlabels: {line: \"2\", site: graz} # x\n"));
        assert_eq!(made("id: a\n", &line).as_deref(), Some("id: a\nlabels:\n  line: \"2\"\n"));
        let last = made("id: a\nlabels: # where\n  line: \"1\"\npolicy: {}\n", &[("line", None)]);
        assert_eq!(last.as_deref(), Some("id: a\nlabels: {} # where\npolicy: {}\n"));
        let none = made(flow, &[("line", None), ("site", None), ("gone", None)]);
        assert_eq!(none.as_deref(), Some("id: a\nlabels: {} # x\n"));
    }

    #[test]
    fn what_is_no_label_is_refused_before_any_file_is_read() {
        for (name, value) in [("-a", "b"), ("a", "b c"), ("a b", "c"), ("a", "b\nid: y")] {
            let changes = LabelChanges::from([(name.to_owned(), Some(value.to_owned()))]);
            assert!(matches!(check(&changes), Err(LabelError::Labels(_))), "{name}={value}");
        }
        let good = LabelChanges::from([("site".to_owned(), Some("1e3".to_owned())), ("gone".to_owned(), None)]);
        assert!(check(&good).is_ok());
    }
}
