//! OpenSSH's files of known hosts (sshd(8), *SSH_KNOWN_HOSTS FILE FORMAT*).

use base64ct::{Base64, Encoding};
use hmac::{Hmac, Mac};
use sha1::Sha1;

/// The longest line that is read.
const LONGEST_LINE: usize = 16 << 10;

/// What a line says of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marker {
    /// The host has this key.
    Host,
    /// Nobody may use this key any more (`@revoked`).
    Revoked,
    /// The key signs other keys (`@cert-authority`), which isn't supported.
    Authority,
}

/// One line: these hosts have this key.
#[derive(Debug)]
pub(super) struct Line<'a> {
    pub(super) marker: Marker,
    hosts: &'a str,
    /// The public key in SSH's encoding.
    pub(super) key: Vec<u8>,
}

/// All lines of a file that can be understood. Others are passed over, as OpenSSH does.
pub(super) fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    text.lines().filter(|line| line.len() <= LONGEST_LINE).filter_map(Line::parse)
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let first = words.next().filter(|word| !word.starts_with('#'))?;
        let (marker, hosts) = match first {
            "@revoked" => (Marker::Revoked, words.next()?),
            "@cert-authority" => (Marker::Authority, words.next()?),
            _ if first.starts_with('@') => return None,
            _ => (Marker::Host, first),
        };
        let (algorithm, blob) = (words.next()?, words.next()?);
        let key = decode(algorithm, blob)?;
        Some(Self { marker, hosts, key })
    }

    /// Whether the line is about this host: `name`, or `[name]:port` for another port than 22.
    pub(super) fn is_about(&self, host: &str) -> bool {
        if let Some(hashed) = self.hosts.strip_prefix("|1|") {
            return is_hash_of(hashed, host).unwrap_or(false);
        }
        let mut found = false;
        for pattern in self.hosts.split(',') {
            match pattern.strip_prefix('!') {
                Some(pattern) if matches(pattern.as_bytes(), host.as_bytes()) => return false,
                Some(_) => {}
                None => found |= matches(pattern.as_bytes(), host.as_bytes()),
            }
        }
        found
    }
}

/// The key of `<algorithm> <base64>`, if both say the same algorithm.
pub(super) fn decode(algorithm: &str, blob: &str) -> Option<Vec<u8>> {
    let key = Base64::decode_vec(blob).ok()?;
    (algorithm_of(&key) == Some(algorithm)).then_some(key)
}

/// The algorithm in a public key's encoding (RFC 4253, 6.6).
pub(super) fn algorithm_of(key: &[u8]) -> Option<&str> {
    let (length, rest) = key.split_first_chunk::<4>()?;
    let name = rest.get(..u32::from_be_bytes(*length) as usize)?;
    std::str::from_utf8(name).ok().filter(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic()))
}

/// `<salt>|<hash>`: HMAC-SHA1 of the host with the salt as its key.
fn is_hash_of(hashed: &str, host: &str) -> Option<bool> {
    let (salt, hash) = hashed.split_once('|')?;
    let (salt, hash) = (Base64::decode_vec(salt).ok()?, Base64::decode_vec(hash).ok()?);
    let mut mac = Hmac::<Sha1>::new_from_slice(&salt).ok()?;
    mac.update(host.as_bytes());
    Some(mac.verify_slice(&hash).is_ok())
}

/// Whether a pattern with `*` and `?` is about this text, whatever the case of letters.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to go on when the last `*` has to take one byte more.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(byte) if *byte == b'?' || byte.eq_ignore_ascii_case(&text[t]) => (p, t) = (p + 1, t + 1),
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    (p, t) = (at + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHD1VpgVPEJv+fCTrqmCPA1vpFcBzrXcGxQt1nTXJLxE";

    fn about(hosts: &str, host: &str) -> bool {
        let text = format!("{hosts} {KEY} comment");
        lines(&text).any(|line| line.is_about(host))
    }

    #[test]
    fn a_line_names_hosts_by_patterns_ports_and_exceptions() {
        for (hosts, host, expected) in [
            ("git.example", "git.example", true),
            ("GIT.example,10.0.0.1", "git.example", true),
            ("git.example", "git.example.org", false),
            ("*.example", "git.example", true),
            ("g?t.*", "git.example", true),
            ("*.example,!git.example", "git.example", false),
            ("!git.example,*.example", "git.example", false),
            ("[git.example]:2222", "[git.example]:2222", true),
            ("git.example", "[git.example]:2222", false),
            ("[*]:2222", "[git.example]:2222", true),
            ("*a*b*c", "xaxbxbxc", true),
            ("*a*b*c", "xaxbxbx", false),
        ] {
            assert_eq!(about(hosts, host), expected, "{hosts} {host}");
        }
    }

    #[test]
    fn a_hashed_name_is_found() {
        // `ssh-keygen -H` (OpenSSH 9.2) of `[git.example]:2222` and of `git.example`.
        for (hosts, host) in [
            ("|1|QIa7mzGzUfzyvYKUDSZZzA/eE+k=|ebe0Kki4uJfFBmF+yIkRKu/wbHo=", "[git.example]:2222"),
            ("|1|MR/0L42vFryAXGqEbyM0cPepys8=|V9xhIWlJzAB367aBEVKdRbS5J9w=", "git.example"),
        ] {
            assert!(about(hosts, host), "{host}");
            assert!(!about(hosts, "git.example.org"));
        }
        assert!(!about("|1|x|y", "git.example") && !about("|1|", "git.example"));
    }

    #[test]
    fn markers_are_told_apart_and_unknown_ones_are_passed_over() {
        let text = format!("@revoked a {KEY}\n@cert-authority a {KEY}\n@new a {KEY}\n# a {KEY}\n\n a {KEY}\na {KEY}");
        let markers: Vec<_> = lines(&text).map(|line| line.marker).collect();
        assert_eq!(markers, [Marker::Revoked, Marker::Authority, Marker::Host, Marker::Host]);
    }

    #[test]
    fn what_is_no_key_is_passed_over() {
        for line in ["a", "a ssh-ed25519", "a ssh-ed25519 !!!!", "a ssh-rsa AAAAC3NzaC1lZDI1NTE5", "a ssh-rsa AAAA"] {
            assert_eq!(lines(line).count(), 0, "{line}");
        }
        let other = KEY.replace("ssh-ed25519", "ssh-rsa");
        assert_eq!(lines(&format!("a {other}")).count(), 0);
    }
}
