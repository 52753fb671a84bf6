//! The documents say no more than there is: whatever they name (a file, a heading, an item of the code, a test) exists.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use repo_testkit::git::try_git;
use repo_testkit::program;

/// Documents that tell what was, in the words of that time; only their links are followed.
const HISTORY: &[&str] = &["CHANGELOG.md"];

/// What ends the name of a file that only this repository can mean, also where no directory is named.
const OURS: &[&str] = &[".rs", ".md"];

/// The repository's files, and what can be named in them.
struct Repository {
    root: PathBuf,
    /// Relative to the root.
    files: Vec<PathBuf>,
    /// The Rust sources with their text.
    sources: Vec<(PathBuf, String)>,
    /// The sources that have a function, by its name.
    functions: HashMap<String, Vec<usize>>,
    /// Every identifier in the sources.
    words: HashSet<String>,
}

impl Repository {
    fn read() -> Self {
        let root = repo_testkit::root();
        let mut files = Vec::new();
        list(&root, &root, &mut files);
        let text = |file: &PathBuf| std::fs::read_to_string(root.join(file)).expect("a source");
        let sources: Vec<_> =
            files.iter().filter(|file| has_extension(file, "rs")).map(|file| (file.clone(), text(file))).collect();
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let words = sources.iter().flat_map(|(_, text)| text.split(|c| !is_word(c))).map(str::to_owned).collect();
        let mut functions: HashMap<_, Vec<_>> = HashMap::new();
        for (index, (_, text)) in sources.iter().enumerate() {
            for name in text.split("fn ").skip(1).filter_map(|rest| rest.split(|c| !is_word(c)).next()) {
                functions.entry(name.to_owned()).or_default().push(index);
            }
        }
        Self { root, files, sources, functions, words }
    }

    /// Every document with its text.
    fn documents(&self) -> impl Iterator<Item = (&Path, String)> {
        let documents = self.files.iter().filter(|file| has_extension(file, "md"));
        documents.map(|file| (file.as_path(), self.text(file)))
    }

    fn text(&self, file: &Path) -> String {
        std::fs::read_to_string(self.root.join(file)).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    }

    /// Whether a file is called so, from the root or by the end of its path.
    fn has_file(&self, name: &str) -> bool {
        self.root.join(name).exists() || self.files.iter().any(|file| file.ends_with(name))
    }

    fn headings(&self, document: &Path) -> Vec<String> {
        let text = self.text(document);
        let outside = text.split("\n```").step_by(2).flat_map(str::lines);
        outside.filter_map(|line| Some(line.strip_prefix('#')?.trim_start_matches('#').trim().to_owned())).collect()
    }

    /// Whether there is a function of this name in the file or module that is named before it, if any is.
    fn has_test(&self, place: &[&str], name: &str) -> bool {
        self.functions.get(name).into_iter().flatten().any(|&index| {
            let (file, text) = &self.sources[index];
            let module = file.with_extension("");
            let is_here = |part: &&str| {
                let is_module = module.iter().any(|name| name == *part) || text.contains(&format!("mod {part}"));
                is_module || (part.ends_with(".rs") && file.ends_with(part))
            };
            place.iter().all(is_here)
        })
    }

    /// What is wrong with a text between back-quotes.
    fn complaint(&self, quoted: &str, document: &Path) -> Option<String> {
        // Only what is one name: no command, no pattern, no placeholder.
        if quoted.is_empty() || quoted.contains(|c: char| c.is_whitespace() || "*{<$(…=\"'".contains(c)) {
            return None;
        }
        let parts: Vec<&str> = quoted.trim_end_matches('/').split("::").collect();
        let (last, place) = parts.split_last()?;
        if is_test_name(last) {
            let exists = self.has_test(place, last) || (place.is_empty() && self.words.contains(*last));
            return (!exists).then(|| format!("no test is called `{quoted}`"));
        }
        if !place.is_empty() && parts.iter().all(|part| is_identifier(part)) {
            let unknown = parts.iter().find(|part| !self.words.contains(**part));
            return unknown.map(|part| format!("nothing is called {part} as in `{quoted}`"));
        }
        let path = parts[0];
        let first = path.split('/').next().unwrap_or_default();
        // What is built is named too, and is not there on a clean checkout.
        let is_below_root =
            path.contains('/') && self.files.iter().any(|file| file.starts_with(first)) && !first.is_empty();
        if !is_below_root && !OURS.iter().any(|end| path.ends_with(end)) {
            return None;
        }
        let beside = self.root.join(document).parent().expect("a directory").join(path);
        (!self.has_file(path) && !beside.exists()).then(|| format!("there is no file `{path}`"))
    }

