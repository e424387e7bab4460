//! Who may ask what. The rule knows certificates alone, so that it holds
//! while the API, and with it RBAC, is down:
//!
//! - a client certificate of the group (organization) `system:masters` or
//!   `kubeadm:cluster-admins` is an administrator's;
//! - one of the group `kaas:monitoring` may read status and metrics;
//! - any other one, a node's or a pod's, is nobody's.
//!
//! A certificate that the cluster's authority has not signed, or that is out of
//! date, does not get past the TLS handshake.

use x509_parser::prelude::{FromDer, X509Certificate};

use crate::cluster::pki::groups::{ADMINISTRATORS, MONITORING};

/// What a caller may do. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Right {
    /// Shows no certificate, or nobody's.
    Anyone,
    /// May read status and metrics.
    Monitoring,
    /// May read what the cluster keeps.
    Administrator,
}

impl Right {
    /// What the holder of a certificate may do. The TLS handshake has verified
    /// the certificate, given in DER.
    pub(crate) fn of(certificate: &[u8]) -> Self {
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Self::Anyone };
        let groups = || certificate.subject().iter_organization().filter_map(|group| group.as_str().ok());
        if groups().any(|group| ADMINISTRATORS.contains(&group)) {
            Self::Administrator
        } else if groups().any(|group| group == MONITORING) {
            Self::Monitoring
        } else {
            Self::Anyone
        }
    }

    /// Whose certificate it takes, in words.
    pub(crate) fn needed(self) -> String {
        match self {
            Self::Anyone => "nobody's".to_owned(),
            Self::Monitoring => format!("of the group {MONITORING}, or an administrator's"),
            Self::Administrator => "an administrator's".to_owned(),
        }
    }
}
