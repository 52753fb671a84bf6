//! Templates in the values of parameters: strict, typed, and over nothing but what the fleet says of the device.

use std::num::NonZeroU32;
use std::sync::LazyLock;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};
use repo_model::problem::Problem;
use repo_model::value::ParamValue;
use repo_model::yaml::{Field, Style, Value as Node};

use super::place::Place;

/// How many steps a template may take: far more than any text needs, and no endless loop.
const FUEL: u64 = 20_000;

/// The longest text that a template may make, in bytes; a list's texts count together.
const MAX_TEXT: usize = 64 << 10;

/// The longest list that a template may make.
const MAX_ITEMS: usize = 10_000;

static ENGINE: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut engine = Environment::new();
    engine.set_undefined_behavior(UndefinedBehavior::Strict);
    engine.set_fuel(Some(FUEL));
    // Without this an error doesn't tell where in the text it is.
    engine.set_debug(true);
    if let Ok(syntax) = SyntaxConfig::builder().keep_trailing_newline(true).build() {
        engine.set_syntax(syntax);
    }
    engine
});

/// A value with templates in it.
#[derive(Debug, Clone, PartialEq)]
pub enum Template {
    Text(Text),
    /// A list of which at least one item is a template.
    List(Vec<Result<ParamValue, Text>>),
}

/// A text with a template in it, and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Text {
    source: String,
    place: Place,
    /// How many characters a quote takes before the text begins.
    quote: u32,
}

/// Whether the value has a template in it.
pub(super) fn is_template(value: &ParamValue) -> bool {
    match value {
        ParamValue::String(text) => is_template_text(text),
        ParamValue::Array(items) => items.iter().any(is_template),
        _ => false,
    }
}

fn is_template_text(text: &str) -> bool {
    ["{{", "{%", "{#"].iter().any(|mark| text.contains(mark))
}

impl Template {
    /// Takes a value that [`is_template`], and checks the syntax of what is in it.
    pub(super) fn read(field: &Field<'_>, value: ParamValue) -> Option<Self> {
        match (value, &field.node().value) {
            (ParamValue::Array(values), Node::Sequence(_)) => {
                let mut values = values.into_iter();
                let items = field.clone().list(|item| match values.next()? {
                    ParamValue::String(text) if is_template_text(&text) => Text::read(&item, text).map(Err),
                    plain => Some(Ok(plain)),
                });
                items.map(Self::List)
            }
            (ParamValue::String(text), _) => Text::read(field, text).map(Self::Text),
            _ => None,
        }
    }

    /// The value on one device; the problem says where the template is wrong.
    pub fn fill(&self, names: &Names) -> Result<ParamValue, Problem> {
        match self {
            Self::Text(text) => text.fill(names),
            Self::List(items) => {
                let fill = |item: &Result<_, Text>| match item {
                    Ok(plain) => Ok(ParamValue::clone(plain)),
                    Err(text) => text.fill(names).and_then(|value| text.no_list(value)),
                };
                items.iter().map(fill).collect::<Result<_, _>>().map(ParamValue::Array)
            }
        }
    }

