//! Issues certificates of servers and clients, valid for a year, and checks existing ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use contract::secret::Secret;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData, SanType,
};

use super::certificate_authorities::new_key;
use super::{CertificateWithKey, Error, Leaf, examine};
use crate::host::files;

/// Certificates are valid for a year, as kubeadm's are.
const VALIDITY: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A certificate is created again if it expires within this time.
pub const RENEW_BEFORE: Duration = Duration::from_secs(90 * 24 * 60 * 60);

impl Leaf {
    /// A new key and a certificate for it, signed by `authority`. Writes nothing.
    pub fn issue(&self, authority: &CertificateWithKey, now: SystemTime) -> Result<CertificateWithKey, Error> {
        self.issue_for(authority, now, VALIDITY)
    }

    /// As [`Leaf::issue`], valid for `validity` from now on.
    pub fn issue_for(
        &self,
        authority: &CertificateWithKey,
        now: SystemTime,
        validity: Duration,
    ) -> Result<CertificateWithKey, Error> {
        let key = new_key(&self.common_name)?;
        let certificate = self.certify(&key, authority, now, validity)?;
        Ok(CertificateWithKey { certificate, key: Secret::new(key.serialize_pem()) })
    }

    /// A certificate for a key of another owner, in PEM.
    pub fn certify(
        &self,
        key: &impl PublicKeyData,
        authority: &CertificateWithKey,
        now: SystemTime,
        validity: Duration,
    ) -> Result<String, Error> {
        let make = |source| Error::Make { what: format!("the certificate of {}", self.common_name), source };
        let signer = KeyPair::from_pem(authority.key.expose()).map_err(make)?;
        let issuer = Issuer::from_ca_cert_pem(&authority.certificate, signer).map_err(make)?;
        let (begins, _) = examine::validity(&authority.certificate)?;
        Ok(self.params(begins, now + validity).map_err(make)?.signed_by(key, &issuer).map_err(make)?.pem())
    }

    /// The validity of a certificate starts with its CA's, whatever the clock is now. Therefore a clock that is ahead
    /// makes no certificate that is not valid yet.
    fn params(&self, begins: SystemTime, ends: SystemTime) -> Result<CertificateParams, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.not_before = begins.into();
        params.not_after = ends.into();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, self.common_name.as_str());
        if let Some(group) = &self.group {
            params.distinguished_name.push(DnType::OrganizationName, group.as_str());
        }
        for name in &self.names {
            params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into()?));
        }
        params.subject_alt_names.extend(self.addresses.iter().map(|address| SanType::IpAddress(*address)));
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        if self.server {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        if self.client {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
        }
        Ok(params)
    }

    /// Ensures that `<base>.crt` and `<base>.key` hold such a certificate of `authority`, valid for longer than
    /// [`RENEW_BEFORE`], and its key. Returns whether they were created again. After [`Error::Write`] the key may be
    /// the new one and the certificate the old one. Another call repairs that.
    pub fn ensure(&self, authority: &CertificateWithKey, base: &Path, now: SystemTime) -> Result<bool, Error> {
        let (certificate, key) = (beside(base, "crt"), beside(base, "key"));
        if let (Ok(present), Ok(secret)) = (fs::read_to_string(&certificate), fs::read_to_string(&key)) {
            let present = CertificateWithKey { certificate: present, key: Secret::new(secret) };
            match self.unfit(&present, authority, now) {
                None => return Ok(false),
                Some(reason) => log::info!("{} is made again: {reason}", certificate.display()),
            }
        }
        self.issue(authority, now)?.write(base)?;
        Ok(true)
    }

    /// The reason why `present` cannot stay in use. `None` if it can.
    pub(super) fn unfit(
        &self,
        present: &CertificateWithKey,
        authority: &CertificateWithKey,
        now: SystemTime,
    ) -> Option<String> {
        match examine::ExaminedCertificate::read(present, authority) {
            Err(error) => Some(error.to_string()),
            Ok(seen) if seen.leaf != *self => Some("its names, addresses or usages have changed".to_owned()),
            Ok(seen) if seen.not_after < now + RENEW_BEFORE => Some("it ends soon".to_owned()),
            Ok(seen) if seen.begins_late(now) => Some("it begins in the future".to_owned()),
            Ok(_) => None,
        }
    }
}

impl CertificateWithKey {
    /// Writes `<base>.key`, then `<base>.crt`. After an error the key may have been written.
    pub(super) fn write(&self, base: &Path) -> Result<(), Error> {
        for (extension, content, mode) in [("key", self.key.expose(), 0o600), ("crt", &*self.certificate, 0o644)] {
            let path = beside(base, extension);
            files::write_atomically(&path, content.as_bytes(), mode).map_err(|source| Error::Write { path, source })?;
        }
        Ok(())
    }
}

/// `<base>.<extension>`. A dot in the base's name stays.
pub(super) fn beside(base: &Path, extension: &str) -> PathBuf {
    let mut path = base.as_os_str().to_owned();
    path.push(".");
    path.push(extension);
    path.into()
}
