//! Sockets at paths of any length: the kernel takes no more than 107 bytes.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The longest path that the kernel takes for a socket.
const MAX: usize = 107;

/// The same path, or a short one to the same place for as long as the directory that comes with it is open.
pub(super) fn short(path: &Path) -> io::Result<(PathBuf, Option<File>)> {
    if path.as_os_str().len() <= MAX {
        return Ok((path.to_owned(), None));
    }
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let dir = File::open(dir)?;
    Ok((Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name), Some(dir)))
}
