//! How the host and registries are reached: what `device.yaml` says under `host` and `registries`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use repo_artifacts::{Mirror, Mirrors};
use repo_http::{Clock, Credentials, Pin, Source};
use repo_model::{Digest, IntoMap};
use serde::Deserialize;

use super::Home;
use super::duration::parse_duration;
use super::invalid::InvalidValue;
use super::secret::Secret;
use super::ssh::{SshFragment, SshSettings, is_fingerprint};

/// A user and the password.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Login {
    user: String,
    password: Secret,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClientCertificate {
    chain: PathBuf,
    key: PathBuf,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Proxy {
    url: String,
    user: Option<String>,
    password: Option<Secret>,
    #[serde(default)]
    except: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Timeouts {
    connect: Option<String>,
    answer: Option<String>,
    stall: Option<String>,
    total: Option<String>,
}

/// The section `host` as it is written: nothing is checked yet.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct HostFragment {
    ca: Option<PathBuf>,
    public_roots: bool,
    pin: Option<String>,
    client_certificate: Option<ClientCertificate>,
    account: Option<Login>,
    bearer: Option<Secret>,
    proxy: Option<Proxy>,
    timeouts: Timeouts,
    ssh_key: Option<PathBuf>,
    ssh_key_passphrase: Option<Secret>,
    ssh_agent: Option<PathBuf>,
    known_hosts: Vec<PathBuf>,
}

/// The section `host` of `device.yaml`, its paths taken from the home.
#[derive(Debug, Clone)]
pub struct HostSettings {
    /// PEM file with authorities, in place of the join file's.
    pub ca: Option<PathBuf>,
    /// Trusts the public roots beside those authorities.
    pub public_roots: bool,
    /// The key that the host must have, over HTTPS.
    pub pin: Option<Pin>,
    /// Only where the URL begins with `ssh://`.
    pub ssh: SshSettings,
    /// Shown to a host that wants one.
    pub client_certificate: Option<repo_http::ClientCertificate>,
    /// Who asks, in place of the join file's account.
    pub credentials: Option<Credentials>,
    /// The HTTP proxy in front of the host; `None` asks it straight.
    pub proxy: Option<repo_http::Proxy>,
    /// For each step of a request, and for all of it.
    pub timeouts: repo_http::Timeouts,
    /// Files whose change means that the host is connected with anew.
    pub files: Vec<PathBuf>,
    /// Files with secrets, which are read again for each request.
    pub secrets: Vec<PathBuf>,
}

/// Registries that need more than a public CA.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RegistriesFragment {
    plain_http: Vec<String>,
    ca: Vec<PathBuf>,
    accounts: BTreeMap<String, Login>,
    mirrors: BTreeMap<String, Vec<String>>,
    mirrors_only: bool,
}

/// How registries, and hosts of archives, are reached.
#[derive(Debug, Clone, Default)]
pub struct Registries {
    /// `host[:port]` of registries that speak plain HTTP. Those on loopback need no entry.
    pub plain_http: Vec<String>,
    /// PEM files with authorities beside the public roots.
    pub ca: Vec<PathBuf>,
    /// Which account a registry is asked with, by its `host[:port]`.
    pub accounts: BTreeMap<String, Credentials>,
    /// Where else registries' artefacts are.
    pub mirrors: Mirrors,
}

impl HostSettings {
    pub(super) fn make(fragment: HostFragment, home: &Home) -> Result<Self, InvalidValue> {
        let HostFragment { ca, public_roots, pin, client_certificate, account, bearer, proxy, timeouts, .. } = fragment;
        let root = home.root();
        let (mut files, mut secrets) = (Vec::new(), Vec::new());
        let mut place = |path: PathBuf| {
            let path = root.join(path);
            files.push(path.clone());
            path
        };
        let ca = ca.map(&mut place);
        let client_certificate =
            client_certificate.map(|one| repo_http::ClientCertificate { chain: place(one.chain), key: place(one.key) });
        let mut source = |secret: Secret| secret.source(root, &mut secrets);
        let credentials = match (account, bearer) {
            (Some(_), Some(_)) => {
                return Err(InvalidValue::at("host.bearer", "`host.account` and `host.bearer` exclude each other"));
            }
            (Some(login), None) => Some(Credentials::basic(login.user, source(login.password))),
            (None, Some(token)) => Some(Credentials::bearer(source(token))),
            (None, None) => None,
        };
        let proxy = proxy.map(|proxy| proxy.make(&mut source)).transpose()?;
        if let Some((_, Source::File(path))) = proxy.as_ref().and_then(|proxy| proxy.account.as_ref()) {
            files.push(path.clone());
        }
        let (pin, fingerprint) = pin.map(read_pin).transpose()?.unwrap_or_default();
        let ssh = SshFragment {
            key: fragment.ssh_key,
            passphrase: fragment.ssh_key_passphrase,
            agent: fragment.ssh_agent,
            known_hosts: fragment.known_hosts,
            fingerprint,
        };
        let ssh = ssh.make(root, home.ssh_key(), (&mut files, &mut secrets))?;
        let timeouts = timeouts.make()?;
        Ok(Self { ca, public_roots, pin, ssh, client_certificate, credentials, proxy, timeouts, files, secrets })
    }

