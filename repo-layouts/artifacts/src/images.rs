//! The images of a compose archive: how its files name them, and what variables make of the names.
//!
//! Read as Compose reads them (Compose specification, *Interpolation*, *Include* and *Extend*; compose-go 2), as far as
//! literal files inside the archive go. A name that is read in another way on a device isn't among those that were
//! locked, so the device locks it itself: what is missed here is never wrong there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use repo_model::{Digest, IntoSet};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::reference::Kind;
use crate::{Archive, InvalidReference, Reference};

/// Most images, and files that name them, which are read of one archive.
const MOST: usize = 256;
/// The longest name or value, before its variables are filled and after, in bytes.
const LONGEST: usize = 4096;
/// How deep defaults of variables may hold others, files may include others, and services extend others.
const DEEPEST: usize = 16;
/// The largest file that is read, in bytes.
const LARGEST: usize = 256 << 10;
/// Names and beginnings of variables that the tools on a device set, so that nobody else knows them.
const OF_TOOLS: &[&str] = &["PATH", "HOME", "PWD", "COMPOSE_", "DOCKER_"];

/// The images of an archive, each as it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Images(BTreeSet<Written>);

/// A service's image as it is written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Written {
    image: String,
    /// What `.env` files say of its variables, the file that counts more first, and each in the order of its lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    defaults: Vec<Assignments>,
}

/// Name and value of variables; a value may have variables itself, and is absent where it can't be known.
type Assignments = Vec<(String, Option<String>)>;

/// The variables of a component: name → value, absent where only the device knows it.
pub type Variables = BTreeMap<String, Option<String>>;

impl Images {
    /// Reads every compose file that `compose.yaml` leads to. What can't be read is left to the device, which refuses it.
    pub fn of(archive: &Archive) -> Self {
        let mut reader = Reader { archive, images: BTreeSet::new(), files: 0 };
        let defaults: Vec<_> = reader.assignments(".env").into_iter().collect();
        reader.project(&[Archive::COMPOSE.to_owned()], "", &defaults, 0);
        Self(reader.images)
    }

    /// Whether no name has a variable, so that every component of the archive has the same images.
    pub fn are_constant(&self) -> bool {
        self.0.iter().all(|one| !one.image.contains('$'))
    }

    /// The names of the images with these variables; without those that only the device knows.
    pub fn names(&self, variables: &Variables) -> BTreeSet<String> {
        self.0.iter().filter_map(|one| one.fill(variables)).filter(|name| !name.is_empty()).into_set()
    }
}

impl Written {
    fn fill(&self, variables: &Variables) -> Option<String> {
        let mut known = variables.clone();
        for assignments in &self.defaults {
            let mut own = Variables::new();
            for (name, value) in assignments {
                let lookup = |name: &str| known.get(name).or_else(|| own.get(name)).cloned();
                let value = value.as_ref().and_then(|value| fill(value, &lookup, 0));
                own.insert(name.clone(), value);
            }
            own.into_iter().for_each(|(name, value)| _ = known.entry(name).or_insert(value));
        }
        fill(&self.image, &|name| known.get(name).cloned(), 0)
    }
}

/// Puts values in the place of variables. `lookup` gives nothing for one that isn't set, and `Some(None)` for one that
/// can't be known here. `None` where the outcome can't be known, or Compose would refuse it.
fn fill(text: &str, lookup: &dyn Fn(&str) -> Option<Option<String>>, depth: usize) -> Option<String> {
    if depth > DEEPEST {
        return None;
    }
    let (mut filled, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('$').filter(|_| filled.len() <= LONGEST) {
        filled.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            filled.push('$');
            rest = after;
        } else if let Some(after) = rest.strip_prefix('{') {
            let end = closing_brace(after)?;
            filled.push_str(&braced(&after[..end], lookup, depth)?);
            rest = &after[end + 1..];
        } else {
            let (name, after) = variable(rest)?;
            filled.push_str(&value(name, lookup)?.unwrap_or_default());
            rest = after;
        }
    }
    filled.push_str(rest);
    // Also where values hold values: what doubles with each line gets no chance.
    (filled.len() <= LONGEST).then_some(filled)
}

