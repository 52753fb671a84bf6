//! Why a runtime operation failed, and what to do about it.

use std::path::PathBuf;

use repo_model::ErrorCode;

use super::command::CommandError;

/// A failed operation on one component. Texts never contain a secret parameter's value.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The archive, chart or an image can't be had now.
    #[error("{what} can't be fetched: {reason}")]
    ArtifactUnavailable {
        /// The archive, chart or image.
        what: String,
        /// The answer of registry or tool.
        reason: String,
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// It would have to be fetched, and only what is here was asked for.
    #[error("{what} isn't on this device")]
    NotHere { what: String },
    /// The archive or chart breaks a rule, or its tool can't read it.
    #[error("the archive of {what} is not valid: {reason}")]
    ArtifactInvalid { what: String, reason: String },
    /// The registry gives other bytes than those that were published.
    #[error("{what} has other bytes than when it was published: {reason}")]
    ArtifactDigestChanged {
        what: String,
        /// Which digest, wanted and found.
        reason: String,
    },
    /// A parameter's name isn't allowed.
    #[error("parameter `{name}`: {rule}")]
    ParameterInvalid { name: String, rule: &'static str },
    /// The application wants what the site doesn't allow, or what no application may have.
    #[error("`{project}` wants what isn't allowed here: {}", reasons.join("; "))]
    PolicyDenied {
        project: String,
        /// Everything that is denied, each with its place in the compose file.
        reasons: Vec<String>,
    },
    /// Something of that name exists and isn't ours; nothing was touched.
    #[error("{found} exists and isn't ours; to give the name free: {command}")]
    NotOurs {
        /// Kind and name of what exists.
        found: String,
        /// The command a person could use.
        command: String,
    },
    #[error("docker compose failed for `{project}`: {reason}")]
    ComposeFailed {
        project: String,
        /// The end of what the tool wrote, without secrets.
        reason: String,
    },
    /// Helm refused, or a hook of the chart failed.
    #[error("helm failed for `{release}`: {reason}")]
    HelmFailed {
        release: String,
        /// The end of what the tool wrote, without secrets.
        reason: String,
    },
    /// The tool, or what it talks to, doesn't answer.
    #[error("{tool} can't be used: {reason}")]
    RuntimeUnavailable {
        tool: &'static str,
        /// The end of what the tool wrote, without secrets.
        reason: String,
        #[source]
        source: Option<CommandError>,
    },
    /// A service didn't become healthy in time.
    #[error("service `{service}` of `{project}` is {state} after {seconds} s; its last words: {log}")]
    HealthTimeout {
        project: String,
        /// The first service that isn't good.
        service: String,
        state: String,
        /// How long was waited, in seconds.
        seconds: u64,
        /// The end of its log.
        log: String,
    },
    /// The objects of a release, or its hooks, weren't ready in time.
    #[error("release `{release}` isn't ready after {seconds} s: {reason}")]
    NotReady {
        release: String,
        /// How long was waited, in seconds.
        seconds: u64,
        /// The end of what the tool wrote, without secrets.
        reason: String,
    },
    /// Containers, networks, files or a release couldn't be removed.
    #[error("`{project}` can't be removed: {reason}")]
    RemovalFailed {
        /// The compose project or helm release.
        project: String,
        /// The end of what the tool wrote, without secrets.
        reason: String,
    },
    #[error("the disk is full: {reason}")]
    DiskFull { reason: String },
    /// The project's files on the device can't be read or written.
    #[error("can't {doing} `{}`", path.display())]
    Files {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The caller asked to stop: its work is outdated, or the program ends.
    #[error("stopped on request")]
    Cancelled,
}

impl RuntimeError {
    /// The code that a status gives (`repo-layouts/README.md`, *Error codes*).
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::ArtifactUnavailable { .. } => ErrorCode::ArtifactUnavailable,
            Self::NotHere { .. } => ErrorCode::WaitingWindow,
            Self::ArtifactInvalid { .. } => ErrorCode::ArtifactInvalid,
            Self::ArtifactDigestChanged { .. } => ErrorCode::ArtifactDigestChanged,
            Self::ParameterInvalid { .. } => ErrorCode::ParameterInvalid,
            Self::PolicyDenied { .. } => ErrorCode::PolicyDenied,
            Self::NotOurs { .. } => ErrorCode::NotOurs,
            Self::ComposeFailed { .. } => ErrorCode::ComposeFailed,
            Self::HelmFailed { .. } => ErrorCode::HelmFailed,
            Self::RuntimeUnavailable { .. } | Self::Files { .. } | Self::Cancelled => ErrorCode::RuntimeUnavailable,
            Self::HealthTimeout { .. } | Self::NotReady { .. } => ErrorCode::HealthTimeout,
            Self::RemovalFailed { .. } => ErrorCode::RemovalFailed,
            Self::DiskFull { .. } => ErrorCode::DiskFull,
        }
    }

    /// Whether it was waited long enough for something to become healthy.
    pub fn is_health_timeout(&self) -> bool {
        matches!(self, Self::HealthTimeout { .. } | Self::NotReady { .. })
    }

    /// Whether the same operation may succeed later without any change of input.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::ArtifactUnavailable { .. }
                | Self::NotHere { .. }
                | Self::RuntimeUnavailable { .. }
                | Self::RemovalFailed { .. }
                | Self::DiskFull { .. }
                | Self::Files { .. }
                | Self::Cancelled
        )
    }
}
