//! Archives for the unit tests of this module.

use repo_artifacts::{Archive, Limits};

/// An archive with these files.
pub(super) fn archive(files: &[(&str, &str)]) -> Archive {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in
        files.iter().chain([("compose.yaml", "{}")].iter().filter(|_| !files.iter().any(|f| f.0 == "compose.yaml")))
    {
        let path = dir.path().join(path);
        repo_git::durable::create_dir_all(path.parent().unwrap(), 0o755).unwrap();
        repo_git::durable::replace_file(&path, text.as_bytes(), 0o644).unwrap();
    }
    Archive::read(&repo_artifacts::pack(dir.path(), "app").unwrap(), &Limits::default()).unwrap()
}
