//! Users of this machine by name and number, from `/etc/passwd`: what else knows users has to be asked for by name.

use std::fs;
use std::io;

/// Where users are listed.
const PASSWD: &str = "/etc/passwd";

/// A user can't be found.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// The list of users can't be read.
    #[error("cannot read {PASSWD}")]
    Read(#[source] io::Error),
    /// It has no such user.
    #[error("{PASSWD} has no user `{0}`, whom `serve: ssh: user:` names")]
    Name(String),
    /// It doesn't have the user that runs this program.
    #[error("{PASSWD} has no user with the number {0}, which runs this program; name one with `serve: ssh: user:`")]
    Number(u32),
}

/// A user of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) id: u32,
    /// What the user's commands are run by.
    pub(crate) shell: String,
}

/// The name of the user as whom clients come: the one asked for, who may be of another machine, or the one that runs this
/// program.
pub fn name(asked: Option<&str>) -> Result<String, UserError> {
    match asked {
        Some(name) => Ok(name.to_owned()),
        None => of(None).map(|user| user.name),
    }
}

/// The user as whom clients come.
pub(crate) fn of(asked: Option<&str>) -> Result<User, UserError> {
    match asked {
        Some(asked) => find(|user| user.name == asked)?.ok_or_else(|| UserError::Name(asked.to_owned())),
        None => find(|user| user.id == own())?.ok_or(UserError::Number(own())),
    }
}

/// The number of the user that runs this program.
pub(crate) fn own() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn find(is_it: impl Fn(&User) -> bool) -> Result<Option<User>, UserError> {
    let text = fs::read_to_string(PASSWD).map_err(UserError::Read)?;
    let user = |line: &str| {
        let words: Vec<_> = line.split(':').collect();
        let [name, _, id, _, _, _, shell] = words[..] else { return None };
        let user = User { name: name.to_owned(), id: id.parse().ok()?, shell: shell.to_owned() };
        is_it(&user).then_some(user)
    };
    Ok(text.lines().find_map(user))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_name_and_by_number() {
        let root = of(Some("root")).unwrap();
        assert_eq!((root.name.as_str(), root.id), ("root", 0));
        assert_eq!(find(|user| user.id == 0).unwrap(), Some(root));
        assert_eq!(of(None).unwrap().id, own());
        assert_eq!(name(Some("whoever")).unwrap(), "whoever");
        assert!(matches!(of(Some("no such user")), Err(UserError::Name(_))));
    }
}