/// What is between the braces: a name, and what it means that there is no value, or that it is empty.
fn braced(text: &str, lookup: &dyn Fn(&str) -> Option<Option<String>>, depth: usize) -> Option<String> {
    let (name, operation) = variable(text)?;
    let value = value(name, lookup)?;
    let (empty_counts, operation) = match operation.strip_prefix(':') {
        Some(rest) => (false, rest),
        None => (true, operation),
    };
    let given = value.clone().filter(|value| empty_counts || !value.is_empty());
    let mut characters = operation.chars();
    match (characters.next(), given) {
        (None, _) if empty_counts => Some(value.unwrap_or_default()),
        (Some('-'), given) => given.or_else(|| fill(characters.as_str(), lookup, depth + 1)),
        (Some('?'), given) => given,
        (Some('+'), Some(_)) => fill(characters.as_str(), lookup, depth + 1),
        (Some('+'), None) => Some(String::new()),
        _ => None,
    }
}

/// The value of a variable, if it is set; the outer `None` where it can't be known.
fn value(name: &str, lookup: &dyn Fn(&str) -> Option<Option<String>>) -> Option<Option<String>> {
    match lookup(name) {
        Some(known) => known.map(Some),
        None if OF_TOOLS.iter().any(|of| name == *of || (of.ends_with('_') && name.starts_with(of))) => None,
        None => Some(None),
    }
}

/// The name of a variable at the beginning of a text, and what follows.
fn variable(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_').then_some((name, rest))
}

/// Where the brace closes that was opened before the text.
fn closing_brace(text: &str) -> Option<usize> {
    let mut open = 1;
    text.bytes().position(|c| {
        open += usize::from(c == b'{');
        open -= usize::from(c == b'}');
        open == 0
    })
}

/// The names of all variables in a text, and perhaps more.
fn mentioned(text: &str) -> impl Iterator<Item = &str> {
    text.split('$').skip(1).filter_map(|rest| variable(rest.strip_prefix('{').unwrap_or(rest))).map(|(name, _)| name)
}

struct Reader<'a> {
    archive: &'a Archive,
    images: BTreeSet<Written>,
    files: usize,
}

