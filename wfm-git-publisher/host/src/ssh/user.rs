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

/// The name of the user as whom clients come: the one asked for, or the one that runs this program.
pub fn name(asked: Option<&str>) -> Result<String, UserError> {
    if let Some(name) = asked {
        return Ok(name.to_owned());
    }
    let own = own();
    find(|_, id| id == own)?.map(|(name, _)| name).ok_or(UserError::Number(own))
}

/// The number of that user.
pub fn number(asked: Option<&str>) -> Result<u32, UserError> {
    let Some(asked) = asked else { return Ok(own()) };
    find(|name, _| name == asked)?.map(|(_, id)| id).ok_or_else(|| UserError::Name(asked.to_owned()))
}

/// The number of the user that runs this program.
pub(crate) fn own() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn find(is_it: impl Fn(&str, u32) -> bool) -> Result<Option<(String, u32)>, UserError> {
    let text = fs::read_to_string(PASSWD).map_err(UserError::Read)?;
    let user = |line: &str| {
        let mut words = line.split(':');
        let (name, id) = (words.next()?, words.nth(1)?.parse().ok()?);
        is_it(name, id).then(|| (name.to_owned(), id))
    };
    Ok(text.lines().find_map(user))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_name_and_by_number() {
        assert_eq!(number(Some("root")).unwrap(), 0);
        assert_eq!(find(|_, id| id == 0).unwrap(), Some(("root".to_owned(), 0)));
        assert_eq!(number(None).unwrap(), own());
        assert_eq!(name(Some("whoever")).unwrap(), "whoever");
        assert!(matches!(number(Some("no such user")), Err(UserError::Name(_))));
    }
}
