//! Batch tokens: a key pair of which the fleet gets the public half, and one enrolment file the private one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use repo_git::durable::{self, FileError};
use repo_git::{KeyError, SigningKey};
use repo_model::enrolment::{self, EnrolmentFile};
use repo_model::problem::Problems;
use repo_model::{json, text};
use wfm_git_host::Settings;
use wfm_git_host::enrolment::{Claims, ClaimsError, Tokens};

use super::offer::{OfferError, offer};
use crate::fleet::{self, SourceFile, Token, is_token_name};
use crate::repos::{GitError, Home, SourceError, StockGit, key_text, work_tree};

/// What a new token is for.
#[derive(Debug, Clone)]
pub struct NewToken {
    pub name: String,
    /// For how many devices.
    pub count: u32,
    pub until: Timestamp,
    pub labels: BTreeMap<String, String>,
    /// The devices' ids, with `{serial}` in it.
    pub id: String,
    /// The serial numbers that count; all of them if it is empty.
    pub serials: Vec<String>,
    /// Whether the host takes its devices in without a person.
    pub auto: bool,
    /// Where the enrolment file goes.
    pub out: PathBuf,
}

/// A token that was made.
#[derive(Debug)]
pub struct TokenMade {
    pub token: Token,
    /// Whether an earlier run made it, and this one completed that.
    pub was_there: bool,
}

