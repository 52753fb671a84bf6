//! The trailers that the contract names.

use crate::words::words;

words! {
    /// The key of a trailer. All but `Deployment`, `Rollout` and `State` stand once at most, and a repeated one counts as missing.
    Trailer {
        Kind "Kind" "The branch that the commit is for, so that it can't be replayed on another one."
        Fleet "Fleet" "The fleet's id."
        Device "Device" "The device's id; absent on `control`."
        Serial "Serial" "The serial of the desired state; on `status` and `heartbeat` 0 before the first adoption."
        ManifestVersion "Manifest-Version" "The `manifestVersion` of the desired state."
        ManifestDigest "Manifest-Digest" "The digest of `manifest.json`."
        EnvelopeDigest "Envelope-Digest" "The digest of `envelope.json`."
        FleetCommit "Fleet-Commit" "The newest commit of the fleet repository that had part in it."
        OperatorKey "Operator-Key" "The operator's key whose signature on that commit was verified, or `unverified`."
        Deployment "Deployment" "What changed of one deployment: `add`, `change` or `remove`, its two ids and the fleet commit."
        Cause "Cause" "Why there is a commit that no fleet commit caused."
        Continues "Continues" "The envelope digest and serial that a state made after a restore goes on from."
        Rollout "Rollout" "On `control` the number of the rollout that a decision is about; on `desired` that and the wave which released something of it, once for each rollout."
        DesiredCommit "Desired-Commit" "The commit on `desired` that the device adopted; absent before the first."
        Epoch "Epoch" "The number of the epoch of `status` that the commit begins, from 2."
        Previous "Previous" "The commit with which the epoch of `status` before ended."
        State "State" "A transition of a component, or of a deployment as a whole (`*`)."
        Decision "Decision" "What was decided about a rollout."
        Reason "Reason" "Why."
    }
}
