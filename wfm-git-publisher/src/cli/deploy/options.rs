//! Answers by options: what they say, and their names in errors about the file that is made of them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use repo_git::durable::FileError;
use repo_model::DeviceId;
use repo_model::problem::{Problem, Problems};

use super::super::{OutputArgs, label};
use super::{Settings, Targets};
use crate::error::Failure;
use crate::fleet::{Application, read_values};
use crate::operator::deploy::{Target, given, selectors};

/// The options that `deploy` and `deploy edit` share.
#[derive(Debug, clap::Args)]
pub(super) struct AnswerArgs {
    /// Devices by their labels, as 'site=graz,line in (1,2),!spare'; '*' is every device. May be given again, for others, too
    #[arg(long, value_name = "LABELS")]
    targets: Vec<Target>,

    /// A device by its id; may be given again
    #[arg(long, value_name = "ID")]
    device: Vec<DeviceId>,

    /// The value of a parameter; may be given again
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    set: Vec<(String, String)>,

    /// A YAML file with values by the parameters' names; --set counts over it, and a later file over an earlier one
    #[arg(long, value_name = "FILE")]
    values: Vec<PathBuf>,

    /// Writes and commits without asking whether it is meant
    #[arg(long)]
    pub(super) yes: bool,

    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// What is said, and by which options.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) parameters: Settings,
    pub(super) targets: Targets,
    /// What each parameter was given by.
    by: BTreeMap<String, String>,
}

impl Said {
    /// Reads the options; each value is checked by its own rule.
    pub(super) fn read(args: &AnswerArgs, application: &Application) -> Result<Self, Failure> {
        let mut said = Self { targets: args.targets.clone(), ..Self::default() };
        if !args.device.is_empty() {
            said.targets.push(Target::Devices(args.device.clone()));
        }
        let mut problems = selectors(&said.targets).err().map(|one| about(&one, "--targets ")).unwrap_or_default();
        for path in &args.values {
            let name = path.display().to_string();
            let bytes = std::fs::read(path).map_err(FileError::read(path))?;
            match read_values(&name, &bytes) {
                Ok(values) => values.into_iter().for_each(|(parameter, given)| {
                    said.by.insert(parameter.clone(), format!("--values {name}: {parameter}"));
                    said.parameters.insert(parameter, given.setting);
                }),
                Err(found) => problems.extend(found),
            }
        }
        for (index, (parameter, answer)) in args.set.iter().enumerate() {
            let option = format!("--set {parameter}");
            if args.set[..index].iter().any(|(other, _)| other == parameter) {
                problems.push(Problem::error(&option, "is given twice").hint("a list is one value: a,b"));
            }
            match given(application, parameter, answer, &option) {
                Ok(given) => _ = said.parameters.insert(parameter.clone(), given.setting),
                Err(found) => problems.extend(found),
            }
            said.by.insert(parameter.clone(), option);
        }
        match problems.has_errors() {
            true => Err(Failure::new("the options can't be used").problems(&problems)),
            false => Ok(said),
        }
    }

    /// Adds what a person answered.
    pub(super) fn add(&mut self, answers: Settings) {
        self.by.extend(answers.keys().map(|name| (name.clone(), name.clone())));
        self.parameters.extend(answers);
    }

    /// A problem of the deployment's file by the option that brought it about; others as they are.
    pub(super) fn by_option(&self, problem: &Problem, file: &str) -> Problem {
        if problem.file != file {
            return problem.clone();
        }
        let is_about = |name: &str| {
            let rest = problem.key.strip_prefix("parameters.").and_then(|key| key.strip_prefix(name));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('['))
        };
        let parameter = self.by.iter().find(|(name, _)| is_about(name)).map(|(_, option)| option.clone());
        let target = self.targets.iter().enumerate().find_map(|(index, target)| {
            let option = if let Target::Devices(_) = target { "--device" } else { "--targets" };
            problem.key.starts_with(&format!("targets[{index}]")).then(|| format!("{option} {target}"))
        });
        let other = match problem.key.as_str() {
            // What is wrong with it as a whole, such as on some device.
            "id" => Some(file),
            // The package is there, so that it is the choice among its profiles.
            "application" | "profile" => Some("--profile"),
            _ => None,
        };
        match parameter.or(target).or(other.map(str::to_owned)) {
            Some(option) => Problem { file: option, line: None, column: None, key: String::new(), ..problem.clone() },
            None => problem.clone(),
        }
    }
}

/// The same problems, about something that is named more exactly.
fn about(problems: &Problems, prefix: &str) -> Problems {
    let one = |problem: &Problem| Problem { file: format!("{prefix}{}", problem.file), ..problem.clone() };
    Problems(problems.iter().map(one).collect())
}
