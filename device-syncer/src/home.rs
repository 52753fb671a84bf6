//! Makes a device's home from a join file, and opens it for one syncer at a time.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use repo_git::{Cause, SigningKey, durable};
use repo_http::{ClientCertificate, Clock};
use repo_model::clock::SKEW;
use repo_model::join::Join;
use repo_model::report::{Condition, ConditionType, Reason};
use repo_model::roster::{Trust, roster_path};
use repo_model::windows::Spread;
use repo_model::{DeviceId, Digest, IntoMap, KeyText, envelope, error_chain};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use uuid::Uuid;

use crate::config::{self, ConfigError, Device, Home, OwnKey, Settings, SshIdentity};
use crate::decision::conditions::condition;
use crate::decision::hold::Clocks;
use crate::decision::windows::{Doubt, Windows};
use crate::host::account::{self, AccountError};
use crate::host::certificate;
use crate::host::client::HostClient;
use crate::host::connection::{ConnectionError, HostConnection};
use crate::host::connectivity::Connectivity;
use crate::host::ssh::{self, KeysInUse, SshSetupError};
use crate::host::verify::key_text;
use crate::reconcile::accept::is_behind;
use crate::reconcile::jobs::Bounds;
use crate::reconcile::pass::Syncer;
use crate::reconcile::reconciler::{self, Reconciler, clock_doubt};
use crate::reconcile::reload::Unusable;
use crate::runtimes::{
    ComposeRuntime, ComposeSettings, DeviceRuntimes, HelmRuntime, HelmSettings, Lasting, RuntimeError, SandboxSettings,
    capabilities, command,
};
use crate::state::accepted;
use crate::state::floor::{self, Floor, FloorError};
use crate::state::installation;
use crate::state::json_file::FileError;
use crate::state::last_failure::LastFailure;
use crate::state::moved::{self, Moved};
use crate::state::random;
use crate::state::rekey::{self, RekeyError};
use crate::state::roster;
use crate::state::store::{Store, StoreError};

/// How long the children of a killed syncer are waited for before they are ended.
const ORPHANS: Duration = Duration::from_secs(10);

/// How long a home's lock is waited for before another syncer is said to have it: somebody may be having a look at it, and
/// what a killed syncer was about to start has its files open until it has started.
const GLANCE: Duration = Duration::from_secs(2);

/// How often a lock is tried.
const TRY: Duration = Duration::from_millis(100);

/// Bytes of the key by which values of device files enter digests.
const HMAC_KEY: usize = 32;

