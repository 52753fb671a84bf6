//! The conditions of `syncer.json`: their types, and the reasons that the contract gives for each.

use serde::{Deserialize, Serialize};

use crate::ErrorCode;
use crate::words::{as_text, words};

/// Something that is so until it isn't, in the form of Kubernetes' conditions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Condition {
    /// A [`ConditionType`], or what another syncer says.
    #[serde(rename = "type")]
    pub kind: String,
    /// A [`Reason`], or what another syncer says.
    pub reason: String,
    /// One sentence for a person.
    pub message: String,
}

words! {
    ConditionType {
        Stalled "Stalled" "It needs a person or a new commit; what runs keeps running."
        Waiting "Waiting" "It needs somebody to do something first."
        Stale "Stale" "The host may be showing an old state."
        AncestryUnverified "AncestryUnverified" "The descent of the accepted state wasn't checked."
        RuntimeUnavailable "RuntimeUnavailable" "What runs can't be observed or changed now."
        CapabilitiesInvalid "CapabilitiesInvalid" "The device's own configuration describes it in a way that Margo has no word for."
        SandboxUnavailable "SandboxUnavailable" "What reads applications' files isn't kept from the rest of the host."
        HookFailed "HookFailed" "What the site asks before a change gave no answer."
        PolicyViolated "PolicyViolated" "Something runs that the site doesn't admit, or not any more; it isn't put back."
        RequestRefused "RequestRefused" "The fleet asks for something that the site doesn't let it ask for."
        SiteRefused "SiteRefused" "The site's list of approvals isn't believed; the one before still counts until it expires."
        CloneDamaged "CloneDamaged" "The clone couldn't be read in full and was made anew; stays until a higher serial is adopted."
        SecurityEvent "SecurityEvent" "Something that an auditor should know; stays until the next adoption."
    }
}

impl ConditionType {
    /// Whether the device can't do what is desired for as long as it is so; the others are for auditors.
    pub const fn is_in_the_way(self) -> bool {
        matches!(self, Self::Stalled | Self::Waiting | Self::Stale | Self::RuntimeUnavailable | Self::HookFailed)
    }
}

macro_rules! reasons {
    ($($kind:ident $variant:ident $meaning:literal)+) => {
        /// The reason of a condition: an error code's words, or a word of the contract's table of conditions.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            /// A code of the table of error codes.
            Code(ErrorCode),
            $(#[doc = concat!("`", stringify!($kind), "`: ", $meaning)] $variant,)+
        }

        impl Reason {
            /// Every reason that is no error code, with the type of condition that has it.
            pub const TABLE: &[(ConditionType, Self)] = &[$((ConditionType::$kind, Self::$variant),)+];

            /// The exact text, as it is written and compared: in PascalCase also where an error code is behind it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    Self::Code(code) => code.pascal_case(),
                    $(Self::$variant => stringify!($variant),)+
                }
            }
        }
    };
}

reasons! {
    Stalled FetchFailed "the tip of `desired` is over the device's limits, or damaged."
    Stalled AcceptedLost "what was accepted can't be read on the device, and the host doesn't show it."
    Waiting NotEnrolled "the host has no `desired` for this device yet."
    Waiting NotListed "the newest `desired` that is believed doesn't list the device's key; never pushed."
    Stale Expired "no proof of freshness still holds."
    Stale ProofRefused "the times of the host's proof of freshness contradict the contract."
    AncestryUnverified ShallowHistory "history isn't at hand."
    RuntimeUnavailable ProjectUnreadable "what runs of one component can't be observed."
    CapabilitiesInvalid LeftOut "some of the configuration isn't reported."
    SandboxUnavailable NoLandlockAndNotRoot "neither the kernel nor another user id takes rights away."
    HookFailed NoAnswer "it can't be run, took too long, or ended with something else than 0 and 1."
    HookFailed NotTold "it couldn't be told what came of what it let through."
    PolicyViolated NotAdmitted "what runs was applied before the site said so, or became something else by itself."
    RequestRefused NotAllowed "`remote` of the device's own configuration doesn't allow it."
    SiteRefused Unreadable "it can't be read, or breaks a rule of the branch."
    SiteRefused OutOfTime "it has expired, or would count for too long."
    SiteRefused Unavailable "it can't be fetched or kept, or what is kept of the lists before can't be read."
    CloneDamaged SetAside "the damaged clone lies beside the new one."
    SecurityEvent HistoryContinued "the accepted commit doesn't descend from the one before, and continues it."
    SecurityEvent HistoryAccepted "a person at the device accepted a rewritten history."
    SecurityEvent StatusReplaced "a tip of `status` that no allowed key signed was replaced."
    SecurityEvent SiteForked "a key of the site signed two lists with one serial."
    SecurityEvent FloorLost "the floor was made anew from the clone or the join file."
}

as_text!(Reason);

impl From<ErrorCode> for Reason {
    fn from(code: ErrorCode) -> Self {
        Self::Code(code)
    }
}
