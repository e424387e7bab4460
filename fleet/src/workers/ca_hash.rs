//! The hash by which a worker identifies its cluster.

use anyhow::Context;
use contract::deployer::Fingerprint;
use x509_parser::pem::Pem;

/// SHA-256 over the public key of the cluster's CA (its SubjectPublicKeyInfo in DER), as kubeadm's
/// `--discovery-token-ca-cert-hash` has it: `sha256:` and 64 hexadecimal digits. `authority` is its certificate in PEM, the first
/// one of several.
pub fn ca_hash(authority: &str) -> anyhow::Result<String> {
    let pem = Pem::iter_from_buffer(authority.as_bytes()).next().context("there is no certificate")?;
    let pem = pem.context("reading the CA's certificate")?;
    let key = Fingerprint::of_key_of(&pem.contents).context("reading the CA's certificate")?;
    Ok(key.to_string())
}

#[cfg(test)]
mod tests {
    use rcgen::PublicKeyData;
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn the_hash_depends_only_on_the_key() {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = |name: &str| {
            let parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
            parameters.self_signed(&key).unwrap().pem()
        };
        let expected = Sha256::digest(key.subject_public_key_info());
        let expected: String = expected.iter().map(|byte| format!("{byte:02x}")).collect();
        let hash = ca_hash(&certificate("one")).unwrap();
        assert_eq!(hash, format!("sha256:{expected}"));
        assert_eq!(ca_hash(&certificate("two")).unwrap(), hash);
        assert!(ca_hash("no certificate").is_err());
    }
}
