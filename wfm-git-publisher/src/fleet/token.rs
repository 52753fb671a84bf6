//! `tokens/NAME.yaml`: a batch token, by which many devices enrol that nobody reads a code from.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use repo_model::enrolment::{NamedBy, is_placeholder, own_name};
use repo_model::problem::{Problem, Problems};
use repo_model::yaml::{Field, Reader};
use repo_model::{DeviceId, KeyText};

use super::enrolled_by::is_token_name;
use super::file::{Role, SourceFile, decode};
use super::labels;

/// The most devices that one token is for.
const MAX_DEVICES: u32 = 10_000;

/// What stands for a device's serial number in [`Token::id`].
const SERIAL: &str = "{serial}";

/// A file in `tokens/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The path of its file in the fleet repository.
    pub file: String,
    /// The file's name.
    pub name: String,
    /// The public half; the private one is in the enrolment file only.
    pub key: KeyText,
    /// How many devices may have it.
    pub count: u32,
    /// It vouches for nobody from then on.
    pub until: Timestamp,
    /// What its devices get.
    pub labels: BTreeMap<String, String>,
    /// Their ids, with `{serial}` in it.
    pub id: String,
    /// The serial numbers that count; all of them if it is empty.
    pub serials: BTreeSet<String>,
    /// Whether the host takes its devices in without a person.
    pub auto: bool,
}

impl Token {
    /// The id of the device that says so of itself; whatever can't stand in an id is a dash.
    ///
    /// # Errors
    /// The text that is no id.
    pub fn id_of(&self, serial: Option<&str>, mac: Option<&str>, key: &KeyText) -> Result<(DeviceId, NamedBy), String> {
        let (part, by) = own_name(serial, mac, key);
        let text = self.id.replace(SERIAL, &part);
        text.parse().map(|id| (id, by)).map_err(|_| text)
    }

    /// Whether a device with this serial number may have it.
    pub fn admits(&self, serial: Option<&str>) -> bool {
        self.serials.is_empty() || serial.is_some_and(|serial| self.serials.contains(serial.trim()))
    }
}

/// Reads all tokens by their names. One that can't be read vouches for nobody, and keeps nothing else from being published.
pub(super) fn read_all(files: &[&SourceFile], problems: &mut Problems) -> BTreeMap<String, Token> {
    let tokens = files.iter().filter(|file| Role::of(&file.path) == Some(Role::Token));
    tokens.filter_map(|file| read(file, problems)).map(|token| (token.name.clone(), token)).collect()
}

fn read(file: &SourceFile, problems: &mut Problems) -> Option<Token> {
    let name = file.path.strip_prefix("tokens/")?.strip_suffix(".yaml")?;
    if !is_token_name(name) {
        let hint = "rename it: 1 to 63 lower-case letters, digits and `- _`, in `tokens/` itself";
        problems.push(Problem::error(&file.path, "has a name that no token can have").hint(hint));
        return None;
    }
    decode::<String, _>(file, problems, |reader| document(&file.path, name, reader)).good()
}

fn document(file: &str, name: &str, reader: &mut Reader<'_>) -> Option<Token> {
    let key = reader.required("key", key);
    let count = reader.required("count", |field| match field.clone().integer::<u32>()? {
        count if (1..=MAX_DEVICES).contains(&count) => Some(count),
        _ => field.fail(format!("must be 1 to {MAX_DEVICES}")),
    });
    let until = reader.required("until", Field::parse::<Timestamp>);
    let labels = reader.optional("labels", labels::read).unwrap_or_default();
    let id = reader.required("id", template);
    let serials = reader.optional("serials", serials).unwrap_or_default();
    let auto = reader.optional("auto", Field::bool).unwrap_or_default();
    let (file, name) = (file.to_owned(), name.to_owned());
    Some(Token { file, name, key: key?, count: count?, until: until?, labels, id: id?, serials, auto })
}

fn key(field: Field<'_>) -> Option<KeyText> {
    let key: KeyText = field.clone().parse()?;
    if super::device::is_ed25519(&key) {
        Some(key)
    } else {
        field.fail("must be an Ed25519 key: `ssh-ed25519 AAAA…`")
    }
}

fn template(field: Field<'_>) -> Option<String> {
    let text = field.clone().string()?;
    let is_id = text.replace(SERIAL, "x").parse::<DeviceId>().is_ok();
    match text.matches(SERIAL).count() {
        1 if is_id => Some(text),
        1 => field.fail("is no device id: letters, digits and `. _ ~ -`, in parts divided by `/`, besides `{serial}`"),
        _ => field.fail("must have `{serial}` in it, once: no two devices may have one id"),
    }
}

