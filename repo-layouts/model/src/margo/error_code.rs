//! Why something failed or waits: stable codes, one table.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($variant:ident $text:literal $meaning:literal)*) => {
        /// `error.code` in a status: one of ours, or any other string that a reader must carry.
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(from = "String", into = "String")]
        pub enum ErrorCode {
            $(#[doc = $meaning] $variant,)*
            /// A code that isn't ours.
            Other(String),
        }

        impl ErrorCode {
            /// Every code of ours with what it means, in the order of the documentation.
            pub const TABLE: &[(Self, &str)] = &[$((Self::$variant, $meaning),)*];

            /// The stable string.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)*
                    Self::Other(text) => text,
                }
            }
        }

        impl From<String> for ErrorCode {
            fn from(text: String) -> Self {
                match text.as_str() {
                    $($text => Self::$variant,)*
                    _ => Self::Other(text),
                }
            }
        }
    };
}

codes! {
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
    CrashLoop "crash-loop" "The device was reset during each attempt."
    RemovalFailed "removal-failed" "The component can't be removed."
    RolledBack "rolled-back" "The last good inputs were put back."
    DependencyFailed "dependency-failed" "A deployment that this one depends on failed."
    DiskFull "disk-full" "There is no room on the device."
    Queued "queued" "Waits for its turn."
    WaitingWindow "waiting-window" "Waits for a maintenance window."
    WaitingDowntime "waiting-downtime" "Waits for the end of a known downtime."
    WaitingApproval "waiting-approval" "Waits for a person's approval."
    WaitingPolicy "waiting-policy" "Waits for the site's policy to allow it."
    WaitingDependency "waiting-dependency" "Waits for what this depends on: a component before it, or another deployment."
    Suspended "suspended" "The operator told the device to stop."
    Held "held" "The device's own site holds it back."
}

impl From<ErrorCode> for String {
    fn from(code: ErrorCode) -> Self {
        match code {
            ErrorCode::Other(text) => text,
            code => code.as_str().to_owned(),
        }
    }
}

impl FromStr for ErrorCode {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text.to_owned().into())
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
            assert_eq!(ErrorCode::from(text.to_owned()), *code);
        }
        assert_eq!(ErrorCode::TABLE.len(), 34);
        assert_eq!(ErrorCode::from("IEO-PULL".to_owned()).as_str(), "IEO-PULL");
    }
}
