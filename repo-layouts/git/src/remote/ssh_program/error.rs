//! What `ssh` says when it fails, and what that means.

use std::time::Duration;

use super::clean;
use crate::Cause;

/// A conversation over `ssh` that failed.
#[derive(Debug, thiserror::Error)]
#[error("`{url}` {problem}")]
pub struct SshProgramError {
    pub url: String,
    pub problem: SshProblem,
    #[source]
    pub source: Option<Cause>,
}

/// What went wrong. The words of `ssh`, and of the host, stand in `said` on one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SshProblem {
    /// There is no `ssh` here.
    #[error("isn't asked: there is no program `{program}`")]
    NoProgram { program: String },
    #[error("isn't asked: `{program}` can't be started")]
    NotStarted { program: String },
    /// The name means nothing here and now.
    #[error("can't be found: its name doesn't resolve")]
    NameUnknown,
    #[error("refuses connections")]
    Refused,
    /// The network doesn't lead there, or not in time.
    #[error("can't be reached: {said}")]
    Network { said: String },
    /// The connection ended before or in the middle of the conversation.
    #[error("broke the connection off{}", if said.is_empty() { String::new() } else { format!(": {said}") })]
    Cut { said: String },
    /// No byte went either way for too long.
    #[error("kept silent for {} s", limit.as_secs())]
    Silent { limit: Duration },
    /// Nothing here says which key the host has.
    #[error("shows a key that nothing here knows: {said}")]
    HostKeyUnknown { said: String },
    /// The host has another key than the one that is known.
    #[error(
        "shows another key than the one that is known ({said}): either the host got a new key, which its operator can \
         confirm, or somebody stands between here and the host"
    )]
    HostKeyChanged { said: String },
    /// The host knows none of the keys that were offered.
    #[error("doesn't let us in with the keys that were offered: {said}")]
    KeyRefused { said: String },
    /// Both sides can do nothing in common.
    #[error("and this machine's ssh have no algorithm in common: {said}")]
    NoCommonAlgorithm { said: String },
    /// The host let us in, and refuses what was asked.
    #[error("refuses: {said}")]
    Answer { said: String },
}

impl SshProgramError {
    /// Whether somebody has to do something before this can work again. Anything else may pass by itself.
    pub fn needs_a_person(&self) -> bool {
        match self.problem {
            SshProblem::NameUnknown
            | SshProblem::Refused
            | SshProblem::Network { .. }
            | SshProblem::Cut { .. }
            | SshProblem::Silent { .. } => false,
            SshProblem::NoProgram { .. }
            | SshProblem::NotStarted { .. }
            | SshProblem::HostKeyUnknown { .. }
            | SshProblem::HostKeyChanged { .. }
            | SshProblem::KeyRefused { .. }
            | SshProblem::NoCommonAlgorithm { .. }
            | SshProblem::Answer { .. } => true,
        }
    }

    /// A stable name of the problem, in PascalCase as the reason of a condition.
    pub fn reason(&self) -> &'static str {
        match self.problem {
            SshProblem::NoProgram { .. } | SshProblem::NotStarted { .. } => "SshProgramMissing",
            SshProblem::NameUnknown => "NameUnknown",
            SshProblem::Refused => "ConnectionRefused",
            SshProblem::Network { .. } => "NetworkUnreachable",
            SshProblem::Cut { .. } => "ConnectionCut",
            SshProblem::Silent { .. } => "ConnectionStalled",
            SshProblem::HostKeyUnknown { .. } => "SshHostKeyUnknown",
            SshProblem::HostKeyChanged { .. } => "SshHostKeyChanged",
            SshProblem::KeyRefused { .. } => "SshKeyRefused",
            SshProblem::NoCommonAlgorithm { .. } => "SshNoCommonAlgorithm",
            SshProblem::Answer { .. } => "RequestRefused",
        }
    }
}

/// The exit status of an `ssh` that failed itself. What the host's command exits with is passed on, so a host could say
/// the same; nothing but a message hangs on it.
const OF_SSH: i32 = 255;

