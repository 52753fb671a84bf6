//! Why something failed or waits: stable codes, one table.

use serde::{Deserialize, Serialize};

use crate::words::words;

words! {
    /// A code of the contract's table: `error.code` in a status, in PascalCase the reason of a condition, or why a desired
    /// state is refused.
    ErrorCode {
        ManifestInvalid "manifest-invalid" "The State Manifest or the envelope can't be read, or contradicts itself."
        SerialRollback "serial-rollback" "The serial or manifest version is not above the floor."
        HistoryRewritten "history-rewritten" "The tip doesn't descend from what the device adopted."
        HistoryForked "history-forked" "Two devices write the status of one identity."
        SignatureInvalid "signature-invalid" "A commit is unsigned, or signed by a key that isn't allowed."
        TrustInvalid "trust-invalid" "The trust roster can't be followed from the pinned one."
        WrongDevice "wrong-device" "The desired state is for another device or fleet."
        LayoutTooNew "layout-too-new" "The layout or a required feature is newer than this syncer."
        DigestMismatch "digest-mismatch" "A file's bytes don't have the digest that is recorded for them."
        DeploymentInvalid "deployment-invalid" "The ApplicationDeployment can't be read."
        ParameterInvalid "parameter-invalid" "A parameter's value or target can't be used."
        SecretUnreadable "secret-unreadable" "An encrypted value can't be read with the device's key."
        CapabilityMissing "capability-missing" "The device lacks what the deployment needs."
        ArtifactUnavailable "artifact-unavailable" "The component's package can't be fetched now."
        ArtifactInvalid "artifact-invalid" "The component's package is malformed or unsafe."
        ArtifactDigestChanged "artifact-digest-changed" "The package's bytes are not those that were published."
        PolicyDenied "policy-denied" "The site's policy doesn't allow it."
        NotOurs "not-ours" "A project or release of that name exists and isn't ours."
        HelmFailed "helm-failed" "Helm refused or failed, or a hook of the chart did."
        ComposeFailed "compose-failed" "Docker Compose refused or failed."
        RuntimeUnavailable "runtime-unavailable" "The runtime doesn't answer."
        HealthTimeout "health-timeout" "The component didn't become healthy in time."
        CrashLoop "crash-loop" "The device was reset during each attempt, or soon after it."
        RemovalFailed "removal-failed" "The component can't be removed."
        RolledBack "rolled-back" "The last good inputs were put back."
        RollbackFailed "rollback-failed" "The last good inputs can't be put back."
        DependencyFailed "dependency-failed" "A deployment that this one depends on failed."
        DiskFull "disk-full" "There is no room on the device."
        Queued "queued" "Waits for its turn."
        WaitingWindow "waiting-window" "Waits for a maintenance window."
        WaitingDowntime "waiting-downtime" "Waits for the end of a known downtime."
        WaitingApproval "waiting-approval" "Waits for a person's approval."
        WaitingPolicy "waiting-policy" "Waits for the site's policy to allow it."
        Drifted "drifted" "It isn't as it was applied, and is only reported so (`drift: report`)."
        WaitingDependency "waiting-dependency" "Waits for what this depends on: a component before it, or another deployment."
        Suspended "suspended" "The operator told the device to stop."
        Held "held" "The device's own site holds it back."
        RestartRequested "restart-requested" "It is restarted, because the fleet or a person at the device asks for it."
    }
}

/// `error.code` of a status as somebody wrote it: one of ours, or any other string, which a reader carries.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum ReportedCode {
    /// A code of the table.
    Known(ErrorCode),
    /// A code that isn't ours.
    Other(String),
}

impl ReportedCode {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(code) => code.as_str(),
            Self::Other(text) => text,
        }
    }
}

impl From<String> for ReportedCode {
    fn from(text: String) -> Self {
        ErrorCode::parse(&text).map_or(Self::Other(text), Self::Known)
    }
}

impl From<ErrorCode> for ReportedCode {
    fn from(code: ErrorCode) -> Self {
        Self::Known(code)
    }
}

impl From<ReportedCode> for String {
    fn from(code: ReportedCode) -> Self {
        match code {
            ReportedCode::Known(code) => code.into(),
            ReportedCode::Other(text) => text,
        }
    }
}

impl std::fmt::Display for ReportedCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_kebab_case_and_reads_back() {
        for (code, _) in ErrorCode::TABLE {
            let text = code.as_str();
            assert!(text.bytes().all(|c| c.is_ascii_lowercase() || c == b'-'), "{text}");
            assert_eq!(ErrorCode::parse(text), Some(*code));
            let words = text.split('-').map(|word| word[..1].to_uppercase() + &word[1..]);
            assert_eq!(code.pascal_case(), words.collect::<String>());
            assert_eq!(ReportedCode::from(text.to_owned()), ReportedCode::Known(*code));
        }
        assert_eq!(ErrorCode::TABLE.len(), 38);
        assert_eq!(ReportedCode::from("IEO-PULL".to_owned()).as_str(), "IEO-PULL");
    }

    #[test]
    fn a_code_stands_wherever_its_text_may() {
        let code = ErrorCode::NotOurs;
        assert_eq!(serde_json::to_string(&code).unwrap(), "\"not-ours\"");
        assert_eq!(format!("{code:>10}|{}", String::from(code)), "  not-ours|not-ours");
        let (word, other) = ("not-ours".to_owned(), "held");
        assert!(word == code && code != other);
    }
}
