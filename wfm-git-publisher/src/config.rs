//! Settings of the publisher's machine: `publisher.yaml` in its home, made whole with defaults.

mod alerts;
mod remote;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use repo_artifacts::Settings as RegistrySettings;
use repo_git::durable::FileError;
use repo_http::{Credentials, Source};
use repo_model::problem::Problems;
use repo_model::yaml::{self, Field, Reader, Strictness};
use wfm_git_host::{Limits, Settings as HostSettings, SshSettings};

use crate::duration;

pub use alerts::{AlertKind, Alerts, Command, Receiver, To, Webhook};
pub use remote::{DEVICE, Provision, Remote};

/// The commented sample that `init` writes.
pub const SAMPLE: &str = include_str!("../publisher.sample.yaml");

/// The JSON Schema of the file, for editors.
pub const SCHEMA: &str = include_str!("../publisher.schema.json");

/// How often `run` looks at the fleet repository where nothing else is said.
const POLL: Duration = Duration::from_secs(10);

/// The port of the host where nothing else is said.
const PORT: u16 = 8443;

/// `publisher.yaml` as written, with defaults for what it doesn't say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// Registries that need something special, by `host[:port]`.
    pub registries: BTreeMap<String, Registry>,
    /// The host's, if this publisher serves its repositories itself.
    pub serve: Option<HostSettings>,
    /// Where the devices' repositories are, if another host has them.
    pub remote: Option<Remote>,
    /// Who is told what needs somebody; absent if nobody is.
    pub alerts: Option<Alerts>,
    poll: Option<u64>,
}

/// How one registry is reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registry {
    /// Whether it is asked without TLS.
    pub plain_http: bool,
    /// A file with certificate authorities in PEM.
    pub ca_file: Option<PathBuf>,
    /// The name of the account there; absent where the registry asks for none.
    pub user: Option<String>,
    /// The file with its password, readable by its owner only.
    pub password_file: Option<PathBuf>,
}

/// The settings can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file can't be read.
    #[error(transparent)]
    File(#[from] FileError),
    #[error("publisher.yaml has no `serve:`")]
    NoHost,
    #[error("the publisher's settings can't be used")]
    Problems(Problems),
}

impl Config {
    /// Reads the settings; without a file all defaults hold.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        match fs::read(path) {
            Ok(bytes) => Self::parse(&path.display().to_string(), &bytes).map_err(ConfigError::Problems),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(FileError::read(path)(error).into()),
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

    /// Stands for a device's repository name in a URL.
    pub const DEVICE: &str = "{device}";

    /// How often `run` looks at the fleet repository.
    pub fn poll(&self) -> Duration {
        self.poll.map_or(POLL, Duration::from_secs)
    }

    /// The host's settings, or what to do about having none.
    pub fn required_serve(&self) -> Result<&HostSettings, ConfigError> {
        self.serve.as_ref().ok_or(ConfigError::NoHost)
    }

