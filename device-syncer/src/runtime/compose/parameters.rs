//! Which names a parameter may have: nothing that steers a child process instead of the application.

use std::collections::BTreeMap;

use crate::runtime::RuntimeError;

const PREFIXES: &[&str] =
    &["COMPOSE_", "DOCKER_", "LD_", "BUILDX_", "BUILDKIT_", "OTEL_", "GIT_", "SSH_", "XDG_", "SSL_CERT_"];
/// `GO…`: the runtime of docker and compose.
const NAMES: &[&str] = &["PATH", "HOME", "PWD", "TMPDIR", "GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GOTRACEBACK"];
const SUFFIX: &str = "_PROXY";

/// Refuses a name that isn't a variable's, or that a child process would obey; case is ignored.
pub(super) fn check_name(name: &str) -> Result<(), RuntimeError> {
    let invalid = |rule| Err(RuntimeError::ParameterInvalid { name: name.chars().take(100).collect(), rule });
    let head = name.bytes().next().is_some_and(|c| c.is_ascii_alphabetic() || c == b'_');
    if !head || !name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_') {
        return invalid("the name of a variable is letters, digits and `_`, not starting with a digit");
    }
    let upper = name.to_ascii_uppercase();
    if NAMES.contains(&upper.as_str()) || PREFIXES.iter().any(|p| upper.starts_with(p)) || upper.ends_with(SUFFIX) {
        return invalid("this name steers the tools on the device, not the application");
    }
    Ok(())
}

/// Refuses names and values that can't be a process's environment.
pub(super) fn check(parameters: &BTreeMap<String, String>) -> Result<(), RuntimeError> {
    for (name, value) in parameters {
        check_name(name)?;
        if value.contains('\0') {
            return Err(RuntimeError::ParameterInvalid { name: name.clone(), rule: "the value contains a NUL byte" });
        }
    }
    Ok(())
}

/// The names that a `.env` file sets, under the same rule; every line must be a comment or one plain assignment.
pub(super) fn check_env_file(text: &str) -> Result<(), String> {
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let refused = |rule: String| Err(format!(".env:{}: {rule}", number + 1));
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line.split_once(['=', ':']).unwrap_or((line, ""));
        if let Err(error) = check_name(name.trim()) {
            return refused(error.to_string());
        }
        if !is_one_value(value.trim()) {
            return refused("a quoted value ends where its line does".to_owned());
        }
    }
    Ok(())
}

/// After a closing quote compose would read a further assignment.
fn is_one_value(value: &str) -> bool {
    let Some(quote) = value.chars().next().filter(|c| ['"', '\''].contains(c)) else { return !value.contains('\r') };
    value.len() > 1 && value[1..].find(quote) == Some(value.len() - 2) && !value.contains('\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_steers_a_tool_is_refused_in_any_case() {
        for bad in [
            "COMPOSE_FILE",
            "compose_file",
            "DOCKER_HOST",
            "PATH",
            "Home",
            "LD_PRELOAD",
            "https_proxy",
            "NO_PROXY",
            "GODEBUG",
            "SSL_CERT_FILE",
            "GIT_SSH_COMMAND",
            "",
            "1A",
            "A-B",
            "A B",
            "Ä",
            "A=B",
            "A\n",
        ] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
        for good in ["A", "_a1", "GREETING", "MY_PATH", "DB_HOST", "PROXY", "COMPOSER"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn the_vectors_for_other_implementations_hold_here() {
        let vectors = include_str!("../../../../fixtures/vectors/archives.json");
        let vectors: serde_json::Value = serde_json::from_str(vectors).unwrap();
        for case in vectors["variables"].as_array().unwrap() {
            let name = case[0].as_str().unwrap();
            assert_eq!(check_name(name).is_ok(), case[1], "{name:?}");
        }
    }

    #[test]
    fn an_env_file_sets_one_allowed_name_a_line() {
        assert_eq!(check_env_file("# c\n\nA=1\nexport B='x y'\nC: z\nD=\"q\"\r\nE\n"), Ok(()));
        for bad in ["COMPOSE_FILE=x", "A='x' LD_PRELOAD=y", "A=\"x", "A='x\ny'", "export PATH=/", "A=x\rPATH=y"] {
            assert!(check_env_file(bad).is_err(), "{bad:?}");
        }
    }
}
