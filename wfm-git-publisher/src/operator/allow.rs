//! A person's word for what guards hold: a file in the fleet that lets it pass once, as one commit.

use std::fs;
use std::path::Path;

use repo_git::durable::{self, FileError};
use repo_model::{Digest, text};

use crate::fleet::{ALLOWED, Allowance, counted};
use crate::repos::{GitError, StockGit};

/// What a file lets pass now.
#[derive(Debug)]
pub struct AllowanceSaid {
    /// The path of the file in the fleet repository.
    pub file: String,
    /// Whether that was said already.
    pub was_there: bool,
}

/// Nothing can be let pass.
#[derive(Debug, thiserror::Error)]
pub enum AllowError {
    /// It is named after what it said.
    #[error("`{file}` doesn't say any more what it said first")]
    Edited { file: String },
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot commit the file")]
    Git(#[from] GitError),
}

/// Writes what a person lets pass into a file of its own, and commits that. The same again completes what was cut off.
pub fn allow(root: &Path, allowance: &Allowance) -> Result<AllowanceSaid, AllowError> {
    let (git, text) = (StockGit::new(root), written(allowance));
    let file = format!("{ALLOWED}/{}.yaml", &Digest::of(text.as_bytes()).hex()[..12]);
    let path = root.join(&file);
    if !path.exists() {
        durable::create_dir_all(path.parent().unwrap_or(root), 0o755).map_err(FileError::write(&path))?;
        durable::replace_file(&path, text.as_bytes(), 0o644).map_err(FileError::write(&path))?;
    } else if fs::read_to_string(&path).map_err(FileError::read(&path))? != text {
        return Err(AllowError::Edited { file });
    }
    let was_there = !git.is_dirty(&file)?;
    if !was_there {
        git.commit(&[&file], &message(allowance))?;
    }
    Ok(AllowanceSaid { file, was_there })
}

/// The file's text. What is quoted is read as the same text, also where a device is called `1`.
fn written(Allowance { reason, devices }: &Allowance) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let reason = reason.iter().map(|reason| format!("reason: {}\n", quoted(reason)));
    let devices = devices.iter().map(|(device, allowed)| {
        let names: Vec<_> = allowed.deployments.iter().map(|name| quoted(name.as_str())).collect();
        let (device, serial) = (quoted(device.as_str()), allowed.serial);
        format!("  {device}: {{serial: {serial}, deployments: [{}]}}\n", names.join(", "))
    });
    reason.chain(["devices:\n".to_owned()]).chain(devices).collect()
}

fn message(Allowance { reason, devices }: &Allowance) -> String {
    let mut names: Vec<_> =
        devices.values().flat_map(|allowed| &allowed.deployments).map(ToString::to_string).collect();
    names.sort();
    names.dedup();
    let on = match devices.keys().collect::<Vec<_>>().as_slice() {
        [device] => device.to_string(),
        all => counted(all.len()),
    };
    let reason = reason.iter().map(|reason| format!("\n\n{}", text::line(reason))).collect::<String>();
    format!("allow {} on {on}{reason}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::{AllowedOnDevice, SourceFile, read_allowance};

    #[test]
    fn what_is_written_is_read_as_it_was_said() {
        let allowed = |serial, names: &[&str]| AllowedOnDevice {
            serial,
            deployments: names.iter().map(|name| name.parse().unwrap()).collect(),
        };
        let devices = [
            ("1".parse().unwrap(), allowed(7, &["hello", "1e3"])),
            ("line-2/press-01".parse().unwrap(), allowed(8, &["hello"])),
        ];
        let allowance = Allowance { reason: Some("\"moved\": # to\n\u{1b}Graz".to_owned()), devices: devices.into() };
        let text = written(&allowance);
        assert_eq!(read_allowance(&SourceFile::plain("allowed/x.yaml", text.as_str())).unwrap(), allowance, "{text}");
        assert_eq!(message(&allowance), "allow 1e3, hello on 2 devices\n\n\"moved\": # to\\n\\u{1b}Graz");
    }
}
