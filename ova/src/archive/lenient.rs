//! OVAs of any vendor.

use std::path::Path;

use super::error::Error;
use super::read::{Archive, Member};
use super::verify::why_not_imported;
use super::warning::Warning;
use crate::manifest::LenientManifest;
use crate::name;
use crate::ovf::Envelope;
use crate::signature::PublicKey;

/// An open OVA of any vendor, read as DSP0243 1.1 allows. Its members have been listed; nothing has been verified.
///
/// A type apart from [`Archive`], without access to descriptor and bytes: a file that was only inspected cannot reach
/// an import.
#[derive(Debug)]
pub struct LenientArchive(Archive);

/// The description in an OVA, and the parts that vSphere would refuse or ignore.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The descriptor.
    pub envelope: Envelope,
    /// The key that the signature claims. `None` if the signature is missing or cannot be read.
    pub claimed_key: Option<PublicKey>,
    /// Parts that vSphere would refuse or ignore.
    pub warnings: Vec<Warning>,
}

impl LenientArchive {
    /// Opens an OVA and lists its members. As [`Archive::open`], but each relative path is accepted as a name.
    pub fn open(path: &Path) -> Result<LenientArchive, Error> {
        Archive::open_with(path, name::check_relative).map(LenientArchive)
    }

    /// The members, in order.
    pub fn members(&self) -> &[Member] {
        self.0.members()
    }

    /// Reads descriptor, manifest and signature, and verifies none of them. Returns the resulting warnings.
    pub fn inspect(&self) -> Result<Report, Error> {
        self.report(&self.manifest())
    }

    /// Reads the whole archive once and checks it.
    ///
    /// - Members: against the descriptor.
    /// - Digests of files: against the manifest.
    /// - streamOptimized VMDKs: grain by grain.
    ///
    /// A part that DSP0243 allows and vSphere refuses or ignores is a warning. Memory is bounded as in
    /// [`crate::vmdk::verify`].
    ///
    /// # Errors
    /// As [`LenientArchive::inspect`]; if the manifest cannot be read or used; or all damage and all broken rules of
    /// DSP0243, at once.
    pub fn verify(&self) -> Result<Report, Error> {
        let manifest = self.manifest();
        let mut report = self.report(&manifest)?;
        let found = self.0.examine(&report.envelope.references, manifest?.as_ref())?;
        report.warnings.extend(found.accepted(&self.0)?);
        Ok(report)
    }

    /// Checks that `trusted` signed the manifest.
    pub fn verify_signature(&self, trusted: &PublicKey) -> Result<(), Error> {
        self.0.verify_signature(trusted)
    }

    fn manifest(&self) -> Result<Option<LenientManifest>, Error> {
        self.0.companion("mf").map(|member| Ok(LenientManifest::parse(&self.0.text(member)?)?)).transpose()
    }

    fn report(&self, manifest: &Result<Option<LenientManifest>, Error>) -> Result<Report, Error> {
        let listed = manifest.as_ref().ok().and_then(Option::as_ref);
        let envelope = self.0.read_descriptor(listed, Envelope::parse)?;
        let mut warnings = Vec::new();
        let mut warn = |code, message| warnings.push(Warning::new(code, message));
        match manifest {
            Ok(Some(manifest)) => {
                if manifest.is_weak() {
                    let reason = "the manifest has SHA-1 digests, which do not show each change; ask for SHA-256";
                    warn("weak-digest", reason.into());
                }
                if let Some(error) = &manifest.inexact {
                    warn("manifest-form", format!("{error}, and vCenter refuses others"));
                }
            }
            // Optional in DSP0243 1.1 §5.1.
            Ok(None) => warn("no-manifest", "it has no manifest: nothing shows whether files were changed".into()),
            Err(error) => warn("manifest", format!("files cannot be verified against the manifest: {error}")),
        }
        // The signature signs the manifest.
        let claimed_key = match self.0.companion("mf").map_or(Ok(None), |_| self.0.signature()) {
            Ok(signature) => signature.map(|signature| signature.claimed_key().clone()),
            Err(error @ Error::File { .. }) => return Err(error),
            // A signature with another digest or kind of key, which DSP0243 1.1 §5.1 allows.
            Err(error) => {
                warn("signature", format!("the signature cannot be verified: {error}"));
                None
            }
        };
        if let count @ 2.. = envelope.hardware_sections {
            let reason = format!("it has {count} hardware sections; vSphere may choose another one than the first");
            warn("hardware-sections", reason);
        }
        warnings.extend(envelope.references.files().iter().filter_map(why_not_imported));
        Ok(Report { envelope, claimed_key, warnings })
    }
}
