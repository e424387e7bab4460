//! The desired state of a cluster.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use contract::deployer::{Digests, Fingerprint, PublicKey};
use contract::properties::{DEPLOYER_PUBLIC_KEY, DEPLOYMENT_SECRET};

use uuid::Uuid;

use crate::hypervisor::{Placement, Size};
use crate::workers::Image;

/// The control-plane nodes of a cluster, as they should be created.
pub struct DesiredState {
    pub cluster: String,
    pub nodes: Vec<WantedNode>,
    /// The size of their VMs.
    pub size: Size,
    pub image: Image,
    pub ova: PathBuf,
    /// Their networks, in the order of the image's networks.
    pub networks: Vec<String>,
    /// The placement of nodes that have no other one.
    pub placement: Placement,
    /// Makes the keyed hashes in the journal. The key stays with the deployer.
    pub digests: Digests,
}

pub struct WantedNode {
    /// The name of the node and of its VM.
    pub name: String,
    pub address: Ipv4Addr,
    /// All its OVF properties by key. Some are secrets.
    pub properties: BTreeMap<String, String>,
    /// BIOS UUID for its VM, if one was drawn already. No other VM may have been given it. If this process drew it, and the
    /// record may be restored to an earlier state, [`super::Unfinished`] must be informed.
    pub drawn: Option<Uuid>,
    /// Where its VM is placed, if not with the others.
    pub placement: Option<Placement>,
}

impl DesiredState {
    /// The placement of a node's VM.
    pub(super) fn placement<'a>(&'a self, node: &'a WantedNode) -> &'a Placement {
        node.placement.as_ref().unwrap_or(&self.placement)
    }

    /// Keyed hash of what a node's VM is created from: another hash means another VM. Secrets are included, and a reader of the
    /// journal cannot guess them from it. The deployment secret is left out: it has no use once the cluster has formed, and may
    /// be gone then.
    pub(super) fn made_of(&self, node: &WantedNode) -> String {
        let told = node.properties.iter().filter(|(key, _)| key.as_str() != DEPLOYMENT_SECRET);
        let told: Vec<_> = told.map(|(key, value)| format!("{key}={value:?}\n")).collect();
        let Size { processors, memory, data_disk } = &self.size;
        self.digests.digest("form", &format!("{processors} {memory} {data_disk:?}\n{}", told.concat()))
    }

    /// Fingerprint of the deployer key that its VMs are given. `None` if they are given none.
    pub fn deployer(&self) -> Option<Fingerprint> {
        let told = self.nodes.iter().find_map(|node| node.properties.get(DEPLOYER_PUBLIC_KEY))?;
        Some(told.parse::<PublicKey>().ok()?.fingerprint())
    }

    /// Keyed hash of the deployment secret that a node's VM is given. `None` if the secret is gone.
    pub(super) fn secret(&self, node: &WantedNode) -> Option<String> {
        let secret = node.properties.get(DEPLOYMENT_SECRET)?;
        Some(self.digests.digest("deployment-secret", secret))
    }
}
