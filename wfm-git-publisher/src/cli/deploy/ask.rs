//! What is asked on a terminal, line by line. Whatever a vendor wrote is one visible line.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};

use repo_model::problem::Problems;
use repo_model::text;

use super::{Settings, Targets};
use crate::error::Failure;
use crate::fleet::{Application, Device, Fleet, Setting, counted};
use crate::operator::deploy::{Question, Target, given, selectors};
use crate::plan::{parameter_rules, parameter_type};

/// The most devices, or values of a label, that are named one by one.
const MAX_NAMED: usize = 10;

/// A person who answers, and where the questions are shown.
pub(super) struct Dialog<R, W> {
    input: R,
    output: W,
}

impl<R: BufRead, W: Write> Dialog<R, W> {
    pub(super) fn new(input: R, output: W) -> Self {
        Self { input, output }
    }

    fn say(&mut self, line: &str) -> Result<(), Failure> {
        Ok(writeln!(self.output, "{}", text::line(line))?)
    }

    /// One answer, without its line end.
    fn ask(&mut self, prompt: &str) -> Result<String, Failure> {
        write!(self.output, "{} ", text::line(prompt))?;
        self.output.flush()?;
        let mut answer = String::new();
        if self.input.read_line(&mut answer)? == 0 {
            return Err(Failure::new("the answers ended, and nothing is written"));
        }
        let answer = answer.strip_suffix('\n').unwrap_or(&answer);
        Ok(answer.strip_suffix('\r').unwrap_or(answer).to_owned())
    }

    fn tell(&mut self, problems: &Problems) -> Result<(), Failure> {
        for problem in problems.errors() {
            let hint = problem.hint.iter().map(|hint| format!(" ({hint})")).collect::<String>();
            self.say(&format!("    ! {}{hint}", problem.message))?;
        }
        Ok(())
    }

    /// Says what is about to be deployed.
    pub(super) fn head(&mut self, application: &Application) -> Result<(), Failure> {
        let description = &application.description;
        let about = description.description.iter().map(|about| format!(": {about}")).collect::<String>();
        self.say(&format!("{} {}, {}{about}", description.id, description.version, description.name))?;
        self.say("Enter takes what stands in brackets.")
    }

    /// The profile, where there is a choice.
    pub(super) fn profile(&mut self, application: &Application) -> Result<Option<String>, Failure> {
        let all: Vec<_> = application.deployable().map(|profile| &profile.description).collect();
        if all.len() < 2 {
            return Ok(None);
        }
        self.say("")?;
        self.say("Profile")?;
        for profile in &all {
            let about = profile.description.iter().map(|about| format!(": {about}")).collect::<String>();
            self.say(&format!("  {} ({}){about}", profile.id, profile.kind))?;
        }
        self.say("  auto: on each device the first that fits it")?;
        loop {
            let answer = self.ask("  profile [auto]:")?;
            match answer.trim() {
                "" => return Ok(Some("auto".to_owned())),
                id if id == "auto" || all.iter().any(|profile| profile.id == id) => return Ok(Some(id.to_owned())),
                id => self.say(&format!("    ! there is no profile `{id}`"))?,
            }
        }
    }

