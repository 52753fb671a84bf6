//! What a package asks: its settings, section by section.

use repo_model::margo::configuration::Setting;
use repo_model::value::ParamValue;

use crate::fleet::Application;

/// One setting of a package.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The section's name.
    pub section: &'a str,
    pub setting: &'a Setting,
    /// What counts where nothing is said; absent where nothing does then.
    pub default: Option<&'a ParamValue>,
}

/// The settings in the package's order, each parameter once: those that the profile uses, or any of them where none is named.
pub fn questions<'a>(application: &'a Application, profile: Option<&str>) -> Vec<Question<'a>> {
    let is_used = |parameter: &str| {
        let mut may = application.deployable().filter(|one| profile.is_none_or(|id| one.description.id == id));
        may.any(|one| one.parameters.contains_key(parameter))
    };
    let sections = application.description.configuration.iter().flat_map(|one| &one.sections);
    let all = sections.flat_map(|section| section.settings.iter().map(|setting| (section.name.as_str(), setting)));
    let mut questions: Vec<Question<'_>> = Vec::new();
    for (section, setting) in all.filter(|(_, setting)| is_used(&setting.parameter)) {
        if questions.iter().all(|one| one.setting.parameter != setting.parameter) {
            let described = application.description.parameters.get(&setting.parameter);
            questions.push(Question { section, setting, default: described.and_then(|one| one.default.as_ref()) });
        }
    }
    questions
}
