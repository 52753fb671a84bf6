//! `enroll`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use repo_git::{SigningKey, durable};
use repo_http::{Agent, Clock};
use repo_model::enrolment::{Approved, Claim, EnrolmentFile, MAX_TEXT, Nonce};
use repo_model::envelope::LAYOUT;
use repo_model::{DeviceId, Digest, error_chain, json, text};

use super::show::json_line;
use super::{Output, OutputArgs, print};
use crate::config::{Home, Settings, parse_duration};
use crate::error::CliError;
use crate::home::{self, HomeError};
use crate::host::connection::ConnectionError;
use crate::host::enrolment::{Enrolments, ExchangeError, Stand};
use crate::host::verify::key_text;
use crate::runtimes::capabilities;
use crate::state::enrolment::{self, Enrolling, Shown};

/// How often it is asked what was said, at first and in the end.
const ASKS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// How long is waited after what went wrong, at first and in the end.
const TRIES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));

/// Joins this device to a fleet without a join file of its own, and waits until an operator approves it.
///
/// FILE is what `wfm-git-publisher enroll file` wrote: the same for all devices, and nothing secret. This shows a code then. It says which host is
/// believed, so it has to come by a trusted way. The operator reads the code here, and says at the host:
/// `wfm-git-publisher device approve CODE --id ID`. Nothing runs before, and nothing that this device believes comes from
/// anybody else. It waits for as long as it takes; ended and started again, also by a power cut, it goes on with the same code. A code
/// counts for an hour; then there is another one. In the end the device has what `init --join` makes.
///
/// A file of `wfm-git-publisher token create` has a token besides, and vouches for the device itself: there is no code, and the
/// operator says `device approve --token NAME` for all. The token is a secret: it is taken out of FILE once the device has joined.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  device-syncer enroll --from /boot/enroll.json\n  \
                        device-syncer enroll --from enroll.json --id press-07 --for 30m\n  \
                        device-syncer enroll --from enroll.json --credentials certificate")]
pub(super) struct Args {
    /// The enrolment file: which host is believed, and which keys of a fleet.
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// The id that this device would like; the operator decides.
    #[arg(long, value_name = "ID")]
    id: Option<DeviceId>,
    /// The serial number that it says it has, where that isn't in its firmware: from a label, or a chip of the vendor's.
    #[arg(long, value_name = "TEXT")]
    serial: Option<String>,
    /// What this device shows the host from then on: the secret of an account, or a certificate with a key of its own. A host that is
    /// too old for certificates is shown the secret.
    #[arg(long, value_name = "KIND", default_value = "secret")]
    credentials: Shows,
    /// Gives up after this time, like 30m or 8h; the same command goes on later.
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    time: Option<Duration>,
    /// Leaves the token in FILE: one stick for many devices.
    #[arg(long)]
    keep_token: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// What a device shows over HTTPS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Shows {
    Secret,
    Certificate,
}

fn time(text: &str) -> Result<Duration, &'static str> {
    parse_duration(text).ok_or("expected a time like 30m or 8h")
}

pub(super) fn run(home: &Home, args: &Args) -> Result<ExitCode, CliError> {
    let (file, file_text) = read(&args.from)?;
    if home.join().exists() {
        let device = home::joined(home)?.device;
        // The power was cut between the last two steps.
        if enrolment::read(home).is_none() {
            return Err(HomeError::Taken { path: home.root().to_owned(), device: device.to_string() }.into());
        }
        return joined(home, args, &file, &device);
    }
    let token = token_key(&args.from, &file)?;
    home::prepare(home)?;
    let _locks = home::lock(home)?;
    let key = SigningKey::load(&home.key()).map_err(|error| HomeError::Key(error.into()))?;
    let mut kept = match enrolment::read(home) {
        Some(kept) if kept.file == file_text => kept,
        _ => begun(home, file_text)?,
    };
    let certificate = if args.credentials == Shows::Certificate { Some(home::certificate(home)?) } else { None };
    let claim = Claim { certificate, ..claim(&key, &kept.secret, args) };
    let enrolments = at_host(home, &file, token)?;
    let approved = wait(home, args, &enrolments, (&key, &claim), &mut kept)?;
    let device = approved.device.clone();
    let join = file.clone().join(approved, kept.secret.clone()).map_err(ExchangeError::from)?;
    home::join(home, &join, &json::to_bytes(&join))?;
    joined(home, args, &file, &device)
}

