//! The proof that a deployer has its private key. It is bound to one session and one cluster.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustls::ConnectionCommon;
use zeroize::Zeroizing;

use super::{Error, Fingerprint, PrivateKey, PublicKey, Request};
use crate::session;

const LABEL: &[u8] = b"EXPORTER-kaas-deployer";

/// The purpose of the signature. The same key signs handshakes of TLS, which begin with other bytes.
const PURPOSE: &[u8] = b"kaas deployer 1: proves the key of an administrator's certificate\0";

/// Longer texts are no signature on P-256, in characters.
const LONGEST: usize = 128;

/// A TLS 1.3 session between deployer and node.
///
/// ```text
/// proof = ECDSA-P256-SHA256(purpose ‖ exporter ‖ CA's fingerprint ‖ key's fingerprint)
/// ```
#[derive(Clone)]
pub struct Session(Zeroizing<[u8; 32]>);

impl Session {
    /// The session of either end.
    pub fn of<D>(connection: &ConnectionCommon<D>) -> Result<Self, rustls::Error> {
        session::exporter(connection, LABEL).map(Self)
    }

    /// A deployer's request to a node of the cluster with this CA.
    pub fn request(&self, key: &PrivateKey, authority: &Fingerprint) -> Result<Request, Error> {
        let fingerprint = key.fingerprint()?;
        let proof = key.sign(&self.transcript(authority, &fingerprint))?;
        Ok(Request { key: fingerprint, proof: BASE64_STANDARD.encode(proof), holder: None })
    }

    /// Whether a request proves this key in this session, to the cluster with this CA.
    pub fn is_proved(&self, request: &Request, key: &PublicKey, authority: &Fingerprint) -> bool {
        if request.proof.len() > LONGEST || request.key != key.fingerprint() {
            return false;
        }
        let Ok(proof) = BASE64_STANDARD.decode(&request.proof) else { return false };
        key.has_signed(&self.transcript(authority, &request.key), &proof)
    }

    fn transcript(&self, authority: &Fingerprint, key: &Fingerprint) -> Zeroizing<Vec<u8>> {
        Zeroizing::new([PURPOSE, &*self.0, authority.bytes(), key.bytes()].concat())
    }

    /// A session of these bytes.
    #[cfg(test)]
    pub(super) fn fixed(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }
}
