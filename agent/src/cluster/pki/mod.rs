//! Keys and certificates of a cluster: its authorities, the certificates that
//! kubeadm does not make, and what is handed to a peer.
//!
//! Everything is ECDSA P-256: on the slow hosts that the appliance must also
//! run on, RSA keys cost minutes. Files are laid out as kubeadm expects them
//! (`cmd/kubeadm/app/constants`), so that the phases of `kubeadm init` find the
//! authorities and sign the rest themselves:
//!
//! ```text
//! ca.crt ca.key                     the cluster's authority
//! front-proxy-ca.crt .key           signs the API server's requests to extensions
//! sa.key sa.pub                     signs service account tokens
//! etcd/ca.crt .key                  etcd's authority: known to control nodes alone
//! etcd/server.crt .key              this node's etcd, towards clients
//! etcd/peer.crt .key                this node's etcd, towards the other members
//! etcd/healthcheck-client.crt .key  the agent's own look at etcd
//! apiserver-etcd-client.crt .key    this node's API server towards etcd
//! ```
//!
//! The authority of the cluster's SSH servers is derived from `ca.key` and kept nowhere.
//!
//! This module knows nothing of the network, of etcd's or of kubeadm's
//! configuration, and of when a cluster is formed. A change of the clock or a
//! crash between two files is no reason to fail: each `ensure` looks at what
//! is there and makes anew what does not fit together.

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

/// Authorities, and all that they sign, are valid from this long before an authority is made: the clock may have been ahead then,
/// by a year where the date was entered by hand, and is corrected later. The keys are new, so that nothing older is certified.
const BACKDATE: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// A block of PEM (RFC 7468), as Go and OpenSSL write it.
pub fn pem(label: &str, der: &[u8]) -> String {
    let encoded = BASE64_STANDARD.encode(der);
    let lines: Vec<&str> = encoded.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// What tells a public key from others, of its `SubjectPublicKeyInfo` in DER: half of the SHA-256, in hexadecimal. A worker
/// says it of the key that it joins with ([`contract::statement::Statement::key`]), control nodes note it.
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

/// Why a key or a certificate could not be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Making one failed: a broken random source, or an authority that cannot sign.
    #[error("making {what}: {source}")]
    Make {
        what: String,
        /// The cause.
        source: rcgen::Error,
    },
    /// A file could not be read.
    #[error("reading {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A file could not be written.
    #[error("writing {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A certificate or a key is not what it should be.
    #[error("{what} is unusable: {reason}")]
    Unusable {
        /// Which one.
        what: String,
        reason: String,
    },
    /// Another authority stands where one was to be put. Nothing was overwritten.
    #[error("{} holds another cluster's authority; it was left alone", path.display())]
    Another {
        /// The file that differs.
        path: PathBuf,
    },
}
