//! The section `remote` of the publisher's settings: a host elsewhere that devices talk to.

use std::path::PathBuf;
use std::time::Duration;

use repo_http::{Source, Timeouts};
use repo_model::Digest;
use repo_model::yaml::{Field, Reader};

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
}

/// Reads the section `remote`.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Remote> {
    let path = |field: Field<'_>| field.string().map(PathBuf::from);
    let url = reader.required("url", |field| match field.clone().string()? {
        url if url.matches(DEVICE).count() == 1 && place(&url) => Some(url),
        _ => field.fail_hint("must hold `{device}` once, in its path", "https://git.example/fleet/{device}.git"),
    });
    let ca_file = reader.optional("caFile", path);
    let public_roots = reader.optional("publicRoots", Field::bool).unwrap_or_default();
    let pin = reader.optional("pin", Field::parse);
    let client = (reader.optional("certificateFile", path), reader.optional("keyFile", path));
    let user = reader.optional("user", Field::string);
    let sources = [
        reader.optional("secretFile", path).map(Source::File),
        reader.optional("secretVariable", Field::string).map(Source::Environment),
        reader.optional("secretCredential", Field::string).map(Source::Systemd),
    ];
    let proxy = reader.optional("proxy", Field::string);
    let connections = reader.optional("connections", Field::integer).unwrap_or(CONNECTIONS);
    let poll = reader.optional("poll", duration::read).map_or(POLL, Duration::from_secs);
    let timeouts = reader.optional("timeouts", |field| field.mapping(timeouts)).unwrap_or(TIMEOUTS);
    let mut sources = sources.into_iter().flatten();
    let secret = sources.next();
    let client = match client {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return reader.field().fail("needs `certificateFile` and `keyFile`, or neither"),
    };
    if sources.next().is_some() || (user.is_some() && secret.is_none()) {
        return reader.field().fail("needs one of `secretFile`, `secretVariable` and `secretCredential`");
    }
    if !(1..=64).contains(&connections) {
        return reader.field().fail("`connections` is between 1 and 64");
    }
    Some(Remote { url: url?, ca_file, public_roots, pin, client, user, secret, proxy, connections, poll, timeouts })
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
    let path = url.split_once("://").map_or(url, |(_, rest)| rest.split_once('/').map_or("", |(_, path)| path));
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
