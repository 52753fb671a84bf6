//! The documents of a device, which need nothing but what the fleet says of it.
//!
//! They are written before its repository is read, so that what it has already needs no parsing, and rendering takes them
//! over from there.

use std::cell::LazyCell;
use std::collections::BTreeMap;

use repo_model::DeploymentId;
use repo_model::envelope::{ValueFrom, ValueSource, ValueTarget};
use repo_model::margo::deployment::Dialect;
use repo_model::margo::{ApplicationDeployment, Parameter, Target};
use repo_model::problem::{Problem, Problems};
use repo_model::value::ParamValue;

use super::{Facts, Locks, Work, profiles};
use crate::fleet::schema::Breach;
use crate::fleet::{Device, Fleet, Layers, Names, NotReadable, Place, Profile, Setting, shown_value};

/// The documents of a device as far as nothing is wrong with them, each of the profile that the device gets if nothing is
/// known of what it has.
#[derive(Debug, Default)]
pub struct Documents<'a>(BTreeMap<DeploymentId, Written<'a>>);

/// The document of one deployment on one device.
#[derive(Debug)]
pub(super) struct Written<'a> {
    /// What it is made of.
    pub(super) profile: &'a Profile,
    pub(super) document: ApplicationDeployment,
    /// The values that only the device knows, by parameter.
    pub(super) values_from: BTreeMap<String, ValueFrom>,
}

impl<'a> Documents<'a> {
    /// Writes the documents of a device.
    pub fn of(fleet: &'a Fleet, device: &'a Device) -> Self {
        let meant = fleet.meant_for(device);
        let locks = Locks::new();
        let written = meant.filter_map(|deployment| {
            let work = Work::new(fleet, device, deployment, Facts::default(), &locks);
            let profile = profiles::choose(deployment, work.id, work.facts).ok()?;
            Some((work.id, work.write(profile).ok()?))
        });
        Self(written.collect())
    }

    /// What a document with these bytes says, if it is one of these.
    pub fn find(&self, id: DeploymentId, bytes: &[u8]) -> Option<ApplicationDeployment> {
        let Written { document, .. } = self.0.get(&id)?;
        (document.to_yaml() == bytes).then(|| document.clone())
    }

    pub(super) fn take(&mut self, id: DeploymentId) -> Option<Written<'a>> {
        self.0.remove(&id)
    }
}

impl Work<'_> {
    /// Fills a profile's parameters, and writes its document.
    pub(super) fn write<'p>(&self, profile: &'p Profile) -> Result<Written<'p>, Problems> {
        let description = &self.deployment.application.description;
        let (parameters, values_from) = self.values(profile)?;
        let document = ApplicationDeployment {
            dialect: Dialect::RC3,
            id: self.id,
            application_id: description.id.clone(),
            name: self.deployment.id.to_string(),
            namespace: self.deployment.namespace.clone(),
            device_id: Some(self.device.id.to_string()),
            labels: BTreeMap::new(),
            profile_type: profile.description.kind,
            components: profile.description.components.clone(),
            device_constraints: profile.description.device_constraints.clone(),
            parameters,
            profile_extensions: profile.description.extensions.clone(),
            extensions: description.extensions.clone(),
        };
        Ok(Written { profile, document, values_from })
    }

    /// The values that the document carries, and those that only the device knows.
    fn values(&self, profile: &Profile) -> Result<Values, Problems> {
        let (mut literal, mut from_device, mut problems) = (BTreeMap::new(), BTreeMap::new(), Problems::default());
        let layers = self.fleet.layers(self.deployment, self.device);
        let names = LazyCell::new(|| Names::of(self.fleet, self.device, self.deployment));
        for (name, targets) in &profile.parameters {
            match self.value(name, &layers, &names) {
                Ok(Some(Value::Literal(value))) => {
                    literal.insert(name.clone(), Parameter { value, targets: targets.clone() });
                }
                Ok(Some(Value::FromDevice(source))) => {
                    let targets = targets.iter().cloned();
                    let targets = targets.map(|Target { pointer, components }| ValueTarget { pointer, components });
                    from_device.insert(name.clone(), ValueFrom { source, targets: targets.collect() });
                }
                // Without value and default it is left out.
                Ok(None) => {}
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() { Ok((literal, from_device)) } else { Err(problems) }
    }

    fn value(
        &self,
        name: &str,
        layers: &Layers<'_>,
        names: &LazyCell<Names, impl FnOnce() -> Names>,
    ) -> Result<Option<Value>, Problem> {
        let application = &self.deployment.application;
        let rule = application.rules.get(name);
        let Some((_, given)) = layers.of(name).next() else {
            let default = application.description.parameters.get(name).and_then(|one| one.default.clone());
            let is_required = rule.is_some_and(|rule| rule.schema().allow_empty == Some(false));
            return match default {
                None if is_required => {
                    let problem = self.deployment.place.problem(format!("`{name}` has no value"));
                    Err(problem.hint("give it one under `parameters`: the package requires it"))
                }
                default => Ok(default.map(Value::Literal)),
            };
        };
        if let Some(misfit) = self.deployment.misfits.get(&given.place) {
            return Err(misfit.clone());
        }
        match &given.setting {
            Setting::Literal(value) => Ok(Some(Value::Literal(value.clone()))),
            Setting::DeviceFile(name) => Ok(Some(Value::FromDevice(ValueSource::DeviceFile(name.clone())))),
            Setting::Encrypted(name) => self.encrypted(name, &given.place).map(Some),
            Setting::Template(template) => {
                let value = template.fill(names)?;
                match rule.map_or(Ok(()), |rule| rule.check(&value)) {
                    Err(Breach::Wrong(message)) => {
                        let text = format!("makes {}, which {message}", shown_value(&value));
                        let rule = rule.map(|rule| rule.schema().name.as_str()).unwrap_or_default();
                        Err(given.place.problem(text).hint(format!("its rule is `{rule}`")))
                    }
                    _ => Ok(Some(Value::Literal(value))),
                }
            }
        }
    }

    /// A secret's value for this device, still encrypted. Before anything is about to be published it is only a doubt that there is
    /// none: devices come and get new keys whoever changes the fleet.
    fn encrypted(&self, name: &str, place: &Place) -> Result<Value, Problem> {
        match self.fleet.secrets.of(name, self.device) {
            Ok(armor) => Ok(Value::FromDevice(ValueSource::Encrypted(armor.to_owned()))),
            Err(why) => {
                let problem = place.problem(format!("the secret `{name}` {}", why.text()));
                let problem = problem.hint(format!("give its value: `secret set {name}`"));
                let is_due = self.facts.is_asked() && why != NotReadable::NotEnrolled;
                Err(if is_due { problem } else { problem.warning() })
            }
        }
    }
}

/// The values that the document carries, and those that only the device knows.
type Values = (BTreeMap<String, Parameter>, BTreeMap<String, ValueFrom>);

/// A value as it goes to the device.
enum Value {
    Literal(ParamValue),
    FromDevice(ValueSource),
}
