//! SSH keys of tests, made and read by `ssh-keygen`.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::text;

/// Makes a key of this kind (as `ssh-keygen -t` names it) in OpenSSH's format, and its public half beside it. No passphrase
/// if that is empty.
pub fn keygen(path: &Path, kind: &str, passphrase: &str) {
    run(Command::new("ssh-keygen").args(["-q", "-t", kind, "-C", "test", "-N", passphrase, "-f"]).arg(path));
}

/// The public half of a key, as one line.
pub fn public(key: &Path) -> String {
    let path = format!("{}.pub", key.display());
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}")).trim().to_owned()
}

/// The same, read from the secret half.
pub fn public_of(key: &Path) -> String {
    run(Command::new("ssh-keygen").arg("-yf").arg(key)).trim().to_owned()
}

/// A key's fingerprint as `ssh-keygen` says it: `SHA256:…`.
pub fn fingerprint(key: &Path) -> String {
    let listed = run(Command::new("ssh-keygen").arg("-lf").arg(key));
    listed.split(' ').nth(1).expect("size, fingerprint, comment").to_owned()
}

fn run(command: &mut Command) -> String {
    text(command.output().expect("ssh-keygen is installed (./justw setup base)"))
}
