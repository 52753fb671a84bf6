//! `secrets/NAME/DEVICE.age`: values that are encrypted to the keys of one device each.
//!
//! Nothing here can be decrypted: the fleet has no private key. What can be told is to whose keys something is encrypted.

use std::collections::{BTreeMap, BTreeSet};

use repo_git::PublicKey;
use repo_git::age::AgeFile;
use repo_model::DeviceId;
use repo_model::envelope::ValueFrom;
use repo_model::problem::{Problem, Problems};

use super::file::{Content, Role, SourceFile};
use super::values::Setting;
use super::{Deployment, Device, Fleet};

/// All encrypted values of a fleet: secret → device → its age file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Secrets(BTreeMap<String, BTreeMap<DeviceId, Encrypted>>);

/// One age file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Encrypted {
    armor: String,
    /// Its header; absent where it can't be read.
    file: Option<AgeFile>,
}

/// Why a device can't read a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotReadable {
    /// It has no key yet.
    NotEnrolled,
    /// There is no value for it.
    Missing,
    /// There is one for a key that isn't the device's now.
    OtherKey,
    /// There is a file that is no age file.
    Damaged,
}

impl NotReadable {
    /// As a table and JSON have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotEnrolled => "not-enrolled",
            Self::Missing => "missing",
            Self::OtherKey => "other-key",
            Self::Damaged => "damaged",
        }
    }

    /// What is so of the secret. The device isn't named, so that many are told at once.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::NotEnrolled => "can't be encrypted to a device that isn't enrolled yet",
            Self::Missing => "has no value for the device",
            Self::OtherKey => "is encrypted to a key that isn't the device's now",
            Self::Damaged => "has a value for the device that is no age file",
        }
    }
}

/// Whether a secret may have this name.
pub fn is_secret_name(name: &str) -> bool {
    ValueFrom::is_bare(name)
}

/// Where a secret's value for a device lies in the fleet repository.
pub fn secret_path(name: &str, device: &DeviceId) -> String {
    format!("secrets/{name}/{device}.age")
}

impl Secrets {
    /// Reads all of them. What can't be read keeps nothing from being published but what needs it.
    pub(super) fn read(files: &[&SourceFile], problems: &mut Problems) -> Self {
        let mut all = Self::default();
        for file in files.iter().filter(|file| Role::of(&file.path) == Some(Role::Secret)) {
            let Some((name, device)) = named(&file.path) else {
                let hint = "its path has to be secrets/NAME/DEVICE.age: `secret set` writes it";
                problems.push(Problem::error(&file.path, "is no secret's value for a device").hint(hint));
                continue;
            };
            let one = Encrypted::read(file).unwrap_or_else(|problem| {
                let hint = format!("write it with `secret set {name} --device {device}`, or with `age --armor`");
                problems.push(problem.hint(hint));
                Encrypted { armor: String::new(), file: None }
            });
            all.0.entry(name).or_default().insert(device, one);
        }
        all
    }

    /// The names of all secrets that have a value for some device.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    /// The devices for which a secret has a value.
    pub fn devices(&self, name: &str) -> impl Iterator<Item = &DeviceId> {
        self.0.get(name).into_iter().flat_map(BTreeMap::keys)
    }

    /// Every age file for a device, with its secret's name.
    pub(crate) fn all_of(&self, device: &DeviceId) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(move |(name, all)| Some((name.as_str(), all.get(device)?.armor.as_str())))
    }

    /// The age file with a secret's value for a device, if the device can decrypt it.
    pub fn of(&self, name: &str, device: &Device) -> Result<&str, NotReadable> {
        if !device.is_enrolled() {
            return Err(NotReadable::NotEnrolled);
        }
        let one = self.0.get(name).and_then(|all| all.get(&device.id)).ok_or(NotReadable::Missing)?;
        let file = one.file.as_ref().ok_or(NotReadable::Damaged)?;
        if keys_of(device).any(|key| file.is_for(&key)) { Ok(&one.armor) } else { Err(NotReadable::OtherKey) }
    }
}

