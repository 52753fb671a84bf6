//! What the site holds: `hold.json`, which `hold` and `release` write, and the file that `gates.hold` names.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use repo_git::durable::Dir;
use repo_model::{DeploymentName, error_chain};
use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use crate::config::Home;
use crate::decision::failure::{LINE, STEADY};
use crate::decision::hold::{Clocks, Hold, HoldByPerson, Timer};
use crate::state::json_file::{self, FileError};

/// How much of a site's file is read for its first line, in bytes: it may be of any length.
const FIRST_LINE: u64 = 4 * LINE as u64;

/// `hold.json` of the home, written by `hold` and `release`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HoldsFile {
    holds: Vec<HoldByPerson>,
    /// When those end by how long the device has been up, by the deployment that is held; the whole device is the empty name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    timers: BTreeMap<String, Timer>,
}

impl HoldsFile {
    /// Those that haven't [ended](HoldByPerson::has_ended), with their timers.
    fn lasting(self, clocks: &Clocks) -> Self {
        let Self { holds, mut timers } = self;
        let mut lasting = Self { holds: Vec::new(), timers: BTreeMap::new() };
        for hold in holds {
            let of = held(hold.deployment.as_ref());
            let timer = timers.remove(&of);
            if !hold.has_ended(timer.as_ref(), clocks) {
                lasting.timers.extend(timer.map(|timer| (of, timer)));
                lasting.holds.push(hold);
            }
        }
        lasting
    }

    /// Takes out the hold of a deployment, or of the whole device. Returns whether there was one.
    fn take(&mut self, deployment: Option<&DeploymentName>) -> bool {
        let before = self.holds.len();
        self.holds.retain(|hold| hold.deployment.as_ref() != deployment);
        self.timers.remove(&held(deployment));
        self.holds.len() < before
    }
}

/// The name of what is held.
fn held(deployment: Option<&DeploymentName>) -> String {
    deployment.map(ToString::to_string).unwrap_or_default()
}

/// What persons said can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("`{}` isn't what `device-syncer hold` wrote, so everything is held: {problem}", path.display())]
    Content { path: PathBuf, problem: String },
    /// There is no such hold to end.
    #[error("{what} isn't held by a person")]
    NotHeld { what: String },
}

/// Reads what holds. Lives as long as the process.
#[derive(Debug, Default)]
pub struct Holds {
    /// What the site's file said, and when that was read.
    words: Option<(String, Timestamp)>,
}

impl Holds {
    /// What holds now. Whatever can't be read holds everything, and says so.
    pub fn read(&mut self, home: &Home, file: Option<&Path>, clocks: &Clocks) -> Vec<Hold> {
        let mut all = match read(&home.hold()) {
            Ok(held) => held.lasting(clocks).holds.into_iter().map(Hold::Person).collect(),
            Err(error) => vec![Hold::File { file: home.hold().display().to_string(), why: error_chain(&error) }],
        };
        let found = file.and_then(|file| Some((file, words_of(file)?)));
        if let Some((file, words)) = found {
            all.push(Hold::File { file: file.display().to_string(), why: self.steady(words, clocks.now) });
        } else {
            self.words = None;
        }
        all
    }

    fn steady(&mut self, words: String, now: Timestamp) -> String {
        let is_young = |since: Timestamp| Duration::try_from(now.duration_since(since)).is_ok_and(|age| age < STEADY);
        match &self.words {
            Some((before, since)) if *before == words || is_young(*since) => before.clone(),
            _ => {
                self.words = Some((words.clone(), now));
                words
            }
        }
    }
}

/// What persons hold who want what is at work there to end now; nothing where that can't be read.
pub fn now(home: &Home, clocks: &Clocks) -> Vec<HoldByPerson> {
    let mut holds = read(&home.hold()).unwrap_or_default().lasting(clocks).holds;
    holds.retain(|hold| hold.now);
    holds
}

/// Why a site's file holds everything; `None` where there is none. It is somebody else's: nothing but a plain file is
/// opened, no link is followed, and of its content no more is read than is shown.
fn words_of(file: &Path) -> Option<String> {
    let shown = file.display();
    match first_line(file) {
        Ok(None) => None,
        Ok(Some(line)) if line.is_empty() => Some(format!("the site's file `{shown}` is there")),
        Ok(Some(line)) => Some(format!("the site's file `{shown}` says: {line}")),
        Err(error) => Some(format!("the site's file `{shown}` can't be read: {error}")),
    }
}

fn first_line(file: &Path) -> io::Result<Option<String>> {
    let (Some(dir), Some(name)) = (file.parent(), file.file_name().and_then(|name| name.to_str())) else {
        return Err(ErrorKind::InvalidFilename.into());
    };
    let dir = match Dir::open(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        dir => dir?,
    };
    let not_plain = |what: &str| Err(io::Error::other(format!("it is {what}, and only a plain file is read")));
    match dir.file_type(name)? {
        None => return Ok(None),
        Some(FileType::RegularFile) => {}
        Some(FileType::Symlink) => return not_plain("a link"),
        Some(FileType::Directory) => return not_plain("a directory"),
        Some(FileType::Fifo) => return not_plain("a FIFO"),
        Some(_) => return not_plain("a device or a socket"),
    }
    // It went meanwhile, or became something else: the next pass sees what it is by then.
    let Some(found) = dir.open_file(name)? else { return not_plain("no longer what it was") };
    let mut bytes = Vec::new();
    found.take(FIRST_LINE).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(Some(text.lines().next().unwrap_or_default().trim().to_owned()))
}

