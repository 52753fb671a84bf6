//! A package in a registry: which file each of its parts is (Margo, *Application Registry*).

use repo_artifacts::{PackagePart, PackageReference, PulledPackage};
use repo_model::Digest;
use repo_model::margo::ApplicationDescription;

use super::error::AppError;
use crate::fleet::{MARGO_YAML, Package, PackageFile};
use crate::repos::Registries;

/// Gets the package, and the digest of its manifest.
pub(super) fn pull(origin: &PackageReference, registries: &Registries) -> Result<(Package, Digest), AppError> {
    let pulled = registries.pull_package(origin)?;
    let manifest = pulled.manifest;
    Ok((assemble(&origin.to_string(), pulled)?, manifest))
}

/// The files of the parts: `margo.yaml` is known by its media type, all others by their titles, or else by the key of the
/// description that names them.
fn assemble(from: &str, pulled: PulledPackage) -> Result<Package, AppError> {
    let refused = |part: &PackagePart, why| AppError::Part { from: from.to_owned(), part: part.digest, why };
    let description = pulled.parts.iter().find(|part| part.is_description);
    let description = description.and_then(|part| ApplicationDescription::read(MARGO_YAML, &part.bytes).ok());
    let named = |key: &str| {
        let below = key.strip_prefix("metadata.catalog.")?;
        let mut value = description.as_ref()?.0.catalog.as_ref()?;
        for part in below.split('.') {
            value = value.get(part)?;
        }
        value.as_str().map(str::to_owned)
    };
    let mut package = Package::default();
    for part in pulled.parts {
        let path = match (&part.title, &part.resource) {
            _ if part.is_description => Some(MARGO_YAML.to_owned()),
            (Some(title), _) => Some(title.clone()),
            (None, resource) => resource.as_deref().and_then(named),
        };
        let path = path.ok_or_else(|| refused(&part, "nothing says which file it is"))?;
        let path = path.strip_prefix("./").unwrap_or(&path).to_owned();
        if package.files.contains_key(&path) {
            return Err(refused(&part, "there are two of this file"));
        }
        package.files.insert(path, PackageFile::new(part.bytes, 0o644));
    }
    Ok(package)
}
