//! What a profile needs of a device: rc.3's `deviceConstraints` and the pre-draft's `requiredResources`, and whether a
//! device's capabilities meet it.

use serde_json::Value;

use super::capabilities::{DeviceCapabilities, INTERFACES, PERIPHERALS, Peripheral, bytes_of};
use super::expression::{Expression, expressions};
use crate::problem::Problems;
use crate::yaml::{self, Field, Reader};

/// What a profile's architectures can be (rc.3, *DeploymentCpuRequirement*), and what the pre-draft's examples and
/// kernels call them. No device reports `other`.
const ARCHITECTURES: &[&str] = &["amd64", "arm64", "arm", "riscv64", "other", "x86_64", "x86-64", "aarch64"];

/// What a profile needs. Without any of it every device will do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Requirements {
    cores: Option<f64>,
    architectures: Vec<String>,
    memory: Option<String>,
    storage: Option<String>,
    peripherals: Vec<Peripheral>,
    interfaces: Vec<String>,
    /// A device has to meet one of them, where there are any.
    rules: Vec<Rule>,
}

/// One of the `eligibilityRules`: all of it must hold.
#[derive(Debug, Clone, Default, PartialEq)]
struct Rule {
    properties: Vec<Expression>,
    labels: Vec<Expression>,
}

impl Requirements {
    /// Whether nothing is needed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Everything that a device with these capabilities lacks, in words; empty if it fits. The eligibility rules count
    /// where everything else is met, and one of them is enough (Margo, *ApplicationDescription*, *Eligibility rules*).
    pub fn unmet(&self, device: &DeviceCapabilities) -> Vec<String> {
        let unmet = self.unmet_resources(device);
        if unmet.is_empty() { self.unmet_rules(device) } else { unmet }
    }

    /// What it needs, in words.
    pub fn needs(&self) -> Vec<String> {
        let cores = self.cores.map(|cores| format!("{cores} cores"));
        let architectures = self.architectures.join(" or ");
        let mut needs: Vec<_> = cores.into_iter().collect();
        needs.extend((!architectures.is_empty()).then(|| format!("a processor of {architectures}")));
        needs.extend(self.memory.as_ref().map(|size| format!("{size} of memory")));
        needs.extend(self.storage.as_ref().map(|size| format!("{size} of storage")));
        needs.extend(self.peripherals.iter().map(|need| format!("the peripheral {need}")));
        needs.extend(self.interfaces.iter().map(|kind| format!("the interface `{kind}`")));
        let rules: Vec<_> = self.rules.iter().map(Rule::needs).collect();
        match rules.as_slice() {
            [one] => needs.extend(one.iter().cloned()),
            all => needs.extend((!all.is_empty()).then(|| {
                let ways: Vec<_> = all.iter().map(|rule| rule.join("; and ")).collect();
                ways.join("; or else ")
            })),
        }
        needs
    }

    fn unmet_resources(&self, device: &DeviceCapabilities) -> Vec<String> {
        let capacities = [("memory", &self.memory, &device.memory), ("storage", &self.storage, &device.storage)];
        let mut unmet: Vec<_> = self.unmet_cpu(device).into_iter().collect();
        unmet.extend(capacities.into_iter().filter_map(|(what, need, has)| unmet_capacity(what, need, has)));
        let has = |need: &Peripheral| device.peripherals.iter().flatten().any(|has| has.meets(need));
        let lacking = self.peripherals.iter().filter(|need| !has(need));
        unmet.extend(lacking.map(|need| format!("it needs the peripheral {need}")));
        let lacking = self.interfaces.iter().filter(|kind| !device.interfaces.iter().flatten().any(|has| has == *kind));
        unmet.extend(lacking.map(|kind| format!("it needs the interface `{kind}`")));
        unmet
    }

    fn unmet_rules(&self, device: &DeviceCapabilities) -> Vec<String> {
        let properties = device.properties_rc3();
        let mut failing: Vec<_> = self.rules.iter().map(|rule| rule.failing(&properties, device)).collect();
        if failing.is_empty() || failing.iter().any(Vec::is_empty) {
            return Vec::new();
        }
        if failing.len() == 1 {
            return failing.remove(0).into_iter().map(|one| format!("it needs {one}")).collect();
        }
        let ways: Vec<_> = failing.iter().map(|rule| rule.join("; and ")).collect();
        vec![format!("none of its {} rules is met: it needs {}", ways.len(), ways.join("; or else "))]
    }

    /// All of the processors that will do count together.
    fn unmet_cpu(&self, device: &DeviceCapabilities) -> Option<String> {
        if self.cores.is_none() && self.architectures.is_empty() {
            return None;
        }
        let fits = |name: Option<&str>| {
            let wanted = |other: &String| name.is_some_and(|name| architecture(name) == architecture(other));
            self.architectures.is_empty() || self.architectures.iter().any(wanted)
        };
        let fitting: Vec<_> = device.cpus.iter().filter(|cpu| fits(cpu.architecture.as_deref())).collect();
        let cores: f64 = fitting.iter().map(|cpu| f64::from(cpu.cores)).sum();
        if fitting.is_empty() {
            let has: Vec<_> = device.cpus.iter().filter_map(|cpu| cpu.architecture.as_deref()).collect();
            let has = if has.is_empty() { "none".to_owned() } else { has.join(", ") };
            return Some(format!(
                "it needs a processor of {}, and the device has {has}",
                self.architectures.join(" or ")
            ));
        }
        let need = self.cores.filter(|need| cores < *need)?;
        Some(format!("it needs {need} cores, and the device has {cores}"))
    }

