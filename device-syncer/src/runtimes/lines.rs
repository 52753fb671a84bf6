//! A child process whose output is given line by line while it runs.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{self, Stdio};
use std::thread;

use super::command::last_lines;

/// What of a line is given, in bytes; the rest of it is left out.
const LONGEST: usize = 16 << 10;

/// How much of what it says to standard error goes into an error.
const REASON: usize = 1024;

/// Which lines of the logs are asked for.
#[derive(Debug, Clone, Copy)]
pub struct Lines {
    /// The newest so many of each container.
    pub tail: usize,
    /// Whether what comes from now on is given, too.
    pub follow: bool,
}

pub(super) struct Command<'a> {
    pub(super) program: &'a Path,
    pub(super) args: Vec<OsString>,
    pub(super) env: &'a [(OsString, OsString)],
}

/// Gives each line that it prints, until it ends or `each` wants no more. It stays in this program's group, so that Ctrl-C
/// ends both.
pub(super) fn each(command: Command<'_>, each: &mut dyn FnMut(&str) -> bool) -> Result<(), String> {
    let program = command.program.display();
    let mut child = process::Command::new(command.program)
        .args(command.args)
        .env_clear()
        .envs(command.env.iter().map(|(name, value)| (name, value)))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("can't start `{program}`: {error}"))?;
    let errors = child.stderr.take().map(|pipe| thread::spawn(move || end_of(pipe)));
    let is_wanted = child.stdout.take().is_none_or(|pipe| read(BufReader::new(pipe), each));
    if !is_wanted {
        let _ = child.kill();
    }
    let status = child.wait().map_err(|error| format!("can't wait for `{program}`: {error}"))?;
    let stderr = errors.and_then(|errors| errors.join().ok()).unwrap_or_default();
    if is_wanted && !status.success() { Err(last_lines(&stderr, REASON)) } else { Ok(()) }
}

/// Whether all of it was wanted.
fn read(mut pipe: impl BufRead, each: &mut dyn FnMut(&str) -> bool) -> bool {
    loop {
        let mut line = Vec::new();
        match pipe.by_ref().take(LONGEST as u64).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return true,
            Ok(_) if !each(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r'])) => return false,
            Ok(LONGEST) if line.last() != Some(&b'\n') && pipe.skip_until(b'\n').is_err() => return true,
            Ok(_) => {}
        }
    }
}

fn end_of(mut pipe: impl Read) -> String {
    let (mut kept, mut chunk) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = pipe.read(&mut chunk) {
        kept.extend_from_slice(&chunk[..count]);
        kept.drain(..kept.len().saturating_sub(4 * REASON));
    }
    String::from_utf8_lossy(&kept).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, most: usize) -> (Vec<String>, Result<(), String>) {
        let mut lines = Vec::new();
        let args = ["-c", script].map(OsString::from).into();
        let command = Command { program: Path::new("/bin/sh"), args, env: &[] };
        let result = each(command, &mut |line| {
            lines.push(line.to_owned());
            lines.len() < most
        });
        (lines, result)
    }

    #[test]
    fn each_line_is_given_while_the_process_runs_and_one_that_nobody_reads_is_ended() {
        assert_eq!(shell("echo a; echo b >&2; printf c", 9), (vec!["a".to_owned(), "c".to_owned()], Ok(())));
        assert_eq!(shell("while :; do echo a; done", 3).0.len(), 3);
        assert_eq!(shell("echo a; echo why >&2; exit 1", 9).1, Err("why".to_owned()));
    }

    #[test]
    fn a_line_without_an_end_takes_no_more_memory_than_some() {
        let (lines, result) = shell("head -c 1000000 /dev/zero | tr '\\0' x; echo; echo b", 9);
        assert_eq!((lines[0].len(), lines[1].as_str(), lines.len()), (LONGEST, "b", 2));
        result.unwrap();
    }
}
