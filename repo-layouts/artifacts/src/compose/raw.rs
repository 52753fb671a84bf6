//! The rules for compose files as written, before anything resolves them.
//!
//! Resolving reads what `include`, `extends`, `env_file` and `label_file` name, and hides it afterwards (measured with
//! 2.40.3: `env_file: /etc/shadow` ends as plain `environment`). So each of them, wherever it stands in a file (a merge
//! key may carry it anywhere), must be a literal relative path without `..`. The archive holds no links, so whichever
//! directory compose starts from, such a path stays inside. Where another reader differs from ours in spite of all this,
//! the device's sandbox holds.

use std::collections::{BTreeMap, BTreeSet};

use repo_model::IntoSet;
use serde_json::Value;

use super::{characters, variables};
use crate::{Archive, yaml};

/// Keys that make compose read another file.
const READS: &[&str] = &["include", "extends", "env_file", "label_file"];

/// Checks `compose.yaml` and every file that it makes compose read; the error names file, key or line, and rule.
pub fn check(archive: &Archive) -> Result<(), String> {
    read(archive).map(drop)
}

/// The same; `compose.yaml` and the files that it includes, each as it is written.
pub(super) fn read(archive: &Archive) -> Result<BTreeMap<String, Value>, String> {
    let (mut documents, mut included) = (BTreeMap::new(), BTreeSet::from([Archive::COMPOSE.to_owned()]));
    let mut seen = BTreeSet::from([Archive::COMPOSE.to_owned()]);
    let mut queue = vec![Archive::COMPOSE.to_owned()];
    // Compose reads a `.env` in the directory of each file that is included.
    let is_dot_env = |file: &&String| *file == ".env" || file.ends_with("/.env");
    let mut variables: BTreeSet<String> = archive.files().keys().filter(is_dot_env).cloned().into_set();
    while let Some(file) = queue.pop() {
        let mut paths = Vec::new();
        let document = parse(&file, text(archive, &file)?)?;
        paths_in(&document, &mut paths).map_err(|problem| format!("{file}: {problem}"))?;
        documents.insert(file, document);
        for (key, path) in paths {
            if key == "include" {
                included.extend(candidates(archive, &path));
            }
            if key == "include" || key == "extends" {
                queue.extend(candidates(archive, &path).filter(|found| seen.insert(found.clone())));
            } else {
                variables.extend(candidates(archive, &path));
            }
        }
    }
    variables.iter().try_for_each(|file| text(archive, file).map(drop))?;
    if archive.files().contains_key(".env") {
        variables::check_env_file(text(archive, ".env")?)?;
    }
    documents.retain(|file, _| included.contains(file));
    Ok(documents)
}

/// A file of the archive, if it is text that every reader takes for the same.
fn text<'a>(archive: &'a Archive, file: &str) -> Result<&'a str, String> {
    let bytes = archive.files().get(file).map(|file| &*file.bytes).unwrap_or_default();
    let text = std::str::from_utf8(bytes).map_err(|_| format!("{file}: not UTF-8"))?;
    characters::check(file, text).map(|()| text)
}

/// Reads YAML with merge keys left as ordinary ones; refuses what makes readers differ.
fn parse(file: &str, text: &str) -> Result<Value, String> {
    if text.contains("!!binary") || text.contains("!<") || text.lines().any(|line| line.starts_with('%')) {
        return Err(format!("{file}: YAML directives, verbatim tags and binary values are not allowed"));
    }
    let options = serde_yaml::options! { merge_keys: serde_yaml::options::MergeKeyPolicy::AsOrdinary };
    serde_yaml::from_str_with_options(text, options).map_err(|error| yaml::problem(file, &error))
}

/// Every path under a key that reads, with that key.
fn paths_in(value: &Value, paths: &mut Vec<(String, String)>) -> Result<(), String> {
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| paths_in(item, paths)),
        Value::Object(map) => map.iter().try_for_each(|(key, value)| {
            if READS.contains(&key.as_str()) {
                leaves(key, value, paths)?;
            }
            paths_in(value, paths)
        }),
        _ => Ok(()),
    }
}

fn leaves(key: &str, value: &Value, paths: &mut Vec<(String, String)>) -> Result<(), String> {
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| leaves(key, item, paths)),
        Value::Object(map) => map.iter().try_for_each(|(inner, value)| {
            let key = if READS.contains(&inner.as_str()) { inner } else { key };
            leaves(key, value, paths)
        }),
        Value::String(path) => {
            check_path(path).map_err(|rule| format!("`{key}: {path}`: {rule}"))?;
            paths.push((key.to_owned(), path.clone()));
            Ok(())
        }
        _ => Ok(()),
    }
}

fn check_path(path: &str) -> Result<(), &'static str> {
    if path.contains('$') {
        return Err("the path must be literal, without `$`");
    }
    if path.starts_with(['/', '~', '\\']) || path.contains(':') {
        return Err("the path must be relative, and no address");
    }
    if path.split(['/', '\\']).any(|part| part == "..") {
        return Err("the path must stay inside the archive, without `..`");
    }
    Ok(())
}