    /// How registries are reached; `plain_http` adds to those of the settings.
    pub fn registry_settings(&self, plain_http: &[String]) -> Result<RegistrySettings, ConfigError> {
        let mut settings = RegistrySettings::default();
        settings.plain_http.extend(plain_http.iter().cloned());
        for (host, registry) in &self.registries {
            if registry.plain_http {
                settings.plain_http.insert(host.clone());
            }
            if let Some(path) = &registry.ca_file {
                settings.extra_roots.push(read(path)?);
            }
            if let (Some(user), Some(path)) = (&registry.user, &registry.password_file) {
                settings.accounts.insert(host.clone(), Credentials::basic(user.clone(), Source::File(path.clone())));
            }
        }
        Ok(settings)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    Ok(fs::read(path).map_err(FileError::read(path))?)
}

fn document(reader: &mut Reader<'_>) -> Option<Config> {
    let registries = reader.optional("registries", |field| field.entries(|_, field| field.mapping(registry)));
    let remote = reader.optional("remote", |field| field.mapping(remote::read));
    let poll = reader.optional("poll", duration::read);
    let serve = reader.optional("serve", |field| field.mapping(serve));
    let alerts = reader.optional("alerts", |field| field.mapping(alerts::read));
    Some(Config { registries: registries.unwrap_or_default(), serve, remote, alerts, poll })
}

fn serve(reader: &mut Reader<'_>) -> Option<HostSettings> {
    let path = |field: Field<'_>| field.string().map(PathBuf::from);
    let listen = reader.optional("listen", |field| address(field, "write it like 0.0.0.0:8443 or [::]:8443"));
    let names = reader.required("names", |field| field.list(host_name));
    let url = reader.optional("url", base_url);
    let certificate = reader.optional("certificateFile", path);
    let key = reader.optional("keyFile", path);
    let ca_file = reader.optional("caFile", path);
    if certificate.is_some() != key.is_some() {
        return reader.field().fail("needs `certificateFile` and `keyFile`, or neither");
    }
    if ca_file.is_some() && certificate.is_none() {
        return reader.field().fail("`caFile` goes with `certificateFile`; without, the fleet's own authority is used");
    }
    if names.as_ref().is_some_and(Vec::is_empty) {
        return reader.field().fail("`names` needs at least one: what devices call this host");
    }
    let listen = listen.unwrap_or(SocketAddr::from(([0, 0, 0, 0], PORT)));
    let limits = reader.optional("limits", |field| field.mapping(Limits::read)).unwrap_or_default();
    let ssh = reader.optional("ssh", |field| field.mapping(ssh));
    Some(HostSettings { listen, names: names?, url, certificate, key, ca_file, ssh, limits })
}

fn ssh(reader: &mut Reader<'_>) -> Option<SshSettings> {
    let listen = reader.optional("listen", |field| address(field, "write it like 0.0.0.0:2222 or [::]:2222"));
    let url = reader.optional("url", ssh_url);
    let user = reader.optional("user", user);
    let socket = reader.optional("socket", |field| field.string().map(PathBuf::from));
    if listen.is_none() && url.is_none() {
        return reader.field().fail("needs `listen`, for an sshd of its own, or `url`, for one that is in front of it");
    }
    Some(SshSettings { listen, url, user, socket })
}

fn address(field: Field<'_>, hint: &str) -> Option<SocketAddr> {
    let text = field.clone().string()?;
    text.parse().ok().or_else(|| field.fail_hint(format!("`{text}` is no address with a port"), hint))
}

fn user(field: Field<'_>) -> Option<String> {
    let text = field.clone().string()?;
    if is_user(&text) { Some(text) } else { field.fail(format!("`{text}` can't be a user's name")) }
}

/// The name of a user of a machine, as URLs and sshd's settings can hold it.
fn is_user(text: &str) -> bool {
    let first = text.bytes().next().is_some_and(|c| c.is_ascii_lowercase() || c == b'_');
    first && text.len() <= 32 && text.bytes().all(|c| c.is_ascii_alphanumeric() || b"_-".contains(&c))
}

fn ssh_url(field: Field<'_>) -> Option<String> {
    let text = field.clone().string()?;
    let rest = text.strip_prefix("ssh://").unwrap_or_default().trim_end_matches('/');
    let good = rest.split_once('@').is_some_and(|(user, host)| is_user(user) && is_authority(host));
    if good {
        Some(format!("ssh://{rest}"))
    } else {
        field.fail_hint(format!("`{text}` can't be used"), "write it like ssh://wfm@wfm.plant.example:2222")
    }
}

/// A host's name or address, with or without a port; an IPv6 address in brackets.
fn is_authority(text: &str) -> bool {
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => {
            host.parse::<IpAddr>().is_ok() && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
        }
        None => match text.split_once(':') {
            Some((host, port)) => is_host_name(host) && is_port(port),
            None => is_host_name(text),
        },
    }
}

/// A host's name or address, as a certificate can hold it.
pub fn is_host_name(text: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty() && label.len() < 64 && label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
    };
    text.parse::<IpAddr>().is_ok() || text.len() <= 253 && text.split('.').all(label)
}

fn host_name(field: Field<'_>) -> Option<String> {
    let text = field.clone().string()?;
    if is_host_name(&text) {
        return Some(text);
    }
    field.fail_hint(format!("`{text}` is no host name and no IP address"), "write it without scheme and port")
}

fn base_url(field: Field<'_>) -> Option<String> {
    let text = field.clone().string()?;
    let rest = text.strip_prefix("https://").unwrap_or_default().trim_end_matches('/');
    if rest.is_empty() || rest.contains(['@', '?', '#', ' ']) {
        return field.fail_hint(format!("`{text}` can't be used"), "write it like https://wfm.plant.example:8443");
    }
    Some(format!("https://{rest}"))
}

