//! The same questions by `docker`, for an engine that isn't behind a socket of this machine.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::answers::{Details, Image, Listed, Mount, Object, Volume};
use super::{BATCH, Looked, ONE, vanished};
use crate::runtimes::client::{Call, Client, QUERY, REASON};
use crate::runtimes::command::{CommandError, Output, last_lines};
use crate::runtimes::compose::docker::DOCKER;
use crate::runtimes::{Redactor, RuntimeError};

/// What is listed of each container; of each text so much that one of ours is whole: a stranger's has any length.
const LISTED: &str = concat!(
    r#"{"Id":{{json .ID}},"Names":[{{json (printf "%.4096s" .Names)}}],"State":{{json .State}},"#,
    r#""Image":{{json (printf "%.4096s" .Image)}},"Labels":{"#,
    r#""com.docker.compose.project":{{json (printf "%.1024s" (.Label "com.docker.compose.project"))}},"#,
    r#""com.docker.compose.service":{{json (printf "%.1024s" (.Label "com.docker.compose.service"))}},"#,
    r#""device-syncer.fleet":{{json (printf "%.1024s" (.Label "device-syncer.fleet"))}},"#,
    r#""device-syncer.device":{{json (printf "%.1024s" (.Label "device-syncer.device"))}},"#,
    r#""device-syncer.deployment":{{json (printf "%.1024s" (.Label "device-syncer.deployment"))}},"#,
    r#""device-syncer.component":{{json (printf "%.1024s" (.Label "device-syncer.component"))}}}}"#,
);
/// The same of a network or volume.
const OBJECTS: &str = concat!(
    r#"{"Name":{{json (printf "%.4096s" .Name)}},"Labels":{"#,
    r#""com.docker.compose.project":{{json (printf "%.1024s" (.Label "com.docker.compose.project"))}}}}"#,
);
/// What only `docker volume inspect` has. No path of Linux is longer.
const VOLUME: &str =
    r#"{"Name":{{json .Name}},"Options":{"device":{{json (printf "%.4096s" (index .Options "device"))}}}}"#;
/// The sources of a container's mounts, with commas between them.
const SOURCES: &str = r#"{{json (printf "%.1048576s" .Mounts)}}"#;
const IMAGE: &str = r#"{"Id":"{{.Id}}","RepoDigests":{{json .RepoDigests}}}"#;

pub(super) fn list(docker: &Client, labels: &[String]) -> Result<Vec<Listed>, RuntimeError> {
    let filters: Vec<_> = labels.iter().map(|label| format!("label={label}")).collect();
    let mut args = vec!["ps", "--all", "--no-trunc"];
    filters.iter().for_each(|filter| args.extend(["--filter", filter]));
    parse(&docker.ask(&[args.as_slice(), &["--format", LISTED]].concat())?)
}

/// A line of `docker inspect`.
#[derive(Deserialize)]
struct Line<T> {
    #[serde(rename = "Id")]
    id: String,
    #[serde(flatten)]
    rest: T,
}

/// The same as the engine's own restart.
pub(super) fn restart(docker: &Client, id: &str, seconds: u64, timeout: Duration) -> Result<Looked<()>, RuntimeError> {
    let args = ["restart", "-t", &seconds.to_string(), id].into_iter().map(OsString::from).collect();
    let call = Call { args, timeout, redactor: &Redactor::default(), parameters: &[], cancel: &|| false };
    let output = docker.run(call)?;
    if output.status.success() || vanished(&output.stderr) {
        return Ok(Ok(()));
    }
    docker.ask(docker.tool.probe)?;
    Ok(Err(last_lines(&output.stderr, REASON)))
}

/// One call for each [`BATCH`], and one for each container that was missing in its batch: those that docker can print are
/// printed also where it fails for others.
pub(super) fn inspect<T: Details>(docker: &Client, ids: &[&str]) -> Result<BTreeMap<String, Looked<T>>, RuntimeError> {
    let mut all = BTreeMap::new();
    for batch in ids.chunks(BATCH) {
        let together = call(docker, batch, T::TEMPLATE, QUERY).ok().and_then(|output| parse(&output.stdout).ok());
        all.extend(together.into_iter().flatten().map(|line: Line<T>| (line.id, Ok(line.rest))));
        for id in batch {
            if !all.contains_key(*id) {
                all.extend(inspect_one(docker, id)?.map(|one| ((*id).to_owned(), one)));
            }
        }
    }
    Ok(all)
}

