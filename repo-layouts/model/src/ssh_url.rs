//! Addresses over SSH: `ssh://user@host[:port]/path`, and nothing that a shell, a command line or a host could read as
//! something else.

use core::net::Ipv6Addr;
use std::fmt;
use std::str::FromStr;

/// The scheme, which is read in any case.
const SCHEME: &str = "ssh://";

/// SSH's own port, where none is said.
const PORT: u16 = 22;

/// An `ssh://user@host[:port]/path` URL (`repo-layouts/README.md`, *Join file*).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SshUrl {
    user: String,
    /// Without the brackets of an IPv6 address, in lower case.
    host: String,
    port: u16,
    path: String,
}

/// The text is no address over SSH. It isn't repeated, because it may hold a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSshUrl {
    #[error("expected `ssh://user@host/path`")]
    NotSsh,
    /// `user:password@`.
    #[error("the URL holds a password: over SSH a key says who asks")]
    Password,
    /// No user, or one that could be read as an option.
    #[error("a user is letters, digits, `.`, `_` and `-`, and doesn't begin with `-` or `.`")]
    User,
    /// No host, or one that could be read as an option.
    #[error("a host is a name, an IPv4 address, or an IPv6 address in brackets")]
    Host,
    /// No port that there is.
    #[error("a port is a number from 1 to 65535")]
    Port,
    /// No path, or one that a host could read in two ways.
    #[error(
        "a path is made of letters, digits and `.`, `_`, `~`, `+`, `@`, `=`, `,`, `:`, `-` between slashes, without `%`, `?` \
         and `#`, without parts that are empty, `.` or `..`, and doesn't begin with `/~`"
    )]
    Path,
}

impl SshUrl {
    pub fn parse(text: &str) -> Result<Self, InvalidSshUrl> {
        let is_ssh = text.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME));
        let rest = if is_ssh { &text[SCHEME.len()..] } else { return Err(InvalidSshUrl::NotSsh) };
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (user, address) = authority.rsplit_once('@').ok_or(InvalidSshUrl::User)?;
        if user.contains(':') {
            return Err(InvalidSshUrl::Password);
        }
        if !is_word(user, b"._-", b"_") {
            return Err(InvalidSshUrl::User);
        }
        let (host, port) = host_and_port(address)?;
        let parts_are_good = path.starts_with('/')
            && !path.starts_with("/~")
            && path[1..].split('/').all(|part| !matches!(part, "" | "." | "..") && part.bytes().all(is_of_path));
        if !parts_are_good {
            return Err(InvalidSshUrl::Path);
        }
        Ok(Self { user: user.to_owned(), host, port, path: path.to_owned() })
    }

    /// The account on the host.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Name or address, in lower case and without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// 22 where none is said.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The repository's path on the host; begins with a slash.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// `host`, or `[host]:port` where the port isn't SSH's own: the host as `known_hosts` names it.
    pub fn known_hosts_name(&self) -> String {
        if self.port == PORT { self.host.clone() } else { format!("[{}]:{}", self.host, self.port) }
    }
}

impl FromStr for SshUrl {
    type Err = InvalidSshUrl;

    fn from_str(text: &str) -> Result<Self, InvalidSshUrl> {
        Self::parse(text)
    }
}

impl fmt::Display for SshUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_address = self.host.contains(':');
        let (open, close) = if is_address { ("[", "]") } else { ("", "") };
        write!(f, "{SCHEME}{}@{open}{}{close}", self.user, self.host)?;
        if self.port != PORT {
            write!(f, ":{}", self.port)?;
        }
        f.write_str(&self.path)
    }
}

fn host_and_port(address: &str) -> Result<(String, u16), InvalidSshUrl> {
    let (host, port) = match address.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or(InvalidSshUrl::Host)?;
            (host.parse::<Ipv6Addr>().map_err(|_| InvalidSshUrl::Host)?.to_string(), port)
        }
        None => {
            let (host, port) = address.split_at(address.find(':').unwrap_or(address.len()));
            if !is_word(host, b".-", b"") {
                return Err(InvalidSshUrl::Host);
            }
            (host.to_ascii_lowercase(), port)
        }
    };
    let digits = match port.strip_prefix(':') {
        None if port.is_empty() => return Ok((host, PORT)),
        None => return Err(InvalidSshUrl::Host),
        Some(digits) => digits,
    };
    // `u16` would read a sign, too.
    let port = digits.parse().ok().filter(|port| *port > 0 && digits.bytes().all(|c| c.is_ascii_digit()));
    Ok((host, port.ok_or(InvalidSshUrl::Port)?))
}