impl Encrypted {
    fn read(file: &SourceFile) -> Result<Self, Problem> {
        let bytes = match &file.content {
            Content::Plain(bytes) => bytes,
            Content::Refused(reason, _) => return Err(Problem::error(&file.path, reason)),
        };
        let armor = String::from_utf8_lossy(bytes).into_owned();
        let read = AgeFile::parse(&armor).map_err(|error| Problem::error(&file.path, error.to_string()))?;
        Ok(Self { armor, file: Some(read) })
    }
}

impl Fleet {
    /// The secrets that devices need, each with those devices.
    pub fn used_secrets(&self) -> BTreeMap<&str, BTreeSet<&DeviceId>> {
        let mut used: BTreeMap<&str, BTreeSet<&DeviceId>> = BTreeMap::new();
        for device in self.devices.values() {
            for deployment in self.meant_for(device) {
                for name in self.secrets_of(deployment, device) {
                    used.entry(name).or_default().insert(&device.id);
                }
            }
        }
        used
    }

    /// The secrets that a deployment needs on a device, in whichever profile.
    fn secrets_of<'a>(&'a self, deployment: &'a Deployment, device: &Device) -> impl Iterator<Item = &'a str> {
        let layers = self.layers(deployment, device);
        let parameters = deployment.profiles().flat_map(|profile| profile.parameters.keys());
        let settings = parameters.filter_map(move |name| Some(&layers.of(name).next()?.1.setting));
        settings.filter_map(|setting| match setting {
            Setting::Encrypted(name) => Some(name.as_str()),
            _ => None,
        })
    }
}

/// The keys by which a device decrypts.
pub fn keys_of(device: &Device) -> impl Iterator<Item = PublicKey> {
    device.status_keys.iter().filter_map(|key| key.as_str().parse().ok())
}

/// The secret and the device that a path names.
fn named(path: &str) -> Option<(String, DeviceId)> {
    let (name, device) = path.strip_prefix("secrets/")?.split_once('/')?;
    let device = device.strip_suffix(".age")?.parse().ok()?;
    is_secret_name(name).then(|| (name.to_owned(), device))
}

#[cfg(test)]
mod tests {
    use repo_git::{SigningKey, age};

    use super::*;
    use crate::fleet::read_device;

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_seed(&[seed; 32])
    }

    fn device(keys: &[u8]) -> Device {
        let keys: Vec<_> = keys.iter().map(|seed| key(*seed).public().to_string()).collect();
        let text = format!("id: line-2/press-01\nstatusKeys: [{}]\n", keys.join(", "));
        read_device(&SourceFile::plain("devices/a.yaml", text)).unwrap()
    }

    fn read(files: &[(&str, &str)]) -> (Secrets, Vec<String>) {
        let files: Vec<_> = files.iter().map(|(path, text)| SourceFile::plain(*path, *text)).collect();
        let mut problems = Problems::default();
        let secrets = Secrets::read(&files.iter().collect::<Vec<_>>(), &mut problems);
        (secrets, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn who_can_read_a_secret_is_known_by_the_keys_that_it_is_encrypted_to() {
        let armor = age::encrypt(&[key(1).public()], b"canary").unwrap();
        let (path, damaged) = ("secrets/a/line-2/press-01.age", "secrets/b/line-2/press-01.age");
        let (secrets, problems) = read(&[(path, &armor), (damaged, "canary")]);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].starts_with(damaged) && !problems[0].contains("canary"), "{problems:?}");
        assert_eq!(path, secret_path("a", &device(&[]).id));
        for (name, keys, expected) in [
            ("a", &[1][..], Ok(armor.as_str())),
            ("a", &[2, 1], Ok(armor.as_str())),
            ("a", &[2], Err(NotReadable::OtherKey)),
            ("a", &[], Err(NotReadable::NotEnrolled)),
            ("b", &[1], Err(NotReadable::Damaged)),
            ("c", &[1], Err(NotReadable::Missing)),
        ] {
            assert_eq!(secrets.of(name, &device(keys)), expected, "{name} {keys:?}");
        }
        for path in ["secrets/press-01.age", "secrets/-a/press-01.age", "secrets/a/press 01.age", "secrets/a/.age"] {
            assert!(read(&[(path, &armor)]).1[0].contains("no secret's value"), "{path}");
        }
    }
}
