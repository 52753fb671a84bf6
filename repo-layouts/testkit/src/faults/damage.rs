//! Damage to repositories: a bit that is another, files that were cut off, emptied or lost.
#![allow(clippy::missing_panics_doc, reason = "a test that can't do its damage fails")]

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::chaos_rounds;
use crate::git::git;

/// What becomes of a file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Harm {
    /// One bit is another, at this byte.
    Flipped(u64),
    /// The second half is gone.
    Truncated,
    Emptied,
    Removed,
}

impl Harm {
    /// Damages the file.
    pub fn does(self, path: &Path) {
        let length = fs::metadata(path).expect("there").len();
        let writable = || {
            fs::set_permissions(path, fs::Permissions::from_mode(0o644)).expect("writable");
            fs::File::options().read(true).write(true).open(path).expect("opened")
        };
        match self {
            Self::Flipped(at) => {
                let (mut file, mut byte) = (writable(), [0]);
                file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(&mut byte)).expect("read");
                byte[0] ^= 0x10;
                file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(&byte)).expect("written");
            }
            Self::Truncated => writable().set_len(length / 2).expect("truncated"),
            Self::Emptied => writable().set_len(0).expect("emptied"),
            Self::Removed => fs::remove_file(path).expect("removed"),
        }
    }
}

fn files_below(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("listed").flatten() {
        if entry.path().is_dir() { files_below(&entry.path(), found) } else { found.push(entry.path()) }
    }
    found.sort();
}

/// Each object of a pack, with a byte in its middle, by stock git.
fn objects_in(pack: &Path) -> Vec<(String, u64)> {
    let directory = pack.parent().expect("packs lie in a directory");
    let said = git(directory, &["verify-pack", "-v", &pack.display().to_string()]);
    let object = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let is_object = words.first().is_some_and(|word| word.len() == 40) && words.len() >= 5;
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        is_object.then(|| (words[0].to_owned(), number(4) + number(3) / 2))
    };
    said.lines().filter_map(object).collect()
}

/// Whether this is a pack.
pub fn is_pack(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "pack")
}

/// Whether this is the index of a pack.
pub fn is_index(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "idx")
}

/// Flips a bit in the object that a revision of a repository names, which must be in a pack.
pub fn flip_object(repository: &Path, rev: &str) {
    let id = git(repository, &["rev-parse", rev]);
    let mut files = Vec::new();
    files_below(&repository.join("objects"), &mut files);
    let packs: Vec<_> = files.into_iter().filter(|file| is_pack(file)).collect();
    let found = packs.iter().find_map(|pack| Some((pack, objects_in(pack).into_iter().find(|(one, _)| *one == id)?.1)));
    let (pack, byte) = found.unwrap_or_else(|| panic!("{rev} ({id}) is in no pack"));
    Harm::Flipped(byte).does(pack);
}

/// How many objects of a pack are damaged, one after the other; `just chaos` asks for more.
fn most() -> usize {
    if chaos_rounds().is_some() { 8 } else { 2 }
}

/// Harms to all files of a repository: a bit in the middle of objects of packs, at both ends and in the middle of every
/// other file, and each file cut off, emptied and gone.
pub fn all_harms(repository: &Path) -> Vec<(PathBuf, Harm)> {
    let mut files = Vec::new();
    files_below(repository, &mut files);
    let mut all = Vec::new();
    for file in files {
        let length = fs::metadata(&file).expect("there").len();
        if length == 0 {
            continue;
        }
        let bytes = if is_pack(&file) {
            let objects = objects_in(&file);
            let step = objects.len().div_ceil(most()).max(1);
            objects.into_iter().step_by(step).map(|(_, byte)| byte).collect()
        } else {
            vec![0, length / 2, length - 1]
        };
        let flips = bytes.into_iter().map(Harm::Flipped);
        let harms = flips.chain([Harm::Truncated, Harm::Emptied, Harm::Removed]);
        all.extend(harms.map(|harm| (file.clone(), harm)));
    }
    all
}