fn serials(field: Field<'_>) -> Option<BTreeSet<String>> {
    let all = field.clone().list(|field| {
        let text = field.clone().string()?;
        if text.trim() == text && !is_placeholder(&text) {
            Some(text)
        } else {
            field.fail(format!("`{text}` is no serial number that tells devices apart"))
        }
    })?;
    let unique: BTreeSet<_> = all.iter().cloned().collect();
    match (all.len(), unique.len()) {
        (0, _) => field.fail_hint("is empty", "leave it out if any serial number counts"),
        (all, unique) if all != unique => field.fail("lists a serial number twice"),
        _ => Some(unique),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE1hcmdvTWFyZ29NYXJnb01hcmdvTWFyZ29NYXJnb00P";

    fn text(change: (&str, &str)) -> String {
        let text = format!(
            "key: {KEY}\ncount: 50\nuntil: \"2026-12-01T00:00:00Z\"\nlabels:\n  site: graz\nid: \"graz-{{serial}}\"\n\
             serials: [PX-1, PX-2]\n"
        );
        assert!(text.contains(change.0), "{}", change.0);
        text.replace(change.0, change.1)
    }

    fn read_text(path: &str, text: &str) -> Result<Token, String> {
        let (file, mut problems) = (SourceFile::plain(path, text), Problems::default());
        let token = read(&file, &mut problems);
        token.filter(|_| !problems.has_errors()).ok_or_else(|| format!("{problems}"))
    }

    fn graz() -> Token {
        read_text("tokens/graz.yaml", &text(("serials: [PX-1, PX-2]\n", ""))).unwrap()
    }

    #[test]
    fn a_token_says_for_how_many_for_how_long_and_as_what() {
        let token = read_text("tokens/graz.yaml", &text(("", ""))).unwrap();
        assert_eq!((token.name.as_str(), token.count, token.key.as_str()), ("graz", 50, KEY));
        assert!(token.admits(Some("PX-1 ")) && !token.admits(Some("PX-3")) && !token.admits(None));
        assert!(graz().admits(None) && !token.auto, "a person takes them in, unless it says otherwise");
        let auto = read_text("tokens/graz.yaml", &text(("count: 50", "auto: true\ncount: 50"))).unwrap();
        assert!(auto.auto);
    }

    #[test]
    fn whatever_is_wrong_in_it_is_told_with_its_line_and_key() {
        for (from, to, place, words) in [
            ("count: 50", "count: 0", "2:8", "must be 1 to 10000"),
            ("count: 50", "count: 10001", "2:8", "must be 1 to 10000"),
            ("count: 50\n", "", "tokens/graz.yaml", "count"),
            ("graz-{serial}", "graz", "6:5", "must have `{serial}`"),
            ("graz-{serial}", "{serial}{serial}", "6:5", "once"),
            ("graz-{serial}", "graz {serial}", "6:5", "is no device id"),
            ("2026-12-01T00:00:00Z", "soon", "3:8", "until"),
            (KEY, "ssh-rsa AAAAB3NzaC1yc2EAAAADAQAB", "1:6", "Ed25519"),
            ("[PX-1, PX-2]", "[PX-1, PX-1]", "7:10", "twice"),
            ("[PX-1, PX-2]", "[]", "7:10", "is empty"),
            ("[PX-1, PX-2]", "[Default string]", "7:11", "no serial number"),
            ("site: graz", "\"-\": graz", "5:", "not a label's name"),
            ("count: 50", "count: 50\nsecret: x", "3:", "secret"),
        ] {
            let error = read_text("tokens/graz.yaml", &text((from, to))).expect_err(to);
            assert!(error.contains(place) && error.contains(words), "{to}: {error}");
        }
        for path in ["tokens/Graz.yaml", "tokens/a/b.yaml", "tokens/.yaml", "tokens/-a.yaml"] {
            assert!(read_text(path, &text(("", ""))).unwrap_err().contains("no token can have"), "{path}");
        }
    }

    #[test]
    fn a_device_is_named_by_its_serial_number_and_where_that_is_none_by_mac_or_key() {
        let token = graz();
        let id = |serial: Option<&str>, mac: Option<&str>| {
            let (id, by) = token.id_of(serial, mac, &KEY.parse().unwrap()).unwrap();
            (id.to_string(), by)
        };
        assert_eq!(id(Some("PX-4711"), None), ("graz-PX-4711".to_owned(), NamedBy::Serial));
        // What a stranger says leads out of no folder.
        assert_eq!(id(Some("../../accounts/x y\n"), None), ("graz-..-..-accounts-x-y".to_owned(), NamedBy::Serial));
        let by_mac = ("graz-02000000000a".to_owned(), NamedBy::Mac);
        for serial in
            ["To Be Filled By O.E.M.", "Default string", "System Serial Number", "0000000000", "N/A", " ", "…"]
        {
            assert_eq!(id(Some(serial), Some("02:00:00:00:00:0A")), by_mac, "{serial}");
        }
        assert_eq!(id(None, Some("02:00:00:00:00:0a")), by_mac);
        for mac in [None, Some("00:00:00:00:00:00"), Some("x")] {
            let (id, by) = id(None, mac);
            assert_eq!((id.len(), by), ("graz-".len() + 12, NamedBy::Key), "{id}");
        }
        let long = "xy".repeat(100);
        assert_eq!(token.id_of(Some(&long), None, &KEY.parse().unwrap()), Err(format!("graz-{long}")));
    }
}