/// What OpenSSH (8.4 to 10) says of its own failures; `None` if it isn't among them.
pub(super) fn of_ssh(stderr: &str, code: Option<i32>) -> Option<SshProblem> {
    let has = |words: &[&str]| words.iter().any(|words| stderr.contains(words));
    let line = |words: &str| stderr.lines().find(|line| line.contains(words)).map(|line| clean(line.as_bytes()));
    let said = clean(stderr.as_bytes());
    if code != Some(OF_SSH) {
        return None;
    }
    Some(if has(&["REMOTE HOST IDENTIFICATION HAS CHANGED", "Offending "]) && has(&["verification failed"]) {
        let parts = [line("SHA256:"), line("Offending ")];
        let said = parts.into_iter().flatten().map(|part| part.trim_end_matches('.').to_owned()).collect::<Vec<_>>();
        SshProblem::HostKeyChanged { said: said.join("; ") }
    } else if has(&["Host key verification failed"]) {
        SshProblem::HostKeyUnknown { said }
    } else if has(&["Unable to negotiate with"]) {
        SshProblem::NoCommonAlgorithm { said: line("Unable to negotiate with").unwrap_or(said) }
    } else if has(&["Could not resolve hostname"]) {
        SshProblem::NameUnknown
    } else if has(&["Connection refused"]) {
        SshProblem::Refused
    } else if has(&["Permission denied (", "Too many authentication failures"]) {
        SshProblem::KeyRefused { said }
    } else if has(&["connect to host", "No route to host", "Network is unreachable"]) {
        SshProblem::Network { said }
    } else if has(&[
        "Connection closed",
        "closed by remote host",
        "Connection reset",
        "Broken pipe",
        "kex_exchange_identification",
        "Timeout, server",
        "Connection timed out",
    ]) {
        SshProblem::Cut { said }
    } else {
        return None;
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_openssh_are_told_apart_and_a_hosts_own_words_are_no_failure_of_ssh() {
        let changed = "@@@@@\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n@@@@@\nThe fingerprint for the \
                       ED25519 key sent by the remote host is\nSHA256:abc.\nOffending ED25519 key in /h/known_hosts:1\n\
                       Host key for h has changed and you have requested strict checking.\nHost key verification failed.\n";
        let reason = |text: &str, code| {
            let problem = of_ssh(text, code)?;
            Some(SshProgramError { url: String::new(), problem, source: None }.reason())
        };
        for (text, expected) in [
            (changed, "SshHostKeyChanged"),
            (
                "No ED25519 host key is known for h and you have requested strict checking.\nHost key verification failed.",
                "SshHostKeyUnknown",
            ),
            ("git@h: Permission denied (publickey).", "SshKeyRefused"),
            ("Received disconnect from ::1 port 22:2: Too many authentication failures", "SshKeyRefused"),
            (
                "Unable to negotiate with ::1 port 22: no matching host key type found. Their offer: ssh-dss",
                "SshNoCommonAlgorithm",
            ),
            ("ssh: Could not resolve hostname h: Name or service not known", "NameUnknown"),
            ("ssh: connect to host h port 22: Connection refused", "ConnectionRefused"),
            ("ssh: connect to host h port 22: Connection timed out", "NetworkUnreachable"),
            ("ssh: connect to host h port 22: No route to host", "NetworkUnreachable"),
            ("kex_exchange_identification: Connection closed by remote host", "ConnectionCut"),
            ("Timeout, server h not responding.", "ConnectionCut"),
        ] {
            assert_eq!(reason(text, Some(255)), Some(expected), "{text}");
            assert_eq!(reason(text, Some(128)), None, "the host's command said so: {text}");
        }
        let said = of_ssh(changed, Some(255)).expect("a failure").to_string();
        assert!(said.contains("(SHA256:abc; Offending ED25519 key in /h/known_hosts:1)"), "{said}");
        for text in ["fatal: '/a' does not appear to be a git repository", "FATAL: R any a b DENIED by fallthru", ""] {
            assert_eq!(of_ssh(text, Some(255)), None, "{text}");
        }
    }
}
