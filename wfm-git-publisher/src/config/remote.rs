//! The section `remote` of the publisher's settings: a host elsewhere that devices talk to.

use std::path::PathBuf;
use std::time::Duration;

use repo_git::remote::{InvalidSshAddress, SshAddress};
use repo_http::{Source, Timeouts};
use repo_model::yaml::{Field, Reader};
use repo_model::{Digest, KeyText};

use crate::duration;

/// Stands for a device's repository name in a URL.
pub const DEVICE: &str = "{device}";

/// How often `run` looks at the other host where nothing else is said.
const POLL: Duration = Duration::from_secs(60);

/// Conversations with the other host at the same time where nothing else is said.
const CONNECTIONS: usize = 8;

/// How long the other host may take where nothing else is said: it checks and stores whole packs before it answers.
const TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(10),
    answer: Duration::from_secs(60),
    stall: Duration::from_secs(30),
    total: Duration::from_secs(120),
};

/// The host that devices talk to, where it isn't this one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remote {
    /// Where a device's repository is; `{device}` stands for its name.
    pub url: String,
    /// A file with certificate authorities in PEM; only they are trusted then.
    pub ca_file: Option<PathBuf>,
    /// Whether the public authorities are trusted beside those.
    pub public_roots: bool,
    /// The key that the host must have.
    pub pin: Option<Digest>,
    /// A client certificate and its key, in PEM.
    pub client: Option<(PathBuf, PathBuf)>,
    /// The account's name; without one the secret is a bearer token.
    pub user: Option<String>,
    /// Where the password or token comes from.
    pub secret: Option<Source>,
    /// The proxy, `http://host:port`.
    pub proxy: Option<String>,
    /// How many repositories are talked to at the same time.
    pub connections: usize,
    /// How often `run` looks what devices said and whether everything is there.
    pub poll: Duration,
    /// How long each conversation may take.
    pub timeouts: Timeouts,
    /// The program that leads to hosts over SSH, with its first arguments; `ssh` where nothing is said.
    pub ssh_command: Option<Vec<String>>,
    /// The private key to log in with over SSH, and no other one.
    pub identity_file: Option<PathBuf>,
    /// Where devices find their repositories, if that isn't `url`.
    pub device_url: Option<String>,
    /// The keys that devices may meet at a host that they reach over SSH.
    pub host_keys: Vec<KeyText>,
    /// What makes a device's repository at the host, and lets the device in.
    pub provision: Option<Provision>,
}

/// The command that makes devices' repositories at the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provision {
    /// The program and its first arguments. No shell reads them.
    pub command: Vec<String>,
    /// How long it may take for one device.
    pub timeout: Duration,
}

/// How long the command may take where nothing else is said: it may have to wait for its turn and for another host.
const PROVISION: Duration = Duration::from_secs(120);

pub(super) fn read(reader: &mut Reader<'_>) -> Option<Remote> {
    let path = |field: Field<'_>| field.string().map(PathBuf::from);
    let url = reader.required("url", template);
    let ca_file = reader.optional("caFile", path);
    let public_roots = reader.optional("publicRoots", Field::bool).unwrap_or_default();
    let pin = reader.optional("pin", Field::parse);
    let client = (reader.optional("certificateFile", path), reader.optional("keyFile", path));
    let user = reader.optional("user", Field::string);
    let mut sources = secrets(reader);
    let proxy = reader.optional("proxy", Field::string);
    let connections = reader.optional("connections", Field::integer).unwrap_or(CONNECTIONS);
    let poll = reader.optional("poll", duration::read).map_or(POLL, Duration::from_secs);
    let timeouts = reader.optional("timeouts", |field| field.mapping(timeouts)).unwrap_or(TIMEOUTS);
    let ssh_command = reader.optional("sshCommand", command);
    let identity_file = reader.optional("identityFile", path);
    let device_url = reader.optional("deviceUrl", template);
    let host_keys = reader.optional("hostKeys", |field| field.list(Field::parse)).unwrap_or_default();
    let provision = reader.optional("provision", command);
    let provision_timeout = reader.optional("provisionTimeout", duration::read).map_or(PROVISION, Duration::from_secs);
    let provision = provision.map(|command| Provision { command, timeout: provision_timeout });
    let secret = sources.pop();
    let client = match client {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return reader.field().fail("needs `certificateFile` and `keyFile`, or neither"),
    };
    if !sources.is_empty() || (user.is_some() && secret.is_none()) {
        return reader.field().fail("needs one of `secretFile`, `secretVariable` and `secretCredential`");
    }
    if !(1..=64).contains(&connections) {
        return reader.field().fail("`connections` is between 1 and 64");
    }
    let url = url?;
    let https = [ca_file.is_some(), pin.is_some(), client.is_some(), user.is_some(), secret.is_some(), proxy.is_some()];
    if SshAddress::is_meant(&url) && (public_roots || https.contains(&true)) {
        let what = "`caFile`, `publicRoots`, `pin`, `certificateFile`, `user`, secrets and `proxy` are for https";
        return reader
            .field()
            .fail_hint(what, "over SSH the configuration of this machine's ssh decides, and `user@` in the URL");
    }
    if !SshAddress::is_meant(&url) && (ssh_command.is_some() || identity_file.is_some()) {
        return reader
            .field()
            .fail("`sshCommand` and `identityFile` are for a URL like ssh://git@git.example/{device}.git");
    }
    Some(Remote {
        url,
        ca_file,
        public_roots,
        pin,
        client,
        user,
        secret,
        proxy,
        connections,
        poll,
        timeouts,
        ssh_command,
        identity_file,
        device_url,
        host_keys,
        provision,
    })
}

