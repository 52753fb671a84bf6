//! A new deployment's file, in the form that the documentation teaches.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use repo_model::DeploymentName;
use repo_model::text;

use super::questions::{Question, questions};
use super::target::{Target, word};
use crate::fleet::{Application, Setting};

/// All that a new deployment's file says.
#[derive(Debug)]
pub struct NewDeployment<'a> {
    pub id: &'a DeploymentName,
    pub application: &'a Application,
    /// A profile's id, or `auto`; absent where there is no choice.
    pub profile: Option<&'a str>,
    pub targets: &'a [Target],
    /// The values that are given, by the parameters' names.
    pub parameters: &'a BTreeMap<String, Setting>,
    /// Whether the fleet has schemas for editors.
    pub has_schemas: bool,
}

impl NewDeployment<'_> {
    /// The whole file. What the vendor wrote is in comments of one line, in which nothing is hidden.
    pub fn to_yaml(&self) -> String {
        let description = &self.application.description;
        let mut yaml = String::new();
        if self.has_schemas {
            yaml.push_str("# yaml-language-server: $schema=../.schemas/deployment.json\n");
        }
        let about = description.description.iter().map(|about| format!(": {about}")).collect::<String>();
        let _ = writeln!(yaml, "{}", comment(&format!("{}{about}", description.name)));
        let _ = writeln!(
            yaml,
            "\n# The identity of this deployment. Renaming the file changes nothing; another id is another deployment."
        );
        let _ = writeln!(yaml, "id: {}", word(self.id.as_str()));
        let _ =
            writeln!(yaml, "\n# A package of this repository: {}/margo.yaml", text::line(&self.application.folder()));
        let (id, version) = (word(description.id.as_str()), word(&description.version));
        let _ = writeln!(yaml, "application: {{id: {id}, version: {version}}}");
        if let Some(profile) = self.profile {
            let _ = writeln!(yaml, "profile: {}", word(profile));
        }
        let _ = writeln!(yaml, "\n# Every device that any of these selects gets it.\ntargets:");
        for target in self.targets {
            let _ = writeln!(yaml, "  - {}", target.to_yaml());
        }
        self.parameters(&mut yaml);
        yaml
    }

    fn parameters(&self, yaml: &mut String) {
        let asked = questions(self.application, self.profile.filter(|id| *id != "auto"));
        if asked.is_empty() && self.parameters.is_empty() {
            return;
        }
        let _ = writeln!(yaml, "\n# Values for all of them. What isn't given here has the default of the package.");
        // A key without a value is no mapping.
        let _ = writeln!(yaml, "{}parameters:", if self.parameters.is_empty() { "# " } else { "" });
        for question in &asked {
            let name = &question.setting.parameter;
            let _ = writeln!(yaml, "  {}", comment(&meaning(question)));
            match (self.parameters.get(name), question.default) {
                (Some(given), _) => _ = writeln!(yaml, "  {}: {}", word(name), given.to_yaml()),
                (None, Some(default)) => {
                    let default = Setting::Literal(default.clone()).to_yaml();
                    let _ = writeln!(yaml, "  {}", comment(&format!("{}: {default}", word(name))));
                }
                (None, None) => _ = writeln!(yaml, "  {}", comment(&format!("{}: …", word(name)))),
            }
        }
        let is_asked = |name: &str| asked.iter().any(|question| question.setting.parameter == name);
        for (name, given) in self.parameters.iter().filter(|(name, _)| !is_asked(name)) {
            let _ = writeln!(yaml, "  {}: {}", word(name), given.to_yaml());
        }
    }
}

/// What a parameter is, in the vendor's words.
fn meaning(question: &Question<'_>) -> String {
    let setting = question.setting;
    let about = setting.description.iter().map(|about| format!(": {about}")).collect::<String>();
    let immutable = if setting.immutable { " (can't be changed once it is installed)" } else { "" };
    format!("{}{about}{immutable}", setting.name)
}

/// A comment of one line, whatever is in it.
fn comment(text: &str) -> String {
    format!("# {}", text::line(text)).trim_end().to_owned()
}
