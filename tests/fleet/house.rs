//! The house's own rules: imports point one way, and each word of the contract has one place.

mod code;
mod graph;
mod table;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use repo_model::{ErrorCode, Trailer};
use repo_testkit::root;

use self::code::{Code, Import};

/// Words of the contract that are also words of something else: a kind of Kubernetes' objects, and a key of documents.
const OTHERS: [&str; 2] = ["Deployment", "suspended"];

/// A crate of the workspace that has a library.
struct Crate {
    name: String,
    dir: PathBuf,
}

impl Crate {
    fn code(&self) -> Code {
        Code::read(&self.dir.join("src/lib.rs"))
    }

    /// Whether it is there for tests alone.
    fn is_of_tests(&self) -> bool {
        self.name == "repo-testkit"
    }

    /// The room of a file: the crate's module that it is, or lies in. None for the root, which is the table of contents.
    fn room(&self, file: &Path) -> Option<String> {
        let below = file.strip_prefix(self.dir.join("src")).ok()?;
        let first = Path::new(below.components().next()?.as_os_str()).with_extension("");
        Some(first.to_str()?.to_owned()).filter(|room| !["lib", "main"].contains(&room.as_str()))
    }

    /// The packages that it depends on, but for its tests.
    fn dependencies(&self) -> BTreeSet<String> {
        let text = fs::read_to_string(self.dir.join("Cargo.toml")).expect("a manifest");
        let (_, rest) = text.split_once("\n[dependencies]\n").unwrap_or_default();
        let lines = rest.lines().take_while(|line| !line.starts_with('['));
        lines.filter_map(|line| line.split(['.', ' ', '=']).next().map(str::to_owned)).collect()
    }
}

fn crates() -> Vec<Crate> {
    let text = fs::read_to_string(root().join("Cargo.toml")).expect("the workspace");
    let members = text.split_once("members = [").and_then(|(_, rest)| rest.split_once(']')).expect("its members").0;
    let dirs = members.split('"').skip(1).step_by(2).map(|member| root().join(member));
    let named = |dir: PathBuf| {
        let text = fs::read_to_string(dir.join("Cargo.toml")).expect("a manifest");
        let name = text.split_once("name = \"").and_then(|(_, rest)| rest.split_once('"')).expect("a name").0;
        Crate { name: name.to_owned(), dir }
    };
    dirs.filter(|dir| dir.join("src/lib.rs").exists()).map(named).collect()
}

fn page() -> String {
    fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md")
}

fn shown(file: &Path) -> String {
    file.strip_prefix(root()).unwrap_or(file).display().to_string()
}

fn line(import: &Import) -> String {
    format!("{}:{} imports `{}` of {}", shown(&import.from), import.line, import.path, shown(&import.to))
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let mut found = Vec::new();
    for one in crates() {
        let imports = one.code().imports();
        for circle in graph::circles(&imports) {
            let inside = imports.iter().filter(|import| circle.contains(&import.from) && circle.contains(&import.to));
            let lines: Vec<_> = inside.map(|import| format!("\n  {}", line(import))).collect();
            found.push(format!("{} files of `{}`:{}", circle.len(), one.name, lines.concat()));
        }
    }
    assert!(found.is_empty(), "{} circles\n{}", found.len(), found.join("\n"));
}

#[test]
fn no_rooms_import_each_other_in_a_circle() {
    let mut found = Vec::new();
    for one in crates() {
        let imports = one.code().imports();
        let between = imports.iter().filter_map(|import| {
            let (from, to) = (one.room(&import.from)?, one.room(&import.to)?);
            (from != to).then(|| Import { from: from.into(), to: to.into(), ..import.clone() })
        });
        let between: Vec<_> = between.collect();
        for circle in graph::circles(&between) {
            let inside = |import: &&Import| {
                let is_in = |file| one.room(file).is_some_and(|room| circle.contains(Path::new(&room)));
                is_in(&import.from) && is_in(&import.to) && one.room(&import.from) != one.room(&import.to)
            };
            let lines: Vec<_> = imports.iter().filter(inside).map(|import| format!("\n  {}", line(import))).collect();
            found.push(format!("{} rooms of `{}`:{}", circle.len(), one.name, lines.concat()));
        }
    }
    assert!(found.is_empty(), "{} circles\n{}", found.len(), found.join("\n"));
}