fn read(path: &Path) -> Result<(EnrolmentFile, String), CliError> {
    let failed = |source| CliError::Io { doing: format!("can't read `{}`", path.display()), source };
    let text = fs::read_to_string(path).map_err(failed)?;
    let file = EnrolmentFile::parse(text.as_bytes())
        .map_err(|error| CliError::Input(format!("`{}` can't be followed: {error}", path.display())))?;
    Ok((file, text))
}

fn token_key(path: &Path, file: &EnrolmentFile) -> Result<Option<SigningKey>, CliError> {
    let Some(token) = &file.token else { return Ok(None) };
    let read = SigningKey::from_openssh(&token.key).map(Some);
    read.map_err(|error| {
        let why = format!("the key of its token can't be read: {}", error_chain(&error));
        CliError::Input(format!("`{}` can't be followed: {why}", path.display()))
    })
}

/// A new secret, on the disk before the first request.
fn begun(home: &Home, file: String) -> Result<Enrolling, CliError> {
    let kept = Enrolling { layout: LAYOUT, file, secret: home::random_text()?, shown: None };
    enrolment::write(home, &kept)?;
    Ok(kept)
}

fn at_host<'a>(home: &Home, file: &'a EnrolmentFile, token: Option<SigningKey>) -> Result<Enrolments<'a>, CliError> {
    let issued = file.issued.as_second().try_into().unwrap_or(0);
    let clock = Clock::default().plausible_from(issued);
    clock.set_floor(issued);
    let settings = Settings::read(home).map_err(HomeError::from)?.host;
    let agent = settings.agent(file.ca.as_deref(), &clock).map_err(ConnectionError::Ca);
    let agent = agent.and_then(|settings| Agent::new(&settings).map_err(Into::into)).map_err(HomeError::from)?;
    Enrolments::new(agent, file, token)
        .map_err(|error| CliError::Input(format!("`{}`: {error}", text::cell(&file.url))))
}

/// What this machine says of itself. Nobody believes it.
fn claim(key: &SigningKey, secret: &str, args: &Args) -> Claim {
    let short =
        |text: String| Some(text.trim().chars().take(MAX_TEXT).collect::<String>()).filter(|text| !text.is_empty());
    let (model, serial) = capabilities::identity();
    Claim {
        layout: LAYOUT,
        key: key_text(&key.public()),
        account: Digest::of(secret.as_bytes()),
        certificate: None,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        serial: args.serial.clone().or(serial).and_then(short),
        model: model.and_then(short),
        mac: capabilities::mac().and_then(short),
        hostname: fs::read_to_string("/proc/sys/kernel/hostname").ok().and_then(short),
        arch: Some(std::env::consts::ARCH.to_owned()),
        id: args.id.clone(),
        replaces: None,
    }
}

/// Asks until a person said something.
fn wait(
    home: &Home,
    args: &Args,
    enrolments: &Enrolments<'_>,
    (key, claim): (&SigningKey, &Claim),
    kept: &mut Enrolling,
) -> Result<Approved, CliError> {
    let until = args.time.map(|time| Instant::now() + time);
    let (mut asks, mut tries) = (ASKS.0, TRIES.0);
    let mut told = String::new();
    let token = enrolments.token();
    if let Some(shown) = &kept.shown {
        show(args, token, &shown.code)?;
    }
    loop {
        let stand = match &kept.shown {
            Some(shown) => enrolments.ask(&shown.request),
            None => reveal(home, args, enrolments, (key, claim), kept)?,
        };
        let pause = match stand {
            Ok(Stand::Approved(approved)) => return Ok(approved),
            Ok(Stand::Rejected) => {
                kept.shown = None;
                enrolment::write(home, kept)?;
                let why = "the operator rejected this device; run it again to ask anew";
                return Err(CliError::Input(why.to_owned()));
            }
            Ok(Stand::Waits) => {
                (tries, told) = (TRIES.0, String::new());
                let pause = asks;
                asks = (asks * 2).min(ASKS.1);
                pause
            }
            Ok(Stand::Unknown) => {
                note("the host knows this request no longer; there will be another one", &mut told);
                kept.shown = None;
                enrolment::write(home, kept)?;
                asks = ASKS.0;
                later(&mut tries)
            }
            Err(error) if error.needs_a_person() => return Err(error.into()),
            Err(error) => {
                note(&format!("{}{}", error_chain(&error), todo(token, &error)), &mut told);
                let pause = later(&mut tries);
                error.after().map_or(pause, |after| after.max(Duration::from_secs(1)).min(TRIES.1))
            }
        };
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        std::thread::sleep(left.map_or(pause, |left| left.min(pause)));
        if left.is_some_and(|left| left <= pause) {
            let why = "nobody approved this device in that time; the same command goes on, with the same code while that counts";
            return Err(CliError::Input(why.to_owned()));
        }
    }
}