fn read(path: &Path) -> Result<HoldsFile, HoldError> {
    json_file::read(path)?.map_err(|problem| HoldError::Content { path: path.to_owned(), problem })
}

/// Holds, in place of what held the same before; for so many seconds, if it ends by itself.
pub fn add(home: &Home, hold: HoldByPerson, lasts: Option<u64>, clocks: &Clocks) -> Result<(), HoldError> {
    let _lock = json_file::lock(home)?;
    let mut file = read(&home.hold())?.lasting(clocks);
    file.take(hold.deployment.as_ref());
    let timer = lasts.zip(clocks.boot.as_ref()).map(|(lasts, (boot_id, at))| Timer {
        boot_id: boot_id.clone(),
        ends: at.saturating_add(lasts),
        is_vouched_for: clocks.is_vouched_for,
    });
    file.timers.extend(timer.map(|timer| (held(hold.deployment.as_ref()), timer)));
    file.holds.push(hold);
    write(home, &file)
}

/// Ends the hold of a deployment, or that of the whole device, which also ends what can't be read.
pub fn release(home: &Home, deployment: Option<&DeploymentName>, clocks: &Clocks) -> Result<(), HoldError> {
    let _lock = json_file::lock(home)?;
    let file = match read(&home.hold()) {
        Err(HoldError::Content { .. }) if deployment.is_none() => return write(home, &HoldsFile::default()),
        file => file?,
    };
    let mut file = file.lasting(clocks);
    if !file.take(deployment) {
        let what = deployment.map_or("the whole device".to_owned(), |name| format!("deployment `{name}`"));
        return Err(HoldError::NotHeld { what });
    }
    write(home, &file)
}