    /// What is wrong with the target of a link.
    fn broken_link(&self, target: &str, document: &Path) -> Option<String> {
        if target.contains("://") {
            return None;
        }
        let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
        let file =
            if path.is_empty() { document.to_owned() } else { document.parent().expect("a directory").join(path) };
        if !self.root.join(&file).exists() {
            return Some(format!("the link {target} leads nowhere"));
        }
        let has_anchor = |anchor: &str| self.headings(&file).iter().any(|heading| slug(heading) == anchor);
        anchor.is_some_and(|anchor| !has_anchor(anchor)).then(|| format!("no heading is at {target}"))
    }
}

/// Every file below a directory, but what is built there.
fn list(root: &Path, directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            if !["target", ".git"].iter().any(|name| entry.file_name() == *name) {
                list(root, &path, found);
            }
        } else {
            found.push(path.strip_prefix(root).expect("a path below the root").to_owned());
        }
    }
}

fn has_extension(file: &Path, extension: &str) -> bool {
    file.extension().is_some_and(|own| own == extension)
}

/// Tests are named by sentences, and nothing else has that many words.
fn is_test_name(text: &str) -> bool {
    text.matches('_').count() >= 3 && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The anchor that Git hosts give a heading.
fn slug(heading: &str) -> String {
    let kept = heading.to_lowercase();
    kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// What stands between back-quotes outside of code blocks.
fn quoted(text: &str) -> Vec<String> {
    let prose = prose(text);
    let pieces = prose.split("\n\n").flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2));
    pieces.map(str::to_owned).collect()
}

/// Where the links outside of code lead.
fn targets(text: &str) -> Vec<String> {
    let prose = prose(text);
    let no_code: String = prose.split("\n\n").flat_map(|paragraph| paragraph.split('`').step_by(2)).collect();
    no_code.split("](").skip(1).filter_map(|rest| rest.split(')').next()).map(str::to_owned).collect()
}

/// A document without its code blocks.
fn prose(text: &str) -> String {
    text.split("\n```").step_by(2).collect::<Vec<_>>().join("\n")
}

/// The comments of a source, each paragraph as one line.
fn comments(source: &str) -> String {
    let lines = source.lines().map(|line| {
        let line = line.trim_start();
        let comment = ["///", "//!", "//"].iter().find_map(|mark| line.strip_prefix(mark));
        comment.map_or_else(|| "\n".to_owned(), |comment| format!("{} ", comment.trim()))
    });
    lines.collect()
}

#[test]
fn every_mutant_fits_the_code_and_names_a_test_that_exists() {
    let repository = Repository::read();
    let mutants: Vec<_> = repository.files.iter().filter(|file| has_extension(file, "patch")).collect();
    assert!(mutants.len() > 9, "each invariant has one: {mutants:?}");
    for mutant in mutants {
        let (text, name) = (repository.text(mutant), mutant.display());
        let test =
            text.lines().find_map(|line| line.strip_prefix("Test: ")).unwrap_or_else(|| panic!("{name}: no test"));
        let function = test.rsplit("::").next().unwrap_or(test);
        assert!(repository.functions.contains_key(function), "{name}: there is no test `{test}`");
        let fits = try_git(&repository.root, &["apply", "--check", &name.to_string()]);
        assert!(fits.status.success(), "{name} doesn't fit any more: {}", String::from_utf8_lossy(&fits.stderr));
    }
}

