//! OpenPGP (RFC 9580): which key may sign, and whether it did.

use jiff::Timestamp;
use pgp::composed::{Deserializable, DetachedSignature, SignedPublicKey, SignedPublicSubKey};
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{KeyFlags, Signature, SignatureType};
use pgp::types::{Duration, KeyDetails, Tag};

use super::VendorSignatureError as Error;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The keys of one armoured block.
#[derive(Debug)]
pub struct OpenPgpKey(Vec<SignedPublicKey>);

impl OpenPgpKey {
    pub(super) fn read(text: &str) -> Result<Self, Cause> {
        let (keys, _) = SignedPublicKey::from_armor_many(text.trim().as_bytes())?;
        let keys: Vec<_> = keys.collect::<Result<_, _>>()?;
        if keys.is_empty() { Err("there is no key in it".into()) } else { Ok(Self(keys)) }
    }

    /// Checks the armoured signatures: one that is right suffices. The fingerprint is that of the primary key, which
    /// stays when its subkeys change.
    pub(super) fn verify(&self, bytes: &[u8], armoured: &str, now: Timestamp) -> Result<String, Error> {
        let malformed = |error: pgp::errors::Error| Error::Malformed(Some(error.into()));
        let (signatures, _) = DetachedSignature::from_armor_many(armoured.trim().as_bytes()).map_err(malformed)?;
        let signatures: Vec<_> = signatures.collect::<Result<_, _>>().map_err(malformed)?;
        let mut first = None;
        for DetachedSignature { signature } in &signatures {
            match self.verify_one(bytes, signature, now) {
                Ok(fingerprint) => return Ok(fingerprint),
                // What is wrong with a signature of the vendor's tells more than that there is a stranger's too.
                Err(error) if matches!(first, None | Some(Error::OtherKey { .. })) => first = Some(error),
                Err(_) => {}
            }
        }
        Err(first.unwrap_or(Error::Malformed(None)))
    }

    fn verify_one(&self, bytes: &[u8], signature: &Signature, now: Timestamp) -> Result<String, Error> {
        if signature.typ() != Some(SignatureType::Binary) {
            return Err(Error::Malformed(None));
        }
        let hash = signature.hash_alg();
        if matches!(hash, None | Some(HashAlgorithm::Md5 | HashAlgorithm::Sha1 | HashAlgorithm::Ripemd160)) {
            return Err(Error::Weak(hash.map_or("an unknown hash".to_owned(), |hash| hash.to_string())));
        }
        let signed = self.0.iter().find_map(|key| match key.public_subkeys.iter().find(|one| made(signature, *one)) {
            Some(subkey) => Some((key, Some(subkey))),
            None => made(signature, &key.primary_key).then_some((key, None)),
        });
        let Some((key, subkey)) = signed else {
            let wanted = self.0.iter().map(|key| shown(&key.primary_key)).collect::<Vec<_>>().join(" or ");
            return Err(Error::OtherKey { found: issuer(signature), wanted });
        };
        let primary = shown(&key.primary_key);
        check_primary(key, subkey.is_none(), now)?;
        let verified = match subkey {
            Some(subkey) => {
                check_subkey(key, subkey, now)?;
                signature.verify(&subkey.key, bytes)
            }
            None => signature.verify(&key.primary_key, bytes),
        };
        verified.map_err(|_| Error::Mismatch(primary.clone()))?;
        match end(signature.created(), signature.signature_expiration_time()) {
            Some(at) if at <= now => Err(Error::Expired(at)),
            _ => Ok(primary),
        }
    }
}

/// Whether the signature says that this key made it.
fn made(signature: &Signature, key: &impl KeyDetails) -> bool {
    match signature.issuer_fingerprint().as_slice() {
        [] => signature.issuer_key_id().contains(&&key.legacy_key_id()),
        fingerprints => fingerprints.contains(&&key.fingerprint()),
    }
}

fn issuer(signature: &Signature) -> String {
    let fingerprint = signature.issuer_fingerprint().first().map(ToString::to_string);
    let id = || signature.issuer_key_id().first().map(ToString::to_string);
    fingerprint.or_else(id).unwrap_or_else(|| "that it doesn't name".to_owned()).to_uppercase()
}

fn shown(key: &impl KeyDetails) -> String {
    key.fingerprint().to_string().to_uppercase()
}

/// Whether the primary key stands behind anything now, and behind files if it `signs` them itself.
fn check_primary(key: &SignedPublicKey, signs: bool, now: Timestamp) -> Result<(), Error> {
    let (primary, details) = (&key.primary_key, &key.details);
    if details.revocation_signatures.iter().any(|one| one.verify_key(primary).is_ok()) {
        return Err(Error::KeyRevoked(shown(primary)));
    }
    let users = details.users.iter().flat_map(|user| {
        let good = |one: &&Signature| one.verify_certification(primary, Tag::UserId, &user.id).is_ok();
        let mut all: Vec<_> = user.signatures.iter().filter(good).collect();
        all.sort_by_key(|one| one.created());
        // A name that was called back says nothing more.
        all.pop().filter(|newest| newest.typ() != Some(SignatureType::CertRevocation))
    });
    let direct = details.direct_signatures.iter().filter(|one| one.verify_key(primary).is_ok());
    let Some(newest) = users.chain(direct).max_by_key(|one| one.created()) else {
        let reason = "it has no valid signature of its own";
        return Err(Error::KeyUnusable { key: shown(primary), reason });
    };
    check_end(primary, newest, now)?;
    let flags = newest.key_flags();
    if signs && flags != KeyFlags::default() && !flags.sign() {
        return Err(Error::KeyUnusable { key: shown(primary), reason: "it isn't meant for signing" });
    }
    Ok(())
}

/// Whether the primary key lets this one sign files now, and this one agrees.
fn check_subkey(key: &SignedPublicKey, subkey: &SignedPublicSubKey, now: Timestamp) -> Result<(), Error> {
    let primary = &key.primary_key;
    let bound = subkey.signatures.iter().filter(|one| one.verify_subkey_binding(primary, &subkey.key).is_ok());
    let (revoked, bound): (Vec<_>, Vec<_>) = bound.partition(|one| one.typ() == Some(SignatureType::SubkeyRevocation));
    if !revoked.is_empty() {
        return Err(Error::KeyRevoked(shown(&subkey.key)));
    }
    let back = |one: &Signature| {
        one.embedded_signature().is_some_and(|back| back.verify_primary_key_binding(&subkey.key, primary).is_ok())
    };
    let newest = bound.into_iter().max_by_key(|one| one.created());
    match newest.filter(|one| one.key_flags().sign() && back(one)) {
        Some(binding) => check_end(&subkey.key, binding, now),
        None => Err(Error::KeyUnusable { key: shown(&subkey.key), reason: "its owner doesn't let it sign" }),
    }
}

/// Whether the key's life, as this signature of its owner says, still lasts.
fn check_end(key: &impl KeyDetails, says: &Signature, now: Timestamp) -> Result<(), Error> {
    match end(Some(key.created_at()), says.key_expiration_time()) {
        Some(at) if at <= now => Err(Error::KeyExpired { key: shown(key), at }),
        _ => Ok(()),
    }
}

/// When something that was made then and lives so long ends; a life of zero is endless.
fn end(made: Option<pgp::types::Timestamp>, life: Option<Duration>) -> Option<Timestamp> {
    let (made, life) = (made?.as_secs(), life?.as_secs());
    let end = i64::from(made).checked_add(i64::from(life))?;
    (life > 0).then(|| Timestamp::from_second(end).ok()).flatten()
}
