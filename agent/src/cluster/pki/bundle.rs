//! The keys and certificates that make a control-plane node a member of a cluster.

use std::path::Path;
use std::time::SystemTime;

use contract::properties::ControlNode;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::examine;
use super::issue::beside;
use super::{CertificateAuthorities, CertificateWithKey, Error, Leaf};

/// The first node's answer to each control-plane node: the CAs, and the certificates of the node's own etcd. All keys
/// are zeroed when dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberBundle {
    /// The cluster's identity. It is drawn with the decision to form the cluster.
    pub cluster: Uuid,
    pub node: String,
    #[serde(rename = "authorities")]
    pub cas: CertificateAuthorities,
    pub etcd_server: CertificateWithKey,
    pub etcd_peer: CertificateWithKey,
}

impl MemberBundle {
    /// Creates the bundle of `node`. Writes nothing.
    pub fn make(
        cluster: Uuid,
        node: &ControlNode,
        authorities: &CertificateAuthorities,
        now: SystemTime,
    ) -> Result<Self, Error> {
        Ok(Self {
            cluster,
            node: node.name.clone(),
            cas: authorities.clone(),
            etcd_server: Leaf::etcd_server(node).issue(&authorities.etcd, now)?,
            etcd_peer: Leaf::etcd_peer(node).issue(&authorities.etcd, now)?,
        })
    }

    /// Whether the bundle is complete and `node`'s: its certificates are signed by its own CAs, match their keys and
    /// name the node.
    pub fn check(&self, node: &ControlNode, now: SystemTime) -> Result<(), Error> {
        let unusable = |what: &str, reason: String| Error::Unusable { what: what.to_owned(), reason };
        if self.node != node.name {
            return Err(unusable("the bundle", format!("it is for {}", self.node)));
        }
        // This CA signs nothing in the bundle: the check is only that it can be read.
        examine::expiry(&self.cas.kubernetes.certificate)?;
        for (what, leaf, present) in [
            ("etcd's server certificate", Leaf::etcd_server(node), &self.etcd_server),
            ("etcd's peer certificate", Leaf::etcd_peer(node), &self.etcd_peer),
        ] {
            if let Some(reason) = leaf.unfit(present, &self.cas.etcd, now) {
                return Err(unusable(what, reason));
            }
        }
        Ok(())
    }

    /// Writes everything into the directory `pki`, and creates the two client certificates that a control-plane node
    /// signs itself. Returns whether anything changed. After an error another call completes what was begun.
    pub fn ensure(&self, node: &ControlNode, pki: &Path, now: SystemTime) -> Result<bool, Error> {
        let mut changed = self.cas.ensure(pki)?;
        for (base, leaf, handed) in [
            ("etcd/server", Leaf::etcd_server(node), &self.etcd_server),
            ("etcd/peer", Leaf::etcd_peer(node), &self.etcd_peer),
        ] {
            let base = pki.join(base);
            // A renewed certificate is valid longer than the bundle's: the bundle's must not replace it.
            if !beside(&base, "crt").exists() || !beside(&base, "key").exists() {
                handed.write(&base)?;
                changed = true;
            }
            changed |= leaf.ensure(&self.cas.etcd, &base, now)?;
        }
        Ok(ensure_member(node, pki, now)? || changed)
    }
}

/// Ensures that the directory `pki`, which holds the CAs, also holds valid certificates for `node`'s etcd and its
/// clients. Needs no peer, so that expired certificates are renewed at boot. Returns whether any was created again.
pub fn ensure_member(node: &ControlNode, pki: &Path, now: SystemTime) -> Result<bool, Error> {
    let etcd = CertificateAuthorities::read(pki)?.etcd;
    let mut changed = false;
    for (base, leaf) in [
        ("etcd/server", Leaf::etcd_server(node)),
        ("etcd/peer", Leaf::etcd_peer(node)),
        ("etcd/healthcheck-client", Leaf::etcd_healthcheck_client()),
        ("apiserver-etcd-client", Leaf::apiserver_etcd_client()),
    ] {
        changed |= leaf.ensure(&etcd, &pki.join(base), now)?;
    }
    Ok(changed)
}
