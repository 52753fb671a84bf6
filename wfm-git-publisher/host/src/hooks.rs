//! The hooks that stock git calls for a push: this program, called by scripts.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use repo_git::durable;
use rustix::fs::Access;

/// The hooks, both this program.
const HOOKS: [&str; 2] = ["pre-receive", "update"];

/// The first argument of this program when it is called as a hook; the second is the hook's name.
pub const HOOK: &str = "hook";

/// Lets stock git call this very program. By scripts, because git takes a link to a program that has gone for no hook
/// at all, and would accept every push; a script that can't run it fails, and the push with it.
pub(crate) fn install(hooks: &Path) -> io::Result<()> {
    let program = std::env::current_exe()?;
    let quoted = program.as_os_str().as_bytes().split(|byte| *byte == b'\'').collect::<Vec<_>>().join(&b"'\\''"[..]);
    for name in HOOKS {
        let script = [b"#!/bin/sh\nexec '", &quoted[..], format!("' {HOOK} {name} \"$@\"\n").as_bytes()].concat();
        durable::replace_file(&hooks.join(name), &script, 0o700)?;
    }
    check(hooks)
}

/// Whether git will call the hooks: those that it may not execute it leaves out, with a word to nobody.
pub(crate) fn check(hooks: &Path) -> io::Result<()> {
    HOOKS.iter().try_for_each(|name| Ok(rustix::fs::access(hooks.join(name), Access::EXEC_OK)?))
}
