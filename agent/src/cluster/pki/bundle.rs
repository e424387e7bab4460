//! What a control node needs to be a member of a cluster.

use std::path::Path;
use std::time::SystemTime;

use contract::properties::ControlNode;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::examine;
use super::issue::beside;
use super::{CertificateAuthorities, CertificateWithKey, Error, Leaf};

/// What the first node hands each control node: the authorities, and the
/// certificates of the node's own etcd. All keys are zeroed when dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberBundle {
    /// The cluster's identity, drawn when it was decided to form it.
    pub cluster: Uuid,
    pub node: String,
    #[serde(rename = "authorities")]
    pub cas: CertificateAuthorities,
    /// The node's etcd towards clients.
    pub etcd_server: CertificateWithKey,
    /// The node's etcd towards the other members.
    pub etcd_peer: CertificateWithKey,
}

impl MemberBundle {
    /// Makes the bundle of `node`. Nothing is written.
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

    /// Whether the bundle is whole and `node`'s: its certificates are signed
    /// by its own authorities, match their keys and name the node.
    ///
    /// # Errors
    /// [`Error::Unusable`] naming what is wrong.
    pub fn check(&self, node: &ControlNode, now: SystemTime) -> Result<(), Error> {
        let unusable = |what: &str, reason: String| Error::Unusable { what: what.to_owned(), reason };
        if self.node != node.name {
            return Err(unusable("the bundle", format!("it is for {}", self.node)));
        }
        // Nothing in the bundle is signed by this one: that it can be read has to do.
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

    /// Writes everything into the directory `pki` and makes the two client
    /// certificates that a control node signs for itself. Says whether anything
    /// changed.
    ///
    /// # Errors
    /// As [`Authorities::ensure`] and [`Leaf::ensure`]; calling again completes
    /// what was begun.
    pub fn ensure(&self, node: &ControlNode, pki: &Path, now: SystemTime) -> Result<bool, Error> {
        let mut changed = self.cas.ensure(pki)?;
        for (base, leaf, handed) in [
            ("etcd/server", Leaf::etcd_server(node), &self.etcd_server),
            ("etcd/peer", Leaf::etcd_peer(node), &self.etcd_peer),
        ] {
            let base = pki.join(base);
            // A renewed certificate outlives the bundle's: it must not be put back.
            if !beside(&base, "crt").exists() || !beside(&base, "key").exists() {
                handed.write(&base)?;
                changed = true;
            }
            changed |= leaf.ensure(&self.cas.etcd, &base, now)?;
        }
        Ok(ensure_member(node, pki, now)? || changed)
    }
}

/// Sees to it that the directory `pki`, which holds the authorities, also holds
/// fitting certificates for `node`'s etcd and its clients. Works without any
/// peer, so that expired certificates are healed at boot. Says whether anything
/// was made anew.
///
/// # Errors
/// [`Error::Read`] when the authorities are missing; otherwise as [`Leaf::ensure`].
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
