//! The operator's key pair.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::agreement::{self, X25519};
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustls::crypto::aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_AES_256;
use rustls::crypto::hpke::Hpke as _;
use zeroize::Zeroizing;

use super::Error;
use crate::encoding::{base64, unescape_lines};
use crate::secret::Secret;

/// The bytes before the 32 bytes of the key in a SubjectPublicKeyInfo of X25519 (RFC 8410, section 4) …
const PUBLIC: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x6e, 0x03, 0x21, 0x00];
/// … and in its PKCS #8 form (section 7).
const PRIVATE: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x6e, 0x04, 0x22, 0x04, 0x20];

const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const END: &str = "-----END PRIVATE KEY-----";

/// The key that keys are sealed to. It is written as the base64 of its SubjectPublicKeyInfo: the inside of its PEM, one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey([u8; 32]);

/// The key that opens sealed keys. Zeroed when dropped.
pub struct PrivateKey(Zeroizing<[u8; 32]>);

impl PublicKey {
    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A short name of the key: the beginning of the SHA-256 of its 32 bytes, in hexadecimal.
    pub fn fingerprint(&self) -> String {
        digest(&SHA256, &self.0).as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64_STANDARD.encode([&PUBLIC[..], &self.0].concat()))
    }
}

impl FromStr for PublicKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let text = unescape_lines(text);
        if text.contains("PRIVATE KEY") {
            return Err(Error::Private);
        }
        let inside = text.replace("-----BEGIN PUBLIC KEY-----", "").replace("-----END PUBLIC KEY-----", "");
        let der = base64(&inside).map(Zeroizing::new).ok_or(Error::NotPublic)?;
        if der.starts_with(&PRIVATE) {
            return Err(Error::Private);
        }
        let key = der.strip_prefix(&PUBLIC).and_then(|key| <[u8; 32]>::try_from(key).ok());
        // A point of small order would give everyone the same secret.
        key.filter(|key| key.iter().any(|byte| *byte != 0)).map(Self).ok_or(Error::NotPublic)
    }
}

impl PrivateKey {
    /// Draws a key.
    pub fn draw() -> Result<Self, Error> {
        let (_, private) = DH_KEM_X25519_HKDF_SHA256_AES_256.generate_key_pair().map_err(|_| Error::Seal)?;
        <[u8; 32]>::try_from(private.secret_bytes()).map(|key| Self(Zeroizing::new(key))).map_err(|_| Error::Seal)
    }

    /// Reads a PKCS #8 key in PEM.
    pub fn of_pem(text: &str) -> Result<Self, Error> {
        let inside = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).ok_or(Error::NotPrivate)?.0;
        let der = base64(inside).map(Zeroizing::new).ok_or(Error::NotPrivate)?;
        let key = der.strip_prefix(&PRIVATE).and_then(|key| <[u8; 32]>::try_from(key).ok());
        key.map(|key| Self(Zeroizing::new(key))).ok_or(Error::NotPrivate)
    }

    /// The PKCS #8 key in PEM.
    pub fn pem(&self) -> Secret {
        let der = Zeroizing::new([&PRIVATE[..], &self.0[..]].concat());
        let inside = Zeroizing::new(BASE64_STANDARD.encode(&der));
        Secret::new(format!("{BEGIN}\n{}\n{END}\n", *inside))
    }

    /// The public half.
    pub fn public(&self) -> Result<PublicKey, Error> {
        let key = agreement::PrivateKey::from_private_key(&X25519, &self.0[..]).map_err(|_| Error::NotPrivate)?;
        let public = key.compute_public_key().map_err(|_| Error::NotPrivate)?;
        <[u8; 32]>::try_from(public.as_ref()).map(PublicKey).map_err(|_| Error::NotPrivate)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0[..]
    }
}
