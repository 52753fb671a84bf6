//! The text that a chart renders to: many documents of YAML, which a vendor wrote, and which Kubernetes reads with another
//! parser than this program.
//!
//! So what readers of YAML disagree about is refused, or taken for text where only a number would be admitted.

use repo_model::yaml::{Limits, Node, Plain, Style, Value as Yaml, parse, resolve};
use serde_json::{Map, Number, Value};

/// The most bytes of all that one release renders to: Kubernetes' store takes 1.5 MiB for one object.
pub(super) const BYTES: usize = 32 << 20;
/// The most documents in all that one release renders to.
const DOCUMENTS: usize = 10_000;
/// The most values of all documents, those that aliases repeat included.
const VALUES: usize = 2_000_000;
/// What is read of one document at most.
const DOCUMENT: Limits = Limits { bytes: 2 << 20, depth: 100, nodes: 300_000, aliases: true };

/// What one release renders to, which is read text by text.
#[derive(Debug, Default)]
pub struct Manifest {
    bytes: usize,
    documents: usize,
    values: usize,
}

impl Manifest {
    /// Gives `each` every object of a text.
    ///
    /// # Errors
    /// Says what can't be read, or is too much, and where; never a value.
    pub fn read(&mut self, text: &str, mut each: impl FnMut(&Value)) -> Result<(), String> {
        self.bytes += text.len();
        if self.bytes > BYTES {
            return Err(format!("it renders to more than {BYTES} bytes"));
        }
        if let Some(at) = break_to_some(text) {
            let line = text[..at].matches('\n').count() + 1;
            return Err(format!("line {line} holds a character that ends a line for some readers only"));
        }
        for document in documents(text)? {
            let source = document.lines().find_map(|line| line.strip_prefix("# Source: ")).unwrap_or("the manifest");
            if is_empty(&document) {
                continue;
            }
            self.documents += 1;
            if self.documents > DOCUMENTS {
                return Err(format!("it renders to more than {DOCUMENTS} objects"));
            }
            let node = parse(source, document.as_bytes(), &DOCUMENT).map_err(|problem| problem.to_string())?;
            each(&self.value(&node)?);
        }
        Ok(())
    }

    /// As JSON. An integer that has another value by YAML 1.1 is text.
    fn value(&mut self, node: &Node) -> Result<Value, String> {
        self.values += 1;
        if self.values > VALUES {
            return Err(format!("it renders to more than {VALUES} values"));
        }
        Ok(match &node.value {
            Yaml::Null => Value::Null,
            Yaml::Scalar(scalar) if scalar.style == Style::Plain => plain(&scalar.text),
            Yaml::Scalar(scalar) => scalar.text.clone().into(),
            Yaml::Sequence(items) => items.iter().map(|item| self.value(item)).collect::<Result<_, _>>()?,
            Yaml::Mapping(entries) => {
                let mut map = Map::new();
                for (key, value) in entries {
                    map.insert(key.text().unwrap_or_default().to_owned(), self.value(value)?);
                }
                Value::Object(map)
            }
        })
    }
}

fn plain(text: &str) -> Value {
    let is_decimal = text == "0" || !text.trim_start_matches(['+', '-']).starts_with('0');
    let number = match resolve(text) {
        Plain::Null => return Value::Null,
        Plain::Boolean(value) => return value.into(),
        Plain::Integer(value) if is_decimal => Number::from_i128(value),
        Plain::Double(value) => Number::from_f64(value),
        Plain::Integer(_) | Plain::HugeInteger | Plain::String => None,
    };
    number.map_or_else(|| text.into(), Value::Number)
}

/// Where a line ends by YAML 1.1 and not by 1.2, or for YAML and not for what parts the documents; or a byte order mark.
fn break_to_some(text: &str) -> Option<usize> {
    let is_one = |(at, c): &(usize, char)| match c {
        '\r' => !text[at + 1..].starts_with('\n'),
        c => matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}'),
    };
    text.char_indices().find(is_one).map(|(at, _)| at)
}

/// Parted as Kubernetes does it: by lines that begin with `---`.
fn documents(text: &str) -> Result<Vec<String>, String> {
    let mut all = vec![String::new()];
    for line in text.lines() {
        match line.strip_prefix("---") {
            Some(rest) if rest.trim().is_empty() || rest.trim_start().starts_with('#') => all.push(String::new()),
            Some(_) => return Err("something follows `---` in its line".to_owned()),
            None => all.last_mut().into_iter().for_each(|last| {
                last.push_str(line);
                last.push('\n');
            }),
        }
    }
    Ok(all)
}

/// Whether there is nothing but comments.
fn is_empty(document: &str) -> bool {
    document.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
}
