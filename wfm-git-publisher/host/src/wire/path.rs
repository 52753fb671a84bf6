//! Request paths and queries: which repository, and what is asked of it.

use repo_git::CommitId;
use repo_model::Branch;

use super::object_name;

/// The longest name of a repository, which is a device id that needs no other spelling.
const MAX_NAME: usize = 200;

/// A repository of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target<'a> {
    /// `/devices/<repository name>.git`
    Device(&'a str),
    /// `/fleet.git`
    Fleet,
    /// `/control.git`
    Control,
}

/// One of Git's two services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Service {
    /// Reading: `git-upload-pack`.
    UploadPack,
    /// Writing: `git-receive-pack`.
    ReceivePack,
}

impl Service {
    /// Its name, as in `git upload-pack`.
    pub fn name(self) -> &'static str {
        match self {
            Self::UploadPack => "upload-pack",
            Self::ReceivePack => "receive-pack",
        }
    }
}

/// What is asked of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// `GET …/info/refs?service=git-…`
    InfoRefs(Service),
    /// `POST …/git-…`
    Call(Service),
    /// `GET …/wait?desired=…&freshness=…[&site=…]`; `None` where the query doesn't say where both stand.
    Wait(Option<Known>),
}

/// Where the one who waits believes the branches to stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// `refs/heads/desired`
    pub desired: Option<CommitId>,
    /// `refs/heads/freshness`
    pub freshness: Option<CommitId>,
    /// `refs/heads/site`; the outer absence says that it isn't waited for.
    pub site: Option<Option<CommitId>>,
}

/// Reads the path and query of a request; `None` for whatever this host doesn't have, Git's dumb protocol included. Nothing
/// is decoded: no name that this host gives needs it.
pub fn parse<'a>(path: &'a str, query: Option<&str>) -> Option<(Target<'a>, Action)> {
    let (target, rest) = if let Some(rest) = path.strip_prefix("/devices/") {
        let (name, rest) = rest.split_once(".git/")?;
        (Target::Device(name).checked()?, rest)
    } else if let Some(rest) = path.strip_prefix("/fleet.git/") {
        (Target::Fleet, rest)
    } else {
        (Target::Control, path.strip_prefix("/control.git/")?)
    };
    let action = match rest {
        "info/refs" => Action::InfoRefs(service(query?)?),
        "git-upload-pack" => Action::Call(Service::UploadPack),
        "git-receive-pack" => Action::Call(Service::ReceivePack),
        "wait" => Action::Wait(query.and_then(known)),
        _ => return None,
    };
    Some((target, action))
}

/// The repository that a path names, as a command over SSH does: what stands before Git's own paths over HTTPS.
pub fn repository(path: &str) -> Option<Target<'_>> {
    match path {
        "/fleet.git" => Some(Target::Fleet),
        "/control.git" => Some(Target::Control),
        path => Target::Device(path.strip_prefix("/devices/")?.strip_suffix(".git")?).checked(),
    }
}

impl Target<'_> {
    /// Where it lies in the publisher's home; also its name in logs.
    pub fn place(&self) -> String {
        match self {
            Self::Device(name) => format!("devices/{name}.git"),
            Self::Fleet => "fleet.git".to_owned(),
            Self::Control => "control.git".to_owned(),
        }
    }

    /// A name as [`repo_model::DeviceId::repository_name`] makes them.
    fn checked(self) -> Option<Self> {
        let Self::Device(name) = self else { return Some(self) };
        let first = name.bytes().next()?;
        let good = name.len() <= MAX_NAME
            && (first.is_ascii_lowercase() || first.is_ascii_digit())
            && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || b".-_".contains(&c))
            && ![".", ".lock", ".git"].iter().any(|end| name.ends_with(end));
        good.then_some(self)
    }
}

fn service(query: &str) -> Option<Service> {
    match parameter(query, "service")? {
        "git-upload-pack" => Some(Service::UploadPack),
        "git-receive-pack" => Some(Service::ReceivePack),
        _ => None,
    }
}

fn known(query: &str) -> Option<Known> {
    let at = |name| object_name(parameter(query, name)?.as_bytes());
    let names = |pair: &str| pair.split('=').next() == Some(Branch::Site.as_str());
    let site = if query.split('&').any(names) { Some(at(Branch::Site.as_str())?) } else { None };
    Some(Known { desired: at(Branch::Desired.as_str())?, freshness: at(Branch::Freshness.as_str())?, site })
}

/// The value of a parameter that stands exactly once.
fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let mut values = query.split('&').filter_map(|pair| pair.split_once('=')).filter(|(key, _)| *key == name);
    let (_, value) = values.next()?;
    values.next().is_none().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_a_repository_and_what_is_asked_of_it() {
        let upload = Some("service=git-upload-pack");
        let refs = Action::InfoRefs(Service::UploadPack);
        assert_eq!(parse("/devices/press-04.git/info/refs", upload), Some((Target::Device("press-04"), refs)));
        assert_eq!(parse("/control.git/info/refs", upload), Some((Target::Control, refs)));
        let push = Action::Call(Service::ReceivePack);
        assert_eq!(parse("/fleet.git/git-receive-pack", None), Some((Target::Fleet, push)));
        let id = "1234567890123456789012345678901234567890";
        let query = format!("desired={id}&freshness={}", super::super::NOTHING);
        let known = Known { desired: Some(id.parse().unwrap()), freshness: None, site: None };
        assert_eq!(
            parse("/devices/a.b.git/wait", Some(&query)),
            Some((Target::Device("a.b"), Action::Wait(Some(known))))
        );
        let with_site = Known { site: Some(known.desired), ..known };
        let waits = |query: &str| parse("/devices/a.b.git/wait", Some(query)).map(|(_, action)| action);
        assert_eq!(waits(&format!("{query}&site={id}")), Some(Action::Wait(Some(with_site))));
    }

    #[test]
    fn nothing_else_is_a_path_of_this_host() {
        let upload = Some("service=git-upload-pack");
        for path in [
            "",
            "/",
            "/devices/",
            "/devices/.git/info/refs",
            "/devices/../control.git/info/refs",
            "/devices/..git/info/refs",
            "/devices/.a.git/info/refs",
            "/devices/a/b.git/info/refs",
            "/devices/A.git/info/refs",
            "/devices/a%2e.git/info/refs",
            "/devices/a.git/../b.git/info/refs",
            "/devices/a.git.git/info/refs",
            "/devices/a.lock.git/info/refs",
            "/devices/a.git/HEAD",
            "/devices/a.git/objects/info/packs",
            "/devices/a.git//info/refs",
            "/devices//a.git/info/refs",
            "//control.git/info/refs",
            "/control.git/info/refs/",
            "/devices/a\0.git/info/refs",
            &format!("/devices/{}.git/info/refs", "a".repeat(201)),
        ] {
            assert_eq!(parse(path, upload), None, "{path}");
        }
        for query in [None, Some(""), Some("service=git-upload-archive"), Some("service=git-upload-pack&service=x")] {
            assert_eq!(parse("/control.git/info/refs", query), None, "{query:?}");
        }
        let both = format!("desired={0}&freshness={0}", super::super::NOTHING);
        for query in [
            None,
            Some("desired="),
            Some("desired=abc&freshness=abc"),
            Some("freshness="),
            Some(&format!("{both}&site=")),
            Some(&format!("{both}&site=abc")),
        ] {
            let malformed = (Target::Device("a"), Action::Wait(None));
            assert_eq!(parse("/devices/a.git/wait", query), Some(malformed), "{query:?}");
        }
    }
}