    /// What rc.3's `deviceConstraints` of a document mean.
    pub(super) fn of_constraints(written: &Value) -> Result<Self, Problems> {
        Self::of("deviceConstraints", written, Self::read_constraints)
    }

    /// What the pre-draft's `requiredResources` mean, which stand in the envelope.
    pub fn of_resources(written: &Value) -> Result<Self, Problems> {
        Self::of("requiredResources", written, Self::read_resources)
    }

    fn of(key: &str, written: &Value, read: fn(Field<'_>) -> Option<Self>) -> Result<Self, Problems> {
        yaml::read_json(key, written.to_string().as_bytes(), read).map(|(found, _)| found)
    }

    /// Reads rc.3's `deviceConstraints`.
    pub(super) fn read_constraints(field: Field<'_>) -> Option<Self> {
        field.mapping(|reader| {
            reader.extensions();
            let capacity = reader.optional("capacityRequirements", |field| {
                field.mapping(|reader| {
                    reader.extensions();
                    Some(Self::read_capacity(reader))
                })
            });
            let mut all = capacity.unwrap_or_default();
            let rules = reader.optional("eligibilityRules", |field| {
                let rules = field.clone().list(|field| field.mapping(Rule::read))?;
                if rules.is_empty() { field.fail("names no rule") } else { Some(rules) }
            });
            all.rules = rules.unwrap_or_default();
            Some(all)
        })
    }

    /// Reads the pre-draft's `requiredResources`.
    pub(super) fn read_resources(field: Field<'_>) -> Option<Self> {
        field.mapping(|reader| {
            reader.extensions();
            let mut all = Self::read_capacity(reader);
            let peripheral = |field: Field<'_>| Peripheral::read(field, |field| word(field, PERIPHERALS));
            all.peripherals = reader.optional("peripherals", |field| field.list(peripheral)).unwrap_or_default();
            let interface =
                |field: Field<'_>| field.mapping(|reader| reader.required("type", |field| word(field, INTERFACES)));
            all.interfaces = reader.optional("interfaces", |field| field.list(interface)).unwrap_or_default();
            Some(all)
        })
    }

    fn read_capacity(reader: &mut Reader<'_>) -> Self {
        let cpu = reader.optional("cpu", |field| {
            field.mapping(|reader| {
                let cores = reader.optional("cores", |field| match field.clone().json()?.as_f64() {
                    Some(cores) if cores > 0.0 => Some(cores),
                    _ => field.fail("must be a number above 0"),
                });
                let architectures = reader.optional("architectures", |field| {
                    let all = field.clone().list(|field| word(field, ARCHITECTURES))?;
                    if all.is_empty() { field.fail("names no architecture") } else { Some(all) }
                });
                Some((cores, architectures.unwrap_or_default()))
            })
        });
        let (cores, architectures) = cpu.unwrap_or_default();
        let memory = reader.optional("memory", super::capabilities::capacity);
        let storage = reader.optional("storage", super::capabilities::capacity);
        Self { cores, architectures, memory, storage, ..Self::default() }
    }
}

impl Rule {
    fn needs(&self) -> Vec<String> {
        let properties = self.properties.iter().map(|one| format!("the property {one}"));
        properties.chain(self.labels.iter().map(|one| format!("the label {one}"))).collect()
    }

    /// What doesn't hold, in words.
    fn failing(&self, properties: &Value, device: &DeviceCapabilities) -> Vec<String> {
        let properties = self.properties.iter().map(|one| ("property", one, one.at_pointer(properties)));
        let labels = self.labels.iter().map(|one| ("label", one, device.labels.get(one.key())));
        let failing = properties.chain(labels).filter(|(_, one, found)| !one.holds(*found));
        let words = |(what, one, found): (_, &Expression, Option<&Value>)| {
            let has = found.map_or("none".to_owned(), ToString::to_string);
            format!("the {what} {one}, and the device has {has}")
        };
        failing.map(words).collect()
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        reader.extensions();
        let selector = |read: fn(Field<'_>) -> Option<Expression>| {
            move |field: Field<'_>| field.mapping(|reader| expressions(reader, read))
        };
        let properties = reader.optional("propertySelector", selector(Expression::read_property));
        let labels = reader.optional("labelSelector", selector(Expression::read_label));
        if !reader.has("propertySelector") && !reader.has("labelSelector") {
            return reader.field().fail("needs `propertySelector` or `labelSelector`");
        }
        Some(Self { properties: properties.unwrap_or_default(), labels: labels.unwrap_or_default() })
    }
}

/// Warns of a word that no device reports: it may be required, and nothing ever meets it.
fn word(field: Field<'_>, words: &[&str]) -> Option<String> {
    let text = field.clone().string()?;
    if !words.contains(&text.as_str()) {
        let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
        let problem = field.problem(format!("is `{text}`, which no device reports: Margo knows {}", words.join(", ")));
        field.report(problem.warning());
    }
    Some(text)
}

fn unmet_capacity(what: &str, need: &Option<String>, has: &Option<String>) -> Option<String> {
    let need = need.as_ref()?;
    match has {
        None => Some(format!("it needs {need} of {what}, and the device reports none")),
        Some(has) if bytes_of(has) < bytes_of(need) => {
            Some(format!("it needs {need} of {what}, and the device has {has}"))
        }
        Some(_) => None,
    }
}

/// The one name of an architecture that has several.
fn architecture(name: &str) -> String {
    match name.to_lowercase().as_str() {
        "x86_64" | "x86-64" => "amd64".to_owned(),
        "aarch64" => "arm64".to_owned(),
        other => other.to_owned(),
    }
}
