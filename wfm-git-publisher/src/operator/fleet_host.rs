//! The host of a fleet, as a clone of its repository knows it: by git's own settings and git's own helper for credentials.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use repo_git::durable::FileError;
use repo_http::{
    Agent, ClientCertificate, Credential, HttpError, InvalidUrl, Proxy, Request, Response, Settings, SettingsError,
    Timeouts, Url,
};
use serde::Deserialize;
use wfm_git_host::accounts::{AccountName, Role};
use wfm_git_host::api::{EXIT_CODE, NOTES};

use crate::repos::{GitError, StockGit, USER_AGENT};

/// The setting of a clone with the host that a person logged in to.
const SETTING: &str = "wfm.host";

/// The fleet repository at a host.
const FLEET: &str = "fleet.git";

macro_rules! version {
    () => {
        "v1"
    };
}

/// The version of what is asked, and of what is printed for programs: within it fields come, and none goes.
pub const API_VERSION: &str = version!();

/// Before the path of each question.
pub const API: &str = concat!("/api/", version!(), "/");

/// The description of all questions, which every host that answers any has.
pub const OPENAPI_PATH: &str = concat!("/api/", version!(), "/openapi.json");

/// A question may wait for others, and its answer may be large.
const TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(10),
    answer: Duration::from_secs(150),
    stall: Duration::from_secs(60),
    total: Duration::from_secs(600),
};

/// What is sent along with a question.
const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

/// The most bytes of an answer.
const MAX_ANSWER: u64 = 1 << 30;

/// The host of a fleet, for one clone.
#[derive(Debug)]
pub struct FleetHost {
    git: StockGit,
    /// `https://host[:port]`.
    url: Url,
}

/// A host can't be logged in to, or doesn't answer.
#[derive(Debug, thiserror::Error)]
pub enum FleetHostError {
    #[error("cannot use the host's URL")]
    Url(#[from] InvalidUrl),
    /// Neither a URL was given nor has the clone one over HTTPS.
    #[error("this clone has no `origin` over HTTPS")]
    NoOrigin,
    #[error("`{url}` is another host than that of `origin`, `{origin}`")]
    OtherHost { url: String, origin: String },
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot use the clone's settings of the host")]
    Settings(#[from] SettingsError),
    /// Git's helper has none, and nobody can be asked.
    #[error("git has no credential for `{url}`")]
    NoCredential {
        url: String,
        #[source]
        source: Option<GitError>,
    },
    #[error("cannot ask `{url}`")]
    Http {
        url: String,
        #[source]
        source: HttpError,
    },
    /// The credential is none of a valid account, and git's helper has forgotten it.
    #[error("`{url}` doesn't know this account")]
    Unauthorized { url: String },
    #[error("the account `{user}` is of the role {role}, and only operators and auditors ask about the fleet")]
    Role { user: AccountName, role: Role },
    /// It is another program, or an older one.
    #[error("`{url}` doesn't answer questions about a fleet (status {status})")]
    NoInterface { url: String, status: u16 },
    /// The host's own word for why it has no answer.
    #[error("`{url}` can't answer: {detail}")]
    Refused {
        url: String,
        detail: String,
        /// Seconds after which asking again makes sense.
        retry_after: Option<String>,
    },
}

/// Who is logged in.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct LoggedIn {
    pub user: AccountName,
    pub role: Role,
    /// When the secret ends; never if absent.
    pub expires: Option<Timestamp>,
    /// Whether git has a helper that keeps the credential.
    #[serde(skip)]
    pub is_kept: bool,
}

/// What a command said at the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub exit_code: u8,
    /// What it printed.
    pub output: String,
    pub is_json: bool,
    /// What it said besides.
    pub notes: String,
}

/// What the host says instead of an answer (RFC 9457).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Problem {
    detail: String,
    /// That of the command; absent where it is the host's own word.
    exit_code: Option<u8>,
}

/// A credential as git has it: its lines, which give it back to git.
struct Filled(String);

impl FleetHostError {
    /// Whether asking again may help.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Http { .. } | Self::Refused { retry_after: Some(_), .. })
    }
}

impl FleetHost {
    /// The host that this clone was logged in to; `None` if it wasn't.
    ///
    /// # Errors
    /// What stands in its settings is no URL.
    pub fn of_clone(root: &Path) -> Result<Option<Self>, FleetHostError> {
        let git = StockGit::new(root);
        let Ok(url) = git.run(&["config", "--local", "--get", SETTING]) else { return Ok(None) };
        Ok(Some(Self { url: Url::parse(url.trim())?, git }))
    }