impl Reader<'_> {
    /// The services of some files that are merged, and of what these include.
    fn project(&mut self, files: &[String], directory: &str, defaults: &[Assignments], depth: usize) {
        if depth > DEEPEST {
            return;
        }
        let (mut services, mut includes) = (BTreeMap::<String, Value>::new(), Vec::new());
        for file in files {
            let Some(document) = self.document(file) else { continue };
            includes.extend(list(&document["include"]).cloned());
            for (name, service) in document["services"].as_object().into_iter().flatten() {
                match services.get_mut(name).and_then(Value::as_object_mut).zip(service.as_object()) {
                    Some((before, service)) => before.extend(service.clone()),
                    None => _ = services.insert(name.clone(), service.clone()),
                }
            }
        }
        let services = Value::from_iter(services);
        for (_, service) in services.as_object().into_iter().flatten() {
            let is_used = service["profiles"].as_array().is_none_or(Vec::is_empty);
            if let Some(image) = is_used.then(|| self.image(service, &services, directory, 0)).flatten() {
                self.add(image, defaults);
            }
        }
        includes.iter().for_each(|include| self.include(include, directory, defaults, depth));
    }

    fn include(&mut self, include: &Value, directory: &str, defaults: &[Assignments], depth: usize) {
        let texts = |value: &Value| -> Vec<String> {
            list(value).filter_map(Value::as_str).filter_map(|path| within(directory, path)).collect()
        };
        let (paths, of) = match include {
            Value::Object(map) => (texts(map.get("path").unwrap_or(&Value::Null)), include),
            path => (texts(path), &Value::Null),
        };
        let Some(first) = paths.first() else { return };
        let own = first.rsplit_once('/').map_or("", |(directory, _)| directory).to_owned();
        let own = texts(&of["project_directory"]).pop().unwrap_or(own);
        let mut env_files = texts(&of["env_file"]);
        if env_files.is_empty() {
            env_files.extend(within(&own, ".env"));
        }
        // Of several files the later counts more.
        let files = env_files.iter().filter_map(|file| self.assignments(file)).flatten().collect();
        self.project(&paths, &own, &[defaults, &[files]].concat(), depth + 1);
    }

    /// A service's image, or that of the service that it extends.
    fn image(&mut self, service: &Value, beside: &Value, directory: &str, depth: usize) -> Option<String> {
        if let Some(image) = service.get("image") {
            return image.as_str().map(str::to_owned);
        }
        let extends = &service["extends"];
        let name = extends.as_str().or_else(|| extends["service"].as_str()).filter(|_| depth < DEEPEST)?;
        match extends["file"].as_str() {
            Some(file) => {
                let file = within(directory, file)?;
                let document = self.document(&file)?;
                let of = file.rsplit_once('/').map_or("", |(directory, _)| directory);
                self.image(document["services"].get(name)?, &document["services"], of, depth + 1)
            }
            None => self.image(beside.get(name)?, beside, directory, depth + 1),
        }
    }

    /// Keeps of what is known of variables only what the image's name can need.
    fn add(&mut self, image: String, defaults: &[Assignments]) {
        if image.len() > LONGEST || self.images.len() >= MOST {
            return;
        }
        let mut needed: BTreeSet<String> = mentioned(&image).map(str::to_owned).into_set();
        let mut kept: Vec<Assignments> = Vec::new();
        for assignments in defaults.iter().rev() {
            let mut own: Assignments = Vec::new();
            for (name, value) in
                assignments.iter().rev().filter(|(_, value)| value.as_ref().is_none_or(|value| value.len() <= LONGEST))
            {
                if needed.contains(name) {
                    needed.extend(value.iter().flat_map(|value| mentioned(value)).map(str::to_owned));
                    own.insert(0, (name.clone(), value.clone()));
                }
            }
            if !own.is_empty() {
                kept.insert(0, own);
            }
        }
        self.images.insert(Written { image, defaults: kept });
    }

    fn document(&mut self, file: &str) -> Option<Value> {
        self.files += 1;
        let bytes = self.bytes(file).filter(|_| self.files <= MOST)?;
        serde_yaml::from_slice(bytes).ok()
    }

    fn bytes(&self, file: &str) -> Option<&[u8]> {
        let file = self.archive.files().get(file)?;
        (file.bytes.len() <= LARGEST).then_some(&*file.bytes)
    }

    /// The assignments of a `.env` file, if it is there.
    fn assignments(&self, file: &str) -> Option<Assignments> {
        let text = std::str::from_utf8(self.bytes(file)?).ok()?;
        let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        let assignment = |line: &str| {
            // A name alone is what the environment says of it.
            let (name, value) = line.strip_prefix("export ").unwrap_or(line).split_once(['=', ':'])?;
            Some((name.trim().to_owned(), assigned(value.trim())))
        };
        Some(lines.filter_map(assignment).collect())
    }
}

/// The value of an assignment, with `$` doubled where it is no variable; escapes aren't understood.
fn assigned(text: &str) -> Option<String> {
    let quoted = |quote| text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    match (quoted('\''), quoted('"')) {
        (Some(literal), _) => Some(literal.replace('$', "$$")),
        (_, value) if value.unwrap_or(text).contains('\\') => None,
        (_, Some(value)) => Some(value.to_owned()),
        (_, None) => Some(text.split(" #").next().unwrap_or_default().trim_end().to_owned()),
    }
}

/// The items of a list; something else is the only one.
fn list(value: &Value) -> impl Iterator<Item = &Value> {
    let (many, one) = match value {
        Value::Array(items) => (items.as_slice(), None),
        Value::Null => (&[][..], None),
        one => (&[][..], Some(one)),
    };
    many.iter().chain(one)
}

/// A path in the archive from a directory of it; `None` if it would leave the archive.
fn within(directory: &str, path: &str) -> Option<String> {
    if path.starts_with('/') || path.contains('$') {
        return None;
    }
    let parts: Vec<_> = directory.split('/').chain(path.split('/')).filter(|part| !matches!(*part, "" | ".")).collect();
    (!parts.contains(&"..")).then(|| parts.join("/"))
}

/// The name of an image as the engine reads it (distribution, *Reference grammar*): `[host/]path[:tag][@digest]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageReference {
    reference: Reference,
    name: String,
    digest: Option<Digest>,
}

/// The registry of a name that has none.
const DOCKER_HUB: &str = "docker.io";