/// Also what holds nothing is written: a file that goes wakes no running syncer.
fn write(home: &Home, file: &HoldsFile) -> Result<(), HoldError> {
    Ok(json_file::write(&home.hold(), file)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use jiff::SignedDuration;
    use repo_git::durable;
    use rustix::fs::{CWD, Mode, mknodat};
    use tempfile::TempDir;

    use super::*;

    fn now() -> Timestamp {
        "2026-11-23T15:00:00Z".parse().unwrap()
    }

    /// The wall clock, for which somebody vouches.
    fn at(now: Timestamp) -> Clocks {
        Clocks { now, is_vouched_for: true, boot: None }
    }

    fn hold(deployment: Option<&str>, hours: Option<i64>) -> HoldByPerson {
        let deployment = deployment.map(|name| name.parse().unwrap());
        let until = hours.map(|hours| now() + SignedDuration::from_hours(hours));
        let (by, why) = ("j.doe".to_owned(), "x".to_owned());
        HoldByPerson { deployment, id: None, by, why, since: now(), until, now: false }
    }

    fn said(home: &Home, now: Timestamp) -> Vec<String> {
        Holds::default().read(home, None, &at(now)).iter().map(Hold::message).collect()
    }

    #[test]
    fn a_hold_lasts_until_it_is_released_or_ends_by_itself() {
        let dir = TempDir::new().unwrap();
        let home = Home::new(dir.path());
        let name: DeploymentName = "a".parse().unwrap();
        assert!(matches!(release(&home, None, &at(now())), Err(HoldError::NotHeld { .. })));
        add(&home, hold(None, Some(8)), None, &at(now())).unwrap();
        add(&home, hold(Some("a"), None), None, &at(now())).unwrap();
        let in_time = |hours| now() + SignedDuration::from_hours(hours);
        assert_eq!((said(&home, now()).len(), said(&home, in_time(7)).len(), said(&home, in_time(8)).len()), (2, 2, 1));
        add(&home, hold(Some("a"), Some(1)), None, &at(now())).unwrap();
        assert_eq!(said(&home, now()).len(), 2, "one hold of one thing");
        assert!(matches!(release(&home, Some(&name), &at(in_time(1))), Err(HoldError::NotHeld { .. })), "it has ended");
        release(&home, Some(&name), &at(now())).unwrap();
        release(&home, None, &at(now())).unwrap();
        assert_eq!(said(&home, now()), [""; 0]);
    }

    #[test]
    fn a_hold_that_was_said_in_1970_lasts_as_long_as_was_said_and_over_a_boot_until_it_is_released() {
        let dir = TempDir::new().unwrap();
        let home = Home::new(dir.path());
        let at = |now: Timestamp, boot: &str, seconds| Clocks {
            now,
            is_vouched_for: now > Timestamp::UNIX_EPOCH,
            boot: Some((boot.to_owned(), seconds)),
        };
        let count = |clocks: &Clocks| Holds::default().read(&home, None, clocks).len();
        let until = Some(Timestamp::UNIX_EPOCH + SignedDuration::from_hours(8));
        let said = |name| HoldByPerson { until, since: Timestamp::UNIX_EPOCH, ..hold(name, None) };
        let begin = at(Timestamp::UNIX_EPOCH, "first", 100);
        add(&home, said(None), Some(28_800), &begin).unwrap();
        add(&home, said(Some("a")), Some(3600), &begin).unwrap();
        assert_eq!((count(&begin), count(&at(now(), "first", 3699)), count(&at(now(), "first", 3700))), (2, 2, 1));
        assert_eq!((count(&at(now(), "first", 28_899)), count(&at(now(), "first", 28_900))), (1, 0));
        assert_eq!(count(&at(now(), "second", 28_900)), 2);
        let text = std::fs::read_to_string(home.hold()).unwrap();
        release(&home, None, &at(now(), "second", 1)).unwrap();
        release(&home, Some(&"a".parse().unwrap()), &at(now(), "second", 1)).unwrap();
        assert_eq!(count(&begin), 0);
        // A file of before has none of that, and what is released leaves nothing.
        assert!(text.contains("\"timers\"") && !std::fs::read_to_string(home.hold()).unwrap().contains("timers"));
    }

    #[test]
    fn what_can_not_be_read_holds_everything_until_all_is_released() {
        let dir = TempDir::new().unwrap();
        let home = Home::new(dir.path());
        let name: DeploymentName = "a".parse().unwrap();
        for content in ["", "{", "{\"holds\": [{}]}", "{\"holds\": [], \"more\": 1}"] {
            durable::replace_file(&home.hold(), content.as_bytes(), 0o600).unwrap();
            let holds = Holds::default().read(&home, None, &at(now()));
            assert!(matches!(&holds[..], [all] if all.is_of(None, Some(&name))), "{content}: {holds:?}");
            assert!(matches!(add(&home, hold(None, None), None, &at(now())), Err(HoldError::Content { .. })));
            assert!(matches!(release(&home, Some(&name), &at(now())), Err(HoldError::Content { .. })));
            release(&home, None, &at(now())).unwrap();
            assert_eq!(said(&home, now()), [""; 0]);
        }
    }

    #[test]
    fn a_sites_file_holds_while_anything_is_there_and_nothing_but_a_plain_file_is_read() {
        let dir = TempDir::new().unwrap();
        let (home, file) = (Home::new(dir.path()), dir.path().join("there/busy"));
        let words = || {
            let holds = Holds::default().read(&home, Some(&file), &at(now()));
            holds.iter().map(Hold::message).collect::<Vec<_>>().join("|").replace(&*file.display().to_string(), "F")
        };
        let again = || match fs::symlink_metadata(&file).unwrap().is_dir() {
            true => fs::remove_dir(&file).unwrap(),
            false => assert!(durable::remove_file(&file).unwrap()),
        };
        assert_eq!(words(), "", "not even its directory is there");
        durable::create_dir_all(file.parent().unwrap(), 0o700).unwrap();
        assert_eq!(words(), "");
        let put = |bytes: &[u8]| durable::replace_file(&file, bytes, 0o600).unwrap();
        put(b"");
        assert_eq!(words(), "the site's file `F` is there");
        put(b" line 2 is filling \r\nmore\n");
        assert_eq!(words(), "the site's file `F` says: line 2 is filling");
        put(&[0xff; 1 << 20]);
        assert!(words().chars().count() <= LINE && words().ends_with('…'), "{}", words());
        again();
        put(b"secret");
        durable::rename(&file, &dir.path().join("secret")).unwrap();
        symlink(dir.path().join("secret"), &file).unwrap();
        assert_eq!(words(), "the site's file `F` can't be read: it is a link, and only a plain file is read");
        again();
        symlink("/nowhere", &file).unwrap();
        assert!(words().contains("it is a link"));
        again();
        mknodat(CWD, &file, FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert!(words().contains("it is a FIFO"));
        again();
        durable::create_dir_all(&file, 0o700).unwrap();
        assert!(words().contains("it is a directory"));
        again();
        assert_eq!(words(), "");
        fs::remove_dir(file.parent().unwrap()).unwrap();
        durable::replace_file(file.parent().unwrap(), b"", 0o600).unwrap();
        assert!(words().contains("can't be read"), "its directory is a file: {}", words());
    }

    #[test]
    fn words_that_change_all_the_time_are_taken_over_once_in_ten_minutes() {
        let dir = TempDir::new().unwrap();
        let (home, file, mut holds) = (Home::new(dir.path()), dir.path().join("busy"), Holds::default());
        let mut told = Vec::new();
        for second in 0..1300 {
            durable::replace_file(&file, format!("{second}").as_bytes(), 0o600).unwrap();
            let now = now() + SignedDuration::from_secs(second);
            told.extend(holds.read(&home, Some(&file), &at(now)).iter().map(Hold::message));
        }
        told.dedup();
        assert_eq!(told.len(), 3);
        assert!(durable::remove_file(&file).unwrap());
        assert!(holds.read(&home, Some(&file), &at(now())).is_empty());
    }
}
