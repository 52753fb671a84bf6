//! A new fleet: the operators' repository with a working example, and the publisher's home beside it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use repo_git::durable::{self, FileError};
use repo_git::{KeyError, SigningKey};
use repo_model::branch::ref_name;
use repo_model::roster::{Publisher, ROSTER_NAMESPACE, Roster, roster_path, signature_path};
use repo_model::{FileTree, FleetId, json};
use wfm_git_host::ca::{Authority, CaError};

use super::trust;
use crate::config::{self, Config, ConfigError};
use crate::repos::{Control, ControlError, GitError, Home, HomeError, StockGit, key_text};

macro_rules! skeleton {
    ($($path:literal,)*) => {
        /// The files of a new fleet, with the stand-ins that `init` replaces.
        pub const SKELETON: &[(&str, &str)] = &[$(($path, include_str!(concat!("../../../repo-layouts/fleet/", $path))),)*];
    };
}

skeleton! {
    ".schemas/allowed.json",
    ".schemas/application.json",
    ".schemas/deployment.json",
    ".schemas/device.json",
    ".schemas/fleet.json",
    ".schemas/rollout.json",
    ".schemas/token.json",
    "README.md",
    "fleet.yaml",
    "applications/hello/1.0.0/margo.yaml",
    "applications/hello/1.0.0/compose/hello/compose.yaml",
    "deployments/hello.yaml",
    "devices/packer-01.yaml",
    "devices/press-01.yaml",
    "devices/press-02.yaml",
}

/// What a new fleet is called and where its example comes from.
#[derive(Debug, Clone)]
pub struct InitOptions {
    pub name: String,
    /// Its identity in every document and join file: a random UUID, for good.
    pub id: FleetId,
    /// Host and port of the registry that the example is pushed to.
    pub registry: String,
    /// The image that the example runs.
    pub image: String,
    /// The section of `publisher.yaml` about the host, if the fleet is served over HTTPS.
    pub serve: Option<String>,
    /// Whether the fleet repository itself is hosted, too.
    pub hosted: bool,
    /// When the fleet is made; its keys and certificates count from then on.
    pub now: Timestamp,
}

/// Where `init` made the fleet.
#[derive(Debug)]
pub struct Made {
    /// The work tree of the fleet repository.
    pub fleet: PathBuf,
    pub home: Home,
}