impl ImageReference {
    pub fn parse(text: &str) -> Result<Self, InvalidReference> {
        let invalid = |rule| crate::reference::invalid(text, rule);
        let (tagged, digest) = match text.split_once('@') {
            Some((tagged, digest)) => {
                let digest = digest.parse().map_err(|_| invalid("an image's digest is `sha256:` and 64 hex digits"))?;
                (tagged, Some(digest))
            }
            None => (text, None),
        };
        let last = tagged.rfind('/').map_or(0, |at| at + 1);
        let colon = tagged[last..].find(':').map(|at| last + at);
        let (name, tag) = colon.map_or((tagged, "latest"), |at| (&tagged[..at], &tagged[at + 1..]));
        let (host, path) = match name.split_once('/') {
            Some((host, path)) if host == "localhost" || host.contains(['.', ':']) => (host, path.to_owned()),
            Some(_) => (DOCKER_HUB, name.to_owned()),
            None => (DOCKER_HUB, format!("library/{name}")),
        };
        let host = if host == "index.docker.io" { DOCKER_HUB } else { host };
        let reference =
            Reference::oci(&format!("oci://{host}/{path}"), tag, Kind::Image).map_err(|error| invalid(error.rule))?;
        Ok(Self { reference, name: name.to_owned(), digest })
    }

    /// Host and port of the registry.
    pub fn host(&self) -> &str {
        self.reference.host()
    }

    /// The repository within the registry.
    pub fn path(&self) -> &str {
        self.reference.path()
    }

    /// The name without tag and digest, as it is written.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its tag, which is `latest` where none is written.
    pub fn tag(&self) -> &str {
        self.reference.tag()
    }

    /// The digest that the name carries, which it is locked by.
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    pub(crate) fn reference(&self) -> &Reference {
        &self.reference
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reference.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, pack};

