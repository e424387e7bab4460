//! An image that a hypervisor stores, so that VMs can be made without the OVA file.

use ova::Sha256;
use ova::manifest::Manifest;
use serde::{Deserialize, Serialize};

/// An imported image: a template, an item of a content library or a directory. The hypervisor compared the bytes with
/// the digest when it imported them. At each use it checks without reading the bytes again: digest, completeness and
/// place. A change that bypasses the hypervisor, directly on its storage, is not detected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageTemplate {
    /// SHA-256 over the digests of the OVA's manifest, in hexadecimal: the OVA by content.
    pub digest: String,
    /// Where the image is, in the hypervisor's notation.
    pub reference: String,
}

impl ImageTemplate {
    /// The digest of the OVA with this manifest.
    pub fn digest_of(manifest: &Manifest) -> String {
        let line = |entry: &ova::manifest::Entry| format!("{} {}\n", entry.digest, entry.name);
        let lines: String = manifest.entries().iter().map(line).collect();
        Sha256::of(lines.as_bytes()).to_string()
    }
}
