//! Where a repository is, in the two forms that Git has for SSH.

use std::fmt;
use std::net::Ipv6Addr;

/// `ssh://[user@]host[:port]/path`, or `[user@]host:path` where the path begins at the account's home. The host may be a
/// name of the owner's ssh configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshAddress {
    /// As it was written.
    text: String,
    pub(super) user: Option<String>,
    pub(super) host: String,
    pub(super) port: Option<u16>,
    pub(super) path: String,
}

/// A text isn't the address of a repository over SSH.
#[derive(Debug, thiserror::Error)]
#[error("`{text}` can't be used as an SSH address: {why}")]
pub struct InvalidSshAddress {
    text: String,
    why: &'static str,
}

impl SshAddress {
    /// Whether the text is one of the two forms, by Git's rule: a colon before the first slash, unless it is a URL.
    pub fn is_meant(text: &str) -> bool {
        match text.split_once("://") {
            Some((scheme, _)) => scheme.eq_ignore_ascii_case("ssh"),
            None => text.split('/').next().is_some_and(|first| first.contains(':')),
        }
    }

    /// Reads one of the two forms. What ssh or the shell at the host could take for an option, or for more than a name,
    /// is refused; so is a password, which ssh doesn't take.
    pub fn parse(text: &str) -> Result<Self, InvalidSshAddress> {
        Self::read(text).map_err(|why| InvalidSshAddress { text: text.to_owned(), why })
    }

    fn read(text: &str) -> Result<Self, &'static str> {
        let (place, path, is_url) = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("ssh") => {
                let slash = rest.find('/').ok_or("it has no path")?;
                (&rest[..slash], &rest[slash..], true)
            }
            Some(_) => return Err("its scheme isn't ssh"),
            None => {
                // An address in brackets has colons of its own.
                let after = text.find(']').unwrap_or_default();
                let colon = after + text[after..].find(':').ok_or("it has no path")?;
                (&text[..colon], &text[colon + 1..], false)
            }
        };
        let (user, place) = place.rsplit_once('@').map_or((None, place), |(user, place)| (Some(user), place));
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if is_url && !port.ends_with(']') => (host, Some(port)),
            _ => (place, None),
        };
        // `ssh://host/~user/…` begins at a home.
        let path = if path.starts_with("/~") { &path[1..] } else { path };
        Ok(Self {
            text: text.to_owned(),
            user: user.map(check_user).transpose()?,
            host: check_host(host)?,
            port: port
                .map(|port| port.parse().ok().filter(|port| *port > 0).ok_or("its port isn't one"))
                .transpose()?,
            path: check_path(path)?,
        })
    }
}

fn check_user(user: &str) -> Result<String, &'static str> {
    match user {
        _ if user.contains(':') => Err("a password has no place in it: log in with a key"),
        _ if is_name(user, "._+-") => Ok(user.to_owned()),
        _ => Err("its user is no name of letters, digits and `._+-`"),
    }
}

/// ssh puts names into command lines of its configuration, so they hold nothing that a shell takes for more.
fn check_host(host: &str) -> Result<String, &'static str> {
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) if address.parse::<Ipv6Addr>().is_ok() => Ok(address.to_owned()),
        None if is_name(host, "._-") => Ok(host.to_owned()),
        _ => Err("its host is no name and no address"),
    }
}

/// Letters, digits and some more, the first of them no dash.
fn is_name(text: &str, more: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
    !text.is_empty() && !text.starts_with('-') && text.len() <= 255 && text.chars().all(allowed)
}

fn check_path(path: &str) -> Result<String, &'static str> {
    match path {
        "" | "/" => Err("it has no path"),
        _ if path.starts_with('-') => Err("its path looks like an option"),
        _ if path.chars().any(char::is_control) => Err("its path has control characters"),
        _ if path.len() > 4096 => Err("its path is too long"),
        _ => Ok(path.to_owned()),
    }
}

impl fmt::Display for SshAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_as_git_reads_them() {
        for (text, user, host, port, path) in [
            ("ssh://git@git.example/fleet/a.git", Some("git"), "git.example", None, "/fleet/a.git"),
            ("SSH://git.example:2222/a.git", None, "git.example", Some(2222), "/a.git"),
            ("ssh://git@[2001:db8::1]:22/a", Some("git"), "2001:db8::1", Some(22), "/a"),
            ("ssh://[::1]/a", None, "::1", None, "/a"),
            ("ssh://host/~git/a", None, "host", None, "~git/a"),
            ("git@git.example:fleet/a.git", Some("git"), "git.example", None, "fleet/a.git"),
            ("alias_of-config:/srv/a b", None, "alias_of-config", None, "/srv/a b"),
            ("git@[::1]:a", Some("git"), "::1", None, "a"),
            ("host:2222/a", None, "host", None, "2222/a"),
        ] {
            assert!(SshAddress::is_meant(text), "{text}");
            let address = SshAddress::parse(text).expect(text);
            let read = (address.user.as_deref(), &*address.host, address.port, &*address.path);
            assert_eq!(read, (user, host, port, path), "{text}");
            assert_eq!(address.to_string(), text);
        }
        for text in ["/srv/a", "./a:b", "a/b:c", "file:///a", "https://a/b", ""] {
            assert!(!SshAddress::is_meant(text), "{text}");
        }
    }

    #[test]
    fn nothing_that_could_be_an_option_or_a_command_is_an_address() {
        for text in [
            "ssh://-v/a",
            "ssh://-v@host/a",
            "-v:a",
            "-v@host:a",
            "ssh://-oProxyCommand=sh/a",
            "ssh://-oProxyCommand=sh@host/a",
            "-oProxyCommand=sh:a",
            "-oProxyCommand=sh@host:a",
            "ssh://git@host/",
            "ssh://host",
            "host:",
            "host:-a",
            "host:a\nb",
            "ssh://host:0/a",
            "ssh://host:65536/a",
            "ssh://host:x/a",
            "ssh://git:secret@host/a",
            "ssh://a$(id)@host/a",
            "ssh://`id`/a",
            "ho;st:a",
            "ssh://host%h/a",
            "ssh://[::1%eth0]/a",
            "ssh://[git.example]/a",
            "https://host/a",
            "ssh:///a",
        ] {
            assert!(SshAddress::parse(text).is_err(), "{text}");
        }
    }
}
