//! Encryption keys that only the operator can read. A cluster's nodes seal them to the operator's public key and keep them in
//! the cluster's store. So each snapshot contains them. They are opened on the operator's machine.
//!
//! Sealed by HPKE (RFC 9180) with X25519, HKDF-SHA256 and AES-256-GCM. The key pair has the forms that `openssl genpkey
//! -algorithm x25519` writes: PKCS #8 and SubjectPublicKeyInfo (RFC 8410).

mod key;
mod sealed;

pub use key::{PrivateKey, PublicKey};
pub use sealed::Sealed;

use serde::{Deserialize, Serialize};

use crate::secret::Secret;

/// The prefix in etcd of the sealed copies. Each node with a public key keeps one under its name.
pub const KEPT_BELOW: &str = "/kaas/encryption/recovery/";

/// Errors with recovery keys. No message contains a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is no public key of this kind.
    #[error("it is not an X25519 public key as PEM or its base64")]
    NotPublic,
    /// It is a private key, which must not be on a node.
    #[error("it is a private key: keep it to yourself, and give the public one")]
    Private,
    /// The text is no private key of this kind.
    #[error("it is not an X25519 private key in PEM (PKCS #8)")]
    NotPrivate,
    /// The library refuses it, or the random source fails.
    #[error("sealing failed")]
    Seal,
    /// It was sealed to another key.
    #[error("it is sealed to another key")]
    OtherKey,
    /// It is damaged, or of a later version.
    #[error("what is sealed is damaged, or of a later version")]
    Damaged,
}

/// Encryption keys in clear, as they are sealed, opened and given to a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// All keys that some Secret may be encrypted with.
    pub keys: Vec<Key>,
}

/// An encryption key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Its name, the prefix of each value that it has encrypted.
    pub id: String,
    /// Its 32 bytes in base64.
    pub secret: Secret,
}

impl Keys {
    /// The names.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|key| key.id.as_str())
    }
}

#[cfg(test)]
mod tests;