/// Begins an exchange and reveals. The code is on the disk before it is revealed, and shown when it is.
fn reveal(
    home: &Home,
    args: &Args,
    enrolments: &Enrolments<'_>,
    (key, claim): (&SigningKey, &Claim),
    kept: &mut Enrolling,
) -> Result<Result<Stand, ExchangeError>, CliError> {
    let prepared = match enrolments.begin(key, claim, Nonce::new(home::random()?)) {
        Ok(prepared) => prepared,
        Err(error) => return Ok(Err(error)),
    };
    kept.shown = Some(Shown { request: prepared.request.clone(), code: prepared.code.to_string() });
    enrolment::write(home, kept)?;
    match enrolments.reveal(&prepared) {
        Ok(Stand::Waits) => {
            show(args, enrolments.token(), &prepared.code.to_string())?;
            Ok(Ok(Stand::Waits))
        }
        // What was refused is over; whether what broke off came there is asked next.
        Err(error @ (ExchangeError::Refused(_) | ExchangeError::Full { .. })) => {
            kept.shown = None;
            enrolment::write(home, kept)?;
            Ok(Err(error))
        }
        other => Ok(other),
    }
}

fn later(tries: &mut Duration) -> Duration {
    let pause = *tries;
    *tries = (*tries * 2).min(TRIES.1);
    pause
}

/// What is in the way, once.
fn note(what: &str, told: &mut String) {
    if told != what {
        eprintln!("note: {}", text::line(what));
        what.clone_into(told);
    }
}

fn todo(token: Option<&str>, error: &ExchangeError) -> &'static str {
    match error {
        ExchangeError::Closed | ExchangeError::Refused(_) if token.is_some() => {
            "; whether its token counts, `wfm-git-publisher token list` at the host says, and this goes on by itself"
        }
        ExchangeError::Closed => {
            "; `wfm-git-publisher enroll open --for 8h` at the host lets it, and this goes on by itself"
        }
        _ => "; it is tried again",
    }
}

/// With a token nobody reads a code. For programs it is the first of two lines: the second one can't be before somebody approved.
fn show(args: &Args, token: Option<&str>, code: &str) -> Result<(), CliError> {
    print(&match (args.output.output, token) {
        (Output::Text, Some(token)) => {
            format!("token: {token}\nat the host: wfm-git-publisher device approve --token {token}\nwaiting\n")
        }
        (Output::Json, Some(token)) => json_line(&serde_json::json!({ "token": token })),
        (Output::Text, None) => {
            format!("code: {code}\nat the host: wfm-git-publisher device approve {code} --id ID\nwaiting\n")
        }
        (Output::Json, None) => json_line(&serde_json::json!({ "code": code })),
    })
}

fn joined(home: &Home, args: &Args, file: &EnrolmentFile, device: &DeviceId) -> Result<ExitCode, CliError> {
    if file.token.is_some() && !args.keep_token {
        forget_token(&args.from, file);
    }
    let failed = |source| CliError::Io { doing: format!("can't remove `{}`", home.enrolment().display()), source };
    enrolment::remove(home).map_err(failed)?;
    print(&match args.output.output {
        Output::Text => format!("joined as {device}; `device-syncer run` follows its repository\n"),
        Output::Json => json_line(&serde_json::json!({ "device": device })),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Takes the token out of the file that it came in; where that can't be, a person has to.
fn forget_token(path: &Path, file: &EnrolmentFile) {
    let mode = fs::metadata(path).map_or(0o600, |meta| meta.permissions().mode() & 0o777);
    if let Err(error) = durable::replace_file(path, &file.offer(), mode) {
        let place = text::line(&path.display().to_string());
        eprintln!("warning: the token is still in `{place}`, remove it by hand: {error}");
    }
}
