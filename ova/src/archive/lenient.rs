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
/// Apart from [`Archive`], so that what only has to be shown or judged never reaches an import: it gives no descriptor
/// and no bytes.
#[derive(Debug)]
pub struct LenientArchive(Archive);

/// What an OVA says of itself, and what vSphere would refuse or ignore of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The descriptor.
    pub envelope: Envelope,
    /// The key that the signature claims; none if there is no signature, or none that can be read.
    pub claimed_key: Option<PublicKey>,
    /// What vSphere would refuse or ignore.
    pub warnings: Vec<Warning>,
}

impl LenientArchive {
    /// Opens an OVA and lists its members.
    ///
    /// # Errors
    /// As [`Archive::open`], but for names: each relative path is accepted.
    pub fn open(path: &Path) -> Result<LenientArchive, Error> {
        Archive::open_with(path, name::check_relative).map(LenientArchive)
    }

    /// The members, in order.
    pub fn members(&self) -> &[Member] {
        self.0.members()
    }

    /// Reads descriptor, manifest and signature, and verifies none of them. Gives the warnings that they lead to.
    ///
    /// # Errors
    /// When the descriptor cannot be read or used.
    pub fn inspect(&self) -> Result<Report, Error> {
        self.report(&self.manifest())
    }

    /// Reads the whole archive once and checks it: the members against the descriptor, each file's digest against the
    /// manifest, and each streamOptimized VMDK, grain by grain.
    ///
    /// What DSP0243 allows and vSphere refuses or ignores is a warning. Memory is bounded as [`crate::vmdk::verify`] says.
    ///
    /// # Errors
    /// As [`LenientArchive::inspect`]; when the manifest cannot be read or used; or all that is damaged or breaks the
    /// rules of DSP0243, at once.
    pub fn verify(&self) -> Result<Report, Error> {
        let manifest = self.manifest();
        let mut report = self.report(&manifest)?;
        let found = self.0.examine(&report.envelope.references, manifest?.as_ref())?;
        report.warnings.extend(found.accepted(&self.0)?);
        Ok(report)
    }

    /// Checks that `trusted` signed the manifest.
    ///
    /// # Errors
    /// As [`Archive::verify_signature`].
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
        // It is the manifest that is signed.
        let claimed_key = match self.0.companion("mf").map_or(Ok(None), |_| self.0.signature()) {
            Ok(signature) => signature.map(|signature| signature.claimed_key().clone()),
            Err(error @ Error::File { .. }) => return Err(error),
            // Of another digest or kind of key, which DSP0243 1.1 §5.1 allows.
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
