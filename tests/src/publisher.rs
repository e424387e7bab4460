//! A publisher of releases.

use std::fs;
use std::path::PathBuf;

use ova::signature::PublicKey;
use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;

use crate::built_ova;

pub struct Publisher {
    directory: TempDir,
    /// Fingerprint of the key.
    pub fingerprint: String,
}

impl Publisher {
    /// A publisher with a new key.
    #[must_use]
    pub fn new() -> Self {
        Self::try_new().unwrap_or_else(|error| panic!("making a publisher: {error:#}"))
    }

    fn try_new() -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("publisher-").tempdir()?;
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(Vec::new())?.self_signed(&key)?.pem();
        let fingerprint = PublicKey::from_pem(&certificate)?.fingerprint().to_string();
        let publisher = Self { directory, fingerprint };
        fs::write(publisher.key(), key.serialize_pem())?;
        fs::write(publisher.certificate(), certificate)?;
        Ok(publisher)
    }

    /// Builds an OVA of a version and signs it.
    #[must_use]
    pub fn ova(&self, version: &str) -> PathBuf {
        let key = format!("--sign-key={}", self.key().display());
        let certificate = format!("--sign-certificate={}", self.certificate().display());
        let built = built_ova::build(version, self.directory.path(), &[key, certificate]);
        built.unwrap_or_else(|error| panic!("building a signed OVA {version}: {error:#}"))
    }

    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.directory.path().join("certificate.pem")
    }

    fn key(&self) -> PathBuf {
        self.directory.path().join("key.pem")
    }
}

impl Default for Publisher {
    fn default() -> Self {
        Self::new()
    }
}
