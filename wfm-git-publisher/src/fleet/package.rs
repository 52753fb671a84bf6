//! The files of an application package, and whether it may come into a fleet as it is.
//!
//! A package is a stranger's: nothing of it is changed, and so what git, a file system or the fleet's reader would take
//! for something else is refused by its name.

use std::collections::BTreeMap;

use repo_model::margo::ApplicationDescription;
use repo_model::problem::{Problem, Problems};
use repo_model::text;
use unicode_normalization::{UnicodeNormalization, is_nfc};

use super::application::{Application, MARGO_YAML};

/// So many rules' patterns are tried before a package comes into a fleet.
const MAX_TRIED: usize = 100;

/// The most files of a package.
pub const MAX_FILES: usize = 1000;

/// The most bytes of all of them together.
pub const MAX_BYTES: usize = 32 << 20;

/// The largest `margo.yaml`, as for each file that the fleet reads.
const MAX_DESCRIPTION: usize = 1 << 20;

/// The longest path in a package, in bytes, and its most parts.
const MAX_PATH: (usize, usize) = (512, 16);

/// The longest name of a file or folder, in bytes; file systems have no longer ones.
const MAX_NAME: usize = 255;

/// The files by their paths from the package's folder, `/`-separated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Package {
    pub files: BTreeMap<String, PackageFile>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageFile {
    pub kind: PackageFileKind,
    /// Empty unless it is a file.
    pub bytes: Vec<u8>,
}

/// What git knows of a file besides its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackageFileKind {
    Plain,
    /// `app push` packs it as one, too.
    Executable,
    /// A link or submodule, which somebody committed by hand: no package is added with one.
    Odd,
}

impl PackageFile {
    /// A file with some of the permissions that it had; all but its owner's to execute it are dropped.
    pub fn new(bytes: Vec<u8>, mode: u32) -> Self {
        let kind = if mode & 0o100 == 0 { PackageFileKind::Plain } else { PackageFileKind::Executable };
        Self { kind, bytes }
    }
}

impl Package {
    /// What it describes, with what is doubtful; `from` is what it is called in problems.
    ///
    /// # Errors
    /// Everything for which it may not come into a fleet: what the fleet's own reader would refuse, and names.
    pub fn read(&self, from: &str) -> Result<(Application, Problems), Problems> {
        let mut problems = Problems::default();
        let place = |path: &str| if from.is_empty() { path.to_owned() } else { format!("{from}/{path}") };
        let application = match self.files.get(MARGO_YAML) {
            None => {
                let problem = Problem::error(place(MARGO_YAML), "is missing, so this is no application package");
                problems.push(problem.hint("name the folder or archive that has it at its top"));
                None
            }
            Some(file) if file.bytes.len() > MAX_DESCRIPTION => {
                let message = format!("has more than {MAX_DESCRIPTION} bytes");
                problems.push(Problem::error(place(MARGO_YAML), message));
                None
            }
            Some(file) => Application::read_anywhere(&place(MARGO_YAML), &file.bytes, &mut problems),
        };
        let refused = self.files.iter().filter_map(|(path, file)| Some((path, refusal(path, file.kind)?)));
        problems.extend(refused.map(|(path, reason)| Problem::error(place(path), reason)));
        problems.extend(self.alike().map(|(path, other)| {
            let message = format!("can't be told from `{other}` by every file system");
            Problem::error(place(path), message).hint("have the vendor rename one of the two")
        }));
        problems.extend(self.too_much(from));
        if let Some(application) = &application {
            let version = &application.description.version;
            if !is_folder_name(version) {
                let message = format!("`{version}` can't be the name of a folder");
                let problem = Problem::error(place(MARGO_YAML), message).key("metadata.version");
                problems.push(problem.hint("a version is letters, digits and inner `. _ + -`, at most 128"));
            }
            problems.extend(application.distinct_rules().take(MAX_TRIED).filter_map(|rule| rule.doubt()));
            let missing = resources(&application.description).filter(|(_, path)| !self.files.contains_key(*path));
            problems.extend(missing.map(|(key, path)| {
                let message = format!("names `{path}`, which is not in the package");
                Problem::error(place(MARGO_YAML), message).key(key).warning()
            }));
        }
        match application {
            Some(application) if !problems.has_errors() => Ok((application, problems)),
            _ => Err(problems),
        }
    }

    /// Bytes of all files together.
    pub fn size(&self) -> usize {
        self.files.values().map(|file| file.bytes.len()).sum()
    }

    /// The paths of files that another package has otherwise, or only one of the two has.
    pub fn differing<'a>(&'a self, other: &'a Self) -> Vec<&'a str> {
        let here = self.files.iter().filter(|(path, file)| other.files.get(*path) != Some(file));
        let there = other.files.keys().filter(|path| !self.files.contains_key(*path));
        let mut paths: Vec<_> = here.map(|(path, _)| path).chain(there).map(String::as_str).collect();
        paths.sort_unstable();
        paths
    }

