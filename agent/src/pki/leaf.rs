//! Certificates of servers and clients, valid for a year.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};

use super::authorities::new_key;
use super::{BACKDATE, Certified, Error, examine};
use crate::config::ControlNode;
use crate::files;
use crate::secret::Secret;

/// Certificates are valid for a year, as kubeadm's are.
const VALIDITY: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A certificate is made anew when it ends within this time.
pub const RENEW_BEFORE: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// What a certificate says of its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The common name: to the API server, the user's name.
    pub common_name: String,
    /// The organization: to the API server, a group of the user.
    pub group: Option<String>,
    /// DNS names that a server answers to.
    pub names: BTreeSet<String>,
    /// Addresses that a server answers at.
    pub addresses: BTreeSet<IpAddr>,
    /// Whether the holder serves TLS.
    pub server: bool,
    /// Whether the holder connects to TLS servers.
    pub client: bool,
}

impl Leaf {
    /// etcd of `node` towards its clients. etcd connects to itself with this
    /// certificate as well (its JSON gateway), hence the client usage.
    pub fn etcd_server(node: &ControlNode) -> Self {
        Self {
            common_name: node.name.clone(),
            group: None,
            names: [node.name.clone(), "localhost".to_owned()].into(),
            addresses: [IpAddr::V4(node.address), IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]
                .into(),
            server: true,
            client: true,
        }
    }

    /// etcd of `node` towards the other members, in both directions.
    pub fn etcd_peer(node: &ControlNode) -> Self {
        Self::etcd_server(node)
    }

    /// The agent's own look at etcd.
    pub fn etcd_healthcheck_client() -> Self {
        Self::client("kube-etcd-healthcheck-client")
    }

    /// The API server towards etcd.
    pub fn apiserver_etcd_client() -> Self {
        Self::client("kube-apiserver-etcd-client")
    }

    /// kube-proxy as a host service. The API server's built-in binding
    /// `system:node-proxier` names this user.
    pub fn kube_proxy() -> Self {
        Self::client("system:kube-proxy")
    }

    /// The pod network as a host service.
    pub fn pod_network() -> Self {
        Self::client("system:kaas:pod-network")
    }

    /// A client, known by its name alone.
    pub fn client(name: &str) -> Self {
        Self {
            common_name: name.to_owned(),
            group: None,
            names: BTreeSet::new(),
            addresses: BTreeSet::new(),
            server: false,
            client: true,
        }
    }

    /// A new key and a certificate for it, signed by `authority`. Nothing is written.
    ///
    /// # Errors
    /// [`Error::Make`] when the authority cannot sign or a name is not ASCII.
    pub fn issue(&self, authority: &Certified, now: SystemTime) -> Result<Certified, Error> {
        self.issue_for(authority, now, VALIDITY)
    }

    /// As [`Leaf::issue`], valid for `validity` from now on.
    ///
    /// # Errors
    /// As [`Leaf::issue`].
    pub fn issue_for(&self, authority: &Certified, now: SystemTime, validity: Duration) -> Result<Certified, Error> {
        let make = |source| Error::Make { what: format!("the certificate of {}", self.common_name), source };
        let signer = KeyPair::from_pem(authority.key.expose()).map_err(make)?;
        let issuer = Issuer::from_ca_cert_pem(&authority.certificate, signer).map_err(make)?;
        let key = new_key(&self.common_name)?;
        let certificate = self.params(now, validity).map_err(make)?.signed_by(&key, &issuer).map_err(make)?;
        Ok(Certified { certificate: certificate.pem(), key: Secret::new(key.serialize_pem()) })
    }

    fn params(&self, now: SystemTime, validity: Duration) -> Result<CertificateParams, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.not_before = (now - BACKDATE).into();
        params.not_after = (now + validity).into();
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

    /// Sees to it that `<base>.crt` and `<base>.key` hold such a certificate of
    /// `authority`, good for longer than [`RENEW_BEFORE`], and its key. Says
    /// whether they were made anew.
    ///
    /// # Errors
    /// As [`Leaf::issue`], and [`Error::Write`]: the key may then be the new one
    /// beside the old certificate; calling again mends that.
    pub fn ensure(&self, authority: &Certified, base: &Path, now: SystemTime) -> Result<bool, Error> {
        let (certificate, key) = (beside(base, "crt"), beside(base, "key"));
        if let (Ok(present), Ok(secret)) = (fs::read_to_string(&certificate), fs::read_to_string(&key)) {
            let present = Certified { certificate: present, key: Secret::new(secret) };
            match self.unfit(&present, authority, now) {
                None => return Ok(false),
                Some(reason) => log::info!("{} is made anew: {reason}", certificate.display()),
            }
        }
        self.issue(authority, now)?.write(base)?;
        Ok(true)
    }

    /// Why `present` cannot stay in use, if so.
    pub(super) fn unfit(&self, present: &Certified, authority: &Certified, now: SystemTime) -> Option<String> {
        match examine::Seen::read(present, authority) {
            Err(error) => Some(error.to_string()),
            Ok(seen) if seen.leaf != *self => Some("its names, addresses or usages have changed".to_owned()),
            Ok(seen) if seen.not_after < now + RENEW_BEFORE => Some("it ends soon".to_owned()),
            Ok(seen) if seen.not_before > now => Some("it begins in the future".to_owned()),
            Ok(_) => None,
        }
    }
}

impl Certified {
    /// Writes `<base>.key`, then `<base>.crt`.
    ///
    /// # Errors
    /// [`Error::Write`]; the key may have been written.
    pub(super) fn write(&self, base: &Path) -> Result<(), Error> {
        for (extension, content, mode) in [("key", self.key.expose(), 0o600), ("crt", &*self.certificate, 0o644)] {
            let path = beside(base, extension);
            files::write_atomically(&path, content.as_bytes(), mode).map_err(|source| Error::Write { path, source })?;
        }
        Ok(())
    }
}

/// `<base>.<extension>`; a dot in the base's name stays.
pub(super) fn beside(base: &Path, extension: &str) -> PathBuf {
    let mut path = base.as_os_str().to_owned();
    path.push(".");
    path.push(extension);
    path.into()
}
