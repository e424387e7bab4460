//! Keys and certificates of a cluster: its CAs, the certificates that kubeadm does not make, and the bundle for a peer.
//!
//! Everything is ECDSA P-256: the appliance must also run on slow hosts, where RSA keys cost minutes. The file names
//! are those that kubeadm expects (`cmd/kubeadm/app/constants`), so that the phases of `kubeadm init` find the CAs and
//! sign the rest themselves:
//!
//! ```text
//! ca.crt ca.key                     the cluster's CA
//! front-proxy-ca.crt .key           signs the API server's requests to extensions
//! sa.key sa.pub                     signs service account tokens
//! etcd/ca.crt .key                  etcd's CA: on control-plane nodes alone
//! etcd/server.crt .key              this node's etcd, for clients
//! etcd/peer.crt .key                this node's etcd, for the other members
//! etcd/healthcheck-client.crt .key  the agent's own requests to etcd
//! apiserver-etcd-client.crt .key    this node's API server's requests to etcd
//! ```
//!
//! The CA of the cluster's SSH servers is derived from `ca.key` and stored nowhere.
//!
//! This module knows nothing of the network, of etcd's or of kubeadm's configuration, and of when a cluster is formed.
//! It does not fail after a change of the clock or a crash between two files. Each `ensure` checks the present files
//! and creates those again that do not fit together.

mod bundle;
mod certificate_authorities;
mod derive;
mod examine;
pub mod groups;
mod issue;
mod kubeconfig;
mod leaf;
pub mod ssh;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use contract::secret::Secret;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::host::hex;

pub use bundle::{MemberBundle, ensure_member};
pub use certificate_authorities::{CertificateAuthorities, ServiceAccountKeys};
pub use derive::derive;
#[cfg(test)]
pub(crate) use derive::fixed_authority;
pub use examine::{expiry, pair, serial, validity, verified};
pub use issue::RENEW_BEFORE;
pub use kubeconfig::{embedded, ensure_kubeconfig, kubeconfig, point_at, read as read_kubeconfig};
pub use leaf::Leaf;

/// CAs, and all certificates that they sign, are valid from this long before a CA is made. The clock may have been
/// ahead then and be corrected later: by a year if the date was entered by hand. The keys are new, so nothing older is
/// certified.
const BACKDATE: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// A block of PEM (RFC 7468), as Go and OpenSSL write it.
pub fn pem(label: &str, der: &[u8]) -> String {
    let encoded = BASE64_STANDARD.encode(der);
    let lines: Vec<&str> = encoded.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// Identifies a public key by its `SubjectPublicKeyInfo` in DER: half of the SHA-256, in hexadecimal. A worker reports
/// it for the key with which it joins ([`contract::statement::Statement::key`]). Control-plane nodes record it.
pub fn digits(public: &[u8]) -> String {
    hex::lower(&Sha256::digest(public)[..16])
}

/// A certificate and its private key, both in PEM. The key is zeroed when dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateWithKey {
    /// The certificate alone, without its chain.
    pub certificate: String,
    /// PKCS #8.
    pub key: Secret,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be made: the random source is broken, or the CA cannot sign.
    #[error("making {what}: {source}")]
    Make { what: String, source: rcgen::Error },
    #[error("reading {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("writing {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    /// A certificate or a key is not what it should be.
    #[error("{what} is unusable: {reason}")]
    Unusable { what: String, reason: String },
    /// A file of another CA already exists. Nothing was overwritten.
    #[error("{} holds another cluster's CA; it was not changed", path.display())]
    Another {
        /// The file that differs.
        path: PathBuf,
    },
}