#[test]
fn rooms_import_only_what_the_architecture_allows() {
    let mut found = Vec::new();
    for one in crates().iter().filter(|one| ["device-syncer", "wfm-git-publisher"].contains(&one.name.as_str())) {
        let table = table::table(&page(), &format!("`{}`", one.name));
        let table = table.unwrap_or_else(|| panic!("ARCHITECTURE.md has no table of `{}`'s rooms", one.name));
        let code = one.code();
        let rooms: BTreeSet<_> = code.files().iter().filter_map(|file| one.room(file)).collect();
        let named: BTreeSet<_> = table.values().flatten().chain(table.keys()).cloned().collect();
        found.extend(named.difference(&rooms).map(|room| format!("`{}` has no room `{room}`", one.name)));
        let known: BTreeSet<_> = table.keys().cloned().collect();
        found.extend(rooms.difference(&known).map(|room| format!("`{room}` of `{}` isn't in the table", one.name)));
        for import in code.imports() {
            let (Some(from), Some(to)) = (one.room(&import.from), one.room(&import.to)) else { continue };
            if from != to && table.get(&from).is_some_and(|may| !may.contains(&to)) {
                found.push(format!("{}, and `{from}` may not use `{to}`", line(&import)));
            }
        }
    }
    assert!(found.is_empty(), "against the tables of ARCHITECTURE.md:\n{}", found.join("\n"));
}

#[test]
fn crates_depend_only_on_what_the_architecture_allows() {
    let (all, table) = (crates(), table::table(&page(), "Crate").expect("the table of crates"));
    let names: BTreeSet<_> = all.iter().map(|one| one.name.clone()).collect();
    assert_eq!(table.keys().cloned().collect::<BTreeSet<_>>(), names, "the table of crates");
    for one in &all {
        let here: BTreeSet<_> = one.dependencies().intersection(&names).cloned().collect();
        let more: Vec<_> = here.difference(&table[&one.name]).collect();
        assert!(more.is_empty(), "`{}` may not depend on {more:?}", one.name);
    }
}

#[test]
fn words_of_the_contract_are_spelled_in_the_model_alone() {
    let words: BTreeSet<_> = Trailer::TABLE.iter().map(|(trailer, _)| trailer.as_str()).collect();
    let codes = ErrorCode::TABLE.iter().map(|(code, _)| code.as_str());
    let words: BTreeSet<_> = words.into_iter().chain(codes).filter(|word| !OTHERS.contains(word)).collect();
    let mut found = Vec::new();
    for one in crates().iter().filter(|one| one.name != "repo-model" && !one.is_of_tests()) {
        for literal in one.code().texts() {
            let is_word = words.contains(literal.text.trim_matches('"'));
            if is_word || literal.text.contains("refs/heads/") {
                found.push(format!("{}:{}: {}", shown(&literal.file), literal.line, literal.text));
            }
        }
    }
    assert!(found.is_empty(), "{} literals that `repo_model` has a name for:\n{}", found.len(), found.join("\n"));
}

#[test]
fn an_import_leads_to_where_a_thing_is_defined_and_tests_import_what_they_like() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let write = |file: &str, text: &str| {
        let path = dir.path().join(file);
        fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        fs::write(path, text).expect("written");
    };
    write("lib.rs", "pub mod a;\npub mod b;\nmod c;\n#[cfg(test)]\nmod not_there;\n");
    write(
        "a.rs",
        "mod part;\npub use part::Part;\nuse crate::b::Thing;\n#[cfg(test)]\nmod tests { use crate::c::C; }\n",
    );
    write("a/part.rs", "//! Not `crate::c::C`.\nuse super::Whole;\npub struct Part;\n");
    write("b/mod.rs", "mod inner;\npub use inner::*;\n");
    write("b/inner.rs", "pub struct Thing(pub crate::a::Part);\n");
    write("c.rs", "pub struct C;\nconst TEXT: &str = \"crate::a::Whole\";\nfn new() -> crate::b::Thing { todo!() }\n");
    let pairs = || {
        let imports = Code::read(&dir.path().join("lib.rs")).imports();
        let short = |path: &Path| path.strip_prefix(dir.path()).expect("below").display().to_string();
        let pairs = imports.iter().map(|one| [short(&one.from), one.line.to_string(), short(&one.to)].join(" "));
        (pairs.collect::<Vec<_>>(), graph::circles(&imports).len())
    };
    let expected = ["a.rs 3 b/inner.rs", "b/inner.rs 1 a/part.rs", "c.rs 3 b/inner.rs"];
    assert_eq!(pairs(), (expected.map(str::to_owned).to_vec(), 0));
    write("a/part.rs", "pub struct Part;\nfn old() { let _ = super::super::c::C; }\n");
    assert_eq!(pairs().1, 1, "a part, what it uses, and what that uses");
}
