//! Keys as the store holds them: wrapped with AES-256-GCM. HKDF-SHA256 derives the wrapping key from the private key of
//! etcd's CA. Every control-plane node has that, and no snapshot.

use anyhow::{Context as _, anyhow, ensure};
use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use contract::recovery::Key;
use contract::secret::Secret;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::cluster::pki::{CertificateWithKey, derive};
use crate::host::{hex, tls};

/// The purpose of the derived key. The agent derives no other key from the CA with these words.
const PURPOSE: &[u8] = b"kaas encryption keys 1";

/// Wraps and unwraps keys with a key that is derived from a CA's.
pub(super) struct Wrapping {
    key: RandomizedNonceKey,
    ca: String,
}

impl Wrapping {
    /// Derives the key from `authority`, which signs etcd's certificates.
    pub(super) fn of(authority: &CertificateWithKey) -> anyhow::Result<Self> {
        let derived = derive(authority, PURPOSE, PURPOSE).context("deriving a key from etcd's CA")?;
        let key = RandomizedNonceKey::new(&AES_256_GCM, &derived[..]).map_err(|_| anyhow!("setting up AES failed"))?;
        let certificates = tls::certificates(&authority.certificate);
        let certificates = certificates.context("reading the certificate of etcd's CA")?;
        let certificate = certificates.first().context("etcd's CA has no certificate")?;
        Ok(Self { key, ca: hex::lower(&Sha256::digest(certificate)[..16]) })
    }

    /// Names the CA: the beginning of its certificate's SHA-256.
    pub(super) fn ca(&self) -> &str {
        &self.ca
    }

    /// Wraps a key, bound to its name.
    pub(super) fn wrap(&self, key: &Key) -> anyhow::Result<String> {
        let mut text = key.secret.expose().as_bytes().to_vec();
        let sealed = self.key.seal_in_place_append_tag(Aad::from(key.id.as_bytes()), &mut text);
        let nonce = sealed.map_err(|_| anyhow!("wrapping a key failed"))?;
        Ok(BASE64_STANDARD.encode([&nonce.as_ref()[..], &text].concat()))
    }

    pub(super) fn unwrap(&self, id: &str, wrapped: &str) -> anyhow::Result<Key> {
        let damaged = || anyhow!("the encryption key {id} in the store is damaged, or wrapped by another CA");
        let bytes = BASE64_STANDARD.decode(wrapped).map_err(|_| damaged())?;
        ensure!(bytes.len() > NONCE_LEN, damaged());
        let (nonce, text) = bytes.split_at(NONCE_LEN);
        let (nonce, mut text) =
            (Nonce::try_assume_unique_for_key(nonce).map_err(|_| damaged())?, Zeroizing::new(text.to_vec()));
        let opened = self.key.open_in_place(nonce, Aad::from(id.as_bytes()), &mut text[..]).map_err(|_| damaged())?;
        let secret = str::from_utf8(opened).map_err(|_| damaged())?;
        Ok(Key { id: id.to_owned(), secret: Secret::new(secret.to_owned()) })
    }
}

/// Draws a key: 32 random bytes and a new name.
pub(super) fn draw() -> anyhow::Result<Key> {
    let mut bytes = Zeroizing::new([0; 32]);
    aws_lc_rs::rand::fill(&mut bytes[..]).map_err(|_| anyhow!("the random source fails"))?;
    let name = uuid::Uuid::new_v4().simple().to_string();
    Ok(Key { id: format!("k{}", &name[..12]), secret: Secret::new(BASE64_STANDARD.encode(&bytes[..])) })
}