    /// Asks for parameters, each until the answer is right. Those in `known` are not asked; what isn't otherwise than in `now`, or
    /// than the package's default, isn't in the result.
    pub(super) fn parameters(
        &mut self,
        application: &Application,
        questions: &[Question<'_>],
        known: &Settings,
        now: &Settings,
    ) -> Result<Settings, Failure> {
        let (mut answers, mut section) = (Settings::new(), None);
        for question in questions.iter().filter(|one| !known.contains_key(&one.setting.parameter)) {
            if section != Some(question.section) {
                section = Some(question.section);
                self.say("")?;
                self.say(question.section)?;
            }
            let name = &question.setting.parameter;
            let answer = self.parameter(application, question, now.get(name))?;
            answers.extend(answer.map(|setting| (name.clone(), setting)));
        }
        Ok(answers)
    }

    fn parameter(
        &mut self,
        application: &Application,
        question: &Question<'_>,
        now: Option<&Setting>,
    ) -> Result<Option<Setting>, Failure> {
        let setting = question.setting;
        let about = setting.description.iter().map(|about| format!(": {about}")).collect::<String>();
        self.say(&format!("  {}{about}", setting.name))?;
        let rules = parameter_rules(application, &setting.parameter).map(|rules| format!(", {rules}"));
        let immutable = if setting.immutable { "; can't be changed once it is installed" } else { "" };
        let kind = parameter_type(application, &setting.parameter);
        self.say(&format!("    {kind}{}{immutable}", rules.unwrap_or_default()))?;
        let default = now.cloned().or_else(|| question.default.cloned().map(Setting::Literal));
        let must =
            application.rules.get(&setting.parameter).is_some_and(|rule| rule.schema().allow_empty == Some(false));
        let shown = default.as_ref().map_or_else(|| "none".to_owned(), Setting::to_yaml);
        loop {
            let answer = self.ask(&format!("    {} [{shown}]:", setting.parameter))?;
            if answer.trim().is_empty() {
                if default.is_some() || !must {
                    return Ok(None);
                }
                self.say("    ! it needs a value")?;
                continue;
            }
            match given(application, &setting.parameter, &answer, &setting.parameter) {
                Ok(given) => return Ok(Some(given.setting).filter(|setting| Some(setting) != default.as_ref())),
                Err(problems) => self.tell(&problems)?,
            }
        }
    }

    /// Asks for devices by their labels, and says after each answer how many are meant. `now` says which are meant now; `None`
    /// stands for those.
    pub(super) fn targets(&mut self, fleet: &Fleet, now: Option<&str>) -> Result<Option<Targets>, Failure> {
        let devices: Vec<_> = fleet.all_devices().filter(|device| device.retired.is_none()).collect();
        self.say("")?;
        self.say(&format!("Devices: {} by these labels", devices.len()))?;
        for (label, values) in labels(&devices) {
            let values: Vec<_> = values.iter().map(|(value, count)| format!("{value} ({count})")).collect();
            self.say(&format!("  {label}: {}", named(&values)))?;
        }
        self.say("  Write labels like site=graz,line in (1,2),role!=spare, or * for every device.")?;
        let mut targets = Targets::new();
        loop {
            let prompt = match (targets.is_empty(), now) {
                (true, Some(now)) => format!("  devices [{now}]:"),
                (true, None) => "  devices:".to_owned(),
                (false, _) => "  and [no more]:".to_owned(),
            };
            let answer = self.ask(&prompt)?;
            if answer.trim().is_empty() {
                match (targets.is_empty(), now) {
                    (true, None) => self.say("    ! it needs devices")?,
                    (true, Some(_)) => return Ok(None),
                    (false, _) => return Ok(Some(targets)),
                }
                continue;
            }
            let target: Target = match answer.parse() {
                Ok(target) => target,
                Err(error) => {
                    self.say(&format!("    ! {error}"))?;
                    continue;
                }
            };
            match selectors(std::slice::from_ref(&target)) {
                Err(problems) => self.tell(&problems)?,
                Ok(only)
                    if !target.is_every()
                        && !devices.iter().any(|device| only.iter().any(|one| one.selects(device))) =>
                {
                    self.say("    ! no device has these labels")?;
                }
                Ok(_) => {
                    targets.push(target);
                    let all = selectors(&targets).unwrap_or_default();
                    let meant = devices.iter().filter(|device| all.iter().any(|one| one.selects(device)));
                    let meant: Vec<_> = meant.map(|device| device.id.to_string()).collect();
                    self.say(&format!("    {}: {}", counted(meant.len()), named(&meant)))?;
                }
            }
        }
    }

    /// Whether a person says yes.
    pub(super) fn confirm(&mut self, question: &str) -> Result<bool, Failure> {
        let answer = self.ask(&format!("{question} [y/N]"))?;
        Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
    }
}

/// How many devices have which value of which label.
fn labels<'a>(devices: &[&'a Device]) -> BTreeMap<&'a str, BTreeMap<&'a str, usize>> {
    let mut all: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for (label, value) in devices.iter().flat_map(|device| &device.labels) {
        *all.entry(label).or_default().entry(value).or_default() += 1;
    }
    all
}

/// The first of them, and how many more there are.
pub(super) fn named(all: &[String]) -> String {
    let mut shown: Vec<_> = all.iter().take(MAX_NAMED).cloned().collect();
    if all.len() > MAX_NAMED {
        shown.push(format!("and {} more", all.len() - MAX_NAMED));
    }
    shown.join(", ")
}
