//! Puts right in the fleet's own files what can be meant in one way only. A vendor's package stays as it came.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use repo_git::durable::{self, FileError};
use repo_model::problem::{Mend, Problem, Problems};
use repo_model::{DeploymentName, DeviceId};
use serde::Serialize;

use super::edit;
use crate::fleet::{self, Content, SourceFile};
use crate::repos::{SourceError, work_tree};

/// Something can't be put right.
#[derive(Debug, thiserror::Error)]
pub enum FixError {
    #[error("cannot read the fleet")]
    Source(#[from] SourceError),
    /// A file can't be changed.
    #[error(transparent)]
    File(#[from] FileError),
}

/// What was put right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fix {
    /// The file, as it is called now.
    pub file: String,
    /// What was done, such as `wrote its id`.
    pub what: String,
}

/// Puts right what can be meant in one way only: the ending of a file's name, a key that is like no other one, quotes that are missing or
/// too many, and a missing id, which the file's name suggests unless it is taken. Nothing is committed.
pub fn fix(root: &Path, threads: usize) -> Result<Vec<Fix>, FixError> {
    let mut fixes = rename(root, &work_tree(root)?)?;
    fixes.extend(mend_files(root, threads)?);
    let identified = identify(root)?;
    if !identified.is_empty() {
        // What a deployment says is only read once it has an id.
        fixes.extend(identified);
        fixes.extend(mend_files(root, threads)?);
    }
    Ok(fixes)
}

/// Mends what is in files.
fn mend_files(root: &Path, threads: usize) -> Result<Vec<Fix>, FixError> {
    let mut files = work_tree(root)?;
    let fixes = mend(&mut files, threads);
    let changed: BTreeSet<_> = fixes.iter().map(|fix| fix.file.as_str()).collect();
    for file in files.iter().filter(|file| changed.contains(file.path.as_str())) {
        if let Content::Plain(bytes) = &file.content {
            replace(&root.join(&file.path), bytes)?;
        }
    }
    Ok(fixes)
}

/// Gives an id to what has none.
fn identify(root: &Path) -> Result<Vec<Fix>, FixError> {
    let (files, mut fixes) = (work_tree(root)?, Vec::new());
    for file in fleet::without_id(&files) {
        let Some(id) = suggested(&file).filter(|id| !fleet::has_id(&files, &file, id)) else { continue };
        let path = root.join(&file);
        let text = fs::read_to_string(&path).map_err(FileError::read(&path))?;
        let Some(text) = edit::set_id(&text, &id) else { continue };
        replace(&path, text.as_bytes())?;
        fixes.push(Fix { file, what: "wrote its id".to_owned() });
    }
    Ok(fixes)
}

fn replace(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    durable::replace_file(path, bytes, 0o644).map_err(FileError::write(path))
}

/// Gives files the ending by which they are read, unless another one has that name.
fn rename(root: &Path, files: &[SourceFile]) -> Result<Vec<Fix>, FixError> {
    let mut fixes = Vec::new();
    for old in fleet::misnamed(files) {
        let Some((stem, _)) = old.rsplit_once('.') else { continue };
        let new = format!("{stem}.yaml");
        let (from, to) = (root.join(old), root.join(&new));
        if is_own(old) && fs::symlink_metadata(&to).is_err() {
            durable::rename(&from, &to).map_err(FileError::write(&to))?;
            fixes.push(Fix { file: new, what: format!("was {old}") });
        }
    }
    Ok(fixes)
}

/// Whether a file is the fleet's own.
fn is_own(path: &str) -> bool {
    !path.starts_with("applications/")
}

/// Mends problems, each as it says itself, as long as nothing is wrong in its place then. What is read better may show others.
fn mend(files: &mut Vec<SourceFile>, threads: usize) -> Vec<Fix> {
    let (mut fixes, mut left) = (Vec::new(), BTreeSet::new());
    loop {
        let problems = fleet::read_on(files, threads).problems;
        let mut by_file: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for one in problems.errors().filter(|one| is_own(&one.file) && !left.contains(&place(one))) {
            if one.mend.is_some() {
                by_file.entry(one.file.as_str()).or_default().push(one);
            }
        }
        let (mut mended, mut tried) = (files.clone(), Vec::new());
        for file in &mut mended {
            let Some(all) = by_file.get_mut(file.path.as_str()) else { continue };
            // What stands behind another one keeps its place if it goes first.
            all.sort_by_key(|one| std::cmp::Reverse((one.line, one.column)));
            for one in all {
                let Content::Plain(bytes) = &file.content else { continue };
                match std::str::from_utf8(bytes).ok().and_then(|text| written(text, one)) {
                    Some((text, fix)) => {
                        file.content = Content::Plain(text.into_bytes());
                        tried.push((*one, fix));
                    }
                    None => _ = left.insert(place(one)),
                }
            }
        }
        if tried.is_empty() {
            return fixes;
        }
        let after = fleet::read_on(&mended, threads).problems;
        let (good, bad): (Vec<_>, Vec<_>) = tried.into_iter().partition(|(one, _)| is_gone(one, &after));
        if bad.is_empty() {
            fixes.extend(good.into_iter().map(|(_, fix)| fix));
            *files = mended;
        }
        left.extend(bad.iter().map(|(one, _)| place(one)));
    }
}

fn place(problem: &Problem) -> (String, String) {
    (problem.file.clone(), problem.key.clone())
}

/// Whether nothing is wrong any more where the problem was, or with the whole that it is a part of.
fn is_gone(problem: &Problem, after: &Problems) -> bool {
    let has = |one: &Problem| {
        let rest = problem.key.strip_prefix(one.key.as_str()).filter(|_| !one.key.is_empty());
        one.file == problem.file && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    !after.errors().any(has)
}

/// The file's text with one problem mended; `None` if something else stands in its place.
fn written(text: &str, problem: &Problem) -> Option<(String, Fix)> {
    let (line, column) = (problem.line?.get() as usize, problem.column?.get() as usize);
    let begin: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let (at, _) = text[begin..].char_indices().nth(column - 1)?;
    let (head, rest) = text.split_at(begin + at);
    let quoted = |text: &str| format!("\"{text}\"");
    let (text, was, is) = match problem.mend.as_deref()? {
        Mend::Word { was, is } => (format!("{head}{is}{}", rest.strip_prefix(was)?), was.clone(), is.clone()),
        Mend::Key { was, is } => {
            let key = head.trim_end().strip_suffix(':')?.trim_end();
            (format!("{}{is}{}{rest}", key.strip_suffix(was)?, &head[key.len()..]), was.clone(), is.clone())
        }
        Mend::Quote(plain) => {
            let tail = rest.strip_prefix(plain.as_str())?;
            let is_whole = tail.is_empty() || tail.starts_with([' ', '\t', '\r', '\n', ',', ']', '}']);
            let is_plain = !plain.contains(['"', '\\']) && !plain.contains(char::is_control);
            (is_whole && is_plain).then(|| (format!("{head}{}{tail}", quoted(plain)), plain.clone(), quoted(plain)))?
        }
        Mend::Unquote(plain) => {
            let forms = [quoted(plain), format!("'{plain}'")];
            let (form, tail) = forms.iter().find_map(|form| Some((form, rest.strip_prefix(form.as_str())?)))?;
            (format!("{head}{plain}{tail}"), form.clone(), plain.clone())
        }
    };
    let key = if problem.key.is_empty() { String::new() } else { format!("{}: ", problem.key) };
    Some((text, Fix { file: problem.file.clone(), what: format!("{key}wrote {is} for {was}") }))
}

/// The file's name as an id, if it can be one.
fn suggested(file: &str) -> Option<String> {
    let stem = file.rsplit('/').next()?.strip_suffix(".yaml")?;
    if file.starts_with("devices/") {
        return stem.parse::<DeviceId>().ok().map(String::from);
    }
    stem.to_lowercase().replace(['_', ' ', '.'], "-").parse::<DeploymentName>().ok().map(String::from)
}
