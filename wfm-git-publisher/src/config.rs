//! Settings of the publisher's machine: `publisher.yaml` in its home, made whole with defaults.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use repo_artifacts::{Auth, Settings};
use repo_model::problem::Problems;
use repo_model::yaml::{self, Field, Reader, Strictness};

use crate::fleet::duration;

/// The commented sample that `init` writes.
pub const SAMPLE: &str = include_str!("../publisher.sample.yaml");

/// How often `run` looks at the fleet repository where nothing else is said.
const POLL: Duration = Duration::from_secs(10);

/// `publisher.yaml` as written, with defaults for what it doesn't say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// Registries that need something special, by `host[:port]`.
    pub registries: BTreeMap<String, Registry>,
    poll: Option<u64>,
}

/// How one registry is reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registry {
    /// Whether it is asked without TLS.
    pub plain_http: bool,
    /// A file with certificate authorities in PEM.
    pub ca_file: Option<PathBuf>,
    /// The account's name.
    pub user: Option<String>,
    /// The file with its password.
    pub password_file: Option<PathBuf>,
}

/// The settings can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file can't be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The settings are wrong.
    #[error("the publisher's settings can't be used")]
    Problems(Problems),
}

impl Config {
    /// Reads the settings; without a file all defaults hold.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        match fs::read(path) {
            Ok(bytes) => Self::parse(&path.display().to_string(), &bytes).map_err(ConfigError::Problems),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(ConfigError::Read { path: path.to_owned(), source }),
        }
    }

    /// Reads the text of the file. Only comments are as good as no file.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Self, Problems> {
        let is_empty = |line: &[u8]| line.trim_ascii().is_empty() || line.trim_ascii().starts_with(b"#");
        if bytes.split(|byte| *byte == b'\n').all(is_empty) {
            return Ok(Self::default());
        }
        yaml::read(file, bytes, Strictness::Fleet, |field| field.mapping(document)).map(|(config, _)| config)
    }

    /// How often `run` looks at the fleet repository.
    pub fn poll(&self) -> Duration {
        self.poll.map_or(POLL, Duration::from_secs)
    }

    /// How registries are reached; `plain_http` adds to those of the settings.
    pub fn registry_settings(&self, plain_http: &[String]) -> Result<Settings, ConfigError> {
        let mut settings = Settings::default();
        settings.plain_http.extend(plain_http.iter().cloned());
        for (host, registry) in &self.registries {
            if registry.plain_http {
                settings.plain_http.insert(host.clone());
            }
            if let Some(path) = &registry.ca_file {
                settings.extra_roots.push(read(path)?);
            }
            if let (Some(user), Some(path)) = (&registry.user, &registry.password_file) {
                let password = String::from_utf8_lossy(&read(path)?).trim_end_matches(['\r', '\n']).to_owned();
                settings.accounts.insert(host.clone(), Auth::Basic(user.clone(), password));
            }
        }
        Ok(settings)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    fs::read(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })
}

fn document(reader: &mut Reader<'_>) -> Option<Config> {
    let registries = reader.optional("registries", |field| field.entries(|_, field| field.mapping(registry)));
    let poll = reader.optional("poll", duration);
    Some(Config { registries: registries.unwrap_or_default(), poll })
}

fn registry(reader: &mut Reader<'_>) -> Option<Registry> {
    let path = |field: Field<'_>| field.string().map(PathBuf::from);
    let plain_http = reader.optional("plainHttp", Field::bool).unwrap_or_default();
    let ca_file = reader.optional("caFile", path);
    let user = reader.optional("user", Field::string);
    let password_file = reader.optional("passwordFile", path);
    if user.is_some() != password_file.is_some() {
        return reader.field().fail("needs `user` and `passwordFile`, or neither");
    }
    Some(Registry { plain_http, ca_file, user, password_file })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_is_valid_with_and_without_its_comments() {
        assert_eq!(Config::parse("publisher.yaml", SAMPLE.as_bytes()).unwrap(), Config::default());
        let setting = |line: &&str| {
            !line.starts_with("# ") || line[2..].trim_start().split(' ').next().is_some_and(|word| word.ends_with(':'))
        };
        let lines: Vec<_> =
            SAMPLE.lines().filter(setting).map(|line| line.strip_prefix("# ").unwrap_or(line)).collect();
        let config = Config::parse("publisher.yaml", lines.join("\n").as_bytes()).unwrap();
        assert_eq!(config.poll(), POLL);
        assert_eq!(config.registries["registry.example:5000"].user.as_deref(), Some("publisher"));
    }
}
