//! Who may ask what. The rule knows certificates alone, so that it holds
//! while the API, and with it RBAC, is down:
//!
//! - a client certificate of the group (organization) `system:masters` or
//!   `kubeadm:cluster-admins` is an administrator's;
//! - one of the group `kaas:monitoring` may read status and metrics;
//! - one of the group `kaas:deployers` is an administrator's as long as its user is that of the deployer's key which this
//!   node has now;
//! - any other one, a node's or a pod's, is nobody's;
//! - one that was revoked is refused ([`crate::cluster::certificates::revoked`]).
//!
//! A certificate that the cluster's authority has not signed, or that is out of
//! date, does not get past the TLS handshake.

use std::net::SocketAddr;

use contract::deployer::{self, Session};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::cluster::pki::groups::{ADMINISTRATORS, MONITORING};

/// Who asks, as far as the connection shows.
#[derive(Clone, Default)]
pub(super) struct Caller {
    /// What the certificate allows; none if none was shown.
    pub right: Option<AccessLevel>,
    /// The TLS session; none where no proof would hold for it.
    pub session: Option<Session>,
    /// From where; none if that is not known.
    pub from: Option<SocketAddr>,
}

impl Caller {
    pub(super) fn from(&self) -> String {
        self.from.map_or_else(|| "nowhere".to_owned(), |from| from.ip().to_string())
    }
}

/// What a caller may do. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AccessLevel {
    /// Shows a certificate that was revoked, or may have been.
    Revoked,
    /// Shows no certificate, or nobody's.
    Anyone,
    /// May read status and metrics.
    Monitoring,
    /// May read what the cluster keeps.
    Administrator,
}

impl AccessLevel {
    /// What the holder of a certificate may do. The TLS handshake has verified
    /// the certificate, given in DER. `deployer` looks up the user of the deployer's key.
    pub(crate) fn of(certificate: &[u8], deployer: impl FnOnce() -> Option<String>) -> Self {
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Self::Anyone };
        let groups = || certificate.subject().iter_organization().filter_map(|group| group.as_str().ok());
        let user = || certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
        if groups().any(|group| ADMINISTRATORS.contains(&group)) {
            Self::Administrator
        } else if groups().any(|group| group == deployer::GROUP) {
            let current = deployer();
            if current.is_some() && current.as_deref() == user() { Self::Administrator } else { Self::Anyone }
        } else if groups().any(|group| group == MONITORING) {
            Self::Monitoring
        } else {
            Self::Anyone
        }
    }

    /// Whose certificate it takes, in words.
    pub(crate) fn needed(self) -> String {
        match self {
            Self::Revoked | Self::Anyone => "nobody's".to_owned(),
            Self::Monitoring => format!("of the group {MONITORING}, or an administrator's"),
            Self::Administrator => "an administrator's".to_owned(),
        }
    }
}