/// Where the secret comes from; more than one place is one too many.
pub(super) fn secrets(reader: &mut Reader<'_>) -> Vec<Source> {
    let path = |field: Field<'_>| field.string().map(PathBuf::from);
    let sources = [
        reader.optional("secretFile", path).map(Source::File),
        reader.optional("secretVariable", Field::string).map(Source::Environment),
        reader.optional("secretCredential", Field::string).map(Source::Systemd),
    ];
    sources.into_iter().flatten().collect()
}

/// A URL with one place for the device.
fn template(field: Field<'_>) -> Option<String> {
    match field.clone().string()? {
        url if url.matches(DEVICE).count() == 1 && place(&url) => match address(&url) {
            Some(Err(error)) => field.fail(error.to_string()),
            _ => Some(url),
        },
        _ => field.fail_hint("must hold `{device}` once, in its path", "https://git.example/fleet/{device}.git"),
    }
}

/// The address of a device's repository if it is one over SSH.
fn address(url: &str) -> Option<Result<SshAddress, InvalidSshAddress>> {
    SshAddress::is_meant(url).then(|| SshAddress::parse(&url.replace(DEVICE, "device")))
}

/// A program with arguments, or a program alone.
pub(super) fn command(field: Field<'_>) -> Option<Vec<String>> {
    let words = if field.node().kind() == "a list" {
        field.clone().list(Field::string)?
    } else {
        vec![field.clone().string()?]
    };
    match words.first() {
        Some(program) if !program.is_empty() => Some(words),
        _ => field.fail_hint("names no program", "[/usr/local/bin/provision, --option]"),
    }
}

fn timeouts(reader: &mut Reader<'_>) -> Option<Timeouts> {
    let mut limit = |key, default| reader.optional(key, duration::read).map_or(default, Duration::from_secs);
    Some(Timeouts {
        connect: limit("connect", TIMEOUTS.connect),
        answer: limit("answer", TIMEOUTS.answer),
        stall: limit("stall", TIMEOUTS.stall),
        total: limit("total", TIMEOUTS.total),
    })
}

/// Whether `{device}` stands in the path, so that an account's secret goes to one host only.
fn place(url: &str) -> bool {
    let path = match url.split_once("://") {
        Some((_, rest)) => rest.split_once('/').map_or("", |(_, path)| path),
        None if SshAddress::is_meant(url) => url.rsplit_once("]:").or(url.split_once(':')).map_or("", |(_, path)| path),
        None => url,
    };
    path.contains(DEVICE)
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn a_remote_needs_a_place_for_the_device_and_one_secret() {
        for (lines, expected) in [
            ("url: https://git.example/fleet.git", "`{device}` once"),
            ("url: https://{device}.example/fleet.git", "`{device}` once"),
            ("url: https://git.example/{device}/{device}.git", "`{device}` once"),
            ("url: git@{device}.example:fleet.git", "`{device}` once"),
            ("url: ssh://git@git.example/fleet.git", "`{device}` once"),
            ("url: ssh://-oProxyCommand=sh/{device}.git", "its host is no name"),
            ("url: -oProxyCommand=sh@git.example:{device}.git", "its user is no name"),
            ("url: ssh://git:secret@git.example/{device}.git", "log in with a key"),
            ("url: git@git.example:{device}.git\n  caFile: a", "are for https"),
            ("url: https://git.example/{device}.git\n  identityFile: a", "for a URL like ssh://"),
            ("url: git@git.example:{device}.git\n  sshCommand: []", "names no program"),
            ("url: git@git.example:{device}.git\n  provisionTimeout: 0s", "1s to 24h"),
            ("url: git@git.example:{device}.git\n  hostKeys: [here]", "hostKeys[0]"),
            ("url: https://git.example/{device}.git\n  user: a", "needs one of"),
            ("url: https://git.example/{device}.git\n  secretFile: a\n  secretVariable: B", "needs one of"),
            ("url: https://git.example/{device}.git\n  keyFile: a", "needs `certificateFile`"),
            ("url: https://git.example/{device}.git\n  connections: 0", "between 1 and 64"),
            ("url: https://git.example/{device}.git\n  timeouts: {stall: 0s}", "1s to 24h"),
        ] {
            let text = format!("remote:\n  {lines}\n");
            let problems = Config::parse("publisher.yaml", text.as_bytes()).unwrap_err().to_string();
            assert!(problems.contains(expected), "{lines}: {problems}");
        }
    }
}
