//! Values that stay on the device: files that a site puts there, named by `valueFrom`.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use repo_model::{ErrorCode, envelope};

use crate::decision::failure::Failure;

/// The largest value that a device file may hold, in bytes: Linux takes no longer string in an environment.
const MAX_VALUE: u64 = 128 << 10;

/// The value in a device file: UTF-8, one final newline removed. Failures name the file, never its contents.
pub fn read(directory: &Path, name: &str) -> Result<String, Failure> {
    let invalid =
        |problem: String| Failure::new(ErrorCode::ParameterInvalid, format!("device file `{name}`: {problem}"));
    if !envelope::ValueFrom::is_bare(name) {
        return Err(invalid("is not a bare file name".to_owned()));
    }
    let path = directory.join(name);
    let mut bytes = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(MAX_VALUE + 1).read_to_end(&mut bytes));
    read.map_err(|error| invalid(format!("`{}`: {error}", path.display())))?;
    if bytes.len() as u64 > MAX_VALUE {
        return Err(invalid(format!("is larger than {MAX_VALUE} bytes")));
    }
    value(bytes).map_err(|problem| invalid(problem.to_owned()))
}

/// The value that these bytes are: UTF-8, one final newline removed.
pub(super) fn value(bytes: Vec<u8>) -> Result<String, &'static str> {
    let text = String::from_utf8(bytes).map_err(|_| "is not UTF-8")?;
    if text.contains('\0') {
        return Err("holds a NUL character");
    }
    Ok(text.strip_suffix('\n').map(str::to_owned).unwrap_or(text))
}
