//! Something is asked of one device: its file says it, with a number that rises, as one commit.

use std::path::Path;

use repo_model::ask::{Ask, AskedWord};
use repo_model::envelope::MAX_SERIAL;
use repo_model::{DeploymentName, DeviceId};

use super::device_file::{Changed, DeviceFile, DeviceFileError, Edit};
use super::edit::{set_list, set_word};
use crate::fleet::{self, Device, SourceFile, read_device};

/// A device whose file asks it for something.
#[derive(Debug)]
pub struct AskedDevice {
    pub ask: Ask,
    /// The path of the device's file in the fleet repository.
    pub file: String,
}

/// A device can't be asked.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("there is no deployment `{0}` in the fleet")]
    NoDeployment(DeploymentName),
    #[error(transparent)]
    File(#[from] DeviceFileError),
}

/// Writes what is asked for into the device's file and commits that. `done`: the highest number that the device is done with, as far as
/// that is known.
pub fn ask(
    root: &Path,
    device: &DeviceId,
    what: AskedWord,
    deployment: Option<&DeploymentName>,
    done: u64,
) -> Result<AskedDevice, AskError> {
    let file = DeviceFile::open(root, device)?;
    if let (Some(name), Some(fleet)) = (deployment, fleet::read(&file.files).fleet)
        && !fleet.deployments.contains_key(name)
        && !fleet.broken.keeps(name)
    {
        return Err(AskError::NoDeployment(name.clone()));
    }
    let before = file.before.ask.as_ref().map_or(0, |before| before.number);
    // A device may say what it likes.
    let number = before.max(done).min(MAX_SERIAL - 1) + 1;
    let ask = Ask { number, what: what.to_string(), deployment: deployment.cloned() };
    let edit = Edit {
        key: "ask",
        text: &|text| edited(text, &ask),
        meaning: &|before| Device { ask: Some(ask.clone()), ..before },
        message: &format!("{device}: ask {ask}"),
    };
    let Changed { file, .. } = file.change(&edit)?;
    Ok(AskedDevice { ask, file })
}

/// The text with it on one line, where another one stands or at the end.
fn edited(text: &str, ask: &Ask) -> Option<String> {
    let deployment = ask.deployment.iter().map(|name| format!(", deployment: \"{name}\"")).collect::<String>();
    let flow = format!("{{number: {}, what: {}{deployment}}}", ask.number, ask.what);
    let is_right = |text: &String| {
        read_device(&SourceFile::plain("x", text.as_str())).is_ok_and(|device| device.ask.as_ref() == Some(ask))
    };
    // One that stands on several lines goes first.
    set_word(text, "ask", &flow).filter(is_right).or_else(|| set_word(&set_list(text, "ask", &[])?, "ask", &flow))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stands_on_one_line_and_the_rest_stays() {
        let ask = Ask { number: 8, what: "logs".to_owned(), deployment: Some("1e3".parse().unwrap()) };
        let line = "ask: {number: 8, what: logs, deployment: \"1e3\"}";
        for (before, after) in [
            ("# head\nid: a\n", format!("# head\nid: a\n{line}\n")),
            ("ask: {number: 7, what: sync} # why\nid: a\n", format!("{line} # why\nid: a\n")),
            ("ask:\n  number: 7\n  what: sync\nid: a # who\n", format!("id: a # who\n{line}\n")),
        ] {
            assert_eq!(edited(before, &ask).as_deref(), Some(after.as_str()));
        }
    }
}