/// A home can't be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// A file of the home can't be read or written.
    #[error("can't {doing} `{}`", path.display())]
    File { doing: &'static str, path: PathBuf, source: io::Error },
    /// The join file isn't one.
    #[error("`{}` is not a join file: {problem}", path.display())]
    Join { path: PathBuf, problem: String },
    /// The home belongs to another device already.
    #[error("`{}` belongs to device `{device}` already", path.display())]
    Taken {
        path: PathBuf,
        /// The id of the device that the home was made for.
        device: String,
    },
    #[error("`{}` is not a device's home", path.display())]
    NotInitialised { path: PathBuf },
    /// Another syncer works on it.
    #[error("another device-syncer works on `{}`", path.display())]
    Busy { path: PathBuf },
    /// The key can't be used.
    #[error("the device's key can't be used")]
    Key(#[source] Cause),
    /// The key for the host can't be used.
    #[error(transparent)]
    Ssh(#[from] SshSetupError),
    /// The key by which values of device files enter digests can't be used.
    #[error("can't use the key `{}`", path.display())]
    HmacKey { path: PathBuf, source: io::Error },
    /// The way to the host can't be made.
    #[error("the host can't be reached like this")]
    Connection(#[from] ConnectionError),
    /// The account can't be kept.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// The settings can't be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// What tells this installation from others can't be used.
    #[error(transparent)]
    Installation(#[from] FileError),
    /// The new key can't be used.
    #[error(transparent)]
    Rekey(#[from] RekeyError),
    /// The floor can't be used.
    #[error(transparent)]
    Floor(#[from] FloorError),
    /// The clone can't be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The runtime can't be used.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

fn file<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> HomeError + 'a {
    move |source| HomeError::File { doing, path: path.to_owned(), source }
}

/// The lines that enrol a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enrolment {
    /// The key that signs what it says.
    pub line: String,
    /// The key with which it asks a host over SSH; `None` over HTTPS, and where an agent has the key.
    pub ssh_line: Option<String>,
    /// The digest of the key of the certificate with which it asks over HTTPS; `None` where it comes with a secret.
    pub certificate_line: Option<String>,
}

/// Makes a home from a join file's content and returns the lines that enrol the device. A second time it completes what is
/// missing and returns the same lines; a newer join file of the same device replaces the one before.
pub fn init(home: &Home, join_file: &Path, bytes: &[u8]) -> Result<Enrolment, HomeError> {
    join(home, &read_join(join_file, bytes)?, bytes)
}

/// The same from the join file's content, with its bytes.
pub fn join(home: &Home, join: &Join, bytes: &[u8]) -> Result<Enrolment, HomeError> {
    let over_ssh = ssh::url(join).map_err(ConnectionError::from)?;
    let is_over_ssh = over_ssh.is_some();
    if let Some(url) = over_ssh.filter(|_| !cfg!(feature = "ssh")) {
        return Err(SshSetupError::NotBuilt { url }.into());
    }
    let mut before = None;
    if let Ok(known) = fs::read(home.join()) {
        let known = read_join(&home.join(), &known)?;
        if (known.fleet, &known.device) != (join.fleet, &join.device) {
            return Err(HomeError::Taken { path: home.root().to_owned(), device: known.device.to_string() });
        }
        before = known.account;
    }
    prepare(home)?;
    installation::of(home)?;
    let key = SigningKey::load(&home.key()).map_err(|error| HomeError::Key(error.into()))?.public();
    // Before the join file: once that is there, so is the key with which the device asks.
    let (ssh_line, certificate_line) = if is_over_ssh {
        (ssh_line(home, join, &key_text(&key))?, None)
    } else {
        (None, certificate_line(home, join)?)
    };
    if !home.floor().exists() {
        Floor::of_join(join).create(&home.floor())?;
    }
    let now = Timestamp::now().max(join.issued.unwrap_or(Timestamp::UNIX_EPOCH));
    account::join(&home.account(), join.account.as_ref(), before.as_ref(), now)?;
    durable::replace_file(&home.join(), bytes, 0o600).map_err(file("write", &home.join()))?;
    // What the operator says has the last word.
    moved::write(&home.moved(), None).map_err(file("remove", &home.moved()))?;
    Ok(Enrolment { line: format!("{key} {}", join.device), ssh_line, certificate_line })
}

/// The way to this device's host as it is now, without a lock. Nothing is asked yet.
pub fn connection(home: &Home) -> Result<HostConnection, HomeError> {
    let (join, settings) = (joined(home)?, Settings::read(home)?);
    let earliest = floor::earliest(&join).as_second().try_into().unwrap_or(0);
    let connection =
        HostConnection::open(home, &join, None, &settings.host, Clock::default().plausible_from(earliest))?;
    let floor = Floor::read(&home.floor()).unwrap_or_else(|_| Floor::of_join(&join));
    connection.clock().set_floor(floor.time);
    Ok(connection)
}

/// Makes what of a home doesn't depend on whom it is joined to: its keys above all. What is there stays.
pub fn prepare(home: &Home) -> Result<(), HomeError> {
    make_directories(home)?;
    let write = |path: PathBuf, bytes: &[u8]| -> Result<(), HomeError> {
        if path.exists() {
            return Ok(());
        }
        durable::replace_file(&path, bytes, 0o600).map_err(file("write", &path))
    };
    if !home.key().exists() {
        SigningKey::generate().save(&home.key()).map_err(|error| HomeError::Key(error.into()))?;
    }
    write(home.hmac_key(), &random()?)?;
    write(home.config(), config::sample().as_bytes())?;
    let schema = home.config_schema();
    durable::replace_file(&schema, config::schema().as_bytes(), 0o600).map_err(file("write", &schema))?;
    Ok(())
}

/// The line that enrols the key for the host, which is made here unless the site gives one.
fn ssh_line(home: &Home, join: &Join, signing: &KeyText) -> Result<Option<String>, HomeError> {
    let settings = Settings::read(home)?.host;
    if let SshIdentity::Own(path) = &settings.ssh.identity
        && !path.exists()
    {
        SigningKey::generate().save(path).map_err(|error| HomeError::Key(error.into()))?;
    }
    Ok(ssh::enrolment_line(&settings, join, signing)?)
}

/// The line that enrols the certificate with which the device comes, where it does; made here unless the site gives one.
fn certificate_line(home: &Home, join: &Join) -> Result<Option<String>, HomeError> {
    if certificate::in_use(home, join, &Settings::read(home)?.host).is_none() {
        return Ok(None);
    }
    Ok(Some(format!("{} {} tls", certificate(home)?, join.device)))
}

/// The digest of the key of the certificate with which this device would come: the site's, or its own, which is made if it isn't there.
pub fn certificate(home: &Home) -> Result<Digest, HomeError> {
    pin(home, &home.certificate())
}

/// The same of the one that shall take its place: the site's stays.
pub fn next_certificate(home: &Home) -> Result<Digest, HomeError> {
    pin(home, &home.next_certificate())
}

/// Of the site's, or of the one in this file.
fn pin(home: &Home, own: &Path) -> Result<Digest, HomeError> {
    let given = Settings::read(home)?.host.client_certificate;
    if given.is_none() && !own.exists() {
        let text = ClientCertificate::generate(&random()?, certificate::NAME).map_err(ConnectionError::from)?;
        durable::replace_file(own, text.as_bytes(), 0o600).map_err(file("write", own))?;
    }
    let certificate = given.unwrap_or_else(|| ClientCertificate::in_one(own));
    Ok(certificate.pin().map_err(ConnectionError::from)?)
}

/// The line that enrols the key for the host beside this new one that signs; `None` where the host isn't reached over SSH, or an agent
/// has the key.
pub fn next_ssh_line(home: &Home, signing: &KeyText) -> Result<Option<String>, HomeError> {
    let join = join_in_use(home)?;
    match ssh::url(&join).map_err(ConnectionError::from)? {
        None => Ok(None),
        Some(_) => Ok(ssh::next_line(home, &Settings::read(home)?.host, &join, signing)?),
    }
}

/// The site's windows, how much later than they this device begins, and why its clock isn't believed.
pub fn site_windows(home: &Home) -> Result<(Option<Windows>, Spread, Option<Doubt>), HomeError> {
    let Ok(bytes) = fs::read(home.join()) else {
        return Err(HomeError::NotInitialised { path: home.root().to_owned() });
    };
    let join = read_join(&home.join(), &bytes)?;
    let settings = Settings::read(home)?;
    let is_behind = time_that_is_over(home).is_some_and(|proven| proven > Timestamp::now());
    let doubt = clock_doubt(&settings, is_behind);
    Ok((settings.gates.windows, Spread::of(&join.device), doubt))
}

/// Where the host is, and the keys in use with it over SSH.
pub fn host_of(home: &Home) -> Result<(String, Option<KeysInUse>), HomeError> {
    let join = join_in_use(home)?;
    let is_over_ssh = ssh::url(&join).map_err(ConnectionError::from)?.is_some();
    let keys = is_over_ssh.then(|| Settings::read(home).map(|settings| KeysInUse::of(&settings.host, &join)));
    Ok((join.url, keys.transpose()?))
}

fn make_directories(home: &Home) -> Result<(), HomeError> {
    let below = [home.projects(), home.cache(), home.child_home(), home.root().join("device-files")];
    for directory in std::iter::once(home.root().to_owned()).chain(below) {
        durable::create_dir_all(&directory, 0o700).map_err(file("make", &directory))?;
    }
    Ok(())
}

/// A new secret: 32 random bytes of the kernel in base64url, without padding.
pub fn random_text() -> Result<String, HomeError> {
    random::text().map_err(file("read", Path::new(random::SOURCE)))
}

/// New random bytes of the kernel.
pub fn random() -> Result<[u8; HMAC_KEY], HomeError> {
    random::random().map_err(file("read", Path::new(random::SOURCE)))
}

/// Reads a join file and checks what it pins.
fn read_join(path: &Path, bytes: &[u8]) -> Result<Join, HomeError> {
    let invalid = |problem: String| HomeError::Join { path: path.to_owned(), problem };
    let join: Join = repo_model::json::read(bytes).map_err(|error| invalid(error.to_string()))?;
    if join.layout != envelope::LAYOUT {
        return Err(invalid(format!("layout {} is newer than this program: update it", join.layout)));
    }
    join.trust.check(join.fleet).map_err(invalid)?;
    Ok(join)
}

/// What stays locked for as long as a syncer lives; the second file is inherited by its children.
#[derive(Debug)]
pub struct Locks {
    _own: File,
    _children: File,
}

/// Opens a home for one syncer: takes the locks, waits for or ends what a killed one left running, reads everything.
pub fn open(home: Home) -> Result<(Syncer, Locks), HomeError> {
    open_at(home, None)
}

/// The same, at the host that a person names now (`Some(None)`: that of roster and join file) in place of who did before.
pub fn open_at(home: Home, moved: Option<Option<Moved>>) -> Result<(Syncer, Locks), HomeError> {
    let join = joined(&home)?;
    let place = moved.map(|moved| moved::with(&home, &join, moved));
    let locks = lock(&home)?;
    let settings = Settings::read(&home)?;
    let key = SigningKey::load(&home.key()).map_err(|error| HomeError::Key(error.into()))?;
    let mut key_line = key_text(&key.public());
    let mut store = Store::open(&home, &join.device, key)?;
    // Where the power was cut between the adoption of a state that lists the new key and the last step. Nobody else needs to read
    // what was accepted before something newer is: it may be damaged.
    if home.next_key().exists() {
        let accepted = accepted::read(&store.view(), &store.device_state).ok().flatten();
        if let Some((next, key)) = accepted.and_then(|accepted| rekey::listed(&home, &accepted)) {
            store.sign_with(next);
            key_line = key;
            rekey::settle(&home)?;
        }
    }
    rekey::tidy(&home)?;
    let (floor, events) = read_floor(&home, &join, &store)?;
    let earliest = floor::earliest(&join).as_second().try_into().unwrap_or(0);
    let clock = Clock::default().plausible_from(earliest);
    let boot_id = read_text(&settings.boot_id_file)?;
    let runtimes = runtimes(&home, &settings, &join, &clock, (boot_id.clone(), None))?;
    runtimes.helm.as_ref().map_or(Ok(()), HelmRuntime::sweep)?;
    let connection = HostConnection::open(&home, &join, place.as_ref(), &settings.host, clock)?;
    connection.clock().set_floor(floor.time);
    let instance = installation::of(&home)?;
    let device = device(home, settings, join, (key_line, instance), boot_id)?;
    let bounds = Bounds::new(device.settings.jobs, capabilities::memory().unwrap_or(0));
    let host = HostClient::new(connection, Connectivity::open(device.home.contact()));
    let kept = (store, floor, LastFailure::open(device.home.failure()));
    let reconciler = Reconciler::new(runtimes, bounds).with_hook(&device.settings, &device.home);
    let syncer = Syncer::new(device, host, kept, reconciler, events);
    Ok((syncer, locks))
}

/// Reads the settings of a device again, and makes what runs its components by them, beside what ran them before.
pub fn reload(device: &Device, before: &DeviceRuntimes) -> Result<(Settings, DeviceRuntimes), Unusable> {
    let settings = Settings::read(&device.home)?;
    let earliest = floor::earliest(&device.join).as_second().try_into().unwrap_or(0);
    let clock = Clock::default().plausible_from(earliest);
    // Another file of it counts after a restart.
    let lasting = Some(Arc::clone(&before.lasting));
    let runtimes = runtimes(&device.home, &settings, &device.join, &clock, (device.boot_id.clone(), lasting))?;
    Ok((settings, runtimes))
}

fn device(
    home: Home,
    settings: Settings,
    join: Join,
    (key, instance): (KeyText, Uuid),
    boot_id: String,
) -> Result<Device, HomeError> {
    let hmac_key = read_hmac_key(&home)?;
    let key = OwnKey::new(key);
    Ok(Device { home, settings, join, instance, key, hmac_key, boot_id })
}

/// Reads who this device is and what runs its components, without a lock: for who only looks, beside a syncer that may be at
/// work. Also whether its clock is known to be behind.
pub fn read_only(home: Home) -> Result<(Device, Reconciler, bool), HomeError> {
    let (join, settings) = (joined(&home)?, Settings::read(&home)?);
    let key = SigningKey::load(&home.key()).map_err(|error| HomeError::Key(error.into()))?;
    let boot_id = read_text(&settings.boot_id_file)?;
    let runtimes = runtimes(&home, &settings, &join, &Clock::default(), (boot_id.clone(), None))?;
    let floor = Floor::read(&home.floor()).unwrap_or_else(|_| Floor::of_join(&join));
    let device = device(home, settings, join, (key_text(&key.public()), Uuid::nil()), boot_id)?;
    Ok((device, Reconciler::new(runtimes, Bounds::new(1, 0)), is_behind(&floor)))
}

/// The key by which values of device files enter digests. Another one would have everything that gets such a value applied
/// anew, so it is never made up here.
fn read_hmac_key(home: &Home) -> Result<Vec<u8>, HomeError> {
    let path = home.hmac_key();
    let bytes = fs::read(&path).map_err(|source| HomeError::HmacKey { path: path.clone(), source })?;
    if bytes.len() == HMAC_KEY {
        return Ok(bytes);
    }
    let source = io::Error::other(format!("it has {} bytes, and {HMAC_KEY} belong in it", bytes.len()));
    Err(HomeError::HmacKey { path, source })
}

fn read_text(path: &Path) -> Result<String, HomeError> {
    Ok(fs::read_to_string(path).map_err(file("read", path))?.trim().to_owned())
}

/// The floor, never below what the clone or the join file know. A lost or damaged file is made anew from them, which is
/// a security event: what was accepted since the clone was lost too may be forgotten.
fn read_floor(home: &Home, join: &Join, store: &Store) -> Result<(Floor, Vec<Condition>), HomeError> {
    let (mut floor, mut events) = (Floor::of_join(join), Vec::new());
    match Floor::read(&home.floor()) {
        Ok(known) => floor = known,
        Err(error) => {
            events.push(condition(ConditionType::SecurityEvent, Reason::FloorLost, error_chain(&error)));
            floor.create(&home.floor())?;
        }
    }
    let before = floor.clone();
    floor.lift_to_join(join);
    if let Some(accepted) = &store.device_state.accepted {
        floor.lift_to_accepted(accepted, &store.device_state.roster);
    }
    keep_roster(home, join, &store.device_state.roster);
    if let Ok(newest) = roster::newest(home, join) {
        floor.lift_to_roster(&newest);
    }
    if floor != before {
        floor.raise(&home.floor())?;
    }
    Ok((floor, events))
}

/// The roster of the accepted state, which a program before 0.3 kept in the clone alone. Best effort: nothing is lost yet.
fn keep_roster(home: &Home, join: &Join, accepted: &[u8]) {
    let Ok(trust) = Trust::pin(&roster_path(join.trust.version), accepted, join.fleet) else { return };
    if let Err(error) = roster::keep(home, join, &trust, accepted) {
        tracing::warn!(error = error_chain(&error), "the newest roster is kept in the clone alone");
    }
}

/// What the device joined with, at the host that the newest roster or a person named since then, if one did.
fn join_in_use(home: &Home) -> Result<Join, HomeError> {
    moved::in_use(home, &joined(home)?).map_err(file("read", &home.moved()))
}

/// What the device joined with.
pub fn joined(home: &Home) -> Result<Join, HomeError> {
    let Ok(bytes) = fs::read(home.join()) else {
        return Err(HomeError::NotInitialised { path: home.root().to_owned() });
    };
    read_join(&home.join(), &bytes)
}

/// The newest roster that this device believes, without a lock: for who only looks.
pub fn newest_roster(home: &Home) -> Result<Trust, HomeError> {
    let join = joined(home)?;
    let newest = roster::newest(home, &join);
    newest.map_err(|error| HomeError::Join { path: home.join(), problem: error_chain(&error) })
}

/// The id of this device, where the join file can be read.
pub fn device_id(home: &Home) -> Option<DeviceId> {
    joined(home).ok().map(|join| join.device)
}

/// The clocks by which holds end here. Where the settings can't be read, nobody vouches for the wall clock, and the boot isn't known.
pub fn clocks(home: &Home) -> Clocks {
    let now = Timestamp::now();
    let is_behind = time_that_is_over(home).is_some_and(|proven| proven > now);
    let settings = Settings::read(home).ok();
    let known = settings.and_then(|settings| Some((read_text(&settings.boot_id_file).ok()?, settings)));
    match known {
        Some((boot_id, settings)) => reconciler::clocks(&settings, &boot_id, is_behind),
        None => Clocks { now, is_vouched_for: false, boot: None },
    }
}

/// A moment that is known to be over, give or take a day: clocks differ, and no proof is younger.
pub fn time_that_is_over(home: &Home) -> Option<Timestamp> {
    Floor::read(&home.floor()).ok()?.time.checked_sub(SKEW).ok()
}

/// What runs components here, to look at what they do while a syncer works on the home.
pub fn runtimes_of(home: &Home) -> Result<DeviceRuntimes, HomeError> {
    let (join, settings) = (joined(home)?, Settings::read(home)?);
    let boot_id = read_text(&settings.boot_id_file)?;
    runtimes(home, &settings, &join, &Clock::default(), (boot_id, None))
}

fn runtimes(
    home: &Home,
    settings: &Settings,
    join: &Join,
    clock: &Clock,
    (boot_id, lasting): (String, Option<Arc<Lasting>>),
) -> Result<DeviceRuntimes, HomeError> {
    let lasting = lasting.unwrap_or_else(|| Arc::new(Lasting::new(&home.cache())));
    let extra_roots = settings.registries.ca.iter().map(|path| fs::read(path).map_err(file("read", path)));
    let registry = repo_artifacts::Settings {
        plain_http: settings.registries.plain_http.iter().cloned().collect(),
        extra_roots: extra_roots.collect::<Result<_, _>>()?,
        accounts: settings.registries.accounts.clone(),
        mirrors: settings.registries.mirrors.clone(),
        proxy: settings.host.proxy.clone(),
        clock: Some(clock.clone()),
        timeouts: settings.host.artifact_timeouts(),
        ..repo_artifacts::Settings::default()
    };
    let environment = settings.docker_env.iter().map(|(name, value)| (name.into(), value.into())).into_map();
    let compose = settings.uses_docker.then(|| ComposeSettings {
        docker: settings.docker.clone(),
        compose: settings.compose.clone(),
        path: settings.path.clone(),
        home: home.child_home(),
        environment,
        projects_dir: home.projects(),
        cache_dir: home.cache(),
        fleet: join.fleet,
        device: join.device.clone(),
        boot_id,
        policy: settings.policy.clone(),
        registry: registry.clone(),
        sandbox: SandboxSettings { program: "/proc/self/exe".into(), user: settings.resolve_user },
        stop_timeout: settings.stop_timeout,
        pull_timeout: settings.pull_timeout,
    });
    let helm = settings.helm.as_ref().map(|helm| HelmSettings {
        program: helm.program.clone(),
        kubeconfig: helm.kubeconfig.clone(),
        context: helm.context.clone(),
        history_max: helm.history_max,
        path: settings.path.clone(),
        home: home.child_home(),
        values_dir: home.helm_values(),
        cache_dir: home.cache(),
        fleet: join.fleet,
        device: join.device.clone(),
        policy: settings.policy.objects(),
        registry: registry.clone(),
    });
    Ok(DeviceRuntimes {
        compose: compose.map(|settings| ComposeRuntime::new(settings, Arc::clone(&lasting))).transpose()?,
        helm: helm.map(HelmRuntime::new).transpose()?,
        lasting,
    })
}

/// Takes the locks for one process, and waits for or ends what a killed syncer left running.
pub fn lock(home: &Home) -> Result<Locks, HomeError> {
    let own = open_lock(&home.lock())?;
    let until = Instant::now() + GLANCE;
    while flock(&own, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() >= until {
            return Err(HomeError::Busy { path: home.root().to_owned() });
        }
        std::thread::sleep(TRY);
    }
    let children = open_lock(&home.children())?;
    let until = Instant::now() + ORPHANS;
    let mut is_logged = false;
    while flock(&children, FlockOperation::NonBlockingLockExclusive).is_err() {
        if !std::mem::replace(&mut is_logged, true) {
            tracing::warn!("waiting for what a killed syncer left running, {} s at most", ORPHANS.as_secs());
        }
        if Instant::now() >= until {
            end_orphans(&home.children());
        }
        std::thread::sleep(TRY);
    }
    command::inherit(&children).map_err(file("lock", &home.children()))?;
    Ok(Locks { _own: own, _children: children })
}

/// Waits for a syncer that works on this home to end, `patience` at most.
pub fn wait_for_another(home: &Home, patience: Duration) {
    let until = Instant::now() + patience;
    let mut is_logged = false;
    while is_at_work(home) && Instant::now() < until {
        if !std::mem::replace(&mut is_logged, true) {
            tracing::info!("waiting for another device-syncer on this home to end, {} s at most", patience.as_secs());
        }
        std::thread::sleep(TRY);
    }
}

/// Whether a syncer is at work on this home: it holds the lock, of which nobody else takes more than a look.
pub fn is_at_work(home: &Home) -> bool {
    let lock = File::open(home.lock());
    lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockShared).is_err())
}

fn open_lock(path: &Path) -> Result<File, HomeError> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.open(path).map_err(file("open", path))
}

/// Ends every process that still holds the children's lock: found by the file that it keeps open.
fn end_orphans(path: &Path) {
    let Ok(lock) = fs::canonicalize(path) else { return };
    let own = std::process::id();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let files = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        let holds = files.filter_map(|file| fs::read_link(file.path()).ok()).any(|file| file == lock);
        if holds && pid.unsigned_abs() != own {
            tracing::warn!(pid, "ending what a killed syncer left running");
            let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::KILL));
        }
    }
}
