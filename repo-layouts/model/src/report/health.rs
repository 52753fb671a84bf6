//! The words of the heartbeat for how a component is.

use crate::words::words;

words! {
    /// How what runs of a component is.
    Health {
        Healthy "healthy" "All of it runs."
        Starting "starting" "Not yet, or it has only just started."
        Degraded "degraded" "A service ended, restarts again and again or is unhealthy, or somebody changed it."
        Missing "missing" "A service has no container."
        Unknown "unknown" "The runtime doesn't answer, or can't show it."
    }
}

words! {
    /// How what runs of a component differs from what was applied.
    Drift {
        None "none" "It doesn't."
        Missing "missing" "Something that was applied is gone."
        Stopped "stopped" "Something that was applied has ended or is paused, and its restart policy doesn't start it again."
        Changed "changed" "Somebody changed what was applied."
        Unknown "unknown" "The runtime doesn't answer, or can't show it."
    }
}