fn inspect_one<T: Details>(docker: &Client, id: &str) -> Result<Option<Looked<T>>, RuntimeError> {
    let reason = match call(docker, &[id], T::TEMPLATE, ONE) {
        Ok(output) if output.status.success() => match parse::<Line<T>>(&output.stdout) {
            Ok(lines) => return Ok(lines.into_iter().next().map(|line| Ok(line.rest))),
            Err(error) => error.to_string(),
        },
        Ok(output) if vanished(&output.stderr) => return Ok(None),
        Ok(output) => last_lines(&output.stderr, REASON),
        Err(CommandError::TimedOut { seconds, .. }) => format!("`docker inspect` took longer than {seconds} s"),
        Err(error @ CommandError::TooMuch { .. }) => error.to_string(),
        Err(error) => return Err(DOCKER.broken_off(error)),
    };
    docker.ask(DOCKER.probe)?;
    Ok(Some(Err(reason)))
}

fn call(docker: &Client, ids: &[&str], format: &str, timeout: Duration) -> Result<Output, CommandError> {
    let args = [&["inspect", "--type", "container", "--format", format], ids].concat();
    let args = args.iter().map(OsString::from).collect();
    docker.try_run(Call { args, timeout, redactor: &Redactor::default(), parameters: &[], cancel: &|| docker.ends() })
}

/// It isn't said which of them are written to.
pub(super) fn mounts(docker: &Client, id: &str) -> Result<Vec<Mount>, RuntimeError> {
    let filter = format!("id={id}");
    let listed: Vec<String> =
        parse(&docker.ask(&["ps", "--all", "--no-trunc", "--filter", &filter, "--format", SOURCES])?)?;
    let sources = listed.iter().flat_map(|sources| sources.split(','));
    Ok(sources.map(|source| Mount { source: source.into(), writes: true }).collect())
}

/// Of this kind, `network` or `volume`.
pub(super) fn objects(docker: &Client, kind: &str) -> Result<Vec<Object>, RuntimeError> {
    parse(&docker.ask(&[kind, "ls", "--format", OBJECTS])?)
}

pub(super) fn volumes(docker: &Client) -> Result<Vec<Volume>, RuntimeError> {
    let listed = docker.ask_text(&["volume", "ls", "--quiet", "--filter", "driver=local"])?;
    let names: Vec<&str> = listed.split_whitespace().collect();
    let mut found = Vec::new();
    for names in names.chunks(BATCH) {
        let output = docker.try_ask(&[&["volume", "inspect", "--format", VOLUME], names].concat())?;
        if !output.status.success() && !vanished(&output.stderr) {
            return Err(docker.failure(&output, |reason| DOCKER.unavailable(reason, None)));
        }
        found.extend(parse::<Volume>(&output.stdout)?);
    }
    Ok(found)
}

pub(super) fn image(docker: &Client, name: &str) -> Result<Option<Image>, RuntimeError> {
    let found = docker.try_ask(&["image", "inspect", "--format", IMAGE, "--", name])?;
    if found.status.success() { parse(&found.stdout).map(|lines| lines.into_iter().next()) } else { Ok(None) }
}

pub(super) fn version(docker: &Client) -> Result<String, RuntimeError> {
    Ok(docker.ask_text(DOCKER.probe)?.trim().to_owned())
}

pub(super) fn data_root(docker: &Client) -> Result<PathBuf, RuntimeError> {
    Ok(docker.ask_text(&["info", "--format", "{{.DockerRootDir}}"])?.trim().into())
}

/// One JSON value a line.
fn parse<T: for<'a> Deserialize<'a>>(lines: &[u8]) -> Result<Vec<T>, RuntimeError> {
    serde_json::Deserializer::from_slice(lines)
        .into_iter()
        .collect::<Result<_, _>>()
        .map_err(|error| DOCKER.unavailable(format!("what docker printed can't be read: {error}"), None))
}