    /// The host at this URL, or the one that the clone comes from.
    ///
    /// # Errors
    /// There is none, or the clone comes from another one.
    pub fn at(root: &Path, url: Option<&str>) -> Result<Self, FleetHostError> {
        let git = StockGit::new(root);
        let origin = git.run(&["remote", "get-url", "origin"]).ok();
        let origin = origin.and_then(|origin| Url::parse(origin.trim()).ok());
        let url = url.map(Url::parse).transpose()?;
        match (&url, &origin) {
            (Some(url), Some(origin)) if !url.has_origin_of(origin) => {
                let (url, origin) = (url.origin().to_owned(), origin.origin().to_owned());
                return Err(FleetHostError::OtherHost { url, origin });
            }
            _ => {}
        }
        let url = Url::parse(url.or(origin).ok_or(FleetHostError::NoOrigin)?.origin())?;
        Ok(Self { git, url })
    }

    /// `https://host[:port]`.
    pub fn url(&self) -> &str {
        self.url.origin()
    }

    /// Logs in: proves the account at the host, and has git's helper keep its credential; without an account git asks for one.
    /// `authorities` are trusted from now on, by git as well.
    ///
    /// # Errors
    /// The host can't be asked, doesn't know the account, or answers no questions.
    pub fn login(
        &self,
        account: Option<(&AccountName, String)>,
        authorities: Option<&Path>,
    ) -> Result<LoggedIn, FleetHostError> {
        let agent = self.agent(authorities.map(Path::to_owned))?;
        let filled = match account {
            Some((user, secret)) => Some(Filled(format!("{}username={user}\npassword={secret}\n", self.described()))),
            None => self.filled()?,
        };
        let account = self.get(&agent, filled.as_ref(), "account")?;
        let (status, body) = (account.status, self.body(account)?);
        let mut account: LoggedIn = serde_json::from_slice(&body).map_err(|_| self.no_interface(status))?;
        if matches!(account.role, Role::Device | Role::Site) {
            return Err(FleetHostError::Role { user: account.user, role: account.role });
        }
        let described = self.get(&agent, filled.as_ref(), OPENAPI_PATH)?;
        if described.status != 200 {
            return Err(self.no_interface(described.status));
        }
        if let Some(filled) = &filled {
            self.git.credential("approve", &filled.0)?;
        }
        account.is_kept = filled.is_none() || self.setting("credential.helper").is_some();
        if let Some(path) = authorities {
            let key = format!("http.{}/.sslCAInfo", self.url());
            self.git.run(&["config", &key, &path.to_string_lossy()])?;
        }
        self.git.run(&["config", SETTING, self.url()])?;
        Ok(account)
    }

    /// Has git's helper forget the credential, and the clone its host.
    ///
    /// # Errors
    /// `git` fails.
    pub fn logout(&self) -> Result<(), FleetHostError> {
        self.git.credential("reject", &self.described())?;
        self.git.run(&["config", "--local", "--unset", SETTING])?;
        Ok(())
    }

    /// Asks a question, a path with its query, with this JSON sent along; `wait` is called once git has given a credential, and what it
    /// returns is kept until the answer is here.
    ///
    /// # Errors
    /// The host can't be asked, or has no answer.
    pub fn ask<T>(
        &self,
        question: &str,
        sent: Option<&[u8]>,
        wait: impl FnOnce() -> T,
    ) -> Result<Answer, FleetHostError> {
        let (agent, filled) = (self.agent(None)?, self.filled()?);
        let _waiting = wait();
        let response = self.request(&agent, filled.as_ref(), question, sent)?;
        let (status, is_json) = (response.status, response.content_type() == "application/json");
        let header = |name: &str| response.header(name).map(str::to_owned);
        let (exit_code, notes, retry_after) = (header(EXIT_CODE), header(NOTES), header("retry-after"));
        let body = self.body(response)?;
        if status == 200 {
            let exit_code = exit_code.and_then(|code| code.parse().ok()).ok_or_else(|| self.no_interface(status))?;
            let notes = notes.map(|notes| percent_decode_str(&notes).decode_utf8_lossy().into_owned());
            let output = String::from_utf8_lossy(&body).into_owned();
            return Ok(Answer { exit_code, output, is_json, notes: notes.unwrap_or_default() });
        }
        match serde_json::from_slice(&body).map_err(|_| self.no_interface(status))? {
            Problem { detail, exit_code: Some(exit_code) } => {
                Ok(Answer { exit_code, output: String::new(), is_json: false, notes: detail })
            }
            Problem { detail, exit_code: None } => {
                Err(FleetHostError::Refused { url: self.url().to_owned(), detail, retry_after })
            }
        }
    }

