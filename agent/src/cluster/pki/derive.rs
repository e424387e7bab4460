//! Keys that are derived from a CA's key. Every control-plane node of a cluster has that key, so that no derived key
//! must be transferred or saved, and none can be lost.

use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use zeroize::Zeroizing;

use super::{CertificateWithKey, Error};
use crate::host::tls;

/// A key of 32 bytes from the CA's (HKDF-SHA256, RFC 5869). It is always the same for one salt and purpose, and reveals
/// nothing of the keys for others.
pub fn derive(authority: &CertificateWithKey, salt: &[u8], purpose: &[u8]) -> Result<Zeroizing<[u8; 32]>, Error> {
    let unusable = |reason: String| Error::Unusable { what: "the CA's key".to_owned(), reason };
    let key = tls::key(authority.key.expose()).map_err(|error| unusable(error.to_string()))?;
    let mut derived = Zeroizing::new([0; 32]);
    Salt::new(HKDF_SHA256, salt)
        .extract(key.secret_der())
        .expand(&[purpose], HKDF_SHA256)
        .and_then(|expanded| expanded.fill(&mut *derived))
        .map_err(|_| unusable("no key can be derived from it".to_owned()))?;
    Ok(derived)
}

/// A CA with a fixed key and certificate.
#[cfg(test)]
pub(crate) fn fixed_authority() -> CertificateWithKey {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;

    let pem = |label: &str, byte: u8| {
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", BASE64_STANDARD.encode([byte; 32]))
    };
    CertificateWithKey { certificate: pem("CERTIFICATE", 9), key: contract::secret::Secret::new(pem("PRIVATE KEY", 7)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::hex;

    #[test]
    fn derived_bytes_are_fixed_for_each_purpose() {
        // By Python's hmac, as RFC 5869 describes it.
        let ssh = derive(&fixed_authority(), b"kaas ssh hosts 1", b"ed25519").unwrap();
        assert_eq!(hex::lower(&*ssh), "b8ce4151f9634f2894f35c0eb814ec6fca855e5003aad6ea95ab5891af08910d");
        let purpose = b"kaas encryption keys 1";
        let wrapping = derive(&fixed_authority(), purpose, purpose).unwrap();
        assert_eq!(hex::lower(&*wrapping), "93d22a44f8285062ab48c74b1df7d1c2f25a5e6d4459f7b7ce4f9ce5d143052a");
        let none = CertificateWithKey { key: contract::secret::Secret::new("none".to_owned()), ..fixed_authority() };
        assert!(derive(&none, purpose, purpose).is_err());
    }
}