/// The archive's files that a path may mean, whichever directory it starts from.
fn candidates<'a>(archive: &'a Archive, path: &str) -> impl Iterator<Item = String> + use<'a> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let path = parts.join("/");
    let ending = format!("/{path}");
    archive.files().keys().filter(move |file| **file == path || file.ends_with(&ending)).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compose::testing::archive;

    #[test]
    fn literal_paths_inside_the_archive_pass() {
        let files = [
            (
                "compose.yaml",
                "include: [parts/db.yaml, {path: b.yaml, env_file: x.env}]\nservices:\n  a:\n    image: i\n    \
              env_file: [{path: a.env, required: false}]\n    extends: {file: b.yaml, service: b}\n    ports: !reset []\n",
            ),
            ("parts/db.yaml", "services: {db: {image: i, label_file: l}}"),
            ("b.yaml", "services: {b: {image: i, extends: db}}"),
            (".env", "A=b"),
        ];
        assert_eq!(check(&archive(&files)), Ok(()));
    }

    #[test]
    fn whatever_reads_outside_the_archive_is_refused_by_name() {
        for (text, word) in [
            ("services: {a: {env_file: /etc/shadow}}", "env_file"),
            ("services: {a: {env_file: [ok.env, {path: ../x}]}}", "env_file"),
            ("services: {a: {env_file: !override [/etc/shadow]}}", "env_file"),
            ("services: {a: {? !!str env_file : !!str /etc/shadow}}", "env_file"),
            ("services: {a: {label_file: $FILE}}", "label_file"),
            ("services: {a: {extends: {file: a/../../b.yaml, service: x}}}", "extends"),
            ("include: ['~/x.yaml']", "include"),
            ("include: ['oci://registry.example/x']", "include"),
            ("include: ['git@host.example:x.git']", "include"),
            ("include: [{path: a.yaml, project_directory: /}]", "include"),
            ("include: [{path: [a.yaml, 'https://host.example/x']}]", "include"),
            ("x-a: &a {env_file: /etc/shadow}\nservices: {a: {<<: *a}}", "env_file"),
            ("x-a: &a {environment: &b {env_file: /etc/shadow}}\nservices: {a: {<<: *b}}", "env_file"),
            ("%TAG ! tag:yaml.org,2002:\n---\n{}", "directives"),
            ("!!binary aW5jbHVkZQ==: [/etc/x]", "directives"),
            ("a: 1\na: 2", "duplicate"),
            ("a: 1\n---\nb: 1", "multiple"),
            ("a: [", "compose.yaml"),
        ] {
            let problem = check(&archive(&[("compose.yaml", text)])).unwrap_err();
            assert!(problem.contains(word) && problem.contains("compose.yaml"), "{text}: {problem}");
        }
    }

    #[test]
    fn a_line_that_only_compose_sees_is_refused_in_every_file_that_it_reads() {
        let compose = "include: [{path: sub/inner.yaml, env_file: included.env}]\nservices: {a: {image: i, \
            env_file: [{path: a.env}], label_file: l.txt, extends: {file: base.yaml, service: b}}}\n";
        let files = [
            ("compose.yaml", compose),
            ("sub/inner.yaml", "services: {}\n"),
            ("base.yaml", "services: {b: {image: i}}\n"),
            ("included.env", "# no YAML: [\r\nA='b'\n"),
            ("a.env", "A=b\n"),
            ("l.txt", "a=b\n"),
            (".env", "A=b\n"),
            ("sub/.env", "A=b\n"),
        ];
        assert_eq!(check(&archive(&files)), Ok(()));
        for (at, (file, text)) in files.iter().enumerate() {
            for c in ['\r', '\u{85}', '\u{2028}', '\u{2029}'] {
                let bad = format!("{text}# {c}    env_file: /etc/shadow\n");
                let mut files = files;
                files[at].1 = &bad;
                let problem = check(&archive(&files)).unwrap_err();
                let place = format!("{file}:{}: ", text.lines().count() + 1);
                assert!(problem.starts_with(&place) && problem.contains("U+"), "{file}: {problem}");
            }
        }
    }

    #[test]
    fn included_files_obey_the_same_rules() {
        let inner = ("sub/inner.yaml", "services: {a: {env_file: /etc/shadow}}");
        for outer in [
            "include: [sub/inner.yaml]",
            "include: [{path: ./inner.yaml, project_directory: sub}]",
            "services: {a: {extends: {file: ./sub//inner.yaml, service: a}}}",
        ] {
            let problem = check(&archive(&[("compose.yaml", outer), inner])).unwrap_err();
            assert!(problem.starts_with("sub/inner.yaml"), "{outer}: {problem}");
        }
        let problem = check(&archive(&[("compose.yaml", "{}"), (".env", "COMPOSE_FILE=x")])).unwrap_err();
        assert!(problem.starts_with(".env:1"), "{problem}");
    }
}