/// A token can't be made or ended.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("cannot read the fleet")]
    Source(#[from] SourceError),
    #[error("`{0}` can't be a token's name: 1 to 63 lower-case letters, digits and `- _`")]
    Name(String),
    /// Its file would be wrong.
    #[error("the token can't be made like this")]
    Problems(Problems),
    #[error("there is a token `{name}` already: {file}")]
    Exists { name: String, file: String },
    /// Devices of the fleet came by a token of that name.
    #[error("{count} devices of the fleet came by a token `{name}`")]
    Used { name: String, count: usize },
    /// The enrolment file is there, and isn't this token's.
    #[error("`{}` exists, and is no enrolment file of the token `{name}`", out.display())]
    OutExists { out: PathBuf, name: String },
    #[error("there is no token `{0}` in the fleet")]
    NoToken(String),
    /// Its file has changes that aren't committed.
    #[error("`{file}` has changes that are not committed")]
    Dirty { file: String },
    /// Nobody but the host itself can commit alone, and only to what it has.
    #[error("this home hosts no fleet repository, so that no device can be taken in without a person")]
    NotHosted,
    #[error("cannot tell what the token's devices are offered")]
    Offer(#[from] OfferError),
    #[error("cannot make the token's key")]
    Key(#[from] KeyError),
    #[error("cannot tell the host")]
    Claims(#[from] ClaimsError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot commit the token's file")]
    Git(#[from] GitError),
}

/// Makes a token: the enrolment file first, with the only private half, then its file in the fleet, as one commit. The same
/// again completes what was cut off.
pub fn create_token(
    root: &Path,
    home: &Home,
    serve: &Settings,
    new: &NewToken,
    now: Timestamp,
) -> Result<TokenMade, TokenError> {
    let NewToken { name, out, .. } = new;
    if !is_token_name(name) {
        return Err(TokenError::Name(text::line(name)));
    }
    if new.auto && !home.hosted_fleet().is_dir() {
        return Err(TokenError::NotHosted);
    }
    let files = work_tree(root)?;
    let (git, file) = (StockGit::new(root), format!("tokens/{name}.yaml"));
    let (mut tokens, _) = fleet::read_tokens(&files);
    let offer = offer(home, serve, now)?;
    let kept = in_file(out, name)?;
    if root.join(&file).exists() {
        let token = tokens.remove(name).filter(|token| {
            let public = kept.as_ref().and_then(|key| key_text(key.public()));
            public.as_ref() == Some(&token.key)
        });
        let token = token.ok_or_else(|| TokenError::Exists { name: name.clone(), file: file.clone() })?;
        Claims::new(home.enrolments()).set_offer(&String::from_utf8_lossy(&offer.offer()))?;
        commit(&git, &token)?;
        return Ok(TokenMade { token, was_there: true });
    }
    let devices = files.iter().filter_map(|file| fleet::read_device(file).ok());
    let count = devices.filter(|device| device.enrolled_by.as_ref().is_some_and(|by| by.token == *name)).count();
    if count > 0 {
        // What those prove, they prove by the old one's key.
        return Err(TokenError::Used { name: name.clone(), count });
    }
    let key = SigningKey::generate();
    let token_text = token_text(new, &key);
    let (mut read, problems) = fleet::read_tokens(&[SourceFile::plain(&file, token_text.as_str())]);
    let token = read.remove(name).ok_or(TokenError::Problems(problems))?;
    let private = enrolment::Token { name: name.clone(), key: key.to_openssh()?.to_string() };
    let text = json::to_bytes(&EnrolmentFile { token: Some(private), ..offer.clone() });
    durable::replace_file(out, &text, 0o600).map_err(FileError::write(out))?;
    Claims::new(home.enrolments()).set_offer(&String::from_utf8_lossy(&offer.offer()))?;
    let path = root.join(&file);
    let failed = FileError::write(&path);
    durable::create_dir_all(path.parent().unwrap_or(root), 0o755).map_err(failed)?;
    durable::replace_file(&path, token_text.as_bytes(), 0o644).map_err(failed)?;
    commit(&git, &token)?;
    Ok(TokenMade { token, was_there: false })
}

fn commit(git: &StockGit, token: &Token) -> Result<(), GitError> {
    let Token { file, name, count, until, .. } = token;
    let message = format!("a token {name} for {count} devices until {until}");
    if git.is_dirty(file)? { git.commit(&[file], &message) } else { Ok(()) }
}

/// The private half that the file has of this token; `None` where there is no file.
fn in_file(out: &Path, name: &str) -> Result<Option<SigningKey>, TokenError> {
    let bytes = match fs::read(out) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.map_err(FileError::read(out))?,
    };
    let other = || TokenError::OutExists { out: out.to_owned(), name: name.to_owned() };
    let token = EnrolmentFile::parse(&bytes).ok().and_then(|file| file.token).filter(|token| token.name == name);
    let key = token.and_then(|token| SigningKey::from_openssh(&token.key).ok());
    key.map(Some).ok_or_else(other)
}

fn token_text(new: &NewToken, key: &SigningKey) -> String {
    // JSON's strings are YAML's too, and never mean anything else.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let NewToken { count, until, labels, id, serials, .. } = new;
    let mut text = format!("key: {}\ncount: {count}\nuntil: {}\n", key.public(), quoted(&format!("{until:.0}")));
    let of = |name: &str, lines: Vec<String>| {
        if lines.is_empty() { String::new() } else { format!("{name}:\n{}", lines.concat()) }
    };
    text +=
        &of("labels", labels.iter().map(|(key, value)| format!("  {}: {}\n", quoted(key), quoted(value))).collect());
    text += &format!("id: {}\n", quoted(id));
    if new.auto {
        text += "auto: true\n";
    }
    text + &of("serials", serials.iter().map(|serial| format!("  - {}\n", quoted(serial))).collect())
}

/// Ends a token: here at once, and for whoever publishes elsewhere with the commit. Devices that came by it stay.
pub fn revoke_token(root: &Path, home: &Home, name: &str) -> Result<String, TokenError> {
    let (git, file) = (StockGit::new(root), format!("tokens/{name}.yaml"));
    let is_there = is_token_name(name) && root.join(&file).exists();
    let is_in_git = is_token_name(name) && git.run(&["cat-file", "-e", &format!("HEAD:{file}")]).is_ok();
    if !is_there && !is_in_git {
        return Err(TokenError::NoToken(text::line(name)));
    }
    if is_there && is_in_git && git.is_dirty(&file)? {
        return Err(TokenError::Dirty { file });
    }
    let claims = Claims::new(home.enrolments());
    let Tokens { layout, tokens } = claims.tokens()?;
    claims.set_tokens(&Tokens { layout, tokens: tokens.into_iter().filter(|token| token.name != name).collect() })?;
    let path = root.join(&file);
    durable::remove_file(&path).map_err(FileError::write(&path))?;
    if is_in_git {
        git.commit(&[&file], &format!("end the token {name}"))?;
    }
    Ok(file)
}
