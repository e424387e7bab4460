//! The image to upgrade to, out of its OVA. Everything is verified before anything is believed. The plan decides
//! whether its signer is to be trusted.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use contract::image::FullVersion;
use contract::minor::Minor;
use contract::swap::Image;
use ova::archive::{Archive, Error};
use ova::ovf::{Descriptor, Qualifier};
use ova::signature::PublicKey;
use schemars::JsonSchema;
use semver::VersionReq;
use serde::{Deserialize, Serialize};

use crate::hypervisor::ImageTemplate;

/// The property whose choices are the Kubernetes minor versions that an image carries.
const KUBERNETES: &str = contract::properties::KUBERNETES_VERSION;

/// A verified image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Target {
    /// Where the OVA is; empty for an image that has none here, and is only made from its imported template.
    pub ova: PathBuf,
    /// SHA-256 over the manifest's digests: the OVA by content.
    pub digest: String,
    pub name: String,
    /// Version and build.
    pub image: Image,
    /// The versions that it may replace. `None` for any that is not newer.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub upgrades_from: Option<VersionReq>,
    /// The minor version of etcd that it runs. `None` for an image from before this was stated.
    #[serde(default)]
    pub etcd: Option<Minor>,
    /// Kubernetes minor versions that it carries, such as `1.36`.
    pub kubernetes: Vec<String>,
    /// Fingerprint of the key that signed it, with a verified signature. `None` if it is not signed.
    pub signer: Option<String>,
}

impl Target {
    /// Reads all of an OVA and verifies it against its manifest, and the manifest against its signature.
    ///
    /// # Errors
    /// When it is damaged, its signature is not of its manifest, or it is no appliance that can be swapped in.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let path = path.canonicalize().with_context(|| format!("looking for the OVA {}", path.display()))?;
        let archive = Archive::open(&path)?;
        let (descriptor, manifest) = archive.verify()?;
        let signer = signer(&archive)?;
        let full = full_version(&descriptor).with_context(|| {
            format!("{} does not say clearly which image it holds; build it again with this release", path.display())
        })?;
        Ok(Self {
            digest: ImageTemplate::digest_of(&manifest),
            image: Image { version: full.version, build: full.build },
            upgrades_from: full.upgrades_from,
            etcd: full.etcd,
            kubernetes: kubernetes(&descriptor),
            name: descriptor.name,
            ova: path,
            signer: signer.map(|key| key.fingerprint().to_string()),
        })
    }

    /// Checks that a file is still the OVA of the plan.
    pub fn verify(&self, path: &Path) -> anyhow::Result<()> {
        if path.as_os_str().is_empty() {
            bail!("{} {} is not imported where the VM is to be put: push its OVA there", self.name, self.image);
        }
        let now = Self::read(path)?;
        if now.digest != self.digest || now.signer != self.signer {
            bail!("{} is not the OVA that was planned with ({} {})", path.display(), self.name, self.image);
        }
        Ok(())
    }
}

/// The signer's key: claimed by the file, proved by the signature. `None` if it is not signed.
fn signer(archive: &Archive) -> anyhow::Result<Option<PublicKey>> {
    let Some(signature) = archive.signature()? else { return Ok(None) };
    let key = signature.claimed_key().clone();
    match archive.verify_signature(&key) {
        Ok(()) => Ok(Some(key)),
        Err(Error::Unsigned { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn full_version(descriptor: &Descriptor) -> anyhow::Result<FullVersion> {
    let product = &descriptor.product;
    let full: FullVersion = product.full_version.as_deref().unwrap_or_default().parse().context("its full version")?;
    ensure!(full.version == product.version, "its version is {}, its full version {full}", product.version);
    Ok(full)
}

fn kubernetes(descriptor: &Descriptor) -> Vec<String> {
    let property = descriptor.product.properties().find(|property| property.key == KUBERNETES);
    let qualifiers = property.map(|property| property.qualifiers.as_slice()).unwrap_or_default();
    let choices = qualifiers.iter().find_map(|qualifier| match qualifier {
        Qualifier::ValueMap(choices) => Some(choices.clone()),
        _ => None,
    });
    choices.unwrap_or_default()
}

#[cfg(test)]
mod tests;
