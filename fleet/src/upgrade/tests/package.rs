//! The small OVA that the image of the fakes comes in.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ova::signature::Signer;
use tempfile::TempDir;
use testbed::{Appliance, few_properties};

use super::fake::new;
use crate::upgrade::Target;

/// A signed OVA of the fakes' image, and the directory that it goes with. It is read once for all tests that run
/// together.
pub fn shared() -> Arc<(TempDir, Target)> {
    static SHARED: Mutex<Weak<(TempDir, Target)>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let made = Arc::new(target());
        *shared = Arc::downgrade(&made);
        made
    })
}

fn target() -> (TempDir, Target) {
    // In memory where there is room: it is read thousands of times.
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let ova = write(directory.path(), &format!("0.2.0+{} (etcd 3.6)", new().build), Some(&signer()));
    let target = Target::read(&ova).unwrap();
    (directory, target)
}

/// A signer with a new key.
pub fn signer() -> Signer {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let certificate = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap().pem();
    Signer::from_pem(&key.serialize_pem(), &certificate).unwrap()
}

/// Writes the OVA of version 0.2.0 into a directory.
pub fn write(directory: &Path, full_version: &str, signer: Option<&Signer>) -> PathBuf {
    write_with(directory, full_version, signer, Vec::new())
}

/// The same, with variables that its VMs have from their first moment.
pub fn write_with(
    directory: &Path,
    full_version: &str,
    signer: Option<&Signer>,
    extra_config: Vec<(String, String)>,
) -> PathBuf {
    let name = "kaas-control-plane";
    Appliance { name, full_version, properties: few_properties(), extra_config, signer }.write(directory)
}
