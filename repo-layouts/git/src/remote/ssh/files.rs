//! Files that decide whom we trust and who we are: regular ones, within a size, and not others' to read or to change.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};
use zeroize::Zeroizing;

/// Reads a file of at most `longest` bytes, if none of the `forbidden` permission bits is set. The error is a sentence that
/// says what to do; `None`: there is no such file.
pub(super) fn read(path: &Path, forbidden: u32, longest: u64) -> Result<Option<Zeroizing<Vec<u8>>>, String> {
    let say = |error: io::Error| error.to_string();
    // Opening a FIFO or a device would wait for whoever is at its other end.
    let file = match open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(error) if error == rustix::io::Errno::NOENT => return Ok(None),
        Err(error) => return Err(say(error.into())),
    };
    let metadata = file.metadata().map_err(say)?;
    if !metadata.is_file() {
        return Err("it is no regular file".to_owned());
    }
    let mode = metadata.permissions().mode() & 0o777;
    if mode & forbidden != 0 {
        let (what, chmod) = if forbidden & 0o044 == 0 { ("change", "go-w") } else { ("read or change", "600") };
        return Err(format!("it has mode {mode:03o}, so others may {what} it (chmod {chmod})"));
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(metadata.len().min(longest) as usize + 1));
    file.take(longest + 1).read_to_end(&mut bytes).map_err(say)?;
    if bytes.len() as u64 > longest { Err("it is too long".to_owned()) } else { Ok(Some(bytes)) }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test's own files")]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_no_regular_file_of_its_owner_is_not_waited_for() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        assert_eq!(read(&path, 0o077, 10), Ok(None));
        fs::write(&path, "0123456789").expect("written");
        for (mode, forbidden, longest, words) in
            [(0o640, 0o077, 10, "chmod 600"), (0o664, 0o022, 10, "chmod go-w"), (0o600, 0o077, 9, "too long")]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
            let error = read(&path, forbidden, longest).expect_err("refused");
            assert!(error.contains(words), "{error}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
        assert_eq!(read(&path, 0o022, 10).expect("read").expect("there").len(), 10);
        let fifo = dir.path().join("fifo");
        let made = std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&fifo).status();
        assert!(made.is_ok_and(|status| status.success()));
        assert!(read(&fifo, 0o077, 10).expect_err("a FIFO").contains("no regular file"));
        assert!(read(dir.path(), 0, 10).expect_err("a directory").contains("no regular file"));
    }
}
