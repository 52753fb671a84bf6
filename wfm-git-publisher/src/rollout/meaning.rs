//! What a deployment means on a device, as a digest, so that what it had, has and shall have can be compared.

use std::collections::BTreeMap;
use std::fmt;

use repo_model::desired::Desired;
use repo_model::envelope::EnvelopeDeployment;
use repo_model::margo::ApplicationDeployment;
use repo_model::{DeploymentName, Digest, json};
use serde::{Deserialize, Serialize};

/// What the deployments of a rollout mean on one device, together: 16 hex digits of a digest. A device that has none of them
/// has no such value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Meaning(String);

const DIGITS: usize = 16;

impl Meaning {
    /// That of some deployments, whatever their order; `None` if there are none.
    pub fn of<'a>(deployments: impl IntoIterator<Item = (&'a DeploymentName, Digest)>) -> Option<Self> {
        let all: BTreeMap<_, _> = deployments.into_iter().collect();
        let digest = Digest::of(&json::canonical(&all));
        (!all.is_empty()).then(|| Self(digest.hex()[..DIGITS].to_owned()))
    }
}

impl TryFrom<String> for Meaning {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_hex = text.len() == DIGITS && text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
        if is_hex { Ok(Self(text)) } else { Err("is no digest of 16 hex digits") }
    }
}

impl From<Meaning> for String {
    fn from(meaning: Meaning) -> Self {
        meaning.0
    }
}

impl fmt::Display for Meaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a document and what goes with it in the envelope mean. Whether it is suspended is no part of that: that is never held
/// back.
pub fn meaning(document: &ApplicationDeployment, envelope: &EnvelopeDeployment) -> Digest {
    let mut envelope = envelope.clone();
    envelope.policy.suspended = false;
    let mut bytes = document.plain_yaml();
    // No YAML has this byte.
    bytes.push(0);
    bytes.extend(json::canonical(&envelope));
    Digest::of(&bytes)
}

/// What these deployments mean together in a desired state.
pub fn meaning_of<'a>(desired: &Desired, deployments: impl IntoIterator<Item = &'a DeploymentName>) -> Option<Meaning> {
    let all = meanings(desired);
    Meaning::of(deployments.into_iter().filter_map(|name| Some((name, *all.get(name)?))))
}

/// What each deployment of a desired state means.
pub fn meanings(desired: &Desired) -> BTreeMap<DeploymentName, Digest> {
    let of = |(id, envelope): (_, &EnvelopeDeployment)| {
        let document = desired.deployments.get(id)?;
        Some((envelope.id.clone(), meaning(&document.deployment, envelope)))
    };
    desired.envelope.deployments.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> DeploymentName {
        text.parse().unwrap()
    }

    #[test]
    fn what_several_mean_depends_on_their_names_and_not_on_their_order() {
        let (a, b, one, two) = (name("a"), name("b"), Digest::of(b"1"), Digest::of(b"2"));
        assert_eq!(Meaning::of([(&a, one), (&b, two)]), Meaning::of([(&b, two), (&a, one)]));
        assert_ne!(Meaning::of([(&a, one), (&b, two)]), Meaning::of([(&a, two), (&b, one)]));
        assert_ne!(Meaning::of([(&a, one)]), Meaning::of([(&b, one)]));
        assert_eq!(Meaning::of([]), None);
        let text = String::from(Meaning::of([(&a, one)]).unwrap());
        assert_eq!(Meaning::try_from(text.clone()).map(String::from), Ok(text));
        assert!(Meaning::try_from("9F1C03D2A6B77E10".to_owned()).is_err());
    }
}
