//! Many new devices at once: all that is wrong is told before anything is written, and the fleet gets one commit.

use std::path::{Path, PathBuf};

use repo_git::durable::{self, FileError};
use repo_model::DeviceId;
use repo_model::problem::Problems;

use super::add::{AddError, device_text, join};
use super::join::Reach;
use crate::fleet::{self, ListedDevice, SourceFile};
use crate::repos::{Home, StockGit, work_tree};

/// A device that is in the fleet now.
#[derive(Debug)]
pub struct AddedOne {
    pub device: DeviceId,
    /// The device's file in the fleet.
    pub file: String,
    /// Whether that was there before, with the same labels.
    pub was_there: bool,
    /// The path of its join file, for its owner alone.
    pub join: PathBuf,
}

/// Puts the devices into the fleet that aren't there yet, as one commit, and writes the join files of all of them, into `out`
/// or the home. What was cut off is completed by the same command. `progress` is told how many join files are written of how many.
pub fn add_many(
    root: &Path,
    home: &Home,
    listed: &[ListedDevice],
    reach: Reach<'_>,
    out: Option<&Path>,
    progress: &dyn Fn(usize, usize),
) -> Result<Vec<AddedOne>, AddError> {
    let files = work_tree(root)?;
    let known = fleet::device_files(&files);
    let (mut problems, mut planned) = (Problems::default(), Vec::new());
    for device in listed {
        let ListedDevice { id, place, labels } = device;
        let file = known.iter().find(|(known, _)| known == id).map(|(_, file)| file.clone());
        match file {
            Some(file) => {
                let read = files.iter().find(|one| one.path == file).map(fleet::read_device);
                if read.is_none_or(|read| !read.is_ok_and(|read| read.labels == *labels)) {
                    let hint = format!("change the labels in {file}, or take the device out of this list");
                    let what = format!("`{id}` is in the fleet already, with other labels: {file}");
                    problems.push(place.problem(what).hint(hint));
                }
                planned.push((id, file, None));
            }
            None => {
                let (file, text) = (format!("devices/{id}.yaml"), device_text(id, labels));
                match fleet::read_device(&SourceFile::plain(&file, text.as_str())) {
                    Err(found) => found.iter().for_each(|found| problems.push(place.problem(found.message.clone()))),
                    Ok(_) if root.join(&file).exists() => {
                        let hint = format!("move {file} away, its name means nothing");
                        problems.push(place.problem(format!("`{file}` exists, and is not about `{id}`")).hint(hint));
                    }
                    Ok(_) => {}
                }
                planned.push((id, file, Some(text)));
            }
        }
    }
    if problems.has_errors() {
        return Err(AddError::List(problems));
    }
    for (_, file, text) in &planned {
        let Some(text) = text else { continue };
        let path = root.join(file);
        let failed = FileError::write(&path);
        durable::create_dir_all(path.parent().unwrap_or(root), 0o755).map_err(failed)?;
        durable::replace_file(&path, text.as_bytes(), 0o644).map_err(failed)?;
    }
    commit(root, listed, &planned)?;
    if let Some(out) = out {
        durable::create_dir_all(out, 0o700).map_err(FileError::write(out))?;
    }
    let all = planned.len();
    let added = planned.into_iter().enumerate().map(|(done, (id, file, text))| {
        let out = out.map(|out| out.join(format!("{}.json", id.repository_name())));
        let join = join(home, id, reach, out)?;
        progress(done + 1, all);
        Ok(AddedOne { device: id.clone(), file, was_there: text.is_none(), join })
    });
    added.collect()
}

/// Commits what of these files is new, and what an earlier run wrote and didn't commit: the file as this command writes it.
fn commit(
    root: &Path,
    listed: &[ListedDevice],
    planned: &[(&DeviceId, String, Option<String>)],
) -> Result<(), AddError> {
    let git = StockGit::new(root);
    let mut paths = Vec::new();
    for (device, (_, file, text)) in listed.iter().zip(planned) {
        let as_written = || {
            let known = std::fs::read_to_string(root.join(file));
            known.is_ok_and(|known| known == device_text(&device.id, &device.labels))
        };
        if (text.is_some() || as_written()) && git.is_dirty(file)? {
            paths.push(file.as_str());
        }
    }
    let message = match paths.len() {
        0 => return Ok(()),
        1 => "1 new device".to_owned(),
        count => format!("{count} new devices"),
    };
    Ok(git.commit(&paths, &message)?)
}
