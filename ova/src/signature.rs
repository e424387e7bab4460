//! The signature of a manifest: the package's `.cert` file.
//!
//! Source: DSP0243 1.1 §5.1. The file has the signed SHA-256 digest of the manifest as one line `SHA256(name.mf)= hex`,
//! then the signer's X.509 certificate in PEM. `openssl dgst -sha256 -sign` makes this form; it is not CMS.
//!
//! vSphere shows RSA signatures (PKCS #1 v1.5) as signed. They are the same each time. ECDSA on P-256 is also accepted,
//! but its signatures differ each time.
//!
//! The trust is in a pinned key, not in a chain. A certificate's dates and issuer are ignored, so verifying needs
//! neither a clock nor a network.

use std::fmt;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_SHA256, RsaKeyPair, UnparsedPublicKey,
};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::Sha256;
use crate::digest::{from_hex, to_hex};

/// The reason why nothing was signed, or a signature was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A key or certificate that cannot be used.
    #[error("the {what} cannot be used: {reason}")]
    Input {
        /// Such as "signing key".
        what: &'static str,
        /// The reason, and the remedy.
        reason: String,
    },
    /// Key and certificate are of different pairs.
    #[error("the certificate is not that of the signing key; give the certificate that was made for this key")]
    Mismatch,
    /// Signing failed.
    #[error("the signing key did not sign; it may be damaged")]
    Signing,
    /// A `.cert` file of another form.
    #[error("the signature file cannot be used: {0}")]
    Form(String),
    /// Signed with another key.
    #[error("the package is signed with the key {found}, trusted is {trusted}; do not use it unless you know why")]
    OtherKey {
        /// Fingerprint of the key that signed.
        found: Fingerprint,
        /// Fingerprint of the trusted one.
        trusted: Fingerprint,
    },
    /// The signature is of other bytes.
    #[error("the manifest is not what was signed: it was changed; obtain the package again")]
    Changed,
}

/// SHA-256 of a public key's SubjectPublicKeyInfo (RFC 5280 §4.1.2.7), which identifies the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub Sha256);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SHA256:{}", self.0)
    }
}

/// A publisher's public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    kind: Kind,
    /// The algorithm's form of the key: RSAPublicKey in DER, or an uncompressed point.
    key: Vec<u8>,
    fingerprint: Fingerprint,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Rsa,
    EcdsaP256,
}

impl PublicKey {
    /// Reads a trusted key: PEM with a certificate, or with a bare public key.
    ///
    /// # Errors
    /// If it is neither, or a key of another kind than RSA (2048 to 8192 bits) or ECDSA P-256.
    pub fn from_pem(pem: &str) -> Result<PublicKey, Error> {
        const WHAT: &str = "public key";
        let block = first_block(WHAT, pem, &["CERTIFICATE", "PUBLIC KEY"])?;
        if block.label == "CERTIFICATE" {
            return PublicKey::from_certificate(WHAT, &block);
        }
        match SubjectPublicKeyInfo::from_der(&block.contents) {
            Ok(([], info)) => PublicKey::from_info(WHAT, &info),
            _ => Err(input(WHAT, "it is not a SubjectPublicKeyInfo")),
        }
    }

    /// The fingerprint, which identifies the key.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    fn from_certificate(what: &'static str, block: &Pem) -> Result<PublicKey, Error> {
        let certificate = block.parse_x509().map_err(|_| input(what, "it is not an X.509 certificate"))?;
        PublicKey::from_info(what, certificate.public_key())
    }

    fn from_info(what: &'static str, info: &SubjectPublicKeyInfo<'_>) -> Result<PublicKey, Error> {
        // RFC 3279 §2.3.1 and RFC 5480 §2.1.1.
        const RSA: &str = "1.2.840.113549.1.1.1";
        const EC: &str = "1.2.840.10045.2.1";
        const P256: &str = "1.2.840.10045.3.1.7";
        let curve = || info.algorithm.parameters.as_ref()?.as_oid().ok().map(|oid| oid.to_id_string());
        let kind = match info.algorithm.algorithm.to_id_string().as_str() {
            RSA => Kind::Rsa,
            EC if curve().as_deref() == Some(P256) => Kind::EcdsaP256,
            _ => return Err(input(what, "it is neither RSA nor ECDSA on P-256; use one of these")),
        };
        let key = info.subject_public_key.data.to_vec();
        Ok(PublicKey { kind, key, fingerprint: Fingerprint(Sha256::of(info.raw)) })
    }

    fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), Error> {
        let verified = match self.kind {
            Kind::Rsa => UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &self.key).verify(message, signature),
            Kind::EcdsaP256 => UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &self.key).verify(message, signature),
        };
        verified.map_err(|_| Error::Changed)
    }
}

fn input(what: &'static str, reason: impl Into<String>) -> Error {
    Error::Input { what, reason: reason.into() }
}

/// The first PEM block with one of `labels`.
fn first_block(what: &'static str, pem: &str, labels: &[&str]) -> Result<Pem, Error> {
    for block in Pem::iter_from_buffer(pem.as_bytes()) {
        match block {
            Ok(block) if labels.contains(&block.label.as_str()) => return Ok(block),
            Ok(block) if block.label == "ENCRYPTED PRIVATE KEY" => {
                return Err(input(what, "it is encrypted; decrypt it first (openssl pkey)"));
            }
            Ok(_) => {}
            Err(_) => return Err(input(what, "it is not PEM")),
        }
    }
    Err(input(what, format!("there is no PEM block {:?} in it", labels.join("\" or \""))))
}

/// A publisher's private key with its certificate.
pub struct Signer {
    key: PrivateKey,
    /// The signer's certificate in PEM, followed by those of its CAs.
    certificates: String,
    public: PublicKey,
}

