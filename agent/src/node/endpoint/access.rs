//! Access rules of the endpoint. They depend on certificates alone, so they work while the API, and with it RBAC, is down:
//!
//! - a client certificate of the group (organization) `system:masters` or `kubeadm:cluster-admins` is an administrator's;
//! - one of the group `kaas:monitoring` may read status and metrics;
//! - one of the group `kaas:deployers` is an administrator's as long as its user is the user of a deployer key that this node
//!   has;
//! - any other one, a node's or a pod's, gives no right;
//! - one that was revoked is refused ([`crate::cluster::certificates::revoked`]).
//!
//! The TLS handshake fails with a certificate that the cluster's CA has not signed, or that is not valid now.

use std::net::SocketAddr;

use contract::deployer::{self, Session};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::cluster::pki::groups::{ADMINISTRATORS, MONITORING};

/// A caller, as far as the connection shows.
#[derive(Clone, Default)]
pub(super) struct Caller {
    /// The right of the certificate. `None` without a certificate.
    pub right: Option<AccessLevel>,
    /// The TLS session. `None` if a proof cannot be bound to it.
    pub session: Option<Session>,
    pub from: Option<SocketAddr>,
}

impl Caller {
    pub(super) fn from(&self) -> String {
        self.from.map_or_else(|| "nowhere".to_owned(), |from| from.ip().to_string())
    }
}

/// The rights of a caller. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AccessLevel {
    /// Shows a certificate that was revoked, or may have been.
    Revoked,
    /// Shows no certificate, or one without rights.
    Anyone,
    Monitoring,
    /// May read the cluster's secrets and change the node.
    Administrator,
}

impl AccessLevel {
    /// The right of the holder of a certificate, in DER, that the TLS handshake has verified. `deployers` looks up the users
    /// of the deployer's keys.
    pub(crate) fn of(certificate: &[u8], deployers: impl FnOnce() -> Vec<String>) -> Self {
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Self::Anyone };
        let groups = || certificate.subject().iter_organization().filter_map(|group| group.as_str().ok());
        let user = || certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
        if groups().any(|group| ADMINISTRATORS.contains(&group)) {
            Self::Administrator
        } else if groups().any(|group| group == deployer::GROUP) {
            let is_current = user().is_some_and(|user| deployers().iter().any(|current| current == user));
            if is_current { Self::Administrator } else { Self::Anyone }
        } else if groups().any(|group| group == MONITORING) {
            Self::Monitoring
        } else {
            Self::Anyone
        }
    }

    /// The certificate that a route needs, in words.
    pub(crate) fn needed(self) -> String {
        match self {
            Self::Revoked | Self::Anyone => "nobody's".to_owned(),
            Self::Monitoring => format!("of the group {MONITORING}, or an administrator's"),
            Self::Administrator => "an administrator's".to_owned(),
        }
    }
}
