//! The CAs and the service account key of a cluster.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use contract::secret::Secret;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, SanType,
};
use serde::{Deserialize, Serialize};

use super::{BACKDATE, CertificateWithKey, Error};
use crate::host::files;

/// CAs are valid for ten years, as kubeadm's are.
const VALIDITY: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

/// The CAs of one cluster. A holder of them has all rights in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateAuthorities {
    /// Signs the API server's, the kubelets' and the administrators' certificates.
    pub kubernetes: CertificateWithKey,
    /// Signs the API server's requests to extension API servers.
    pub front_proxy: CertificateWithKey,
    /// Signs etcd's certificates and those of its clients.
    pub etcd: CertificateWithKey,
    /// Signs service account tokens.
    pub service_accounts: ServiceAccountKeys,
}

/// The key pair for signatures of service account tokens, in PEM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceAccountKeys {
    /// PKCS #8.
    pub key: Secret,
    /// SubjectPublicKeyInfo.
    pub public: String,
}

impl CertificateAuthorities {
    /// Creates the CAs of a new cluster. Writes nothing.
    pub fn make(now: SystemTime) -> Result<Self, Error> {
        let accounts = new_key("the service account key")?;
        Ok(Self {
            kubernetes: new_ca("kubernetes", now)?,
            front_proxy: new_ca("front-proxy-ca", now)?,
            etcd: new_ca("etcd-ca", now)?,
            service_accounts: ServiceAccountKeys {
                key: Secret::new(accounts.serialize_pem()),
                public: accounts.public_key_pem(),
            },
        })
    }

    /// Writes the CAs into the directory `pki`. Returns whether anything was missing. Files that exist must have the
    /// same content: after [`Error::Another`] nothing was changed. [`Error::Write`] may leave some of the files
    /// written. Another call completes them.
    pub fn ensure(&self, pki: &Path) -> Result<bool, Error> {
        let files = self.files();
        let mut missing = Vec::new();
        for (name, content, mode) in &files {
            let path = pki.join(name);
            match fs::read(&path) {
                Ok(present) if present == content.as_bytes() => {}
                Ok(_) => return Err(Error::Another { path }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push((path, content, *mode)),
                Err(source) => return Err(Error::Read { path, source }),
            }
        }
        for (path, content, mode) in &missing {
            files::write_atomically(path, content.as_bytes(), *mode)
                .map_err(|source| Error::Write { path: path.clone(), source })?;
        }
        Ok(!missing.is_empty())
    }

    pub fn read(pki: &Path) -> Result<Self, Error> {
        let text = |name: &str| {
            let path = pki.join(name);
            fs::read_to_string(&path).map_err(|source| Error::Read { path, source })
        };
        let pair = |name: &str| {
            Ok::<_, Error>(CertificateWithKey {
                certificate: text(&format!("{name}.crt"))?,
                key: Secret::new(text(&format!("{name}.key"))?),
            })
        };
        Ok(Self {
            kubernetes: pair("ca")?,
            front_proxy: pair("front-proxy-ca")?,
            etcd: pair("etcd/ca")?,
            service_accounts: ServiceAccountKeys { key: Secret::new(text("sa.key")?), public: text("sa.pub")? },
        })
    }

    /// Names, contents and permission bits. Keys come before certificates: kubeadm takes a certificate without its key
    /// for a CA whose key is kept elsewhere.
    fn files(&self) -> [(&'static str, &str, u32); 8] {
        [
            ("ca.key", self.kubernetes.key.expose(), 0o600),
            ("ca.crt", &self.kubernetes.certificate, 0o644),
            ("front-proxy-ca.key", self.front_proxy.key.expose(), 0o600),
            ("front-proxy-ca.crt", &self.front_proxy.certificate, 0o644),
            ("etcd/ca.key", self.etcd.key.expose(), 0o600),
            ("etcd/ca.crt", &self.etcd.certificate, 0o644),
            ("sa.key", self.service_accounts.key.expose(), 0o600),
            ("sa.pub", &self.service_accounts.public, 0o600),
        ]
    }
}

pub(super) fn new_key(what: &str) -> Result<KeyPair, Error> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|source| Error::Make { what: what.to_owned(), source })
}

/// A self-signed CA with the same fields as kubeadm's (`pkiutil.NewCertificateAuthority`, client-go
/// `cert.NewSelfSignedCACert`).
fn new_ca(name: &str, now: SystemTime) -> Result<CertificateWithKey, Error> {
    certified(name, &new_key(name)?, now)
}

/// For tests: the CA of a name with the key of another one, made at another time.
#[cfg(test)]
pub(super) fn with_key_of(other: &CertificateWithKey, name: &str, now: SystemTime) -> CertificateWithKey {
    certified(name, &KeyPair::from_pem(other.key.expose()).unwrap(), now).unwrap()
}

fn certified(name: &str, key: &KeyPair, now: SystemTime) -> Result<CertificateWithKey, Error> {
    let make = |source| Error::Make { what: format!("the CA {name}"), source };
    let mut params = CertificateParams::default();
    params.not_before = (now - BACKDATE).into();
    params.not_after = (now + VALIDITY).into();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.subject_alt_names = vec![SanType::DnsName(name.try_into().map_err(make)?)];
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment, KeyUsagePurpose::KeyCertSign];
    let certificate = params.self_signed(key).map_err(make)?;
    Ok(CertificateWithKey { certificate: certificate.pem(), key: Secret::new(key.serialize_pem()) })
}
