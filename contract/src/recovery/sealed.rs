//! Keys that are sealed to one public key, as a line of text.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustls::crypto::aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_AES_256;
use rustls::crypto::hpke::{EncapsulatedSecret, Hpke as _, HpkePrivateKey, HpkePublicKey};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{Error, Keys, PrivateKey, PublicKey};

/// The beginning of the line, to which the content is bound. Another version has another one. The line ends with a dot.
const MARK: &str = "kaas-recovery-keys-1:";

/// Encryption keys, sealed to one public key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// The fingerprint of the public key.
    pub to: String,
    /// The names of the keys.
    pub ids: Vec<String>,
    pub(super) encapsulated: String,
    pub(super) ciphertext: String,
}

impl Sealed {
    /// Seals keys.
    pub fn new(to: &PublicKey, keys: &Keys) -> Result<Self, Error> {
        let text = Zeroizing::new(serde_json::to_vec(keys).map_err(|_| Error::Seal)?);
        let recipient = HpkePublicKey(to.bytes().to_vec());
        let (EncapsulatedSecret(encapsulated), ciphertext) =
            DH_KEM_X25519_HKDF_SHA256_AES_256.seal(MARK.as_bytes(), &[], &text, &recipient).map_err(|_| Error::Seal)?;
        Ok(Self {
            to: to.fingerprint(),
            ids: keys.ids().map(str::to_owned).collect(),
            encapsulated: BASE64_STANDARD.encode(encapsulated),
            ciphertext: BASE64_STANDARD.encode(ciphertext),
        })
    }

    /// Opens the keys.
    pub fn open(&self, key: &PrivateKey) -> Result<Keys, Error> {
        if self.to != key.public()?.fingerprint() {
            return Err(Error::OtherKey);
        }
        let decode = |text: &str| BASE64_STANDARD.decode(text).map_err(|_| Error::Damaged);
        let (encapsulated, ciphertext) = (EncapsulatedSecret(decode(&self.encapsulated)?), decode(&self.ciphertext)?);
        let private = HpkePrivateKey::from(key.bytes().to_vec());
        let text = DH_KEM_X25519_HKDF_SHA256_AES_256
            .open(&encapsulated, MARK.as_bytes(), &[], &ciphertext, &private)
            .map(Zeroizing::new)
            .map_err(|_| Error::Damaged)?;
        serde_json::from_slice(&text).map_err(|_| Error::Damaged)
    }

    /// The line of text.
    pub fn line(&self) -> String {
        let json = serde_json::to_vec(self).unwrap_or_default();
        format!("{MARK}{}.", BASE64_STANDARD.encode(json))
    }

    /// Reads a line. `None` if it has another form.
    pub fn of_line(line: &[u8]) -> Option<Self> {
        let inside = line.strip_prefix(MARK.as_bytes())?.strip_suffix(b".")?;
        serde_json::from_slice(&BASE64_STANDARD.decode(inside).ok()?).ok()
    }
}