    fn too_much(&self, from: &str) -> Option<Problem> {
        let (files, bytes) = (self.files.len(), self.size());
        let message =
            format!("has {files} files with {bytes} bytes; a package has at most {MAX_FILES} with {MAX_BYTES}");
        (files > MAX_FILES || bytes > MAX_BYTES).then(|| Problem::error(from, message))
    }

    /// Files and folders whose names only differ by case or Unicode form, each with the one before it.
    fn alike(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut seen = BTreeMap::new();
        let ends = |path: &str| -> Vec<usize> { path.match_indices('/').map(|(end, _)| end).collect() };
        let all =
            self.files.keys().flat_map(move |path| ends(path).into_iter().chain([path.len()]).map(|end| &path[..end]));
        all.filter_map(move |path| {
            let before = *seen.entry(folded(path)).or_insert(path);
            (before != path).then_some((path, before))
        })
    }
}

/// What file systems that ignore case or Unicode's forms compare.
fn folded(path: &str) -> String {
    path.nfkc().collect::<String>().to_uppercase().to_lowercase().nfkc().collect()
}

/// Why there may be no such file in a package.
fn refusal(path: &str, kind: PackageFileKind) -> Option<&'static str> {
    if kind == PackageFileKind::Odd {
        return Some("is a link or a submodule: only files are allowed");
    }
    if path == MARGO_YAML {
        return (kind == PackageFileKind::Executable).then_some("is executable; run `chmod -x` on it");
    }
    let (bytes, parts) = MAX_PATH;
    if path.len() > bytes || path.split('/').count() > parts {
        return Some("has too long a path");
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    if ["margo.yaml", "margo.yml"].contains(&name.to_ascii_lowercase().as_str()) {
        return Some("would be taken for a package of its own");
    }
    path.split('/').find_map(name_refusal)
}

/// Why nothing in a package may have this name.
fn name_refusal(name: &str) -> Option<&'static str> {
    let lower = name.to_lowercase();
    match lower.as_str() {
        "" | "." | ".." => return Some("has a path that leads elsewhere"),
        ".git" => return Some("is part of a Git repository: a package is files alone"),
        ".gitattributes" => return Some("would have git change files, or run programs, when they are committed"),
        ".gitmodules" => return Some("would name repositories to git"),
        _ => {}
    }
    if name.len() > MAX_NAME {
        return Some("has too long a name");
    }
    if text::line(name) != name {
        return Some("has a name with characters that can't be seen");
    }
    if !is_nfc(name) {
        return Some("has a name in a Unicode form that some file systems change (not NFC)");
    }
    if name.contains(['\\', ':', '*', '?', '"', '<', '>', '|']) || name.ends_with(['.', ' ']) || name.starts_with(' ') {
        return Some("has a name that some file systems can't have");
    }
    if is_short(&lower) {
        return Some("has a name like those by which Windows shortens others");
    }
    None
}

/// Whether it looks like `GITATT~1`, which may lead to `.gitattributes` there.
fn is_short(name: &str) -> bool {
    let digits = name.split_once('~').map(|(_, rest)| rest.split('.').next().unwrap_or(rest));
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit()))
}

/// Whether a version can be the folder that the fleet keeps it in, on every system.
fn is_folder_name(version: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    version.len() <= 128
        && edge(version.chars().next())
        && edge(version.chars().next_back())
        && version.bytes().all(|c| c.is_ascii_alphanumeric() || b"._+-".contains(&c))
        && !version.ends_with(".lock")
}

/// The files that the catalogue entry names, by their keys; addresses elsewhere are none.
pub fn resources(description: &ApplicationDescription) -> impl Iterator<Item = (String, &str)> {
    const KEYS: [&str; 4] = ["icon", "descriptionFile", "releaseNotes", "licenseFile"];
    let application = description.catalog.as_ref().and_then(|catalog| catalog.get("application"));
    let named = KEYS.into_iter().filter_map(move |key| Some((key, application?.get(key)?.as_str()?)));
    let here = named.filter(|(_, path)| !path.contains("://") && !path.is_empty());
    here.map(|(key, path)| (format!("metadata.catalog.application.{key}"), path.strip_prefix("./").unwrap_or(path)))
}

/// The names of those who offer an application.
pub fn vendors(description: &ApplicationDescription) -> Vec<&str> {
    let catalog = description.catalog.as_ref();
    let all = catalog.and_then(|catalog| catalog.get("organization")?.as_array()).into_iter().flatten();
    all.filter_map(|one| one.get("name")?.as_str()).collect()
}