#[test]
fn every_path_link_anchor_and_test_that_a_document_names_exists() {
    let repository = Repository::read();
    let mut wrong = Vec::new();
    let mut followed = 0;
    for (document, text) in repository.documents() {
        let links = targets(&text);
        let mut complaints: Vec<_> = links.iter().filter_map(|link| repository.broken_link(link, document)).collect();
        if !HISTORY.iter().any(|name| document == Path::new(name)) {
            complaints.extend(quoted(&text).iter().filter_map(|quoted| repository.complaint(quoted, document)));
        }
        followed += links.len();
        wrong.extend(complaints.into_iter().map(|complaint| format!("{}: {complaint}", document.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(followed > 100, "only {followed} links were followed: this test has to follow the documents");
}

/// As in "(`repo-layouts/README.md`, *Identity*)".
#[test]
fn every_section_that_a_comment_names_exists() {
    let repository = Repository::read();
    let mut wrong = Vec::new();
    let mut followed = 0;
    for (file, source) in &repository.sources {
        let comments = comments(source);
        for (before, after) in comments.match_indices(".md`").map(|(at, mark)| comments.split_at(at + mark.len())) {
            let name = before.trim_end_matches('`').rsplit('`').next().unwrap_or_default();
            let Some(document) = repository.files.iter().find(|file| file.ends_with(name)) else {
                wrong.push(format!("{}: there is no `{name}`", file.display()));
                continue;
            };
            let Some(section) = after.strip_prefix(", *").and_then(|rest| rest.split('*').next()) else { continue };
            followed += 1;
            let plain = |heading: &str| heading.replace('`', "");
            if !repository.headings(document).iter().any(|heading| plain(heading) == plain(section)) {
                wrong.push(format!("{}: {name} has no section *{section}*", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(followed > 10, "only {followed} sections were followed: this test has to follow the comments");
}

#[test]
fn each_threat_has_a_test() {
    let repository = Repository::read();
    let page = repository.text(Path::new("docs/threat-model.md"));
    let threats = page.split_once("## Workloads").expect("the first attacker").1;
    // A row's last cell names its tests, the others what is tried and what holds it back.
    let rows = threats.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| They try"));
    let mut count = 0;
    for row in rows {
        let cell = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        let names = quoted(cell);
        let is_test = |name: &&String| name.rsplit("::").next().is_some_and(is_test_name);
        assert!(names.iter().any(|name| is_test(&name)), "no test shows this: {row}");
        count += 1;
    }
    assert!(count > 40, "only {count} rows were read: this test has to follow the page");
}

/// The rows of the tables in a text, without their heads.
fn rows(text: &str) -> impl Iterator<Item = &str> {
    let next = text.lines().skip(1).chain([""]);
    let rows = text.lines().zip(next).filter(|(line, next)| line.starts_with("| ") && !next.starts_with("|--"));
    rows.map(|(line, _)| line.trim_matches(['|', ' ']))
}

#[test]
fn each_thing_that_a_device_does_has_a_test_and_what_must_always_hold_a_mutant() {
    let repository = Repository::read();
    let does = repository.text(Path::new("docs/behaviour.md"));
    let architecture = repository.text(Path::new("ARCHITECTURE.md"));
    let (_, always) = architecture.split_once("### On a device").expect("the table of mutants");
    let function = |name: &str| name.rsplit("::").next().map(str::to_owned).filter(|name| is_test_name(name));
    let tests = |cell: &str| quoted(cell).iter().filter_map(|name| function(name)).collect::<Vec<_>>();
    let mut count = 0;
    for row in rows(&does) {
        let shown = row.rsplit(" | ").next().unwrap_or_default();
        assert!(!tests(shown).is_empty(), "no test shows this: {row}");
        count += 1;
    }
    for row in rows(always) {
        let cells: Vec<_> = row.split(" | ").collect();
        let [_, shown, mutant] = cells[..] else { panic!("not three cells: {row}") };
        let patch = repository.text(Path::new(&format!("mutants/{}.patch", mutant.trim_matches('`'))));
        let of_mutant = patch.lines().find_map(|line| line.strip_prefix("Test: ")).and_then(function);
        assert!(of_mutant.is_some_and(|test| tests(shown).contains(&test)), "the mutant turns another test red: {row}");
        count += 1;
    }
    assert!(count > 80, "only {count} rows were read: this test has to follow the page");
}

#[test]
fn each_component_requirement_has_a_verdict_and_what_is_met_a_test() {
    let page = Repository::read().text(Path::new("docs/iec-62443-4-2.md"));
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| CR |"));
    let mut numbers = Vec::new();
    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [number, _, here, shown] = cells[..] else { panic!("not four cells: {row}") };
        let names = quoted(shown);
        let has_test = names.iter().any(|name| name.rsplit("::").next().is_some_and(is_test_name));
        let is_ours = here.starts_with("Met: ") || here.starts_with("Part: ");
        assert!(is_ours || here.starts_with("Not here: "), "no verdict: {row}");
        assert_eq!(has_test, is_ours, "what is met has a test, and nothing else: {row}");
        numbers.push(number.to_owned());
    }
    // Those of the standard that are about components; it has no 1.6, 2.3 or 7.5 for software.
    let of = |group: u8, left_out: &[u8], last: u8| {
        (1..=last).filter(|n| !left_out.contains(n)).map(|n| format!("{group}.{n}")).collect::<Vec<_>>()
    };
    let groups = [(1, &[6][..], 14), (2, &[3], 13), (3, &[], 14), (4, &[], 3), (5, &[], 3), (6, &[], 2), (7, &[5], 8)];
    let all: Vec<_> = groups.iter().flat_map(|(group, out, last)| of(*group, out, *last)).collect();
    assert_eq!(numbers, all);
}

/// Every command of a program, by the words after its name.
fn commands(name: &str) -> Vec<String> {
    let (mut all, mut left) = (Vec::new(), vec![String::new()]);
    while let Some(command) = left.pop() {
        let output = Command::new(program(name)).args(command.split_whitespace()).arg("--help").output();
        let help = String::from_utf8(output.expect("the program").stdout).expect("text");
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        let listed = listed.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
        left.extend(listed.filter(|word| *word != "help").map(|word| format!("{command} {word}")));
        all.push(command);
    }
    all.retain(|command| !command.is_empty());
    all
}

/// Lists of all commands, and what was decided, tell nobody how to use one.
#[test]
fn every_command_of_both_programs_is_shown_on_a_page() {
    let repository = Repository::read();
    let lists = ["docs/README.md", "docs/exit-codes.md"].map(Path::new);
    let pages: Vec<_> = repository
        .documents()
        .filter(|(file, _)| file.starts_with("docs") && !file.starts_with("docs/decisions") && !lists.contains(file))
        .map(|(_, text)| text)
        .collect();
    let begins = |rest: &str, words: &str| {
        rest.strip_prefix(words).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '-'))
    };
    let mut missing = Vec::new();
    for name in ["wfm-git-publisher", "device-syncer"] {
        let all = commands(name);
        assert!(all.len() > 20, "{name}: {all:?}");
        for command in all {
            // With the program in front; of two words, which only one program has, also without.
            let with_program = |line: &str| {
                let after = line.split(name).skip(1).flat_map(|rest| rest.split('`').next());
                after.into_iter().any(|rest| rest.match_indices(&command).any(|(at, _)| begins(&rest[at..], &command)))
            };
            let quoted =
                |line: &str| command.trim().contains(' ') && line.split('`').any(|part| begins(part, command.trim()));
            if !pages.iter().flat_map(|page| page.lines()).any(|line| with_program(line) || quoted(line)) {
                missing.push(format!("{name}{command}"));
            }
        }
    }
    assert!(missing.is_empty(), "no page shows: {missing:?}");
}

/// The start page shows commands to people who have never seen a program of ours.
#[test]
fn every_command_of_the_start_page_is_one() {
    let page = Repository::read().text(Path::new("docs/README.md"));
    let mut commands = 0;
    for command in quoted(&page) {
        let mut words = command.split_whitespace();
        let Some(name @ ("wfm-git-publisher" | "device-syncer")) = words.next() else { continue };
        let verb = words.next().expect("a command of the program");
        let mut of_verb = vec![verb];
        // An audit is a command of its own, too.
        let is_below =
            verb == "audit" && ["clone", "report", "sbom"].iter().any(|name| words.clone().next() == Some(*name));
        if ["device", "account", "app", "trust"].contains(&verb) || is_below {
            of_verb.extend(words.next());
        }
        let output = Command::new(program(name)).args(&of_verb).arg("--help").output().expect("the program");
        assert!(output.status.success(), "`{command}`: {}", String::from_utf8_lossy(&output.stderr));
        let help = String::from_utf8_lossy(&output.stdout);
        for option in words.filter(|word| word.starts_with("--")) {
            assert!(help.contains(option), "`{command}`: there is no {option}");
        }
        commands += 1;
    }
    assert!(commands > 10, "only {commands} commands were tried: this test has to follow the page");
}
