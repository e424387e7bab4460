//! Certificates and keys in PEM, as the TLS library accepts them.

use anyhow::Context as _;
use rustls::RootCertStore;
use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// All certificates of a text, in order. Other content is skipped.
pub fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect()
}

/// The first private key of a text: PKCS #8, PKCS #1 or SEC 1.
pub fn key(pem: &str) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes())
}

/// Trusts exactly the CAs of a text.
pub fn trust_in(authorities: &str) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(authorities).context("reading the CA")? {
        roots.add(authority).context("trusting the CA")?;
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certified() -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["node1".into()]).unwrap().self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    #[test]
    fn certificates_and_key_are_found_in_one_text() {
        let ((one, key_of_one), (other, _)) = (certified(), certified());
        let text = format!("{key_of_one}{one}{other}");
        let found = certificates(&text).unwrap();
        assert_eq!(found, [certificates(&one).unwrap(), certificates(&other).unwrap()].concat());
        assert_eq!(key(&text).unwrap(), key(&key_of_one).unwrap());
        assert_eq!(trust_in(&text).unwrap().len(), 2);
    }

    #[test]
    fn missing_and_damaged_content_is_reported() {
        let (certificate, _) = certified();
        assert!(certificates("").unwrap().is_empty());
        assert!(key(&certificate).is_err());
        let damaged = certificate.replacen("MII", "***", 1);
        assert!(trust_in(&damaged).unwrap_err().to_string().contains("reading the CA"));
    }
}