    fn archive(files: &[(&str, &str)]) -> Archive {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            #[allow(clippy::disallowed_methods, reason = "test data needs no syncing")]
            std::fs::create_dir_all(path.parent().unwrap()).and_then(|()| std::fs::write(&path, text)).unwrap();
        }
        Archive::read(&pack(dir.path(), "app").unwrap(), &Limits::default()).unwrap()
    }

    fn names(files: &[(&str, &str)], variables: &[(&str, Option<&str>)]) -> Vec<String> {
        let variables = variables.iter().map(|(name, value)| (name.to_string(), value.map(str::to_owned))).collect();
        Images::of(&archive(files)).names(&variables).into_iter().collect()
    }

    #[test]
    fn variables_are_filled_as_compose_does() {
        let variables = [("TAG", Some("2")), ("EMPTY", Some("")), ("SECRET", None)];
        for (image, expected) in [
            ("app:1", Some("app:1")),
            ("app:$TAG", Some("app:2")),
            ("app:${TAG}-x", Some("app:2-x")),
            ("app:$TAG-x", Some("app:2-x")),
            ("app$$TAG", Some("app$TAG")),
            ("app:${NONE:-3}", Some("app:3")),
            ("app:${NONE-3}", Some("app:3")),
            ("app:${EMPTY:-3}", Some("app:3")),
            ("app:1${EMPTY-3}", Some("app:1")),
            ("app:1$NONE", Some("app:1")),
            ("app:${TAG:?must be set}", Some("app:2")),
            ("app:${TAG?must be set}", Some("app:2")),
            ("app:${NONE:?must be set}", None),
            ("app:${EMPTY:?must be set}", None),
            ("app:1${TAG:+-debug}", Some("app:1-debug")),
            ("app:1${EMPTY:+-debug}", Some("app:1")),
            ("app:1${EMPTY+-debug}", Some("app:1-debug")),
            ("app:${NONE:-${ALSO:-${TAG}}}", Some("app:2")),
            ("app:${SECRET}", None),
            ("app:${TAG:-$SECRET}", Some("app:2")),
            ("app:${NONE:-$SECRET}", None),
            ("app:$DOCKER_TAG", None),
            ("app:${HOME}", None),
            ("app:${TAG", None),
            ("app:${1}", None),
            ("app:$", None),
        ] {
            let file = format!("services: {{a: {{image: '{image}'}}}}");
            let expected: Vec<_> = expected.into_iter().map(str::to_owned).collect();
            assert_eq!(names(&[("compose.yaml", &file)], &variables), expected, "{image}");
        }
    }

    #[test]
    fn an_env_file_says_what_nobody_else_says() {
        let env = "# c\nexport A=1 # one\nB='$A'\nC=\"x$A\"\nD=${A}${C}\nE=\\n\nA=2\nF\nT: 9\n";
        let compose = "services: {a: {image: 'a:$A'}, b: {image: 'b:$B'}, c: {image: 'c:$C'}, d: {image: 'd:$D'}, \
                       e: {image: 'e:$E'}, f: {image: 'f:1$F'}, t: {image: 't:$T'}}";
        let files = [("compose.yaml", compose), (".env", env)];
        assert_eq!(names(&files, &[]), ["a:2", "b:$A", "c:x1", "d:1x1", "f:1", "t:9"]);
        let known = names(&files, &[("A", Some("7")), ("F", None), ("T", None)]);
        assert_eq!(known, ["a:7", "b:$A", "c:x7", "d:7x7"]);
    }

    #[test]
    fn every_file_that_compose_reads_has_its_say() {
        let files = [
            (
                "compose.yaml",
                "include: [parts/db.yaml, {path: [one.yaml, two.yaml], env_file: x.env}]\nx-a: &a {image: 'merged:1'}\n\
                 services:\n  a: {<<: *a}\n  b: {extends: {file: parts/base.yaml, service: base}}\n  c: {extends: a}\n  \
                 d: {extends: a, image: 'own:1'}\n  unused: {image: 'unused:1', profiles: [debug]}\n",
            ),
            ("parts/db.yaml", "services: {db: {image: 'db:${V}'}}"),
            ("parts/.env", "V=3\nW=3\n"),
            (
                "parts/base.yaml",
                "services: {base: {extends: deep}, deep: {image: 'base:1'}, other: {image: 'other:1'}}",
            ),
            ("one.yaml", "services: {one: {image: 'one:${W}', command: [x]}}"),
            ("two.yaml", "services: {one: {image: 'two:${W}'}}"),
            ("x.env", "W=4\n"),
            (".env", "V=2\n"),
        ];
        assert_eq!(names(&files, &[]), ["base:1", "db:2", "merged:1", "own:1", "two:4"]);
        assert!(!Images::of(&archive(&files)).are_constant());
    }

    #[test]
    fn what_turns_in_circles_or_is_no_compose_file_ends() {
        let doubled: String = (1..100).map(|n| format!("V{n}=${{V{}}}${{V{}}}\n", n - 1, n - 1)).collect();
        let env = format!("V0=x\n{doubled}");
        let growing = [("compose.yaml", "services: {a: {image: 'a:$V99'}, b: {image: 'b:$V3'}}"), (".env", &env)];
        assert_eq!(names(&growing, &[]), ["b:xxxxxxxx"]);
        let deep = format!("services: {{a: {{image: '{}x'}}}}", "${A:-".repeat(800));
        for text in [
            "include: [compose.yaml]\nservices: {a: {image: 'a:1', extends: b}, b: {extends: a}, c: {extends: c}}",
            &deep,
            "services: [a]\ninclude: {path: {}}",
            "- x",
            "a: [",
        ] {
            names(&[("compose.yaml", text)], &[]);
        }
    }

    #[test]
    fn a_name_is_read_as_the_engine_reads_it() {
        let digest = Digest::of(b"x");
        for (text, host, path, tag) in [
            ("busybox", "docker.io", "library/busybox", "latest"),
            ("index.docker.io/library/busybox:1", "docker.io", "library/busybox", "1"),
            ("vendor/app:1.2", "docker.io", "vendor/app", "1.2"),
            ("localhost/app", "localhost", "app", "latest"),
            ("registry.example/vendor/app:1", "registry.example", "vendor/app", "1"),
            ("127.0.0.1:5000/app", "127.0.0.1:5000", "app", "latest"),
            ("127.0.0.1:5000/a/b:c", "127.0.0.1:5000", "a/b", "c"),
        ] {
            let found = ImageReference::parse(text).unwrap();
            assert_eq!((found.host(), found.path(), found.reference().tag()), (host, path, tag), "{text}");
            let pinned = ImageReference::parse(&format!("{text}@{digest}")).unwrap();
            assert_eq!((pinned.digest(), found.digest()), (Some(digest), None));
        }
        for bad in ["", "A/b", "a b", "a@sha256:1", "a:", "a//b", "-a", "a:b:c", "registry.example/", "sha256:"] {
            assert!(ImageReference::parse(bad).is_err(), "{bad}");
        }
    }
}
