//! A stand-in for `docker`: it runs nothing, and keeps what would run in a directory, as durably as dockerd does.
//!
//! The directory is `$FAKE_DOCKER_STATE`, or `DIR` of `DOCKER_HOST=fake://DIR`. It holds `state.json`, `calls.log` (one
//! line per mutation) and `knobs/`, files whose presence changes what happens:
//!
//! | Knob | Effect |
//! |---|---|
//! | `unavailable` | every command fails as if the daemon were gone |
//! | `fail-up`, `fail-up-PROJECT` | the next `up`, or that project's next `up`, fails with the file's text, and the knob is used up |
//! | `hang-up` | `up` hangs after it created its first container, for as long as the file is there; of the projects in the file, or of all if it is empty |
//! | `hang-down` | `down` hangs before it does anything |
//! | `fail-restart` | a restart fails with the file's text |
//! | `starting-SERVICE`, `unhealthy-SERVICE` | the health of that service |
//! | `exit-SERVICE` | that service's container has ended, with the exit code in the file |
//! | `restarting-SERVICE` | docker restarts that service's container, which ended with the exit code in the file |
//! | `unpullable` | images, one a line, that can't be pulled |
//!
//! `compose config` resolves a file as the real one does: it needs no directory, and knows no knob.
//!
//! It knows what the compose runtime of the device-syncer calls, and no more: an unknown command is an error.

mod compose;
mod config;
mod query;
mod state;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use state::Store;

/// Runs one command as `docker` would, with the arguments after the program's name.
pub fn main(args: &[String]) -> ExitCode {
    if args.first().is_some_and(|arg| arg == "compose") && args.iter().any(|arg| arg == "config") {
        return end(compose::config(&args.iter().map(String::as_str).collect::<Vec<_>>()));
    }
    let Some(dir) = directory() else {
        eprintln!("fake-docker: neither FAKE_DOCKER_STATE nor DOCKER_HOST=fake://DIR is set");
        return ExitCode::from(125);
    };
    end(Store::open(&dir).and_then(|mut store| run(&mut store, args)))
}

fn end(result: Result<String>) -> ExitCode {
    match result {
        Ok(output) => {
            print!("{output}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            print!("{}", error.output);
            eprintln!("{}", error.message);
            ExitCode::FAILURE
        }
    }
}

fn directory() -> Option<PathBuf> {
    let from_host = || std::env::var("DOCKER_HOST").ok()?.strip_prefix("fake://").map(PathBuf::from);
    std::env::var_os("FAKE_DOCKER_STATE").map(PathBuf::from).or_else(from_host)
}

/// A command that fails: what goes to standard error, and what was printed all the same.
#[derive(Debug, Default)]
struct Failure {
    message: String,
    output: String,
}

impl<T: std::fmt::Display> From<T> for Failure {
    fn from(message: T) -> Self {
        Self { message: message.to_string(), output: String::new() }
    }
}

type Result<T> = std::result::Result<T, Failure>;

fn run(store: &mut Store, args: &[String]) -> Result<String> {
    if store.knob("unavailable").is_some() {
        return Err("Cannot connect to the Docker daemon at fake. Is the docker daemon running?".into());
    }
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["version", ..] => Ok("20.10.24\n".to_owned()),
        ["compose", "version", ..] => Ok("2.40.0\n".to_owned()),
        ["ps", rest @ ..] => query::ps(store, rest),
        ["inspect", _, _, "--format", format, ids @ ..] if format.contains(".Mounts") => query::mounts(store, ids),
        ["inspect", rest @ ..] => query::inspect(store, rest),
        ["network" | "volume", "ls", rest @ ..] => query::objects(store, words[0], rest),
        // None of them shows a directory of the host.
        ["volume", "inspect", ..] => Ok(String::new()),
        ["network" | "volume", "create", rest @ ..] => query::create_object(store, words[0], rest),
        ["network" | "volume", "rm", names @ ..] => query::remove_objects(store, words[0], names),
        ["image", "inspect", rest @ ..] => query::image(store, rest),
        ["image", "rm", .., name] => query::unname(store, name),
        ["tag", source, name] => query::tag(store, source, name),
        ["pull", .., image] => query::pull(store, image),
        ["logs", .., id] => query::logs(store, id),
        ["create", rest @ ..] => query::create(store, rest),
        ["kill", ids @ ..] => query::kill(store, ids),
        ["restart", "-t", _, id] => query::restart(store, id),
        ["rm", .., id] => query::remove(store, id),
        ["compose", rest @ ..] => compose::run(store, rest),
        _ => Err(format!("fake-docker: unknown command {args:?}").into()),
    }
}

/// The fake as a test sees it from outside.
#[derive(Debug, Clone)]
pub struct FakeDocker {
    dir: PathBuf,
}

impl FakeDocker {
    /// A fake that keeps its state here.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// `DOCKER_HOST` of this fake.
    pub fn host(&self) -> String {
        format!("fake://{}", self.dir.display())
    }

    /// Where this fake keeps its state.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes the stand-in behave otherwise; its modules say which knobs there are.
    #[allow(clippy::disallowed_methods, reason = "a test's own file")]
    pub fn set(&self, knob: &str, text: &str) {
        let dir = self.dir.join("knobs");
        std::fs::create_dir_all(&dir).expect("the knobs' directory can be made");
        std::fs::write(dir.join(knob), text).expect("a knob can be written");
    }

    #[allow(clippy::disallowed_methods, reason = "a test's own file")]
    pub fn unset(&self, knob: &str) {
        let _ = std::fs::remove_file(self.dir.join("knobs").join(knob));
    }

    /// Every mutation so far, like `create PROJECT/SERVICE ID`.
    pub fn calls(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.dir.join("calls.log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }
}
