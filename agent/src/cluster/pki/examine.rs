//! Reads certificates back.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use contract::secret::Secret;
use rcgen::{KeyPair, PublicKeyData};
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;
use x509_parser::prelude::{ASN1Time, X509Certificate};

use super::{CertificateWithKey, Error, Leaf};

pub fn expiry(certificate: &str) -> Result<SystemTime, Error> {
    validity(certificate).map(|(_, ends)| ends)
}

/// The start and the end, from PEM.
pub fn validity(certificate: &str) -> Result<(SystemTime, SystemTime), Error> {
    let pem = pem(certificate)?;
    let certificate = parse(&pem)?;
    Ok((time(certificate.validity().not_before), time(certificate.validity().not_after)))
}

/// A certificate and its key from one text, as the kubelet stores them. `None` if a part is missing or damaged.
pub fn pair(text: &str) -> Option<CertificateWithKey> {
    let block = |label: &str| {
        let (begin, end) = (format!("-----BEGIN {label}-----"), format!("-----END {label}-----"));
        let from = text.find(&begin)?;
        let to = text[from..].find(&end)? + from + end.len();
        Some(format!("{}\n", &text[from..to]))
    };
    let key = ["EC PRIVATE KEY", "PRIVATE KEY", "RSA PRIVATE KEY"].into_iter().find_map(block)?;
    let certificate = block("CERTIFICATE").filter(|certificate| expiry(certificate).is_ok())?;
    Some(CertificateWithKey { certificate, key: Secret::new(key) })
}

/// Of a certificate in PEM, in hexadecimal as `openssl x509` writes it.
pub fn serial(certificate: &str) -> Result<String, Error> {
    let pem = pem(certificate)?;
    Ok(parse(&pem)?.raw_serial().iter().map(|byte| format!("{byte:02X}")).collect())
}

/// When a certificate expires that `authority` has signed and whose key is that of `present`. If its start is in the
/// future because of a clock that was ahead, it counts as expired.
pub fn verified(
    present: &CertificateWithKey,
    authority: &CertificateWithKey,
    now: SystemTime,
) -> Result<SystemTime, Error> {
    let seen = ExaminedCertificate::read(present, authority)?;
    Ok(if seen.begins_late(now) { SystemTime::UNIX_EPOCH } else { seen.not_after })
}

/// The content of a certificate whose signature and key have been checked.
pub(super) struct ExaminedCertificate {
    pub leaf: Leaf,
    pub not_before: SystemTime,
    pub not_after: SystemTime,
    /// The start of the CA's validity.
    ca_not_before: SystemTime,
}

impl ExaminedCertificate {
    /// Whether its validity starts in the future and a new certificate's would not. In earlier images a certificate's
    /// validity started when it was made. If the CA's own validity starts in the future, a new certificate is no
    /// better.
    pub(super) fn begins_late(&self, now: SystemTime) -> bool {
        self.not_before > now.max(self.ca_not_before)
    }

    /// Reads a certificate. `authority` must have signed it, and its key must be the one in `present`.
    pub(super) fn read(present: &CertificateWithKey, authority: &CertificateWithKey) -> Result<Self, Error> {
        let (pem, signer) = (pem(&present.certificate)?, self::pem(&authority.certificate)?);
        let (certificate, signer) = (parse(&pem)?, parse(&signer)?);
        certificate
            .verify_signature(Some(signer.public_key()))
            .map_err(|_| unusable("the certificate", "another CA signed it"))?;
        let key =
            KeyPair::from_pem(present.key.expose()).map_err(|error| unusable("the private key", &error.to_string()))?;
        if key.subject_public_key_info() != certificate.public_key().raw {
            return Err(unusable("the private key", "it belongs to another certificate"));
        }
        Ok(Self {
            leaf: leaf(&certificate)?,
            not_before: time(certificate.validity().not_before),
            not_after: time(certificate.validity().not_after),
            ca_not_before: time(signer.validity().not_before),
        })
    }
}

fn leaf(certificate: &X509Certificate<'_>) -> Result<Leaf, Error> {
    let strange = |error: x509_parser::error::X509Error| unusable("the certificate", &error.to_string());
    let common_name = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    let group = certificate.subject().iter_organization().next().and_then(|name| name.as_str().ok());
    let (mut names, mut addresses) = (BTreeSet::new(), BTreeSet::new());
    for name in certificate.subject_alternative_name().map_err(strange)?.iter().flat_map(|san| &san.value.general_names)
    {
        match name {
            GeneralName::DNSName(name) => {
                names.insert((*name).to_owned());
            }
            GeneralName::IPAddress(bytes) => {
                addresses.insert(address(bytes)?);
            }
            other => return Err(unusable("the certificate", &format!("it has the unexpected name {other}"))),
        }
    }
    let usage = certificate.extended_key_usage().map_err(strange)?;
    Ok(Leaf {
        common_name: common_name.unwrap_or_default().to_owned(),
        group: group.map(str::to_owned),
        names,
        addresses,
        server: usage.as_ref().is_some_and(|usage| usage.value.server_auth),
        client: usage.as_ref().is_some_and(|usage| usage.value.client_auth),
    })
}

fn address(bytes: &[u8]) -> Result<IpAddr, Error> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Ok(four.into());
    }
    <[u8; 16]>::try_from(bytes)
        .map(IpAddr::from)
        .map_err(|_| unusable("the certificate", "it has an address of an unknown length"))
}

fn pem(text: &str) -> Result<Pem, Error> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(text.as_bytes())
        .map_err(|error| unusable("the certificate", &error.to_string()))?;
    Ok(pem)
}

fn parse(pem: &Pem) -> Result<X509Certificate<'_>, Error> {
    pem.parse_x509().map_err(|error| unusable("the certificate", &error.to_string()))
}

fn time(time: ASN1Time) -> SystemTime {
    let seconds = Duration::from_secs(time.timestamp().unsigned_abs());
    if time.timestamp() < 0 { SystemTime::UNIX_EPOCH - seconds } else { SystemTime::UNIX_EPOCH + seconds }
}

fn unusable(what: &str, reason: &str) -> Error {
    Error::Unusable { what: what.to_owned(), reason: reason.to_owned() }
}