    /// The text as it is written.
    pub fn source(&self) -> String {
        match self {
            Self::Text(text) => text.source.clone(),
            Self::List(items) => {
                let shown = |item: &Result<ParamValue, Text>| match item {
                    Ok(plain) => plain.text(),
                    Err(text) => text.source.clone(),
                };
                format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

impl Text {
    pub(super) fn source(&self) -> &str {
        &self.source
    }

    fn read(field: &Field<'_>, source: String) -> Option<Self> {
        let quoted = matches!(&field.node().value, Node::Scalar(scalar) if scalar.style == Style::Quoted);
        let text = Self { source, place: Place::of(field), quote: quoted.into() };
        if text.expression().is_some() {
            return Some(text);
        }
        match ENGINE.template_from_str(&text.source).map(drop) {
            Ok(()) => Some(text),
            Err(error) => {
                field.report(text.problem(&error, None));
                None
            }
        }
    }

    /// What is between the braces, if the whole text is one expression: then the value keeps its type. A `-` or `+`
    /// directly inside of a brace is about spaces, of which there are none, and no part of the expression.
    fn expression(&self) -> Option<minijinja::Expression<'_, '_>> {
        let inner = self.source.strip_prefix("{{")?.strip_suffix("}}")?;
        let inner = inner.strip_prefix(SPACES).unwrap_or(inner);
        ENGINE.compile_expression(inner.strip_suffix(SPACES).unwrap_or(inner)).ok()
    }

    fn fill(&self, names: &Names) -> Result<ParamValue, Problem> {
        if let Some(expression) = self.expression() {
            let unknown = || names.first_unknown(expression.undeclared_variables(true));
            let value = expression.eval(names.0.clone()).map_err(|error| self.problem(&error, unknown()))?;
            return self.typed(value).map_err(|error| self.problem(&error, unknown()));
        }
        let failed = |error: Error| self.problem(&error, None);
        let template = ENGINE.template_from_str(&self.source).map_err(failed)?;
        let unknown = || names.first_unknown(template.undeclared_variables(true));
        let text = template.render(names.0.clone()).map_err(|error| self.problem(&error, unknown()))?;
        self.bounded(text).map_err(failed)
    }

    fn bounded(&self, text: String) -> Result<ParamValue, Error> {
        let wrong = |text: String| Err(Error::new(ErrorKind::InvalidOperation, text));
        match text {
            text if text.len() > MAX_TEXT => wrong(format!("makes more than {MAX_TEXT} bytes")),
            text if text.contains('\0') => wrong("makes U+0000, which no runtime can pass on".to_owned()),
            text => Ok(ParamValue::String(text)),
        }
    }

    fn typed(&self, value: Value) -> Result<ParamValue, Error> {
        let wrong = |text: String| Err(Error::new(ErrorKind::InvalidOperation, text));
        match value.kind() {
            ValueKind::Bool => Ok(ParamValue::Boolean(value.is_true())),
            ValueKind::Number if value.is_integer() => i128::try_from(value).map(ParamValue::Integer),
            ValueKind::Number => match f64::try_from(value)? {
                number if number.is_finite() => Ok(ParamValue::Double(number)),
                _ => wrong("is not a finite number".to_owned()),
            },
            ValueKind::String => self.bounded(value.as_str().unwrap_or_default().to_owned()),
            ValueKind::Seq | ValueKind::Iterable => self.list(value.try_iter()?),
            ValueKind::Undefined => Err(ErrorKind::UndefinedError.into()),
            kind => wrong(format!("is {kind}, expected a string, number, boolean or a list of them")),
        }
    }

    fn list(&self, values: impl Iterator<Item = Value>) -> Result<ParamValue, Error> {
        let wrong = |text: String| Err(Error::new(ErrorKind::InvalidOperation, text));
        let (mut items, mut bytes) = (Vec::new(), 0);
        for value in values {
            let item = self.typed(value)?;
            match &item {
                ParamValue::Array(_) => return wrong("is a list of lists".to_owned()),
                ParamValue::String(text) => bytes += text.len(),
                _ => {}
            }
            items.push(item);
            if items.len() > MAX_ITEMS {
                return wrong(format!("makes a list of more than {MAX_ITEMS} items"));
            }
            if bytes > MAX_TEXT {
                return wrong(format!("makes more than {MAX_TEXT} bytes"));
            }
        }
        Ok(ParamValue::Array(items))
    }

    fn no_list(&self, value: ParamValue) -> Result<ParamValue, Problem> {
        match value {
            ParamValue::Array(_) => Err(self.place.problem("makes a list inside of a list")),
            value => Ok(value),
        }
    }

    fn problem(&self, error: &Error, unknown: Option<String>) -> Problem {
        let message = match (error.kind(), unknown) {
            (ErrorKind::UndefinedError, Some(name)) => format!("there is no `{name}` here"),
            (ErrorKind::UndefinedError, None) => "uses a name that isn't there".to_owned(),
            (ErrorKind::OutOfFuel, _) => "takes too many steps".to_owned(),
            (ErrorKind::InvalidOperation, _) => error.detail().unwrap_or("can't be computed").to_owned(),
            _ => error.to_string().split(" (in ").next().unwrap_or_default().to_owned(),
        };
        let mut problem = self.place.problem(message);
        // An expression was cut out from between its braces.
        let spaces = self.source.get(2..).is_some_and(|rest| rest.starts_with(SPACES));
        let cut = if self.expression().is_some() { 2 + usize::from(spaces) } else { 0 };
        if let Some(within) = error.range().and_then(|range| self.source.get(..range.start + cut)) {
            problem.column = NonZeroU32::new(self.place.column + self.shift(within));
        }
        match error.kind() {
            ErrorKind::UndefinedError => problem.hint(HINT),
            _ => problem,
        }
    }

    /// How many characters after the value's first one the text up to `within` ends, where that is known: in one line
    /// without escapes.
    fn shift(&self, within: &str) -> u32 {
        let plain = !within.contains(['\\', '\'', '"']) && !self.source.contains('\n');
        if plain { u32::try_from(within.chars().count()).unwrap_or(0) + self.quote } else { 0 }
    }
}

/// What stands inside of a brace to say what becomes of the spaces beside it.
const SPACES: [char; 2] = ['-', '+'];

const HINT: &str = "there are `device.id`, `device.labels.…`, `device.data.…`, `fleet.id`, `fleet.name`, `fleet.data.…`, \
     `deployment.id`, `application.id`, `application.version`; `… | default(\"…\")` stands in for one that is missing";

/// Everything that a template can name, for one deployment on one device.
#[derive(Debug, Clone)]
pub struct Names(pub(super) Value);

impl Names {
    /// The first of the dotted names that leads nowhere.
    fn first_unknown(&self, names: impl IntoIterator<Item = String>) -> Option<String> {
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort();
        names.into_iter().find(|name| {
            let mut value = self.0.clone();
            name.split('.').any(|part| {
                value = value.get_attr(part).unwrap_or(Value::UNDEFINED);
                value.is_undefined()
            })
        })
    }
}