    /// Gets what has this path at the host.
    fn get(&self, agent: &Agent, filled: Option<&Filled>, path: &str) -> Result<Response, FleetHostError> {
        self.request(agent, filled, path, None)
    }

    /// Asks for what has this path at the host, with JSON that is sent along; a credential that it doesn't know is forgotten.
    fn request(
        &self,
        agent: &Agent,
        filled: Option<&Filled>,
        path: &str,
        sent: Option<&[u8]>,
    ) -> Result<Response, FleetHostError> {
        let (url, credential) =
            (self.url.at_host(path.trim_start_matches('/')), filled.map_or(Credential::None, Filled::credential));
        let request = Request { body: sent, headers: if sent.is_some() { &JSON } else { &[] }, ..Request::get(&url) };
        let response = agent.answer(&Request { credential: &credential, ..request });
        let response = response.map_err(|source| self.failed(source))?;
        if response.status == 401 {
            if let Some(filled) = filled {
                self.git.credential("reject", &filled.0)?;
            }
            return Err(FleetHostError::Unauthorized { url: self.url().to_owned() });
        }
        Ok(response)
    }

    fn body(&self, response: Response) -> Result<Vec<u8>, FleetHostError> {
        response.body.bytes(MAX_ANSWER).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: HttpError) -> FleetHostError {
        FleetHostError::Http { url: self.url().to_owned(), source }
    }

    fn no_interface(&self, status: u16) -> FleetHostError {
        FleetHostError::NoInterface { url: self.url().to_owned(), status }
    }

    /// An agent that trusts whom git trusts here, and shows the certificate that git shows.
    fn agent(&self, authorities: Option<PathBuf>) -> Result<Agent, FleetHostError> {
        let read = |path: PathBuf| std::fs::read_to_string(&path).map_err(FileError::read(&path));
        let authorities =
            authorities.or_else(|| self.file("GIT_SSL_CAINFO", "http.sslCAInfo")).map(read).transpose()?;
        let key = || self.file("GIT_SSL_KEY", "http.sslKey");
        let client_certificate =
            self.certificate().map(|chain| ClientCertificate { key: key().unwrap_or_else(|| chain.clone()), chain });
        let proxy = self.setting("http.proxy").map(|url| Proxy { url, account: None, except: Vec::new() });
        Ok(Agent::new(&Settings {
            authorities: authorities.into_iter().collect(),
            client_certificate,
            proxy,
            timeouts: TIMEOUTS,
            user_agent: USER_AGENT.to_owned(),
            ..Settings::default()
        })?)
    }

    /// A setting of git for this host, with `~` filled in; `None` if it isn't set, or is empty.
    fn setting(&self, key: &str) -> Option<String> {
        let found = self.git.run(&["config", "--type=path", "--get-urlmatch", key, self.url()]).ok()?;
        Some(found.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// The certificate that git shows the host, if it shows one.
    fn certificate(&self) -> Option<PathBuf> {
        self.file("GIT_SSL_CERT", "http.sslCert")
    }

    /// A file as git finds it for this host: by the environment, or else by its settings.
    fn file(&self, variable: &str, key: &str) -> Option<PathBuf> {
        let said = std::env::var_os(variable).filter(|path| !path.is_empty());
        said.map(PathBuf::from).or_else(|| self.setting(key).map(PathBuf::from))
    }

    /// The credential that git has for the host, or asks for; `None` where a certificate is shown in its place.
    fn filled(&self) -> Result<Option<Filled>, FleetHostError> {
        if self.certificate().is_some() {
            return Ok(None);
        }
        let without = |source| FleetHostError::NoCredential { url: self.url().to_owned(), source };
        let filled = Filled(self.git.credential("fill", &self.described()).map_err(|error| without(Some(error)))?);
        if filled.credential() == Credential::None { Err(without(None)) } else { Ok(Some(filled)) }
    }

    /// What git is told of whose credential it is about: that of the fleet repository.
    fn described(&self) -> String {
        format!("url={}\n", self.url.at_host(FLEET).as_str())
    }
}

impl Filled {
    fn credential(&self) -> Credential {
        let value = |key: &str| self.0.lines().find_map(|line| Some(line.strip_prefix(key)?.to_owned()));
        match (value("username="), value("password=")) {
            (Some(user), Some(secret)) => Credential::Basic { user, secret },
            _ => Credential::None,
        }
    }
}
