//! One file of a fleet: what it is by its path, and its way from bytes to a typed value or at least an id.

use std::str::FromStr;

use repo_model::problem::{Problem, Problems};
use repo_model::yaml::{Context, Limits, Node, Reader, Strictness, Value, parse};

use super::{ALLOWED, SETTINGS, SIGNERS};

/// A file of the fleet, as the repository holds it.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// Its path from the fleet's root, `/`-separated.
    pub path: String,
    pub content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// The bytes of a plain file.
    Plain(Vec<u8>),
    /// Something that a fleet may not hold, and why; its bytes, if it has any, still tell whose file it is.
    Refused(String, Option<Vec<u8>>),
}

/// What a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Settings,
    Signers,
    Application,
    Device,
    Deployment,
    /// A batch token.
    Token,
    /// What persons said of a rollout.
    Rollout,
    /// What a person lets pass of what guards hold.
    Allowance,
    /// A secret's value for one device, encrypted.
    Secret,
    /// Lies where files of the fleet lie, but has another ending.
    Misnamed,
}

/// Whether a file with this path is part of the fleet; all others are never read.
pub fn is_relevant(path: &str) -> bool {
    Role::of(path).is_some()
}

/// Whether a file with this path says something of a device.
pub(crate) fn is_device(path: &str) -> bool {
    Role::of(path) == Some(Role::Device)
}

/// All that a fleet is read from: files at its root, and folders there.
pub const PARTS: [&str; 9] =
    [SETTINGS, SIGNERS, ALLOWED, "applications", "deployments", "devices", "rollouts", "secrets", "tokens"];

impl Role {
    pub(super) fn of(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next().unwrap_or(path);
        let (folder, _) = path.split_once('/').unwrap_or(("", path));
        if !folder.is_empty() && !PARTS.contains(&folder) {
            return None;
        }
        let lower = name.to_ascii_lowercase();
        let yaml = lower.ends_with(".yaml") || lower.ends_with(".yml");
        match folder {
            "" if path == SETTINGS => Some(Self::Settings),
            "" if path == SIGNERS => Some(Self::Signers),
            "" if lower == SIGNERS || lower == "signers.yml" => Some(Self::Misnamed),
            "applications" if name == "margo.yaml" => Some(Self::Application),
            "applications" if lower == "margo.yml" || lower == "margo.yaml" => Some(Self::Misnamed),
            "devices" if name.ends_with(".yaml") => Some(Self::Device),
            "deployments" if name.ends_with(".yaml") => Some(Self::Deployment),
            "tokens" if name.ends_with(".yaml") => Some(Self::Token),
            "rollouts" if name.ends_with(".yaml") => Some(Self::Rollout),
            ALLOWED if name.ends_with(".yaml") => Some(Self::Allowance),
            "secrets" if name.ends_with(".age") => Some(Self::Secret),
            "devices" | "deployments" | "rollouts" | ALLOWED if yaml => Some(Self::Misnamed),
            _ => None,
        }
    }
}

impl SourceFile {
    pub fn plain(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), content: Content::Plain(bytes.into()) }
    }

    /// A file that a fleet may not hold.
    pub fn refused(path: impl Into<String>, reason: impl Into<String>, bytes: Option<Vec<u8>>) -> Self {
        Self { path: path.into(), content: Content::Refused(reason.into(), bytes) }
    }

    /// The bytes of a plain file; anything else is a problem.
    pub(super) fn bytes(&self, problems: &mut Problems) -> Option<&[u8]> {
        match &self.content {
            Content::Plain(bytes) => Some(bytes),
            Content::Refused(reason, bytes) => {
                problems.push(Problem::error(&self.path, reason));
                bytes.as_deref()
            }
        }
    }

    /// The id that it gives, as far as it is known.
    pub(super) fn id<I: FromStr>(&self) -> Option<I> {
        identity(&self.node()?)
    }

    /// Whether it is a mapping that has no `id`.
    pub(super) fn lacks_id(&self) -> bool {
        self.node().is_some_and(|node| matches!(node.value, Value::Mapping(_)) && node.get("id").is_none())
    }

    fn node(&self) -> Option<Node> {
        let Content::Plain(bytes) = &self.content else { return None };
        parse(&self.path, bytes, &Limits::FLEET).ok()
    }

    fn is_plain(&self) -> bool {
        matches!(self.content, Content::Plain(_))
    }
}

/// What became of one file: its value, or at least whose it is.
#[derive(Debug)]
pub(super) enum Decoded<I, T> {
    Good(T),
    Broken(I),
    Unidentified,
}

impl<I, T> Decoded<I, T> {
    /// The value, where nothing is wrong with the file.
    pub(super) fn good(self) -> Option<T> {
        if let Self::Good(value) = self { Some(value) } else { None }
    }
}

/// Reads one of the fleet's own files. `id` tells whose file it is, even where the rest can't be read.
pub(super) fn decode<I: FromStr, T>(
    file: &SourceFile,
    problems: &mut Problems,
    read: impl FnOnce(&mut Reader<'_>) -> Option<T>,
) -> Decoded<I, T> {
    let Some(bytes) = file.bytes(problems) else { return Decoded::Unidentified };
    let node = match parse(&file.path, bytes, &Limits::FLEET) {
        Ok(node) => node,
        Err(found) => {
            problems.extend(found);
            return Decoded::Unidentified;
        }
    };
    let context = Context::new(&file.path, Strictness::Fleet);
    let value = context.field(&node).mapping(read);
    let found = context.into_problems();
    let good = file.is_plain() && !found.has_errors();
    problems.extend(found);
    match (value, identity(&node)) {
        (Some(value), _) if good => Decoded::Good(value),
        (_, Some(id)) => Decoded::Broken(id),
        (_, None) => Decoded::Unidentified,
    }
}

fn identity<I: FromStr>(node: &Node) -> Option<I> {
    node.get("id")?.text()?.parse().ok()
}

/// Refuses keys of later versions by name, so that none is ever ignored.
pub(super) fn refuse_unbuilt(reader: &mut Reader<'_>, keys: &[&'static str]) {
    for key in keys {
        reader.refuse(key, "is not built yet");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_tells_what_a_file_is_for() {
        let role = Role::of;
        assert_eq!(role("fleet.yaml"), Some(Role::Settings));
        assert_eq!(role("signers.yaml"), Some(Role::Signers));
        assert_eq!(role("applications/a/1.0.0/margo.yaml"), Some(Role::Application));
        assert_eq!(role("devices/a.yaml"), Some(Role::Device));
        assert_eq!(role("devices/line-2/deep/a.yaml"), Some(Role::Device));
        assert_eq!(role("deployments/a.yaml"), Some(Role::Deployment));
        assert_eq!(role("tokens/graz.yaml"), Some(Role::Token));
        assert_eq!(role("rollouts/12.yaml"), Some(Role::Rollout));
        assert_eq!(role("allowed/4be1c0ffee12.yaml"), Some(Role::Allowance));
        assert_eq!(role("secrets/db-password/line-2/a.age"), Some(Role::Secret));
        for wrong in
            ["signers.yml", "devices/a.yml", "deployments/x/a.YAML", "rollouts/12.yml", "applications/a/1/margo.yml"]
        {
            assert_eq!(role(wrong), Some(Role::Misnamed), "{wrong}");
        }
        for other in
            ["README.md", "devices/README.md", "applications/a/1/compose/a/compose.yaml", "x/fleet.yaml", "secrets/a"]
        {
            assert_eq!(role(other), None, "{other}");
        }
    }
}
