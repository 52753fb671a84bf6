//! Which deployment files name which package, also where the rest of them can't be used.

use repo_model::yaml::{Limits, Node, Value, parse};

use super::file::{Content, Role, SourceFile};

/// A file of a deployment, and what it says that it deploys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// Its path in the fleet repository.
    pub file: String,
    /// The deployment's id, if that can be read.
    pub deployment: Option<String>,
    pub named: Named,
}

/// The package that a file of a deployment names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    Package {
        id: String,
        version: String,
        /// Versions of it that the file names for some devices.
        others: Vec<String>,
    },
    Nothing,
    /// The file can't be read as far as that.
    Unknown,
}

impl Use {
    /// Whether the file names this package.
    pub fn is_of(&self, id: &str, version: &str) -> bool {
        let Named::Package { id: own, version: named, others } = &self.named else { return false };
        own == id && [named].into_iter().chain(others).any(|named| named == version)
    }
}

/// What each file of a deployment uses.
pub fn uses(files: &[SourceFile]) -> Vec<Use> {
    files.iter().filter(|file| Role::of(&file.path) == Some(Role::Deployment)).map(used).collect()
}

fn used(file: &SourceFile) -> Use {
    let bytes = match &file.content {
        Content::Plain(bytes) => Some(bytes),
        Content::Refused(_, bytes) => bytes.as_ref(),
    };
    let node = bytes.and_then(|bytes| parse(&file.path, bytes, &Limits::FLEET).ok());
    let deployment = node.as_ref().and_then(|node| node.get("id")?.text()).map(str::to_owned);
    let named = node.as_ref().map_or(Named::Unknown, named);
    Use { file: file.path.clone(), deployment, named }
}

fn named(node: &Node) -> Named {
    let Value::Mapping(_) = node.value else { return Named::Unknown };
    let Some(application) = node.get("application") else { return Named::Nothing };
    let text = |key: &str| application.get(key)?.text().map(str::to_owned);
    match (text("id").zip(text("version")), others(node)) {
        (Some((id, version)), Some(others)) => Named::Package { id, version, others },
        _ => Named::Unknown,
    }
}

/// The versions that overrides name; `None` if that can't be read.
fn others(node: &Node) -> Option<Vec<String>> {
    let Some(overrides) = node.get("overrides") else { return Some(Vec::new()) };
    let Value::Sequence(overrides) = &overrides.value else { return None };
    let named = overrides.iter().filter_map(|one| one.get("application"));
    named.map(|one| Some(one.get("version")?.text()?.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_uses_is_known_as_far_as_it_can_be_read() {
        let found = |text: &str| uses(&[SourceFile::plain("deployments/a.yaml", text)]).remove(0);
        let good = found("id: a\napplication: {id: app, version: 1.0.0}\n");
        assert!(good.deployment.as_deref() == Some("a") && good.is_of("app", "1.0.0") && !good.is_of("app", "1.0.1"));
        let others = found(
            "id: a\napplication: {id: app, version: 1.0.0}\n\
             overrides: [{when: {}, application: {version: 1.1.0}}, {when: {}, parameters: {}}]\n",
        );
        assert!(others.is_of("app", "1.0.0") && others.is_of("app", "1.1.0") && !others.is_of("app", "1.2.0"));
        assert_eq!(found("application: {id: app, version: 1.0.0}\noverrides: 3\n").named, Named::Unknown);
        assert!(found("nonsense: 1\napplication: {id: app, version: '1'}\n").is_of("app", "1"));
        assert_eq!(found("application: {id: app, version: 1.0.0}\nwrong: [").named, Named::Unknown);
        assert_eq!(found("id: a\n").named, Named::Nothing);
        assert_eq!(found("id: a\napplication: app\n").named, Named::Unknown);
        assert!(uses(&[SourceFile::plain("devices/a.yaml", "id: a")]).is_empty());
    }
}