/// The section `serve:` for `publisher.yaml`, with what is needed.
pub fn serve_section(listen: SocketAddr, names: &[String]) -> String {
    // JSON's strings and lists are YAML's too.
    format!("serve:\n  names: {}\n  listen: {}\n", serde_json::json!(names), serde_json::json!(listen))
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
            !line.starts_with("# ")
                || !line.contains("$schema")
                    && line[2..].trim_start().split(' ').next().is_some_and(|word| word.ends_with(':'))
        };
        let lines: Vec<_> =
            SAMPLE.lines().filter(setting).map(|line| line.strip_prefix("# ").unwrap_or(line)).collect();
        let config = Config::parse("publisher.yaml", lines.join("\n").as_bytes()).unwrap();
        assert_eq!(config.poll(), POLL);
        let serve = config.required_serve().unwrap();
        assert_eq!(serve.base_url(), "https://wfm.plant.example");
        let url = serve.device_url(&"press-01".parse().unwrap());
        assert_eq!(url, "https://wfm.plant.example/devices/press-01.git");
        assert_eq!(config.registries["registry.example:5000"].user.as_deref(), Some("publisher"));
        let remote = config.remote.unwrap();
        assert_eq!((remote.connections, remote.poll), (8, Duration::from_secs(60)));
        assert_eq!(remote.secret, Some(repo_http::Source::File("/run/secrets/git".into())));
        assert_eq!(remote.provision.unwrap().timeout, Duration::from_secs(120));
        let alerts = config.alerts.unwrap();
        assert_eq!((alerts.poll, alerts.receivers.len()), (Duration::from_secs(60), 2));
        let pager = &alerts.receivers["pager"];
        assert_eq!((pager.after, pager.only.len()), (Duration::from_secs(600), 2));
        // The other way to another host is under two marks.
        let over_ssh: Vec<_> = SAMPLE.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        let config = Config::parse("publisher.yaml", over_ssh.join("\n").as_bytes()).unwrap();
        let remote = config.remote.unwrap();
        assert_eq!(remote.ssh_command.unwrap(), ["ssh", "-F", "/etc/wfm/ssh_config"]);
        assert_eq!((remote.host_keys.len(), remote.provision.unwrap().command.len()), (1, 4));
    }

    #[test]
    fn a_host_without_a_url_is_called_by_its_first_name_and_port() {
        let read = |text: &str| Config::parse("publisher.yaml", text.as_bytes());
        let url = |listen: &str, name: &str| {
            let text = format!("serve: {{listen: \"{listen}\", names: [\"{name}\", other]}}");
            read(&text).unwrap().serve.unwrap().base_url()
        };
        assert_eq!(url("0.0.0.0:8443", "wfm.example"), "https://wfm.example:8443");
        let section = serve_section("127.0.0.1:9443".parse().unwrap(), &["wfm.example".to_owned()]);
        let serve = read(&format!("{SAMPLE}\n{section}")).unwrap().serve.unwrap();
        assert_eq!(serve.base_url(), "https://wfm.example:9443");
        assert_eq!(url("[::]:443", "2001:db8::1"), "https://[2001:db8::1]");
        let wrong = |text: &str| read(text).unwrap_err().to_string();
        assert!(wrong("serve: {listen: here, names: [a]}").contains("`here` is no address with a port"));
        assert!(wrong("serve: {listen: \"0.0.0.0:1\", names: [\"https://a\"]}").contains("no host name"));
        assert!(wrong("serve: {listen: \"0.0.0.0:1\", names: []}").contains("at least one"));
        assert!(wrong("serve: {listen: \"0.0.0.0:1\", names: [a], keyFile: k}").contains("or neither"));
        assert!(wrong("serve: {listen: \"0.0.0.0:1\", names: [a], url: \"https://me@a\"}").contains("can't be used"));
    }

    #[test]
    fn over_ssh_a_host_is_called_by_its_user_first_name_and_port() {
        let read = |ssh: &str| {
            Config::parse("publisher.yaml", format!("serve: {{names: [wfm.example], ssh: {ssh}}}").as_bytes())
        };
        let device = "press-01".parse().unwrap();
        let url = |ssh: &str| read(ssh).unwrap().serve.unwrap().ssh_device_url(&device).unwrap().unwrap();
        assert_eq!(url("{listen: \"0.0.0.0:2222\", user: wfm}"), "ssh://wfm@wfm.example:2222/devices/press-01.git");
        assert_eq!(url("{listen: \"0.0.0.0:22\", user: wfm}"), "ssh://wfm@wfm.example/devices/press-01.git");
        assert_eq!(
            url("{url: \"ssh://git@[2001:db8::1]:2200/\"}"),
            "ssh://git@[2001:db8::1]:2200/devices/press-01.git"
        );
        let wrong = |text: &str| read(text).unwrap_err().to_string();
        assert!(wrong("{user: wfm}").contains("needs `listen`"));
        assert!(wrong("{listen: here}").contains("`here` is no address with a port"));
        assert!(wrong("{listen: \"0.0.0.0:22\", user: \"a b\"}").contains("can't be a user's name"));
        for bad in [
            "https://a",
            "ssh://a",
            "ssh://-a@b",
            "ssh://a@b/c",
            "ssh://a@b:0",
            "ssh://a:b@c",
            "ssh://a@-oProxyCommand=x",
        ] {
            assert!(wrong(&format!("{{url: \"{bad}\"}}")).contains("can't be used"), "{bad}");
        }
    }
}
