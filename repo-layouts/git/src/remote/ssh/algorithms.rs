//! Which algorithms both sides can do (RFC 4253, 7.1).

use ssh2::{MethodType, Session};

use super::Problem;

/// What both sides agree on, with the name that people know it by.
pub(super) const KINDS: [(MethodType, &str); 6] = [
    (MethodType::Kex, "key exchange"),
    (MethodType::HostKey, "kind of host key"),
    (MethodType::CryptCs, "cipher"),
    (MethodType::CryptSc, "cipher"),
    (MethodType::MacCs, "MAC"),
    (MethodType::MacSc, "MAC"),
];

/// Parts of names that stand for what isn't safe any more.
const WEAK: [&str; 10] =
    ["sha1", "md5", "cbc", "arcfour", "ripemd", "blowfish", "3des", "ssh-dss", "none", "hmac-sha2-256-96"];

/// What the host offers, in the order of [`KINDS`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Offer(Vec<Vec<String>>);

/// What libssh2 can do and we allow, best first.
pub(super) fn ours(session: &Session, kind: MethodType) -> Vec<&'static str> {
    let supported = session.supported_algs(kind).unwrap_or_default();
    supported.into_iter().filter(|name| !is_weak(name)).collect()
}

fn is_weak(name: &str) -> bool {
    // `ssh-rsa` signs with SHA-1; an RSA key is good with `rsa-sha2-…`.
    name == "ssh-rsa" || name.starts_with("ssh-rsa-cert") || WEAK.iter().any(|weak| name.contains(weak))
}

/// The signature algorithms of a public key's type.
pub(super) fn of_key(algorithm: &str) -> Vec<&str> {
    match algorithm {
        "ssh-rsa" => vec!["rsa-sha2-512", "rsa-sha2-256"],
        other => vec![other],
    }
}

/// Names that aren't algorithms but say what else a side can do.
fn is_sign(name: &str) -> bool {
    name.starts_with("ext-info-") || name.starts_with("kex-strict-")
}

impl Offer {
    /// Reads a host's first words: lines up to `SSH-…`, then its first packet, which isn't encrypted.
    pub(super) fn read(greeting: &[u8]) -> Option<Self> {
        let packet = after_banner(greeting)?;
        let (length, packet) = packet.split_first_chunk::<4>()?;
        let packet = packet.get(..u32::from_be_bytes(*length) as usize)?;
        let (padding, packet) = packet.split_first()?;
        let payload = packet.get(..packet.len().checked_sub(usize::from(*padding))?)?;
        let mut rest = payload.strip_prefix(&[20])?.get(16..)?;
        let mut lists = Vec::new();
        for _ in KINDS {
            let (length, after) = rest.split_first_chunk::<4>()?;
            let (names, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize)?;
            let names = std::str::from_utf8(names).ok()?;
            lists.push(names.split(',').map(|name| name.chars().filter(|c| c.is_ascii_graphic()).collect()).collect());
            rest = after;
        }
        Some(Self(lists))
    }

    /// Whether the host offers this for one kind.
    pub(super) fn has(&self, kind: usize, name: &str) -> bool {
        self.0[kind].iter().any(|offered| offered == name)
    }

    /// The first kind for which nothing that the host offers can be done here.
    pub(super) fn judge(&self, session: &Session) -> Result<(), Problem> {
        for (at, (kind, what)) in KINDS.iter().enumerate() {
            let ours: Vec<_> = ours(session, *kind).into_iter().filter(|name| !is_sign(name)).collect();
            // Ciphers that authenticate need no MAC.
            let is_covered = *what == "MAC" && self.0[at - 2].iter().any(|name| is_aead(name));
            if is_covered || ours.iter().any(|name| self.has(at, name)) {
                continue;
            }
            let theirs: Vec<_> = self.0[at].iter().map(String::as_str).filter(|name| !is_sign(name)).collect();
            let list = |names: &[&str]| names.iter().take(40).copied().collect::<Vec<_>>().join(", ");
            return Err(Problem::NoCommonAlgorithm { what, ours: list(&ours), theirs: list(&theirs) });
        }
        Ok(())
    }
}

fn is_aead(cipher: &str) -> bool {
    cipher.contains("gcm") || cipher.contains("poly1305")
}

/// What follows the line that begins with `SSH-`.
fn after_banner(greeting: &[u8]) -> Option<&[u8]> {
    let mut rest = greeting;
    loop {
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let (line, after) = rest.split_at(end + 1);
        if line.starts_with(b"SSH-") {
            return Some(after);
        }
        rest = after;
    }
}

/// What a server said instead of a greeting: one line without control characters. `None` if it greeted, or said nothing.
pub(super) fn said_instead(greeting: &[u8]) -> Option<String> {
    if greeting.split_inclusive(|byte| *byte == b'\n').any(|line| line.starts_with(b"SSH-")) || greeting.is_empty() {
        return None;
    }
    let text = String::from_utf8_lossy(&greeting[..greeting.len().min(300)]).into_owned();
    Some(text.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).collect())
}

#[cfg(feature = "fuzz")]
pub(in crate::remote) fn fuzz(greeting: &[u8]) {
    let _ = (Offer::read(greeting), said_instead(greeting));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(lists: &[&str]) -> Vec<u8> {
        let mut payload = vec![20];
        payload.extend([7; 16]);
        for list in lists {
            payload.extend((list.len() as u32).to_be_bytes());
            payload.extend(list.as_bytes());
        }
        let mut packet = ((payload.len() + 5) as u32).to_be_bytes().to_vec();
        packet.push(4);
        packet.extend(payload);
        packet.extend([0; 4]);
        [b"welcome\r\nSSH-2.0-x\r\n", &packet[..]].concat()
    }

    #[test]
    fn the_lists_of_a_host_are_read() {
        let whole = greeting(&["a,b", "c", "aes128-gcm@openssh.com", "e", "f", "g"]);
        let offer = Offer::read(&whole).expect("lists");
        assert!(offer.has(0, "b") && offer.has(1, "c") && !offer.has(1, "b"));
        for length in 0..whole.len() {
            assert_eq!(Offer::read(&whole[..length]), None);
        }
    }

    #[test]
    fn a_server_of_another_kind_is_known_by_its_words() {
        assert_eq!(said_instead(b"HTTP/1.1 400 Bad\x1b Request\r\nx").as_deref(), Some("HTTP/1.1 400 Bad Request"));
        assert_eq!(said_instead(b"hello\r\nSSH-2.0-x\r\n"), None);
        assert_eq!(said_instead(b""), None);
    }

    #[test]
    fn what_is_weak_is_not_offered() {
        let session = Session::new().expect("libssh2");
        for (kind, what) in KINDS {
            let names = ours(&session, kind);
            assert!(names.iter().any(|name| !is_sign(name)), "{what}");
            assert!(!names.iter().any(|name| name.contains("sha1") || name.contains("cbc")), "{what}: {names:?}");
            println!("{what}: {}", names.join(", "));
        }
    }
}
