//! Which names a parameter may have: nothing that steers a child process instead of the application.

use std::collections::BTreeMap;

use repo_artifacts::compose::check_variable;

use crate::runtimes::RuntimeError;

/// Refuses a name that isn't a variable's, or that a child process would obey; case is ignored.
pub(super) fn check_name(name: &str) -> Result<(), RuntimeError> {
    let named = |rule| RuntimeError::ParameterInvalid { name: name.chars().take(100).collect(), rule };
    check_variable(name).map_err(named)
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

#[cfg(test)]
mod tests {
    use repo_artifacts::compose::check_env_file;

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
