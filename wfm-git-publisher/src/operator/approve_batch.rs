//! A person's word for all devices that wait with a batch token: their files, one commit, then what one device gets, for each.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use repo_git::durable::{self, FileError};
use repo_git::sign::openssh;
use repo_model::DeviceId;
use wfm_git_host::Settings;
use wfm_git_host::accounts::Store;
use wfm_git_host::enrolment::Claims;

use super::add::device_text;
use super::approve_device::{ApproveDeviceError, Taken, complete};
use super::batch::{Batch, Candidate, waiting_with};
use crate::fleet::{self, SourceFile, Token};
use crate::repos::{Control, FleetRepo, Home, StockGit, work_tree};

/// All that wait with one token.
#[derive(Debug, Clone)]
pub struct BatchWord {
    /// The token's name.
    pub token: String,
    /// How many new devices a person saw and means; absent if nobody counted them.
    pub expect: Option<usize>,
    /// How long the devices' first secrets are valid; `None` for ever.
    pub ttl: Option<Duration>,
}

/// What became of them.
#[derive(Debug, Default)]
pub struct BatchApproval {
    pub taken: Vec<TakenIn>,
    /// Those that weren't taken in, each with its problem.
    pub left: Vec<Candidate>,
}

/// A device that was taken in.
#[derive(Debug)]
pub struct TakenIn {
    pub device: DeviceId,
    /// The path of its file in the fleet repository.
    pub file: String,
    /// `SHA256:…`, as `ssh-keygen -l` shows it.
    pub fingerprint: String,
    /// The serial number that it said it has.
    pub serial: Option<String>,
    /// What a person should look at.
    pub note: Option<String>,
}

/// One that is going to be taken in, and its file.
struct Planned {
    device: DeviceId,
    file: String,
    /// Absent where the file is there.
    text: Option<String>,
    /// The commit's two lines about it.
    trailers: String,
    candidate: Candidate,
}

/// Takes in all that wait with the token and that nothing speaks against. Where more wait than the token has places, nobody
/// is: a person has to say who isn't meant. The same again completes what was cut off.
pub fn approve_batch(
    root: &Path,
    home: &Home,
    serve: &Settings,
    word: &BatchWord,
    now: Timestamp,
) -> Result<BatchApproval, ApproveDeviceError> {
    let claims = Claims::new(home.enrolments());
    let source = FleetRepo::open(root)?;
    let (at_head, files) = (source.files(source.resolve("HEAD")?)?, work_tree(root)?);
    let (mut tokens, _) = fleet::read_tokens(&at_head);
    let token = tokens.remove(&word.token).ok_or_else(|| ApproveDeviceError::NoToken(word.token.clone()))?;
    let (ledger, rosters) = Control::read(home)?;
    let accounts = Store::new(home.accounts());
    let batch = Batch { token: Some(&token), files: &files, accounts: &accounts, roster: rosters.newest.digest };
    let candidates = batch.judge(waiting_with(claims.list(now)?.0, &token.name))?;
    let mut done = BatchApproval::default();
    let mut planned = Vec::new();
    for mut candidate in candidates {
        match candidate.device.clone().filter(|_| candidate.problem.is_none()) {
            Some(device) => match plan("devices", &token, device, &candidate, &|file| root.join(file).exists()) {
                Ok((device, file, text, trailers)) => planned.push(Planned { device, file, text, trailers, candidate }),
                Err(problem) => {
                    candidate.problem = Some(problem);
                    done.left.push(candidate);
                }
            },
            None => done.left.push(candidate),
        }
    }
    let known: Vec<_> = fleet::device_files(&at_head).into_iter().map(|(_, file)| file).collect();
    let (count, new) = (at_head_with(&at_head, &token.name), planned.iter().filter(|one| !known.contains(&one.file)));
    let new: Vec<_> = new.collect();
    if count + new.len() > token.count as usize {
        let places = (token.count as usize).saturating_sub(count);
        return Err(ApproveDeviceError::NoPlaces { token: token.name, waiting: new.len(), places });
    }
    if let Some(expected) = word.expect.filter(|expected| *expected != new.len()) {
        return Err(ApproveDeviceError::Unexpected { token: token.name, waiting: new.len(), expected });
    }
    for Planned { file, text, .. } in &planned {
        let Some(text) = text else { continue };
        let path = root.join(file);
        let failed = FileError::write(&path);
        durable::create_dir_all(path.parent().unwrap_or(root), 0o755).map_err(failed)?;
        durable::replace_file(&path, text.as_bytes(), 0o644).map_err(failed)?;
    }
    if !new.is_empty() {
        let paths: Vec<_> = new.iter().map(|one| one.file.as_str()).collect();
        let what = fleet::counted(new.len());
        let trailers: String = new.iter().map(|one| one.trailers.as_str()).collect();
        StockGit::new(root).commit(&paths, &format!("enroll {what} by the token {}\n\n{trailers}", token.name))?;
    }
    for Planned { device, file, candidate, .. } in planned {
        let Candidate { waiting, claim, note, .. } = candidate;
        let taken = Taken { device: &device, ttl: Some(word.ttl), home, serve, ledger: &ledger, rosters: &rosters };
        complete(&claims, waiting, &claim, &taken, now)?;
        let fingerprint = openssh::fingerprint(&claim.key);
        done.taken.push(TakenIn { device, file, fingerprint, serial: claim.serial, note });
    }
    Ok(done)
}

/// How many devices the token has in these files.
pub(super) fn at_head_with(files: &[SourceFile], token: &str) -> usize {
    let devices = files.iter().filter_map(|file| fleet::read_device(file).ok());
    devices.filter(|device| device.enrolled_by.as_ref().is_some_and(|by| by.token == token)).count()
}

/// The device's file in this folder and its text, and what the commit says of it; else why it can't be.
pub(super) fn plan(
    folder: &str,
    token: &Token,
    device: DeviceId,
    candidate: &Candidate,
    exists: &dyn Fn(&str) -> bool,
) -> Result<(DeviceId, String, Option<String>, String), String> {
    let Candidate { waiting, claim, known, .. } = candidate;
    let fingerprint = openssh::fingerprint(&claim.key);
    let trailers =
        |transcript: &str| format!("Enrolled: {device} {fingerprint} token {}\nTranscript: {transcript}\n", token.name);
    if let Some(known) = known {
        let transcript = known.enrolled_by.as_ref().map_or_else(String::new, |by| by.transcript.hex());
        let trailers = trailers(&transcript);
        return Ok((device, known.file.clone(), None, trailers));
    }
    let proof = waiting.token.as_ref().map(|token| token.proof.as_str()).unwrap_or_default();
    let transcript = waiting.transcript.hex();
    // JSON's strings are YAML's too: nothing that a stranger wrote is more than a text.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let (file, text) = (
        format!("{folder}/{device}.yaml"),
        format!(
            "{}enrolledBy:\n  token: {}\n  transcript: {}\n  proof: {}\nstatusKeys:\n  - {}\n",
            device_text(&device, &token.labels),
            quoted(&token.name),
            quoted(&transcript),
            quoted(proof),
            claim.key,
        ),
    );
    fleet::read_device(&SourceFile::plain(&file, text.as_str())).map_err(|problems| problems.to_string())?;
    if exists(&file) {
        return Err(format!("`{file}` exists, and is not about `{device}`"));
    }
    let trailers = trailers(&transcript);
    Ok((device, file, Some(text), trailers))
}