enum PrivateKey {
    Rsa(Box<RsaKeyPair>),
    EcdsaP256(Box<EcdsaKeyPair>),
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("public", &self.public).finish_non_exhaustive()
    }
}

impl Signer {
    /// Reads a private key (PKCS #8, PKCS #1 or SEC 1) and its certificate, both in PEM. Certificates of CAs may
    /// follow.
    pub fn from_pem(key: &str, certificates: &str) -> Result<Signer, Error> {
        const CERTIFICATE: &str = "certificate";
        let block = first_block(CERTIFICATE, certificates, &["CERTIFICATE"])?;
        let public = PublicKey::from_certificate(CERTIFICATE, &block)?;
        let key = PrivateKey::from_pem(key)?;
        if key.kind() != public.kind || key.public() != public.key {
            return Err(Error::Mismatch);
        }
        Ok(Signer { key, certificates: only_certificates(certificates), public })
    }

    /// The key that verifies the signatures.
    pub fn public_key(&self) -> &PublicKey {
        &self.public
    }

    /// Signs `manifest`, the content of the file `name`. Returns the content of the `.cert` file.
    pub fn sign(&self, name: &str, manifest: &[u8]) -> Result<String, Error> {
        let signature = self.key.sign(manifest)?;
        // A damaged key is found here, not by the customer: verifying has to give the same result.
        self.public.verify(manifest, &signature).map_err(|_| Error::Signing)?;
        Ok(format!("SHA256({name})= {}\n{}", to_hex(&signature), self.certificates))
    }
}

/// The PEM blocks with certificates, without other text.
fn only_certificates(pem: &str) -> String {
    let mut certificates = String::new();
    let mut inside = false;
    for line in pem.lines().map(str::trim_end) {
        inside |= line == "-----BEGIN CERTIFICATE-----";
        if inside {
            certificates.push_str(line);
            certificates.push('\n');
        }
        inside &= line != "-----END CERTIFICATE-----";
    }
    certificates
}

impl PrivateKey {
    fn from_pem(pem: &str) -> Result<PrivateKey, Error> {
        const WHAT: &str = "signing key";
        let block = first_block(WHAT, pem, &["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"])?;
        let der = &block.contents;
        let rsa = |key: RsaKeyPair| PrivateKey::Rsa(Box::new(key));
        let ecdsa = |key: EcdsaKeyPair| PrivateKey::EcdsaP256(Box::new(key));
        let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let key = match block.label.as_str() {
            "RSA PRIVATE KEY" => RsaKeyPair::from_der(der).map(rsa),
            "EC PRIVATE KEY" => EcdsaKeyPair::from_private_key_der(algorithm, der).map(ecdsa),
            _ => RsaKeyPair::from_pkcs8(der).map(rsa).or_else(|_| EcdsaKeyPair::from_pkcs8(algorithm, der).map(ecdsa)),
        };
        let key = key.map_err(|_| input(WHAT, "it is neither RSA nor ECDSA on P-256, or is damaged"))?;
        if let PrivateKey::Rsa(pair) = &key
            && pair.public_modulus_len() < KeySize::Rsa2048.len()
        {
            return Err(input(WHAT, "its RSA modulus has less than 2048 bits; make a longer key"));
        }
        Ok(key)
    }

    fn kind(&self) -> Kind {
        match self {
            PrivateKey::Rsa(_) => Kind::Rsa,
            PrivateKey::EcdsaP256(_) => Kind::EcdsaP256,
        }
    }

    fn public(&self) -> &[u8] {
        match self {
            PrivateKey::Rsa(pair) => pair.public_key().as_ref(),
            PrivateKey::EcdsaP256(pair) => pair.public_key().as_ref(),
        }
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let random = SystemRandom::new();
        match self {
            PrivateKey::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).map_err(|_| Error::Signing)?;
                Ok(signature)
            }
            PrivateKey::EcdsaP256(pair) => {
                let signature = pair.sign(&random, message).map_err(|_| Error::Signing)?;
                Ok(signature.as_ref().to_vec())
            }
        }
    }
}

/// A `.cert` file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The manifest's file name.
    pub manifest: String,
    signature: Vec<u8>,
    public: PublicKey,
}

impl Signature {
    /// Reads a `.cert` file.
    pub fn parse(text: &str) -> Result<Signature, Error> {
        let wrong = || Error::Form("its first line is not \"SHA256(name.mf)= signature\"".into());
        let (line, certificates) = text.split_once('\n').ok_or_else(wrong)?;
        let (manifest, hex) = line
            .trim_end_matches('\r')
            .strip_prefix("SHA256(")
            .and_then(|rest| rest.split_once(")= "))
            .ok_or_else(wrong)?;
        let signature = from_hex(hex).filter(|signature| !signature.is_empty()).ok_or_else(wrong)?;
        const WHAT: &str = "certificate in the signature file";
        let public = PublicKey::from_certificate(WHAT, &first_block(WHAT, certificates, &["CERTIFICATE"])?)?;
        Ok(Signature { manifest: manifest.into(), signature, public })
    }

    /// The key of the certificate in the file, which claims to have signed.
    pub fn claimed_key(&self) -> &PublicKey {
        &self.public
    }

    /// Checks that `trusted` signed `manifest`, the content of the file `name`.
    pub fn verify(&self, name: &str, manifest: &[u8], trusted: &PublicKey) -> Result<(), Error> {
        if self.manifest != name {
            return Err(Error::Form(format!("it is of {:?}, the manifest is {name:?}", self.manifest)));
        }
        if self.public != *trusted {
            return Err(Error::OtherKey { found: self.public.fingerprint, trusted: trusted.fingerprint });
        }
        trusted.verify(manifest, &self.signature)
    }
}

#[cfg(test)]
mod tests;
