//! The OVA: an OVF package in one tar file.
//!
//! Source: DSP0243 1.1 §5.3 and POSIX.1-1988 ustar. The descriptor comes first, then the manifest, the signature if
//! there is one, and the disks in the order of the descriptor's References. Importers read the file once, from the
//! front. Other tools may put manifest and signature behind the disks.
//!
//! Two types read OVAs. [`Archive`] is for the product's own. It accepts only the forms that the product writes: each
//! [`Warning`] is an error, except `hardware-sections` and `signature`. [`LenientArchive`] is for those of any vendor.
//! It accepts what DSP0243 allows, and returns the warnings.

use std::path::{Path, PathBuf};

mod error;
mod header;
mod lenient;
mod read;
#[cfg(test)]
mod tests;
mod verify;
mod warning;
mod write;

pub use error::Error;
pub use lenient::{LenientArchive, Report};
pub use read::{Archive, Member, MemberReader};
pub use warning::Warning;
pub use write::{Package, WrittenOva, write};

/// The paths of the list of parts (SPDX) of an OVA and of its signature: `NAME.spdx.json` and `NAME.spdx.cert`. They
/// are no members, because vCenter would upload each file that a descriptor names.
pub fn sbom_of(ova: &Path) -> (PathBuf, PathBuf) {
    (ova.with_extension("spdx.json"), ova.with_extension("spdx.cert"))
}
