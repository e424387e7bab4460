//! The deployer's key pair: ECDSA on P-256, as in the certificates of a cluster.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::encoding::{AsBigEndian as _, EcPrivateKeyBin};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _, ParsedPublicKey,
    UnparsedPublicKey,
};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use zeroize::Zeroizing;

use super::Fingerprint;
use super::digests::Digests;
use crate::encoding::{base64, unescape_lines};
use crate::secret::Secret;

/// The bytes before the 65 bytes of an uncompressed point in a SubjectPublicKeyInfo of P-256 (RFC 5480, section 2).
const PUBLIC: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const END: &str = "-----END PRIVATE KEY-----";

/// How many keys a node accepts: while a key is replaced, the present and the next one.
pub const MOST_KEYS: usize = 2;

/// Why a text is no key. It contains nothing of the text, which may be a private key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is something else than a public key on P-256.
    #[error("it is no public key of ECDSA P-256 in PEM")]
    NotPublic,
    /// It is a private key where a public one belongs.
    #[error("it is a private key")]
    Private,
    /// It is something else than a private key on P-256.
    #[error("it is no private key of ECDSA P-256 in PEM (PKCS #8)")]
    NotPrivate,
    /// There are more keys than a node accepts.
    #[error("it has more than two keys")]
    TooMany,
    /// The random source failed.
    #[error("a key could not be drawn or used: there is no randomness")]
    Random,
}

/// The key of a deployer with access. It is written as the base64 of its SubjectPublicKeyInfo: the inside of its PEM, one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey([u8; 65]);

impl PublicKey {
    /// SHA-256 of its SubjectPublicKeyInfo, as `openssl pkey -pubin -outform der | sha256sum` prints it.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.der())
    }

    /// Whether the private half has signed a message (RFC 3279, section 2.2.3).
    pub fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, self.0).verify(message, signature).is_ok()
    }

    /// Its SubjectPublicKeyInfo.
    pub fn der(&self) -> Vec<u8> {
        [&PUBLIC[..], &self.0].concat()
    }

    fn of_point(point: &[u8]) -> Option<Self> {
        let point = <[u8; 65]>::try_from(point).ok()?;
        // The point may not be on the curve.
        ParsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point).ok()?;
        Some(Self(point))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64_STANDARD.encode(self.der()))
    }
}

/// PEM with line ends as they are, written as `\n` or turned into spaces; only its inside; or base64 of the file.
impl FromStr for PublicKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let text = Zeroizing::new(unescape_lines(text));
        if text.contains("PRIVATE KEY") {
            return Err(Error::Private);
        }
        let inside = text.replace("-----BEGIN PUBLIC KEY-----", "").replace("-----END PUBLIC KEY-----", "");
        let bytes = base64(&inside).map(Zeroizing::new).ok_or(Error::NotPublic)?;
        if bytes.starts_with(b"-----BEGIN ") && inside == *text {
            return std::str::from_utf8(&bytes).map_err(|_| Error::NotPublic)?.parse();
        }
        if is_private(&bytes) {
            return Err(Error::Private);
        }
        bytes.strip_prefix(&PUBLIC).and_then(Self::of_point).ok_or(Error::NotPublic)
    }
}

/// The keys in the property `deployer-public-key`: one, or two with a comma between.
///
/// # Errors
/// One of them is no public key, or there are more.
pub fn public_keys(text: &str) -> Result<Vec<PublicKey>, Error> {
    let keys: Vec<PublicKey> = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
    if keys.len() > MOST_KEYS { Err(Error::TooMany) } else { Ok(keys) }
}

/// The property with these keys.
pub fn written(keys: &[PublicKey]) -> String {
    keys.iter().map(PublicKey::to_string).collect::<Vec<_>>().join(",")
}

/// Whether this is a private key of any kind in DER. A private key begins with a version (RFC 5958, RFC 5915, RFC 8017), a
/// public key with an algorithm.
fn is_private(der: &[u8]) -> bool {
    let after_length = match der {
        [0x30, length @ 0x81..=0x84, ..] => 2 + usize::from(length & 0x0f),
        [0x30, ..] => 2,
        _ => return false,
    };
    der.get(after_length) == Some(&0x02)
}

/// The deployer's private key. Zeroed when dropped.
pub struct PrivateKey {
    pkcs8: Zeroizing<Vec<u8>>,
    pair: EcdsaKeyPair,
}

impl PrivateKey {
    /// Draws a key.
    pub fn draw() -> Result<Self, Error> {
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
        Self::of_der(Zeroizing::new(document.map_err(|_| Error::Random)?.as_ref().to_vec()))
    }

    /// Reads a PKCS #8 key in PEM.
    pub fn of_pem(text: &str) -> Result<Self, Error> {
        let inside = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).ok_or(Error::NotPrivate)?.0;
        Self::of_der(base64(inside).map(Zeroizing::new).ok_or(Error::NotPrivate)?)
    }

    fn of_der(pkcs8: Zeroizing<Vec<u8>>) -> Result<Self, Error> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &pkcs8).map_err(|_| Error::NotPrivate)?;
        Ok(Self { pkcs8, pair })
    }

    /// The PKCS #8 key in PEM.
    pub fn pem(&self) -> Secret {
        let inside = Zeroizing::new(BASE64_STANDARD.encode(&*self.pkcs8));
        let mut text = Zeroizing::new(format!("{BEGIN}\n"));
        for start in (0..inside.len()).step_by(64) {
            text.push_str(&inside[start..inside.len().min(start + 64)]);
            text.push('\n');
        }
        Secret::new(format!("{}{END}\n", *text))
    }

    /// The public half.
    pub fn public(&self) -> Result<PublicKey, Error> {
        PublicKey::of_point(self.pair.public_key().as_ref()).ok_or(Error::NotPrivate)
    }

    /// The fingerprint of the public half.
    pub fn fingerprint(&self) -> Result<Fingerprint, Error> {
        Ok(self.public()?.fingerprint())
    }

    /// Makes digests. Without this key a guess cannot be checked against them.
    pub fn digests(&self) -> Result<Digests, Error> {
        // The number is unique; the encoding of a key is not.
        let number: EcPrivateKeyBin<'_> = self.pair.private_key().as_be_bytes().map_err(|_| Error::NotPrivate)?;
        Ok(Digests::of(number.as_ref()))
    }

    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let signature = self.pair.sign(&SystemRandom::new(), message).map_err(|_| Error::Random)?;
        Ok(signature.as_ref().to_vec())
    }
}