/// Letters, digits and `others`; it begins with a letter, a digit or one of `first`.
fn is_word(text: &str, others: &[u8], first: &[u8]) -> bool {
    text.bytes().next().is_some_and(|c| c.is_ascii_alphanumeric() || first.contains(&c))
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || others.contains(&c))
}

fn is_of_path(c: u8) -> bool {
    c.is_ascii_alphanumeric() || b"._~+@=,:-".contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_user_host_port_and_path() {
        for (text, user, host, port, path) in [
            ("ssh://git@fleet.example/devices/a.git", "git", "fleet.example", 22, "/devices/a.git"),
            ("SSH://wfm@Fleet.Example:2222/a.git", "wfm", "fleet.example", 2222, "/a.git"),
            ("ssh://_a.b-c@10.0.0.1:22/a/b~c/d", "_a.b-c", "10.0.0.1", 22, "/a/b~c/d"),
            ("ssh://git@[2001:DB8::1]:2222/a.git", "git", "2001:db8::1", 2222, "/a.git"),
        ] {
            let url = SshUrl::parse(text).unwrap();
            assert_eq!((url.user(), url.host(), url.port(), url.path()), (user, host, port, path), "{text}");
            assert_eq!(SshUrl::parse(&url.to_string()).unwrap(), url);
        }
    }

    #[test]
    fn what_a_shell_or_a_command_line_could_read_otherwise_is_refused() {
        use InvalidSshUrl::*;
        for (text, expected) in [
            ("https://git@host/a", NotSsh),
            ("git@host:a.git", NotSsh),
            ("ssh:/git@host/a", NotSsh),
            ("ssh://host/a", User),
            ("ssh://@host/a", User),
            ("ssh://-oProxyCommand=x@host/a", User),
            ("ssh://g%20t@host/a", User),
            ("ssh://a@b@host/a", User),
            ("ssh://git:secret@host/a", Password),
            ("ssh://git:@host/a", Password),
            ("ssh://git@/a", Host),
            ("ssh://git@-oProxyCommand=x/a", Host),
            ("ssh://git@ho_st/a", Host),
            ("ssh://git@[fe80::1%eth0]/a", Host),
            ("ssh://git@[::1/a", Host),
            ("ssh://git@[::1]x/a", Host),
            ("ssh://git@::1/a", Host),
            ("ssh://git@a::1/a", Port),
            ("ssh://git@host:/a", Port),
            ("ssh://git@host:0/a", Port),
            ("ssh://git@host:65536/a", Port),
            ("ssh://git@host:+22/a", Port),
            ("ssh://git@host", Path),
            ("ssh://git@host/", Path),
            ("ssh://git@host/a/", Path),
            ("ssh://git@host//a", Path),
            ("ssh://git@host/~/a", Path),
            ("ssh://git@host/~git/a", Path),
            ("ssh://git@host/a/../b", Path),
            ("ssh://git@host/./b", Path),
            ("ssh://git@host/a%20b", Path),
            ("ssh://git@host/a b", Path),
            ("ssh://git@host/a'b", Path),
            ("ssh://git@host/a;b", Path),
            ("ssh://git@host/$a", Path),
            ("ssh://git@host/a\nb", Path),
            ("ssh://git@host/\u{fc}", Path),
            ("ssh://git@host/a#b", Path),
            ("ssh://git@host/a?b", Path),
            ("ssh://git@host?b", Path),
        ] {
            assert_eq!(SshUrl::parse(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn known_hosts_names_a_host_with_its_port_where_that_is_another() {
        let name = |text: &str| SshUrl::parse(text).unwrap().known_hosts_name();
        assert_eq!(name("ssh://git@fleet.example/a"), "fleet.example");
        assert_eq!(name("ssh://git@fleet.example:22/a"), "fleet.example");
        assert_eq!(name("ssh://git@[::1]:2222/a"), "[::1]:2222");
    }
}
