//! Which names a variable may have: nothing that steers a child process instead of the application.

const PREFIXES: &[&str] =
    &["COMPOSE_", "DOCKER_", "LD_", "BUILDX_", "BUILDKIT_", "OTEL_", "GIT_", "SSH_", "XDG_", "SSL_CERT_"];
/// `GO…`: the runtime of docker and compose.
const NAMES: &[&str] = &["PATH", "HOME", "PWD", "TMPDIR", "GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GOTRACEBACK"];
const SUFFIX: &str = "_PROXY";

/// Refuses a name that isn't a variable's, or that a child process would obey; case is ignored. The error is the rule.
pub fn check_variable(name: &str) -> Result<(), &'static str> {
    let head = name.bytes().next().is_some_and(|c| c.is_ascii_alphabetic() || c == b'_');
    if !head || !name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_') {
        return Err("the name of a variable is letters, digits and `_`, not starting with a digit");
    }
    let upper = name.to_ascii_uppercase();
    if NAMES.contains(&upper.as_str()) || PREFIXES.iter().any(|p| upper.starts_with(p)) || upper.ends_with(SUFFIX) {
        return Err("this name steers the tools on the device, not the application");
    }
    Ok(())
}

/// Checks the names that a `.env` file sets, under the same rule; every line must be a comment or one plain assignment.
/// The error names file, line and rule.
pub fn check_env_file(text: &str) -> Result<(), String> {
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let refused = |rule: String| Err(format!(".env:{}: {rule}", number + 1));
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line.split_once(['=', ':']).unwrap_or((line, ""));
        if let Err(rule) = check_variable(name.trim()) {
            return refused(format!("`{}`: {rule}", name.trim().chars().take(100).collect::<String>()));
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
