//! Which installation this is: a home that was copied to another place or machine is another one.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use repo_git::durable;
use repo_model::Digest;
use uuid::Uuid;

use super::json_file::{FileError, failed};
use crate::config::Home;

/// The UUID of this installation, which is made anew where the home isn't where it was.
pub fn of(home: &Home) -> Result<Uuid, FileError> {
    let place = place_of(&home.key()).map_err(failed("look at", &home.key()))?;
    let known = fs::read_to_string(home.instance()).unwrap_or_default();
    // The place may be noted already that the key will have in a moment.
    let is_here = |known: &str| known == place || place_of(&home.next_key()).is_ok_and(|next| next == known);
    let known = known.split_once(' ').filter(|(_, known)| is_here(known)).and_then(|(uuid, _)| uuid.parse().ok());
    if let Some(known) = known {
        return Ok(known);
    }
    let made = Uuid::new_v4();
    write(home, made, &place)?;
    Ok(made)
}

/// It stays the same when the new key takes the place of the old one.
pub(super) fn follow(home: &Home) -> Result<(), FileError> {
    let known = of(home)?;
    let place = place_of(&home.next_key()).map_err(failed("look at", &home.next_key()))?;
    write(home, known, &place)
}

fn write(home: &Home, uuid: Uuid, place: &str) -> Result<(), FileError> {
    let path = home.instance();
    durable::replace_file(&path, format!("{uuid} {place}").as_bytes(), 0o600).map_err(failed("write", &path))
}

/// Tells a file from its copies: its inode, and what the firmware says of the machine, if it says anything.
fn place_of(key: &Path) -> io::Result<String> {
    const MACHINE: [&str; 2] = ["/sys/class/dmi/id/product_uuid", "/sys/firmware/devicetree/base/serial-number"];
    let machine = MACHINE.map(|path| fs::read(path).unwrap_or_default()).concat();
    let inode = fs::metadata(key)?.ino().to_le_bytes();
    Ok(Digest::of(&[inode.as_slice(), &machine].concat()).hex())
}
