//! How whoever deployed a cluster gets in without SSH: `POST /v1/deployer`.
//!
//! The deployer has a key pair whose public half is a property of the control nodes. Once the cluster has formed, each of
//! them signs an administrator's certificate of a day for that key, for whoever proves that he has its private half.
//!
//! ```text
//! deployer   reads the fingerprints of the cluster's authority and of the node's certificate through the hypervisor
//! deployer   connects by TLS 1.3, and goes on only if the node shows the certificate of that fingerprint
//! deployer   signs the session, the authority's fingerprint and the key's fingerprint, sends that
//! node       signs the certificate, answers with it and the authority
//! deployer   takes them only if the authority has the fingerprint from the hypervisor, and the certificate is for his key
//! ```
//!
//! - The proof is over the session's exported keying material ([`crate::session`]): whoever is handed it, or has recorded
//!   it, has nothing. It names the cluster by its authority, so that it is good for no other one.
//! - The certificate is worth nothing without the private key, which never leaves the deployer. So not even a node that
//!   is somebody else's gains anything by being asked.
//! - The certificate names the key ([`user`]): a node that has another key takes nobody of the former one's, and its
//!   rights in Kubernetes are taken away. So a certificate is worthless once the key was changed.

mod digests;
mod fingerprints;
mod key;
mod proof;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use digests::Digests;
pub use fingerprints::{Fingerprint, Fingerprints};
pub use key::{Error, PrivateKey, PublicKey};
pub use proof::Session;

/// Where a node is asked.
pub const PATH: &str = "/v1/deployer";

/// The group that a deployer's certificate names. It gives no right by itself: the user has to be that of the key which
/// the node has now.
pub const GROUP: &str = "kaas:deployers";

/// How long a certificate is good, in hours.
pub const HOURS: u32 = 24;

/// How the names of all deployers' users begin. Kubernetes keeps `system:` from everybody else.
pub const USERS: &str = "system:kaas:deployer:";

/// The user that certificates for a key name, which its rights in Kubernetes are called by as well: the first half of the
/// key's fingerprint, since a common name takes 64 characters at most (RFC 5280, ub-common-name).
pub fn user(key: &PublicKey) -> String {
    format!("{USERS}{}", &key.fingerprint().digits()[..32])
}

/// What a deployer sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The fingerprint of his public key.
    pub key: Fingerprint,
    /// The proof that he has its private half, in base64: see [`Session`].
    pub proof: String,
}

/// What he gets. Nothing of it is secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    /// The cluster's authority, in PEM.
    #[serde(rename = "authority")]
    pub ca: String,
    /// An administrator's certificate for his key, in PEM.
    pub certificate: String,
    /// Where the Kubernetes API is: `https://<address>:<port>`.
    pub server: String,
    /// The cluster's name.
    pub cluster: String,
    /// When the certificate ends, in seconds since 1970.
    pub ends: u64,
}
