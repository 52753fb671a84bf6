//! `enrolledBy` of a device's file: the batch token by which it came.

use repo_model::enrolment::Transcript;
use repo_model::yaml::Field;
use serde::{Deserialize, Serialize};

/// By what a device enrolled, in its file: anybody can verify it later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrolledBy {
    pub token: String,
    pub transcript: Transcript,
    /// An armoured signature by the token's key.
    pub proof: String,
}

/// Reads `enrolledBy` of a device's file.
pub(super) fn read(field: Field<'_>) -> Option<EnrolledBy> {
    field.mapping(|reader| {
        let token = reader.required("token", |field| {
            let name = field.clone().string()?;
            if is_token_name(&name) { Some(name) } else { field.fail("is no token's name") }
        });
        let transcript = reader.required("transcript", |field| {
            let transcript = Transcript::from_hex(&field.clone().string()?);
            transcript.or_else(|| field.fail("must be 64 lower-case hex digits"))
        });
        let proof = reader.required("proof", |field| {
            let proof = field.clone().string()?;
            let is_armoured = proof.starts_with("-----BEGIN SSH SIGNATURE-----") && proof.len() <= 4096;
            if is_armoured { Some(proof) } else { field.fail("must be an armoured SSH signature") }
        });
        Some(EnrolledBy { token: token?, transcript: transcript?, proof: proof? })
    })
}

/// Whether a token may have this name: it is a file's name, a part of commit messages, and a word of a command line.
pub fn is_token_name(name: &str) -> bool {
    (1..=63).contains(&name.len())
        && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || b"-_".contains(&c))
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
}