    /// What an agent is made with; `joined` is the CA of the join file.
    pub fn agent(&self, joined: Option<&str>, clock: &Clock) -> Result<repo_http::Settings, std::io::Error> {
        let authorities = match &self.ca {
            Some(path) => Some(std::fs::read_to_string(path)?),
            None => joined.map(str::to_owned),
        };
        Ok(repo_http::Settings {
            authorities: authorities.into_iter().collect(),
            public_roots: self.public_roots,
            believes_any: false,
            pin: self.pin,
            client_certificate: self.client_certificate.clone(),
            proxy: self.proxy.clone(),
            timeouts: self.timeouts,
            clock: clock.clone(),
            user_agent: concat!("git/device-syncer-", env!("CARGO_PKG_VERSION")).to_owned(),
        })
    }

    /// Limits in time for an artefact: as with the host, and five times as much for all of it.
    pub fn artifact_timeouts(&self) -> repo_http::Timeouts {
        repo_http::Timeouts { total: self.timeouts.total.saturating_mul(5), ..self.timeouts }
    }
}

impl Registries {
    pub(super) fn make(fragment: RegistriesFragment, root: &Path) -> Result<Self, InvalidValue> {
        let credentials = |login: Login| Credentials::basic(login.user, login.password.source(root, &mut Vec::new()));
        Ok(Self {
            plain_http: fragment.plain_http,
            ca: fragment.ca.into_iter().map(|path| root.join(path)).collect(),
            accounts: fragment.accounts.into_iter().map(|(host, login)| (host, credentials(login))).into_map(),
            mirrors: mirrors(fragment.mirrors, fragment.mirrors_only)?,
        })
    }
}

/// `registries.mirrors` and `registries.mirrorsOnly`.
pub(super) fn mirrors(written: BTreeMap<String, Vec<String>>, only: bool) -> Result<Mirrors, InvalidValue> {
    if only && written.is_empty() {
        let problem = "without `registries.mirrors` it has no meaning: it is said of registries that have mirrors";
        return Err(InvalidValue::at("registries.mirrorsOnly", problem));
    }
    let mut of = BTreeMap::new();
    for (registry, mirrors) in written {
        let wrong = |problem| InvalidValue::below("registries.mirrors", &registry, problem);
        if registry.contains('/') || Mirror::parse(&registry).is_err() {
            return Err(wrong(format!("`{registry}` is not a registry's `host[:port]`")));
        }
        if mirrors.is_empty() {
            return Err(wrong("has no mirror: name one, or leave the registry out".to_owned()));
        }
        let parse = |text: &String| Mirror::parse(text).map_err(|error| wrong(format!("`{text}`: {}", error.rule)));
        let mirrors = mirrors.iter().map(parse).collect::<Result<_, _>>()?;
        of.insert(registry, mirrors);
    }
    Ok(Mirrors { of, only })
}

/// `host.pin`: a key over HTTPS, or a fingerprint over SSH.
fn read_pin(text: String) -> Result<(Option<Pin>, Option<String>), InvalidValue> {
    match text.parse::<Digest>() {
        Ok(digest) => Ok((Some(Pin(digest)), None)),
        Err(_) if is_fingerprint(&text) => Ok((None, Some(text))),
        Err(_) => Err(InvalidValue::at(
            "host.pin",
            "is neither `sha256:` and 64 lower-case hex digits, for HTTPS, nor `SHA256:` and 43 characters as \
             `ssh-keygen -l` prints them, for SSH",
        )),
    }
}

impl Proxy {
    fn make(self, source: &mut dyn FnMut(Secret) -> Source) -> Result<repo_http::Proxy, InvalidValue> {
        let account = match (self.user, self.password) {
            (Some(user), Some(password)) => Some((user, source(password))),
            (None, None) => None,
            _ => return Err(InvalidValue::at("host.proxy", "it has both `user` and `password`, or neither")),
        };
        if self.url.contains('@') {
            return Err(InvalidValue::at("host.proxy.url", "holds a credential: use `user` and `password: {file: …}`"));
        }
        Ok(repo_http::Proxy { url: self.url, account, except: self.except })
    }
}

impl Timeouts {
    fn make(self) -> Result<repo_http::Timeouts, InvalidValue> {
        let default = repo_http::Timeouts::default();
        let limit = |name: &str, text: Option<String>, default: Duration| match text {
            None => Ok(default),
            Some(text) => match parse_duration(&text) {
                Some(limit) if limit >= Duration::from_millis(100) => Ok(limit),
                _ => {
                    let problem = format!("`{text}` is not a duration of at least 100ms, like 10s");
                    Err(InvalidValue::below("host.timeouts", name, problem))
                }
            },
        };
        Ok(repo_http::Timeouts {
            connect: limit("connect", self.connect, default.connect)?,
            answer: limit("answer", self.answer, default.answer)?,
            stall: limit("stall", self.stall, default.stall)?,
            total: limit("total", self.total, default.total)?,
        })
    }
}
