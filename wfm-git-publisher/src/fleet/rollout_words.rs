//! `rollouts/<n>.yaml`: what persons said of a rollout.

use std::collections::{BTreeMap, BTreeSet};

use repo_model::DeviceId;
use repo_model::problem::{Problem, Problems};
use repo_model::yaml::{Field, Reader, Value};

use serde::{Deserialize, Serialize};

use super::file::{Role, SourceFile, decode};

/// What persons said of one rollout.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutWords {
    /// Nothing more is released.
    pub paused: bool,
    /// The waves up to this one are agreed to; 0: none.
    pub approved: u32,
    /// The number of the newest stop that is lifted; 0: none.
    pub resumed: u32,
    pub promoted: Promoted,
}

/// Who gets the change in spite of waves, bake and failures.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Promoted {
    /// Nobody.
    #[default]
    No,
    /// All the rest.
    All,
    /// These.
    Devices(BTreeSet<DeviceId>),
}

impl Promoted {
    /// Whether the device is meant.
    pub fn includes(&self, device: &DeviceId) -> bool {
        match self {
            Self::No => false,
            Self::All => true,
            Self::Devices(devices) => devices.contains(device),
        }
    }
}

/// Where the file of a rollout lies.
pub fn rollout_path(number: u32) -> String {
    format!("rollouts/{number}.yaml")
}

/// The number that a file's path gives; `None` if it is no file of a rollout.
fn number_of(path: &str) -> Option<u32> {
    let digits = path.strip_prefix("rollouts/")?.strip_suffix(".yaml")?;
    let number = digits.parse().ok().filter(|number| *number > 0)?;
    (rollout_path(number) == path).then_some(number)
}

/// Reads all of them by their numbers. One that can't be read has no value: that rollout waits, and nothing else does.
pub(super) fn read_all(files: &[&SourceFile], problems: &mut Problems) -> BTreeMap<u32, Option<RolloutWords>> {
    let ours = files.iter().filter(|file| Role::of(&file.path) == Some(Role::Rollout));
    let numbered = ours.filter_map(|file| match number_of(&file.path) {
        Some(number) => Some((number, *file)),
        None => {
            let hint = "name it after the number of a rollout, as `rollout list` shows it: rollouts/12.yaml";
            problems.push(Problem::error(&file.path, "has a name that no rollout has").hint(hint));
            None
        }
    });
    let numbered: Vec<_> = numbered.collect();
    numbered.into_iter().map(|(number, file)| (number, read(file, problems))).collect()
}

/// Reads one file on its own.
pub fn read_rollout(file: &SourceFile) -> Result<RolloutWords, Problems> {
    let mut problems = Problems::default();
    read(file, &mut problems).ok_or(problems)
}

fn read(file: &SourceFile, problems: &mut Problems) -> Option<RolloutWords> {
    decode::<String, _>(file, problems, document).good()
}

fn document(reader: &mut Reader<'_>) -> Option<RolloutWords> {
    let paused = reader.optional("paused", Field::bool);
    let approved = reader.optional("approved", Field::integer);
    let resumed = reader.optional("resumed", Field::integer);
    let promoted = reader.optional("promoted", promoted);
    Some(RolloutWords {
        paused: paused.unwrap_or_default(),
        approved: approved.unwrap_or_default(),
        resumed: resumed.unwrap_or_default(),
        promoted: promoted.unwrap_or_default(),
    })
}

fn promoted(field: Field<'_>) -> Option<Promoted> {
    if matches!(field.node().value, Value::Sequence(_)) {
        return field.list(Field::parse).map(|devices| Promoted::Devices(devices.into_iter().collect()));
    }
    Some(if field.bool()? { Promoted::All } else { Promoted::No })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_one(text: &str) -> (Option<RolloutWords>, String) {
        let mut problems = Problems::default();
        let words = read(&SourceFile::plain("rollouts/12.yaml", text), &mut problems);
        (words, problems.to_string())
    }

    #[test]
    fn words_are_read_and_what_is_left_out_says_nothing() {
        let all = "paused: true\napproved: 2\nresumed: 1\npromoted: [press-07]\n";
        let promoted = Promoted::Devices(["press-07".parse().unwrap()].into());
        let words = RolloutWords { paused: true, approved: 2, resumed: 1, promoted };
        assert_eq!(read_one(all), (Some(words), String::new()));
        assert_eq!(read_one("{}"), (Some(RolloutWords::default()), String::new()));
        assert_eq!(read_one("promoted: true").0.map(|words| words.promoted), Some(Promoted::All));
    }

    #[test]
    fn words_that_can_not_be_read_say_where_and_are_none() {
        for (text, said) in [
            ("pause: true", "pause"),
            ("paused: yes", "paused"),
            ("approved: -1", "approved"),
            ("promoted: press-07", "promoted"),
            ("paused: true\npaused: false", "paused"),
            ("[]", "mapping"),
        ] {
            let (words, problems) = read_one(text);
            assert_eq!(words, None, "{text}");
            assert!(problems.contains("rollouts/12.yaml") && problems.contains(said), "{text}: {problems}");
        }
    }

    #[test]
    fn a_file_is_named_after_its_rollout() {
        assert_eq!(number_of("rollouts/12.yaml"), Some(12));
        for wrong in ["rollouts/0.yaml", "rollouts/012.yaml", "rollouts/a/12.yaml", "rollouts/x.yaml", "12.yaml"] {
            assert_eq!(number_of(wrong), None, "{wrong}");
        }
        let files = [SourceFile::plain("rollouts/x.yaml", ""), SourceFile::plain("rollouts/7.yaml", "a: b")];
        let mut problems = Problems::default();
        let read = read_all(&files.iter().collect::<Vec<_>>(), &mut problems);
        assert_eq!(read, BTreeMap::from([(7, None)]));
        assert!(problems.to_string().contains("rollouts/x.yaml"), "{problems}");
    }
}