/// A fleet can't be made.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    #[error("`{}` exists and is not empty", path.display())]
    Exists { path: PathBuf },
    /// A file can't be examined or written.
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot make the fleet repository")]
    Git(#[from] GitError),
    #[error("cannot make the publisher's home")]
    Home(#[from] HomeError),
    /// A key can't be made or used.
    #[error("cannot make the keys")]
    Key(#[from] KeyError),
    /// The settings can't be read back.
    #[error("cannot use the new settings")]
    Config(#[from] ConfigError),
    /// The host's authority can't be made.
    #[error("cannot make the fleet's certificate authority")]
    Ca(#[from] CaError),
    #[error("cannot make the publisher's ledger")]
    Control(#[from] ControlError),
}

/// Makes a fleet repository in `dir` and its home. What is there already is never touched.
pub fn init(dir: &Path, home: Home, options: &InitOptions) -> Result<Made, InitError> {
    for path in [dir, home.root()] {
        refuse_existing(path)?;
    }
    make_home(&home, options)?;
    if options.hosted {
        let path = home.hosted_fleet();
        durable::create_dir_all(&path, 0o700).map_err(FileError::write(&path))?;
    }
    for (path, text) in SKELETON {
        let (file, text) = (dir.join(path), fill_in(text, options));
        let failed = FileError::write(&file);
        durable::create_dir_all(file.parent().unwrap_or(dir), 0o755).map_err(failed)?;
        durable::replace_file(&file, text.as_bytes(), 0o644).map_err(failed)?;
    }
    let git = StockGit::new(dir);
    git.run(&["init", "--quiet", "--initial-branch=main"])?;
    // `git init` syncs nothing, and an empty HEAD is no repository.
    durable::sync_tree(dir).map_err(FileError::write(dir))?;
    git.commit(&["."], &format!("{}: a new fleet", options.name))?;
    if options.hosted {
        make_hosted(dir, &home)?;
    }
    Ok(Made { fleet: dir.to_owned(), home })
}

/// Makes the new directory a clone of the hosted fleet repository, and that one whole at once, in the place of the empty
/// directory that tells until then that it isn't there yet.
fn make_hosted(dir: &Path, home: &Home) -> Result<(), InitError> {
    let git = StockGit::new(dir);
    let (hosted, temp) = (home.hosted_fleet(), home.root().join(format!("{}fleet.git", durable::TEMP_PREFIX)));
    let failed = FileError::write(&hosted);
    if let Some(serve) = Config::load(&home.config())?.serve {
        let (base, authority) = (serve.base_url(), home.ca().join("ca.pem"));
        git.run(&["remote", "add", "origin", &format!("{base}/fleet.git")])?;
        git.run(&["config", &format!("http.{base}/.sslCAInfo"), &authority.to_string_lossy()])?;
        git.run(&["config", "branch.main.remote", "origin"])?;
        git.run(&["config", "branch.main.merge", &ref_name("main")])?;
        durable::sync_file(&dir.join(".git/config")).map_err(failed)?;
    }
    git.run(&["clone", "--quiet", "--bare", "--no-hardlinks", "--template=", ".", &temp.to_string_lossy()])?;
    StockGit::new(&temp).run(&["remote", "remove", "origin"])?;
    durable::sync_tree(&temp).map_err(failed)?;
    Ok(durable::rename(&temp, &hosted).map_err(failed)?)
}

fn refuse_existing(path: &Path) -> Result<(), InitError> {
    match fs::read_dir(path).map(|mut entries| entries.next().is_some()) {
        Ok(false) => Ok(()),
        Ok(true) => Err(InitError::Exists { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(FileError::read(path)(error).into()),
    }
}

fn fill_in(text: &str, options: &InitOptions) -> String {
    // A name goes into YAML in quotes; JSON's are YAML's too.
    let quoted = serde_json::Value::from(options.name.as_str()).to_string();
    text.replace("00000000-0000-4000-8000-000000000000", &options.id.to_string())
        .replace("name: my-fleet", &format!("name: {quoted}"))
        .replace("# my-fleet", &format!("# {}", options.name))
        .replace("localhost:5000", &options.registry)
        .replace("busybox:1.36", &options.image)
}

fn make_home(home: &Home, options: &InitOptions) -> Result<(), InitError> {
    home.create()?;
    let (root, publisher) = (SigningKey::generate(), SigningKey::generate());
    root.save(&home.root_key())?;
    publisher.save(&home.publisher_key())?;
    let trust = first_roster(options, &root, &publisher)?;
    let mut control = Control::create(home)?;
    control.put_trust(&trust);
    control.commit(Control::message("roster version 1", options.id), &publisher, options.now)?;
    let signers = format!(
        "publisher namespaces=\"git\" {}\nroot namespaces=\"{ROSTER_NAMESPACE}\" {}\n",
        publisher.public(),
        root.public()
    );
    home.write(&home.allowed_signers(), signers.as_bytes(), 0o644)?;
    let settings = match &options.serve {
        Some(section) => format!("{}\n{section}", config::SAMPLE),
        None => config::SAMPLE.to_owned(),
    };
    home.write(&home.config_schema(), config::SCHEMA.as_bytes(), 0o644)?;
    home.write(&home.config(), settings.as_bytes(), 0o600)?;
    if let Some(serve) = Config::load(&home.config())?.serve {
        Authority::ensure(&home.ca(), &serve.names)?;
    }
    Ok(())
}

/// Version 1 of the roster: one root key, signed by itself, that names one publisher's key.
fn first_roster(options: &InitOptions, root: &SigningKey, publisher: &SigningKey) -> Result<FileTree, InitError> {
    let end = options.now.as_second().saturating_add(trust::LIFE.as_secs());
    let (fleet, not_after) = (options.id, Timestamp::from_second(end).ok());
    let text = |key: &SigningKey| key_text(key.public()).into_iter().collect::<Vec<_>>();
    let publishers = text(publisher).into_iter().map(|key| Publisher { key, not_after });
    let roster = Roster {
        version: 1,
        fleet,
        issued: None,
        threshold: 1,
        roots: text(root),
        publishers: publishers.collect(),
        host: None,
    };
    let bytes = json::to_bytes(&roster);
    let signature = root.sign(ROSTER_NAMESPACE, &bytes)?;
    Ok(FileTree::from([(roster_path(1), bytes), (signature_path(1, 0), signature.into_bytes())]))
}
