//! Access for the deployer of a cluster without SSH: `POST /v1/deployer`.
//!
//! The deployer has a key pair. Its public half is a property of the control-plane nodes. Once the cluster has formed, each of
//! them signs administrator's certificates for that key, valid for a day. A client must prove that it has the private half.
//!
//! ```text
//! deployer   reads the fingerprints of the cluster's CA and of the node's certificate through the hypervisor
//! deployer   connects by TLS 1.3, and goes on only if the node shows the certificate of that fingerprint
//! deployer   signs the session, the CA's fingerprint and the key's fingerprint, sends that
//! node       signs the certificate, answers with it and the CA
//! deployer   takes them only if the CA has the fingerprint from the hypervisor, and the certificate is for its key
//! ```
//!
//! A deployer that has credentials renews them without the hypervisor. It continues only if the node shows a certificate that the
//! CA of these credentials has issued for the node's address.
//!
//! - The proof is over the session's exported keying material ([`crate::session`]), so it is worthless in another session. It
//!   names the cluster by its CA, so it is worthless for another cluster.
//! - The certificate is worthless without the private key, which never leaves the deployer. So a hostile node gains nothing
//!   from a request.
//! - The deployer draws a key for each certificate and names it in the request ([`Request::holder`]). So no kubeconfig contains
//!   the deployer's key. Older nodes refuse such a request and sign certificates for the deployer's key itself.
//! - The certificate names the key ([`user`]). A node that has another key refuses the former key's certificates, and its
//!   rights in Kubernetes are taken away. So a certificate is worthless once the key was changed.

mod digests;
mod fingerprints;
mod key;
mod proof;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use digests::Digests;
pub use fingerprints::{Fingerprint, Fingerprints};
pub use key::{Error, MOST_KEYS, PrivateKey, PublicKey, public_keys, written};
pub use proof::Session;

/// The path of the route.
pub const PATH: &str = "/v1/deployer";

/// The group in a deployer's certificate. It gives no right by itself: the user must be that of the node's current key.
pub const GROUP: &str = "kaas:deployers";

/// How long a certificate is valid, in hours.
pub const HOURS: u32 = 24;

/// The beginning of all deployers' user names. Kubernetes reserves `system:` for itself.
pub const USERS: &str = "system:kaas:deployer:";

/// The user in certificates for a key, which also has the rights in Kubernetes. It contains the first half of the key's
/// fingerprint, because a common name has at most 64 characters (RFC 5280, ub-common-name).
pub fn user(key: &PublicKey) -> String {
    format!("{USERS}{}", &key.fingerprint().digits()[..32])
}

/// The request of a deployer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The fingerprint of its public key.
    pub key: Fingerprint,
    /// The proof that it has the private half, in base64: see [`Session`].
    pub proof: String,
    /// The public key of the certificate, as [`PublicKey`] writes it. `None` for the deployer's own key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
}

/// The answer to a deployer. It contains no secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Issued {
    /// The certificate of the cluster's CA, in PEM.
    #[serde(rename = "authority")]
    pub ca: String,
    /// An administrator's certificate for the deployer's key, in PEM.
    pub certificate: String,
    /// The address of the Kubernetes API: `https://<address>:<port>`.
    pub server: String,
    /// The cluster's name.
    pub cluster: String,
    /// When the certificate expires, in seconds since 1970.
    pub ends: u64,
}
