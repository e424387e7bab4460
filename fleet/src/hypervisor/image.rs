//! An image as a hypervisor holds it: whoever makes VMs from it needs no file.

use ova::Sha256;
use ova::manifest::Manifest;
use serde::{Deserialize, Serialize};

/// An image that was laid ready: a template, an item of a content library, a directory. The hypervisor has held its
/// bytes against the digest when it took them. At each import it checks as much as it can see without reading them again: that
/// what it has is the one of this digest, whole, and where the reference says. What somebody with access to its storage
/// changes behind its back stays unseen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageTemplate {
    /// SHA-256 over the digests of the OVA's manifest, in hexadecimal: the OVA by content.
    pub digest: String,
    /// Where it is, in the hypervisor's words.
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