/// The file or address of an application's licence.
pub fn licence(description: &ApplicationDescription) -> Option<&str> {
    description.catalog.as_ref()?.get("application")?.get("licenseFile")?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESCRIPTION: &str = "id: app\nmetadata: {name: App, version: 1.0.0}\ndeploymentProfiles:\n- id: a\n  type: compose\n  \
        components: [{name: a, properties: {repository: \"oci://r.example/a\", revision: 1.0.0}}]\n";

    fn package(paths: &[&str]) -> Package {
        let all = paths.iter().map(|path| ((*path).to_owned(), PackageFile::new(b"x".to_vec(), 0o644)));
        let description = (MARGO_YAML.to_owned(), PackageFile::new(DESCRIPTION.into(), 0o644));
        Package { files: all.chain([description]).collect() }
    }

    fn refused(package: &Package) -> String {
        package.read("in").unwrap_err().to_string()
    }

    #[test]
    fn names_that_mean_something_to_git_or_to_a_file_system_are_refused() {
        for good in ["resources/Grüße 1.pdf", "compose/a/compose.yaml", ".gitignore", "a~b", "a.b~", "日本語.md"] {
            assert_eq!(package(&[good]).read("in").unwrap().1, Problems::default(), "{good}");
        }
        for bad in [
            ".git/config",
            "sub/.GIT/hooks/x",
            ".gitattributes",
            "resources/.GitAttributes",
            ".gitmodules",
            "GITATT~1",
            "git~1/config",
            "a/../b",
            "a//b",
            "./a",
            "/a",
            "a\\..\\b",
            "a:b",
            "con trol\u{7}",
            "a\u{200d}b",
            "e\u{301}.md",
            "trailing.",
            "trailing ",
            " leading",
            "sub/margo.yaml",
            "MARGO.yml",
        ] {
            let said = refused(&package(&[bad]));
            assert!(said.contains("in/"), "{bad}: {said}");
        }
        let deep = ["a"; 17].join("/");
        assert!(refused(&package(&[&deep])).contains("too long a path"));
        assert!(refused(&package(&[&"a".repeat(256)])).contains("too long a name"));
    }

    #[test]
    fn names_that_differ_by_case_or_form_alone_are_refused_folders_too() {
        for (a, b) in [("a.md", "A.md"), ("R/a", "r/b"), ("ſ", "S"), ("ﬁ", "fi"), ("a", "A/b")] {
            let said = refused(&package(&[a, b]));
            assert!(said.contains("can't be told from"), "{a} {b}: {said}");
        }
        assert!(package(&["a/b", "a/c", "b/a"]).read("in").is_ok());
    }

    #[test]
    fn a_version_that_leads_elsewhere_is_no_folder() {
        for bad in ["", ".", "..", "../../x", "a/b", "-1", "1.", "a b", "ä", "1.0.lock", "1\\n"] {
            let mut package = package(&[]);
            let text = DESCRIPTION.replace("version: 1.0.0", &format!("version: \"{bad}\""));
            package.files.insert(MARGO_YAML.to_owned(), PackageFile::new(text.into_bytes(), 0o644));
            let said = refused(&package);
            assert!(said.contains("in/margo.yaml: metadata.version: "), "{bad}: {said}");
        }
        assert!(is_folder_name("1.0.0-rc.3+build.5") && is_folder_name("7"));
    }

    #[test]
    fn what_of_its_rules_can_not_be_checked_is_told_and_too_many_options_are_refused() {
        let with = |schemas: &str| {
            let names = ["first", "second"];
            let parameters: String = names
                .iter()
                .map(|name| format!("  {name}: {{targets: [{{pointer: {name}, components: [a]}}]}}\n"))
                .collect();
            let settings = names.map(|name| format!("{{parameter: {name}, name: {name}, schema: rule}}")).join(", ");
            let text = format!(
                "{DESCRIPTION}parameters:\n{parameters}configuration:\n  sections: [{{name: all, settings: [{settings}]}}]\n  \
                 schema:\n  - {schemas}\n"
            );
            let mut package = package(&[]);
            package.files.insert(MARGO_YAML.to_owned(), PackageFile::new(text.into_bytes(), 0o644));
            package
        };
        for pattern in [r"^\w{1,400}.*$".to_owned(), "(?=a)a".to_owned(), "a".repeat(5000)] {
            let (_, told) =
                with(&format!("{{name: rule, dataType: string, regexMatch: '{pattern}'}}")).read("in").unwrap();
            // Once, although two parameters have it.
            let told = told.to_string();
            assert!(told.starts_with("in/margo.yaml:13:5: "), "{told}");
            assert_eq!(told.matches("configuration.schema[0].regexMatch: can't be checked: ").count(), 1, "{told}");
        }
        let options = vec!["a"; 10_001].join(", ");
        let said = refused(&with(&format!("{{name: rule, dataType: string, options: [{options}]}}")));
        assert!(said.starts_with("in/margo.yaml:13:5: configuration.schema[0].options: has 10001 options"), "{said}");
    }

    #[test]
    fn what_is_too_much_odd_or_no_package_is_refused() {
        assert!(Package::default().read("in").unwrap_err().to_string().contains("in/margo.yaml: is missing"));
        let mut large = package(&["a"]);
        large.files.insert("b".to_owned(), PackageFile::new(vec![0; MAX_BYTES], 0o644));
        assert!(refused(&large).contains("at most 1000"));
        let mut odd = package(&["a"]);
        odd.files.insert("b".to_owned(), PackageFile { kind: PackageFileKind::Odd, bytes: Vec::new() });
        assert!(refused(&odd).contains("in/b: is a link"));
        let mut executable = package(&["a"]);
        executable.files.insert(MARGO_YAML.to_owned(), PackageFile::new(DESCRIPTION.into(), 0o755));
        assert!(refused(&executable).contains("chmod -x"));
    }
}
